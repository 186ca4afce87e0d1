/* SPDX-License-Identifier: Apache-2.0 */
/* eval_test.c - statistics against published values, windows and perplexity against plain
 * evaluation, grading case by case, answers side by side against answers one by one, shapes that
 * open. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "eval/eval.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "quant/quant.h"
#include "run/run.h"
#include "shape/shape.h"
#include "shape/internal.h"

#define TINY "tests/golden/models/qwen35moe-k.iq3_s.gguf" /* 512 tokens, random weights */

static void near(double got, double want, double within)
{
    if (!(fabs(got - want) <= within))
        fail_msg("%.9g is not within %g of %.9g", got, within, want);
}

/* ---- statistics ---- */

static void test_wilson(void **state)
{
    (void)state;
    /* Newcombe 1998, table I: 81 of 263 and 15 of 148 */
    struct eval_interval a = eval_wilson(81, 263, 1.959964), b = eval_wilson(15, 148, 1.959964);

    near(a.lo, 0.2553, 5e-5);
    near(a.hi, 0.3662, 5e-5);
    near(b.lo, 0.0624, 5e-5);
    near(b.hi, 0.1605, 5e-5);
    a = eval_wilson(0, 20, 1.959964);
    near(a.lo, 0, 0);
    near(a.hi, 0.1611, 5e-5);
    b = eval_wilson(20, 20, 1.959964);
    near(b.lo, 1 - 0.1611, 5e-5);
    near(b.hi, 1, 0);
    a = eval_wilson(0, 0, 1.96);
    near(a.hi - a.lo, 1, 0);
}

static void test_paired(void **state)
{
    struct eval_interval ci = eval_paired(1, 1, 7, 21, 1.959964);

    (void)state;
    near(ci.lo, -0.507, 5e-4); /* two of 21 and eight of 21, one in both (Fagerland et al. 2014) */
    near(ci.hi, -0.026, 5e-4);
    ci = eval_paired(250, 0, 0, 250, 1.959964); /* none differs: the bound is that of one proportion */
    near(ci.hi, 1 - eval_wilson(250, 250, 1.959964).lo, 1e-12);
    near(ci.lo, -ci.hi, 1e-12);
    ci = eval_paired(0, 0, 0, 0, 1.959964);
    assert_true(ci.lo <= -1 && ci.hi >= 1);
}

static void test_mcnemar(void **state)
{
    (void)state;
    near(eval_mcnemar(0, 0), 1, 0);
    near(eval_mcnemar(5, 5), 1, 0);
    near(eval_mcnemar(0, 5), 2.0 / 32, 1e-12);
    near(eval_mcnemar(2, 8), 2.0 * (1 + 10 + 45) / 1024, 1e-12);
    near(eval_mcnemar(8, 2), eval_mcnemar(2, 8), 1e-15);
    near(eval_mcnemar(1, 1), 1, 0);
}

static void test_group_mean(void **state)
{
    static const double sum[] = { 2, 4, 6 }, one[] = { 5 };
    static const int64_t n[] = { 2, 2, 2 }, n_one[] = { 2 }, uneven[] = { 1, 2, 3 };

    (void)state;
    struct eval_mean m = eval_group_mean(sum, n, 3);
    near(m.mean, 2, 1e-15);
    near(m.se, sqrt(8.0 * 3 / 2) / 6, 1e-15); /* as the standard error of the means 1, 2, 3: 1 / sqrt(3) */
    near(m.se, 1 / sqrt(3), 1e-15);
    m = eval_group_mean(one, n_one, 1);
    near(m.mean, 2.5, 1e-15);
    near(m.se, 0, 0);
    m = eval_group_mean(sum, uneven, 3); /* all groups have mean 2 */
    near(m.mean, 2, 1e-15);
    near(m.se, 0, 1e-15);
    m = eval_group_mean(sum, n, 0);
    near(m.mean, 0, 0);
}

