/* SPDX-License-Identifier: Apache-2.0 */
/* product.cuh - products of stored rows with activations.            room: kernels (base quant ops)
 *
 * For formats that decode to whole numbers (quant/unit.cuh) the activations are rounded to 16 bits: each 32 share a
 * scale dx = max |x| / 32639 and q = round(x / dx) is kept as two signed bytes, q = 256 h + l. Sums of w q over 16 or
 * 32 elements are exact integers, so whatever computes them, the floats that follow are the same:
 *   unit:  v = dx (d i - m s), i = sum of w q, s = sum of q; with two scales, both halves' terms added
 *   pair:  P = v_0 + v_1 (64 elements)
 *   result: sums of 8 pairs in order, from 0; those added in order, from 0.
 * The rounding error is 2^-16 of a block's largest element: a thirtieth of float16's.
 *
 * For plain formats (f32, f16, bf16, iq6_k ...) activations stay floats: 32 sums over elements l, l + 32 ..., fused
 * multiply-add, folded by halves. */
#ifndef KERNELS_PRODUCT_CUH
#define KERNELS_PRODUCT_CUH
#include "kernels/quant/unit.cuh"

/* A pair of units of activations: h of 64 elements, l of 64, then for each unit dx and the sums of q of its halves. */
enum { X_PAIR = 176, X_L = 64, X_SCALE = 128 };

static __host__ __device__ inline int64_t x_row_bytes(int64_t k)
{
    return (k + 63) / 64 * X_PAIR;
}

static __device__ __forceinline__ float unit_value(int i0, int i1, const unit &u, float4 x, bool half, bool min)
{
    float v;

    if (half) {
        v = __fmaf_rn(u.d[0], (float)i0, __fmul_rn(u.d[1], (float)i1));
        if (min)
            v = __fsub_rn(v, __fmaf_rn(u.m[0], x.y, __fmul_rn(u.m[1], x.z)));
    } else {
        v = __fmul_rn(u.d[0], (float)(i0 + i1));
        if (min)
            v = __fmaf_rn(-u.m[0], __fadd_rn(x.y, x.z), v);
    }
    return __fmul_rn(x.x, v);
}

/* Sum of a unit's w with h and l of activations. */
template <bool HALF>
static __device__ __forceinline__ void unit_dot(int &i0, int &i1, const int w[8], const uint4 h[2], const uint4 l[2])
{
    int a = 0, b = 0;

    a = __dp4a(w[0], (int)h[0].x, a);
    a = __dp4a(w[1], (int)h[0].y, a);
    a = __dp4a(w[2], (int)h[0].z, a);
    a = __dp4a(w[3], (int)h[0].w, a);
    b = __dp4a(w[0], (int)l[0].x, b);
    b = __dp4a(w[1], (int)l[0].y, b);
    b = __dp4a(w[2], (int)l[0].z, b);
    b = __dp4a(w[3], (int)l[0].w, b);
    if (HALF) {
        i0 = a * 256 + b;
        a = b = 0;
    }
    a = __dp4a(w[4], (int)h[1].x, a);
    a = __dp4a(w[5], (int)h[1].y, a);
    a = __dp4a(w[6], (int)h[1].z, a);
    a = __dp4a(w[7], (int)h[1].w, a);
    b = __dp4a(w[4], (int)l[1].x, b);
    b = __dp4a(w[5], (int)l[1].y, b);
    b = __dp4a(w[6], (int)l[1].z, b);
    b = __dp4a(w[7], (int)l[1].w, b);
    if (HALF) {
        i1 = a * 256 + b;
    } else {
        i0 = a * 256 + b;
        i1 = 0;
    }
}

struct x_pair {
    uint4  h[4], l[4];
    float4 s[2];
};

static __device__ __forceinline__ void x_load(x_pair &x, const uint8_t *row, int pair)
{
    const uint4 *p = (const uint4 *)(row + (int64_t)pair * X_PAIR);

#pragma unroll
    for (int i = 0; i < 4; i++) {
        x.h[i] = p[i];
        x.l[i] = p[4 + i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
        x.s[i] = ((const float4 *)p)[8 + i];
}

template <int TYPE>
static __device__ __forceinline__ float pair_value(const unit u[2], const x_pair &x, int n)
{
    const bool half = wq<TYPE>::HALF, min = wq<TYPE>::MIN;
    int i0, i1;
    float v;

    unit_dot<half>(i0, i1, u[0].w, x.h, x.l);
    v = unit_value(i0, i1, u[0], x.s[0], half, min);
    if (n > 1) {
        unit_dot<half>(i0, i1, u[1].w, x.h + 2, x.l + 2);
        v = __fadd_rn(v, unit_value(i0, i1, u[1], x.s[1], half, min));
    }
    return v;
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
 * out(row, t, value) is called by one lane for each. buf: NR * TT * BUF_PITCH floats of the warp's own. */
template <int TYPE, int TT, int NR = AT_ONCE, class OUT>
static __device__ __forceinline__ void rows_times(const uint8_t *w, int64_t row_bytes, int r0, int n_rows, int k,
                                                  const uint8_t *const x[TT], int nt, const struct tables *tab,
                                                  float *buf, OUT out)
{
    enum {
        NV = NR * TT, SLOTS = (NV * 4 + 31) / 32,
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
                    x_load(x0, x[0], p);
            }
            if (in)
                wq<TYPE>::unpack(raw[i % AHEAD], p, u, n, tab);
#pragma unroll
            for (int t = 0; t < TT; t++) {
                float v = 0.0f;

                if (in && t < nt) {
                    if (TT > 1)
                        x_load(x0, x[t], p);
                    v = pair_value<TYPE>(u, x0, n);
                }
                buf[(i * TT + t) * BUF_PITCH + lane] = v;
            }
        }
        __syncwarp();
#pragma unroll
        for (int s = 0; s < SLOTS; s++) {
            int task = s * 32 + lane;
            float sum = 0.0f;

            if (task < NV * 4) {
                const float4 *b = (const float4 *)(buf + task / 4 * BUF_PITCH + task % 4 * 8);
                float4 lo = b[0], hi = b[1];

                sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, lo.x), lo.y), lo.z), lo.w);
                sum = __fadd_rn(__fadd_rn(__fadd_rn(__fadd_rn(sum, hi.x), hi.y), hi.z), hi.w);
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
    case QUANT_f32: return ((const float *)row)[i];
    case QUANT_f16: return half_at(row + 2 * i);
    case QUANT_bf16: return __uint_as_float(u16_at(row + 2 * i) << 16);
    case QUANT_f64: return (float)((const double *)row)[i];
    case QUANT_i8: return (float)((const int8_t *)row)[i];
    case QUANT_i16: return (float)((const int16_t *)row)[i];
    case QUANT_i32: return (float)((const int32_t *)row)[i];
    case QUANT_i64: return (float)((const long long *)row)[i];
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
    return type <= QUANT_i64 || type == QUANT_iq6_k;
}
#endif
