/* SPDX-License-Identifier: Apache-2.0 */
/* attn.cu - the KV cache and attention.
 *
 * A block of threads takes a row, some query heads of one KV head, and pages of keys one after the other. Within a
 * page: scores (sum over elements ascending), their maximum m, weights exp(s - m), their sum l, and
 * the weighted sum o of the values, positions ascending. Pages merge in ascending order: M = max(m, m_b),
 * l = l exp(m - M) + l_b exp(m_b - M), o likewise. With few rows each page is a block's work of its own and a
 * second launch merges; with many, attn_rows.cu shares keys and values among them; the arithmetic is the same. */
#include "kernels/attn.cuh"
#include "kernels/fused.cuh"
#include "kernels/hadamard.cuh"

enum { SPLIT_ROWS = 32 };

/* Heads of queries lie so far apart in shared memory, for 16-byte reads. */
static __host__ __device__ inline int q_pitch(int dim)
{
    return (dim + 3) / 4 * 4;
}

/* Scores of one page for HEADS query heads at q (shared, dim_k each), weights to p, m and l of each head. */
template <int TK>
static __device__ void page_weights(const attn_args &a, const uint8_t *keys, int n, const float *q, float *p, float *m,
                                    float *l)
{
    int j = threadIdx.x, dim = a.kv.dim_k, pitch = q_pitch(dim);
    float s[HEADS];

#pragma unroll
    for (int g = 0; g < HEADS; g++)
        s[g] = 0.0f;
    if (j < n) {
        const uint8_t *row = keys + j * a.k_bytes;
        int i = 0;

        for (; i + 8 <= dim; i += 8) {
            float k[8];

            eight<TK>(k, row, i);
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                const float4 *q4 = (const float4 *)(q + g * pitch + i);
                float4 a4 = q4[0], b4 = q4[1];

                s[g] = __fmaf_rn(a4.x, k[0], s[g]);
                s[g] = __fmaf_rn(a4.y, k[1], s[g]);
                s[g] = __fmaf_rn(a4.z, k[2], s[g]);
                s[g] = __fmaf_rn(a4.w, k[3], s[g]);
                s[g] = __fmaf_rn(b4.x, k[4], s[g]);
                s[g] = __fmaf_rn(b4.y, k[5], s[g]);
                s[g] = __fmaf_rn(b4.z, k[6], s[g]);
                s[g] = __fmaf_rn(b4.w, k[7], s[g]);
            }
        }
        for (; i < dim; i++)
#pragma unroll
            for (int g = 0; g < HEADS; g++)
                s[g] = __fmaf_rn(q[g * pitch + i], element<TK>(row, i), s[g]);
    }
    __syncthreads(); /* p is read until here */
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        p[g * OP_KV_PAGE + j] = j < n ? __fmul_rn(s[g], a.scale) : -CUDART_INF_F;
    __syncthreads();
    int g = threadIdx.x / 32, lane = threadIdx.x & 31; /* a warp a head */
    float top = -CUDART_INF_F, sum = 0.0f;

    for (int i = lane; i < OP_KV_PAGE; i += 32)
        top = fmaxf(top, p[g * OP_KV_PAGE + i]);
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
    for (int i = lane; i < OP_KV_PAGE; i += 32) {
        float e = i < n ? expf(p[g * OP_KV_PAGE + i] - top) : 0.0f;

        p[g * OP_KV_PAGE + i] = e;
        sum = __fadd_rn(sum, e);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        m[g] = top;
        l[g] = sum;
    }
    __syncthreads();
}

/* Element d of the page's weighted sum of values for each head. */
template <int TV>
static __device__ __forceinline__ void page_values(const attn_args &a, const uint8_t *values, int n, const float *p,
                                                   int d, float o[HEADS])
{
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        o[g] = 0.0f;
    int j = 0;
#pragma unroll 4
    for (; j + 4 <= n; j += 4) {
        float v[4];

#pragma unroll
        for (int e = 0; e < 4; e++)
            v[e] = element<TV>(values + (j + e) * a.v_bytes, d);
#pragma unroll
        for (int g = 0; g < HEADS; g++) {
            float4 w = *(const float4 *)(p + g * OP_KV_PAGE + j);

            o[g] = __fmaf_rn(w.x, v[0], o[g]);
            o[g] = __fmaf_rn(w.y, v[1], o[g]);
            o[g] = __fmaf_rn(w.z, v[2], o[g]);
            o[g] = __fmaf_rn(w.w, v[3], o[g]);
        }
    }
    for (; j < n; j++) {
        float v = element<TV>(values + j * a.v_bytes, d);

#pragma unroll
        for (int g = 0; g < HEADS; g++)
            o[g] = __fmaf_rn(p[g * OP_KV_PAGE + j], v, o[g]);
    }
}

