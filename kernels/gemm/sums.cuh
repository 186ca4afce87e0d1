/* SPDX-License-Identifier: Apache-2.0 */
/* sums.cuh - products of stored rows with activations.            room: kernels
 *
 * For formats that decode to whole numbers (quant/unit.cuh) the activations are rounded to 16 bits: each 32 (a unit)
 * share a scale dx = max |x| / 32639 and q = round(x / dx) is kept as two signed bytes, q = 256 h + l. Sums of w q
 * over 16 or 32 elements are exact integers, so whatever computes them, the floats that follow are the same:
 *   unit:    V = d i - m s, i = sum of w q, s = sum of q; of two halves, both terms of the first, then of the second
 *   8 pairs: S = 0; S += dx V, units ascending
 *   result:  those added in order, from 0.
 * Every product and its addition are one fma. The rounding error is 2^-16 of a unit's largest element: a thirtieth of
 * float16's.
 *
 * Rounded to 8 bits (eight) activations share dx = max |x| / 127 among 128, a group of four units, and h is zero.
 * Formats whose scales are whole numbers times a block's d (a8_sums()) then add whole numbers through a group, a
 * half or a quarter of it. All stay below 2^24, so they are exact in floats as well, in any order: group:   I = sum of
 * scale i (over its units, over either two, or of each), M = sum of min s 4 groups: S = 0; S += dx (d I) for each I,
 * then S -= dx (dmin M), groups ascending result:  as above.
 *
 * For plain formats (f32, f16, bf16, iq6_k ...) activations stay floats: 32 sums over elements l, l + 32 ..., fused
 * multiply-add, folded by halves. */
#ifndef KERNELS_GEMM_SUMS_CUH
#define KERNELS_GEMM_SUMS_CUH
#include "kernels/quant/unit.cuh"

/* Sums I of a group: 0 for formats that do not stay whole. */
static __host__ __device__ constexpr int a8_sums(int type)
{
#define X(name, sums) type == QUANT_##name ? sums:
    return GEMM_A8(X) 0;
#undef X
}
static __host__ __device__ constexpr bool has_a8_sums(int type)
{
    return a8_sums(type) > 0;
}

/* A row of activations. For each pair of units: 128 bytes of q, and the sum of q and dx of either unit. Then every dx
 * again, with zeros up to a multiple of 16, and for each pair the sums of q of the second halves of its units. Word c
 * (4 elements) of a unit lies beside word c + 4, as the fragments of tensor cores want them: 16 bytes are h of c, l of
 * c, h of c + 4, l of c + 4. */
enum { X_PAIR = 144, X_UNIT = 64, X_SUMS = 128 };

static __host__ __device__ inline int x_pairs(int64_t k)
{
    return (int)(((unsigned)k + 63) /
                 64); /* rows are shorter than 2^31, and 64 bits take three times the instructions */
}

static __host__ __device__ inline int64_t x_row_bytes(int64_t k)
{
    const unsigned pairs = (unsigned)x_pairs(k);

    return pairs * X_PAIR + (pairs + 7) / 8 * 64 + (pairs + 1) / 2 * 16;
}

static __device__ __forceinline__ const float *x_scales(const uint8_t *row, int pairs)
{
    return (const float *)(row + (int64_t)pairs * X_PAIR);
}

static __device__ __forceinline__ const float2 *x_seconds(const uint8_t *row, int pairs)
{
    return (const float2 *)(row + (int64_t)pairs * X_PAIR + (pairs + 7) / 8 * 64);
}

/* Sums of h and l that began at WHOLE are the bits of 12582912 + sum, below 2^22 in size: 256 h + l, rounded once. */
enum { SUM_START = 0x4b400000 };

static __device__ __forceinline__ float join_planes(int h, int l)
{
    return __fadd_rn(__fmaf_rn(__int_as_float(h), 256.0f, -257.0f * 12582912.0f), __int_as_float(l));
}

/* Sum of words j ... j + 3 of a unit's w with h and l of activations. */
static __device__ __forceinline__ float unit_dot(const int *w, int j, const uint4 x[4])
{
    int h = SUM_START, l = SUM_START;

#pragma unroll
    for (int c = 0; c < 4; c++) {
        h = __dp4a(w[j + c], (int)(j == 0 ? x[c].x : x[c].z), h);
        l = __dp4a(w[j + c], (int)(j == 0 ? x[c].y : x[c].w), l);
    }
    return join_planes(h, l);
}

