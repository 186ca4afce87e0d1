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
    double now, pace, until;
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
    print_message("%-12s of 4 rows %.2f, of 16 %.2f\n", m->name, (double)(c.ms[4] / c.ms[1]),
                  (double)(c.ms[16] / c.ms[1]));
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

static const struct draft_type chain = { .name = "chain", .fit = one_by_one },
                               block = { .name = "block", .fit = in_blocks },
                               gratis = { .name = "gratis", .free = true };

/* A call costs `call` and `each` for a guess. Its guesses are right with the share `right`, after the first one
 * `later`. One that is free has some in one step of `often`, and says that it is as sure as that. */
struct kind {
    const struct draft_type *type;
    double call, each, right, later;
    int often;
};

/* A row more costs a step `slope` of a step with one. From step `late` on all guesses are right with the share 0.95.
 * first: the first two steps with a number of rows, and calls for a number of guesses, take this much longer: they are
 * recorded. */
struct script {
    struct kind kind[3];
    double slope;
    int steps, late;
    double first;
    int each; /* steps of a process, after which another one goes on with what it knows; 0: one process */
};
struct spent {
    int asked, asked_late;
    double times; /* as long as the same tokens take without guesses, on an idle machine: what the clock says only
                     misleads */
};

/* Drafters and their costs in one run of a script. */
struct play {
    const struct script *t;
    int n; /* drafters */
    struct clock k;
    struct draft_width *w;
    struct gen_cost cost;
    struct draft_ask ask[3]; /* what each has guessed for this step */
    int rows_met[GEN_COSTS], calls_met[3][GEN_DRAFT_MAX + 1];
    double ms;
    struct draft_learnt known; /* what the processes before this one told */
};

static double right_share(const struct script *t, const struct kind *d, int step, int place)
{
    return step >= t->late ? 0.95 : place == 0 ? d->right : d->later;
}

static double recorded(const struct script *t, int *met)
{
    return t->first > 0 && (*met)++ < 2 ? t->first : 0;
}

static void guess(struct play *p, int step, int who, int n)
{
    const struct kind *d = &p->t->kind[who];
    struct draft_ask *a = &p->ask[who];

    *a = (struct draft_ask){ .n = n };
    for (int i = 0; i < GEN_DRAFT_MAX; i++)
        a->p[i] = (float)right_share(p->t, d, step, i);
    if (d->type->free)
        return;
    const double ms = d->call + d->each * n + recorded(p->t, &p->calls_met[who][n]);
    draft_width_spent(p->w, who, n, measure(&p->k, ms), false);
    p->ms += ms;
}

/* As draft.c does for one sequence: the guesses of a step, of drafter .type. */
static struct draft_choice choose(struct play *p, int step)
{
    struct draft_choice c, best;

    memset(p->ask, 0, sizeof p->ask);
    draft_width_step(p->w, &p->cost, 1);
    c = draft_width_none(p->w);
    for (int i = 0; i < p->n; i++) {
        const struct kind *d = &p->t->kind[i];

        if (!d->type->free) {
            draft_width_promise(p->w, i, d->type, NULL, 0, GEN_DRAFT_MAX, &c);
            continue;
        }
        guess(p, step, i, step % d->often == 0 ? 8 : 0);
        draft_width_made(p->w, i, &p->ask[i], &c);
        draft_width_try(p->w, i, &p->ask[i], &c);
    }
    draft_width_take(p->w, &c, 0, true);
    if (c.type >= 0 && !p->t->kind[c.type].type->free)
        guess(p, step, c.type, c.n);
    draft_width_again(p->w, 1);
    best = draft_width_none(p->w);
    for (int i = 0; i < p->n; i++)
        draft_width_made(p->w, i, &p->ask[i], &best);
    if (c.trial && (best.type != c.type || best.n < c.n))
        best = (struct draft_choice){ .type = c.type, .n = c.n < p->ask[c.type].n ? c.n : p->ask[c.type].n };
    draft_width_take(p->w, &best, 0, false);
    if (best.type >= 0 && best.n > 0)
        return best;
    if (c.type >= 0)
        draft_width_learn(p->w, c.type, 0, p->ask[c.type].p, p->ask[c.type].n, 0, 0);
    return (struct draft_choice){ .type = -1 };
}

/* Another process begins with what this one knows. */
static void another_process(struct play *p)
{
    struct draft_learnt l;
    struct err e = { 0 };
    const bool told = draft_width_tell(p->w, &l);

    draft_width_close(p->w);
    p->cost = (struct gen_cost){ .records = p->cost.records };
    assert_int_equal(draft_width_open(&p->w, p->n, 1, &e), ERR_OK);
    p->known = told ? l : p->known;
    assert_true(p->known.row[1] <= 0 || draft_width_recall(p->w, &p->known));
}

