/* SPDX-License-Identifier: Apache-2.0 */
/* bytes_vnni_ymm.c - products with activations of 8 bits for AVX-512 with VNNI, but without what bytes_vnni.c needs, too. */
#include "cpu/bytes.h"

#if defined(__x86_64__)
#define TARGET      __attribute__((target("avx2,fma,avx512vl,avx512vnni")))
#define DP(a, b, c) _mm256_dpbusd_epi32(a, b, c)
#include "cpu/bytes_ymm_body.h"

const struct cpu_bytes cpu_bytes_vnni_ymm = { .name = "vnni-ymm", .dots = dots, .need = cpu_bytes_need };
#endif