static void test_quantiles(void **state)
{
    double v[] = { 3, 1, 4, 1, 5 };

    (void)state;
    eval_sort(v, 5);
    near(eval_quantile(v, 5, 0), 1, 0);
    near(eval_quantile(v, 5, 0.5), 3, 0);
    near(eval_quantile(v, 5, 0.875), 4.5, 1e-15);
    near(eval_quantile(v, 5, 1), 5, 0);
    near(eval_quantile(v, 1, 0.3), 1, 0);
}

static void test_bootstrap(void **state)
{
    struct eval_interval a, b;
    struct err e;
    double v[100];

    (void)state;
    for (int i = 0; i < 100; i++)
        v[i] = i < 50;
    assert_int_equal(eval_bootstrap(&a, v, 100, 10000, 1, &e), ERR_OK);
    near(a.lo, 0.4, 0.015); /* binomial(100, 1/2): 40 and 60 are its 2.5 % points */
    near(a.hi, 0.6, 0.015);
    assert_int_equal(eval_bootstrap(&b, v, 100, 10000, 1, &e), ERR_OK);
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(eval_bootstrap(&b, v, 0, 10, 1, &e), ERR_ARG);
}

/* ---- logits ---- */

static void test_logprob_and_kl(void **state)
{
    static const float uniform[] = { 1, 1, 1, 1 }, shifted[] = { 7, 7, 7, 7 };
    const float p[] = { logf(0.5f), logf(0.25f), logf(0.25f) }, q[] = { logf(0.25f), logf(0.5f), logf(0.25f) };
    static const float extreme[] = { 80, -80, 0 };

    (void)state;
    near(eval_logprob(uniform, 4, 2), log(0.25), 1e-7);
    near(eval_logprob(p, 3, 0), log(0.5), 1e-6);
    near(eval_logprob(extreme, 3, 1), -160, 1e-5);
    struct eval_kl k = eval_kl(uniform, shifted, 4, 0);
    near((double)k.kl, 0, 1e-7);
    assert_true(k.same_top);
    k = eval_kl(p, q, 3, 1);
    near((double)k.kl, 0.5 * log(2) + 0.25 * log(0.5), 1e-6);
    near((double)k.logprob, log(0.5), 1e-6);
    near((double)k.ref_logprob, log(0.25), 1e-6);
    assert_false(k.same_top);
}

static void test_packed_logits(void **state)
{
    static const float x[] = { 3.0f, 2.9f, -5.25f, -28.9f, -100.0f };
    uint16_t packed[5];
    float back[5];

    (void)state;
    eval_pack_logits(packed, x, 5);
    eval_unpack_logits(back, packed, 5);
    for (int i = 0; i < 4; i++)
        near((double)back[i], (double)(x[i] - x[0]), 1.0 / 4096 + 1e-6);
    near((double)back[4], -32, 1e-3);
}

static void test_ppl_sums(void **state)
{
    double sum[2] = { 0, 0 };
    int64_t n[2] = { 0, 0 };
    struct eval_ppl p = { .win_sum = sum, .win_n = n };

    (void)state;
    eval_ppl_add(&p, 0, log(0.5));
    eval_ppl_add(&p, 0, log(0.5));
    eval_ppl_add(&p, 1, log(0.125));
    eval_ppl_add(&p, 1, log(0.125));
    struct eval_mean m = eval_ppl_tokens(&p); /* -log2 p: 1 1 3 3, mean 2 */
    near(m.mean, 4, 1e-12);
    near(m.se, 4 * log(2) / sqrt(3), 1e-12);
    near(sum[1], 6 * log(2), 1e-12);
    assert_int_equal(n[0], 2);
}

/* ---- a model ---- */

struct open_model {
    struct gguf *g;
    struct model *m;
    struct run *r;
};

static void open_tiny(struct open_model *o, int64_t ctx, int n_seq, int rows)
{
    struct err e = { 0 };

    if (gguf_open(&o->g, TINY, &e) || model_open(&o->m, o->g, &(struct model_opts){ .n_threads = 2 }, &e) ||
        run_open(&o->r, o->m, &(struct run_opts){ .ctx_tokens = ctx, .n_seq = n_seq, .rows_max = rows }, &e))
        fail_msg("%s", e.msg);
}

