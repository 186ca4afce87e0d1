/* SPDX-License-Identifier: Apache-2.0 */
/* vote_test.c - canonical answers, votes and verdicts; and against the vectors of $GOLDENS/reason. */
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
#include "reason/vote.h"

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

static char *canon(struct str text, size_t *n)
{
    struct err e;
    char *out;

    assert_int_equal(reason_canon(text, &out, n, &e), ERR_OK);
    assert_int_equal(strlen(out), *n);
    return out;
}

static void must_give(const char *text, const char *want)
{
    size_t n;
    char *got = canon(str_of(text), &n);

    if (strcmp(got, want) != 0)
        fail_msg("'%s' gives '%s', not '%s'", text, got, want);
    free(got);
}

static void answers(void **state)
{
    static const char *const cases[][2] = {
        { "", "" },
        { "\\boxed{}", "" },
        { "so \\boxed{8} or \\boxed{\\dfrac{4}{6}", "2/3" },
        { "\\boxed{\\{1, 2\\}}", "\\{1, 2\\}" },
        { "The final answer is: 7.\n", "7" },
        { "The answer isn't 5", "the answer isn't 5" },
        { "first\n  second  line \n\n", "second line" },
        { "1,234,567.50 dollars", "2469135/2" },
        { "1,23", "1,23" },
        { "12,345,67", "12,345,67" },
        { "-\\tfrac{1}{-2}", "1/2" },
        { "\\frac 1{20}", "1/20" },
        { "\\frac{\\frac{1}{2}}{3}", "((1)/(2))/(3)" },
        { "\\frac{1}", "\\frac{1}" },
        { "\\left( \\frac12, 3.0 \\right]", "(1/2,3]" },
        { "(1,2),(3,4)", "(1,2),(3,4)" },
        { "{3; X}", "{3; x}" },
        { "\\text{ a  Hat}", "a hat" },
        { "3 \\times 4", "3 * 4" },
        { "y = 3 KM", "3" },
        { "1 apple", "1" },
        { "9 lives", "9 lives" },
        { "1e-2", "1/100" },
        { "1e99/1e98", "10" },
        { "1e100", "1e100" },
        { "0.0000000001e-99/0.000000000001", "1/" },
        { "0/5", "0" },
        { "5/0.0", "5/0.0" },
        { "45\xc2\xb0", "45" },
        { ".", "" },
        { "1.2.3", "1.2.3" },
        { "1/2/3", "1/2/3" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (cases[i][1][0] != '\0' && cases[i][1][strlen(cases[i][1]) - 1] == '/') {
            size_t n;
            char *got = canon(str_of(cases[i][0]), &n);

            assert_int_equal(n, 2 + 98); /* a one and 97 zeros under the bar */
            assert_memory_equal(got, "1/1000", 6);
            free(got);
        } else {
            must_give(cases[i][0], cases[i][1]);
        }
}

/* What could take long or grow. */
static void large_answers(void **state)
{
    static const char *const repeated[] = { "(",     "{",       "[1,",      "\\frac{",       "\\frac 1",    "7",
                                            "1e99,", "\\text{", "\\boxed{", "\\frac{1}{2},", "the answer ", "{}",
                                            "}",     "1,234,",  " ",        "\\frac{ }  " };
    enum { BYTES = 1 << 18 };
    char *text = malloc(BYTES), *got;
    size_t n;

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < sizeof repeated / sizeof *repeated; i++) {
        const size_t k = strlen(repeated[i]);

        for (size_t at = 0; at < BYTES; at++)
            text[at] = repeated[i][at % k];
        got = canon((struct str){ text, BYTES }, &n);
        assert_true(n <= BYTES + (256 << 10));
        free(got);
        text[0] = '(';
        text[BYTES - 1] = ')';
        got = canon((struct str){ text, BYTES }, &n);
        assert_true(n <= BYTES + (256 << 10));
        free(got);
    }
    free(text);
}

static void canonical_vectors(void **state)
{
    json_t *file = open_vectors("canon.json"), *one;
    size_t i;

    (void)state;
    assert_true(json_array_size(json_object_get(file, "cases")) > 0);
    json_array_foreach (json_object_get(file, "cases"), i, one)
        must_give(json_string_value(json_object_get(one, "text")),
                  json_string_value(json_object_get(one, "canonical")));
    json_decref(file);
}

/* ---- votes ---- */

static const struct reason_candidate three[] = { { { "3", 1 }, 0.4 }, { { "3", 1 }, 0.3 }, { { "8", 1 }, 0.95 } };

static void votes(void **state)
{
    struct reason_candidate c[] = { { { "", 0 }, 0.9 }, { { "a", 1 }, NAN }, { { "b", 1 }, 0 }, { { "b", 1 }, 0 } };
    struct reason_tally t = reason_vote(three, 3, REASON_WEIGHTED);

    (void)state;
    assert_int_equal(t.winner, 2);
    assert_int_equal(t.votes, 1);
    assert_false(t.by_majority);
    assert_int_equal(reason_vote(three, 3, REASON_MAJORITY).winner, 0);
    assert_int_equal(reason_vote(three, 3, REASON_BEST).winner, 2);
    for (int how = REASON_WEIGHTED; how <= REASON_BEST; how++) { /* no score says anything */
        t = reason_vote(c, 4, (enum reason_vote)how);
        assert_int_equal(t.winner, 2);
        assert_true(t.by_majority);
        assert_true(t.agreement == 0.5);
    }
    assert_int_equal(reason_vote(c, 2, REASON_BEST).winner, 1); /* an answer without a score is better than none */
    assert_int_equal(reason_vote(c, 1, REASON_BEST).winner, -1);
    assert_int_equal(reason_vote(c, 0, REASON_MAJORITY).winner, -1);
}

/* The candidate that won has the answer that the vectors want. */
static void check_winner(const struct reason_candidate *c, int n, enum reason_vote how, const json_t *want)
{
    static const char *const names[] = { "majority", "weighted", "best" };
    const struct reason_tally t = reason_vote(c, n, how);
    const char *answer = json_string_value(json_object_get(want, names[how]));
    const json_t *weight = json_object_get(json_object_get(want, "weights"), answer != NULL ? answer : "");

    if (answer == NULL) {
        assert_int_equal(t.winner, -1);
        return;
    }
    assert_true(t.winner >= 0 && str_is(c[t.winner].canon, answer));
    if (how == REASON_BEST)
        assert_int_equal(t.winner, json_integer_value(json_object_get(want, "best_index")));
    assert_true(fabs(t.weight - json_number_value(weight)) <= 1e-9);
    assert_int_equal(t.votes, json_integer_value(json_object_get(json_object_get(want, "counts"), answer)));
    assert_true(fabs(t.agreement - json_number_value(json_object_get(want, "agreement"))) < 1e-9);
}

static void vote_vectors(void **state)
{
    static const char *const aggregates[] = { "last", "min", "prod", "mean" };
    json_t *file = open_vectors("vote.json"), *one, *v;
    size_t i, k;

    (void)state;
    json_array_foreach (json_object_get(file, "cases"), i, one) {
        const json_t *all = json_object_get(one, "candidates");
        struct reason_candidate *c = calloc(json_array_size(all) + 1, sizeof *c);

        assert_non_null(c);
        json_array_foreach (all, k, v) {
            c[k].canon.p = canon(json_text(json_object_get(v, "text")), &c[k].canon.n);
            c[k].score = json_number_value(json_object_get(v, "score"));
        }
        for (int how = REASON_MAJORITY; how <= REASON_BEST; how++)
            check_winner(c, (int)k, (enum reason_vote)how, json_object_get(one, "want"));
        while (k > 0)
            free((void *)(uintptr_t)c[--k].canon.p);
        free(c);
    }
    json_array_foreach (json_object_get(file, "aggregate"), i, one) {
        double step[64];

        json_array_foreach (json_object_get(one, "steps"), k, v)
            step[k] = json_number_value(v);
        for (int how = REASON_LAST; how <= REASON_MEAN; how++) {
            const double want = json_number_value(json_object_get(json_object_get(one, "want"), aggregates[how]));

            assert_true(fabs(reason_aggregate(step, (int)k, (enum reason_aggregate)how) - want) < 1e-9);
        }
    }
    json_decref(file);
}

/* ---- verdicts ---- */

static double number_of(const json_t *v)
{
    return json_is_string(v) ? strtod(json_string_value(v), NULL) : json_number_value(v);
}

static void verdict_vectors(void **state)
{
    json_t *file = open_vectors("verdict.json"), *one, *v;
    size_t i, k;

    (void)state;
    json_array_foreach (json_object_get(file, "cases"), i, one) {
        const json_t *want = json_object_get(json_object_get(one, "want"), "score");
        double p[2] = { 0, 0 }, score;

        json_array_foreach (json_object_get(one, "pieces"), k, v) {
            const int side = reason_word_side(json_text(v), "yes", "no", false);

            if (side != 0)
                p[side < 0] += exp(number_of(json_array_get(json_object_get(one, "logits"), k)));
        }
        score = reason_verdict(p[0], p[1]);
        if (json_is_null(want))
            assert_true(isnan(score));
        else
            assert_true(fabs(score - json_number_value(want)) <= 1e-9);
    }
    json_decref(file);
}

static void verdicts(void **state)
{
    (void)state;
    assert_int_equal(reason_word_side(STR(" YES\n"), "yes", "no", false), 1);
    assert_int_equal(reason_word_side(STR("No"), "yes", "no", false), -1);
    assert_int_equal(reason_word_side(STR("Nothing"), "yes", "no", true), 0);
    assert_int_equal(reason_word_side(STR(" inc"), "correct", "incorrect", true), -1);
    assert_int_equal(reason_word_side(STR(" inc"), "correct", "incorrect", false), 0);
    assert_int_equal(reason_word_side(STR("co"), "correct", "incorrect", true), 1);
    assert_int_equal(reason_word_side(STR("c"), "correct", "corrupt", true), 0); /* may become either */
    assert_int_equal(reason_word_side(STR(" "), "yes", "no", true), 0);
    assert_true(isnan(reason_verdict(0, 0)));
}

static void lines_of_verifiers(void **state)
{
    static const char *const bad[] = { "",
                                       "nan",
                                       "NaN",
                                       "yes",
                                       "1.5",
                                       "-0.1",
                                       "{}",
                                       "[1]",
                                       "\"1\"",
                                       "0.5 0.6",
                                       "null",
                                       "inf",
                                       "true",
                                       "{\"score\":2}",
                                       "{\"score\":1,\"steps\":[1]}",
                                       "{\"score\":1,\"steps\":[1,3]}",
                                       "{\"score\":1,\"steps\":0}",
                                       "1e999" };
    double score = 7, step[2];
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(reason_score_line(str_of(bad[i]), &score, step, 2, &e), ERR_FORMAT);
        assert_true(score == 7);
    }
    assert_int_equal(reason_score_line(STR(" 0.25\r"), &score, step, 2, &e), ERR_OK);
    assert_true(score == 0.25 && isnan(step[0]) && isnan(step[1]));
    assert_int_equal(reason_score_line(STR("{\"score\":1,\"steps\":[null,0]}"), &score, step, 2, &e), ERR_OK);
    assert_true(score == 1 && isnan(step[0]) && step[1] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers),         cmocka_unit_test(large_answers),      cmocka_unit_test(canonical_vectors),
        cmocka_unit_test(votes),           cmocka_unit_test(vote_vectors),       cmocka_unit_test(verdicts),
        cmocka_unit_test(verdict_vectors), cmocka_unit_test(lines_of_verifiers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
