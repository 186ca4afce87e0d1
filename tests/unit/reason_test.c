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

/* ---- eat.json, trial.json, abf.json, suppress.json: how certain a model is ---- */

static double real_of(const json_t *o, const char *key)
{
    return number_of(json_object_get(o, key));
}

static void must_equal(const char *name, size_t i, double want, double got)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want) + 1e-9) && !(isnan(got) && isnan(want)))
        fail_msg("%s, %zu: %.9g, not %.12g", name, i, got, want);
}

/* The number that an array has at i, or NaN for null. */
static double at(const json_t *array, size_t i)
{
    const json_t *v = json_array_get(array, i);

    assert_non_null(v);
    return json_is_null(v) ? (double)NAN : number_of(v);
}

static void eat_case(const json_t *one)
{
    const json_t *entropy = json_object_get(one, "entropy"), *bound = json_object_get(one, "mean_at_most");
    const double mean_max = json_is_null(bound) ? INFINITY : number_of(bound);
    const json_t *want = json_object_get(one, "stop_by_variance");
    const char *name = json_string_value(json_object_get(one, "name"));
    struct reason_eat m = { .alpha = real_of(one, "alpha") };
    int64_t stop = -1;

    for (size_t i = 0; i < json_array_size(entropy); i++) {
        reason_eat_add(&m, (float)at(entropy, i));
        /* the entropies come with twelve digits, as floats with seven */
        assert_true(fabs(m.mean - at(json_object_get(one, "mean"), i)) < 1e-6);
        assert_true(fabs(m.variance - at(json_object_get(one, "variance"), i)) < 1e-6);
        if (stop < 0 && reason_eat_settled(&m, real_of(one, "variance_below"), whole(one, "probes_least"), mean_max))
            stop = (int64_t)i;
    }
    if (stop != (json_is_null(want) ? -1 : json_integer_value(want)))
        fail_msg("%s: stops at %lld", name, (long long)stop);
}

static void trial_case(const json_t *one, size_t i)
{
    const json_t *tokens = json_object_get(one, "tokens"), *want = json_object_get(one, "want");
    struct gen_seen seen[REASON_TRIAL_MAX] = { { 0 } };
    const size_t n = json_array_size(tokens);

    assert_true(n <= REASON_TRIAL_MAX);
    for (size_t k = 0; k < n; k++) {
        seen[k].p_max = (float)real_of(json_array_get(tokens, k), "p_max");
        seen[k].entropy = (float)real_of(json_array_get(tokens, k), "entropy");
    }
    const struct reason_trial t = reason_trial_of(seen, (int)n, (int32_t)whole(one, "n_vocab"));

    must_equal("cgr", i, real_of(want, "cgr"), (double)t.cgr);
    must_equal("deer", i, real_of(want, "deer"), (double)t.deer);
    if (json_object_get(want, "cgrs") != NULL)
        must_equal("cgrs", i, real_of(want, "cgrs"), (double)t.cgrs);
}

static void same_case(const json_t *answers, const json_t *one)
{
    const json_t *index = json_object_get(one, "certaindex"), *want = json_object_get(one, "stop_when_all_equal");
    struct reason_same s = { .k = (int)whole(one, "window") };
    int64_t stop = -1;

    for (size_t i = 0; i < json_array_size(answers); i++) {
        reason_same_add(&s, json_text(json_array_get(answers, i)));
        must_equal("certaindex", i, at(index, i), (double)reason_same_index(&s));
        stop = stop < 0 && reason_same_all(&s) ? (int64_t)i : stop;
    }
    assert_int_equal(stop, json_is_null(want) ? -1 : json_integer_value(want));
}

static void abf_case(const json_t *one, size_t i)
{
    const json_t *entropy = json_object_get(one, "entropy"), *want = json_object_get(one, "first_full_window_at_least");
    struct reason_abf a = { .window = (int)whole(one, "window") };
    int64_t first[16];
    json_t *v;
    const char *key;
    size_t n = json_array_size(entropy), k;

    assert_true(json_object_size(want) <= 16);
    for (k = 0; k < 16; k++)
        first[k] = -1;
    for (size_t j = 0; j < n; j++) {
        const float score = reason_abf_add(&a, (float)at(json_object_get(one, "p_max"), j), (float)at(entropy, j),
                                           (int32_t)whole(one, "n_vocab"));

        must_equal("abf", i, at(json_object_get(one, "score"), j), (double)score);
        k = 0;
        json_object_foreach ((json_t *)(uintptr_t)want, key, v) {
            if (first[k] < 0 && a.n >= a.window && score >= (float)strtod(key, NULL))
                first[k] = (int64_t)j;
            k++;
        }
    }
    k = 0;
    json_object_foreach ((json_t *)(uintptr_t)want, key, v)
        assert_int_equal(first[k++], json_is_null(v) ? -1 : json_integer_value(v));
}

