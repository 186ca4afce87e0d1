/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - options for items, by prices and repair, or by evolution (search.h).   room: ramp */
#include "ramp/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

enum { STEPS = 48, STARTS = 24, PASSES_MAX = 200, NODES_MAX = 4000000 };

/* Costs over limits: every budget is 1. */
struct scaled {
    const struct ramp_problem *p;
    double *cost;                   /* [n][options][budgets] */
    double spent[RAMP_BUDGETS_MAX]; /* of the choice at hand */
    int *choice;
};

static const double *cost_of(const struct scaled *s, size_t i, int t)
{
    return s->cost + (i * (size_t)s->p->options + (size_t)t) * (size_t)s->p->budgets;
}

static double loss_of(const struct scaled *s, size_t i, int t)
{
    return s->p->loss[i * (size_t)s->p->options + (size_t)t];
}

static double price_of(const struct scaled *s, size_t i, int t, const double *price)
{
    const double *c = cost_of(s, i, t);
    double sum = 0;

    for (int k = 0; k < s->p->budgets; k++)
        sum += price[k] * c[k];
    return sum;
}

static double total_loss(const struct scaled *s, const int *choice)
{
    double sum = 0;

    for (size_t i = 0; i < s->p->n; i++)
        sum += loss_of(s, i, choice[i]);
    return sum;
}

static void count_spent(struct scaled *s)
{
    memset(s->spent, 0, sizeof s->spent);
    for (size_t i = 0; i < s->p->n; i++)
        for (int k = 0; k < s->p->budgets; k++)
            s->spent[k] += cost_of(s, i, s->choice[i])[k];
}

/* Sums in another order differ in the last bits. */
static bool fits_budgets(const struct scaled *s, const double *spent)
{
    for (int k = 0; k < s->p->budgets; k++)
        if (spent[k] > 1 + 1e-12)
            return false;
    return true;
}

/* Would item i with option t, beside what is spent now, keep all budgets? */
static bool change_fits(const struct scaled *s, size_t i, int t)
{
    double spent[RAMP_BUDGETS_MAX];
    const double *to = cost_of(s, i, t), *from = cost_of(s, i, s->choice[i]);

    for (int k = 0; k < s->p->budgets; k++)
        spent[k] = s->spent[k] + to[k] - from[k];
    return fits_budgets(s, spent);
}

static void change(struct scaled *s, size_t i, int t)
{
    const double *to = cost_of(s, i, t), *from = cost_of(s, i, s->choice[i]);

    for (int k = 0; k < s->p->budgets; k++)
        s->spent[k] += to[k] - from[k];
    s->choice[i] = t;
}

static enum err_code begin_search(struct scaled *s, const struct ramp_problem *p, int *choice, int *short_of,
                                  double *least, struct err *e)
{
    size_t n = p->n * (size_t)p->options * (size_t)p->budgets;

    *s = (struct scaled){ .p = p, .choice = choice, .cost = malloc((n + 1) * sizeof *s->cost) };
    if (s->cost == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++)
        s->cost[i] = p->cost[i] / p->limit[i % (size_t)p->budgets];
    for (int k = 0; k < p->budgets; k++) {
        double sum = 0;

        for (size_t i = 0; i < p->n; i++) {
            double least_of = INFINITY;

            for (int t = 0; t < p->options; t++)
                if (loss_of(s, i, t) < INFINITY && cost_of(s, i, t)[k] < least_of)
                    least_of = cost_of(s, i, t)[k];
            sum += least_of;
        }
        if (sum > 1 + 1e-12) {
            free(s->cost);
            if (short_of != NULL)
                *short_of = k;
            if (least != NULL)
                *least = sum * p->limit[k];
            return err_set(e, ERR_LIMIT, "even the cheapest options take %.0f of %.0f", sum * p->limit[k], p->limit[k]);
        }
    }
    return ERR_OK;
}

/* ---- prices ---- */

