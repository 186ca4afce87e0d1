/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - which items a step of an adapter's training takes.
 *
 * With gradients half of them come in turn. The others are drawn by the loss that they had when they were last seen,
 * so that steps are spent on what is not learnt yet, and on what is being forgotten. */
#include <stdlib.h>

#include "base/rng.h"
#include "tune/job.h"
#include "tune/lora.h"

#define LOSS_FIRST 5.0f  /* of what was never seen and is to be learnt */
#define LOOK_SHARE 0.1   /* of the time, at most, until the losses at the beginning are known */
#define LOSS_LEAST 0.01f /* added to each: what was once learnt is seen again at times */

static int64_t n_rehearsed(const struct tune_job *j)
{
    return j->data.own.n + j->data.keep.n;
}

enum err_code tune_batch_open(struct tune_job *j, struct err *e)
{
    j->state.n_seen = j->data.learn.n + n_rehearsed(j);
    j->state.order = calloc((size_t)j->data.learn.n, sizeof *j->state.order);
    j->state.seen = calloc((size_t)j->state.n_seen, sizeof *j->state.seen);
    j->state.which = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *j->state.which);
    j->state.order_of = -1;
    j->state.seq_loss = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *j->state.seq_loss);
    if (j->state.seq_loss == NULL || j->state.order == NULL || j->state.seen == NULL || j->state.which == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < j->data.learn.n; i++)
        j->state.seen[i] = LOSS_FIRST;
    return ERR_OK;
}

/* Losses of the items, with the numbers of now; those that there is no time for stay as they are. */
static enum err_code look_at(struct tune_job *j, const struct tune_items *s, float *seen, double until_ms,
                             struct err *e)
{
    enum { MANY = 64 };
    struct grad_seq seq[MANY];
    const struct tune_lora *l = j->state.lora;
    double loss[MANY], sum;
    int n;

    for (int64_t first = 0; first < s->n && tune_now_ms(j) < until_ms; first += n) {
        n = tune_fitting(j, s, first, seq, MANY);
        tune_lora_at(l, l->theta, NULL, 0, n, j->state.adapters);
        if (tune_tick(j, TUNE_ASKING, first, s->n, e) ||
            grad_forward(
                j->g,
                &(struct grad_batch){
                    .seq = seq, .n_seq = n, .adapter = j->state.adapters, .n_adapter = l->n, .seq_loss = loss },
                &sum, e))
            return e->code;
        for (int i = 0; i < n; i++)
            seen[first + i] = (float)(loss[i] / s->v[first + i].n_answer);
    }
    return ERR_OK;
}

enum err_code tune_batch_look(struct tune_job *j, struct err *e)
{
    const struct tune_data *d = &j->data;
    const struct tune_items *const set[] = { &d->learn, &d->own, &d->keep };
    const double until_ms = tune_now_ms(j) + LOOK_SHARE * j->o->time_s * 1e3;
    float *seen = j->state.seen;

    for (int i = 0; i < 3; seen += set[i++]->n)
        if (look_at(j, set[i], seen, until_ms, e))
            return e->code;
    return ERR_OK;
}

/* What is rehearsed as number i of all steps: of --keep and of the model's own in turns. */
int64_t tune_rehearsed(const struct tune_job *j, int64_t i)
{
    const bool own = j->data.keep.n == 0 || (j->data.own.n > 0 && i % 2 == 0);
    const int64_t n = own ? j->data.own.n : j->data.keep.n;

    return (own ? 0 : j->data.own.n) + (int64_t)(rng_unit((uint64_t)j->o->seed, 10, (uint64_t)i) * (double)n);
}

const struct tune_item *tune_rehearsed_at(const struct tune_job *j, int64_t i)
{
    return i < j->data.own.n ? &j->data.own.v[i] : &j->data.keep.v[i - j->data.own.n];
}

static const struct tune_item *item_at(const struct tune_job *j, int64_t i)
{
    return i < j->data.learn.n ? &j->data.learn.v[i] : tune_rehearsed_at(j, i - j->data.learn.n);
}

