#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-bench: each command's records, comparisons, resuming, refusals; its manual.
load common

refuses() # STATUS TEXT COMMAND...: one line on stderr with TEXT, nothing on stdout
{
    local want=$1 text=$2
    shift 2
    try "$want" "$@" < /dev/null || return 1
    if [ -s out ] || [ "$(wc -l < err)" -ne 1 ] || ! grep -q '^chimere-bench: ' err || ! grep -qF -e "$text" err; then
        echo "$*: wanted one line with '$text', got:"
        cat out err
        return 1
    fi
}

text()
{
    jq -r '.messages[0].content' "$ROOT/share/eval/math.jsonl"
}

brief() # a speed run of a moment
{
    chimere-bench speed --prompt 16 --depth 0 --rows '' --seqs '' --tokens 2 --reps 2 "$@"
}

@test "every record says what it is, of what, where and how" {
    brief > out
    chimere-bench bandwidth --size 4M --reps 1 --threads 1 >> out
    text | chimere-bench ppl --ctx 32 --windows 2 >> out
    chimere-bench synth --shape granite-4-h-tiny --vram 8G >> out
    [ "$(wc -l < out)" -ge 5 ]
    jq -es 'all(.[]; .type and .case and (.[.metric] | type == "number") and (.noise | type == "number")
        and (.better | test("^(higher|lower)$")) and .hardware.cpu and .hardware.cpus >= 1
        and .build.version and .build.commit and (.command | test("chimere-bench")) and .time_utc)' out
    jq -es 'all(.[] | select(.type != "bandwidth" and .type != "synth");
        (.model.fingerprint | test("^[0-9a-f]{16}$")) and .model.weight_bytes > 1000000)' out
}

@test "speed: prompts, depths, rows, sequences" {
    chimere-bench speed --prompt 8,16 --depth 0,32 --rows 1,2,4 --seqs 1,2 --tokens 2 --reps 2 > out
    jq -r .case out > cases
    printf '%s\n' load 'prompt tokens=8' 'prompt tokens=16' 'decode depth=0' 'decode depth=32' \
        'rows n=1 depth=0' 'rows n=2 depth=0' 'rows n=4 depth=0' 'sequences n=1 depth=0' 'sequences n=2 depth=0' \
        'engine n=1 depth=0' 'engine n=2 depth=0' |
        diff - cases
    jq -es '.[] | select(.case == "decode depth=32") | .decode_tps > 0 and .step_bytes_by_kind.experts > 0
        and .step_bytes_by_kind.kv > 0 and .step_bytes_by_kind.state > 0 and .bandwidth_fraction > 0
        and .by_op.matmul.step_ms > 0 and (.decode_min_tps <= .decode_tps) and (.decode_tps <= .decode_max_tps)' out
    jq -es '.[] | select(.case == "rows n=1 depth=0") | .cost_ratio == 1' out
    jq -es '[.[] | select(.rows or (.sequences and .engine_ratio == null))] | length == 5
        and all(.[]; .by_op.moe.step_ms > 0 and ([.by_op[].share] | add | . > 0.999 and . < 1.001))' out
    jq -es '[.[] | select(.engine_ratio)] | length == 2 and all(.[]; .engine_ratio > 0.1 and .tps > 0)' out
    jq -es '.[0] | .load_ms >= 0 and .peak_memory_bytes > 1000000' out
    # experts touched by several rows: more than by one, less than as many times as much
    jq -es '[.[] | select(.rows) | .step_bytes_by_kind.experts] | .[1] > .[0] and .[1] < 2 * .[0]' out
}

@test "random weights use experts evenly, or by Zipf's law" {
    seq 0 255 | jq -cs . > ids.json
    for skew in 0 1.5; do
        chimere-bench synth --shape granite-4-h-tiny,layers=1,vocab=256 --mix q4_0 --routing $skew --write m.gguf > record
        chimere-run -m m.gguf --tokens ids.json -n 1 --temp 0 --expert-cache 9M --expert-profile $skew.json > out
    done
    jq -e '.case == "granite-4-h-tiny,layers=1,vocab=256 mix=q4_0 routing=1.5"' record
    # of 6 experts for each of 256 tokens: evenly 24 uses of each
    jq -e '.uses[0] | length == 64 and add == 1536 and max < 60 and min > 5' 0.json
    jq -e '.uses[0] | length == 64 and add == 1536 and max > 100 and max < 140 and (sort | .[56:] | add) > 600' 1.5.json
}

