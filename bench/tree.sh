#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tree.sh [LIMIT [TOKENS]]: expected tokens a step of chains and of trees of a DFlash drafter's guesses with as many rows, on the
# first LIMIT (default 40) items of each task set and as many pieces of a text. In the environment: MODEL, DRAFTER.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o "$work/tree" bench/tree.c build/libchimere.a -Wl,--as-needed -lzstd -ljansson \
    -lpcre2-8 -lm -pthread
"$work/tree" "${MODEL:-share/models/chimere-nano-q5_k_m.gguf}" "${DRAFTER:-share/models/chimere-nano-dflash.gguf}" \
    "${1:-40}" "${2:-240}" share/eval/*.jsonl share/eval/heldout-docs.txt > "$work/places.jsonl"
python3 bench/tree.py "$work/places.jsonl"