static __device__ __forceinline__ float unit_dot(const int w[8], const uint4 x[4])
{
    int h = SUM_START, l = SUM_START;

#pragma unroll
    for (int c = 0; c < 4; c++) {
        h = __dp4a(w[c], (int)x[c].x, h);
        h = __dp4a(w[c + 4], (int)x[c].z, h);
        l = __dp4a(w[c], (int)x[c].y, l);
        l = __dp4a(w[c + 4], (int)x[c].w, l);
    }
    return join_planes(h, l);
}

struct x_pair {
    uint4 q[8];
    float sum[2];
    float2 second;
};

template <int TYPE> static __device__ __forceinline__ void x_load(x_pair &x, const uint8_t *row, int pair, int pairs)
{
    const uint4 *p = (const uint4 *)(row + (int64_t)pair * X_PAIR);

#pragma unroll
    for (int i = 0; i < 8; i++)
        x.q[i] = p[i];
    if (wq<TYPE>::MIN) {
        x.sum[0] = ((const float *)p)[32];
        x.sum[1] = ((const float *)p)[34];
    }
    if (wq<TYPE>::MIN && wq<TYPE>::HALF)
        x.second = x_seconds(row, pairs)[pair];
}

/* V of a unit; q: its 64 bytes, all and second: sums of it and of its second half. */
template <int TYPE>
static __device__ __forceinline__ float unit_value(const unit &u, const uint4 *q, float all, float second)
{
    const bool half = wq<TYPE>::HALF, min = wq<TYPE>::MIN;
    float v = __fmul_rn(u.d[0], half ? unit_dot(u.w, 0, q) : unit_dot(u.w, q));

    if (min)
        v = __fmaf_rn(-u.m[0], half ? __fsub_rn(all, second) : all, v);
    if (half)
        v = __fmaf_rn(u.d[1], unit_dot(u.w, 4, q), v);
    if (half && min)
        v = __fmaf_rn(-u.m[1], second, v);
    return v;
}

/* A pair's part of a group: sums of scale i and of min s, or either unit's sum of scale i. */
template <int TYPE> static __device__ __forceinline__ float2 a8_value(const unit u[2], const x_pair &x)
{
    if (a8_sums(TYPE) == 4)
        return make_float2(
            __fmaf_rn(u[0].d[1], unit_dot(u[0].w, 4, x.q), __fmul_rn(u[0].d[0], unit_dot(u[0].w, 0, x.q))),
            __fmaf_rn(u[1].d[1], unit_dot(u[1].w, 4, x.q + 4), __fmul_rn(u[1].d[0], unit_dot(u[1].w, 0, x.q + 4))));
    const float i = __fmul_rn(u[0].d[0], unit_dot(u[0].w, x.q)),
                m = wq<TYPE>::MIN ? __fmul_rn(u[0].m[0], x.sum[0]) : 0.0f;

    return make_float2(__fmaf_rn(u[1].d[0], unit_dot(u[1].w, x.q + 4), i),
                       wq<TYPE>::MIN ? __fmaf_rn(u[1].m[0], x.sum[1], m) : 0.0f);
}

/* Rows of a warp at once: 4 for each group of lanes that share a row. */
enum { AT_ONCE = 4, BUF_PITCH = 36 };

/* Lanes that share a row of k elements: 8, 16 or 32, a pair each. */
static __host__ __device__ inline int row_lanes(int64_t k)
{
    return k > 1024 ? 32 : k > 512 ? 16 : 8;
}
static __host__ __device__ inline int warp_rows(int64_t k, int at_once = AT_ONCE)
{
    return at_once * (32 / row_lanes(k));
}

/* Rows r0 ... of a warp (warp_rows(k, NR) of them, below n_rows) times TT rows of activations, of which nt exist:
 * out(row, t, value) is called by one lane for each. buf: 2 * NR * TT * BUF_PITCH floats of the warp's own. */