# bats test_tags=slow
@test "speed of random weights in memory, and of the same weights in a file" {
    chimere-bench synth --shape qwen3.5-0.8b,layers=4,vocab=256 --mix q8_0 --write m.gguf > record
    jq -e '.weight_bytes > 0 and .file == "m.gguf"' record
    chimere-run -m m.gguf --inspect > out
    grep -q 'q8_0' out
    brief -m m.gguf | jq -r .model.fingerprint | sort -u > of_file
    brief --shape qwen3.5-0.8b,layers=4,vocab=256 --mix q8_0 | jq -r .model.fingerprint | sort -u > of_memory
    diff of_file of_memory
    [ "$(wc -l < of_file)" -eq 1 ]
    brief --shape qwen3.5-0.8b,layers=4,vocab=256 --mix q8_0 --seed 1 | jq -r .model.fingerprint | sort -u > of_other
    no diff -q of_file of_other
    echo '[1, 2, 3]' > ids.json
    chimere-run -m m.gguf --tokens ids.json -n 3 > out
    [ -s out ]
}

# bats test_tags=slow
@test "weights in memory of their own: records say so, and what a model says is the same" {
    brief --no-mmap > out
    jq -es 'all(.[]; .model.copied_weight_bytes > 20000000)' out
    brief > out
    jq -es 'all(.[]; .model.copied_weight_bytes == 0)' out
    text > text.txt
    chimere-bench kl --ctx 32 --windows 2 --save saved text.txt
    chimere-bench kl --ctx 32 --windows 2 --save copied --no-mmap text.txt | jq -e '.model.copied_weight_bytes > 0'
    cmp saved copied
    # laid out where the processor has kernels for that, with 8 bits, unless it shall not be
    for options in "--acts i8" "--acts i8 --repack off" ""; do
        # shellcheck disable=SC2086
        brief --no-mmap $options > out
        jq -es --arg options "$options" 'all(.[]; (.hardware.features | contains("vnni") and contains("vbmi")) as $can
            | if $can and $options == "--acts i8" then .model.laid_weight_bytes > 15e6 and
                .model.laid_weight_bytes <= .model.copied_weight_bytes else .model.laid_weight_bytes == 0 end)' out
    done
    chimere-bench synth --shape qwen3.6-35b-a3b --mix ramp --vram 8G --no-mmap | jq -e '.plan
        | .copied_weight_bytes == .host_weight_bytes_by_kind.experts and .copied_weight_bytes > 5e9'
}

@test "synth: shapes, what fits, what lies where" {
    chimere-bench synth > out
    grep -qx 'qwen3.6-35b-a3b' out
    while read -r shape; do
        chimere-bench synth --shape "$shape" | jq -e '.weight_bytes > 100000000 and .step_bytes > 0'
    done < out
    chimere-bench synth --shape qwen3.6-35b-a3b --mix ramp --vram 8G > small
    chimere-bench synth --shape qwen3.6-35b-a3b --mix ramp --vram 80G > large
    jq -es 'all(.[]; .plan as $p | $p.total_bytes <= $p.budget_bytes and ($p.layers | length) == 40
            and $p.total_bytes == $p.fixed_bytes + $p.device_weight_bytes + $p.kv_bytes + $p.state_bytes
                + $p.logits_bytes + $p.scratch_bytes
            and ($p.device_weight_bytes + $p.host_weight_bytes - .weight_bytes | fabs) < 0.001 * .weight_bytes)
        and ([.[0].plan.layers[].device_experts] | add) < 40 * 256
        and all(.[1].plan.layers[]; .device_experts == 256)' small large
    refuses 1 "too little" chimere-bench synth --shape qwen3.6-35b-a3b --mix ramp --vram 1G
    jq -e '.n_params > 34600000000 and .n_params < 34700000000' small
    chimere-bench synth --shape qwen3.6-35b-a3b --mix ramp --ctx 64k | jq -e '.sequence_bytes > 2600000000'
}

@test "ppl: conventions, standard errors, documents" {
    text > text.txt
    chimere-bench ppl --ctx 64 --windows 3 text.txt > half
    jq -e '.n_scored == 3 * 31 and .n_windows == 3 and .ppl > 1 and .ppl_se > 0 and .ppl_windows_se > 0' half
    chimere-bench ppl --ctx 64 --stride 32 --windows 3 text.txt | jq -e '.n_scored == 63 + 32 + 32'
    # Side by side: all but the first token of each window.
    chimere-bench ppl --ctx 64 --stride 64 --windows 3 text.txt | jq -e '.n_scored == 3 * 63'
    refuses 2 '--stride 65: must be from 1 to the 64 tokens' chimere-bench ppl --ctx 64 --stride 65 text.txt
    text | head -n 20 | jq -R '{text: .}' | jq -c . > documents.jsonl
    chimere-bench ppl --ctx 8 documents.jsonl | jq -e '.n_windows > 3'
    # the same numbers whatever the step and the threads
    chimere-bench ppl --ctx 64 --windows 3 --chunk 7 --threads 1 - < text.txt > again
    [ "$(jq .nll_nats half)" = "$(jq .nll_nats again)" ]
}

