/* SPDX-License-Identifier: Apache-2.0 */
/* gen_random_test.c - the generation engine: each request has the tokens that it has alone, whatever runs beside it.
 *
 * Random programs of requests (prompts that begin alike, sampled and greedy, with constraints and memories, cancelled
 * ones), under drafters that are right, wrong, random or absent, against a loop of one sequence and one token a step.
 */
#include <math.h>

#include "gen_rig.h"
#include "part.h"

enum { SEQS = 3, REQUESTS = 7 };

static uint32_t draw(uint64_t *at, uint32_t n)
{
    uint32_t r[4];

    rng_block(r, 11, *at >> 32, *at);
    ++*at;
    return r[0] % n;
}

/* ---- drafters ---- */

enum honesty { RIGHT, WRONG, MIXED, N_HONESTY };
struct oracle {
    enum honesty honesty;
    struct answered known[REQUESTS];
    int n_known, n_vocab;
    uint64_t at;
    int64_t guesses, settled[SEQS], begun[SEQS];
};

static const struct answered *find(const struct oracle *o, const int32_t *token, int64_t n)
{
    for (int i = 0; i < o->n_known; i++)
        if (n < o->known[i].n && memcmp(o->known[i].token, token, (size_t)n * sizeof *token) == 0)
            return &o->known[i];
    return NULL;
}

static void oracle_begin(void *d, int seq, const int32_t *token, int64_t n)
{
    struct oracle *o = d;

    (void)token;
    o->begun[seq] = n;
    o->settled[seq] = 0;
}

static enum err_code oracle_guess(void *d, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    struct oracle *o = d;

    (void)cost;
    (void)e;
    for (int i = 0; i < n; i++) {
        const struct answered *a = find(o, g[i].token, g[i].n_token);
        const int most = (int)draw(&o->at, (uint32_t)g[i].n_max + 1);

        assert_int_equal(g[i].n_token - 1, o->begun[g[i].seq] + o->settled[g[i].seq]);
        for (int j = 0; j < most; j++) {
            const int64_t at = g[i].n_token + j;
            const bool right = o->honesty == RIGHT || (o->honesty == MIXED && draw(&o->at, 2) == 0);
            int32_t guess = (int32_t)draw(&o->at, (uint32_t)o->n_vocab);

            if (right && a != NULL && at < a->n)
                guess = a->token[at];
            g[i].guess[g[i].n++] = guess;
            o->guesses++;
        }
    }
    return ERR_OK;
}

static void oracle_settle(void *d, int seq, const int32_t *token, int n, int n_guessed, int n_kept)
{
    struct oracle *o = d;

    (void)token;
    assert_true(n_kept <= n_guessed && n_kept <= n);
    o->settled[seq] += n;
}

static const struct gen_drafter oracle = { oracle_begin, oracle_guess, oracle_settle };

/* ---- random programs ---- */

static void random_request(struct ask_for *a, uint64_t *at, int32_t n_vocab, const struct walk_rules *rules)
{
    static const int shared[] = { 0, 5, 17, 40 };
    const int n_shared = shared[draw(at, 4)];

    memset(a, 0, sizeof *a);
    a->n_prompt = n_shared + 1 + (int)draw(at, 30);
    for (int i = 0; i < a->n_prompt; i++)
        a->prompt[i] = i < n_shared ? (int32_t)((i * 37 + 5) % n_vocab) : (int32_t)draw(at, (uint32_t)n_vocab);
    a->predict_max = (int)draw(at, ANSWER_MAX);
    a->sample = sample_defaults();
    if (draw(at, 2) == 0) {
        a->sample.temp = 0.9f;
        a->sample.top_k = draw(at, 2) == 0 ? 40 : 0;
        a->sample.seed = draw(at, 1000);
    }
    if (draw(at, 4) == 0) {
        a->sample.repeat_penalty = 1.2f;
        a->sample.penalty_last_n = 16;
    }
    if (draw(at, 4) == 0)
        a->sample.dry_multiplier = 0.8f;
    if (draw(at, 4) == 0) {
        a->constraint = &walk;
        a->rules = &rules[draw(at, 3)];
    }
    if (draw(at, 4) == 0) {
        a->memory = &next_memory;
        a->memory_of = &rules[0].n_vocab;
    }
    const int every = 1 << (3 + draw(at, 3)); /* of the tokens one ends the answer */

    for (int32_t t = (int32_t)draw(at, 8); t < n_vocab && a->n_stop < STOPS_MAX; t += every)
        a->stop[a->n_stop++] = t;
    if (draw(at, 2) == 0)
        a->n_stop = 0;
    if (draw(at, 2) == 0)
        a->min_tokens = (int)draw(at, ANSWER_MAX);
    a->uncertainty = draw(at, 4) == 0;
}

