/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_avx512.c - GEMV and GEMM with 16-bit activations, for AVX-512 without VNNI. */
#include "cpu/acts16.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define TARGET      __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")))
#define DP(a, b, c) _mm512_add_epi32(a, _mm512_madd_epi16(b, c))
/* A loop: gcc 12 turns a longer chain of sums into a tree, which needs more registers than there are. */
#define STEPS(COLS) \
    for (int i = 32; i < 256; i += 32) { \
        STEP_4(COLS, i) \
    }
#include "cpu/acts16_body.h"

const struct cpu_ints cpu_ints_avx512 = { .name = "avx512", .dots = dot_ints };
#endif
