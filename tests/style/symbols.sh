#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh - what the objects of libcore say about themselves, in the build without test hooks:
# every external symbol begins with a prefix of its room (libcore/ROOMS), nothing calls what only
# programs may (printing, exiting, the environment) or what nobody should, and there is no memory
# that can change and belongs to no object.
# And tags of structs, unions and enums: one that other rooms see, in a header that a file of another
# room includes, begins with a prefix of its room, too. Others, those of internal.h among them, have no
# prefix or their own room's, but not another one's. No two headers define the same.
cd "$(dirname "$0")/../.." || exit 1
set -u
obj=${BUILD:-build}/obj

mapfile -t sources < <(find libcore cmd kernels -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
awk '
    # the room of a file: of cmd/cli and of each program its own; what its tags may begin with
    function room_of(path,    part) {
        split(path, part, "/"); sub(/\.c$/, "", part[2])
        return part[1] == "kernels" ? "kernels" : part[1] == "cmd" ? "cmd/" part[2] : part[2]
    }
    function prefixes_of(room) {
        return room !~ /^cmd\// ? prefixes[room] : room == "cmd/run" ? "cli_" : "cli_ " prefixes[substr(room, 5)]
    }
    function begins(tag, list,    p, n, i, word) {
        n = split(list, p, " ")
        for (i = 1; i <= n; i++) {
            word = p[i]; sub(/_$/, "", word)
            if (index(tag, p[i]) == 1 || tag == word) return 1
        }
        return 0
    }
    FILENAME == "libcore/ROOMS" {
        if (/^[a-z]/) { split($0, col, "|"); gsub(/[ \t]/, "", col[1]); prefixes[col[1]] = col[2] }
        next
    }
    /^ *# *include "/ {
        split($0, quoted, "\"")
        seen_by[quoted[2]] = seen_by[quoted[2]] " " room_of(FILENAME)
    }
    /^[ \t]*(typedef |static |const )*(struct|union|enum) [a-z_0-9]+ [{]/ && FILENAME ~ /^(libcore|cmd)\/.*\.[ch]$/ {
        line = $0; sub(/ [{].*/, "", line); n = split(line, w, " ")
        tags++; tag[tags] = w[n]; kind[tags] = w[n - 1]; where[tags] = FILENAME
    }
    END {
        for (i = 1; i <= tags; i++) {
            file = where[i]; room = room_of(file); what = kind[i] " " tag[i]
            if (file ~ /\.h$/) {
                if (what in defined) { print file ": " what " is defined in " defined[what] ", too"; bad = 1 }
                defined[what] = file
            }
            if (begins(tag[i], prefixes_of(room)) || tag[i] == room) continue
            self = file; sub(/^[a-z]*\//, "", self)
            n = split(seen_by[self], by, " "); public = 0
            for (k = 1; k <= n; k++) if (by[k] != room && file !~ /\/internal\.h$/) public = 1
            if (public) {
                print file ": " what " is seen by other rooms and does not begin with " prefixes_of(room); bad = 1
            }
            for (r in prefixes)
                if (r != "cmd" && !public && begins(tag[i] "", prefixes[r])) {
                    print file ": " what " begins as those of " r; bad = 1
                }
        }
        exit bad
    }' libcore/ROOMS "${sources[@]}"
tagged=$?

# Mutable globals that have a reason, as ROOM/FILE.o:SYMBOL: jansson's allocator hook has no argument.
allowed="base/json.o:hook"

never="exit _exit _Exit quick_exit abort printf vprintf fprintf vfprintf dprintf puts fputs putchar putc fputc perror
    stdout stderr stdin getenv secure_getenv setenv environ system popen fork signal sigaction strcpy strcat sprintf
    vsprintf atoi atol atoll atof strtok gets rand srand random strerror localtime gmtime setlocale"

objects=$(for c in libcore/*/*.c libcore/*/*/*.c; do echo "$obj/${c%.c}.o"; done)
# shellcheck disable=SC2086
{
    ls $objects > /dev/null || { echo "run make first"; exit 1; }
    nm -A -P $objects | awk -v never="$never" '
        function room_of(path,    part) { split(path, part, "/"); return part[2] }
        BEGIN { n = split(never, word, /[ \n]+/); for (i = 1; i <= n; i++) banned[word[i]] = 1 }
        FILENAME == "libcore/ROOMS" {
            if (/^[a-z]/) { split($0, col, "|"); gsub(/[ \t]/, "", col[1]); prefixes[col[1]] = col[2] }
            next
        }
        {
            file = $1; sub(/\[.*|:$/, "", file); sub(/^.*\/obj\//, "", file); sub(/\.o$/, ".c", file)
            name = $2; sub(/@.*/, "", name)
        }
        $3 == "U" { if (name in banned) { print file ": uses " name; bad = 1 } next }
        $3 ~ /^[A-Z]$/ {
            n = split(prefixes[room_of(file)], p, " "); good = 0
            for (i = 1; i <= n; i++) if (index(name, p[i]) == 1) good = 1
            if (!good) { print file ": " name " does not begin with " prefixes[room_of(file)]; bad = 1 }
        }
        END { exit bad }' libcore/ROOMS -
    named=$?
    nm -A -f sysv $objects | awk -F'|' -v allowed=" $allowed " '
        {
            at = $1; name = at; section = $7; kind = $4
            sub(/:[^:]*$/, "", at); sub(/^.*\/libcore\//, "", at); sub(/^.*:/, "", name)
            gsub(/[ \t]/, "", name); gsub(/[ \t]/, "", section); gsub(/[ \t]/, "", kind)
        }
        (kind == "OBJECT" || kind == "TLS") && section ~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*)/ &&
            section !~ /^\.data\.rel\.ro/ && index(allowed, " " at ":" name " ") == 0 {
            print at ": " name " is a mutable global (" section ")"
            bad = 1
        }
        END { exit bad }'
    globals=$?
}
[ $tagged -eq 0 ] && [ $named -eq 0 ] && [ $globals -eq 0 ]
