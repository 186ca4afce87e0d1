#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang_format.sh - the format of C and CUDA sources is that of .clang-format, by the version of clang-format that wrote it;
# others break lines elsewhere. With -i the files are rewritten (make format). Generated tables keep their
# own, and so do files that are mostly macros, which clang-format takes for declarations. No line of the others has more
# than 120 columns: what clang-format cannot break, such as a string, is broken by hand.
cd "$(dirname "$0")/../.." || exit 1
set -u
mapfile -t files < <(find libcore cmd kernels tests bench -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' |
    grep -vE '(_grids|/unicode_tables|_body)\.[ch]$|^libcore/cpu/acts' | sort)
if [ "${1:-}" != -i ] && long=$(grep -nE '.{121}' "${files[@]}"); then
    printf 'a line over 120 columns:\n%s\n' "$long"
    exit 1
fi
if ! clang-format --version 2> /dev/null | grep -q 'version 14\.'; then
    echo "clang-format 14 is not installed: the format is not checked"
    exit 0
fi
[ "${1:-}" = -i ] || set -- --dry-run -Werror -ferror-limit=3
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 40 clang-format "$@"
