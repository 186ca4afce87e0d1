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
#define X(name) case QUANT_##name:
            GEMM_COMMON_K(X)
            cuda_tile_k(c, a, grid);
            break;
            GEMM_COMMON_I(X)
            cuda_tile_i(c, a, grid);
            break;
#undef X
        default:
            cuda_tile_rare(c, a, grid);
            break;
        }
    }
}
