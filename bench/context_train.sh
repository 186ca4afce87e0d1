#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# context_train.sh NEW_WIKI.json REDDIT.json > libcore/recall/weights.c: the weights of spans, from people's questions
# (two files of SQuADShifts, Miller et al. 2020, CC BY 4.0) and from the notes of context_sets.py that are to choose with.
# Needs build/libchimere.a; a minute of processor time.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o "$work/train" bench/context_train.c build/libchimere.a -Wl,--as-needed -lzstd -ljansson -lpcre2-8 \
    $(ldconfig -p | grep -oE 'libopenblas\.so ' | sort -u | sed 's/lib\(.*\)\.so /-l\1/') -lm -pthread
python3 bench/context_squad.py "$1" 0 30 "$work/wiki"
python3 bench/context_squad.py "$2" 0 20 "$work/reddit" 30
for kind in village craftsman ship company mountain machine herb inn instrument animal bridge festival theatre farm expedition observatory; do
    for seed in 1 2; do
        python3 bench/context_sets.py $kind 240 $seed "$work/made-$kind-$seed"
    done
done
"$work/train" share/models/chimere-nano-q5_k_m.gguf 5 "$work"/*/[0-9]* "$work"/made-*
