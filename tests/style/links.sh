#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# links.sh - records and files that the notes and the README name are there.
cd "$(dirname "$0")/../.." || exit 1
set -u
bad=0
for md in README.md .github/CONTRIBUTING.md bench/*.md tests/golden/*.md share/*/*.md; do
    # in backquotes below results/, and targets of links
    for path in $(grep -oE '`(bench/)?results/[^` ]+`' "$md" | tr -d '`') \
        $(grep -oE '\]\([^)# ]+' "$md" | cut -c3- | grep -v '://'); do
        case $path in *MACHINE* | *'*'*) continue ;; esac
        [ -e "$path" ] || [ -e "$(dirname "$md")/$path" ] || { echo "$md: $path is not there"; bad=1; }
    done
done
exit $bad