template <int TYPE, int TT, int NR = AT_ONCE, class OUT>
static __device__ __forceinline__ void rows_times(const uint8_t *w, int64_t row_bytes, int r0, int n_rows, int k,
                                                  const uint8_t *const x[TT], int nt, bool eight,
                                                  const struct tables *tab, float *buf, OUT out)
{
    enum {
        NV = NR * TT,
        SLOTS = (NV * 4 + 31) / 32,
        AHEAD = sizeof(typename wq<TYPE>::raw) <= 48 ? NR : (NR < 2 ? NR : 2), /* rows in flight */
    };
    const int lane = threadIdx.x & 31, units = k / 32, pairs = (units + 1) / 2, lanes = row_lanes(k);
    const int sub = lane / lanes, at = lane % lanes, per = 32 / lanes, segs = lanes / 8;
    float tot[SLOTS];

#pragma unroll
    for (int s = 0; s < SLOTS; s++)
        tot[s] = 0.0f;
    for (int p0 = 0; p0 < pairs; p0 += lanes) {
        int p = p0 + at, n = units - 2 * p;
        typename wq<TYPE>::raw raw[AHEAD];
        x_pair x0;

#pragma unroll
        for (int i = 0; i < NR; i++) {
            bool in = n > 0 && r0 + i * per + sub < n_rows;
            unit u[2];

            if (i % AHEAD == 0) {
#pragma unroll
                for (int j = 0; j < AHEAD; j++)
                    if (n > 0 && r0 + (i + j) * per + sub < n_rows)
                        wq<TYPE>::load(raw[j], w + (int64_t)(r0 + (i + j) * per + sub) * row_bytes, p);
                if (TT == 1 && i == 0 && n > 0)
                    x_load<TYPE>(x0, x[0], p, pairs);
            }
            if constexpr (has_a8_sums(TYPE))
                if (eight) {
                    wq<TYPE>::unpack_a8(raw[i % AHEAD], p, u, tab);
#pragma unroll
                    for (int t = 0; t < TT; t++) {
                        float2 v = make_float2(0.0f, 0.0f);

                        if (TT > 1 && in && t < nt)
                            x_load<TYPE>(x0, x[t], p, pairs);
                        if (in && t < nt)
                            v = a8_value<TYPE>(u, x0);
                        if (a8_sums(TYPE) == 1)
                            v.x += __shfl_xor_sync(0xffffffffu, v.x, 1); /* the group's other pair */
                        if (wq<TYPE>::MIN)
                            v.y += __shfl_xor_sync(0xffffffffu, v.y, 1);
                        const bool first = in && (a8_sums(TYPE) > 1 || p % 2 == 0);
                        const bool second = in && (wq<TYPE>::MIN ? p % 2 == a8_sums(TYPE) - 1 : a8_sums(TYPE) == 4);
                        const float by = wq<TYPE>::MIN ? -u[0].m[1] : u[1].m[1];
                        buf[2 * (i * TT + t) * BUF_PITCH + lane] = first ? __fmul_rn(u[1].m[1], v.x) : 0.0f;
                        buf[(2 * (i * TT + t) + 1) * BUF_PITCH + lane] = second ? __fmul_rn(by, v.y) : 0.0f;
                    }
                    continue;
                }
            if (in)
                wq<TYPE>::unpack(raw[i % AHEAD], p, u, n, tab);
#pragma unroll
            for (int t = 0; t < TT; t++) {
                float v0 = 0.0f, v1 = 0.0f;

                if (in && t < nt) {
                    if (TT > 1)
                        x_load<TYPE>(x0, x[t], p, pairs);
                    v0 = unit_value<TYPE>(u[0], x0.q, x0.sum[0], x0.second.x);
                    if (n > 1)
                        v1 = unit_value<TYPE>(u[1], x0.q + 4, x0.sum[1], x0.second.y);
                }
                buf[2 * (i * TT + t) * BUF_PITCH + lane] = v0;
                buf[(2 * (i * TT + t) + 1) * BUF_PITCH + lane] = v1;
            }
        }
        __syncwarp();
#pragma unroll
        for (int s = 0; s < SLOTS; s++) {
            int task = s * 32 + lane;
            int p8 = p0 + task % 4 % segs * 8; /* the first of 8 pairs */
            float sum = 0.0f;

            if (task < NV * 4 && p8 < pairs) {
                const float4 *b = (const float4 *)(buf + task / 4 * 2 * BUF_PITCH + task % 4 * 8);
                const uint8_t *row = x[0];
#pragma unroll
                for (int t = 1; t < TT; t++)
                    row = task / 4 % TT == t ? x[t] : row;
                const float4 *dx = (const float4 *)(x_scales(row, pairs) + 2 * p8);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    float4 even = b[j], odd = b[BUF_PITCH / 4 + j], lo = dx[2 * j], hi = dx[2 * j + 1];

                    sum = __fmaf_rn(lo.y, odd.x, __fmaf_rn(lo.x, even.x, sum));
                    sum = __fmaf_rn(lo.w, odd.y, __fmaf_rn(lo.z, even.y, sum));
                    sum = __fmaf_rn(hi.y, odd.z, __fmaf_rn(hi.x, even.z, sum));
                    sum = __fmaf_rn(hi.w, odd.w, __fmaf_rn(hi.z, even.w, sum));
                }
            }
            for (int q = 0; q < segs; q++)
                tot[s] = __fadd_rn(tot[s], __shfl_sync(0xffffffffu, sum, (lane & ~(segs - 1)) + q));
        }
        __syncwarp();
    }
