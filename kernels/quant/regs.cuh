/* SPDX-License-Identifier: Apache-2.0 */
/* regs.cuh - rows of weights as a tensor core's first operand, straight from memory.   room: kernels
 *
 * Lane 4 g + c of a warp has 8 elements of every unit of its row: words 2 c and 2 c + 1, or c and c + 4 where that is
 * how a format is stored (APART). A block is 8 units. frag<TYPE>:
 *   load    what a lane needs of the block at `at`, of which n units exist (8 but for formats of 32); BLOCK bytes;
 *           ANY: wherever it lies, in shared memory too
 *   words   those two words of unit u of the block, TIMES the weights; signed bytes, or not (SIGNED)
 *   scale   of unit 4 half + c: d / TIMES, where there is a minimum also m. Where a unit has two scales (HALVES): of
 *           half c % 2 of unit 2 quarter + c / 2.
 *   scales  (SCALES) the same of both halves at once
 *   numbers (has_a8_sums()) as scale, but the whole numbers that d, dmin are multiplied with, over TIMES where units
 * differ integers  those whole numbers, as integers, whatever TIMES are; bits of signed ones factors those: d, over
 * TIMES where all are alike, and -dmin whole   (one sum or two a group) of units 2 c and 2 c + 1: sum of number i, i a
 * unit's sum of TIMES w q, and of min s ODD: TIMES of odd units are those of even ones times 2 to this power. d times
 * TIMES w is exact wherever d w is: TIMES are powers of two. What `words` looks up it takes from iq3s of struct tables,
 * or of copied_tables in shared memory. */
#ifndef KERNELS_QUANT_REGS_CUH
#define KERNELS_QUANT_REGS_CUH
#include "kernels/quant/unit.cuh"

template <int TYPE> struct frag;

/* COPIES of each entry, side by side, each for every COPIES-th lane: fewer lanes meet in a bank. */
template <int COPIES> struct __align__(16) copied_tables
{
    uint32_t iq3s[512 * COPIES];
};
typedef copied_tables<1> near_tables;

/* What a format looks up, by all threads of a block. */
template <int TYPE, int COPIES>
static __device__ __forceinline__ void bring_tables(copied_tables<COPIES> &to, const struct tables *from)
{
    if (TYPE == QUANT_iq3_s)
#pragma unroll 2
        for (int i = threadIdx.x; i < 512; i += blockDim.x) {
            const uint32_t v = from->iq3s[i];

#pragma unroll
            for (int j = 0; j < COPIES; j++)
                to.iq3s[i * COPIES + j] = v;
        }
}

/* Entry `code`. Where it lies in shared memory is one multiply-add: logic and shifts share a pipe that is
 * busier. */
static __device__ __forceinline__ uint32_t look_up(const struct tables *tab, uint32_t code)
{
    return __ldg(tab->iq3s + code);
}

template <int COPIES>
static __device__ __forceinline__ uint32_t look_up(const copied_tables<COPIES> *tab, uint32_t code)
{
    uint32_t at;

    asm("mad.lo.u32 %0, %1, %2, %3;"
        : "=r"(at)
        : "r"(code), "n"(COPIES * 4), "r"((uint32_t)__cvta_generic_to_shared(tab->iq3s + threadIdx.x % COPIES)));
    return *(const uint32_t *)__cvta_shared_to_generic(at);
}

template <bool ANY, class T> static __device__ __forceinline__ T read_as(const uint8_t *at)
{
    return ANY ? *(const T *)at : __ldg((const T *)at);
}

/* 8 bytes, which begin `shift` bits (0 or 16) after a multiple of 4. */
template <bool ANY> static __device__ __forceinline__ uint2 read8(const uint8_t *at, unsigned shift)
{
    const uint32_t a0 = read_as<ANY, uint32_t>(at), a1 = read_as<ANY, uint32_t>(at + 4);
    const uint32_t a2 = shift > 0 ? read_as<ANY, uint32_t>(at + 8) : 0u;

    return make_uint2(__funnelshift_r(a0, a1, shift), __funnelshift_r(a1, a2, shift));
}

/* How many bytes after a multiple of 4 a multiple of 2 is. */
static __device__ __forceinline__ unsigned after4(const uint8_t *at)
{
    return (unsigned)(uintptr_t)at & 2u;
}

/* 0 .. 255 as a float, by an addition: conversions are slow. */
static __device__ __forceinline__ float small_float(uint32_t v)
{
    return __fsub_rn(__uint_as_float(v | 0x4b000000u), 8388608.0f);
}

/* frag<TYPE>::scale() of all halves, or quarters. */
template <int TYPE>
static __device__ __forceinline__ void all_scales(const typename frag<TYPE>::raw &r, int c, float *d, float *m)
{
    if constexpr (frag<TYPE>::SCALES) {
        frag<TYPE>::scales(r, c, d, m);
    } else {
#pragma unroll
        for (int j = 0; j < (frag<TYPE>::HALVES ? 4 : 2); j++)
            frag<TYPE>::scale(r, j, c, d[j], m[j]);
    }
}
#endif
