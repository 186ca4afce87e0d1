#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engram-kills.sh [KILLS [NIGHTS]]: `chimere-engram-build add` and `build` are killed so many times, at any moment, then
# engram-nightly.sh is. After each kill the table is the old one or the new one, whole; at the end every line counts once.
set -eu
cd "$(dirname "$0")/.."
kills=${1:-1000} nights=${2:-100}
export CHIMERE_MODEL=${CHIMERE_MODEL:-$PWD/share/models/chimere-nano-q5_k_m.gguf}
PATH=$PWD/bin:$PATH nightly=$PWD/share/pipelines/engram-nightly.sh day=2026-01-15
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
        killed $((RANDOM * span / 32768)) chimere-engram-build build --day $day -q -o t b.txt
        after t old other
    fi
done
chimere-engram-build add --day $day -q -o old b.txt # a lock that was left is no hindrance
cmp old both
left=$(find . -name '.*' -type f | wc -l)
echo "{\"kills\": $kills, \"old\": $old, \"new\": $new, \"damaged\": 0, \"files_left\": $left}"

# Nights: each brings three lines of two domains.
head -c 20000 a.txt > held
head -n 300 b.txt | jq -Rc 'select(length > 20) | {text: ., score: 5, domain: (if input_line_number % 2 == 0 then "x" else "y" end)}' > lines
from=$(date +%s%N)
bash "$nightly" try held <(head -n 3 lines) > out 2>&1 || [ $? -eq 4 ]
span=$((($(date +%s%N) - from) * 11 / 10000))
for ((k = 0; k < nights; k++)); do
    killed $((RANDOM * span / 32768)) bash "$nightly" tables held <(head -n $((3 + k)) lines)
    for t in tables/*.engram*; do
        [ ! -e "$t" ] || chimere-engram-build check "$t"
    done
done
until bash "$nightly" tables held <(head -n $((3 + nights)) lines) > out 2>&1; do [ $? -eq 4 ] || { cat out; exit 1; }; done
for d in x y; do # what is in the lists is in the table, once
    jq -r .text "tables/.$d.seen" > want.txt
    chimere-engram-build build -q --order 1 -o want --jsonl "tables/.$d.seen"
    chimere-engram-build merge -q -o have "tables/$d.engram"
    rows() { chimere-engram-build dump "$1" | jq -c 'select(.context | length == 1) | [.context, .next, .count]' | sort; }
    cmp <(rows have) <(rows want)
done
echo "{\"nights_killed\": $nights, \"lines\": $(cat tables/.?.seen | wc -l), \"damaged\": 0, \"lost_or_twice\": 0}"
