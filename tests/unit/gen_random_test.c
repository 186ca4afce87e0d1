/* SPDX-License-Identifier: Apache-2.0 */
/* gen_random_test.c - the generation engine: each request has the tokens that it has alone, whatever runs beside it.
 *
 * Random programs of requests (prompts that begin alike, sampled and greedy, with constraints and memories, cancelled
 * ones), under drafters that are right, wrong, random or absent, against a loop of one sequence and one token a step.
 */
#include "gen_programs.h"

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
