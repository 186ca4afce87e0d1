/* SPDX-License-Identifier: Apache-2.0 */
/* sets.h - one test for each instruction set: a set that the processor lacks is skipped, not passed.
 * For groups without a setup function, as a test's state is its set. Include after cmocka.h. */
#ifndef TESTS_UNIT_SETS_H
#define TESTS_UNIT_SETS_H
#include "base/simd.h"

enum {
    SET_scalar = 0,
    SET_avx2 = SIMD_AVX2,
    SET_avxvnni = SET_avx2 | SIMD_AVX_VNNI,
    SET_avx512 = SET_avx2 | SIMD_AVX512,
    SET_vnni = SET_avx512 | SIMD_AVX512_VNNI,
    SET_vbmi = SET_vnni | SIMD_AVX512_VBMI,
    SET_amx = SET_vbmi | SIMD_AMX_INT8,
};

/* A test as an entry of a group. */
#define SET_TEST(test, set) \
    { \
#test ": " #set, test, NULL, NULL, (void *)(uintptr_t)SET_##set \
    }

/* The features of this test's set; ends the test as skipped where the processor lacks them. */
static inline unsigned set_or_skip(void **state)
{
    const unsigned needs = (unsigned)(uintptr_t)*state;

    if ((simd_features() & needs) != needs)
        skip();
    return needs;
}
#endif
