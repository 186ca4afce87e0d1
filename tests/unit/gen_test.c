/* SPDX-License-Identifier: Apache-2.0 */
/* gen_test.c - the generation engine: one request with scripted hooks, prompts that begin alike, rows, mistakes.
 * gen_random_test.c has random programs of requests. */
#include <math.h>

#include "gen_rig.h"
#include "part.h"
#include "text/text.h"

/* Who yields gives the only sequence to the next one, and goes on when that one has ended. */
static void test_yields(void **state)
{
    struct ask_for a = { .prompt = { 5, 6, 7 }, .n_prompt = 3, .predict_max = 12, .sample = sample_defaults() };
    struct gen_request q = request_of(&a);
    struct seen_of seen[2] = { { .n = 0 } };
    int64_t id[2];
    struct rig rig;
    struct gen *g;
    struct err e;

    (void)state;
    rig_open(&rig, "tests/golden/models/qwen35moe-k.iq3_s.gguf", 1, &(struct run_opts){ .ctx_tokens = CTX });
    must(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1 }, &e), &e);
    for (int i = 0; i < 2; i++) {
        q.user = &seen[i];
        q.yields = i == 0;
        must(gen_submit(g, &q, &id[i], &e), &e);
        for (; i == 0 ? seen[0].n < 4 : !seen[0].ended; take_events(g, seen, id))
            must(gen_step(g, &e), &e);
    }
    assert_true(seen[1].ended && seen[1].n == 12 && seen[0].n == 12);
    assert_memory_equal(seen[0].token, seen[1].token, 12 * sizeof *seen[0].token);
    gen_close(g);
    rig_close(&rig);
}

/* ---- one request with scripted hooks ---- */

static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";

/* Does what its script says when the answer has `at` tokens. */
struct script {
    int at;
    struct gen_order order, after; /* after: the answer to a probe */
};
struct director {
    struct script s;
    int n;
    bool reasoning;
};
static struct gen_seen heard[ANSWER_MAX];
static int n_heard, n_open;

static enum err_code director_begin(void **g, const void *opts, const struct gen_start *at, struct gen_order *first,
                                    struct err *e)
{
    struct director *d = calloc(1, sizeof *d);

    (void)first;
    if (d == NULL)
        return err_nomem(e);
    *d = (struct director){ *(const struct script *)opts, 0, at->reasoning };
    n_open++;
    *g = d;
    return ERR_OK;
}

static void director_end(void *g)
{
    n_open--;
    free(g);
}

static struct gen_order director_see(void *g, const struct gen_seen *s)
{
    struct director *d = g;

    assert_true(s->p > 0 && s->p <= s->p_max * 1.0001f && s->entropy >= 0);
    return ++d->n == d->s.at ? d->s.order : (struct gen_order){ .act = GEN_GO_ON };
}

static struct gen_order director_probed(void *g, const struct gen_seen *s, int n)
{
    struct director *d = g;

    n_heard = n;
    if (n > 0)
        memcpy(heard, s, (size_t)n * sizeof *s);
    return d->s.after;
}

static struct gen_needs director_needs(const void *g)
{
    const struct director *d = g;

    return (struct gen_needs){ 0, d->s.order.act == GEN_PROBE, true };
}

static const struct gen_governor director = { .begin = director_begin,
                                              .end = director_end,
                                              .see = director_see,
                                              .probed = director_probed,
                                              .needs = director_needs };

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
    struct rig rig, plain;
    struct gen *g;
    struct ask_for a;
    struct answered alone;
};

static void open_bench(struct bench_of *b, int n_spare)
{
    struct err e = { 0 };

    rig_open(&b->rig, model_a, 1,
             &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 2 + n_spare, .rows_max = 32, .draft_max = 4 });
    rig_open(&b->plain, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX });
    must(gen_open(&b->g, &(struct gen_opts){ .run = b->rig.r, .end_token = -1, .n_spare = n_spare }, &e), &e);
    b->a = (struct ask_for){ .n_prompt = 9, .predict_max = 12, .sample = sample_defaults() };
    for (int i = 0; i < b->a.n_prompt; i++)
        b->a.prompt[i] = 11 * i + 3;
    answer_alone(&b->plain, &b->a, &b->alone);
}

