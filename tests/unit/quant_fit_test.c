/* SPDX-License-Identifier: Apache-2.0 */
/* quant_fit_test.c - the encoders for files: their errors against ggml's, and against themselves.
 *
 * With GOLDENS set the golden weights are encoded; each type's error is printed beside that of
 * ggml's bytes (those of ik_llama.cpp for its types) and must not be larger, with importance (weighted error) and
 * without. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/simd.h"
#include "quant/quant.h"
#include "sets.h"

enum { COLS = 512, ROWS = 8, BAR_ROWS = 64 };

/* Root mean square errors of ggml with an importance of all ones, where they are known (0: not): on
 * weights.f32 and on bar_weights.f32. */
static const struct known {
    const char *name;
    double weights, bar;
    double search[3]; /* a near-exhaustive search: weights, bar, bar weighted by imatrix.f32 */
} ones[] = {
    { "q2_k", .17927, .009075, { .17086, .00866, .007434 } },
    { "q3_k", .10194, .005130, { .09925, .005085, .004717 } },
    { "q4_k", .04936, .002502, { .04761, .002433, .002143 } },
    { "q5_k", .02422, .0012557, { .0229, .0011884, .0010545 } },
    { "q6_k", .01155, .0006603, { .01088, .000625, .0005531 } },
    { "iq3_xxs", .12086, .006528, { .11638, .006176, .005043 } },
    { "iq3_s", .09626, .005083, { .08729, .00465, .003959 } },
    { "iq4_xs", .05253, .002792, { .05042, .002712, .002478 } },
    { "q4_0", 0, .0031750, { 0 } },
    { "q4_1", 0, .0024536, { 0 } },
    { "q5_0", 0, .0016095, { 0 } },
    { "q5_1", 0, .0011915, { 0 } },
    { "iq2_s", 0, .0096200, { 0 } },
    { "iq4_nl", 0, .0027539, { 0 } },
};

static float *read_floats(const char *dir, const char *name, size_t n)
{
    char path[4096];
    float *v = malloc(n * sizeof *v);
    FILE *f;

    snprintf(path, sizeof path, "%s/quants/%s", dir, name);
    f = fopen(path, "rb");
    assert_non_null(v);
    if (f == NULL || fread(v, sizeof *v, n, f) != n)
        fail_msg("%s: cannot read %zu floats", path, n);
    fclose(f);
    return v;
}

/* Root of the weighted mean of squares; w NULL: plain. */
static double rmse(const float *x, const float *y, size_t n, const float *w)
{
    double sum = 0, of = 0;

    for (size_t i = 0; i < n; i++) {
        double e = (double)x[i] - (double)y[i], v = w != NULL ? (double)w[i % COLS] : 1;

        sum += v * e * e;
        of += v;
    }
    return sqrt(sum / of);
}

static double our_error(int type, int effort, const float *x, size_t rows, const float *w)
{
    size_t bytes = (size_t)quant_row_bytes(type, COLS);
    quant_fit_fn *fit = quant_fitter(type, simd_features());
    unsigned char *q = malloc(bytes);
    float *y = malloc(rows * COLS * sizeof *y);

    assert_true(q != NULL && y != NULL);
    for (size_t r = 0; r < rows; r++) {
        fit(q, x + r * COLS, COLS, w, effort);
        quant_types[type]->decode(y + r * COLS, q, COLS);
    }
    double e = rmse(x, y, rows * COLS, w);

    free(q);
    free(y);
    return e;
}

/* The error of golden bytes; -1 where there are none. */
static double their_error(const char *dir, int type, const char *kind, const float *x, const float *w)
{
    char path[4096], name[32];
    size_t bytes = (size_t)quant_row_bytes(type, COLS);
    unsigned char *q = malloc(bytes * ROWS);
    float *y = malloc(ROWS * COLS * sizeof *y);
    double e = -1;
    int i = 0;

    for (const char *p = quant_types[type]->name; *p != '\0'; p++, i++)
        name[i] = *p >= 'a' && *p <= 'z' ? (char)(*p - 'a' + 'A') : *p;
    name[i] = '\0';
    snprintf(path, sizeof path, "%s/quants/%s.%s.q", dir, name, kind);
    FILE *f = fopen(path, "rb");

    assert_true(q != NULL && y != NULL);
    if (f != NULL) {
        assert_int_equal(fread(q, bytes, ROWS, f), ROWS);
        fclose(f);
        for (size_t r = 0; r < ROWS; r++)
            quant_types[type]->decode(y + r * COLS, q + r * bytes, COLS);
        e = rmse(x, y, ROWS * COLS, w);
    }
    free(q);
    free(y);
    return e;
}

static const struct known *find_ones(const char *name)
{
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        if (strcmp(ones[i].name, name) == 0)
            return &ones[i];
    return NULL;
}

