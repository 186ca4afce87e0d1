/* SPDX-License-Identifier: Apache-2.0 */
/* groups_test.c - several devices: answers in groups, whose steps are under way at once. They have the bytes of one
 * device; a step that fails ends its own requests; requests come, go and are cancelled meanwhile. */
#include "gen_programs.h"
#include "model/forward.h"
#include "ops/ops.h"
#include "ops/table.h"

static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";

/* ---- what is asked of the last device, in its order ---- */

enum { LANES = 4, DEVS_MOST = 3 };

static struct {
    struct dev_table table; /* one for all: rows pass between devices of one kind */
    const struct dev_table *own;
    void *ctx[DEVS_MOST];
    int n_dev;
    int lane;                        /* of the step in hand */
    bool under_way[LANES];           /* steps that were launched, and have not landed */
    int n_under_way, most;           /* how many; the most there were */
    long launched, landed, fails_at; /* the launch that comes to nothing; < 0: none */
    bool fails_late;                 /* it is known when it lands */
    enum err_code code;              /* how it fails */
    bool failed[LANES];
} spy;

static bool is_last(const void *ctx)
{
    return ctx == spy.ctx[spy.n_dev - 1];
}

static void spy_begin_in(void *ctx, int lane)
{
    assert_true(lane > 0 && lane < LANES && !spy.under_way[lane]);
    spy.lane = lane;
    if (spy.own->begin_in != NULL)
        spy.own->begin_in(ctx, lane);
    else if (spy.own->begin != NULL)
        spy.own->begin(ctx);
}

static enum err_code break_step(struct err *e)
{
    return err_set(e, spy.code, "a cable is loose");
}

static enum err_code spy_launch(void *ctx, struct err *e)
{
    const enum err_code code = spy.own->launch != NULL ? spy.own->launch(ctx, e)
                               : spy.own->end != NULL  ? spy.own->end(ctx, e)
                                                       : ERR_OK;

    if (!is_last(ctx) || code != ERR_OK)
        return code;
    const bool fails = spy.launched++ == spy.fails_at;
    if (fails && !spy.fails_late)
        return break_step(e);
    spy.failed[spy.lane] = fails;
    spy.under_way[spy.lane] = true;
    spy.n_under_way++;
    spy.most = spy.n_under_way > spy.most ? spy.n_under_way : spy.most;
    return ERR_OK;
}

static enum err_code spy_land(void *ctx, int lane, struct err *e)
{
    const enum err_code code = spy.own->land != NULL ? spy.own->land(ctx, lane, e) : ERR_OK;

    if (!is_last(ctx))
        return code;
    assert_true(spy.under_way[lane]);
    spy.under_way[lane] = false;
    spy.n_under_way--;
    spy.landed++;
    return spy.failed[lane] ? break_step(e) : code;
}

static void watch(struct rig *rig)
{
    memset(&spy, 0, sizeof spy);
    spy.fails_at = -1;
    spy.n_dev = model_n_devs(rig->m);
    assert_true(spy.n_dev <= DEVS_MOST);
    for (int i = 0; i < spy.n_dev; i++) {
        struct dev_impl *impl = dev_test_impl(model_part(rig->m, i));

        spy.own = impl->table;
        spy.ctx[i] = impl->ctx;
    }
    spy.table = *spy.own;
    spy.table.begin_in = spy_begin_in;
    spy.table.launch = spy_launch;
    spy.table.land = spy_land;
    for (int i = 0; i < spy.n_dev; i++)
        dev_test_impl(model_part(rig->m, i))->table = &spy.table;
}

static void unwatch(struct rig *rig)
{
    assert_int_equal(spy.n_under_way, 0);
    assert_int_equal(spy.launched - spy.landed, spy.fails_at >= 0 && spy.launched > spy.fails_at && !spy.fails_late);
    for (int i = 0; i < spy.n_dev; i++)
        dev_test_impl(model_part(rig->m, i))->table = spy.own;
}

/* ---- answers ---- */

enum { ANSWERS = 16, TOP = 4 };

/* What an answer says, by tokens and log-probabilities of the likeliest. */
struct said {
    int32_t token[ANSWER_MAX];
    struct sample_top top[ANSWER_MAX][TOP];
    int n;
    bool ended;
    enum gen_end end;
    struct err why;
};

