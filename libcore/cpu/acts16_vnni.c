/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_vnni.c - GEMV and GEMM with 16-bit activations, for AVX-512 with VNNI. */
#include "cpu/acts16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET      __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma")))
#define DP(a, b, c) _mm512_dpwssd_epi32(a, b, c)
/* Not a loop: gcc 12 copies all accumulators in each turn. */
#define STEPS(COLS) \
    STEP_4(COLS, 32) STEP_4(COLS, 64) STEP_4(COLS, 96) STEP_4(COLS, 128) \
    STEP_4(COLS, 160) STEP_4(COLS, 192) STEP_4(COLS, 224)
#include "cpu/acts16_body.h"

const struct cpu_ints cpu_ints_vnni = { .name = "vnni", .dots = dot_ints };
#endif
