/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_body.h - integer products for AVX-512, with or without VNNI.
 *
 * Included by files that define TARGET; DP(a, b, c), a plus the sums of pairs of products of 16-bit
 * numbers; and STEPS(COLS), which is STEP_4(COLS, i) for i = 32, 64 ... 224. A block's products are 16
 * running integers, two for each lane. Those of two rows are added to the lanes of both, which a register
 * holds side by side. Tiles of rows by vectors: int ROW VECTOR; sum and less ROWS VECTOR, of rows 0 and 1
 * and of rows 2 and 3. */

#include "cpu/f32_fold.h"

#define COLS_1(F, r) F(r, 0)
#define COLS_2(F, r) F(r, 0) F(r, 1)
#define COLS_3(F, r) F(r, 0) F(r, 1) F(r, 2)

#define TWO_FLOATS(p, q)  _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_load_ps(p)), _mm256_load_ps(q), 1)
#define TWICE(p)          _mm512_broadcast_f32x8(_mm256_load_ps(p))
#define TWO_ROWS(a, b) \
    _mm512_add_epi32(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee))

#define VECTOR(r, j)    const struct cpu_act_block *x##j = x[j];
#define NEXT(r, j)      x##j++;
#define ZERO(r, j) \
    __m512 sum01##j = _mm512_setzero_ps(), sum23##j = sum01##j, less01##j = sum01##j, less23##j = sum01##j;
#define V_OF(r, j)      __m512i v##j = _mm512_load_si512(x##j->q);
#define FIRST(r, j)     __m512i int##r##j = _mm512_madd_epi16(w, v##j);
#define LOAD_V(i, j)    v##j = _mm512_load_si512(x##j->q + i);
#define STEP(r, j)      int##r##j = DP(int##r##j, w, v##j);
#define LESS_8(r, j)    less##r##j = _mm512_fmadd_ps(f, TWICE(x##j->sum_32), less##r##j);
#define LESS_16(r, j)   less##r##j = _mm512_fmadd_ps(f, TWICE(x##j->sum + half), less##r##j);
#define TAKE_LESS(r, j) sum##r##j = _mm512_sub_ps(sum##r##j, less##r##j);
#define ADD(rows, r, s, j) \
    sum##rows##j = _mm512_fmadd_ps(_mm512_mul_ps(f, TWICE(x##j->scale)), \
                                   _mm512_cvtepi32_ps(TWO_ROWS(int##r##j, int##s##j)), sum##rows##j);
#define ADD_01(r, j)    ADD(01, 0, 1, j)
#define ADD_23(r, j)    ADD(23, 2, 3, j)
#define OUT(r, j)       _mm_storeu_ps(y[j] + out, fold_4(sum01##j, sum23##j));

/* The sums of the lanes of four rows. */
TARGET static inline __m128 fold_4(__m512 a, __m512 b)
{
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);

    a = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    a = fold_2(a, a);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(pick, fold_1(a, a)));
}

#define STEP_4(COLS, i) \
    COLS(LOAD_V, i) \
    w = _mm512_load_si512(w0->w + i); COLS(STEP, 0) \
    w = _mm512_load_si512(w1->w + i); COLS(STEP, 1) \
    w = _mm512_load_si512(w2->w + i); COLS(STEP, 2) \
    w = _mm512_load_si512(w3->w + i); COLS(STEP, 3)
#define TILE_4(COLS, name) \
TARGET static void name(float *const *y, int64_t out, const struct cpu_int_block *const row[4], \
                        const struct cpu_act_block *const *x, int64_t k, int n_min) \
{ \
    const struct cpu_int_block *w0 = row[0], *w1 = row[1], *w2 = row[2], *w3 = row[3]; \
    COLS(VECTOR, 0) \
    COLS(ZERO, 0) \
    for (int64_t b = 0; b < k / 256; b++, w0++, w1++, w2++, w3++) { \
        __m512i w; \
        __m512 f; \
        COLS(V_OF, 0) \
        w = _mm512_load_si512(w0->w); COLS(FIRST, 0) \
        w = _mm512_load_si512(w1->w); COLS(FIRST, 1) \
        w = _mm512_load_si512(w2->w); COLS(FIRST, 2) \
        w = _mm512_load_si512(w3->w); COLS(FIRST, 3) \
        STEPS(COLS) \
        if (n_min == 8) { \
            f = TWO_FLOATS(w0->min, w1->min); COLS(LESS_8, 01) \
            f = TWO_FLOATS(w2->min, w3->min); COLS(LESS_8, 23) \
        } \
        for (int half = 0; n_min == 16 && half < 16; half += 8) { \
            f = TWO_FLOATS(w0->min + half, w1->min + half); COLS(LESS_16, 01) \
            f = TWO_FLOATS(w2->min + half, w3->min + half); COLS(LESS_16, 23) \
        } \
        f = TWO_FLOATS(w0->scale, w1->scale); COLS(ADD_01, 0) \
        f = TWO_FLOATS(w2->scale, w3->scale); COLS(ADD_23, 0) \
        COLS(NEXT, 0) \
    } \
    if (n_min > 0) { \
        COLS(TAKE_LESS, 01) COLS(TAKE_LESS, 23) \
    } \
    COLS(OUT, 0) \
}

