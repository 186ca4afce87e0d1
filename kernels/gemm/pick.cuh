/* SPDX-License-Identifier: Apache-2.0 */
/* pick.cuh - shared by the files of products.   room: kernels */
#ifndef KERNELS_GEMM_PICK_CUH
#define KERNELS_GEMM_PICK_CUH
#include "kernels/gemm/sums.cuh"

/* Matrices that are multiplied with the same activations; block: the first block of the launch that is its own. */
struct mv_job {
    const uint8_t *w;
    int64_t row_bytes;
    float *y;
    int64_t y_stride;
    int n_rows, type, block;
};
enum { R2_16_MAX = GEMM_R2_16_MAX, FEW_ROWS = GEMM_FEW_ROWS }; /* of activations */

struct mv_args {
    struct mv_job job[JOBS];
    int n, k, nx;
    const uint8_t *x;
    int64_t x_bytes;
    bool eight; /* how x is rounded (gemm/sums.cuh) */
    const struct tables *tab;
};

/* Outputs go to y, rows y_stride apart. */
static inline struct mv_job mv_job_of(struct tensor w, float *y, int64_t y_stride)
{
    return { (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), y, y_stride, (int)w.ne[1], w.type, 0 };
}

static inline void add_job(struct mv_args *to, struct tensor w, struct tensor y)
{
    to->job[to->n++] = mv_job_of(w, (float *)y.data, y.stride);
}

/* What numbers are multiplied with before they are rounded, and what one of the whole numbers stands for. */
static __device__ __forceinline__ float into_steps(float most, bool eight)
{
    return most > 1e-30f ? __fdiv_rn(eight ? 127.0f : 32639.0f, most) : 0.0f;
}

static __device__ __forceinline__ float step_of(float most, bool eight)
{
    return most > 1e-30f || most != most ? __fdiv_rn(most, eight ? 127.0f : 32639.0f) : 0.0f;
}

/* Bits that order floats by size; NaN is above infinity. */
static __device__ __forceinline__ uint32_t size_of(float v)
{
    return __float_as_uint(v) & 0x7fffffffu;
}

/* Threads that share a scale, 8 elements each: those of this thread. */
static __device__ __forceinline__ unsigned sharers(bool eight)
{
    return eight ? 0xffffu << (threadIdx.x & 16) : 0xfu << (threadIdx.x & 28);
}

/* 8 elements, rounded; the threads of mask go together, at least the sharers. */
struct rounded {
    int q[8], sum, half, all; /* sums: of these, with the neighbour's, of the unit */
    float dx;
};
static __device__ __forceinline__ void round_values(rounded &r, const float v[8], unsigned mask, bool eight)
{
    uint32_t top = 0;
    int sum = 0;

#pragma unroll
    for (int i = 0; i < 8; i++)
        top = max(top, size_of(v[i]));
    top = max(top, __shfl_xor_sync(mask, top, 1));
    top = max(top, __shfl_xor_sync(mask, top, 2));
    if (eight) {
        top = max(top, __shfl_xor_sync(mask, top, 4));
        top = max(top, __shfl_xor_sync(mask, top, 8));
    }
    float most = __uint_as_float(top), inv = into_steps(most, eight);

#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += r.q[i] = __float2int_rn(__fmul_rn(v[i], inv));
    r.sum = sum;
    r.half = sum + __shfl_xor_sync(mask, sum, 1);
    r.all = r.half + __shfl_xor_sync(mask, r.half, 2);
    r.dx = step_of(most, eight);
}

/* Byte n of each. */
static __device__ __forceinline__ uint32_t bytes_of(int n, int a, int b, int c, int d)
{
    const uint32_t two = (uint32_t)(n | (4 + n) << 4);

    return __byte_perm(__byte_perm((uint32_t)a, (uint32_t)b, two), __byte_perm((uint32_t)c, (uint32_t)d, two), 0x5410);
}

/* 8 elements of a pair of units, rounded, into a row of `pairs` pairs; 8 neighbouring threads make a pair, those of
 * `mask` go together, at least the sharers (all of a warp: fewer instructions). !there: nothing is written. */
