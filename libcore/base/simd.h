/* SPDX-License-Identifier: Apache-2.0 */
/* simd.h - what this processor can do.                                         room: base
 *
 * Kernels carry a `target` attribute and are chosen at run time by these bits. Bits imply the
 * operating system saves the registers. SIMD_AVX2 includes FMA and F16C; SIMD_AVX512 means
 * F, BW, DQ, VL (and AVX2's set), SIMD_AVX512_VBMI means VBMI and GFNI. The AMX bits say that the
 * processor and Linux support tiles; a process must still ask for them (arch_prctl ARCH_REQ_XCOMP_PERM) before it uses
 * one.
 */
#ifndef BASE_SIMD_H
#define BASE_SIMD_H

enum {
    SIMD_AVX2 = 1 << 0,
    SIMD_AVX512 = 1 << 1,
    SIMD_AVX512_VNNI = 1 << 2,
    SIMD_AVX_VNNI = 1 << 3,
    SIMD_AVX512_BF16 = 1 << 4,
    SIMD_AMX_INT8 = 1 << 5,
    SIMD_AMX_BF16 = 1 << 6,
    SIMD_AVX512_VBMI = 1 << 7,
};

/* Attributes of functions for these sets. All but TARGET_AVX2 and TARGET_AVX512 have FMA. */
#if defined(__x86_64__)
#define TARGET_AVX2   __attribute__((target("avx2,f16c")))
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")))
#define TARGET_VNNI   __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))
#define TARGET_VBMI \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")))
#define TARGET_AMX \
    __attribute__(( \
        target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c,amx-tile,amx-int8")))
#define TARGET_DOTS __attribute__((target("avx2,fma,f16c")))
#endif

/* In test builds only, the environment variable CHIMERE_TEST_SIMD ("none", "avx2", "avx512",
 * "vnni", "vbmi", "all") hides all features above the one named. CPUID is slow under a hypervisor: ask once and keep
 * the answer. */
unsigned simd_features(void);
/* "avx2 avx512 vnni" ... into buf (64 bytes hold every name), for -v and records; returns buf. */
const char *simd_names(unsigned features, char *buf, unsigned long buf_bytes);
#endif
