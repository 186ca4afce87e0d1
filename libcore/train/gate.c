/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c - paired tests. */
#include "train/gate.h"

#include <math.h>

#include "base/rng.h"

double train_gate(const double *gain, int64_t n, uint64_t seed)
{
    enum { DRAWS = 20000 };
    double sum = 0, size = 0;
    int64_t more = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += gain[i];
        size += fabs(gain[i]);
    }
    if (!(size > 0))
        return 1;
    for (int64_t d = 0; d < DRAWS; d++) {
        double drawn = 0;

        for (int64_t i = 0; i < n; i += 128) {
            uint32_t bits[4];

            rng_block(bits, seed, (uint64_t)d, (uint64_t)(i / 128));
            for (int64_t j = 0; j < 128 && i + j < n; j++)
                drawn += bits[j / 32] >> (j % 32) & 1 ? gain[i + j] : -gain[i + j];
        }
        more += drawn >= sum - 1e-9 * size;
    }
    return (double)(more + 1) / (DRAWS + 1);
}

/* Of Tango's score: how far the difference that was seen is from `by`, in standard errors. */
static double score_of(double lost, double won, double n, double by)
{
    const double a = 2 * n, b = (2 * n - lost + won) * by - lost - won, c = -won * by * (1 - by);
    const double rest = b * b - 4 * a * c, share = (sqrt(rest > 0 ? rest : 0) - b) / (2 * a);
    const double variance = n * (2 * share + by * (1 - by));

    return variance > 0 ? (lost - won - n * by) / sqrt(variance) : 0;
}

double train_loss_bound(double lost, double won, int64_t n, double z)
{
    double low, high = 1;

    if (n <= 0)
        return 1;
    low = (lost - won) / (double)n;
    for (int i = 0; i < 60; i++) {
        const double by = (low + high) / 2;

        if (score_of(lost, won, (double)n, by) > -z)
            low = by;
        else
            high = by;
    }
    return high;
}
