/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a16_wgmma_k.cu - GEMM for 64 and more tokens, 16-bit activations: instances for q4_k, q5_k, q6_k. Needs
 * sm_90a: only it has wgmma. */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r64_a16_wgmma.cuh"

void cuda_wide_k(struct cuda *c, const struct tile_args *a, unsigned blocks)
{
    switch (a->job[0].type) {
    case QUANT_q4_k: launch_wide<QUANT_q4_k>(c, a, blocks); break;
    case QUANT_q5_k: launch_wide<QUANT_q5_k>(c, a, blocks); break;
    case QUANT_q6_k: launch_wide<QUANT_q6_k>(c, a, blocks); break;
    default: break;
    }
}
