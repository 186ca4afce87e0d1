/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the room share.                                    room: measure */
#ifndef MEASURE_INTERNAL_H
#define MEASURE_INTERNAL_H
#include <stdint.h>

/* text.c: draws a token at temperature 1; u: a uniform random number from [0, 1). */
int32_t measure_draw(const float *logits, int32_t n, double u);
#endif