static void close_tiny(struct open_model *o)
{
    run_close(o->r);
    model_close(o->m);
    gguf_close(o->g);
}

struct seen {
    int64_t window[400];
    int32_t token[400];
    double logprob[400];
    int n;
};

static enum err_code note(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct seen *s = ctx;

    (void)e;
    assert_true(s->n < 400);
    s->window[s->n] = window;
    s->token[s->n] = token;
    s->logprob[s->n++] = eval_logprob(logits, 512, token);
    return ERR_OK;
}

/* ln p of token[to] after tokens from .. to - 1, the first replaced by bos if that is not negative.
 */
static double plain(struct run *r, const int32_t *token, int from, int to, int32_t bos)
{
    struct err e;

    run_clear(r, 0);
    for (int i = from; i < to; i++) {
        struct run_row row = { i == from && bos >= 0 ? bos : token[i], 0, i + 1 == to, false };

        assert_int_equal(run_step(r, &row, 1, &e), ERR_OK);
    }
    return eval_logprob(run_logits_last(r), 512, token[to]);
}

static void fill(int32_t *v, int n)
{
    for (int i = 0; i < n; i++)
        v[i] = (i * 37 + i * i % 11) % 512;
}

static void test_windows_of_halves(void **state)
{
    int32_t v[70];
    struct eval_tokens text = { v, 70 };
    struct eval_window_opts w = { .ctx_tokens = 16, .bos = -1 };
    struct open_model o;
    struct seen s = { .n = 0 };
    struct err e;

    (void)state;
    fill(v, 70);
    open_tiny(&o, 64, 1, 5);
    assert_int_equal(eval_window_count(&text, 1, &w), 4);
    assert_int_equal(eval_scored_count(&text, 1, &w), 4 * 7);
    assert_int_equal(eval_windows(o.r, &text, 1, &w, note, &s, NULL, &e), ERR_OK);
    assert_int_equal(s.n, 4 * 7); /* positions 9 .. 15 of each */
    for (int i = 0; i < s.n; i++) {
        int at = i / 7 * 16 + 9 + i % 7;

        assert_int_equal(s.window[i], i / 7);
        assert_int_equal(s.token[i], v[at]);
        near(s.logprob[i], plain(o.r, v, i / 7 * 16, at, -1), 1e-6);
    }
    w.bos = 3;
    w.windows_first = 2;
    w.windows_max = 1;
    s.n = 0;
    assert_int_equal(eval_windows(o.r, &text, 1, &w, note, &s, NULL, &e), ERR_OK);
    assert_int_equal(s.n, 7);
    assert_int_equal(s.window[0], 2);
    near(s.logprob[0], plain(o.r, v, 32, 32 + 9, 3), 1e-6);
    text.n = 15;
    assert_int_equal(eval_windows(o.r, &text, 1, &w, note, &s, NULL, &e), ERR_ARG);
    close_tiny(&o);
}

