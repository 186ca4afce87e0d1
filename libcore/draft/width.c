/* SPDX-License-Identifier: Apache-2.0 */
/* width.c - how many guesses of which drafter are worth their rows.
 *
 * k guesses give 1 + q1 + q1 q2 + ... tokens a step (q1 .. qk), where qi is the share of guesses at
 * place i that are right when those before them are. The time of a step is measured by its number
 * of rows, and so is that of making guesses; what counts is tokens for the time of the whole step. Before guesses
 * are made, qi is what the drafter's places had in this sequence; when they are there, what guesses
 * had of which the drafter was as sure. Both are moving averages.
 *
 * The first guesses of a drafter are as many as it can make: that shows what they and their rows
 * cost. Later every drafter has its turn to be asked although it does not pay, or for more guesses than
 * pay: texts change, and what was measured while the machine was busy is wrong. Such a trial costs time;
 * the next one comes when what it cost is one part in a hundred of the time since. Nothing here can
 * change a byte of an answer. */
#include <stdlib.h>

#include "draft/internal.h"

enum {
    COSTS = 64,        /* rows of steps whose cost is known */
    SURES = 16,        /* classes of how sure a drafter is */
    PAUSE = 16,        /* steps from one trial to the next, at least and at most */
    PAUSE_MAX = 1024,
    PLAIN = 4,         /* first steps without guesses, to learn what they cost */
    PLAIN_EVERY = 256, /* steps with guesses: one without, to learn whether that has changed */
    TRIES = 2,         /* of a drafter, at first */
    PRIOR = 4,         /* what other sequences showed counts as this number of guesses */
    MEMORY_SEQ = 16,   /* guesses that an average goes back */
    MEMORY_ALL = 256,
};
/* Of a step with one row, while nothing else is known: to be tried out. */
static const float row_cost = 0.05f;
static const double margin = 1.03;   /* what pays less than this is not worth a change */
static const double trials = 0.01;   /* of the time */

/* The shares of guesses at each place that were right. */
struct share {
    float kept[GEN_DRAFT_MAX];
    int   seen[GEN_DRAFT_MAX];
};

/* What is known of a drafter. */
struct known {
    struct share all;
    struct share sure; /* by class; SURES is GEN_DRAFT_MAX */
    float        ms[GEN_DRAFT_MAX + 1]; /* [n]: of a call for n guesses; 0: not known */
    int          tries;  /* still to come */
};

struct draft_width {
    int           n_type, n_seq;
    struct known *type;          /* [n_type] */
    struct share *seq;           /* [n_seq][n_type] */
    int          *rest, *turn;   /* [n_seq] steps until the next trial; the trials there were */
    /* the step that is being put together */
    double        cost[COSTS];
    double        tokens, guess_ms;
    double       *asked_ms;      /* [n_type] of guess_ms */
    int           rows, n;       /* so far; answers */
    bool          plain;         /* without guesses */
    int           left[COSTS];   /* by answers: steps until a plain one; < 0: minus the plain ones to come */
};
_Static_assert((int)SURES == (int)GEN_DRAFT_MAX, "struct share serves both");

static void forget(struct share *s, float kept)
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
    if (w == NULL || w->type == NULL || w->seq == NULL || w->rest == NULL || w->turn == NULL ||
        w->asked_ms == NULL) {
        draft_width_close(w);
        return err_set(e, ERR_NOMEM, "out of memory");
    }
    for (int t = 0; t < n_type; t++) {
        forget(&w->type[t].all, 0.75f);
        w->type[t].tries = TRIES;
        for (int i = 0; i < SURES; i++)
            w->type[t].sure.kept[i] = ((float)i + 0.5f) / SURES;
    }
    for (int i = 0; i < COSTS; i++)
        w->left[i] = -PLAIN;
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
static void fill(double *out, int n, const float *known, double slope)
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

void draft_width_step(struct draft_width *w, const float *cost_ms, int n)
{
    int *left;

    fill(w->cost, COSTS, cost_ms, (double)row_cost);
    w->n = n;
    w->rows = n < COSTS ? n : COSTS - 1;
    w->tokens = n;
    w->guess_ms = 0;
    left = &w->left[w->rows];
    w->plain = *left <= 0 || cost_ms[w->rows] <= 0;
    if (*left < -1)
        ++*left;
    else
        *left = *left <= 0 ? PLAIN_EVERY : *left - 1;
    for (int t = 0; t < w->n_type; t++)
        w->asked_ms[t] = 0;
}

void draft_width_again(struct draft_width *w, int n)
{
    w->rows = n < COSTS ? n : COSTS - 1;
    w->tokens = n;
}

/* Tokens a millisecond of a step, when this sequence adds `rows` rows, `tokens` tokens and `ms` of guessing. */
static double rate(const struct draft_width *w, int rows, double tokens, double ms)
{
    const int n = w->rows + rows;
    const double cost = n < COSTS ? w->cost[n] : w->cost[COSTS - 1] * n / (COSTS - 1);

    return (w->tokens + tokens) / (cost + w->guess_ms + ms);
}

/* Of asking for n guesses, from the nearest number that was asked for before. */
static double guess_cost(const struct known *k, int n)
{
    for (int d = 0; d <= GEN_DRAFT_MAX; d++)
        for (int i = n - d; i <= n + d; i += d > 0 ? 2 * d : 1)
            if (i >= 1 && i <= GEN_DRAFT_MAX && k->ms[i] > 0)
                return (double)k->ms[i] * n / i;
    return 0;
}