static struct spent spend(const struct script *t, const struct machine *m, uint64_t seed)
{
    struct play p = { .t = t, .k = { .m = m, .seed = seed }, .cost = { .records = t->first > 0 } };
    struct spent s = { 0 };
    struct err e = { 0 };
    double tokens = 0;

    while (p.n < 3 && t->kind[p.n].type != NULL)
        p.n++;
    assert_int_equal(draft_width_open(&p.w, p.n, 1, &e), ERR_OK);
    for (int i = 0; i < t->steps; i++) {
        if (t->each > 0 && i > 0 && i % t->each == 0)
            another_process(&p);
        const struct draft_choice c = choose(&p, i);
        const double ms = 1 + t->slope * c.n + recorded(t, &p.rows_met[1 + c.n]);
        int kept = 0;

        gen_cost_note(&p.cost, 1 + c.n, (float)measure(&p.k, ms));
        p.ms += ms;
        while (kept < c.n &&
               rng_unit(seed, (uint64_t)i + 1, (uint64_t)kept) < right_share(t, &t->kind[c.type], i, kept))
            kept++;
        tokens += 1 + kept;
        s.asked += c.n;
        s.asked_late += i >= t->late ? c.n : 0;
        if (c.n > 0)
            draft_width_learn(p.w, c.type, 0, p.ask[c.type].p, p.ask[c.type].n, c.n, kept);
    }
    draft_width_close(p.w);
    s.times = p.ms / tokens;
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
                  t->kind[1].type != NULL ? "several" : t->kind[0].type->name, t->slope, t->kind[0].call,
                  t->kind[0].each, t->kind[0].right, sum / SEEDS, worst);
    return sum / SEEDS;
}

static void never_pays(void **state)
{
    static const struct machine *const machines[] = { &idle, &busy, &slices };
    static const struct script bad[] = {
        { .kind = { { &chain, 0, 0, 0.9, 0.9 } }, .slope = 1 },         /* rows that cost what a step costs */
        { .kind = { { &chain, 0, 1, 0.9, 0.9 } }, .slope = 0.01 },      /* guesses that cost too much */
        { .kind = { { &chain, 0, 0.05, 0.02, 0.02 } }, .slope = 0.05 }, /* or are wrong */
        { .kind = { { &chain } }, .slope = 0.3 },
        { .kind = { { &chain, 0, 0.02, 0.3, 0.3 } }, .slope = 0.3 },
        { .kind = { { &block, 0.5, 0, 0.6, 0.6 } }, .slope = 0.5 },
        { .kind = { { &block, 0.5, 0, 0.3, 0.3 } }, .slope = 0.3 },
        { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 }, { &block, 1.6, 0.05, 0.5, 0.5 }, { &chain, 0.15, 0.3, 0.6, 0.4 } },
          .slope = 0.32 },
        { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 }, { &block, 1.6, 0.05, 0.2, 0.2 }, { &chain, 0.15, 0.3, 0.3, 0.2 } },
          .slope = 0.32 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t j = 0; j < sizeof machines / sizeof machines[0]; j++) {
            struct script t = bad[i];
            int asked;

            t.steps = t.late = 2000;
            assert_true(times(&t, machines[j], &asked) < 1.02);
            assert_true(asked > 20 * SEEDS); /* asked again */
        }
}