static struct gen_request asked(int i, int32_t *prompt, int32_t n_vocab, bool sampled)
{
    struct gen_request q = gen_defaults();

    q.n_prompt = 1 + 5 * i % 23;
    for (int j = 0; j < q.n_prompt; j++)
        prompt[j] = (int32_t)((7 + 31 * i + 13 * j) % n_vocab);
    q.prompt = prompt;
    q.predict_max = 4 + 11 * i % (ANSWER_MAX - 4);
    q.sample.n_top = TOP;
    q.sample.temp = sampled ? 0.8f : 0;
    q.sample.seed = (uint64_t)i;
    return q;
}

static void take(struct gen *g)
{
    struct gen_event ev;

    while (gen_next(g, &ev)) {
        struct said *s = ev.user;

        assert_false(s->ended);
        if (ev.kind == GEN_TOKEN) {
            assert_int_equal(ev.pick.n_top, TOP);
            memcpy(s->top[s->n], ev.pick.top, sizeof s->top[s->n]);
            s->token[s->n++] = ev.pick.token;
        }
        if (ev.kind != GEN_END)
            continue;
        s->ended = true;
        s->end = ev.end;
        s->why = ev.err;
    }
}

static struct gen *open_gen(struct rig *rig)
{
    struct gen *g;
    struct err e = { 0 };

    must(gen_open(&g, &(struct gen_opts){ .run = rig->r, .end_token = -1 }, &e), &e);
    return g;
}

static int64_t submit(struct gen *g, int i, int32_t n_vocab, struct said *s)
{
    int32_t prompt[TOKENS_MAX];
    struct gen_request q = asked(i, prompt, n_vocab, i % 3 == 1);
    struct err e = { 0 };
    int64_t id;

    q.user = s;
    must(gen_submit(g, &q, &id, &e), &e);
    return id;
}

static void answer_all(struct rig *rig, int n, struct said *s)
{
    struct gen *g = open_gen(rig);
    struct err e = { 0 };

    memset(s, 0, (size_t)n * sizeof *s);
    for (int i = 0; i < n; i++)
        (void)submit(g, i, rig->n_vocab, &s[i]);
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        take(g);
    }
    gen_close(g);
}

static const struct run_opts for_all = { .ctx_tokens = CTX, .n_seq = ANSWERS };

/* The numbers of a sampler that sees whole rows differ in their last bits from those that it has of a digest: both
 * sides have the same. */
static void same_answer(const struct said *a, const struct said *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->end, b->end);
    assert_memory_equal(a->token, b->token, (size_t)a->n * sizeof *a->token);
    assert_memory_equal(a->top, b->top, (size_t)a->n * sizeof *a->top);
}

/* 2 to 16 answers of unequal length on two devices and on three: those of one device. As many steps are under way at
 * once as there are devices, and no step before another one of the same group has landed. */
static void same_bytes(void **state)
{
    static struct said want[ANSWERS], got[ANSWERS];
    struct rig one, rig;

    (void)state;
    rig_open(&one, model_a, 1, &for_all);
    assert_int_equal(run_flights(one.r), 1);
    for (int devices = 2; devices <= 3; devices++) {
        rig_open_on(&rig, devices, model_a, 1, &for_all);
        assert_int_equal(run_flights(rig.r), model_n_devs(rig.m));
        for (int n = 2; n <= ANSWERS; n += n < 5 ? 1 : 11) {
            answer_all(&one, n, want);
            watch(&rig);
            answer_all(&rig, n, got);
            unwatch(&rig);
            assert_int_equal(spy.most, n < devices ? n : devices);
            assert_true(spy.launched > 4);
            for (int i = 0; i < n; i++)
                same_answer(&want[i], &got[i]);
        }
        rig_close(&rig);
    }
    rig_close(&one);
}

