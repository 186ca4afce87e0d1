/* SPDX-License-Identifier: Apache-2.0 */
/* embed.cu - rows of a quantised matrix as floats: the same bytes that libcore/quant decodes. */
#include "kernels/device/fused.cuh"
#include "kernels/gemm/sums.cuh"
#include "kernels/quant/all.cuh"

enum { THREADS = 256, SHARE = 4 /* threads of a unit */, EACH = 32 / SHARE };

/* Row blockIdx.y of those asked for; token NULL: every row in turn. */
struct embed_args {
    float *y;
    int64_t ys, row_bytes;
    const uint8_t *w;
    const int *token, *ids; /* token -1 - j: ids[j * ids_stride] */
    int64_t ids_stride;
    int type, k;
    float scale;
    const struct tables *tab;
};

static __device__ __forceinline__ const uint8_t *row_of(const embed_args &a)
{
    int t = a.token == NULL ? (int)blockIdx.y : a.token[blockIdx.y];

    if (t < 0)
        t = a.ids[(-1 - t) * a.ids_stride];
    return a.w + (int64_t)t * a.row_bytes;
}

/* grid: units, row */
template <int TYPE> __global__ void __launch_bounds__(THREADS) embed_units(const __grid_constant__ embed_args a)
{
    const int t = blockIdx.x * THREADS + threadIdx.x, i = t / SHARE, part = t % SHARE;
    typename wq<TYPE>::raw raw;
    unit both[2];

    wait_for_inputs();
    if (i * 32 >= a.k)
        return;
    wq<TYPE>::load(raw, row_of(a), i / 2);
    wq<TYPE>::unpack(raw, i / 2, both, 2 - (i % 2 == 0), a.tab);
    const unit &u = both[i % 2];
    float *y = a.y + blockIdx.y * a.ys + i * 32 + part * EACH;
    const int h = wq<TYPE>::HALF && part >= SHARE / 2;
    const float d = h ? u.d[1] : u.d[0], m = !wq<TYPE>::MIN ? 0.0f : h ? u.m[1] : u.m[0];
    uint32_t w[EACH / 4];

#pragma unroll
    for (int j = 0; j < 8; j++) /* places of registers cannot be computed */
        if (j / (EACH / 4) == part)
            w[j % (EACH / 4)] = u.w[j];
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        float v = __fmul_rn(d, (float)(int8_t)(w[j / 4] >> j % 4 * 8));

        if (wq<TYPE>::MIN)
            v = __fsub_rn(v, m);
        y[j] = a.scale == 1.0f ? v : __fmul_rn(v, a.scale);
    }
}

/* Formats that have no units. grid: elements, row */
__global__ void __launch_bounds__(THREADS) embed_plain(const __grid_constant__ embed_args a)
{
    const int i = blockIdx.x * THREADS + threadIdx.x;

    wait_for_inputs();
    if (i >= a.k)
        return;
    const float v = plain_at(a.type, row_of(a), i);
    a.y[blockIdx.y * a.ys + i] = a.scale == 1.0f ? v : __fmul_rn(v, a.scale);
}

static void (*kernel_of(int type))(embed_args)
{
    if (type <= QUANT_i64 || type == QUANT_iq6_k)
        return embed_plain;
    switch (type) {
#define X(name) \
    case QUANT_##name: \
        return embed_units<QUANT_##name>;
        GEMM_COMMON(X)
        GEMM_RARE(X)
#undef X
    default:
        return embed_plain;
    }
}

void cuda_embed(struct cuda *c, const struct node *v)
{
    const struct tensor &y = v->t[0], &w = v->t[1];
    const int *token = (const int *)v->p[0];
    const auto kernel = kernel_of(w.type);
    const int64_t threads = kernel == embed_plain ? w.ne[0] : ceil_div(w.ne[0], 32) * SHARE;
    embed_args a = {};

    a.ys = y.stride;
    a.row_bytes = (int64_t)quant_row_bytes(w.type, w.ne[0]);
    a.ids = (const int *)v->p[1];
    a.ids_stride = (int64_t)v->n;
    a.type = w.type;
    a.k = (int)w.ne[0];
    a.scale = v->f[0];
    a.tab = c->tab;
    for (int64_t r = 0; r < y.ne[1]; r += 65535) {
        int64_t n = y.ne[1] - r < 65535 ? y.ne[1] - r : 65535;

        a.y = (float *)y.data + r * y.stride;
        a.w = (const uint8_t *)w.data + (token == NULL ? r * a.row_bytes : 0);
        a.token = token == NULL ? NULL : token + r;
        launch_early(c, "embed", kernel, dim3((unsigned)ceil_div(threads, THREADS), (unsigned)n), THREADS, 0, a);
    }
}
