#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh - what the objects of libcore say about themselves, in the build without test hooks:
# every external symbol begins with a prefix of its room (libcore/ROOMS), nothing calls what only
# programs may (printing, exiting, the environment) or what nobody should, and there is no memory
# that can change and belongs to no object.
cd "$(dirname "$0")/../.." || exit 1
set -u
obj=${BUILD:-build}/obj

# Mutable globals that have a reason, as ROOM/FILE.o:SYMBOL: jansson's allocator hook has no argument.
allowed="base/json.o:no_memory"

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
[ $named -eq 0 ] && [ $globals -eq 0 ]
