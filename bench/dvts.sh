#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# dvts.sh SET.jsonl N M JUDGE.py - N answers to each item of a set, and tree search with N branches in N / M trees, at temperature 1.3,
# both scored by a command; dvts.py prints who is right. A line for each item goes to SET.N.M.JUDGE.jsonl; what is there is not asked again.
set -eu
here=$(cd "$(dirname "$0")" && pwd) set=$1 n=$2 m=$3 judge=$4 out=${1%.jsonl}.$2.$3.$(basename "$4" .py).jsonl
touch "$out"
ask()
{
    jq -r '.messages[0].content' <<< "$item" |
        chimere-run "$@" --temp 1.3 --seed 1 --vote weighted --verifier-time 100 --verifier "cmd:python3 '$here/$judge'" --json
}
tail -n +$(($(wc -l < "$out") + 1)) "$set" | while read -r item; do
    ask --best-of "$n" > "$out.best"
    ask --dvts "${n}x$m" > "$out.tree"
    jq -c --argjson i "$item" -n '{id: $i.id, want: $i.answer, best: input | {text, search}, tree: input | {text, search: .search}}' \
        "$out.best" "$out.tree" >> "$out"
    rm "$out.best" "$out.tree"
done
python3 "$here/dvts.py" "$out"
