/* SPDX-License-Identifier: Apache-2.0 */
/* search_test.c - types under budgets: against every choice there is, and at the size of large models. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "ramp/search.h"

enum { N_MAX = 1000, OPTIONS_MAX = 12 };

struct rig {
    struct ramp_problem p;
    double loss[N_MAX * OPTIONS_MAX], cost[N_MAX * OPTIONS_MAX * RAMP_BUDGETS_MAX], limit[RAMP_BUDGETS_MAX];
    int choice[N_MAX];
};

/* Items like tensors: loss falls by four with each bit, costs are bits times size, of which budgets count parts. */
static void make(struct rig *r, size_t n, int options, int budgets, double tight, uint64_t seed)
{
    uint64_t at = 0;
    double least[RAMP_BUDGETS_MAX] = { 0 }, most[RAMP_BUDGETS_MAX] = { 0 };

    r->p = (struct ramp_problem){
        .n = n, .options = options, .budgets = budgets, .loss = r->loss, .cost = r->cost, .limit = r->limit
    };
    for (size_t i = 0; i < n; i++) {
        double size = floor(exp(8 * rng_unit(seed, 1, at++))) + 32, weight = exp(6 * rng_unit(seed, 2, at++));
        double part[RAMP_BUDGETS_MAX];

        for (int k = 0; k < budgets; k++)
            part[k] = k == 0 ? 1 : rng_unit(seed, 3, at++);
        for (int t = 0; t < options; t++) {
            double bits = 2 + 6.0 * t / options + .3 * rng_unit(seed, 4, at++);

            r->loss[i * (size_t)options + (size_t)t] = weight * pow(4, -bits) * (1 + .2 * rng_unit(seed, 5, at++));
            for (int k = 0; k < budgets; k++)
                r->cost[(i * (size_t)options + (size_t)t) * (size_t)budgets + (size_t)k] = floor(size * bits * part[k]);
        }
        if (rng_unit(seed, 6, at++) < .1 && options > 2)
            r->loss[i * (size_t)options + 1] = INFINITY;
        for (int k = 0; k < budgets; k++) {
            least[k] += r->cost[i * (size_t)options * (size_t)budgets + (size_t)k];
            most[k] += r->cost[(i * (size_t)options + (size_t)options - 1) * (size_t)budgets + (size_t)k];
        }
    }
    for (int k = 0; k < budgets; k++)
        r->limit[k] = least[k] * 1.05 + (most[k] - least[k]) * tight * (1 + .02 * k) + 1;
}

/* The loss of a choice, INFINITY when it breaks a budget. */
static double value(const struct rig *r, const int *choice)
{
    double loss = 0, spent[RAMP_BUDGETS_MAX] = { 0 };

    for (size_t i = 0; i < r->p.n; i++) {
        size_t at = i * (size_t)r->p.options + (size_t)choice[i];

        loss += r->loss[at];
        for (int k = 0; k < r->p.budgets; k++)
            spent[k] += r->cost[at * (size_t)r->p.budgets + (size_t)k];
    }
    for (int k = 0; k < r->p.budgets; k++)
        if (spent[k] > r->limit[k] * (1 + 1e-9))
            return INFINITY;
    return loss;
}

static double brute_force(const struct rig *r)
{
    int choice[16] = { 0 };
    double best = INFINITY;
    size_t i;

    do {
        best = fmin(best, value(r, choice));
        for (i = 0; i < r->p.n && ++choice[i] == r->p.options; i++)
            choice[i] = 0;
    } while (i < r->p.n);
    return best;
}

static void all_choices(void **state)
{
    struct rig *r = malloc(sizeof *r);
    struct err e = { 0 };

    (void)state;
    assert_non_null(r);
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct ramp_answer a = { .choice = r->choice };

        make(r, 6, 4, 1 + (int)(seed % 3), .1 + .1 * (double)(seed % 5), seed);
        double best = brute_force(r);

        if (ramp_search(&a, &r->p, NULL, NULL, &e))
            fail_msg("%s", e.msg);
        assert_true(fabs(value(r, a.choice) - a.loss) <= 1e-12 * a.loss);
        if (a.loss > best * (1 + 1e-9) || a.bound > best * (1 + 1e-9) || a.bound < a.loss * (1 - 1e-9))
            fail_msg("seed %d: %g, bound %g; the best is %g", (int)seed, a.loss, a.bound, best);
        if (ramp_search_evo(&a, &r->p, seed, NULL, NULL, NULL, &e))
            fail_msg("%s", e.msg);
        assert_true(value(r, a.choice) >= best * (1 - 1e-9));
        assert_true(value(r, a.choice) < INFINITY);
    }
    free(r);
}

/* Hundreds of tensors, 12 types: the gap is small, and the budget is used. */
static void large(void **state)
{
    struct rig *r = malloc(sizeof *r);
    struct err e = { 0 };

    (void)state;
    assert_non_null(r);
    for (int budgets = 1; budgets <= 3; budgets++) {
        struct ramp_answer a = { .choice = r->choice };
        double spent = 0;

        make(r, 733 / (size_t)budgets, 12, budgets, .2, 7);
        if (ramp_search(&a, &r->p, NULL, NULL, &e))
            fail_msg("%s", e.msg);
        assert_true(value(r, a.choice) < INFINITY);
        if (a.bound < a.loss * .999)
            fail_msg("%d budgets: loss %g, bound %g", budgets, a.loss, a.bound);
        for (size_t i = 0; i < r->p.n; i++)
            spent += r->cost[(i * 12 + (size_t)a.choice[i]) * (size_t)budgets];
        if (budgets == 1)
            assert_true(spent > .999 * r->limit[0]);
    }
    free(r);
}

static void edges(void **state)
{
    struct rig *r = malloc(sizeof *r);
    struct err e = { 0 };
    int k = -1;
    double least = 0;
    struct ramp_answer a;

    (void)state;
    assert_non_null(r);
    a = (struct ramp_answer){ .choice = r->choice };
    make(r, 20, 5, 2, .3, 3);
    r->limit[1] = 1;
    assert_int_equal(ramp_search(&a, &r->p, &k, &least, &e), ERR_LIMIT);
    assert_int_equal(k, 1);
    assert_true(least > 1);
    assert_int_equal(ramp_search_evo(&a, &r->p, 1, NULL, &k, &least, &e), ERR_LIMIT);
    r->limit[0] = r->limit[1] = 1e12; /* room for everything */
    assert_int_equal(ramp_search(&a, &r->p, NULL, NULL, &e), ERR_OK);
    assert_true(a.bound == a.loss);
    for (size_t i = 0; i < 20; i++)
        for (int t = 0; t < 5; t++)
            assert_true(r->loss[i * 5 + (size_t)a.choice[i]] <= r->loss[i * 5 + (size_t)t]);
    r->p.n = 0;
    assert_int_equal(ramp_search(&a, &r->p, NULL, NULL, &e), ERR_OK);
    assert_true(a.loss == 0);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_choices),
        cmocka_unit_test(large),
        cmocka_unit_test(edges),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