enum { DIMS = 4 }; /* elements of o a thread may own: dim_v up to 1024 */

/* grid: row, KV head * part, page (SPLIT) */
template <int TK, int TV, bool SPLIT>
__global__ void __launch_bounds__(256) attend(const __grid_constant__ attn_args a)
{
    extern __shared__ __align__(16) float shared[];
    __shared__ float m[HEADS], l[HEADS];
    const struct op_kv &kv = a.kv;
    float *p = shared, *q = shared + HEADS * OP_KV_PAGE;
    int row = blockIdx.x, h = blockIdx.y / a.parts, g0 = blockIdx.y % a.parts * HEADS;
    int heads = a.group - g0 < HEADS ? a.group - g0 : HEADS, seq = a.r.of[row], last = a.r.pos[row];
    int b0 = SPLIT ? (int)blockIdx.z : 0, b1 = SPLIT ? b0 + 1 : last / OP_KV_PAGE + 1;
    int64_t head = (int64_t)h * a.group + g0;
    float total[SPLIT ? 1 : DIMS][HEADS], tm[HEADS], tl[HEADS];

    if (b0 * OP_KV_PAGE > last)
        return;
    for (int i = threadIdx.x; i < HEADS * kv.dim_k; i += 256)
        q[i / kv.dim_k * q_pitch(kv.dim_k) + i % kv.dim_k] =
            i < heads * kv.dim_k ? a.q[row * a.qs + head * kv.dim_k + i] : 0.0f;
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        tm[g] = -CUDART_INF_F;
        tl[g] = 0.0f;
#pragma unroll
        for (int d = 0; d < (SPLIT ? 1 : DIMS); d++)
            total[d][g] = 0.0f;
    }
    __syncthreads();
    for (int b = b0; b < b1; b++) {
        int n = last + 1 - b * OP_KV_PAGE < OP_KV_PAGE ? last + 1 - b * OP_KV_PAGE : OP_KV_PAGE;
        const uint8_t *page = kv.pages + (size_t)a.pg.page[(int64_t)seq * a.pg.stride + b] * kv.page_bytes;
        const uint8_t *values = page + a.v_at + (int64_t)h * OP_KV_PAGE * a.v_bytes;

        page_weights<TK>(a, page + (int64_t)h * OP_KV_PAGE * a.k_bytes, n, q, p, m, l);
        if constexpr (SPLIT) {
            float *part = a.part + (((int64_t)row * kv.n_head * a.group + head) * a.pages + b) * a.part_floats;
            int64_t next = a.pages * a.part_floats; /* of the next head */

            if ((int)threadIdx.x < heads) {
                part[threadIdx.x * next] = m[threadIdx.x];
                part[threadIdx.x * next + 1] = l[threadIdx.x];
            }
            for (int d = threadIdx.x; d < kv.dim_v; d += 256) {
                float o[HEADS];

                page_values<TV>(a, values, n, p, d, o);
#pragma unroll
                for (int g = 0; g < HEADS; g++)
                    if (g < heads)
                        part[g * next + 2 + d] = o[g];
            }
        } else {
            float keep[HEADS], take[HEADS];
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                merge(tm[g], m[g], &keep[g], &take[g]);
                tl[g] = __fmaf_rn(tl[g], keep[g], __fmul_rn(l[g], take[g]));
                tm[g] = fmaxf(tm[g], m[g]);
            }
#pragma unroll
            for (int i = 0; i < DIMS; i++) {
                int d = i * 256 + (int)threadIdx.x;
                float o[HEADS];

                if (d >= kv.dim_v)
                    break;
                page_values<TV>(a, values, n, p, d, o);
#pragma unroll
                for (int g = 0; g < HEADS; g++)
                    total[i][g] = __fmaf_rn(total[i][g], keep[g], __fmul_rn(o[g], take[g]));
            }
            __syncthreads();
        }
    }
#pragma unroll
    for (int i = 0; !SPLIT && i < DIMS; i++) {
        int d = i * 256 + (int)threadIdx.x;

        if (d >= kv.dim_v)
            break;
#pragma unroll
        for (int g = 0; g < HEADS; g++)
            if (g < heads)
                a.y[row * a.ys + (head + g) * kv.dim_v + d] = __fdiv_rn(total[i][g], tl[g]);
    }
}

