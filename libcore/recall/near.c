/* SPDX-License-Identifier: Apache-2.0 */
/* near.c - texts by vectors, and lists of hits.                               room: recall */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "base/simd.h"
#include "recall/internal.h"

enum { GRAIN = 512 };

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

/* ---- vectors ---- */

/* The same additions in the same order with and without wider registers: -ffp-contract=off keeps products rounded. */
#define DOT_BODY \
    float sum[LANES] = { 0 }; \
\
    for (uint64_t i = 0; i < n; i += LANES) \
        for (int j = 0; j < LANES; j++) \
            sum[j] += a[i + (uint64_t)j] * b[i + (uint64_t)j]; \
    for (int j = 0; j < 8; j++) /* by constants, which stay in registers */ \
        sum[j] += sum[j + 8]; \
    for (int j = 0; j < 4; j++) \
        sum[j] += sum[j + 4]; \
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);

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

struct graph recall_graph_of(const struct recall *r)
{
    return (struct graph){ r->dot,
                           r->vector,
                           r->s.n_texts,
                           r->stride,
                           r->entry,
                           (uint8_t *)(uintptr_t)r->level,
                           (uint32_t *)(uintptr_t)r->link,
                           (uint32_t *)(uintptr_t)r->upper,
                           r->upper_at,
                           r->s.n_upper };
}

enum err_code recall_near(const struct recall *r, const float *v, int k, bool all, struct pool *pool,
                          struct recall_hit *hits, int *n, struct err *e)
{
    const struct graph g = recall_graph_of(r);
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

/* ---- both ---- */

/* The weights of BM25's score beside the best one, of the share and of the cosine: learnt on the half `tune` of
 * share/eval/retrieval.tsv for a model's vectors and for static ones, and rounded. */
static const int weights[2][3] = { { 1, 1, 1 }, { 1, 2, 3 } };

enum err_code recall_fuse(const struct recall *r, const float *v, const struct recall_hit *words, int n_words,
                          const struct recall_hit *near, int n_near, int k, struct recall_hit *hits, int *n,
                          struct err *e)
{
    const size_t n_all = (size_t)n_words + (size_t)n_near;
    const int *weight = weights[r->s.maker != RECALL_MODEL];
    const float most = n_words > 0 ? words[0].score : 1, least = n_near > 0 ? near[n_near - 1].score : 0;
    struct recall_hit *all = malloc((n_all + 1) * sizeof *all);
    float *to = calloc((size_t)r->stride + 1, sizeof *to);

    if (all == NULL || to == NULL) {
        free(all);
        free(to);
        return err_nomem(e);
    }
    if (n_near > 0)
        recall_aim(r, v, to);
    for (size_t i = 0; i < n_all; i++) {
        const bool by_words = i < (size_t)n_words;
        const struct recall_hit h = by_words ? words[i] : near[i - (size_t)n_words];
        const float *own = r->vector + (uint64_t)h.text * r->stride;
        float cosine = by_words ? least : h.score; /* where it cannot be known, the least that was found */

        if (by_words && n_near > 0 && r->s.outside_bytes == 0)
            cosine = r->dot(to, own, r->stride);
        all[i] = h;
        all[i].score = (float)weight[2] * cosine;
        if (by_words)
            all[i].score += (float)weight[0] * (most > 0 ? h.score / most : 0) + (float)weight[1] * h.share;
    }
    qsort(all, n_all, sizeof *all, by_text);
    *n = 0;
    for (size_t i = 0; i < n_all; i++) {
        if (i + 1 < n_all && all[i + 1].text == all[i].text) { /* in both lists: what words give is the more */
            all[i + 1].score = fmaxf(all[i].score, all[i + 1].score);
            all[i + 1].share = fmaxf(all[i].share, all[i + 1].share);
        } else
            recall_keep(hits, n, k, all[i]);
    }
    free(all);
    free(to);
    return ERR_OK;
}