/* One answer has nobody to share with, and no step of several is launched while a prompt is read. */
static void not_alone(void **state)
{
    static struct said s[2];
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    rig_open_on(&rig, 2, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 3 });
    watch(&rig);
    answer_all(&rig, 1, s);
    assert_int_equal(spy.launched, 0);
    memset(s, 0, sizeof s);

    struct gen *g = open_gen(&rig);
    (void)submit(g, 1, rig.n_vocab, &s[0]);
    while (s[0].n < 3) {
        must(gen_step(g, &e), &e);
        take(g);
    }
    (void)submit(g, 4, rig.n_vocab, &s[1]);
    while (gen_reading(g) > 0) {
        assert_int_equal(spy.launched, 0);
        must(gen_step(g, &e), &e);
        take(g);
    }
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        take(g);
    }
    assert_true(spy.launched > 2);
    gen_close(g);
    unwatch(&rig);
    rig_close(&rig);
}

/* A step of one group fails, at once or when it lands, at each place in turn: only its requests end, with an error that
 * names the device. The others have the bytes that they have alone. */
static void one_group_fails(void **state)
{
    enum { N = 6 };
    static struct said want[N], got[N];
    struct rig one, rig;
    int ended = 0, whole = 0;

    (void)state;
    rig_open(&one, model_a, 1, &for_all);
    answer_all(&one, N, want);
    rig_close(&one);
    for (int at = 0; at < 12; at++) {
        int failed = 0;

        rig_open_on(&rig, 2, model_a, 1, &for_all);
        watch(&rig);
        spy.fails_at = at / 2;
        spy.fails_late = at % 2 == 1;
        spy.code = ERR_IO;
        answer_all(&rig, N, got);
        for (int i = 0; i < N; i++) {
            if (got[i].end != GEN_FAILED) {
                same_answer(&want[i], &got[i]);
                continue;
            }
            failed++;
            if (strstr(got[i].why.msg, "device 2 of 2: a cable") == NULL)
                fail_msg("'%s' names no device", got[i].why.msg);
            assert_memory_equal(got[i].token, want[i].token, (size_t)got[i].n * sizeof *want[i].token);
        }
        assert_true(failed > 0 && failed <= N / 2);
        ended += failed;
        whole += N - failed;
        unwatch(&rig);
        rig_close(&rig);
    }
    print_message("%d answers ended, %d did not\n", ended, whole);
}

/* A device is gone for good: what is under way on the others still lands, then all ends. */
static void device_is_lost(void **state)
{
    enum { N = 4 };

    (void)state;
    for (int late = 0; late < 2; late++) {
        static struct said s[N];
        struct err e = { 0 };
        struct rig rig;
        int steps = 0;

        memset(s, 0, sizeof s);
        rig_open_on(&rig, 2, model_a, 1, &for_all);
        watch(&rig);
        spy.fails_at = 3;
        spy.fails_late = late == 1;
        spy.code = ERR_DEVICE;
        struct gen *g = open_gen(&rig);

        for (int i = 0; i < N; i++)
            (void)submit(g, 3 * i + 1, rig.n_vocab, &s[i]);
        enum err_code code = ERR_OK;
        for (; code == ERR_OK && steps < 1000; steps++) {
            code = gen_step(g, &e);
            take(g);
        }
        assert_int_equal(code, ERR_DEVICE);
        assert_non_null(strstr(e.msg, "device 2 of 2: a cable"));
        for (int i = 0; i < N; i++) {
            assert_true(s[i].ended);
            if (s[i].end == GEN_FAILED)
                assert_non_null(strstr(s[i].why.msg, "device 2 of 2: a cable"));
        }
        gen_close(g);
        unwatch(&rig);
        rig_close(&rig);
    }
}

/* The next step ends a request that was cancelled, though its step is under way; the others have their bytes. One that
 * comes meanwhile has its own, too, and so has one that comes when others have ended. */