static __device__ __forceinline__ void quantise_values(uint8_t *row, int pairs, const float v[8], int pair, int part,
                                                       unsigned mask, bool eight, bool there = true)
{
    uint8_t *out = row + (int64_t)pair * X_PAIR;
    float *scales = (float *)x_scales(row, pairs), *seconds = (float *)(x_seconds(row, pairs) + pair);
    uint32_t h[2], l[2];
    rounded r;

    round_values(r, v, mask, eight);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int *q = r.q + 4 * i;

        h[i] = bytes_of(1, q[0] + 128, q[1] + 128, q[2] + 128, q[3] + 128);
        l[i] = bytes_of(0, q[0], q[1], q[2], q[3]); /* q - 256 high */
    }
    /* words 2 part % 8 and the next: swapped with the thread that has those 4 further on */
    bool upper = part & 2;
    uint32_t oh = __shfl_xor_sync(mask, upper ? h[0] : h[1], 2), ol = __shfl_xor_sync(mask, upper ? l[0] : l[1], 2);
    if (!there)
        return;
    *(uint4 *)(out + part / 4 * X_UNIT + (part % 2 * 2 + upper) * 16) =
        upper ? make_uint4(oh, ol, h[1], l[1]) : make_uint4(h[0], l[0], oh, ol);
    if (part % 4 == 0) {
        *(float2 *)(out + X_SUMS + part / 4 * 8) = make_float2((float)r.all, r.dx);
        scales[2 * pair + part / 4] = r.dx;
    } else if (part % 4 == 2) {
        seconds[part / 4] = (float)r.half;
    }
    if (part > 0 && pair == pairs - 1 && pair % 8 + part < 8)
        *(float2 *)(scales + 2 * (pair + part)) = make_float2(0.0f, 0.0f);
}

/* The largest of a unit, whose elements the lanes of a warp have. */
static __device__ __forceinline__ uint32_t unit_top(float v)
{
    return __reduce_max_sync(0xffffffffu, size_of(v));
}

/* Unit u of a row of `units`, by a warp: v is the lane's element, top the largest of those that share a scale. The last
 * unit fills the row up with zeros. */
static __device__ __forceinline__ void round_unit(uint8_t *row, int units, float v, int u, uint32_t top, bool eight)
{
    const unsigned all = 0xffffffffu;
    const int lane = threadIdx.x & 31, pairs = (units + 1) / 2;
    uint8_t *out = row + (int64_t)(u / 2) * X_PAIR + u % 2 * X_UNIT, *to = out + lane / 4 % 4 * 16 + lane / 16 * 8;
    float *sums = (float *)(row + (int64_t)(u / 2) * X_PAIR + X_SUMS + u % 2 * 8);
    float *scales = (float *)x_scales(row, pairs), *seconds = (float *)x_seconds(row, pairs);
    const float most = __uint_as_float(top);
    const int q = __float2int_rn(__fmul_rn(v, into_steps(most, eight)));

    to[lane % 4] = (uint8_t)((q + 128) >> 8);
    to[4 + lane % 4] = (uint8_t)q;
    const int sum = __reduce_add_sync(all, q), second = __reduce_add_sync(all, lane < 16 ? 0 : q);
    if (lane == 0) {
        float dx = step_of(most, eight);

        *(float2 *)sums = make_float2((float)sum, dx);
        scales[u] = dx;
        seconds[u] = (float)second;
    }
    if (u + 1 < units)
        return;
#pragma unroll 1
    for (int i = units + lane; i < (pairs + 7) / 8 * 16; i += 32)
        scales[i] = 0.0f;
    if (lane < (pairs + 1) / 2 * 4 - units)
        seconds[units + lane] = 0.0f;
    if (units % 2 != 0 && lane < 16)
        ((uint32_t *)(out + X_UNIT))[lane] = 0;
    if (units % 2 != 0 && lane < 2)
        sums[2 + lane] = 0.0f;
}

/* Part of 8 elements, of all k / 8 and what is missing of the last pair; further ones only take part. */
static __device__ __forceinline__ void quantise_part(uint8_t *row, const float *x, int k, int i, bool eight)
{
    float v[8];

#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = i * 8 < k ? x[i * 8 + j] : 0.0f;
    quantise_values(row, x_pairs(k), v, i / 8, i % 8, sharers(eight), eight, i < x_pairs(k) * 8);
}

void cuda_quantise(struct cuda *c, uint8_t *out, struct tensor x);
/* Formats of most files. */
static inline bool cuda_is_common(int type)
{
    return gemm_formats_have(GEMM_FORMATS_COMMON, type);
}
/* Whether row i of gemm_kernels[] may be launched; and that it is. */
static inline bool cuda_may(const struct cuda *c, int i)
{
    return c->only == 0 || c->only == i + 1;
}
static inline void cuda_used(struct cuda *c, int i)
{
    c->used |= (uint64_t)1 << i;
}
void cuda_float(struct cuda *c, int kernel, struct tensor w, struct tensor y, struct tensor x); /* gemm/gemm_float.cu */
void cuda_rare(struct cuda *c, struct tensor w, struct tensor y, const uint8_t *x, int nx);     /* gemm/gemv_rare.cu */
#endif
