/* SPDX-License-Identifier: Apache-2.0 */
/* rng.c - Philox4x32-10 and what is drawn from it (rng.h).                     room: base
 *
 * One round multiplies two of the four counter words by constants and mixes the high halves with
 * the key; the key moves by a Weyl sequence (golden ratio, sqrt(3) - 1) between rounds. The counter
 * words are (counter low, counter high, stream low, stream high), the key is (seed low, high).
 */
#include <math.h>
#include "base/rng.h"

void rng_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t x0 = (uint32_t)counter, x1 = (uint32_t)(counter >> 32);
    uint32_t x2 = (uint32_t)stream, x3 = (uint32_t)(stream >> 32);
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * x0;
        uint64_t b = (uint64_t)0xCD9E8D57u * x2;
        x0 = (uint32_t)(b >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)b;
        x2 = (uint32_t)(a >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

/* The upper 53 of 64 bits, so that every value is a double exactly and 1 is never reached. */
static double unit_of(uint32_t low, uint32_t high)
{
    uint64_t bits = (uint64_t)high << 32 | low;
    return (double)(bits >> 11) * 0x1p-53;
}

double rng_unit(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t x[4];
    rng_block(x, seed, stream, counter);
    return unit_of(x[0], x[1]);
}

/* Box and Muller: radius from one uniform number, angle from another. 1 - u is in (0, 1], where
 * the logarithm is finite. */
float rng_gauss(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint32_t x[4];
    rng_block(x, seed, stream, counter);
    double radius = sqrt(-2.0 * log(1.0 - unit_of(x[0], x[1])));
    return (float)(radius * cos(6.283185307179586 * unit_of(x[2], x[3])));
}
