/* SPDX-License-Identifier: Apache-2.0 */
/* product.cu - gradients: products with stored matrices and with adapters. Rows of experts are in one launch, and
 * adapters for different rows, too. An element is one sum over k in ascending order, by fused multiply-adds: it does
 * not depend on the other rows. Backward, the rows of a matrix that is decoded in parts give a sum for each part, which
 * are added in order: the parts are as large as the memory allows.                                     room: kernels */
#include <stdlib.h>

#include "kernels/common/math.cuh"
#include "kernels/grad/grad.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, GROUPS_MAX = 65535 /* of a grid */ };

/* ---- a stored matrix ---- */

enum { TILE = 64, DEEP = 16, EACH = 4 /* rows and columns of a thread */ };

/* y[row][n] (+)= sum over k of x[row][k] w[expert][n][k], or with ACROSS w[expert][k][n]. */
struct product_args {
    const float *x, *w;
    float *y;
    int64_t x_row, w_row, w_expert, y_row;
    int n, k, first_expert;
    bool add;
    struct cuts cuts;
};

/* Elements 4 i .. of a tile's operand that a thread brings: [TILE][DEEP] by rows, or with ACROSS [DEEP][TILE]. */
template <bool ACROSS>
static __device__ __forceinline__ void load_tile(float v[EACH], const float *from, int64_t row_floats, int row0,
                                                 int rows, int k0, int k)
{
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        const int r = row0 + (ACROSS ? (int)threadIdx.x % TILE : (int)threadIdx.x / DEEP + i * (THREADS / DEEP));
        const int q = k0 + (ACROSS ? (int)threadIdx.x / TILE + i * (THREADS / TILE) : (int)threadIdx.x % DEEP);

        v[i] = r < rows && q < k ? from[ACROSS ? q * row_floats + r : r * row_floats + q] : 0.0f;
    }
}

template <bool ACROSS> static __device__ __forceinline__ void store_tile(float (*to)[TILE + 4], const float v[EACH])
{
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (ACROSS)
            to[threadIdx.x / TILE + i * (THREADS / TILE)][threadIdx.x % TILE] = v[i];
        else
            to[threadIdx.x % DEEP][threadIdx.x / DEEP + i * (THREADS / DEEP)] = v[i];
}

