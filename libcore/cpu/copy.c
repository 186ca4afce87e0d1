/* SPDX-License-Identifier: Apache-2.0 */
/* copy.c - weights in memory of their own.
 *
 * A copy is laid out as what it is a copy of, so that pieces are found the same way. Pages that hold nothing wanted are
 * never touched, and take no memory. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/cpu.h"

enum { SLICE_BYTES = 4 << 20 };

struct cpu_copy {
    struct cpu_copy *next;
    void            *p;
    size_t           n;
};

struct copying {
    unsigned char       *to;
    const unsigned char *from;
    size_t               piece_bytes, all_bytes;
    const bool          *keep; /* [pieces]; NULL: all */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static void copy_slices(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct copying *c = ctx;
    size_t at = (size_t)begin * SLICE_BYTES, stop = least((size_t)end * SLICE_BYTES, c->all_bytes);

    (void)worker;
    for (size_t next; at < stop; at = next) {
        size_t i = at / c->piece_bytes;

        next = least((i + 1) * c->piece_bytes, stop);
        if (c->keep == NULL || c->keep[i])
            memcpy(c->to + at, c->from + at, next - at);
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

const void *cpu_weights_copy(void *ctx, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    struct cpu *c = ctx;
    struct copying v = { NULL, host, piece_bytes, piece_bytes * (size_t)n, keep };
    int64_t kept = 0;

    for (int64_t i = 0; i < n; i++)
        kept += keep == NULL || keep[i];
    if (!c->sketch && kept > 0 && piece_bytes > 0) {
        struct cpu_copy *one = malloc(sizeof *one);

        v.to = one == NULL ? NULL : pages(v.all_bytes, kept == n);
        if (v.to == NULL) {
            free(one);
            return NULL;
        }
        *one = (struct cpu_copy){ c->copies, v.to, v.all_bytes };
        c->copies = one;
        pool_for(c->pool, (int64_t)((v.all_bytes + SLICE_BYTES - 1) / SLICE_BYTES), 1, copy_slices, &v);
        host = v.to;
    }
    c->held += (size_t)kept * piece_bytes;
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
