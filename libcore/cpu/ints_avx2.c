/* SPDX-License-Identifier: Apache-2.0 */
/* ints_avx2.c - integer products for AVX2 with FMA: 16 lanes are two registers, lo and hi. A tile is two rows by
 * two vectors (or one), as many sums as there are registers for. Both halves of a line of memory are loaded
 * side by side: halves of two lines at once, at the same place in each, take some processors twice as
 * long. */
#include <immintrin.h>

#include "cpu/ints.h"

#define TARGET __attribute__((target("avx2,fma")))

#define LOAD(p)       _mm256_load_si256((const void *)(p))
#define COLS_1(F, r)  F(r, 0)
#define COLS_2(F, r)  F(r, 0) F(r, 1)

#define VECTOR(r, j)    const struct quant_acts *x##j = x[j];
#define NEXT(r, j)      x##j++;
#define FIRST_X(r, j)   __m256i lo##j = LOAD(x##j->q), hi##j = LOAD(x##j->q + 16);
#define LOAD_X(i, j)    lo##j = LOAD(x##j->q + (i)); hi##j = LOAD(x##j->q + (i) + 16);
#define FIRST(r, j) \
    __m256i lo##r##j = _mm256_madd_epi16(lo, lo##j), hi##r##j = _mm256_madd_epi16(hi, hi##j);
