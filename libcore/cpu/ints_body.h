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

/* Where weights have a scale for each 32: eight lanes are of one group, eight of the one after the next. Two rows
 * by two vectors, which may be the same. */
#define GROUP_DOT(r, j) \
    t##r##j = _mm512_fmadd_ps( \
        f##r, _mm512_cvtepi32_ps(DP(_mm512_madd_epi16(e##r, xe##j), o##r, xo##j)), t##r##j);
#define GROUP_SUM(r, j) sum##r##j = _mm512_fmadd_ps(_mm512_load_ps(x##j->scale), t##r##j, sum##r##j);
#define GROUP_OUT(r, j) \
    sum##r##j = fold_8_4(sum##r##j, sum##r##j, sum##r##j, sum##r##j); \
    sum##r##j = fold_2(sum##r##j, sum##r##j); \
    out[r][j] = _mm512_cvtss_f32(fold_1(sum##r##j, sum##r##j));
#define ALL_4(F) F(0, 0) F(0, 1) F(1, 0) F(1, 1)
TARGET static void group_tile(float out[2][2], const struct quant_ints *w0, const struct quant_ints *w1,
                              const struct quant_acts *x0, const struct quant_acts *x1, int64_t n_blocks)
{
    const __m512i two = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2);
    __m512 sum00 = _mm512_setzero_ps(), sum01 = sum00, sum10 = sum00, sum11 = sum00;

    for (int64_t b = 0; b < n_blocks; b++, w0++, w1++, x0++, x1++) {
        __m512 t00 = _mm512_setzero_ps(), t01 = t00, t10 = t00, t11 = t00;

        for (int i = 0; i < 256; i += 64) {
            __m512i at = _mm512_add_epi32(two, _mm512_set1_epi32(i / 128 * 4 + i / 64 % 2));
            __m512i e0 = _mm512_load_si512(w0->w + i), o0 = _mm512_load_si512(w0->w + i + 32);
            __m512i e1 = _mm512_load_si512(w1->w + i), o1 = _mm512_load_si512(w1->w + i + 32);
            __m512i xe0 = _mm512_load_si512(x0->q + i), xo0 = _mm512_load_si512(x0->q + i + 32);
            __m512i xe1 = _mm512_load_si512(x1->q + i), xo1 = _mm512_load_si512(x1->q + i + 32);
            __m512  f0 = _mm512_permutexvar_ps(at, _mm512_load_ps(w0->scale));
            __m512  f1 = _mm512_permutexvar_ps(at, _mm512_load_ps(w1->scale));

            ALL_4(GROUP_DOT)
        }
        ALL_4(GROUP_SUM)
    }
    ALL_4(GROUP_OUT)
}

TARGET static void group_dots(float *const *y, int64_t at, const struct cpu_ints_panel *w,
                              const struct quant_acts *const *x, int nx, int64_t k)
{
    for (int i = 0; i < w->n; i += 2)
        for (int j = 0; j < nx; j += 2) {
            int   i1 = i + 1 < w->n ? i + 1 : i, j1 = j + 1 < nx ? j + 1 : j;
            float out[2][2];

            group_tile(out, w->u + i * (k / 256), w->u + i1 * (k / 256), x[j], x[j1], k / 256);
            for (int r = i; r <= i1; r++)
                for (int c = j; c <= j1; c++)
                    y[c][at + r] = out[r - i][c - j];
        }
}

TARGET static void dots(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct quant_acts *const *x,
                        int nx, int64_t k)
{
    int i = 0;

    if (w->groups) {
        group_dots(y, at, w, x, nx, k);
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
