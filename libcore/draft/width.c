/* SPDX-License-Identifier: Apache-2.0 */
/* width.c - how many guesses of which drafter are worth their rows.
 *
 * k guesses give 1 + q1 + q1 q2 + ... tokens a step (q1 .. qk), where qi is the share of guesses at
 * place i that are right when those before them are. The time of a step is measured by its number
 * of rows (gen/cost.h), and so is that of making guesses; what counts is tokens for the time of the whole step. Before
 * guesses are made, qi is what the drafter's places had in this sequence; when they are there, what guesses
 * had of which the drafter was as sure. Both are moving averages.
 *
 * All that may lose time is paid from one budget: one part in a hundred of the time goes in, or half of that where
 * trials have long been in vain; what guesses cost more than the tokens they brought would have cost comes out, and
 * what they saved goes in, up to a small sum: what one text won is not lost on the next. While it is empty no guesses
 * are made. So whatever is wrong of the above, or changes, costs little more than that hundredth, by the clock. There
 * is little in it at first: a program may be started for one short answer.
 *
 * While there is enough in it a drafter is asked for few guesses at first: that shows what they and their rows
 * cost. Later every drafter has its turn to be asked although it does not pay, or for more guesses than
 * pay, when there is enough in the budget: texts change. The oftener that was in vain, the longer is the pause. Nothing
 * here can change a byte of an answer.
 *
 * All of this may be handed to another process, which goes on with it: many short ones share one budget. */
#include <stdlib.h>

#include "draft/internal.h"
#include "gen/cost.h"

enum {
    SURES = 16,       /* classes of how sure a drafter is */
    PAUSE = 16,       /* steps from one trial to the next, at least */
    PAUSE_MOST = 128, /* of a drafter that is tried in vain, again and again */
    PLAIN = 16,       /* first steps without guesses, to learn what they cost */
    TURNS = 16,       /* steps with guesses and without, in turns, after them */
    PLAIN_EVERY = 32, /* later, steps with guesses from one without to the next */
    WORST = 4,        /* times the mean, or a step: a call that took longer, the machine being busy, counts so */
    FIRST = 2,        /* guesses to ask for at first; where a few cost as much as more, more */
    TRIES = 2,        /* of a drafter, at first */
    PRIOR = 2,        /* what other sequences showed counts as this number of guesses */
    MEMORY_SEQ = 64,  /* guesses, or calls, that an average goes back */
    MEMORY_ALL = 64,
    BUDGET = 12,        /* answers' plain steps that fit into the budget */
    BROUGHT = 4,        /* of these another process leaves at most: what its texts won is not lost on the next ones */
    TRIAL = 2,          /* of them there must be for a trial */
    RECALLED = 8,       /* what another process told counts as this number of steps or calls */
    PLAIN_RECALLED = 3, /* first steps without guesses then, to learn how fast the machine is now */
};

/* Of a step with one row, while nothing else is known: to be tried out. */
static const float row_cost = 0.3f;
static const double margin = 1.03; /* what pays less than this is not worth a change */
static const double likely = 0.5;  /* that guesses are right which are tried because they are there */
static const double income = 0.01; /* of the time, into the budget; half of it where all trials were in vain */
static const float longest = 2;    /* times what was expected: a step that took longer counts so */
static const double start = 1.65;  /* plain steps in it after the first ones: the first trial is after some 50 steps */

/* The shares of guesses at each place that were right. */
struct share {
    float kept[GEN_DRAFT_MAX];
    int seen[GEN_DRAFT_MAX];
};

/* What is known of a drafter. */
struct known {
    struct share all;
    struct share sure; /* by class; SURES is GEN_DRAFT_MAX */
    /* Calls for n guesses: sums that fade, of their time and of that of a plain step's share when they were made, and
     * how many. */
    double took[GEN_DRAFT_MAX + 1], base[GEN_DRAFT_MAX + 1], calls[GEN_DRAFT_MAX + 1];
    int tries;                  /* still to come */
    int wait, pause;            /* steps until it may be tried again; and between its last two trials, at least */
    int met[GEN_DRAFT_MAX + 1]; /* calls for n guesses that the device recorded */
};