static void test_sliding_windows(void **state)
{
    int32_t v[45];
    struct eval_tokens text[2] = { { v, 45 }, { v + 5, 10 } };
    struct eval_window_opts w = { .ctx_tokens = 16, .stride_tokens = 6, .bos = -1 };
    struct open_model o;
    struct seen s = { .n = 0 };
    struct err e;

    (void)state;
    fill(v, 45);
    open_tiny(&o, 16, 1, 32);
    assert_int_equal(eval_windows(o.r, text, 2, &w, note, &s, NULL, &e), ERR_OK);
    assert_int_equal(s.n, 44 + 9); /* every token but the first of each text, once */
    assert_int_equal(s.n, eval_scored_count(text, 2, &w));
    for (int i = 0; i < 44; i++) {
        int at = i + 1, from = at < 16 ? 0 : (at - 16) / 6 * 6 + 6;

        assert_int_equal(s.token[i], v[at]);
        near(s.logprob[i], plain(o.r, v, from, at, -1), 1e-6);
    }
    assert_int_equal(s.window[44], s.window[43] + 1);
    assert_int_equal(s.token[44], v[6]);
    w.stride_tokens = 16; /* side by side: 45 are 16, 16 and 13, without the first of each */
    s.n = 0;
    assert_int_equal(eval_windows(o.r, text, 2, &w, note, &s, NULL, &e), ERR_OK);
    assert_int_equal(s.n, 15 + 15 + 12 + 9);
    assert_int_equal(s.n, eval_scored_count(text, 2, &w));
    assert_int_equal(s.token[15], v[17]);
    near(s.logprob[15], plain(o.r, v, 16, 17, -1), 1e-6);
    text[0].n = 33; /* a last window of one token has nothing to score */
    assert_int_equal(eval_scored_count(text, 1, &w), 30);
    assert_int_equal(eval_window_count(text, 1, &w), 2);
    w.stride_tokens = 17;
    assert_int_equal(eval_windows(o.r, text, 2, &w, note, &s, NULL, &e), ERR_ARG);
    close_tiny(&o);
}

/* ---- grading ---- */

static bool grade(const char *item, const char *text)
{
    json_t *o;
    bool right = false;
    struct err e = { 0 };

    if (json_parse(&o, str_of(item), "item", &e) || eval_task_check(o, &e) || eval_grade(o, str_of(text), &right, &e))
        fail_msg("%s: %s", item, e.msg);
    json_decref(o);
    return right;
}

static bool grade_answer(const char *item, const char *answer)
{
    json_t *o, *a;
    bool right = false;
    struct err e = { 0 };

    if (json_parse(&o, str_of(item), "item", &e) || json_parse(&a, str_of(answer), "answer", &e) ||
        eval_grade_answer(o, a, &right, &e))
        fail_msg("%s: %s", item, e.msg);
    json_decref(o);
    json_decref(a);
    return right;
}

static void refuse(const char *item, const char *why)
{
    json_t *o;
    struct err e = { 0 };

    assert_int_equal(json_parse(&o, str_of(item), "item", &e), ERR_OK);
    assert_int_equal(eval_task_check(o, &e), ERR_FORMAT);
    if (strstr(e.msg, why) == NULL)
        fail_msg("'%s' does not say '%s'", e.msg, why);
    json_decref(o);
}

#define ITEM(rest) "{\"id\": \"x\", \"messages\": [], " rest "}"

static void test_grade_recorded_answers(void **state)
{
    const char *think = ITEM("\"check\": \"exact\", \"answer\": \"41 16\", \"enable_thinking\": true");
    const char *call = ITEM("\"check\": \"tool_call\", \"answer\": "
                            "[{\"name\": \"f\", \"arguments\": {\"x\": 2, \"y\": [\"a\"]}}]");

    (void)state;
    assert_true(grade_answer(think, "\"41 16\\n\""));
    assert_true(grade_answer(think, "\"41 17</think>no</think>\\n\\n41 16\""));
    assert_false(grade_answer(think, "\"41 16</think>41 17\""));
    assert_false(grade_answer(think, "[]"));
    assert_true(grade_answer(call, "[{\"name\": \"f\", \"arguments\": {\"y\": [\"a\"], \"x\": 2.0}}]"));
    assert_true(grade_answer(call, "\"<tool_call>\\n<function=f>\\n<parameter=x>\\n2\\n</parameter>\\n<parameter=y>\\n"
                                   "[\\\"a\\\"]\\n</parameter>\\n</function>\\n</tool_call>\""));
    assert_false(grade_answer(call, "[{\"name\": \"g\", \"arguments\": {\"y\": [\"a\"], \"x\": 2}}]"));
    assert_false(grade_answer(call, "[{\"name\": \"f\", \"arguments\": {\"y\": [\"b\"], \"x\": 2}}]"));
    assert_false(grade_answer(call, "[{\"name\": \"f\", \"arguments\": {\"x\": 2}}]"));
    assert_false(grade_answer(call, "[{\"name\": \"f\", \"arguments\": {\"y\": [\"a\"], \"x\": 2, \"z\": 1}}]"));
    assert_false(grade_answer(call, "[{\"name\": \"f\"}, 3]"));
    assert_false(grade_answer(call, "[]"));
}