/* The option of each item with the least loss and price; the dual's value. spent may be NULL. */
static double dual(const struct scaled *s, const double *price, int *choice, double *spent)
{
    double value = 0;

    if (spent != NULL)
        memset(spent, 0, RAMP_BUDGETS_MAX * sizeof *spent);
    for (int k = 0; k < s->p->budgets; k++)
        value -= price[k];
    for (size_t i = 0; i < s->p->n; i++) {
        double best = INFINITY;
        int at = 0;

        for (int t = 0; t < s->p->options; t++) {
            double loss = loss_of(s, i, t), v = loss < INFINITY ? loss + price_of(s, i, t, price) : INFINITY;

            if (v < best) {
                best = v;
                at = t;
            }
        }
        value += best;
        if (choice != NULL)
            choice[i] = at;
        for (int k = 0; spent != NULL && k < s->p->budgets; k++)
            spent[k] += cost_of(s, i, at)[k];
    }
    return value;
}

/* At prices above this nothing but the cheapest options is taken. */
static double price_max(const struct scaled *s)
{
    double most = 1e-300;

    for (size_t i = 0; i < s->p->n; i++)
        for (int t = 0; t < s->p->options; t++)
            for (int u = 0; u < s->p->options; u++)
                for (int k = 0; k < s->p->budgets; k++) {
                    double gain = loss_of(s, i, t) - loss_of(s, i, u);
                    double more = cost_of(s, i, u)[k] - cost_of(s, i, t)[k];

                    if (loss_of(s, i, t) < INFINITY && loss_of(s, i, u) < INFINITY && gain > 0 && more > 0 &&
                        gain / more > most)
                        most = gain / more;
                }
    return most;
}

/* The dual is concave in the prices, with kinks. The price of budget k is halved in on, for the best prices of those
 * after it: spending of the mixture of choices at such an optimum, in which those budgets are spent whole, says on
 * which side the best price of k lies. */
struct pricing {
    const struct scaled *s;
    double top, price[RAMP_BUDGETS_MAX];
    double best, best_price[RAMP_BUDGETS_MAX];
};

static void price_from(struct pricing *w, int k, double *spent)
{
    double low[RAMP_BUDGETS_MAX], high[RAMP_BUDGETS_MAX], lo = log(w->top) - 36, hi = log(w->top), part;

    if (k == w->s->p->budgets) {
        double v = dual(w->s, w->price, NULL, spent);

        if (v > w->best) {
            w->best = v;
            memcpy(w->best_price, w->price, sizeof w->best_price);
        }
        return;
    }
    w->price[k] = 0;
    price_from(w, k + 1, low);
    w->price[k] = w->top;
    if (low[k] > 1)
        price_from(w, k + 1, high);
    if (low[k] <= 1 || high[k] >= 1) {
        memcpy(spent, low[k] <= 1 ? low : high, sizeof low);
        w->price[k] = low[k] <= 1 ? 0 : w->top;
        return;
    }
    for (int i = 0; i < STEPS; i++) {
        double mid[RAMP_BUDGETS_MAX];

        w->price[k] = exp((lo + hi) / 2);
        price_from(w, k + 1, mid);
        if (mid[k] > 1) {
            lo = (lo + hi) / 2;
            memcpy(low, mid, sizeof low);
        } else {
            hi = (lo + hi) / 2;
            memcpy(high, mid, sizeof high);
        }
    }
    part = (low[k] - 1) / (low[k] - high[k]);
    for (int j = 0; j < w->s->p->budgets; j++)
        spent[j] = (1 - part) * low[j] + part * high[j];
}

static double best_prices(const struct scaled *s, double *price)
{
    struct pricing w = { .s = s, .top = 2 * price_max(s), .best = -INFINITY };
    double spent[RAMP_BUDGETS_MAX];

    price_from(&w, 0, spent);
    memcpy(price, w.best_price, sizeof w.best_price);
    return w.best;
}

/* ---- repair and improvement ---- */

