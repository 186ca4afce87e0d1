/* SPDX-License-Identifier: Apache-2.0 */
/* fused_moe.cu - a mixture of experts for one row in two launches. */
#include <math_constants.h>

#include "kernels/fused.cuh"
#include "kernels/quant/all.cuh"

/* Floats in an order of whole numbers; 0 for what may not be chosen. */
static __device__ __forceinline__ uint32_t key_of(float s)
{
    uint32_t u = __float_as_uint(s);

    if (!(s > -CUDART_INF_F))
        return 0;
    u = s == 0.0f ? 0 : u; /* both zeros are alike */
    return u >> 31 ? ~u : u | 0x80000000u;
}

enum { EXPERTS = 512, EACH = EXPERTS / 32 };

/* One warp; the choice and the order of operations of route.cu. */
static __device__ void choose(const fused_up &f, int *expert, float *weight, float *prob)
{
    const int lane = threadIdx.x & 31, n = f.r.n_expert, each = (n + 31) / 32;
    float top = -CUDART_INF_F, sum = 0.0f, p[EACH];
    uint32_t key[EACH];

#pragma unroll
    for (int j = 0; j < EACH; j++) {
        p[j] = j < each && lane + 32 * j < n ? f.logits[lane + 32 * j] : -CUDART_INF_F;
        top = fmaxf(top, p[j]);
    }
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
#pragma unroll
    for (int j = 0; j < EACH; j++) {
        int i = lane + 32 * j;

        key[j] = 0;
        if (i < n) {
            float logit = p[j];

            p[j] = f.r.sigmoid ? sigmoid(logit) : expf(logit - top);
            sum += p[j];
            key[j] = key_of((f.r.sigmoid ? p[j] : logit) + (f.r.bias == NULL ? 0.0f : f.r.bias[i]));
        }
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int j = 0; j < EACH; j++)
        if (lane + 32 * j < n)
            prob[lane + 32 * j] = f.r.sigmoid ? p[j] : __fdiv_rn(p[j], sum);
    __syncwarp();
    sum = 0.0f;
    for (int k = 0; k < f.r.n_used; k++) {
        uint32_t best = 0;
        int at = 0;

#pragma unroll
        for (int j = 0; j < EACH; j++)
            if (key[j] > best) {
                best = key[j];
                at = j;
            }
        uint32_t most = __reduce_max_sync(0xffffffffu, best);
        unsigned who = __reduce_min_sync(0xffffffffu, best == most && most > 0 ? (unsigned)(lane + 32 * at) : ~0u);
        int e = most > 0 ? (int)who : k;

        if (most > 0 && lane == e % 32)
#pragma unroll
            for (int j = 0; j < EACH; j++)
                if (j == e / 32)
                    key[j] = 0;
        sum += prob[e];
        if (lane == 0)
            expert[k] = e;
    }
    __syncwarp();
    for (int k = lane; k < f.r.n_used; k += 32) {
        float w = f.r.normalise ? __fdiv_rn(prob[expert[k]], fmaxf(sum, 0x1p-14f)) : prob[expert[k]];

        weight[k] = __fmul_rn(w, f.r.scale);
    }
    __syncwarp();
}

