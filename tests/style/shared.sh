#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shared.sh - cmd/cli holds what at least two programs use: what one uses belongs to its directory. An object that
# another one of cmd/cli needs counts for the programs that need that one. Only the server loads the library for HTTP.
cd "$(dirname "$0")/../.." || exit 1
set -eu
obj=${BUILD:-build}/obj
objects() { for c in "$@"; do echo "$obj/${c%.c}.o"; done; }
bad=$(for main in cmd/*.c; do
    # shellcheck disable=SC2046
    nm -A -P $(objects "$main" $(find "${main%.c}" -name '*.c')) $(objects cmd/cli/*.c) | awk '
        { sub(/:$/, "", $1); sub(/^.*\/obj\//, "", $1); shared = $1 ~ /^cmd\/cli\// }
        $3 == "U" && shared { needs[$1] = needs[$1] " " $2 }
        $3 == "U" && !shared { need[$2] }
        $3 != "U" && shared { of[$2] = $1; all[$1] }
        END {
            for (more = 1; more;) {
                more = 0
                for (s in need) if (s in of && !(of[s] in used)) {
                    used[of[s]]; more = 1
                    n = split(needs[of[s]], v, " "); for (i = 1; i <= n; i++) need[v[i]]
                }
            }
            for (o in all) print o, (o in used)
        }'
done | awk '{ n[$1] += $2 } END { for (o in n) if (n[o] < 2) print o ": used by " n[o] " of the programs" }')
bad+=$(for p in "${BIN:-bin}"/chimere-*; do
    [ "${p##*/}" = chimere-serve-stdio ] || ! ldd "$p" | grep -q microhttpd || echo "$p: loads libmicrohttpd"
done)
[ -z "$bad" ] || { printf '%s\n' "$bad"; exit 1; }