/* Takes cheaper options, each time the one that loses least for what it saves of budgets that are broken. */
static void repair(struct scaled *s)
{
    count_spent(s);
    while (!fits_budgets(s, s->spent)) {
        double best = INFINITY;
        size_t at = 0;
        int to = -1;

        for (size_t i = 0; i < s->p->n; i++)
            for (int t = 0; t < s->p->options; t++) {
                const double *c = cost_of(s, i, t), *now = cost_of(s, i, s->choice[i]);
                double saved = 0, loss = loss_of(s, i, t) - loss_of(s, i, s->choice[i]);

                for (int k = 0; k < s->p->budgets; k++)
                    if (s->spent[k] > 1)
                        saved += fmin(now[k] - c[k], s->spent[k] - 1);
                if (saved > 0 && loss < INFINITY && loss / saved < best) {
                    best = loss / saved;
                    at = i;
                    to = t;
                }
            }
        if (to < 0) { /* costs that do not fall together: the cheapest of all for the first that is broken */
            for (size_t i = 0; i < s->p->n; i++)
                for (int t = 0; t < s->p->options; t++)
                    if (loss_of(s, i, t) < INFINITY && cost_of(s, i, t)[0] < cost_of(s, i, s->choice[i])[0])
                        s->choice[i] = t;
            count_spent(s);
            return;
        }
        change(s, at, to);
    }
}

/* The single change that gains most and fits, again and again. */
static void fill_budgets(struct scaled *s)
{
    for (;;) {
        double best = 0;
        size_t at = 0;
        int to = -1;

        for (size_t i = 0; i < s->p->n; i++)
            for (int t = 0; t < s->p->options; t++) {
                double gain = loss_of(s, i, s->choice[i]) - loss_of(s, i, t);

                if (gain > best && change_fits(s, i, t)) {
                    best = gain;
                    at = i;
                    to = t;
                }
            }
        if (to < 0)
            return;
        change(s, at, to);
    }
}

struct move {
    size_t item;
    int to;
};

/* Changes two items at once while that gains. Options whose price is `gap` above the item's best are not in a better
 * answer than one that is `gap` above the bound. */
static enum err_code swap_pairs(struct scaled *s, const double *price, double bound, struct err *e)
{
    const struct ramp_problem *p = s->p;
    struct move *move = malloc((p->n * (size_t)p->options + 1) * sizeof *move);
    bool again = true;

    if (move == NULL)
        return err_nomem(e);
    for (int pass = 0; again && pass < PASSES_MAX; pass++) {
        double gap = total_loss(s, s->choice) - bound, best = 1e-15;
        size_t n = 0, a = 0, b = 0;

        for (size_t i = 0; i < p->n; i++) {
            double least = INFINITY;

            for (int t = 0; t < p->options; t++)
                if (loss_of(s, i, t) < INFINITY)
                    least = fmin(least, loss_of(s, i, t) + price_of(s, i, t, price));
            for (int t = 0; t < p->options; t++)
                if (t != s->choice[i] && loss_of(s, i, t) + price_of(s, i, t, price) - least <= gap * (1 + 1e-9))
                    move[n++] = (struct move){ i, t };
        }
        again = false;
        for (size_t x = 0; x < n; x++) {
            const double *to = cost_of(s, move[x].item, move[x].to),
                         *from = cost_of(s, move[x].item, s->choice[move[x].item]);
            double gain_x = loss_of(s, move[x].item, s->choice[move[x].item]) - loss_of(s, move[x].item, move[x].to);

            for (size_t y = x + 1; y < n; y++) {
                double gain =
                    gain_x + loss_of(s, move[y].item, s->choice[move[y].item]) - loss_of(s, move[y].item, move[y].to);
                double spent[RAMP_BUDGETS_MAX];

                if (gain <= best || move[y].item == move[x].item)
                    continue;
                for (int k = 0; k < p->budgets; k++)
                    spent[k] = s->spent[k] + to[k] - from[k] + cost_of(s, move[y].item, move[y].to)[k] -
                               cost_of(s, move[y].item, s->choice[move[y].item])[k];
                if (fits_budgets(s, spent)) {
                    best = gain;
                    a = x;
                    b = y;
                    again = true;
                }
            }
        }
        if (again) {
            change(s, move[a].item, move[a].to);
            change(s, move[b].item, move[b].to);
            fill_budgets(s);
        }
    }
    free(move);
    return ERR_OK;
}

