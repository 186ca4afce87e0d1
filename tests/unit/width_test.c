/* SPDX-License-Identifier: Apache-2.0 */
/* width_test.c - how many guesses are made, and what is known of the cost of steps, by a scripted clock: of a machine
 * that is idle, and of busy ones, where a step takes several times as long as it should and the speed changes. */
#include <math.h>

#include "base/rng.h"
#include "draft/internal.h"
#include "gen/cost.h"
#include "golden.h"

/* ---- the clock ---- */

static const struct machine {
    const char *name;
    double often; /* interruptions in a millisecond of work */
    double lasts; /* each, in milliseconds, on average */
    double slow;  /* times as slow for half the time, at random */
} idle = { "idle", 0, 0, 1 }, busy = { "busy", 0.5, 3, 2 }, slices = { "time slices", 0.2, 8, 2 };

struct clock {
    const struct machine *m;
    uint64_t seed, n;
    double   now, pace, until;
};

static double unit(struct clock *c)
{
    return rng_unit(c->seed, 0, c->n++);
}

static double exponential(struct clock *c, double mean)
{
    return -mean * log(1 - unit(c));
}

/* What the clock says of work that takes `ms` when nothing is in its way. */
static double measure(struct clock *c, double ms)
{
    double took, at = 0;

    if (c->now >= c->until) {
        c->pace = unit(c) < 0.5 ? c->m->slow : 1;
        c->until = c->now + exponential(c, 400);
    }
    took = ms * c->pace * (0.98 + 0.04 * unit(c));
    while (c->m->often > 0 && (at += exponential(c, 1 / c->m->often)) < ms * c->pace)
        took += exponential(c, c->m->lasts);
    c->now += took;
    return took;
}

/* ---- costs ---- */

/* Steps of 1, 4 and 16 rows in turns, a row more being 0.3 of a step. */
static void ratios(const struct machine *m, int steps, double least, double most)
{
    static const int rows[] = { 1, 1, 4, 1, 16, 1 };
    struct gen_cost c = { 0 };
    struct clock k = { .m = m, .seed = 7 };

    for (int i = 0; i < steps; i++) {
        const int n = rows[i % 6];

        gen_cost_note(&c, n, (float)measure(&k, 1 + 0.3 * (n - 1)));
    }
    print_message("%-12s of 4 rows %.2f, of 16 %.2f\n", m->name, (double)(c.ms[4] / c.ms[1]), (double)(c.ms[16] / c.ms[1]));
    for (int n = 4; n <= 16; n *= 4) {
        const double times = (double)(c.ms[n] / c.ms[1]) / (1 + 0.3 * (n - 1));

        assert_true(times > least && times < most);
    }
}

static void costs(void **state)
{
    struct gen_cost c = { 0 };

    (void)state;
    ratios(&idle, 60, 0.98, 1.02);
    ratios(&busy, 600, 1, 1.6); /* rather more than less */
    ratios(&slices, 600, 1, 1.6);
    /* a first step that is recorded counts for nothing, a clock that stood still does not either */
    for (int k = 1; k <= 4; k += 3)
        for (int i = 0; i < 20; i++)
            gen_cost_note(&c, k, i == 0 ? 500 : i == 1 ? 0 : 2);
    assert_true(fabsf(c.ms[4] / c.ms[1] - 1) < 0.01f && fabsf(c.ms[1] - 2) < 0.01f);
    /* a machine that is four times as slow from now on: seen soon, for other numbers of rows, too */
    for (int i = 0; i < 32; i++)
        gen_cost_note(&c, 1, 8);
    print_message("four times as slow: 1 row %.1f, 4 rows %.1f ms\n", (double)c.ms[1], (double)c.ms[4]);
    assert_true(c.ms[1] > 7 && c.ms[4] > 5);
    gen_cost_note(&c, GEN_COSTS, 1);
    gen_cost_note(&c, 0, 1);
}

/* ---- how many guesses ---- */

static int one_by_one(const void *of, int n)
{
    (void)of;
    return n;
}

static int in_blocks(const void *of, int n)
{
    (void)of;
    return n <= 3 ? 3 : n <= 7 ? 7 : 15;
}

static const struct draft_type chain = { .name = "chain", .fit = one_by_one }, block = { .name = "block", .fit = in_blocks };

/* A row more costs a step `slope` of a step with one, and a call of the drafter `call` and `each` for a guess. It is right
 * with the share `right`, from step `late` on with the share 0.95. */
struct script {
    const struct draft_type *type;
    double slope, call, each, right;
    int    steps, late;
};
struct spent {
    int    asked, asked_late;
    double times; /* as long as the same tokens take without guesses, on an idle machine: what the clock says only misleads */
};

static struct spent spend(const struct script *t, const struct machine *m, uint64_t seed)
{
    struct gen_cost cost = { 0 };
    struct clock k = { .m = m, .seed = seed };
    struct draft_width *w;
    struct spent s = { 0 };
    struct err e = { 0 };
    double tokens = 0, ms = 0;

