/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a16_wgmma_k.cu - GEMM for 64 and more tokens, 16-bit activations: instances for GEMM_COMMON_K. Needs
 * sm_90a: only it has wgmma. */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r64_a16_wgmma.cuh"

void cuda_r64_a16_k(struct cuda *c, const struct tile_args *a, unsigned blocks)
{
    switch (a->job[0].type) {
#define X(name) \
    case QUANT_##name: \
        launch_r64_a16<QUANT_##name>(c, a, blocks); \
        break;
        GEMM_COMMON_K(X)
#undef X
    default:
        break;
    }
}
