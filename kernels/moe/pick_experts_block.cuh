/* SPDX-License-Identifier: Apache-2.0 */
/* pick_experts_block.cuh - top-k experts of a token and their weights, by a block.   room: kernels */
#ifndef KERNELS_MOE_PICK_EXPERTS_BLOCK_CUH
#define KERNELS_MOE_PICK_EXPERTS_BLOCK_CUH
#include "kernels/moe/pick_experts_warp.cuh"
#include "kernels/common/math.cuh"

enum { CHOICE_EXPERTS = GEMM_CHOICE_EXPERTS, CHOICE_USED = GEMM_CHOICE_USED };

struct choice_args {
    const float *logits; /* NULL: it has been made */
    int64_t ls, ws;
    struct op_route r;
    int *expert;
    float *weight;
};
static inline choice_args choice_of(const struct node *route)
{
    const struct tensor &logits = route->t[1], &weight = route->t[0];

    return { (const float *)logits.data, logits.stride,       weight.stride, route->route,
             (int *)route->out,          (float *)weight.data };
}

/* Of a row. */
struct choice_space {
    float logit[CHOICE_EXPERTS];
    uint32_t key[CHOICE_EXPERTS];
    float top, divisor;
};

template <int EACH> static __device__ __forceinline__ void pick_row(choice_space &s, int *chosen, int n_used)
{
    uint32_t key[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++)
        key[j] = s.key[threadIdx.x % 32 * EACH + j];
    pick_best<EACH>(key, n_used, chosen);
}

/* What a softmax divides by, and the largest logit; a lane has every 32nd. By a warp. */
static __device__ __forceinline__ void find_divisor(choice_space &s, int n)
{
    const int lane = threadIdx.x & 31;
    float top = -CUDART_INF_F, divisor = 0.0f;

#pragma unroll 1
    for (int e = lane; e < n; e += 32)
        top = fmaxf(top, s.logit[e]);
    top = warp_max(top);
#pragma unroll 1
    for (int e = lane; e < n; e += 32)
        divisor += expf(s.logit[e] - top);
    divisor = warp_sum(divisor);
    if (lane == 0) {
        s.top = top;
        s.divisor = divisor;
    }
}

/* Keeps a row's choice and makes its weights, by a warp; top, divisor: of the softmax of its logits. EARLY: others read
 * it before this launch ends. */
template <bool EARLY>
static __device__ __forceinline__ void keep_choice(const choice_args &a, int row, int lane, const int *chosen,
                                                   const float *logit, const float &top, const float &divisor)
{
    const struct op_route &r = a.r;
    const int expert = chosen[min(lane, r.n_used - 1)];
    float p = 0.0f, sum = 0.0f;

    if (lane < r.n_used)
        p = r.sigmoid ? sigmoid(logit[expert]) : __fdiv_rn(expf(logit[expert] - top), divisor);
#pragma unroll 1
    for (int k = 0; k < r.n_used; k++)
        sum += __shfl_sync(0xffffffffu, p, k);
    p = r.normalise ? __fdiv_rn(p, fmaxf(sum, 0x1p-14f)) : p;
    if (lane < r.n_used) {
        a.weight[row * a.ws + lane] = __fmul_rn(p, r.scale);
        a.expert[row * r.n_used + lane] = expert;
        if (EARLY)
            __threadfence();
    }
}

/* A row's choice, by a block, in the order of operations of moe/router.cu; chosen: the experts. own: the block keeps
 * it. */
static __device__ __forceinline__ void choose_row(choice_space &s, const choice_args &a, int row, int *chosen, bool own)
{
    const struct op_route &r = a.r;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;

#pragma unroll 1
    for (int e = threadIdx.x; e < (r.n_expert + 255) / 256 * 256; e += blockDim.x) {
        const float v = e < r.n_expert ? a.logits[row * a.ls + e] : -CUDART_INF_F, score = r.sigmoid ? sigmoid(v) : v;

        s.logit[e] = v;
        s.key[e] = e < r.n_expert ? key_of(score + (r.bias == NULL ? 0.0f : r.bias[e])) : 0;
    }
    __syncthreads();
    if (warp == 0 && r.n_expert <= CHOICE_EXPERTS / 2)
        pick_row<CHOICE_EXPERTS / 64>(s, chosen, r.n_used);
    else if (warp == 0)
        pick_row<CHOICE_EXPERTS / 32>(s, chosen, r.n_used);
    if (own && !r.sigmoid && warp == ((int)blockDim.x > 32))
        find_divisor(s, r.n_expert);
    __syncthreads();
    if (warp > 0 || !own)
        return;
    keep_choice<true>(a, row, lane, chosen, s.logit, s.top, s.divisor);
}
#endif
