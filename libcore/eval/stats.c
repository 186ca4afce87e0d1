/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - intervals, tests, means of groups. */
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "eval/eval.h"

struct eval_interval eval_wilson(int64_t right, int64_t n, double z)
{
    double N = (double)n, p, mid, half;

    if (n <= 0)
        return (struct eval_interval){ 0, 1 };
    p = (double)right / N;
    mid = (p + z * z / (2 * N)) / (1 + z * z / N);
    half = z / (1 + z * z / N) * sqrt(p * (1 - p) / N + z * z / (4 * N * N));
    return (struct eval_interval){ right == 0 ? 0 : mid - half, right == n ? 1 : mid + half };
}

double eval_mcnemar(int64_t b, int64_t c)
{
    int64_t n = b + c, less = b < c ? b : c;
    double p = 0;

    if (n == 0)
        return 1;
    for (int64_t i = 0; i <= less; i++) /* binomial(n, 1/2), both tails */
        p += exp(lgamma((double)n + 1) - lgamma((double)i + 1) - lgamma((double)(n - i) + 1) - (double)n * log(2));
    return p < 0.5 ? 2 * p : 1;
}

struct eval_interval eval_paired(int64_t both, int64_t b, int64_t c, int64_t n, double z)
{
    const double N = (double)n, p = (double)(both + b) / N, q = (double)(both + c) / N;
    const struct eval_interval i = eval_wilson(both + b, n, z), j = eval_wilson(both + c, n, z);
    const int64_t neither = n - both - b - c;
    const double product = (double)(both + b) * (double)(c + neither) * (double)(both + c) * (double)(b + neither);
    double phi = (double)both * (double)neither - (double)b * (double)c, down, up;

    if (n <= 0)
        return (struct eval_interval){ -1, 1 };
    phi = phi > N / 2 ? phi - N / 2 : phi < 0 ? phi : 0; /* with the correction for continuity */
    phi = product > 0 ? phi / sqrt(product) : 0;
    down = (p - i.lo) * (p - i.lo) - 2 * phi * (p - i.lo) * (j.hi - q) + (j.hi - q) * (j.hi - q);
    up = (i.hi - p) * (i.hi - p) - 2 * phi * (i.hi - p) * (q - j.lo) + (q - j.lo) * (q - j.lo);
    return (struct eval_interval){ p - q - sqrt(down > 0 ? down : 0), p - q + sqrt(up > 0 ? up : 0) };
}

struct eval_mean eval_group_mean(const double *sum, const int64_t *n, int64_t n_groups)
{
    struct eval_mean m = { 0, 0 };
    double total = 0, squares = 0;
    int64_t count = 0, groups = 0;

    for (int64_t i = 0; i < n_groups; i++) {
        total += sum[i];
        count += n[i];
        groups += n[i] > 0;
    }
    if (count == 0)
        return m;
    m.mean = total / (double)count;
    for (int64_t i = 0; i < n_groups; i++) {
        double d = sum[i] - m.mean * (double)n[i];

        squares += d * d;
    }
    if (groups > 1)
        m.se = sqrt(squares * (double)groups / (double)(groups - 1)) / (double)count;
    return m;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

void eval_sort(double *v, int64_t n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
}

double eval_quantile(const double *sorted, int64_t n, double q)
{
    double at = q * (double)(n - 1);
    int64_t i = (int64_t)at;

    if (i >= n - 1)
        return sorted[n - 1];
    return sorted[i] + (at - (double)i) * (sorted[i + 1] - sorted[i]);
}

enum err_code eval_bootstrap(struct eval_interval *out, const double *v, int64_t n, int rounds, uint64_t seed,
                             struct err *e)
{
    double *mean;

    if (n < 1 || rounds < 1)
        return err_set(e, ERR_ARG, "a bootstrap needs values and rounds");
    mean = calloc((size_t)rounds, sizeof *mean);
    if (mean == NULL)
        return err_nomem(e);
    for (int r = 0; r < rounds; r++) {
        double sum = 0;

        for (int64_t i = 0; i < n; i += 4) { /* four draws from each block of random bits */
            uint32_t bits[4];

            rng_block(bits, seed, (uint64_t)r, (uint64_t)i / 4);
            for (int64_t j = 0; j < 4 && i + j < n; j++)
                sum += v[(int64_t)((uint64_t)bits[j] * (uint64_t)n >> 32)];
        }
        mean[r] = sum / (double)n;
    }
    eval_sort(mean, rounds);
    *out = (struct eval_interval){ eval_quantile(mean, rounds, 0.025), eval_quantile(mean, rounds, 0.975) };
    free(mean);
    return ERR_OK;
}

struct scored {
    double score;
    bool right;
};

static int by_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;

    return (x->score > y->score) - (x->score < y->score);
}

enum err_code eval_auc(struct eval_mean *out, const double *score, const bool *right, int64_t n, struct err *e)
{
    struct scored *v = calloc((size_t)n + 1, sizeof *v);
    double above = 0, yes = 0, no, a, q1, q2;

    if (v == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < n; i++)
        v[i] = (struct scored){ score[i], right[i] };
    qsort(v, (size_t)n, sizeof *v, by_score);
    no = 0; /* wrong ones with a lower score */
    for (int64_t from = 0, to; from < n; from = to) {
        double rights = 0;

        for (to = from; to < n && v[to].score <= v[from].score; to++)
            rights += v[to].right;
        above += rights * (no + 0.5 * ((double)(to - from) - rights));
        no += (double)(to - from) - rights;
        yes += rights;
    }
    free(v);
    a = above / (yes * no);
    q1 = a / (2 - a);
    q2 = 2 * a * a / (1 + a);
    *out =
        (struct eval_mean){ a, sqrt((a * (1 - a) + (yes - 1) * (q1 - a * a) + (no - 1) * (q2 - a * a)) / (yes * no)) };
    return ERR_OK;
}
