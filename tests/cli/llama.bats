#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-from-llama(7): every row of its tables is what the programs do.
load common

# rows TITLE: "form<TAB>name" for each spelling of each row; the name is empty where there is no such option here, and
# "same" where it is accepted and changes nothing.
rows()
{
    awk -v title="$1" -F'"' '
        /^\.S[sh] / { on = $0 == ".Ss " title }
        on && /^\.It Li "/ { n = split($2, form, /, /) }
        on && /^\.Fl -/ { split($0, word, " "); for (i = 1; i <= n; i++) print form[i] "\t" word[2]; n = 0 }
        on && /^same: / { for (i = 1; i <= n; i++) print form[i] "\tsame"; n = 0 }
        on && /^no: / { for (i = 1; i <= n; i++) print form[i] "\t"; n = 0 }' "$ROOT/man/chimere-from-llama.7"
}

# try_rows PROGRAM TITLE LEAST
try_rows()
{
    local form name words bad=0
    rows "$2" > rows
    [ "$(wc -l < rows)" -ge "$3" ]
    "$1" --help-json | jq -r '.options[].name' > names
    while IFS=$'\t' read -r form name; do
        read -ra words <<< "$(tried "$form")"
        if [ "$name" = same ]; then
            status=0
            "$1" -v "${words[@]}" -m no-such-model -h > out 2> err || status=$?
            "$1" -v "${words[@]}" -m no-such-model < /dev/null > out 2> err || true
            [ $status -eq 0 ] && grep -qF -e "${words[0]} changes nothing: " err || { echo "$form: $(cat err)"; bad=1; }
        elif [ -n "$name" ]; then
            grep -qxF -e "${name#-}" names || { echo "$form: no option -$name"; bad=1; }
            "$1" "${words[@]}" -h > out 2> err || { echo "$form: refused: $(cat err)"; bad=1; }
        else
            status=0
            "$1" "${words[@]}" < /dev/null > out 2> err || status=$?
            # An answer of its own, which names the option as it was typed.
            if [ $status -ne 2 ] || ! grep -qF -e "${words[0]}" err || grep -q 'unknown option' err; then
                echo "$form: status $status: $(cat err)"
                bad=1
            fi
        fi
    done < rows
    [ $bad -eq 0 ]
}

# The words of a form, with a value that it takes in place of N and the like.
tried() { sed -e 's/ N$/ 1/; s/ X$/ 0.5/; s/+X$/+0.5/; s/ FILE$/ some.file/; s/ TEXT$/ {word/; s/ T$/ q8_0/' <<< "$1"; }

