#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quant-llama.sh - a model in every type that chimere-quantize writes, all matrices alike, read by llama.cpp and by
# chimere-bench: perplexity and KL divergence from the model as it is, each program beside its own logits of that. A table.
# usage: bench/quant-llama.sh [MODEL [TEXT]]   as for bench/quant.sh
# In the environment: LLAMA_PERPLEXITY, the program, and THREADS for it; TYPES; DIR (default build/quant-llama), what is there
# is not run again.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/${BIN:-bin}
model=${1:-$(ls "$root"/share/models/*-q5_k_m.gguf)} text=${2:-}
dir=${DIR:-$root/build/quant-llama}
llama=${LLAMA_PERPLEXITY:-llama-perplexity}
read -ra types <<< "${TYPES-f16 bf16 q8_0 q6_k q5_1 q5_k q5_0 q4_1 q4_k q4_0 iq4_nl iq4_xs mxfp4 nvfp4 iq3_s q3_k iq3_xxs \
q2_k iq2_s iq2_xs iq2_xxs tq2_0 tq1_0 iq1_m iq1_s}"
mkdir -p "$dir"
[ -n "$text" ] || { text=$dir/text; head -c 30000 "$root/share/eval/heldout-docs.txt" > "$text"; }
touch "$dir/rows.tsv"
[ -e "$dir/logits" ] || { "$bin/chimere-bench" kl -q -m "$model" --save "$dir/logits.new" "$text" &&
    mv "$dir/logits.new" "$dir/logits"; }
# theirs FILE OPTIONS...: what llama-perplexity says, all of it
theirs() { "$llama" -m "$1" -f "$text" -c 512 -t "${THREADS:-$(nproc)}" "${@:2}" 2>&1; }
[ -e "$dir/llama.logits" ] || { theirs "$model" --save-all-logits "$dir/llama.new" > "$dir/said" &&
    mv "$dir/llama.new" "$dir/llama.logits"; }
for type in "${types[@]}"; do
    grep -q "^$type	" "$dir/rows.tsv" && continue
    "$bin/chimere-quantize" -q -f --allow-requantize --pure --unbiased -t "$type" "$model" "$dir/m.gguf"
    ours=$("$bin/chimere-bench" kl -m "$dir/m.gguf" --reference "$dir/logits" "$text" 2> /dev/null |
        sed -n 's/.*"kl_mean_nats":\([0-9.e-]*\).*"ppl":\([0-9.e-]*\).*/\2\t\1/p')
    there=$(theirs "$dir/m.gguf" --kl-divergence --kl-divergence-base "$dir/llama.logits" | tee "$dir/said" | sed "s/±.*//" |
        awk '/Mean PPL\(Q\) / { p = $NF } /Mean    KLD/ { k = $NF } END { print k != "" ? p "\t" k : "-\t-" }')
    printf '%s\t%s\t%s\n' "$type" "$ours" "$there" >> "$dir/rows.tsv"
    tail -1 "$dir/rows.tsv"
done
rm -f "$dir/m.gguf"
echo
echo '| type | perplexity, ours | llama.cpp | KL, ours | llama.cpp |'
echo '|---|---|---|---|---|'
awk -F '\t' '{ printf "| %s | %.3f | %.3f | %.4g | %.4g |\n", $1, $2, $4, $3, $5 }' "$dir/rows.tsv"
