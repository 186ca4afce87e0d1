#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# chimere-quantize: what types cost a model, measured, and mixes for budgets.
load common
load quantize

setup_file()
{
    # One measurement for all tests: the golden model's rows of 64 and 32, on random tokens.
    export LOSSES=$BATS_FILE_TMPDIR/losses.jsonl BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR
    setup
    chimere-quantize --measure "$LOSSES" --method probes --random --tokens 64 "$MODELS/qwen35moe-a.gguf"
}

source_model() { ls "$MODELS"/qwen35moe-a.gguf; }

@test "a measurement has a line for each matrix that a step reads, and is complete after it" {
    [ "$(grep -c '"tensor"' "$LOSSES")" -eq "$(chimere-quantize -t q8_0 --dry-run "$(source_model)" | grep -cv -e kept -e tensors,)" ]
    [ "$(grep -c '"whole"' "$LOSSES")" -eq 8 ]
    jq -es '.[0].sequences == 16 and .[0].tokens == 4 and .[0].from == 2 and (.[1].kl.q8_0 < .[1].kl.q4_0)' "$LOSSES"
    cp "$LOSSES" l
    try 0 chimere-quantize --measure l "$(source_model)"
    cmp l "$LOSSES"
    grep -q 'l: is complete, nothing was measured' err
    try 0 chimere-quantize --measure l --random --tokens 64 --probes q3_k --effort default "$(source_model)"
    echo some text > t
    local other
    for other in "--random --tokens 80" "--tokens 64 --random --seed 2" "--probes q2_k" "--effort highest" \
        "--probes q2_k --budget size=700000 --save-recipe r"; do
        # shellcheck disable=SC2086
        refuses 3 "begun with other options" chimere-quantize --measure l $other "$(source_model)"
    done
    cmp l "$LOSSES"
}

@test "--also: types beside the usual ones are measured, and budgets use them" {
    local how=(--measure also --random --tokens 64 --also q2_0,q8_0)
    try 0 chimere-quantize "${how[@]}" "$(source_model)"
    jq -es 'map(select(.tensor == "output.weight")) | .[0].kl.q2_0 > .[0].kl.q4_0' also
    try 0 chimere-quantize "${how[@]}" --budget size=500000 --save-recipe r "$(source_model)"
    grep -q '= q2_0' r
    # Stopped with it and without: whichever way it goes on, the same is measured.
    losses() { jq -c 'select(.tensor) | {(.tensor): .kl}' "$1" | jq -cs 'reduce .[] as $o ({}; . * $o)' | jq -S .; }
    head -n 5 also > cut
    try 0 chimere-quantize --measure cut --random --tokens 64 "$(source_model)"
    cmp cut also
    head -n 5 also | jq -c 'del(.kl.q2_0)' | sed 's/e-05/e-5/g' > cut
    cp cut before
    refuses 2 'cut: is not complete' chimere-quantize --measure cut --also q2_0,q8_0 --budget size=500000 --dry-run "$(source_model)"
    try 0 chimere-quantize "${how[@]/#also/cut}" "$(source_model)"
    head -n 5 cut | cmp - before
    [ "$(grep -c '"kl":{"q2_0"' cut)" -eq 4 ]
    diff <(losses cut) <(losses also)
    try 0 chimere-quantize --measure cut "$(source_model)"
    grep -q 'cut: is complete' err
    # Probes take what they need from the lines that are there: the model does not run.
    cp "$LOSSES" cut
    try 0 chimere-quantize --measure cut --random --tokens 64 --also q2_0 --method probes "$(source_model)"
    [ "$(grep -c '"kl":{"q2_0"' cut)" -eq "$(grep -c q2_0 also)" ]
    losses cut | jq -e 'map(select(.q4_0 > 0 and .q2_0)) | length > 20 and all(.[]; .q2_0 > .q4_0)'
    refuses 2 "--also i8: not a list of up to" chimere-quantize --measure also --also i8 "$(source_model)"
}

