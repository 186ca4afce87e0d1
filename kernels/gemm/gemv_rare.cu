/* SPDX-License-Identifier: Apache-2.0 */
/* gemv_rare.cu - GEMV and GEMM for few tokens in the other formats; for many tokens, q2_k. */
#include "kernels/gemm/pick.cuh"
#include "kernels/quant/all.cuh"

template <int TYPE>
__global__ void __launch_bounds__(256)
    rare(struct mv_job job, int k, const uint8_t *x, int64_t x_bytes, int nx, bool eight, const struct tables *tab)
{
    enum { TT = 4 };
    __shared__ __align__(16) float buf[8][2 * AT_ONCE * TT * BUF_PITCH];
    int warp = threadIdx.x / 32, t0 = blockIdx.y * TT, nt = nx - t0 < TT ? nx - t0 : TT;
    int r0 = ((int)blockIdx.x * 8 + warp) * warp_rows(k);
    const uint8_t *xs[TT];

    if (r0 >= job.n_rows)
        return;
#pragma unroll
    for (int t = 0; t < TT; t++)
        xs[t] = x + (t0 + (t < nt ? t : 0)) * x_bytes;
    float *y = job.y + t0 * job.y_stride;
    int64_t stride = job.y_stride;
    rows_times<TYPE, TT>(job.w, job.row_bytes, r0, job.n_rows, k, xs, nt, eight, tab, buf[warp],
                         [=](int row, int t, float v) { y[t * stride + row] = v; });
}

void cuda_rare(struct cuda *c, struct tensor w, struct tensor y, const uint8_t *x, int nx)
{
    struct mv_job job = mv_job_of(w, (float *)y.data, y.stride);
    int k = (int)w.ne[0];
    dim3 grid((unsigned)ceil_div(w.ne[1], 8 * warp_rows(k)), (unsigned)ceil_div(nx, 4));

    switch (w.type) {
#define X(name) \
    case QUANT_##name: \
        LAUNCH(c, rare<QUANT_##name>, grid, 256, 0, job, k, x, x_row_bytes(k), nx, c->eight, c->tab); \
        break;
        GEMM_RARE(X)
#undef X
    default:
        break;
    }
}