/* grid: row, query head */
__global__ void __launch_bounds__(256) merge_pages(const __grid_constant__ attn_args a)
{
    int row = blockIdx.x, n = a.r.pos[row] / OP_KV_PAGE + 1, heads = a.kv.n_head * a.group;
    const float *part = a.part + ((int64_t)row * heads + blockIdx.y) * a.pages * a.part_floats;

    for (int d = threadIdx.x; d < a.kv.dim_v; d += 256) {
        float m = -CUDART_INF_F, l = 0.0f, o = 0.0f, keep, take;

        for (int b = 0; b < n; b++) {
            const float *p = part + b * a.part_floats;

            merge(m, p[0], &keep, &take);
            l = __fmaf_rn(l, keep, __fmul_rn(p[1], take));
            o = __fmaf_rn(o, keep, __fmul_rn(p[2 + d], take));
            m = fmaxf(m, p[0]);
        }
        a.y[row * a.ys + (int64_t)blockIdx.y * a.kv.dim_v + d] = __fdiv_rn(o, l);
    }
}

static int64_t part_floats(const struct op_kv *kv)
{
    return (kv->dim_v + 2 + 3) / 4 * 4;
}

size_t cuda_attn_ws(const struct node *v)
{
    int64_t heads = v->t[1].ne[0] / v->kv.dim_k;

    return v->r.n > SPLIT_ROWS ? 0 : (size_t)(v->r.n * heads * v->pg.stride * part_floats(&v->kv)) * sizeof(float);
}

template <int TK, int TV>
static void launch(struct cuda *c, const attn_args &a)
{
    size_t smem = (HEADS * OP_KV_PAGE + HEADS * (size_t)q_pitch(a.kv.dim_k)) * sizeof(float);
    dim3 grid((unsigned)a.r.n, (unsigned)(a.kv.n_head * a.parts), 1);

    if (a.part != NULL) {
        grid.z = (unsigned)a.pages;
        LAUNCH(c, (attend<TK, TV, true>), grid, 256, smem, a);
        LAUNCH(c, merge_pages, dim3((unsigned)a.r.n, (unsigned)(a.kv.n_head * a.group)), 256, 0, a);
    } else {
        LAUNCH(c, (attend<TK, TV, false>), grid, 256, smem, a);
    }
}

template <int TK>
static void launch_k(struct cuda *c, const attn_args &a)
{
    switch (a.kv.type_v) {
    case QUANT_f32: launch<TK, QUANT_f32>(c, a); break;
    case QUANT_f16: launch<TK, QUANT_f16>(c, a); break;
    case QUANT_q8_0: launch<TK, QUANT_q8_0>(c, a); break;
    default: launch<TK, QUANT_q4_0>(c, a); break;
    }
}

void cuda_attn(struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;
    attn_args a = {};

    a.y = (float *)v->t[0].data;
    a.q = (const float *)v->t[1].data;
    a.ys = v->t[0].stride;
    a.qs = v->t[1].stride;
    a.kv = kv;
    a.k_bytes = quant_row_bytes(kv.type_k, kv.dim_k);
    a.v_bytes = quant_row_bytes(kv.type_v, kv.dim_v);
    a.v_at = kv.n_head * OP_KV_PAGE * a.k_bytes;
    a.scale = v->f[0];
    a.group = (int)(v->t[1].ne[0] / kv.dim_k) / kv.n_head;
    a.parts = (a.group + HEADS - 1) / HEADS;
    a.r = v->r;
    a.pg = v->pg;
    a.part = v->r.n > SPLIT_ROWS ? NULL : (float *)c->ws;
    a.part_floats = part_floats(&kv);
    a.pages = v->pg.stride;
    if (a.part == NULL && cuda_attn_rows_fit(&kv)) {
        cuda_attn_rows(c, &a);
        return;
    }
    switch (kv.type_k) {
    case QUANT_f32: launch_k<QUANT_f32>(c, a); break;
    case QUANT_f16: launch_k<QUANT_f16>(c, a); break;
    case QUANT_q8_0: launch_k<QUANT_q8_0>(c, a); break;
    default: launch_k<QUANT_q4_0>(c, a); break;
    }
}

/* ---- storing ---- */

static __device__ __forceinline__ int64_t kv_row_bytes(int type, int dim)
{
    return type == QUANT_f32 ? 4 * dim : type == QUANT_f16 ? 2 * dim : dim / 32 * (type == QUANT_q8_0 ? 34 : 18);
}

