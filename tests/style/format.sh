#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# format.sh - a tensor type is three files and a line: adds one beside the tree (NAME.h, NAME.c, its vector, a line in
# types.def), compiles what counts types, and lets quant_test find, size and decode it; then a tensor of it
# goes into a GGUF file and comes back.
cd "$(dirname "$0")/../.." || exit 1
set -eu
lib=${BUILD:-build}/test/libchimere.a
[ -e "$lib" ] || { echo "run make tests first"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/quant" "$dir/tests/golden"
cp -r tests/golden/quants "$dir/tests/golden"

cat > "$dir/quant/toy.h" << 'END'
/* toy.h - 8 elements in 5 bytes. */
#include <assert.h>
#include <stdint.h>

struct quant_toy {
    int8_t  e;     /* the scale is 2^e */
    uint8_t qs[4]; /* low nibbles: elements 0-3, high: 4-7 */
};
static_assert(sizeof(struct quant_toy) == 5, "the block on disk");
END
cat > "$dir/quant/toy.c" << 'END'
/* toy.c - x = 2^e (q - 8). */
#include "quant/toy.h"

#include <math.h>
#include "quant/quant.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_toy *b = row;

    for (int64_t i = 0; i < n / 8; i++, b++, y += 8)
        for (int j = 0; j < 8; j++)
            y[j] = ldexpf((float)((b->qs[j % 4] >> j / 4 * 4 & 15) - 8), b->e);
}

const struct quant_type quant_type_toy = {
    .name = "toy",
    .id = 4000,
    .block_elems = 8,
    .block_bytes = sizeof(struct quant_toy),
    .decode = decode,
};
END
{ cat libcore/quant/types.def; echo 'QUANT(toy)'; } > "$dir/quant/types.def"
python3 - "$dir/tests/golden/quants" << 'END'
import random, struct, sys
rows, hash = random.Random(1), 0xcbf29ce484222325
out, floats = bytearray(), b""
for block in range(2048 // 8):
    e, qs = rows.randrange(-40, 40), [rows.randrange(256) for _ in range(4)]
    out += struct.pack("b4B", e, *qs)
    floats += struct.pack("<8f", *[2.0 ** e * ((qs[j % 4] >> j // 4 * 4 & 15) - 8) for j in range(8)])
for byte in floats:
    hash = (hash ^ byte) * 0x100000001b3 % 2 ** 64
open(sys.argv[1] + "/toy.q", "wb").write(out)
open(sys.argv[1] + "/vectors.tsv", "a").write(f"toy\t4000\t8\t5\t0\t256\t2048\t{hash:016x}\n")
END
cat > "$dir/file.c" << 'END'
#include <stdio.h>
#include "gguf/gguf.h"
#include "quant/quant.h"

static void must(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "a tensor of the new type: %s\n", what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const int64_t         ne[] = { 256, 8 };
    unsigned char         data[2048 / 8 * 5];
    struct gguf_writer   *w;
    struct gguf          *g;
    struct err            e;
    FILE                 *f = fopen(argv[argc - 1], "rb");
    const int             type = quant_find_name(STR("TOY"));

    must(f != NULL && fread(data, 1, sizeof data, f) == sizeof data, "its vector");
    must(type == QUANT_toy && quant_find_id(4000) == type, "name and number");
    must(gguf_write_open(&w, argv[1], &e) == ERR_OK, "open");
    must(gguf_write_tensor(w, STR("t"), type, 2, ne, &e) == ERR_OK, "header");
    must(gguf_write_data(w, data, sizeof data, &e) == ERR_OK, "data");
    must(gguf_write_data(w, NULL, 0, &e) == ERR_OK && gguf_write_commit(w, &e) == ERR_OK, "end of the file");
    must(gguf_open(&g, argv[1], &e) == ERR_OK, "reading");
    const struct gguf_tensor *t = gguf_find(g, "t");

    must(t != NULL && t->type == type && t->size_bytes == sizeof data, "size");
    must(memcmp(t->data, data, sizeof data) == 0, "bytes");
    fclose(f);
    gguf_close(g);
}
END

# What has a table with a row for each type, and the new files; all else is in the library as it is built.
objects=()
for c in "$dir"/quant/toy.c "$dir/file.c" tests/unit/quant_test.c libcore/quant/{types,fit,fit_avx2,fit_avx512}.c \
    libcore/cpu/format.c libcore/gguf/write.c; do
    o=$dir/$(basename "$c" .c).o
    ${CC:-cc} -std=c11 -O0 -ffp-contract=off -w -DCHIMERE_TEST -D_DEFAULT_SOURCE -D_POSIX_C_SOURCE=200809L \
        -I"$dir" -Ilibcore -Itests -c -o "$o" "$c" &
    case $c in */file.c | */quant_test.c) ;; *) objects+=("$o") ;; esac
done
wait
${CC:-cc} -o "$dir/quant_test" "$dir/quant_test.o" "${objects[@]}" "$lib" -lcmocka -lm -pthread
${CC:-cc} -o "$dir/file" "$dir/file.o" "${objects[@]}" "$lib" -lm -pthread
# A full set of golden vectors knows nothing of the new format.
(cd "$dir" && GOLDENS= CMOCKA_MESSAGE_OUTPUT=STDOUT ./quant_test > test.log 2>&1) || { grep -v '  OK \|RUN' "$dir/test.log"; exit 1; }
grep -q 'OK.*decodes_as_the_reference' "$dir/test.log"
"$dir/file" "$dir/toy.gguf" "$dir/tests/golden/quants/toy.q"
