/* SPDX-License-Identifier: Apache-2.0 */
/* scan_avx2.c - recurrent inner loops for AVX2 with FMA: the bytes of scan_scalar.c. */
#include "cpu/scans.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx2,fma")))
#include "cpu/scan_body.h"

SCAN_SET(avx2);
#endif
