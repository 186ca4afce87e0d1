/* SPDX-License-Identifier: Apache-2.0 */
/* trace_test.c - rules replayed over what was thought: $GOLDENS/reason/frontier.json, and a small trace by hand. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "eval/eval.h"
#include "gguf/gguf.h"
#include "reason/trace.h"
#include "text/text.h"

enum { N_VOCAB = 4096, TOKENS_MAX = 64 };

struct opened {
    struct gguf *g;
    struct text *text;
};

static int open_text(void **state)
{
    static struct opened o;
    struct err e;

    *state = &o;
    return gguf_open(&o.g, "share/models/chimere-nano-q5_k_m.gguf", &e) || text_open(&o.text, o.g, &e);
}

static int close_text(void **state)
{
    struct opened *o = *state;

    text_close(o->text);
    gguf_close(o->g);
    return 0;
}

/* A thought of n tokens; at each place the model answers with one token of this probability. */
static void make_trace(struct reason_trace *t, int64_t n, bool right)
{
    const struct gen_seen s = { .p_max = 0.5F, .entropy = 1 };

    *t = (struct reason_trace){ .answer_tokens = 8, .n_own = n, .right = right };
    for (int64_t i = 0; i < n; i++)
        reason_trace_token(t, &s, false);
}

static void add_place(struct reason_trace *t, int64_t n, double certainty, int cost, bool right)
{
    const struct gen_seen s = { .token = 7, .p_max = (float)certainty, .entropy = (float)(1 - certainty) };
    const int64_t all = t->n;

    t->n = n;
    reason_trace_ask(t, true, cost - 1, 0);
    reason_trace_place(t, &s, 1);
    t->place[t->n_place - 1].right = right;
    t->thought[n - 1].reasoning = true;
    t->n = all;
}

