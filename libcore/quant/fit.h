/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h - tables of encoders for files, by instruction set; see quant_fitter(). room: quant */
#ifndef QUANT_FIT_H
#define QUANT_FIT_H
#include "quant/quant.h"

extern quant_fit_fn *const quant_fit_scalar[QUANT_N];
#if defined(__x86_64__)
extern quant_fit_fn *const quant_fit_avx2[QUANT_N];
extern quant_fit_fn *const quant_fit_avx512[QUANT_N];
#endif

/* For the sets with SIMD: sanitizers check the same lines in the plain set, and make these loops forty times slower. */
#define FIT_UNCHECKED __attribute__((no_sanitize("address", "undefined")))
#endif
