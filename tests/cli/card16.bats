#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Mixes by what the roles of another model lose, the recipe that was made so, and shapes with the types of recipes.
load common
load quantize

setup_file()
{
    export BATS_TEST_TMPDIR=$BATS_FILE_TMPDIR
    setup
    export MODEL=$BATS_FILE_TMPDIR/holes.gguf LOSSES=$BATS_FILE_TMPDIR/losses.jsonl
    chimere-bench synth --shape qwen3.6-35b-a3b,layers=8,vocab=4096,experts=32 --mix bf16 --holes --write "$MODEL" > "$BATS_FILE_TMPDIR/record"
    # Of a model with two layers of each kind, whose matrices lose 4 to the power of minus their bits, output weights ten times that.
    chimere-run --inspect --json -m "$MODEL" | jq -c '
        {format: "chimere-losses 1", model: "1", method: "fisher", text: "own", text_hash: "1", sequences: 16, tokens: 256,
         from: 128, effort: "default", probes: ""},
        (.tensors[] | select(.quant == "bf16" and (.name | test("^blk.[0-3][.]|^[^b]")))
            | (if .name == "output.weight" then 10 else 1 end) as $x
            | {tensor: .name, kl: {q2_k: (.1 * $x), iq3_s: (.01 * $x), q4_k: (.002 * $x), q6_k: (.0001 * $x), q8_0: (.00001 * $x)}})' > "$LOSSES"
}

by_role() { chimere-quantize --measure "$LOSSES" --by-role "$@"; }

@test "--by-role: the layers of a role lose together what they lose in the other model, and budgets are kept" {
    [ "$(wc -l < "$LOSSES")" -gt 30 ]
    by_role --budget size=500M --dry-run "$MODEL" > wide
    token() { awk '/^blk|^output/ { n += $1 ~ /_exps/ ? $4 * 8 / 32 : $4 } END { printf "%.0f", n }' "$1"; }
    local most=$(($(token wide) * 9 / 10))
    try 0 by_role --budget size=500M --budget token-bytes=$most --save-recipe r "$MODEL"
    head -1 r | grep -qE '^# predicted: KL [0-9.e-]+ if roles lose what they lose in another model$'
    awk '/^# budget/ { n++; bad = bad || $(NF - 1) > 100 } END { exit bad || n != 2 }' r
    # two layers with attention here, one there; four layers' experts there, eight here; the output is the output
    loss() { awk -v name="$1" '$1 == name { print $3, $6 }' r | sed 's/,//'; }
    type=$(loss '^blk\.7\.attn_k\.weight$' | cut -d' ' -f1)
    [ "$(loss '^blk\.7\.attn_k\.weight$')" = "$type $(jq -r --arg t "$type" 'select(.tensor == "blk.3.attn_k.weight").kl[$t] / 2' "$LOSSES" |
        xargs printf '%.2e')" ]
    type=$(loss '^blk\.5\.ffn_up_exps\.weight$' | cut -d' ' -f1)
    [ "$(loss '^blk\.5\.ffn_up_exps\.weight$')" = "$type $(jq -r --arg t "$type" 'select(.tensor == "blk.1.ffn_up_exps.weight").kl[$t] / 2' "$LOSSES" |
        xargs printf '%.2e')" ]
    # fewer bytes a token come from what every token reads, not from experts
    by_role --budget size=500M --budget token-bytes=$most --dry-run "$MODEL" > narrow
    [ "$(token narrow)" -le "$most" ]
    experts() { awk '/_exps/ { n += $4 } END { printf "%.0f", n }' "$1"; }
    [ "$(experts narrow)" -ge "$(experts wide)" ]
}

@test "--by-role: files that cannot be used, and options that measure" {
    refuses 1 'none.jsonl: cannot open' chimere-quantize --measure none.jsonl --by-role --budget size=1G --dry-run "$MODEL"
    : > empty
    refuses 3 'not a file of losses' chimere-quantize --measure empty --by-role --budget size=1G --dry-run "$MODEL"
    sed 's/"tensor":"/&other./' "$LOSSES" > strange
    refuses 3 'has no matrix by the same name' chimere-quantize --measure strange --by-role --budget size=1G --dry-run "$MODEL"
    { head -3 "$LOSSES"; echo '{"tensor":"blk.1.ssm_out.weight","kl":{"q9":1}}'; } > odd
    refuses 3 'odd:4: q9: not a tensor type' chimere-quantize --measure odd --by-role --budget size=1G --dry-run "$MODEL"
    { head -3 "$LOSSES"; echo '{"tensor":"blk.1.ssm_out.weight","kl":{"q8_0":-1}}'; } > odd
    refuses 3 'odd:4: "q8_0" is not a number from 0 to 1e30' chimere-quantize --measure odd --by-role --budget size=1G --dry-run "$MODEL"
    { head -3 "$LOSSES"; echo '['; } > odd
    refuses 3 'odd:4: ' chimere-quantize --measure odd --by-role --budget size=1G --dry-run "$MODEL"
    refuses 2 'budget' chimere-quantize --measure "$LOSSES" --by-role "$MODEL"
    refuses 2 'not with --by-role' chimere-quantize --measure "$LOSSES" --by-role --budget list "$MODEL"
    refuses 2 'nothing is measured' chimere-quantize --measure "$LOSSES" --by-role --random --budget size=1G --dry-run "$MODEL"
    refuses 3 'measured on another model' chimere-quantize --measure "$LOSSES" --budget size=1G --dry-run "$MODEL"
}

