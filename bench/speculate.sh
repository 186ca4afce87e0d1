#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# speculate.sh PART [OPTIONS...]: what guesses ahead are worth by class of prompt, embedded model, two threads, as JSON lines on
# standard output. Parts: classes, sets (share/eval), fixed (a number of guesses), undo (what taking guesses back costs, by
# family), rows (steps by their rows). OPTIONS go to chimere-bench. Run it where nothing else runs: taskset -c 0,1 bench/speculate.sh sets
set -eu
cd "$(dirname "$0")/.."
bench=${BIN:-bin}/chimere-bench eval=share/eval
drafter=${DRAFTER:-share/models/chimere-nano-dflash.gguf} reps=${REPS:-3} limit=${LIMIT:-8}
part=${1:?classes, sets, fixed, undo or rows}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

ask() # CLASS BEFORE AFTER, a line of standard input for each prompt
{
    while read -r it; do
        printf '{"messages": [{"role": "user", "content": "%s%s%s"}], "enable_thinking": %s}\n' "$2" "$it" "$3" "${thinking:-false}"
    done > "$work/$1.jsonl"
}

measure() # OPTIONS AND OPERANDS
{
    "$bench" speculate -t 2 --json --draft "$drafter" --draft mtp --draft ngram --draft auto --limit "$limit" --reps "$reps" "$@"
}

case $part in
classes)
    ask translation 'Translate into German: ' '' <<'END'
The river was frozen in the morning.
She bought three loaves of bread and a jar of honey.
Nobody knew why the bell had rung at night.
The train to the coast leaves at half past seven.
Please close the window before it rains.
Our neighbour has painted his fence green.
The children found an old map in the attic.
It takes two hours to walk around the lake.
END
    ask lists 'List ten ' ', one a line.' <<'END'
animals that live in the sea
things to pack for a journey
vegetables
words that rhyme with day
tools of a carpenter
rivers of Europe
musical instruments
numbers that can be divided by seven
END
    ask json 'Give a JSON array of five objects with the members name, age and city, all invented: ' '' <<'END'
sailors
farmers
teachers
bakers
painters
drivers
doctors
students
END
    thinking=true ask thinking 'Think step by step: what is ' '?' <<'END'
17 + 25 - 9
12 * 13
144 / 12 + 5
9 * 9 - 30
250 - 75 + 18
6 * 7 * 2
1000 - 345
81 / 9 * 4
END
    measure -n 160 "$@" "$eval/code.jsonl" "$work/json.jsonl" "$work/translation.jsonl" "$work/thinking.jsonl" "$work/lists.jsonl"
    measure -n 160 --prompt 64 "$@" "$eval/heldout-docs.txt"
    measure -n 128 --prompt 256 --quote "$@" "$eval/heldout-docs.txt"
    measure -n 128 --prompt 64 "$@" ;;
sets)
    measure -n 240 "$@" "$eval"/{math,code,tools,verify,facts,facts-context,facts-heldout}.jsonl ;;
fixed)
    "$bench" speculate -t 2 --json --fixed --draft "$drafter" --draft mtp --draft ngram --draft-max 1,3,7,15 --limit "$limit" --reps "$reps" \
        -n 240 "$@" "$eval"/{math,code,tools,verify,facts,facts-context}.jsonl ;;
undo)
    for shape in - qwen3.5-0.8b,layers=8 qwen3.6-35b-a3b,layers=4 nemotron-3-nano-30b-a3b,layers=6 granite-4-h-tiny,layers=10 \
        falcon-h1-1.5b,layers=4; do
        model=(--shape "$shape")
        [ "$shape" != - ] || model=()
        for drafts in '' 15 '' 15; do
            "$bench" speed -t 2 --json "${model[@]}" --prompt '' --depth 0 --rows 1,16 --seqs '' --reps 15 ${drafts:+--drafts $drafts} "$@"
        done
    done ;;
rows)
    "$bench" speed -t 2 --json --prompt 16,512 --depth 0 --rows 1,2,3,4,6,8,12,16,17 --seqs '' --reps 31 "$@" ;;
*) echo "speculate.sh: $part?" >&2; exit 2 ;;
esac
