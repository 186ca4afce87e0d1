/* SPDX-License-Identifier: Apache-2.0 */
/* wide_k.cu - products with very many rows: formats of 4 to 6 bits with two levels of scales. Compiled for sm_90a,
 * whose wgmma no later GPU has. */
#include "kernels/quant/all.cuh"
#include "kernels/wide.cuh"

void cuda_wide_k(struct cuda *c, const struct tile_args *a, unsigned blocks)
{
    switch (a->job[0].type) {
    case QUANT_q4_k: launch_wide<QUANT_q4_k>(c, a, blocks); break;
    case QUANT_q5_k: launch_wide<QUANT_q5_k>(c, a, blocks); break;
    case QUANT_q6_k: launch_wide<QUANT_q6_k>(c, a, blocks); break;
    default: break;
    }
}
