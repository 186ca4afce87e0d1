/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_recall.c - any bytes as an index: refused with one line of text, or searched. Once as they are, and once as the
 * arrays of a file whose head and checksum are right, so that what lies behind is reached. */
#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "fuzz/fuzz.h"
#include "recall/internal.h"

static char path[64];

static void use(const uint8_t *file, size_t n_file)
{
    struct recall_hit hits[20];
    struct recall *r = NULL;
    struct err e = { 0 };
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600), n;

    assert(fd >= 0 && io_write_all(fd, file, n_file, NULL) == ERR_OK);
    close(fd);
    if (recall_open(&r, path, &e) != ERR_OK) {
        assert(strncmp(e.msg, path, strlen(path)) == 0 && strchr(e.msg, '\n') == NULL);
        return;
    }
    const struct recall_info i = recall_info(r);
    float *v = calloc((size_t)i.dims + 1, sizeof *v);

    assert(v != NULL);
    for (int d = 0; d < i.dims; d++)
        v[d] = (float)(d % 7) - 3;
    for (int all = 0; all < 2; all++) {
        assert(recall_near(r, v, 20, all, NULL, hits, &n, &e) == ERR_OK && n >= 0 && n <= 20);
        for (int k = 0; k < n; k++)
            assert(hits[k].text >= 0 && hits[k].text < i.n_texts && recall_text(r, hits[k].text).n <= n_file &&
                   recall_origin_of(r, hits[k].text).members.n <= n_file);
    }
    free(v);
    recall_close(r);
}

/* The first bytes say how many of each there are, the rest are the arrays. */
static void make(const uint8_t *data, size_t n)
{
    enum { USED = 13 };
    uint64_t bytes[ARRAYS], all = 0;

    if (n < USED)
        return;
    const struct sizes s = { 1,
                             2,
                             data[0] % 16,
                             data[1] % 40,
                             0,
                             data[2],
                             data[3] % 8,
                             data[4] % 32,
                             data[5] % 32,
                             data[6] % 8,
                             data[7] % 2,
                             data[8] % 2,
                             data[9] % 8,
                             data[10],
                             data[11] % 64,
                             data[12],
                             data[12] / 64,
                             data[9] / 128,
                             7,
                             data[6] / 16 };

    recall_array_bytes(bytes, &s);
    for (int i = 0; i < ARRAYS; i++)
        all += bytes[i];
    uint8_t *file = calloc(1, HEAD_BYTES + (size_t)all);
    struct part part[ARRAYS];
    uint64_t at = HEAD_BYTES;

    assert(file != NULL);
    memcpy(file + HEAD_BYTES, data + USED, n - USED < all ? n - USED : (size_t)all);
    for (int i = 0; i < ARRAYS; i++) {
        part[i] = (struct part){ file + at, bytes[i] };
        at += bytes[i];
    }
    recall_put_head(file, &s, "", recall_sum(part, s.origins != 0));
    use(file, HEAD_BYTES + (size_t)all);
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    snprintf(path, sizeof path, "/tmp/fuzz_recall.%ld", (long)getpid());
    use(data, n);
    make(data, n);
    unlink(path);
    return 0;
}