@test "a type that memory had no room for is left out, and the file is complete" {
    sed 's/"whole":"q8_0".*/"whole":"q8_0","left_out":true}/' "$LOSSES" > l
    cp l before
    try 0 chimere-quantize --measure l --budget size=700000 --save-recipe r "$(source_model)"
    cmp l before
    grep -v '"whole":"q8_0"' "$LOSSES" > l
    refuses 2 "is not complete" chimere-quantize --measure l --budget size=700000 --dry-run "$(source_model)"
    try 0 chimere-quantize --measure l --random --tokens 64 "$(source_model)"
    cmp <(sort l) <(sort "$LOSSES")
}

@test "a gradient says what types cost, too, and its inputs are an importance" {
    # the default where there is one; elsewhere probes
    try 0 chimere-quantize --measure f --random --tokens 64 --imatrix im "$(source_model)"
    [ "$(wc -l < f)" -eq "$(wc -l < "$LOSSES")" ]
    jq -es '.[0].method == "fisher" and (.[1].kl.q8_0 < .[1].kl.q4_0)' f
    # where losses are small, both methods say the same, roughly
    local of='select(.tensor == "output.weight").kl.q4_0'
    awk -v a="$(jq -e "$of" f)" -v b="$(jq -e "$of" "$LOSSES")" 'BEGIN { exit !(a > b / 2 && a < b * 2) }'
    try 0 chimere-quantize --measure f --budget size=700000 --imatrix im "$(source_model)" m.gguf
    try 0 chimere-run -m m.gguf -n 3 --raw -p 'a b c' --ignore-eos
    # once more, from the complete file: the same importance, and it is replaced when that is said
    refuses 2 "exists" chimere-quantize --measure f --imatrix im "$(source_model)"
    refuses 2 "is the input" chimere-quantize --measure f --imatrix "$(source_model)" -f "$(source_model)"
    refuses 2 "is also the file of" chimere-quantize --measure f --imatrix f -f "$(source_model)"
    cp im before
    try 0 chimere-quantize --measure f --random --tokens 64 --imatrix im -f "$(source_model)"
    cmp im before
    refuses 3 "begun with other options" chimere-quantize --measure f --imatrix new --random "$(source_model)"
    [ ! -e new ]
    refuses 3 "begun with other options" chimere-quantize --measure f --method probes "$(source_model)"
    refuses 2 "are for --method probes" chimere-quantize --measure f --method fisher --group class "$(source_model)"
    refuses 3 "gradients of architecture" chimere-quantize --measure k --method fisher --random "$MODELS/kimilinear-a.gguf"
    refuses 3 "gradients of architecture" chimere-quantize --measure k --tokens 32 --random --imatrix new "$MODELS/kimilinear-a.gguf"
    [ ! -e k ] && [ ! -e new ]
    try 0 chimere-quantize --measure k --tokens 32 --random "$MODELS/kimilinear-a.gguf"
    jq -es '.[0].method == "probe"' k
}

@test "weights alone have scores, where this build has OpenBLAS" {
    if ldd "$(type -P chimere-quantize)" | grep -q openblas; then
        try 0 chimere-quantize --measure n --method nsds --random --tokens 64 "$(source_model)"
        [ "$(wc -l < n)" -eq "$(wc -l < "$LOSSES")" ]
        try 0 chimere-quantize --measure n --budget size=700000 --save-recipe r "$(source_model)"
        # the predictions of all methods are of the same runs in one type
        cmp <(grep whole n) <(grep whole "$LOSSES")
    else
        refuses 3 "which this build lacks" chimere-quantize --measure n --method nsds --random "$(source_model)"
        [ ! -e n ]
    fi
}

