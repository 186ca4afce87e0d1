/* SPDX-License-Identifier: Apache-2.0 */
/* tile_rare.cu - products with many rows: the other formats. */
#include "kernels/quant/all.cuh"
#include "kernels/tile.cuh"

/* tile.cuh has no place for minima of halves. */
template <int TYPE> static constexpr bool fits = !(wq<TYPE>::HALF && wq<TYPE>::MIN);

bool cuda_is_tiled(int type)
{
    switch (type) {
#define X(name) case QUANT_##name: return fits<QUANT_##name>;
        CUDA_RARE(X)
#undef X
    default: return cuda_is_common(type);
    }
}

void cuda_tile_rare(struct cuda *c, const struct tile_args *a, dim3 grid)
{
    switch (a->job[0].type) {
#define X(name) \
    case QUANT_##name: \
        if constexpr (fits<QUANT_##name>) \
            launch_tile<QUANT_##name>(c, a, grid); \
        break;
        CUDA_RARE(X)
#undef X
    default: break;
    }
}
