/* SPDX-License-Identifier: Apache-2.0 */
/* ints_body.h - integer products for AVX-512, with or without VNNI.
 *
 * Included by files that define TARGET; DP(a, b, c), a plus the sums of pairs of products of 16-bit
 * numbers; and STEPS(COLS), which is STEP_4(COLS, i) for i = 32, 64 ... 224. A block's products are 16
 * running integers; then minima and scale are applied to 16 running floats. Tiles of rows by vectors:
 * int ROW VECTOR, sum ROW VECTOR. */

#include "cpu/kern_fold.h"

#define COLS_1(F, r) F(r, 0)
#define COLS_2(F, r) F(r, 0) F(r, 1)
#define COLS_3(F, r) F(r, 0) F(r, 1) F(r, 2)

#define VECTOR(r, j)    const struct quant_acts *x##j = x[j];
#define NEXT(r, j)      x##j++;
#define SUM_ZERO(r, j)  __m512 sum##r##j = _mm512_setzero_ps();
#define V_OF(r, j)      __m512i v##j = _mm512_load_si512(x##j->q);
#define FIRST(r, j)     __m512i int##r##j = _mm512_madd_epi16(w, v##j);
#define LOAD_V(i, j)    v##j = _mm512_load_si512(x##j->q + i);
#define STEP(r, j)      int##r##j = DP(int##r##j, w, v##j);
#define LESS_MIN(r, j)  sum##r##j = _mm512_fnmadd_ps(f, _mm512_load_ps(x##j->sum), sum##r##j);
#define ADD(r, j) \
    sum##r##j = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_load_ps(x##j->scale)), _mm512_cvtepi32_ps(int##r##j), \
                                sum##r##j);
#define OUT(r, j) /* of row 0: all four rows */ \
    sum0##j = fold_8_4(sum0##j, sum1##j, sum2##j, sum3##j); \
    sum0##j = fold_2(sum0##j, sum0##j); \
    sum0##j = _mm512_permutexvar_ps(pick, fold_1(sum0##j, sum0##j)); \
    _mm_storeu_ps(y[j] + out, _mm512_castps512_ps128(sum0##j));

#define STEP_4(COLS, i) \
    COLS(LOAD_V, i) \
    w = _mm512_load_si512(w0->w + i); COLS(STEP, 0) \
    w = _mm512_load_si512(w1->w + i); COLS(STEP, 1) \
    w = _mm512_load_si512(w2->w + i); COLS(STEP, 2) \
    w = _mm512_load_si512(w3->w + i); COLS(STEP, 3)
#define TILE_4(COLS, name) \
TARGET static void name(float *const *y, int64_t out, const struct cpu_ints_panel *p, int64_t row, \
                        const struct quant_acts *const *x, int64_t k) \
{ \
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12); \
    const struct quant_ints *w0 = p->u + row * (k / 256), *w1 = w0 + k / 256; \
    const struct quant_ints *w2 = w1 + k / 256, *w3 = w2 + k / 256; \
    COLS(VECTOR, 0) \
    ALL(COLS, SUM_ZERO) \
    for (int64_t b = 0; b < k / 256; b++, w0++, w1++, w2++, w3++) { \
        __m512i w; \
        __m512 f; \
        COLS(V_OF, 0) \
        w = _mm512_load_si512(w0->w); COLS(FIRST, 0) \
        w = _mm512_load_si512(w1->w); COLS(FIRST, 1) \
        w = _mm512_load_si512(w2->w); COLS(FIRST, 2) \
        w = _mm512_load_si512(w3->w); COLS(FIRST, 3) \
        STEPS(COLS) \
        if (p->has_min) { \
            f = _mm512_load_ps(w0->min); COLS(LESS_MIN, 0) \
            f = _mm512_load_ps(w1->min); COLS(LESS_MIN, 1) \
            f = _mm512_load_ps(w2->min); COLS(LESS_MIN, 2) \
            f = _mm512_load_ps(w3->min); COLS(LESS_MIN, 3) \
        } \
        f = _mm512_load_ps(w0->scale); COLS(ADD, 0) \
        f = _mm512_load_ps(w1->scale); COLS(ADD, 1) \
        f = _mm512_load_ps(w2->scale); COLS(ADD, 2) \
        f = _mm512_load_ps(w3->scale); COLS(ADD, 3) \
        COLS(NEXT, 0) \
    } \
    COLS(OUT, 0) \
}
#define ALL(COLS, F) COLS(F, 0) COLS(F, 1) COLS(F, 2) COLS(F, 3)

TILE_4(COLS_1, tile_4x1)
TILE_4(COLS_2, tile_4x2)
TILE_4(COLS_3, tile_4x3)

TARGET static float tile_1x1(const struct quant_ints *w, const struct quant_acts *x, int64_t k, bool has_min)
{
    __m512 sum = _mm512_setzero_ps();

    for (int64_t b = 0; b < k / 256; b++, w++, x++) {
        __m512i dot = _mm512_setzero_si512();

        for (int i = 0; i < 256; i += 32)
            dot = DP(dot, _mm512_load_si512(w->w + i), _mm512_load_si512(x->q + i));
        if (has_min)
            sum = _mm512_fnmadd_ps(_mm512_load_ps(w->min), _mm512_load_ps(x->sum), sum);
        __m512 scale = _mm512_mul_ps(_mm512_load_ps(w->scale), _mm512_load_ps(x->scale));

        sum = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dot), sum);
    }
    sum = fold_8_4(sum, sum, sum, sum);
    sum = fold_2(sum, sum);
    return _mm512_cvtss_f32(fold_1(sum, sum));
}

TARGET static void dots(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct quant_acts *const *x,
                        int nx, int64_t k)
{
    int i = 0;

    if (w->groups) { /* no faster in these registers: eight lanes share a scale */
        cpu_ints_avx2.dots(y, at, w, x, nx, k);
        return;
    }
    for (; i + 4 <= w->n; i += 4) {
        int j = 0;

        for (; j + 3 <= nx; j += 3)
            tile_4x3(y + j, at + i, w, i, x + j, k);
        if (j + 2 == nx)
            tile_4x2(y + j, at + i, w, i, x + j, k);
        else if (j < nx)
            tile_4x1(y + j, at + i, w, i, x + j, k);
    }
    for (; i < w->n; i++)
        for (int j = 0; j < nx; j++)
            y[j][at + i] = tile_1x1(w->u + i * (k / 256), x[j], k, w->has_min);
}
