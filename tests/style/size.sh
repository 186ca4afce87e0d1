#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# size.sh - limits that keep the house small: the checkout, the Makefile, the README, one source file.
# Long functions and tests are named as advice only.
cd "$(dirname "$0")/../.." || exit 1
set -u
bad=0
limit() # WHAT SIZE LIMIT
{
    [ "$2" -le "$3" ] || { echo "$1: $2, the limit is $3"; bad=1; }
}
limit "bytes in the checkout" "$({ git ls-files -z 2> /dev/null || find . -type f ! -path './.git/*' ! -path './build/*' \
    ! -path './bin/*' ! -path './tests/golden/models/*.gguf' ! -path './tests/golden/draft/*.gguf' ! -path './tests/fuzz/corpus/gguf*' -print0; } |
    xargs -0 stat -c %s 2> /dev/null | awk '{ n += $1 } END { print n }')" $((42 << 20))
limit "lines of Makefile" "$(wc -l < Makefile)" 150
limit "bytes of README.md" "$(wc -c < README.md)" 14000
lines() # FILE...: "LINES FILE" for each; a line of more than 100 columns counts as two
{
    awk 'FNR == 1 && NR > 1 { print n, f; n = 0 } { f = FILENAME; n += 1 + (length($0) > 100) } END { print n, f }' "$@"
}
mapfile -t sources < <(find libcore cmd kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' |
    grep -vE '(_grids|/unicode_tables)\.[ch]$')
while read -r n f; do limit "lines of $f, those over 100 columns twice" "$n" 900; done < <(lines "${sources[@]}")
mapfile -t sources < <(find tests -name '*.[ch]')
lines "${sources[@]}" | awk '$1 > 900 { print "advice: " $2 ": " $1 " lines" }'
for f in $(find libcore cmd -name '*.c'); do
    awk -v f="$f" '/^[a-z].*\(/ && !/;/ { name = $0; start = NR }
        /^}/ && start { if (NR - start > 70) printf "advice: %s:%d: %d lines: %s\n", f, start, NR - start, name; start = 0 }' "$f"
done
exit $bad
