/* SPDX-License-Identifier: Apache-2.0 */
/* attn_r17.cuh - pages as prefill attention reads them, unpacked.   room: kernels
 *
 * Of a page and KV head come first the keys, [block of 32 dimensions][half page], a step each: SCALES bytes of floats,
 * then planes of [16 dimensions][8 of them][8 keys][key][8 dimensions] halves. Then values: [slab][16 positions][half
 * slab], a step each: planes of [8 positions][8 dimensions][dimension][8 positions] halves. The innermost 128 bytes, a
 * core, are what ldmatrix reads at once, and wgmma from shared memory. */
#ifndef KERNELS_ATTN_ATTN_R17_CUH
#define KERNELS_ATTN_ATTN_R17_CUH
#include "kernels/attn/sums.cuh"

enum {
    HALF_PAGE = 128,
    SCALES = HALF_PAGE * 4,
    CORE = 128,
    CORES = HALF_PAGE / 8 * CORE /* side by side: of keys, or of the dimensions of half a slab */,
    RING = 12,
    QUERIES_AT = 256 /* after the barriers of a ring */
};

struct spread {
    uint8_t *to;
    int k_step, v_step; /* bytes */
    int k_planes, v_planes;
    int v_halves; /* of a slab */
    int64_t values_at, head_bytes, seq_bytes;
    int first, pages; /* what this launch covers */
    float *sums;      /* of earlier launches, [row][head]: m, l */
};

struct rows_args {
    attn_args a;
    spread w;
    int slots, slot_bytes;
};

/* A place in the ring. */
struct turn {
    int at, phase;

    __device__ __forceinline__ void next(int slots)
    {
        if (++at == slots) {
            at = 0;
            phase ^= 1;
        }
    }
};
#endif
