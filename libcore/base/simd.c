/* SPDX-License-Identifier: Apache-2.0 */
/* simd.c - what this processor can do (simd.h).                                room: base
 *
 * A feature counts only when CPUID names it and XCR0 says the operating system saves its
 * registers. AMX tiles also need Linux's word that a process may ask for them; the asking itself
 * (a change to the whole process) is left to whoever uses tiles.
 */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "base/simd.h"

static const struct {
    unsigned bit;
    const char *name;
} names[] = {
    { SIMD_AVX2, "avx2" },        { SIMD_AVX512, "avx512" },          { SIMD_AVX512_VNNI, "vnni" },
    { SIMD_AVX_VNNI, "avxvnni" }, { SIMD_AVX512_BF16, "avx512bf16" }, { SIMD_AMX_INT8, "amxint8" },
    { SIMD_AMX_BF16, "amxbf16" }, { SIMD_AVX512_VBMI, "vbmi" },
};

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    XCR0_YMM = 0x6,      /* xmm, upper ymm */
    XCR0_ZMM = 0xe6,     /* and mask registers, upper zmm, zmm16..31 */
    XCR0_TILE = 0x60000, /* tile configuration, tile data */
    XTILEDATA = 1 << 18, /* Linux's number of the tile data component, as a mask */
    ARCH_GET_XCOMP_SUPP = 0x1021,
};

__attribute__((target("xsave"))) static uint64_t xcr0_read(void)
{
    return (uint64_t)_xgetbv(0);
}

static bool has_bits(uint64_t reg, uint64_t mask)
{
    return (reg & mask) == mask;
}

static bool tiles_supported(void)
{
    uint64_t components = 0;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &components) == 0 && has_bits(components, XTILEDATA);
}

static unsigned detect(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has_bits(c, 1u << 27 | 1u << 28)) { /* OSXSAVE, AVX */
        return 0;
    }
    bool fma_f16c = has_bits(c, 1u << 12 | 1u << 29);
    uint64_t xcr0 = xcr0_read();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has_bits(xcr0, XCR0_YMM) || !fma_f16c || !has_bits(b, 1u << 5)) {
        return 0;
    }
    unsigned a1 = 0, b1 = 0, c1 = 0, d1 = 0;
    if (a >= 1) {
        __get_cpuid_count(7, 1, &a1, &b1, &c1, &d1);
    }
    unsigned f = SIMD_AVX2;
    f |= has_bits(a1, 1u << 4) ? SIMD_AVX_VNNI : 0;
    if (has_bits(xcr0, XCR0_ZMM) && has_bits(b, 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31)) {
        f |= SIMD_AVX512;
        f |= has_bits(c, 1u << 11) ? SIMD_AVX512_VNNI : 0;
        f |= has_bits(a1, 1u << 5) ? SIMD_AVX512_BF16 : 0;
        f |= has_bits(c, 1u << 1 | 1u << 8) ? SIMD_AVX512_VBMI : 0; /* and GFNI */
    }
    if (has_bits(xcr0, XCR0_TILE) && has_bits(d, 1u << 24) && tiles_supported()) {
        f |= has_bits(d, 1u << 25) ? SIMD_AMX_INT8 : 0;
        f |= has_bits(d, 1u << 22) ? SIMD_AMX_BF16 : 0;
    }
    return f;
}
#else
static unsigned detect(void)
{
    return 0;
}
#endif

#if defined(CHIMERE_TEST)
/* A word nobody knows is a mistake in a test, which must not then pass with the wrong kernels. */
static unsigned test_mask(void)
{
    const char *word = getenv("CHIMERE_TEST_SIMD");
    if (word == NULL || strcmp(word, "all") == 0) {
        return ~0u;
    }
    if (strcmp(word, "none") == 0) {
        return 0;
    }
    if (strcmp(word, "avx2") == 0) {
        return SIMD_AVX2;
    }
    if (strcmp(word, "avx512") == 0) {
        return SIMD_AVX2 | SIMD_AVX512;
    }
    bool vbmi = strcmp(word, "vbmi") == 0;
    assert(vbmi || strcmp(word, "vnni") == 0);
    return SIMD_AVX2 | SIMD_AVX512 | SIMD_AVX512_VNNI | SIMD_AVX_VNNI | (vbmi ? SIMD_AVX512_VBMI : 0);
}
#endif

unsigned simd_features(void)
{
#if defined(CHIMERE_TEST)
    return detect() & test_mask();
#else
    return detect();
#endif
}

const char *simd_names(unsigned features, char *buf, unsigned long buf_bytes)
{
    assert(buf_bytes > 0);
    size_t n = 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t len = strlen(names[i].name);
        size_t sep = n > 0;
        if ((features & names[i].bit) == 0) {
            continue;
        }
        if (n + sep + len >= buf_bytes) {
            break;
        }
        if (sep) {
            buf[n] = ' ';
        }
        memcpy(buf + n + sep, names[i].name, len);
        n += sep + len;
    }
    buf[n] = '\0';
    return buf;
}