    assert_int_equal(draft_width_open(&w, 1, 1, &e), ERR_OK);
    for (int i = 0; i < t->steps; i++) {
        const double right = i >= t->late ? 0.95 : t->right;
        struct draft_choice c;
        float p[GEN_DRAFT_MAX];
        int kept = 0;

        draft_width_step(w, &cost, 1);
        c = draft_width_none(w);
        draft_width_promise(w, 0, t->type, NULL, 0, GEN_DRAFT_MAX, &c);
        draft_width_take(w, &c, 0, true);
        c.n = c.type < 0 ? 0 : c.n;
        if (c.n > 0) {
            const double call = t->call + t->each * c.n;

            draft_width_spent(w, 0, c.n, measure(&k, call), false);
            ms += call;
        }
        gen_cost_note(&cost, 1 + c.n, (float)measure(&k, 1 + t->slope * c.n));
        ms += 1 + t->slope * c.n;
        while (kept < c.n && rng_unit(seed, (uint64_t)i + 1, (uint64_t)kept) < right)
            kept++;
        tokens += 1 + kept;
        s.asked += c.n;
        s.asked_late += i >= t->late ? c.n : 0;
        for (int j = 0; j < c.n; j++)
            p[j] = (float)right;
        if (c.n > 0)
            draft_width_learn(w, 0, 0, p, c.n, c.n, kept);
    }
    draft_width_close(w);
    s.times = ms / tokens;
    return s;
}

enum { SEEDS = 16 };

/* On average over several clocks; *asked: guesses of all of them. */
static double times(const struct script *t, const struct machine *m, int *asked)
{
    double sum = 0, worst = 0;

    *asked = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        const struct spent one = spend(t, m, seed);

        sum += one.times;
        worst = one.times > worst ? one.times : worst;
        *asked += one.asked;
    }
    print_message("%-12s %s, a row %.2f, calls %.2f + %.2f a guess, %.2f right: %.4f times, %.4f at worst\n", m->name,
                  t->type->name, t->slope, t->call, t->each, t->right, sum / SEEDS, worst);
    return sum / SEEDS;
}

static void never_pays(void **state)
{
    static const struct machine *const machines[] = { &idle, &busy, &slices };
    static const struct script bad[] = {
        { &chain, 1, 0, 0, 0.9, 2000, 2000 },       /* rows that cost what a step costs */
        { &chain, 0.01, 0, 1, 0.9, 2000, 2000 },    /* guesses that cost too much */
        { &chain, 0.05, 0, 0.05, 0.02, 2000, 2000 }, /* or are wrong */
        { &chain, 0.3, 0, 0, 0, 2000, 2000 },
        { &chain, 0.3, 0, 0.02, 0.3, 2000, 2000 },
        { &block, 0.5, 0.5, 0, 0.6, 2000, 2000 },
        { &block, 0.3, 0.5, 0, 0.3, 2000, 2000 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t j = 0; j < sizeof machines / sizeof machines[0]; j++) {
            int asked;

            assert_true(times(&bad[i], machines[j], &asked) < 1.02);
            assert_true(asked > 20 * SEEDS); /* asked again */
        }
}

static void pays(void **state)
{
    const struct script dear = { &block, 0.3, 0.5, 0, 0.985, 400, 400 };
    const struct script free_good = { &chain, 0.01, 0, 0, 0.95, 400, 400 }, free_bad = { &chain, 0.01, 0, 0, 0.5, 400, 400 };
    const struct script changes = { &chain, 0.05, 0, 0.05, 0.02, 4000, 2000 };
    int asked;

    (void)state;
    /* rows that cost next to nothing: as many as can be right; the fewer the worse they are */
    assert_true(spend(&free_good, &idle, 1).asked > 400 * 10);
    assert_true(spend(&free_bad, &idle, 1).asked < 400 * 8);
    /* a block of 15 gives 13.6 tokens for 6 steps' time: the clock of a busy machine hides a part of that */
    assert_true(times(&dear, &idle, &asked) < 0.55);
    assert_true(times(&dear, &busy, &asked) < 0.75);
    assert_true(times(&dear, &slices, &asked) < 0.75);
    /* a text that can be foreseen after one that could not is found out */
    assert_true(spend(&changes, &idle, 1).asked_late > 2000 * 8);
    assert_true(times(&changes, &busy, &asked) < 0.7);
}

/* Steps with guesses that are recorded at first, and take long: what rows cost is measured anew by trials, also of guesses that
 * are there for nothing. */
static void misled(void **state)
{
    struct gen_cost cost = { 0 };
    struct draft_width *w;
    struct err e = { 0 };
    int kept = 0, recorded = 0;

    (void)state;
    assert_int_equal(draft_width_open(&w, 1, 1, &e), ERR_OK);
    for (int i = 0; i < 2000; i++) {
        struct draft_ask a = { .seq = 0, .n = GEN_DRAFT_MAX };
        struct draft_choice c;

        for (int j = 0; j < a.n; j++)
            a.p[j] = 0.94f;
        draft_width_step(w, &cost, 1);
        c = draft_width_none(w);
        draft_width_made(w, 0, &a, &c);
        draft_width_try(w, 0, &a, &c);
        draft_width_take(w, &c, 0, true);
        c.n = c.type < 0 ? 0 : c.n;
        recorded += c.n > 0;
        gen_cost_note(&cost, 1 + c.n, c.n > 0 && recorded <= 4 ? 100 : 1 + 0.3f * (float)c.n);
        if (c.n > 0)
            draft_width_learn(w, 0, 0, a.p, a.n, c.n, c.n);
        kept += c.n;
    }
    draft_width_close(w);
    print_message("misled: %d guesses kept in 2000 steps\n", kept);
    assert_true(kept > 2000 * 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs),
        cmocka_unit_test(never_pays),
        cmocka_unit_test(pays),
        cmocka_unit_test(misled),
    };

    return cmocka_run_group_tests_name("width", tests, NULL, NULL);
}
