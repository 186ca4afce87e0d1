/* SPDX-License-Identifier: Apache-2.0 */
/* search.c - tree search: subtrees, their steps, the vote (search.h).        room: reason */
#include "reason/search.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 4 }; /* by default */

struct reason_search {
    struct reason_search_opts o;
    int n_subtrees;
    double *score;              /* [n_subtrees][steps_max] of the steps taken */
    int *steps;                 /* [n_subtrees] */
    bool *ended;                /* [n_subtrees] */
    struct reason_candidate *c; /* [n_subtrees], whose texts are owned */
};

static bool read_int(const char **s, int *n)
{
    const char *from = *s;

    for (*n = 0; **s >= '0' && **s <= '9' && *n <= REASON_SEARCH_MAX; ++*s)
        *n = *n * 10 + **s - '0';
    return *s > from && *n >= 1 && *n <= REASON_SEARCH_MAX;
}

bool reason_search_size(const char *s, int *n, int *width)
{
    int a, b;

    if (!read_int(&s, &a))
        return false;
    b = a < WIDTH ? a : WIDTH;
    if (*s == 'x' && (s++, !read_int(&s, &b)))
        return false;
    if (*s != '\0' || a % b != 0)
        return false;
    *n = a;
    *width = b;
    return true;
}

enum err_code reason_search_open(struct reason_search **out, const struct reason_search_opts *o, struct err *e)
{
    struct reason_search *s;
    size_t n;

    if (o->n < 1 || o->n > REASON_SEARCH_MAX || o->width < 1 || o->width > o->n || o->n % o->width != 0)
        return err_set(e, ERR_ARG, "%d children in subtrees of %d", o->n, o->width);
    if (o->steps_max < 1)
        return err_set(e, ERR_ARG, "%d steps", o->steps_max);
    s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_nomem(e);
    s->o = *o;
    s->n_subtrees = o->n / o->width;
    n = (size_t)s->n_subtrees;
    s->score = calloc(n * (size_t)o->steps_max, sizeof *s->score);
    s->steps = calloc(n, sizeof *s->steps);
    s->ended = calloc(n, sizeof *s->ended);
    s->c = calloc(n, sizeof *s->c);
    if (s->score == NULL || s->steps == NULL || s->ended == NULL || s->c == NULL) {
        reason_search_close(s);
        return err_nomem(e);
    }
    for (size_t i = 0; i < n; i++)
        s->c[i].score = (double)NAN;
    *out = s;
    return ERR_OK;
}

void reason_search_close(struct reason_search *s)
{
    if (s == NULL)
        return;
    for (int i = 0; s->c != NULL && i < s->n_subtrees; i++)
        free((void *)(uintptr_t)s->c[i].canon.p);
    free(s->c);
    free(s->ended);
    free(s->steps);
    free(s->score);
    free(s);
}

bool reason_search_lives(const struct reason_search *s, int subtree)
{
    return !s->ended[subtree];
}

int reason_search_live(const struct reason_search *s)
{
    int n = 0;

    for (int i = 0; i < s->n_subtrees; i++)
        n += !s->ended[i];
    return n;
}

int reason_search_steps(const struct reason_search *s, int subtree)
{
    return s->steps[subtree];
}

enum err_code reason_search_add(struct reason_search *s, int subtree, const struct reason_child *child, int *kept,
                                struct err *e)
{
    double *score = s->score + (size_t)subtree * (size_t)s->o.steps_max;
    char *canon = NULL;
    int best = 0;

    assert(!s->ended[subtree]);
    for (int j = 1; j < s->o.width; j++)
        if (child[j].score > child[best].score || (isnan(child[best].score) && !isnan(child[j].score)))
            best = j;
    if (child[best].ended && child[best].canon.n > 0) {
        canon = malloc(child[best].canon.n);
        if (canon == NULL)
            return err_nomem(e);
        memcpy(canon, child[best].canon.p, child[best].canon.n);
        s->c[subtree].canon = (struct str){ canon, child[best].canon.n };
    }
    score[s->steps[subtree]++] = child[best].score;
    s->c[subtree].score = reason_aggregate(score, s->steps[subtree], s->o.aggregate);
    s->ended[subtree] = child[best].ended || s->steps[subtree] == s->o.steps_max;
    *kept = best;
    return ERR_OK;
}

const struct reason_candidate *reason_search_candidates(const struct reason_search *s)
{
    return s->c;
}

struct reason_tally reason_search_vote(const struct reason_search *s)
{
    return reason_vote(s->c, s->n_subtrees, s->o.vote);
}

/* The weight of another answer at most, of those that have votes. */
static double second(const struct reason_search *s, struct str first)
{
    double most = 0;

    for (int i = 0; i < s->n_subtrees; i++) {
        double sum = 0;

        for (int k = 0; k < s->n_subtrees; k++)
            if (str_eq(s->c[k].canon, s->c[i].canon))
                sum += s->o.vote == REASON_MAJORITY ? 1 : isnan(s->c[k].score) ? 0 : s->c[k].score;
        if (s->c[i].canon.n > 0 && !str_eq(s->c[i].canon, first))
            most = fmax(most, sum);
    }
    return most;
}

/* A live subtree adds at most one vote, or a score of 1, to any answer. The margin is above the rounding of sums whose
 * order is another one in the end. */
bool reason_search_decided(const struct reason_search *s)
{
    const struct reason_tally t = reason_search_vote(s);
    const int live = reason_search_live(s);
    const double margin = 1e-9;

    if (live == 0)
        return true;
    if (t.winner < 0 || t.by_majority)
        return false;
    if (s->o.vote == REASON_BEST) { /* of equal scores the first wins */
        for (int i = 0; i < t.winner; i++)
            if (!s->ended[i])
                return false;
        return s->c[t.winner].score >= 1;
    }
    return (s->o.vote == REASON_MAJORITY ? (double)t.votes : t.weight) >
           second(s, s->c[t.winner].canon) + (double)live + margin;
}
