#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# serve-front.sh [ROUNDS] - what haproxy costs in front of a server, and how long /health takes beside long prompts.
# One replica of the embedded model with one thread, alone and behind share/haproxy.cfg in turns: 8 clients with 64 tokens
# each, then one client with a token each. Then probes beside two clients with prompts of 16,000 tokens.
# Needs haproxy, curl, jq and python3 in PATH, and BIN, the directory of the programs; a line of JSON for each result.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-20} BIN=$(realpath "${BIN:-bin}") work=$(mktemp -d)
"$BIN/chimere-serve-stdio" -q -t 1 --listen 127.0.0.1:0 --parallel 8 -c 20000 > "$work/said" 2> "$work/err" &
server=$! proxy=
trap 'kill $server $proxy; wait; rm -rf "$work"' EXIT
until url=$(jq -er .url "$work/said") && curl -sf -o "$work/health" "$url/health"; do kill -0 $server && sleep 0.1; done 2> "$work/wait"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -e "s/127.0.0.1:8000/127.0.0.1:$port/; s/127.0.0.1:8081/${url#http://}/; /^    server two/d" share/haproxy.cfg > "$work/haproxy.cfg"
haproxy -q -f "$work/haproxy.cfg" &
proxy=$!
front=http://127.0.0.1:$port
until curl -sf -o "$work/health" "$front/health"; do sleep 0.1; done

cpu() { awk '{ print ($14 + $15) / 100 }' "/proc/$1/stat"; }
compare() # CLIENTS REQUESTS TOKENS: in turns, the first one changing too
{
    local r way before after
    : > "$work/rounds"
    before="$(cpu $server) $(cpu $proxy)"
    for ((r = 0; r < 2 * rounds; r++)); do
        way=$(((r + r / 2) % 2))
        python3 bench/serve_load.py "$([ $way = 1 ] && echo "$front" || echo "$url")" "$1" "$2" 60 "$3" $r |
            jq -c --argjson r $((r / 2)) --arg way "$([ $way = 1 ] && echo proxy || echo alone)" '{way: $way, r: $r} + .' >> "$work/rounds"
    done
    after="$(cpu $server) $(cpu $proxy)"
    jq -cs --arg cpu "$before $after" 'def median: sort | .[length / 2 | floor];
        ($cpu / " " | map(tonumber)) as $c | (group_by(.r) | map({(.[0].way): .[0], (.[1].way): .[1]})) as $pairs |
        def both(f): {alone: (map(select(.way == "alone") | f) | median), proxy: (map(select(.way == "proxy") | f) | median)};
        {clients: .[0].clients, rounds: ($pairs | length), tokens_per_s: both(.tokens_per_s), first_token_ms: both(.first_token_ms),
         ratio_of_pairs: ($pairs | map(.proxy.tokens_per_s / .alone.tokens_per_s) | [min, median, max]),
         more_ms_of_pairs: ($pairs | map(.proxy.first_token_ms - .alone.first_token_ms) | [min, median, max]),
         cpu_s: {server: ($c[2] - $c[0]), proxy: ($c[3] - $c[1])}}' "$work/rounds"
}
compare 8 16 64
compare 1 10 1

python3 bench/serve_load.py "$url" 2 4 14000 1 7 > "$work/long" &
load=$!
while kill -0 $load 2> "$work/wait"; do
    curl -s -o "$work/health" -w '%{http_code} %{time_total}\n' "$url/health"
    sleep 0.02
done > "$work/probes"
wait $load
awk '{ print $2 * 1000, $1 }' "$work/probes" | sort -n | awk '{ t[NR] = $1; bad += $2 != 200 } END {
    printf "{\"probes\":%d,\"not_200\":%d,\"median_ms\":%.2f,\"p99_ms\":%.2f,\"worst_ms\":%.2f}\n", NR, bad, t[int(NR / 2) + 1], t[int(NR * .99) + 1], t[NR] }'
curl -s "$url/metrics" | sed -n 's/^chimere_prompt_tokens_total /# tokens of prompts in all: /p'
