#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# symbols.sh - what the objects of libcore say about themselves, in the build without test hooks:
# every external symbol begins with a prefix of its room (libcore/ROOMS), nothing calls what only
# programs may (printing, exiting, the environment) or what nobody should, and there is no memory
# that can change and belongs to no object.
cd "$(dirname "$0")/../.." || exit 1
set -u
obj=${BUILD:-build}/obj
bad=0

# Mutable globals that have a reason, as ROOM/FILE.o:SYMBOL. None so far.
allowed=""

never='exit|_exit|_Exit|quick_exit|abort|printf|vprintf|fprintf|vfprintf|dprintf|puts|fputs|putchar|putc|fputc|perror'
never+='|stdout|stderr|stdin|getenv|secure_getenv|setenv|environ|system|popen|fork|signal|sigaction'
never+='|strcpy|strcat|sprintf|vsprintf|atoi|atol|atoll|atof|strtok|gets|rand|srand|random|strerror|localtime|gmtime|setlocale'

sources=(libcore/*/*.c)
for c in "${sources[@]}"; do
    o=$obj/${c%.c}.o
    room=$(basename "$(dirname "$c")")
    if [ ! -e "$o" ]; then
        echo "$o: not built: run make"
        exit 1
    fi
    prefixes=$(awk -F'|' -v r="$room" '{ n = $1; gsub(/[ \t]/, "", n) } n == r { print $2 }' libcore/ROOMS)
    nm -g --defined-only "$o" | awk -v prefixes="$prefixes" -v at="$c" '
        NF == 3 {
            n = split(prefixes, p, " "); good = 0
            for (i = 1; i <= n; i++) if (index($3, p[i]) == 1) good = 1
            if (!good) { print at ": " $3 " does not begin with " prefixes; bad = 1 }
        }
        END { exit bad }' || bad=1
    if nm -u "$o" | awk '{ sub(/@.*/, "", $2); print $2 }' | grep -xE "$never" | sed "s|^|$c: uses |"; then
        bad=1
    fi
    if nm -f sysv "$o" | awk -F'|' -v at="$room/$(basename "$o")" -v allowed=" $allowed " '
        { name = $1; kind = $4; section = $7; gsub(/ /, "", name); gsub(/ /, "", kind); gsub(/[ \t]/, "", section) }
        (kind == "OBJECT" || kind == "TLS") && section ~ /^(\.data|\.bss|\.tdata|\.tbss|\*COM\*)/ && section !~ /^\.data\.rel\.ro/ &&
            index(allowed, " " at ":" name " ") == 0 { print at ": " name " is a mutable global (" section ")"; found = 1 }
        END { exit !found }'; then
        bad=1
    fi
done
exit $bad
