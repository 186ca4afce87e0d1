/* SPDX-License-Identifier: Apache-2.0 */
/* normal.h - the arithmetic of one normal number, for the host and a GPU: only exact operations and fma, so results
 * have the same bits everywhere. CUDA defines INLINE before. */
#ifndef GRAD_NORMAL_H
#define GRAD_NORMAL_H
#include <math.h>
#include <stdint.h>

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif

/* A round of Philox4x32-10 (base/rng.c) with the keys of this round. */
INLINE void normal_round(uint32_t *x0, uint32_t *x1, uint32_t *x2, uint32_t *x3, uint32_t k0, uint32_t k1)
{
    const uint64_t a = (uint64_t)0xD2511F53u * *x0, b = (uint64_t)0xCD9E8D57u * *x2;

    *x0 = (uint32_t)(b >> 32) ^ *x1 ^ k0;
    *x1 = (uint32_t)b;
    *x2 = (uint32_t)(a >> 32) ^ *x3 ^ k1;
    *x3 = (uint32_t)a;
}

/* (w + 1/2) / 2^32 */
INLINE double normal_unit(uint32_t w)
{
    return ((double)w + 0.5) * 0x1p-32;
}

/* log of u in (0, 1): 2^e m with m from sqrt(1/2) to sqrt(2), and log m = 2 artanh((m - 1) / (m + 1)) by its series. */
INLINE double normal_log(double u)
{
    union {
        double f;
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

/* r cos a and r sin a for an angle from a word. Its nearest quarter turn gives sign and order, Taylor's series of the
 * rest within an eighth of a turn sine and cosine. */
INLINE void normal_turn(float *first, float *second, double r, uint32_t w)
{
    const double t = normal_unit(w), near = (4 * t + 0x1.8p52) - 0x1.8p52;
    const double a = 6.283185307179586 * fma(near, -0.25, t), z = a * a;
    const int32_t quarter = (int32_t)near;
    double s = fma(z, 1.0 / 355687428096000, -1.0 / 1307674368000),
           c = fma(z, -1.0 / 6402373705728000, 1.0 / 20922789888000);
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
#endif
