/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cuh - the arithmetic of attention on tensor cores, shared by all attention kernels.
 * room: kernels
 *
 * Keys: blocks of 32 elements, each a float scale times numbers that a half holds exactly (float keys: two halves).
 * Queries: a power of two times the sum of two halves (22 bits). An mma multiplies 8 queries, high halves in rows 0 to
 * 7 and low halves in rows 8 to 15, with 8 keys (attn/page.cuh: 16 keys with 8 queries' high halves, then low; the
 * operand order changes no bit). The block's sum times its scale is added to the score, blocks ascending. Softmax
 * weights are 2^(score - m) * 1024 as two halves, m being the page's largest score. Values are two halves, or one where
 * that is exact. A page's weighted sum goes by 16 positions: high weights * high values, low * high, high * low. The
 * page's sum of weights is 16 sums, one for every 16th group of 8 positions, added by fold_sums(). Pages are merged in
 * ascending order. None of this depends on how many queries share a launch, a block or a warp.
 *
 * Operand layout: lane 4 g + c has rows g and g + 8, columns 2 c, 2 c + 1, 2 c + 8, 2 c + 9 of a 16 x 16 operand, and
 * column g of a 16 x 8 operand. slot() says which element of a block is which of the 2 * 16 columns, so that a lane
 * loads its own. */
#ifndef KERNELS_ATTN_SUMS_CUH
#define KERNELS_ATTN_SUMS_CUH
#include <math_constants.h>

#include "kernels/common/tma.cuh"
#include "kernels/common/math.cuh"
#include "kernels/quant/unit.cuh"

enum { QUERY_TILE = 8, DIM_BLOCK = 32, SLAB = 256 /* dimensions of values that a launch's block sums */ };
enum { HEADS = 8 };  /* query heads of a KV head that share a block's rows */
enum { SHARED = 4 }; /* units of outputs that share a scale when they are rounded to 8 bits */

struct attn_args {
    float *y;
    const float *q;
    int64_t ys, qs;
    struct op_kv kv;
    int64_t k_bytes, v_bytes, v_at; /* of a row; of a page's first value */
    float scale;                    /* times log2(e) */
    int group, parts, heads;        /* query heads of a KV head; in how many parts; rows of `heads` each */
    int n_kb, slabs;                /* blocks of a key; slabs of a value */
    struct rows r;
    struct pages pg;
    float *part; /* [row][head][page]: o, m, l */
    int64_t part_floats;
    int pages;
    uint8_t *rounded; /* of few rows: where the rounded output goes instead of y; or NULL */
    int rounded_stride;
    bool eight;                  /* how it is rounded (gemm/sums.cuh) */
    bool both;                   /* it goes to y, too */
    const float *open;           /* then: gates of query head h from open + h * open_pitch; or NULL */
    int open_pitch, open_stride; /* from head to head, from row to row */
};

static __host__ __device__ __forceinline__ int key_planes(int type)
{
    return type == QUANT_f32 ? 2 : 1;
}

static __host__ __device__ __forceinline__ int value_planes(int type)
{
    return type == QUANT_f16 ? 1 : 2;
}

/* What float values are multiplied with, so that halves keep small ones. */
static __device__ __forceinline__ float value_scale(int type)
{
    return type == QUANT_f32 ? 16.0f : 1.0f;
}

