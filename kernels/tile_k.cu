/* SPDX-License-Identifier: Apache-2.0 */
/* tile_k.cu - products with many rows: formats of 4 to 6 bits with two levels of scales. */
#include "kernels/quant/all.cuh"
#include "kernels/tile.cuh"

void cuda_tile_k(struct cuda *c, const struct tile_args *a, dim3 grid)
{
    switch (a->job[0].type) {
    case QUANT_q4_k: launch_tile<QUANT_q4_k>(c, a, grid); break;
    case QUANT_q5_k: launch_tile<QUANT_q5_k>(c, a, grid); break;
    case QUANT_q6_k: launch_tile<QUANT_q6_k>(c, a, grid); break;
    default: break;
    }
}
