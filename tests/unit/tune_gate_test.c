/* SPDX-License-Identifier: Apache-2.0 */
/* tune_gate_test.c - the gate of an adapter, on made-up scores. */
#include "golden.h"
#include "tune/job.h"
#include "tune_stage.h"

/* Made-up scores: n[0] items that are held out and n[1] that are kept, as good afterwards as before. */
static void scores_open(struct stage *s, int64_t n_tests, int64_t n_kept)
{
    struct tune_job *j = &s->job;
    const int64_t n[] = { n_tests, n_kept };

    stage_open(s);
    j->data.tests.v = calloc((size_t)n_tests + 1, sizeof *j->data.tests.v);
    j->data.kept.v = calloc((size_t)n_kept + 1, sizeof *j->data.kept.v);
    j->data.tests.n = n_tests;
    j->data.kept.n = n_kept;
    for (int i = 0; i < 2; i++) {
        j->report.before[i] = calloc((size_t)n[i] + 1, sizeof **j->report.before);
        j->report.after[i] = calloc((size_t)n[i] + 1, sizeof **j->report.after);
        assert_true(j->report.before[i] != NULL && j->report.after[i] != NULL);
        for (int64_t k = 0; k < n[i]; k++)
            j->report.before[i][k] = j->report.after[i][k] = (struct tune_score){ .loss = 2, .exact = true };
    }
    j->report.n_first = n_kept;
    j->report.n_outcome = 2;
    j->report.outcome = calloc(8, sizeof *j->report.outcome);
    assert_true(j->data.tests.v != NULL && j->data.kept.v != NULL && j->report.outcome != NULL);
}

static void scores_close(struct stage *s)
{
    s->job.data.tests.n = s->job.data.kept.n = 0;
    s->job.data.kept.n_set = 0;
    s->job.data.kept.set_name = NULL;
    tune_job_close(&s->job);
}

/* What is held out gains this. */
static void gain(struct stage *s, const double *by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        s->job.report.after[0][i].loss = 2 - by[i];
}

/* The items that were left; without time none. */
static enum err_code test_rest(void *ctx, int set, bool *time, struct err *e)
{
    struct stage *s = ctx;
    const struct tune_items *kept = &s->job.data.kept;

    (void)e;
    *time = s->steps > 0;
    s->steps -= *time;
    for (int64_t i = s->job.report.n_first; *time && i < kept->n; i++)
        if (kept->v[i].set == set)
            s->job.report.after[1][i].untested = false;
    return ERR_OK;
}

static struct tune_verdict verdict_of(struct stage *s)
{
    struct tune_verdict v = { 0 };
    struct err e = { 0 };

    assert_int_equal(tune_judge(&s->job, test_rest, s, &v, &e), ERR_OK);
    return v;
}

/* The first n answers to what is held out are exact or not, before and after. */
static void answer(struct stage *s, int64_t n, bool before, bool after)
{
    for (int64_t i = 0; i < n; i++) {
        s->job.report.before[0][i].exact = before;
        s->job.report.after[0][i].exact = after;
    }
}

static void test_gate_learnt(void **state)
{
    static const double five[] = { 1, 1, 1, 1, 1 }, but_one[] = { 1, 1, 1, 1, -0.1 }, none[5] = { 0 };
    struct tune_verdict v;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 0);
    answer(&s, 5, false, true);
    gain(&s, five, 5); /* of 32 ways of signs one: 0.031 */
    v = verdict_of(&s);
    assert_true(v.better && v.keeps && v.p > 0.025 && v.p < 0.037 && v.wanted == 1);
    assert_true(isnan(v.p_kept) && isnan(v.bound)); /* nothing is kept, so nothing is seen to be lost */
    assert_true(s.job.report.outcome[0].n == 5 && s.job.report.outcome[0].loss[1] == 1);
    assert_true(s.job.report.outcome[0].won == 5 && s.job.report.outcome[0].lost == 0);
    answer(&s, 5, false, false); /* likelier, and no answer */
    assert_false(verdict_of(&s).better);
    s.o.accept = TUNE_LIKELIHOOD;
    assert_true(verdict_of(&s).better);
    gain(&s, but_one, 5); /* two of 32: 0.0625 */
    v = verdict_of(&s);
    assert_true(!v.better && v.p > 0.055 && v.p < 0.07);
    gain(&s, none, 5);
    v = verdict_of(&s);
    assert_true(!v.better && v.p == 1);
    scores_close(&s);
    scores_open(&s, TUNE_LEAST_TESTS - 1, 0); /* too few, however much they gain */
    answer(&s, 4, false, true);
    gain(&s, five, 4);
    v = verdict_of(&s);
    assert_true(!v.better && isnan(v.p));
    scores_close(&s);
}

