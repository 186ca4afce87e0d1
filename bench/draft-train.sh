#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# draft-train.sh MODEL [PROMPTS ...] - trains a drafter from random weights and prints what it reached, as in train.md.
# TIME=10m DEVICE=cpu|cuda HELD_OUT="FILE ..." (default: the task sets of share/eval, all of them tested on). BATCH, SEQUENCES and
# MEMORY are 8, 16 and 1G, on a GPU 128, 256 and 20G: the embedded model and its drafter are small.
# Without prompts those of share/eval are split: nine tenths to train on, a tenth to test on.
set -eu
cd "$(dirname "$0")/.."
model=$1
shift
case ${DEVICE:-cpu} in cuda*) size=(128 256 20G) ;; *) size=(8 16 1G) ;; esac
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
held=()
if [ $# -gt 0 ]; then for f in ${HELD_OUT:-share/eval/*.jsonl}; do held+=(--held-out "$f"); done; fi
echo "$(nproc) processors, load $(cut -d ' ' -f 1 /proc/loadavg), $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
command -v nvidia-smi > /dev/null && nvidia-smi --query-gpu=name --format=csv,noheader
status=0
"${BIN:-bin}/chimere-draft-train" dflash -m "$model" -o "$dir/d.gguf" --time "${TIME:-10m}" \
    --batch "${BATCH:-${size[0]}}" --sequences "${SEQUENCES:-${size[1]}}" --memory "${MEMORY:-${size[2]}}" \
    --device "${DEVICE:-cpu}" --jsonl "$dir/events" "${held[@]}" "$@" || status=$?
echo
jq -r 'select(.type == "round") | "after \(.seconds | floor) s, \(.step) steps: \(.tokens_per_step * 100 | round / 100)"' "$dir/events"
jq -rs 'map(select(.type == "texts")) | last | "\(.written_tokens) tokens written"' "$dir/events"
exit $status
