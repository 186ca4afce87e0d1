# SPDX-License-Identifier: Apache-2.0
# engram-build.bash - builds bench/engram.c; for the scripts beside it.

# engram_program FILE
engram_program()
{
    ar rcs "$1.a" build/obj/cmd/cli/*.o
    gcc -O2 -std=c11 -Ilibcore -Icmd -D_GNU_SOURCE -o "$1" bench/engram.c "$1.a" build/libchimere.a -Wl,--as-needed -lzstd -ljansson \
        -lpcre2-8 $(ldconfig -p | grep -oE 'lib(edit|openblas|microhttpd)\.so ' | sort -u | sed 's/lib\(.*\)\.so /-l\1/') -lm -pthread
}
