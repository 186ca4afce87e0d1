/* SPDX-License-Identifier: Apache-2.0 */
/* probe_test.c - probes of a governor that never acts: the answer is the one without them, and each finds what it finds
 * when its request is alone, after the same token, whatever runs beside it, is cancelled or stopped, and however few KV
 * rows there are. */
#include "gen_programs.h"

enum { SPARE = 2, DRAFTS = 4, HEARD_MAX = 2 * ANSWER_MAX };

static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";

/* ---- a governor that asks, and does nothing ---- */

struct heard {
    int64_t at; /* tokens of the answer */
    int n;
    struct {
        int32_t token;
        float numbers[5];
    } seen[ANSWER_MAX];
};
struct prober_opts {
    int every; /* tokens between probes; 0: no governor */
    int n_token, n_probe, lag;
    bool peeks, mixes;   /* GEN_PEEK; of both kinds in turn */
    struct heard *heard; /* [HEARD_MAX] */
    int *n_heard;
};
struct prober {
    struct prober_opts o;
    int64_t n, ready_at;
    int asked;
};

static const int32_t stub[DRAFTS] = { 3, 7, 11, 2 };

static enum err_code prober_begin(void **g, const void *opts, const struct gen_start *at, struct gen_order *first,
                                  struct err *e)
{
    struct prober *p = calloc(1, sizeof *p);

    (void)at;
    (void)first;
    if (p == NULL)
        return err_nomem(e);
    p->o = *(const struct prober_opts *)opts;
    *p->o.n_heard = 0;
    *g = p;
    return ERR_OK;
}

static struct gen_order prober_see(void *g, const struct gen_seen *s)
{
    struct prober *p = g;
    const bool peeks = p->o.mixes ? p->asked % 2 == 0 : p->o.peeks;

    (void)s;
    if (++p->n < p->ready_at || p->n % p->o.every != 0)
        return (struct gen_order){ .act = GEN_GO_ON };
    p->asked++;
    if (peeks)
        return (struct gen_order){ .act = GEN_PEEK, .token = stub, .n_token = p->o.n_token };
    p->ready_at = p->n + p->o.lag + 1;
    return (struct gen_order){
        .act = GEN_PROBE, .token = stub, .n_token = p->o.n_token, .n_probe = p->o.n_probe, .lag = p->o.lag
    };
}

static struct gen_order prober_probed(void *g, const struct gen_seen *s, int n)
{
    struct prober *p = g;
    struct heard *h = &p->o.heard[(*p->o.n_heard)++];

    assert_true(*p->o.n_heard <= HEARD_MAX && n <= ANSWER_MAX);
    memset(h, 0, sizeof *h);
    h->at = p->n;
    h->n = n;
    for (int i = 0; i < n; i++) {
        h->seen[i].token = s[i].token;
        memcpy(h->seen[i].numbers, (float[]){ s[i].p, s[i].p_max, s[i].entropy, s[i].varentropy, s[i].margin },
               sizeof h->seen[i].numbers);
    }
    return (struct gen_order){ .act = GEN_GO_ON };
}

static struct gen_needs prober_needs(const void *g)
{
    const struct prober_opts *o = &((const struct prober *)g)->o;

    return (struct gen_needs){ o->peeks || o->mixes ? o->n_token : 0,
                               !o->peeks || o->mixes ? o->n_token + o->n_probe : 0, false };
}

static const struct gen_governor prober = {
    .begin = prober_begin, .end = free, .see = prober_see, .probed = prober_probed, .needs = prober_needs
};

static struct prober_opts random_prober(uint64_t *at, struct heard *heard, int *n_heard)
{
    struct prober_opts o = { .every = 1 + (int)draw(at, 4), .n_token = 1 + (int)draw(at, DRAFTS), .heard = heard };

    o.n_heard = n_heard;
    o.n_probe = 1 + (int)draw(at, 6);
    o.lag = (int)draw(at, 3) == 0 ? 0 : (int)draw(at, 9);
    o.peeks = draw(at, 3) == 0;
    o.mixes = !o.peeks && draw(at, 2) == 0;
    return o;
}

/* ---- random programs ---- */

static int stops_in; /* asked that often, a step is stopped; 0: never */

static bool stop_now(void)
{
    return stops_in > 0 && --stops_in == 0;
}

struct asked {
    struct ask_for a;
    struct answered want;
    struct prober_opts o;
    struct heard alone[HEARD_MAX], heard[HEARD_MAX];
    int n_alone, n_heard;
};

static struct gen *open_gen(struct rig *rig, const struct gen_drafter *drafter, void *of)
{
    struct gen *g;
    struct err e = { 0 };

    must(gen_open(&g,
                  &(struct gen_opts){
                      .run = rig->r, .end_token = -1, .n_spare = SPARE, .drafter = drafter, .drafter_of = of },
                  &e),
         &e);
    return g;
}