static void suppress_case(const json_t *all)
{
    const json_t *decisions = json_object_get(all, "decisions"), *triggers = json_object_get(all, "triggers");
    const json_t *words = json_object_get(triggers, "words"), *ids = json_object_get(triggers, "ids");
    const float delta = (float)real_of(decisions, "delta");
    struct str word[32];
    json_t *one;
    size_t i, n = 0;

    json_array_foreach (json_object_get(all, "schedule"), i, one)
        must_equal("chance", i, real_of(one, "probability"),
                   (double)reason_suppress_chance((float)real_of(one, "certainty"), (float)real_of(one, "delta")));
    json_array_foreach (json_object_get(decisions, "list"), i, one)
        assert_int_equal(json_is_true(json_object_get(one, "suppress")),
                         real_of(one, "u") < (double)reason_suppress_chance((float)real_of(one, "certainty"), delta));
    assert_true(json_array_size(words) <= 32);
    json_array_foreach (words, i, one)
        word[i] = json_text(one);
    json_array_foreach (json_object_get(triggers, "pieces"), i, one) {
        const json_t *next = json_array_get(ids, n);
        bool control = false;
        json_t *id;
        size_t k;

        json_array_foreach (json_object_get(triggers, "control"), k, id)
            control |= json_integer_value(id) == (json_int_t)i;
        if (!control && reason_is_word(json_text(one), word, (int)json_array_size(words))) {
            assert_int_equal(json_integer_value(next), i);
            n++;
        }
    }
    assert_int_equal(n, json_array_size(ids));
}

static void certainty_is_weighed(void **state)
{
    (void)state;
    for (int d = 0; d < 2 && has_vectors(d); d++) {
        json_t *eat = vectors(d, "eat.json"), *trial = vectors(d, "trial.json"), *abf = vectors(d, "abf.json");
        json_t *suppress = vectors(d, "suppress.json"), *same = json_object_get(trial, "same_answer"), *one;
        size_t i, n = 0;

        json_array_foreach (json_object_get(eat, "cases"), i, one)
            eat_case(one), n++;
        json_array_foreach (json_object_get(trial, "cases"), i, one)
            trial_case(one, i), n++;
        json_array_foreach (json_object_get(same, "by_window"), i, one)
            same_case(json_object_get(same, "answers"), one), n++;
        json_array_foreach (json_object_get(abf, "cases"), i, one)
            abf_case(one, i), n++;
        suppress_case(suppress);
        assert_true(n >= 4);
        json_decref(eat);
        json_decref(trial);
        json_decref(abf);
        json_decref(suppress);
    }
}

/* ---- options ---- */

static void options_are_read(void **state)
{
    static const struct {
        const char *text;
        enum reason_rule rule;
        float threshold;
    } stops[] = { { "eat", REASON_RULE_EAT, 1e-3f },
                  { "cgr:0.5", REASON_RULE_CGR, 0.5f },
                  { "deer:1", REASON_RULE_DEER, 1 },
                  { "same:4", REASON_RULE_SAME, 4 },
                  { "abf:9e-1", REASON_RULE_ABF, 0.9f } };
    static const char *const wrong[] = {
        "",          "cgr:",     "cgr:x",  "cgr:nan",   "cgr:inf",
        "cgr:-1",    "cgr:1.01", "same:1", "same:2.5",  "same:17",
        "eat:0x1p3", "Eat",      "cg",     "cgr :1",    "cgr:0.5,",
        "cgr: 1",    "cgr:1:2",  "none",   "eat:1e999", "cgr:00000000000000000000000000000000000000001"
    };
    static const char *const probes_wrong[] = { "",
                                                "every",
                                                "every=",
                                                "every=0",
                                                "every=x",
                                                "every=1.5",
                                                "every=99999999999999999999",
                                                "after=-1",
                                                "tokens=0",
                                                "tokens=65",
                                                "lag=1025",
                                                "stub=",
                                                "every=1,",
                                                ",every=1",
                                                "every=1,,lag=1",
                                                "every =1",
                                                "=1" };
    struct reason_opts o = reason_defaults();
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        assert_int_equal(reason_read_stop(&o, str_of(stops[i].text), &e), ERR_OK);
        assert_int_equal(o.rule, stops[i].rule);
        assert_true(o.threshold == stops[i].threshold);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        if (reason_read_stop(&o, str_of(wrong[i]), &e) != ERR_ARG)
            fail_msg("'%s' was taken", wrong[i]);
        if (reason_read_suppress(&o, str_of(wrong[i]), &e) != ERR_ARG)
            fail_msg("'%s' was taken", wrong[i]);
    }
    assert_int_equal(o.rule, REASON_RULE_ABF);
    for (size_t i = 0; i < sizeof probes_wrong / sizeof *probes_wrong; i++)
        if (reason_read_probe(&o, str_of(probes_wrong[i]), &e) != ERR_ARG)
            fail_msg("'%s' was taken", probes_wrong[i]);
    o = reason_defaults();
    assert_int_equal(reason_read_probe(&o, STR("lag=3,every=8,tokens=64,after=0,stub=so, every=1"), &e), ERR_OK);
    assert_true(o.lag == 3 && o.every_tokens == 8 && o.trial_tokens == 64 && o.after_tokens == 0);
    assert_true(str_is(o.stub, "so, every=1"));
    /* What has no effect is refused, or forgotten. */
    o.rule = REASON_RULE_EAT;
    assert_int_equal(reason_check(&o, &e), ERR_ARG);
    assert_string_equal(e.where, "/think_probe");
    reason_drop_idle(&o);
    assert_true(o.lag == 0 && o.trial_tokens == 0 && o.every_tokens == 8 && o.stub.n > 0);
    assert_int_equal(reason_check(&o, &e), ERR_OK);
    o.rule = REASON_RULE_NONE;
    assert_int_equal(reason_check(&o, &e), ERR_ARG);
    reason_drop_idle(&o);
    assert_int_equal(reason_check(&o, &e), ERR_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),        cmocka_unit_test(budget_closes),
        cmocka_unit_test(loops_are_seen),   cmocka_unit_test(certainty_is_weighed),
        cmocka_unit_test(options_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