@test "a measurement that was interrupted or cut off goes on, and ends the same" {
    # A shell's background jobs ignore SIGINT: env gives it back.
    env --default-signal=INT chimere-quantize --measure l --method probes --random --tokens 64 "$(source_model)" 2> err &
    local pid=$! status=0
    wait_for grep -qs '"tensor"' l
    kill -INT $pid
    wait $pid || status=$?
    [ $status -eq 130 ]
    [ "$(tail -c 1 l)" = "" ] && [ "$(wc -l < l)" -lt "$(wc -l < "$LOSSES")" ]
    truncate -s -9 l # as if it had been killed within a line
    try 0 chimere-quantize --measure l --random --tokens 64 "$(source_model)"
    cmp l "$LOSSES"
    # within a search nothing is written; it begins when the rules have come
    mkfifo rules
    local how
    for how in evo exact; do
        env --default-signal=INT chimere-quantize --measure l --recipe rules --budget size=520000 --budget token-bytes=290000 \
            --search $how --save-recipe r "$(source_model)" a.gguf &
        pid=$! status=0
        : > rules
        kill -INT $pid
        wait $pid || status=$?
        [ $status -eq 130 ] && [ ! -e r ] && [ ! -e a.gguf ]
    done
    head -c 3000 "$LOSSES" > l
    refuses 3 "begun with other options" chimere-quantize --measure l --random --tokens 32 "$(source_model)"
    sed 's/"from":2/"from":4/' "$LOSSES" > l
    refuses 3 '"from" is not a number from 0 to 3' chimere-quantize --measure l "$(source_model)"
    : > l
    try 0 chimere-quantize --measure l --random --tokens 64 --group class "$(source_model)"
    [ "$(wc -l < l)" -eq "$(wc -l < "$LOSSES")" ]
}

@test "size: the file has what was said, within 0.1 %, and the recipe makes it again" {
    try 0 chimere-quantize --measure "$LOSSES" --budget size=700000 --save-recipe r "$(source_model)" a.gguf
    grep -q '^# predicted: KL .* on random text' err
    local size
    size=$(stat -c %s a.gguf)
    [ "$size" -le 700000 ] && [ "$size" -ge 699300 ]
    grep -q "^# file: $size bytes" r
    try 0 chimere-quantize --recipe r "$(source_model)" b.gguf
    cmp a.gguf b.gguf
    try 0 chimere-quantize --measure "$LOSSES" --budget size=700000 --save-recipe r2 -q "$(source_model)"
    cmp r r2
    try 0 chimere-run -m a.gguf -n 3 --raw -p 'a b c' --ignore-eos
}

@test "several budgets hold at once, and evolution finds nothing better" {
    try 0 chimere-quantize --measure "$LOSSES" --budget size=620000 --budget token-bytes=330000 \
        --budget vram=500M,ctx=.5k --save-recipe r "$(source_model)"
    [ "$(grep -c '^# budget .* bytes, [0-9.]* %$' r)" -eq 3 ]
    awk '/^# budget/ && $(NF - 1) > 100 { bad = 1 } END { exit bad }' r
    try 0 chimere-quantize --measure "$LOSSES" --budget size=620000 --save-recipe exact "$(source_model)"
    try 0 chimere-quantize --measure "$LOSSES" --budget size=620000 --search evo --save-recipe evo "$(source_model)"
    awk '/sum of losses/ { v[FILENAME] = $5 + 0 } END { exit !(v["exact"] <= v["evo"]) }' exact evo
}