/* At least a tenth of the unanswered questions has to be answered. Items with a thought are counted apart. */
static void test_gate_wanted(void **state)
{
    struct stage s;
    struct tune_verdict v;

    (void)state;
    scores_open(&s, 60, 0);
    for (int i = 0; i < 60; i++) {
        s.job.report.before[0][i].exact = s.job.report.after[0][i].exact = i >= 50;
        s.job.report.after[0][i].loss = 1;
        s.job.data.tests.v[i].thinks = i % 2;
    }
    for (int i = 0; i < 4; i++)
        s.job.report.after[0][i].exact = true;
    v = verdict_of(&s);
    assert_true(!v.better && v.wanted == 5);
    s.job.report.after[0][4].exact = true;
    v = verdict_of(&s);
    assert_true(v.better);
    assert_int_equal(s.job.report.outcome[0].n_thinks, 30);
    assert_int_equal(s.job.report.outcome[0].exact_thinks[0], 5);
    assert_int_equal(s.job.report.outcome[0].exact_thinks[1], 7);
    s.job.report.after[0][59].exact = false; /* what is lost counts against what is won */
    assert_false(verdict_of(&s).better);
    scores_close(&s);
}

/* Few items that are kept are judged by their losses, */
static void test_gate_kept(void **state)
{
    static const double five[] = { 1, 1, 1, 1, 1 };
    struct tune_verdict v;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 40);
    answer(&s, 5, false, true);
    gain(&s, five, 5);
    v = verdict_of(&s);
    assert_true(v.better && v.keeps && v.p_kept < 0.001 && isnan(v.bound));
    for (int i = 0; i < 40; i++) /* less than may be lost, then more */
        s.job.report.after[1][i].loss = 2.04;
    assert_true(verdict_of(&s).keeps);
    for (int i = 0; i < 40; i++)
        s.job.report.after[1][i].loss = 2.06;
    v = verdict_of(&s);
    assert_true(v.better && !v.keeps && v.p_kept > 0.9);
    assert_int_equal(s.job.report.outcome[1].ruling, TUNE_BY_LIKELIHOOD);
    scores_close(&s);
}

/* many by their answers, whatever became of the losses, unless nats are what the user allowed. */
static void test_gate_answers(void **state)
{
    struct tune_verdict v;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 200);
    for (int i = 0; i < 200; i++)
        s.job.report.after[1][i] = (struct tune_score){ .loss = 9, .exact = i >= 4 };
    v = verdict_of(&s);
    assert_true(v.keeps && fabs(v.bound - 0.0438) < 1e-4 && isnan(v.p_kept));
    assert_int_equal(s.job.report.outcome[1].ruling, TUNE_BY_ANSWERS);
    s.job.report.after[1][4].exact = false; /* five of 200 may be more than 5 % */
    assert_false(verdict_of(&s).keeps);
    s.o.margin = 0.06f;
    assert_true(verdict_of(&s).keeps);
    for (int i = 100; i < 200; i++) /* of what nobody knew nothing is lost */
        s.job.report.before[1][i].exact = s.job.report.after[1][i].exact = false;
    v = verdict_of(&s);
    assert_true(!v.keeps && s.job.report.outcome[1].known == 100 && v.bound > 0.08);
    s.o.forget_given = true;
    v = verdict_of(&s);
    assert_true(!v.keeps && isnan(v.bound) && v.p_kept > 0.9);
    s.o.forget = 20;
    assert_true(verdict_of(&s).keeps);
    scores_close(&s);
}

/* An undecided answer that turns around is lost in part, as far as the verdict goes; more of them than the margin are
 * too many. */