TILE_4(COLS_1, tile_4x1)
TILE_4(COLS_2, tile_4x2)
TILE_4(COLS_3, tile_4x3)

/* Where weights have a scale for each 32. A register of words has elements of two groups: 0 and 2, 1 and 3 and
 * so on. Two rows by two vectors, which may be the same. */
#define GROUP_DOTS(r, j) \
    a##r##j = DP(_mm512_madd_epi16(_mm512_load_si512(w##r->w + i), _mm512_load_si512(x##j->q + i)), \
                 _mm512_load_si512(w##r->w + i + 32), _mm512_load_si512(x##j->q + i + 32)); \
    b##r##j = DP(_mm512_madd_epi16(_mm512_load_si512(w##r->w + i + 64), _mm512_load_si512(x##j->q + i + 64)), \
                 _mm512_load_si512(w##r->w + i + 96), _mm512_load_si512(x##j->q + i + 96));
#define GROUP_ADD(j, which, half) \
    t##j = _mm512_fmadd_ps(f, _mm512_cvtepi32_ps(_mm512_shuffle_i64x2(which##0##j, which##1##j, half)), t##j);
#define GROUP(which, half, g) \
    f = _mm512_permutex2var_ps(s0, _mm512_add_epi32(place, _mm512_set1_epi32(i / 32 + (g))), s1); \
    GROUP_ADD(0, which, half) \
    GROUP_ADD(1, which, half)
TARGET static void group_tile(float *const *y, int64_t out, const struct cpu_int_block *const row[4],
                              const struct cpu_act_block *const *x, int64_t k)
{
    const __m512i place = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 16, 16, 16, 16, 16, 16, 16, 16);
    const struct cpu_int_block *w0 = row[0], *w1 = row[1];
    const struct cpu_act_block *x0 = x[0], *x1 = x[1];
    __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0;

    for (int64_t b = 0; b < k / 256; b++, w0++, w1++, x0++, x1++) {
        __m512 t0 = _mm512_setzero_ps(), t1 = t0, f;
        __m512 s0 = _mm512_load_ps(w0->scale), s1 = _mm512_load_ps(w1->scale);

        for (int i = 0; i < 256; i += 128) {
            __m512i a00, a01, a10, a11, b00, b01, b10, b11;

            GROUP_DOTS(0, 0) GROUP_DOTS(0, 1) GROUP_DOTS(1, 0) GROUP_DOTS(1, 1)
            GROUP(a, 0x44, 0)
            GROUP(b, 0x44, 1)
            GROUP(a, 0xee, 2)
            GROUP(b, 0xee, 3)
        }
        sum0 = _mm512_fmadd_ps(TWICE(x0->scale), t0, sum0);
        sum1 = _mm512_fmadd_ps(TWICE(x1->scale), t1, sum1);
    }
    _mm_storeu_ps(y[0] + out, fold_4(sum0, sum0));
    _mm_storeu_ps(y[1] + out, fold_4(sum1, sum1));
}

/* Four rows (or two) from the panel's row i on by up to three vectors (two), into part[vector][row]. */
TARGET static void tile(float part[3][4], const struct cpu_ints_panel *w, int i, const struct cpu_act_block *const *x, int n,
                        int64_t k)
{
    const struct cpu_int_block *row[4];
    const struct cpu_act_block *const two[2] = { x[0], x[n - 1] };
    float *const             to[3] = { part[0], part[1], part[2] };

    for (int r = 0; r < 4; r++)
        row[r] = w->u + (i + r < w->n ? i + r : w->n - 1) * (k / 256);
    if (w->groups)
        group_tile(to, 0, row, two, k);
    else
        (n == 3 ? tile_4x3 : n == 2 ? tile_4x2 : tile_4x1)(to, 0, row, x, k, w->n_min);
}

TARGET static void dot_ints(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct cpu_act_block *const *x,
                        int nx, int64_t k)
{
    int rows = w->groups ? 2 : 4, vectors = w->groups ? 2 : 3;

    for (int i = 0; i < w->n; i += rows)
        for (int j = 0; j < nx; j += vectors) {
            int   n = nx - j < vectors ? nx - j : vectors;
            float part[3][4];

            tile(part, w, i, x + j, n, k);
            for (int c = 0; c < n; c++)
                for (int r = 0; r < rows && i + r < w->n; r++)
                    y[j + c][at + i + r] = part[c][r];
        }
}
