/* SPDX-License-Identifier: Apache-2.0 */
/* ints_body.h - integer products for AVX-512, with or without VNNI.
 *
 * Included by files that define TARGET and DP(a, b, c): a plus the sums of pairs of products of 16-bit
 * numbers. A block's products are 16 running integers; then minima and scale are applied to 16 running
 * floats. Tiles of rows by vectors: int ROW VECTOR, sum ROW VECTOR. */

#include "cpu/kern_fold.h"

#define ROWS_4(F) F(0) F(1) F(2) F(3)
#define COLS_1(F, r) F(r, 0)
#define COLS_2(F, r) F(r, 0) F(r, 1)
#define COLS_3(F, r) F(r, 0) F(r, 1) F(r, 2)

#define SUM_ZERO(r, j)  __m512 sum##r##j = _mm512_setzero_ps();
#define FIRST(r, j)     __m512i int##r##j = _mm512_madd_epi16(w, x##j);
#define STEP(r, j)      int##r##j = DP(int##r##j, w, x##j);
#define LESS_MIN(r, j)  sum##r##j = _mm512_fnmadd_ps(m, _mm512_loadu_ps(x[j].sum + 16 * b), sum##r##j);
#define ADD(r, j) \
    sum##r##j = _mm512_fmadd_ps(_mm512_mul_ps(d, s##j), _mm512_cvtepi32_ps(int##r##j), sum##r##j);
#define LOAD_X(r, j)    x##j = _mm512_loadu_si512(x[j].q + at);
#define X_OF(r, j)      __m512i x##j;
#define X_SCALE(r, j)   __m512 s##j = _mm512_loadu_ps(x[j].scale + 16 * b);

#define W_ROW(r, i)     _mm512_loadu_si512(wq + (r) * k + (i))
#define OUT(r, j) /* of row 0: all four rows */ \
    sum0##j = fold_8_4(sum0##j, sum1##j, sum2##j, sum3##j); \
    sum0##j = fold_2(sum0##j, sum0##j); \
    sum0##j = _mm512_permutexvar_ps(pick, fold_1(sum0##j, sum0##j)); \
    _mm_storeu_ps(y[j] + out, _mm512_castps512_ps128(sum0##j));

#define TILE_4(COLS, name) \
TARGET static void name(float *const *y, int64_t out, const struct cpu_ints_panel *p, int64_t row, \
                        const struct quant_acts *acts, int64_t k) \
{ \
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12); \
    const int16_t *wq = p->u.w + row * k; \
    const float *scale = p->u.scale + row * (k / 256), *min = p->u.min + row * (k / 16); \
    const struct quant_acts *x = acts; \
    ALL(COLS, SUM_ZERO) \
    for (int64_t b = 0; b < k / 256; b++) { \
        int64_t at = 256 * b; \
        __m512i w; \
        COLS(X_OF, 0) \
        COLS(LOAD_X, 0) \
        w = W_ROW(0, at); COLS(FIRST, 0) \
        w = W_ROW(1, at); COLS(FIRST, 1) \
        w = W_ROW(2, at); COLS(FIRST, 2) \
        w = W_ROW(3, at); COLS(FIRST, 3) \
        for (at += 32; at < 256 * b + 256; at += 32) { \
            COLS(LOAD_X, 0) \
            w = W_ROW(0, at); COLS(STEP, 0) \
            w = W_ROW(1, at); COLS(STEP, 1) \
            w = W_ROW(2, at); COLS(STEP, 2) \
            w = W_ROW(3, at); COLS(STEP, 3) \
        } \
        if (p->has_min) { \
            __m512 m; \
            m = _mm512_loadu_ps(min + 16 * b); COLS(LESS_MIN, 0) \
            m = _mm512_loadu_ps(min + 16 * b + k / 16); COLS(LESS_MIN, 1) \
            m = _mm512_loadu_ps(min + 16 * b + k / 16 * 2); COLS(LESS_MIN, 2) \
            m = _mm512_loadu_ps(min + 16 * b + k / 16 * 3); COLS(LESS_MIN, 3) \
        } \
        __m512 d; \
        COLS(X_SCALE, 0) \
        d = _mm512_set1_ps(scale[b]); COLS(ADD, 0) \
        d = _mm512_set1_ps(scale[b + k / 256]); COLS(ADD, 1) \
        d = _mm512_set1_ps(scale[b + k / 256 * 2]); COLS(ADD, 2) \
        d = _mm512_set1_ps(scale[b + k / 256 * 3]); COLS(ADD, 3) \
    } \
    COLS(OUT, 0) \
}
#define ALL(COLS, F) COLS(F, 0) COLS(F, 1) COLS(F, 2) COLS(F, 3)

TILE_4(COLS_1, tile_4x1)
TILE_4(COLS_2, tile_4x2)
TILE_4(COLS_3, tile_4x3)

TARGET static float tile_1x1(const struct cpu_ints_panel *p, int64_t row, const struct quant_acts *x, int64_t k)
{
    const int16_t *w = p->u.w + row * k;
    const float *scale = p->u.scale + row * (k / 256), *min = p->u.min + row * (k / 16);
    __m512 sum = _mm512_setzero_ps();

    for (int64_t b = 0; b < k / 256; b++) {
        __m512i dot = _mm512_setzero_si512();

        for (int64_t i = 256 * b; i < 256 * b + 256; i += 32)
            dot = DP(dot, _mm512_loadu_si512(w + i), _mm512_loadu_si512(x->q + i));
        if (p->has_min)
            sum = _mm512_fnmadd_ps(_mm512_loadu_ps(min + 16 * b), _mm512_loadu_ps(x->sum + 16 * b), sum);
        __m512 s = _mm512_mul_ps(_mm512_set1_ps(scale[b]), _mm512_loadu_ps(x->scale + 16 * b));

        sum = _mm512_fmadd_ps(s, _mm512_cvtepi32_ps(dot), sum);
    }
    sum = fold_8_4(sum, sum, sum, sum);
    sum = fold_2(sum, sum);
    return _mm512_cvtss_f32(fold_1(sum, sum));
}

TARGET static void dots(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct quant_acts *x,
                        int nx, int64_t k)
{
    int i = 0;

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
            y[j][at + i] = tile_1x1(w, i, x + j, k);
}