struct draft_width {
    int n_type, n_seq;
    struct known *type; /* [n_type] */
    struct share *seq;  /* [n_seq][n_type] */
    int *rest, *turn;   /* [n_seq] steps until the next trial; the trials there were */
    /* the step that is being put together */
    double cost[GEN_COSTS];
    double tokens, guess_ms;
    double *asked_ms;        /* [n_type] of guess_ms */
    int rows, n;             /* so far; answers */
    bool plain;              /* without guesses */
    bool started;            /* the budget has had its initial steps */
    bool records;            /* the first calls for a number of guesses take longer than later ones (gen/cost.h) */
    double worth;            /* of a token: the time that it takes without guesses */
    double budget;           /* milliseconds */
    int checked, right;      /* guesses of the last step */
    int first[GEN_COSTS];    /* by answers: plain steps to come */
    int run, breaks;         /* steps with guesses since the last one without; how often one was put between */
    struct gen_cost seen;    /* as of the last step */
    int steps;               /* with answers, up to PLAIN */
    bool asked;              /* a drafter was, or guesses were checked */
    struct draft_learnt was; /* of another process */
    bool recalled, woken;    /* there is one; its times are milliseconds now */
};
_Static_assert((int)SURES == (int)GEN_DRAFT_MAX, "struct share serves both");

static void forget_share(struct share *s, float kept)
{
    for (int i = 0; i < GEN_DRAFT_MAX; i++) {
        s->kept[i] = kept;
        s->seen[i] = 0;
    }
}

enum err_code draft_width_open(struct draft_width **out, int n_type, int n_seq, struct err *e)
{
    struct draft_width *w = calloc(1, sizeof *w);
    const size_t types = (size_t)n_type, seqs = (size_t)n_seq;

    if (w != NULL) {
        *w = (struct draft_width){ .n_type = n_type, .n_seq = n_seq };
        w->type = calloc(types, sizeof *w->type);
        w->seq = calloc(seqs * types, sizeof *w->seq);
        w->rest = calloc(seqs, sizeof *w->rest);
        w->turn = calloc(seqs, sizeof *w->turn);
        w->asked_ms = calloc(types, sizeof *w->asked_ms);
    }
    if (w == NULL || w->type == NULL || w->seq == NULL || w->rest == NULL || w->turn == NULL || w->asked_ms == NULL) {
        draft_width_close(w);
        return err_nomem(e);
    }
    for (int t = 0; t < n_type; t++) {
        forget_share(&w->type[t].all, 0.75f);
        w->type[t].tries = TRIES;
        w->type[t].pause = PAUSE;
        for (int i = 0; i < SURES; i++)
            w->type[t].sure.kept[i] = ((float)i + 0.5f) / SURES;
    }
    for (int i = 0; i < GEN_COSTS; i++)
        w->first[i] = PLAIN;
    for (int s = 0; s < n_seq; s++) {
        draft_width_begin(w, s);
        w->rest[s] = PAUSE;
    }
    *out = w;
    return ERR_OK;
}

void draft_width_close(struct draft_width *w)
{
    if (w == NULL)
        return;
    free(w->type);
    free(w->seq);
    free(w->rest);
    free(w->turn);
    free(w->asked_ms);
    free(w);
}

void draft_width_begin(struct draft_width *w, int seq)
{
    for (int t = 0; t < w->n_type; t++) {
        struct share *s = &w->seq[seq * w->n_type + t];

        *s = w->type[t].all;
        for (int i = 0; i < GEN_DRAFT_MAX; i++)
            s->seen[i] = s->seen[i] < PRIOR ? s->seen[i] : PRIOR;
    }
}

/* ---- costs ---- */

/* Values between those that are known are taken from the line between them; beyond the last it goes
 * on. */
