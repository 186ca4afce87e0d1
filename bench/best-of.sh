#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# best-of.sh SET.jsonl N - greedy answers to a set, and the vote of N answers weighted by a command that recomputes each step; a line
# for each item, with all candidates, goes to SET.best.jsonl.
set -eu
here=$(cd "$(dirname "$0")" && pwd) set=$1 n=$2 out=${1%.jsonl}.best.jsonl
chimere-bench eval --table "$set"
: > "$out"
while read -r item; do
    jq -r '.messages[0].content' <<< "$item" |
        chimere-run --best-of "$n" --temp 1.3 --seed 1 --vote weighted --verifier "cmd:python3 '$here/recompute.py'" --json |
        jq -c --argjson i "$item" '{id: $i.id, want: $i.answer, text, search}' >> "$out"
done < "$set"
jq -s 'def share(f): (map(select(f)) | length) / length;
    { items: length, weighted: share(.text == .want), any: share(.want as $w | any(.search.candidates[]; .text == $w)),
      tokens: (map(.search.generated_tokens) | add / length) }' "$out"
