#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# engram-weigh.sh OUT PROGRAM ...: perplexity with tables that fit the text, that have nothing to do with it, and that
# mislead about it, by each PROGRAM (chimere-engram-build of different versions). Texts are files of this machine, by three
# seeds: modules of Perl, manual pages of section 8, headers of C. A table is made of 3 MB of other files of the kind; a
# misleading one claims another next token for each token of the text (engram_adverse.c), or for half of them in runs of 32.
# Prints "KIND SEED TABLE PROGRAM RESULT" lines to OUT.
set -eu
[ $# -ge 2 ] || { sed -n 3,8p "$0" >&2; exit 2; }
here=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath "$1") && shift
export CHIMERE_MODEL=${CHIMERE_MODEL:-$here/share/models/chimere-nano-q5_k_m.gguf}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$here"
gcc -O2 -std=c11 -Ilibcore -D_GNU_SOURCE -o "$work/adverse" bench/engram_adverse.c build/libchimere.a -Wl,--as-needed \
    -lzstd -ljansson -lpcre2-8 -lopenblas -lm -pthread
tail -c 73000 share/eval/heldout-docs.txt | head -c 24000 > "$work/held.txt"
files() # KIND: those of more than 4 KB
{
    case $1 in
    perl) find /usr/share/perl /usr/share/perl5 -name '*.pm' -size +4k ;;
    man) find /usr/share/man/man8 -name '*.gz' -size +1k ;;
    headers) find /usr/include -name '*.h' -size +4k ;;
    esac | sort
}
score() # KIND SEED TABLE TEXT PROGRAM ...: TABLE is a file in $work
{
    local kind=$1 seed=$2 table=$3 text=$4
    shift 4
    for program; do
        printf '%s %s %s %s ' "$kind" "$seed" "$table" "$program"
        "$program" score -q -t 2 --engram "$work/$table" "$text"
    done >> "$out"
}
for kind in perl man headers; do
    for seed in 1 2 3; do
        files $kind | shuf --random-source=<(yes $seed) > "$work/list"
        head -n 30 "$work/list" | xargs -d '\n' zcat -f | head -c 24000 > "$work/text.txt"
        tail -n +31 "$work/list" | xargs -d '\n' zcat -f | head -c 3000000 > "$work/others.txt"
        "$1" build -q -o "$work/related" "$work/others.txt"
        "$work/adverse" "$work/text.txt" "$work/misleads" $seed 1 1
        "$work/adverse" "$work/text.txt" "$work/half" $seed 0.5 32
        for table in related misleads half; do score $kind $seed $table "$work/text.txt" "$@"; done
        [ $seed != 1 ] || score held-$kind $seed related "$work/held.txt" "$@"
        rm "$work"/related "$work"/misleads "$work"/half
    done
done
