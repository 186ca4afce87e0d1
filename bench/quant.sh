#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# quant.sh - KL by size: mixes that came along, and at the size of each the mixes for a budget, by every way to find them;
# what was predicted beside what chimere-bench measures. A table, and a drawing of it.
# usage: bench/quant.sh [MODEL [TEXT]]   MODEL in f32, f16 or bf16 (default: the embedded one, encoded again); TEXT: what KL is
# measured on (default: the first 30,000 bytes of share/eval/heldout-docs.txt)
# In the environment: DIR (default build/quant) keeps measurements and rows, and what is there is not run again;
# MIXES (default "q2_k iq3_xxs iq3_m q3_k_m q4_k_m q5_k_m"), METHODS (fisher probes nsds; the first one is tried with all else),
# SEARCHES (exact evo), EFFORTS (default highest), DATA, a text to measure with (default: README.md and the manuals).
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/${BIN:-bin}
model=${1:-$(ls "$root"/share/models/*-q5_k_m.gguf)} text=${2:-}
dir=${DIR:-$root/build/quant}
read -ra mixes <<< "${MIXES-q2_k iq3_xxs iq3_m q3_k_m q4_k_m q5_k_m}"
read -ra methods <<< "${METHODS-fisher probes nsds}"
read -ra searches <<< "${SEARCHES-exact evo}"
read -ra efforts <<< "${EFFORTS-default highest}"
mkdir -p "$dir"
[ -n "$text" ] || { text=$dir/text; head -c 30000 "$root/share/eval/heldout-docs.txt" > "$text"; }
data=${DATA:-$dir/data}
[ -n "${DATA:-}" ] || cat "$root/README.md" "$root"/man/*.1 > "$data"
touch "$dir/rows.tsv"
[ -e "$dir/logits" ] || { "$bin/chimere-bench" kl -m "$model" --save "$dir/logits.new" "$text" > "$dir/record" 2>&1 &&
    mv "$dir/logits.new" "$dir/logits"; }
quantize() { "$bin/chimere-quantize" -f --allow-requantize "$@" "$model" "$dir/m.gguf" 2> "$dir/said" ||
    { cat "$dir/said" >&2; return 1; }; }
# row SERIES MIX OPTIONS...: one line of rows.tsv: series, mix, bytes, KL predicted, its error, KL measured, its error
row()
{
    local series=$1 mix=$2
    shift 2
    grep -q "^$series	$mix	" "$dir/rows.tsv" && return
    quantize "$@"
    printf '%s\t%s\t%s\t%s\t%s\n' "$series" "$mix" "$(stat -c %s "$dir/m.gguf")" \
        "$(sed -n 's/^# predicted: KL \([^ ]*\) +- \([^ ]*\) nats.*/\1\t\2/p' "$dir/said" | grep . || printf -- '-\t-')" \
        "$("$bin/chimere-bench" kl -m "$dir/m.gguf" --reference "$dir/logits" "$text" 2> /dev/null |
            sed -n 's/.*"kl_mean_nats":\([0-9.e-]*\),"kl_mean_se_nats":\([0-9.e-]*\).*/\1\t\2/p')" >> "$dir/rows.tsv"
    tail -1 "$dir/rows.tsv"
}
# budgets SERIES LOSSES OPTIONS...: a mix of the size of each that came along
budgets()
{
    local series=$1 losses=$2 mix
    shift 2
    for mix in "${mixes[@]}"; do
        row "$series" "$mix" --measure "$losses" --budget size="$(awk -F '\t' -v m="$mix" '$1 == "mix" && $2 == m { print $3 }' \
            "$dir/rows.tsv")" "$@"
    done
}
measure() { "$bin/chimere-quantize" --allow-requantize --measure "$@" "$model"; }

for mix in "${mixes[@]}"; do row mix "$mix" -t "$mix"; done
for method in "${methods[@]}"; do
    measure "$dir/$method.jsonl" --method "$method"
    budgets "$method" "$dir/$method.jsonl"
done
best=$dir/${methods[0]}
for search in "${searches[@]}"; do
    [ "$search" = exact ] || budgets "${methods[0]}, $search" "$best.jsonl" --search "$search"
done
measure "$best-data.jsonl" --method "${methods[0]}" --data "$data"
budgets "${methods[0]}, with data" "$best-data.jsonl"
for effort in "${efforts[@]}"; do
    [ "$effort" = default ] || budgets "${methods[0]}, $effort effort" "$best.jsonl" --effort "$effort"
done
rm -f "$dir/m.gguf"
python3 "$root/bench/quant_svg.py" "$dir/rows.tsv" "$dir/quant.svg"
echo
echo '| mixes | at the size of | bytes | KL predicted | KL measured |'
echo '|---|---|---|---|---|'
awk -F '\t' '{ printf "| %s | %s | %d | %s | %.4g +- %.2g |\n", $1, $2, $3, $4 == "-" ? "-" : $4 " +- " $5, $6, $7 }' "$dir/rows.tsv"
echo "$dir/quant.svg"