static void close_bench(struct bench_of *b)
{
    gen_close(b->g);
    rig_close(&b->rig);
    rig_close(&b->plain);
    assert_int_equal(n_open, 0);
}

/* The answer of `seen` goes on after its first n tokens as a prompt with these tokens does. */
static void goes_on(struct bench_of *b, const struct seen_of *seen, int n)
{
    struct ask_for a = b->a;
    struct answered alone;

    memcpy(a.prompt + a.n_prompt, seen->token, (size_t)n * sizeof *a.prompt);
    a.n_prompt += n;
    a.predict_max -= n;
    answer_alone(&b->plain, &a, &alone);
    assert_int_equal(seen->n - n, alone.n - a.n_prompt);
    assert_memory_equal(seen->token + n, alone.token + a.n_prompt, (size_t)(seen->n - n) * sizeof *a.prompt);
}

static void governor_says(void **state)
{
    static const int32_t words[] = { 40, 41, 42 };
    const struct script s = { 4, { .act = GEN_SAY, .token = words, .n_token = 3 }, { 0 } };
    struct gen_request q;
    struct bench_of b;
    struct seen_of seen;

    (void)state;
    open_bench(&b, 0);
    q = request_of(&b.a);
    q.governor = &director;
    q.governor_opts = &s;
    run_one(b.g, q, &seen);
    assert_int_equal(seen.n, 12);
    assert_int_equal(seen.stats.forced, 3);
    assert_memory_equal(seen.token, b.alone.token + b.a.n_prompt, 4 * sizeof(int32_t));
    assert_memory_equal(seen.token + 4, words, sizeof words);
    goes_on(&b, &seen, 7);
    close_bench(&b);
}

static void governor_stops(void **state)
{
    const struct script s = { 5, { .act = GEN_STOP }, { 0 } };
    struct gen_request q;
    struct bench_of b;
    struct seen_of seen;

    (void)state;
    open_bench(&b, 0);
    q = request_of(&b.a);
    q.governor = &director;
    q.governor_opts = &s;
    run_one(b.g, q, &seen);
    assert_int_equal(seen.n, 5);
    assert_int_equal(seen.end, GEN_STOPPED);
    close_bench(&b);
}

static void governor_shuns(void **state)
{
    struct script s = { 3, { .act = GEN_GO_ON }, { 0 } };
    struct gen_request q;
    struct bench_of b;
    struct seen_of seen;
    int32_t next;

    (void)state;
    open_bench(&b, 0);
    next = b.alone.token[b.a.n_prompt + 3];
    s.order.shun = &next;
    s.order.n_shun = 1;
    q = request_of(&b.a);
    q.governor = &director;
    q.governor_opts = &s;
    run_one(b.g, q, &seen);
    assert_memory_equal(seen.token, b.alone.token + b.a.n_prompt, 3 * sizeof(int32_t));
    assert_int_not_equal(seen.token[3], next);
    goes_on(&b, &seen, 4);
    close_bench(&b);
}

/* A probe sees what the answer would be, and the answer is not changed by it. */
static void governor_probes(void **state)
{
    static const int32_t words[] = { 50, 51 };
    const struct script s = { 3,
                              { .act = GEN_PROBE, .token = words, .n_token = 2, .n_probe = 5 },
                              { .act = GEN_GO_ON } };
    struct gen_request q;
    struct bench_of b;
    struct seen_of seen;
    struct ask_for probe;
    struct answered alone;

    (void)state;
    open_bench(&b, 1);
    q = request_of(&b.a);
    q.governor = &director;
    q.governor_opts = &s;
    n_heard = -1;
    run_one(b.g, q, &seen);
    assert_int_equal(seen.n, 12);
    assert_memory_equal(seen.token, b.alone.token + b.a.n_prompt, 12 * sizeof(int32_t));
    assert_int_equal(n_heard, 5);
    probe = b.a;
    memcpy(probe.prompt + probe.n_prompt, seen.token, 3 * sizeof(int32_t));
    memcpy(probe.prompt + probe.n_prompt + 3, words, sizeof words);
    probe.n_prompt += 5;
    probe.predict_max = 5;
    answer_alone(&b.plain, &probe, &alone);
    for (int i = 0; i < n_heard; i++)
        assert_int_equal(heard[i].token, alone.token[probe.n_prompt + i]);
    assert_true(seen.stats.probes == 1 && seen.stats.probe_tokens == 5 && seen.stats.probe_held_steps == 5 &&
                seen.stats.probe_rows == 3 + 4);
    close_bench(&b);
}

