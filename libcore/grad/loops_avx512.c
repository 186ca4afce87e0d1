/* SPDX-License-Identifier: Apache-2.0 */
/* loops_avx512.c - the inner loops for AVX-512: the bytes of loops_scalar.c. */
#include "grad/loops.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#include "grad/loops_body.h"

/* 12 rows of 16 columns, each an accumulator. */
#define EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define BEGIN(i) \
    const float *a##i = a[i]; \
    __m512 sum##i = _mm512_setzero_ps();
#define ADD(i) sum##i = _mm512_fmadd_ps(_mm512_set1_ps(a##i[t * a_k]), cols, sum##i);
#define PUT(i) _mm512_storeu_ps(out + (i)*GRAD_COLS, sum##i);

TARGET static void multiply_panel(float *out, const float *const *a, int64_t a_k, const float *b, int64_t n)
{
    EACH(BEGIN)
    for (int64_t t = 0; t < n; t++, b += GRAD_COLS) {
        const __m512 cols = _mm512_loadu_ps(b);

        EACH(ADD)
    }
    EACH(PUT)
}

GRAD_LOOPS(avx512, 12);
#endif
