/* SPDX-License-Identifier: Apache-2.0 */
/* acts_a8_wgmma.cuh - 8-bit activations in the layout of gemm_r64_a8_wgmma.cuh.   room: kernels
 *
 * Tiles of 128 rows times a group of 128 elements. For each half of the group 128 bytes of each row: q as halves, of
 * every 16 elements the even ones before the odd ones, the eight 16-byte parts swizzled as in common/wgmma.cuh. Then
 * sums of 8 elements as halves, the first 8 of each row, then the second 8; then dx, in an order of its own. Rows past
 * the last are zeros, as in acts_a16_wgmma.cuh. */
#ifndef KERNELS_GEMM_ACTS_A8_WGMMA_CUH
#define KERNELS_GEMM_ACTS_A8_WGMMA_CUH
#include "kernels/gemm/acts_a8_mma.cuh"

enum {
    R64_A8_COLUMNS = 128,
    R64_A8_SUMS = 2 * R64_A8_COLUMNS * 128,
    R64_A8_SCALES = R64_A8_SUMS + R64_A8_COLUMNS * 32,
    R64_A8_GROUP = R64_A8_SCALES + R64_A8_COLUMNS * 4,
};

static __host__ __device__ inline size_t r64_a8_bytes(int64_t k, int64_t n_rows)
{
    return (size_t)((n_rows + R64_A8_COLUMNS - 1) / R64_A8_COLUMNS * a8_groups(k)) * R64_A8_GROUP;
}

/* Where dx of a row is among those of all: columns 2 c and 2 c + 1 of two times 8 lie side by side. */
static __device__ __forceinline__ int r64_a8_scale(int col)
{
    return col / 16 * 16 + col % 8 / 2 * 4 + col / 8 % 2 * 2 + col % 2;
}

/* Rounds the rows of x, but those whose id has slot -1 (NULL: all). */
void cuda_round_r64_a8(struct cuda *c, uint8_t *out, struct tensor x, const int *id, const int *slot);

/* n: columns, or chunks at most, of R64_A8_COLUMNS at most. With a list x is rows in any place. */
struct tile_args;
void cuda_r64_a8(struct cuda *c, struct tile_args *a, int64_t n);
#endif