static __device__ __forceinline__ void mma(float d[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* 2^x; 0 for -infinity. */
static __device__ __forceinline__ float power2(float x)
{
    float y;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float exact_power2(int e)
{
    return __int_as_float((e + 127) << 23);
}

/* The exponent of the largest magnitude, kept where its power and its inverse are normal numbers. */
static __device__ __forceinline__ int exponent_of(float top)
{
    return min(max((__float_as_int(top) >> 23 & 255) - 127, -100), 100);
}

static __device__ __forceinline__ void merge(float m, float mb, float *keep, float *take)
{
    float top = fmaxf(m, mb);

    *keep = power2(m - top);
    *take = power2(mb - top);
}

static __device__ __forceinline__ uint32_t bits_of(__half2 h)
{
    return *(const uint32_t *)&h;
}

static __device__ __forceinline__ __half2 half2_of(uint32_t u)
{
    return *(const __half2 *)&u;
}

/* Two floats as two planes of halves. */
static __device__ __forceinline__ void planes_of(float x, float y, uint32_t *hi, uint32_t *lo)
{
    __half2 h = __floats2half2_rn(x, y);
    float2 f = __half22float2(h);

    *hi = bits_of(h);
    *lo = bits_of(__floats2half2_rn(__fsub_rn(x, f.x), __fsub_rn(y, f.y)));
}

/* ---- keys ---- */

/* Where element i of a block goes: multiplication, lane of four, place 0 .. 3 (columns 2 c, + 1, + 8, + 9). */
static __device__ __forceinline__ int slot(int type, int i)
{
    return type == QUANT_q4_0 || type == QUANT_q8_0 ? i : i / 4 % 2 * 16 + i / 8 * 4 + i % 4;
}

/* 8 elements of a row of plain numbers from i on, zeros after its end. */
template <int TYPE> static __device__ __forceinline__ void plain8(float v[8], const uint8_t *row, int i, int dim)
{
#pragma unroll
    for (int j = 0; j < 8; j++)
        v[j] = i + j >= dim ? 0.0f : TYPE == QUANT_f32 ? ((const float *)row)[i + j] : half_at(row + 2 * (i + j));
}

/* 4 bytes at an even address, of shared memory too: as far as the compiler sees, the pointer stays one. */
static __device__ __forceinline__ uint32_t even4(const uint8_t *p)
{
    const unsigned odd = (unsigned)(uintptr_t)p & 2u;
    const uint32_t *a = (const uint32_t *)(p - odd), a0 = a[0], a1 = odd ? a[1] : 0;

    return __funnelshift_r(a0, a1, 8 * odd);
}

/* Lane c's part of block b of a stored key: [multiplication * 2 + register]. low: of float keys. d: the block's float,
 * of plain keys; the quad that shares the key asks together. */
template <int TYPE>
static __device__ __forceinline__ void key_part(uint32_t hi[4], uint32_t lo[4], float *d, const uint8_t *row, int b,
                                                int c, int dim)
{
    if (TYPE == QUANT_q8_0) {
        uint32_t low = even4(row + b * 34 + 2 + 4 * c), high = even4(row + b * 34 + 18 + 4 * c);
        const __half2 zero = half2_of(0x64806480u);

        low ^= 0x80808080u;
        high ^= 0x80808080u;
        hi[0] = bits_of(__hsub2(half2_of(__byte_perm(low, 0x64646464u, 0x4140)), zero));
        hi[1] = bits_of(__hsub2(half2_of(__byte_perm(low, 0x64646464u, 0x4342)), zero));
        hi[2] = bits_of(__hsub2(half2_of(__byte_perm(high, 0x64646464u, 0x4140)), zero));
        hi[3] = bits_of(__hsub2(half2_of(__byte_perm(high, 0x64646464u, 0x4342)), zero));
    } else if (TYPE == QUANT_q4_0) {
        uint32_t q = u32_at(row + b * 18 + 2 + 4 * c), low = q & 0x0f0f0f0fu, high = q >> 4 & 0x0f0f0f0fu;
        const __half2 zero = half2_of(0x64086408u);

        hi[0] = bits_of(__hsub2(half2_of(__byte_perm(low, 0x64646464u, 0x4140)), zero));
        hi[1] = bits_of(__hsub2(half2_of(__byte_perm(low, 0x64646464u, 0x4342)), zero));
        hi[2] = bits_of(__hsub2(half2_of(__byte_perm(high, 0x64646464u, 0x4140)), zero));
        hi[3] = bits_of(__hsub2(half2_of(__byte_perm(high, 0x64646464u, 0x4342)), zero));
    } else if (TYPE == QUANT_f16 && dim % 8 == 0) {
        int i = b * 32 + 8 * c;
        uint4 q = i < dim ? *(const uint4 *)(row + 2 * i) : make_uint4(0, 0, 0, 0);

        hi[0] = q.x;
        hi[1] = q.y;
        hi[2] = q.z;
        hi[3] = q.w;
    } else {
        float v[8], top = 0.0f, f = 1.0f;

        plain8<TYPE>(v, row, b * 32 + 8 * c, dim);
        if (TYPE == QUANT_f32) {
#pragma unroll
            for (int j = 0; j < 8; j++)
                top = fmaxf(top, fabsf(v[j]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            int e = exponent_of(top) - 4;
            f = exact_power2(-e);
            *d = exact_power2(e);
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
            planes_of(__fmul_rn(v[2 * j], f), __fmul_rn(v[2 * j + 1], f), &hi[j], &lo[j]);
    }
}

/* The float of block b of a stored key. */
template <int TYPE> static __device__ __forceinline__ float key_scale(const uint8_t *row, int b)
{
    return TYPE == QUANT_q8_0 ? half_at(row + b * 34) : TYPE == QUANT_q4_0 ? half_at(row + b * 18) : 1.0f;
}

/* s[key 2 c, 2 c + 1] += a block's sums of 8 queries with 8 keys. */
static __device__ __forceinline__ void add_block(float s[2], const uint4 q[2], const uint32_t hi[4], const uint32_t *lo,
                                                 float2 d)
{
    float p[4] = { 0.0f, 0.0f, 0.0f, 0.0f };

    mma(p, q[0], hi[0], hi[1]);
    mma(p, q[1], hi[2], hi[3]);
    if (lo != NULL) {
        mma(p, q[0], lo[0], lo[1]);
        mma(p, q[1], lo[2], lo[3]);
    }
    s[0] = __fmaf_rn(d.x, __fadd_rn(p[0], p[2]), s[0]);
    s[1] = __fmaf_rn(d.y, __fadd_rn(p[1], p[3]), s[1]);
}

/* ---- values ---- */

/* Which of a block's 32 dimensions is column n of its tile t of 8. */
static __device__ __forceinline__ int value_dim(int type, int t, int n)
{
    return type == QUANT_q4_0 ? 2 * n + t % 2 + t / 2 * 16 : 4 * n + t;
}

/* 4 elements of a row of plain numbers from i on, zeros after its end or where !seen. */
template <int TYPE>
static __device__ __forceinline__ void plain4(float v[4], const uint8_t *row, int i, int dim, bool seen)
{
    if (dim % 4 == 0) {
        float4 f = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

        if (seen && i < dim && TYPE == QUANT_f32)
            f = *(const float4 *)((const float *)row + i);
        if (seen && i < dim && TYPE == QUANT_f16) {
            uint2 u = *(const uint2 *)(row + 2 * i);
            float2 a = __half22float2(half2_of(u.x)), b = __half22float2(half2_of(u.y));

            f = make_float4(a.x, a.y, b.x, b.y);
        }
        v[0] = f.x;
        v[1] = f.y;
        v[2] = f.z;
        v[3] = f.w;
        return;
    }
#pragma unroll
    for (int j = 0; j < 4; j++)
        v[j] = !seen || i + j >= dim ? 0.0f
               : TYPE == QUANT_f32   ? ((const float *)row)[i + j]
                                     : half_at(row + 2 * (i + j));
}

/* Lane 4 g + c's part of block b of 16 values, rows of `bytes`, of which n are seen: [tile 2 half, 2 half +
 * 1][register]; low planes where value_planes() is 2. */
template <int TYPE>
static __device__ __forceinline__ void value_part(uint32_t hi[2][2], uint32_t lo[2][2], const uint8_t *rows, int bytes,
                                                  int n, int b, int half, int g, int c, int dim)
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int key = 2 * c + 8 * r;
        const uint8_t *row0 = rows + key * bytes, *row1 = row0 + bytes;
        const bool seen0 = key < n, seen1 = key + 1 < n;

        if (TYPE == QUANT_q8_0 || TYPE == QUANT_q4_0) {
            const uint8_t *b0 = row0 + b * (TYPE == QUANT_q8_0 ? 34 : 18), *b1 = b0 + bytes;
            const uint32_t d0 = seen0 ? u16_at(b0) : 0, d1 = seen1 ? u16_at(b1) : 0;
            const __half2 d = half2_of(d0 | d1 << 16);
            __half2 v[2];

            if (TYPE == QUANT_q8_0) {
                const uint32_t q0 = u32_at(b0 + 2 + 4 * g) ^ 0x80808080u, q1 = u32_at(b1 + 2 + 4 * g) ^ 0x80808080u;
                const uint32_t both = __byte_perm(q0, q1, half == 0 ? 0x5140 : 0x7362); /* a pair of keys together */
                const __half2 zero = half2_of(0x64806480u);

                v[0] = __hsub2(half2_of(__byte_perm(both, 0x64646464u, 0x4140)), zero);
                v[1] = __hsub2(half2_of(__byte_perm(both, 0x64646464u, 0x4342)), zero);
            } else {
                const uint32_t both = (u16_at(b0 + 2 + 2 * g) | u16_at(b1 + 2 + 2 * g) << 16) >> 4 * half;
                const __half2 zero = half2_of(0x64086408u);

                v[0] = __hsub2(half2_of((both & 0x000f000fu) | 0x64006400u), zero);
                v[1] = __hsub2(half2_of((both >> 8 & 0x000f000fu) | 0x64006400u), zero);
            }
#pragma unroll
            for (int t = 0; t < 2; t++) { /* the product has 19 bits: two halves hold it exactly */
                __half2 h = __hmul2_rn(v[t], d);

                hi[t][r] = bits_of(h);
                lo[t][r] = bits_of(__hfma2(v[t], d, __hneg2(h)));
            }
        } else {
            float v0[4], v1[4], f = value_scale(TYPE);

            plain4<TYPE>(v0, row0, b * 32 + 4 * g, dim, seen0);
            plain4<TYPE>(v1, row1, b * 32 + 4 * g, dim, seen1);
#pragma unroll
            for (int t = 0; t < 2; t++)
                planes_of(__fmul_rn(half == 0 ? v0[t] : v0[t + 2], f), __fmul_rn(half == 0 ? v1[t] : v1[t + 2], f),
                          &hi[t][r], &lo[t][r]);
        }
    }
}

/* ---- queries ---- */

/* A warp's query as two planes in the order of operands: to, of 8 queries [block][multiplication][lane] 16 bytes, as
 * one first operand, or (apart) two second ones; this one is number g of them. Returns what its scores are multiplied
 * with. from NULL: zeros. */
static __device__ __forceinline__ float put_query(uint8_t *to, const float *from, int g, int dim, int n_kb, int type,
                                                  float scale, bool apart)
{
    enum { KEEP = 4 }; /* times 64 elements are read once */
    const int lane = threadIdx.x & 31;
    float2 v[KEEP];
    float top = 0.0f;

    auto pair = [=](int i) {
        return make_float2(from != NULL && i < dim ? from[i] : 0.0f, from != NULL && i + 1 < dim ? from[i + 1] : 0.0f);
    };
    auto put = [=](int i, float2 x, float f) {
        const int at = slot(type, i % DIM_BLOCK);
        uint32_t hi, lo;

        planes_of(__fmul_rn(x.x, f), __fmul_rn(x.y, f), &hi, &lo);
        /* registers: high of columns 2 c, low of them, high of 2 c + 8, low; apart: both high, then both low */
        uint32_t *w = (uint32_t *)(to + ((i / DIM_BLOCK * 2 + at / 16) * 32 + g * 4 + at % 16 / 4) * 16);
        w += at % 4 / 2 * (apart ? 1 : 2);
        w[0] = hi;
        w[apart ? 2 : 1] = lo;
    };
#pragma unroll
    for (int j = 0; j < KEEP; j++)
        v[j] = pair(2 * lane + 64 * j);
#pragma unroll
    for (int j = 0; j < KEEP; j++)
        top = fmaxf(top, fmaxf(fabsf(v[j].x), fabsf(v[j].y)));
    for (int i = 2 * lane + 64 * KEEP; i < dim; i += 64)
        top = fmaxf(top, fmaxf(fabsf(pair(i).x), fabsf(pair(i).y)));
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, half));
    const int e = exponent_of(top) - 4;
    const float f = exact_power2(-e);
#pragma unroll
    for (int j = 0; j < KEEP; j++)
        if (2 * lane + 64 * j < n_kb * DIM_BLOCK)
            put(2 * lane + 64 * j, v[j], f);
    for (int i = 2 * lane + 64 * KEEP; i < n_kb * DIM_BLOCK; i += 64)
        put(i, pair(i), f);
    return __fmul_rn(scale, exact_power2(e));
}

/* ---- weights ---- */

/* The largest score of a page of which a query sees nothing, so that differences are numbers. */
#define LEAST_SCORE (-3e38f)

/* The sums of weights of a page; from: a float each, `pitch` apart. */
enum { SUMS = 16 };
static __device__ __forceinline__ float fold_sums(const float *from, int pitch)
{
    float l = from[0];

#pragma unroll
    for (int i = 1; i < SUMS; i++)
        l = __fadd_rn(l, from[i * pitch]);
    return l;
}

static __device__ __forceinline__ float quad_max(float v)
{
    v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return fmaxf(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

static __device__ __forceinline__ float quad_sum(float v)
{
    v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 1));
    return __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, 2));
}