# bats test_tags=figures
@test "ppl agrees with llama.cpp's tool on the held-out text" {
    # llama-perplexity -c 512 of this file and this text: 14.9641 after 10 windows, 14.4120 after all 176
    chimere-bench ppl --windows 10 "$ROOT/share/eval/heldout-docs.txt" |
        jq -e '.n_tokens == 90478 and (.ppl / 14.9641 - 1 | fabs) < 0.002'
}

@test "kl: a model is itself; saved logits stand for a model" {
    text > text.txt
    chimere-bench kl --ctx 32 --windows 3 --reference "$CHIMERE_MODEL" text.txt |
        jq -e '.kl_max_nats == 0 and .same_top_fraction == 1 and .ppl_ratio == 1'
    chimere-bench kl --ctx 32 --windows 3 --save saved text.txt
    chimere-bench kl --ctx 32 --windows 3 --reference saved text.txt | jq -e '.kl_mean_nats < 1e-6'
    chimere-bench kl --ctx 32 --windows 3 --reference saved --kv q4_0 text.txt > out
    jq -e '.kl_mean_nats > 1e-4 and .kl_median_nats <= .kl_p90_nats and .kl_p90_nats <= .kl_p99_nats
        and .kl_p99_nats <= .kl_max_nats and .same_top_fraction > 0.7 and .n_scored == 45' out
    refuses 3 "saved of another" chimere-bench kl --ctx 16 --windows 3 --reference saved text.txt
    head -c 5000 saved > cut
    refuses 3 "is cut: has 5000 bytes" chimere-bench kl --ctx 32 --windows 3 --reference cut text.txt
    # damage in the rows, and in the fingerprint of the model; files of older versions have no checksum
    for at in 48 40000; do
        cp saved harmed
        printf '\336\255\276\357' | dd of=harmed bs=1 seek=$at conv=notrunc 2> dd.txt
        refuses 3 "harmed: damaged: its checksum is wrong" chimere-bench kl --ctx 32 --windows 3 --reference harmed text.txt
    done
    head -c 8 /dev/zero | dd of=harmed bs=1 seek=56 conv=notrunc 2> dd.txt
    try 0 chimere-bench kl --ctx 32 --windows 3 --reference harmed text.txt
    refuses 2 "either --reference or --save" chimere-bench kl text.txt
}

# bats test_tags=figures
@test "eval: the table of the model card, ten items of each" {
    for s in math code tools verify facts; do cp "$ROOT/share/eval/$s.jsonl" .; done
    chimere-bench eval --limit 10 math.jsonl code.jsonl tools.jsonl verify.jsonl facts.jsonl > out
    [ "$(jq -s length out)" -eq 5 ]
    jq -es 'all(.[]; .n_items == 10 and .accuracy_lo < .accuracy and .accuracy <= .accuracy_hi and .n_right >= 5)' out
    [ "$(jq -s 'map(.n_right) | add' out)" -ge 40 ]
}

@test "eval: goes on where it was, whatever is side by side" {
    cp "$ROOT/share/eval/math.jsonl" .
    chimere-bench eval --limit 6 -o all math.jsonl > whole
    chimere-bench eval --limit 3 --parallel 1 -o parts math.jsonl > /dev/null
    printf '{"type":"answer","id":"ma' >> parts # a crash
    chimere-bench eval --limit 6 --parallel 2 -o parts math.jsonl > resumed
    [ "$(wc -l < parts)" -eq 6 ]
    [ "$(jq .n_right whole)" -eq "$(jq .n_right resumed)" ]
    diff <(jq -c '[.id, .text]' all | sort) <(jq -c '[.id, .text]' parts | sort)
    sed 's/"fingerprint":"[0-9a-f]*/"fingerprint":"00/' all > other
    refuses 3 "line 1 is by another model" chimere-bench eval --limit 6 -o other math.jsonl
    refuses 3 "no chat template" chimere-bench eval -m "$TINY" math.jsonl
}

