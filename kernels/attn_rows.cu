/* SPDX-License-Identifier: Apache-2.0 */
/* attn_rows.cu - attention of many rows of a sequence.
 *
 * A block takes 32 queries, the heads of one KV head times some neighbouring rows, and all of their pages. Scores and
 * weighted sums of values are products of matrices in registers: a thread has 8 queries and 8 keys, later 8 queries
 * and 8 dimensions. A warp has the same 8 queries throughout. Every sum runs in the order that attn.cu states. */
#include "kernels/attn.cuh"

enum { QUERIES = 32, CHUNK = 16, WIDE = 256, P_PITCH = OP_KV_PAGE + 4, ROW_THREADS = 128 };

struct tile_rows_args {
    attn_args a;
    int       heads; /* of a row in a block, a power of two up to HEADS */
};

static __host__ __device__ inline int row_pitch(int dim)
{
    return dim + 4;
}

/* acc += 8 rows of left (from, pitch) times CHUNK rows of right; row q stops before limit[q] - k0 where LIMIT. */
template <bool LIMIT>
static __device__ __forceinline__ void multiply(float acc[8][8], const float *left, int pitch, const float *right,
                                                const int limit[8], int k0)
{
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int k = 0; k < CHUNK; k += 4) {
        float l[8][4];

#pragma unroll
        for (int q = 0; q < 8; q++) {
            float4 v = *(const float4 *)(left + q * pitch + k);

            l[q][0] = v.x;
            l[q][1] = v.y;
            l[q][2] = v.z;
            l[q][3] = v.w;
        }
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float4 lo = *(const float4 *)(right + (k + e) * WIDE + 4 * lane);
            float4 hi = *(const float4 *)(right + (k + e) * WIDE + 128 + 4 * lane);
            const float r[8] = { lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w };

#pragma unroll
            for (int q = 0; q < 8; q++)
                if (!LIMIT || k0 + k + e < limit[q])
#pragma unroll
                    for (int c = 0; c < 8; c++)
                        acc[q][c] = __fmaf_rn(l[q][e], r[c], acc[q][c]);
        }
    }
}

/* A thread's part of CHUNK elements of all keys from d on: 2 threads a key. */
template <int TK>
static __device__ __forceinline__ void read_keys(float v[4][8], const uint8_t *keys, int64_t bytes, int n, int d)
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int j = (int)threadIdx.x / 2 + e * (ROW_THREADS / 2);

        if (j < n)
            eight<TK>(v[e], keys + j * bytes, d + (int)threadIdx.x % 2 * 8);
    }
}

static __device__ __forceinline__ void put_keys(float *to, const float v[4][8])
{
#pragma unroll
    for (int e = 0; e < 4; e++)
#pragma unroll
        for (int d = 0; d < 8; d++)
            to[(threadIdx.x % 2 * 8 + d) * WIDE + threadIdx.x / 2 + e * (ROW_THREADS / 2)] = v[e][d];
}

/* A thread's part of CHUNK values from j on: 8 threads a value. */
template <int TV>
static __device__ __forceinline__ void read_values(float v[4][8], const uint8_t *values, int64_t bytes, int n, int dim,
                                                   int j)
{
    int key = j + (int)threadIdx.x / 8;

#pragma unroll
    for (int e = 0; e < 4; e++) {
        int d = (int)threadIdx.x % 8 * 8 + 64 * e;

        if (key < n && d < dim)
            eight<TV>(v[e], values + key * bytes, d);
    }
}

static __device__ __forceinline__ void put_values(float *to, const float v[4][8])
{
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float4 *at = (float4 *)(to + threadIdx.x / 8 * WIDE + threadIdx.x % 8 * 8 + 64 * e);

        at[0] = make_float4(v[e][0], v[e][1], v[e][2], v[e][3]);
        at[1] = make_float4(v[e][4], v[e][5], v[e][6], v[e][7]);
    }
}

