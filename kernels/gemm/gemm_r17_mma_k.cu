/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_mma_k.cu - GEMM for 17 and more tokens: instances for q4_k, q5_k, q6_k (4 to 6 bits, two levels of
 * scales). */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"

void cuda_tile_k(struct cuda *c, const struct tile_args *a, dim3 grid)
{
    switch (a->job[0].type) {
    case QUANT_q4_k: launch_tile<QUANT_q4_k>(c, a, grid); break;
    case QUANT_q5_k: launch_tile<QUANT_q5_k>(c, a, grid); break;
    case QUANT_q6_k: launch_tile<QUANT_q6_k>(c, a, grid); break;
    default: break;
    }
}
