/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - products of float matrices: OpenBLAS, or loops. */
#include "train/gemm.h"

#include <string.h>
#ifdef CHIMERE_BLAS
#include <cblas.h>
#endif

#include "base/pool.h"
#include "base/simd.h"

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What lies at row i, column j. */
static const float *at(struct train_matrix m, int64_t i, int64_t j)
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

/* Threads are ours: each calls for a part of the product. */
const char *train_gemm_open(void)
{
    openblas_set_num_threads(1);
    return "openblas";
}

void train_gemm_one(int64_t m, int64_t n, int64_t k, struct train_matrix a, struct train_matrix b, float beta,
                    float *c, int64_t ld)
{
    if (m > 0 && n > 0)
        cblas_sgemm(CblasRowMajor, a.turned ? CblasTrans : CblasNoTrans, b.turned ? CblasTrans : CblasNoTrans,
                    (blasint)m, (blasint)n, (blasint)k, 1.0f, a.v, (blasint)a.ld, b.v, (blasint)b.ld, beta, c,
                    (blasint)ld);
}

#else

enum { ROWS = 4, DEPTH = 64, COLUMNS = 128 };

const char *train_gemm_core(unsigned simd)
{
    (void)simd;
    return NULL;
}

const char *train_gemm_open(void)
{
    return "loops";
}

/* c[rows][n] += a[rows][depth] b[depth][n], for parts that lie close in memory. */
static void part(int64_t rows, int64_t n, int64_t depth, const float a[ROWS][DEPTH], const float b[DEPTH][COLUMNS],
                 float *c, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = 0; l < depth; l++) {
            const float x = a[i][l];

            for (int64_t j = 0; j < n; j++)
                c[i * ld + j] += x * b[l][j];
        }
}

void train_gemm_one(int64_t m, int64_t n, int64_t k, struct train_matrix a, struct train_matrix b, float beta,
                    float *c, int64_t ld)
{
    float left[ROWS][DEPTH], right[DEPTH][COLUMNS];

    for (int64_t i = 0; beta == 0.0f && i < m; i++)
        memset(c + i * ld, 0, (size_t)n * sizeof *c);
    for (int64_t l = 0; l < k; l += DEPTH)
        for (int64_t j = 0; j < n; j += COLUMNS) {
            const int64_t depth = smaller(DEPTH, k - l), columns = smaller(COLUMNS, n - j);

            for (int64_t x = 0; x < depth; x++)
                for (int64_t y = 0; y < columns; y++)
                    right[x][y] = *at(b, l + x, j + y);
            for (int64_t i = 0; i < m; i += ROWS) {
                const int64_t rows = smaller(ROWS, m - i);

                for (int64_t x = 0; x < rows; x++)
                    for (int64_t y = 0; y < depth; y++)
                        left[x][y] = *at(a, i + x, l + y);
                part(rows, columns, depth, left, right, c + i * ld + j, ld);
            }
        }
}

#endif

/* ---- by all threads ---- */

struct product {
    int64_t             m, n, k, step; /* rows of c in a part, or columns */
    struct train_matrix a, b;
    float               beta, *c;
    int64_t             ld;
};

static void rows_of(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct product *p = ctx;

    (void)worker;
    for (int64_t i = begin * p->step; begin < end; begin++, i += p->step) {
        struct train_matrix a = p->a;

        a.v = at(p->a, i, 0);
        train_gemm_one(smaller(p->step, p->m - i), p->n, p->k, a, p->b, p->beta, p->c + i * p->ld, p->ld);
    }
}

static void columns_of(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct product *p = ctx;

    (void)worker;
    for (int64_t j = begin * p->step; begin < end; begin++, j += p->step) {
        struct train_matrix b = p->b;

        b.v = at(p->b, 0, j);
        train_gemm_one(p->m, smaller(p->step, p->n - j), p->k, p->a, b, p->beta, p->c + j, p->ld);
    }
}

void train_gemm(struct pool *pool, int64_t m, int64_t n, int64_t k, struct train_matrix a, struct train_matrix b,
                float beta, float *c, int64_t ld)
{
    enum { SMALL = 1 << 18, UNIT = 16 };
    const bool by_rows = m >= n;
    const int64_t size = by_rows ? m : n, threads = m * n * k < SMALL ? 1 : pool_size(pool);
    const int64_t step = ((size + threads - 1) / threads + UNIT - 1) / UNIT * UNIT;
    struct product p = { m, n, k, step, a, b, beta, c, ld };

    if (m > 0 && n > 0)
        pool_for(pool, (size + step - 1) / step, 1, by_rows ? rows_of : columns_of, &p);
}
