#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quant.sh - mixes for budgets against what was predicted: a line for each size and method with the bytes of the file, the
# KL that was predicted and the KL of chimere-bench, and the same for mixes that came along.
# usage: bench/quant.sh MODEL TEXT [SIZE...]   MODEL in f32, f16 or bf16; SIZE as of --budget
# In the environment: LOSSES, a file of --measure (default: losses.jsonl, which is completed), OPTIONS for chimere-quantize
# (--effort highest, --search evo), MIXES (default "q2_k iq3_xxs iq3_m q3_k_m q4_k_m q5_k_m").
set -eu
[ $# -ge 2 ] || { sed -n 's/^# //p' "$0" | sed -n 2,6p; exit 2; }
model=$1 text=$2
shift 2
bin=$(cd "$(dirname "$0")/.." && pwd)/${BIN:-bin}
losses=${LOSSES:-losses.jsonl}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
kl() { "$bin/chimere-bench" kl -m "$dir/m.gguf" --reference "$dir/logits" "$text" 2> /dev/null |
    sed -n 's/.*"kl_mean_nats":\([0-9.e-]*\),"kl_mean_se_nats":\([0-9.e-]*\).*/\1 +- \2/p'; }
"$bin/chimere-bench" kl -m "$model" --save "$dir/logits" "$text" > "$dir/record" 2>&1
"$bin/chimere-quantize" --measure "$losses" "$model"
for size in "$@"; do
    # shellcheck disable=SC2086
    "$bin/chimere-quantize" -f ${OPTIONS:-} --measure "$losses" --budget size="$size" "$model" "$dir/m.gguf" 2> "$dir/said"
    echo "size=$size ${OPTIONS:-} | $(stat -c %s "$dir/m.gguf") bytes | $(sed -n 's/^# predicted: KL \(.*\) nats.*/\1/p' "$dir/said") | $(kl)"
done
for mix in ${MIXES-q2_k iq3_xxs iq3_m q3_k_m q4_k_m q5_k_m}; do
    "$bin/chimere-quantize" -q -f -t "$mix" "$model" "$dir/m.gguf"
    echo "$mix | $(stat -c %s "$dir/m.gguf") bytes | - | $(kl)"
done
