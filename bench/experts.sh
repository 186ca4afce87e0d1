#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# experts.sh - what fewer routed experts cost and bring, for cpu.md: divergence from the trained number on a text, right
# answers, CPU time of an answer with one thread, in turns.
# usage: experts.sh DIRECTORY K...   the trained number first; answers are kept in the directory
#        SHAPE=qwen3.6-35b-a3b DEVICE=cuda experts.sh DIRECTORY K...   only speeds, of random weights
# In the environment: BIN (default bin), DEVICE (default cpu), CHIMERE_MODEL (default the embedded one), TURNS (default 6).
set -eu
cd "$(dirname "$0")/.." || exit 1
out=$1 bin=${BIN:-bin} turns=${TURNS:-6}
shift
mkdir -p "$out"
device=(--device "${DEVICE:-cpu}")
if [ -n "${SHAPE:-}" ]; then
    for ((i = 0; i < turns; i++)); do
        for k; do
            "$bin/chimere-bench" speed --shape "$SHAPE" "${device[@]}" --experts "$k" --prompt 512 --depth 0 --rows 1 --seqs 1,8 --reps 3 --json |
                jq -r --arg k "$k" '[$k, .case, .metric, .[.metric]] | @tsv'
        done
    done
    exit
fi
export CHIMERE_MODEL=${CHIMERE_MODEL:-$PWD/share/models/chimere-nano-q5_k_m.gguf}
for k; do
    "$bin/chimere-bench" kl "${device[@]}" --windows 40 --experts "$k" --reference "$CHIMERE_MODEL" share/eval/heldout-docs.txt --json |
        jq -r --arg k "$k" '["kl", $k, .kl_mean_nats, .kl_mean_se_nats, .same_top_fraction, .ppl_ratio] | @tsv'
    "$bin/chimere-bench" eval "${device[@]}" --experts "$k" -o "$out/answers-$k" share/eval/math.jsonl share/eval/code.jsonl --json |
        jq -r --arg k "$k" '["eval", $k, .set, .n_right, .n_items, .accuracy_lo, .accuracy_hi] | @tsv'
    # the paired difference to the first
    [ "$k" = "$1" ] || "$bin/chimere-bench" eval --compare "$out/answers-$1" "$out/answers-$k" --json |
        jq -r --arg k "$k" '["difference", $k, .set, .difference, .difference_lo, .difference_hi] | @tsv'
done
TIMEFORMAT=%U
for ((i = 0; i < turns; i++)); do
    for k; do
        echo "cpu-seconds $k $({ time "$bin/chimere-run" "${device[@]}" -t 1 --raw -p 'The kernel' -n 200 --ignore-eos --temp 1 --seed "$i" \
            --experts "$k" --think-loops off > /dev/null; } 2>&1)"
    done
done
