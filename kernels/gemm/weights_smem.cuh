/* SPDX-License-Identifier: Apache-2.0 */
/* weights_smem.cuh - rows of weights staged through shared memory.   room: kernels
 *
 * When weights are read straight into registers (quant/regs.cuh), 32 lanes ask for pieces of 8 rows, 32 bytes each, and
 * each piece is a separate request. A stage is copied in long pieces while the one before is multiplied. */
#ifndef KERNELS_GEMM_WEIGHTS_SMEM_CUH
#define KERNELS_GEMM_WEIGHTS_SMEM_CUH
#include "kernels/common/tma.cuh"
#include "kernels/gemm/gemv_r1_mma.cuh"

enum { BOX_ALIGN = 128 /* of stages, in shared memory */ };

/* A segment of a strip in shared memory: of a row BYTES, or the pieces of 16 bytes that these lie in, MOST where a row
 * or a segment may begin within one. Of a box rows lie BOX bytes apart; where rows come one by one so far that four, 32
 * bytes each, meet in no bank. */
template <int TYPE> struct stage_of {
    enum {
        BYTES = 2 * frag<TYPE>::BLOCK,
        MOST = (BYTES + 30) / 16 * 16,
        BOX = BYTES % 16 == 0 ? (int)BYTES : (int)MOST,
        LOOSE = frag<TYPE>::BLOCK % 16 != 0 || TYPE == QUANT_q8_0,
        PITCH = ((LOOSE ? (int)MOST : (int)BYTES) + 31) / 64 * 64 + 32,
        SIZE = STRIP * PITCH,
    };
};

/* How rows of a matrix come to a stage, and how they lie there.
 *   ROWS_WHOLE  rows of one segment: a strip is one bulk copy
 *   ROWS_BOXED  rows begin at multiples of 16 bytes: one instruction brings a box of a tensor map (CUDA driver API,
 *               cuTensorMapEncodeTiled), whose elements are 4 bytes: byte (a multiple of 16), row, matrix. 16 bulk
 * copies would be a quarter of a piece's instructions, as they go one after the other, each with its addresses moved to
 * uniform registers; copies of 16 bytes a lane are written to shared memory as their sectors come, 14 times for what
 * takes 4. ROWS_LOOSE  a bulk copy a row, of the 16-byte pieces that it lies in */
enum rows_come { ROWS_WHOLE, ROWS_BOXED, ROWS_LOOSE };

static __host__ __device__ inline enum rows_come rows_come(int segment_bytes, int64_t row_bytes)
{
    return row_bytes <= segment_bytes ? ROWS_WHOLE : row_bytes % 16 == 0 ? ROWS_BOXED : ROWS_LOOSE;
}

/* By a thread: a segment of ROWS rows from `row` of matrix `matrix` on; rows that do not exist are zeros. */
template <int TYPE, int ROWS = STRIP>
static __device__ __forceinline__ void bring_box(uint32_t to, const CUtensorMap *map, int matrix, int row, int segment,
                                                 uint32_t bar)
{
    typedef stage_of<TYPE> S;

    box_copy(to, map, (segment * S::BYTES & ~15) / 4, row, matrix, ROWS * S::BOX, bar);
}

/* Describes matrices of `rows` rows to the copy engine, for copies of ROWS_BOXED, ROWS rows at a time. */
template <int TYPE, int ROWS = STRIP>
static void make_box(struct cuda *c, CUtensorMap *box, const void *w, int64_t row_bytes, int64_t matrix_bytes, int rows)
{
    typedef stage_of<TYPE> S;
    const uint64_t dim[3] = { (uint64_t)row_bytes / 4, (uint64_t)rows, 1u << 16 /* or fewer */ };
    const uint64_t pitch[2] = { (uint64_t)row_bytes, (uint64_t)matrix_bytes };
    const uint32_t size[3] = { S::BOX / 4, ROWS, 1 }, step[3] = { 1, 1, 1 };

    if (c->encode(box, CU_TENSOR_MAP_DATA_TYPE_UINT32, 3, (void *)w, dim, pitch, size, step,
                  CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        cuda_fail(c, cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

/* By a warp: a segment of the strip that begins with row `row` of matrix `matrix`; w: the first matrix. A phase of the
 * barrier, which counts one arrival, ends when it is there. */
template <int TYPE>
static __device__ __forceinline__ void bring_stage(uint32_t to, int how, const CUtensorMap *map, const uint8_t *w,
                                                   int64_t matrix_bytes, int row_bytes, int matrix, int row,
                                                   int segment, uint32_t bar)
{
    typedef stage_of<TYPE> S;

    if (how == ROWS_LOOSE) {
        const int lane = threadIdx.x & 31, from = lane * row_bytes + segment * S::BYTES;
        const int begin = from & ~15, end = (min(from + (int)S::BYTES, (lane + 1) * row_bytes) + 15) & ~15;
        const unsigned n = lane < STRIP ? (unsigned)(end - begin) : 0, all = __reduce_add_sync(0xffffffffu, n);

        if (lane == 0)
            bar_expect(bar, all);
        if (lane < STRIP)
            bulk_go(to + lane * S::PITCH, w + matrix * matrix_bytes + (int64_t)row * row_bytes + begin, n, bar);
    } else if (one_of_warp()) {
        if (how == ROWS_BOXED) {
            bring_box<TYPE>(to, map, matrix, row, segment, bar);
        } else {
            bar_expect(bar, (unsigned)(STRIP * row_bytes));
            bulk_go(to, w + matrix * matrix_bytes + (int64_t)row * row_bytes, (unsigned)(STRIP * row_bytes), bar);
        }
    }
    __syncwarp();
}

/* A row of a stage whose rows came ROWS_BOXED. */
template <int TYPE>
static __device__ __forceinline__ const uint8_t *boxed_row(const uint8_t *stage, int row, int segment)
{
    typedef stage_of<TYPE> S;

    return stage + row * S::BOX + (segment * S::BYTES & 15);
}

/* Where rows g and g + 8 of a stage begin for lane 4 g + c, of a matrix of such rows; where a segment may begin within
 * 16 bytes, what lies before it comes on top. Found once: the compiler is kept from finding it again each time. */
struct lane_rows {
    int how, row_bytes, r0, r8;
};
template <int TYPE> static __device__ __forceinline__ lane_rows find_lane_rows(int row_bytes)
{
    typedef stage_of<TYPE> S;
    const int g = (threadIdx.x & 31) / 4, how = rows_come(S::BYTES, row_bytes);
    const int pitch = how == ROWS_BOXED ? (int)S::BOX : how == ROWS_WHOLE ? row_bytes : (int)S::PITCH;
    lane_rows l = { how, row_bytes, g * pitch, (g + 8) * pitch };

    asm volatile("" : "+r"(l.how), "+r"(l.row_bytes), "+r"(l.r0), "+r"(l.r8));
    return l;
}

/* Bytes before a segment of row `row`. */
template <int TYPE> static __device__ __forceinline__ int before_segment(const lane_rows &l, int row, int segment)
{
    typedef stage_of<TYPE> S;

    if (l.how == ROWS_LOOSE)
        return (row * l.row_bytes + segment * S::BYTES) & 15;
    return S::BYTES % 16 != 0 && l.how == ROWS_BOXED ? segment * S::BYTES & 15 : 0;
}
#endif
