/* SPDX-License-Identifier: Apache-2.0 */
/* stage.cuh - rows of weights on their way through shared memory.    room: kernels (base quant ops)
 *
 * Read straight into registers (frag.cuh) 32 lanes ask for pieces of 8 rows, 32 bytes each, which all are requests of
 * their own; a stage is copied in long pieces, while the one before is multiplied. */
#ifndef KERNELS_STAGE_CUH
#define KERNELS_STAGE_CUH
#include "kernels/bulk.cuh"
#include "kernels/row.cuh"

/* A segment of a strip in shared memory. It comes in pieces of 16 bytes, PIECES of a row where all rows and segments
 * begin at such, MOST where they do not. Rows are so far apart that four, 32 bytes each, meet in no bank. */
template <int TYPE> struct stage_of {
    enum {
        BYTES = 2 * frag<TYPE>::BLOCK, PIECES = BYTES / 16, EVEN = BYTES % 16 == 0,
        LOOSE = frag<TYPE>::BLOCK % 16 != 0 || TYPE == QUANT_q8_0, MOST = LOOSE ? (BYTES + 30) / 16 : PIECES,
        PITCH = (MOST * 16 + 31) / 64 * 64 + 32, SIZE = STRIP * PITCH,
    };
};

/* Where a lane finds its pieces from the segment's first on, and where they go. */
template <int TYPE> struct lane_pieces {
    enum { N = (STRIP * stage_of<TYPE>::PIECES + 31) / 32 };
    uint32_t from[N], to[N];
};

template <int TYPE>
static __device__ __forceinline__ void find_pieces(lane_pieces<TYPE> &p, int row_bytes)
{
    typedef stage_of<TYPE> S;

#pragma unroll
    for (int i = 0; i < lane_pieces<TYPE>::N; i++) {
        const int at = i * 32 + threadIdx.x % 32, row = at / S::PIECES, piece = at % S::PIECES;

        p.from[i] = row * row_bytes + piece * 16;
        p.to[i] = (int)S::PITCH == S::PIECES * 16 ? at * 16 : row * S::PITCH + piece * 16;
    }
}

/* By a warp, which has to wait for its group of copies; w is a multiple of 16. Of the last segment of a row there may
 * be less. */
template <int TYPE>
static __device__ __forceinline__ void fetch_stage(uint8_t *to, const uint8_t *w, int row_bytes, int segment,
                                                   const lane_pieces<TYPE> &p)
{
    typedef stage_of<TYPE> S;
    const int lane = threadIdx.x & 31, first = segment * S::BYTES;

    if (S::EVEN && row_bytes % 16 == 0 && first + S::BYTES <= row_bytes) {
        w += first;
#pragma unroll
        for (int i = 0; i < lane_pieces<TYPE>::N; i++)
            if (STRIP * S::PIECES % 32 == 0 || i * 32 + lane < STRIP * S::PIECES)
                copy16(to + p.to[i], w + p.from[i]);
    } else {
#pragma unroll 2
        for (int at = lane; at < STRIP * S::MOST; at += 32) {
            const int row = at / S::MOST, piece = at % S::MOST * 16, from = ((row * row_bytes + first) & ~15) + piece;

            if (from < (row + 1) * row_bytes)
                copy16(to + row * S::PITCH + piece, w + from);
        }
    }
    copy_end();
}

/* The same by bulk copies of rows; a phase of the barrier, which counts STRIP arrivals, ends when they are there. Copies of 16
 * bytes are written to shared memory as their sectors come, 14 times for what takes 4; experts gain by this, other matrices
 * (few.cu) do not. */
template <int TYPE>
static __device__ __forceinline__ void bring_stage(uint8_t *to, const uint8_t *w, int row_bytes, int segment, uint64_t *bar)
{
    typedef stage_of<TYPE> S;
    const int lane = threadIdx.x & 31, from = lane * row_bytes + segment * S::BYTES;
    const int begin = from & ~15, end = (min(from + (int)S::BYTES, (lane + 1) * row_bytes) + 15) & ~15;

    if (lane < STRIP) {
        bar_expect(bar, (unsigned)(end - begin));
        if ((int)S::PITCH != (int)S::BYTES || row_bytes != (int)S::BYTES)
            bulk_go(to + lane * S::PITCH, w + begin, (unsigned)(end - begin), bar);
        else if (lane == 0) /* rows lie as they do there */
            bulk_go(to, w, STRIP * S::PITCH, bar);
    }
    __syncwarp();
}

/* The bytes of a row of a stage. */
template <int TYPE>
static __device__ __forceinline__ const uint8_t *staged_row(const uint8_t *stage, int row, int row_bytes, int segment)
{
    typedef stage_of<TYPE> S;

    return stage + row * S::PITCH + (S::LOOSE ? (row * row_bytes + segment * S::BYTES) & 15 : 0);
}
#endif