/* ---- proof ---- */

/* Depth first over the items, most decided ones first; what cannot beat the best answer by the prices is cut off. */
struct proof {
    struct scaled *s;
    const double *price;
    double *reduced; /* [n][options] loss and price above the item's least */
    double *least;   /* [n + 1][budgets] cheapest options of the items from place i on */
    size_t *order;   /* [n] items */
    int *at, *best;
    double bound, best_loss;
    int64_t nodes;
};

static void descend_tree(struct proof *f, size_t depth, double above, const double *spent)
{
    const struct ramp_problem *p = f->s->p;

    if (f->nodes <= 0)
        return;
    if (depth == p->n) {
        double v = total_loss(f->s, f->at);

        if (v < f->best_loss) {
            f->best_loss = v;
            memcpy(f->best, f->at, p->n * sizeof *f->best);
        }
        return;
    }
    size_t i = f->order[depth];

    for (int t = 0; t < p->options; t++) {
        double next[RAMP_BUDGETS_MAX], rest[RAMP_BUDGETS_MAX],
            r = above + f->reduced[i * (size_t)p->options + (size_t)t];

        f->nodes--;
        if (!(f->bound + r < f->best_loss * (1 - 1e-12)))
            continue;
        for (int k = 0; k < p->budgets; k++) {
            next[k] = spent[k] + cost_of(f->s, i, t)[k];
            rest[k] = next[k] + f->least[(depth + 1) * (size_t)p->budgets + (size_t)k];
        }
        if (!fits_budgets(f->s, rest))
            continue;
        f->at[i] = t;
        descend_tree(f, depth + 1, r, next);
    }
}

/* How far the second best option of an item is: an item where that is far is decided. */
static double margin(const struct proof *f, size_t i)
{
    double best = INFINITY, second = INFINITY;

    for (int t = 0; t < f->s->p->options; t++) {
        double r = f->reduced[i * (size_t)f->s->p->options + (size_t)t];

        if (r < best) {
            second = best;
            best = r;
        } else if (r < second) {
            second = r;
        }
    }
    return second;
}

static void prepare_proof(struct proof *f)
{
    const struct ramp_problem *p = f->s->p;

    for (size_t i = 0; i < p->n; i++) {
        double *r = f->reduced + i * (size_t)p->options, least = INFINITY;

        for (int t = 0; t < p->options; t++) {
            r[t] = loss_of(f->s, i, t) < INFINITY ? loss_of(f->s, i, t) + price_of(f->s, i, t, f->price) : INFINITY;
            least = fmin(least, r[t]);
        }
        for (int t = 0; t < p->options; t++)
            r[t] -= least;
        size_t at = i; /* insertion: margins fall */

        while (at > 0 && margin(f, f->order[at - 1]) < margin(f, i)) {
            f->order[at] = f->order[at - 1];
            at--;
        }
        f->order[at] = i;
    }
    for (size_t d = p->n; d-- > 0;)
        for (int k = 0; k < p->budgets; k++) {
            double least = INFINITY;

            for (int t = 0; t < p->options; t++)
                if (loss_of(f->s, f->order[d], t) < INFINITY)
                    least = fmin(least, cost_of(f->s, f->order[d], t)[k]);
            f->least[d * (size_t)p->budgets + (size_t)k] = least + f->least[(d + 1) * (size_t)p->budgets + (size_t)k];
        }
}

/* Looks through what the prices leave; where that comes to an end, the answer is the best and the bound is its loss. */
static enum err_code prove(struct scaled *s, const double *price, double *bound, struct err *e)
{
    const struct ramp_problem *p = s->p;
    struct proof f = { .s = s, .price = price, .bound = *bound, .nodes = NODES_MAX };
    double spent[RAMP_BUDGETS_MAX] = { 0 };
    enum err_code rc = ERR_OK;