/* grid: columns, rows, experts */
template <bool ACROSS>
static __global__ void __launch_bounds__(THREADS) product_tiles(const __grid_constant__ product_args a)
{
    __shared__ __align__(16) float xs[2][DEEP][TILE + 4], ws[2][DEEP][TILE + 4];
    const int e = a.first_expert + blockIdx.z, n0 = blockIdx.x * TILE, tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int begin = a.cuts.cut[(int64_t)e * a.cuts.n], end = a.cuts.cut[(int64_t)e * a.cuts.n + a.cuts.n - 1];
    const float *w = a.w + blockIdx.z * a.w_expert;

    for (int row0 = begin + blockIdx.y * TILE; row0 < end; row0 += gridDim.y * TILE) {
        float sum[EACH][EACH] = {}, vx[EACH], vw[EACH];

        load_tile<false>(vx, a.x, a.x_row, row0, end, 0, a.k);
        load_tile<ACROSS>(vw, w, a.w_row, n0, a.n, 0, a.k);
        for (int k0 = 0, at = 0; k0 < a.k; k0 += DEEP, at = 1 - at) {
            store_tile<false>(xs[at], vx);
            store_tile<ACROSS>(ws[at], vw);
            __syncthreads();
            if (k0 + DEEP < a.k) {
                load_tile<false>(vx, a.x, a.x_row, row0, end, k0 + DEEP, a.k);
                load_tile<ACROSS>(vw, w, a.w_row, n0, a.n, k0 + DEEP, a.k);
            }
#pragma unroll
            for (int q = 0; q < DEEP; q++) {
                const float4 x4 = *(const float4 *)&xs[at][q][ty * EACH], w4 = *(const float4 *)&ws[at][q][tx * EACH];
                const float x[EACH] = { x4.x, x4.y, x4.z, x4.w }, b[EACH] = { w4.x, w4.y, w4.z, w4.w };

#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] = fmaf(x[i], b[j], sum[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                const int row = row0 + ty * EACH + i, n = n0 + tx * EACH + j;
                float *y = a.y + row * a.y_row + n;

                if (row < end && n < a.n)
                    *y = a.add ? *y + sum[i][j] : sum[i][j];
            }
        __syncthreads();
    }
}

/* Rows of this product: which experts, how many rows they have at most. */
static struct cuts cuts_of(const struct pass *p, const struct at *at)
{
    const struct cgrad *g = cgrad_of(p);

    return at->pairs != NULL ? g->experts : at->row != NULL ? g->lossy : g->all;
}

/* Tiles of rows in a launch: an expert with more than usual goes over them again. */
static int64_t row_tiles(const struct pass *p, const struct at *at, int64_t n, int64_t each)
{
    const int64_t usual = at->pairs == NULL ? n : 2 * n / p->g->mat[at->matrix].n_expert + 1;
    const int64_t most = at->pairs == NULL ? n : p->n;

    return ceil_div(usual < most ? usual : most, each);
}

struct operands {
    float *y;
    const float *x;
    int64_t n;
    bool back; /* y += x W, not y = x W^T */
};

/* n_expert experts' matrices or n_out rows of one. */
static void launch_tiles(const struct pass *p, const struct at *at, const struct operands *o, int expert,
                         int64_t n_expert, int64_t row, int64_t n_out)
{
    const struct grad_matrix *m = &p->g->mat[at->matrix];
    struct cgrad *g = cgrad_of(p);
    product_args a = {};

    a.w = cuda_grad_weights(p, at->matrix, expert * m->n_out + row, n_expert > 1 ? n_expert * m->n_out : n_out);
    a.cuts = cuts_of(p, at);
    a.first_expert = expert;
    a.w_row = m->n_in;
    a.w_expert = m->n_out * m->n_in;
    a.x = o->x + (o->back ? row : 0);
    a.y = o->y + (o->back ? 0 : row);
    a.x_row = o->back ? m->n_out : m->n_in;
    a.y_row = o->back ? m->n_in : m->n_out;
    a.n = (int)(o->back ? m->n_in : n_out);
    a.k = (int)(o->back ? n_out : m->n_in);
    a.add = o->back;
    const dim3 grid((unsigned)ceil_div(a.n, TILE), (unsigned)row_tiles(p, at, o->n, TILE), (unsigned)n_expert);
    if (a.w == NULL)
        return;
    if (o->back)
        LAUNCH(g->c, product_tiles<true>, grid, THREADS, 0, a);
    else
        LAUNCH(g->c, product_tiles<false>, grid, THREADS, 0, a);
}

/* As many experts, or rows of one, as are decoded at a time. */
static void launch_product(const struct pass *p, const struct at *at, const struct operands *o)
{
    const struct grad_matrix *m = &p->g->mat[at->matrix];
    const int64_t most = cuda_grad_tile_rows(p, at->matrix), some = most / m->n_out;
    const int64_t experts = at->pairs != NULL ? m->n_expert : 1;

    for (int64_t e = 0, n; e < experts; e += n) {
        n = some < 1 ? 1 : some < experts - e ? some : experts - e;
        n = n < GROUPS_MAX ? n : (int64_t)GROUPS_MAX;
        for (int64_t row = 0; row < m->n_out; row += some < 1 ? most : m->n_out)
            launch_tiles(p, at, o, (int)e, n, row, some < 1 && m->n_out - row > most ? most : m->n_out - row);
    }
}

/* ---- adapters ---- */

enum { NARROW = 8, TALL = 16 };

/* One launch for the adapters of a round and some experts: group = expert * n_member + member. */
struct adapter_args {
    const struct member *member;
    int n_member, rank, first_expert;
    struct cuts cuts;
    const float *x; /* rows of `wide` floats */
    float *y;
    float *low; /* rows of `rank` */
    int64_t n_in, n_out, wide;
    bool b;   /* with b, not with a */
    float by; /* a factor, beside the adapter's own where scaled */
    bool scaled;
};

struct spot {
    const struct member *m;
    int64_t expert;
    int begin, end;
    float f;
};

static __device__ __forceinline__ spot spot_of(const adapter_args &a)
{
    const int z = blockIdx.z;
    spot s;

    s.m = a.member + z % a.n_member;
    s.expert = a.first_expert + z / a.n_member;
    s.begin = a.cuts.cut[s.expert * a.cuts.n + s.m->from];
    s.end = a.cuts.cut[s.expert * a.cuts.n + s.m->to];
    s.f = a.scaled ? s.m->scale : 1.0f;
    return s;
}

/* low[row][q] = f sum over k of x[row][k] a[q][k], or b[k][q]: a warp has a row. */
static __global__ void __launch_bounds__(THREADS) narrow(const __grid_constant__ adapter_args a)
{
    const spot s = spot_of(a);
    const int lane = threadIdx.x % 32;
    const float *w = a.b ? s.m->b + s.expert * a.rank * a.n_out : s.m->a + s.expert * a.rank * a.n_in;
    const int64_t w_q = a.b ? 1 : a.n_in, w_k = a.b ? a.rank : 1;

    for (int row = s.begin + blockIdx.y * WARPS + threadIdx.x / 32; row < s.end; row += gridDim.y * WARPS) {
        const float *x = a.x + row * a.wide;

        for (int q0 = 0; q0 < a.rank; q0 += NARROW) {
            float sum[NARROW] = {};

            for (int k = lane; k < a.wide; k += 32) {
                const float v = x[k];

#pragma unroll
                for (int q = 0; q < NARROW; q++)
                    if (q0 + q < a.rank)
                        sum[q] = fmaf(v, w[(q0 + q) * w_q + k * w_k], sum[q]);
            }
#pragma unroll
            for (int q = 0; q < NARROW; q++)
                if (q0 + q < a.rank) {
                    const float v = warp_sum(sum[q]);

                    if (lane == q)
                        a.low[(int64_t)row * a.rank + q0 + q] = s.f * v;
                }
        }
    }
}

/* y[row][i] += f sum over q of low[row][q] b[i][q], or a[q][i]: a thread has a column, a block TALL rows. */
static __global__ void __launch_bounds__(THREADS) widen(const __grid_constant__ adapter_args a)
{
    const spot s = spot_of(a);
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const float *w = a.b ? s.m->b + (s.expert * a.n_out + i) * a.rank : s.m->a + s.expert * a.rank * a.n_in + i;
    const int64_t w_q = a.b ? 1 : a.n_in;

    if (i >= a.wide)
        return;
    for (int row0 = s.begin + blockIdx.y * TALL; row0 < s.end; row0 += gridDim.y * TALL) {
        const int end = min(row0 + TALL, s.end);

        for (int q0 = 0; q0 < a.rank; q0 += NARROW) {
            float v[NARROW];

#pragma unroll
            for (int q = 0; q < NARROW; q++)
                v[q] = q0 + q < a.rank ? w[(q0 + q) * w_q] : 0.0f;
            for (int row = row0; row < end; row++) {
                const float *low = a.low + (int64_t)row * a.rank + q0;
                float sum = 0.0f;

#pragma unroll
                for (int q = 0; q < NARROW; q++)
                    if (q0 + q < a.rank)
                        sum = fmaf(low[q], v[q], sum);
                a.y[row * a.wide + i] += s.f * sum;
            }
        }
    }
}

/* Scales of rows: y (1 + b). */
static __global__ void __launch_bounds__(THREADS) stretch(const __grid_constant__ adapter_args a)
{
    const spot s = spot_of(a);
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= a.n_out)
        return;
    const float f = 1.0f + s.m->b[s.expert * a.n_out + i];
    for (int row = s.begin + blockIdx.y; row < s.end; row += gridDim.y)
        a.y[row * a.n_out + i] *= f;
}

