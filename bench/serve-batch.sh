#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# serve-batch.sh [ROUNDS]: tokens a second of chimere-serve-stdio --batch with 8 answers side by side, beside the steps of
# 8 sequences that chimere-bench speed measures, in turns: so that what else the machine does meets both. A line of JSON for
# each round, and the median of the ratios. The batch's time is without opening the model: that of a batch with one request
# for one token is subtracted. Settings from the environment: MODEL, THREADS, TOKENS (of an answer).
set -eu
cd "$(dirname "$0")/.."
rounds=${1:-9} model=${MODEL:-share/models/chimere-nano-q5_k_m.gguf} threads=${THREADS:-$(nproc)} tokens=${TOKENS:-200}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
requests() # COUNT TOKENS
{
    for i in $(seq 1 "$1"); do
        printf '{"custom_id":"q%d","method":"POST","url":"/v1/completions","body":{"prompt":"%d","max_tokens":%d,"temperature":0,"ignore_eos":true}}\n' "$i" "$i" "$2"
    done
}
requests 1 1 > "$work/one"
requests 32 "$tokens" > "$work/many"
answer() # FILE: milliseconds
{
    local from
    rm -f "$work/out"*
    from=$(date +%s%N)
    bin/chimere-serve-stdio -q -m "$model" -t "$threads" --parallel 8 --ctx 512 --batch "$work/$1" -o "$work/out"
    echo $((($(date +%s%N) - from) / 1000000))
}
for round in $(seq 1 "$rounds"); do
    steps=$(bin/chimere-bench speed -q -j -m "$model" -t "$threads" --prompt 8 --depth 0 --rows 1 --seqs 8 --tokens "$tokens" --reps 1 |
        jq -s 'map(select(.sequences == 8)) | .[0].tps')
    empty=$(answer one) whole=$(answer many)
    done=$(jq -s 'map(.response.body.usage.completion_tokens) | add' "$work/out")
    jq -nc --argjson round "$round" --argjson steps "$steps" --argjson ms $((whole - empty)) --argjson tokens "$done" \
        '{round: $round, bench_tps: $steps, batch_tps: ($tokens / $ms * 1000), ratio: ($tokens / $ms * 1000 / $steps)}'
done | tee "$work/rounds"
jq -sc '{rounds: length, median_ratio: (map(.ratio) | sort | .[length / 2 | floor]), least: (map(.ratio) | min), most: (map(.ratio) | max)}' "$work/rounds"