/* A request that ends while its probe runs takes the probe along. */
static void cancel_while_probing(void **state)
{
    static const int32_t words[] = { 50, 51 };
    const struct script s = { 2,
                              { .act = GEN_PROBE, .token = words, .n_token = 2, .n_probe = 8 },
                              { .act = GEN_GO_ON } };
    struct gen_request q;
    struct bench_of b;
    struct seen_of seen = { .n = 0 };
    int64_t id;
    struct err e = { 0 };

    (void)state;
    open_bench(&b, 1);
    q = request_of(&b.a);
    q.governor = &director;
    q.governor_opts = &s;
    q.user = &seen;
    must(gen_submit(b.g, &q, &id, &e), &e);
    for (int i = 0; gen_busy(b.g); i++) {
        must(gen_step(b.g, &e), &e);
        if (i == 4)
            gen_cancel(b.g, id);
        take_events(b.g, &seen, &id);
    }
    assert_int_equal(seen.end, GEN_CANCELLED);
    run_one(b.g, request_of(&b.a), &seen);
    assert_memory_equal(seen.token, b.alone.token + b.a.n_prompt, 12 * sizeof(int32_t));
    close_bench(&b);
}

/* A constraint's only token needs no choice, and log-probabilities need one: the answer is the same. */
static void forced_or_chosen(void **state)
{
    struct walk_rules rules = { 3, 17, 0 };
    struct bench_of b;
    struct seen_of seen;

    (void)state;
    open_bench(&b, 0);
    rules.n_vocab = b.rig.n_vocab;
    b.a.constraint = &walk;
    b.a.rules = &rules;
    answer_alone(&b.plain, &b.a, &b.alone);
    for (int n_top = 0; n_top < 2; n_top++) {
        struct gen_request q = request_of(&b.a);

        q.sample.n_top = n_top;
        run_one(b.g, q, &seen);
        assert_int_equal(seen.n, 12);
        assert_memory_equal(seen.token, b.alone.token + b.a.n_prompt, 12 * sizeof(int32_t));
        assert_int_equal(seen.stats.forced, n_top == 0 ? 4 : 0);
    }
    close_bench(&b);
}

/* ---- prompts that begin alike ---- */

static void prefixes_are_read_once(void **state)
{
    enum { N = 4 };
    struct rig rig;
    struct gen *g;
    struct seen_of seen[N] = { { .n = 0 } };
    int64_t id[N], cached = 0;
    int32_t prompt[CTX];
    struct err e = { 0 };

    (void)state;
    rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX, .n_seq = N, .rows_max = 16 });
    must(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1 }, &e), &e);
    for (int i = 0; i < CTX; i++)
        prompt[i] = (i * 29 + 7) % rig.n_vocab;
    for (int i = 0; i < N; i++) {
        struct gen_request q = gen_defaults();

        q.prompt = prompt;
        q.n_prompt = 60;
        q.predict_max = 3;
        q.user = &seen[i];
        prompt[50] = i; /* 50 tokens are the same */
        must(gen_submit(g, &q, &id[i], &e), &e);
    }
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        take_events(g, seen, id);
    }
    for (int i = 0; i < N; i++)
        cached += seen[i].stats.cached_tokens;
    assert_int_equal(cached, (N - 1) * 50);
    /* The answers stand beside their prompts: a conversation goes on where it stood. */
    prompt[50] = 2;
    memcpy(prompt + 60, seen[2].token, 3 * sizeof *prompt);
    struct gen_request q = gen_defaults();
    q.prompt = prompt;
    q.n_prompt = 70;
    q.predict_max = 1;
    run_one(g, q, &seen[0]);
    assert_int_equal(seen[0].stats.cached_tokens, 62); /* the newest token was not evaluated */
    gen_close(g);
    rig_close(&rig);
}