static void fill_costs(double *out, int n, const float *known, double slope)
{
    int last = -1;

    for (int i = 0; i < n; i++) {
        if (known[i] <= 0)
            continue;
        out[i] = (double)known[i];
        if (last >= 0 && out[i] < out[last]) /* more is never cheaper */
            out[i] = out[last];
        for (int j = last + 1; j < i; j++)
            out[j] = last < 0 ? out[i] : out[last] + (out[i] - out[last]) * (j - last) / (i - last);
        slope = last >= 0 ? (out[i] - out[last]) / (i - last) : slope * out[i];
        last = i;
    }
    for (int j = last + 1; j < n; j++)
        out[j] = last < 0 ? 1 : out[last] + slope * (j - last);
}

/* Of steps by their rows: what was measured here, and what another process told. */
static void take_costs(struct draft_width *w, const struct gen_cost *cost)
{
    float ms[GEN_COSTS];

    for (int k = 0; k < GEN_COSTS; k++) {
        const float told = (float)w->was.row[k] * cost->ms[1];

        ms[k] = cost->ms[k];
        if (k > 1 && told > 0)
            ms[k] = ms[k] > 0 ? (RECALLED * told + cost->seen[k] * ms[k]) / (RECALLED + cost->seen[k]) : told;
    }
    fill_costs(w->cost, GEN_COSTS, ms, (double)row_cost);
    w->seen = *cost;
}

static double cost_of(const struct draft_width *w, int rows)
{
    return rows < GEN_COSTS ? w->cost[rows] : w->cost[GEN_COSTS - 1] * rows / (GEN_COSTS - 1);
}

/* ms < 0 goes into the budget. */
static void pay(struct draft_width *w, double ms)
{
    const double most = BUDGET * w->worth;

    w->budget = w->budget - ms < most ? w->budget - ms : most;
}

/* The step that had guesses is over: it took `last` times what was expected, and that is what is paid. */
static void settle_up(struct draft_width *w, float last)
{
    if (w->checked > 0)
        pay(w, cost_of(w, w->n + w->checked) * (double)(last < longest ? last : longest) - cost_of(w, w->n) -
                   w->right * w->worth);
    w->breaks += w->checked == 0 && w->run > 0;
    w->run = w->checked > 0 ? w->run + 1 : 0;
    w->checked = w->right = 0;
}

/* Steps with guesses from one without to the next. They are compared in turns at first. */
static int most_at_once(const struct draft_width *w)
{
    const int n = w->breaks - TURNS + 1;

    return n < 1 ? 1 : n < PLAIN_EVERY ? n : PLAIN_EVERY;
}

/* What goes into the budget, as a share of the time: less for drafters that were tried in vain until their pauses are
 * the longest. */
static double income_now(const struct draft_width *w)
{
    int vain = 0;

    for (int t = 0; t < w->n_type; t++)
        vain += w->type[t].pause == PAUSE_MOST;
    return income * (1 - 0.5 * vain / w->n_type);
}

static bool known_rows(const struct draft_width *w, int rows)
{
    return w->seen.ms[rows] > 0 || (w->was.row[rows] > 0 && w->seen.ms[1] > 0);
}

/* The speed of this machine is known: what another process told in steps of one row becomes milliseconds. */
static void wake_recalled(struct draft_width *w)
{
    const double one = w->cost[1];

    w->woken = true;
    w->budget = (w->was.budget < BROUGHT ? w->was.budget : BROUGHT) * one;
    for (int t = 0; t < w->n_type; t++)
        for (int n = 1; n <= GEN_DRAFT_MAX; n++)
            if (w->was.type[t].call[n] > 0) {
                w->type[t].took[n] = RECALLED * w->was.type[t].call[n] * one;
                w->type[t].base[n] = RECALLED * one;
                w->type[t].calls[n] = RECALLED;
            }
}

