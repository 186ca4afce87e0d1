/* SPDX-License-Identifier: Apache-2.0 */
/* reason_test.c - formulas of reasoning control against reference vectors: the files of $GOLDENS/reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <jansson.h>

#include "sample/sample.h"

/* $GOLDENS/reason/NAME; skips the test where there is no $GOLDENS. */
static json_t *open_vectors(const char *name)
{
    const char *goldens = getenv("GOLDENS");
    char path[4096];
    json_error_t why;
    json_t *file;

    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/reason/%s", goldens, name);
    file = json_load_file(path, 0, &why);
    if (file == NULL)
        fail_msg("%s: %s", path, why.text);
    return file;
}

/* A number, or "inf", "-inf", "nan". */
static double number_of(const json_t *v)
{
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

static void must_be(const char *name, const json_t *want, const char *key, float got)
{
    const double is = number_of(json_object_get(want, key));

    assert_non_null(json_object_get(want, key));
    if (!(fabs((double)got - is) <= 1e-6 * fabs(is) + 1e-9))
        fail_msg("%s: %s is %.9g, not %.12g", name, key, (double)got, is);
}

/* ---- row.json: numbers of a row ---- */

static void check_row(const json_t *row)
{
    const json_t *logits = json_object_get(row, "logits"), *mask = json_object_get(row, "mask"), *v;
    const json_t *want = json_object_get(row, "want");
    const char *name = json_string_value(json_object_get(row, "name"));
    const size_t n = json_array_size(logits);
    const struct sample_opts o = sample_defaults();
    float *x = calloc(n, sizeof *x);
    uint32_t *bits = calloc(n / 32 + 1, sizeof *bits);
    struct logits_digest d;
    struct sampler *s;
    struct err e;
    size_t i;

    assert_true(n > 0 && x != NULL && bits != NULL);
    json_array_foreach (logits, i, v)
        x[i] = (float)number_of(v);
    json_array_foreach (mask, i, v)
        bits[i / 32] |= (uint32_t)(json_is_true(v) || json_integer_value(v) != 0) << i % 32;
    assert_int_equal(sample_open(&s, &o, (int32_t)n, &e), ERR_OK);
    sample_sums(s, x, json_is_array(mask) ? bits : NULL, &d);
    const struct sample_numbers got = sample_numbers(&d);
    must_be(name, want, "p_max", got.p_max);
    must_be(name, want, "entropy", got.entropy);
    must_be(name, want, "varentropy", got.varentropy);
    must_be(name, want, "margin", got.margin);
    sample_close(s);
    free(x);
    free(bits);
}

static void test_rows(void **state)
{
    json_t *file = open_vectors("row.json"), *row;
    size_t i;

    (void)state;
    assert_true(json_array_size(json_object_get(file, "rows")) > 0);
    json_array_foreach (json_object_get(file, "rows"), i, row)
        check_row(row);
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
