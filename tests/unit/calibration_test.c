/* SPDX-License-Identifier: Apache-2.0 */
/* calibration_test.c - isotonic fits, thresholds and files of calibration; and the vectors of $GOLDENS/reason. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/json.h"
#include "eval/eval.h"
#include "reason/calibration.h"

/* Blocks by hand: 0.1 and 0.2 fall, so they are pooled; equal scores count as one. */
static void isotonic(void **state)
{
    static const double score[] = { 0.9, 0.1, 0.2, 0.5, 0.5 }, weight[] = { 1, 1, 3, 1, 1 };
    static const bool right[] = { true, true, false, true, false };
    struct reason_isotonic m;
    struct err e;

    (void)state;
    assert_int_equal(reason_isotonic_fit(&m, score, right, NULL, 5, &e), ERR_OK);
    assert_int_equal(m.n, 3); /* 0.1 .. 0.5 at a half, 0.9 at 1 */
    assert_true(fabs(reason_isotonic_at(&m, 0) - 0.5) < 1e-12 && fabs(reason_isotonic_at(&m, 0.7) - 0.75) < 1e-12 &&
                fabs(reason_isotonic_at(&m, 1) - 1) < 1e-12);
    reason_isotonic_free(&m);
    assert_int_equal(reason_isotonic_fit(&m, score, right, weight, 5, &e), ERR_OK);
    assert_true(fabs(reason_isotonic_at(&m, 0.15) - 0.25) < 1e-12 && fabs(reason_isotonic_at(&m, 0.5) - 0.5) < 1e-12);
    reason_isotonic_free(&m);
    assert_int_equal(reason_isotonic_fit(&m, score, right, NULL, 0, &e), ERR_OK);
    assert_true(isnan(reason_isotonic_at(&m, 0.5)));
    reason_isotonic_free(&m);
}

static double *numbers(const json_t *v)
{
    double *out = calloc(json_array_size(v) + 1, sizeof *out);

    assert_non_null(out);
    for (size_t i = 0; i < json_array_size(v); i++)
        out[i] = json_number_value(json_array_get(v, i));
    return out;
}

static void must_be(const json_t *o, const char *key, double got)
{
    const json_t *want = json_object_get(o, key);

    if (want != NULL && fabs(json_number_value(want) - got) > 1e-9)
        fail_msg("%s is %.12f, not %.12f", key, got, json_number_value(want));
}

static void one_vector(const json_t *o)
{
    const json_t *at = json_object_get(o, "at");
    const size_t n = json_array_size(json_object_get(o, "score"));
    double *score = numbers(json_object_get(o, "score")), *weight = numbers(json_object_get(o, "weight")),
           *label = numbers(json_object_get(o, "label")), *x = numbers(at),
           *value = numbers(json_object_get(o, "value")), *after = calloc(n + 1, sizeof *after);
    bool *right = calloc(n + 1, sizeof *right);
    struct reason_isotonic m;
    struct eval_mean area;
    struct err e;

    assert_true(after != NULL && right != NULL);
    for (size_t i = 0; i < n; i++)
        right[i] = label[i] > 0.5;
    assert_int_equal(reason_isotonic_fit(&m, score, right, weight, n, &e), ERR_OK);
    assert_int_equal(m.n, json_array_size(json_object_get(o, "knots_x")));
    for (size_t i = 0; i < m.n; i++) {
        assert_true(fabs(m.x[i] - json_number_value(json_array_get(json_object_get(o, "knots_x"), i))) < 1e-9);
        assert_true(fabs(m.y[i] - json_number_value(json_array_get(json_object_get(o, "knots_y"), i))) < 1e-9);
    }
    for (size_t i = 0; i < json_array_size(at); i++)
        assert_true(fabs(reason_isotonic_at(&m, x[i]) - value[i]) < 1e-9);
    for (size_t i = 0; i < n; i++)
        after[i] = reason_isotonic_at(&m, score[i]);
    assert_int_equal(eval_auc(&area, score, right, (int64_t)n, &e), ERR_OK);
    must_be(o, "auc", area.mean);
    must_be(o, "auc_se", area.se);
    must_be(o, "ece10", reason_calibration_error(score, right, n));
    must_be(o, "ece10_after", reason_calibration_error(after, right, n));
    must_be(o, "brier", reason_brier(score, right, n));
    must_be(o, "brier_after", reason_brier(after, right, n));
    reason_isotonic_free(&m);
    free(score);
    free(weight);
    free(label);
    free(x);
    free(value);
    free(after);
    free(right);
}

