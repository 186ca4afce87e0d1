#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# serve.sh LLAMA_SERVER [ROUNDS]: tokens a second and the time to the first token of chimere-serve-stdio --listen and of
# llama-server, on one machine, one model, in turns: so that what else the machine does meets both. Each round has 1, 4, 8
# and 16 clients at once; each client asks again when it is answered; prompts have nothing in common but their words.
# A line of JSON for each server, round and number of clients. Settings from the environment: MODEL, THREADS, WORDS,
# TOKENS, EACH (requests of a client).
set -eu
cd "$(dirname "$0")/.."
rival=$1 rounds=${2:-3}
model=${MODEL:-share/models/chimere-nano-q5_k_m.gguf} threads=${THREADS:-$(nproc)}
words=${WORDS:-120} tokens=${TOKENS:-64} each=${EACH:-2}
work=$(mktemp -d)
trap 'kill -KILL $pids 2> /dev/null || true; rm -rf "$work"' EXIT
pids=
bin/chimere-serve-stdio -m "$model" -t "$threads" --parallel 16 --ctx 1024 --listen 127.0.0.1:0 > "$work/ours" 2> "$work/ours.err" &
pids=$!
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$rival" -m "$model" -t "$threads" -np 16 -c 16384 --port "$port" > "$work/theirs" 2>&1 &
pids="$pids $!"
until [ -s "$work/ours" ]; do sleep 0.2; done
until curl -fsS "http://127.0.0.1:$port/health" > /dev/null 2>&1; do sleep 0.5; done
ours=$(jq -r .url "$work/ours")
for round in $(seq 0 "$rounds"); do # round 0 warms up
    for clients in 1 4 8 16; do
        for who in chimere llama; do
            url=$([ $who = chimere ] && echo "$ours" || echo "http://127.0.0.1:$port")
            python3 bench/serve_load.py "$url" "$clients" $((clients * each)) "$words" "$tokens" "$((round * 100 + clients))" |
                if [ "$round" -gt 0 ]; then jq -c --arg who $who --argjson round "$round" '{server: $who, round: $round} + .'; else cat > /dev/null; fi
        done
    done
done
