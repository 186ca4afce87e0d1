/* SPDX-License-Identifier: Apache-2.0 */
/* fit.c - the encoders for files in plain C, and the choice among instruction sets. */
#define FIT       static
#define FIT_TABLE quant_fit_scalar
#include "quant/fit_body.h"

#include <assert.h>

#include "base/simd.h"

quant_encode_fn *quant_fitter(int type, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    quant_encode_fn *fit = quant_fit_scalar[type];

#if defined(__x86_64__)
    if ((simd & SIMD_AVX512) != 0)
        fit = quant_fit_avx512[type];
    else if ((simd & SIMD_AVX2) != 0)
        fit = quant_fit_avx2[type];
#else
    (void)simd;
#endif
    return fit != NULL ? fit : quant_types[type]->encode;
}
