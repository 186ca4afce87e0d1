/* SPDX-License-Identifier: Apache-2.0 */
/* embed.cu - rows of a stored matrix as floats: the bytes that libcore/quant decodes. */
#include "kernels/fused.cuh"
#include "kernels/product.cuh"
#include "kernels/quant/all.cuh"

template <int TYPE>
static __device__ __forceinline__ void unit_floats(float *y, const uint8_t *row, int i, const struct tables *tab,
                                                   float scale)
{
    typename wq<TYPE>::raw raw;
    unit both[2];

    wq<TYPE>::load(raw, row, i / 2);
    wq<TYPE>::unpack(raw, i / 2, both, 2 - (i % 2 == 0), tab);
    const unit &u = both[i % 2];
#pragma unroll
    for (int j = 0; j < 32; j++) {
        int h = wq<TYPE>::HALF ? j / 16 : 0;
        float v = __fmul_rn(u.d[h], (float)(int8_t)(u.w[j / 4] >> j % 4 * 8));

        if (wq<TYPE>::MIN)
            v = __fsub_rn(v, u.m[h]);
        y[j] = scale == 1.0f ? v : __fmul_rn(v, scale);
    }
}

/* token NULL: every row in turn. */
__global__ void embed(float *y, int64_t ys, const uint8_t *w, int64_t row_bytes, int type, const int *token, int k,
                      float scale, const struct tables *tab)
{
    wait_for_inputs();
    int i = blockIdx.x * 64 + threadIdx.x;
    const uint8_t *row = w + (int64_t)(token == NULL ? (int)blockIdx.y : token[blockIdx.y]) * row_bytes;
    float *out = y + blockIdx.y * ys;

    if (type <= QUANT_i64 || type == QUANT_iq6_k) {
        for (int j = i * 32; j < i * 32 + 32 && j < k; j++)
            out[j] = scale == 1.0f ? plain_at(type, row, j) : __fmul_rn(plain_at(type, row, j), scale);
        return;
    }
    if (i * 32 >= k)
        return;
    switch (type) {
#define X(name) case QUANT_##name: unit_floats<QUANT_##name>(out + i * 32, row, i, tab, scale); break;
        CUDA_COMMON(X) CUDA_RARE(X)
#undef X
    default: break;
    }
}

void cuda_embed(struct cuda *c, const struct node *v)
{
    const struct tensor &y = v->t[0], &w = v->t[1];
    const int *token = (const int *)v->p[0];
    int64_t row_bytes = quant_row_bytes(w.type, w.ne[0]);

    for (int64_t r = 0; r < y.ne[1]; r += 65535) {
        int64_t n = y.ne[1] - r < 65535 ? y.ne[1] - r : 65535;

        launch_early(c, "embed", embed, dim3((unsigned)ceil_div(w.ne[0], 64 * 32), (unsigned)n), 64, 0,
                     (float *)y.data + r * y.stride, y.stride, (const uint8_t *)w.data + (token == NULL ? r * row_bytes : 0),
               row_bytes, w.type, token == NULL ? NULL : token + r, (int)w.ne[0], v->f[0], c->tab);
    }
}