void draft_width_step(struct draft_width *w, const struct gen_cost *cost, int n)
{
    settle_up(w, cost->last);
    take_costs(w, cost);
    w->records = cost->records;
    w->n = n;
    w->rows = n < GEN_COSTS ? n : GEN_COSTS - 1;
    w->tokens = n;
    w->guess_ms = 0;
    w->worth = n > 0 ? w->cost[w->rows] / n : w->cost[1];
    w->steps += n > 0 && w->steps < PLAIN;
    if (w->recalled && !w->woken && cost->ms[1] > 0)
        wake_recalled(w);
    if (n > 0 && w->started)
        pay(w, -income_now(w) * w->cost[w->rows]);
    else if (n > 0 && w->first[w->rows] == 0) { /* steps have got as quick as they are */
        pay(w, -start * w->worth);
        w->started = true;
    }
    w->plain = w->first[w->rows] > 0 || w->run >= most_at_once(w) || !known_rows(w, w->rows) || w->budget < 0;
    w->first[w->rows] -= w->first[w->rows] > 0;
    for (int t = 0; t < w->n_type; t++) {
        w->asked_ms[t] = 0;
        w->type[t].wait -= w->type[t].wait > 0;
    }
}

void draft_width_again(struct draft_width *w, int n)
{
    w->rows = n < GEN_COSTS ? n : GEN_COSTS - 1;
    w->tokens = n;
}

/* Tokens a millisecond of a step, when this sequence adds `rows` rows, `tokens` tokens and `ms` of guessing. */
static double rate(const struct draft_width *w, int rows, double tokens, double ms)
{
    return (w->tokens + tokens) / (cost_of(w, w->rows + rows) + w->guess_ms + ms);
}

/* Of asking for n guesses, from the nearest number that was asked for before. */
static double guess_cost(const struct draft_width *w, int type, int n)
{
    const struct known *k = &w->type[type];

    for (int d = 0; d <= GEN_DRAFT_MAX; d++)
        for (int i = n - d; i <= n + d; i += d > 0 ? 2 * d : 1)
            if (i >= 1 && i <= GEN_DRAFT_MAX && k->calls[i] > 0)
                return k->took[i] / k->base[i] * w->worth * n / i;
    return 0;
}

void draft_width_spent(struct draft_width *w, int type, int n, double ms, bool late)
{
    struct known *k = &w->type[type];
    const double keep = k->calls[n] < MEMORY_SEQ ? 1 : 1 - 1.0 / MEMORY_SEQ;
    const double usual = guess_cost(w, type, n), worst = WORST * (usual > w->worth ? usual : w->worth);

    if (w->records && k->met[n] < 2) { /* happens once, whatever comes of it */
        k->met[n]++;
        return;
    }
    ms = ms > worst ? worst : ms;
    pay(w, ms);
    if (late)
        return;
    k->took[n] = k->took[n] * keep + ms;
    k->base[n] = k->base[n] * keep + w->worth;
    k->calls[n] = k->calls[n] * keep + 1;
}

/* ---- choosing ---- */

struct draft_choice draft_width_none(const struct draft_width *w)
{
    return (struct draft_choice){ .type = -1, .rate = rate(w, 0, 0, 0) * margin };
}

static int class_of(float p)
{
    const int i = p > 0 ? (int)(p * SURES) : 0;

    return i < SURES ? i : SURES - 1;
}

void draft_width_try(const struct draft_width *w, int type, const struct draft_ask *a, struct draft_choice *best)
{
    double right = 1;
    int n = 0;

    while (n < a->n && (right *= (double)w->type[type].sure.kept[class_of(a->p[n])]) >= likely)
        n++;
    if (best->type < 0 && n > 0 && !w->plain && w->budget >= TRIAL * w->worth && w->rest[a->seq] == 0 &&
        w->type[type].wait == 0 && w->turn[a->seq] % w->n_type == type)
        *best = (struct draft_choice){ .type = type, .n = n, .trial = true, .rate = best->rate };
}

void draft_width_made(const struct draft_width *w, int type, const struct draft_ask *a, struct draft_choice *best)
{
    double right = 1, tokens = 0;

    for (int i = 0; i < a->n && !w->plain && !best->trial; i++) {
        right *= (double)w->type[type].sure.kept[class_of(a->p[i])];
        tokens += right;
        const double r = rate(w, i + 1, tokens, 0);
        if (r > best->rate)
            *best = (struct draft_choice){ type, i + 1, false, r, tokens, 0 };
    }
}