static void come_and_go(void **state)
{
    enum { N = 7, FIRST = 4 };
    static struct said want[N], got[N];
    struct err e = { 0 };
    struct rig one, rig;
    int64_t id[N];
    int n = FIRST, cancelled = 0;

    (void)state;
    rig_open(&one, model_a, 1, &for_all);
    answer_all(&one, N, want);
    rig_close(&one);
    rig_open_on(&rig, 3, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 5 });
    watch(&rig);
    struct gen *g = open_gen(&rig);

    memset(got, 0, sizeof got);
    for (int i = 0; i < FIRST; i++)
        id[i] = submit(g, i, rig.n_vocab, &got[i]);
    for (int steps = 0; gen_busy(g); steps++) {
        must(gen_step(g, &e), &e);
        take(g);
        if (steps % 5 == 4 && n < N) {
            id[n] = submit(g, n, rig.n_vocab, &got[n]);
            n++;
        }
        if (cancelled == 0 && spy.n_under_way > 1 && got[3].n > 2 && !got[3].ended) {
            cancelled = 1;
            for (int i = 2; i < FIRST; i++) {
                if (got[i].ended)
                    continue;
                gen_cancel(g, id[i]);
                must(gen_step(g, &e), &e);
                take(g);
                assert_true(got[i].ended && got[i].end == GEN_CANCELLED);
            }
        }
    }
    assert_int_equal(cancelled, 1);
    assert_int_equal(n, N);
    for (int i = 0; i < N; i++) {
        assert_true(got[i].ended);
        if (got[i].end != GEN_CANCELLED)
            same_answer(&want[i], &got[i]);
        assert_memory_equal(got[i].token, want[i].token, (size_t)got[i].n * sizeof *want[i].token);
    }
    /* one that closes while steps are under way */
    memset(got, 0, sizeof got);
    for (int i = 0; i < FIRST; i++)
        (void)submit(g, i, rig.n_vocab, &got[i]);
    while (spy.n_under_way < 2) {
        must(gen_step(g, &e), &e);
        take(g);
    }
    gen_close(g);
    assert_int_equal(spy.n_under_way, 0);
    answer_all(&rig, 2, got);
    for (int i = 0; i < 2; i++)
        same_answer(&want[i], &got[i]);
    unwatch(&rig);
    rig_close(&rig);
}

static enum err_code guess_two(void *d, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    (void)d;
    (void)cost;
    (void)e;
    for (int i = 0; i < n; i++)
        for (g[i].n = 0; g[i].n < 2 && g[i].n < g[i].n_max; g[i].n++)
            g[i].guess[g[i].n] = 3 + g[i].n;
    return ERR_OK;
}

/* An engine that closes while steps with guesses are under way leaves sequences that another one can use. */
static void closes_early(void **state)
{
    static const struct gen_drafter two = { NULL, guess_two, NULL };
    static struct said want[3], got[3];
    struct gen *g;
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    rig_open_on(&rig, 2, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 3, .draft_max = 2 });
    answer_all(&rig, 3, want);
    watch(&rig);
    must(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1, .drafter = &two }, &e), &e);
    memset(got, 0, sizeof got);
    for (int i = 0; i < 3; i++)
        (void)submit(g, i, rig.n_vocab, &got[i]);
    while (spy.n_under_way == 0) {
        must(gen_step(g, &e), &e);
        take(g);
    }
    gen_close(g);
    for (int i = 0; i < 3; i++)
        must(run_step(rig.r, &(struct run_row){ 5, i, false, false }, 1, &e), &e);
    unwatch(&rig);
    answer_all(&rig, 3, got);
    for (int i = 0; i < 3; i++)
        same_answer(&want[i], &got[i]);
    rig_close(&rig);
}

/* ---- programs: prompts that begin alike, guesses, constraints, memories, few KV rows ---- */

