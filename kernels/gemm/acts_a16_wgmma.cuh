/* SPDX-License-Identifier: Apache-2.0 */
/* acts_a16_wgmma.cuh - 16-bit activations in the layout of gemm_r64_a16_wgmma.cuh.   room: kernels
 *
 * Tiles of 64 rows times a pair of units (2 x 32 elements): for each unit 128 bytes of each row, then for each unit the
 * sum of q and the scale dx of each row. The 128 bytes are 256 h as halves, then l; each holds the even elements of the
 * unit's first half, its odd ones, then those of the second half. The eight 16-byte parts are swizzled as in
 * common/wgmma.cuh. Rows are read R64_A16_READ at a time; rows past the last are zeros and their
 * results are dropped. */
#ifndef KERNELS_GEMM_ACTS_A16_WGMMA_CUH
#define KERNELS_GEMM_ACTS_A16_WGMMA_CUH
#include "kernels/gemm/pick.cuh"

enum {
    R64_A16_COLUMNS = 64,
    R64_A16_READ = 16,
    R64_A16_UNIT = 128,
    R64_A16_SCALES = 2 * R64_A16_COLUMNS * R64_A16_UNIT,
    R64_A16_PAIR = R64_A16_SCALES + 2 * R64_A16_COLUMNS * 8,
};

/* How many are read of n. */
static __host__ __device__ inline int r64_read(int n)
{
    return (n + R64_A16_READ - 1) / R64_A16_READ * R64_A16_READ;
}

static __host__ __device__ inline size_t r64_a16_bytes(int64_t k, int64_t n_rows)
{
    return (size_t)((n_rows + R64_A16_COLUMNS - 1) / R64_A16_COLUMNS * x_pairs(k)) * R64_A16_PAIR;
}

/* As quantise_values(), for row `row` of all. */
static __device__ __forceinline__ void r64_a16_values(uint8_t *rows, int pairs, int64_t row, const float v[8], int pair,
                                                      int part, bool eight, bool there = true)
{
    uint8_t *all = rows + (row / R64_A16_COLUMNS * pairs + pair) * R64_A16_PAIR;
    const int col = (int)(row % R64_A16_COLUMNS), turn = col % 8, unit = part / 4 * R64_A16_COLUMNS + col;
    rounded r;

    round_values(r, v, sharers(eight), eight);
    if (!there)
        return;
#pragma unroll
    for (int odd = 0; odd < 2; odd++) {
        const int at = part % 4 / 2 * 2 + odd;
        uint2 h, l;
        uint32_t *hs = &h.x, *ls = &l.x;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int a = r.q[4 * i + odd], b = r.q[4 * i + 2 + odd], ha = (a + 128) & ~255, hb = (b + 128) & ~255;
            const __half2 high = __floats2half2_rn((float)ha, (float)hb);
            const __half2 low = __floats2half2_rn((float)(a - ha), (float)(b - hb));

            hs[i] = *(const uint32_t *)&high;
            ls[i] = *(const uint32_t *)&low;
        }
        *(uint2 *)(all + unit * R64_A16_UNIT + (at ^ turn) * 16 + part % 2 * 8) = h;
        *(uint2 *)(all + unit * R64_A16_UNIT + (4 + at ^ turn) * 16 + part % 2 * 8) = l;
    }
    if (part % 4 == 0)
        *(float2 *)(all + R64_A16_SCALES + unit * 8) = make_float2((float)r.all, r.dx);
}

/* gemm/gemm_r64_a16_wgmma.cu; n: columns, or chunks at most. With a list x is rows in any place (gather) or a chunk's
 * next to each other; rounded results are of the second kind. */
struct tile_args;
void cuda_round_r64_a16(struct cuda *c, uint8_t *out, struct tensor x);
void cuda_r64_a16(struct cuda *c, struct tile_args *a, int64_t n);
#endif