/* Weights of the warp's queries, of which page b has n[q] keys, in place of their scores; m and l. */
static __device__ __forceinline__ void weigh(float acc[8][8], float scale, float *p, const int n[8], float m[8], float l[8])
{
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int q = 0; q < 8; q++) {
        float *row = p + q * P_PITCH;
        float top = -CUDART_INF_F, sum = 0.0f;

#pragma unroll
        for (int c = 0; c < 8; c++) {
            int j = c / 4 * 128 + 4 * lane + c % 4;

            acc[q][c] = j < n[q] ? __fmul_rn(acc[q][c], scale) : -CUDART_INF_F;
            top = fmaxf(top, acc[q][c]);
        }
        *(float4 *)(row + 4 * lane) = make_float4(acc[q][0], acc[q][1], acc[q][2], acc[q][3]);
        *(float4 *)(row + 128 + 4 * lane) = make_float4(acc[q][4], acc[q][5], acc[q][6], acc[q][7]);
#pragma unroll
        for (int half = 16; half > 0; half /= 2)
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
        __syncwarp();
#pragma unroll
        for (int i = lane; i < OP_KV_PAGE; i += 32) {
            float e = i < n[q] ? expf(row[i] - top) : 0.0f;

            row[i] = e;
            sum = __fadd_rn(sum, e);
        }
        m[q] = top;
        l[q] = warp_sum(sum);
    }
    __syncwarp();
}

/* grid: tile of rows, KV head * part, sequence */
template <int TK, int TV>
__global__ void __launch_bounds__(ROW_THREADS, 2) attend_rows(const __grid_constant__ tile_rows_args t)
{
    extern __shared__ __align__(16) float shared[];
    const attn_args &a = t.a;
    const struct op_kv &kv = a.kv;
    const int dim_k = (int)kv.dim_k, dim_v = (int)kv.dim_v, pitch = row_pitch(dim_k), warp = threadIdx.x / 32;
    const int lane = threadIdx.x & 31, rows = QUERIES / t.heads;
    const op_seq &s = a.r.seq[blockIdx.z];
    const int tile = (int)(gridDim.x - 1 - blockIdx.x), first = tile * rows, here = min(rows, s.n - first);
    const int h = blockIdx.y / a.parts, g0 = blockIdx.y % a.parts * HEADS, heads = min(a.group - g0, t.heads);
    const int64_t head = (int64_t)h * a.group + g0;
    float *p = shared + QUERIES * pitch, *chunk = p + QUERIES * P_PITCH;
    const float *left = shared + warp * 8 * pitch;
    float total[8][8], tm[8], tl[8];
    int last[8];

    if (here <= 0)
        return;
    for (int i = threadIdx.x; i < QUERIES * dim_k; i += ROW_THREADS) {
        int q = i / dim_k, r = q / t.heads, g = q % t.heads;

        shared[q * pitch + i % dim_k] =
            r < here && g < heads ? a.q[(s.row + first + r) * a.qs + (head + g) * dim_k + i % dim_k] : 0.0f;
    }
#pragma unroll
    for (int q = 0; q < 8; q++) {
        int r = (warp * 8 + q) / t.heads;

        last[q] = a.r.pos[s.row + first + min(r, here - 1)];
        tm[q] = -CUDART_INF_F;
        tl[q] = 0.0f;
#pragma unroll
        for (int c = 0; c < 8; c++)
            total[q][c] = 0.0f;
    }
    const int end = a.r.pos[s.row + first + here - 1], start = a.r.pos[s.row + first];
    for (int b = 0; b * OP_KV_PAGE <= end; b++) {
        const uint8_t *page = kv.pages + (size_t)a.pg.page[(int64_t)blockIdx.z * a.pg.stride + b] * kv.page_bytes;
        const uint8_t *keys = page + (int64_t)h * OP_KV_PAGE * a.k_bytes;
        const uint8_t *values = page + a.v_at + (int64_t)h * OP_KV_PAGE * a.v_bytes;
        const int most = min(end + 1 - b * OP_KV_PAGE, (int)OP_KV_PAGE);
        float acc[8][8], m[8], l[8], next[4][8];
        int n[8];

#pragma unroll
        for (int q = 0; q < 8; q++) {
            n[q] = min(last[q] + 1 - b * OP_KV_PAGE, (int)OP_KV_PAGE);
#pragma unroll
            for (int c = 0; c < 8; c++)
                acc[q][c] = 0.0f;
        }
        read_keys<TK>(next, keys, a.k_bytes, most, 0);
        for (int d = 0, at = 0; d < dim_k; d += CHUNK, at ^= 1) {
            float *to = chunk + at * CHUNK * WIDE;

            put_keys(to, next);
            __syncthreads();
            if (d + CHUNK < dim_k)
                read_keys<TK>(next, keys, a.k_bytes, most, d + CHUNK);
            multiply<false>(acc, left + d, pitch, to, n, 0);
        }
        weigh(acc, a.scale, p + warp * 8 * P_PITCH, n, m, l);
        float part[4][8];

#pragma unroll
        for (int q = 0; q < 8; q++)
#pragma unroll
            for (int c = 0; c < 8; c++)
                acc[q][c] = 0.0f;
        read_values<TV>(part, values, a.v_bytes, most, dim_v, 0);
        __syncthreads();
        for (int j = 0, at = 0; j < most; j += CHUNK, at ^= 1) {
            float *to = chunk + at * CHUNK * WIDE;
            const float *w = p + warp * 8 * P_PITCH + j;

            put_values(to, part);
            __syncthreads();
            if (j + CHUNK < most)
                read_values<TV>(part, values, a.v_bytes, most, dim_v, j + CHUNK);
            if (b * OP_KV_PAGE + j + CHUNK <= start + 1)
                multiply<false>(acc, w, P_PITCH, to, n, 0);
            else
                multiply<true>(acc, w, P_PITCH, to, n, j);
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < 8; q++) {
            float keep, take;

            if (n[q] <= 0)
                continue;
            merge(tm[q], m[q], &keep, &take);
            tl[q] = __fmaf_rn(tl[q], keep, __fmul_rn(l[q], take));
            tm[q] = fmaxf(tm[q], m[q]);
#pragma unroll
            for (int c = 0; c < 8; c++)
                total[q][c] = __fmaf_rn(total[q][c], keep, __fmul_rn(acc[q][c], take));
        }
    }
#pragma unroll
    for (int q = 0; q < 8; q++) {
        int r = (warp * 8 + q) / t.heads, g = (warp * 8 + q) % t.heads;

        if (r >= here || g >= heads)
            continue;
        float *y = a.y + (s.row + first + r) * a.ys + (head + g) * dim_v;
#pragma unroll
        for (int c = 0; c < 8; c++) {
            int d = c / 4 * 128 + 4 * lane + c % 4;

            if (d < dim_v)
                y[d] = __fdiv_rn(total[q][c], tl[q]);
        }
    }
}