/* Guesses to ask for when n are wanted. */
static int fit(const struct draft_type *t, const void *of, int n, int n_max)
{
    const int asked = t->fit != NULL ? t->fit(of, n) : n;

    return asked < n_max ? asked : n_max;
}

/* What asking for n guesses may lose, by what is known; at most half of what fits into the budget, so that even the
 * dearest drafter gets a trial. */
static double risk_of(const struct draft_width *w, const struct draft_choice *c, int n)
{
    const double most = BUDGET * w->worth / 2, rows = cost_of(w, w->rows + n) - cost_of(w, w->rows);
    const double loss = guess_cost(w, c->type, n) - w->asked_ms[c->type] + rows - c->tokens * w->worth;

    return loss < most ? loss : most;
}

/* If it is time for a trial of a drafter, *c asks it for guesses that need not pay: for a few at first; later for the
 * best number, and every other time, or if that number pays by itself, for twice as many. */
static void make_trial(const struct draft_width *w, const struct draft_type *t, const void *of, int seq, int n_max,
                       bool pays, struct draft_choice *c)
{
    const int tries = w->type[c->type].tries;
    int n = fit(t, of, FIRST, n_max);

    n = n > FIRST ? fit(t, of, n + 1, n_max) : n;
    if (w->budget < TRIAL * w->worth ||
        (tries < TRIES && (w->rest[seq] > 0 || w->type[c->type].wait > 0 || w->turn[seq] % w->n_type != c->type)))
        return;
    if (tries == 0) {
        n = pays || w->turn[seq] / w->n_type % 2 > 0 ? fit(t, of, 2 * c->n, n_max) : c->n;
        if (pays && n <= c->n)
            return;
    }
    if (w->type[c->type].tries == 0 && w->budget < risk_of(w, c, n))
        return;
    c->trial = true;
    c->n = n;
}

void draft_width_promise(const struct draft_width *w, int type, const struct draft_type *t, const void *of, int seq,
                         int n_max, struct draft_choice *best)
{
    const struct share *s = &w->seq[seq * w->n_type + type];
    struct draft_choice mine = { .type = -1, .rate = 0 };
    double right = 1, tokens = 0;

    for (int i = 0; i < n_max && !w->plain && !best->trial; i++) { /* a trial stays, whatever pays more */
        const int asked = fit(t, of, i + 1, n_max);
        double ms = guess_cost(w, type, asked) - w->asked_ms[type];

        ms = ms > 0 ? ms : 0;
        right *= (double)s->kept[i];
        tokens += right;
        const double r = rate(w, i + 1, tokens, ms);
        if (r > mine.rate)
            mine = (struct draft_choice){ type, asked, false, r, tokens, ms };
    }
    if (mine.type >= 0)
        make_trial(w, t, of, seq, n_max, mine.rate > best->rate, &mine);
    if (mine.type >= 0 && (mine.trial || (mine.rate > best->rate && w->type[type].tries < TRIES)))
        *best = mine;
}

void draft_width_take(struct draft_width *w, const struct draft_choice *c, int seq, bool asked)
{
    struct known *k;

    w->tokens += c->tokens;
    w->rows += c->n;
    w->guess_ms += c->ms;
    if (!asked)
        return;
    w->rest[seq] -= w->rest[seq] > 0;
    w->turn[seq] += w->rest[seq] == 0; /* whether there was one to try or not */
    if (c->type < 0)
        return;
    k = &w->type[c->type];
    w->asked_ms[c->type] += c->ms;
    k->tries -= k->tries > 0;
    k->pause = !c->trial ? PAUSE : 2 * k->pause < PAUSE_MOST ? 2 * k->pause : PAUSE_MOST;
    k->wait = c->trial ? k->pause : 0;
    if (c->trial)
        w->rest[seq] = PAUSE;
}

void draft_width_nothing(struct draft_width *w, int type)
{
    struct known *k = &w->type[type];

    k->tries = k->tries == TRIES - 1 ? TRIES : k->tries;
    k->pause = k->pause > PAUSE ? k->pause / 2 : PAUSE;
    k->wait = 0;
}

