#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# gpu.sh - speed on a GPU as JSON lines (chimere-jsonl(5)) on standard output: how fast it reads its memory; then, for
# random weights of the 35B shape in three mixes, of a Nemotron shape, and for the embedded model: load time, prompts,
# decode at depths, rows in a step, sequences side by side. project.sh reads the result.
# usage: bench/gpu.sh [DEVICE [DIR]]   DIR: weights go there as files and are read from them, instead of memory; they
# are kept if KEEP is set
# In the environment: PART_S, seconds for a part, which then ends with what it has (default 240); PARTS, which parts,
# as SHAPE:MIX or "embedded"; KV ACTS PROMPTS DEPTHS ROWS SEQS REPS TOKENS CHUNK ROUTING, as the options of
# chimere-bench speed.
set -eu
device=${1:-cuda} dir=${2:-} bench=${BIN:-bin}/chimere-bench
big=qwen3.6-35b-a3b
parts=${PARTS:-$big:q4k $big:ramp $big:iq4_xs nemotron-3-nano-30b-a3b:q4_k_m embedded}

measure() # MODEL OPTIONS...
{
    local status=0
    timeout --foreground -s INT "${PART_S:-240}" "$bench" speed "$@" --device "$device" --kv "${KV:-f16}" ${ACTS:+--acts "$ACTS"} \
        --prompt "${PROMPTS:-512,4096,16384,65536}" --depth "${DEPTHS:-0,4096,16384,65536}" --rows "${ROWS:-1,2,4,8,16,32,64}" \
        --seqs "${SEQS:-1,2,4,8,16,32,64}" --reps "${REPS:-3}" --tokens "${TOKENS:-64}" ${CHUNK:+--chunk "$CHUNK"} --json ||
        status=$?
    [ $status -eq 0 ] || echo "gpu.sh: $*: status $status (124: the time of a part, PART_S, was over)" >&2
}

"$bench" bandwidth --device "$device" --reps "${REPS:-3}" --json
for part in $parts; do
    shape=${part%:*} mix=${part##*:} file=$dir/chimere-gpu-${part/:/-}${ROUTING:+-$ROUTING}.gguf
    if [ "$part" = embedded ]; then
        measure
    elif [ -z "$dir" ]; then
        measure --shape "$shape" --mix "$mix" ${ROUTING:+--routing "$ROUTING"}
    else
        [ -f "$file" ] || "$bench" synth --shape "$shape" --mix "$mix" ${ROUTING:+--routing "$ROUTING"} --write "$file" > /dev/null
        measure -m "$file"
        [ -n "${KEEP:-}" ] || rm -f "$file"
    fi
done
