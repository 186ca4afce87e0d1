/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r2_16.cuh - what both products of moe_r2_16.cu share.
 * room: kernels */
#ifndef KERNELS_MOE_MOE_R2_16_CUH
#define KERNELS_MOE_MOE_R2_16_CUH
#include "kernels/adapt/adapt.cuh"
#include "kernels/moe/pick_experts_block.cuh"
#include "kernels/gemm/gemm_r2_16.cuh"
#include "kernels/moe/gemv_pair.cuh"

enum { UP_WARPS = 8, DOWN_WARPS = 9, BLOCKS = 2 /* a multiprocessor */, BLOCK_SMEM = 110 << 10, OTHER_SMEM = 4 << 10 };
enum { UP_COPIES = 4 /* of what a format looks up */ };
enum { MOST_STRIPS = 16, MOST_TASKS = 8, UNIT = 2 * STRIP, SHARE = 4 /* units that have a scale of 8 bits */ };

/* Barriers of a warp's stages, and of a row, of which there are as many as warps or fewer; make_room() comes before
 * their use. */
static __device__ __forceinline__ void make_bars(uint64_t full[2], uint64_t *row)
{
    if (threadIdx.x % 32 == 0) {
        bar_init(full, 1);
        bar_init(full + 1, 1);
        bar_init(row, 1);
        bar_init_done();
    }
}
#endif
