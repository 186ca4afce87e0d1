/* SPDX-License-Identifier: Apache-2.0 */
/* moe_r17.cuh - grouped products with the matrices of experts.   room: kernels
 *
 * A pair is one use of an expert by a row: pair = row * n_used + k. Pairs are sorted by expert and cut into chunks that
 * share the reads of the expert's weights. */
#ifndef KERNELS_MOE_MOE_R17_CUH
#define KERNELS_MOE_MOE_R17_CUH
#include "kernels/common/math.cuh"
#include "kernels/gemm/pick.cuh"

struct expert_chunk {
    int expert, first, n; /* pairs list[first ...] */
};
/* y[pair] = matrix of the pair's expert times x[pair / div] */
struct expert_args {
    const uint8_t *w;
    int64_t row_bytes, expert_bytes;
    int n_rows, k, type;
    const uint8_t *x; /* rounded, or floats for plain formats */
    int64_t x_bytes;
    int div;
    float *y;
    int64_t y_stride;
    const int *list;                /* NULL: pair i is chunk i, expert id[i] */
    const int *id, *slot, *n_chunk; /* slot: op_moe.slot */
    const struct expert_chunk *chunk;
    const struct tables *tab;
    int base, most; /* first chunk, and how many, of a launch */
    bool eight;     /* how x is rounded */
};

/* act(in) up */
static __device__ __forceinline__ float activated(int how, float in, float up)
{
    const float pos = fmaxf(in, 0.0f);

    return __fmul_rn(how == OP_SILU ? silu(in) : __fmul_rn(pos, pos), up);
}

/* silu(gate) up of a unit of a row of `units`, rounded, by a warp; of EIGHT bits of the four that share a scale. */
enum { SHARED_SCALE = 4 };
template <bool EIGHT>
static __device__ __forceinline__ void round_gates(uint8_t *rounded, const float *gate, const float *up, int units,
                                                   int unit)
{
    enum { MANY = EIGHT ? SHARED_SCALE : 1 };
    const int at = unit * 32 + threadIdx.x % 32;
    float v[MANY];
    uint32_t top = 0;

#pragma unroll
    for (int j = 0; j < MANY; j++) {
        v[j] = unit + j < units ? activated(OP_SILU, gate[at + j * 32], up[at + j * 32]) : 0.0f;
        top = max(top, unit_top(v[j]));
    }
#pragma unroll
    for (int j = 0; j < MANY; j++)
        if (unit + j < units)
            round_unit(rounded, units, v[j], unit + j, top, EIGHT);
}

static __device__ __forceinline__ bool chunk_of(const expert_args &a, int i, expert_chunk &c)
{
    if (a.list == NULL) {
        c.expert = a.slot == NULL ? a.id[i] : a.slot[a.id[i]];
        c.first = i;
        c.n = 1;
        return c.expert >= 0;
    }
    if (i >= *a.n_chunk)
        return false;
    c = a.chunk[i];
    return true;
}

template <int TYPE, int TT> __global__ void __launch_bounds__(256) expert_rows(const __grid_constant__ expert_args a)
{
    __shared__ __align__(16) float buf[8][2 * AT_ONCE * TT * BUF_PITCH];
    int warp = threadIdx.x / 32, r0 = ((int)blockIdx.x * 8 + warp) * warp_rows(a.k);
    const uint8_t *x[TT];
    int pair[TT];
    expert_chunk c;

    if (r0 >= a.n_rows || !chunk_of(a, a.base + (int)blockIdx.y, c))
        return;
#pragma unroll
    for (int t = 0; t < TT; t++) {
        int i = c.first + (t < c.n ? t : 0);

        pair[t] = a.list == NULL ? i : a.list[i];
        x[t] = a.x + pair[t] / a.div * a.x_bytes;
    }
    rows_times<TYPE, TT>(a.w + c.expert * a.expert_bytes, a.row_bytes, r0, a.n_rows, a.k, x, c.n, a.eight, a.tab,
                         buf[warp], [&](int row, int t, float v) {
                             int p = pair[0];
#pragma unroll
                             for (int i = 1; i < TT; i++)
                                 p = t == i ? pair[i] : p;
                             a.y[p * a.y_stride + row] = v;
                         });
}

void cuda_expert_common(struct cuda *c, const expert_args *a, int tt); /* tt: 1 or 4, the most pairs of a chunk */
void cuda_expert_rare(struct cuda *c, const expert_args *a);           /* 4 */

static inline dim3 expert_grid(const expert_args *a)
{
    return dim3((unsigned)ceil_div(a->n_rows, 8 * warp_rows(a->k)), (unsigned)a->most);
}
#endif
