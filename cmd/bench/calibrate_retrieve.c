/* SPDX-License-Identifier: Apache-2.0 */
/* calibrate_retrieve.c - when texts are looked up: each question is answered without and with them.     room: cmd */
#include <math.h>
#include <stdlib.h>

#include "bench/calibrate.h"

#define ROUNDING 1e-4 /* of a mean, which is summed up in another way when it is used */

/* A question. */
struct trial {
    double score; /* the mean logarithm of the probabilities of its answer's tokens, without texts */
    bool doubted; /* it says that it does not know: looked up at any threshold */
    bool has;     /* an index has a text for it */
    bool without, with;
    const struct both *of;
};

static double mean_logprob(const struct both_side *s)
{
    const size_t n = (size_t)s->answer.n < s->n_p ? (size_t)s->answer.n : s->n_p; /* the last one may be the end */
    double sum = 0;

    for (size_t i = 0; i < n; i++)
        sum += log((double)s->p[i]);
    return n > 0 ? sum / (double)n : -INFINITY;
}

/* Questions of one half or the other, into v. */
static enum err_code take_trials(const struct calibration_job *j, bool picks, struct trial *v, size_t *n, struct err *e)
{
    *n = 0;
    for (size_t i = 0; i < j->n; i++) {
        const struct both *q = &j->v[i];
        const struct both_side *s = &q->side[0];
        char *text;
        size_t n_text;

        if (q->picks != picks)
            continue;
        if (text_decode(j->b->open.text, s->answer.v, s->answer.n, TEXT_SPECIAL, &text, &n_text, e))
            return e->code;
        v[(*n)++] = (struct trial){ mean_logprob(s),
                                    ask_abstains((struct str){ text, n_text }),
                                    json_array_size(q->side[1].asked->notes) > 0,
                                    s->right,
                                    q->side[1].right,
                                    q };
        free(text);
    }
    return ERR_OK;
}

static bool looks_up(const struct trial *t, double below)
{
    return t->doubted || !(t->score >= below);
}

static int by_score(const void *a, const void *b)
{
    const struct trial *x = a, *y = b;

    return (x->score > y->score) - (x->score < y->score);
}

/* The highest threshold that drops at most this share of the answers that are right without texts, between the scores
 * of two questions; *known: how many are right. */
static double pick_below(struct trial *v, size_t n, double may_lose, int64_t *known)
{
    int64_t dropped = 0;
    size_t i = 0;

    *known = 0;
    for (size_t k = 0; k < n; k++)
        *known += v[k].without && !v[k].doubted;
    qsort(v, n, sizeof *v, by_score);
    for (; i < n; i++) {
        dropped += v[i].without && !v[i].doubted;
        if ((double)dropped > may_lose * (double)*known)
            break;
    }
    return i < n ? v[i].score - ROUNDING : 0;
}

static enum err_code report(struct calibration_job *j, const struct trial *v, size_t n, const char *set, struct err *e)
{
    const struct {
        const char *name;
        double below;
    } ways[] = { { "without texts", -INFINITY }, { "with texts", INFINITY }, { "auto", (double)j->retrieve_below } };

    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        int64_t right = 0, looked = 0, known = 0, kept = 0, of = 0;
        char what[160];
        json_t *r;

        for (size_t i = 0; i < n; i++) {
            const struct trial *t = &v[i];
            const bool looks = w > 0 && t->has && (w == 1 || looks_up(t, ways[w].below));
            const bool now = looks ? t->with : t->without;

            if (set != NULL && t->of->set != set)
                continue;
            of++;
            looked += looks;
            right += now;
            known += t->without;
            kept += t->without && now;
        }
        const struct eval_interval ci = eval_wilson(right, of, 1.959964);

        cli_bench_line(j->b,
                       "%-20.20s %-14s %5lld of %5lld  %5.1f %% [%.1f, %.1f]  looked up %5lld, keeps %lld of %lld",
                       set != NULL ? set : "the other half", ways[w].name, (long long)right, (long long)of,
                       of > 0 ? 100.0 * (double)right / (double)of : 0, 100 * ci.lo, 100 * ci.hi, (long long)looked,
                       (long long)kept, (long long)known);
        (void)snprintf(what, sizeof what, "retrieve %s, %.100s", ways[w].name, set != NULL ? set : "all");
        r = cli_bench_record("calibrate", what, "accuracy", "higher");
        cli_bench_real(r, "accuracy", of > 0 ? (double)right / (double)of : (double)NAN);
        cli_bench_real(r, "accuracy_lo", ci.lo);
        cli_bench_real(r, "accuracy_hi", ci.hi);
        cli_bench_real(r, "noise", (ci.hi - ci.lo) / 2);
        cli_bench_int(r, "n_items", of);
        cli_bench_int(r, "n_looked_up", looked);
        cli_bench_int(r, "n_known", known);
        cli_bench_int(r, "n_kept", kept);
        cli_bench_real(r, "below", w == 2 ? ways[w].below : (double)NAN);
        if (cli_bench_done(j->b, r, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code cli_bench_calibrate_retrieve(struct calibration_job *j, struct err *e)
{
    size_t n = 0, n_other = 0;
    struct trial *v = calloc(j->n + 1, sizeof *v), *other = calloc(j->n + 1, sizeof *other);
    enum err_code code = v != NULL && other != NULL ? ERR_OK : err_nomem(e);

    if (code == ERR_OK && (take_trials(j, true, v, &n, e) || take_trials(j, false, other, &n_other, e)))
        code = e->code;
    if (code == ERR_OK) {
        j->retrieve_below = (float)pick_below(v, n, (double)j->b->o->may_lose, &j->n_retrieve);
        if (j->n_retrieve == 0)
            code = err_set(e, ERR_FORMAT, "calibrate: no answer without texts is right: there is nothing to keep");
    }
    if (code == ERR_OK)
        cli_bench_line(j->b,
                       "looked up below %.4f: of %lld answers that are right without texts at most %g are dropped",
                       (double)j->retrieve_below, (long long)j->n_retrieve, (double)j->b->o->may_lose);
    for (size_t i = 0; code == ERR_OK && i < j->n; i++)
        if (i == 0 || j->v[i].set != j->v[i - 1].set)
            code = report(j, other, n_other, j->v[i].set, e);
    if (code == ERR_OK)
        code = report(j, other, n_other, NULL, e);
    free(v);
    free(other);
    return code;
}
