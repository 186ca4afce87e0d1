/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - temperature and the stages that drop tokens.                         room: sample
 *
 * Each of top-k, top-p and typical keeps a beginning of the candidates in some order. None is
 * sorted: a radix descent over 32-bit keys (11, 11 and 10 bits) adds up counts or weights per bin
 * and finds the key at which the target is reached, in three passes on any data. Before that,
 * bounds drop most of the vocabulary: the k-th largest block maximum is not above the k-th largest
 * logit; and tokens with w < (1 - p) * total / n weigh less than (1 - p) * total together, so top-p
 * is reached without them. Larger bounds on w are tried before that one: real distributions have a
 * head that suffices, and then most blocks are never opened.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "sample/chain.h"

/* Ascending keys for descending values. -0 and 0 tie. */
static uint32_t key_of(float v)
{
    uint32_t bits;
    float plus = v + 0.0f;
    memcpy(&bits, &plus, sizeof bits);
    return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

struct edge {
    uint32_t key;  /* smaller keys stay */
    double before; /* what they sum to */
};

/* Where the sum over ascending keys reaches target; w NULL counts entries. */
static struct edge find_edge(const uint32_t *key, const float *w, int32_t n, double target, double *bins)
{
    static const struct {
        int shift, bits;
    } digits[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
    struct edge at = { 0, 0 };
    uint32_t mask = 0;
    for (int d = 0; d < 3; d++) {
        uint32_t n_bins = 1u << digits[d].bits, bin = 0;
        memset(bins, 0, n_bins * sizeof *bins);
        for (int32_t i = 0; i < n; i++) {
            if ((key[i] & mask) == at.key) {
                bins[key[i] >> digits[d].shift & (n_bins - 1)] += w ? (double)w[i] : 1;
            }
        }
        double sum = at.before;
        for (uint32_t b = 0; b < n_bins; b++) {
            if (bins[b] > 0) { /* the last one is the edge if rounding keeps sum below target */
                bin = b;
                at.before = sum;
                sum += bins[b];
                if (sum >= target) {
                    break;
                }
            }
        }
        at.key |= bin << digits[d].shift;
        mask |= (n_bins - 1) << digits[d].shift;
    }
    return at;
}

static void total_up(struct sampler *s)
{
    int32_t n_blocks = (s->n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    for (int32_t i = s->n; i < n_blocks * SAMPLE_BLOCK; i++) {
        s->w[i] = 0;
    }
    for (int32_t b = 0; b < n_blocks; b++) {
        s->block_sum[b] = s->sums[b] = s->kernels->sum(s->w + (size_t)b * SAMPLE_BLOCK);
    }
    s->total = softmax_fold(s->sums, n_blocks);
    s->weighed = true;
}

void sample_weigh(struct sampler *s)
{
    int32_t n_blocks = (s->n + SAMPLE_BLOCK - 1) / SAMPLE_BLOCK;
    if (s->weighed) {
        return;
    }
    if (s->sparse && s->dense) { /* only known tokens matter, but total is of all */
        for (int32_t b = 0; b < s->n_blocks; b++) {
            size_t at = (size_t)b * SAMPLE_BLOCK;
            if (s->block_max[b] >= -FLT_MAX) {
                s->kernels->weigh(s->x + at, s->w + at, s->max, s->inv_temp);
            }
        }
        s->total = s->heated;
        s->lacking = s->lacking || s->edited;
        s->weighed = true;
        return;
    }
    for (int32_t i = s->n; i < n_blocks * SAMPLE_BLOCK; i++) {
        s->x[i] = -INFINITY;
    }
    for (int32_t b = 0; b < n_blocks; b++) {
        size_t at = (size_t)b * SAMPLE_BLOCK;
        s->kernels->weigh(s->x + at, s->w + at, s->max, s->inv_temp);
    }
    total_up(s);
}

/* Candidate `from` becomes number `to` of the list. */
static void move_candidate(struct sampler *s, int32_t to, int32_t from)
{
    s->x[to] = s->x[from];
    s->id[to] = s->dense ? from : s->id[from];
    if (s->weighed) {
        s->w[to] = s->w[from];
    }
}

/* From all of the vocabulary to the list of logits not below floor, and of weights not below
 * w_floor when weighed. total still is that of all: the caller cuts further. Each entry is moved
 * and then counted or not: a branch here would be guessed wrong too often. */
static void gather_candidates(struct sampler *s, float floor, float w_floor)
{
    int32_t n = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        if (s->block_max[b] < floor) {
            continue;
        }
        int32_t end = b < s->n_blocks - 1 ? (b + 1) * SAMPLE_BLOCK : s->n_vocab;
        for (int32_t i = b * SAMPLE_BLOCK; i < end; i++) {
            int keep = (s->x[i] >= floor) & (s->x[i] >= -FLT_MAX);
            if (s->weighed) {
                keep &= s->w[i] >= w_floor;
            }
            move_candidate(s, n, i);
            n += keep;
        }
    }
    s->n = n;
    s->dense = false;
}

/* Keeps the candidates that come first by key until their weights, or their number, reach target;
 * of equal keys the lowest ids. */
static void keep_first(struct sampler *s, double target, bool by_weight)
{
    struct edge at = find_edge(s->key, by_weight ? s->w : NULL, s->n, target, s->bins);
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        bool keep = s->key[i] < at.key;
        if (s->key[i] == at.key && at.before < target) {
            at.before += by_weight ? (double)s->w[i] : 1;
            keep = true;
        }
        if (keep) {
            move_candidate(s, n++, i);
        }
    }
    s->n = n;
    if (s->weighed) {
        total_up(s);
    }
}

static void key_by_logit(struct sampler *s)
{
    for (int32_t i = 0; i < s->n; i++) {
        s->key[i] = key_of(s->x[i]);
    }
}

/* The logit whose weight is w, less a margin far above the rounding of either. */
static float floor_of(const struct sampler *s, double w)
{
    double floor = (double)s->max + (log(w) - 0.01) / (double)s->inv_temp;
    floor -= fabs(floor) * 1e-6;
    return floor > -(double)FLT_MAX ? (float)floor : -FLT_MAX;
}

/* Within 1e-30 and 1e30 the difference of two logits times this is never NaN. */
float sample_inv_temp(const struct sample_opts *o)
{
    return o->temp < 1e-30f ? 1e30f : o->temp > 1e30f ? 1e-30f : 1 / o->temp;
}

enum err_code sample_stage_temp(struct sampler *s, struct err *e)
{
    (void)e;
    s->inv_temp = sample_inv_temp(&s->opts);
    return ERR_OK;
}

enum err_code sample_stage_top_k(struct sampler *s, struct err *e)
{
    (void)e;
    int32_t k = s->opts.top_k;
    if (k >= s->n) {
        return ERR_OK;
    }
    if (s->dense) {
        float floor = -INFINITY;
        if (k < s->n_blocks) {
            for (int32_t b = 0; b < s->n_blocks; b++) {
                s->key[b] = key_of(s->block_max[b]);
            }
            struct edge at = find_edge(s->key, NULL, s->n_blocks, k, s->bins);
            floor = s->max;
            for (int32_t b = 0; b < s->n_blocks; b++) {
                if (s->key[b] <= at.key && s->block_max[b] < floor) {
                    floor = s->block_max[b];
                }
            }
        }
        gather_candidates(s, floor, 0);
    }
    if (k < s->n) {
        key_by_logit(s);
        keep_first(s, k, false);
    }
    float least = s->n < k ? -INFINITY : s->x[0]; /* fewer: all that there are must be known */
    for (int32_t i = 1; i < s->n; i++) {
        least = s->x[i] < least ? s->x[i] : least;
    }
    sample_needs(s, least);
    return ERR_OK;
}

/* The sum of all weights from w_floor up, while dense. */
static double weight_above(const struct sampler *s, float w_floor)
{
    float floor = floor_of(s, (double)w_floor), w[SAMPLE_BLOCK];
    double sum = 0;
    for (int32_t b = 0; b < s->n_blocks; b++) {
        if (s->block_max[b] >= floor) {
            const float *from = s->w + (size_t)b * SAMPLE_BLOCK;
            for (int32_t i = 0; i < SAMPLE_BLOCK; i++) {
                w[i] = from[i] >= w_floor ? from[i] : 0;
            }
            sum += s->kernels->sum(w);
        }
    }
    return sum;
}

/* Some token that may weigh w_floor is not known. */
static bool lacks(struct sampler *s, double w_floor)
{
    sample_needs(s, floor_of(s, w_floor));
    return s->lacking;
}

enum err_code sample_stage_top_p(struct sampler *s, struct err *e)
{
    (void)e;
    double p = (double)s->opts.top_p;
    sample_weigh(s);
    double target = fmax(p * s->total, DBL_MIN); /* p of 0 keeps one */
    if (s->dense) {
        double bound = 0.999 * (1 - p) * s->total / s->n, w_floor = 1.0 / 64;
        while (w_floor > bound && !lacks(s, w_floor) && weight_above(s, (float)w_floor) < target * (1 + 1e-9)) {
            w_floor /= 64; /* 1e-9: more than the sums' rounding */
        }
        w_floor = fmax(w_floor, bound);
        if (lacks(s, w_floor)) {
            return ERR_OK;
        }
        gather_candidates(s, floor_of(s, w_floor), (float)w_floor);
    }
    key_by_logit(s);
    keep_first(s, target, true);
    return ERR_OK;
}

enum err_code sample_stage_min_p(struct sampler *s, struct err *e)
{
    (void)e;
    if (s->dense) {
        if (lacks(s, (double)s->opts.min_p)) {
            return ERR_OK;
        }
        gather_candidates(s, floor_of(s, (double)s->opts.min_p), 0);
    }
    sample_weigh(s);
    float best = 0;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n; i++) {
        best = s->w[i] > best ? s->w[i] : best;
    }
    for (int32_t i = 0; i < s->n; i++) {
        if (s->w[i] >= s->opts.min_p * best) {
            move_candidate(s, n++, i);
        }
    }
    s->n = n;
    total_up(s);
    return ERR_OK;
}

/* Meister et al., "Locally typical sampling", 2022. */
enum err_code sample_stage_typical(struct sampler *s, struct err *e)
{
    (void)e;
    if (s->dense && s->sparse) {
        s->lacking = true;
        return ERR_OK;
    }
    sample_weigh(s);
    if (s->dense) {
        gather_candidates(s, -FLT_MAX, FLT_MIN);
    }
    double log_total = log(s->total), entropy = 0;
    for (int32_t i = 0; i < s->n; i++) {
        double info = ((double)s->max - (double)s->x[i]) * (double)s->inv_temp + log_total;
        entropy += (double)s->w[i] / s->total * info;
    }
    for (int32_t i = 0; i < s->n; i++) {
        double info = ((double)s->max - (double)s->x[i]) * (double)s->inv_temp + log_total;
        float off = (float)fmin(fabs(info - entropy), (double)FLT_MAX);
        memcpy(&s->key[i], &off, sizeof off); /* floats that are not negative order like integers */
    }
    keep_first(s, fmax((double)s->opts.typical_p * s->total, DBL_MIN), true);
    return ERR_OK;
}
