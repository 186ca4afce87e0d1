/* SPDX-License-Identifier: Apache-2.0 */
/* exp_loop.h - a loop that needs exp, for kernels: the compiler vectorises it. */
#ifndef CPU_EXP_LOOP_H
#define CPU_EXP_LOOP_H
#include <math.h>
#include <stdint.h>

/* exp by 2^n * p(r), |r| <= ln2 / 2, p of degree 6 (Cephes' expf coefficients; error below 2 ulp). Below
 * -87.3 the result stays at about 1e-38; above 88.7 at about 3e38. */
#define EXP_LOOP(arg, use) \
    for (int64_t i = 0; i < n; i++) { \
        float t_ = (arg); \
        t_ = t_ < -87.33f ? -87.33f : t_; \
        t_ = t_ > 88.72f ? 88.72f : t_; \
        float z_ = fmaf(t_, 1.44269504f, 12582912.0f); \
        float n_ = z_ - 12582912.0f; \
        float r_ = fmaf(n_, -0.693359375f, t_); \
        r_ = fmaf(n_, 2.12194440e-4f, r_); \
        float p_ = fmaf(1.9875691500e-4f, r_, 1.3981999507e-3f); \
        p_ = fmaf(p_, r_, 8.3334519073e-3f); \
        p_ = fmaf(p_, r_, 4.1665795894e-2f); \
        p_ = fmaf(p_, r_, 1.6666665459e-1f); \
        p_ = fmaf(p_, r_, 5.0000001201e-1f); \
        p_ = fmaf(p_ * r_, r_, r_) + 1.0f; \
        /* n is in the low bits of z; 2^n in two factors, for n may be 128 */ \
        union { \
            float f; \
            uint32_t u; \
        } zb_ = { z_ }, a_, b_; \
        uint32_t e_ = zb_.u - 0x4b400000u + 256u, h_ = e_ >> 1; \
        a_.u = (h_ - 1u) << 23; \
        b_.u = (e_ - h_ - 1u) << 23; \
        float ex = p_ * a_.f * b_.f; \
        use; \
    }
#endif