static void test_grade_exact(void **state)
{
    const char *direct = ITEM("\"check\": \"exact\", \"answer\": \"41 16\", \"enable_thinking\": false");
    const char *think = ITEM("\"check\": \"exact\", \"answer\": \"41 16\", \"enable_thinking\": true");

    (void)state;
    assert_true(grade(direct, " 41 16\n"));
    assert_false(grade(direct, "41  16"));
    assert_false(grade(direct, "so: 41 16"));
    assert_true(grade(think, "a is 41\n</think>\n\n41 16"));
    assert_false(grade(think, "41 16")); /* the block was never closed */
    assert_false(grade(think, "41 16</think>\n\n41"));
    assert_true(grade(think, "x</think>y</think>41 16"));
}

static void test_grade_numbers(void **state)
{
    const char *item = ITEM("\"check\": \"numeric\", \"answer\": 1234.5");
    const char *loose = ITEM("\"check\": \"numeric\", \"answer\": \"about -3\", \"tolerance\": 0.01");

    (void)state;
    assert_true(grade(item, "1234.5"));
    assert_true(grade(item, "First 7, then 1,234.5."));
    assert_true(grade(item, "1.2345e3"));
    assert_false(grade(item, "1234.5 or 8"));
    assert_false(grade(item, "none"));
    assert_false(grade(item, "x1234.5"));
    assert_true(grade(loose, "it is -2.995"));
    assert_false(grade(loose, "it is -2.9"));
}

static void test_grade_others(void **state)
{
    const char *regex = ITEM("\"check\": \"regex\", \"answer\": \"^(yes|no), \\\\d+$\"");
    const char *verdict = ITEM("\"check\": \"verdict\", \"answer\": \"No\"");

    (void)state;
    assert_true(grade(regex, "no, 12\n"));
    assert_false(grade(regex, "no, twelve"));
    assert_true(grade(verdict, "Step 1: correct\nIs it? no."));
    assert_true(grade(verdict, "The solution is incorrect"));
    assert_false(grade(verdict, "not known: notation"));
    assert_false(grade(verdict, "No... Yes"));
}

static void test_grade_calls(void **state)
{
    const char *item = ITEM("\"check\": \"tool_call\", \"answer\": [{\"name\": \"add\", \"arguments\": "
                            "{\"a\": 3, \"who\": \"Ann Lee\", \"on\": true, \"list\": [1, 2]}}]");
    const char *none = ITEM("\"check\": \"tool_call\", \"answer\": []");
    char text[400];
    static const char *const form = "%s<tool_call>\n<function=%s>\n<parameter=who>\n%s\n</parameter>\n"
                                    "<parameter=a>\n%s\n</parameter>\n<parameter=on>\nTrue\n</parameter>\n"
                                    "<parameter=list>\n[1, 2]\n</parameter>\n</function>\n</tool_call>%s";
    static const struct {
        const char *before, *name, *who, *a, *after;
        bool right;
    } cases[] = {
        { "", "add", "Ann Lee", "3", "", true },       { "", "add", "Ann Lee", "3.0", "\n", true },
        { "", "add", "Ann", "3", "", false },          { "", "sub", "Ann Lee", "3", "", false },
        { "", "add", "Ann Lee", "4", "", false },      { "Sure. ", "add", "Ann Lee", "3", "", false },
        { "", "add", "Ann Lee", "3", " done", false }, { "", "add", "Ann Lee", "three", "", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)snprintf(text, sizeof text, form, cases[i].before, cases[i].name, cases[i].who, cases[i].a,
                       cases[i].after);
        if (grade(item, text) != cases[i].right)
            fail_msg("case %zu", i);
    }
    assert_false(grade(item, ""));
    assert_false(grade(item, "<tool_call>\n<function=add>\n</function>\n</tool_call>"));
    assert_false(grade(item, "<tool_call>\n<function=add>\n<parameter=a>\n3"));
    assert_true(grade(none, " "));
    assert_false(grade(none, "text"));
}