/* Encodes as libcore/quant does: one thread a block of 32 (or 32 plain elements). */
static __device__ void store32(uint8_t *row, int type, const float *x, int i0, int n)
{
    if (type == QUANT_f32 || type == QUANT_f16) {
        for (int i = i0; i < n && i < i0 + 32; i++)
            if (type == QUANT_f32)
                ((float *)row)[i] = x[i];
            else
                ((__half *)row)[i] = __float2half_rn(x[i]);
        return;
    }
    uint8_t *b = row + i0 / 32 * (type == QUANT_q8_0 ? 34 : 18);
    float codes = type == QUANT_q8_0 ? 127.0f : 8.0f, inv;
    uint32_t most = 0;
    bool minus = false;

    x += i0;
    for (int i = 0; i < 32; i++)
        most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
    for (int i = 0; i < 32; i++)
        minus = minus || __float_as_uint(x[i]) == (most | 0x80000000u);
    float top = __uint_as_float(most);
    unsigned d = __half_as_ushort(__float2half_rn(__fdiv_rn(top, codes)));

    if (d > 0x7bff)
        d = 0x7bff;
    else if (__fmul_rn(half_of(d), __fadd_rn(codes, 0.5f)) < top && d < 0x7bff)
        d++;
    inv = d != 0 ? __fdiv_rn(1.0f, half_of(d)) : 0.0f;
    if (type == QUANT_q4_0 && !minus) {
        d |= 0x8000u;
        inv = -inv;
    }
    if (most >= 0x7f800000u) { /* not finite */
        d = 0x7e00;
        inv = 0.0f;
    }
    *(uint16_t *)b = (uint16_t)d;
    auto code = [=](float v, float low, float high) {
        return most >= 0x7f800000u ? 0 : __float2int_rn(fminf(fmaxf(__fmul_rn(v, inv), low), high));
    };
    if (type == QUANT_q8_0) {
        for (int i = 0; i < 32; i++)
            b[2 + i] = (uint8_t)code(x[i], -127.0f, 127.0f);
    } else {
        for (int i = 0; i < 16; i++)
            b[2 + i] = (uint8_t)((code(x[i], -8.0f, 7.0f) + 8) | (code(x[i + 16], -8.0f, 7.0f) + 8) << 4);
    }
}

struct store_args {
    const float *k, *v;
    int64_t      ks, vs, k_bytes, v_bytes, v_at;
    struct op_kv kv;
    struct rows  r;
    struct pages pg;
    int          k32, v32; /* pieces of a head */
    int64_t      total;
};

__global__ void __launch_bounds__(128) store(const __grid_constant__ store_args a)
{
    int64_t at = (int64_t)blockIdx.x * 128 + threadIdx.x;
    int each = a.kv.n_head * (a.k32 + a.v32);

    if (at >= a.total)
        return;
    int row = (int)(at / each), i = (int)(at % each), pos = a.r.pos[row];
    bool value = i >= a.kv.n_head * a.k32;
    int j = value ? i - a.kv.n_head * a.k32 : i, per = value ? a.v32 : a.k32, h = j / per;
    uint8_t *page = a.kv.pages + (size_t)a.pg.page[(int64_t)a.r.of[row] * a.pg.stride + pos / OP_KV_PAGE] *
                                     a.kv.page_bytes;
    int64_t slot = (int64_t)h * OP_KV_PAGE + pos % OP_KV_PAGE;

    if (value)
        store32(page + a.v_at + slot * a.v_bytes, a.kv.type_v, a.v + row * a.vs + (int64_t)h * a.kv.dim_v, j % per * 32,
                a.kv.dim_v);
    else
        store32(page + slot * a.k_bytes, a.kv.type_k, a.k + row * a.ks + (int64_t)h * a.kv.dim_k, j % per * 32,
                a.kv.dim_k);
}

void cuda_kv_store(struct cuda *c, const struct node *v)
{
    const struct op_kv &kv = v->kv;
    store_args a = { (const float *)v->t[0].data, (const float *)v->t[1].data, v->t[0].stride, v->t[1].stride,
                     quant_row_bytes(kv.type_k, kv.dim_k), quant_row_bytes(kv.type_v, kv.dim_v), 0, kv, v->r, v->pg,
                     (kv.dim_k + 31) / 32, (kv.dim_v + 31) / 32, 0 };

    a.v_at = kv.n_head * OP_KV_PAGE * a.k_bytes;
    a.total = (int64_t)v->r.n * kv.n_head * (a.k32 + a.v32);
    LAUNCH(c, store, (unsigned)ceil_div(a.total, 128), 128, 0, a);
}