static void test_gate_undecided(void **state)
{
    struct tune_verdict v;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 200);
    for (int i = 0; i < 40; i++) { /* half of 40 that are undecided turn around, each way */
        s.job.report.before[1][i] = (struct tune_score){ .loss = 2, .exact = i < 20, .unsure = 0.4F };
        s.job.report.after[1][i] = (struct tune_score){ .loss = 2, .exact = i >= 20, .unsure = 0.4F };
    }
    v = verdict_of(&s);
    assert_true(v.keeps && v.bound < 0.03 && v.bound > 0.02);
    assert_true(s.job.report.outcome[1].lost == 20 && s.job.report.outcome[1].won == 20);
    assert_true(fabs(s.job.report.outcome[1].went - 4) < 1e-5 && fabs(s.job.report.outcome[1].came - 4) < 1e-5);
    for (int i = 0; i < 40; i++)
        s.job.report.before[1][i].unsure = s.job.report.after[1][i].unsure = 0;
    assert_true(!verdict_of(&s).keeps); /* as many that were sure */
    for (int i = 0; i < 200; i++)
        s.job.report.before[1][i] = s.job.report.after[1][i] = (struct tune_score){ .loss = 2, .exact = true };
    for (int i = 0; i < 11; i++)
        s.job.report.after[1][i] = (struct tune_score){ .loss = 2, .exact = i >= 10, .unsure = 0.5F };
    v = verdict_of(&s);
    assert_true(v.bound > 0.05 && !v.keeps);
    for (int i = 0; i < 11; i++)
        s.job.report.before[1][i].unsure = 0.5F;
    assert_true(verdict_of(&s).keeps); /* ten of 200 */
    s.job.report.after[1][10].exact = false;
    v = verdict_of(&s);
    assert_true(v.bound > 0.05 && v.bound < 0.056 && !v.keeps);
    scores_close(&s);
}

/* Where the first items of a set leave it in doubt, the others are tested, if there is time; the other sets' are not.
 */
static void test_gate_doubt(void **state)
{
    static const double five[] = { 1, 1, 1, 1, 1 };
    static char one[] = "one", two[] = "two";
    static char *names[] = { one, two };
    const struct tune_outcome *r;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 400);
    answer(&s, 5, false, true);
    gain(&s, five, 5);
    r = s.job.report.outcome;
    s.job.data.kept.n_set = 2;
    s.job.data.kept.set_name = names;
    s.job.report.n_outcome = 5;
    s.job.report.n_first = 120;
    s.o.margin_set = 0.042f; /* which 60 answers cannot show, and 120 can */
    for (int i = 0; i < 400; i++) {
        s.job.data.kept.v[i].set = i < 120 ? i % 2 : i >= 260;
        s.job.report.after[1][i].untested = i >= 120;
    }
    assert_true(verdict_of(&s).keeps && r[1].n == 60 && r[1].whole == 200 && r[3].n == 120 && s.steps == 0);
    s.o.margin_set = 0.05f; /* 60 would show that if they could be looked at only once */
    assert_true(verdict_of(&s).keeps && r[1].ruling == TUNE_POOLED);
    s.o.margin_set = 0.042f;
    for (int i = 0; i < 4; i += 2) /* two of 60 */
        s.job.report.after[1][i].exact = false;
    s.steps = 0;
    assert_true(!verdict_of(&s).keeps && r[1].ruling == TUNE_POOLED && r[1].n == 60); /* no time */
    assert_true(tune_left_open(&r[1]));
    assert_false(tune_surely_lost(&s.job, &r[1]));
    s.steps = 9;
    /* the other set is in doubt because both together are */
    assert_true(verdict_of(&s).keeps && r[1].ruling == TUNE_BY_ANSWERS && r[1].n == 200 && r[2].n == 200);
    assert_int_equal(s.steps, 7);
    for (int i = 120; i < 130; i++)
        s.job.report.after[1][i].exact = false;
    assert_true(!verdict_of(&s).keeps && !r[1].keeps && r[2].keeps);
    for (int i = 120; i < 400; i++)
        s.job.report.after[1][i].untested = true;
    for (int i = 0; i < 40; i += 2) /* a third: no more items are needed */
        s.job.report.after[1][i].exact = false;
    assert_true(!verdict_of(&s).keeps && r[1].ruling == TUNE_POOLED && r[1].n == 60);
    assert_int_equal(s.steps, 7);
    scores_close(&s);
}

