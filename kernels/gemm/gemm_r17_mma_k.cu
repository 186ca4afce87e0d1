/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_mma_k.cu - GEMM for 17 and more tokens: instances for GEMM_COMMON_K (4 to 6 bits, two levels of
 * scales). */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"

void cuda_tile_k(struct cuda *c, const struct tile_args *a, dim3 grid)
{
    switch (a->job[0].type) {
#define X(name) \
    case QUANT_##name: \
        launch_tile<QUANT_##name>(c, a, grid); \
        break;
        GEMM_COMMON_K(X)
#undef X
    default:
        break;
    }
}
