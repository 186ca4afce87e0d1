#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# context.sh [KIND ...]: what --context finds on notes of three seeds, what MODEL (the embedded one) answers on those of the
# first, and what it changes of 1,001 other items. With MODEL= only what is found is counted. SQUAD=FILE.json: also what is
# found of people's questions on people's prose, in the form of SQuAD 1.1 (xquad.en.json).
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o "$work/find" bench/context_find.c build/libchimere.a -Wl,--as-needed -lzstd -ljansson -lpcre2-8 \
    $(ldconfig -p | grep -oE 'libopenblas\.so ' | sort -u | sed 's/lib\(.*\)\.so /-l\1/') -lm -pthread
nano=share/models/chimere-nano-q5_k_m.gguf
model=${MODEL-$nano}
answer() # BATCH OUT OPTION...
{
    bin/chimere-serve-stdio -q -m "$model" -t "${THREADS:-1}" --parallel 8 --batch "$1" -o "$2" "${@:3}"
}
[ $# -gt 0 ] || set -- packages devices bridge festival school lighthouse railway botanist
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
        [ -n "$model" ] && [ "$seed" = 1 ] || continue
        python3 bench/context_judge.py requests $n "$at/items.jsonl" > "$at/batch"
        answer "$at/batch" "$at/out" --context "$at/notes.txt"
        python3 bench/context_judge.py answers "$at/items.jsonl" "$at/out" | sed "s/^/$kind $seed: /"
    done
done
if [ -n "${SQUAD-}" ]; then
    python3 bench/context_squad.py "$SQUAD" 0 1000 "$work/squad"
    for part in items none foreign; do
        for at in "$work"/squad/*; do
            "$work/find" $nano "$at/notes.txt" "$at/$part.jsonl"
        done > "$work/squad-$part"
        python3 bench/context_judge.py found "$work/squad-$part" | sed "s/^/squad $part: /"
    done
fi
cat share/eval/*.jsonl | grep '"messages"' > "$work/other" # not the classes of routes
cat "$work"/*-1/notes.txt > "$work/notes.txt"
"$work/find" $nano "$work/notes.txt" "$work/other" > "$work/other.found"
echo "all these notes: of share/eval $(python3 bench/context_judge.py found "$work/other.found")"
[ -n "$model" ] || exit 0
python3 bench/context_judge.py requests 143 $(grep -l '"messages"' share/eval/*.jsonl) > "$work/batch"
answer "$work/batch" "$work/before"
answer "$work/batch" "$work/after" --context "$work/notes.txt"
python3 bench/context_judge.py compare "$work/other" "$work/before" "$work/after"
