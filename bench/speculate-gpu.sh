#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# speculate-gpu.sh - what guesses ahead are worth on a GPU, as JSON lines (chimere-jsonl(5)) on standard output: oracles
# that are right nine times and seven times of ten, by the number of guesses, and answers that quote a prompt of 16K
# tokens, with n-grams; random weights of the 35B shape. Then the embedded model with its own drafters on its task
# sets, and the engine beside plain steps, 1 to 16 sequences and rows up to 64.
# usage: bench/speculate-gpu.sh [DEVICE]
# In the environment: PART_S, seconds for a part (default 130), MIX (default q4k), DRAFTER, a DFlash file for the embedded
# model.
set -eu
device=${1:-cuda} bench=${BIN:-bin}/chimere-bench eval=$(dirname "$0")/../share/eval
shape=(--shape qwen3.6-35b-a3b --mix "${MIX:-q4k}")

measure() # COMMAND OPTIONS...
{
    local status=0
    timeout --foreground -s INT "${PART_S:-130}" "$bench" "$@" --device "$device" --kv f16 --json || status=$?
    [ $status -eq 0 ] || echo "speculate-gpu.sh: $*: status $status (124: the time of a part, PART_S, was over)" >&2
}

measure speculate "${shape[@]}" --oracle 0.9,0.7 --draft-max 1,2,3,5,7,11,15 --chunk 512 --prompt 512 -n 256 --limit 2 --reps 3
measure speculate "${shape[@]}" --draft ngram --quote --prompt 16k -n 512 --limit 1 --reps 3
measure speculate --chunk 512 --draft mtp --draft ngram --draft auto ${DRAFTER:+--draft "$DRAFTER"} --limit 5 --reps 3 \
    "$eval/math.jsonl" "$eval/code.jsonl" "$eval/tools.jsonl" "$eval/facts.jsonl" "$eval/facts-context.jsonl"
measure speed "${shape[@]}" --prompt '' --depth 0 --rows 1,8,16,17,24,32,48,64 --seqs 1,8,16 --reps 3
