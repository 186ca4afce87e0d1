#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# sweep-slurm.sh - one model in several types, by recipes and within budgets, as an array of Slurm jobs, and their table.
#
#   sbatch --array=1-4 sweep-slurm.sh MODEL.gguf TEXT DIR q4_k_m ramp.recipe size=3G size=4G
#   sbatch -d afterany:NUMBER sweep-slurm.sh MODEL.gguf TEXT DIR q4_k_m ramp.recipe size=3G size=4G
#
# Task N makes DIR/NAME.gguf of the N-th name and measures the perplexity of TEXT with it. A name is a mix or a type, a
# file with a recipe, or a budget, which needs DIR/losses: chimere-quantize --measure DIR/losses MODEL.gguf
# The second job prints the table, in its output; it ends with 4 if one of these names has no numbers.
#SBATCH --job-name=chimere-sweep
#SBATCH --cpus-per-task=2
#SBATCH --time=12:00:00
#SBATCH --requeue
set -euo pipefail
[ $# -ge 3 ] && [ -n "${SLURM_JOB_ID:-}" ] || { sed -n 's/^# \{0,1\}//; 3,10p' "$0" >&2; exit 2; }
model=$1 text=$2 dir=$3
if [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then
    missing=0
    for name in "${@:4}"; do
        [ -e "$dir/$(basename "$name").ppl.json" ] || { echo "sweep-slurm.sh: no numbers of $name" >&2; missing=4; }
    done
    printf '%12s %10s %8s  %s\n' bytes perplexity error model
    jq -rs 'sort_by(.model.file_bytes)[] | [.model.file_bytes, .ppl, .ppl_se, .model.name] | @tsv' "$dir"/*.ppl.json |
        awk -F '\t' '{ printf "%12d %10.4f %8.4f  %s\n", $1, $2, $3, $4 }'
    exit $missing
fi
name=${*:3 + SLURM_ARRAY_TASK_ID:1}
[ -n "$name" ] || { echo "sweep-slurm.sh: there is no name for task $SLURM_ARRAY_TASK_ID" >&2; exit 2; }
case $name in
*=*) how=(--measure "$dir/losses" --budget "$name") ;;
*) how=(-t "$name") && [ ! -f "$name" ] || how=(--recipe "$name") ;;
esac
out=$dir/$(basename "$name").gguf
threads=${SLURM_CPUS_PER_TASK:-2}
mkdir -p "$dir"
chimere-quantize -q -f --threads "$threads" "${how[@]}" "$model" "$out"
chimere-bench ppl -q -m "$out" --threads "$threads" --json "$text" > "$out.new"
mv "$out.new" "${out%.gguf}.ppl.json"