static void submit(struct gen *g, const struct asked *a, struct seen_of *seen, int64_t *id)
{
    struct gen_request q = request_of(&a->a);
    struct err e = { 0 };

    q.governor = &prober;
    q.governor_opts = &a->o;
    q.user = seen;
    must(gen_submit(g, &q, id, &e), &e);
}

/* What its probes find, with nothing else in the engine. */
static void probe_alone(struct rig *rig, struct asked *a)
{
    struct gen *g = open_gen(rig, NULL, NULL);
    struct seen_of seen = { .n = 0 };
    int64_t id;
    struct err e = { 0 };

    submit(g, a, &seen, &id);
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        take_events(g, &seen, &id);
    }
    compare_seen(&a->a, &a->want, &seen, false, 0);
    memcpy(a->alone, a->heard, sizeof a->alone);
    a->n_alone = a->n_heard;
    assert_true(seen.stats.probes <= a->n_alone + 1); /* the end of the answer drops one */
    gen_close(g);
    for (int i = 0; i < run_n_seq(rig->r); i++)
        run_clear(rig->r, i);
}

struct sums {
    int64_t tokens, probes, rows, chosen, held, empty;
};

static void run_probes(struct rig *rig, struct rig *plain, uint64_t seed, struct sums *sum)
{
    static struct asked a[REQUESTS];
    const struct walk_rules rules[3] = { { 5, -1, rig->n_vocab }, { 3, 17, rig->n_vocab }, { 1, -1, rig->n_vocab } };
    struct seen_of seen[REQUESTS] = { { .n = 0 } };
    int64_t id[REQUESTS] = { 0 };
    uint64_t at = seed << 32;
    const int n = 1 + (int)draw(&at, REQUESTS);
    bool cancelled[REQUESTS] = { false };
    struct oracle o = { .honesty = (enum honesty)draw(&at, N_HONESTY), .n_vocab = rig->n_vocab };
    struct gen *g;
    struct err e = { 0 };
    int submitted = 0;

    o.at = (seed << 32) + 1000000;
    stops_in = 0;
    for (int i = 0; i < n; i++) {
        random_request(&a[i].a, &at, rig->n_vocab, rules);
        a[i].o = random_prober(&at, a[i].heard, &a[i].n_heard);
        answer_alone(plain, &a[i].a, &a[i].want);
        o.known[o.n_known++] = a[i].want;
        probe_alone(rig, &a[i]);
    }
    g = open_gen(rig, draw(&at, 3) != 0 ? &oracle : NULL, &o);
    while (submitted < n || gen_busy(g)) {
        while (submitted < n && draw(&at, 3) != 0) {
            submit(g, &a[submitted], &seen[submitted], &id[submitted]);
            submitted++;
        }
        if (submitted > 0 && draw(&at, 60) == 0) {
            const int i = (int)draw(&at, (uint32_t)submitted);

            cancelled[i] = true;
            gen_cancel(g, id[i]);
        }
        stops_in = draw(&at, 12) == 0 ? 1 + (int)draw(&at, 4) : 0;
        must(gen_step(g, &e), &e);
        take_events(g, seen, id);
    }
    stops_in = 0;
    for (int i = 0; i < n; i++) {
        compare_seen(&a[i].a, &a[i].want, &seen[i], cancelled[i], seed);
        assert_true(a[i].n_heard == a[i].n_alone || (seen[i].end == GEN_CANCELLED && a[i].n_heard <= a[i].n_alone));
        if (memcmp(a[i].heard, a[i].alone, (size_t)a[i].n_heard * sizeof *a[i].heard) != 0)
            fail_msg("program %llu: a probe found something else than alone", (unsigned long long)seed);
        for (int j = 0; j < a[i].n_heard; j++)
            sum->empty += a[i].heard[j].n == 0;
        sum->tokens += seen[i].n;
        sum->probes += a[i].n_heard;
        sum->rows += seen[i].stats.probe_rows;
        sum->chosen += seen[i].stats.probe_tokens;
        sum->held += seen[i].stats.probe_held_steps;
    }
    gen_close(g);
}

