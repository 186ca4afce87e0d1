/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - copies of weights in RAM.
 *
 * Pieces are where they are in what is copied, and so are 16 rows of them that are laid out side by side (format.h).
 * Pages that hold nothing wanted are never touched, and take no memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/io.h"
#include "cpu/cpu.h"

enum { SLICE_BYTES = 4 << 20 };

struct cpu_copy {
    struct cpu_copy *next;
    void *p;
    size_t n;
};

struct copying {
    unsigned char *to;
    const unsigned char *from;
    size_t piece_bytes, all_bytes;
    const bool *keep; /* [pieces]; NULL: all */
    cpu_lay_fn *lay;  /* NULL: rows stay as they are */
    int64_t row_bytes, ne0;
    size_t slice_bytes; /* of whole rows that are laid out together */
};

static void copy_some(const struct copying *c, size_t at, size_t end)
{
    const size_t rows = (size_t)(CPU_LAID * c->row_bytes);

    if (c->lay == NULL)
        memcpy(c->to + at, c->from + at, end - at);
    else
        for (; at < end; at += rows)
            c->lay(c->to + at, c->from + at, c->row_bytes, c->ne0);
}

static size_t smaller_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void copy_slices(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct copying *c = ctx;
    size_t at = (size_t)begin * c->slice_bytes, stop = smaller_of((size_t)end * c->slice_bytes, c->all_bytes);

    (void)worker;
    for (size_t next; at < stop; at = next) {
        size_t i = at / c->piece_bytes;

        next = smaller_of((i + 1) * c->piece_bytes, stop);
        if (c->keep == NULL || c->keep[i]) {
            io_map_fetch(c->from + at, next - at);
            copy_some(c, at, next);
        }
    }
}

/* n bytes in large pages where all of them will be used: a large one has neighbours that are not wanted. */
static void *pages(size_t n, bool whole)
{
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
#if defined(MADV_HUGEPAGE) && defined(MADV_NOHUGEPAGE)
    (void)madvise(p, n, whole ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#else
    (void)whole;
#endif
    return p;
}

/* Whether rows are laid out: where matrices have twice 16, so that halves of one may be taken alone. */
static bool lays(const struct cpu *c, const struct dev_pieces *v)
{
    return v->ne0 > 0 && v->ne0 % CPU_INT_BLOCK == 0 && c->lay[v->type] != NULL && v->ne1 % (2 * CPU_LAID) == 0;
}

const void *cpu_weights_copy(void *ctx, const struct dev_pieces *v, bool *laid)
{
    struct cpu *c = ctx;
    struct copying a = { .from = v->host,
                         .piece_bytes = v->bytes,
                         .all_bytes = v->bytes * (size_t)v->n,
                         .keep = v->keep,
                         .slice_bytes = SLICE_BYTES };
    const void *host = v->host;
    int64_t kept = 0;

    for (int64_t i = 0; i < v->n; i++)
        kept += v->keep == NULL || v->keep[i];
    *laid = kept > 0 && lays(c, v);
    if (!c->dry_run && kept > 0 && v->bytes > 0) {
        struct cpu_copy *one = malloc(sizeof *one);

        a.to = one == NULL ? NULL : pages(a.all_bytes, kept == v->n);
        if (a.to == NULL) {
            free(one);
            return NULL;
        }
        *one = (struct cpu_copy){ c->copies, a.to, a.all_bytes };
        c->copies = one;
        if (*laid) {
            a.lay = c->lay[v->type];
            a.row_bytes = quant_row_bytes(v->type, v->ne0);
            a.ne0 = v->ne0;
            a.slice_bytes = (size_t)(CPU_LAID * a.row_bytes) * (1 + SLICE_BYTES / (size_t)(CPU_LAID * a.row_bytes));
        }
        pool_for(c->pool, (int64_t)((a.all_bytes + a.slice_bytes - 1) / a.slice_bytes), 1, copy_slices, &a);
        host = a.to;
    }
    c->held += (size_t)kept * v->bytes;
    return host;
}

void cpu_free_copies(struct cpu *c)
{
    while (c->copies != NULL) {
        struct cpu_copy *one = c->copies;

        c->copies = one->next;
        (void)munmap(one->p, one->n);
        free(one);
    }
}