void draft_width_spent(struct draft_width *w, int type, int n, double ms)
{
    float *known = &w->type[type].ms[n];
    const float now = (float)ms;

    if (*known <= 0 || now < 0.5f * *known)
        *known = now;
    else /* one long call says little */
        *known += now > 1.25f * *known ? 0.05f * *known : 0.2f * (now - *known);
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

void draft_width_made(const struct draft_width *w, int type, const struct draft_ask *a,
                      struct draft_choice *best)
{
    double right = 1, tokens = 0;

    for (int i = 0; i < a->n && !w->plain; i++) {
        right *= (double)w->type[type].sure.kept[class_of(a->p[i])];
        tokens += right;
        const double r = rate(w, i + 1, tokens, 0);
        if (r > best->rate)
            *best = (struct draft_choice){ type, i + 1, false, r, tokens, 0, 0 };
    }
}

/* Guesses to ask for when n are wanted. */
static int fit(const struct draft_type *t, const void *of, int n, int n_max)
{
    const int asked = t->fit != NULL ? t->fit(of, n) : n;

    return asked < n_max ? asked : n_max;
}

/* Makes what is best of a drafter a trial when it is time for one: as many guesses as it can make at first; later those
 * that would be best although they do not pay, and every other time, or where they do, twice as many. `rate` is the
 * step's without it. */
static void make_trial(const struct draft_width *w, const struct draft_type *t, const void *of, int seq, int n_max,
                       double rate, bool pays, struct draft_choice *c)
{
    const struct share *s = &w->seq[seq * w->n_type + c->type];
    double right = 1, tokens = w->tokens;
    int n = n_max, rows;

    if (w->type[c->type].tries < TRIES && (w->rest[seq] > 0 || w->turn[seq] % w->n_type != c->type))
        return;
    if (w->type[c->type].tries == 0) {
        n = pays || w->turn[seq] / w->n_type % 2 > 0 ? fit(t, of, 2 * c->n, n_max) : c->n;
        if (pays && n <= c->n)
            return;
    }
    for (int i = 0; i < n; i++)
        tokens += right *= (double)s->kept[i];
    rows = w->rows + n < COSTS ? w->rows + n : COSTS - 1;
    c->trial = true;
    c->n = n;
    if (w->type[c->type].tries == 0) /* those to come are soon */
        c->loss = w->cost[rows] + w->guess_ms + guess_cost(&w->type[c->type], n) - tokens / rate;
}

void draft_width_promise(const struct draft_width *w, int type, const struct draft_type *t,
                         const void *of, int seq, int n_max, struct draft_choice *best)
{
    const struct share *s = &w->seq[seq * w->n_type + type];
    struct draft_choice mine = { .type = -1, .rate = 0 };
    double right = 1, tokens = 0;

    for (int i = 0; i < n_max && !w->plain; i++) {
        const int asked = fit(t, of, i + 1, n_max);
        double ms = guess_cost(&w->type[type], asked) - w->asked_ms[type];

        ms = ms > 0 ? ms : 0;
        right *= (double)s->kept[i];
        tokens += right;
        const double r = rate(w, i + 1, tokens, ms);
        if (r > mine.rate)
            mine = (struct draft_choice){ type, asked, false, r, tokens, ms, 0 };
    }
    if (mine.type >= 0 && !best->trial)
        make_trial(w, t, of, seq, n_max, best->rate > mine.rate ? best->rate : mine.rate, mine.rate > best->rate,
                   &mine);
    if (mine.type >= 0 && (mine.rate > best->rate || mine.trial))
        *best = mine;
}

void draft_width_take(struct draft_width *w, const struct draft_choice *c, int seq, bool asked)
{
    double pause;

    w->tokens += c->tokens;
    w->rows += c->n;
    w->guess_ms += c->ms;
    if (!asked)
        return;
    w->rest[seq] -= w->rest[seq] > 0;
    w->turn[seq] += w->rest[seq] == 0; /* whether there was one to try or not */
    if (c->type < 0)
        return;
    w->asked_ms[c->type] += c->ms;
    w->type[c->type].tries -= w->type[c->type].tries > 0;
    if (!c->trial)
        return;
    pause = c->loss / (trials * w->cost[w->n < COSTS ? w->n : COSTS - 1]) * w->n;
    w->rest[seq] = pause < PAUSE ? PAUSE : pause > PAUSE_MAX ? PAUSE_MAX : (int)pause;
}

/* ---- learning ---- */

static void note(struct share *s, int i, bool right, int memory)
{
    s->seen[i] += s->seen[i] < memory;
    s->kept[i] += ((right ? 1.0f : 0.0f) - s->kept[i]) / ((float)s->seen[i] + 0.5f);
}

void draft_width_learn(struct draft_width *w, int type, int seq, const float *p, int n_made, int n,
                       int n_kept)
{
    struct known *k = &w->type[type];
    struct share *s = &w->seq[seq * w->n_type + type];

    for (int i = 0; i < n && i <= n_kept; i++) {
        note(&k->sure, class_of(p[i]), i < n_kept, MEMORY_ALL);
        note(&k->all, i, i < n_kept, MEMORY_ALL);
        note(s, i, i < n_kept, MEMORY_SEQ);
    }
    if (n_kept < n || n >= n_made)
        return;
    /* A guess that was not worth its row is none that came of asking. */
    note(&k->all, n, false, MEMORY_ALL);
    note(s, n, false, MEMORY_SEQ);
}