@test "card16: the 35B shape with 32K tokens is on a card of 16 GB as a whole, with fewer bytes a token than iq4_xs" {
    local plan=(--plan --shape qwen3.6-35b-a3b --vram 16G --ctx 32k --bandwidth 448)
    chimere-run "${plan[@]}" --mix card16 --json > plan.json
    # made for 15,500 MiB by the estimate of a build without CUDA; one with CUDA counts 8 MiB more scratch
    jq -e '.kv == "f16,f16" and .host_weight_bytes_by_kind.experts == null and all(.layers[]; .device_experts == 256)
        and .total_bytes <= 15520 * 1048576' plan.json
    chimere-run "${plan[@]}" --mix card16 > plan
    grep -q 'at 75 %        of the bandwidth alone [0-9]* to [0-9]* tokens/s' plan
    # what --plan says, quantize says of the same shape; token-bytes=1500M is kept
    chimere-bench synth --shape qwen3.6-35b-a3b --mix bf16 --holes --write whole.gguf > record
    try 0 chimere-quantize -t card16 --dry-run whole.gguf
    jq -e --argjson n "$(awk '$1 ~ /_exps/ { n += $4 } END { printf "%.0f", n }' out)" \
        '.device_weight_bytes_by_kind.experts / $n | . >= 1 and . < 1.0001' plan.json
    token() { awk '/^blk|^output/ { n += $1 ~ /_exps/ ? $4 * 8 / 256 : $4 } END { printf "%.0f", n }' out; }
    [ "$(token)" -le $((1500 * 1048576)) ]
    ours=$(token)
    try 0 chimere-quantize -t iq4_xs --dry-run whole.gguf
    [ "$(token)" -gt "$ours" ]
    chimere-run "${plan[@]}" --mix iq4_xs --json | jq -e '.host_weight_bytes_by_kind.experts > 2e9'
}

@test "shapes take the types of a recipe, by name or file, and are written with them" {
    chimere-bench synth --shape qwen3.6-35b-a3b,layers=4,experts=8,vocab=512 --mix card16 --write m.gguf > record
    jq -e '.case | endswith("mix=card16")' record
    chimere-bench synth --shape qwen3.6-35b-a3b,layers=4,experts=8,vocab=512 --mix bf16 --holes --write h.gguf > record
    chimere-quantize -t card16 --dry-run h.gguf | awk '/^blk|^token|^output/ { print $1, $3 }' | sort > planned
    chimere-run --inspect --json -m m.gguf | jq -r '.tensors[] | "\(.name) \(.quant)"' | sort > written
    [ "$(grep -c . written)" -gt 60 ]
    diff <(grep -wFf <(cut -d' ' -f1 planned) written) <(sed 's/ kept$/ f32/' planned)
    printf 'default q8_0\n^output = q4_k\n' > own.recipe
    chimere-bench synth --shape qwen3.6-35b-a3b,layers=4,experts=8,vocab=512 --mix own.recipe --write own.gguf > record
    chimere-run --inspect --json -m own.gguf | jq -e '[.tensors[] | select(.quant == "q4_k").name] == ["output.weight"]'
    chimere-bench speed -m m.gguf --prompt 8 --tokens 2 --depth 0 --rows '' --seqs '' --reps 1 | jq -es 'any(.[]; .decode_tps > 0)'
}

@test "holes and recipes that are wrong" {
    try 2 chimere-bench synth --shape qwen3.5-0.8b --holes
    grep -q 'holes' err && [ "$(wc -l < err)" -eq 1 ]
    try 1 chimere-bench synth --shape qwen3.5-0.8b --mix none.recipe
    grep -q '^chimere-bench: none.recipe: cannot open' err && [ "$(wc -l < err)" -eq 1 ]
    echo 'default q99' > bad.recipe
    try 3 chimere-run --plan --shape qwen3.5-0.8b --mix bad.recipe
    grep -q '^chimere-run: bad.recipe:1: ' err && [ "$(wc -l < err)" -eq 1 ]
}