/* A sequence takes a page of KV rows; here are as many as the requests take, or 2, for 5 sequences. */
static void check_family(const char *path)
{
    struct sums sum = { 0 };
    struct rig rig[2], plain;
    const long n = (programs() + 15) / 16;

    if (!test_mine())
        return;
    rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = CTX });
    for (int i = 0; i < 2; i++)
        rig_open(&rig[i], path, 1,
                 &(struct run_opts){ .ctx_tokens = CTX,
                                     .kv_tokens = (i == 0 ? 2 : SEQS) * RUN_KV_PAGE,
                                     .n_seq = SEQS + SPARE,
                                     .rows_max = i == 0 ? 9 : 24,
                                     .draft_max = DRAFTS,
                                     .stop = stop_now,
                                     .checkpoint_bytes = SEQS * 6 * run_snapshot_bytes(plain.m) });
    for (long i = 0; i < n; i++)
        run_probes(&rig[i % 2], &plain, (uint64_t)i, &sum);
    print_message("%s: %ld programs, %lld tokens, %lld probes (%lld at the end of the context) with %lld rows and %lld "
                  "tokens, %lld steps held\n",
                  path, n, (long long)sum.tokens, (long long)sum.probes, (long long)sum.empty, (long long)sum.rows,
                  (long long)sum.chosen, (long long)sum.held);
    assert_true(sum.probes > sum.empty && sum.rows > sum.probes && sum.chosen > 0 && sum.held > 0);
    for (int i = 0; i < 2; i++)
        rig_close(&rig[i]);
    rig_close(&plain);
}

static void own_families(void **state)
{
    (void)state;
    each_model("tests/golden/models", check_family);
}

static void all_families(void **state)
{
    (void)state;
    each_golden(check_family);
}

/* ---- what is promised of one ---- */

/* A peek hears of the row behind its tokens before the next token; a trial of its tokens when the answer has `lag`
 * more, without a step in which the answer waits. Without room for them a request is refused. */
static void one_by_one(void **state)
{
    struct asked *a = calloc(1, sizeof *a);
    struct rig rig, plain;
    struct err e = { 0 };
    struct ask_for trial;
    struct answered want;
    struct seen_of seen = { .n = 0 };
    struct gen *g;
    int64_t id;

    (void)state;
    assert_non_null(a);
    rig_open(&plain, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX });
    a->a = (struct ask_for){ .prompt = { 5, 6, 7 }, .n_prompt = 3, .predict_max = 9, .sample = sample_defaults() };
    answer_alone(&plain, &a->a, &a->want);
    a->o = (struct prober_opts){ .every = 3, .n_token = 2, .n_probe = 4, .lag = 4, .heard = a->heard };
    a->o.n_heard = &a->n_heard;
    for (int peeks = 0; peeks < 2; peeks++) {
        a->o.peeks = peeks;
        rig_open(&rig, model_a, 1,
                 &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 1 + SPARE, .rows_max = 24, .draft_max = 2 });
        g = open_gen(&rig, NULL, NULL);
        memset(&seen, 0, sizeof seen);
        submit(g, a, &seen, &id);
        while (gen_busy(g)) {
            must(gen_step(g, &e), &e);
            take_events(g, &seen, &id);
        }
        compare_seen(&a->a, &a->want, &seen, false, 0);
        assert_int_equal(a->heard[0].at, peeks ? 3 : 3 + 4);
        assert_int_equal(a->heard[0].n, peeks ? 1 : 4);
        assert_int_equal(seen.stats.probe_held_steps, 0);
        trial = a->a;
        memcpy(trial.prompt + 3, a->want.token + 3, 3 * sizeof *trial.prompt);
        memcpy(trial.prompt + 6, stub, 2 * sizeof *stub);
        trial.n_prompt = 8;
        trial.uncertainty = true;
        answer_alone(&plain, &trial, &want);
        for (int i = 0; i < a->heard[0].n; i++) {
            assert_int_equal(a->heard[0].seen[i].token, want.token[8 + i]);
            assert_true(is_close(a->heard[0].seen[i].numbers[2], want.number[8 + i].entropy) &&
                        is_close(a->heard[0].seen[i].numbers[4], want.number[8 + i].margin));
        }
        gen_close(g);
        rig_close(&rig);

        struct gen_request q = request_of(&a->a);

        rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = CTX, .rows_max = 24, .draft_max = 1 });
        must(gen_open(&g, &(struct gen_opts){ .run = rig.r, .end_token = -1 }, &e), &e);
        q.governor = &prober;
        q.governor_opts = &a->o;
        assert_int_equal(gen_submit(g, &q, &id, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.msg, peeks ? "draft rows" : "sequence to spare"));
        gen_close(g);
        rig_close(&rig);
        if (peeks)
            continue;
        rig_open(&rig, model_a, 1,
                 &(struct run_opts){ .ctx_tokens = CTX, .n_seq = 1 + SPARE, .kv_tokens = RUN_KV_PAGE });
        g = open_gen(&rig, NULL, NULL);
        assert_int_equal(gen_submit(g, &q, &id, &e), ERR_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "KV rows"));
        gen_close(g);
        rig_close(&rig);
    }
    free(a);
    rig_close(&plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_by_one),
        cmocka_unit_test(own_families),
        cmocka_unit_test(all_families),
    };

    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
