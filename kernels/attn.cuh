/* SPDX-License-Identifier: Apache-2.0 */
/* attn.cuh - what the files of attention share.                      room: kernels (base quant ops) */
#ifndef KERNELS_ATTN_CUH
#define KERNELS_ATTN_CUH
#include <math_constants.h>

#include "kernels/math.cuh"
#include "kernels/quant/unit.cuh"

enum { HEADS = 8 }; /* query heads of a KV head that a block takes at once */

struct attn_args {
    float        *y;
    const float  *q;
    int64_t       ys, qs;
    struct op_kv  kv;
    int64_t       k_bytes, v_bytes, v_at; /* of a row; of a page's first value */
    float         scale;
    int           group, parts;
    struct rows   r;
    struct pages  pg;
    float        *part; /* [row][head][page]: m, l, o */
    int64_t       part_floats;
    int           pages;
};

static __device__ __forceinline__ __half2 half2_at(const uint8_t *p)
{
    uint32_t u = ((uintptr_t)p & 2) == 0 ? *(const uint32_t *)p : u32_at(p); /* rows of an odd width */

    return *(const __half2 *)&u;
}

/* 8 elements of a stored row from i on, a multiple of 8; the row has at least i + 8. */
template <int TYPE>
static __device__ __forceinline__ void eight(float v[8], const uint8_t *row, int i)
{
    if (TYPE == QUANT_f32) {
        const float *p = (const float *)row + i;

#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = p[j];
    } else if (TYPE == QUANT_f16 && ((uintptr_t)row & 15) == 0) {
        uint4 u = *(const uint4 *)(row + 2 * i);
        const uint32_t w[4] = { u.x, u.y, u.z, u.w };

#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 two = __half22float2(*(const __half2 *)&w[j]);

            v[2 * j] = two.x;
            v[2 * j + 1] = two.y;
        }
    } else if (TYPE == QUANT_f16) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float2 two = __half22float2(half2_at(row + 2 * (i + 2 * j)));

            v[2 * j] = two.x;
            v[2 * j + 1] = two.y;
        }
    } else if (TYPE == QUANT_q8_0) {
        const uint8_t *b = row + i / 32 * 34;
        uint2 q = any8(b + 2 + i % 32);
        float d = half_at(b);

#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fmul_rn((float)(int8_t)((j < 4 ? q.x : q.y) >> j % 4 * 8), d);
    } else {
        const uint8_t *b = row + i / 32 * 18;
        uint2 q = any8(b + 2 + i % 16);
        float d = half_at(b);

#pragma unroll
        for (int j = 0; j < 8; j++)
            v[j] = __fmul_rn((float)((int)((j < 4 ? q.x : q.y) >> j % 4 * 8 >> i % 32 / 16 * 4 & 15u) - 8), d);
    }
}

template <int TYPE>
static __device__ __forceinline__ float element(const uint8_t *row, int i)
{
    if (TYPE == QUANT_f32)
        return ((const float *)row)[i];
    if (TYPE == QUANT_f16)
        return half_at(row + 2 * i);
    if (TYPE == QUANT_q8_0)
        return __fmul_rn((float)(int8_t)row[i / 32 * 34 + 2 + i % 32], half_at(row + i / 32 * 34));
    return __fmul_rn((float)((row[i / 32 * 18 + 2 + i % 16] >> i % 32 / 16 * 4 & 15) - 8), half_at(row + i / 32 * 18));
}

static __device__ __forceinline__ void merge(float m, float mb, float *keep, float *take)
{
    float top = fmaxf(m, mb);

    *keep = expf(m - top);
    *take = expf(mb - top);
}

bool cuda_attn_rows_fit(const struct op_kv *kv);
void cuda_attn_rows(struct cuda *c, const attn_args *a); /* attn_rows.cu */
#endif
