/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - products of float matrices: OpenBLAS, or loops. */
#include "train/gemm.h"

#include <string.h>
#ifdef CHIMERE_BLAS
#include <cblas.h>
#endif

#include "base/pool.h"
#include "base/simd.h"
#include "grad/loops.h"

static int64_t smaller_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What lies at row i, column j. */
static const float *at(struct dev_matrix m, int64_t i, int64_t j)
{
    return m.v + (m.turned ? j * m.ld + i : i * m.ld + j);
}

#ifdef CHIMERE_BLAS

const char *train_gemm_core(unsigned simd)
{
    if (strcmp(openblas_get_corename(), "Prescott") != 0) /* what an unknown one is taken for */
        return NULL;
    return simd & SIMD_AVX512 ? "SkylakeX" : simd & SIMD_AVX2 ? "Haswell" : NULL;
}

int64_t train_gemm_bytes(int n_threads)
{
    return (int64_t)n_threads * (132 << 20); /* a buffer of 128 MiB for each */
}

/* Threads are ours: each calls for a part of the product. */
struct train_gemms train_gemm_open(struct pool *pool)
{
    openblas_set_num_threads(1);
    return (struct train_gemms){ pool, NULL, "openblas" };
}

void train_gemm_one(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct dev_matrix a,
                    struct dev_matrix b, float beta, float *c, int64_t ld)
{
    (void)g;
    if (m > 0 && n > 0)
        cblas_sgemm(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans, b.turned ? CblasTrans : CblasNoTrans,
                    (blasint)m, (blasint)n, (blasint)k, 1.0f, a.v, (blasint)a.ld, b.v, (blasint)b.ld, beta, c,
                    (blasint)ld);
}

#else

int64_t train_gemm_bytes(int n_threads)
{
    (void)n_threads;
    return 0;
}

const char *train_gemm_core(unsigned simd)
{
    (void)simd;
    return NULL;
}

struct train_gemms train_gemm_open(struct pool *pool)
{
    const struct grad_loops *loops = &grad_loops_scalar;
#if defined(__x86_64__)
    const unsigned simd = simd_features();

    loops = simd & SIMD_AVX512 ? &grad_loops_avx512 : simd & SIMD_AVX2 ? &grad_loops_avx2 : loops;
#endif
    return (struct train_gemms){ pool, loops, "loops" };
}

enum { DEPTH = 256, PANELS = 4 };

/* n columns of b from j on, k from .. from + depth, side by side in panels; zeros past the end. */
static void pack_panels(float *to, struct dev_matrix b, int64_t from, int64_t depth, int64_t j, int64_t n)
{
    for (int64_t p = 0; p < n; p += GRAD_COLS)
        for (int64_t l = 0; l < depth; l++)
            for (int64_t x = 0; x < GRAD_COLS; x++)
                *to++ = p + x < n ? *at(b, from + l, j + p + x) : 0.0f;
}

/* Rows i of c, n columns from j on, get what `depth` elements from `from` on give. */
static void add_rows(const struct train_gemms *g, const float *packed, struct dev_matrix a, int64_t i, int64_t rows,
                     int64_t from, int64_t depth, int64_t n, float *c, int64_t ld)
{
    const float *row[GRAD_ROWS_MAX];
    float sums[GRAD_ROWS_MAX * GRAD_COLS];

    for (int r = 0; r < g->loops->rows; r++)
        row[r] = at(a, i + (r < rows ? r : 0), from);
    for (int64_t p = 0; p < n; p += GRAD_COLS) {
        g->loops->panel(sums, row, a.turned ? a.ld : 1, packed + p * depth, depth);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t x = 0; x < GRAD_COLS && p + x < n; x++)
                c[r * ld + p + x] += sums[r * GRAD_COLS + x];
    }
}

void train_gemm_one(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct dev_matrix a,
                    struct dev_matrix b, float beta, float *c, int64_t ld)
{
    float packed[DEPTH * PANELS * GRAD_COLS];

    for (int64_t i = 0; beta == 0.0f && i < m; i++)
        memset(c + i * ld, 0, (size_t)n * sizeof *c);
    for (int64_t l = 0; l < k; l += DEPTH)
        for (int64_t j = 0; j < n; j += PANELS * GRAD_COLS) {
            const int64_t depth = smaller_of(DEPTH, k - l), columns = smaller_of(PANELS * GRAD_COLS, n - j);

            pack_panels(packed, b, l, depth, j, columns);
            for (int64_t i = 0; i < m; i += g->loops->rows)
                add_rows(g, packed, a, i, smaller_of(g->loops->rows, m - i), l, depth, columns, c + i * ld + j, ld);
        }
}

#endif

/* ---- by all threads ---- */

struct product {
    const struct train_gemms *g;
    int64_t m, n, k, step; /* rows of c in a part, or columns */
    struct dev_matrix a, b;
    float beta, *c;
    int64_t ld;
};

static void rows_of(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct product *p = ctx;

    (void)worker;
    for (int64_t i = begin * p->step; begin < end; begin++, i += p->step) {
        struct dev_matrix a = p->a;

        a.v = at(p->a, i, 0);
        train_gemm_one(p->g, smaller_of(p->step, p->m - i), p->n, p->k, a, p->b, p->beta, p->c + i * p->ld, p->ld);
    }
}

static void columns_of(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct product *p = ctx;

    (void)worker;
    for (int64_t j = begin * p->step; begin < end; begin++, j += p->step) {
        struct dev_matrix b = p->b;

        b.v = at(p->b, 0, j);
        train_gemm_one(p->g, p->m, smaller_of(p->step, p->n - j), p->k, p->a, b, p->beta, p->c + j, p->ld);
    }
}

void train_gemm(const struct train_gemms *g, int64_t m, int64_t n, int64_t k, struct dev_matrix a, struct dev_matrix b,
                float beta, float *c, int64_t ld)
{
    enum { SMALL = 1 << 18, UNIT = 16 };
    const bool by_rows = m >= n;
    const int64_t size = by_rows ? m : n, threads = m * n * k < SMALL ? 1 : pool_size(g->pool);
    const int64_t step = ((size + threads - 1) / threads + UNIT - 1) / UNIT * UNIT;
    struct product p = { g, m, n, k, step, a, b, beta, c, ld };

    if (m > 0 && n > 0)
        pool_for(g->pool, (size + step - 1) / step, 1, by_rows ? rows_of : columns_of, &p);
}
