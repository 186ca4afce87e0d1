#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engram-kills.sh [KILLS [NIGHTS]]: `chimere-engram-build add` and `build` are killed so many times, at any moment, then
# `add --from` is. After each kill the table is the old one or the new one, whole; at the end every text counts once.
set -eu
cd "$(dirname "$0")/.."
kills=${1:-1000} nights=${2:-100}
export CHIMERE_MODEL=${CHIMERE_MODEL:-$PWD/share/models/chimere-nano-q5_k_m.gguf}
PATH=$PWD/bin:$PATH day=2026-01-15
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat libcore/engram/*.c > "$work/a.txt"
cat libcore/recall/*.c > "$work/b.txt"
cd "$work"
chimere-engram-build build --day $day -q -o old a.txt
chimere-engram-build build --day $day -q -o other b.txt
cp old both
from=$(date +%s%N)
chimere-engram-build add --day $day -q -o both b.txt
span=$((($(date +%s%N) - from) * 11 / 10000)) # microseconds, and a tenth more
after() { # FILE OLD NEW
    if cmp -s "$1" "$2"; then old=$((old + 1)); else cmp "$1" "$3" && new=$((new + 1)); fi
}
# killed MICROSECONDS COMMAND...: with all that it started
killed() {
    local us=$1
    shift
    setsid "$@" > out 2>&1 &
    sleep "$(printf '%d.%06d' $((us / 1000000)) $((us % 1000000)))"
    kill -KILL -- -$! 2> /dev/null || true
    wait $! 2> /dev/null || true
}
old=0 new=0
for ((k = 0; k < kills; k++)); do
    cp old t
    if ((k % 2)); then
        killed $((RANDOM * span / 32768)) chimere-engram-build add --day $day -q -o t b.txt
        after t old both
    else
        killed $((RANDOM * span / 32768)) chimere-engram-build build -f --day $day -q -o t b.txt
        after t old other
    fi
done
chimere-engram-build add --day $day -q -o old b.txt # a lock that was left is no hindrance
cmp old both
left=$(find . -name '.*' -type f | wc -l)
echo "{\"kills\": $kills, \"old\": $old, \"new\": $new, \"damaged\": 0, \"files_left\": $left}"

# Nights: each brings three lines more of two domains.
head -c 3000 a.txt > held
head -n 300 b.txt | jq -Rc 'select(length > 20) | {text: ., score: 5, domain: (if input_line_number % 2 == 0 then "x" else "y" end)}' > lines
night() { chimere-engram-build add -q --day $day --held-out held --from "$1" --keep-versions 3 "$2"; }
head -n 3 lines > some
from=$(date +%s%N)
night some try || [ $? -eq 4 ]
span=$((($(date +%s%N) - from) * 11 / 10000))
got=0
for ((k = 0; k < nights; k++)); do
    head -n $((3 + 3 * k)) lines > some
    killed $((RANDOM * span / 32768)) chimere-engram-build add -q --day $day --held-out held --from some --keep-versions 3 nights
    for t in nights nights.?; do
        [ ! -e "$t" ] || { chimere-engram-build check "$t"; got=$((got + 1)); }
    done
done
for ((k = 0; k < 2; k++)); do night some nights || [ $? -eq 4 ]; done
cp nights last
night some nights || [ $? -eq 4 ]
cmp last nights # a text counts once
# Each text of the table is there once: as many documents as texts that are listed, and as a build of them makes.
documents=$(chimere-engram-build stats -j nights | jq -s 'map(.documents) | add')
unknown=$(chimere-engram-build add -v --day $day --held-out held --from some nights 2>&1 > /dev/null | sed -n 's/^\([0-9]*\) answers are new.*/\1/p') || true
all=$(jq -r .text some | sort -u | wc -l)
[ $((documents + unknown)) -eq "$all" ] || { echo "$documents documents and $unknown unknown of $all" >&2; exit 1; }
left=$(find . -name '.*.tmp' -o -name 'nights.night' | wc -l)
echo "{\"nights_killed\": $nights, \"tables_checked\": $got, \"texts\": $documents, \"left_out\": $unknown, \"damaged\": 0, \"lost_or_twice\": 0, \"files_left\": $left}"
