/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_mma_i.cu - GEMM for 17 and more tokens: instances for 8-bit and codebook formats. */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"

void cuda_tile_i(struct cuda *c, const struct tile_args *a, dim3 grid)
{
    switch (a->job[0].type) {
    case QUANT_q8_0: launch_tile<QUANT_q8_0>(c, a, grid); break;
    case QUANT_iq3_s: launch_tile<QUANT_iq3_s>(c, a, grid); break;
    case QUANT_iq4_xs: launch_tile<QUANT_iq4_xs>(c, a, grid); break;
    default: break;
    }
}
