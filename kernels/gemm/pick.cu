/* SPDX-License-Identifier: Apache-2.0 */
/* pick.cu - which GEMV or GEMM kernel a product runs on; quantisation of its activations; several matrices in one
 * launch. */
#include "kernels/gemm/acts_a8_wgmma.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/gemm/acts_a16_wgmma.cuh"

enum { WIDE_LEAST = 64, GRID_Y = 65535 }; /* rows of activations from which gemm/gemm_r64_a16_wgmma.cuh pays; most blocks that way */

/* Rounds rows of floats: 8 threads a pair of units, 8 elements each. */
__global__ void quantise(uint8_t *out, const float *x, int64_t stride, int k, int64_t row_bytes, bool eight)
{
    quantise_part(out + blockIdx.y * row_bytes, x + blockIdx.y * stride, k, blockIdx.x * 256 + threadIdx.x, eight);
}

void cuda_quantise(struct cuda *c, uint8_t *out, struct tensor x)
{
    int k = (int)x.ne[0];

    for (int64_t r = 0; r < x.ne[1]; r += GRID_Y) {
        int n = (int)(x.ne[1] - r < GRID_Y ? x.ne[1] - r : (int64_t)GRID_Y);

        LAUNCH(c, quantise, dim3((unsigned)ceil_div(k, 64 * 32), (unsigned)n), 256, 0, out + r * x_row_bytes(k),
               (const float *)x.data + r * x.stride, x.stride, k, x_row_bytes(k), c->eight);
    }
}

size_t cuda_matmul_ws(int64_t k, int64_t n_rows)
{
    size_t other = whole_bytes(k, n_rows);

    if (n_rows >= WIDE_LEAST) {
        const size_t wide = wide_bytes(k, n_rows), broad = broad_bytes(k, n_rows);

        other = other > wide ? other : wide;
        other = other > broad ? other : broad;
    }
    return round_up((size_t)(x_row_bytes(k) * n_rows), 256) + other;
}

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
template <int HALF, int LEFT>
static __device__ __forceinline__ int fold_half(float *v)
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
enum { MANY_W = 16, MANY_X = 8, MANY_BLOCK = 32, MANY_K = 64, MANY_STAGES = 3 };
typedef float many_stage[2 * MANY_BLOCK][MANY_K];

/* Products of 64 elements. */
static __device__ __forceinline__ void many_times(float v[MANY_W * MANY_X], const many_stage &near, int w0, int x0)
{
    const int lane = threadIdx.x & 31;
    float b[MANY_X][2];

#pragma unroll
    for (int t = 0; t < MANY_X; t++) {
        b[t][0] = near[MANY_BLOCK + x0 + t][lane];
        b[t][1] = near[MANY_BLOCK + x0 + t][lane + 32];
    }
#pragma unroll
    for (int r = 0; r < MANY_W; r++) {
        const float a0 = near[w0 + r][lane], a1 = near[w0 + r][lane + 32];

#pragma unroll
        for (int t = 0; t < MANY_X; t++)
            v[r * MANY_X + t] = __fmaf_rn(a1, b[t][1], __fmaf_rn(a0, b[t][0], v[r * MANY_X + t]));
    }
}

template <int TYPE, bool COPIED>
__global__ void __launch_bounds__(256) plain_many(const uint8_t *w, int64_t row_bytes, int n_rows, int k, float *y,
                                                  int64_t y_stride, const float *x, int64_t x_stride, int nx)
{
    enum { N = MANY_W * MANY_X, EACH = 2 * MANY_BLOCK / 8, PARTS = MANY_K / 4 };
    __shared__ __align__(16) many_stage near[MANY_STAGES];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, w0 = warp % 2 * MANY_W, x0 = warp / 2 * MANY_X;
    const int r0 = blockIdx.x * MANY_BLOCK, t0 = blockIdx.y * MANY_BLOCK;
    float v[N];

    auto row_of = [&](int i) {
        return i < MANY_BLOCK ? w + (int64_t)min(r0 + i, n_rows - 1) * row_bytes
                              : (const uint8_t *)(x + (int64_t)min(t0 + i - MANY_BLOCK, nx - 1) * x_stride);
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
                    copy16(&near[i / MANY_K % MANY_STAGES][threadIdx.x / PARTS + j * 16][threadIdx.x % PARTS * 4],
                           from[j] + (int64_t)i * 4);
            copy_end();
        };

        ask(0);
        ask(MANY_K);
        for (int i = 0; i < k; i += MANY_K) {
            copy_wait<1>();
            __syncthreads();
            ask(i + 2 * MANY_K);
            many_times(v, near[i / MANY_K % MANY_STAGES], w0, x0);
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
        for (int i = 0, at = 0; i < k; i += MANY_K, at ^= 1) {
#pragma unroll
            for (int j = 0; j < 2 * EACH; j++)
                near[at][warp * EACH + j / 2][lane + j % 2 * 32] = next[j / 2][j % 2];
            __syncthreads();
            fetch(i + MANY_K + lane);
            many_times(v, near[at], w0, x0);
        }
    }
    int at = fold_half<16, N / 2>(v);
    at += fold_half<8, N / 4>(v);
    at += fold_half<4, N / 8>(v);
    at += fold_half<2, N / 16>(v);
    at += fold_half<1, N / 32>(v);
#pragma unroll
    for (int j = 0; j < N / 32; j++) {
        int r = r0 + w0 + (at + j) / MANY_X, t = t0 + x0 + (at + j) % MANY_X;

        if (r < n_rows && t < nx)
            y[(int64_t)t * y_stride + r] = v[j];
    }
}