    f.reduced = malloc((p->n * (size_t)p->options + 1) * sizeof *f.reduced);
    f.least = calloc((p->n + 1) * (size_t)p->budgets, sizeof *f.least);
    f.order = malloc((p->n + 1) * sizeof *f.order);
    f.at = malloc((p->n + 1) * sizeof *f.at);
    f.best = malloc((p->n + 1) * sizeof *f.best);
    if (f.reduced == NULL || f.least == NULL || f.order == NULL || f.at == NULL || f.best == NULL) {
        rc = err_nomem(e);
    } else {
        prepare_proof(&f);
        memcpy(f.best, s->choice, p->n * sizeof *f.best);
        f.best_loss = total_loss(s, s->choice);
        descend_tree(&f, 0, 0, spent);
        memcpy(s->choice, f.best, p->n * sizeof *f.best);
        if (f.nodes > 0)
            *bound = f.best_loss;
    }
    free(f.reduced);
    free(f.least);
    free(f.order);
    free(f.at);
    free(f.best);
    return rc;
}

enum err_code ramp_search(struct ramp_answer *out, const struct ramp_problem *p, int *short_of, double *least,
                          struct err *e)
{
    struct scaled s;
    double price[RAMP_BUDGETS_MAX] = { 0 }, spent[RAMP_BUDGETS_MAX];
    int *best = malloc((p->n + 1) * sizeof *best);
    double best_loss = INFINITY;
    enum err_code rc = best != NULL ? begin_search(&s, p, out->choice, short_of, least, e) : err_nomem(e);

    if (rc) {
        free(best);
        return rc;
    }
    double free_loss = dual(&s, price, s.choice, spent); /* everything costs nothing */

    out->bound = free_loss;
    if (!fits_budgets(&s, spent)) {
        out->bound = best_prices(&s, price);
        /* From the prices and from some above them: repairing less may leave more to fill. */
        for (int i = 0; i < STARTS && rc == ERR_OK; i++) {
            double at[RAMP_BUDGETS_MAX], v;

            for (int k = 0; k < p->budgets; k++)
                at[k] = price[k] * (1 + 0.004 * i * i / 8);
            (void)dual(&s, at, s.choice, NULL);
            repair(&s);
            fill_budgets(&s);
            v = total_loss(&s, s.choice);
            if (fits_budgets(&s, s.spent) && v < best_loss) {
                best_loss = v;
                memcpy(best, s.choice, p->n * sizeof *best);
            }
        }
        if (best_loss == INFINITY) {
            rc = err_set(e, ERR_LIMIT, "no choice keeps all budgets");
        } else {
            memcpy(s.choice, best, p->n * sizeof *best);
            count_spent(&s);
            rc = swap_pairs(&s, price, out->bound, e);
            if (rc == ERR_OK)
                rc = prove(&s, price, &out->bound, e);
        }
    }
    out->loss = total_loss(&s, s.choice);
    if (out->bound > out->loss) /* sums in another order */
        out->bound = out->loss;
    free(s.cost);
    free(best);
    return rc;
}

/* ---- evolution ---- */

enum { POPULATION = 128, GENERATIONS = 200, ELITE = POPULATION / 8, TOURNAMENT = 3 };

struct evolution {
    struct scaled s;
    uint64_t seed, drawn;
    int *genes; /* [2][POPULATION][n] */
    double loss[2][POPULATION];
};

static double draw_unit(struct evolution *v)
{
    return rng_unit(v->seed, 0, v->drawn++);
}

static size_t below(struct evolution *v, size_t n)
{
    return (size_t)(draw_unit(v) * (double)n);
}

static int *genes(struct evolution *v, int half, size_t i)
{
    return v->genes + ((size_t)half * POPULATION + i) * v->s.p->n;
}