@test "eval: a copy of an item counts once" {
    head -2 "$ROOT/share/eval/math.jsonl" > m.jsonl
    { cat m.jsonl; head -1 m.jsonl | jq -c '.id = "copy"'; head -1 m.jsonl | jq -c '.answer += "0"'; } > copies.jsonl
    chimere-bench eval -n 1 -o a copies.jsonl > out 2> err
    jq -e '.n_items == 3' out
    grep -q 'copies.jsonl: 1 of 4 items are copies of earlier ones and are left out' err
    [ "$(wc -l < a)" -eq 3 ]
}

@test "eval --compare: the paired difference" {
    for i in 1 2 3 4 5 6; do
        printf '{"type":"answer","set":"s","id":"%d","sample":0,"right":%s}\n' $i true >> a
        printf '{"type":"answer","set":"s","id":"%d","sample":0,"right":%s}\n' $i "$([ $i -le 2 ] && echo true || echo false)" >> b
    done
    printf '{"type":"answer","set":"s","id":"only here","sample":0,"right":true}\n' >> a
    chimere-bench eval --compare a b > out
    jq -e '.n_items == 6 and .only_first_right == 4 and .only_second_right == 0 and .mcnemar_p == 0.125
        and (.difference + 2 / 3 | fabs) < 1e-6 and .difference_lo < -0.9 and .difference_hi > -0.5' out
    echo '{"type":"other"}' > none
    refuses 3 "none: item 1 is no answer of a task" chimere-bench eval --compare a none
    jq -c '.set = "other"' a > none
    refuses 3 "no item in common" chimere-bench eval --compare a none
    refuses 2 "two files" chimere-bench eval --compare a
}

@test "--against: as before, worse, nothing to compare with" {
    text > text.txt
    chimere-bench ppl --ctx 32 --windows 2 text.txt > before
    try 0 chimere-bench ppl --ctx 32 --windows 2 --against before text.txt
    jq -es '.[1].type == "comparison" and .[1].regression == false' out
    jq -c '.ppl *= 0.9' before > better
    try 4 chimere-bench ppl --ctx 32 --windows 2 --against better text.txt
    grep -q 'regression: ppl' err
    jq -es '.[1].regression' out
    jq -c '.ppl *= 1.1' before > worse
    try 0 chimere-bench ppl --ctx 32 --windows 2 --against worse text.txt
    try 0 chimere-bench ppl --ctx 16 --windows 2 --against before text.txt
    grep -q 'nothing to compare with' err
}

@test "--against: speeds compare on like machines only" {
    chimere-bench bandwidth --size 1M --reps 1 --threads 1 > before
    jq -c '.read_bytes_per_s *= 1000 | .noise = 0' before > faster
    try 4 chimere-bench bandwidth --size 1M --reps 1 --threads 1 --against faster
    for change in '.hardware.device = "cuda"' '.hardware.cpu = "another"' '.hardware.n_threads = 2'; do
        jq -c "$change" faster > elsewhere
        try 0 chimere-bench bandwidth --size 1M --reps 1 --threads 1 --against elsewhere
        grep -q 'nothing to compare with' err
    done
    jq -c '.hardware.kernels = "another"' faster > otherwise # the program may have learnt a faster way
    try 4 chimere-bench bandwidth --size 1M --reps 1 --threads 1 --against otherwise
}

@test "a table when asked" {
    brief --table > out
    no grep -q '^{' out
    grep -q '^decode at .* tokens/s' out
    grep -q '^load ' out
    brief --table -v | grep -q '^    matmul '
    # a name's line feed and escape sequences do not get to the terminal
    head -1 "$ROOT/share/eval/math.jsonl" > $'a\n\e[2Jb.jsonl'
    chimere-bench eval -q -n 2 --table $'a\n\e[2Jb.jsonl' > out
    grep -q '^a??\[2Jb .* 0 of ' out
}

