#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# What goes where: --plan, --vram, --expert-profile.
load common

# Sums of a plan are exact, and its layers say what its weights say.
exact='(.total_bytes == .fixed_bytes + .device_weight_bytes + .kv_bytes + .state_bytes + .logits_bytes
        + .scratch_bytes)
    and (.device_weight_bytes == ([.device_weight_bytes_by_kind[]] | add))
    and (.host_weight_bytes == ([.host_weight_bytes_by_kind[], 0] | add))
    and ((.host_weight_bytes_by_kind.experts // 0) == ([.layers[] | (16 - .device_experts) * .expert_bytes] | add))'

@test "a plan of the host's memory has no limit" {
    chimere-run --plan > out
    grep -q '^plan for cpu$' out
    grep -q 'experts of layers 0 to 7: 16 of 16 on the device' out
    chimere-run --plan --json > plan
    [ "$(wc -l < plan)" -eq 1 ]
    jq -e "$exact"' and .type == "plan" and .budget_bytes == 0 and .fixed_bytes == 0 and .present
        and (.layers | length) == 8' plan
}

@test "a plan for a card that is not here: never above its size, more with more" {
    last=-1
    for mb in 393 395 397 400 403 406 500; do
        chimere-run --plan --json --vram ${mb}M --ctx 512 --chunk 64 > plan
        jq -e "$exact"' and .total_bytes <= .budget_bytes and .budget_bytes == '$mb' * 1048576' plan
        n=$(jq '[.layers[].device_experts] | add' plan)
        [ "$n" -ge "$last" ]
        last=$n
    done
    [ "$last" -eq 128 ]
    chimere-run --plan --vram 700M > out
    grep -q '^plan for cuda, ' out
    fails 1 "too little" chimere-run --plan --vram 60M
}

@test "a plan for several cards: each has its layers and stays below its size; sums are those of the parts" {
    chimere-run --plan --json --shape qwen3.6-35b-a3b --mix q4k --vram 16G,16G --ctx 64k > two
    jq -e '.device == "cuda:0,cuda:1" and (.devices | length) == 2 and all(.devices[]; .total_bytes <= .budget_bytes)
        and .devices[0].first_layer == 0 and .devices[0].last_layer + 1 == .devices[1].first_layer
        and .devices[1].last_layer == 39 and all(.layers[]; .device_experts == 256) and .pass_bytes == 8192
        and .total_bytes == ([.devices[].total_bytes] | add)
        and all(.devices[]; .total_bytes == .fixed_bytes + .device_weight_bytes + .kv_bytes + .state_bytes
            + .logits_bytes + .scratch_bytes)' two
    # unlike cards; less than the model takes, where the rest goes to the CPU; shares that were asked for
    for sizes in 6G,16G 16G,6G,6G 8G,6G; do
        chimere-run --plan --json --shape qwen3.6-35b-a3b --mix q4k --vram $sizes --ctx 16k > plan
        jq -e 'all(.devices[]; .total_bytes <= .budget_bytes) and ([.devices[] | .last_layer - .first_layer + 1] | add) == 40' plan
    done
    jq -e '.host_weight_bytes_by_kind.experts > 1e9' plan
    chimere-run --plan --json --shape qwen3.6-35b-a3b --mix q4k -ts 3,1 --vram 16G --ctx 16k > plan
    jq -e '.devices[0].last_layer == 29' plan
    chimere-run --plan --shape qwen3.6-35b-a3b --mix q4k --vram 16G,16G --ctx 16k > out
    grep -qE '^  layers   0 to  [0-9]+ on cuda:0: weights .* of 17.180 GB$' out
}

@test "several devices give the answer of one; what cannot be is refused in a line" {
    chimere-run -p "Name a colour." -n 8 --json | jq -c 'del(.timings)' > one
    for device in cpu,cpu cpu,cpu,cpu; do
        chimere-run -p "Name a colour." -n 8 --json --device $device | jq -c 'del(.timings)' | cmp - one
    done
    for device in cpu cpu,cpu; do
        chimere-run -p "Name a colour." -n 8 --device $device --expert-profile $device.json > out
        jq -c .uses $device.json >> uses
    done
    [ "$(sort -u uses | wc -l)" -eq 1 ]
    # a conversation goes on elsewhere
    chimere-run --session s -p "Name a colour." -n 8 > one
    cp s t
    chimere-run --session s -p "And another." -n 8 > one
    chimere-run --session t -p "And another." -n 8 --device cpu,cpu --split 1,3 | cmp - one
    chimere-run -v -p hi -n 1 --device cpu,cpu --split 1,3 > out 2> err
    grep -q 'layers   0 to   1 on cpu: ' err
    fails 2 "2 sizes for 3 devices: one for all, or one for each" chimere-run --device cuda:0,cuda:1,cuda:2 --vram 1G,2G -p x
    fails 2 "3 sizes for 2 devices" chimere-run --device cuda:0,cuda:1 --vram 1G,2G,3G -p x
    fails 2 "not with --device cpu,cpu" chimere-run --device cpu,cpu --vram 1G -p x
    fails 2 "all shares are 0" chimere-run --device cpu,cpu -ts 0,0 -p x
    fails 2 "leave a device whose share is 0" chimere-run --device cpu,cpu -ts 0,1 -p x
    fails 2 "3 shares for 2 devices" chimere-run --device cpu,cpu -ts 1,1,1 -p x
    fails 2 "not layers, rows, auto, or shares" chimere-run --device cpu,cpu --split 1,x -p x
    fails 2 "GPUs have no exchange inside layers yet" chimere-run --device cuda:0,cuda:1 --split rows -p x
    fails 2 "GPUs have no exchange inside layers yet" chimere-run --device cuda:0,cuda:1 -sm tensor -p x
    fails 2 "of one kind" chimere-run --device cpu,cuda -p x
    for names in cpu, ,cpu ,,cpu cpu,,cpu ,; do
        fails 2 "a name is missing" chimere-run --device $names -p x
    done
    fails 2 "can be cut in 8 ranges at most" chimere-run --device cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu -p x
    fails 2 "training takes one device" chimere-draft-train lora --device cpu,cpu -m "$CHIMERE_MODEL" -o a.gguf x
    chimere-run --device cuda:1,cuda:1 -p x > out 2> err || true
    grep -q 'cuda:1 comes twice, which is a test' err
}

@test "devices that share every layer give the answer of one; a conversation goes on elsewhere" {
    chimere-run -p "Name a colour." -n 8 --json | jq -c 'del(.timings)' > one
    chimere-run -p "Name a colour." -n 8 --json --device cpu,cpu --split rows | jq -c 'del(.timings)' | cmp - one
    chimere-run -p "Name a colour." -n 8 --json --device cpu,cpu -sm row | jq -c 'del(.timings)' | cmp - one
    chimere-run -p "Name a colour." -n 8 --json --device cpu --split rows | jq -c 'del(.timings)' | cmp - one
    for kv in q8_0 q8_0,q4_0; do
        chimere-run -p "Name a colour." -n 8 --kv $kv > one
        chimere-run -p "Name a colour." -n 8 --kv $kv --device cpu,cpu --split rows --draft auto | cmp - one
    done
    chimere-run --session s -p "Name a colour." -n 8 --device cpu,cpu --split rows > one
    cp s t
    chimere-run --session s -p "And another." -n 8 > one
    chimere-run --session t -p "And another." -n 8 --device cpu,cpu --split rows | cmp - one
    chimere-run --plan --json --device cpu,cpu --split rows --ctx 512 > plan
    jq -e "$exact"' and .split == "rows" and (.devices | length) == 2
        and .device_weight_bytes == ([.devices[].device_weight_bytes] | add)
        and (.devices[0].device_weight_bytes - .devices[1].device_weight_bytes | fabs) < .1 * .device_weight_bytes
        and .exchanges == 33 and .exchange_bytes > 0
        and .devices[0].kv_bytes == .devices[1].kv_bytes and .kv_bytes == 2 * .devices[0].kv_bytes
        and all(.devices[]; .first_layer == 0 and .last_layer == 7 and .total_bytes == .fixed_bytes
            + .device_weight_bytes + .kv_bytes + .state_bytes + .logits_bytes + .scratch_bytes)' plan
    chimere-run --plan --shape qwen3.6-35b-a3b --device cpu,cpu --split rows --ctx 4096 > plan
    grep -qx "  121 exchanges of each token, 4925 KB in all" plan
    chimere-run -v -p hi -n 1 --device cpu,cpu --split rows --expert-profile uses > out 2> err
    grep -q 'a part of every layer on cpu: ' err
    fails 2 "3 devices cannot share every layer: layer 3 has 2 heads" chimere-run --device cpu,cpu,cpu --split rows -p x
    fails 2 "not with --split-mode" chimere-run --device cpu,cpu --split 1,1 -sm row -p x
    fails 2 "--split layers: not with --split-mode (-sm) row" chimere-run --device cpu,cpu --split layers -sm row -p x
    fails 2 "--split rows: not with --split-mode (-sm) layer" chimere-run --device cpu,cpu -sm layer --split rows -p x
    # a --split from elsewhere is ignored where it does not fit what was typed
    chimere-run -p "Name a colour." -n 8 > one
    for split in rows 1,1; do
        CHIMERE_OPTS="--split $split --device cpu,cpu" chimere-run -p "Name a colour." -n 8 --device check:cpu | cmp - one
    done
    CHIMERE_OPTS="--split 1,1 --device cpu,cpu" chimere-run -p "Name a colour." -n 8 -sm row | cmp - one
    for options in "-sm row|--split layers" "-sm row|--expert-cache 20M" "--split rows|--expert-cache 20M" "--expert-cache 20M|-sm row"; do
        # shellcheck disable=SC2086
        CHIMERE_OPTS="${options%|*} --device cpu,cpu" chimere-run -v -p "Name a colour." -n 8 ${options#*|} 2> err | cmp - one
        grep -q 'is ignored: it has no effect here' err
    done
    fails 2 "--expert-cache: not with --split rows" chimere-run --device cpu,cpu -sm row --expert-cache 20M -p x
    fails 2 "--device auto takes one device" chimere-run --device auto --split rows -p x
    chimere-run -p "Name a colour." -n 8 --device check:cpu,check:cpu --split rows | cmp - one
}

@test "a plan estimates the speed from bytes and bandwidths, assumed ones until they are measured" {
    # a context of one token: what is read is weights and state
    rm -rf "$XDG_CACHE_HOME/chimere"
    chimere-run --plan --json --ctx 1 > cpu
    jq -e '.speed | .host_bytes_per_s == 4e10 and .device_bytes_per_s == 4e10 and (.host_measured | not) and .host_step_bytes == 0' cpu
    jq -e '(.device_weight_bytes_by_kind | del(.embedding, .experts) | add) as $dense | ([.layers[] | 4 * .expert_bytes] | add) as $e
        | .speed.device_step_bytes == $dense + $e + 2 * .state_bytes' cpu
    jq -e '.speed | (1 / (.device_step_bytes / .8 / 4e10 + 8 * 20e-6) - .most_tps | fabs) < 1
        and (1 / ((.device_step_bytes + .context_step_bytes) / .4 / 4e10 + 8 * 36e-6) - .least_tps | fabs) < 1' cpu
    # half of the experts on the host: the bytes of both together are the same
    chimere-run --plan --json --vram 397M --ctx 512 --chunk 64 > card
    jq -es '.[0].speed.device_step_bytes as $all | .[1] | .speed | (.device_step_bytes + .host_step_bytes - $all | fabs) < 50000
        and .host_step_bytes > 1e6 and .device_bytes_per_s == 2.7e11 and .host_bytes_per_s == 4e10' cpu card
    chimere-run --plan --vram 397M --ctx 512 --chunk 64 > out
    grep -qE '^  speed          about [0-9]+ to [0-9]+ tokens/s: a token reads 0\.[0-9]+ GB from the card at 270 GB/s ' out
    grep -qE ' \(assumed\) and 0\.[0-9]+ GB from the host at 40 GB/s \(assumed\)$' out
    # measured with all threads and the usual buffer it is kept; broken, it is not used
    chimere-bench bandwidth --size 1M --reps 1 > out
    [ ! -e "$XDG_CACHE_HOME/chimere" ]
    mkdir -p "$XDG_CACHE_HOME/chimere"
    chmod 700 "$XDG_CACHE_HOME/chimere"
    chimere-bench bandwidth --size 512M --reps 1 > out
    chimere-run --plan --json > plan
    jq -es '(map(.read_bytes_per_s // 0) | last(.[:-1][])) as $m | .[-1].speed | .host_measured and .device_measured
        and (.host_bytes_per_s / $m - 1 | fabs) < 1e-4' out plan
    for text in '{' '{"bytes_per_s":-1}' '{"bytes_per_s":"x"}' '[]' '' '{"bytes_per_s":1e300}'; do
        printf '%s' "$text" > "$(echo "$XDG_CACHE_HOME"/chimere/bandwidth-cpu-*)"
        chimere-run --plan --json | jq -e '.speed.host_bytes_per_s == 4e10'
    done
    chimere-bench synth --shape qwen3.6-35b-a3b --mix q8_0 --vram 16G --bandwidth 717 --table > out
    grep -q ' from the card at 717 GB/s (given) and ' out
}

@test "a plan has the bytes of a token by part, and what shares of the bandwidth would give" {
    parts='(.speed | (.step_bytes_by_part | del(.kv) | add) / (.device_step_bytes + .host_step_bytes) - 1 | fabs < 1e-6)'
    chimere-run --plan --json --bandwidth 100 > cpu
    jq -e "$parts" cpu
    jq -e '.device_weight_bytes_by_kind as $k | .speed | .device_bytes_per_s == 1e11 and (.device_measured | not)
        and (.step_bytes_by_part | .output == $k.output and .router == $k.router and .kv > 0
            and .dense == ($k | del(.embedding, .experts, .output, .router, .mtp) | add))
        and .step_bytes_by_part.state == 2 * '"$(jq .state_bytes cpu)" cpu
    jq -e '.speed | [.shares[].share] == [.56, .75, .85] and all(.shares[]; .least_tps < .most_tps)
        and (.shares[0].most_tps * .device_step_bytes / .56e11 - 1 | fabs) < 1e-6
        and (.shares[2].least_tps * (.device_step_bytes + .context_step_bytes) / .85e11 - 1 | fabs) < 1e-6' cpu
    # a shape on a card: its experts count by their use, and those of the host at the host's bandwidth
    chimere-run --plan --json --shape qwen3.6-35b-a3b --mix q4k --vram 24G --ctx 64k --bandwidth 448 > card
    jq -e "$parts"' and .speed.step_bytes_by_part.experts == ([.layers[].expert_bytes] | add) * 8
        and .speed.step_bytes_by_part.kv == 65536 * 20480 and .speed.device_bytes_per_s == 4.48e11' card
    chimere-run --plan --json --shape qwen3.6-35b-a3b --mix q4k --vram 12G --ctx 64k > split
    jq -e "$parts"' and .speed.host_step_bytes > 0 and (.speed | .shares[1].most_tps
        * (.device_step_bytes / .device_bytes_per_s + .host_step_bytes / .host_bytes_per_s) / .75 - 1 | fabs) < 1e-6' split
    jq -es 'map(.speed.step_bytes_by_part | del(.router)) | .[0] == .[1]' card split # but for a table of places
    chimere-run --plan --shape qwen3.6-35b-a3b --mix q4k --vram 24G --ctx 64k --bandwidth 448 > out
    grep -qE '^  bytes a token  dense [0-9.]+ GB, experts .* GB, router .* GB, output .* GB, state .* GB; kv 1\.34 GB more at 65536 ' out
    [ "$(grep -cE '^  at (56|75|85) %        of the bandwidth alone [0-9]+ to [0-9]+ tokens/s$' out)" -eq 3 ]
    fails 2 'must be above 0' chimere-run --plan --bandwidth 0
    fails 2 '--bandwidth needs --plan' chimere-run --bandwidth 448 -p x
}

@test "a profile is written, added to, and keeps used experts on the card" {
    chimere-run -p "Name a colour." -n 6 --expert-profile p.json > first
    jq -e '.type == "expert_profile" and (.model_fingerprint | test("^[0-9a-f]{16}$")) and (.uses | length) == 8
        and all(.uses[]; length == 16)' p.json
    once=$(jq '[.uses[][]] | add' p.json)
    [ "$once" -gt 0 ]
    chimere-run -p "Name a colour." -n 6 --expert-profile p.json > second
    diff first second
    chimere-run -p "Name a colour." -n 6 > third
    diff first third
    [ "$(jq '[.uses[][]] | add' p.json)" -eq $((2 * once)) ]
    chimere-run --plan --json --vram 393M --ctx 512 --chunk 64 > blind
    chimere-run --plan --json --vram 393M --ctx 512 --chunk 64 --expert-profile p.json > plan
    jq -e "$exact" plan
    # which ones is known from counts alone: else a run measures it, and as text the plan says so
    jq -e 'any(.layers[]; has("device_expert_ids"))' plan
    jq -e 'any(.layers[]; .device_experts > 0 and .device_experts < 16)
        and all(.layers[]; has("device_expert_ids") | not)' blind
    chimere-run --plan --vram 393M --ctx 512 --chunk 64 > out
    grep -q 'those used most by 256 tokens, measured before they are loaded' out
    chimere-run --plan --vram 393M --ctx 512 --chunk 64 --expert-profile p.json > out
    [ "$(grep -c 'measured before' out)" -eq 0 ]
    # expected uses on the host are those that the profile has
    jq -es '.[1] as $p | .[0].layers | all(.[]; . as $l | ($p.uses[.layer] | add) as $all
        | (if .device_experts == 16 then 0 elif .device_experts == 0 then 4
           else 4 * (1 - ([$l.device_expert_ids[] as $i | $p.uses[$l.layer][$i]] | add) / $all) end)
        | . - $l.host_uses | fabs < 1e-6)' plan p.json
    jq -es '([.[0].layers[].host_uses] | add) <= ([.[1].layers[].host_uses] | add)' plan blind
}

@test "profiles that are none, or of another model" {
    chimere-run -p hi -n 1 --expert-profile p.json > /dev/null
    for change in '.type = "completion"' 'del(.type)' '.model_fingerprint = "0123456789abcdef"' 'del(.uses)' \
        '.uses = 7' '.uses[0] = []' '.uses = .uses[1:]' '.uses[3][3] = -1' '.uses[3][3] = 1.5' \
        '.uses[3][3] = "1"' '.uses[3][3] = 18014398509481984' '[.]'; do
        jq -c "$change" p.json > bad.json
        fails 3 "bad.json" chimere-run -p hi -n 1 --expert-profile bad.json
    done
    printf '{' > bad.json
    fails 3 "bad.json" chimere-run -p hi -n 1 --expert-profile bad.json
    : > bad.json
    fails 3 "bad.json" chimere-run -p hi -n 1 --expert-profile bad.json
    fails 1 "no/such" chimere-run -p hi -n 0 --expert-profile no/such/place.json
}

@test "weights in memory of their own: the same bytes, and plans that say so" {
    chimere-run -p "Name a colour." -n 8 --threads 2 > mapped
    chimere-run -p "Name a colour." -n 8 --threads 2 --no-mmap -v > copied 2> notes
    diff mapped copied
    grep -q '^weights  22\.[0-9] MB copied from the file, 0\.0 MB of them laid out' notes
    # no memory that may be locked, one processor, two programs that load at once
    (ulimit -l 0 && chimere-run -p "Name a colour." -n 8 --no-mmap > copied)
    cmp mapped copied
    taskset -c "$(taskset -cp $$ | sed 's/.*[:,-] *//')" chimere-run -p "Name a colour." -n 8 --no-mmap > copied
    cmp mapped copied
    for i in 1 2; do chimere-run -p "Name a colour." -n 8 --threads 2 --no-mmap > "copied.$i" & pids[i]=$!; done
    wait "${pids[1]}" && wait "${pids[2]}"
    cmp mapped copied.1
    cmp mapped copied.2
    chimere-run -r -p "The list of" -n 0 --logits mapped.f32
    chimere-run -r -p "The list of" -n 0 --logits copied.f32 --no-mmap --threads 1
    cmp mapped.f32 copied.f32
    chimere-run -r -p "The list of" -n 0 --logits checked.f32 --no-mmap --device check:cpu
    cmp mapped.f32 checked.f32
    chimere-run -r -p "The list of" -n 0 --logits mapped.f32 --acts i8
    for options in "" "--repack off" "--threads 1 --chunk 2" "--device check:cpu"; do
        # shellcheck disable=SC2086
        chimere-run -r -p "The list of" -n 0 --logits laid.f32 --acts i8 --no-mmap $options
        cmp mapped.f32 laid.f32
    done
    for where in "" "--vram 393M --ctx 512 --chunk 64"; do
        # shellcheck disable=SC2086
        chimere-run --plan --json $where > mapped
        # shellcheck disable=SC2086
        chimere-run --plan --json $where --no-mmap > copied
        jq -e "$exact" copied
        # beside a GPU unasked, where there is memory for it
        jq -es --arg where "$where" '.[0].copied_weight_bytes == (if $where == "" then 0 else .[1].copied_weight_bytes end)
            and .[1].copied_weight_bytes > 1000000
            and (.[0] | del(.copied_weight_bytes)) == (.[1] | del(.copied_weight_bytes))' mapped copied
        # on the CPU all but rows and vectors; beside a GPU the experts that it has not
        jq -e 'if .device == "cpu" then .copied_weight_bytes < .device_weight_bytes
            and .copied_weight_bytes > 0.95 * .device_weight_bytes
            else .copied_weight_bytes == .host_weight_bytes_by_kind.experts end' copied
        # shellcheck disable=SC2086
        chimere-run --plan $where --no-mmap | grep -q '^  copied  .* MB of weights, to memory of the CPU'
        # shellcheck disable=SC2086
        chimere-run --plan $where > out
        [ "$(grep -c '^  copied ' out)" -eq "$([ -z "$where" ]; echo $?)" ]
    done
}

@test "types of keys and values: f16 on a GPU where there is a plan with it, else smaller ones, and told" {
    plan() { chimere-bench synth --shape qwen3.6-35b-a3b --ctx 64k --json "$@" 2> err; }
    # with room: the GPU's type and rows of a step, also in a program without CUDA
    plan --mix ramp --vram 24G > r
    jq -e '.plan | .kv == "f16,f16" and .kv_bytes == 65536 * 20480 and .chunk == 4096 and .kv_fallback == false
        and all(.layers[]; .device_experts == 256)' r
    jq -e '.kv_bytes_per_token == 20480' r
    [ ! -s err ]
    # with less: experts leave before keys and values are rounded, which has to be asked for
    plan --mix ramp --vram 16G > r
    jq -e '.plan | .kv == "f16,f16" and any(.layers[]; .device_experts < 256)' r
    plan --mix ramp --vram 16G --kv q8_0,q4_0 > r
    jq -e '.plan | .kv == "q8_0,q4_0" and .kv_bytes == 65536 * 8320 and .kv_fallback == false
        and all(.layers[]; .device_experts == 256)' r
    [ ! -s err ]
    # no plan with f16 at all
    for want in 5500M:q8_0,q8_0 4800M:q8_0,q4_0; do
        plan --ctx 256k --vram "${want%:*}" > r
        jq -e --arg kv "${want#*:}" '.plan | .kv == $kv and .kv_fallback and .total_bytes <= .budget_bytes' r
        [ "$(wc -l < err)" -eq 1 ]
        grep -q "keys and values are kept as ${want#*:}: there is no room for f16" err
    done
    try 1 chimere-bench synth --shape qwen3.6-35b-a3b --ctx 256k --vram 5500M --kv f16
    grep -q 'too little' err
    # chimere-run plans a shape as it plans a file, and as synth does
    shape() { chimere-run --plan --json --shape qwen3.6-35b-a3b --ctx 64k --vram 16G "$@"; }
    [ "$(shape --mix ramp | jq -cS .)" = "$(plan --vram 16G --mix ramp | jq -cS .plan)" ]
    [ "$(shape | jq -cS .)" = "$(shape --mix q4_k_m | jq -cS .)" ]
    fails 2 "shape 'x' is not known" chimere-run --plan --shape x
    fails 2 '--mix needs --shape' chimere-run --plan --mix ramp
    fails 2 '--shape needs --plan' chimere-run -p x --shape qwen3.6-35b-a3b
    fails 2 'do not go together' chimere-run --plan --shape qwen3.6-35b-a3b -m x
    fails 2 '--plan takes one shape, or a file' chimere-run --plan --shape qwen3.6-35b-a3b x
    # experts that are more than the memory of this machine
    plan --mix q8_0 --ctx 256k --vram 16G > r
    chimere-bench synth --shape qwen3.6-35b-a3b --mix q8_0 --ctx 256k --vram 16G --table > out
    more=$(jq '.plan | .host_weight_bytes_by_kind.experts + .host_scratch_bytes > .host_memory_bytes' r)
    [ "$(grep -c 'MORE than the memory of this machine' out)" -eq "$([ "$more" = true ] && echo 1 || echo 0)" ]
    # and on the CPU
    chimere-run --plan --json | jq -e '.kv == "f32,f32" and .kv_fallback == false'
    chimere-run -p hi -n 1 --json | jq -e '.kv == "f32,f32" and .kv_fallback == false'
    chimere-run -p hi -n 1 --jsonl --kv f16 | head -n 1 | jq -e '.kv == "f16,f16" and .kv_fallback == false'
}

@test "usage" {
    fails 2 "not with --device cpu" chimere-run --device cpu --vram 16G -p hi
    fails 2 "--vram 5X" chimere-run --plan --vram 5X
    fails 2 "--vram -1" chimere-run --plan --vram -1
    fails 2 "-p has no effect with --plan" chimere-run --plan -p hi
    fails 2 "--inspect and --plan do not go together" chimere-run --plan --inspect
}

@test "without a GPU: one sentence" {
    chimere-run --device auto -r -p The -n 3 > out
    [ -s out ]
    if ! chimere-run --device cuda -p hi -n 1 > out 2> err; then
        [ "$(wc -l < err)" -eq 1 ]
        grep -qi cuda err
        fails 1 "CUDA" chimere-run --vram 16G -p hi -n 1
        # in every program a device that fails
        fails 1 "CUDA" chimere-run --device cuda -p hi -n 1
        fails 1 "CUDA" chimere-run --device check:cuda -p hi -n 1
        fails 1 "CUDA" chimere-serve-stdio --device cuda
        head -c 2000 "$ROOT/LICENSE" > notes
        for command in speed bandwidth 'ppl notes'; do
            # shellcheck disable=SC2086
            fails 1 "CUDA" chimere-bench $command --device cuda
        done
        # no new file of answers is left behind, and one that was there stays
        head -n 2 "$ROOT/share/eval/math.jsonl" > m.jsonl
        : > old
        for answers in new old; do fails 1 "CUDA" chimere-bench eval -o $answers --device cuda m.jsonl; done
        [ ! -e new ] && [ -e old ]
        fails 1 "CUDA" chimere-engram-build index -o i --device cuda notes
        fails 1 "CUDA" chimere-quantize --measure l --random --tokens 64 --device cuda "$MODELS/qwen35moe-a.gguf"
    fi
}
