/* SPDX-License-Identifier: Apache-2.0 */
/* wide_i.cu - products with very many rows: 8 bits, code books. Compiled for sm_90a,
 * whose wgmma no later GPU has. */
#include "kernels/quant/all.cuh"
#include "kernels/wide.cuh"

void cuda_wide_i(struct cuda *c, const struct tile_args *a, unsigned blocks)
{
    switch (a->job[0].type) {
    case QUANT_q8_0: launch_wide<QUANT_q8_0>(c, a, blocks); break;
    case QUANT_iq3_s: launch_wide<QUANT_iq3_s>(c, a, blocks); break;
    case QUANT_iq4_xs: launch_wide<QUANT_iq4_xs>(c, a, blocks); break;
    default: break;
    }
}
