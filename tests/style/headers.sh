#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# headers.sh - a header includes what it needs: each compiles alone as C11, and those that kernels/ sees
# (base, quant, ops) also inside extern "C" as C++17, where there is a C++ compiler. Programs of bench/, which scripts
# build there, compile with them.
# Files named *_body.h and f32_*.h are bodies of code compiled several times, not headers.
cd "$(dirname "$0")/../.." || exit 1
set -u
cc=${CC:-cc}
bad=0
for h in $(find libcore cmd -name '*.h' ! -name '*_body.h' ! -name 'f32_*.h' | sort); do
    printf '#include "%s"\n' "${h#*/}" |
        $cc -std=c11 -pedantic -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -Ilibcore -Icmd \
            -fsyntax-only -x c - || { echo "$h: does not compile alone as C11"; bad=1; }
done
for c in bench/*.c; do
    $cc -std=c11 -Werror -D_GNU_SOURCE -Ilibcore -Icmd -fsyntax-only "$c" || { echo "$c: does not compile"; bad=1; }
done
if command -v g++ > /dev/null; then
    for h in libcore/{base,quant,ops}/*.h; do
        case $h in *_body.h | *'*.h') continue ;; esac
        printf 'extern "C" {\n#include "%s"\n}\n' "${h#*/}" |
            g++ -std=c++17 -Wall -Wextra -Ilibcore -fsyntax-only -x c++ - ||
            { echo "$h: does not compile as C++17"; bad=1; }
    done
fi
exit $bad