bool cuda_attn_rows_fit(const struct op_kv *kv)
{
    return kv->dim_k % CHUNK == 0 && kv->dim_k <= WIDE && kv->dim_v % 8 == 0 && kv->dim_v <= WIDE;
}

template <int TK, int TV>
static void launch(struct cuda *c, const tile_rows_args &t)
{
    size_t smem = ((size_t)QUERIES * (size_t)(row_pitch((int)t.a.kv.dim_k) + P_PITCH) + 2 * CHUNK * WIDE) * sizeof(float);
    dim3 grid((unsigned)ceil_div(t.a.r.max_n, QUERIES / t.heads), (unsigned)(t.a.kv.n_head * t.a.parts),
              (unsigned)t.a.r.n_seq);

    cuda_fail(c, cudaFuncSetAttribute(attend_rows<TK, TV>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem),
              "attend_rows");
    LAUNCH(c, (attend_rows<TK, TV>), grid, ROW_THREADS, smem, t);
}

template <int TK>
static void launch_k(struct cuda *c, const tile_rows_args &t)
{
    switch (t.a.kv.type_v) {
    case QUANT_f32: launch<TK, QUANT_f32>(c, t); break;
    case QUANT_f16: launch<TK, QUANT_f16>(c, t); break;
    case QUANT_q8_0: launch<TK, QUANT_q8_0>(c, t); break;
    default: launch<TK, QUANT_q4_0>(c, t); break;
    }
}

void cuda_attn_rows(struct cuda *c, const attn_args *a)
{
    tile_rows_args t = { *a, 1 };

    while (t.heads < a->group && t.heads < HEADS)
        t.heads *= 2;
    switch (a->kv.type_k) {
    case QUANT_f32: launch_k<QUANT_f32>(c, t); break;
    case QUANT_f16: launch_k<QUANT_f16>(c, t); break;
    case QUANT_q8_0: launch_k<QUANT_q8_0>(c, t); break;
    default: launch_k<QUANT_q4_0>(c, t); break;
    }
}
