/* SPDX-License-Identifier: Apache-2.0 */
/* f32_avx2.c - float kernels for AVX2 with FMA: the bytes of f32_scalar.c. The 16 running sums of a
 * product are the lanes of two registers. */
#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define TARGET         __attribute__((target("avx2,fma,f16c")))
#define VEC            __m256
#define LANES          8
#define V_LOAD(p)      _mm256_loadu_ps(p)
#define V_HALVES(p)    _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p)))
#define V_STORE(p, v)  _mm256_storeu_ps(p, v)
#define V_SET(f)       _mm256_set1_ps(f)
#define V_ZERO         _mm256_setzero_ps()
#define V_FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define V_MUL(a, b)    _mm256_mul_ps(a, b)
#define V_SUB(a, b)    _mm256_sub_ps(a, b)
#include "cpu/f32_body.h"
#include "cpu/f32_vec.h"

/* The last, partial group of 8: lanes past the end are neither read nor changed. */
#define PART(p)           _mm256_maskload_ps(p, mask)
#define PART_FMA(a, b, c) _mm256_blendv_ps(c, V_FMA(a, b, c), _mm256_castsi256_ps(mask))

TARGET static inline __m256i tail_mask(int64_t left)
{
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);

    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left), lane);
}

/* The first two steps of the fold (sum[j] += sum[j + 8], then 4) for two products: four sums each. */
TARGET static inline __m256 fold_8_4(__m256 a_lo, __m256 a_hi, __m256 b_lo, __m256 b_hi)
{
    __m256 a = _mm256_add_ps(a_lo, a_hi), b = _mm256_add_ps(b_lo, b_hi);

    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* The third step: in each half, two sums of a, then two of b. */
TARGET static inline __m256 fold_2(__m256 a, __m256 b)
{
    __m256d x = _mm256_castps_pd(a), y = _mm256_castps_pd(b);

    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}

/* The last step: in each half, one sum for each pair of a, then of b. */
TARGET static inline __m256 fold_1(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}

/* Two rows (0, 1) against some vectors: lo ROW VECTOR, hi ROW VECTOR. */
#define ACC(j) __m256 lo0##j = V_ZERO, hi0##j = V_ZERO, lo1##j = V_ZERO, hi1##j = V_ZERO;
#define STEP(half, off, j) \
    v = V_LOAD(x##j + i + off); \
    half##0##j = V_FMA(p, v, half##0##j); \
    half##1##j = V_FMA(q, v, half##1##j);
#define LAST(half, off, j) \
    v = PART(x##j + i + off); \
    half##0##j = PART_FMA(p, v, half##0##j); \
    half##1##j = PART_FMA(q, v, half##1##j);
#define STEP_LO(j) STEP(lo, 0, j)
#define STEP_HI(j) STEP(hi, 8, j)
#define LAST_LO(j) LAST(lo, 0, j)
#define LAST_HI(j) LAST(hi, 8, j)
#define TWO_ROWS(EACH) \
    const W *w1 = w + ldw; \
    int64_t i = 0; \
    EACH(ACC) \
    for (; i + 16 <= k; i += 16) { \
        __m256 p = W_LOAD(w + i), q = W_LOAD(w1 + i), v; \
        EACH(STEP_LO) \
        p = W_LOAD(w + i + 8); \
        q = W_LOAD(w1 + i + 8); \
        EACH(STEP_HI) \
    } \
    if (i < k) { \
        __m256i mask = tail_mask(k - i); \
        __m256 p = W_PART(w + i, k - i), q = W_PART(w1 + i, k - i), v; \
        EACH(LAST_LO) \
        mask = tail_mask(k - i - 8); \
        p = W_PART(w + i + 8, k - i - 8); \
        q = W_PART(w1 + i + 8, k - i - 8); \
        EACH(LAST_HI) \
    }
#define EACH_1(F) F(0)
#define EACH_3(F) F(0) F(1) F(2)

/* Four rows against one vector: eight running registers. */
#define ROW(r) \
    const W *w##r = w + r * ldw; \
    __m256 lo##r = V_ZERO, hi##r = V_ZERO;
#define ROW_STEP(r) \
    lo##r = V_FMA(W_LOAD(w##r + i), u, lo##r); \
    hi##r = V_FMA(W_LOAD(w##r + i + 8), v, hi##r);

/* Of n numbers, which may be fewer than 8, or none. */
TARGET static inline __m256 part_halves(const uint16_t *p, int64_t n)
{
    uint16_t h[8] = { 0 };

    if (n > 0)
        memcpy(h, p, (size_t)(n < 8 ? n : 8) * sizeof *h);
    return V_HALVES(h);
}

#define W            float
#define W_LOAD(p)    V_LOAD(p)
#define W_PART(p, n) PART(p)
#define TILE(name)   tile_##name
#define DOTS         dot_floats
#include "cpu/f32_dots_avx2.h"

#define W            uint16_t
#define W_LOAD(p)    V_HALVES(p)
#define W_PART(p, n) part_halves(p, n)
#define TILE(name)   half_tile_##name
#define DOTS         dot_halves
#include "cpu/f32_dots_avx2.h"

KERNEL_SET(avx2);
#endif
