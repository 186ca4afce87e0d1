/* SPDX-License-Identifier: Apache-2.0 */
/* f32_avx2.c - float kernels for AVX2 with FMA: the bytes of f32_scalar.c. The 16 running sums of a
 * product are the lanes of two registers. */
#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define TARGET         __attribute__((target("avx2,fma")))
#define VEC            __m256
#define LANES          8
#define V_LOAD(p)      _mm256_loadu_ps(p)
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
    const float *w1 = w + ldw; \
    int64_t i = 0; \
    EACH(ACC) \
    for (; i + 16 <= k; i += 16) { \
        __m256 p = V_LOAD(w + i), q = V_LOAD(w1 + i), v; \
        EACH(STEP_LO) \
        p = V_LOAD(w + i + 8); \
        q = V_LOAD(w1 + i + 8); \
        EACH(STEP_HI) \
    } \
    if (i < k) { \
        __m256i mask = tail_mask(k - i); \
        __m256 p = PART(w + i), q = PART(w1 + i), v; \
        EACH(LAST_LO) \
        mask = tail_mask(k - i - 8); \
        p = PART(w + i + 8); \
        q = PART(w1 + i + 8); \
        EACH(LAST_HI) \
    }
#define EACH_1(F) F(0)
#define EACH_3(F) F(0) F(1) F(2)

TARGET static void tile_2x3(float *const *y, int64_t at, const float *w, int64_t ldw, const float *const *x, int64_t k)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2];

    TWO_ROWS(EACH_3)
    __m256 a = fold_8_4(lo00, hi00, lo10, hi10), b = fold_8_4(lo01, hi01, lo11, hi11);
    __m256 c = fold_8_4(lo02, hi02, lo12, hi12), sum = fold_1(fold_2(a, b), fold_2(c, c));
    float out[8];

    _mm256_storeu_ps(out, sum);
    for (int j = 0; j < 3; j++) {
        y[j][at] = out[j];
        y[j][at + 1] = out[j + 4];
    }
}

TARGET static void tile_2x1(float *y, const float *w, int64_t ldw, const float *x0, int64_t k)
{
    TWO_ROWS(EACH_1)
    __m256 sum = fold_8_4(lo00, hi00, lo10, hi10);

    sum = fold_2(sum, sum);
    sum = fold_1(sum, sum);
    y[0] = _mm256_cvtss_f32(sum);
    y[1] = _mm_cvtss_f32(_mm256_extractf128_ps(sum, 1));
}

/* Four rows against one vector: eight running registers. */
#define ROW(r) \
    const float *w##r = w + r * ldw; \
    __m256 lo##r = V_ZERO, hi##r = V_ZERO;
#define ROW_STEP(r) \
    lo##r = V_FMA(V_LOAD(w##r + i), u, lo##r); \
    hi##r = V_FMA(V_LOAD(w##r + i + 8), v, hi##r);

TARGET static void tile_4x1(float *y, const float *w, int64_t ldw, const float *x, int64_t k)
{
    ROW(0) ROW(1) ROW(2) ROW(3) for (int64_t i = 0; i < k; i += 16)
    {
        __m256 u = V_LOAD(x + i), v = V_LOAD(x + i + 8);

        ROW_STEP(0) ROW_STEP(1) ROW_STEP(2) ROW_STEP(3)
    }
    __m256 ab = fold_2(fold_8_4(lo0, hi0, lo2, hi2), fold_8_4(lo1, hi1, lo3, hi3));
    ab = fold_1(ab, ab); /* 0 1 0 1, 2 3 2 3 */
    _mm_storeu_ps(y, _mm_movelh_ps(_mm256_castps256_ps128(ab), _mm256_extractf128_ps(ab, 1)));
}

TARGET static void tile_1x1(float *y, const float *w, const float *x, int64_t k)
{
    __m256 lo = V_ZERO, hi = V_ZERO;
    int64_t i = 0;

    for (; i + 16 <= k; i += 16) {
        lo = V_FMA(V_LOAD(w + i), V_LOAD(x + i), lo);
        hi = V_FMA(V_LOAD(w + i + 8), V_LOAD(x + i + 8), hi);
    }
    if (i < k) {
        __m256i mask = tail_mask(k - i);

        lo = PART_FMA(PART(w + i), PART(x + i), lo);
        mask = tail_mask(k - i - 8);
        hi = PART_FMA(PART(w + i + 8), PART(x + i + 8), hi);
    }
    lo = fold_8_4(lo, hi, lo, hi);
    lo = fold_2(lo, lo);
    *y = _mm256_cvtss_f32(fold_1(lo, lo));
}

TARGET static void dot_floats(float *const *y, int64_t at, const float *w, int64_t ldw, int nw, const float *const *x,
                              int nx, int64_t k)
{
    int i = 0;

    if (nx < 3 && k % 16 == 0)
        for (; i + 4 <= nw; i += 4)
            for (int j = 0; j < nx; j++)
                tile_4x1(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    for (; i + 2 <= nw; i += 2) {
        int j = 0;

        for (; j + 3 <= nx; j += 3)
            tile_2x3(y + j, at + i, w + i * ldw, ldw, x + j, k);
        for (; j < nx; j++)
            tile_2x1(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    }
    for (; i < nw; i++)
        for (int j = 0; j < nx; j++)
            tile_1x1(y[j] + at + i, w + i * ldw, x[j], k);
}

KERNEL_SET(avx2);
#endif
