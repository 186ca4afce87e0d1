#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh - speed on a GPU: prompts, decode at depths, rows in a step, sequences side by side, on random weights of
# the 35B shape in two mixes, as JSON lines (chimere-jsonl(5)) on standard output.
# usage: bench/gpu.sh [DEVICE [DIR]]   DIR: where the files of weights go (20 GB), default $TMPDIR or /tmp
set -eu
device=${1:-cuda} dir=${2:-${TMPDIR:-/tmp}} bench=${BIN:-bin}/chimere-bench
for mix in ${MIXES:-q4k ramp}; do
    file=$dir/chimere-gpu-$mix.gguf
    [ -f "$file" ] || "$bench" synth --shape qwen3.6-35b-a3b --mix "$mix" --write "$file" > /dev/null
    "$bench" speed -m "$file" --device "$device" --kv "${KV:-f16}" --prompt "${PROMPTS:-512,4096}" \
        --depth "${DEPTHS:-0,4096,16384}" --rows "${ROWS:-1,2,4,8,16}" --seqs "${SEQS:-1,2,4,8}" --reps "${REPS:-3}" \
        --tokens 64 --json ${BANDWIDTH:+--bandwidth "$BANDWIDTH"}
    [ -n "${KEEP:-}" ] || rm -f "$file"
done
