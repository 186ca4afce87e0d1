/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a16_wgmma.cu - GEMM for 64 and more tokens with 16-bit activations (wgmma): quantisation and launches. Needs
 * sm_90a. */
#include "kernels/gemm/gemm_r64_a16_wgmma.cuh"

__global__ void round_r64_a16(uint8_t *out, const float *x, int n, int64_t stride, int k, bool eight)
{
    const int i = blockIdx.y * 256 + threadIdx.x, pairs = x_pairs(k), row = blockIdx.x;
    const float *from = x + row * stride + i * 8;
    float v[8];

#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = row < n && i * 8 < k ? from[j] : 0.0f;
    r64_a16_values(out, pairs, row, v, i / 8, i % 8, eight, i < pairs * 8);
}

void cuda_round_r64_a16(struct cuda *c, uint8_t *out, struct tensor x)
{
    const int k = (int)x.ne[0];
    const dim3 grid((unsigned)r64_read((int)x.ne[1]), (unsigned)ceil_div(k, 64 * 32));

    LAUNCH(c, round_r64_a16, grid, 256, 0, out, (const float *)x.data, (int)x.ne[1], x.stride, k, c->eight);
}

unsigned cuda_r64_grid(const struct cuda *c, struct tile_args *a, int64_t n, int rows, int columns)
{
    const int64_t blocks = cuda_tile_blocks(a, rows);
    int64_t tiles = blocks * n;

    a->base = (int)blocks;
    a->columns = columns;
    if (a->list == NULL) {
        while (a->columns > 16 && blocks * ceil_div(n, a->columns) < c->sms)
            a->columns /= 2;
        tiles = blocks * ceil_div(n, a->columns);
    }
    return (unsigned)(tiles < c->sms ? tiles : c->sms);
}

void cuda_r64_a16(struct cuda *c, struct tile_args *a, int64_t n)
{
    const unsigned grid = cuda_r64_grid(c, a, n, 128 * r64_a16_subs(a->job[0].type), R64_A16_COLUMNS);

    switch (a->job[0].type) {
#define X(name) case QUANT_##name:
        GEMM_COMMON_K(X)
        cuda_r64_a16_k(c, a, grid);
        break;
        GEMM_COMMON_I(X)
        cuda_r64_a16_i(c, a, grid);
        break;
#undef X
    default:
        cuda_r64_a16_rare(c, a, grid);
        break;
    }
}