@test "token-bytes: of experts those in use, the output whole, a row of the embedding" {
    key() { chimere-run -m "$(source_model)" --inspect | sed -n "s/.*\.$1 = //p"; }
    local n used bytes least
    n=$(key expert_count)
    used=$(key expert_used_count)
    # The bytes of a plan by hand, those of experts alone with "experts".
    count() { awk -v part="$(awk "BEGIN { print $used / $n }")" -v only="${1:-}" '
        /^blk|^token_embd|^output/ {
            b = $1 ~ /_exps\./ ? $4 * part : $1 ~ /token_embd/ ? $4 / 512 : $4
            if (only == "" || $1 ~ /_exps\./) sum += b
        } END { printf "%.0f", sum }' out; }
    try 0 chimere-quantize --measure "$LOSSES" --budget token-bytes=330000 --dry-run "$(source_model)"
    bytes=$(sed -n 's/^# budget token-bytes=330000: \([0-9]*\) bytes.*/\1/p' out)
    [ "$bytes" -le 330000 ]
    [ "$bytes" -eq "$(count)" ]
    # With less of it bits leave what every token reads rather than experts.
    try 0 chimere-quantize --measure "$LOSSES" --budget size=620000 --dry-run "$(source_model)"
    local all experts
    all=$(count)
    experts=$(count experts)
    try 0 chimere-quantize --measure "$LOSSES" --budget size=620000 --budget token-bytes=$((all * 9 / 10)) --dry-run "$(source_model)"
    [ "$(count)" -le $((all * 9 / 10)) ]
    [ $(($(count experts) * all)) -gt $((experts * $(count))) ]
    # What cannot be is refused with the least, which can be.
    try 1 chimere-quantize --measure "$LOSSES" --budget token-bytes=200k --budget size=1G --dry-run "$(source_model)"
    least=$(sed -n 's/^chimere-quantize: token-bytes=200k: cannot be kept: \([0-9]*\) bytes are the least$/\1/p' err)
    [ "$least" -gt 204800 ]
    [ "$(wc -l < err)" -eq 1 ]
    try 0 chimere-quantize --measure "$LOSSES" --budget token-bytes="$least" --dry-run "$(source_model)"
    refuses 1 'token-bytes=330000: cannot be kept: what is fixed takes' chimere-quantize --measure "$LOSSES" --tensor '.=f32' \
        --budget token-bytes=330000 --dry-run "$(source_model)"
}

@test "the list of sizes: each mix, its loss, and the best of its size, as a table and a picture" {
    try 0 chimere-quantize --measure "$LOSSES" --budget list --plot c.svg "$(source_model)"
    [ "$(grep -c '^# ' out)" -eq 2 ]
    [ "$(grep -cv '^#' out)" -eq "$(ls "$ROOT"/share/recipes/*.recipe | wc -l)" ]
    sort -n -c -k1,1 <(grep -v '^#' out)
    awk '!/^#/ && $6 != "-" && $6 !~ /^[0-9.]+(e-[0-9][0-9])?$/ { exit 1 }' out # no number is cut
    # the size of a mix is that of its file, bits are the file's, and the best of a size is what a search finds
    read -r bytes bits name kl best _ < <(grep ' q4_k_m ' out)
    try 0 chimere-quantize -t q4_k_m "$(source_model)" m.gguf
    [ "$bytes" = "$(stat -c %s m.gguf)" ] && [ "$name" = q4_k_m ]
    grep -q " in a file of $bytes bytes, $bits" err
    chimere-quantize --measure "$LOSSES" --budget size="$bytes" --dry-run "$(source_model)" > found
    awk -v b="$best" '/^# predicted/ { exit !($4 / b > .999 && $4 / b < 1.001) }' found
    awk -v a="$kl" -v b="$best" 'BEGIN { exit !(b > 0 && a >= b) }'
    # a mix of one type loses what was measured of all tensors in that type
    awk -v l="$(jq -r 'select(.whole == "q8_0").kl' "$LOSSES")" '$3 == "q8_0" { exit !($4 / l > .99 && $4 / l < 1.01) }' \
        <(chimere-quantize --measure "$LOSSES" --budget list "$(source_model)")
    [ "$(grep -c '>q4_k_m</text>' c.svg)" -eq 1 ] && grep -q '<polyline' c.svg
    refuses 2 "stands alone" chimere-quantize --measure "$LOSSES" --budget list --budget size=1M "$(source_model)"
    refuses 2 "takes one file" chimere-quantize --measure "$LOSSES" --budget list "$(source_model)" new.gguf
    refuses 2 "only prints and plots" chimere-quantize --measure "$LOSSES" --budget list --save-recipe r "$(source_model)"
    refuses 2 "draws the curve" chimere-quantize --measure "$LOSSES" --budget size=1M --plot d.svg "$(source_model)" new.gguf
    refuses 2 "ends in .svg" chimere-quantize --measure "$LOSSES" --budget list --plot d.txt "$(source_model)"
    [ ! -e new.gguf ] && [ ! -e d.svg ] && [ ! -e d.txt ]
}

@test "rules and floors are kept by the search" {
    printf '%s\n' 'attn_k\.weight = q8_0' 'ssm_out\.weight >= q5_1' 'file-type 17' > rules
    try 0 chimere-quantize --measure "$LOSSES" --recipe rules --tensor 'token_embd=q4_0' --budget size=650000 \
        --save-recipe r "$(source_model)" a.gguf
    grep -qx 'file-type 17' r
    grep -q "^# file: $(stat -c %s a.gguf) bytes" r
    chimere-run -m a.gguf --inspect | grep -q 'general.file_type = 17'
    grep attn_k r | grep -qv ' q8_0 ' && false
    grep -q 'token_embd.* = q4_0' r
    awk '/ssm_out/ && $3 !~ /^(q5_1|q8_0|f32)$/ { bad = 1 } END { exit bad }' r
    # a floor without a search
    printf '%s\n' 'ssm_out\.weight >= q8_0' 'default q4_0' > rules
    try 0 chimere-quantize --recipe rules --dry-run "$(source_model)"
    awk '/ssm_out/ && $3 != "q8_0" || /attn_q\./ && $3 != "q4_0" { bad = 1 } END { exit bad }' out
}

@test "a line that is missing is measured before the search" {
    grep -v 'blk.1.ffn_up_shexp' "$LOSSES" > l
    try 0 chimere-quantize --measure l --random --tokens 64 --budget size=700000 --save-recipe r "$(source_model)"
    [ "$(wc -l < l)" -eq "$(wc -l < "$LOSSES")" ]
}

@test "unbiased blocks: other bytes, of the same types, and the recipe says so" {
    try 0 chimere-quantize -t q4_0 "$(source_model)" a.gguf
    try 0 chimere-quantize -t q4_0 --unbiased "$(source_model)" b.gguf
    no cmp -s a.gguf b.gguf
    printf '%s\n' unbiased 'default q4_0' > r
    try 0 chimere-quantize --recipe r "$(source_model)" c.gguf
    cmp <(chimere-run -m b.gguf --inspect | grep blk) <(chimere-run -m c.gguf --inspect | grep blk)
    chimere-run -m b.gguf --inspect | grep -q 'quantize.recipe = unbiased'
}

@test "budgets that cannot be, and files that are wrong" {
    local m=("--measure" "$LOSSES")
    refuses 1 "size=300k: cannot be kept: " chimere-quantize "${m[@]}" --budget size=300k --dry-run "$(source_model)"
    refuses 1 "vram=1M,ctx=64: cannot be kept" chimere-quantize "${m[@]}" --budget vram=1M,ctx=64 --dry-run "$(source_model)"
    refuses 2 "there is one already" chimere-quantize "${m[@]}" --budget size=1M --budget size=2M --dry-run "$(source_model)"
    refuses 2 "not size=BYTES" chimere-quantize "${m[@]}" --budget weight=1M --dry-run "$(source_model)"
    local bad
    for bad in big 0 -1 1e400 nan 99999999999999999999 ''; do
        refuses 2 "size=$bad: not a size" chimere-quantize "${m[@]}" --budget size="$bad" --dry-run "$(source_model)"
    done
    refuses 2 "say for what context" chimere-quantize "${m[@]}" --budget vram=1G --dry-run "$(source_model)"
    refuses 2 "only vram takes more" chimere-quantize "${m[@]}" --budget size=1G,ctx=5 --dry-run "$(source_model)"
    refuses 2 "not a number of tokens" chimere-quantize "${m[@]}" --budget vram=1G,ctx=x --dry-run "$(source_model)"
    # found before anything is measured
    refuses 1 "nowhere/x" chimere-quantize --measure new --random --imatrix nowhere/x "$(source_model)"
    refuses 1 "nowhere/x" chimere-quantize --measure new --random --budget size=1M "$(source_model)" nowhere/x
    refuses 1 "nowhere/x" chimere-quantize --measure new --random --budget size=1M --save-recipe nowhere/x "$(source_model)"
    refuses 2 "is f32 already" chimere-quantize --measure new --random --method probes --probes f32 "$(source_model)"
    refuses 2 "--budget needs --measure" chimere-quantize --budget size=1M a b
    refuses 2 "--search needs --budget" chimere-quantize -t q8_0 --search evo a b
    refuses 2 "--random needs --measure" chimere-quantize -t q8_0 --random a b
    refuses 2 "--data and --random do not go together" chimere-quantize "${m[@]}" --random --data x a
    refuses 2 "-t and --measure do not go together" chimere-quantize "${m[@]}" -t q8_0 a b
    refuses 2 "only measures" chimere-quantize "${m[@]}" --dry-run a
    refuses 2 "--dry-run and --save-recipe do not go together" chimere-quantize "${m[@]}" --budget size=1M --dry-run --save-recipe r a
    refuses 2 "--check and --threads do not go together" chimere-quantize --check --threads 2 a
    refuses 1 "not a regular file" chimere-quantize --measure /dev/null --random "$(source_model)"
    echo mine > ours
    refuses 2 "is no recipe of a search" chimere-quantize "${m[@]}" --budget size=700000 --save-recipe ours "$(source_model)"
    refuses 2 "--save-recipe new" chimere-quantize "${m[@]}" --budget size=700000 --save-recipe new "$(source_model)" ./new
    [ "$(cat ours)" = mine ] && [ ! -e new ]
    refuses 2 "--probes" chimere-quantize --measure new --probes q9 "$(source_model)"
    refuses 3 "too short to measure" chimere-quantize --measure new --data /dev/null "$MODELS/../../../share/models/"*q5_k_m.gguf \
        --allow-requantize
    [ ! -e new ]
    refuses 3 "measured on another model" chimere-quantize "${m[@]}" --budget size=1M --dry-run "$MODELS/kimilinear-a.gguf"
    local line text
    while IFS='|' read -r line text; do
        { head -1 "$LOSSES"; printf '%s\n' "$line"; } > l
        refuses 3 "l:2: $text" chimere-quantize --measure l --budget size=1M --dry-run "$(source_model)"
    done <<'LINES'
nonsense|column 8: invalid token
[]|not an object
{}|neither "tensor" nor "whole"
{"tensor":"none","kl":{"q8_0":1}}|none: the model has no such tensor
{"tensor":"output.weight","kl":{}}|output.weight: "kl" is no object
{"tensor":"output.weight","kl":{"q9":1}}|q9: not a tensor type
{"tensor":"output.weight","kl":{"q8_0":-1}}|"q8_0" is not a number
{"tensor":"output.weight","kl":{"q8_0":"x"}}|"q8_0" is not a number
{"tensor":"output.weight","kl":{"q8_0":1e300}}|"q8_0" is not a number
{"tensor":"output\nweight","kl":{"q8_0":1}}|"tensor" is missing or no word
{"whole":"q8_0","kl":1}|"se" is not a number
LINES
    echo "a recipe" > l
    refuses 3 "invalid token" chimere-quantize --measure l --budget size=1M --dry-run "$(source_model)"
    printf 'no newline' > l
    refuses 3 "not a file of losses" chimere-quantize --measure l --budget size=1M --dry-run "$(source_model)"
    [ "$(cat l)" = "no newline" ]
}
