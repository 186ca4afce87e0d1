/* SPDX-License-Identifier: Apache-2.0 */
/* rehearse.c - what a model that learns an adapter rehearses, and the shield of it. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "adapt/adapt.h"
#include "tune/job.h"
#include "tune/lora.h"
#include "tune/self_written.h"
#include "tune/shield.h"

enum { SHIELD_ROWS = 10000 };
#define OWN_SHARE    0.08 /* of the time, in which the model writes texts, and again answers */
#define ASK_SHARE    0.25 /* of the time, at most, until the model has been asked what it says of them */
#define SHIELD_SHARE 0.3  /* of the time, at most, until the shield has seen enough */

struct asking {
    struct tune_items *s;
    int64_t first; /* item of sequence 0 */
};

static double note_said(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct asking *a = ctx;
    struct tune_item *item = &a->s->v[a->first + seq];

    grad_soft_of(&item->said[row - (item->token.n - 1 - item->n_answer)], logits, n);
    return 0;
}

/* After the first items: where there is no time to ask for all others, some that are spread evenly. */
static void thin_to_time(const struct tune_job *j, struct tune_items *s, int64_t asked, double from_ms)
{
    const double now_ms = tune_now_ms(j), left_ms = j->report.from_ms + ASK_SHARE * j->o->time_s * 1e3 - now_ms;
    const int64_t all = s->n, more = left_ms > 0 ? (int64_t)(left_ms / (now_ms - from_ms) * (double)asked) : 0;
    struct tune_items rest = *s;

    if (more >= all - asked)
        return;
    rest.v += asked;
    rest.n -= asked;
    tune_items_thin(&rest, more, false);
    s->n = asked + rest.n;
    tune_note(j, true, "%" PRId64 " of %" PRId64 " %s can be rehearsed: the time is too short to read more", s->n, all,
              s == &j->data.own ? "texts that the model wrote" : "items to keep");
}

/* with: room for the old adapter. */
static enum err_code ask_model_with(struct tune_job *j, struct tune_items *s, struct grad_adapter *with, struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    const struct tune_lora *l = j->begin.champion;
    struct asking a = { s, 0 };
    const double from_ms = tune_now_ms(j);
    double sum;

    for (int n; a.first < s->n; a.first += n) {
        n = tune_fitting(j, s, a.first, seq, MANY);
        for (int i = 0; i < n; i++)
            if ((s->v[a.first + i].said = calloc((size_t)s->v[a.first + i].n_answer, sizeof(struct grad_soft))) == NULL)
                return err_nomem(e);
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, with);
        if (tune_tick(j, TUNE_ASKING, a.first, s->n, e) ||
            grad_forward(j->g,
                         &(struct grad_batch){ .seq = seq,
                                               .n_seq = n,
                                               .adapter = with,
                                               .n_adapter = l == NULL ? 0 : l->n,
                                               .loss = note_said,
                                               .loss_ctx = &a },
                         &sum, e))
            return e->code;
        if (a.first == 0)
            thin_to_time(j, s, n, from_ms);
    }
    return ERR_OK;
}

/* Notes what the model says, with the old adapter where there is one: its matrices need not be those of the new one. */
static enum err_code ask_model(struct tune_job *j, struct tune_items *s, struct err *e)
{
    const struct tune_lora *l = j->begin.champion;
    struct grad_adapter *with = calloc(l == NULL ? 1 : (size_t)l->n, sizeof *with);
    const enum err_code code = with == NULL ? err_nomem(e) : ask_model_with(j, s, with, e);

    free(with);
    return code;
}

/* An answer that the model gave. */
struct answer {
    int set;
    double sure; /* mean log p of its likeliest tokens */
    int64_t i;
};

static int by_sure(const void *a, const void *b)
{
    const struct answer *x = a, *y = b;

    if (x->set != y->set)
        return x->set - y->set;
    return x->sure != y->sure ? (x->sure < y->sure) - (x->sure > y->sure) : (x->i > y->i) - (x->i < y->i);
}

enum err_code tune_drop_unsure(struct tune_items *s, struct err *e)
{
    struct answer *v = calloc((size_t)s->n + 1, sizeof *v);
    int64_t n = 0;

