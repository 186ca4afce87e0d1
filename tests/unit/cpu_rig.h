/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_rig.h - for tests of the CPU device: random and poisoned memory, float rows, two devices. */
#ifndef TESTS_UNIT_CPU_RIG_H
#define TESTS_UNIT_CPU_RIG_H
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "acts.h"
#include "base/rng.h"
#include "cpu/format.h"
#include "ops/ops.h"
#include "quant/quant.h"

/* ---- random floats, poisoned memory ---- */

static uint64_t seed_of_next = 1;

static inline void *need(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);

    assert_non_null(p);
    return p;
}

/* n floats of about -scale .. scale. */
static inline float *floats(int64_t n, float scale)
{
    float *p = need((size_t)n * sizeof *p);

    seed_of_next++;
    for (int64_t i = 0; i < n; i++)
        p[i] = scale * (float)(2.0 * rng_unit(seed_of_next, 0, (uint64_t)i) - 1.0);
    return p;
}

static inline void poison(float *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = NAN;
}

static inline void assert_poison(const float *p, int64_t n)
{
    float nan = NAN;

    for (int64_t i = 0; i < n; i++)
        assert_memory_equal(p + i, &nan, sizeof nan);
}

/* ---- devices and rows ---- */

static inline bool rounded(void)
{
    return test_acts() != QUANT_ACTS_F32;
}

enum { N_DEVS = 2 };
static struct dev *devs[N_DEVS]; /* 1 and 3 threads */

static inline int open_devs(void **state)
{
    static const int threads[N_DEVS] = { 1, 3 };
    struct err e = { 0 };

    (void)state;
    for (int i = 0; i < N_DEVS; i++)
        if (dev_open(&devs[i], "cpu", &(struct dev_opts){ .n_threads = threads[i], .acts = test_acts() }, &e) !=
                ERR_OK ||
            dev_reserve(devs[i], (size_t)32 << 20, &e) != ERR_OK)
            return -1;
    return 0;
}

static inline int close_devs(void **state)
{
    (void)state;
    for (int i = 0; i < N_DEVS; i++)
        dev_close(devs[i]);
    return 0;
}

/* Float rows with 3 floats between them. */
static inline struct tensor rows_of(float *data, int64_t ne0, int64_t ne1)
{
    return (struct tensor){ .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = ne0 + 3, .data = data };
}

static inline struct tensor random_rows(int64_t ne0, int64_t ne1, float scale)
{
    return rows_of(floats((ne0 + 3) * ne1, scale), ne0, ne1);
}

static inline struct tensor empty_rows(int64_t ne0, int64_t ne1)
{
    struct tensor t = random_rows(ne0, ne1, 1.0f);

    poison(t.data, (ne0 + 3) * ne1);
    return t;
}

static inline struct tensor copy_rows(struct tensor x)
{
    struct tensor t = empty_rows(x.ne[0], x.ne[1]);

    memcpy(t.data, x.data, (size_t)((x.ne[0] + 3) * x.ne[1]) * sizeof(float));
    return t;
}

static inline struct tensor slice(struct tensor x, int64_t r, int64_t n)
{
    x.data = (float *)x.data + r * x.stride;
    x.ne[1] = n;
    return x;
}

static inline float at(struct tensor t, int64_t r, int64_t c)
{
    return ((float *)t.data)[r * t.stride + c];
}

static inline void same_rows(const char *what, struct tensor a, struct tensor b)
{
    for (int64_t r = 0; r < a.ne[1]; r++)
        for (int64_t c = 0; c < a.ne[0]; c++) {
            float x = at(a, r, c), y = at(b, r, c);

            if (memcmp(&x, &y, sizeof x) != 0)
                fail_msg("%s: row %lld, column %lld: %a and %a", what, (long long)r, (long long)c, (double)x,
                         (double)y);
        }
}

/* |y - ref| <= tol times the largest |ref|; what lies between the rows is untouched. */
static inline void near_rows(const char *what, struct tensor y, const double *ref, double tol)
{
    double top = 1e-30;

    for (int64_t i = 0; i < y.ne[0] * y.ne[1]; i++)
        top = fmax(top, fabs(ref[i]));
    for (int64_t r = 0; r < y.ne[1]; r++)
        for (int64_t c = 0; c < y.ne[0]; c++) {
            double want = ref[r * y.ne[0] + c];

            if (!(fabs((double)at(y, r, c) - want) <= tol * top))
                fail_msg("%s: row %lld, column %lld: %.9g, not %.9g (of %.3g)", what, (long long)r, (long long)c,
                         (double)at(y, r, c), want, top);
        }
}