/* Submits n requests at once and compares their answers with those alone. */
static void run_many(struct rig *rig, struct rig *plain, const struct ask_for *a, int n)
{
    struct seen_of seen[3] = { { .n = 0 } };
    struct answered alone;
    struct gen *g;
    int64_t id[3];
    struct err e = { 0 };

    must(gen_open(&g, &(struct gen_opts){ .run = rig->r, .end_token = -1 }, &e), &e);
    for (int i = 0; i < n; i++) {
        struct gen_request q = request_of(&a[i]);

        q.user = &seen[i];
        must(gen_submit(g, &q, &id[i], &e), &e);
    }
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        take_events(g, seen, id);
    }
    for (int i = 0; i < n; i++) {
        answer_alone(plain, &a[i], &alone);
        compare_seen(&a[i], &alone, &seen[i], false, (uint64_t)i);
    }
    gen_close(g);
}

/* Fewer KV rows than the requests need together: some wait, some give their sequence up and begin again, and none
 * can be told from one that was alone. */
static void rows_run_out(void **state)
{
    static const struct walk_rules rules = { 3, -1, 512 };
    struct run_opts ro = { .ctx_tokens = TOKENS_MAX, .n_seq = 3, .rows_max = 64 };
    struct ask_for a[3] = { { .n_prompt = 0 } };
    struct rig rig, plain;

    (void)state;
    rig_open(&plain, model_a, 1, &(struct run_opts){ .ctx_tokens = TOKENS_MAX });
    for (int pages = 2; pages <= 5; pages += SANITIZED ? 3 : 1)
        for (int n_prompt = 20; n_prompt <= 200; n_prompt += 180) {
            ro.kv_tokens = (int64_t)pages * RUN_KV_PAGE;
            rig_open(&rig, model_a, 1, &ro);
            for (int i = 0; i < 3; i++) {
                a[i] = (struct ask_for){ .n_prompt = n_prompt, .predict_max = 270, .sample = sample_defaults() };
                a[i].sample.temp = 1;
                a[i].sample.repeat_penalty = 1.3f;
                a[i].constraint = i == 1 ? &walk : NULL;
                a[i].rules = &rules;
                for (int j = 0; j < n_prompt; j++)
                    a[i].prompt[j] = (j * (13 + i) + 5) % rig.n_vocab;
            }
            run_many(&rig, &plain, a, 3);
            rig_close(&rig);
        }
    rig_close(&plain);
}

/* Alone, a request ends when the rows do. */
static void rows_are_all(void **state)
{
    struct run_opts ro = { .ctx_tokens = TOKENS_MAX, .kv_tokens = RUN_KV_PAGE, .n_seq = 1, .rows_max = 64 };
    struct ask_for a = { .n_prompt = 200, .predict_max = 120, .sample = sample_defaults() };
    struct seen_of seen;
    struct answered alone;
    struct rig rig, plain;
    struct gen *g;
    struct err e = { 0 };

    (void)state;
    rig_open(&rig, model_a, 1, &ro);
    rig_open(&plain, model_a, 1, &(struct run_opts){ .ctx_tokens = TOKENS_MAX });
    answer_alone(&plain, &a, &alone);
    must(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1 }, &e), &e);
    run_one(g, request_of(&a), &seen);
    assert_int_equal(seen.end, GEN_CONTEXT);
    assert_int_equal(seen.n, RUN_KV_PAGE - 200 + 1);
    assert_memory_equal(seen.token, alone.token + 200, (size_t)seen.n * sizeof(int32_t));
    gen_close(g);
    rig_close(&rig);
    rig_close(&plain);
}