/* db[i][q] += f sum over rows of x[row][i] low[row][q], or da[q][i]: a lane has a column, warps have every SUMMERS-th
 * row. */
enum { SUMMERS = 16 };
static __global__ void __launch_bounds__(SUMMERS * 32) outer(const __grid_constant__ adapter_args a)
{
    __shared__ float part[SUMMERS][NARROW][32];
    const spot s = spot_of(a);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t i = (int64_t)blockIdx.x * 32 + lane;
    float *to = a.b ? s.m->db : s.m->da;

    if (to == NULL || s.begin == s.end)
        return;
    for (int q0 = 0; q0 < a.rank; q0 += NARROW) {
        float sum[NARROW] = {};

#pragma unroll 4
        for (int row = s.begin + warp; row < s.end; row += SUMMERS) {
            const float v = i < a.wide ? a.x[row * a.wide + i] : 0.0f, *low = a.low + (int64_t)row * a.rank + q0;

#pragma unroll
            for (int q = 0; q < NARROW; q++)
                if (q0 + q < a.rank)
                    sum[q] = fmaf(low[q], v, sum[q]);
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < NARROW; q++)
            part[warp][q][lane] = sum[q];
        __syncthreads();
        if (warp < NARROW && q0 + warp < a.rank && i < a.wide) {
            float v = 0.0f;

            for (int w = 0; w < SUMMERS; w++)
                v += part[w][warp][lane];
            to[a.b ? (s.expert * a.n_out + i) * a.rank + q0 + warp : (s.expert * a.rank + q0 + warp) * a.n_in + i] +=
                s.f * v;
        }
    }
}

