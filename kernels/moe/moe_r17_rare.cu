/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17_rare.cu - grouped GEMM of experts: instances for the other formats. */
#include "kernels/moe/moe_r17.cuh"
#include "kernels/quant/all.cuh"

void cuda_expert_rare(struct cuda *c, const expert_args *a)
{
    switch (a->type) {
#define X(name) \
    case QUANT_##name: \
        LAUNCH(c, (expert_rows<QUANT_##name, 4>), expert_grid(a), 256, 0, *a); \
        break;
        GEMM_RARE(X)
#undef X
    default:
        break;
    }
}
