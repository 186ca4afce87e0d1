#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engram-facts.sh FACTS.jsonl [SETS [MODES]]: what a table and an index of facts alone do, at once on all processors.
# FACTS.jsonl has an object with "key" and "answer" for each fact that the model was not taught. Prints, with Wilson's
# intervals: lines completed exactly after "KEY - "; answers to all items of SETS (share/eval) closed book, with the table
# in the mixture, with --examples and with --recite; the perplexity of held-out documents with the table and without.
set -eu
cd "$(dirname "$0")/.."
[ $# -ge 1 ] || { sed -n 3,6p "$0" >&2; exit 2; }
PATH=$PWD/bin:$PATH sets=${2:-share/eval} modes=${3:-off mixture examples recite}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. bench/engram-build.bash
engram_program "$work/engram"
jq -r '.key + " - " + .answer' "$1" > "$work/lines.txt"
jq -r '.key + ": " + .answer' "$1" > "$work/notes.txt"
chimere-engram-build build --lines -q -o "$work/facts.engram" "$work/lines.txt"
chimere-engram-build index --lines -q -o "$work/facts.index" "$work/notes.txt"
export work THREADS=1
one() # MODE ITEMS: answers to them
{
    nice -n 19 "$work/engram" answers "$1" "$work/facts.engram" "$work/facts.index" "$2" > "$work/$1.${2##*/}"
}
complete() # ARGUMENTS LINE: 1 if the line is completed exactly
{
    local key=${2%% - *}
    out=$(nice -n 19 chimere-run -q -t 1 --raw --temp 0 -n 80 -p "$key - " --stop $'\n' $1 | sed 's/^ *//')
    [ "$out" = "${2#* - }" ] && echo 1 || echo 0
}
export -f one complete
cat "$sets"/*.jsonl | split -l 50 - "$work/items."
for items in "$work"/items.*; do
    for mode in $modes; do printf '%s\0' "one $mode $items"; done
done | xargs -0 -P "$(nproc)" -I{} bash -c '{}'
judged=()
for mode in $modes; do
    cat "$work/$mode".* > "$work/$mode"
    judged+=("$mode=$work/$mode")
done
python3 bench/engram_judge.py "$sets" "${judged[@]}"
for how in "" "--engram $work/facts.engram"; do
    tr '\n' '\0' < "$work/lines.txt" | how=$how xargs -0 -P "$(nproc)" -I{} bash -c 'complete "$how" "$1"' _ {} |
        awk -v how="${how%% *}" '{ k += $1 } END { print "lines completed", (how == "" ? "without" : "with"), "the table:", k, "of", NR }'
done
tail -c 73000 share/eval/heldout-docs.txt > "$work/held.txt"
chimere-engram-build score --engram "$work/facts.engram" "$work/held.txt"
