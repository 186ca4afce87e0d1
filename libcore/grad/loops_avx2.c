/* SPDX-License-Identifier: Apache-2.0 */
/* loops_avx2.c - the inner loops for AVX2 with FMA: the bytes of loops_scalar.c. */
#include "grad/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma")))
#include "grad/loops_body.h"

/* 6 rows of 16 columns: 12 accumulators. */
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5)
#define BEGIN(i) \
    const float *a##i = a[i]; \
    __m256 lo##i = _mm256_setzero_ps(), hi##i = lo##i;
#define ADD(i) \
    x = _mm256_broadcast_ss(a##i + t * a_k); \
    lo##i = _mm256_fmadd_ps(x, lo, lo##i); \
    hi##i = _mm256_fmadd_ps(x, hi, hi##i);
#define PUT(i) \
    _mm256_storeu_ps(out + (i)*GRAD_COLS, lo##i); \
    _mm256_storeu_ps(out + (i)*GRAD_COLS + 8, hi##i);

TARGET static void multiply_panel(float *out, const float *const *a, int64_t a_k, const float *b, int64_t n)
{
    EACH(BEGIN)
    for (int64_t t = 0; t < n; t++, b += GRAD_COLS) {
        __m256 lo = _mm256_loadu_ps(b), hi = _mm256_loadu_ps(b + 8), x;

        EACH(ADD)
    }
    EACH(PUT)
}

GRAD_LOOPS(avx2, 6);
#endif