static double number_in(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static int64_t whole_in(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static struct reason_total try_half(const struct text *text, const struct reason_trace *t, size_t n, size_t from,
                                    double threshold)
{
    struct reason_opts o = reason_defaults();
    struct reason_total all = { 0 };

    o.rule = REASON_RULE_CGR;
    o.threshold = (float)threshold;
    for (size_t i = from; i < n; i += 2) {
        const struct reason_stop stop = reason_replay(&t[i], text, &o, N_VOCAB);

        reason_total_add(&all, &stop);
    }
    return all;
}

static void check_total(const struct reason_total *t, const json_t *want)
{
    const struct eval_interval ci = eval_wilson(t->right, t->n, 1.959963984540054);
    const json_t *interval = json_object_get(want, "interval");

    assert_int_equal(t->n, whole_in(want, "n"));
    assert_int_equal(t->right, whole_in(want, "right"));
    assert_true(fabs((double)t->tokens / (double)t->n - number_in(want, "tokens")) < 1e-9);
    assert_true(fabs((double)t->rows / (double)t->n - number_in(want, "probe_tokens")) < 1e-9);
    assert_true(fabs(ci.lo - json_number_value(json_array_get(interval, 0))) < 1e-6);
    assert_true(fabs(ci.hi - json_number_value(json_array_get(interval, 1))) < 1e-6);
}

static void frontier(void **state)
{
    const struct opened *o = *state;
    const char *goldens = getenv("GOLDENS");
    char path[4096];
    json_t *all, *item, *one, *thresholds;
    struct reason_trace *t;
    struct reason_total pick[TOKENS_MAX];
    size_t i, k, n;
    int got;

    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/reason/frontier.json", goldens);
    all = json_load_file(path, 0, NULL);
    assert_non_null(all);
    n = json_array_size(json_object_get(all, "items"));
    t = calloc(n, sizeof *t);
    assert_true(n > 0 && t != NULL);
    json_array_foreach (json_object_get(all, "items"), i, item) {
        make_trace(&t[i], whole_in(item, "tokens"), json_is_true(json_object_get(item, "right")));
        json_array_foreach (json_object_get(item, "probes"), k, one)
            add_place(&t[i], whole_in(one, "tokens"), number_in(one, "certainty"), (int)whole_in(one, "cost"),
                      json_is_true(json_object_get(one, "right")));
    }
    thresholds = json_object_get(all, "thresholds");
    json_array_foreach (thresholds, i, one) {
        pick[i] = try_half(o->text, t, n, 0, json_number_value(one));
        check_total(&pick[i], json_array_get(json_object_get(all, "table_chosen"), i));
        const struct reason_total report = try_half(o->text, t, n, 1, json_number_value(one));
        check_total(&report, json_array_get(json_object_get(all, "table_reported"), i));
    }
    got = reason_pick(pick, (int)i, whole_in(all, "right_without_rule"));
    assert_true(got >= 0);
    assert_true(fabs(json_number_value(json_array_get(thresholds, (size_t)got)) - number_in(all, "picked")) < 1e-9);
    for (i = 0; i < n; i++)
        reason_trace_free(&t[i]);
    free(t);
    json_decref(all);
}

static struct reason_stop budget(const struct reason_trace *t, const struct text *text, int64_t tokens, int64_t grace)
{
    struct reason_opts o = reason_defaults();

    o.budget_tokens = tokens;
    o.grace_tokens = grace;
    return reason_replay(t, text, &o, N_VOCAB);
}

/* A thought of 20 tokens with lines that end at 5, 10 and 15, and a place in a line at 12. */
static void small_trace(struct reason_trace *t)
{
    make_trace(t, 20, true);
    add_place(t, 5, 0.9, 4, false);
    add_place(t, 10, 0.6, 4, true);
    add_place(t, 12, 0.8, 4, false);
    t->thought[11].reasoning = t->place[2].sentence = false;
    add_place(t, 15, 0.8, 4, true);
}

static void stops(void **state)
{
    const struct text *text = ((const struct opened *)*state)->text;
    struct reason_opts o = reason_defaults();
    struct reason_trace t;
    struct reason_stop s;

    small_trace(&t);
    s = budget(&t, text, 4, 0); /* at the first place behind it */
    assert_true(s.place == 0 && s.tokens == 5 && !s.right && s.rows == 0);
    s = budget(&t, text, 6, 6); /* waits for the end of a line */
    assert_true(s.place == 1 && s.tokens == 10 && s.right);
    s = budget(&t, text, 11, 1); /* the grace is over within a line */
    assert_true(s.place == 2 && s.tokens == 12 && !s.right);
    s = budget(&t, text, 16, 0);
    assert_true(s.place == -1 && s.tokens == 20 && s.right);
    s = reason_oracle(&t, &o); /* within the line the answer is wrong, but a rule does not ask there */
    assert_true(s.place == 1 && s.tokens == 10 && s.right);
    o.every_tokens = 4;
    s = reason_oracle(&t, &o);
    assert_true(s.place == 3 && s.tokens == 15 && s.right);
    o.every_tokens = 0;
    o.rule = REASON_RULE_CGR;
    o.threshold = 0.7F;
    s = reason_replay(&t, text, &o, N_VOCAB);
    assert_true(s.place == 0 && s.probes == 1 && s.rows == 4 && !s.right);
    o.after_tokens = 6;
    s = reason_replay(&t, text, &o, N_VOCAB); /* the place within the line is not asked at */
    assert_true(s.place == 3 && s.probes == 2 && s.rows == 8 && s.right);
    o.every_tokens = 4;
    s = reason_replay(&t, text, &o, N_VOCAB); /* it is now, and an eighth of 12 tokens is waited for a line's end */
    assert_true(s.place == 3 && s.tokens == 15 && s.probes == 2);
    o.rule = REASON_RULE_SAME;
    o.threshold = 2;
    o.every_tokens = o.after_tokens = 0;
    s = reason_replay(&t, text, &o, N_VOCAB);
    assert_true(s.place == 1 && s.probes == 2);
    o.rule = REASON_RULE_ABF;
    o.threshold = 0.1F;
    s = reason_replay(&t, text, &o, N_VOCAB); /* its window is longer than the thought */
    assert_true(s.place == -1 && s.probes == 0);
    t.right = false;
    s = reason_oracle(&t, &o);
    assert_true(s.place == -1 && s.tokens == 20 && !s.right);
    reason_trace_free(&t);
}

static void picks(void **state)
{
    const struct reason_total of[] = { { 10, 8, 50, 0 }, { 10, 9, 60, 20 }, { 10, 9, 70, 10 }, { 10, 10, 90, 9 } };

    (void)state;
    assert_int_equal(reason_pick(of, 4, 0), 0);
    assert_int_equal(reason_pick(of, 4, 9), 2); /* of equal ones the last */
    assert_int_equal(reason_pick(of, 4, 10), 3);
    assert_int_equal(reason_pick(of, 4, 11), -1);
}

/* A trace comes back from a file as it was; what is none is refused. */
static void file(void **state)
{
    static const char *const wrong[] = {
        "{}",
        "{\"thought\":[1],\"places\":[]}",
        "{\"thought\":[0,2,0],\"places\":[]}",
        "{\"thought\":[2,1,0],\"places\":[]}",
        "{\"thought\":[0,1,-1],\"places\":[]}",
        "{\"thought\":[0,1,0],\"places\":1}",
        "{\"thought\":[0,1,0],\"places\":[1]}",
        "{\"thought\":[0,1,0],\"places\":[{\"n\":2,\"closing\":1,\"forced\":1,\"answer\":[]}]}",
        "{\"thought\":[0,1,0],\"places\":[{\"n\":1,\"closing\":1,\"forced\":2,\"answer\":[]}]}",
        "{\"thought\":[0,1,0],\"places\":[{\"n\":1,\"closing\":1000,\"forced\":1,\"answer\":[]}]}",
        "{\"thought\":[0,1,0],\"places\":[{\"n\":1,\"closing\":1,\"forced\":1,\"answer\":[9999,1,0]}]}",
        "{\"thought\":[0,1,0],\"places\":[{\"n\":1,\"closing\":1,\"answer\":[]},{\"n\":1,\"closing\":1,\"answer\":[]}]"
        "}",
    };
    struct reason_trace t, back = { 0 };
    json_t *o = json_object();
    struct err e;

    (void)state;
    small_trace(&t);
    assert_true(reason_trace_set(o, &t));
    assert_int_equal(reason_trace_read(&back, o, N_VOCAB, &e), ERR_OK);
    assert_true(back.n == t.n && back.n_place == t.n_place);
    for (int64_t i = 0; i < t.n; i++)
        assert_true(back.thought[i].reasoning == t.thought[i].reasoning &&
                    fabsf(back.thought[i].p_max - t.thought[i].p_max) < 1e-6F);
    for (int64_t i = 0; i < t.n_place; i++) {
        const struct reason_place *a = &t.place[i], *b = &back.place[i];

        assert_true(a->n == b->n && a->sentence == b->sentence && a->closing == b->closing && a->forced == b->forced &&
                    a->right == b->right && a->n_trial == b->n_trial && a->trial[0].token == b->trial[0].token);
    }
    json_decref(o);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = json_loads(wrong[i], 0, NULL);
        assert_non_null(o);
        if (reason_trace_read(&back, o, N_VOCAB, &e) != ERR_FORMAT)
            fail_msg("%s", wrong[i]);
        assert_true(back.n == 0 && back.n_place == 0);
        json_decref(o);
    }
    reason_trace_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frontier),
        cmocka_unit_test(stops),
        cmocka_unit_test(picks),
        cmocka_unit_test(file),
    };

    return cmocka_run_group_tests(tests, open_text, close_text);
}
