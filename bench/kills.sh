#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kills.sh [KILLS [REQUESTS]]: a batch whose process is killed so many times, at any moment, and then finished: each answer
# is there once, and is that of a run that nobody killed. tests/cli/serve.bats does it with 25.
set -eu
cd "$(dirname "$0")/.."
kills=${1:-1000} requests=${2:-3000}
export CHIMERE_MODEL=${CHIMERE_MODEL:-$PWD/share/models/chimere-nano-q5_k_m.gguf}
PATH=$PWD/bin:$PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for i in $(seq 1 "$requests"); do
    printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"Chapter %d","max_tokens":12,"temperature":1,"seed":%d}}\n' "$i" "$i" "$i"
done > "$work/in.jsonl"
chimere-serve-stdio --batch "$work/in.jsonl" -o "$work/whole.jsonl"
texts() { jq -c '[.custom_id, .response.body.choices[0].text]' "$1" | sort; }
killed=0 begun=0
while [ "$killed" -lt "$kills" ]; do
    before=$(wc -l < "$work/out.jsonl" 2> /dev/null || echo 0)
    status=0
    timeout -s KILL "$((RANDOM % 2)).$((RANDOM % 900 + 100))" chimere-serve-stdio --batch "$work/in.jsonl" -o "$work/out.jsonl" 2> /dev/null || status=$?
    if [ "$status" -eq 0 ]; then
        texts "$work/out.jsonl" | diff - <(texts "$work/whole.jsonl")
        rm "$work/out.jsonl"* # all is answered: from the start
        continue
    fi
    killed=$((killed + 1))
    [ "$(wc -l < "$work/out.jsonl" 2> /dev/null || echo 0)" -eq "$before" ] || begun=$((begun + 1))
done 2> /dev/null
chimere-serve-stdio --batch "$work/in.jsonl" -o "$work/out.jsonl"
texts "$work/out.jsonl" | diff - <(texts "$work/whole.jsonl")
echo "{\"kills\": $killed, \"kills_while_answering\": $begun, \"requests\": $requests, \"lost_or_twice\": 0}"
