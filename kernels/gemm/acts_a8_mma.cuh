/* SPDX-License-Identifier: Apache-2.0 */
/* acts_a8_mma.cuh - 8-bit activations in the layout of gemm_r17_a8_mma.cu.   room: kernels
 *
 * Tiles of 64 rows times a group of 128 elements: 128 bytes of q of each row, words c and c + 4 of each unit side by
 * side, units rotated by the row so that 4 rows share no bank. Then sums of 8 elements as halves: the first 8 of each
 * row, then the second 8 of each row. Then dx of each row. */
#ifndef KERNELS_GEMM_ACTS_A8_MMA_CUH
#define KERNELS_GEMM_ACTS_A8_MMA_CUH
#include "kernels/gemm/pick.cuh"

enum {
    R17_A8_COLUMNS = 64,
    R17_A8_SUMS = R17_A8_COLUMNS * 128,
    R17_A8_SCALES = R17_A8_SUMS + R17_A8_COLUMNS * 32,
    R17_A8_GROUP = R17_A8_SCALES + R17_A8_COLUMNS * 4,
};

static __host__ __device__ inline int a8_groups(int64_t k)
{
    return (int)(((unsigned)k + 127) / 128);
}
static __host__ __device__ inline size_t r17_a8_bytes(int64_t k, int64_t n_rows)
{
    return (size_t)((n_rows + R17_A8_COLUMNS - 1) / R17_A8_COLUMNS * a8_groups(k)) * R17_A8_GROUP;
}

/* Where a unit of a row lies among the bytes of q. */
static __device__ __forceinline__ int r17_a8_unit(int row, int unit)
{
    return row * 128 + (unit ^ row % 4) * 32;
}

/* 8 elements of a group, rounded: part of 16, whose threads are neighbours; !there: nothing is written. */
static __device__ __forceinline__ void r17_a8_values(uint8_t *rows, int groups, int64_t row, const float v[8],
                                                     int group, int part, bool there)
{
    const int col = (int)(row % R17_A8_COLUMNS), word = part % 4 * 2; /* of 8 of the unit; and the next */
    uint8_t *all = rows + (row / R17_A8_COLUMNS * groups + group) * R17_A8_GROUP;
    uint8_t *to = all + r17_a8_unit(col, part / 4) + word % 4 * 8 + word / 4 * 4;
    rounded r;

    round_values(r, v, sharers(true), true);
    if (!there)
        return;
    *(uint32_t *)to = bytes_of(0, r.q[0], r.q[1], r.q[2], r.q[3]);
    *(uint32_t *)(to + 8) = bytes_of(0, r.q[4], r.q[5], r.q[6], r.q[7]);
    ((__half *)(all + R17_A8_SUMS))[(part / 8 * R17_A8_COLUMNS + col) * 8 + part % 8] = __float2half_rn((float)r.sum);
    if (part == 0)
        ((float *)(all + R17_A8_SCALES))[col] = r.dx;
}

void cuda_round_r17_a8(struct cuda *c, uint8_t *out, struct tensor x);
#endif
