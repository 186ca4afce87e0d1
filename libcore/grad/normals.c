/* SPDX-License-Identifier: Apache-2.0 */
/* normals.c - normal numbers by their place: many at a time, the same bytes for each instruction set. */
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/base.h"
#include "base/simd.h"
#include "grad/internal.h"

#define INLINE static inline __attribute__((always_inline))
enum { MANY = 16 }; /* blocks at a time, of four numbers each */

struct place {
    uint64_t seed;
    uint32_t tensor, step, sample, first; /* block */
};

/* Philox4x32-10 (base/rng.c) of counters first .. first + MANY - 1. */
INLINE void words(uint32_t x0[MANY], uint32_t x1[MANY], uint32_t x2[MANY], uint32_t x3[MANY], const struct place *p, uint32_t first)
{
    uint32_t k0 = (uint32_t)p->seed, k1 = (uint32_t)(p->seed >> 32);

    for (int i = 0; i < MANY; i++) {
        x0[i] = first + (uint32_t)i;
        x1[i] = p->tensor;
        x2[i] = p->step;
        x3[i] = p->sample;
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int i = 0; i < MANY; i++) {
            const uint64_t a = (uint64_t)0xD2511F53u * x0[i], b = (uint64_t)0xCD9E8D57u * x2[i];

            x0[i] = (uint32_t)(b >> 32) ^ x1[i] ^ k0;
            x1[i] = (uint32_t)b;
            x2[i] = (uint32_t)(a >> 32) ^ x3[i] ^ k1;
            x3[i] = (uint32_t)a;
        }
}

/* (w + 1/2) / 2^32 */
INLINE double unit(uint32_t w)
{
    return ((double)w + 0.5) * 0x1p-32;
}

/* log of u in (0, 1): 2^e m with m from sqrt(1/2) to sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)) by its series. */
INLINE double log_of(double u)
{
    union {
        double   f;
        uint64_t u;
    } b = { u }, e;
    const uint64_t up = b.u - 0x3fe6a09e667f3bcdu + ((uint64_t)1023 << 52); /* by sqrt(1/2) */
    double s, z, p;

    e.u = (up >> 52) + 0x4330000000000000u; /* 2^52 and the exponent */
    b.u -= (up & 0xfff0000000000000u) - ((uint64_t)1023 << 52);
    s = (b.f - 1) / (b.f + 1);
    z = s * s;
    p = fma(z, 1.0 / 23, 1.0 / 21);
    p = fma(p, z, 1.0 / 19);
    p = fma(p, z, 1.0 / 17);
    p = fma(p, z, 1.0 / 15);
    p = fma(p, z, 1.0 / 13);
    p = fma(p, z, 1.0 / 11);
    p = fma(p, z, 1.0 / 9);
    p = fma(p, z, 1.0 / 7);
    p = fma(p, z, 1.0 / 5);
    p = fma(p, z, 1.0 / 3);
    p = fma(p * z, s, s);
    return fma(e.f - (0x1p52 + 1023), 0.693147180559945309, 2 * p);
}

/* r cos a and r sin a for an angle from a word. Its nearest quarter turn gives sign and order, Taylor's series of the rest
 * within an eighth of a turn sine and cosine. */
INLINE void turn(float *first, float *second, double r, uint32_t w)
{
    const double t = unit(w), near = (4 * t + 0x1.8p52) - 0x1.8p52;
    const double a = 6.283185307179586 * fma(near, -0.25, t), z = a * a;
    const int32_t quarter = (int32_t)near;
    double s = fma(z, 1.0 / 355687428096000, -1.0 / 1307674368000), c = fma(z, -1.0 / 6402373705728000, 1.0 / 20922789888000);
    double x, y;

    s = fma(s, z, 1.0 / 6227020800);
    s = fma(s, z, -1.0 / 39916800);
    s = fma(s, z, 1.0 / 362880);
    s = fma(s, z, -1.0 / 5040);
    s = fma(s, z, 1.0 / 120);
    s = fma(s, z, -1.0 / 6);
    s = fma(s * z, a, a);
    c = fma(c, z, -1.0 / 87178291200);
    c = fma(c, z, 1.0 / 479001600);
    c = fma(c, z, -1.0 / 3628800);
    c = fma(c, z, 1.0 / 40320);
    c = fma(c, z, -1.0 / 720);
    c = fma(c, z, 1.0 / 24);
    c = fma(c, z, -0.5);
    c = fma(c, z, 1.0);
    x = quarter & 1 ? s : c;
    y = quarter & 1 ? c : s;
    *first = (float)(r * ((quarter + 1) & 2 ? -x : x));
    *second = (float)(r * (quarter & 2 ? -y : y));
}

/* Square roots, which a compiler does not put into vectors by itself, since sqrt may set errno. */
typedef void roots(double x[MANY]);

/* Box and Muller: radius from one word, angle from another. */
INLINE void fill(float *z, int64_t n, const struct place *p, roots *root)
{
    for (int64_t at = 0; at < n; at += 4 * MANY) {
        uint32_t w[4][MANY];
        float v[4][MANY];

        words(w[0], w[1], w[2], w[3], p, p->first + (uint32_t)(at / 4));
        for (int k = 0; k < 4; k += 2) {
            double r[MANY];

            for (int i = 0; i < MANY; i++)
                r[i] = -2.0 * log_of(unit(w[k][i]));
            root(r);
            for (int i = 0; i < MANY; i++)
                turn(&v[k][i], &v[k + 1][i], r[i], w[k + 1][i]);
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
    fill(z, n, p, root_avx512);
}

AVX2 static void root_avx2(double x[MANY])
{
    for (int i = 0; i < MANY; i += 4)
        _mm256_storeu_pd(x + i, _mm256_sqrt_pd(_mm256_loadu_pd(x + i)));
}

AVX2 static void fill_avx2(float *z, int64_t n, const struct place *p)
{
    fill(z, n, p, root_avx2);
}
#endif

void grad_normals_from(float *z, int64_t n, const struct grad_noise *noise, int tensor, int sample, int64_t at)
{
    const struct place p = { noise->seed, (uint32_t)tensor, noise->step, noise->sample + (uint32_t)sample, (uint32_t)(at / 4) };

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
    fill(z, n, &p, root_plain);
}

void grad_normals(float *z, int64_t n, uint64_t seed, uint32_t tensor, uint32_t step, uint32_t sample)
{
    grad_normals_from(z, n, &(struct grad_noise){ .seed = seed, .step = step, .sample = sample }, (int)tensor, 0, 0);
}
