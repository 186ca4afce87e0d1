#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# draft-train.sh MODEL [PROMPTS ...] - trains a drafter from random weights and prints what it reached, as in train.md.
# TIME=10m DEVICE=cpu|cuda BATCH=8 HELD_OUT="FILE ..." (default: the task sets of share/eval, all of them tested on).
# Without prompts those of share/eval are split: nine tenths to train on, a tenth to test on.
set -eu
cd "$(dirname "$0")/.."
model=$1
shift
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
held=()
if [ $# -gt 0 ]; then for f in ${HELD_OUT:-share/eval/*.jsonl}; do held+=(--held-out "$f"); done; fi
echo "$(nproc) processors, load $(cut -d ' ' -f 1 /proc/loadavg), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name --format=csv,noheader
status=0
"${BIN:-bin}/chimere-draft-train" dflash -m "$model" -o "$dir/d.gguf" --time "${TIME:-10m}" --batch "${BATCH:-8}" \
    --device "${DEVICE:-cpu}" --jsonl "$dir/events" "${held[@]}" "$@" || status=$?
echo
jq -r 'select(.type == "round") | "after \(.seconds | floor) s, \(.step) steps: \(.tokens_per_step * 100 | round / 100)"' "$dir/events"
jq -rs 'map(select(.type == "texts")) | last | "\(.written_tokens) tokens written"' "$dir/events"
exit $status