static inline double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

/* ---- stored weights ---- */

/* A stored block (or a row, for types with a head) of moderate finite numbers. */
static inline void random_block(int type, unsigned char *p, int64_t n, int64_t bytes)
{
    const struct quant_type *q = quant_types[type];
    float y[1024], limit = q->block_elems == 1 && q->name[0] == 'i' ? 1e20f : 1e4f; /* integers: any */
    bool good = false;

    for (int tries = 0; !good; tries++) {
        assert_true(tries < 100000);
        seed_of_next++;
        for (int64_t i = 0; i < bytes; i++)
            p[i] = (unsigned char)(rng_unit(seed_of_next, 1, (uint64_t)i) * 256.0);
        if (q->head_bytes > 0)
            memcpy(p, &(float){ 0.01f }, sizeof(float));
        q->decode(y, p, n);
        good = true;
        for (int64_t i = 0; i < n; i++)
            good = good && fabsf(y[i]) < limit && (y[i] == 0.0f || fabsf(y[i]) > 1e-12f);
    }
}

/* rows rows of k elements of a type, `matrices` times. */
static inline struct tensor weights_of(int type, int64_t k, int64_t rows, int64_t matrices)
{
    int64_t bytes = quant_row_bytes(type, k);
    unsigned char *p = need((size_t)(bytes * rows * matrices));
    const struct quant_type *q = quant_types[type];

    for (int64_t r = 0; r < rows * matrices; r++) {
        unsigned char *row = p + r * bytes;

        if (q->block_elems == 1) { /* each element alone: most bit patterns of f64 will not do */
            for (int64_t i = 0; i < k; i++)
                random_block(type, row + i * q->block_bytes, 1, q->block_bytes);
        } else if (q->head_bytes > 0) {
            random_block(type, row, k, bytes);
        } else {
            for (int64_t i = 0; i < k / q->block_elems; i++)
                random_block(type, row + i * q->block_bytes, q->block_elems, q->block_bytes);
        }
    }
    return (struct tensor){ .type = type, .ne = { k, rows, matrices }, .pitch = rows, .data = p };
}

static const void *row_at(struct tensor w, int64_t r)
{
    return (const unsigned char *)w.data + r * quant_row_bytes(w.type, w.ne[0]);
}

/* What a product of row r may differ by from dot_ref() because activations were rounded: each by a step of the
 * largest of its 32 (cpu/format.h), so of its 256 too. Weights with a minimum are the difference of two numbers. */
static inline double dot_slack(struct tensor w, int64_t r, const float *x)
{
    const struct cpu_format *f = cpu_format_of(w.type);
    int64_t k = w.ne[0];
    double sum = 0;

    if (!rounded() || f->ints == NULL || !cpu_int_row(k))
        return 0;
    int64_t whole = cpu_int_whole(k);
    struct cpu_int_block *u = need((size_t)(whole / 256) * sizeof *u);
    char *row = need((size_t)quant_row_bytes(w.type, whole));
    memset(row, 0, (size_t)quant_row_bytes(w.type, whole));
    memcpy(row, row_at(w, r), (size_t)quant_row_bytes(w.type, k));
    f->ints(u, row, whole);
    free(row);
    for (int64_t b = 0; b < whole / 256; b++) {
        double top = 0;

        for (int64_t i = 256 * b; i < 256 * b + 256 && i < k; i++)
            top = fmax(top, fabs((double)x[i]));
        for (int i = 0; i < 256; i++)
            sum += top / (1.98 * cpu_acts_top(w.type, test_acts())) *
                   (fabs((double)u[b].scale[quant_types[w.type]->block_elems == 32 ? i / 32 : 0] *
                         u[b].w[cpu_int_place(i)]) +
                    (f->n_min > 0 ? fabs((double)u[b].min[i * f->n_min / 256]) : 0));
    }
    free(u);
    return sum;
}

/* *size: the sum of the products' magnitudes (may be NULL) */
static inline double dot_ref(struct tensor w, int64_t r, const float *x, double *size)
{
    float *y = need((size_t)w.ne[0] * sizeof *y);
    double sum = 0, all = 0;

    quant_types[w.type]->decode(y, row_at(w, r), w.ne[0]);
    for (int64_t i = 0; i < w.ne[0]; i++) {
        sum += (double)y[i] * (double)x[i];
        all += fabs((double)y[i] * (double)x[i]);
    }
    if (size != NULL)
        *size = all;
    free(y);
    return sum;
}
#endif
