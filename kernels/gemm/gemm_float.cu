/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_float.cu - GEMV and GEMM of formats that are decoded to floats, times activations that are not rounded: a warp
 * an output, or tiles of 32 by 32. */
#include "kernels/common/tma.cuh"
#include "kernels/gemm/pick.cuh"

/* One warp a row of weights and a row of x. */
template <int TYPE>
__global__ void __launch_bounds__(256) plain(const uint8_t *w, int64_t row_bytes, int n_rows, int k, float *y,
                                             int64_t y_stride, const float *x, int64_t x_stride)
{
    int row = blockIdx.x * 8 + threadIdx.x / 32;
    const float *const xs[1] = { x + (int64_t)blockIdx.y * x_stride };
    float sum[1];

    if (row >= n_rows)
        return;
    plain_times<TYPE, 1>(sum, w + (int64_t)row * row_bytes, k, xs, 1);
    if ((threadIdx.x & 31) == 0)
        y[(int64_t)blockIdx.y * y_stride + row] = sum[0];
}

/* Of 2 LEFT values in every lane, those of lanes HALF apart are added, and either keeps LEFT. Returns the first. */
template <int HALF, int LEFT> static __device__ __forceinline__ int fold_half(float *v)
{
    const bool upper = threadIdx.x & HALF;

#pragma unroll
    for (int j = 0; j < LEFT; j++) {
        float keep = upper ? v[j + LEFT] : v[j], send = upper ? v[j] : v[j + LEFT];

        v[j] = __fadd_rn(keep, __shfl_xor_sync(0xffffffffu, send, HALF));
    }
    return upper ? LEFT : 0;
}

/* The same for 16 rows of weights and 8 of x a warp, 32 of each a block: values are exchanged as they are folded, half
 * of them each time. Elements go through shared memory, 64 of a row at a time: as they are (COPIED: floats, whole times
 * 64, rows at multiples of 16 bytes) or through registers. */
enum { TILE_W = 16, TILE_X = 8, TILE_BLOCK = 32, TILE_K = 64, TILE_STAGES = 3 };
typedef float tile_stage[2 * TILE_BLOCK][TILE_K];

/* Products of 64 elements. */
static __device__ __forceinline__ void tile_times(float v[TILE_W * TILE_X], const tile_stage &near, int w0, int x0)
{
    const int lane = threadIdx.x & 31;
    float b[TILE_X][2];

#pragma unroll
    for (int t = 0; t < TILE_X; t++) {
        b[t][0] = near[TILE_BLOCK + x0 + t][lane];
        b[t][1] = near[TILE_BLOCK + x0 + t][lane + 32];
    }
#pragma unroll
    for (int r = 0; r < TILE_W; r++) {
        const float a0 = near[w0 + r][lane], a1 = near[w0 + r][lane + 32];

#pragma unroll
        for (int t = 0; t < TILE_X; t++)
            v[r * TILE_X + t] = __fmaf_rn(a1, b[t][1], __fmaf_rn(a0, b[t][0], v[r * TILE_X + t]));
    }
}