/* The logits of prompt rows are those of a run, also where a prefix is there already. */
static void rows_of_a_prompt(void **state)
{
    struct bench_of b;
    struct gen_event ev;
    struct err e = { 0 };
    int64_t id, next;
    float *want;

    (void)state;
    open_bench(&b, 0);
    want = logits_of(&b.plain, b.a.prompt, b.a.n_prompt, 4);
    for (int again = 0; again < 2; again++) {
        struct gen_request q = request_of(&b.a);

        q.n_rows = 4;
        q.predict_max = again;
        next = b.a.n_prompt - 4;
        must(gen_submit(b.g, &q, &id, &e), &e);
        while (gen_busy(b.g)) {
            must(gen_step(b.g, &e), &e);
            while (gen_next(b.g, &ev)) {
                if (ev.kind != GEN_ROW)
                    continue;
                assert_int_equal(ev.done, next);
                assert_memory_equal(ev.logits, want + (next - (b.a.n_prompt - 4)) * b.rig.n_vocab,
                                    (size_t)b.rig.n_vocab * sizeof(float));
                next++;
            }
        }
        assert_int_equal(next, b.a.n_prompt);
    }
    free(want);
    close_bench(&b);
}

/* ---- mistakes ---- */

static void refused(void **state)
{
    struct bench_of b;
    struct gen_request q;
    int64_t id = -1;
    struct err e = { 0 };
    struct gen *none = NULL;

    (void)state;
    open_bench(&b, 0);
    q = request_of(&b.a);
    q.n_prompt = 0;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_ARG);
    q.n_prompt = CTX + 1;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_LIMIT);
    q = request_of(&b.a);
    q.sample.top_p = 2;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_ARG);
    q = request_of(&b.a);
    q.stops = &STR("x");
    q.n_stops = 1;
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_UNSUPPORTED);
    b.a.prompt[3] = b.rig.n_vocab;
    q = request_of(&b.a);
    assert_int_equal(gen_submit(b.g, &q, &id, &e), ERR_FORMAT);
    assert_int_equal(id, -1);
    assert_false(gen_busy(b.g));
    gen_cancel(b.g, 77);
    must(gen_step(b.g, &e), &e);
    assert_int_equal(gen_open(&none, &(struct gen_opts){ .run = b.rig.r, .n_spare = 2 }, &e), ERR_ARG);
    assert_null(none);
    close_bench(&b);
}

/* A request that fails ends alone. */
static void fails_alone(void **state)
{
    struct bench_of b;
    struct seen_of seen = { .n = 0 };
    struct sample_bias *all;
    struct gen_request q;
    struct gen_event ev;
    int64_t bad, good;
    bool failed = false;
    struct err e = { 0 };

    (void)state;
    open_bench(&b, 0);
    all = calloc((size_t)b.rig.n_vocab, sizeof *all);
    assert_non_null(all);
    for (int32_t i = 0; i < b.rig.n_vocab; i++)
        all[i] = (struct sample_bias){ i, -INFINITY };
    q = request_of(&b.a);
    q.sample.bias = all;
    q.sample.n_bias = (size_t)b.rig.n_vocab;
    must(gen_submit(b.g, &q, &bad, &e), &e);
    free(all); /* the request has its copy */
    q = request_of(&b.a);
    must(gen_submit(b.g, &q, &good, &e), &e);
    while (gen_busy(b.g)) {
        must(gen_step(b.g, &e), &e);
        while (gen_next(b.g, &ev)) {
            if (ev.kind == GEN_END && ev.id == bad) {
                failed = ev.end == GEN_FAILED && ev.err.code == ERR_ARG;
            } else if (ev.kind == GEN_TOKEN) {
                assert_int_equal(ev.id, good);
                seen.token[seen.n++] = ev.pick.token;
            }
        }
    }
    assert_true(failed);
    assert_int_equal(seen.n, 12);
    assert_memory_equal(seen.token, b.alone.token + b.a.n_prompt, 12 * sizeof(int32_t));
    close_bench(&b);
}

/* ---- text ---- */

