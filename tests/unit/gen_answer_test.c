/* SPDX-License-Identifier: Apache-2.0 */
/* gen_answer_test.c - answers that begin with another's tokens, and end with a step. */
#include "gen_rig.h"
#include "text/text.h"

static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";

/* ---- a governor that says three words behind the fourth token ---- */

static const int32_t words[] = { 40, 41, 42 };

static enum err_code sayer_begin(void **g, const void *opts, const struct gen_start *at, struct gen_order *first,
                                 struct err *e)
{
    (void)opts, (void)at, (void)first;
    *g = calloc(1, sizeof(int));
    return *g != NULL ? ERR_OK : err_nomem(e);
}

static struct gen_order sayer_see(void *g, const struct gen_seen *s)
{
    (void)s;
    if (++*(int *)g != 4)
        return (struct gen_order){ .act = GEN_GO_ON };
    return (struct gen_order){ .act = GEN_SAY, .token = words, .n_token = 3 };
}

static struct gen_needs looker_needs(const void *g)
{
    (void)g;
    return (struct gen_needs){ .looks = true };
}

static const struct gen_governor sayer = { .begin = sayer_begin, .end = free, .see = sayer_see }, looker = {
    .begin = sayer_begin, .end = free, .see = sayer_see, .needs = looker_needs
};

/* ---- an engine ---- */

/* Runs one request to its end. */
static void run_one(struct gen *g, struct gen_request q, struct seen_of *seen)
{
    int64_t id;
    struct err e = { 0 };

    memset(seen, 0, sizeof *seen);
    q.user = seen;
    must(gen_submit(g, &q, &id, &e), &e);
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        take_events(g, seen, &id);
    }
    assert_true(seen->ended);
}

struct bench_of {
    struct rig rig;
    struct gen *g;
    struct ask_for a;
};

static void open_bench(struct bench_of *b)
{
    struct err e = { 0 };

    rig_open(&b->rig, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 2, .rows_max = 32, .draft_max = 4 });
    must(gen_open(&b->g, &(struct gen_opts){ .run = b->rig.r, .end_token = -1 }, &e), &e);
    b->a = (struct ask_for){ .n_prompt = 9, .predict_max = 12, .sample = sample_defaults() };
    for (int i = 0; i < b->a.n_prompt; i++)
        b->a.prompt[i] = 11 * i + 3;
}

static void close_bench(struct bench_of *b)
{
    gen_close(b->g);
    rig_close(&b->rig);
}

/* ---- answers ---- */

/* An answer of one request is that of two, wherever the first one ended. */
static void answers_go_on(void **state)
{
    struct walk_rules rules = { 3, 17, 0 };
    struct bench_of b;
    struct seen_of whole, seen;

    (void)state;
    open_bench(&b);
    rules.n_vocab = b.rig.n_vocab;
    b.a.sample.temp = 1.5f;
    for (int with = 0; with < 3; with++) {
        struct gen_request q;

        b.a.constraint = with == 1 ? &walk : NULL;
        b.a.rules = &rules;
        q = request_of(&b.a);
        q.sample.stream = 7;
        q.governor = with == 2 ? &sayer : NULL;
        run_one(b.g, q, &whole);
        assert_int_equal(whole.n, 12);
        for (int k = 1; k < 12; k++) {
            q.answer = whole.token;
            q.n_answer = k;
            run_one(b.g, q, &seen);
            assert_int_equal(seen.n, 12);
            assert_int_equal(seen.stats.tokens, 12);
            assert_memory_equal(seen.token, whole.token, 12 * sizeof(int32_t));
            assert_int_equal(seen.end, GEN_LENGTH);
        }
    }
    close_bench(&b);
}

static void answers_that_cannot_go_on(void **state)
{
    static const int32_t answer[] = { 1, 2, 3, 4, 40, 42 };
    const struct gen_request plain = gen_defaults();
    struct bench_of b;
    struct gen_request q;
    struct gen_event ev;
    bool failed = false;
    int64_t id;
    struct err e = { 0 };

    (void)state;
    open_bench(&b);
    q = request_of(&b.a);
    q.answer = answer;
    q.n_answer = 6;
    q.governor = &sayer;
    must(gen_submit(b.g, &q, &id, &e), &e);
    must(gen_step(b.g, &e), &e);
    while (gen_next(b.g, &ev))
        failed = failed || (ev.kind == GEN_END && ev.end == GEN_FAILED && ev.err.code == ERR_ARG);
    assert_true(failed && !gen_busy(b.g)); /* its governor says something else */
    q.governor = &looker;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_UNSUPPORTED);
    q.governor = NULL;
    q.predict_max = 6;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_ARG);
    q.predict_max = 12;
    q.n_rows = 1;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_UNSUPPORTED);
    q.n_rows = 0;
    q.second = &plain;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_ARG);
    q.second = NULL;
    q.n_answer = CTX;
    q.predict_max = -1;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_LIMIT);
    q.n_answer = 6;
    q.step_end = STR("x");
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_UNSUPPORTED);
    q.step_end.n = GEN_STEP_END_MAX + 1;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_ARG);
    close_bench(&b);
}

/* Steps end at the first token that has their end behind something else, and are the whole answer together. */
static void steps(void **state)
{
    struct bench_of b;
    struct text *t;
    struct gen *g;
    struct gen_request q;
    struct seen_of whole, seen = { .n = 0 };
    struct err e = { 0 };
    int n_steps = 0;

    (void)state;
    open_bench(&b);
    must(text_open(&t, b.rig.g, &e), &e);
    must(gen_open(&g, &(struct gen_opts){ .run = b.rig.r, .text = t }, &e), &e);
    b.a.predict_max = 40;
    b.a.sample.temp = 1;
    q = request_of(&b.a);
    q.ignore_eos = true;
    run_one(g, q, &whole);
    assert_int_equal(whole.n, 40);
    for (q.step_end = STR("e"); seen.n < 40; n_steps++) {
        const struct seen_of before = seen;
        char step[1024] = "";

        q.answer = before.token;
        q.n_answer = before.n;
        run_one(g, q, &seen);
        assert_true(seen.n > before.n);
        assert_memory_equal(seen.token, whole.token, (size_t)seen.n * sizeof(int32_t));
        assert_int_equal(seen.end, seen.n < 40 ? GEN_STEP : GEN_LENGTH);
        for (int i = before.n; i < seen.n; i++) {
            const struct str piece = text_is_control(t, seen.token[i]) ? STR("") : text_piece(t, seen.token[i]);
            const char *first;

            strncat(step, piece.p, piece.n);
            first = step + strspn(step, " \t\r\n");
            if (i < 39)
                assert_int_equal(*first != '\0' && strchr(first + 1, 'e') != NULL, i == seen.n - 1);
        }
    }
    assert_true(n_steps > 2);
    gen_close(g);
    text_close(t);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_go_on),
        cmocka_unit_test(answers_that_cannot_go_on),
        cmocka_unit_test(steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