template <int TYPE, bool COPIED>
__global__ void __launch_bounds__(256) float_tiles(const uint8_t *w, int64_t row_bytes, int n_rows, int k, float *y,
                                                   int64_t y_stride, const float *x, int64_t x_stride, int nx)
{
    enum { N = TILE_W * TILE_X, EACH = 2 * TILE_BLOCK / 8, PARTS = TILE_K / 4 };
    __shared__ __align__(16) tile_stage near[TILE_STAGES];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, w0 = warp % 2 * TILE_W, x0 = warp / 2 * TILE_X;
    const int r0 = blockIdx.x * TILE_BLOCK, t0 = blockIdx.y * TILE_BLOCK;
    float v[N];

    auto row_of = [&](int i) {
        return i < TILE_BLOCK ? w + (int64_t)min(r0 + i, n_rows - 1) * row_bytes
                              : (const uint8_t *)(x + (int64_t)min(t0 + i - TILE_BLOCK, nx - 1) * x_stride);
    };
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = 0.0f;
    if (COPIED) {
        const uint8_t *from[4];

#pragma unroll
        for (int j = 0; j < 4; j++)
            from[j] = row_of(threadIdx.x / PARTS + j * 16) + threadIdx.x % PARTS * 16;
        auto ask = [&](int i) {
#pragma unroll
            for (int j = 0; j < 4; j++)
                if (i < k)
                    copy16(&near[i / TILE_K % TILE_STAGES][threadIdx.x / PARTS + j * 16][threadIdx.x % PARTS * 4],
                           from[j] + (int64_t)i * 4);
            copy_end();
        };

        ask(0);
        ask(TILE_K);
        for (int i = 0; i < k; i += TILE_K) {
            copy_wait<1>();
            __syncthreads();
            ask(i + 2 * TILE_K);
            tile_times(v, near[i / TILE_K % TILE_STAGES], w0, x0);
        }
    } else {
        float next[EACH][2];
        auto fetch = [&](int i) {
#pragma unroll
            for (int j = 0; j < 2 * EACH; j++) {
                const uint8_t *row = row_of(warp * EACH + j / 2);
                const int at = i + j % 2 * 32;

                next[j / 2][j % 2] = at >= k ? 0.0f : warp < 4 ? plain_at(TYPE, row, at) : ((const float *)row)[at];
            }
        };

        fetch(lane);
        for (int i = 0, at = 0; i < k; i += TILE_K, at ^= 1) {
#pragma unroll
            for (int j = 0; j < 2 * EACH; j++)
                near[at][warp * EACH + j / 2][lane + j % 2 * 32] = next[j / 2][j % 2];
            __syncthreads();
            fetch(i + TILE_K + lane);
            tile_times(v, near[at], w0, x0);
        }
    }
    int at = fold_half<16, N / 2>(v);
    at += fold_half<8, N / 4>(v);
    at += fold_half<4, N / 8>(v);
    at += fold_half<2, N / 16>(v);
    at += fold_half<1, N / 32>(v);
#pragma unroll
    for (int j = 0; j < N / 32; j++) {
        int r = r0 + w0 + (at + j) / TILE_X, t = t0 + x0 + (at + j) % TILE_X;

        if (r < n_rows && t < nx)
            y[(int64_t)t * y_stride + r] = v[j];
    }
}

template <int TYPE, bool COPIED>
static void plain_tiles(struct cuda *c, struct tensor w, struct tensor y, struct tensor x)
{
    LAUNCH(c, (float_tiles<TYPE, COPIED>),
           dim3((unsigned)ceil_div(w.ne[1], TILE_BLOCK), (unsigned)ceil_div(x.ne[1], TILE_BLOCK)), 256, 0,
           (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), (int)w.ne[1], (int)w.ne[0], (float *)y.data,
           y.stride, (const float *)x.data, x.stride, (int)x.ne[1]);
}

template <int TYPE>
static void launch_plain(struct cuda *c, bool tiles, struct tensor w, struct tensor y, struct tensor x)
{
    const bool aligned =
        w.ne[0] % TILE_K == 0 && x.stride % 4 == 0 && ((uintptr_t)w.data | (uintptr_t)x.data) % 16 == 0;

    if (!tiles)
        LAUNCH(c, plain<TYPE>, dim3((unsigned)ceil_div(w.ne[1], 8), (unsigned)x.ne[1]), 256, 0, (const uint8_t *)w.data,
               quant_row_bytes(w.type, w.ne[0]), (int)w.ne[1], (int)w.ne[0], (float *)y.data, y.stride,
               (const float *)x.data, x.stride);
    else if (TYPE == QUANT_f32 && aligned)
        plain_tiles<TYPE, TYPE == QUANT_f32>(c, w, y, x);
    else
        plain_tiles<TYPE, false>(c, w, y, x);
}

void cuda_float(struct cuda *c, int kernel, struct tensor w, struct tensor y, struct tensor x)
{
    switch (w.type) {
#define X(name) \
    case QUANT_##name: \
        launch_plain<QUANT_##name>(c, kernel == GEMM_FLOAT_TILES, w, y, x); \
        break;
        GEMM_FLOAT(X)
#undef X
    default:
        break;
    }
}
