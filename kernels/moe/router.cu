/* SPDX-License-Identifier: Apache-2.0 */
/* router.cu - the router as an operation of its own: one warp for each token. */
#include <math_constants.h>

#include "kernels/common/math.cuh"

/* The best score in the order (score descending, index ascending) after (last_score, last); -1: none. */
static __device__ int next_best(const float *score, int n, float last_score, int last)
{
    float best_score = -CUDART_INF_F;
    int best = -1;

    for (int i = threadIdx.x; i < n; i += 32) {
        float s = score[i];
        bool left = last < 0 || s < last_score || (s == last_score && i > last);

        if (left && s > -CUDART_INF_F && (best < 0 || s > best_score)) {
            best = i;
            best_score = s;
        }
    }
#pragma unroll
    for (int half = 16; half > 0; half /= 2) {
        float s = __shfl_xor_sync(0xffffffffu, best_score, half);
        int i = __shfl_xor_sync(0xffffffffu, best, half);

        if (i >= 0 && (best < 0 || s > best_score || (s == best_score && i < best))) {
            best = i;
            best_score = s;
        }
    }
    return best;
}

struct route_args {
    int *expert;
    float *weight;
    const float *logits;
    int64_t ws, ls;
    struct op_route a;
    float *space; /* scores, where they do not fit shared memory */
};

__global__ void __launch_bounds__(32) route(route_args t)
{
    extern __shared__ float shared[];
    const struct op_route &a = t.a;
    int lane = threadIdx.x, n = a.n_expert;
    int64_t r = blockIdx.x;
    float *prob = t.space != NULL ? t.space + 2 * r * n : shared, *score = prob + n;
    const float *logits = t.logits + r * t.ls;
    float top = -CUDART_INF_F, sum = 0.0f;

    for (int i = lane; i < n; i += 32)
        top = fmaxf(top, logits[i]);
    top = warp_max(top);
    for (int i = lane; i < n; i += 32) {
        prob[i] = a.sigmoid ? sigmoid(logits[i]) : expf(logits[i] - top);
        sum += prob[i];
    }
    sum = warp_sum(sum);
    for (int i = lane; i < n; i += 32) {
        prob[i] = a.sigmoid ? prob[i] : __fdiv_rn(prob[i], sum);
        score[i] = (a.sigmoid ? prob[i] : logits[i]) + (a.bias == NULL ? 0.0f : a.bias[i]);
    }
    __syncwarp();
    if (a.n_group > 1) {
        __shared__ float total[OP_GROUPS_MAX];
        unsigned long long keep = 0;
        int per = n / a.n_group, last = -1;

        for (int g = 0; g < a.n_group; g++) {
            const float *s = score + g * per;
            int first = next_best(s, per, 0.0f, -1), second = first < 0 ? -1 : next_best(s, per, s[first], first);

            if (lane == 0)
                total[g] = first < 0 ? -CUDART_INF_F : s[first] + (second < 0 ? 0.0f : s[second]);
        }
        __syncwarp();
        for (int k = 0; k < a.n_group_used; k++) {
            last = next_best(total, a.n_group, last < 0 ? 0.0f : total[last], last);
            if (last < 0)
                break;
            keep |= 1ull << last;
        }
        for (int i = lane; i < n; i += 32)
            if (!(keep >> (i / per) & 1))
                score[i] = -CUDART_INF_F;
        __syncwarp();
    }
    int *expert = t.expert + r * a.n_used;
    float *weight = t.weight + r * t.ws;
    int last = -1;
    sum = 0.0f;
    for (int k = 0; k < a.n_used; k++) {
        int best = next_best(score, n, last < 0 ? 0.0f : score[last], last), e = best < 0 ? k : best;

        last = best;
        sum += prob[e];
        if (lane == 0) {
            expert[k] = e;
            weight[k] = prob[e];
        }
    }
    __syncwarp();
    for (int k = lane; k < a.n_used; k += 32) {
        float w = a.normalise ? __fdiv_rn(prob[expert[k]], fmaxf(sum, 0x1p-14f)) : prob[expert[k]];

        weight[k] = __fmul_rn(w, a.scale);
    }
}

size_t cuda_route_ws(const struct node *v)
{
    size_t row = 2 * (size_t)v->route.n_expert * sizeof(float);

    return row <= 32768 ? 0 : row * (size_t)v->t[1].ne[1];
}

void cuda_route(struct cuda *c, const struct node *v)
{
    size_t row = 2 * (size_t)v->route.n_expert * sizeof(float);
    route_args a = { (int *)v->out,
                     (float *)v->t[0].data,
                     (const float *)v->t[1].data,
                     v->t[0].stride,
                     v->t[1].stride,
                     v->route,
                     row <= 32768 ? NULL : (float *)c->ws };

    LAUNCH(c, route, (unsigned)v->t[1].ne[1], 32, row <= 32768 ? row : 0, a);
}