static void run_program(struct rig *rig, struct rig *plain, uint64_t seed, int64_t *kept)
{
    const struct walk_rules rules[3] = { { 5, -1, rig->n_vocab }, { 3, 17, rig->n_vocab }, { 1, -1, rig->n_vocab } };
    struct ask_for a[REQUESTS];
    struct seen_of seen[REQUESTS] = { { .n = 0 } };
    int64_t id[REQUESTS] = { 0 };
    uint64_t at = seed << 32;
    bool cancelled[REQUESTS] = { false };
    struct oracle o = { .honesty = MIXED, .n_vocab = rig->n_vocab, .at = (seed << 32) + 1000000 };
    struct gen *g;
    struct err e = { 0 };
    int submitted = 0;

    for (int i = 0; i < REQUESTS; i++) {
        random_request(&a[i], &at, rig->n_vocab, rules);
        answer_alone(plain, &a[i], &o.known[o.n_known++]);
    }
    must(gen_open(&g,
                  &(struct gen_opts){ .run = rig->r,
                                      .end_token = -1,
                                      .drafter = seed % 3 > 0 ? &oracle : NULL,
                                      .drafter_of = &o,
                                      .prompt_rows = (int)draw(&at, 12) },
                  &e),
         &e);
    while (submitted < REQUESTS || gen_busy(g)) {
        while (submitted < REQUESTS && (draw(&at, 3) != 0 || submitted < 2)) {
            struct gen_request q = request_of(&a[submitted]);

            q.user = &seen[submitted];
            q.priority = (int)draw(&at, 3);
            q.yields = draw(&at, 3) == 0;
            q.draft_max = draw(&at, 3) == 0 ? (int)draw(&at, 4) : -1;
            must(gen_submit(g, &q, &id[submitted], &e), &e);
            submitted++;
        }
        if (draw(&at, 40) == 0) {
            const int i = (int)draw(&at, (uint32_t)submitted);

            cancelled[i] = true;
            gen_cancel(g, id[i]);
        }
        must(gen_step(g, &e), &e);
        take_events(g, seen, id);
    }
    for (int i = 0; i < REQUESTS; i++) {
        compare_seen(&a[i], &o.known[i], &seen[i], cancelled[i], seed);
        *kept += seen[i].stats.kept;
    }
    gen_close(g);
}

static void check_programs(const char *path)
{
    int64_t kept = 0;
    long launched = 0;
    struct rig rig, plain;

    if (!test_mine())
        return;
    rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = CTX });
    for (int few = 0; few < 2; few++) {
        rig_open_on(&rig, 2 + few, path, 1,
                    &(struct run_opts){ .ctx_tokens = CTX,
                                        .n_seq = SEQS,
                                        .rows_max = 24,
                                        .draft_max = 4,
                                        .kv_tokens = few ? 2 * RUN_KV_PAGE : 0,
                                        .logits_max = few ? 4 : 0,
                                        .checkpoint_bytes = SEQS * 6 * run_snapshot_bytes(plain.m) });
        watch(&rig);
        for (long i = 0; i < (programs() + 9) / 10; i++)
            run_program(&rig, &plain, (uint64_t)(1000 * few + i), &kept);
        launched += spy.launched;
        assert_true(spy.most > 1 && spy.most <= run_flights(rig.r));
        unwatch(&rig);
        rig_close(&rig);
    }
    print_message("%s: %ld steps of groups, %lld guesses kept\n", path, launched, (long long)kept);
    assert_true(launched > 20 && kept > 0);
    rig_close(&plain);
}

static void own_families(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_programs);
}

/* ---- steps of the run ---- */

static void says(enum err_code code, enum err_code want, const struct err *e, const char *part)
{
    assert_int_equal(code, want);
    if (strstr(e->msg, part) == NULL)
        fail_msg("'%s' does not say '%s'", e->msg, part);
}

