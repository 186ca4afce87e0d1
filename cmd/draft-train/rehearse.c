/* SPDX-License-Identifier: Apache-2.0 */
/* rehearse.c - what a model that learns an adapter rehearses, and the shield of it.           room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include "adapt/adapt.h"
#include "draft-train/job.h"
#include "tune/lora.h"
#include "tune/shield.h"

enum { SHIELD_ROWS = 10000 };
#define OWN_SHARE 0.1 /* of the time, in which the model writes texts, and again answers */
#define ASK_SHARE 0.3 /* of the time, at most, until the model has been asked what it says of them */

struct asking {
    struct train_items *s;
    int64_t first; /* item of sequence 0 */
};

static double note_said(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct asking *a = ctx;
    struct train_item *item = &a->s->v[a->first + seq];

    grad_soft_of(&item->said[row - (item->token.n - 1 - item->n_answer)], logits, n);
    return 0;
}

/* After the first items: where there is no time to ask for all others, some that are spread evenly. */
static void thin(const struct train_lora *j, struct train_items *s, int64_t asked, double from_ms)
{
    const double now_ms = cli_now_ms(), left_ms = j->from_ms + ASK_SHARE * j->o->time_s * 1e3 - now_ms;
    const int64_t all = s->n, more = left_ms > 0 ? (int64_t)(left_ms / (now_ms - from_ms) * (double)asked) : 0;
    struct train_items rest = *s;

    if (more >= all - asked)
        return;
    rest.v += asked;
    rest.n -= asked;
    cli_train_items_thin(&rest, more);
    s->n = asked + rest.n;
    cli_warn("%" PRId64 " of %" PRId64 " texts are rehearsed: the time is too short for more", s->n, all);
}

/* with: room for the old adapter. */
static enum err_code ask_with(struct train_lora *j, struct train_items *s, struct grad_adapter *with, struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    const struct tune_lora *l = j->begin.champion;
    struct asking a = { s, 0 };
    const double from_ms = cli_now_ms();
    double sum;

    for (int n; a.first < s->n; a.first += n) {
        n = cli_train_fitting(j, s, a.first, seq, MANY);
        for (int i = 0; i < n; i++)
            if ((s->v[a.first + i].said = calloc((size_t)s->v[a.first + i].n_answer, sizeof(struct grad_soft))) == NULL)
                return err_nomem(e);
        if (l != NULL)
            tune_lora_at(l, l->theta, NULL, 0, n, with);
        cli_progress("asking the model: %" PRId64 " of %" PRId64, a.first, s->n);
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (grad_forward(j->g,
                         &(struct grad_batch){ .seq = seq,
                                               .n_seq = n,
                                               .adapter = with,
                                               .n_adapter = l == NULL ? 0 : l->n,
                                               .loss = note_said,
                                               .loss_ctx = &a },
                         &sum, e))
            return e->code;
        if (a.first == 0)
            thin(j, s, n, from_ms);
    }
    return ERR_OK;
}

/* Notes what the model says, with the old adapter where there is one: its matrices need not be those of the new one. */
static enum err_code ask(struct train_lora *j, struct train_items *s, struct err *e)
{
    const struct tune_lora *l = j->begin.champion;
    struct grad_adapter *with = calloc(l == NULL ? 1 : (size_t)l->n, sizeof *with);
    const enum err_code code = with == NULL ? err_nomem(e) : ask_with(j, s, with, e);

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

/* Of the answers to its own questions of each kind only that half stays of which the model is surest: what it knows can be
 * forgotten, what it makes up need not be kept. */
static enum err_code drop_unsure(struct train_items *s, struct err *e)
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
            cli_train_item_free(&s->v[i]);
    }
    s->n = n;
    return ERR_OK;
}

static enum err_code open_scores(struct train_lora *j, struct err *e)
{
    const struct train_items *set[] = { &j->tests, &j->kept };

    for (int i = 0; i < 2; i++) {
        j->before[i] = calloc((size_t)set[i]->n + 1, sizeof **j->before);
        j->after[i] = calloc((size_t)set[i]->n + 1, sizeof **j->after);
        if (j->before[i] == NULL || j->after[i] == NULL)
            return err_nomem(e);
    }
    return ERR_OK;
}

static int64_t tokens_of(const struct train_items *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n += s->v[i].token.n;
    return n;
}

/* The shield of what is rehearsed, SHIELD_ROWS rows of it at most; a new adapter begins behind it. */
static enum err_code open_shield(struct train_lora *j, struct err *e)
{
    const int64_t there = tokens_of(&j->own) + tokens_of(&j->keep), want = there < SHIELD_ROWS ? there : SHIELD_ROWS;
    int64_t rows = 0;

    if (!j->shielded || there == 0)
        return ERR_OK;
    j->was = calloc((size_t)j->lora->n_params, sizeof *j->was);
    if (j->was == NULL)
        return err_nomem(e);
    if (tune_shield_open(&j->shield, j->lora, e))
        return e->code;
    for (int64_t i = -1; rows < want;) {
        enum { MANY = 16 };
        struct grad_seq seq[MANY];
        int64_t some = 0;
        int n = 0;

        for (; n < MANY; n++, i--) {
            seq[n] = cli_train_seq(cli_train_rehearsed_at(j, cli_train_rehearsed(j, i)), 1);
            if (n > 0 && some + seq[n].n > j->rows_max)
                break;
            some += seq[n].n;
        }
        rows += some;
        cli_progress("looking at what the model says: %" PRId64 " of %" PRId64 " tokens", rows < want ? rows : want,
                     want);
        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (tune_shield_see(j->shield, seq, n, e))
            return e->code;
    }
    if (tune_shield_raise(j->shield, (double)j->o->shield, &cli_train_until_signal, e))
        return e->code;
    if (j->begin.fresh)
        tune_shield_apply(j->shield, j->lora->theta);
    return ERR_OK;
}

/* What the model is to say as it does: what --keep names, of which a fifth is tested on, and what it writes itself. */
enum err_code cli_train_rehearse(struct train_lora *j, struct err *e)
{
    const struct train_options *o = j->o;
    const struct adapter *old = j->begin.old;
    const struct train_own own = { .adapter =
                                       old != NULL && !adapter_is_scales(old) ? old : NULL, /* a run takes no scales */
                                   .learn = &j->items,
                                   .sets = j->sets,
                                   .known = j->keep.open,
                                   .n_texts = (o->rehearse + 7) / 8,
                                   .n_answers = o->rehearse,
                                   .tokens_max = j->own_tokens,
                                   .room_bytes = j->room_bytes,
                                   .time_s = OWN_SHARE * o->time_s,
                                   .own = &j->own,
                                   .answers = &j->keep };

    if ((o->rehearse > 0 || json_array_size(own.known) > 0) && cli_train_own(&own, o, j->x.text, e))
        return e->code;
    if (o->keep_files.n > 0 && cli_train_items_split(&j->keep, &j->kept, TRAIN_KEEP_EVERY, TRAIN_TESTS_MAX, e))
        return e->code;
    if (o->keep_files.n > 0 && j->kept.n < TRAIN_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "--keep: too few items to test what is forgotten: a fifth of them, and at least %d",
                       TRAIN_LEAST_TESTS);
    if (ask(j, &j->own, e) || drop_unsure(&j->own, e) || ask(j, &j->keep, e) || open_scores(j, e) ||
        cli_train_batch_open(j, e) || open_shield(j, e))
        return e->code;
    return ERR_OK;
}
