#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# rooms.sh - who may include whom. libcore/ROOMS is the law: a file includes headers of its own room and
# of the rooms in its row; kernels/ and cmd/ have rows too. CUDA's headers appear in kernels/ only.
cd "$(dirname "$0")/../.." || exit 1
set -eu
files=$(find libcore cmd kernels -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.inc' -o -name '*.def' \) 2>/dev/null | sort)
bad=$(awk -F'|' '
    function complain(what) { print FILENAME ":" FNR ": " what }
    FILENAME == "libcore/ROOMS" {
        if ($0 !~ /^[a-z]/) next
        room = $1; gsub(/[ \t]/, "", room)
        may[room] = " " room " " $3 " "
        next
    }
    FNR == 1 {
        split(FILENAME, part, "/")
        room = part[1] == "libcore" ? part[2] : part[1]
        if (!(room in may)) complain("no row for " room " in libcore/ROOMS")
    }
    /^[ \t]*#[ \t]*include[ \t]*</ {
        if (room != "kernels" && $0 ~ /<(cuda|cublas|nv)/) complain("CUDA headers belong to kernels/")
    }
    /^[ \t]*#[ \t]*include[ \t]*"/ {
        split($0, quoted, "\"")
        if (split(quoted[2], path, "/") < 2) complain("include \"ROOM/" quoted[2] "\": name the room")
        else if (index(may[room], " " path[1] " ") == 0) complain(room " may not include " path[1])
    }' libcore/ROOMS $files)
# A row that includes a room that includes it back is not a house but a knot.
bad+=$(awk -F'|' '/^[a-z]/ {
        gsub(/[ \t]/, "", $1); n = split($3, dep, " ")
        for (i = 1; i <= n; i++)
            if (dep[i] != "cli" && !(dep[i] in seen)) print "libcore/ROOMS:" FNR ": " $1 " includes " dep[i] ", which has no row above it"
        seen[$1] = 1
    }' libcore/ROOMS)
[ -z "$bad" ] || { printf '%s\n' "$bad"; exit 1; }
