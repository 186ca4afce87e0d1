#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# reason.sh - accuracy and tokens of thinking under budgets, closed at the token and at the end of a line, and by rules that
# ask how certain the model is, for reason.md.
# usage: reason.sh DIRECTORY; answers are kept there, and a second run goes on where the first ended.
set -eu
cd "$(dirname "$0")/.." || exit 1
out=$1 bin=${BIN:-bin}
mkdir -p "$out"
for set in math verify; do # every item thinks, also those that are asked for a direct answer in the set
    jq -c '.enable_thinking = true' "share/eval/$set.jsonl" > "$out/$set.jsonl"
done
ask() # NAME OPTION...
{
    "$bin/chimere-bench" eval "$out/math.jsonl" "$out/verify.jsonl" --json -o "$out/$1.answers" "${@:2}" |
        jq -r --arg n "$1" '[$n, .set, .n_right, .n_items, .reasoning_tokens, .probe_rows // 0] | @tsv'
}
ask none
for budget in 16 32 64 128; do
    for grace in 0 $((budget / 8)) $((budget < 32 ? budget : 32)); do
        ask "$budget+$grace" --reasoning-budget $budget --reasoning-grace $grace
    done
done
for budget in 48 80 96 104 112 144; do # of as many tokens as the rules
    ask "$budget" --reasoning-budget $budget
done
for rule in cgr:0.9999 deer:0.9999 same:3 eat:0.00001 abf:0.9999; do
    ask "$rule" --think-stop $rule
done
