/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_avxvnni.c - GEMV and GEMM with 8-bit activations for AVX2 with AVX-VNNI. */
#include "cpu/acts8.h"

#if defined(__x86_64__)
#define TARGET      __attribute__((target("avx2,fma,avxvnni")))
#define DP(a, b, c) _mm256_dpbusd_avx_epi32(a, b, c)
#include "cpu/acts8_ymm_body.h"

const struct cpu_bytes cpu_bytes_avxvnni = { .name = "avxvnni", .dots = dot_bytes, .need = cpu_bytes_need };
#endif