template <int TYPE, bool COPIED>
static void plain_tiles(struct cuda *c, struct tensor w, struct tensor y, struct tensor x)
{
    LAUNCH(c, (plain_many<TYPE, COPIED>),
           dim3((unsigned)ceil_div(w.ne[1], MANY_BLOCK), (unsigned)ceil_div(x.ne[1], MANY_BLOCK)), 256, 0,
           (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), (int)w.ne[1], (int)w.ne[0], (float *)y.data, y.stride,
           (const float *)x.data, x.stride, (int)x.ne[1]);
}

template <int TYPE>
static void plain_rows(struct cuda *c, struct tensor w, struct tensor y, struct tensor x)
{
    const bool aligned = w.ne[0] % MANY_K == 0 && x.stride % 4 == 0 && ((uintptr_t)w.data | (uintptr_t)x.data) % 16 == 0;

    if (x.ne[1] <= FEW_ROWS || (w.ne[1] == 1 && x.ne[1] <= GRID_Y))
        LAUNCH(c, plain<TYPE>, dim3((unsigned)ceil_div(w.ne[1], 8), (unsigned)x.ne[1]), 256, 0, (const uint8_t *)w.data,
               quant_row_bytes(w.type, w.ne[0]), (int)w.ne[1], (int)w.ne[0], (float *)y.data, y.stride,
               (const float *)x.data, x.stride);
    else if (TYPE == QUANT_f32 && aligned)
        plain_tiles<TYPE, TYPE == QUANT_f32>(c, w, y, x);
    else
        plain_tiles<TYPE, false>(c, w, y, x);
}

static void plain_matmul(struct cuda *c, struct tensor w, struct tensor y, struct tensor x)
{
    switch (w.type) {
    case QUANT_f32: plain_rows<QUANT_f32>(c, w, y, x); break;
    case QUANT_f16: plain_rows<QUANT_f16>(c, w, y, x); break;
    case QUANT_bf16: plain_rows<QUANT_bf16>(c, w, y, x); break;
    case QUANT_f64: plain_rows<QUANT_f64>(c, w, y, x); break;
    case QUANT_i8: plain_rows<QUANT_i8>(c, w, y, x); break;
    case QUANT_i16: plain_rows<QUANT_i16>(c, w, y, x); break;
    case QUANT_i32: plain_rows<QUANT_i32>(c, w, y, x); break;
    case QUANT_i64: plain_rows<QUANT_i64>(c, w, y, x); break;
    default: plain_rows<QUANT_iq6_k>(c, w, y, x); break;
    }
}

/* Jobs of one format at a time; columns: of a chunk. */
static void tile_jobs(struct cuda *c, struct mv_args *m, void launch(struct cuda *c, struct tile_args *a, int64_t chunks),
                      int columns)
{
    while (m->n > 0) {
        struct tile_args a = {};
        int left = 0;

        for (int i = 0; i < m->n; i++)
            if (m->job[i].type == m->job[0].type)
                a.job[a.n++] = m->job[i];
        for (int i = 0; i < m->n; i++)
            if (m->job[i].type != a.job[0].type)
                m->job[left++] = m->job[i];
        m->n = left;
        a.k = m->k;
        a.nx = m->nx;
        a.x = m->x;
        a.x_bytes = m->x_bytes;
        a.tab = m->tab;
        a.div = 1;
        launch(c, &a, ceil_div(a.nx, columns));
    }
}

