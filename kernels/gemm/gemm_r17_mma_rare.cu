/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r17_mma_rare.cu - GEMM for 17 and more tokens: instances for the other formats. */
#include "kernels/quant/all.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"

/* gemm/gemm_r17_mma.cuh has no place for minima of halves. */
template <int TYPE> static constexpr bool fits = !(wq<TYPE>::HALF && wq<TYPE>::MIN);

/* As the table has it. */
static constexpr bool left_out(int type)
{
    switch (type) {
#define X(name) case QUANT_##name:
        GEMM_HALF_MINIMA(X)
#undef X
        return true;
    default:
        return false;
    }
}
#define X(name) static_assert(fits<QUANT_##name> != left_out(QUANT_##name), #name);
GEMM_RARE(X)
#undef X

void cuda_tile_rare(struct cuda *c, const struct tile_args *a, dim3 grid)
{
    switch (a->job[0].type) {
#define X(name) \
    case QUANT_##name: \
        if constexpr (fits<QUANT_##name>) \
            launch_tile<QUANT_##name>(c, a, grid); \
        break;
        GEMM_RARE(X)
#undef X
    default:
        break;
    }
}