static void test_bad_items(void **state)
{
    (void)state;
    refuse("[]", "not an object");
    refuse("{\"messages\": []}", "no id");
    refuse("{\"id\": \"a\"}", "no messages");
    refuse(ITEM("\"check\": \"guess\", \"answer\": \"\""), "check");
    refuse(ITEM("\"check\": \"exact\", \"answer\": 3"), "not a text");
    refuse(ITEM("\"check\": \"numeric\", \"answer\": \"three\""), "not a number");
    refuse(ITEM("\"check\": \"numeric\", \"answer\": \"1e400\""), "not a number");
    refuse(ITEM("\"check\": \"numeric\", \"answer\": 3, \"tolerance\": -1"), "tolerance");
    refuse(ITEM("\"check\": \"numeric\", \"answer\": 3, \"tolerance\": \"1\""), "tolerance");
    refuse(ITEM("\"check\": \"regex\", \"answer\": \"(\""), "regular expression");
    refuse(ITEM("\"check\": \"verdict\", \"answer\": \"maybe\""), "not a verdict");
    refuse(ITEM("\"check\": \"tool_call\", \"answer\": [{\"name\": \"x\"}]"), "call 0");
    refuse(ITEM("\"check\": \"tool_call\", \"answer\": \"x\""), "not an array");
}

/* ---- shapes and what a step moves ---- */