/* Each set has to be kept, the small ones together; of task sets only what was known counts by its loss. */
static void test_gate_sets(void **state)
{
    static char facts[] = "facts", tools[] = "tools", few[] = "few";
    static char *names[] = { facts, tools, few };
    const struct tune_outcome *r;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 260);
    r = s.job.report.outcome;
    s.o.keep_named = false;
    s.job.data.kept.n_set = 3;
    s.job.data.kept.set_name = names;
    s.job.report.n_outcome = 6;
    for (int i = 0; i < 260; i++)
        s.job.data.kept.v[i].set = i < 120 ? 0 : i < 240 ? 1 : 2;
    for (int i = 120; i < 260; i++) /* of two sets few are known: too few of each, enough of both */
        s.job.report.before[1][i].exact = s.job.report.after[1][i].exact = i >= 220;
    assert_true(verdict_of(&s).keeps);
    assert_true(r[1].ruling == TUNE_BY_ANSWERS && r[2].ruling == TUNE_POOLED && r[3].ruling == TUNE_POOLED);
    assert_true(r[4].ruling == TUNE_BY_ANSWERS && r[4].n == 140 && r[4].exact[0] == 40);
    assert_string_equal(r[2].set, "tools");
    for (int i = 230; i < 240; i++)
        s.job.report.after[1][i].exact = false; /* a small set loses half of what it knew */
    assert_true(!verdict_of(&s).keeps && r[1].keeps && !r[4].keeps);
    for (int i = 120; i < 136; i++) /* and learns more */
        s.job.report.after[1][i].exact = true;
    assert_true(verdict_of(&s).keeps);
    for (int i = 0; i < 10; i++)
        s.job.report.after[1][i].exact = false;
    assert_true(!verdict_of(&s).keeps && !r[1].keeps);
    for (int i = 0; i < 260; i++) { /* together too few to count: by the losses of what was known */
        s.job.report.before[1][i].exact = s.job.report.after[1][i].exact = i < 120 || (i >= 215 && i < 246);
        s.job.report.after[1][i].loss = i < 246 ? 2 : 9;
    }
    s.o.margin_set = 0.07f;
    assert_true(verdict_of(&s).keeps && r[4].ruling == TUNE_BY_LIKELIHOOD && r[4].counts == 31);
    for (int i = 215; i < 246; i++)
        s.job.report.after[1][i].loss = 2.1;
    assert_true(!verdict_of(&s).keeps && !r[4].keeps && !tune_left_open(&r[4]));
    for (int i = 120; i < 240; i++) /* so few that they count among all alone, whatever became of the losses */
        s.job.report.before[1][i].exact = s.job.report.after[1][i].exact = i < 122;
    assert_true(verdict_of(&s).keeps && r[4].ruling == TUNE_WITH_ALL && r[4].counts == 8 && r[5].n == 260);
    for (int i = 238; i < 242; i++) /* also with two answers lost, */
        s.job.report.after[1][i].exact = false;
    assert_true(verdict_of(&s).keeps && r[4].lost == 2);
    for (int i = 120; i < 246; i++) /* but not with all of them */
        s.job.report.after[1][i].exact = false;
    assert_true(!verdict_of(&s).keeps && !r[4].keeps);
    for (int i = 0; i < 120; i++) /* without all sets by the losses, as else nothing would judge them */
        s.job.report.before[1][i].exact = s.job.report.after[1][i].exact = i < 20;
    for (int i = 0; i < 246; i++)
        s.job.report.after[1][i] = (struct tune_score){ .loss = 2.1, .exact = s.job.report.before[1][i].exact };
    assert_true(!verdict_of(&s).keeps && r[4].ruling == TUNE_BY_LIKELIHOOD && r[5].n == 0);
    scores_close(&s);
}

/* A single small set is judged by itself, under its own name; one that was not tested far enough is not called
 * forgotten. */
static void test_gate_one_small(void **state)
{
    static char facts[] = "facts", few[] = "few";
    static char *names[] = { facts, few };
    const struct tune_outcome *r;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 400);
    r = s.job.report.outcome;
    s.o.keep_named = false;
    s.o.margin_set = 0.08f;
    s.job.data.kept.n_set = 2;
    s.job.data.kept.set_name = names;
    s.job.report.n_outcome = 5;
    for (int i = 0; i < 400; i++) {
        s.job.data.kept.v[i].set = i >= 200;
        s.job.report.before[1][i].exact = i < 206;
        s.job.report.after[1][i] = (struct tune_score){ .loss = i < 200 ? 2 : 2.08, .exact = i < 204 };
    }
    assert_true(verdict_of(&s).keeps && r[2].ruling == TUNE_WITH_ALL && r[2].lost == 2 && r[3].n == 0);
    assert_true(tune_tests_kept(&s.job.report));
    for (int i = 206; i < 226; i++)
        s.job.report.before[1][i].exact = s.job.report.after[1][i].exact = true;
    assert_true(!verdict_of(&s).keeps && r[2].ruling == TUNE_BY_LIKELIHOOD && r[2].counts == 26 && r[3].n == 0);
    assert_true(!r[2].keeps && !tune_left_open(&r[2]));
    scores_close(&s);
}

