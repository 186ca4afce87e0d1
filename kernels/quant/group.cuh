/* SPDX-License-Identifier: Apache-2.0 */
/* group.cuh - rows of weights of a group of 128 elements in shared memory.              room: kernels
 *
 * What gemm/gemm_r17_a8_mma.cu and gemm/gemm_r64_a8_wgmma.cuh multiply: GROUP_ROWS rows as they are stored, of formats
 * whose sums stay whole numbers (gemm/sums.cuh). group<TYPE>, with `at` where the rows are and c a lane's place among
 * four:
 *   SIZE     bytes; MIN: there are minima; SIGNED: bytes have signs; BOOK: bytes of what lookups need, near
 *   source   what a thread of T copies of each group: find() once for a block of rows, copy() each time
 *   bytes    of units 2 pair and 2 pair + 1 the word 4 half + c
 *   halves   of row h of two all such words: even elements and odd ones, times the unit's scale, times 2^-24
 *   scales   of the four units, a byte each; mins, where there are minima
 *   d, dmin
 * skew: what skew_of() gives of a row's odd() and the group: rows of some formats begin anywhere. */
#ifndef KERNELS_QUANT_GROUP_CUH
#define KERNELS_QUANT_GROUP_CUH
#include "kernels/common/tma.cuh"
#include "kernels/quant/regs.cuh"

template <int TYPE> struct group;

enum { GROUP_ROWS = 128 };

/* Rows of a block; those from the middle on may be another matrix's, the same ones. */
struct block_rows {
    const uint8_t *w[2];
    uint32_t row_bytes;
    int last; /* that exists */
    bool paired;
    __device__ __forceinline__ const uint8_t *row(int r) const
    {
        const int half = GROUP_ROWS / 2;

        return (paired && r >= half ? w[1] : w[0]) + (uint64_t)row_bytes * (unsigned)min(paired ? r % half : r, last);
    }
};

/* A first operand of wgmma of a group: of each unit and half of it even elements of two rows, then odd ones. */
typedef uint32_t group_halves[4][2][4];

/* n or, for bytes that have their four bits in the upper half, n / 16, n being byte u of v, twice. */
static __device__ __forceinline__ __half2 scale_halves(uint32_t v, int u, bool upper)
{
    const uint32_t n = __byte_perm(v, 0x64646464u, 0x4040u | u * 0x0101u); /* 1,024 + n */

    return __hfma2(*(const __half2 *)&n, __float2half2_rn(upper ? 0.0625f : 1.0f),
                   __float2half2_rn(upper ? -64.0f : -1024.0f));
}

static __device__ __forceinline__ uint32_t times_halves(uint32_t v, __half2 by)
{
    const __half2 r = __hmul2(*(const __half2 *)&v, by);

    return *(const uint32_t *)&r;
}

/* Rows that begin at multiples of 2 are copied in words from multiples of 4: LANES threads have a row's, one each. */
template <int T, int LANES> struct word_source {
    enum { EACH = GROUP_ROWS * LANES / T };
    const uint8_t *w[2];
    uint32_t row[EACH];
    int further; /* of the second group */

    __device__ __forceinline__ void find(const block_rows &b, int tid, int first, int more)
    {
#pragma unroll
        for (int e = 0; e < EACH; e++) {
            const int r = e * (T / LANES) + tid / LANES;

            row[e] = (uint32_t)(b.row(r) - (b.paired && r >= GROUP_ROWS / 2 ? b.w[1] : b.w[0])) + (uint32_t)first;
        }
        w[0] = b.w[0];
        w[1] = b.paired ? b.w[1] : b.w[0];
        further = more;
    }
    static __device__ __forceinline__ const uint8_t *even(const uint8_t *p)
    {
        return (const uint8_t *)((uintptr_t)p & ~(uintptr_t)3);
    }
    template <int BLOCK, int PITCH> __device__ __forceinline__ void copy(uint8_t *at, int group, int tid) const
    {
        const int more = group / 2 * BLOCK + group % 2 * further;

        at += tid / LANES * PITCH + tid % LANES * 4;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            copy4(at + e * (T / LANES) * PITCH, even(w[e >= EACH / 2] + row[e] + more));
    }
};
#endif
