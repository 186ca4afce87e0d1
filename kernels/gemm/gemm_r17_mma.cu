/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_mma.cu - GEMM for 17 and more tokens: launches of gemm_r17_mma.cuh. */
#include "kernels/gemm/gemm_r17_mma.cuh"

enum { GRID_Y = 65535 };

int64_t cuda_tile_blocks(struct tile_args *a, int rows)
{
    bool paired = a->out != TILE_FLOATS && a->n > 1;
    int64_t blocks = 0;

    for (int i = 0; i < a->n && (i == 0 || !paired); i++) {
        a->job[i].block = (int)blocks;
        blocks += ceil_div(a->job[i].n_rows, paired ? rows / 2 : rows);
    }
    return blocks;
}

void cuda_tile(struct cuda *c, struct tile_args *a, int64_t chunks)
{
    int64_t blocks = cuda_tile_blocks(a, TILE_ROWS);

    for (int64_t at = 0; at < chunks; at += GRID_Y) {
        dim3 grid((unsigned)blocks, (unsigned)(chunks - at < GRID_Y ? chunks - at : (int64_t)GRID_Y));

        a->base = (int)at;
        switch (a->job[0].type) {
        case QUANT_q4_k:
        case QUANT_q5_k:
        case QUANT_q6_k: cuda_tile_k(c, a, grid); break;
        case QUANT_q8_0:
        case QUANT_iq3_s:
        case QUANT_iq4_xs: cuda_tile_i(c, a, grid); break;
        default: cuda_tile_rare(c, a, grid); break;
        }
    }
}