/* ---- other processes ---- */

bool draft_width_tell(const struct draft_width *w, struct draft_learnt *out)
{
    const double one = w->cost[1];

    if (!w->started || !(one > 0) || (w->recalled && !w->woken) || (w->steps < PLAIN && !w->asked))
        return false;
    *out = (struct draft_learnt){ .budget = w->budget / one };
    for (int k = 1; k < GEN_COSTS; k++)
        out->row[k] = known_rows(w, k) ? w->cost[k] / one : 0;
    for (int t = 0; t < w->n_type; t++) {
        const struct known *k = &w->type[t];
        struct draft_learnt_type *o = &out->type[t];

        o->tries = k->tries;
        o->pause = k->pause;
        for (int n = 1; n <= GEN_DRAFT_MAX; n++)
            o->call[n] = k->calls[n] > 0 ? k->took[n] / k->base[n] : 0;
        for (int i = 0; i < GEN_DRAFT_MAX; i++) {
            o->kept[i] = (double)k->all.kept[i];
            o->sure[i] = (double)k->sure.kept[i];
        }
    }
    return true;
}

static bool are_within(const double *v, int n, double least, double most)
{
    for (int i = 0; i < n; i++)
        if (!(v[i] >= least && v[i] <= most))
            return false;
    return true;
}

bool draft_width_recall(struct draft_width *w, const struct draft_learnt *l)
{
    const double most = 1e4; /* steps */

    if (!are_within(l->row, GEN_COSTS, 0, most) || !are_within(&l->budget, 1, -most, BUDGET) || !(l->row[1] > 0))
        return false;
    for (int t = 0; t < w->n_type; t++) {
        const struct draft_learnt_type *o = &l->type[t];

        if (!are_within(o->call, GEN_DRAFT_MAX + 1, 0, most) || !are_within(o->kept, GEN_DRAFT_MAX, 0, 1) ||
            !are_within(o->sure, GEN_DRAFT_MAX, 0, 1) || o->tries < 0 || o->tries > TRIES || o->pause < 1 ||
            o->pause > PAUSE_MOST)
            return false;
    }
    w->was = *l;
    w->recalled = w->started = true;
    w->breaks = TURNS;
    for (int i = 0; i < GEN_COSTS; i++)
        w->first[i] = PLAIN_RECALLED;
    for (int t = 0; t < w->n_type; t++) {
        struct known *k = &w->type[t];

        k->tries = l->type[t].tries;
        k->pause = l->type[t].pause;
        for (int i = 0; i < GEN_DRAFT_MAX; i++) {
            k->all.kept[i] = (float)l->type[t].kept[i];
            k->sure.kept[i] = (float)l->type[t].sure[i];
            k->all.seen[i] = k->sure.seen[i] = k->tries == 0 ? RECALLED : 0;
        }
    }
    for (int s = 0; s < w->n_seq; s++)
        draft_width_begin(w, s);
    return true;
}

/* ---- learning ---- */

static void note_guess(struct share *s, int i, bool right, int memory)
{
    s->seen[i] += s->seen[i] < memory;
    s->kept[i] += ((right ? 1.0f : 0.0f) - s->kept[i]) / ((float)s->seen[i] + 0.5f);
}

void draft_width_learn(struct draft_width *w, int type, int seq, const float *p, int n_made, int n, int n_kept)
{
    struct known *k = &w->type[type];
    struct share *s = &w->seq[seq * w->n_type + type];

    for (int i = 0; i < n && i <= n_kept; i++) {
        note_guess(&k->sure, class_of(p[i]), i < n_kept, MEMORY_ALL);
        note_guess(&k->all, i, i < n_kept, MEMORY_ALL);
        note_guess(s, i, i < n_kept, MEMORY_SEQ);
    }
    w->asked = true;
    w->checked += n;
    w->right += n_kept;
    if (n_kept < n || n >= n_made)
        return;
    /* A guess that was not worth its row is none that came of asking. */
    note_guess(&k->all, n, false, MEMORY_ALL);
    note_guess(s, n, false, MEMORY_SEQ);
}
