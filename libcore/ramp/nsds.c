/* SPDX-License-Identifier: Apache-2.0 */
/* nsds.c - how a tensor's weights are spread, and over how many directions.        room: ramp */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/format.h"
#include "quant/quant.h"
#include "ramp/internal.h"

enum { MATRICES_MAX = 16, ROWS_MAX = 2048 };
#define KURTOSIS_MOST 1000.0

#ifdef CHIMERE_BLAS

#include <cblas.h>

/* LAPACK comes with OpenBLAS; Debian's header of it does not. Eigenvalues of a symmetric matrix, ascending. */
void dsyev_(const char *jobz, const char *uplo, const int *n, double *a, const int *lda, double *w, double *work,
            const int *lwork, int *info);

struct spread {
    const struct gguf_tensor *t;
    unsigned simd;
    int64_t rows; /* of a matrix, that are looked at */
    int n;        /* the shorter side */
    float *x;     /* [rows][ne0] */
    float *gram;  /* [n][n] */
    double *wide, *eigen, *work;
    int work_n;
    double n_elems, sum[4]; /* powers of elements */
};

/* Rows of matrix m, evenly spread, and their sums of powers. */
static void take_rows(struct spread *s, int64_t m)
{
    const int64_t n = s->t->ne[0];
    quant_decode_fn *decode = cpu_decoder(s->t->type, s->simd);

    for (int64_t r = 0; r < s->rows; r++) {
        int64_t row = m * s->t->ne[1] + r * s->t->ne[1] / s->rows;
        float *x = s->x + r * n;

        decode(x, (const char *)s->t->data + row * quant_row_bytes(s->t->type, n), n);
        for (int64_t i = 0; i < n; i++) {
            double v = (double)x[i];

            s->sum[0] += v;
            s->sum[1] += v * v;
            s->sum[2] += v * v * v;
            s->sum[3] += v * v * v * v;
        }
    }
    s->n_elems += (double)(s->rows * n);
}

/* Singular values are the roots of the eigenvalues of x x^T or x^T x, whichever is smaller: their sum, times e to the
 * power of the entropy of their shares. */
static enum err_code rank_of(double *out, struct spread *s, struct err *e)
{
    const int n = s->n, rows = (int)s->rows, cols = (int)s->t->ne[0];
    double sum = 0, entropy = 0;
    int info = 0;

    cblas_ssyrk(CblasRowMajor, CblasUpper, rows <= cols ? CblasNoTrans : CblasTrans, n, rows <= cols ? cols : rows,
                1.0f, s->x, cols, 0.0f, s->gram, n);
    for (int64_t i = 0; i < (int64_t)n * n; i++)
        s->wide[i] = (double)s->gram[i];
    dsyev_("N", "L", &n, s->wide, &n, s->eigen, s->work, &s->work_n, &info); /* its columns are our rows */
    if (info != 0)
        return err_set(e, ERR_FORMAT, "%.*s: no singular values are found", STR_ARG(s->t->name));
    for (int i = 0; i < n; i++) {
        s->eigen[i] = s->eigen[i] > 0 ? sqrt(s->eigen[i]) : 0;
        sum += s->eigen[i];
    }
    for (int i = 0; i < n && sum > 0; i++)
        if (s->eigen[i] > 0)
            entropy -= s->eigen[i] / sum * log(s->eigen[i] / sum);
    *out = sum * exp(entropy);
    return isfinite(*out) ? ERR_OK
                          : err_set(e, ERR_FORMAT, "%.*s: has a value that is not finite", STR_ARG(s->t->name));
}

static enum err_code make_room(struct spread *s, struct err *e)
{
    s->rows = s->t->ne[1] < ROWS_MAX ? s->t->ne[1] : ROWS_MAX;
    s->n = (int)(s->rows < s->t->ne[0] ? s->rows : s->t->ne[0]);
    s->work_n = 8 * s->n + 64;
    s->x = malloc((size_t)(s->rows * s->t->ne[0]) * sizeof *s->x);
    s->gram = calloc((size_t)s->n * (size_t)s->n, sizeof *s->gram);
    s->wide = malloc((size_t)s->n * (size_t)s->n * sizeof *s->wide);
    s->eigen = malloc((size_t)s->n * sizeof *s->eigen);
    s->work = malloc((size_t)s->work_n * sizeof *s->work);
    return s->x != NULL && s->gram != NULL && s->wide != NULL && s->eigen != NULL && s->work != NULL ? ERR_OK
                                                                                                     : err_nomem(e);
}

static double kurtosis_of(const struct spread *s)
{
    double m = s->sum[0] / s->n_elems, m2 = s->sum[1] / s->n_elems, var = m2 - m * m;
    double fourth = s->sum[3] / s->n_elems - 4 * m * s->sum[2] / s->n_elems + 6 * m * m * m2 - 3 * m * m * m * m;

    return var > 0 ? fmin(fourth / (var * var) - 3, KURTOSIS_MOST) : 0;
}

enum err_code ramp_spread(double *kurtosis, double *rank, const struct gguf_tensor *t, unsigned simd, struct err *e)
{
    struct spread s = { .t = t, .simd = simd };
    int64_t all = t->ne[2] * t->ne[3], some = all < MATRICES_MAX ? all : MATRICES_MAX;
    enum err_code rc = make_room(&s, e);

    openblas_set_num_threads(1); /* sums in one order */
    *rank = 0;
    for (int64_t i = 0; i < some && rc == ERR_OK; i++) {
        double one = 0;

        take_rows(&s, i * all / some);
        rc = rank_of(&one, &s, e);
        if (rc == ERR_OK)
            *rank += one / (double)some;
    }
    if (rc == ERR_OK)
        *kurtosis = kurtosis_of(&s);
    free(s.x);
    free(s.gram);
    free(s.wide);
    free(s.eigen);
    free(s.work);
    return rc;
}

#else

enum err_code ramp_spread(double *kurtosis, double *rank, const struct gguf_tensor *t, unsigned simd, struct err *e)
{
    (void)simd;
    *kurtosis = *rank = 0;
    return err_set(e, ERR_UNSUPPORTED, "%.*s: singular values need OpenBLAS, which this build lacks", STR_ARG(t->name));
}

#endif

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *sorted, size_t n)
{
    qsort(sorted, n, sizeof *sorted, by_value);
    return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Into 0 .. 1 by how many robust standard deviations each is from the median. */
static void squash(double *v, double *scratch, size_t n)
{
    double middle, mad;

    memcpy(scratch, v, n * sizeof *v);
    middle = median(scratch, n);
    for (size_t i = 0; i < n; i++)
        scratch[i] = fabs(v[i] - middle);
    mad = 1.4826 * median(scratch, n);
    for (size_t i = 0; i < n; i++)
        v[i] = 1 / (1 + exp(-(v[i] - middle) / (mad > 0 ? mad : 1)));
}

enum err_code ramp_nsds(double *kurtosis, double *rank, size_t n, struct err *e)
{
    double *scratch = malloc((n + 1) * sizeof *scratch);

    if (scratch == NULL)
        return err_nomem(e);
    if (n > 0) {
        squash(kurtosis, scratch, n);
        squash(rank, scratch, n);
    }
    for (size_t i = 0; i < n; i++)
        kurtosis[i] = fmin(.999, 1 - (1 - kurtosis[i]) * (1 - rank[i]));
    free(scratch);
    return ERR_OK;
}