/* grid: rows of ff, chosen expert (with a hand-over: after the block that gives) */
enum { UP_NR = 2, DOWN_NR = 2 };
template <int TYPE>
__global__ void __launch_bounds__(256, 2) fused_up_rows(const __grid_constant__ fused_up f)
{
    __shared__ __align__(16) float buf[8][2 * UP_NR * BUF_PITCH];
    __shared__ float prob[EXPERTS], weight[FUSED_USED + 1], gates[8][16];
    __shared__ int expert[FUSED_USED + 1];
    extern __shared__ __align__(16) uint8_t xq[];
    const int warp = threadIdx.x / 32, per = warp_rows(f.k, UP_NR), r0 = ((int)blockIdx.x * 8 + warp) * per;
    const int use = (int)blockIdx.y - (f.slot != NULL); /* the host's part goes first */

    wait_for_inputs();
    if (warp == 0)
        choose(f, expert, weight, prob);
    else
        for (int i = (int)threadIdx.x - 32; i < (int)x_row_bytes(f.k) / 16; i += 224)
            ((uint4 *)xq)[i] = ((const uint4 *)f.x)[i];
    __syncthreads();
    if (blockIdx.x == 0 && blockIdx.y == 0 && (int)threadIdx.x < f.r.n_used) {
        f.expert[threadIdx.x] = expert[threadIdx.x];
        f.weight[threadIdx.x] = weight[threadIdx.x];
    }
    if (use < 0) {
        if (blockIdx.x == 0)
            hand_give(f.hand, f.floats, f.k, f.k, 1, expert, f.r.n_used, 256);
        return;
    }
    int matrix = f.slot == NULL ? expert[use] : f.slot[expert[use]];
    if (r0 >= f.ff || matrix < 0)
        return;
    int64_t base = matrix * f.expert_bytes;
    float *gate = gates[warp], *hid = f.hid + (int64_t)use * f.ff;
    int act = f.act;
    bool gated = f.gate != NULL;
    auto keep = [=](int row, int, float v) { gate[row - r0] = v; };
    auto out = [=](int row, int, float v) {
        float in = gated ? gate[row - r0] : v, up = gated ? v : 1.0f, pos = fmaxf(in, 0.0f);

        hid[row] = act == OP_SILU ? __fmul_rn(silu(in), up) : __fmul_rn(__fmul_rn(pos, pos), up);
    };
    const uint8_t *const x[1] = { xq };

    int here = f.ff - r0 < per ? f.ff - r0 : per;
    prefetch_rows(f.up + base + (int64_t)r0 * f.row_bytes, here * f.row_bytes);
    if (gated)
        rows_times<TYPE, 1, UP_NR>(f.gate + base, f.row_bytes, r0, f.ff, f.k, x, 1, f.tab, buf[warp], keep);
    __syncwarp();
    rows_times<TYPE, 1, UP_NR>(f.up + base, f.row_bytes, r0, f.ff, f.k, x, 1, f.tab, buf[warp], out);
}