static void vectors(void **state)
{
    const char *goldens = getenv("GOLDENS");
    char path[4096];
    json_error_t why;
    json_t *file, *one;
    size_t i;

    (void)state;
    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/reason/isotonic.json", goldens);
    file = json_load_file(path, 0, &why);
    if (file == NULL)
        fail_msg("%s: %s", path, why.text);
    json_array_foreach (json_object_get(file, "cases"), i, one)
        one_vector(one);
    json_decref(file);
}

/* The first item is right at once and sure, the second wrong and unsure, the third right and unsure. */
static void thresholds(void **state)
{
    static const float sure[] = { 0.99f, 0.97f }, unsure[] = { 0.9f, 0.5f, 0.8f }, third[] = { 0.7f };
    const struct reason_trial_item v[] = { { sure, 2, true, true, 2, 50 },
                                           { unsure, 3, false, true, 3, 60 },
                                           { third, 1, true, true, 1, 40 } };
    struct reason_threshold t, at = { REASON_THINKS_BELOW, 0.85f };
    struct err e;

    (void)state;
    assert_true(reason_score(&v[1]) > 0.499 && reason_score(&v[1]) < 0.501);
    assert_int_equal(reason_threshold_tokens(at, &v[0]), 2);
    assert_int_equal(reason_threshold_tokens(at, &v[1]), 62); /* doubted at its second token */
    assert_int_equal(reason_threshold_tokens(at, &v[2]), 41);
    assert_true(reason_threshold_right(at, &v[1]));
    at.thinks = REASON_THINKS_NEVER;
    assert_false(reason_threshold_right(at, &v[1]));
    assert_int_equal(reason_threshold_tokens(at, &v[1]), 3);
    assert_int_equal(reason_threshold_pick(&t, v, 3, &e), ERR_OK);
    assert_int_equal(t.thinks, REASON_THINKS_BELOW); /* between the second and the third */
    assert_true(t.below > 0.59f && t.below < 0.61f);
    assert_int_equal(reason_threshold_pick(&t, v, 1, &e), ERR_OK);
    assert_int_equal(t.thinks, REASON_THINKS_NEVER);
    assert_int_equal(reason_threshold_pick(&t, v + 1, 1, &e), ERR_OK);
    assert_int_equal(t.thinks, REASON_THINKS_ALWAYS);
    assert_int_equal(reason_threshold_pick(&t, v, 0, &e), ERR_OK);
    assert_int_equal(t.thinks, REASON_THINKS_ALWAYS);
}

#define HEAD "{\"type\": \"calibration\", \"model\": \"m\", \"fingerprint\": \"00000000000000ff\", "
#define ALL  "\"all\": {\"n\": 3, \"think\": \"below\", \"below\": 0.5, \"knots\": [[0.1, 0.2], [0.5, 0.9]]}"
#define ROUTES \
    ", \"routes\": {\"default\": \"other\", \"classes\": [{\"name\": \"code\", \"words\": [\"rust\"]}, {\"name\": " \
    "\"math\", \"words\": [\"sum\"]}]}"

static enum err_code open_text(struct reason_calibration **c, const char *text, struct err *e)
{
    json_t *v;
    enum err_code code;

    assert_int_equal(json_parse(&v, str_of(text), "test", e), ERR_OK);
    *e = (struct err){ 0 };
    code = reason_calibration_open(c, v, e);
    json_decref(v);
    return code;
}