struct launch {
    const struct pass *p;
    const struct at *at;
    const struct round *r;
    int64_t n;
};

/* Blocks for each columns_each outputs and rows_each rows; 0: one has all of them. */
static void launch_adapter(const struct launch *l, void (*kernel)(adapter_args), adapter_args a, int64_t columns_each,
                           int64_t rows_each, unsigned threads)
{
    const struct grad_matrix *m = &l->p->g->mat[l->at->matrix];
    struct cgrad *g = cgrad_of(l->p);
    const int64_t experts = l->at->pairs != NULL ? m->n_expert : 1, some = GROUPS_MAX / l->r->n;
    const int64_t rows = l->r->n == 1 ? l->n : 2 * l->n / l->r->n + 1;

    a.member = g->member + l->r->first;
    a.n_member = l->r->n;
    a.rank = l->r->rank;
    a.cuts = cuts_of(l->p, l->at);
    a.n_in = m->n_in;
    a.n_out = m->n_out;
    a.wide = a.b ? m->n_out : m->n_in;
    const int64_t columns = columns_each == 0 ? 1 : ceil_div(a.wide, columns_each);
    for (int64_t e = 0, n; e < experts; e += n) {
        n = some < experts - e ? some : experts - e;
        a.first_expert = (int)e;
        const int64_t y = rows_each == 0 ? 1 : row_tiles(l->p, l->at, rows, rows_each);
        const dim3 grid((unsigned)columns, (unsigned)(y < GROUPS_MAX ? y : (int64_t)GROUPS_MAX),
                        (unsigned)(n * l->r->n));

        LAUNCH(g->c, kernel, grid, threads, 0, a);
    }
}

/* Of a round: low = x a^T or x b. */
static void go_narrow(const struct launch *l, float *low, const float *x, bool b, bool scaled)
{
    adapter_args a = {};

    a.x = x;
    a.low = low;
    a.b = b;
    a.scaled = scaled;
    launch_adapter(l, narrow, a, 0, WARPS, THREADS);
}

static void go_wide(const struct launch *l, float *y, float *low, bool b, bool scaled)
{
    adapter_args a = {};

    a.y = y;
    a.low = low;
    a.b = b;
    a.scaled = scaled;
    launch_adapter(l, widen, a, THREADS, TALL, THREADS);
}

static void go_outer(const struct launch *l, const float *x, float *low, bool b, bool scaled)
{
    adapter_args a = {};

    a.x = x;
    a.low = low;
    a.b = b;
    a.scaled = scaled;
    launch_adapter(l, outer, a, 32, 0, SUMMERS * 32);
}

