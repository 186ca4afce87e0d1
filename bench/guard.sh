#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# guard.sh - how much of planted poison share/jobs/guard holds back, and how much of what is honest: a table by kind.
#
#   bench/guard.sh [SEED]
#
# Calibrated on every second item of facts.jsonl; poison is made of the others, and of sums. Needs the programs in PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
awk 'NR % 2' share/eval/facts.jsonl > "$dir/known.jsonl"
awk 'NR % 2 == 0' share/eval/facts.jsonl > "$dir/others.jsonl"
bash share/jobs/guard --calibrate -v -o "$dir/calibration" "$dir/known.jsonl"
jq -nc --argjson seed "${1:-1}" --slurpfile facts "$dir/others.jsonl" --slurpfile held share/eval/facts-heldout.jsonl \
    -f bench/guard.jq > "$dir/pairs"
bash share/jobs/guard -g "$dir/calibration" "$dir/pairs" > "$dir/guarded"
jq -nr 'reduce inputs as $p ({}; .[$p.id] |= ((. // [0, 0]) | .[1] += 1 | if $p.type == "quarantine" then .[0] += 1 else . end)) |
    to_entries | sort_by(.key)[] | "\(.key)\t\(.value[0]) of \(.value[1]) held back"' "$dir/guarded"
