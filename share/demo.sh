#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - asks the embedded model three things it can do: a sum that it thinks about, a fact that it
# knows, a call of a tool. Shows what was asked, the reasoning (dim on a terminal), the answer, tokens per
# second and the five operations that took most of the time. Greedy: the same answer every time. Last, what guesses of its
# drafter are worth: two sums without and with, tokens for each step of the model.
set -eu
cd "$(dirname "$0")/.."
run=${BIN:-bin}/chimere-run
bold='' dim='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' dim=$'\033[2m' plain=$'\033[0m'
fi
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

ask() # TITLE OPTIONS...
{
    local word shown=''
    printf '\n%s== %s%s\n' "$bold" "$1" "$plain"
    shift
    for word; do
        case $word in
        *[!A-Za-z0-9_=./-]*) shown+=" '$word'" ;;
        *) shown+=" $word" ;;
        esac
    done
    printf '$ chimere-run%s\n\n' "$shown"
    "$run" -v --temp 0 --reasoning=stderr "$@" < /dev/null > "$files/answer" 2> "$files/notes" || {
        cat "$files/notes"
        exit 1
    }
    # -v says first what runs, then comes the reasoning, then the times, an indented line for each operation.
    grep -E '^(model|device|memory|seed) {2,}' "$files/notes" > "$files/machine" || true
    sed -E '/^(model|device|memory|seed) {2,}/d; /^load {2,}/,$d' "$files/notes" > "$files/reasoning"
    [ ! -s "$files/reasoning" ] || printf '%s%s%s\n\n' "$dim" "$(cat "$files/reasoning")" "$plain"
    printf '%s%s%s\n\n' "$bold" "$(cat "$files/answer")" "$plain"
    sed -n '/^load {2,}/,$p' -E "$files/notes" | grep -v '^  ' || true
    sed -n '/^load {2,}/,$p' -E "$files/notes" | grep '^  ' | sort -k4,4gr | head -n 5 || true
}

ask "a sum, thinking" --think=on -p "What is 388266 + 620280 + 3753?"
ask "a fact, at once" --think=off -p "What does the C function strtod do?"
ask "a tool" --think=on --tools share/demo/tools.json -p "Can you convert 315 GBP to EUR?"

verifier='cmd:bash share/demo/recompute.sh'
hard='A train travels 106 kilometers per hour for 6 hours and then another 2 kilometers. How many kilometers does it travel in total?'
sum() # OPTIONS...: -v says of each answer how the command scores it
{
    printf '$ chimere-run -v %s -p "..."\n\n' "${*/cmd:*/\'$verifier\'}"
    "$run" -v "$@" -p "$hard" < /dev/null > "$files/answer" 2> "$files/notes" || {
        cat "$files/notes"
        exit 1
    }
    grep '^answer ' "$files/notes" || true
    printf '%s%s%s\n\n' "$bold" "$(cat "$files/answer")" "$plain"
}
printf '\n%s== a sum that it gets wrong: the answer of eight that a command has checked%s\n%s\n\n' "$bold" "$plain" "$hard"
sum --temp 0
sum --temp 1 --seed 2 --best-of 8 --vote weighted --verifier "$verifier"
drafter=share/models/chimere-nano-dflash.gguf
printf '\n%s== two sums, plain and with guesses: the same text in fewer steps%s\n' "$bold" "$plain"
printf '$ chimere-bench speculate --draft %s --fixed --limit 2 --reps 1 --table share/eval/math.jsonl\n\n' "$drafter"
"${BIN:-bin}/chimere-bench" speculate --draft "$drafter" --fixed --limit 2 --reps 1 --table share/eval/math.jsonl < /dev/null
printf '\n'
cat "$files/machine"