/* Types whose encoders are here: all with blocks and an encoder. */
static quant_fit_fn *fitter_of(int type, unsigned set)
{
    return quant_types[type]->block_elems > 1 ? quant_fitter(type, set) : NULL;
}

static void golden_errors(void **state)
{
    const char *dir = getenv("GOLDENS");

    (void)state;
    if (dir == NULL || *dir == '\0')
        skip();
    float *x = read_floats(dir, "weights.f32", ROWS * COLS), *w = read_floats(dir, "imatrix.f32", COLS);
    float *bar = read_floats(dir, "bar_weights.f32", BAR_ROWS * COLS);
    int n = 0, worse = 0;

    printf("type      plain: ours     ggml    ones | weighted: ours ggml | bar: ours   ones\n");
    for (int type = 0; type < QUANT_N; type++) {
        quant_fit_fn *fit = fitter_of(type, simd_features());
        const struct known *k = find_ones(quant_types[type]->name);

        if (fit == NULL)
            continue;
        double plain = our_error(type, 0, x, ROWS, NULL), with = our_error(type, 0, x, ROWS, w);
        double on_bar = our_error(type, 0, bar, BAR_ROWS, NULL);
        double ggml = their_error(dir, type, "plain", x, NULL), imx = their_error(dir, type, "imx", x, w);

        printf("%-8s %12.6f %8.6f %7.5f | %12.6f %8.6f | %8.7f %8.7f\n", quant_types[type]->name, plain, ggml,
               k != NULL ? k->weights : 0, with, imx, on_bar, k != NULL ? k->bar : 0);
        worse += plain > ggml || (imx > 0 && with > imx) ||
                 (k != NULL && ((k->weights > 0 && plain > k->weights) || on_bar > k->bar));
        n++;
    }
    free(x);
    free(w);
    free(bar);
    assert_int_equal(n, 31);
    assert_int_equal(worse, 0);
}

/* The highest effort is within 1.5 % of a near-exhaustive search, and no worse than the default. */
static void highest_effort(void **state)
{
    const char *dir = getenv("GOLDENS");
    int worse = 0;

    (void)state;
    if (dir == NULL || *dir == '\0')
        skip();
    float *x = read_floats(dir, "weights.f32", ROWS * COLS), *w = read_floats(dir, "imatrix.f32", COLS);
    float *bar = read_floats(dir, "bar_weights.f32", BAR_ROWS * COLS);

    printf("highest: ours / search  weights         bar             weighted bar\n");
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        int type = quant_find_name((struct str){ ones[i].name, strlen(ones[i].name) });
        const float *of[3] = { x, bar, bar }, *by[3] = { NULL, NULL, w };

        printf("%-8s             ", ones[i].name);
        for (int j = 0; j < 3; j++) {
            size_t rows = j == 0 ? ROWS : BAR_ROWS;
            double ours = our_error(type, 1, of[j], rows, by[j]), less = our_error(type, 0, of[j], rows, by[j]);
            double search = ones[i].search[j];

            printf("%10.7f %6.4f", ours, search > 0 ? ours / search : 0);
            worse += (search > 0 && ours > 1.015 * search) || ours > less * 1.0001;
        }
        printf("\n");
    }
    free(x);
    free(w);
    free(bar);
    assert_int_equal(worse, 0);
}

static uint64_t rng_state = 7;

static float normal(void)
{
    float s = 0;

    for (int i = 0; i < 12; i++) {
        rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
        s += (float)(rng_state >> 40) * 0x1p-24f;
    }
    return s - 6;
}

/* A row with hard parts: zeros, one large value, tiny and huge ones, what is not finite. */
static void hard_row(float *x, int kind)
{
    for (int i = 0; i < COLS; i++) {
        x[i] = normal() * 0.02f;
        if (kind == 1)
            x[i] = 0;
        if (kind == 2)
            x[i] *= i % 97 == 5 ? 1e4f : 1;
        if (kind == 3)
            x[i] *= 1e-36f;
        if (kind == 4)
            x[i] *= 1e38f;
        if (kind == 5)
            x[i] = i % 31 == 0 ? NAN : i % 37 == 0 ? INFINITY : x[i];
        if (kind == 6)
            x[i] = 0.01f;
        if (kind == 7)
            x[i] = i < 256 ? 0.03f : -0.03f;
    }
}

