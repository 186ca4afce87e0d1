/* SPDX-License-Identifier: Apache-2.0 */
/* ints_avx2.c - integer products for AVX2 with FMA: 16 running sums are two registers, lo and hi. */
#include <immintrin.h>

#include "cpu/ints.h"

#define TARGET __attribute__((target("avx2,fma")))

TARGET static inline __m256i dp(__m256i a, __m256i w, const int16_t *x)
{
    return _mm256_add_epi32(a, _mm256_madd_epi16(w, _mm256_loadu_si256((const void *)x)));
}

/* 8 lanes of a block, from element `at` (0 or 16) on, two rows by two vectors: sum[row][vector]. */
TARGET static inline void block_2x2(__m256 sum[2][2], const struct quant_ints *const w[2],
                                    const struct quant_acts *const x[2], int at, bool has_min)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;

    for (int i = at; i < 256; i += 32) {
        __m256i u = _mm256_load_si256((const void *)(w[0]->w + i));
        __m256i v = _mm256_load_si256((const void *)(w[1]->w + i));

        a = dp(a, u, x[0]->q + i);
        b = dp(b, u, x[1]->q + i);
        c = dp(c, v, x[0]->q + i);
        d = dp(d, v, x[1]->q + i);
    }
    at /= 2;
    if (has_min)
        for (int r = 0; r < 2; r++)
            for (int j = 0; j < 2; j++)
                sum[r][j] = _mm256_fnmadd_ps(_mm256_load_ps(w[r]->min + at), _mm256_load_ps(x[j]->sum + at),
                                             sum[r][j]);
    __m256 s = _mm256_load_ps(w[0]->scale), t = _mm256_load_ps(w[1]->scale);
    __m256 s0 = _mm256_load_ps(x[0]->scale + at), s1 = _mm256_load_ps(x[1]->scale + at);

    sum[0][0] = _mm256_fmadd_ps(_mm256_mul_ps(s, s0), _mm256_cvtepi32_ps(a), sum[0][0]);
    sum[0][1] = _mm256_fmadd_ps(_mm256_mul_ps(s, s1), _mm256_cvtepi32_ps(b), sum[0][1]);
    sum[1][0] = _mm256_fmadd_ps(_mm256_mul_ps(t, s0), _mm256_cvtepi32_ps(c), sum[1][0]);
    sum[1][1] = _mm256_fmadd_ps(_mm256_mul_ps(t, s1), _mm256_cvtepi32_ps(d), sum[1][1]);
}

TARGET static inline float fold(__m256 lo, __m256 hi)
{
    __m256 a = _mm256_add_ps(lo, hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

/* Two rows by two vectors; the rows may be the same. */
TARGET static void tile_2x2(float out[2][2], const struct quant_ints *w0, const struct quant_ints *w1,
                            const struct quant_acts *x0, const struct quant_acts *x1, int64_t n_blocks,
                            bool has_min)
{
    __m256 lo[2][2], hi[2][2];

    for (int i = 0; i < 4; i++)
        lo[i / 2][i % 2] = hi[i / 2][i % 2] = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++) {
        const struct quant_ints *w[2] = { w0 + b, w1 + b };
        const struct quant_acts *x[2] = { x0 + b, x1 + b };

        block_2x2(lo, w, x, 0, has_min);
        block_2x2(hi, w, x, 16, has_min);
    }
    for (int i = 0; i < 4; i++)
        out[i / 2][i % 2] = fold(lo[i / 2][i % 2], hi[i / 2][i % 2]);
}

/* The same for four rows by one vector. */
TARGET static inline void block_4x1(__m256 sum[4], const struct quant_ints *const w[4],
                                    const struct quant_acts *x, int at, bool has_min)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;

    for (int i = at; i < 256; i += 32) {
        __m256i v = _mm256_load_si256((const void *)(x->q + i));

        a = dp(a, v, w[0]->w + i);
        b = dp(b, v, w[1]->w + i);
        c = dp(c, v, w[2]->w + i);
        d = dp(d, v, w[3]->w + i);
    }
    __m256i dot[4] = { a, b, c, d };
    __m256 less = _mm256_load_ps(x->sum + at / 2), scale = _mm256_load_ps(x->scale + at / 2);

    for (int r = 0; r < 4; r++) {
        if (has_min)
            sum[r] = _mm256_fnmadd_ps(_mm256_load_ps(w[r]->min + at / 2), less, sum[r]);
        sum[r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(w[r]->scale), scale),
                                 _mm256_cvtepi32_ps(dot[r]), sum[r]);
    }
}

TARGET static void tile_4x1(float out[4], const struct quant_ints *const row[4], const struct quant_acts *x,
                            int64_t n_blocks, bool has_min)
{
    __m256 lo[4], hi[4];

    for (int r = 0; r < 4; r++)
        lo[r] = hi[r] = _mm256_setzero_ps();
    for (int64_t b = 0; b < n_blocks; b++) {
        const struct quant_ints *w[4] = { row[0] + b, row[1] + b, row[2] + b, row[3] + b };

        block_4x1(lo, w, x + b, 0, has_min);
        block_4x1(hi, w, x + b, 16, has_min);
    }
    for (int r = 0; r < 4; r++)
        out[r] = fold(lo[r], hi[r]);
}

/* All rows by one vector; past the last row, that again. */
TARGET static void dots_1(float *y, const struct cpu_ints_panel *w, const struct quant_acts *x, int64_t k)
{
    for (int i = 0; i < w->n; i += 4) {
        const struct quant_ints *row[4];
        float out[4];

        for (int r = 0; r < 4; r++)
            row[r] = w->u + (i + r < w->n ? i + r : w->n - 1) * (k / 256);
        tile_4x1(out, row, x, k / 256, w->has_min);
        for (int r = 0; r < 4 && i + r < w->n; r++)
            y[i + r] = out[r];
    }
}

TARGET static void dots(float *const *y, int64_t at, const struct cpu_ints_panel *w,
                        const struct quant_acts *const *x, int nx, int64_t k)
{
    for (int i = 0; i < w->n; i += 2)
        for (int j = 0; j + 2 <= nx; j += 2) {
            int i1 = i + 1 < w->n ? i + 1 : i;
            float out[2][2];

            tile_2x2(out, w->u + i * (k / 256), w->u + i1 * (k / 256), x[j], x[j + 1], k / 256, w->has_min);
            for (int a = i; a <= i1; a++)
                for (int b = 0; b < 2; b++)
                    y[j + b][at + a] = out[a - i][b];
        }
    if (nx % 2 == 1)
        dots_1(y[nx - 1] + at, w, x[nx - 1], k);
}

const struct cpu_ints cpu_ints_avx2 = { "avx2", dots };