@test "every name sets the option that the table names, and no other" {
    ln -s "$CHIMERE_MODEL" m.gguf
    rows 'llama-cli and chimere-run' | awk -F'\t' '$2 != "" && $2 != "same"' > rows
    n=0
    for name in $(cut -f 2 rows | sort -u); do
        # A file may not have these, or they decide what is told.
        case ${name#-} in model | session | prompt | interactive | show-prompt | help | verbose | quiet) continue ;; esac
        awk -F'\t' -v name="$name" '$2 == name { print $1 }' rows |
            while IFS= read -r form; do tried "$form"; done > m.gguf.opts
        echo x | chimere-run -v -m m.gguf --tokenize > out 2> err || true
        sed -n 's/^options  --\(.*\) is from m.gguf.opts$/\1/p' err > got
        [ "$(cat got)" = "${name#-}" ] || { echo "$name: $(cat got err)"; cat m.gguf.opts; false; }
        n=$((n + 1))
    done
    [ $n -ge 30 ]
}

@test "llama-cli's options" {
    try_rows chimere-run 'llama-cli and chimere-run' 100
}

@test "llama-server's options" {
    try_rows chimere-serve-stdio 'llama-server and chimere-serve-stdio' 25
}

# bats test_tags=slow
@test "no option of llama-cli is unknown" {
    n=0
    for name in --usage -cl --completion-bash -t -tb -C --cpu-mask \
        -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch \
        -Crb --cpu-range-batch --cpu-strict-batch --prio-batch --poll-batch -b -ub \
        --keep --swa-full -fa --perf --no-perf -f -bf \
        --binary-file -e --escape --no-escape --rope-scaling --rope-scale --rope-freq-base \
        --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor -kvo --kv-offload -nkvo --no-kv-offload \
        -nr --no-repack --no-host -ctk -ctv -dt --defrag-thold \
        -np --parallel --rpc --mlock --mmap -dio --direct-io \
        -ndio --no-direct-io -lm --load-mode --numa -dev --list-devices \
        -ot --override-tensor -cmoe -ncmoe -ngl -sm -ts \
        -mg -fit --fit -fitt --fit-target -fitc --fit-ctx \
        --check-tensors --override-kv --op-offload --no-op-offload --lora-scaled --control-vector --control-vector-scaled \
        --control-vector-layer-range -mu --model-url -dr --docker-repo -hf -hfr \
        --hf-repo -hff -hft --hf-token --log-disable --log-file --log-colors \
        --log-verbose --offline -lv --verbosity --log-verbosity --log-prefix --no-log-prefix \
        --log-timestamps --no-log-timestamps --spec-draft-type-k -ctkd --cache-type-k-draft -ctvd --samplers \
        --sampler-seq --sampling-seq --top-nsigma --top-n-sigma --xtc-probability --xtc-threshold --typical-p \
        --repeat-last-n --dry-penalty-last-n --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp \
        --mirostat --mirostat-lr --mirostat-ent -l --grammar-file --json-schema -jf \
        --json-schema-file -bs --backend-sampling --server-base --verbose-prompt --display-prompt --no-display-prompt \
        -co --color -ctxcp --ctx-checkpoints --swa-checkpoints -cram --cache-ram \
        --context-shift --no-context-shift -sys --system-prompt --show-timings --no-show-timings -sysf \
        -sp --special -cnv -no-cnv --no-conversation -st --single-turn \
        -mli --multiline-input --warmup --no-warmup -mm --mmproj -mmu \
        --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload -mmdev \
        --mmproj-device --image --audio --video --image-min-tokens --image-max-tokens -o \
        --output --output-file --chat-template-kwargs --jinja --no-jinja --reasoning-format -rea \
        --reasoning-effort --reasoning-budget --reasoning-budget-message --reasoning-preserve --no-reasoning-preserve --chat-template --chat-template-file \
        --skip-chat-parsing --no-skip-chat-parsing --simple-io --log-prompts-dir --spec-draft-hf -hfd -hfrd \
        --hf-repo-draft --spec-draft-threads -td --threads-draft -tbd --threads-batch-draft -Cd \
        --cpu-mask-draft -Crd -Cbd --prio-draft --poll-draft -otd --override-tensor-draft \
        -cmoed -ncmoed --n-cpu-moe-draft --spec-draft-n-max --spec-draft-n-min --spec-draft-p-split --draft-p-split \
        --draft-p-min -devd --device-draft -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-model \
        -md --model-draft --spec-type --spec-ngram-mod-n-min --draft-n --draft-max --draft-min \
        --draft-n-min --gpt-oss-20b-default --vision-gemma-4b-default --spec-default -no-kvo; do
        chimere-run "$name" 1 -h > out 2> err || { no grep -qE 'unknown option|a number' err && grep -qF -e "$name: " err; }
        n=$((n + 1))
    done
    [ $n -gt 200 ]
}

@test "aliases do what the option does" {
    chimere-run --raw -n 6 -p 'The kernel' --temp 0.5 --seed 3 --penalty-last-n 8 --repeat-penalty 1.2 --chunk 4 > want
    chimere-run --raw --n-predict 6 --prompt 'The kernel' --temperature 0.5 --seed 3 --repeat-last-n 8 --repeat-penalty 1.2 \
        -b 4 | cmp - want
    chimere-run -sys 'Be terse.' --system-prompt 'Be terse.' -p x --show-prompt > got
    chimere-run -s 'Be terse.' -p x --show-prompt | cmp - got
    [ "$(chimere-run --raw -p x -n 1 --json -l 72+50 | jq -c .token_ids)" = '[72]' ]
    fails 2 'User:: no such file; -r is --raw here' chimere-run -p x -r User:
    fails 2 '{}: no such file; -j is --json here' chimere-run -p x -j '{}'
    fails 2 '--reasoning off: --reasoning says where reasoning goes; did you mean --think off?' chimere-run --reasoning off -p x
    echo '{"type": "integer"}' > s
    printf 12 | chimere-run --check -jf s
}
