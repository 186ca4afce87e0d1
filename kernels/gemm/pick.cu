/* SPDX-License-Identifier: Apache-2.0 */
/* pick.cu - products of matrices, each by the kernel that the table says (gemm/gemm.h); quantisation of activations;
 * several matrices in one launch. */
#include "kernels/gemm/acts_a8_wgmma.cuh"
#include "kernels/device/fused.cuh"
#include "kernels/gemm/gemm_r17_mma.cuh"
#include "kernels/gemm/acts_a16_wgmma.cuh"

enum { GRID_Y = 65535 }; /* most blocks that way */

/* Rounds rows of floats: 8 threads a pair of units, 8 elements each. */
__global__ void quantise(uint8_t *out, const float *x, int64_t stride, int k, int64_t row_bytes, bool eight)
{
    quantise_part(out + blockIdx.y * row_bytes, x + blockIdx.y * stride, k, blockIdx.x * 256 + threadIdx.x, eight);
}

void cuda_quantise(struct cuda *c, uint8_t *out, struct tensor x)
{
    int k = (int)x.ne[0];

    for (int64_t r = 0; r < x.ne[1]; r += GRID_Y) {
        int n = (int)(x.ne[1] - r < GRID_Y ? x.ne[1] - r : (int64_t)GRID_Y);

        LAUNCH(c, quantise, dim3((unsigned)ceil_div(k, 64 * 32), (unsigned)n), 256, 0, out + r * x_row_bytes(k),
               (const float *)x.data + r * x.stride, x.stride, k, x_row_bytes(k), c->eight);
    }
}

size_t cuda_matmul_ws(int64_t k, int64_t n_rows)
{
    size_t other = r17_a8_bytes(k, n_rows);

    if (n_rows >= GEMM_R64_ROWS) {
        const size_t a16 = r64_a16_bytes(k, n_rows), a8 = r64_a8_bytes(k, n_rows);

        other = other > a16 ? other : a16;
        other = other > a8 ? other : a8;
    }
    return round_up((size_t)(x_row_bytes(k) * n_rows), 256) + other;
}

/* Jobs of one format at a time; columns: of a chunk. */
static void tile_jobs(struct cuda *c, struct mv_args *m,
                      void launch(struct cuda *c, struct tile_args *a, int64_t chunks), int columns)
{
    while (m->n > 0) {
        struct tile_args a = {};
        int left = 0;

        for (int i = 0; i < m->n; i++)
            if (m->job[i].type == m->job[0].type)
                a.job[a.n++] = m->job[i];
        for (int i = 0; i < m->n; i++)
            if (m->job[i].type != a.job[0].type)
                m->job[left++] = m->job[i];
        m->n = left;
        a.k = m->k;
        a.nx = m->nx;
        a.x = m->x;
        a.x_bytes = m->x_bytes;
        a.tab = m->tab;
        a.div = 1;
        launch(c, &a, ceil_div(a.nx, columns));
    }
}

/* The kernel of each job. */
static void pick_kernels(const struct cuda *c, int kernel[JOBS], const struct job *job, int n, struct tensor x)
{
    int types[JOBS];
    struct gemm_product p = {};

    for (int i = 0; i < n; i++)
        types[i] = job[i].w.type;
    p.of = GEMM_OF_MATRICES;
    p.types = types;
    p.n_types = n;
    p.rows = x.ne[1];
    p.k = x.ne[0];
    p.eight = c->eight;
    p.sm = c->sm;
    p.only = c->only;
    for (int i = 0; i < n; i++) {
        p.type = types[i];
        p.n = job[i].w.ne[1];
        kernel[i] = gemm_pick(&p, 0);
    }
}

/* Jobs of one kernel for many rows, from rows that are rounded for it; those of R17_MMA are. */
static void launch_r17(struct cuda *c, int kernel, struct mv_args *m, uint8_t *rows, struct tensor x)
{
    if (m->n == 0)
        return;
    cuda_used(c, kernel);
    if (kernel != GEMM_R17_MMA)
        m->x = rows;
    if (kernel == GEMM_R64_A8_WGMMA) {
        cuda_round_r64_a8(c, rows, x, NULL, NULL);
        tile_jobs(c, m, cuda_r64_a8, 1);
    } else if (kernel == GEMM_R17_A8_MMA) {
        cuda_round_r17_a8(c, rows, x);
        tile_jobs(c, m, cuda_r17_a8, TILE_COLUMNS);
    } else if (kernel == GEMM_R64_A16_WGMMA) {
        cuda_round_r64_a16(c, rows, x);
        tile_jobs(c, m, cuda_r64_a16, 1);
    } else {
        tile_jobs(c, m, cuda_tile, TILE_COLUMNS);
    }
}

void cuda_matmul(struct cuda *c, const struct job *job, int n, struct tensor x)
{
    static const int tiles[] = { GEMM_R64_A8_WGMMA, GEMM_R17_A8_MMA, GEMM_R64_A16_WGMMA,
                                 GEMM_R17_MMA }; /* as they are launched */
    enum { TILES = sizeof tiles / sizeof tiles[0] };
    int kernel[JOBS];
    struct mv_args r1_16 = {}, r17[TILES];
    bool quantised = false;

    pick_kernels(c, kernel, job, n, x);
    r1_16.k = (int)x.ne[0];
    r1_16.nx = (int)x.ne[1];
    r1_16.x = c->ws;
    r1_16.x_bytes = x_row_bytes(r1_16.k);
    r1_16.eight = c->eight;
    r1_16.tab = c->tab;
    for (int t = 0; t < TILES; t++)
        r17[t] = r1_16;
    for (int i = 0; i < n; i++) {
        const struct tensor &w = job[i].w, &y = job[i].y;

        if (kernel[i] < 0) {
            cuda_fail(c, cudaErrorNotSupported, "a format that no kernel has");
            return;
        }
        if (kernel[i] <= GEMM_FLOAT_TILES) {
            cuda_used(c, kernel[i]);
            cuda_float(c, kernel[i], w, y, x);
            continue;
        }
        for (int t = 0; t < TILES; t++)
            if (kernel[i] == tiles[t])
                add_job(&r17[t], w, y);
        if (kernel[i] == GEMM_R64_A8_WGMMA || kernel[i] == GEMM_R17_A8_MMA || kernel[i] == GEMM_R64_A16_WGMMA)
            continue;
        if (!quantised)
            cuda_quantise(c, c->ws, x);
        quantised = true;
        if (kernel[i] == GEMM_STORED_ROWS) {
            cuda_used(c, kernel[i]);
            cuda_rare(c, w, y, c->ws, (int)x.ne[1]);
        } else if (kernel[i] != GEMM_R17_MMA) {
            add_job(&r1_16, w, y);
        }
    }
    for (int t = 0; t < TILES; t++)
        launch_r17(c, tiles[t], &r17[t], c->ws + round_up((size_t)(r1_16.x_bytes * r1_16.nx), 256), x);
    if (r1_16.n > 0) {
        struct fused_args f = {};

        f.a = r1_16;
        f.mode = IN_ROUNDED;
        cuda_fused_matvec(c, &f);
    }
}
