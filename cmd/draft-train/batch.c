/* SPDX-License-Identifier: Apache-2.0 */
/* batch.c - which items a step of an adapter's training takes.                                 room: cmd
 *
 * With gradients half of them come in turn. The others are drawn by the loss that they had when they were last seen, so that
 * steps are spent on what is not learnt yet, and on what is being forgotten. */
#include <stdlib.h>
#include "base/rng.h"
#include "draft-train/job.h"

#define LOSS_FIRST 5.0f  /* of what was never seen and is to be learnt */
#define LOSS_LEAST 0.01f /* added to each: what was once learnt is seen again at times */

static int64_t n_rehearsed(const struct train_lora *j)
{
    return j->own.n + j->keep.n;
}

enum err_code cli_train_batch_open(struct train_lora *j, struct err *e)
{
    j->n_seen = j->items.n + n_rehearsed(j);
    j->order = calloc((size_t)j->items.n, sizeof *j->order);
    j->seen = calloc((size_t)j->n_seen, sizeof *j->seen);
    j->which = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *j->which);
    j->order_of = -1;
    j->seq_loss = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *j->seq_loss);
    if (j->seq_loss == NULL || j->order == NULL || j->seen == NULL || j->which == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < j->items.n; i++)
        j->seen[i] = LOSS_FIRST;
    return ERR_OK;
}

/* What is rehearsed as number i of all steps: of --keep and of the model's own in turns. */
int64_t cli_train_rehearsed(const struct train_lora *j, int64_t i)
{
    const bool own = j->keep.n == 0 || (j->own.n > 0 && i % 2 == 0);
    const int64_t n = own ? j->own.n : j->keep.n;

    return (own ? 0 : j->own.n) + (int64_t)(rng_unit((uint64_t)j->o->seed, 10, (uint64_t)i) * (double)n);
}

const struct train_item *cli_train_rehearsed_at(const struct train_lora *j, int64_t i)
{
    return i < j->own.n ? &j->own.v[i] : &j->keep.v[i - j->own.n];
}

static const struct train_item *item_at(const struct train_lora *j, int64_t i)
{
    return i < j->items.n ? &j->items.v[i] : cli_train_rehearsed_at(j, i - j->items.n);
}

/* Item number i of all steps: of an order that is new in every pass over the data. */
static int64_t in_turn(struct train_lora *j, int64_t i)
{
    const int64_t n = j->items.n, pass = i / n;

    for (int64_t a = 0; a < n && pass != j->order_of; a++) {
        const int64_t b = (int64_t)(rng_unit((uint64_t)j->o->seed, 11 + (uint64_t)pass, (uint64_t)a) * (double)(a + 1));

        j->order[a] = j->order[b];
        j->order[b] = a;
    }
    j->order_of = pass;
    return j->order[i % n];
}

/* To `to` at most `most` of the n items from `from` on, in proportion to their losses, each once (systematic sampling). */
static int hard(const struct train_lora *j, int64_t from, int64_t n, int most, int64_t *to)
{
    const double u = rng_unit((uint64_t)j->o->seed, 9, (uint64_t)(2 * j->step + (from > 0)));
    double all = 0, sum = 0;
    int got = 0, mark = 0;

    for (int64_t i = from; i < from + n; i++)
        all += (double)(j->seen[i] + LOSS_LEAST);
    for (int64_t i = from; i < from + n; i++) {
        const int before = mark;

        sum += (double)(j->seen[i] + LOSS_LEAST) / all * most;
        while (mark < most && mark + u < sum)
            mark++;
        if (mark > before)
            to[got++] = i;
    }
    return got;
}

int cli_train_batch(struct train_lora *j, int64_t step, struct grad_seq *seq)
{
    const bool drawn = j->o->method == TRAIN_FIRST;
    const int n_keep = n_rehearsed(j) > 0 ? j->o->keep_batch : 0;
    const int n_text = j->o->n_text < j->items.n ? j->o->n_text : (int)j->items.n;
    const int n_hard = drawn && n_text < j->items.n ? n_text / 2 : 0, keep_hard = drawn ? n_keep / 2 : 0;
    const int turn = n_text - n_hard, keep_turn = n_keep - keep_hard;
    int64_t tokens = 0, said = 0;
    int n = 0, n_learn;

    for (; n < turn; n++)
        j->which[n] = in_turn(j, step * turn + n);
    n += hard(j, 0, j->items.n, n_hard, j->which + n);
    n_learn = n;
    for (int i = 0; i < keep_turn; i++)
        j->which[n++] = j->items.n + cli_train_rehearsed(j, step * keep_turn + i);
    n += hard(j, j->items.n, n_rehearsed(j), keep_hard, j->which + n);
    for (int i = 0; i < n; i++)
        *(i < n_learn ? &tokens : &said) += item_at(j, j->which[i])->n_answer;
    for (int i = 0; i < n; i++)
        seq[i] = cli_train_seq(item_at(j, j->which[i]),
                               i < n_learn ? 1.0 / (double)tokens : (double)j->o->keep_weight / (double)said);
    return n;
}

void cli_train_batch_seen(struct train_lora *j, const struct grad_seq *seq, const double *loss, int n)
{
    for (int i = 0; i < n; i++)
        j->seen[j->which[i]] = (float)(loss[i] / ((double)seq[i].weight * item_at(j, j->which[i])->n_answer));
}
