/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_r64_a8_wgmma.cu - GEMM for 64 and more tokens with 8-bit activations (wgmma): quantisation and launch. Needs
 * sm_90a: only it has wgmma. */
#include "kernels/gemm/gemm_r64_a8_wgmma.cuh"

void cuda_r64_a8(struct cuda *c, struct tile_args *a, int64_t n)
{
    const unsigned blocks = cuda_r64_grid(c, a, n, GROUP_ROWS, R64_A8_COLUMNS);

    switch (a->job[0].type) {
#define X(name, sums) \
    case QUANT_##name: \
        launch_r64_a8<QUANT_##name>(c, a, blocks); \
        break;
        GEMM_A8(X)
#undef X
    default:
        break;
    }
}

/* ---- rounding ---- */

/* 8 elements of a group, rounded: part of 16, whose threads are neighbours; !there: nothing is written. */
static __device__ __forceinline__ void r64_a8_values(uint8_t *out, int groups, int64_t row, const float v[8], int group,
                                                     int part, bool there)
{
    const int col = (int)(row % R64_A8_COLUMNS);
    uint8_t *all = out + (row / R64_A8_COLUMNS * groups + group) * R64_A8_GROUP;
    uint8_t *to = all + (part / 8 * R64_A8_COLUMNS + col) * 128 + part % 2 * 8;
    rounded r;

    round_values(r, v, sharers(true), true);
    if (!there)
        return;
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const __half2 a = __floats2half2_rn((float)r.q[odd], (float)r.q[2 + odd]);
        const __half2 b = __floats2half2_rn((float)r.q[4 + odd], (float)r.q[6 + odd]);

        *(uint2 *)(to + ((part % 8 / 2 * 2 + odd) ^ col % 8) * 16) =
            make_uint2(*(const uint32_t *)&a, *(const uint32_t *)&b);
    }
    ((__half *)(all + R64_A8_SUMS))[(part / 8 * R64_A8_COLUMNS + col) * 8 + part % 8] = __float2half_rn((float)r.sum);
    if (part == 0)
        ((float *)(all + R64_A8_SCALES))[r64_a8_scale(col)] = r.dx;
}

/* QUADS: rows begin at multiples of 16 bytes. */
template <bool QUADS>
__global__ void __launch_bounds__(256)
    round_r64_a8(uint8_t *out, const float *x, int n, int64_t stride, int k, const int *id, const int *slot)
{
    const int i = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    const float *from = x + row * stride + i * 8;
    const bool there = i * 8 < k, filled = there && row < n;
    float v[8];

    if (slot != NULL && (row >= n || slot[id[row]] < 0))
        return;
#pragma unroll
    for (int j = 0; j < 8; j += 4) {
        const float4 none = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        const float4 f = !filled ? none
                         : QUADS ? *(const float4 *)(from + j)
                                 : make_float4(from[j], from[j + 1], from[j + 2], from[j + 3]);

        v[j] = f.x;
        v[j + 1] = f.y;
        v[j + 2] = f.z;
        v[j + 3] = f.w;
    }
    r64_a8_values(out, a8_groups(k), row, v, i / 16, i % 16, there);
}

void cuda_round_r64_a8(struct cuda *c, uint8_t *out, struct tensor x, const int *id, const int *slot)
{
    const int k = (int)x.ne[0];
    const unsigned threads = k < 256 * 8 ? (unsigned)round_up(k / 8, 32) : 256;
    const dim3 grid((unsigned)r64_read((int)x.ne[1]), (unsigned)ceil_div(k, threads * 8));

    if (((uintptr_t)x.data % 16 | (uintptr_t)x.stride % 4) == 0)
        LAUNCH(c, round_r64_a8<true>, grid, threads, 0, out, (const float *)x.data, (int)x.ne[1], x.stride, k, id,
               slot);
    else
        LAUNCH(c, round_r64_a8<false>, grid, threads, 0, out, (const float *)x.data, (int)x.ne[1], x.stride, k, id,
               slot);
}
