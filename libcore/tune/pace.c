/* SPDX-License-Identifier: Apache-2.0 */
/* pace.c - how many items a step takes, and how many texts are written for it, in the time that there is. */
#include <stdlib.h>

#include "tune/job.h"
#include "tune/lora.h"

enum {
    FEW = 8,          /* items of the first measurement */
    LEAST = 8,        /* items to learn in a step, */
    KEEP_LEAST = 4,   /* and rehearsed ones, that time does not reduce */
    KEEP_TOKENS = 64, /* of a rehearsed one, about */
};
#define STEPS_SHARE   0.5   /* of the time, in which steps are taken */
#define MEASURE_SHARE 0.005 /* of the time, at most, for a whole batch */

/* Seconds of a backward pass for each token, by n items to learn. */
static enum err_code time_items(struct tune_job *j, int64_t n, double *each_s, struct err *e)
{
    struct grad_seq *seq = calloc((size_t)n, sizeof *seq);
    const double from_ms = tune_now_ms(j);
    int64_t tokens = 0, i;
    enum err_code code = seq == NULL ? err_nomem(e) : ERR_OK;

    for (i = 0; code == ERR_OK && i < n && (i == 0 || tokens < j->rows_max); i++) {
        seq[i] = tune_seq(&j->data.learn.v[i % j->data.learn.n], 1);
        tokens += seq[i].n;
    }
    if (i > 1 && tokens > j->rows_max)
        tokens -= seq[--i].n;
    if (code == ERR_OK)
        code = tune_gradient(j, seq, (int)i, NULL, e);
    free(seq);
    *each_s = (tune_now_ms(j) - from_ms) / 1e3 / (double)(tokens > 0 ? tokens : 1);
    return code;
}

static int at_least(int least, int most, double n)
{
    return n >= most || most <= least ? most : n > least ? (int)n : least;
}

enum err_code tune_fit_pace(struct tune_job *j, struct err *e)
{
    const struct tune_opts *o = j->o;
    const double item = (double)tune_items_tokens(&j->data.learn) / (double)j->data.learn.n;
    const double batch = o->n_text * item + o->keep_batch * KEEP_TOKENS, time_s = STEPS_SHARE * o->time_s;
    double each_s, part, steps;

    if (o->method != TUNE_FIRST)
        return ERR_OK;
    if (time_items(j, FEW, &each_s, e))
        return e->code;
    if (each_s * batch < MEASURE_SHARE * o->time_s && time_items(j, o->n_text + o->keep_batch, &each_s, e))
        return e->code;
    part = time_s / (each_s * batch * (double)j->steps);
    if (part >= 1)
        return ERR_OK;
    j->pace.n_text = at_least(LEAST, o->n_text, part * o->n_text);
    j->pace.keep_batch = at_least(KEEP_LEAST, o->keep_batch, part * o->keep_batch);
    steps = time_s / (each_s * (j->pace.n_text * item + j->pace.keep_batch * KEEP_TOKENS));
    /* half of the answers are rehearsed, each about once */
    j->pace.rehearse = at_least(o->keep_batch, o->rehearse, 2 * steps * j->pace.keep_batch);
    tune_note(j, false, "a token takes %.2g ms: %d items to learn and %d rehearsed in a step, about %.0f steps",
              1e3 * each_s, j->pace.n_text, j->pace.keep_batch, steps);
    return ERR_OK;
}
