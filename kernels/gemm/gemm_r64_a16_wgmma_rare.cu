/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a16_wgmma_rare.cu - GEMM for 64 and more tokens, 16-bit activations: instances for the other formats. Needs
 * sm_90a: only it has wgmma. */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r64_a16_wgmma.cuh"

/* Of formats with two scales a unit, 16 products of 16 bits stay whole in a float if weights are 32 at most. */
template <int TYPE> static constexpr bool fits = !wq<TYPE>::HALF || TYPE == QUANT_q3_k || TYPE == QUANT_nvfp4;

/* As the table has it. */
static constexpr bool left_out(int type)
{
    switch (type) {
#define X(name) case QUANT_##name:
        GEMM_HALF_MINIMA(X)
        GEMM_HALF_LARGE(X)
#undef X
        return true;
    default:
        return false;
    }
}
#define X(name) static_assert(fits<QUANT_##name> != left_out(QUANT_##name), #name);
GEMM_RARE(X)
#undef X

void cuda_r64_a16_rare(struct cuda *c, const struct tile_args *a, unsigned blocks)
{
    switch (a->job[0].type) {
#define X(name) \
    case QUANT_##name: \
        if constexpr (fits<QUANT_##name>) \
            launch_r64_a16<QUANT_##name>(c, a, blocks); \
        break;
        GEMM_RARE(X)
#undef X
    default:
        break;
    }
}