#pragma unroll
    for (int s = 0; s < SLOTS; s++) {
        int task = s * 32 + lane, v = task / 4, g = task % 4, row = r0 + v / TT * per + g / segs;

        if (task < NV * 4 && g % segs == 0 && row < n_rows && v % TT < nt)
            out(row, v % TT, tot[s]);
    }
}

/* Element i of a row of a plain format. */
static __device__ __forceinline__ float plain_at(int type, const uint8_t *row, int64_t i)
{
    switch (type) {
    case QUANT_f32:
        return ((const float *)row)[i];
    case QUANT_f16:
        return half_at(row + 2 * i);
    case QUANT_bf16:
        return __uint_as_float(u16_at(row + 2 * i) << 16);
    case QUANT_f64:
        return (float)((const double *)row)[i];
    case QUANT_i8:
        return (float)((const int8_t *)row)[i];
    case QUANT_i16:
        return (float)((const int16_t *)row)[i];
    case QUANT_i32:
        return (float)((const int32_t *)row)[i];
    case QUANT_i64:
        return (float)((const long long *)row)[i];
    default: { /* iq6_k */
        const uint8_t *b = row + i / 256 * 212;
        int e = (int)(i % 256), g = e / 16, l = e % 16;
        int q = b[20 + g / 4 * 32 + g % 2 * 16 + l] >> g % 4 / 2 * 4 & 15;
        int h = b[148 + g / 8 * 32 + g % 2 * 16 + l] >> g % 8 / 2 * 2 & 3;
        float v = (float)(q | h << 4), more = (float)(u16_at(b + 2) >> g & 1u);

        v = __fmul_rn(v, __fadd_rn(6.2568f, __fmul_rn(v, __fadd_rn(-0.11218f, __fmul_rn(v, 0.0011972f)))));
        return __fmul_rn(__fmul_rn(half_at(b), (float)(int8_t)b[4 + g]), __fadd_rn(__fadd_rn(-127.0f, v), more));
    }
    }
}

static __device__ __forceinline__ float fold32(float sum)
{
#pragma unroll
    for (int half = 16; half > 0; half /= 2)
        sum = __fadd_rn(sum, __shfl_xor_sync(0xffffffffu, sum, half));
    return sum;
}

/* One row of a plain format times TT rows of float activations; every lane gets the sums. */
template <int TYPE, int TT>
static __device__ __forceinline__ void plain_times(float sum[TT], const uint8_t *row, int k, const float *const x[TT],
                                                   int nt)
{
    const int lane = threadIdx.x & 31;

#pragma unroll
    for (int t = 0; t < TT; t++)
        sum[t] = 0.0f;
#pragma unroll 8
    for (int i = lane; i < k; i += 32) {
        float w = plain_at(TYPE, row, i);

#pragma unroll
        for (int t = 0; t < TT; t++)
            if (t < nt)
                sum[t] = __fmaf_rn(w, x[t][i], sum[t]);
    }
#pragma unroll
    for (int t = 0; t < TT; t++)
        sum[t] = fold32(sum[t]);
}

static inline bool is_plain(int type)
{
    return gemm_formats_have(GEMM_FORMATS_FLOAT, type);
}
#endif