static void files(void **state)
{
    static const char whole[] =
        HEAD ALL ROUTES ", \"classes\": [{\"name\": \"code\", \"think\": \"never\", \"knots\": []}],"
                        "\"verifier\": {\"n\": 9, \"area\": 0.6, \"lo\": 0.4, \"hi\": 0.8, \"yes_rate\": 0.9}}";
    struct reason_verifier_worth worth;
    struct reason_calibration *c;
    struct reason_advice a;
    struct err e;

    (void)state;
    assert_int_equal(open_text(&c, whole, &e), ERR_OK);
    assert_true(reason_calibration_model(c) == 255);
    assert_int_equal(reason_calibration_find(c, STR("is Rust fast?"), &a, &e), ERR_OK);
    assert_string_equal(a.class, "code");
    assert_int_equal(a.threshold.thinks, REASON_THINKS_NEVER);
    assert_int_equal(reason_calibration_find(c, STR("a sum"), &a, &e), ERR_OK);
    assert_string_equal(a.class, "math");
    assert_true(a.threshold.thinks == REASON_THINKS_BELOW && fabsf(a.threshold.below - 0.5f) < 1e-6f);
    assert_true(fabs(reason_isotonic_at(a.right, 0.3) - 0.55) < 1e-12);
    assert_int_equal(reason_calibration_find(c, STR("a sum in Rust"), &a, &e), ERR_OK);
    assert_string_equal(a.class, "other");
    assert_true(reason_calibration_verifier(c, &worth) && worth.n == 9 && worth.lo < 0.41 && worth.yes_rate > 0.89);
    reason_calibration_close(c);
    assert_int_equal(open_text(&c, HEAD ALL "}", &e), ERR_OK);
    assert_int_equal(reason_calibration_find(c, STR("is Rust fast?"), &a, &e), ERR_OK);
    assert_null(a.class);
    assert_false(reason_calibration_verifier(c, &worth));
    reason_calibration_close(c);
}

static void wrong_files(void **state)
{
    static const char *const wrong[][2] = {
        { "[]", "/type" },
        { "{\"type\": \"routes\"}", "/type" },
        { HEAD ALL ", \"more\": 1}", "/more" },
        { "{\"type\": \"calibration\", \"fingerprint\": \"00ff\", " ALL "}", "/fingerprint" },
        { "{\"type\": \"calibration\", \"fingerprint\": \"00000000000000fg\", " ALL "}", "/fingerprint" },
        { HEAD "\"all\": 3}", "/all" },
        { HEAD "\"all\": {\"think\": \"often\"}}", "/all/think" },
        { HEAD "\"all\": {\"think\": \"below\", \"knots\": []}}", "/all/below" },
        { HEAD "\"all\": {\"think\": \"below\", \"below\": 2, \"knots\": []}}", "/all/below" },
        { HEAD "\"all\": {\"think\": \"never\", \"below\": 0.5, \"knots\": []}}", "/all/below" },
        { HEAD "\"all\": {\"think\": \"never\"}}", "/all/knots" },
        { HEAD "\"all\": {\"think\": \"never\", \"knots\": [[0.5, 0.5], [0.5, 0.6]]}}", "/all/knots/1" },
        { HEAD "\"all\": {\"think\": \"never\", \"knots\": [[0.5, 0.5], [0.6, 0.4]]}}", "/all/knots/1" },
        { HEAD "\"all\": {\"think\": \"never\", \"knots\": [[0.5, 1e9]]}}", "/all/knots/0" },
        { HEAD ALL ", \"classes\": []}", "/classes" },
        { HEAD ALL ROUTES ", \"classes\": [{\"name\": \"code\"}]}", "/classes/0/think" },
        { HEAD ALL ", \"routes\": {\"default\": \"x\", \"classes\": [{\"name\": \"code\", \"words\": [\"(\"]}]}}",
          "/routes/classes/0/words/0" },
        { HEAD ALL ", \"verifier\": {\"n\": 0}}", "/verifier/n" },
        { HEAD ALL ", \"verifier\": {\"n\": 1, \"area\": -1}}", "/verifier/area" },
    };
    struct reason_calibration *c;
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(open_text(&c, wrong[i][0], &e), ERR_FORMAT);
        assert_string_equal(e.where, wrong[i][1]);
        assert_true(e.msg[0] != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isotonic), cmocka_unit_test(vectors),     cmocka_unit_test(thresholds),
        cmocka_unit_test(files),    cmocka_unit_test(wrong_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
