/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_vnni_ymm.c - GEMV and GEMM with 8-bit activations for AVX-512 with VNNI, but without what acts8_vnni.c needs, too. */
#include "cpu/acts8.h"

#if defined(__x86_64__)
#define TARGET      __attribute__((target("avx2,fma,avx512vl,avx512vnni")))
#define DP(a, b, c) _mm256_dpbusd_epi32(a, b, c)
#include "cpu/acts8_ymm_body.h"

const struct cpu_bytes cpu_bytes_vnni_ymm = { .name = "vnni-ymm", .dots = dot_bytes, .need = cpu_bytes_need };
#endif
