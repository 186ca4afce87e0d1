/* SPDX-License-Identifier: Apache-2.0 */
/* kern_avx2.c - CPU kernels for AVX2 with FMA: the bytes of kern_scalar.c. */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "cpu/kernels.h"

#define TARGET __attribute__((target("avx2,fma")))
#include "cpu/kern_body.h"

/* Element i of the last, partial group of 16 is loaded where i < left, else 0. */
TARGET static __m256 load_part(const float *p, int64_t left)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left), lane);

    return _mm256_maskload_ps(p, mask);
}

/* sum[j] += sum[j + 8], then 4, 2, 1 */
TARGET static float fold(__m256 lo, __m256 hi)
{
    __m256 s8 = _mm256_add_ps(lo, hi);
    __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));

    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_shuffle_ps(s2, s2, 1)));
}

/* Up to two weight rows against up to three vectors: twelve accumulators. */
TARGET static void tile_1x1(float *y, const float *w, const float *x, int64_t k)
{
    __m256 lo = _mm256_setzero_ps(), hi = _mm256_setzero_ps();
    int64_t i = 0;

    for (; i + 16 <= k; i += 16) {
        lo = _mm256_fmadd_ps(_mm256_loadu_ps(w + i), _mm256_loadu_ps(x + i), lo);
        hi = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 8), _mm256_loadu_ps(x + i + 8), hi);
    }
    if (i < k) {
        int64_t left = k - i, right = left > 8 ? left - 8 : 0;

        lo = _mm256_fmadd_ps(load_part(w + i, left), load_part(x + i, left), lo);
        if (right > 0)
            hi = _mm256_fmadd_ps(load_part(w + i + 8, right), load_part(x + i + 8, right), hi);
    }
    *y = fold(lo, hi);
}

TARGET static void dots(float *const *y, int64_t at, const float *w, int64_t ldw, int nw, const float *const *x,
                 int nx, int64_t k)
{
    for (int j = 0; j < nx; j++)
        for (int i = 0; i < nw; i++)
            tile_1x1(&y[j][at + i], w + i * ldw, x[j], k);
}

KERNEL_SET(avx2);
