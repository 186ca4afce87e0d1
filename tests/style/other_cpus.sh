#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# other_cpus.sh - what has code for x86-64 is correct C without it, too, as other processors compile it. The C library's
# headers are read before the processor's name is taken away.
cd "$(dirname "$0")/../.." || exit 1
set -u
D=$(mktemp -d) || exit 1
trap 'rm -rf "$D"' EXIT
mapfile -t sources < <(grep -rlE '__x86_64__|X86_|base/simd\.h|cpu/' --include='*.c' libcore | sort)
[ ${#sources[@]} -ge 60 ] || { echo "only ${#sources[@]} sources were found"; exit 1; }
{
    grep -hE '^#include <[a-z0-9_/]+\.h>' "${sources[@]}" $(git ls-files 'libcore/*.h') | grep -vE 'intrin|microhttpd|cblas' | sort -u
    echo '#undef __x86_64__'
} > "$D/first.h"
check()
{
    ${CC:-cc} -std=c11 -fsyntax-only -Wall -Wextra -Werror -include "$D/first.h" -Ilibcore -D_DEFAULT_SOURCE \
        -D_POSIX_C_SOURCE=200809L "$1" > "$2" 2>&1
}
bad=0
for s in "${sources[@]}"; do check "$s" "$D/out" || { echo "$s:"; head -n 3 "$D/out"; bad=1; }; done
printf '#include "cpu/formats/x86.h"\n#if !defined(__x86_64__)\n#error another processor\n#endif\n' > "$D/other.c"
! check "$D/other.c" "$D/out" && grep -q 'another processor' "$D/out" || { echo "the processor's name was not taken away"; bad=1; }
exit $bad
