/* SPDX-License-Identifier: Apache-2.0 */
/* mv_common.cu - products with the formats of most files. */
#include "kernels/matvec.cuh"
#include "kernels/quant/all.cuh"

bool cuda_is_common(int type)
{
    switch (type) {
#define X(name) case QUANT_##name:
        CUDA_COMMON(X)
#undef X
        return true;
    default: return false;
    }
}

template <int TT>
__global__ void __launch_bounds__(256) common(const __grid_constant__ struct mv_args a)
{
    __shared__ __align__(16) float buf[8][2 * AT_ONCE * TT * BUF_PITCH];
    int j = 0, warp = threadIdx.x / 32, t0 = blockIdx.y * TT, nt = a.nx - t0 < TT ? a.nx - t0 : TT;
    const uint8_t *x[TT];

    while (j + 1 < a.n && (int)blockIdx.x >= a.job[j + 1].block)
        j++;
    const struct mv_job &job = a.job[j];
    int r0 = (((int)blockIdx.x - job.block) * 8 + warp) * warp_rows(a.k);
#pragma unroll
    for (int t = 0; t < TT; t++)
        x[t] = a.x + (t0 + (t < nt ? t : 0)) * a.x_bytes;
    if (r0 >= job.n_rows)
        return;
    float *y = job.y + t0 * job.y_stride;
    int64_t stride = job.y_stride;
    auto out = [=](int row, int t, float v) { y[t * stride + row] = v; };

    switch (job.type) {
#define X(name) \
    case QUANT_##name: \
        rows_times<QUANT_##name, TT>(job.w, job.row_bytes, r0, job.n_rows, a.k, x, nt, a.tab, buf[warp], out); \
        break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

void cuda_common(struct cuda *c, const struct mv_args *a, int blocks)
{
    if (a->nx == 1)
        LAUNCH(c, common<1>, dim3((unsigned)blocks, 1), 256, 0, *a);
    else
        LAUNCH(c, common<4>, dim3((unsigned)blocks, (unsigned)ceil_div(a->nx, 4)), 256, 0, *a);
}