/* ---- heads of one step: picked apart, normalised, turned, rotated, stored; a warp a head ---- */

__global__ void __launch_bounds__(32) split_heads(const __grid_constant__ fused_heads f)
{
    extern __shared__ float x[];
    const struct op_kv &kv = f.kv;
    int lane = threadIdx.x, h = blockIdx.x, row = blockIdx.y, dim = kv.dim_k;
    bool query = h < f.n_q, key = !query && h < f.n_q + kv.n_head;

    wait_for_inputs();
    const float *from, *norm = query ? f.q_norm : key ? f.k_norm : NULL;
    if (query)
        from = f.qg + ((int64_t)row * f.n_q + h) * (f.gate != NULL ? 2 : 1) * dim;
    else if (key)
        from = f.k + ((int64_t)row * kv.n_head + h - f.n_q) * dim;
    else {
        dim = kv.dim_v;
        from = f.v + ((int64_t)row * kv.n_head + h - f.n_q - kv.n_head) * dim;
    }
    for (int i = lane; i < dim; i += 32)
        x[i] = from[i];
    if (query && f.gate != NULL)
        for (int i = lane; i < dim; i += 32)
            f.gate[((int64_t)row * f.n_q + h) * dim + i] = from[dim + i];
    __syncwarp();
    if (norm != NULL) {
        float sum = 0.0f;

        for (int i = lane; i < dim; i += 32)
            sum = __fmaf_rn(x[i], x[i], sum);
        float factor = norm_factor(warp_sum(sum), dim, f.eps);
        for (int i = lane; i < dim; i += 32)
            x[i] = __fmul_rn(__fmul_rn(x[i], factor), norm[i]);
        __syncwarp();
    }
    if (query || key) {
        int half = (int)f.rope.n_rot / 2;

        for (int i = lane; i < half; i += 32) {
            float angle = __fmul_rn((float)f.r.pos[row], f.rope.freq[i]), sn, cs;
            float *p = x + (f.rope.pairs ? 2 * i : i), *q = p + (f.rope.pairs ? 1 : half), u = *p, v = *q;

            sincosf(angle, &sn, &cs);
            *p = __fsub_rn(__fmul_rn(u, cs), __fmul_rn(v, sn));
            *q = __fadd_rn(__fmul_rn(u, sn), __fmul_rn(v, cs));
        }
        __syncwarp();
    }
    if ((query || key) && f.hadamard > 0) {
        for (int i = 0; i < dim; i += f.hadamard)
            hadamard_warp(x + i, x + i, f.hadamard);
        __syncwarp();
    }
    if (query) {
        for (int i = lane; i < dim; i += 32)
            f.q[((int64_t)row * f.n_q + h) * dim + i] = x[i];
        return;
    }
    int pos = f.r.pos[row], type = key ? kv.type_k : kv.type_v;
    int64_t at = (int64_t)(key ? h - f.n_q : h - f.n_q - kv.n_head) * OP_KV_PAGE + pos % OP_KV_PAGE;
    int64_t k_bytes = kv_row_bytes(kv.type_k, kv.dim_k), v_bytes = kv_row_bytes(kv.type_v, kv.dim_v);
    uint8_t *page = kv.pages + (size_t)f.pg.page[(int64_t)f.r.of[row] * f.pg.stride + pos / OP_KV_PAGE] * kv.page_bytes;
    uint8_t *to = key ? page + at * k_bytes : page + kv.n_head * OP_KV_PAGE * k_bytes + at * v_bytes;

    if (type == QUANT_f32)
        for (int i = lane; i < dim; i += 32)
            ((float *)to)[i] = x[i];
    else if (type == QUANT_f16)
        for (int i = lane; i < dim; i += 32)
            ((__half *)to)[i] = __float2half_rn(x[i]);
    else
        for (int i = lane * 32; i < dim; i += 32 * 32)
            store32(to, type, x, i, dim);
}

void cuda_fused_heads(struct cuda *c, const struct fused_heads *f)
{
    int dim = f->kv.dim_k > f->kv.dim_v ? f->kv.dim_k : f->kv.dim_v;

    launch_early(c, "split_heads", split_heads, dim3((unsigned)(f->n_q + 2 * f->kv.n_head), (unsigned)f->r.n), 32,
                 (size_t)dim * sizeof(float), *f);
}
