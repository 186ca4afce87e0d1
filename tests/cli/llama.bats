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

@test "-hf prints the command that fetches the files, resumes, and compares" {
    try 1 chimere-run -hf some-one/Model.v2-GGUF:Q4_K_M -p hi
    [ "$(wc -l < out)" -eq 1 ] && grep -q -- '-hf: models are not fetched here' err
    cp out fetch.sh
    try 1 chimere-serve-stdio --hf-repo some-one/Model.v2-GGUF
    cmp out fetch.sh # the default is llama.cpp's
    # a hub: curl answers from files, and a fetch that goes on writes what is missing
    mkdir -p hub/Q4 tools work
    echo "part one" > hub/Q4/m-q4_k_m-00001-of-2.gguf
    echo "part two, longer" > hub/m-Q4_K_M-00002-of-2.gguf
    echo no > hub/mmproj-q4_k_m.gguf
    echo no > hub/m-q8_0.gguf
    (cd hub && find . -type f -printf '%P\n' | while read -r f; do
        jq -n --arg f "$f" --arg h "$(sha256sum < "$f" | cut -c-64)" '{rfilename: $f, lfs: {sha256: $h}}'
    done | jq -s '{siblings: (. + [{rfilename: "README.md"}])}') > list.json
    cat > tools/curl <<'END_OF'
#!/bin/bash
url=${!#}
case $url in
https://huggingface.co/api/models/some-one/Model.v2-GGUF\?blobs=true) cat "$HUB/../list.json" ;;
https://huggingface.co/some-one/Model.v2-GGUF/resolve/main/*)
    [[ $* == *"-C - "* ]] || exit 1
    file=$HUB/${url##*/main/} to=${url##*/main/}
    mkdir -p "$(dirname "$to")"
    tail -c +$(($(stat -c %s "$to" 2> /dev/null || echo 0) + 1)) "$file" >> "$to" ;;
*) exit 22 ;;
esac
END_OF
    chmod +x tools/curl
    export HUB=$PWD/hub PATH=$PWD/tools:$PATH
    cd work
    printf 'part two, ' > m-Q4_K_M-00002-of-2.gguf # cut off
    try 0 sh ../fetch.sh
    cmp Q4/m-q4_k_m-00001-of-2.gguf ../hub/Q4/m-q4_k_m-00001-of-2.gguf
    cmp m-Q4_K_M-00002-of-2.gguf ../hub/m-Q4_K_M-00002-of-2.gguf
    [ ! -e mmproj-q4_k_m.gguf ] && [ ! -e m-q8_0.gguf ]
    try 0 sh ../fetch.sh # all is there
    printf x > m-Q4_K_M-00002-of-2.gguf
    try 1 sh ../fetch.sh
    try 1 chimere-run -hf some-one/Model.v2-GGUF --hf-file Q4/m-q4_k_m-00001-of-2.gguf
    rm -r Q4
    cp out one.sh && try 0 sh one.sh
    [ -e Q4/m-q4_k_m-00001-of-2.gguf ]
    try 1 chimere-run -hf some-one/Model.v2-GGUF:Q2_K
    cp out one.sh && try 1 sh one.sh # there is no such file
    for bad in x a/b/c 'a/b;c' 'a/$(b)' 'a/b:' "a/b:'" /b a/ ../b 'a/b:q 4'; do fails 2 "-hf: $bad: not OWNER/REPO" chimere-run -hf "$bad"; done
    fails 2 "not the name of a file" chimere-run -hf a/b -hff '../x'
    fails 2 "-hff: needs -hf" chimere-run -hff x.gguf
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

@test "cards and pages: the message says where they are" {
    fails 2 "--card: use --vram SIZE" chimere-run --plan --card 5060ti
    fails 2 "--no-webui: the page to chat with comes with --listen" chimere-serve-stdio --no-webui
}

@test "a file of the whole name wins over a number behind a colon" {
    echo x > n:3
    fails 3 "n:3: " chimere-run --examples n:3 -p x
    fails 3 "n:3: " chimere-run --engram n:3 -p x
}