static void pays(void **state)
{
    const struct script dear = {
        .kind = { { &block, 0.5, 0, 0.985, 0.985 } }, .slope = 0.3, .steps = 400, .late = 400
    };
    const struct script free_good = {
        .kind = { { &chain, 0, 0, 0.95, 0.95 } }, .slope = 0.01, .steps = 400, .late = 400
    };
    const struct script free_bad = { .kind = { { &chain, 0, 0, 0.5, 0.5 } }, .slope = 0.01, .steps = 400, .late = 400 };
    const struct script changes = {
        .kind = { { &chain, 0, 0.05, 0.02, 0.02 } }, .slope = 0.05, .steps = 4000, .late = 2000
    };
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

/* Of three drafters one pays: it is found, and what the others cost is little. Costs are those of a small model on a
 * CPU, of one on a GPU, where all that happens for the first time takes long, and of a model with cheap rows, where the
 * drafter that is tried first is the wrong one and dear. */
static void one_of_three(void **state)
{
    static const struct {
        struct script t;
        int pays;     /* which */
        double least; /* of the speed that it has alone */
    } all[] = {
        { { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 },
                      { &block, 1.6, 0.05, 0.985, 0.985 },
                      { &chain, 0.15, 0.3, 0.9, 0.6 } },
            .slope = 0.32,
            .steps = 300 },
          1,
          0.93 },
        { { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 },
                      { &block, 1.6, 0.05, 0.93, 0.93 },
                      { &chain, 0.15, 0.3, 0.9, 0.6 } },
            .slope = 0.32,
            .steps = 300 },
          1,
          0.93 },
        { { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 },
                      { &block, 0.6, 0.02, 0.93, 0.93 },
                      { &chain, 0.15, 0.25, 0.6, 0.4 } },
            .slope = 0.05,
            .steps = 1000,
            .first = 6 },
          1,
          0.93 },
        { { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 },
                      { &chain, 0.05, 0.1, 0.9, 0.7 },
                      { &block, 1.6, 0.05, 0.3, 0.3 } },
            .slope = 0.05,
            .steps = 1000 },
          1,
          0.93 },
        { { .kind = { { &gratis, 0, 0, 0.97, 0.97, 2 },
                      { &block, 1.6, 0.05, 0.3, 0.3 },
                      { &chain, 0.05, 0.1, 0.3, 0.2 } },
            .slope = 0.1,
            .steps = 1000 },
          0,
          0.93 },
        { { .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 },
                      { &block, 1.6, 0.05, 0.3, 0.3 },
                      { &chain, 0.05, 0.1, 0.9, 0.7 } },
            .slope = 0.05,
            .steps = 2000 },
          2,
          0.85 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct script three = all[i].t, alone;
        int asked;

        three.late = three.steps;
        alone = three;
        alone.kind[0] = alone.kind[all[i].pays];
        alone.kind[1].type = NULL;
        for (int j = 0; j < (three.first > 0 ? 1 : 2); j++) { /* interruptions are not a GPU's */
            const struct machine *const m = j == 0 ? &idle : &busy;
            const double least = times(&alone, m, &asked), together = times(&three, m, &asked);

            print_message("of three: %.3f of the one that pays\n", least / together);
            assert_true(least / together > all[i].least);
        }
    }
}

/* Programs for one answer each have one budget, so that together they lose no more than one for all of them; and what
 * pays is used from the first steps on. */
static void one_by_another(void **state)
{
    struct script t = {
        .kind = { { &gratis, 0, 0, 0.1, 0.1, 10 }, { &block, 1.6, 0.05, 0.2, 0.2 }, { &chain, 0.15, 0.3, 0.3, 0.2 } },
        .slope = 0.32,
        .steps = 2000,
        .late = 2000,
        .each = 20
    };
    double first;
    int asked;

    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_true(times(&t, i == 0 ? &idle : &busy, &asked) < 1.02);
        assert_true(asked > 20 * SEEDS);
    }
    t = (struct script){ .kind = { { &block, 1.6, 0.05, 0.985, 0.985 } }, .slope = 0.32, .steps = 50, .late = 50 };
    first = times(&t, &idle, &asked);
    t.steps = t.late = 1000;
    t.each = 50;
    assert_true(times(&t, &idle, &asked) < 0.75 * first);
}

/* A file may say anything. */
static void told_wrong(void **state)
{
    static const double bad[] = { NAN, -INFINITY, -1e5, 1e300 };
    struct draft_learnt good = { .row = { 0, 1 }, .type = { { .tries = 0, .pause = 16 } } }, l;
    struct draft_width *w;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(draft_width_open(&w, 1, 1, &e), ERR_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int j = 0; j < 5; j++) {
            l = good;
            *(double *[]){ &l.row[5], &l.budget, &l.type[0].call[3], &l.type[0].kept[0], &l.type[0].sure[15] }[j] =
                bad[i];
            assert_false(draft_width_recall(w, &l));
        }
    l = good;
    l.type[0].pause = 0;
    assert_false(draft_width_recall(w, &l));
    l = good;
    l.row[1] = 0;
    assert_false(draft_width_recall(w, &l));
    assert_false(draft_width_tell(w, &l));
    assert_true(draft_width_recall(w, &good));
    draft_width_close(w);
}

/* Steps with guesses that are recorded at first, and take long: what rows cost is measured anew by trials, also of
 * guesses that are there for nothing. */
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
        cmocka_unit_test(costs),        cmocka_unit_test(never_pays), cmocka_unit_test(pays),
        cmocka_unit_test(one_of_three), cmocka_unit_test(misled),     cmocka_unit_test(one_by_another),
        cmocka_unit_test(told_wrong),
    };

    return cmocka_run_group_tests_name("width", tests, NULL, NULL);
}
