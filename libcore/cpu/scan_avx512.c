/* SPDX-License-Identifier: Apache-2.0 */
/* scan_avx512.c - recurrent inner loops for AVX-512: the bytes of scan_scalar.c. */
#include "cpu/scans.h"

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#include "cpu/scan_body.h"

SCAN_SET(avx512);
#endif