/* Each of two sets loses less than twice the margin, both together more than once. */
static void test_gate_all(void **state)
{
    static const double five[] = { 1, 1, 1, 1, 1 };
    static char one[] = "one", two[] = "two";
    static char *names[] = { one, two };
    const struct tune_outcome *r;
    struct stage s;

    (void)state;
    scores_open(&s, 5, 400);
    answer(&s, 5, false, true);
    gain(&s, five, 5);
    r = s.job.report.outcome;
    s.job.data.kept.n_set = 2;
    s.job.data.kept.set_name = names;
    s.job.report.n_outcome = 5;
    for (int i = 0; i < 400; i++) {
        s.job.data.kept.v[i].set = i % 2;
        s.job.report.after[1][i].exact = i >= 22;
    }
    assert_true(!verdict_of(&s).keeps && r[1].keeps && r[2].keeps && !r[4].keeps);
    assert_true(r[4].n == 400 && r[4].lost == 22 && r[4].bound > 0.05 && r[1].bound < 0.1);
    assert_true(fabs(r[1].margin - 0.1) < 1e-6 && fabs(r[4].margin - 0.05) < 1e-6);
    for (int i = 8; i < 22; i++)
        s.job.report.after[1][i].exact = true;
    assert_true(verdict_of(&s).keeps && r[4].bound < 0.05);
    scores_close(&s);
}

/* An adapter that knows more above `learns` of its strength, and forgets above `keeps`. */
struct made_up {
    double learns, keeps, tried[16];
    int n, most; /* tries that there is time for */
};

static enum err_code try_made_up(void *ctx, struct tune_verdict *v, struct err *e)
{
    struct made_up *m = ctx;

    (void)e;
    assert_true(m->n < 16);
    m->tried[m->n++] = v->strength;
    v->better = v->strength > m->learns;
    v->keeps = v->strength < m->keeps;
    return ERR_OK;
}

static bool time_left(void *ctx)
{
    const struct made_up *m = ctx;

    return m->n + 2 <= m->most;
}

static struct tune_verdict strongest(struct made_up *m)
{
    struct tune_verdict v = { 0 };
    struct err e = { 0 };

    assert_int_equal(tune_try_strengths(&v, try_made_up, time_left, m, &e), ERR_OK);
    assert_true(m->tried[m->n - 1] == v.strength); /* what is published is what was tested last */
    return v;
}

static void test_strengths(void **state)
{
    static const double want[] = { 1, 0.85, 0.775, 0.8125, 0.79375, 0.803125, 0.79375 };
    struct made_up whole = { 0, 2, { 0 }, 0, 9 }, weak = { 0, 0.8, { 0 }, 0, 9 }, never = { 0, 0.1, { 0 }, 0, 9 };
    struct made_up worse = { 2, 0.1, { 0 }, 0, 9 }, late = { 0, 0.8, { 0 }, 0, 3 }, apart = { 0.9, 0.8, { 0 }, 0, 9 };
    struct tune_verdict v = strongest(&whole);

    (void)state;
    assert_true(v.better && v.keeps && v.strength == 1 && whole.n == 1);
    v = strongest(&weak);
    assert_true(v.better && v.keeps);
    assert_int_equal(weak.n, TUNE_STRENGTHS);
    for (int i = 0; i < TUNE_STRENGTHS; i++)
        assert_true(fabs(weak.tried[i] - want[i]) < 1e-12);
    v = strongest(&never);
    assert_true(v.better && !v.keeps && never.n == TUNE_STRENGTHS - 1 && !v.cut_short);
    v = strongest(&worse); /* less of it would not know more */
    assert_true(!v.better && worse.n == 1);
    v = strongest(&late);
    assert_true(!v.keeps && late.n == 2 && v.cut_short);
    v = strongest(&apart); /* where it keeps it does not know more: refused */
    assert_true(!(v.better && v.keeps));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gate_learnt),    cmocka_unit_test(test_gate_wanted),    cmocka_unit_test(test_gate_kept),
        cmocka_unit_test(test_gate_answers),   cmocka_unit_test(test_gate_undecided), cmocka_unit_test(test_gate_doubt),
        cmocka_unit_test(test_gate_sets),      cmocka_unit_test(test_gate_all),       cmocka_unit_test(test_strengths),
        cmocka_unit_test(test_gate_one_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
