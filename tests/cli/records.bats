#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Every key that chimere-bench writes is described in chimere-jsonl(5), under its type or under "record", and every
# key described there is written by some command here.
load common

small() # a model of a moment
{
    jq -r '.messages[0].content' "$ROOT/share/eval/math.jsonl" > text.txt
    cp "$ROOT/share/eval/math.jsonl" .
}

# Runs the commands; all records go to ./records.
measure_all()
{
    small
    chimere-bench bandwidth --size 1M --reps 1 --threads 1
    chimere-bench speed --prompt 8 --depth 0 --rows 1,2 --seqs 1,2 --tokens 2 --reps 1
    chimere-bench ppl --ctx 16 --windows 2 text.txt | tee before
    chimere-bench ppl --ctx 16 --windows 2 --against before text.txt
    chimere-bench kl --ctx 16 --windows 2 --reference "$CHIMERE_MODEL" text.txt
    chimere-bench eval --limit 2 -n 4 --think-stop eat:0 -o one math.jsonl
    chimere-bench eval --limit 2 -n 4 --samples 2 --temp 1 -o two math.jsonl
    printf 'Kassel: a town of 24\n' > notes
    printf '{"id": "k", "messages": [{"role": "user", "content": "What is Kassel?"}], "answer": "a", "check": "exact"}' > k.jsonl
    chimere-bench eval -n 1 --think off --context notes -o noted k.jsonl
    echo '{"id": "k", "answer": "a"}' > recorded
    chimere-bench eval --judge-only recorded -o judged k.jsonl
    chimere-bench reason --limit 2 -n 6 --traces traces math.jsonl
    chimere-bench calibrate --limit 4 -n 60 --verifier self -o calibration math.jsonl
    chimere-bench eval --limit 2 -n 2 --think auto --calibration calibration -o advised math.jsonl
    echo 'clotted: a page' > words
    chimere-engram-build index -q --lines --vectors none -o words.index words
    jq -nc '"What is the meaning of clotted?", "Define clotted." | {id: ., messages: [{role: "user", content: .}],
        enable_thinking: false, answer: "thickened or coalesced in soft thick lumps", check: "exact"}' > words.jsonl
    chimere-bench calibrate --examples words.index -o sure words.jsonl
    chimere-bench eval --limit 1 -n 4 --retrieve auto --examples words.index --calibration sure -o looked words.jsonl
    cat one noted judged traces advised looked
    chimere-bench eval --compare one one
    chimere-bench synth --shape qwen3.5-0.8b,layers=4,vocab=256 --mix q8_0 --write m.gguf --bandwidth 100
    chimere-bench synth --shape qwen3.6-35b-a3b --vram 16G
    chimere-bench state --depth 10 --reps 1
    chimere-bench speculate --oracle 0.5 --draft-max 2 --prompt 8 -n 4 --limit 1 --reps 1
    chimere-bench kernels
}

# "TYPE key" of each key of the records, those of objects in them too. by_op is keyed by operations; a plan within a
# record is a thing of its own type.
printed()
{
    jq -r '(if .plan then .plan, (.plan = 0) else . end) | .type as $t | del(.by_op[]?[])
        | if .by_op then .by_op = {"step_ms": 0, "share": 0} else . end
        | [paths | map(select(type == "string")) | last] | unique[] | select(.) | "\($t) \(.)"' records | sort -u
}

# "TYPE key" of each key that the manual names, as an item or within its text.
described()
{
    awk '$1 == ".Ss" { type = $2 }
        $1 == ".Sh" { type = "" }
        type != "" && ($1 == ".Li" || ($1 == ".It" && $2 == "Li")) {
            for (i = $1 == ".Li" ? 2 : 3; i <= NF; i++) if ($i ~ /^[a-z0-9_]+$/) print type, $i
        }' "$ROOT/man/chimere-jsonl.5" | sort -u
}

@test "chimere-jsonl(5) describes every key of the records of chimere-bench" {
    measure_all > records
    jq -r .type records | sort -u > types
    printf '%s\n' answer bandwidth calibrate comparison eval eval_difference kernel kernel_choice kl launch ppl reason \
        speculate speed state step_part synth | diff - types
    printed > have
    described > all
    [ "$(wc -l < have)" -gt 100 ]
    awk 'NR == FNR { known[$0]; next } !($0 in known) && !("record " $2 in known)' all have > unknown
    diff /dev/null unknown
    # and the reverse, but for what other models, devices and plans with counts have (placement.bats); x_unit is a manner of
    # speaking
    awk 'NR == FNR { have[$0]; key[$2]; type[$1]; next }
        ($1 == "record" && !($2 in key)) || ($1 in type && !($0 in have) && !("record " $2 in have)) { print }' \
        have all | grep -vE '^record mtp$|^plan (device_expert_ids|verifier_bytes|devices|first_layer|last_layer|pass_bytes|exchanges|exchange_bytes)$' |
            grep -vE '^speed (x_.*unit|step_launches|token_read_bytes|read_bytes_per_s|(device_used|planned|budget)_bytes)$' > gone || true
    diff /dev/null gone
}

@test "the first key is type, and numbers have units" {
    small
    chimere-bench ppl --ctx 16 --windows 2 text.txt > record
    grep -q '^{"type":"ppl","case":' record
    printed_units=$(chimere-bench speed --prompt '' --depth 0 --rows '' --seqs '' --tokens 1 --reps 1 |
        jq -r 'to_entries[] | select(.value | type == "number") | .key' | sort -u |
        grep -vE '_(ms|tps|bytes|bytes_per_s|fraction|tokens)$' | tr '\n' ' ')
    [ "$printed_units" = "noise reps tokens " ]
}
