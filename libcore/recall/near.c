/* SPDX-License-Identifier: Apache-2.0 */
/* near.c - texts by vectors, and lists of hits.                               room: recall */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/simd.h"
#include "recall/internal.h"

enum { RANKS_FROM = 10, GRAIN = 512 };

/* ---- lists ---- */

static bool better(const struct recall_hit *a, const struct recall_hit *b)
{
    return a->score > b->score || (a->score == b->score && a->text < b->text);
}

void recall_keep(struct recall_hit *hits, int *n, int k, struct recall_hit h)
{
    int at = *n;

    if (k <= 0 || (at == k && !better(&h, &hits[k - 1])))
        return;
    at -= at == k;
    for (; at > 0 && better(&h, &hits[at - 1]); at--)
        hits[at] = hits[at - 1];
    hits[at] = h;
    *n += *n < k;
}

static int by_text(const void *a, const void *b)
{
    const struct recall_hit *x = a, *y = b;

    return (x->text > y->text) - (x->text < y->text);
}

enum err_code recall_fuse(const struct recall_hit *a, int n_a, const struct recall_hit *b, int n_b, int k,
                          struct recall_hit *hits, int *n, struct err *e)
{
    struct recall_hit *v = malloc(((size_t)n_a + (size_t)n_b + 1) * sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    for (int i = 0; i < n_a + n_b; i++) {
        const int rank = i < n_a ? i : i - n_a;

        v[i] = i < n_a ? a[i] : b[rank];
        v[i].score = 1.0F / (float)(RANKS_FROM + rank);
    }
    qsort(v, (size_t)(n_a + n_b), sizeof *v, by_text);
    *n = 0;
    for (int i = 0; i < n_a + n_b; i++) {
        if (i + 1 < n_a + n_b && v[i + 1].text == v[i].text) {
            v[i + 1].score += v[i].score; /* of two: exact in either order */
            v[i + 1].share = fmaxf(v[i].share, v[i + 1].share);
        } else
            recall_keep(hits, n, k, v[i]);
    }
    free(v);
    return ERR_OK;
}

/* ---- vectors ---- */

/* The same additions in the same order with and without wider registers: -ffp-contract=off keeps products rounded. */
#define DOT_BODY \
    float sum[LANES] = { 0 }; \
\
    for (uint64_t i = 0; i < n; i += LANES) \
        for (int j = 0; j < LANES; j++) \
            sum[j] += a[i + (uint64_t)j] * b[i + (uint64_t)j]; \
    for (int w = LANES / 2; w > 0; w /= 2) \
        for (int j = 0; j < w; j++) \
            sum[j] += sum[j + w]; \
    return sum[0];

static float dot_plain(const float *a, const float *b, uint64_t n)
{
    DOT_BODY
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static float dot_avx2(const float *a, const float *b, uint64_t n){ DOT_BODY }
#endif

recall_dot *recall_dot_best(void)
{
#if defined(__x86_64__)
    if (simd_features() & SIMD_AVX2)
        return dot_avx2;
#endif
    return dot_plain;
}

void recall_direct(float *v, const float *mean, uint64_t dims)
{
    double sum = 0;

    for (uint64_t i = 0; i < dims; i++) {
        v[i] -= mean[i];
        sum += (double)v[i] * (double)v[i];
    }
    const double scale = sum > 0 && isfinite(sum) ? 1 / sqrt(sum) : 0;

    for (uint64_t i = 0; i < dims; i++)
        v[i] = isfinite(v[i]) ? (float)((double)v[i] * scale) : 0;
}

struct scan {
    const struct recall *r;
    const float *v;
    float *score;
};

static void scan(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct scan *s = ctx;

    (void)worker;
    for (int64_t i = begin; i < end; i++)
        s->score[i] = s->r->dot(s->v, s->r->vector + (uint64_t)i * s->r->stride, s->r->stride);
}

static enum err_code compare_all(const struct recall *r, const float *v, int k, struct pool *pool,
                                 struct recall_hit *hits, int *n, struct err *e)
{
    struct scan s = { r, v, malloc(((size_t)r->s.n_texts + 1) * sizeof(float)) };

    if (s.score == NULL)
        return err_nomem(e);
    if (pool != NULL)
        pool_for(pool, (int64_t)r->s.n_texts, GRAIN, scan, &s);
    else
        scan(&s, 0, (int64_t)r->s.n_texts, 0);
    *n = 0;
    for (uint64_t i = 0; i < r->s.n_texts; i++)
        recall_keep(hits, n, k, (struct recall_hit){ (int64_t)i, s.score[i], 0 });
    free(s.score);
    return ERR_OK;
}

void recall_aim(const struct recall *r, const float *v, float *to)
{
    memcpy(to, v, (size_t)r->s.dims * sizeof *to);
    recall_direct(to, r->mean, r->s.dims);
}

enum err_code recall_near(const struct recall *r, const float *v, int k, bool all, struct pool *pool,
                          struct recall_hit *hits, int *n, struct err *e)
{
    const struct graph g = { r->dot,
                             r->vector,
                             r->s.n_texts,
                             r->stride,
                             r->entry,
                             (uint8_t *)(uintptr_t)r->level,
                             (uint32_t *)(uintptr_t)r->link,
                             (uint32_t *)(uintptr_t)r->upper,
                             r->upper_at,
                             r->s.n_upper };
    float *to;
    enum err_code code;

    if (r->s.outside_bytes > 0)
        return err_set(e, ERR_UNSUPPORTED, "the vectors are in another file");
    to = calloc((size_t)r->stride + 1, sizeof *to);
    if (to == NULL)
        return err_nomem(e);
    recall_aim(r, v, to);
    code = all || r->upper_at == NULL || k > WIDTH / 2 ? compare_all(r, to, k, pool, hits, n, e)
                                                       : recall_graph_search(&g, to, k, hits, n, e);
    free(to);
    return code;
}
