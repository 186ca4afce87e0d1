/* SPDX-License-Identifier: Apache-2.0 */
/* streams.cu - hyper-connections: rows of several streams. */
#include "kernels/common/math.cuh"

struct streams_args {
    float *y;
    const float *x, *g, *v;
    int64_t ys, xs, gs, vs;
    int width, n; /* of a stream; streams */
    int64_t total;
};

/* A thread a column of a row. */
__global__ void __launch_bounds__(256) streams_mix(streams_args a)
{
    const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x;

    if (at >= a.total)
        return;
    const int64_t r = at / a.width;
    const int i = (int)(at % a.width);
    const float *x = a.x + r * a.xs + i, *g = a.g + r * a.gs + i;
    float sum = 0.0f;

    for (int64_t j = 0; j < a.n; j++)
        sum = __fadd_rn(sum, __fmul_rn(x[j * a.width], sigmoid(g[j * a.width])));
    a.y[r * a.ys + i] = __fmul_rn(sum, __fdiv_rn(1.0f, (float)a.n));
}

/* Here y are the streams, x what they get. */
__global__ void __launch_bounds__(256) streams_add(streams_args a)
{
    const int64_t at = (int64_t)blockIdx.x * 256 + threadIdx.x, all = (int64_t)a.width * a.n;

    if (at >= a.total)
        return;
    const int64_t r = at / all;
    const int c = (int)(at % all);
    const float gate = __fmul_rn(2.0f, sigmoid(__fdiv_rn(a.g[r * a.gs + c / a.width], (float)a.n)));
    float *y = a.y + r * a.ys + c;

    *y = __fmaf_rn(gate, a.x[r * a.xs + c % a.width], *y);
}

/* A block a stream of a row. */
__global__ void __launch_bounds__(256) streams_gate(streams_args a)
{
    __shared__ float tmp[8];
    const int64_t r = blockIdx.x / a.n, first = (int64_t)(blockIdx.x % a.n) * a.width;
    const float *key = a.x + r * a.xs + first, *query = a.g + r * a.gs + first, *value = a.v + r * a.vs;
    float sum = 0.0f;

    for (int i = threadIdx.x; i < a.width; i += 256)
        sum = __fmaf_rn(key[i], query[i], sum);
    const float u = __fdiv_rn(block_sum(sum, tmp), __fsqrt_rn((float)a.width));
    const float root = __fsqrt_rn(fmaxf(fabsf(u), 1e-6f)), gate = sigmoid(u > 0.0f ? root : u < 0.0f ? -root : 0.0f);

    for (int i = threadIdx.x; i < a.width; i += 256)
        a.y[r * a.ys + first + i] = __fmul_rn(value[i], gate);
}

void cuda_streams(struct cuda *c, const struct node *v)
{
    const struct tensor *t = v->t;
    streams_args a = { (float *)t[0].data,
                       (const float *)t[1].data,
                       (const float *)t[2].data,
                       (const float *)t[3].data,
                       t[0].stride,
                       t[1].stride,
                       t[2].stride,
                       t[3].stride,
                       (int)t[0].ne[0],
                       0,
                       t[0].ne[0] * t[0].ne[1] };

    if (v->op == DEV_OP_streams_mix) {
        a.n = (int)(t[1].ne[0] / a.width);
        LAUNCH(c, streams_mix, (unsigned)ceil_div(a.total, 256), 256, 0, a);
        return;
    }
    a.width = (int)t[v->op == DEV_OP_streams_add ? 1 : 3].ne[0];
    a.n = (int)(t[0].ne[0] / a.width);
    if (v->op == DEV_OP_streams_add)
        LAUNCH(c, streams_add, (unsigned)ceil_div(a.total, 256), 256, 0, a);
    else
        LAUNCH(c, streams_gate, (unsigned)(a.n * t[0].ne[1]), 256, 0, a);
}
