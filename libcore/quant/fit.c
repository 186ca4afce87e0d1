/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - the encoders for files in plain C, and the choice among instruction sets. */
#define FIT       static
#define FIT_TABLE quant_fit_scalar
#include "quant/fit_body.h"

#include <assert.h>

#include "base/simd.h"

static void fit_f32(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    (void)effort;
    quant_types[QUANT_f32]->encode(row, x, n, importance);
}

static void fit_f16(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    (void)effort;
    quant_types[QUANT_f16]->encode(row, x, n, importance);
}

static void fit_bf16(void *row, const float *x, int64_t n, const float *importance, int effort)
{
    (void)effort;
    quant_types[QUANT_bf16]->encode(row, x, n, importance);
}

quant_fit_fn *quant_fitter(int type, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    switch (type) {
    case QUANT_f32:
        return fit_f32;
    case QUANT_f16:
        return fit_f16;
    case QUANT_bf16:
        return fit_bf16;
    default:
        break;
    }
#if defined(__x86_64__)
    if ((simd & SIMD_AVX512) != 0)
        return quant_fit_avx512[type];
    if ((simd & SIMD_AVX2) != 0)
        return quant_fit_avx2[type];
#else
    (void)simd;
#endif
    return quant_fit_scalar[type];
}
