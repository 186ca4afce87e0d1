/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c - the passes over logits, for plain C and for AVX2.                  room: base */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "base/softmax.h"

#define KERNEL(name) name##_plain
#define TARGET
#include "base/softmax_body.h"
#undef KERNEL
#undef TARGET

#if defined(__x86_64__)
#define KERNEL(name) name##_avx2
#define TARGET       __attribute__((target("avx2")))
#include "base/softmax_body.h"
#undef KERNEL
#undef TARGET
#endif

const struct softmax_kernels *softmax_kernels_for(unsigned features)
{
#if defined(__x86_64__)
    if (features & SIMD_AVX2) {
        return &kernels_avx2;
    }
#endif
    (void)features;
    return &kernels_plain;
}

double softmax_fold(double *sum, int32_t n)
{
    int32_t half = 1;

    while (half < n) {
        half *= 2;
    }
    for (half /= 2; half > 0; half /= 2) {
        for (int32_t i = 0; i + half < n && i < half; i++) {
            sum[i] += sum[i + half];
        }
    }
    return n > 0 ? sum[0] : 0;
}
