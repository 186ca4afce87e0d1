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
#define V_HALVES(p)    _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
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

#define EACH_4(F) F(0) F(1) F(2) F(3)
#define EACH_8(F) EACH_4(F) F(4) F(5) F(6) F(7)

/* Rows of w against one vector. */
#define ROW(r) \
    const W *w##r = w + r * ldw; \
    __m512 a##r = V_ZERO;
#define ROW_STEP(r) a##r = V_FMA(W_LOAD(w##r + i), v, a##r);
#define ROW_PART(r) a##r = PART_FMA(W_PART(w##r + i), v, a##r);
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

#define W          float
#define W_LOAD(p)  V_LOAD(p)
#define W_PART(p)  PART(p)
#define TILE(name) tile_##name
#define DOTS       dot_floats
#include "cpu/f32_dots_avx512.h"

#define W          uint16_t
#define W_LOAD(p)  V_HALVES(p)
#define W_PART(p)  _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p))
#define TILE(name) half_tile_##name
#define DOTS       dot_halves
#include "cpu/f32_dots_avx512.h"

KERNEL_SET(avx512);
#endif