static void test_classes(void **state)
{
    static const struct {
        const char *name;
        enum model_class c;
    } cases[] = {
        { "token_embd.weight", MODEL_EMBEDDING },
        { "output.weight", MODEL_OUTPUT },
        { "output_norm.weight", MODEL_OTHER },
        { "blk.3.attn_q.weight", MODEL_ATTENTION },
        { "blk.3.attn_q_norm.weight", MODEL_OTHER },
        { "blk.0.attn_qkv.weight", MODEL_RECURRENT },
        { "blk.0.ssm_out.weight", MODEL_RECURRENT },
        { "blk.12.ffn_up_exps.weight", MODEL_EXPERTS },
        { "blk.1.ffn_up_shexp.weight", MODEL_SHARED },
        { "blk.1.ffn_gate_inp.weight", MODEL_ROUTER },
        { "blk.1.ffn_gate_inp_shexp.weight", MODEL_ROUTER },
        { "blk.1.ffn_down.weight", MODEL_DENSE },
        { "blk.40.attn_q.weight", MODEL_MTP },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(model_class_of(str_of(cases[i].name), 40), cases[i].c);
}

static void test_step_bytes(void **state)
{
    struct eval_traffic t = { .row_bytes = 10, .n_expert = 256, .n_used = 8, .state_bytes = 100, .kv_floats = 4 };

    (void)state;
    t.weight_bytes[MODEL_EXPERTS] = 256;
    t.weight_bytes[MODEL_ATTENTION] = 50;
    t.weight_bytes[MODEL_EMBEDDING] = 1000;
    near(eval_step_bytes(&t, MODEL_EXPERTS, 1), 8, 1e-12);
    near(eval_step_bytes(&t, MODEL_EXPERTS, 16), 102, 0.1);
    near(eval_step_bytes(&t, MODEL_ATTENTION, 16), 50, 0);
    near(eval_step_bytes(&t, MODEL_EMBEDDING, 3), 30, 0);
    near(eval_step_bytes(&t, MODEL_OUTPUT, 1), 0, 0);
    t.tied = true;
    near(eval_step_bytes(&t, MODEL_OUTPUT, 1), 1000, 0);
    near(eval_memory_bytes(&t, 9, 2), 80 + 200, 0);
}

/* Every shape, cut down, opens as a model and gives finite logits. */
static void test_shapes_run(void **state)
{
    const char *name;
    char dir[] = "/tmp/eval_test-XXXXXX", path[64], spec[128];

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (size_t i = 0; (name = shape_name_at(i)) != NULL; i++) {
        const char *less = strstr(name, "flash-next")                       ? ",experts=16,table=500"
                           : strstr(name, "super") || strstr(name, "ling")  ? ",experts=32"
                           : strstr(name, "a3b") || strstr(name, "granite") ? ",experts=10"
                                                                            : "";
        struct open_model o = { 0 };
        struct eval_traffic full, holes;
        struct run_row row = { 5, 0, true, false };
        struct shape *s;
        struct err e = { 0 };

        if (strstr(name, "27b") != NULL || strstr(name, "4b") != NULL || strstr(name, "small") != NULL)
            continue; /* families that others stand for, and large */
        (void)snprintf(spec, sizeof spec, "%s,layers=%d,vocab=64%s", name, strstr(name, "nemotron") ? 7 : 4, less);
        if (shape_open(&s, spec, strstr(name, "qwen3.6") ? "ramp" : "q4_k_m", &e) || shape_write_holes(s, path, &e) ||
            gguf_open(&o.g, path, &e) || eval_traffic(&holes, o.g, &e))
            fail_msg("%s: %s", spec, e.msg);
        gguf_close(o.g);
        if (shape_write(s, path, 1, NULL, &e) || gguf_open(&o.g, path, &e) || eval_traffic(&full, o.g, &e) ||
            model_open(&o.m, o.g, &(struct model_opts){ .n_threads = 2 }, &e) ||
            run_open(&o.r, o.m, &(struct run_opts){ .ctx_tokens = 8, .rows_max = 1 }, &e) || run_step(o.r, &row, 1, &e))
            fail_msg("%s: %s", spec, e.msg);
        for (int j = 0; j < 64; j++)
            assert_true(isfinite(run_logits(o.r, 0)[j]));
        assert_memory_equal(&full, &holes, sizeof full);
        assert_int_equal(model_info(o.m)->weight_bytes, shape_bytes(s));
        close_tiny(&o);
        shape_close(s);
    }
    unlink(path);
    rmdir(dir);
}

static void test_shape_sizes(void **state)
{
    struct shape *s;
    struct err e;
    int64_t n = 0;

    (void)state;
    assert_int_equal(shape_open(&s, "qwen3.6-35b-a3b", "q4k", &e), ERR_OK);
    for (size_t i = 0; i < s->n; i++) {
        const struct shape_tensor *t = &s->tensor[i];

        n += t->ne[0] * t->ne[1] * t->ne[2];
    }
    assert_int_equal(n / 1000000, 34660);              /* as published: 34.66 G */
    assert_int_equal(shape_bytes(s) / 100000000, 195); /* 19.5 GB in Q4_K */
    shape_close(s);
    assert_int_equal(shape_open(&s, "qwen9", "q4k", &e), ERR_ARG);
    assert_int_equal(shape_open(&s, "qwen3.6-35b-a3b,experts=7", "q4k", &e), ERR_ARG);
    assert_int_equal(shape_open(&s, "qwen3.5-0.8b,experts=8", "q4k", &e), ERR_ARG);
    assert_int_equal(shape_open(&s, "qwen3.5-0.8b,layers=0", "q4k", &e), ERR_ARG);
    assert_int_equal(shape_open(&s, "qwen3.5-0.8b,layers=2x", "q4k", &e), ERR_ARG);
    assert_int_equal(shape_open(&s, "qwen3.5-0.8b", "q99", &e), ERR_ARG);
}

/* Random blocks have the size that was asked for, whatever the type. */
static void test_fill_types(void **state)
{
    char dir[] = "/tmp/eval_test-XXXXXX", path[64];

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/m.gguf", dir);
    for (int type = 0; type < QUANT_N; type++) {
        const struct gguf_tensor *t;
        struct gguf *g;
        struct shape *s;
        struct err e;
        double sum = 0, square = 0;
        float x[2048];

        if (type == QUANT_f32 || shape_open(&s, "falcon-h1-1.5b,layers=1,vocab=256", quant_types[type]->name, &e))
            continue;
        if (shape_write(s, path, 3, NULL, &e) || gguf_open(&g, path, &e))
            fail_msg("%s: %s", quant_types[type]->name, e.msg);
        t = gguf_find(g, "token_embd.weight");
        for (int r = 0; r < 256; r++) {
            quant_types[type]->decode(x, (const unsigned char *)t->data + r * quant_row_bytes(type, 2048), 2048);
            for (int j = 0; j < 2048; j++) {
                sum += (double)x[j];
                square += (double)x[j] * (double)x[j];
            }
        }
        near(sqrt(square / (256 * 2048)) * sqrt(2048), 1, 0.1);
        near(sum / (256 * 2048) * sqrt(2048), 0, 0.15);
        gguf_close(g);
        shape_close(s);
    }
    unlink(path);
    rmdir(dir);
}

static void test_area(void **state)
{
    const double score[] = { 0.9, 0.9, 0.1, 0.8 };
    const bool right[] = { true, false, false, true }, all[] = { true, true, true, true };
    const char *goldens = getenv("GOLDENS");
    struct eval_mean a;
    struct err e;
    char path[4096];
    json_t *file, *one, *v;
    size_t i, k;

    (void)state;
    assert_int_equal(eval_auc(&a, score, right, 4, &e), ERR_OK);
    assert_true(fabs(a.mean - 0.625) < 1e-12);
    assert_int_equal(eval_auc(&a, score, all, 4, &e), ERR_OK);
    assert_true(isnan(a.mean));
    if (goldens == NULL || *goldens == '\0')
        return;
    (void)snprintf(path, sizeof path, "%s/reason/isotonic.json", goldens);
    file = json_load_file(path, 0, NULL);
    assert_non_null(file);
    json_array_foreach (json_object_get(file, "cases"), i, one) {
        const json_t *scores = json_object_get(one, "score"), *labels = json_object_get(one, "label");
        const json_t *want = json_object_get(one, "auc"), *se = json_object_get(one, "auc_se");
        double *x = calloc(json_array_size(scores) + 1, sizeof *x);
        bool *is = calloc(json_array_size(scores) + 1, sizeof *is);

        assert_true(x != NULL && is != NULL);
        json_array_foreach (scores, k, v) {
            x[k] = json_number_value(v);
            is[k] = json_number_value(json_array_get(labels, k)) > 0;
        }
        assert_int_equal(eval_auc(&a, x, is, (int64_t)k, &e), ERR_OK);
        if (json_is_number(want)) {
            assert_true(fabs(a.mean - json_number_value(want)) < 1e-9);
            assert_true(fabs(a.se - json_number_value(se)) < 1e-9);
        } else {
            assert_true(isnan(a.mean));
        }
        free(x);
        free(is);
    }
    json_decref(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_area),
        cmocka_unit_test(test_wilson),
        cmocka_unit_test(test_mcnemar),
        cmocka_unit_test(test_paired),
        cmocka_unit_test(test_group_mean),
        cmocka_unit_test(test_quantiles),
        cmocka_unit_test(test_bootstrap),
        cmocka_unit_test(test_logprob_and_kl),
        cmocka_unit_test(test_packed_logits),
        cmocka_unit_test(test_ppl_sums),
        cmocka_unit_test(test_windows_of_halves),
        cmocka_unit_test(test_sliding_windows),
        cmocka_unit_test(test_grade_exact),
        cmocka_unit_test(test_grade_recorded_answers),
        cmocka_unit_test(test_grade_numbers),
        cmocka_unit_test(test_grade_others),
        cmocka_unit_test(test_grade_calls),
        cmocka_unit_test(test_bad_items),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_step_bytes),
        cmocka_unit_test(test_shapes_run),
        cmocka_unit_test(test_shape_sizes),
        cmocka_unit_test(test_fill_types),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
