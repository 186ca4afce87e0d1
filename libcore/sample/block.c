/* SPDX-License-Identifier: Apache-2.0 */
/* block.c - the three passes over logits, for plain C and for AVX2.            room: sample */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/simd.h"
#include "sample/chain.h"

#define KERNEL(name) name##_plain
#define TARGET
#include "sample/block_body.h"
#undef KERNEL
#undef TARGET

#if defined(__x86_64__)
#define KERNEL(name) name##_avx2
#define TARGET       __attribute__((target("avx2")))
#include "sample/block_body.h"
#undef KERNEL
#undef TARGET
#endif

const struct sample_kernels *sample_kernels_for(unsigned features)
{
#if defined(__x86_64__)
    if (features & SIMD_AVX2) {
        return &kernels_avx2;
    }
#endif
    (void)features;
    return &kernels_plain;
}
