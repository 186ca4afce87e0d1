/* SPDX-License-Identifier: Apache-2.0 */
/* answers.c - many prompts to many answers, side by side in the steps of one run.
 *
 * Each sequence is a slot. A step first gives every answering slot its next token, then fills up
 * with prompt tokens of the others, so that neither waits long for the other.
 */
#include <stdlib.h>

#include "eval/eval.h"
#include "run/run.h"

struct slot {
    struct eval_job job;
    bool busy;
    int64_t fed;     /* tokens of the prompt */
    int32_t *answer; /* [room] */
    int64_t n, room;
    int row; /* of this step, whose logits choose the next token; -1: none */
};

struct batch {
    struct run *r;
    const struct eval_answers *a;
    struct slot *slot;
    int n_slots;
    struct run_row *row;
    int n_rows;
    int64_t n_done;
    bool drained;
};

static enum err_code finish(struct batch *b, struct slot *s, bool ended, struct err *e)
{
    s->busy = false;
    b->n_done++;
    return b->a->done(b->a->ctx, &s->job, s->answer, s->n, ended, e);
}

/* Gives free slots new jobs. */
static enum err_code refill(struct batch *b, struct err *e)
{
    for (int i = 0; i < b->n_slots; i++) {
        struct slot *s = &b->slot[i];

        while (!s->busy && !b->drained) {
            if (!b->a->next(b->a->ctx, &s->job)) {
                b->drained = true;
                break;
            }
            s->busy = true;
            s->fed = s->n = 0;
            run_clear(b->r, i);
            if ((s->job.n_prompt < 1 || s->job.n_prompt > run_ctx(b->r) || s->job.answer_max < 1) &&
                finish(b, s, false, e))
                return e->code;
        }
    }
    return ERR_OK;
}

static void add_row(struct batch *b, int slot, int32_t token, bool logits)
{
    if (logits)
        b->slot[slot].row = b->n_rows;
    b->row[b->n_rows++] = (struct run_row){token, slot, logits, false};
}

/* Rows of the next step; none when all work is done. */
static void compose(struct batch *b)
{
    int most = run_rows_max(b->r);

    b->n_rows = 0;
    for (int i = 0; i < b->n_slots; i++) {
        struct slot *s = &b->slot[i];

        s->row = -1;
        if (s->busy && s->fed == s->job.n_prompt && b->n_rows < most)
            add_row(b, i, s->answer[s->n - 1], true);
    }
    for (int i = 0; i < b->n_slots; i++) {
        struct slot *s = &b->slot[i];

        while (s->busy && s->fed < s->job.n_prompt && b->n_rows < most) {
            add_row(b, i, s->job.prompt[s->fed], s->fed + 1 == s->job.n_prompt);
            s->fed++;
        }
    }
}

static enum err_code append(struct slot *s, int32_t token, struct err *e)
{
    if (s->n == s->room) {
        int64_t room = s->room > 0 ? 2 * s->room : 256;
        int32_t *v = realloc(s->answer, (size_t)room * sizeof *v);

        if (v == NULL)
            return err_set(e, ERR_NOMEM, "out of memory");
        s->answer = v;
        s->room = room;
    }
    s->answer[s->n++] = token;
    return ERR_OK;
}

/* Takes a slot's next token from the step that was made. */
static enum err_code advance(struct batch *b, int i, struct err *e)
{
    struct slot *s = &b->slot[i];
    int32_t token = 0;
    bool end = false;

    if (s->row < 0)
        return ERR_OK;
    if (b->a->choose(b->a->ctx, &s->job, s->n, run_logits(b->r, s->row), &token, &end, e))
        return e->code;
    if (end)
        return finish(b, s, true, e);
    if (append(s, token, e))
        return e->code;
    if (s->n >= s->job.answer_max || run_pos(b->r, i) >= run_ctx(b->r))
        return finish(b, s, false, e);
    return ERR_OK;
}

static enum err_code all_steps(struct batch *b, int64_t n_jobs, const struct progress *progress,
                               struct err *e)
{
    for (;;) {
        if (!progress_tick(progress, (uint64_t)b->n_done, (uint64_t)n_jobs))
            return err_set(e, ERR_CANCEL, "interrupted");
        if (refill(b, e))
            return e->code;
        compose(b);
        if (b->n_rows == 0)
            return ERR_OK;
        if (run_step(b->r, b->row, b->n_rows, e))
            return e->code;
        for (int i = 0; i < b->n_slots; i++)
            if (advance(b, i, e))
                return e->code;
    }
}

enum err_code eval_answer_all(struct run *r, int n_seq, const struct eval_answers *a,
                              int64_t n_jobs, const struct progress *progress, struct err *e)
{
    struct batch b = {.r = r, .a = a, .n_slots = n_seq};
    enum err_code code;

    if (n_seq < 1 || n_seq > run_rows_max(r))
        return err_set(e, ERR_ARG, "%d answers side by side do not fit a step of %d rows", n_seq,
                       run_rows_max(r));
    b.slot = calloc((size_t)n_seq, sizeof *b.slot);
    b.row = calloc((size_t)run_rows_max(r), sizeof *b.row);
    if (b.slot == NULL || b.row == NULL)
        code = err_set(e, ERR_NOMEM, "out of memory");
    else
        code = all_steps(&b, n_jobs, progress, e);
    for (int i = 0; b.slot != NULL && i < n_seq; i++)
        free(b.slot[i].answer);
    free(b.slot);
    free(b.row);
    return code;
}