static void stop_strings(void **state)
{
    struct bench_of b;
    struct text *t;
    struct gen *g;
    struct gen_request q;
    struct gen_event ev;
    struct err e = { 0 };
    char whole[1024] = "", stop[16], cut[1024] = "";
    int64_t id;
    size_t at;

    (void)state;
    open_bench(&b, 0);
    must(text_open(&t, b.rig.g, &e), &e);
    must(gen_open(&g, &(struct gen_opts){ .run = b.rig.r, .text = t }, &e), &e);
    for (int with = 0; with < 2; with++) {
        const struct str stops[] = { STR("a text that does not come"), str_of(stop) };

        q = request_of(&b.a);
        q.ignore_eos = true;
        q.stops = stops;
        q.n_stops = with ? 2 : 0;
        must(gen_submit(g, &q, &id, &e), &e);
        while (gen_busy(g)) {
            must(gen_step(g, &e), &e);
            while (gen_next(g, &ev)) {
                strncat(with ? cut : whole, ev.text.p, ev.text.n);
                if (ev.kind == GEN_END) {
                    assert_int_equal(ev.end, with ? GEN_STOP_STRING : GEN_LENGTH);
                    assert_int_equal(ev.stop, with);
                }
            }
        }
        at = strlen(whole) / 2;
        while (((unsigned char)whole[at] & 0xc0) == 0x80)
            at++; /* the beginning of a character */
        (void)snprintf(stop, sizeof stop, "%.3s", whole + at);
        while (str_utf8(str_of(stop)) == 0 || (stop[strlen(stop) - 1] & 0x80))
            stop[strlen(stop) - 1] = '\0';
    }
    assert_true(strlen(whole) > 6 && stop[0] != '\0');
    assert_int_equal(strstr(whole, stop) - whole, strlen(cut));
    assert_memory_equal(whole, cut, strlen(cut));
    gen_close(g);
    text_close(t);
    close_bench(&b);
}

/* ---- a second request, where the answer of the first is in doubt ---- */

enum { COMMON = 20 };

struct doubts {
    struct rig rig, plain;
    struct gen *g;
    struct ask_for a, b;
    struct answered first, second;
    float least; /* p_max of the first answer's choices */
    int at;      /* of its tokens, the one that has it */
    struct gen_request q, then;
    int64_t mark;
};

static void open_doubts(struct doubts *d)
{
    struct err e;

    rig_open(&d->plain, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX });
    rig_open(
        &d->rig, model_a, 1,
        &(struct run_opts){
            .ctx_tokens = CTX, .n_seq = 2, .rows_max = 32, .checkpoint_bytes = 4 * run_snapshot_bytes(d->plain.m) });
    must(gen_open(&d->g, &(struct gen_opts){ .run = d->rig.r, .end_token = -1 }, &e), &e);
    d->a =
        (struct ask_for){ .n_prompt = COMMON + 3, .predict_max = 10, .sample = sample_defaults(), .uncertainty = true };
    for (int i = 0; i < d->a.n_prompt; i++)
        d->a.prompt[i] = 7 * i + 2;
    d->b = d->a;
    d->b.prompt[COMMON] = 3;
    answer_alone(&d->plain, &d->a, &d->first);
    answer_alone(&d->plain, &d->b, &d->second);
    d->least = 1;
    for (int i = d->a.n_prompt; i < d->first.n; i++)
        if (d->first.number[i].p_max < d->least) {
            d->least = d->first.number[i].p_max;
            d->at = i - d->a.n_prompt;
        }
    d->mark = COMMON;
    d->then = request_of(&d->b);
    d->q = request_of(&d->a);
    d->q.marks = &d->mark;
    d->q.n_marks = 1;
    d->q.second = &d->then;
}

static void close_doubts(struct doubts *d)
{
    gen_close(d->g);
    rig_close(&d->rig);
    rig_close(&d->plain);
}

static void is_one_of(const struct doubts *d, const struct seen_of *seen, bool doubted)
{
    const struct gen_doubt *x = &seen->stats.doubt;

    compare_seen(doubted ? &d->b : &d->a, doubted ? &d->second : &d->first, seen, false, 0);
    assert_true(x->asked && x->doubted == doubted);
    if (!doubted)
        assert_float_equal(x->least, d->least, 1e-5);
    assert_int_equal(x->tokens > 0, doubted);
    assert_int_equal(x->read, doubted ? d->b.n_prompt - COMMON : 0);
}

