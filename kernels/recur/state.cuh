/* SPDX-License-Identifier: Apache-2.0 */
/* state.cuh - shared by the files of recurrent layers.   room: kernels */
#ifndef KERNELS_RECUR_STATE_CUH
#define KERNELS_RECUR_STATE_CUH
#include "kernels/common/math.cuh"

struct conv_args {
    float *y;
    const float *x;
    int64_t ys, xs;
    struct op_conv a;
    struct rows r;
    int channels;
    bool again; /* y has room for rows that are computed again */
    int back;   /* inputs in the memory */
};

enum rule { GDN, KDA, SSM2 };

/* Row r, head h: k at k + r * ks + key head * dim, and so on. g and b: [rows][heads]; KDA: g [rows][heads][dim]. */
struct scan_args {
    const float *k, *q, *v, *g, *b, *d;
    int64_t ks, qs, vs;
    float *y;
    int64_t ys;
    int heads, dim, cols; /* S is [dim][cols] */
    int n_k, each;        /* key head of h: h / each, or h % n_k where each is 0 */
    struct op_rec rec;
    float *copy;               /* of the state, for draft rows where it is not in registers; [sequences] */
    const float *alpha, *beta; /* what is logged: of KDA a row of alpha has heads * dim floats; beta NULL: none */
    int64_t as, bs;
    struct rows r;
};

/* Normalised keys and queries, decays and betas of every row: a warp a row and head. */
struct prep_args {
    const float *x, *alpha, *beta, *a, *dt_bias;
    int64_t xs, as, bs;
    float *k, *q, *g, *b;
    int n_k, n_v, dim, rule;
    float eps;
    int64_t items;
    struct op_rec rec;
    struct rows r;
    float bound; /* of KDA; 0: none */
};

/* y = x s / |x|, by a warp; up to NORM_EACH * 32 elements are read once. y may be x. */
enum { NORM_EACH = 8 };
static __device__ __forceinline__ void l2_norm(float *y, const float *x, int n, float eps, float s)
{
    const int lane = threadIdx.x & 31;
    float v[NORM_EACH], sum = 0.0f;

#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        v[j] = lane + 32 * j < n ? x[lane + 32 * j] : 0.0f;
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        sum = __fmaf_rn(v[j], v[j], sum);
    for (int i = lane + 32 * NORM_EACH; i < n; i += 32)
        sum = __fmaf_rn(x[i], x[i], sum);
    float f = __fdiv_rn(s, __fsqrt_rn(__fadd_rn(warp_sum(sum), eps)));
#pragma unroll
    for (int j = 0; j < NORM_EACH; j++)
        if (lane + 32 * j < n)
            y[lane + 32 * j] = __fmul_rn(v[j], f);
    for (int i = lane + 32 * NORM_EACH; i < n; i += 32)
        y[i] = __fmul_rn(x[i], f);
}

/* Where eight lanes share a column of 8 NE elements (recur/scan.cu): lane p's elements of a row in shared memory, or of
 * S: element of place e. */
template <int NE> static __device__ __forceinline__ int element_at(int p, int e)
{
    return p * NE + (e / 4 + p * NE / 32) % (NE / 4) * 4 + e % 4;
}

template <int NE> static __device__ __forceinline__ void lane_elements(float *v, const float *row, int p)
{
#pragma unroll
    for (int e = 0; e < NE; e += 4) {
        float4 f = *(const float4 *)(row + element_at<NE>(p, e));

        v[e] = f.x;
        v[e + 1] = f.y;
        v[e + 2] = f.z;
        v[e + 3] = f.w;
    }
}

static __device__ __forceinline__ float fold8(float v)
{
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 4));
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

/* recur/scan.cu */
static inline bool scan_in_registers(int dim)
{
    return dim == 32 || dim == 64 || dim == 128 || dim == 256;
}
void cuda_scan(struct cuda *c, const scan_args &a, enum rule rule);
#endif