@test "plot: names at points, keys below, numbers where they belong, the format of the name" {
    brief > "a & b <c>.jsonl"
    for m in q2_k:.3:100 q4_k_m:.02:200 mine:.01:200; do
        IFS=: read -r name kl mb <<< "$m"
        jq -nc --arg n "dir/$name.gguf" --argjson kl "0$kl" --argjson mb "$mb" '{type: "kl", kl_mean_nats: $kl, kl_mean_se_nats: 0,
            model: {name: $n, weight_bytes: ($mb * 1e6)}}'
    done > kl
    chimere-bench plot -o plot.svg "a & b <c>.jsonl" kl
    xmllint --noout plot.svg 2> err || [ ! -x "$(command -v xmllint)" ]
    grep -q '>a &amp; b &lt;c>.jsonl</text>' plot.svg
    grep -q '>chimere-nano-q5_k_m</text>' plot.svg
    for name in q2_k q4_k_m mine kl; do [ "$(grep -c ">$name</text>" plot.svg)" -eq 1 ]; done
    # equal sizes stand above each other, and a tenth of the loss is as far down as .01 is below .1
    grep -o '<circle cx="[0-9.]*" cy="[0-9.]*" r="4" fill="#d1495b"' plot.svg | head -3 | tr -dc '0-9.\n "' | tr -d '"' |
        awk '{ x[NR] = $1; y[NR] = $2 } END { exit !(x[2] == x[3] && x[1] < x[2] && y[1] < y[2] && y[2] < y[3] &&
            (y[2] - y[1]) / (y[3] - y[2]) - log(15) / log(2) < .05 && log(15) / log(2) - (y[2] - y[1]) / (y[3] - y[2]) < .05) }'
    echo '{"type":"other"}' > none
    refuses 3 "no records" chimere-bench plot -o new.svg none
    refuses 2 "-o FILE" chimere-bench plot none
    refuses 2 "ends in .svg, .png or .pdf" chimere-bench plot -o new.gp kl
    refuses 2 "ends in .svg, .png or .pdf" chimere-bench plot -o svg kl
    [ ! -e new.gp ] && [ ! -e new.svg ]
    # the others are made by rsvg-convert; here by one that says what it was given
    mkdir tools
    printf '#!/bin/sh\necho "%%PDF $*"; head -c 5 | tr "<" "("\n' > tools/rsvg-convert
    chmod +x tools/rsvg-convert
    PATH=$PWD/tools:$PATH chimere-bench plot -o new.pdf kl
    [ "$(cat new.pdf)" = $'%PDF -f pdf\n(?xml' ]
    printf '#!/bin/sh\nexit 3\n' > tools/rsvg-convert
    PATH=$PWD/tools:$PATH refuses 1 "new.png: is made by rsvg-convert" chimere-bench plot -o new.png kl
    [ ! -e new.png ]
}

@test "kernels: the table, and what follows from it for each GPU" {
    chimere-bench kernels > out
    jq -es '[.[] | select(.type == "kernel")] | length == 21 and (.[] | select(.kernel == "gemm_r64_a8_wgmma" and .of == "matrices") |
        .sm == 90 and .i8 and (.i16 | not) and .rows_min == 64 and .rows_max == null)' out
    jq -es '
        [.[] | select(.type == "kernel_choice" and .sm == 90 and .acts == "i8" and .of == "matrices")] as $c
        | ([$c[].formats] | unique | add | length) == 39 # each format once
        and ([$c[] | select(.formats | index("q4_k")) | .kernels[-1]] == ["gemv_r1_fused", "gemm_r2_16", "gemm_r64_a8_wgmma"])
        and ([$c[] | select(.formats | index("q4_k")) | .rows_min] == [1, 2, 65])' out
    jq -es '[.[] | select(.kernel == "moe_r17_columns" and .type == "kernel")] | length == 2
        and .[0].uses_below == 8 and .[1].uses_below == 24 and .[1].sm == 90 and (.[1].i8 | not)' out
    chimere-bench kernels --table > out
    grep -q '^gemm_r2_16_resident .* if: all blocks find room at once$' out
    grep -q '^sm_120, activations of 16 bits, experts$' out
    grep -q '^gdn  *delta  *whole  *conv, gdn, rms_norm_gated, matmul, add if added$' out
    refuses 2 "only GPUs have these kernels" chimere-bench kernels --device cpu
    refuses 2 "--acts needs --device" chimere-bench kernels --acts i8
    refuses 2 "--reps needs --device" chimere-bench kernels --reps 3
    refuses 2 "takes no file" chimere-bench kernels file
    CHIMERE_OPTS='--device cpu' chimere-bench kernels > again
    chimere-bench kernels | cmp - again
}

@test "kernels: launches are those of files that exist, and those of the picture in chimere-hacking(7)" {
    chimere-bench kernels | jq -r 'select(.type == "launch") | .kernel' | sort -u > files
    [ "$(wc -l < files)" -gt 20 ]
    while read -r file; do ls "$ROOT/kernels/$file".cu* > /dev/null; done < files
    sed -n '/^.Ss Launches of a step/,/^.Ed/p' "$ROOT/man/chimere-hacking.7" |
        grep -oE '\b(gem[vm]_r[0-9a-z_]+|[a-z]+_fused_r1_16|moe_r[0-9_]+|transfer|embed|logits_top)\b' | sort -u > named
    [ "$(wc -l < named)" -ge 9 ]
    sed 's|.*/||' files | sort -u | comm -13 - named | diff /dev/null -
}

