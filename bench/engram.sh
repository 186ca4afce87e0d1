#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engram.sh FACTS.txt: what tables of n-grams do to answers of the embedded model, in four ways, and a text that is recited.
# FACTS.txt has a line "KEY - ANSWER" for each fact. The table is made of it, of every fourth item of share/eval with its
# answer, and of the sources of libcore; the other three quarters of the items are asked. Prints shares of right answers.
set -eu
cd "$(dirname "$0")/.."
[ $# -eq 1 ] || { sed -n 3,5p "$0" >&2; exit 2; }
PATH=$PWD/bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. bench/engram-build.bash
engram_program "$work/engram"
mkdir "$work/asked"
for set in share/eval/*.jsonl; do
    awk 'NR % 4 != 1' "$set" > "$work/asked/${set##*/}"
    awk 'NR % 4 == 1' "$set"
done | jq -c 'select(.check == "exact") | {text: ([.messages[-1].content, .answer] | join("\n") + "\n")}' > "$work/taught.jsonl"
chimere-engram-build build --lines -q -o "$work/t.engram" "$1"
chimere-engram-build add -q -o "$work/t.engram" "$work/taught.jsonl" libcore/*/*.c
chimere-engram-build index --lines -q -o "$work/facts.index" "$1"
args=()
for mode in off bias mixture thinking recite; do
    nice -n 19 "$work/engram" answers $mode "$work/t.engram" "$work/facts.index" "$work"/asked/*.jsonl > "$work/$mode.jsonl"
    args+=("$mode=$work/$mode.jsonl")
done
python3 bench/engram_judge.py share/eval "${args[@]}"
