/* SPDX-License-Identifier: Apache-2.0 */
/* reason_test.c - formulas of reasoning control against reference vectors: the files of $GOLDENS/reason and of
 * tests/golden/reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/json.h"
#include "reason/reason.h"
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

/* ---- budget.json, loop.json: where thinking ends; tests/golden/reason has them, too ---- */

static bool has_vectors(int d)
{
    const char *goldens = getenv("GOLDENS");

    return d == 0 || (goldens != NULL && *goldens != '\0');
}

static json_t *vectors(int d, const char *name)
{
    char path[4096];
    json_error_t why;
    json_t *all;

    if (d > 0)
        return open_vectors(name);
    (void)snprintf(path, sizeof path, "tests/golden/reason/%s", name);
    all = json_load_file(path, 0, &why);
    assert_non_null(all);
    return all;
}

static int64_t whole(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static void budget_closes(void **state)
{
    (void)state;
    for (int d = 0; d < 2 && has_vectors(d); d++) {
        json_t *all = vectors(d, "budget.json"), *pieces = json_object_get(all, "pieces"), *one;
        size_t i;

        assert_true(json_array_size(json_object_get(all, "close")) > 0);
        json_array_foreach (json_object_get(all, "close"), i, one) {
            struct reason_budget b = { whole(one, "budget"), whole(one, "grace"), 0 };
            bool closes = false;
            size_t k = 0;

            while (k < json_array_size(pieces) && !closes)
                closes = reason_budget_add(&b, reason_ends_sentence(json_text(json_array_get(pieces, k++))));
            /* the model ends where it has written all: then the budget has not closed it, or closes it there */
            assert_int_equal(k, whole(one, "closes_after"));
            if (!closes)
                assert_string_equal(json_string_value(json_object_get(one, "why")), "model");
        }
        json_array_foreach (json_object_get(all, "effort"), i, one) {
            const enum reason_effort f = reason_effort_of(json_string_value(json_object_get(one, "effort")));

            assert_int_equal(reason_share(f, whole(one, "budget_max")), whole(one, "budget"));
        }
        json_decref(all);
    }
    assert_int_equal(reason_effort_of("max"), REASON_EFFORTS);
    assert_int_equal(reason_effort_of(""), REASON_EFFORTS);
    assert_int_equal(reason_share(REASON_EFFORT_LOW, 0), 0);
}

static void loops_are_seen(void **state)
{
    int n = 0;

    (void)state;
    for (int d = 0; d < 2 && has_vectors(d); d++) {
        json_t *all = vectors(d, "loop.json"), *one, *token;
        size_t i, k;

        json_array_foreach (json_object_get(all, "cases"), i, one) {
            const json_t *want = json_object_get(one, "loop");
            struct reason_loop l = { .n = 0 };
            int period = 0;

            json_array_foreach (json_object_get(one, "tokens"), k, token) {
                period =
                    reason_loop_add(&l, (int32_t)json_integer_value(token), whole(one, "repeats"), whole(one, "least"));
                if (period > 0)
                    break;
            }
            assert_int_equal(period, json_is_null(want) ? 0 : whole(want, "period"));
            if (period > 0)
                assert_int_equal(k, whole(want, "token"));
            n += period > 0;
        }
        json_decref(all);
    }
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(budget_closes),
        cmocka_unit_test(loops_are_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
