/* SPDX-License-Identifier: Apache-2.0 */
/* strip.cuh - products of stored rows with 2 to 16 rows of activations.   room: kernels (base quant ops)
 *
 * What counts is reading weights. A warp takes 16 rows and 8 pairs of units at a time, unpacks them into shared memory of
 * its own and multiplies them on the tensor cores (tile.cuh). The warps of a block share rows: each has its part of the
 * elements. Sums of 8 pairs meet in shared memory and are added in order, as product.cuh has it. */
#ifndef KERNELS_STRIP_CUH
#define KERNELS_STRIP_CUH
#include "kernels/tile.cuh"

enum { STRIP_ROWS = 16, STRIP_WARPS = 8, SEGMENT = 8 };

/* Warps that share rows of so many pairs. */
static __host__ __device__ inline int strip_sharers(int pairs)
{
    int n = 1;

    while (n < STRIP_WARPS && n * SEGMENT < pairs)
        n *= 2;
    return n;
}

/* Sets of rows that a block computes at once, 16 each. With TILE_ACT_* a block computes a unit of the result. */
static __host__ __device__ inline int strip_sets(int pairs)
{
    return STRIP_WARPS / strip_sharers(pairs);
}

template <int TYPE, int NT>
static __global__ void __launch_bounds__(STRIP_WARPS * 32) strip(const __grid_constant__ tile_args a)
{
    typedef tile<TYPE, 1, 1, 1, NT> T;
    enum { COLUMNS = 8 * NT, OUT = STRIP_ROWS * COLUMNS, MOST = 4 }; /* most sets of rows of a unit of gate and up */
    __shared__ __align__(16) uint8_t stages[STRIP_WARPS][T::W_BYTES + T::D_BYTES];
    __shared__ __align__(16) float part[STRIP_WARPS][OUT], total[(STRIP_WARPS > MOST ? STRIP_WARPS : MOST) * OUT];
    __shared__ uint32_t books[book<TYPE>::BYTES / 4 + 1];
    __shared__ int number[COLUMNS];
    const int tid = threadIdx.x, lane = tid & 31, warp = tid / 32, g = lane / 4, c = lane % 4;
    const int units = a.k / 32, pairs = x_pairs(a.k), sharers = strip_sharers(pairs), sets = strip_sets(pairs);
    const int at = warp % sharers, set = warp / sharers, segments = (pairs + SEGMENT - 1) / SEGMENT;
    uint8_t *stage = stages[warp];
    span in;
    int j = 0;

    if (!find_span(a, (int)blockIdx.y + a.base, COLUMNS, in))
        return;
    const bool act = a.out != TILE_FLOATS, paired = act && a.n > 1;
    if (!act)
        while (j + 1 < a.n && (int)blockIdx.x >= a.job[j + 1].block)
            j++;
    const mv_job *job = &a.job[j];
    const int all = act ? (paired ? 4 : 2) : sets; /* sets of rows that the block computes, one after the other */
    const int r0 = ((int)blockIdx.x - job->block) * (act ? 32 : sets * STRIP_ROWS);
    const struct tables *tab = near_book(books, a.tab, book<TYPE>::AT, book<TYPE>::BYTES, threadIdx.x, blockDim.x);
    const uint8_t *col[NT];

    if (tid < COLUMNS)
        number[tid] = a.list != NULL ? a.list[in.first + min(tid, in.cols - 1)] : in.first + min(tid, in.cols - 1);
#pragma unroll
    for (int n = 0; n < NT; n++) {
        int t = in.first + min(n * 8 + g, in.cols - 1);

        col[n] = a.x + (a.list != NULL ? a.list[t] : t) / a.div * a.x_bytes;
    }
    for (int i = tid; i < all * OUT; i += STRIP_WARPS * 32)
        total[i] = 0.0f;
    __syncthreads();
    /* neighbouring lanes have a row's two pairs; rows so that no bank is met twice */
    const int wj = lane % 2, wr = (lane / 2 & ~12) | (lane / 2 & 4) << 1 | (lane / 2 & 8) >> 1;
    for (int first = 0; first < all; first += sets)
        for (int round = 0; round < segments; round += sharers) {
            const int mine = first + set, segment = round + at;
            float S[2][NT][2];

#pragma unroll
            for (int n = 0; n < NT; n++)
                S[0][n][0] = S[0][n][1] = S[1][n][0] = S[1][n][1] = 0.0f;
            if (mine < all && segment < segments) {
                const uint8_t *row = weight_row(a, job, paired, in.expert, r0, mine * STRIP_ROWS + wr);
                const int p0 = segment * SEGMENT, p1 = min(p0 + SEGMENT, pairs);
                typename wq<TYPE>::raw raw;

                if (p0 + wj < p1)
                    wq<TYPE>::load(raw, row, p0 + wj);
                for (int p = p0; p < p1; p += 2) {
                    int n_units = units - 2 * (p + wj);
                    uint4 x[NT][4];
                    float2 sx[NT][4], second[NT][2];

#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int u = 0; u < 4; u++) {
                            const uint8_t *from = col[n] + (p + u / 2) * X_PAIR;

                            if (p + u / 2 < p1) {
                                x[n][u] = *(const uint4 *)(from + u % 2 * X_UNIT + c * 16);
                                sx[n][u] = *(const float2 *)(from + X_SUMS + u % 2 * 8);
                                if (T::HALF && T::MIN && u % 2 == 0)
                                    second[n][u / 2] = x_seconds(col[n], pairs)[p + u / 2];
                            }
                        }
                    if (p + wj < p1) {
                        unit u[2];

                        wq<TYPE>::unpack(raw, p + wj, u, n_units, tab);
                        T::put_weights(stage, u, wr, wj, n_units);
                        if (p + 2 + wj < p1)
                            wq<TYPE>::load(raw, row, p + 2 + wj);
                    }
                    __syncwarp();
#pragma unroll
                    for (int u = 0; u < 4; u++) {
                        typename T::rows r;

                        if (p + u / 2 >= p1)
                            break;
                        T::load_rows(r, stage, 0, u, u / 2);
#pragma unroll
                        for (int n = 0; n < NT; n++) {
                            typename T::sums q;

#pragma unroll
                            for (int m = 0; m < 2; m++) {
                                T::sum_unit(q, r.w[0], m, x[n][u]);
                                T::add_unit(S[m][n], q, r.d[m], sx[n][u],
                                            !(T::HALF && T::MIN) ? 0.0f
                                            : u % 2 == 0         ? second[n][u / 2].x
                                                                 : second[n][u / 2].y);
                            }
                        }
                    }
                    __syncwarp();
                }
            }
#pragma unroll
            for (int n = 0; n < NT; n++)
#pragma unroll
                for (int m = 0; m < 2; m++)
                    *(float2 *)(part[warp] + (n * 8 + g) * STRIP_ROWS + m * 8 + 2 * c) = make_float2(S[m][n][0], S[m][n][1]);
            __syncthreads();
            for (int i = tid; i < sets * OUT && first + i / OUT < all; i += STRIP_WARPS * 32) {
                float v = total[first * OUT + i];

                for (int q = 0; q < sharers && round + q < segments; q++)
                    v = __fadd_rn(v, part[i / OUT * sharers + q][i % OUT]);
                total[first * OUT + i] = v;
            }
            __syncthreads();
        }
    if (!act) {
        for (int i = tid; i < sets * OUT; i += STRIP_WARPS * 32) {
            int r = r0 + i / OUT * STRIP_ROWS + i % STRIP_ROWS, t = i % OUT / STRIP_ROWS;

            if (r < job->n_rows && t < in.cols)
                job->y[(int64_t)number[t] * job->y_stride + r] = total[i];
        }
        return;
    }
    if (tid >= COLUMNS * 4 || tid / 4 >= in.cols)
        return;
    /* 8 rows of a column: sets 0 and 2 are gate, 1 and 3 up; or 0 and 1 */
    const int t = tid / 4, quarter = tid % 4;
    const float *gate = total + (paired ? quarter / 2 * 2 : quarter / 2) * OUT + t * STRIP_ROWS + quarter % 2 * 8;
    float v[8];

#pragma unroll
    for (int i = 0; i < 8; i++) {
        float pos = fmaxf(gate[i], 0.0f), y = a.act == OP_SILU ? silu(gate[i]) : __fmul_rn(pos, pos);

        v[i] = r0 + quarter * 8 + i >= job->n_rows ? 0.0f : __fmul_rn(y, paired ? gate[OUT + i] : 1.0f);
    }
    quantise_values(a.rounded + number[t] * x_row_bytes(job->n_rows), x_pairs(job->n_rows), v, r0 / 64, r0 / 32 % 2 * 4 + quarter,
                    0xfu << (lane & 28));
}

template <int TYPE>
static void launch_strip(struct cuda *c, const tile_args *a, dim3 grid)
{
    if (a->list != NULL || a->nx <= STRIP_COLUMNS)
        LAUNCH(c, (strip<TYPE, 1>), grid, STRIP_WARPS * 32, 0, *a);
    else
        LAUNCH(c, (strip<TYPE, 2>), grid, STRIP_WARPS * 32, 0, *a);
}
#endif
