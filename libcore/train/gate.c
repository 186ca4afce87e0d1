/* SPDX-License-Identifier: Apache-2.0 */
/* gate.c - a paired test. */
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
