/* SPDX-License-Identifier: Apache-2.0 */
/* fit_avx2.c - the encoders for files, compiled for this instruction set. */
#include "quant/fit.h"

#if defined(__x86_64__)
#include "base/simd.h"

#define FIT       TARGET_AVX2 FIT_UNCHECKED static
#define FIT_TABLE quant_fit_avx2
#include "quant/fit_body.h"
#endif