/* s, scores of keys j and j + 1 of n, becomes their weights; hi and lo: operands. */
static __device__ __forceinline__ void weigh_scores(float s[2], float factor, float m, int j, int n, uint32_t *hi,
                                                    uint32_t *lo)
{
#pragma unroll
    for (int e = 0; e < 2; e++)
        s[e] = j + e < n ? power2(__fsub_rn(__fmul_rn(s[e], factor), m)) : 0.0f;
    planes_of(__fmul_rn(s[0], 1024.0f), __fmul_rn(s[1], 1024.0f), hi, lo);
}

/* ---- storing ---- */

/* Encodes block b of x, 32 elements, as libcore/quant does: four lanes a block, c of them this one. there: the
 * block exists. */
static __device__ __forceinline__ void store32(uint8_t *row, int type, const float *x, int b, int c, int n, bool there)
{
    const unsigned quad = 15u << (threadIdx.x & 28);
    const bool low_high = type == QUANT_q4_0; /* a byte has elements i and i + 16 */
    float v[8], top = 0.0f;
    bool minus = false;

#pragma unroll
    for (int j = 0; j < 8; j++) {
        int i = b * 32 + (low_high ? j / 4 * 16 + 4 * c + j % 4 : 8 * c + j);

        v[j] = there && i < n ? x[i] : 0.0f;
    }
    if (type == QUANT_f32 || type == QUANT_f16) {
#pragma unroll
        for (int j = 0; j < 8; j++) {
            int i = b * 32 + 8 * c + j;

            if (there && i < n && type == QUANT_f32)
                ((float *)row)[i] = v[j];
            else if (there && i < n)
                ((__half *)row)[i] = __float2half_rn(v[j]);
        }
        return;
    }
    float codes = type == QUANT_q8_0 ? 127.0f : 8.0f, inv;
    uint32_t most = 0, code[8];
#pragma unroll
    for (int j = 0; j < 8; j++)
        most = max(most, __float_as_uint(v[j]) & 0x7fffffffu);
    most = max(most, __shfl_xor_sync(quad, most, 1));
    most = max(most, __shfl_xor_sync(quad, most, 2));
#pragma unroll
    for (int j = 0; j < 8; j++)
        minus = minus || __float_as_uint(v[j]) == (most | 0x80000000u);
    minus = __shfl_xor_sync(quad, minus, 1) || minus;
    minus = __shfl_xor_sync(quad, minus, 2) || minus;
    if (!there)
        return;
    top = __uint_as_float(most);
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
#pragma unroll
    for (int j = 0; j < 8; j++) {
        float f = fminf(fmaxf(__fmul_rn(v[j], inv), low_high ? -8.0f : -127.0f), low_high ? 7.0f : 127.0f);

        code[j] = (unsigned)((most >= 0x7f800000u ? 0 : __float2int_rn(f)) + (low_high ? 8 : 0)) & 255u;
    }
    uint16_t *to = (uint16_t *)(row + b * (low_high ? 18 : 34));
    if (c == 0)
        *to = (uint16_t)d;
    if (low_high) {
#pragma unroll
        for (int j = 0; j < 4; j += 2)
            to[1 + 2 * c + j / 2] = (uint16_t)(code[j] | code[j + 4] << 4 | (code[j + 1] | code[j + 5] << 4) << 8);
    } else {
#pragma unroll
        for (int j = 0; j < 8; j += 2)
            to[1 + 4 * c + j / 2] = (uint16_t)(code[j] | code[j + 1] << 8);
    }
}

/* ---- pages ---- */

/* What a query head of a row gives, through its gate. */
static __device__ __forceinline__ float opened(const attn_args &a, float y, int row, int head, int d)
{
    return a.open != NULL ? __fmul_rn(y, sigmoid(a.open[row * a.open_stride + head * a.open_pitch + d])) : y;
}

attn_args cuda_attn_args(struct cuda *c, const struct node *v);
void cuda_merge_pages(struct cuda *c, const attn_args *a);
int cuda_attn_smem(struct cuda *c); /* bytes of shared memory that a block can have */
void cuda_attend_r2_16(struct cuda *c, const attn_args *a);
size_t cuda_attn_row_ws(const struct node *v); /* attn/attn_fused_r1_16.cu */
size_t cuda_attn_rows_ws(const struct node *v);
void cuda_attn_rows(struct cuda *c, const attn_args *a); /* attn/attn_r17.cu */
#endif
