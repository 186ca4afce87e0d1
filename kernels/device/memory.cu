/* SPDX-License-Identifier: Apache-2.0 */
/* memory.cu - device memory, and how much of it is taken.
 *
 * The driver allocates in pieces of 2 MiB, and that is how memory is counted. Weights go into one allocation if their
 * sum is known before (cuda_reserve_weights). A dry run counts the same and allocates nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

extern "C" {
#include "base/pool.h"
}
#include "kernels/device/cuda.h"

enum { PAD = 512, PIECE = 2 << 20, SLAB = 64 << 20, SMALL = 8 << 20 };
/* Of the first piece that is not asked for: code books, data of a step, what rounding adds to the weights. */
enum { OWN = 3 * PIECE };
/* Kernels are loaded as they are first used: with graphs some 24 MiB on an H200. */
enum { CODE = 32 << 20 };
/* A context that takes more than this is not alone on its device. */
#define CONTEXT_MOST ((size_t)1 << 30)

void *cuda_take(struct cuda *c, size_t n)
{
    void *p = NULL;

    (void)cudaSetDevice(c->id);
    if (cudaMalloc(&p, n + PAD) != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return p;
}

void cuda_count(struct cuda *c, size_t n, bool more)
{
    size_t pieces = round_up(n + PAD, PIECE);

    c->held += more ? pieces : 0 - pieces;
}

void *cuda_alloc(struct cuda *c, size_t n)
{
    void *p;

    if (c->dry_run) { /* an address that stands for it */
        p = mmap(NULL, n + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        p = p == MAP_FAILED ? NULL : p;
    } else {
        p = cuda_take(c, n);
        if (p != NULL)
            TRY(c, cudaMemsetAsync(p, 0, n + PAD, c->stream));
    }
    if (p != NULL)
        cuda_count(c, n, true);
    return p;
}

void cuda_release(struct cuda *c, void *p, size_t n)
{
    cuda_count(c, n, false);
    if (c->dry_run) {
        (void)munmap(p, n + 1);
        return;
    }
    (void)cudaSetDevice(c->id);
    cuda_flush(c);
    cuda_drop_graphs(c);
    (void)cudaFree(p);
}

/* ---- weights ---- */

static size_t place_bytes(size_t n)
{
    return round_up(n + 64, 256);
}

static bool new_block(struct cuda *c, size_t n)
{
    struct weight_block *b = (struct weight_block *)malloc(sizeof *b);

    if (b == NULL)
        return false;
    b->p = (unsigned char *)cuda_take(c, n);
    b->next = c->weights;
    if (b->p == NULL) {
        free(b);
        return false;
    }
    c->weights = b;
    return true;
}

bool cuda_reserve_weights(struct cuda *c, size_t n)
{
    if (c->dry_run)
        return true;
    if (!new_block(c, n))
        return false;
    c->slab = c->weights->p;
    c->slab_left = n;
    return true;
}

/* A place for n bytes of weights: small ones share slabs. */
static unsigned char *place_weights(struct cuda *c, size_t n)
{
    size_t need = place_bytes(n);
    unsigned char *p;

    if (c->slab_left < need) {
        if (!new_block(c, need > SMALL ? need : (size_t)SLAB))
            return NULL;
        if (need > SMALL)
            return c->weights->p;
        c->slab = c->weights->p;
        c->slab_left = SLAB;
    }
    p = c->slab;
    c->slab += need;
    c->slab_left -= need;
    return p;
}

struct copying {
    unsigned char *to;
    const unsigned char *from;
};

static void copy_some(void *ctx, int64_t begin, int64_t end, int)
{
    const struct copying *x = (const struct copying *)ctx;

    memcpy(x->to + begin, x->from + begin, (size_t)(end - begin));
}

/* Threads for weights that are large enough: one copies about a tenth of what the bus takes. */
static void open_loaders(struct cuda *c, size_t n)
{
    enum { MOST = 12 };
    struct err e;

    if (c->loaders != NULL || n < 2 * (size_t)BOUNCE)
        return;
    const int cpus = pool_cpus();
    if (cpus > 1 && pool_open(&c->loaders, cpus < MOST ? cpus : MOST, &e) != ERR_OK)
        c->loaders = NULL; /* it takes longer */
}

void cuda_loaded(struct cuda *c)
{
    pool_close(c->loaders);
    c->loaders = NULL;
}

static void upload(struct cuda *c, unsigned char *to, const void *host, size_t n)
{
    enum { GRAIN = 256 << 10 };

    open_loaders(c, n);
    for (size_t at = 0; at < n; at += BOUNCE) {
        size_t part = n - at < BOUNCE ? n - at : (size_t)BOUNCE;
        int i = c->bounce_next;

        c->bounce_next = 1 - i;
        TRY(c, cudaEventSynchronize(c->bounce_done[i]));
        struct copying some = { c->bounce[i], (const unsigned char *)host + at };
        if (c->loaders != NULL)
            pool_for(c->loaders, (int64_t)part, GRAIN, copy_some, &some);
        else
            copy_some(&some, 0, (int64_t)part, 0);
        TRY(c, cudaMemcpyAsync(to + at, c->bounce[i], part, cudaMemcpyHostToDevice, c->stream));
        TRY(c, cudaEventRecord(c->bounce_done[i], c->stream));
    }
}

const void *cuda_weights_some(struct cuda *c, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    const unsigned char *from = (const unsigned char *)host;
    size_t all = 0;

    for (int64_t i = 0; i < n; i++)
        all += keep == NULL || keep[i] ? piece_bytes : 0;
    c->held += place_bytes(all);
    if (c->dry_run)
        return host;
    (void)cudaSetDevice(c->id);
    unsigned char *p = place_weights(c, all), *to = p;
    for (int64_t i = 0; p != NULL && i < n;) { /* neighbours go together */
        int64_t k = i;

        while (k < n && (keep == NULL || keep[k]))
            k++;
        upload(c, to, from + (size_t)i * piece_bytes, (size_t)(k - i) * piece_bytes);
        to += (size_t)(k - i) * piece_bytes;
        for (i = k; i < n && !keep[i];)
            i++;
    }
    if (p != NULL) /* kernels may read a little past the end, for nothing */
        TRY(c, cudaMemsetAsync(p + all, 0, 64, c->stream));
    return c->bad != cudaSuccess ? NULL : p;
}

const void *cuda_weights(struct cuda *c, const void *host, size_t n)
{
    return cuda_weights_some(c, host, n, 1, NULL);
}

/* ---- rows that are taken from the host ---- */

const void *cuda_weights_rows(struct cuda *c, const void *host, size_t n)
{
    struct matrix *m = c->matrix;

    for (int i = 0; i < LOOKUPS; i++)
        if (m[i].from == NULL) {
            m[i] = (struct matrix){ (const unsigned char *)host, n };
            return host;
        }
    return cuda_weights(c, host, n);
}

bool cuda_is_lookup(const struct cuda *c, const void *w)
{
    const unsigned char *p = (const unsigned char *)w;

    for (int i = 0; i < LOOKUPS; i++)
        if (c->matrix[i].from != NULL && p >= c->matrix[i].from && p < c->matrix[i].from + c->matrix[i].n)
            return true;
    return false;
}

void cuda_lookup_close(struct lookup *l)
{
    (void)cudaFreeHost(l->host);
    (void)cudaFree(l->dev);
    l->host = l->dev = NULL;
    l->cap = 0;
}

void cuda_lookup_reserve(struct cuda *c)
{
    struct lookup *l = &c->lane->lookup;

    if (l->need <= l->cap)
        return;
    if (l->cap > 0)
        cuda_count(c, l->cap, false);
    cuda_count(c, l->need, true);
    if (!c->dry_run) {
        TRY(c, cudaStreamSynchronize(c->stream));
        cuda_drop_graphs(c);
        cuda_lookup_close(l);
        TRY(c, cudaMallocHost((void **)&l->host, l->need));
        l->dev = (unsigned char *)cuda_take(c, l->need);
        if (l->dev == NULL)
            cuda_fail(c, cudaErrorMemoryAllocation, "rows");
    }
    l->cap = l->need;
}

void *cuda_look_up(struct cuda *c, const void *w, size_t row_bytes, const int32_t *token, int64_t n)
{
    struct lookup *l = &c->lane->lookup;
    size_t need = round_up((size_t)n * row_bytes, 256);
    unsigned char *at;

    if (c->measuring) {
        l->measured += need;
        l->need = l->measured > l->need ? l->measured : l->need;
        return NULL;
    }
    if (l->used + need > l->cap) { /* what is recorded has the others */
        cuda_flush(c);
        l->need = need > l->need ? need : l->need;
        cuda_lookup_reserve(c);
    }
    if (c->bad != cudaSuccess)
        return NULL;
    at = l->host + l->used;
    for (int64_t i = 0; i < n; i++)
        memcpy(at + (size_t)i * row_bytes, (const unsigned char *)w + (size_t)token[i] * row_bytes, row_bytes);
    l->used += need;
    return l->dev + (at - l->host);
}

/* ---- how much ---- */

size_t cuda_held(struct cuda *c)
{
    return OWN + c->held;
}

/* Before anything is taken: what the context takes, where nobody else's memory hides it. */
void cuda_look(struct cuda *c)
{
    size_t left = 0, total = 0;

    c->mem = (struct dev_memory){ true, -1, -1, -1, false };
    if (cudaMemGetInfo(&left, &total) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    c->mem.free_bytes = (int64_t)(left > CODE ? left - CODE : 0);
    c->mem.total_bytes = (int64_t)total;
    if (total - left <= CONTEXT_MOST)
        c->mem.fixed_bytes = (int64_t)(total - left) + CODE;
}

struct dev_memory cuda_memory(struct cuda *c)
{
    size_t left = 0, total = 0;

    if (c->dry_run)
        return c->mem;
    (void)cudaSetDevice(c->id);
    TRY(c, cudaMemGetInfo(&left, &total));
    return (struct dev_memory){ true, (int64_t)total, (int64_t)left, -1, false };
}