/* Item number i of all steps: of an order that is new in every pass over the data. */
static int64_t item_in_turn(struct tune_job *j, int64_t i)
{
    const int64_t n = j->data.learn.n, pass = i / n;

    for (int64_t a = 0; a < n && pass != j->state.order_of; a++) {
        const int64_t b = (int64_t)(rng_unit((uint64_t)j->o->seed, 11 + (uint64_t)pass, (uint64_t)a) * (double)(a + 1));

        j->state.order[a] = j->state.order[b];
        j->state.order[b] = a;
    }
    j->state.order_of = pass;
    return j->state.order[i % n];
}

/* To `to` at most `most` of the n items from `from` on, in proportion to their losses, each once (systematic
 * sampling). */
static int draw_hard(const struct tune_job *j, int64_t from, int64_t n, int most, int64_t *to)
{
    const double u = rng_unit((uint64_t)j->o->seed, 9, (uint64_t)(2 * j->state.step + (from > 0)));
    double all = 0, sum = 0;
    int got = 0, mark = 0;

    for (int64_t i = from; i < from + n; i++)
        all += (double)(j->state.seen[i] + LOSS_LEAST);
    for (int64_t i = from; i < from + n; i++) {
        const int before = mark;

        sum += (double)(j->state.seen[i] + LOSS_LEAST) / all * most;
        while (mark < most && mark + u < sum)
            mark++;
        if (mark > before)
            to[got++] = i;
    }
    return got;
}

struct grad_seq tune_seq(const struct tune_item *item, double weight)
{
    return (struct grad_seq){ item->token.v, item->target, (int)item->token.n, (float)weight, NULL, item->said };
}

int tune_fitting(const struct tune_job *j, const struct tune_items *s, int64_t first, struct grad_seq *seq, int most)
{
    int64_t rows = 0;
    int n = 0;

    while (n < most && first + n < s->n && (n == 0 || rows + s->v[first + n].token.n <= j->rows_max)) {
        seq[n] = tune_seq(&s->v[first + n], 1.0);
        rows += s->v[first + n++].token.n;
    }
    return n;
}

int tune_batch(struct tune_job *j, int64_t step, struct grad_seq *seq)
{
    const bool drawn = j->o->method == TUNE_FIRST;
    const int n_keep = n_rehearsed(j) > 0 ? j->pace.keep_batch : 0;
    const int n_text = j->pace.n_text < j->data.learn.n ? j->pace.n_text : (int)j->data.learn.n;
    const int n_hard = drawn && n_text < j->data.learn.n ? n_text / 2 : 0, keep_hard = drawn ? n_keep / 2 : 0;
    const int turn = n_text - n_hard, keep_turn = n_keep - keep_hard;
    int64_t tokens = 0, said = 0;
    int n = 0, n_learn;

    for (; n < turn; n++)
        j->state.which[n] = item_in_turn(j, step * turn + n);
    n += draw_hard(j, 0, j->data.learn.n, n_hard, j->state.which + n);
    n_learn = n;
    for (int i = 0; i < keep_turn; i++)
        j->state.which[n++] = j->data.learn.n + tune_rehearsed(j, step * keep_turn + i);
    n += draw_hard(j, j->data.learn.n, n_rehearsed(j), keep_hard, j->state.which + n);
    for (int i = 0; i < n; i++)
        *(i < n_learn ? &tokens : &said) += item_at(j, j->state.which[i])->n_answer;
    for (int i = 0; i < n; i++)
        seq[i] = tune_seq(item_at(j, j->state.which[i]),
                          i < n_learn ? 1.0 / (double)tokens : (double)j->o->keep_weight / (double)said);
    return n;
}

void tune_batch_seen(struct tune_job *j, const struct grad_seq *seq, const double *loss, int n)
{
    for (int i = 0; i < n; i++)
        j->state.seen[j->state.which[i]] =
            (float)(loss[i] / ((double)seq[i].weight * item_at(j, j->state.which[i])->n_answer));
}