static int any_option(struct evolution *v, size_t item)
{
    int t;

    do
        t = (int)below(v, (size_t)v->s.p->options);
    while (loss_of(&v->s, item, t) == INFINITY);
    return t;
}

static size_t tournament(struct evolution *v, int half)
{
    size_t best = below(v, POPULATION);

    for (int i = 1; i < TOURNAMENT; i++) {
        size_t other = below(v, POPULATION);

        if (v->loss[half][other] < v->loss[half][best])
            best = other;
    }
    return best;
}

static void settle_gene(struct evolution *v, int half, size_t i)
{
    v->s.choice = genes(v, half, i);
    repair(&v->s);
    v->loss[half][i] = fits_budgets(&v->s, v->s.spent) ? total_loss(&v->s, v->s.choice) : INFINITY;
}

/* The k best of a half come first, in order. */
static void elite_first(struct evolution *v, int half, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        size_t best = i;

        for (size_t j = i + 1; j < POPULATION; j++)
            if (v->loss[half][j] < v->loss[half][best])
                best = j;
        double l = v->loss[half][i];

        v->loss[half][i] = v->loss[half][best];
        v->loss[half][best] = l;
        for (size_t g = 0; g < v->s.p->n; g++) {
            int t = genes(v, half, i)[g];

            genes(v, half, i)[g] = genes(v, half, best)[g];
            genes(v, half, best)[g] = t;
        }
    }
}

static void breed(struct evolution *v, int from, int to)
{
    const size_t n = v->s.p->n;

    elite_first(v, from, ELITE);
    for (size_t i = 0; i < POPULATION; i++) {
        int *child = genes(v, to, i);

        if (i < ELITE) {
            memcpy(child, genes(v, from, i), n * sizeof *child);
            v->loss[to][i] = v->loss[from][i];
            continue;
        }
        memcpy(child, genes(v, from, tournament(v, from)), n * sizeof *child);
        if (draw_unit(v) < .3) {
            const int *other = genes(v, from, tournament(v, from));

            for (size_t g = 0; g < n; g++)
                if (draw_unit(v) < .5)
                    child[g] = other[g];
        }
        for (size_t g = 0; g < n; g++)
            if (draw_unit(v) < .15)
                child[g] = any_option(v, g);
        settle_gene(v, to, i);
    }
}

enum err_code ramp_search_evo(struct ramp_answer *out, const struct ramp_problem *p, uint64_t seed,
                              const struct progress *progress, int *short_of, double *least, struct err *e)
{
    struct evolution v = { .seed = seed };
    enum err_code rc = begin_search(&v.s, p, NULL, short_of, least, e);

    if (rc)
        return rc;
    v.genes = malloc((2 * (size_t)POPULATION * p->n + 1) * sizeof *v.genes);
    if (v.genes == NULL)
        rc = err_nomem(e);
    for (size_t i = 0; rc == ERR_OK && i < POPULATION; i++) {
        for (size_t g = 0; g < p->n; g++)
            genes(&v, 0, i)[g] = any_option(&v, g);
        settle_gene(&v, 0, i);
    }
    for (int g = 0; rc == ERR_OK && g < GENERATIONS; g++) {
        breed(&v, g % 2, (g + 1) % 2);
        if (!progress_tick(progress, (uint64_t)g + 1, GENERATIONS))
            rc = err_set(e, ERR_CANCEL, "interrupted");
    }
    if (rc == ERR_OK) {
        elite_first(&v, GENERATIONS % 2, 1);
        memcpy(out->choice, genes(&v, GENERATIONS % 2, 0), p->n * sizeof *out->choice);
        v.s.choice = out->choice;
        count_spent(&v.s);
        fill_budgets(&v.s);
        out->loss = total_loss(&v.s, out->choice);
        out->bound = 0;
        if (!fits_budgets(&v.s, v.s.spent))
            rc = err_set(e, ERR_LIMIT, "no choice keeps all budgets");
    }
    free(v.genes);
    free(v.s.cost);
    return rc;
}
