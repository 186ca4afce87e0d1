/* SPDX-License-Identifier: Apache-2.0 */
/* isotonic.c - which share of answers with a score is right; thresholds that lose nothing (calibration.h).  room:
 * reason
 */
#include <math.h>
#include <stdlib.h>

#include "reason/calibration.h"

struct pair {
    double x, y, weight;
};

static int by_x(const void *a, const void *b)
{
    const struct pair *p = a, *q = b;

    return (p->x > q->x) - (p->x < q->x);
}

/* Equal scores become one pair. */
static size_t merge_equal(struct pair *v, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        if (k > 0 && v[k - 1].x >= v[i].x) {
            const double w = v[k - 1].weight + v[i].weight;

            v[k - 1].y = (v[k - 1].y * v[k - 1].weight + v[i].y * v[i].weight) / w;
            v[k - 1].weight = w;
        } else {
            v[k++] = v[i];
        }
    }
    return k;
}

struct block {
    size_t from, to; /* pairs */
    double y, weight;
};

static size_t pool(struct block *b, const struct pair *v, size_t n)
{
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        b[k++] = (struct block){ i, i, v[i].y, v[i].weight };
        for (; k > 1 && b[k - 2].y >= b[k - 1].y; k--) {
            const double w = b[k - 2].weight + b[k - 1].weight;

            b[k - 2].y = (b[k - 2].y * b[k - 2].weight + b[k - 1].y * b[k - 1].weight) / w;
            b[k - 2].weight = w;
            b[k - 2].to = b[k - 1].to;
        }
    }
    return k;
}

enum err_code reason_isotonic_fit(struct reason_isotonic *out, const double *score, const bool *right,
                                  const double *weight, size_t n, struct err *e)
{
    struct pair *v = calloc(n + 1, sizeof *v);
    struct block *b = calloc(n + 1, sizeof *b);
    size_t n_blocks;

    *out = (struct reason_isotonic){ calloc(2 * n + 1, sizeof(double)), calloc(2 * n + 1, sizeof(double)), 0 };
    if (v == NULL || b == NULL || out->x == NULL || out->y == NULL) {
        free(v);
        free(b);
        reason_isotonic_free(out);
        return err_nomem(e);
    }
    for (size_t i = 0; i < n; i++)
        v[i] = (struct pair){ score[i], right[i], weight != NULL ? weight[i] : 1 };
    qsort(v, n, sizeof *v, by_x);
    n_blocks = pool(b, v, merge_equal(v, n));
    for (size_t i = 0; i < n_blocks; i++)
        for (int end = 0; end < 1 + (b[i].to > b[i].from); end++) {
            out->x[out->n] = v[end == 0 ? b[i].from : b[i].to].x;
            out->y[out->n++] = b[i].y;
        }
    free(v);
    free(b);
    return ERR_OK;
}

double reason_isotonic_at(const struct reason_isotonic *m, double x)
{
    size_t i = 0;

    if (m->n == 0)
        return (double)NAN;
    while (i < m->n && m->x[i] <= x)
        i++;
    if (i == 0 || i == m->n)
        return m->y[i == 0 ? 0 : m->n - 1];
    return m->y[i - 1] + (m->y[i] - m->y[i - 1]) * (x - m->x[i - 1]) / (m->x[i] - m->x[i - 1]);
}

void reason_isotonic_free(struct reason_isotonic *m)
{
    free(m->x);
    free(m->y);
    *m = (struct reason_isotonic){ 0 };
}

double reason_calibration_error(const double *p, const bool *right, size_t n)
{
    double sum[10] = { 0 }, off = 0;

    for (size_t i = 0; i < n; i++) {
        const int bin = (int)(p[i] * 10);

        sum[bin < 0 ? 0 : bin > 9 ? 9 : bin] += p[i] - right[i];
    }
    for (int i = 0; i < 10; i++)
        off += fabs(sum[i]);
    return off / (double)n;
}

double reason_brier(const double *p, const bool *right, size_t n)
{
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += (p[i] - right[i]) * (p[i] - right[i]);
    return sum / (double)n;
}

/* ---- thresholds ---- */

const char *reason_thinks_name(enum reason_thinks t)
{
    static const char *const names[] = { "always", "never", "below" };

    return names[t];
}

/* The first choice that is in doubt; n_p: there is none. */
static size_t first_doubt(struct reason_threshold t, const struct reason_trial_item *item)
{
    size_t i = 0;

    while (i < item->n_p && !(item->p[i] < t.below))
        i++;
    return i;
}

bool reason_threshold_right(struct reason_threshold t, const struct reason_trial_item *item)
{
    const bool thinks =
        t.thinks == REASON_THINKS_ALWAYS || (t.thinks == REASON_THINKS_BELOW && first_doubt(t, item) < item->n_p);

    return thinks ? item->thought_right : item->direct_right;
}

int64_t reason_threshold_tokens(struct reason_threshold t, const struct reason_trial_item *item)
{
    size_t at;

    if (t.thinks != REASON_THINKS_BELOW)
        return t.thinks == REASON_THINKS_ALWAYS ? item->thought_tokens : item->direct_tokens;
    at = first_doubt(t, item);
    return at == item->n_p ? item->direct_tokens : item->thought_tokens + (int64_t)at + 1;
}

double reason_score(const struct reason_trial_item *item)
{
    double least = 1;

    for (size_t i = 0; i < item->n_p; i++)
        least = (double)item->p[i] < least ? (double)item->p[i] : least;
    return least;
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static void try_threshold(struct reason_threshold *best, int64_t *fewest, struct reason_threshold t,
                          const struct reason_trial_item *item, size_t n, int64_t least_right)
{
    int64_t tokens = 0, right = 0;

    for (size_t i = 0; i < n; i++) {
        tokens += reason_threshold_tokens(t, &item[i]);
        right += reason_threshold_right(t, &item[i]);
    }
    if (right < least_right || tokens >= *fewest)
        return;
    *fewest = tokens;
    *best = t;
}

/* A threshold between two scores decides as the middle of them does: these are all there are. From high to low, so that
 * of equal ones the higher stays. */
enum err_code reason_threshold_pick(struct reason_threshold *out, const struct reason_trial_item *item, size_t n,
                                    struct err *e)
{
    float *score = calloc(n + 1, sizeof *score);
    int64_t fewest = INT64_MAX, right = 0;

    if (score == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        score[i] = (float)reason_score(&item[i]);
        right += item[i].thought_right;
    }
    qsort(score, n, sizeof *score, ascending);
    *out = (struct reason_threshold){ .thinks = REASON_THINKS_ALWAYS };
    try_threshold(out, &fewest, *out, item, n, right);
    for (size_t i = n; i-- > 1;)
        if (score[i - 1] < score[i])
            try_threshold(
                out, &fewest,
                (struct reason_threshold){ REASON_THINKS_BELOW, score[i - 1] + (score[i] - score[i - 1]) / 2 }, item, n,
                right);
    if (n > 0)
        try_threshold(out, &fewest, (struct reason_threshold){ .thinks = REASON_THINKS_NEVER }, item, n, right);
    free(score);
    return ERR_OK;
}
