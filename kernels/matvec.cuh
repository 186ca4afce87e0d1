/* SPDX-License-Identifier: Apache-2.0 */
/* matvec.cuh - what the files of products share.                     room: kernels (base quant ops) */
#ifndef KERNELS_MATVEC_CUH
#define KERNELS_MATVEC_CUH
#include "kernels/product.cuh"

/* Matrices that are multiplied with the same activations; block: the first block of the launch that is its own. */
struct mv_job {
    const uint8_t *w;
    int64_t        row_bytes;
    float         *y;
    int64_t        y_stride;
    int            n_rows, type, block;
};
struct mv_args {
    struct mv_job        job[JOBS];
    int                  n, k, nx;
    const uint8_t       *x;
    int64_t              x_bytes;
    const struct tables *tab;
};

/* 8 elements of a unit, rounded; 4 neighbouring threads (mask) make a unit. */
static __device__ __forceinline__ void quantise_values(uint8_t *row, const float v[8], int unit, int part,
                                                       unsigned mask)
{
    uint8_t *out = row + (int64_t)(unit / 2) * X_PAIR;
    uint32_t top = 0, h[2] = { 0, 0 }, l[2] = { 0, 0 };
    int sum = 0;

#pragma unroll
    for (int i = 0; i < 8; i++)
        top = max(top, __float_as_uint(v[i]) & 0x7fffffffu); /* NaN is above infinity */
    top = max(top, __shfl_xor_sync(mask, top, 1));
    top = max(top, __shfl_xor_sync(mask, top, 2));
    float most = __uint_as_float(top), inv = most > 1e-30f ? __fdiv_rn(32639.0f, most) : 0.0f;

#pragma unroll
    for (int i = 0; i < 8; i++) {
        int q = __float2int_rn(__fmul_rn(v[i], inv)), high = (q + 128) >> 8;

        sum += q;
        h[i / 4] |= (uint32_t)(high & 255) << i % 4 * 8;
        l[i / 4] |= (uint32_t)(q & 255) << i % 4 * 8; /* q - 256 high */
    }
    *(uint2 *)(out + unit % 2 * 32 + part * 8) = make_uint2(h[0], h[1]);
    *(uint2 *)(out + X_L + unit % 2 * 32 + part * 8) = make_uint2(l[0], l[1]);
    sum += __shfl_xor_sync(mask, sum, 1);
    int other = __shfl_xor_sync(mask, sum, 2);
    if (part == 0)
        *(float4 *)(out + X_SCALE + unit % 2 * 16) =
            make_float4(most > 1e-30f || most != most ? __fdiv_rn(most, 32639.0f) : 0.0f, (float)sum, (float)other,
                        0.0f);
}

static __device__ __forceinline__ void quantise_part(uint8_t *row, const float *x, int unit, int part, unsigned mask)
{
    float v[8];

#pragma unroll
    for (int i = 0; i < 8; i++)
        v[i] = x[i];
    quantise_values(row, v, unit, part, mask);
}

void cuda_quantise(struct cuda *c, uint8_t *out, struct tensor x);
bool cuda_is_common(int type);
void cuda_common(struct cuda *c, const struct mv_args *a, int blocks); /* mv_common.cu */
void cuda_rare(struct cuda *c, struct tensor w, struct tensor y, const uint8_t *x, int nx); /* mv_rare.cu */
#endif
