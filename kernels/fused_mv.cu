/* SPDX-License-Identifier: Apache-2.0 */
/* fused_mv.cu - norm, gate or activation, rounding, products of one row, and the residual, in one launch. */
#include "kernels/fused.cuh"
#include "kernels/quant/all.cuh"

/* The activations as floats, in shared memory. */
static __device__ __forceinline__ void make_input(const fused_args &f, float *xs, float *tmp)
{
    const int k = f.a.k, t = threadIdx.x, lane = t & 31;

    switch (f.mode) {
    case IN_NORM: {
        float sum = 0.0f;

        for (int i = t; i < k; i += 256) {
            float v = f.x[i];

            xs[i] = v;
            sum = __fmaf_rn(v, v, sum);
        }
        float factor = norm_factor(block_sum(sum, tmp), k, f.eps);
        for (int i = t; i < k; i += 256)
            xs[i] = __fmul_rn(__fmul_rn(xs[i], factor), f.w[i]);
        break;
    }
    case IN_GATED_NORM:
        for (int g = t / 32 * f.group; g < k; g += 8 * f.group) {
            float sum = 0.0f;

            for (int i = lane; i < f.group; i += 32)
                sum = __fmaf_rn(f.x[g + i], f.x[g + i], sum);
            float factor = norm_factor(warp_sum(sum), f.group, f.eps);
            for (int i = lane; i < f.group; i += 32) {
                float v = __fmul_rn(f.x[g + i], factor);

                if (f.w != NULL)
                    v = __fmul_rn(v, f.w[f.whole ? g + i : i]);
                xs[g + i] = __fmul_rn(silu(f.z[g + i]), v);
            }
        }
        break;
    case IN_GLU:
        for (int i = t; i < k; i += 256)
            xs[i] = __fmul_rn(silu(f.x[i]), f.z[i]);
        break;
    case IN_SIGMOID:
        for (int i = t; i < k; i += 256)
            xs[i] = __fmul_rn(f.x[i], sigmoid(f.z[i]));
        break;
    default:
        for (int i = t; i < k; i += 256)
            xs[i] = f.x[i];
        break;
    }
    __syncthreads();
}

static __device__ __forceinline__ void move_past(const fused_args &f)
{
    int c = blockIdx.x * 256 + threadIdx.x;

    if (c >= f.channels)
        return;
    float *past = f.past + f.seq->slot * f.past_floats + c;
    for (int j = 0; j + 2 < f.taps; j++)
        past[(int64_t)j * f.channels] = past[(int64_t)(j + 1) * f.channels];
    past[(int64_t)(f.taps - 2) * f.channels] = f.newest[f.seq->row * f.newest_stride + c];
}

__global__ void __launch_bounds__(256, 2) fused_matvec(const __grid_constant__ fused_args f)
{
    extern __shared__ __align__(16) float xs[];
    __shared__ __align__(16) float buf[8][AT_ONCE * BUF_PITCH];
    __shared__ float tmp[8];
    const int k = f.a.k, warp = threadIdx.x / 32;
    uint8_t *xq = (uint8_t *)(xs + k);
    int j = 0;

    while (j + 1 < f.a.n && (int)blockIdx.x >= f.a.job[j + 1].block)
        j++;
    const struct mv_job &job = f.a.job[j];
    bool plain = job.type == QUANT_f32;
    int rows = plain ? 1 : warp_rows(k), r0 = (((int)blockIdx.x - job.block) * 8 + warp) * rows;
    int here = job.n_rows - r0 < rows ? job.n_rows - r0 : rows;

    if (here > 0)
        prefetch_rows(job.w + (int64_t)r0 * job.row_bytes, here * job.row_bytes);
    wait_for_inputs();
    make_input(f, xs, tmp);
    for (int i = threadIdx.x; i < k / 8; i += 256) /* k is a multiple of 32, so 4 neighbours go together */
        quantise_part(xq, xs + i / 4 * 32 + i % 4 * 8, i / 4, i % 4, 0xfu << (threadIdx.x & 28));
    __syncthreads();
    if (blockIdx.x == 0) {
        for (int i = threadIdx.x; f.floats != NULL && i < k; i += 256)
            f.floats[i] = xs[i];
        for (int i = threadIdx.x; f.rounded != NULL && i < (int)x_row_bytes(k) / 16; i += 256)
            ((uint4 *)f.rounded)[i] = ((const uint4 *)xq)[i];
    }
    if (f.channels > 0)
        move_past(f);
    if (here <= 0)
        return;
    float *y = job.y, *res = j == 0 ? f.res : NULL, scale = f.scale;
    auto out = [=](int row, int, float v) {
        y[row] = v;
        if (res != NULL)
            res[row] = __fmaf_rn(scale, v, res[row]);
    };
    const uint8_t *const x[1] = { xq };

    switch (job.type) {
#define X(name) \
    case QUANT_##name: \
        rows_times<QUANT_##name, 1>(job.w, job.row_bytes, r0, job.n_rows, k, x, 1, f.a.tab, buf[warp], out); \
        break;
        CUDA_COMMON(X)
#undef X
    default: {
        const float *const xf[1] = { xs };
        float sum[1];

        plain_times<QUANT_f32, 1>(sum, job.w + (int64_t)r0 * job.row_bytes, k, xf, 1);
        if ((threadIdx.x & 31) == 0)
            out(r0, 0, sum[0]);
    }
    }
}

void cuda_fused_matvec(struct cuda *c, const struct fused_args *f, int blocks)
{
    launch_early(c, "fused_matvec", fused_matvec, dim3((unsigned)blocks), 256,
                 (size_t)f->a.k * sizeof(float) + (size_t)x_row_bytes(f->a.k), *f);
}