@test "refusals" {
    refuses 2 "no command" chimere-bench
    refuses 2 "walk: not one of" chimere-bench walk
    refuses 2 "--stride does not belong to speed" chimere-bench speed --stride 3
    refuses 2 "--no-mmap does not belong to bandwidth" chimere-bench bandwidth --no-mmap
    refuses 2 "--repack does not belong to synth" chimere-bench synth --shape qwen3.5-0.8b --repack off
    refuses 2 "--no-mmap needs --vram" chimere-bench synth --shape qwen3.5-0.8b --no-mmap
    refuses 2 "--routing needs --shape" chimere-bench speed --routing 1
    refuses 2 "--routing 5: not from 0 to 4" chimere-bench synth --shape qwen3.6-35b-a3b --routing 5
    refuses 2 "--routing nan: not a number" chimere-bench synth --shape qwen3.6-35b-a3b --routing nan
    refuses 2 "qwen3.5-0.8b has no experts" chimere-bench synth --shape qwen3.5-0.8b --routing 1
    for command in speed bandwidth synth state kernels; do
        refuses 2 "$command takes no file" chimere-bench $command file
    done
    for command in speed state; do
        refuses 2 "--depth: at least one" chimere-bench $command --depth ''
    done
    refuses 2 "--shape and -m do not go together" chimere-bench speed --shape qwen3.5-0.8b -m x
    refuses 2 "--depth" chimere-bench speed --depth 1,x
    refuses 2 "not known" chimere-bench synth --shape qwen9
    refuses 2 "layers=0" chimere-bench synth --shape qwen3.5-0.8b,layers=0
    refuses 2 "neither a mix" chimere-bench synth --shape qwen3.5-0.8b --mix q99
    refuses 2 "--vram 5X" chimere-bench synth --shape qwen3.5-0.8b --vram 5X
    refuses 1 "nowhere" chimere-bench ppl nowhere
    refuses 2 "no task set" chimere-bench eval
    refuses 2 "shorter than a window" chimere-bench ppl /dev/null
    echo '{"id": "a", "messages": [], "check": "exact"}' > bad.jsonl
    refuses 3 "bad.jsonl: item 1" chimere-bench eval bad.jsonl
    echo '{' > broken.jsonl
    refuses 3 "broken.jsonl: line 1" chimere-bench eval broken.jsonl
    refuses 2 "needs a --temp" chimere-bench eval --samples 2 bad.jsonl
    refuses 3 "README.md: offset 0" chimere-bench speed -m "$ROOT/README.md"
    refuses 1 "none.jsonl" chimere-bench bandwidth --against none.jsonl
}

# "letter name arg" for each option, sorted.
@test "the manual has every option of the program, and is clean" {
    chimere-bench --help-json | jq -r '.options[] | [.letter // "-", .name, .arg // "-"] | join(" ")' | sort > program
    sed -n -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z-]*\) Ar \(.*\)$/\1 \2 \3/p' \
        -e 's/^\.It Fl \([A-Za-z]\) , Fl -\([a-z-]*\)$/\1 \2 -/p' \
        -e 's/^\.It Fl -\([a-z-]*\) Ar \(.*\)$/- \1 \2/p' \
        -e 's/^\.It Fl -\([a-z-]*\)$/- \1 -/p' "$ROOT/man/chimere-bench.1" | sort > manual
    diff program manual
    try 0 chimere-bench -h
    [ "$(awk 'length > 80' out | wc -l)" -eq 0 ]
    command -v mandoc > /dev/null || skip "mandoc is not installed"
    mandoc -T lint -W warning "$ROOT/man/chimere-bench.1"
}

@test "state tells what undo, forks and saved sequences cost" {
    chimere-bench state --depth 40 --reps 2 > out
    jq -es 'map(.case) == ["evaluate the history history=40", "fork history=40", "save, first time history=40",
        "restore history=40", "next turn, 64 tokens history=40", "save, a turn later history=40",
        "undo 8 tokens history=40"] and all(.[]; .type == "state" and .cost_ms > 0)' out
    jq -es 'map(select(.written_bytes)) | length == 2 and .[0].written_bytes > 100000' out
    # without a --depth, too
    chimere-bench state --reps 1 -m "$MODELS/hymba-c.gguf" | jq -es '.[0].case == "evaluate the history history=1024"'
}

