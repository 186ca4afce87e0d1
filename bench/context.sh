#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# context.sh [KIND ...]: what --context finds and answers on notes that decided nothing, of three seeds. MODEL answers (the
# embedded one); with MODEL= only what is found is counted.
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o "$work/find" bench/context_find.c build/libchimere.a -Wl,--as-needed -lzstd -ljansson -lpcre2-8 \
    $(ldconfig -p | grep -oE 'libopenblas\.so ' | sort -u | sed 's/lib\(.*\)\.so /-l\1/') -lm -pthread
nano=share/models/chimere-nano-q5_k_m.gguf
model=${MODEL-$nano}
[ $# -gt 0 ] || set -- packages devices instrument animal bridge festival
for kind; do
    n=240
    case $kind in people | glossary | packages | devices) n=300 ;; esac
    for seed in 1 2 3; do
        at=$work/$kind-$seed
        python3 bench/context_sets.py "$kind" $n $seed "$at"
        for part in items none foreign; do
            [ -s "$at/$part.jsonl" ] || continue
            "$work/find" $nano "$at/notes.txt" "$at/$part.jsonl" > "$at/$part.found"
            python3 bench/context_judge.py found "$at/$part.found" | sed "s/^/$kind $seed $part: /"
        done
        [ -n "$model" ] || continue
        python3 bench/context_judge.py requests "$at/notes.txt" "$at/items.jsonl" > "$at/batch"
        bin/chimere-serve-stdio -q -m "$model" -t "${THREADS:-1}" --parallel 8 --batch "$at/batch" -o "$at/out"
        python3 bench/context_judge.py answers "$at/items.jsonl" "$at/out" | sed "s/^/$kind $seed: /"
    done
done
cat share/eval/*.jsonl > "$work/other"
for notes in "$work"/*-1/notes.txt; do
    "$work/find" $nano "$notes" "$work/other" > "$work/other.found"
    name=${notes#"$work"/}
    echo "$name: of share/eval $(python3 bench/context_judge.py found "$work/other.found")"
done
