#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# errors.sh - no code looks into the message of an error, whose words may change: an error's place is in its member
# `where`, its kind in `code` (libcore/base/base.h).
cd "$(dirname "$0")/../.." || exit 1
set -u

# A call that compares, searches or reads, with a message among its arguments; and parts of a message.
reads='(str(n?cmp|n?casecmp|str|casestr|r?chr|pbrk|c?spn|tok(_r)?|to[ldfu]+l?)|str_(is|eq)|mem(cmp|chr|mem|rchr)|v?sscanf|ato[ifl]l?)\('
found=$(find libcore cmd kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort | xargs grep -nE \
    "${reads}[^;]*(->|\.)msg\b|(->|\.)msg( \+|\[)|\*[a-z>.-]+(->|\.)msg\b" | grep -v '^libcore/base/base.h:.*char msg\[')
[ -z "$found" ] && exit 0
printf 'the message of an error is read; its place is in e->where (libcore/base/base.h):\n%s\n' "$found"
exit 1