/* Jobs that gemm/gemm_r17_a8_mma.cu or gemm/gemm_r64_a8_wgmma.cuh are for go first, of rows rounded for them. */
static void whole_jobs(struct cuda *c, struct mv_args *m, uint8_t *rows, struct tensor x, bool wide)
{
    struct mv_args whole = *m;
    int left = 0;

    if (!c->eight || m->nx <= FEW_ROWS)
        return;
    whole.n = 0;
    for (int i = 0; i < m->n; i++)
        (is_whole(m->job[i].type) ? whole.job[whole.n++] : m->job[left++]) = m->job[i];
    m->n = left;
    whole.x = rows;
    if (whole.n > 0 && wide)
        cuda_round_broad(c, rows, x, NULL, NULL);
    else if (whole.n > 0)
        cuda_round_whole(c, rows, x);
    tile_jobs(c, &whole, wide ? cuda_broad : cuda_whole, wide ? 1 : TILE_COLUMNS);
}

static struct tensor some_rows(struct tensor x, int64_t from, int64_t n)
{
    x.data = (float *)x.data + from * x.stride;
    x.ne[1] = n;
    return x;
}

/* A few more rows than a launch of few rows takes go in slices of equal size: a tile would be mostly empty. */
static bool matmul_in_slices(struct cuda *c, const struct job *job, int n, struct tensor x)
{
    const int64_t slices = cuda_slices(x.ne[1]);
    struct job some[JOBS];

    for (int i = 0; i < n; i++)
        if (is_plain(job[i].w.type) || !cuda_is_fused(job[i].w.type, FEW_ROWS, x.ne[0]))
            return false;
    for (int64_t s = 0; s < slices; s++) {
        const int64_t from = x.ne[1] * s / slices, to = x.ne[1] * (s + 1) / slices;

        for (int i = 0; i < n; i++)
            some[i] = (struct job){ job[i].w, some_rows(job[i].y, from, to - from) };
        cuda_matmul(c, some, n, some_rows(x, from, to - from));
    }
    return slices > 0;
}

void cuda_matmul(struct cuda *c, const struct job *job, int n, struct tensor x)
{
    if (matmul_in_slices(c, job, n, x))
        return;
    const bool many = x.ne[1] > FEW_ROWS, most = c->wide && x.ne[1] >= WIDE_LEAST;
    struct mv_args a = {}, wide = {};
    bool quantised = false;

    a.k = (int)x.ne[0];
    a.nx = (int)x.ne[1];
    a.x = c->ws;
    a.x_bytes = x_row_bytes(a.k);
    a.eight = c->eight;
    a.tab = c->tab;
    wide = a;
    for (int i = 0; i < n; i++) {
        const struct tensor &w = job[i].w, &y = job[i].y;
        const bool tiled = many ? cuda_is_tiled(w.type) : cuda_is_fused(w.type, x.ne[1], x.ne[0]);
        const bool wider = most && cuda_is_wide(w.type);

        if (is_plain(w.type)) {
            plain_matmul(c, w, y, x);
            continue;
        }
        if (!quantised && !wider) {
            cuda_quantise(c, c->ws, x);
            quantised = true;
        }
        if (!tiled && !wider) {
            cuda_rare(c, w, y, c->ws, (int)x.ne[1]);
            continue;
        }
        struct mv_args *to = wider ? &wide : &a;
        to->job[to->n++] = (struct mv_job){ (const uint8_t *)w.data, quant_row_bytes(w.type, w.ne[0]), (float *)y.data,
                                            y.stride, (int)w.ne[1], w.type, 0 };
    }
    uint8_t *rows = c->ws + round_up((size_t)(a.x_bytes * a.nx), 256);
    whole_jobs(c, most ? &wide : &a, rows, x, most);
    if (wide.n > 0) {
        cuda_round_wide(c, rows, x);
        wide.x = rows;
        tile_jobs(c, &wide, cuda_wide, 1);
    }
    if (a.n > 0 && many) {
        tile_jobs(c, &a, cuda_tile, TILE_COLUMNS);
    } else if (a.n > 0) {
        struct fused_args f = {};

        f.a = a;
        f.mode = IN_ROUNDED;
        cuda_fused_matvec(c, &f);
    }
}