# bats test_tags=slow
@test "speculate: places, shares, quotes; ways beside each other" {
    local math=$ROOT/share/eval/math.jsonl
    chimere-bench speculate --draft ngram --draft ngram,mtp --oracle 1,0 --draft-max 2,3 --fixed --limit 2 -n 24 \
        --reps 2 "$math" <(text) > out
    # every set and all: without guesses, two names and two shares of two widths
    jq -es 'length == 27 and (map(.set) | unique | length) == 3 and (map(select(.draft == "off")) | length) == 3' out
    jq -es '.[] | select(.set == "math" and .draft == "off") | .speedup == 1 and .drafted == 0 and .tokens_per_step == 1' out
    jq -es '[.[] | select(.set == "math" and .draft == "oracle:1")] |
        all(.[]; .kept == .drafted and .tokens_per_step > .draft_max and .by_place[0].kept == .by_place[0].tried)' out
    jq -es '[.[] | select(.draft == "oracle:0")] | all(.[]; .kept == 0 and .drafted > 0 and .tokens_per_step == 1)' out
    jq -es '[.[] | select(.set == "math" and .draft == "ngram,mtp")] |
        all(.[]; .kept > 0 and (.by_place | length) == .draft_max and (.by_place | map(.kept) | add) == .kept)' out
    # random weights in random order say again what they are held to: n-grams find it
    chimere-bench speculate --shape qwen3.5-0.8b,layers=4,vocab=256 --draft ngram --fixed --quote --prompt 60 -n 24 --limit 2 \
        --reps 1 > out
    jq -es '.[1] | .set == "random" and .tokens_per_step > 2 and .tokens == 46' out
    chimere-bench speculate --oracle 0.5 --temp 1 --seed 3 --prompt 20 --draft-max 4 -n 12 --limit 2 --reps 1 --table > out
    grep -q '^random *oracle:0.5 *4 ' out
}

@test "speculate refuses what it cannot measure" {
    refuses 2 "needs --draft or --oracle" chimere-bench speculate
    refuses 2 "shares from 0 to 1" chimere-bench speculate --oracle 1.5
    refuses 2 "shares from 0 to 1" chimere-bench speculate --oracle 0.5x
    refuses 2 "shares from 0 to 1" chimere-bench speculate --oracle ''
    refuses 2 "names no drafter" chimere-bench speculate --draft , --prompt 4
    refuses 2 "draft-max" chimere-bench speculate --oracle 1 --draft-max 17
    refuses 2 "the list is empty" chimere-bench speculate --oracle 1 --draft-max ''
    refuses 2 "the list is empty" chimere-bench speculate --oracle 1 --prompt ''
    refuses 2 "always measured; leave 'off' out" chimere-bench speculate --draft ngram,off --prompt 4
    refuses 2 "need a second one" chimere-bench speculate --oracle 1 --prompt 4 -n 1
    refuses 3 "random: no answer has a second token" chimere-bench speculate --oracle 1 --quote --prompt 2
    local long # a name is taken whole
    printf -v long '%0200d/%0200d' 0 0
    refuses 1 "$long: cannot open" chimere-bench speculate --draft "$long" --prompt 4
    refuses 2 "no tokenizer" chimere-bench speculate --shape qwen3.5-0.8b,layers=4,vocab=256 --oracle 1 bad.txt
    refuses 2 "takes one length" chimere-bench speculate --oracle 1 --prompt 4,5 "$ROOT/share/eval/math.jsonl"
    refuses 2 "--fixed needs --draft" chimere-bench speculate --oracle 1 --fixed
    refuses 2 "need a --temp" chimere-bench speculate --draft ngram --seed 1
    refuses 2 "--draft does not belong to eval" chimere-bench eval --draft ngram x
    refuses 3 "no text" chimere-bench speculate --oracle 1 /dev/null
    refuses 1 "nowhere" chimere-bench speculate --oracle 1 nowhere
    echo '{"messages": 1}' > bad.jsonl
    refuses 3 "bad.jsonl: item 1 has no messages" chimere-bench speculate --oracle 1 bad.jsonl
    refuses 3 "another tokenizer" chimere-bench speculate --draft "$ROOT/tests/golden/draft/dflash-a.gguf" --prompt 4
}

