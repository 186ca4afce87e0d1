#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - asks the embedded model three things it can do: a question that it thinks about, one that it
# answers from memory, one for a tool. Shows what was asked, the reasoning (dim on a terminal), the
# answer, tokens per second and where the time went. Greedy: the same answer every time.
set -eu
cd "$(dirname "$0")/.."
run=${BIN:-bin}/chimere-run
bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\033[1m' plain=$'\033[0m'
fi

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
    "$run" -v --temp 0 --reasoning=stderr "$@" 2>&1 < /dev/null
}

ask "a sum, thinking" --think=on -p "What is 388266 + 620280 + 3753?"
ask "a fact, at once" --think=off -p "What does the C function strtod do?"
ask "a tool" --think=on --tools share/demo/tools.json -p "Can you convert 315 GBP to EUR?"
