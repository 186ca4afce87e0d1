/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_engram.c - any bytes as a table: refused with one line of text, or looked into, walked and merged. Once as they
 * are, and once as the arrays of an epoch whose head and checksums are right, so that what lies behind is reached. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "engram/internal.h"
#include "fuzz/fuzz.h"

static char path[64], merged[80];

static bool row(void *ctx, const struct engram_row *r)
{
    uint64_t *n = ctx;

    assert(r->order >= 1 && r->order <= ENGRAM_ORDER_MAX && r->next >= 0 && r->count > 0);
    return ++*n < 100000;
}

static void look(const struct engram *g, const uint8_t *data, size_t n)
{
    for (size_t i = 0; i + 8 <= n && i < 4096; i += 8) {
        int32_t context[8];
        struct engram_next next;
        float sum = 0;

        for (int k = 0; k < 8; k++)
            context[k] = data[i + (size_t)k] % 16;
        engram_look(g, context, 8, &next);
        assert(next.n >= 0 && next.n <= ENGRAM_NEXT_MAX && next.order <= 8);
        for (int k = 0; k < next.n; k++)
            sum += next.q[k];
        assert(sum >= 0);
    }
}

static void use(const uint8_t *file, size_t n_file, const uint8_t *data, size_t n)
{
    const struct engram_opts o = { .day = 20000 };
    const char *name = path;
    struct engram *g = NULL;
    struct err e = { 0 };
    uint64_t rows = 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert(fd >= 0 && io_write_all(fd, file, n_file, NULL) == ERR_OK);
    close(fd);
    if (engram_open(&g, &name, 1, &o, &e) != ERR_OK) {
        assert(strncmp(e.msg, path, strlen(path)) == 0 && strchr(e.msg, '\n') == NULL);
        return;
    }
    look(g, data, n);
    for (int i = 0; i < engram_n_epochs(g, 0); i++)
        engram_rows(g, 0, i, row, &rows);
    if (engram_merge(g, merged, &(struct engram_merge_opts){ .day = 20000, .unused_days = 90 }, NULL, &e) == ERR_OK) {
        struct engram *again;

        name = merged;
        assert(engram_open(&again, &name, 1, &o, &e) == ERR_OK); /* what is written can be read */
        engram_close(again);
        unlink(merged);
    }
    engram_close(g);
}

/* The same bytes as a table of the old format. */
static void use_old(const uint8_t *data, size_t n)
{
    struct engram_import *x;
    struct engram *g;
    struct err e = { 0 };
    const char *name = merged;
    const struct engram_build_opts to = { .tokenizer = 7, .day = 20000 };
    int32_t token[64];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert(fd >= 0 && io_write_all(fd, data, n, NULL) == ERR_OK);
    close(fd);
    if (engram_import_open(&x, path, &e) != ERR_OK) {
        assert(strncmp(e.msg, path, strlen(path)) == 0 && strchr(e.msg, '\n') == NULL);
        return;
    }
    for (int i = 0; i < 64; i++)
        token[i] = i % 4;
    if (engram_import_text(x, token, 64, &e) == ERR_OK && engram_import_write(x, merged, &to, &e) == ERR_OK) {
        assert(engram_open(&g, &name, 1, &(struct engram_opts){ .day = 20000 }, &e) == ERR_OK);
        engram_close(g);
        unlink(merged);
    }
    engram_import_close(x);
}

/* The first bytes say how many contexts and rows there are, the rest are the arrays. */
static void make(const uint8_t *data, size_t n)
{
    struct epoch ep = {
        .day = 20000, .order = 1 + (n > 0 ? data[0] % 3 : 0), .domain = "d", .n_known = n > 0 ? data[0] / 64 : 0
    };
    const size_t used = 1 + 2 * (size_t)ep.order;
    uint64_t arrays = 0;

    if (n < used)
        return;
    for (int l = 0; l < ep.order; l++) {
        uint64_t bytes[PARTS];

        ep.level[l] = (struct level){ .n = data[1 + 2 * l] % 64, .n_next = data[2 + 2 * l], .n_blocks = 1 };
        engram_part_bytes(bytes, ep.level[l].n, ep.level[l].n_next, 1, l + 1 == ep.order);
        for (int i = 0; i < PARTS; i++)
            arrays += bytes[i];
    }
    arrays += ep.n_known > 0 ? ALIGN_BYTES : 0;
    ep.bytes = EPOCH_BYTES + arrays + ALIGN_BYTES; /* under a MiB: one sum */
    uint8_t *file = calloc(1, HEAD_BYTES + ep.bytes), *body = file + HEAD_BYTES + EPOCH_BYTES;

    assert(file != NULL && arrays < SUM_BYTES);
    engram_put_head(file, 7, HEAD_BYTES + ep.bytes);
    memcpy(body, data + used, n - used < arrays ? n - used : arrays);
    const uint64_t sum = io_hash(0, body, arrays);

    memcpy(body + arrays, &sum, sizeof sum);
    engram_put_epoch(file + HEAD_BYTES, &ep, io_hash(0, body + arrays, ALIGN_BYTES));
    use(file, HEAD_BYTES + ep.bytes, data, n);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    snprintf(path, sizeof path, "/tmp/fuzz_engram.%ld", (long)getpid());
    snprintf(merged, sizeof merged, "%s.m", path);
    use(data, n, data, n);
    use_old(data, n);
    make(data, n);
    unlink(path);
    return 0;
}