@test "eval -o: what is no file of answers stays as it is" {
    printf 'my notes\nlast line without newline' > notes
    printf 'one line without newline' > one
    printf '{"type":"speed"}\n{"type":"answer"' > record
    printf '{"type":"answer","sex":"math","id":"1","sample":0,"right":true}\n' > strange
    head -2 "$ROOT/share/eval/math.jsonl" > m.jsonl
    chimere-bench eval -o a m.jsonl -n 2 > /dev/null 2>&1
    tr -d '\n' < a > joined
    for f in notes one record strange joined; do
        cp $f before
        refuses 3 "the file stays as it is" chimere-bench eval -o $f "$ROOT/share/eval/math.jsonl" --limit 1
        cmp $f before
    done
    refuses 3 "m.jsonl: item 1 is no answer of a task" chimere-bench eval --compare a m.jsonl
    # only the end of the last line is missing: it gets one
    truncate -s -1 a
    cp a before
    chimere-bench eval -o a m.jsonl -n 2 > /dev/null 2>&1
    { cat before; echo; } | cmp - a
    # a part of it is missing: it is asked again, and told
    cp a before
    truncate -s -9 a
    chimere-bench eval -o a m.jsonl -n 2 > /dev/null 2> err
    grep -q 'a: line 2 was cut off, and is asked again' err
    cmp a before
}

@test "eval -o: answers of other settings and items are not taken" {
    head -3 "$ROOT/share/eval/math.jsonl" > m.jsonl
    chimere-bench eval m.jsonl -n 600 > whole
    chimere-bench eval -o a m.jsonl -n 5 > cut 2> err
    [ "$(jq .n_cut cut)" -gt 0 ]
    grep -q "answers were cut" err
    # a longer -n asks the cut ones again, the same -n nobody
    chimere-bench eval -o a m.jsonl -n 600 > again
    [ "$(jq .accuracy again)" = "$(jq .accuracy whole)" ]
    cp a before
    chimere-bench eval -o a m.jsonl -n 600 > /dev/null
    cmp a before
    for set in "--temp 1" "--temp 1 --seed 9" "--kv f16" "--acts f32"; do
        # shellcheck disable=SC2086
        refuses 3 "was asked with 'greedy" chimere-bench eval -o a m.jsonl -n 600 $set
    done
    cmp a before
    # thinking makes another prompt, another key another item, even under the same name
    jq -c 'del(.enable_thinking)' m.jsonl > free.jsonl
    for think in on off on; do chimere-bench eval -o t free.jsonl --think $think > /dev/null; done
    [ "$(wc -l < t)" -eq 6 ]
    mkdir other
    jq -c '.answer += "0"' m.jsonl > other/m.jsonl
    chimere-bench eval -o b m.jsonl other/m.jsonl > two
    [ "$(wc -l < b)" -eq 6 ]
    [ "$(jq -s 'map(.n_right) | .[0] > .[1]' two)" = true ]
    chimere-bench eval --compare before before > same
    [ "$(jq .n_items same)" -eq 3 ]
}

@test "eval: a prompt that does not fit the context is an error before anything is asked" {
    refuses 1 "the context 8" chimere-bench eval -c 8 -o a "$ROOT/share/eval/math.jsonl" --limit 6
    [ ! -s a ]
}

@test "ppl: short texts are counted and told" {
    head -c 20000 "$ROOT/share/eval/heldout-docs.txt" > long.txt
    echo short > short.txt
    chimere-bench ppl -c 256 --windows 2 long.txt short.txt > out 2> err
    [ "$(jq .n_short_texts out)" -eq 1 ]
    [ "$(jq .n_texts out)" -eq 2 ]
    grep -q "1 of 2 texts are shorter" err
}

@test "outputs are never inputs" {
    cp "$ROOT/share/eval/math.jsonl" m.jsonl
    echo hi > x.svg
    refuses 2 "is also" chimere-bench eval -o m.jsonl m.jsonl
    refuses 2 "is also" chimere-bench plot -o x.svg x.svg
    refuses 2 "is also" chimere-bench kl --save "$CHIMERE_MODEL" m.jsonl
    [ "$(cat x.svg)" = hi ]
}

@test "an option that cannot do anything is refused" {
    for words in 'ppl --think off x' 'ppl --parallel 2 x' 'ppl --mix q8_0 x' 'ppl --seed 1 x' 'ppl -n 5 x' 'ppl --tokens 5 x' \
        'ppl --reps 2 x' 'eval --mix q8_0 x' 'eval --reps 2 x' 'speed --think on' 'plot --against x y'; do
        # shellcheck disable=SC2086
        refuses 2 "does not belong to" chimere-bench $words
    done
    refuses 2 "need a --temp above 0" chimere-bench eval --top-p 0.5 x
    refuses 2 "for random weights" chimere-bench speed --mix q8_0
    refuses 2 "--compare and --limit do not go together" chimere-bench eval --compare --limit 2 a b
    refuses 2 "must be above 0" chimere-bench speed --bandwidth 0
    refuses 2 "must be above 0" chimere-bench speed --bandwidth -3
    refuses 2 "layers= is given twice" chimere-bench synth --shape qwen3.5-0.8b,layers=2,layers=3
}
