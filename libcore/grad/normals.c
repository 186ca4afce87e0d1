/* SPDX-License-Identifier: Apache-2.0 */
/* normals.c - normal numbers by their place: many at a time, the same bytes for each instruction set. */
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/base.h"
#include "base/simd.h"
#include "grad/internal.h"
#include "grad/normal.h"

enum { MANY = 16 }; /* blocks at a time, of four numbers each */

struct place {
    uint64_t seed;
    uint32_t tensor, step, sample, first; /* block */
};

/* Philox4x32-10 (base/rng.c) of counters first .. first + MANY - 1. */
INLINE void philox_words(uint32_t x0[MANY], uint32_t x1[MANY], uint32_t x2[MANY], uint32_t x3[MANY],
                         const struct place *p, uint32_t first)
{
    uint32_t k0 = (uint32_t)p->seed, k1 = (uint32_t)(p->seed >> 32);

    for (int i = 0; i < MANY; i++) {
        x0[i] = first + (uint32_t)i;
        x1[i] = p->tensor;
        x2[i] = p->step;
        x3[i] = p->sample;
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < MANY; i++)
            normal_round(&x0[i], &x1[i], &x2[i], &x3[i], k0, k1);
}

/* Square roots, which a compiler does not put into vectors by itself, since sqrt may set errno. */
typedef void roots(double x[MANY]);

/* Box and Muller: radius from one word, angle from another. */
INLINE void fill_normals(float *z, int64_t n, const struct place *p, roots *root)
{
    for (int64_t at = 0; at < n; at += 4 * MANY) {
        uint32_t w[4][MANY];
        float v[4][MANY];

        philox_words(w[0], w[1], w[2], w[3], p, p->first + (uint32_t)(at / 4));
        for (int k = 0; k < 4; k += 2) {
            double r[MANY];

            for (int i = 0; i < MANY; i++)
                r[i] = -2.0 * normal_log(normal_unit(w[k][i]));
            root(r);
            for (int i = 0; i < MANY; i++)
                normal_turn(&v[k][i], &v[k + 1][i], r[i], w[k + 1][i]);
        }
        for (int i = 0; i < 4 * MANY && at + i < n; i++)
            z[at + i] = v[i % 4][i / 4];
    }
}

static void root_plain(double x[MANY])
{
    for (int i = 0; i < MANY; i++)
        x[i] = sqrt(x[i]);
}

#if defined(__x86_64__)
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define AVX2   __attribute__((target("avx2,fma")))

AVX512 static void root_avx512(double x[MANY])
{
    for (int i = 0; i < MANY; i += 8)
        _mm512_storeu_pd(x + i, _mm512_sqrt_pd(_mm512_loadu_pd(x + i)));
}

AVX512 static void fill_avx512(float *z, int64_t n, const struct place *p)
{
    fill_normals(z, n, p, root_avx512);
}

AVX2 static void root_avx2(double x[MANY])
{
    for (int i = 0; i < MANY; i += 4)
        _mm256_storeu_pd(x + i, _mm256_sqrt_pd(_mm256_loadu_pd(x + i)));
}

AVX2 static void fill_avx2(float *z, int64_t n, const struct place *p)
{
    fill_normals(z, n, p, root_avx2);
}
#endif

void grad_normals_from(float *z, int64_t n, const struct grad_noise *noise, int tensor, int sample, int64_t at)
{
    const struct place p = { noise->seed, (uint32_t)tensor, noise->step, noise->sample + (uint32_t)sample,
                             (uint32_t)(at / 4) };

#if defined(__x86_64__)
    if (simd_features() & SIMD_AVX512) {
        fill_avx512(z, n, &p);
        return;
    }
    if (simd_features() & SIMD_AVX2) {
        fill_avx2(z, n, &p);
        return;
    }
#endif
    fill_normals(z, n, &p, root_plain);
}

void grad_normals(float *z, int64_t n, uint64_t seed, uint32_t tensor, uint32_t step, uint32_t sample)
{
    grad_normals_from(z, n, &(struct grad_noise){ .seed = seed, .step = step, .sample = sample }, (int)tensor, 0, 0);
}
