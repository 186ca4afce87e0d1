/* SPDX-License-Identifier: Apache-2.0 */
/* f32_avx512.c - float kernels for AVX-512: the bytes of f32_scalar.c. The 16 running sums of a product
 * are the lanes of one register. */
#include "cpu/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <math.h>
#include <string.h>

#define TARGET         __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define VEC            __m512
#define LANES          16
#define V_LOAD(p)      _mm512_loadu_ps(p)
#define V_STORE(p, v)  _mm512_storeu_ps(p, v)
#define V_SET(f)       _mm512_set1_ps(f)
#define V_ZERO         _mm512_setzero_ps()
#define V_FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define V_MUL(a, b)    _mm512_mul_ps(a, b)
#define V_SUB(a, b)    _mm512_sub_ps(a, b)
#include "cpu/f32_body.h"
#include "cpu/f32_vec.h"
#include "cpu/f32_fold.h"

/* The last, partial group of 16: lanes past the end are neither read nor changed. */
#define PART(p)           _mm512_maskz_loadu_ps(mask, p)
#define PART_FMA(a, b, c) _mm512_mask3_fmadd_ps(a, b, c, mask)

static __mmask16 tail_mask(int64_t left)
{
    return (__mmask16)((1u << left) - 1u);
}

TARGET static void tile_1x1(float *y, const float *w, const float *x, int64_t k)
{
    __m512 a = V_ZERO;
    int64_t i = 0;

    for (; i + 16 <= k; i += 16)
        a = V_FMA(V_LOAD(w + i), V_LOAD(x + i), a);
    if (i < k) {
        __mmask16 mask = tail_mask(k - i);

        a = PART_FMA(PART(w + i), PART(x + i), a);
    }
    a = fold_8_4(a, a, a, a);
    a = fold_2(a, a);
    *y = _mm512_cvtss_f32(fold_1(a, a));
}

#define EACH_4(F) F(0) F(1) F(2) F(3)
#define EACH_8(F) EACH_4(F) F(4) F(5) F(6) F(7)

/* Rows of w against one vector. */
#define ROW(r) \
    const float *w##r = w + r * ldw; \
    __m512 a##r = V_ZERO;
#define ROW_STEP(r) a##r = V_FMA(V_LOAD(w##r + i), v, a##r);
#define ROW_PART(r) a##r = PART_FMA(PART(w##r + i), v, a##r);
#define ROWS(EACH) \
    EACH(ROW) \
    int64_t i = 0; \
    for (; i + 16 <= k; i += 16) { \
        __m512 v = V_LOAD(x + i); \
        EACH(ROW_STEP) \
    } \
    if (i < k) { \
        __mmask16 mask = tail_mask(k - i); \
        __m512 v = PART(x + i); \
        EACH(ROW_PART) \
    }

TARGET static void tile_4x1(float *y, const float *w, int64_t ldw, const float *x, int64_t k)
{
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);

    ROWS(EACH_4)
    a0 = fold_8_4(a0, a1, a2, a3);
    a0 = fold_2(a0, a0);
    a0 = _mm512_permutexvar_ps(pick, fold_1(a0, a0));
    _mm_storeu_ps(y, _mm512_castps512_ps128(a0));
}

TARGET static void tile_8x1(float *y, const float *w, int64_t ldw, const float *x, int64_t k)
{
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);

    ROWS(EACH_8)
    a0 = fold_2(fold_8_4(a0, a1, a2, a3), fold_8_4(a4, a5, a6, a7));
    a0 = _mm512_permutexvar_ps(pick, fold_1(a0, a0));
    _mm256_storeu_ps(y, _mm512_castps512_ps256(a0));
}

/* Four rows against four vectors: acc ROW VECTOR. */
#define ACC(j) __m512 a0##j = V_ZERO, a1##j = V_ZERO, a2##j = V_ZERO, a3##j = V_ZERO;
#define ACC_STEP(j) \
    v = V_LOAD(x##j + i); \
    a0##j = V_FMA(w0, v, a0##j); \
    a1##j = V_FMA(w1, v, a1##j); \
    a2##j = V_FMA(w2, v, a2##j); \
    a3##j = V_FMA(w3, v, a3##j);
#define ACC_PART(j) \
    v = PART(x##j + i); \
    a0##j = PART_FMA(w0, v, a0##j); \
    a1##j = PART_FMA(w1, v, a1##j); \
    a2##j = PART_FMA(w2, v, a2##j); \
    a3##j = PART_FMA(w3, v, a3##j);

TARGET static void tile_4x4(float *const *y, int64_t at, const float *w, int64_t ldw, const float *const *x, int64_t k)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const float *p1 = w + ldw, *p2 = w + 2 * ldw, *p3 = w + 3 * ldw;
    int64_t i = 0;

    EACH_4(ACC)
    for (; i + 16 <= k; i += 16) {
        __m512 w0 = V_LOAD(w + i), w1 = V_LOAD(p1 + i), w2 = V_LOAD(p2 + i), w3 = V_LOAD(p3 + i), v;

        EACH_4(ACC_STEP)
    }
    if (i < k) {
        __mmask16 mask = tail_mask(k - i);
        __m512 w0 = PART(w + i), w1 = PART(p1 + i), w2 = PART(p2 + i), w3 = PART(p3 + i), v;

        EACH_4(ACC_PART)
    }
    a00 = fold_2(fold_8_4(a00, a01, a02, a03), fold_8_4(a10, a11, a12, a13));
    a20 = fold_2(fold_8_4(a20, a21, a22, a23), fold_8_4(a30, a31, a32, a33));
    a00 = fold_1(a00, a20);
    _mm_storeu_ps(y[0] + at, _mm512_castps512_ps128(a00));
    _mm_storeu_ps(y[1] + at, _mm512_extractf32x4_ps(a00, 1));
    _mm_storeu_ps(y[2] + at, _mm512_extractf32x4_ps(a00, 2));
    _mm_storeu_ps(y[3] + at, _mm512_extractf32x4_ps(a00, 3));
}

TARGET static void dot_floats(float *const *y, int64_t at, const float *w, int64_t ldw, int nw, const float *const *x,
                              int nx, int64_t k)
{
    int i = 0;

    if (nx < 4)
        for (; i + 8 <= nw; i += 8)
            for (int j = 0; j < nx; j++)
                tile_8x1(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    for (; i + 4 <= nw; i += 4) {
        int j = 0;

        for (; j + 4 <= nx; j += 4)
            tile_4x4(y + j, at + i, w + i * ldw, ldw, x + j, k);
        for (; j < nx; j++)
            tile_4x1(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    }
    for (; i < nw; i++)
        for (int j = 0; j < nx; j++)
            tile_1x1(y[j] + at + i, w + i * ldw, x[j], k);
}

KERNEL_SET(avx512);
#endif
