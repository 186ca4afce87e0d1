/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17_common.cu - grouped GEMM of experts: instances for the formats of most files. */
#include "kernels/moe/moe_r17.cuh"
#include "kernels/quant/all.cuh"

void cuda_expert_common(struct cuda *c, const expert_args *a, int tt)
{
    switch (a->type) {
#define X(name) \
    case QUANT_##name: \
        if (tt == 1) \
            LAUNCH(c, (expert_rows<QUANT_##name, 1>), expert_grid(a), 256, 0, *a); \
        else \
            LAUNCH(c, (expert_rows<QUANT_##name, 4>), expert_grid(a), 256, 0, *a); \
        break;
        GEMM_COMMON(X)
#undef X
    default:
        break;
    }
}
