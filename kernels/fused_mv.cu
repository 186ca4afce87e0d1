/* SPDX-License-Identifier: Apache-2.0 */
/* fused_mv.cu - norm, gate or activation, rounding, products of one row, and the residual, in one launch. */
#include "kernels/fused.cuh"
#include "kernels/quant/all.cuh"

/* The activations as floats, in shared memory. Loads of a thread are all in flight before the first is used. */
enum { PER = FUSED_K / 256 };

static __device__ __forceinline__ void make_input(const fused_args &f, float *xs, float *tmp)
{
    const int k = f.a.k, t = threadIdx.x;
    float v[PER];

#pragma unroll
    for (int j = 0; j < PER; j++)
        if (t + 256 * j < k)
            v[j] = f.x[t + 256 * j];
    if (f.mode == IN_NORM) {
        float sum = 0.0f;

#pragma unroll
        for (int j = 0; j < PER; j++)
            if (t + 256 * j < k)
                sum = __fmaf_rn(v[j], v[j], sum);
        float factor = norm_factor(block_sum(sum, tmp), k, f.eps);
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (t + 256 * j < k)
                v[j] = __fmul_rn(__fmul_rn(v[j], factor), f.w[t + 256 * j]);
    } else if (f.mode != IN_PLAIN) {
#pragma unroll
        for (int j = 0; j < PER; j++)
            if (t + 256 * j < k) {
                float z = f.z[t + 256 * j];

                v[j] = f.mode == IN_GLU ? __fmul_rn(silu(v[j]), z) : __fmul_rn(v[j], sigmoid(z));
            }
    }
#pragma unroll
    for (int j = 0; j < PER; j++)
        if (t + 256 * j < k)
            xs[t + 256 * j] = v[j];
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

struct where {
    int  job, r0, here;
    bool plain;
};

/* The warp's rows in block b of the launch. */
template <int NR>
static __device__ __forceinline__ where find_rows(const fused_args &f, int b)
{
    where w = { 0, 0, 0, false };

    while (w.job + 1 < f.a.n && b >= f.a.job[w.job + 1].block)
        w.job++;
    const struct mv_job &job = f.a.job[w.job];
    w.plain = job.type == QUANT_f32;
    int rows = w.plain ? 1 : warp_rows(f.a.k, NR);
    w.r0 = ((b - job.block) * 8 + (int)threadIdx.x / 32) * rows;
    w.here = min(job.n_rows - w.r0, rows);
    if (w.here > 0)
        prefetch_rows(job.w + (int64_t)w.r0 * job.row_bytes, w.here * job.row_bytes);
    return w;
}

template <int TYPE, int NR>
static __device__ __forceinline__ void some_rows(const struct mv_job &job, int r0, int k, const uint8_t *xq,
                                              const struct tables *tab, float *buf, float *res, float scale)
{
    const uint8_t *const x[1] = { xq };
    float *y = job.y;

    rows_times<TYPE, 1, NR>(job.w, job.row_bytes, r0, job.n_rows, k, x, 1, tab, buf, [=](int row, int, float v) {
        y[row] = v;
        if (res != NULL)
            res[row] = __fmaf_rn(scale, v, res[row]);
    });
}

/* Jobs of one format and of f32: more formats would not fit the registers. */
template <int TYPE, int NR>
__global__ void __launch_bounds__(256, 2) fused_matvec(const __grid_constant__ fused_args f, int blocks)
{
    extern __shared__ __align__(16) float xs[];
    __shared__ __align__(16) float buf[8][2 * NR * BUF_PITCH];
    __shared__ float tmp[8];
    const int k = f.a.k, warp = threadIdx.x / 32;
    uint8_t *xq = (uint8_t *)(xs + k);
    where w = find_rows<NR>(f, blockIdx.x);

    wait_for_inputs();
    if (f.mode == IN_ROUNDED) {
        for (int i = threadIdx.x; i < (int)x_row_bytes(k) / 16; i += 256)
            ((uint4 *)xq)[i] = ((const uint4 *)f.x_rounded)[i];
    } else {
        make_input(f, xs, tmp);
        for (int i = threadIdx.x; i < x_pairs(k) * 8; i += 256)
            quantise_part(xq, xs, k, i);
    }
    __syncthreads();
    if (blockIdx.x == 0) {
        for (int i = threadIdx.x; f.floats != NULL && i < k; i += 256)
            f.floats[i] = xs[i];
        for (int i = threadIdx.x; f.rounded != NULL && i < (int)x_row_bytes(k) / 16; i += 256)
            ((uint4 *)f.rounded)[i] = ((const uint4 *)xq)[i];
    }
    if (f.channels > 0)
        move_past(f);
    for (int b = blockIdx.x; b < blocks; b += gridDim.x) {
        const where now = w;

        asm volatile("" ::: "memory"); /* activations are read again: registers are for weights */


        if (b + (int)gridDim.x < blocks)
            w = find_rows<NR>(f, b + gridDim.x);
        if (now.here <= 0)
            continue;
        const struct mv_job &job = f.a.job[now.job];
        float *res = now.job == 0 ? f.res : NULL;

        if (job.type == TYPE) {
            some_rows<TYPE, NR>(job, now.r0, k, xq, f.a.tab, buf[warp], res, f.scale);
        } else {
            const float *const xf[1] = { xs };
            float sum[1];

            plain_times<QUANT_f32, 1>(sum, job.w + (int64_t)now.r0 * job.row_bytes, k, xf, 1);
            if ((threadIdx.x & 31) == 0) {
                job.y[now.r0] = sum[0];
                if (res != NULL)
                    res[now.r0] = __fmaf_rn(f.scale, sum[0], res[now.r0]);
            }
        }
    }
}

/* Blocks of the jobs when a warp takes nr rows (times those that share its lanes). */
static int cut_jobs(struct fused_args *f, int nr)
{
    int blocks = 0;

    for (int i = 0; i < f->a.n; i++) {
        struct mv_job *job = &f->a.job[i];

        job->block = blocks;
        blocks += (int)ceil_div(job->n_rows, job->type == QUANT_f32 ? 8 : 8 * warp_rows(f->a.k, nr));
    }
    return blocks;
}

template <int TYPE>
static void launch_type(struct cuda *c, struct fused_args *f)
{
    int64_t rows = 0;
    size_t smem = (size_t)f->a.k * sizeof(float) + (size_t)x_row_bytes(f->a.k);

    for (int i = 0; i < f->a.n; i++)
        rows += f->a.job[i].n_rows;
    int nr = rows * row_lanes(f->a.k) <= 6144 * 32 ? 1 : 2;
    int blocks = cut_jobs(f, nr), most = c->sms * 2, grid = blocks < most ? blocks : most;

    if (f->channels > grid * 256)
        grid = (int)ceil_div(f->channels, 256);
    if (nr == 1)
        launch_early(c, "fused_matvec", fused_matvec<TYPE, 1>, dim3((unsigned)grid), 256, smem, *f, blocks);
    else
        launch_early(c, "fused_matvec", fused_matvec<TYPE, 2>, dim3((unsigned)grid), 256, smem, *f, blocks);
}

/* One launch for each format other than f32; the first does what is to be done once. */
void cuda_fused_matvec(struct cuda *c, struct fused_args *f)
{
    struct fused_args part = *f;
    int left = f->a.n;
    bool done[JOBS] = { false };

    while (left > 0) {
        int type = QUANT_f32;

        part.a.n = 0;
        for (int i = 0; i < f->a.n; i++) {
            int t = f->a.job[i].type;

            if (done[i] || (t != QUANT_f32 && type != QUANT_f32 && t != type))
                continue;
            type = t != QUANT_f32 ? t : type;
            part.a.job[part.a.n++] = f->a.job[i];
            done[i] = true;
            left--;
        }
        switch (type) {
#define X(name) case QUANT_##name: launch_type<QUANT_##name>(c, &part); break;
            CUDA_COMMON(X)
#undef X
        default: launch_type<QUANT_q8_0>(c, &part); break;
        }
        part.floats = NULL;
        part.rounded = NULL;
        part.channels = 0;
        part.res = NULL;
    }
}