static void go_stretch(const struct launch *l, float *y)
{
    adapter_args a = {};

    a.y = y;
    a.b = true;
    launch_adapter(l, stretch, a, THREADS, 8, THREADS);
}

void cuda_grad_product(const struct pass *p, struct at at, float *y, const float *x, int64_t n)
{
    const struct cgrad *g = cgrad_of(p);
    const struct operands o = { y, x, n, false };

    launch_product(p, &at, &o);
    for (int i = 0; i < g->n_round; i++) {
        const struct round *r = &g->round[i];
        const struct launch l = { p, &at, r, n };

        if (r->matrix != at.matrix)
            continue;
        if (r->rank == 0) {
            go_stretch(&l, y);
            continue;
        }
        go_narrow(&l, g->low, x, false, false);
        go_wide(&l, y, g->low, true, true);
    }
}

/* ---- backward ---- */

/* What the host is told of a product, expert by expert. */
static void trace(const struct pass *p, const struct at *at, const float *dy, const float *x, int64_t n)
{
    const struct grad_matrix *m = &p->g->mat[at->matrix];
    struct cuda *c = cgrad_of(p)->c;
    const int64_t experts = at->pairs != NULL ? m->n_expert : 1;
    float *v = (float *)malloc((size_t)(n * (m->n_in + m->n_out)) * sizeof *v), *dv = v + n * m->n_in;
    int32_t *row = (int32_t *)malloc((size_t)n * sizeof *row);
    int64_t *first = (int64_t *)malloc((size_t)(experts + 1) * sizeof *first);

    if (v == NULL || row == NULL || first == NULL)
        cuda_fail(c, cudaErrorMemoryAllocation, "trace");
    else {
        first[0] = 0;
        first[1] = n;
        for (int64_t i = 0; i < n; i++)
            row[i] = at->row != NULL ? at->row[i] : (int32_t)i;
        TRY(c, cudaMemcpyAsync(v, x, (size_t)(n * m->n_in) * sizeof *v, cudaMemcpyDeviceToHost, c->stream));
        TRY(c, cudaMemcpyAsync(dv, dy, (size_t)(n * m->n_out) * sizeof *v, cudaMemcpyDeviceToHost, c->stream));
        if (at->pairs != NULL) {
            TRY(c, cudaMemcpyAsync(row, at->pairs->row, (size_t)n * sizeof *row, cudaMemcpyDeviceToHost, c->stream));
            TRY(c, cudaMemcpyAsync(first, at->pairs->first, (size_t)(experts + 1) * sizeof *first,
                                   cudaMemcpyDeviceToHost, c->stream));
        }
        TRY(c, cudaStreamSynchronize(c->stream));
        for (int64_t e = 0; e < experts && c->bad == cudaSuccess; e++)
            if (first[e] < first[e + 1])
                p->b->trace(p->b->trace_ctx, at->matrix, (int)e, first[e + 1] - first[e], v + first[e] * m->n_in,
                            dv + first[e] * m->n_out, row + first[e]);
    }
    free(v);
    free(row);
    free(first);
}

void cuda_grad_product_back(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n)
{
    const struct cgrad *g = cgrad_of(p);
    const struct operands o = { dx, dy, n, true };

    if (dx != NULL)
        launch_product(p, &at, &o);
    for (int i = 0; i < g->n_round; i++) {
        const struct round *r = &g->round[i];
        const struct launch l = { p, &at, r, n };
        float *dlow = g->low + (at.pairs != NULL ? n : p->n) * r->rank;

        if (r->matrix != at.matrix)
            continue;
        if (r->learns) {
            go_narrow(&l, g->low, x, false, false);
            go_outer(&l, dy, g->low, true, true);
        }
        go_narrow(&l, dlow, dy, true, true);
        if (r->learns)
            go_outer(&l, x, dlow, false, false);
        if (dx != NULL)
            go_wide(&l, dx, dlow, false, false);
    }
    if (p->b->trace != NULL)
        trace(p, &at, dy, x, n);
}