/* Every instruction set gives the same bytes, and what is decoded is finite. */
static void same_bytes(void **state)
{
    static float x[COLS], w[COLS], y[COLS];

    (void)state;
    for (int i = 0; i < COLS; i++)
        w[i] = i % 50 == 3 ? 0 : (float)(i % 17) * (i % 5 == 0 ? 100.0f : 1.0f);
    for (int type = 0; type < QUANT_N; type++) {
        quant_fit_fn *scalar = fitter_of(type, 0);

        for (int kind = 0; kind < 16 && scalar != NULL; kind++) {
            _Alignas(8) unsigned char a[1024], b[1024];
            const float *imp = kind >= 8 ? w : NULL;
            size_t bytes = (size_t)quant_row_bytes(type, COLS);

            hard_row(x, kind % 8);
            scalar(a, x, COLS, imp, kind % 8 == 0);
            for (int set = 0; set < 2; set++) {
                unsigned bit = set == 0 ? SIMD_AVX2 : SIMD_AVX512;

                if ((simd_features() & bit) == 0)
                    continue;
                memset(b, 0xaa, sizeof b);
                quant_fitter(type, bit)(b, x, COLS, imp, kind % 8 == 0);
                if (memcmp(a, b, bytes) != 0)
                    fail_msg("%s: row %d differs with %s", quant_types[type]->name, kind, set == 0 ? "avx2" : "avx512");
            }
            quant_types[type]->decode(y, a, COLS);
            for (int i = 0; i < COLS; i++)
                if (!isfinite(y[i]) || (kind % 8 == 1 && y[i] != 0))
                    fail_msg("%s: row %d: element %d is %g", quant_types[type]->name, kind, i, (double)y[i]);
        }
    }
}

/* The types with two tables of levels, and those with few levels, on the weights of tests/golden/quants: at most the
 * error of the projects that they come from. A row's blocks do not depend on each other, but for a scale of the row. */
static void tables_reach_the_reference_error(void **state)
{
    static const struct {
        const char *name;
        double error; /* of ik_llama.cpp's bytes and, for the last two, ggml's */
    } known[] = {
        { "iq2_k", .197107 }, { "iq3_k", .090667 }, { "iq4_k", .046143 }, { "iq4_ks", .050493 },
        { "iq5_k", .023294 }, { "iq6_k", .009437 }, { "q1_0", .456396 },  { "q2_0", .490377 },
    };
    static float x[ROWS * COLS];
    FILE *f = fopen("tests/golden/quants/weights.f32", "rb");

    (void)state;
    assert_non_null(f);
    assert_int_equal(fread(x, sizeof *x, ROWS * COLS, f), ROWS * COLS);
    fclose(f);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int type = quant_find_name((struct str){ known[i].name, strlen(known[i].name) });
        const struct quant_type *t = quant_types[type];
        quant_fit_fn *fit = quant_fitter(type, simd_features());
        _Alignas(8) unsigned char whole[2048], part[2048];
        double error = our_error(type, 0, x, ROWS, NULL);

        if (!(error <= known[i].error))
            fail_msg("%s: error %g, reference %g", known[i].name, error, known[i].error);
        fit(whole, x, 3 * 256, NULL, 0);
        for (int at = 0; at < 3 * 256 && t->head_bytes == 0; at += 256) {
            size_t bytes = (size_t)quant_row_bytes(type, 256);

            fit(part, x + at, 256, NULL, 0);
            assert_memory_equal(part, whole + (size_t)(at / 256) * bytes, bytes);
        }
    }
}

/* Types of another project that are not read are known by name. */
static void names_of_others(void **state)
{
    (void)state;
    assert_string_equal(quant_other_name(146), "iq4_kss");
    assert_string_equal(quant_other_name(399), "q8_k_r8");
    assert_true(quant_other_find((struct str){ "IQ3_KT", 6 }));
    assert_false(quant_other_find((struct str){ "iq4_k", 5 }));
    for (int type = 0; type < QUANT_N; type++)
        assert_true(quant_other_name(quant_types[type]->id) == NULL);
    assert_true(quant_other_name(9999) == NULL);
}

/* What a format can hold exactly comes back exactly, whatever the order of rows around it. */
static void exact_rows(void **state)
{
    static float x[COLS], y[COLS];
    unsigned char q[1024];

    (void)state;
    for (int type = 0; type < QUANT_N; type++) {
        quant_fit_fn *fit = fitter_of(type, simd_features());

        if (fit == NULL || strncmp(quant_types[type]->name, "q", 1) != 0)
            continue;
        for (int i = 0; i < COLS; i++)
            x[i] = i % 16 == 0 ? 0.5f : i % 16 == 1 ? 0.0f : i % 2 ? 0.0f : 0.5f;
        for (int i = 0; i < COLS && type == QUANT_q1_0; i++) /* has no zero */
            x[i] = x[i] > 0.0f ? 0.5f : -0.5f;
        fit(q, x, COLS, NULL, 0);
        quant_types[type]->decode(y, q, COLS);
        if (rmse(x, y, COLS, NULL) > 1e-3)
            fail_msg("%s: two values come back with an error of %g", quant_types[type]->name, rmse(x, y, COLS, NULL));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_errors),
        cmocka_unit_test(highest_effort),
        cmocka_unit_test(tables_reach_the_reference_error),
        cmocka_unit_test(names_of_others),
        cmocka_unit_test(same_bytes),
        cmocka_unit_test(exact_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