#define DP_LO(r, j)     lo##r##j = _mm256_add_epi32(lo##r##j, _mm256_madd_epi16(lo, lo##j));
#define DP_HI(r, j)     hi##r##j = _mm256_add_epi32(hi##r##j, _mm256_madd_epi16(hi, hi##j));
#define LOAD_W(p, i)    lo = LOAD((p)->w + (i)); hi = LOAD((p)->w + (i) + 16);
#define LESS_MIN(r, j) \
    sum[r][j][0] = _mm256_fnmadd_ps(f, _mm256_load_ps(x##j->sum), sum[r][j][0]); \
    sum[r][j][1] = _mm256_fnmadd_ps(g, _mm256_load_ps(x##j->sum + 8), sum[r][j][1]);
#define ADD(r, j) \
    sum[r][j][0] = _mm256_fmadd_ps(_mm256_mul_ps(f, _mm256_load_ps(x##j->scale)), \
                                   _mm256_cvtepi32_ps(lo##r##j), sum[r][j][0]); \
    sum[r][j][1] = _mm256_fmadd_ps(_mm256_mul_ps(f, _mm256_load_ps(x##j->scale + 8)), \
                                   _mm256_cvtepi32_ps(hi##r##j), sum[r][j][1]);
#define STEP(COLS, i) \
    COLS(LOAD_X, i) \
    LOAD_W(w0, i) COLS(DP_LO, 0) COLS(DP_HI, 0) \
    LOAD_W(w1, i) COLS(DP_LO, 1) COLS(DP_HI, 1)

/* sum[row][vector][half of the lanes] */
#define TILE(COLS, name, n) \
TARGET static void name(__m256 sum[2][2][2], const struct quant_ints *const row[2], \
                        const struct quant_acts *const *x, int64_t n_blocks, bool has_min) \
{ \
    const struct quant_ints *w0 = row[0], *w1 = row[1]; \
\
    COLS(VECTOR, 0) \
    for (int i = 0; i < 4 * (n); i++) \
        sum[i / 2 / (n)][i / 2 % (n)][i % 2] = _mm256_setzero_ps(); \
    for (int64_t b = 0; b < n_blocks; b++, w0++, w1++) { \
        __m256i lo, hi; \
        __m256  f, g; \
\
        COLS(FIRST_X, 0) \
        LOAD_W(w0, 0) COLS(FIRST, 0) \
        LOAD_W(w1, 0) COLS(FIRST, 1) \
        STEP(COLS, 32) STEP(COLS, 64) STEP(COLS, 96) STEP(COLS, 128) \
        STEP(COLS, 160) STEP(COLS, 192) STEP(COLS, 224) \
        if (has_min) { \
            f = _mm256_load_ps(w0->min); g = _mm256_load_ps(w0->min + 8); COLS(LESS_MIN, 0) \
            f = _mm256_load_ps(w1->min); g = _mm256_load_ps(w1->min + 8); COLS(LESS_MIN, 1) \
        } \
        f = _mm256_load_ps(w0->scale); COLS(ADD, 0) \
        f = _mm256_load_ps(w1->scale); COLS(ADD, 1) \
        COLS(NEXT, 0) \
    } \
}
TILE(COLS_1, tile_2x1, 1)
TILE(COLS_2, tile_2x2, 2)

TARGET static inline float fold(const __m256 sum[2])
{
    __m256 a = _mm256_add_ps(sum[0], sum[1]);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* Where weights have a scale for each 32: group g, which 8 lanes have elements of. */
#define PLACE(g) ((g) / 4 * 128 + (g) % 2 * 64 + (g) / 2 % 2 * 16)
#define ZERO(r, j)     __m256 t##r##j = _mm256_setzero_ps();
#define GROUP_X(g, j)  even##j = LOAD(x##j->q + PLACE(g)); odd##j = LOAD(x##j->q + PLACE(g) + 32);
#define GROUP_DOT(r, j) \
    t##r##j = _mm256_fmadd_ps( \
        f, _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(lo, even##j), _mm256_madd_epi16(hi, odd##j))), \
        t##r##j);
#define GROUP_W(p, g)  lo = LOAD((p)->w + PLACE(g)); hi = LOAD((p)->w + PLACE(g) + 32); \
                       f = _mm256_broadcast_ss((p)->scale + (g));
#define GROUP(COLS, g) \
    COLS(GROUP_X, g) \
    GROUP_W(w0, g) COLS(GROUP_DOT, 0) \
    GROUP_W(w1, g) COLS(GROUP_DOT, 1)
#define PUT(r, j)      sum[r][j][h] = _mm256_fmadd_ps(_mm256_load_ps(x##j->scale + 8 * h), t##r##j, sum[r][j][h]);
#define GROUP_REGS(r, j) __m256i even##j, odd##j;
#define GROUP_TILE(COLS, name, n) \
TARGET static void name(__m256 sum[2][2][2], const struct quant_ints *const row[2], \
                        const struct quant_acts *const *x, int64_t n_blocks, bool has_min) \
{ \
    const struct quant_ints *w0 = row[0], *w1 = row[1]; \
\
    (void)has_min; \
    COLS(VECTOR, 0) \
    for (int i = 0; i < 4 * (n); i++) \
        sum[i / 2 / (n)][i / 2 % (n)][i % 2] = _mm256_setzero_ps(); \
    for (int64_t b = 0; b < n_blocks; b++, w0++, w1++) { \
        __m256i lo, hi; \
        __m256  f; \
        COLS(GROUP_REGS, 0) \
        { \
            enum { h = 0 }; \
            COLS(ZERO, 0) COLS(ZERO, 1) \
            GROUP(COLS, 0) GROUP(COLS, 1) GROUP(COLS, 4) GROUP(COLS, 5) \
            COLS(PUT, 0) COLS(PUT, 1) \
        } \
        { \
            enum { h = 1 }; \
            COLS(ZERO, 0) COLS(ZERO, 1) \
            GROUP(COLS, 2) GROUP(COLS, 3) GROUP(COLS, 6) GROUP(COLS, 7) \
            COLS(PUT, 0) COLS(PUT, 1) \
        } \
        COLS(NEXT, 0) \
    } \
}
GROUP_TILE(COLS_1, group_tile_2x1, 1)
GROUP_TILE(COLS_2, group_tile_2x2, 2)

typedef void tile_fn(__m256 sum[2][2][2], const struct quant_ints *const row[2], const struct quant_acts *const *x,
                     int64_t n_blocks, bool has_min);

/* Past the last row, that again. */
TARGET static void dots(float *const *y, int64_t at, const struct cpu_ints_panel *w,
                        const struct quant_acts *const *x, int nx, int64_t k)
{
    tile_fn *one = w->groups ? group_tile_2x1 : tile_2x1, *two = w->groups ? group_tile_2x2 : tile_2x2;

    for (int i = 0; i < w->n; i += 2) {
        const struct quant_ints *last = w->u + (i + 1 < w->n ? i + 1 : i) * (k / 256);
        const struct quant_ints *row[2] = { w->u + i * (k / 256), last };

        for (int j = 0; j < nx; j += 2) {
            int    n = j + 2 <= nx ? 2 : 1;
            __m256 sum[2][2][2];

            (n == 2 ? two : one)(sum, row, x + j, k / 256, w->has_min);
            for (int r = 0; r < 2 && i + r < w->n; r++)
                for (int c = 0; c < n; c++)
                    y[j + c][at + i + r] = fold(sum[r][c]);
        }
    }
}

const struct cpu_ints cpu_ints_avx2 = { "avx2", dots };