/* Alone, and beside others on fewer sequences: the first answer where it is certain enough, else the second. */
static void doubted_answers(void **state)
{
    struct doubts d;
    struct seen_of seen[6];
    int64_t id[6];
    struct err e;

    (void)state;
    open_doubts(&d);
    const float below[] = { 0, d.least * 0.999f, d.least * 1.001f, 1 };

    for (int i = 0; i < 4; i++) {
        d.q.doubt_below = below[i];
        run_one(d.g, d.q, seen);
        is_one_of(&d, seen, i > 1);
        if (i == 2)
            assert_int_equal(seen->stats.doubt.tokens, d.at + 1);
    }
    memset(seen, 0, sizeof seen);
    for (int i = 0; i < 6; i++) {
        d.q.doubt_below = below[i % 4];
        d.q.user = &seen[i];
        must(gen_submit(d.g, &d.q, &id[i], &e), &e);
    }
    for (; gen_busy(d.g); take_events(d.g, seen, id))
        must(gen_step(d.g, &e), &e);
    for (int i = 0; i < 6; i++)
        is_one_of(&d, &seen[i], i % 4 > 1);
    close_doubts(&d);
}

/* An answer that ended is in doubt by the mean of its tokens' probabilities, and all of it is dropped. */
static void doubted_by_mean(void **state)
{
    struct doubts d;
    struct seen_of seen;
    double sum = 0;

    (void)state;
    open_doubts(&d);
    for (int i = d.a.n_prompt; i < d.first.n; i++)
        sum += log((double)d.first.number[i].p_max); /* greedy: of what was chosen */
    const float mean = (float)(sum / (d.first.n - d.a.n_prompt));

    assert_true(mean < 0);
    d.q.doubts_mean = true;
    for (int above = 0; above < 2; above++) {
        d.q.doubt_mean = mean + (above ? 1e-3f : -1e-3f);
        run_one(d.g, d.q, &seen);
        is_one_of(&d, &seen, above);
        assert_float_equal(seen.stats.doubt.mean, mean, 1e-4);
        assert_int_equal(seen.stats.doubt.tokens, above ? d.a.predict_max : 0);
    }
    d.q.doubt_mean = NAN;
    int64_t id;
    struct err e;

    assert_int_equal(gen_submit(d.g, &d.q, &id, &e), ERR_ARG);
    close_doubts(&d);
}

/* Nothing of a first answer is told before it has ended, or was cancelled. */
static void held_back(void **state)
{
    struct doubts d;
    struct seen_of seen = { .n = 0 };
    int64_t id;
    struct err e;

    (void)state;
    open_doubts(&d);
    d.q.user = &seen;
    for (int cancels = 0; cancels < 2; cancels++) {
        seen = (struct seen_of){ .n = 0 };
        must(gen_submit(d.g, &d.q, &id, &e), &e);
        for (int i = 0; gen_busy(d.g); i++) {
            must(gen_step(d.g, &e), &e);
            take_events(d.g, &seen, &id);
            assert_true(seen.ended || seen.n == 0);
            if (cancels && i == 5)
                gen_cancel(d.g, id);
        }
        assert_int_equal(seen.n, cancels ? seen.stats.tokens : d.a.predict_max);
        assert_memory_equal(seen.token, d.first.token + d.a.n_prompt, (size_t)seen.n * sizeof *seen.token);
        assert_int_equal(seen.end, cancels ? GEN_CANCELLED : GEN_LENGTH);
    }
    d.q.n_rows = 2;
    assert_int_equal(gen_submit(d.g, &d.q, &id, &e), ERR_ARG);
    d.q.n_rows = 0;
    d.q.doubt_below = NAN;
    assert_int_equal(gen_submit(d.g, &d.q, &id, &e), ERR_ARG);
    assert_false(gen_busy(d.g));
    close_doubts(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(governor_says),
        cmocka_unit_test(governor_stops),
        cmocka_unit_test(governor_shuns),
        cmocka_unit_test(governor_probes),
        cmocka_unit_test(cancel_while_probing),
        cmocka_unit_test(forced_or_chosen),
        cmocka_unit_test(prefixes_are_read_once),
        cmocka_unit_test(rows_run_out),
        cmocka_unit_test(rows_are_all),
        cmocka_unit_test(rows_of_a_prompt),
        cmocka_unit_test(refused),
        cmocka_unit_test(fails_alone),
        cmocka_unit_test(stop_strings),
        cmocka_unit_test(test_yields),
        cmocka_unit_test(doubted_answers),
        cmocka_unit_test(doubted_by_mean),
        cmocka_unit_test(held_back),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