struct totals {
    int64_t stopped; /* by a token of the request */
    int64_t answers, tokens, cached, kept, drafted, cancelled;
};

static void run_program(struct rig *rig, struct rig *plain, uint64_t seed, struct totals *sum)
{
    const struct walk_rules rules[3] = { { 5, -1, rig->n_vocab }, { 3, 17, rig->n_vocab }, { 1, -1, rig->n_vocab } };
    struct ask_for a[REQUESTS];
    struct seen_of seen[REQUESTS] = { { .n = 0 } };
    int64_t id[REQUESTS] = { 0 };
    uint64_t at = seed << 32;
    const int n = 1 + (int)draw(&at, REQUESTS);
    bool cancelled[REQUESTS] = { false };
    struct oracle o = { .honesty = (enum honesty)draw(&at, N_HONESTY),
                        .n_vocab = rig->n_vocab,
                        .at = (seed << 32) + 1000000 };
    const bool drafts = draw(&at, 4) != 0;
    struct gen *g;
    struct err e = { 0 };
    int submitted = 0;

    for (int i = 0; i < n; i++) {
        random_request(&a[i], &at, rig->n_vocab, rules);
        answer_alone(plain, &a[i], &o.known[o.n_known++]);
    }
    must(gen_open(&g,
                  &(struct gen_opts){ .run = rig->r,
                                      .end_token = -1,
                                      .drafter = drafts ? &oracle : NULL,
                                      .drafter_of = &o,
                                      .prompt_rows = (int)draw(&at, 12) },
                  &e),
         &e);
    while (submitted < n || gen_busy(g)) {
        while (submitted < n && draw(&at, 3) != 0) {
            struct gen_request q = request_of(&a[submitted]);

            q.user = &seen[submitted];
            q.priority = (int)draw(&at, 3);
            q.yields = draw(&at, 3) == 0;
            q.draft_max = draw(&at, 3) == 0 ? (int)draw(&at, 4) : -1;
            must(gen_submit(g, &q, &id[submitted], &e), &e);
            submitted++;
        }
        if (submitted > 0 && draw(&at, 40) == 0) {
            const int i = (int)draw(&at, (uint32_t)submitted);

            cancelled[i] = true;
            gen_cancel(g, id[i]);
        }
        must(gen_step(g, &e), &e);
        take_events(g, seen, id);
    }
    for (int i = 0; i < n; i++) {
        compare_seen(&a[i], &o.known[i], &seen[i], cancelled[i], seed);
        sum->answers++;
        sum->tokens += seen[i].n;
        sum->cached += seen[i].stats.cached_tokens;
        sum->kept += seen[i].stats.kept;
        sum->drafted += seen[i].stats.drafted;
        sum->stopped += seen[i].end == GEN_EOS;
        sum->cancelled += seen[i].end == GEN_CANCELLED;
    }
    gen_close(g);
}

static long programs(void)
{
    const char *env = getenv("CHIMERE_TEST_PROGRAMS");
    const long n = env != NULL ? strtol(env, NULL, 10) : 100;

    assert_true(n > 0);
    return n;
}

static void check_family(const char *path)
{
    struct totals sum = { 0 };
    struct rig rig, plain;

    if (!test_mine())
        return;
    rig_open(&plain, path, 1, &(struct run_opts){ .ctx_tokens = CTX });
    rig_open(&rig, path, 1,
             &(struct run_opts){ .ctx_tokens = CTX,
                                 .n_seq = SEQS,
                                 .rows_max = 24,
                                 .draft_max = 4,
                                 .checkpoint_bytes = SEQS * 6 * run_snapshot_bytes(plain.m) });
    for (long i = 0; i < programs(); i++)
        run_program(&rig, &plain, (uint64_t)i, &sum);
    print_message("%s: %ld programs, %lld answers (%lld cancelled), %lld tokens, %lld of the prompts cached, "
                  "%lld of %lld guesses kept\n",
                  path, programs(), (long long)sum.answers, (long long)sum.cancelled, (long long)sum.tokens,
                  (long long)sum.cached, (long long)sum.kept, (long long)sum.drafted);
    assert_true(sum.kept > 0 && sum.kept < sum.drafted && sum.cached > 0 && sum.cancelled > 0 && sum.stopped > 0);
    rig_close(&rig);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_families),
        cmocka_unit_test(all_families),
    };
    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