void cuda_fused_up(struct cuda *c, const struct fused_up *f)
{
    dim3 grid((unsigned)ceil_div(f->ff, 8 * warp_rows(f->k, UP_NR)), (unsigned)(f->r.n_used + (f->slot != NULL)));

    switch (f->type) {
#define X(name) \
    case QUANT_##name: \
        launch_early(c, "fused_up", fused_up_rows<QUANT_##name>, grid, 256, (size_t)x_row_bytes(f->k), *f); \
        break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

template <int TYPE>
static __device__ __forceinline__ void some_rows(const uint8_t *w, int64_t row_bytes, int r0, int n, int k,
                                                 const uint8_t *xq, const struct tables *tab, float *buf, float *sums)
{
    const uint8_t *const x[1] = { xq };

    for (int r = r0; r < n; r += warp_rows(k, DOWN_NR)) {
        asm volatile("" ::: "memory"); /* activations are read again: registers are for weights */
        rows_times<TYPE, 1, DOWN_NR>(w, row_bytes, r, n, k, x, 1, tab, buf, [=](int row, int, float v) { sums[row - r0] = v; });
    }
}

/* A warp an expert, the last one the shared expert; 8 rows a block. */
enum { DOWN_ROWS = 8 };
template <int TYPE, int SHARED>
__global__ void __launch_bounds__(32 * (FUSED_USED + 1), 1) fused_down_rows(const __grid_constant__ fused_down f,
                                                                         int64_t x_bytes)
{
    __shared__ __align__(16) float buf[FUSED_USED + 1][2 * DOWN_NR * BUF_PITCH];
    __shared__ float sums[FUSED_USED + 1][DOWN_ROWS];
    extern __shared__ __align__(16) uint8_t shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x & 31, r0 = (int)blockIdx.x * DOWN_ROWS;
    const int rows = f.n - r0 < DOWN_ROWS ? f.n - r0 : DOWN_ROWS;
    const bool routed = warp < f.n_used;
    const int k = routed ? f.ff : f.sh_ff;
    bool away = false;
    uint8_t *xq = shared + warp * x_bytes;

    if (!routed && f.sh != NULL)
        prefetch_rows(f.sh + (int64_t)r0 * f.sh_bytes, rows * f.sh_bytes);
    wait_for_inputs();
    int matrix = !routed ? 0 : f.slot == NULL ? f.expert[warp] : f.slot[f.expert[warp]];
    const uint8_t *w = routed ? f.down + matrix * f.expert_bytes : f.sh;
    int64_t bytes = routed ? f.row_bytes : f.sh_bytes;
    away = matrix < 0;
    if (routed && !away)
        prefetch_rows(w + (int64_t)r0 * bytes, rows * bytes);
    for (int i = lane; !away && i < x_pairs(k) * 8; i += 32) {
        float v[8];

#pragma unroll
        for (int j = 0; j < 8; j++) {
            int at = i * 8 + j;

            v[j] = at >= k  ? 0.0f
                 : routed ? f.hid[(int64_t)warp * f.ff + at]
                          : __fmul_rn(silu(f.sh_gate[at]), f.sh_up[at]);
        }
        quantise_values(xq, x_pairs(k), v, i / 8, i % 8, 0xfu << (lane & 28));
    }
    __syncwarp();
    if (away)
        ;
    else if (routed || TYPE == SHARED)
        some_rows<TYPE>(w, bytes, r0, r0 + rows, k, xq, f.tab, buf[warp], sums[warp]);
    else
        some_rows<SHARED>(w, bytes, r0, r0 + rows, k, xq, f.tab, buf[warp], sums[warp]);
    if (f.slot != NULL) { /* the first block waits in any case: the next hand-over must not begin before */
        bool any = __syncthreads_or(away);

        if (threadIdx.x == 0 && (any || blockIdx.x == 0))
            hand_await(f.hand, blockIdx.x == 0);
        __syncthreads();
        if (away && lane < rows)
            sums[warp][lane] = __ldcv(f.hand.out + (int64_t)warp * f.n + r0 + lane);
    }
    __syncthreads();
    if ((int)threadIdx.x < rows) {
        float sum = 0.0f;

        for (int e = 0; e < f.n_used; e++)
            sum = __fmaf_rn(f.weight[e], sums[e][threadIdx.x], sum);
        if (f.sh != NULL)
            sum = __fmaf_rn(f.sh_open != NULL ? sigmoid(*f.sh_open) : 1.0f, sums[f.n_used][threadIdx.x], sum);
        f.y[r0 + threadIdx.x] = sum;
        if (f.res != NULL)
            f.res[r0 + threadIdx.x] = __fmaf_rn(f.scale, sum, f.res[r0 + threadIdx.x]);
    }
}

template <int TYPE, int SHARED>
static void down(struct cuda *c, const struct fused_down *f)
{
    int warps = f->n_used + (f->sh != NULL);
    int64_t k = f->ff > f->sh_ff ? f->ff : f->sh_ff, x = x_row_bytes(k);

    launch_early(c, "fused_down", fused_down_rows<TYPE, SHARED>, dim3((unsigned)ceil_div(f->n, DOWN_ROWS)),
                 (unsigned)(32 * warps), (size_t)(warps * x), *f, x);
}

template <int TYPE>
static void down_shared(struct cuda *c, const struct fused_down *f)
{
    switch (f->sh != NULL ? f->sh_type : TYPE) {
#define X(name) case QUANT_##name: down<TYPE, QUANT_##name>(c, f); break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}

void cuda_fused_down(struct cuda *c, const struct fused_down *f)
{
    switch (f->type) {
#define X(name) case QUANT_##name: down_shared<QUANT_##name>(c, f); break;
        CUDA_COMMON(X)
#undef X
    default: break;
    }
}
