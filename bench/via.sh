#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# via.sh - chimere-run through a server and by itself. usage: via.sh [ROUNDS]
# First the same bytes: the questions of tests/cli/questions.jsonl, each as one object, as lines and as a stream of text,
# 231 in all; a line for each that differs, and status 1. Then ROUNDS (50) in turns: what a call adds to the prompt's own
# time until the first token, and what --via auto costs where no server is; a line of JSON: of each the least, a tenth, the
# median.
# BIN is the directory of the programs, CHIMERE_MODEL the model (by default the embedded one), OPTIONS more of both programs.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-50} here=$PWD work=$(mktemp -d)
PATH=$(realpath "${BIN:-bin}"):$PATH
export CHIMERE_MODEL=${CHIMERE_MODEL:-$here/share/models/chimere-nano-q5_k_m.gguf} CHIMERE_OPTS=${OPTIONS:-} XDG_RUNTIME_DIR=$work
cd "$work"
chimere-serve-stdio -q --listen "unix:$work/s" > said 2> said.err &
server=$!
trap 'kill $server; wait; rm -rf "$work"' EXIT
until [ -s said ]; do kill -0 $server && sleep 0.1; done

asked=0 differ=0
ask() # ARGUMENT ...: by itself and through the server, in three forms
{
    local how own got
    for how in --json --jsonl --stream; do
        own=0 got=0
        chimere-run $how "$@" > own 2> own.err < /dev/null || own=$?
        chimere-run --via "unix:$work/s" $how "$@" > got 2> got.err < /dev/null || got=$?
        sed -i -E 's/"timings":\{[^}]*\}//' own got
        asked=$((asked + 1))
        if [ $own -ne $got ] || ! cmp -s own got || ! cmp -s own.err got.err; then
            differ=$((differ + 1))
            echo "differs ($own, $got): $how $*"
        fi
    done
}
jq -c -r --arg for run --arg url '' -f "$here/tests/cli/questions.jq" "$here/tests/cli/questions.jsonl" |
    sed 's/^chimere-run --json/ask/; s/ | jq -c --arg id .*//' > questions.sh
# shellcheck disable=SC1091
. ./questions.sh
echo "{\"questions\":$asked,\"differ\":$differ}"

one() # NAME ARGUMENT ...: wall milliseconds, the program's own until the first token, and those of the prompt
{
    local from=$EPOCHREALTIME to
    chimere-run -p 'What is 31 + 58? Say it.' -n 1 --think off --json "${@:2}" > one < /dev/null
    to=$EPOCHREALTIME
    jq -c --arg name "$1" --argjson us $((${to/./} - ${from/./})) \
        '{name: $name, wall: ($us / 1000), first: .timings.first_token_ms, prompt: .timings.prompt_ms}' one >> rounds
}
: > rounds
for ((r = 0; r <= rounds; r++)); do
    [ $r -ne 1 ] || : > rounds # the first one warms up
    one via --via "unix:$work/s"
    if [ $((r % 2)) -eq 0 ]; then one plain; one auto --via auto; else one auto --via auto; one plain; fi
done
jq -cs --arg load "$(cut -d ' ' -f 1-3 /proc/loadavg)" 'def median: sort | .[length / 2 | floor];
    def of($n; f): map(select(.name == $n) | f);
    def told: {least: min, tenth: (sort | .[length / 10 | floor]), median: median} | map_values(. * 1000 | round / 1000);
    {rounds: (of("via"; 1) | length), load: $load,
     via_adds_ms: (of("via"; .first - .prompt) | told),
     plain_adds_ms: (of("plain"; .first - .prompt) | told),
     wall_ms: ({via: of("via"; .wall), auto: of("auto"; .wall), plain: of("plain"; .wall)} | map_values(told)),
     auto_by_plain: ([of("auto"; .wall), of("plain"; .wall)] | transpose | map(.[0] / .[1]) | told)}' rounds
[ $differ -eq 0 ]