/* What is refused changes nothing; sequences that are in no step can be copied, cut, begun again. */
static void steps_of_a_run(void **state)
{
    const struct run_row a[2] = { { 5, 0, true, false }, { 6, 0, true, true } }, b = { 7, 1, true, false };
    const struct run_row c = { 9, 2, true, false };
    struct err e = { 0 };
    struct rig one, rig;

    (void)state;
    const struct run_opts o = { .ctx_tokens = CTX, .n_seq = 4, .draft_max = 2, .undo_tokens = 4, .rows_max = 20 };
    rig_open(&one, model_a, 1, &o);
    rig_open_on(&rig, 2, model_a, 1, &o);
    const size_t bytes = (size_t)rig.n_vocab * sizeof(float);

    says(run_step_begin(one.r, 0, a, NULL, 2, NULL, NULL, &e), ERR_ARG, &e, "cannot begin");
    for (struct rig *r = &one;; r = &rig) { /* both have the same sequences */
        must(run_feed(r->r, 0, (int32_t[]){ 1, 2, 3 }, 3, 0, NULL, NULL, NULL, &e), &e);
        must(run_feed(r->r, 1, (int32_t[]){ 4, 5, 6, 7 }, 4, 0, NULL, NULL, NULL, &e), &e);
        must(run_fork(r->r, 2, 1, &e), &e);
        if (r == &rig)
            break;
    }
    must(run_step_begin(rig.r, 1, a, NULL, 2, NULL, NULL, &e), &e);
    says(run_step_begin(rig.r, 1, &b, NULL, 1, NULL, NULL, &e), ERR_ARG, &e, "cannot begin");
    says(run_step_begin(rig.r, 2, &b, NULL, 1, NULL, NULL, &e), ERR_ARG, &e, "cannot begin");
    says(run_step_begin(rig.r, 0, a, NULL, 1, NULL, NULL, &e), ERR_ARG, &e, "sequence 0 is in a step");
    says(run_step(rig.r, &b, 1, &e), ERR_ARG, &e, "have not ended");
    says(run_step_end(rig.r, 0, &e), ERR_ARG, &e, "has not begun");
    must(run_step_begin(rig.r, 0, &b, NULL, 1, NULL, NULL, &e), &e);
    must(run_fork(rig.r, 3, 2, &e), &e); /* meanwhile */
    must(run_undo(rig.r, 2, 2, &e), &e);
    must(run_step_end(rig.r, 1, &e), &e);
    assert_int_equal(run_pos(rig.r, 0), 5);

    must(run_step(one.r, a, 2, &e), &e);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(run_logits(rig.r, i), run_logits(one.r, i), bytes);
    assert_null(run_logits(rig.r, 2));
    run_settle(rig.r, 0, 0);
    run_settle(one.r, 0, 0);
    must(run_step_begin(rig.r, 1, &c, NULL, 1, NULL, NULL, &e), &e);
    must(run_step_end(rig.r, 0, &e), &e);
    must(run_step(one.r, &b, 1, &e), &e);
    assert_memory_equal(run_logits(rig.r, 0), run_logits(one.r, 0), bytes);
    must(run_step_end(rig.r, 1, &e), &e);
    must(run_fork(one.r, 3, 2, &e), &e);
    must(run_undo(one.r, 2, 2, &e), &e);
    must(run_step(one.r, &c, 1, &e), &e);
    assert_memory_equal(run_logits(rig.r, 0), run_logits(one.r, 0), bytes);
    for (int q = 0; q < 4; q++) {
        assert_int_equal(run_pos(rig.r, q), run_pos(one.r, q));
        assert_memory_equal(run_tokens(rig.r, q), run_tokens(one.r, q), (size_t)run_pos(one.r, q) * sizeof(int32_t));
        must(run_step(rig.r, &(struct run_row){ 11, q, true, false }, 1, &e), &e);
        must(run_step(one.r, &(struct run_row){ 11, q, true, false }, 1, &e), &e);
        assert_memory_equal(run_logits(rig.r, 0), run_logits(one.r, 0), bytes);
    }
    rig_close(&rig);
    /* hidden rows for a drafter, a single sequence, one row of logits: nothing is under way with others */
    const int layer = 0;
    const struct run_opts skip = {
        .ctx_tokens = CTX, .n_seq = 4, .tap_layers = &layer, .n_taps = 1, .taps_skip = true
    };
    float hidden[512];
    rig_open_on(&rig, 2, model_a, 1, &skip);
    assert_int_equal(run_flights(rig.r), 2);
    must(run_step(rig.r, &b, 1, &e), &e);
    assert_true(run_n_embd(rig.r) <= 512 && run_tap(rig.r, 0, 0, hidden));
    must(run_step_begin(rig.r, 0, &b, NULL, 1, NULL, NULL, &e), &e);
    must(run_step_end(rig.r, 0, &e), &e);
    assert_false(run_tap(rig.r, 0, 0, hidden));
    rig_close(&rig);
    const struct run_opts none[] = { { .ctx_tokens = CTX, .n_seq = 4, .tap_layers = &layer, .n_taps = 1 },
                                     { .ctx_tokens = CTX },
                                     { .ctx_tokens = CTX, .n_seq = 4, .logits_max = 1 } };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        rig_open_on(&rig, 2, model_a, 1, &none[i]);
        assert_int_equal(run_flights(rig.r), 1);
        rig_close(&rig);
    }
    rig_close(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes),     cmocka_unit_test(not_alone),    cmocka_unit_test(one_group_fails),
        cmocka_unit_test(device_is_lost), cmocka_unit_test(come_and_go),  cmocka_unit_test(own_families),
        cmocka_unit_test(steps_of_a_run), cmocka_unit_test(closes_early),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
