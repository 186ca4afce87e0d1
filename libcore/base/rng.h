/* SPDX-License-Identifier: Apache-2.0 */
/* rng.h - counter-based random numbers: a pure function of (seed, stream, counter). room: base
 *
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). No state,
 * so any draw can be repeated alone, in a batch, or on another device.
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H
#include <stdint.h>

void rng_block(uint32_t out[4], uint64_t seed, uint64_t stream, uint64_t counter);
double rng_unit(uint64_t seed, uint64_t stream, uint64_t counter); /* uniform in [0, 1), 53 bits */
float rng_gauss(uint64_t seed, uint64_t stream, uint64_t counter); /* mean 0, variance 1 */
#endif
