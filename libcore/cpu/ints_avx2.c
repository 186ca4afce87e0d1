/* SPDX-License-Identifier: Apache-2.0 */
/* ints_avx2.c - integer products for AVX2 with FMA: 16 running sums are two registers, lo and hi. */
#include <immintrin.h>

#include "cpu/ints.h"

#define TARGET __attribute__((target("avx2,fma")))

struct half { /* 8 lanes of a block of weights or activations */
    const int16_t *q;
    const float   *min, *sum, *scale; /* min of weights; scale of weights is one for all */
};

TARGET static inline __m256i dp(__m256i a, __m256i w, const int16_t *x)
{
    return _mm256_add_epi32(a, _mm256_madd_epi16(w, _mm256_loadu_si256((const void *)x)));
}

/* One half of a block, two rows by two vectors: sum[row][vector]. */
TARGET static inline void block_2x2(__m256 sum[2][2], const struct half w[2], const struct half x[2],
                                    bool has_min)
{
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;

    for (int i = 0; i < 256; i += 32) {
        __m256i u = _mm256_loadu_si256((const void *)(w[0].q + i));
        __m256i v = _mm256_loadu_si256((const void *)(w[1].q + i));

        a = dp(a, u, x[0].q + i);
        b = dp(b, u, x[1].q + i);
        c = dp(c, v, x[0].q + i);
        d = dp(d, v, x[1].q + i);
    }
    if (has_min)
        for (int r = 0; r < 2; r++)
            for (int j = 0; j < 2; j++)
                sum[r][j] = _mm256_fnmadd_ps(_mm256_loadu_ps(w[r].min), _mm256_loadu_ps(x[j].sum), sum[r][j]);
    __m256 s = _mm256_broadcast_ss(w[0].scale), t = _mm256_broadcast_ss(w[1].scale);
    __m256 s0 = _mm256_loadu_ps(x[0].scale), s1 = _mm256_loadu_ps(x[1].scale);

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

/* Rows r[0], r[1] of the panel against x[0], x[1]; the two of either may be the same. */
TARGET static void tile_2x2(float out[2][2], const struct cpu_ints_panel *p, const int64_t r[2],
                            const struct quant_acts *const x[2], int64_t k)
{
    __m256 lo[2][2], hi[2][2];

    for (int i = 0; i < 4; i++)
        lo[i / 2][i % 2] = hi[i / 2][i % 2] = _mm256_setzero_ps();
    for (int64_t b = 0; b < k / 256; b++) {
        struct half w[2], v[2];

        for (int i = 0; i < 2; i++) {
            int64_t at = r[i] * (k / 256) + b;

            w[i] = (struct half){ p->u.w + 256 * at, p->u.min + 16 * at, NULL, p->u.scale + at };
            v[i] = (struct half){ x[i]->q + 256 * b, NULL, x[i]->sum + 16 * b, x[i]->scale + 16 * b };
        }
        block_2x2(lo, w, v, p->has_min);
        for (int i = 0; i < 2; i++) {
            w[i] = (struct half){ w[i].q + 16, w[i].min + 8, NULL, w[i].scale };
            v[i] = (struct half){ v[i].q + 16, NULL, v[i].sum + 8, v[i].scale + 8 };
        }
        block_2x2(hi, w, v, p->has_min);
    }
    for (int i = 0; i < 4; i++)
        out[i / 2][i % 2] = fold(lo[i / 2][i % 2], hi[i / 2][i % 2]);
}

TARGET static void dots(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct quant_acts *x,
                        int nx, int64_t k)
{
    for (int i = 0; i < w->n; i += 2)
        for (int j = 0; j < nx; j += 2) {
            int64_t r[2] = { i, i + 1 < w->n ? i + 1 : i };
            const struct quant_acts *v[2] = { x + j, j + 1 < nx ? x + j + 1 : x + j };
            float out[2][2];

            tile_2x2(out, w, r, v, k);
            for (int a = 0; a < 2 && i + a < w->n; a++)
                for (int b = 0; b < 2 && j + b < nx; b++)
                    y[j + b][at + i + a] = out[a][b];
        }
}

const struct cpu_ints cpu_ints_avx2 = { "avx2", dots };