    if (v == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < s->n; i++) {
        v[i] = (struct answer){ s->v[i].set, 0, i };
        for (int k = 0; k < s->v[i].n_answer; k++)
            v[i].sure += log((double)s->v[i].said[k].p[0] + 1e-9) / s->v[i].n_answer;
    }
    qsort(v, (size_t)s->n, sizeof *v, by_sure);
    for (int64_t from = 0, to; from < s->n; from = to) {
        for (to = from; to < s->n && v[to].set == v[from].set; to++)
            ;
        for (int64_t i = from; v[from].set > 0 && i < to; i++)
            s->v[v[i].i].set = i - from < (to - from + 1) / 2 ? v[i].set : -1;
    }
    free(v);
    for (int64_t i = 0; i < s->n; i++) {
        if (s->v[i].set >= 0)
            s->v[n++] = s->v[i];
        else
            tune_item_free(&s->v[i]);
    }
    s->n = n;
    return ERR_OK;
}

static enum err_code open_scores(struct tune_job *j, struct err *e)
{
    const struct tune_items *set[] = { &j->data.tests, &j->data.kept };

    for (int i = 0; i < 2; i++) {
        j->report.before[i] = calloc((size_t)set[i]->n + 1, sizeof **j->report.before);
        j->report.after[i] = calloc((size_t)set[i]->n + 1, sizeof **j->report.after);
        if (j->report.before[i] == NULL || j->report.after[i] == NULL)
            return err_nomem(e);
    }
    j->report.n_outcome = j->data.kept.n_set > 1 ? j->data.kept.n_set + 3 : 2;
    j->report.outcome = calloc((size_t)j->report.n_outcome, sizeof *j->report.outcome);
    return j->report.outcome == NULL ? err_nomem(e) : ERR_OK;
}

/* The shield of what is rehearsed, SHIELD_ROWS rows of it at most; a new adapter begins behind it. */
static enum err_code open_shield(struct tune_job *j, struct err *e)
{
    const int64_t there = tune_items_tokens(&j->data.own) + tune_items_tokens(&j->data.keep),
                  want = there < SHIELD_ROWS ? there : SHIELD_ROWS;
    int64_t rows = 0;

    if (!j->shielded || there == 0)
        return ERR_OK;
    j->state.was = calloc((size_t)j->state.lora->n_params, sizeof *j->state.was);
    if (j->state.was == NULL)
        return err_nomem(e);
    if (tune_shield_open(&j->state.shield, j->state.lora, e))
        return e->code;
    for (int64_t i = -1; rows < want && (rows == 0 || tune_spent_s(j) < SHIELD_SHARE * j->o->time_s);) {
        enum { MANY = 16 };
        struct grad_seq seq[MANY];
        int64_t some = 0;
        int n = 0;

        for (; n < MANY; n++, i--) {
            seq[n] = tune_seq(tune_rehearsed_at(j, tune_rehearsed(j, i)), 1);
            if (n > 0 && some + seq[n].n > j->rows_max)
                break;
            some += seq[n].n;
        }
        rows += some;
        if (tune_tick(j, TUNE_LOOKING, rows < want ? rows : want, want, e) ||
            tune_shield_see(j->state.shield, seq, n, e))
            return e->code;
    }
    if (tune_shield_raise(j->state.shield, (double)j->o->shield, j->calls->stop, e))
        return e->code;
    if (j->begin.fresh || tune_lora_is_neutral(j->state.lora))
        tune_shield_apply(j->state.shield, j->state.lora->theta);
    return ERR_OK;
}

/* What the model is to say as it does: what --keep names, of which a fifth is tested on, and what it writes itself. */
enum err_code tune_rehearse(struct tune_job *j, struct err *e)
{
    const struct tune_opts *o = j->o;

    if (tune_fit_pace(j, e))
        return e->code;
    if ((o->rehearse > 0 || json_array_size(j->data.keep.open) > 0) && tune_write_own(j, OWN_SHARE * o->time_s, e))
        return e->code;
    if (o->keep_named && !o->keep_tests_named &&
        tune_items_split(&j->data.keep, &j->data.kept, TUNE_KEEP_EVERY, TUNE_TESTS_MAX, e))
        return e->code;
    if (o->keep_named && j->data.kept.n < TUNE_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "--keep: too few items to test what is forgotten: a fifth of them, and at least %d",
                       TUNE_LEAST_TESTS);
    j->data.n_written = j->data.own.n;
    return ask_model(j, &j->data.own, e) || tune_drop_unsure(&j->data.own, e) || ask_model(j, &j->data.keep, e) ||
                   open_scores(j, e) || tune_batch_open(j, e) || open_shield(j, e)
               ? e->code
               : ERR_OK;
}
