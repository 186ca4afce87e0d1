/* SPDX-License-Identifier: Apache-2.0 */
/* vote.c - votes over answers, scores of steps and solutions.               room: reason */
#include "reason/vote.h"

#include <math.h>
#include <stdio.h>

#include "base/json.h"

static double score_of(const struct reason_candidate *c)
{
    return isnan(c->score) ? 0 : c->score;
}

/* The best candidate by `how`; -1: none has an answer. *top: what it has. */
static int find_winner(const struct reason_candidate *c, int n, enum reason_vote how, double *top)
{
    int winner = -1;

    *top = 0;
    for (int i = 0; i < n; i++) {
        double sum = 0;

        if (c[i].canon.n == 0)
            continue;
        for (int k = 0; how != REASON_BEST && k < n; k++)
            if (str_eq(c[k].canon, c[i].canon))
                sum += how == REASON_MAJORITY ? 1 : score_of(&c[k]);
        if (how == REASON_BEST)
            sum = score_of(&c[i]);
        if (winner < 0 || sum > *top) {
            winner = i;
            *top = sum;
        }
    }
    return winner;
}

const char *reason_vote_name(enum reason_vote v)
{
    static const char *const names[] = { "majority", "weighted", "best" };

    return names[v];
}

struct reason_tally reason_vote(const struct reason_candidate *c, int n, enum reason_vote how)
{
    struct reason_tally t = { .winner = -1 };
    double most, top;
    const int by_count = find_winner(c, n, REASON_MAJORITY, &most);

    if (by_count < 0)
        return t;
    t.winner = find_winner(c, n, how, &top);
    if (how != REASON_MAJORITY && !(top > 0)) {
        t.winner = by_count;
        t.by_majority = true;
    }
    for (int i = 0; i < n; i++)
        if (str_eq(c[i].canon, c[t.winner].canon)) {
            t.votes++;
            t.weight += score_of(&c[i]);
        }
    t.agreement = most / n;
    return t;
}

double reason_aggregate(const double *step, int n, enum reason_aggregate how)
{
    double x = step[0];

    for (int i = 1; i < n; i++)
        switch (how) {
        case REASON_LAST:
            x = step[i];
            break;
        case REASON_MIN:
            x = fmin(x, step[i]);
            break;
        case REASON_PROD:
            x *= step[i];
            break;
        case REASON_MEAN:
            x += step[i];
            break;
        }
    return how == REASON_MEAN ? x / n : x;
}

/* How many letters of the word a piece without blanks begins; 0: it is no beginning of it. */
static size_t beginning(struct str piece, const char *word)
{
    size_t n = 0;

    for (; n < piece.n && word[n] != '\0'; n++) {
        const char c = piece.p[n];

        if ((c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c) != word[n])
            return 0;
    }
    return n == piece.n ? n : 0;
}

int reason_word_side(struct str piece, const char *yes, const char *no, bool part)
{
    size_t y, n;

    while (piece.n > 0 && (*piece.p == ' ' || (*piece.p >= '\t' && *piece.p <= '\r')))
        piece = (struct str){ piece.p + 1, piece.n - 1 };
    while (piece.n > 0 &&
           (piece.p[piece.n - 1] == ' ' || (piece.p[piece.n - 1] >= '\t' && piece.p[piece.n - 1] <= '\r')))
        piece.n--;
    y = beginning(piece, yes);
    n = beginning(piece, no);
    if (y > 0 && (part ? n == 0 : yes[y] == '\0'))
        return 1;
    return n > 0 && (part ? y == 0 : no[n] == '\0') ? -1 : 0;
}

double reason_verdict(double yes, double no)
{
    return yes + no > 0 ? yes / (yes + no) : (double)NAN;
}

/* ---- the line of a verifier ---- */

static enum err_code read_score(double *out, const json_t *v, const char *what, struct err *e)
{
    const double x = json_number_value(v);

    if (!json_is_number(v))
        return err_set(e, ERR_FORMAT, "%s is no number", what);
    if (!(x >= 0 && x <= 1))
        return err_set(e, ERR_FORMAT, "%s is %g, not 0 .. 1", what, x);
    *out = x;
    return ERR_OK;
}

static enum err_code read_steps(double *step, size_t n_steps, const json_t *steps, struct err *e)
{
    char what[40];

    if (steps != NULL && (!json_is_array(steps) || json_array_size(steps) != n_steps))
        return err_set(e, ERR_FORMAT, "\"steps\" is no array of %zu", n_steps);
    for (size_t i = 0; i < n_steps; i++) {
        const json_t *one = json_array_get(steps, i);

        (void)snprintf(what, sizeof what, "step %zu", i + 1);
        step[i] = (double)NAN;
        if (one != NULL && !json_is_null(one) && read_score(&step[i], one, what, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code reason_score_line(struct str line, double *score, double *step, size_t n_steps, struct err *e)
{
    json_t *v;
    double x = 0;
    enum err_code code = json_parse(&v, line, "its line", e);

    if (code)
        return code == ERR_NOMEM
                   ? code
                   : err_set(e, ERR_FORMAT, "\"%.*s\" is no score", (int)(line.n < 60 ? line.n : 60), line.p);
    code = read_score(&x, json_is_object(v) ? json_object_get(v, "score") : v, "the score", e);
    if (code == ERR_OK)
        code = read_steps(step, n_steps, json_is_object(v) ? json_object_get(v, "steps") : NULL, e);
    if (code == ERR_OK)
        *score = x;
    json_decref(v);
    return code;
}
