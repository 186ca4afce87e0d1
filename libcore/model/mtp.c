/* SPDX-License-Identifier: Apache-2.0 */
/* mtp.c - the multi-token-prediction block of a model's own file (Qwen3.5 and its kin): one
 * gated-attention layer of the family with keys and values of its own.
 *
 * From the hidden row h of a token, which is what the model's output matrix multiplies, and from
 * the token after it:
 *   u = eh_proj [ RMS(embedding, enorm) ; RMS(h, hnorm) ]
 *   y = RMS(layer(u), shared_head_norm);  logits = head y
 * The next guess has y for h, and the guess for the token; both stay on the device until all guesses are
 * made. Rows of guesses are forgotten then. Of the rows of a context but the newest one nothing is wanted but keys and
 * values. */
#include <string.h>

#include "adapt/adapt.h"
#include "gguf/gguf.h"
#include "model/class.h"
#include "model/drafter_internal.h"

static struct step step_of(const struct model_drafter *d, const struct op_rows *rows)
{
    return (struct step){
        .m = &d->net, .d = d->net.dev, .state = d->state, .rows = rows, .adapt = d->adapter != NULL ? &d->adapt : NULL
    };
}

/* u of rows of h and the tokens after them, in d->batch. */
static struct tensor make_inputs(const struct step *s, const struct model_drafter *d, struct tensor h)
{
    const int64_t n_embd = d->net.plan.n_embd;
    const float eps = d->net.plan.norm_eps;
    struct tensor both = dev_scratch(s->d, 2 * n_embd, h.ne[1]);
    struct tensor u = dev_scratch(s->d, n_embd, h.ne[1]);
    struct tensor token = op_cols(both, 0, n_embd);
    const struct op_ids ids = model_draft_ids(d);

    op_embed(s->d, token, d->embd, s->rows->token, &ids, 1.0f);
    op_rms_norm(s->d, token, token, d->embd_norm, n_embd, 0, eps);
    op_rms_norm(s->d, op_cols(both, n_embd, n_embd), h, d->hidden_norm, n_embd, 0, eps);
    model_mul(s, u, d->mix, both);
    return u;
}

/* d->pick has the last row of each group; those rows alone, each a group of its own. */
static struct op_rows last_of_groups(struct model_drafter *d)
{
    const struct drafter_batch *b = &d->batch;

    for (int i = 0; i < b->n_seq; i++) {
        const struct op_seq *q = &b->seq[AS_STORED][i];
        const int64_t pos = q->pos + q->n - 1;

        b->pos[AS_SEEN][i] = (int32_t)pos;
        b->seq[AS_SEEN][i] = (struct op_seq){ .row = i, .n = 1, .slot = q->slot, .pos = pos };
    }
    return (struct op_rows){ b->n_seq, b->token, b->pos[AS_SEEN], b->n_seq, b->seq[AS_SEEN] };
}

/* Rows of h join the contexts; what the layer makes of the last one of each group. */
static struct tensor pass_layer(struct model_drafter *d, struct tensor h)
{
    const struct op_rows all = model_draft_rows(d, AS_STORED), last = last_of_groups(d);
    const struct step s = step_of(d, &all), s_last = step_of(d, &last);
    struct tensor u = make_inputs(&s, d, h), y = u;

    if (last.n < all.n) {
        struct tensor in = dev_scratch(s.d, u.ne[0], u.ne[1]);

        op_rms_norm(s.d, in, u, d->net.layer[0].mix_norm, u.ne[0], 0, d->net.plan.norm_eps);
        model_draft_remember(&s, 0, in, state_kv(d->state, 0), &all, &all);
        y = dev_scratch(s.d, u.ne[0], last.n);
        op_rows_pick(s.d, y, u, d->pick);
    }
    model_layer(&s_last, 0, y);
    return y;
}

/* Rows n of `last` from row `at` on. */
static struct tensor last_rows(const struct model_drafter *d, int at, int n)
{
    const int64_t n_embd = d->net.plan.n_embd;

    return (
        struct tensor){ .type = QUANT_f32, .ne = { n_embd, n, 1 }, .stride = n_embd, .data = d->last + at * n_embd };
}

/* The outputs y are kept, normed. */
static void keep_last(struct model_drafter *d, struct tensor y, int at)
{
    op_rms_norm(d->net.dev, last_rows(d, at, (int)y.ne[1]), y, d->out_norm, y.ne[0], 0, d->net.plan.norm_eps);
}

static void take_hidden(struct model_drafter *d, struct tensor x)
{
    const struct drafter_batch *b = &d->batch;
    struct tensor h = dev_scratch(d->net.dev, x.ne[0], x.ne[1]);
    int at = d->n_last;

    op_rms_norm(d->net.dev, h, x, d->target->out_norm, x.ne[0], 0, d->net.plan.norm_eps);
    if (d->last_of[b->seq[AS_STORED][0].slot] >= 0) /* a group that was cut goes on */
        at--;
    for (int i = 0; i < b->n_seq; i++) {
        const struct op_seq *q = &b->seq[AS_STORED][i];

        d->pick[i] = q->row + q->n - 1;
        d->last_of[q->slot] = at + i;
    }
    d->n_last = at + b->n_seq;
    keep_last(d, pass_layer(d, h), at);
}

/* The guesses from `last` rows pick[0 .. n), as answers r and following. */
static void run_head(struct model_drafter *d, int n, int64_t r)
{
    struct tensor y = dev_scratch(d->net.dev, d->net.plan.n_embd, n);

    op_rows_pick(d->net.dev, y, last_rows(d, 0, d->n_seq), d->pick);
    model_draft_head(d, y, r);
}

/* The tokens of d->batch, one for each of n slots whose outputs are `last` rows pick[0 .. n), and the guesses after
 * them, as answers r and following. */
static void go_on(struct model_drafter *d, int n, int64_t r)
{
    const size_t mark = dev_mark(d->net.dev);
    struct tensor h = dev_scratch(d->net.dev, d->net.plan.n_embd, n);

    op_rows_pick(d->net.dev, h, last_rows(d, 0, d->n_seq), d->pick);
    keep_last(d, pass_layer(d, h), 0);
    for (int i = 0; i < n; i++)
        d->pick[i] = i;
    run_head(d, n, r);
    dev_release(d->net.dev, mark);
}

/* Those of n live asks that want a guess at this depth; their tokens are the answers from r on. */
static int still_live(struct model_drafter *d, const struct model_drafter_ask *ask, int n, int depth, int r)
{
    int left = 0;

    d->batch.n = d->batch.n_seq = 0;
    for (int i = 0; i < n; i++) {
        if (ask[d->live[i]].n == depth)
            continue;
        d->batch.token[left] = -1 - (r + i);
        d->pick[left] = d->pick[i];
        model_draft_append(d, ask[d->live[i]].slot, 1);
        d->live[left++] = d->live[i];
    }
    return left;
}

static int guess_depths(struct model_drafter *d, const struct model_drafter_ask *ask, int n_ask)
{
    int n = 0, r = 0;

    for (int i = 0; i < n_ask; i++) {
        d->rows_before[i] = state_pos(d->state, ask[i].slot);
        if (d->last_of[ask[i].slot] < 0)
            continue;
        d->pick[n] = d->last_of[ask[i].slot];
        d->live[n++] = i;
    }
    if (n > 0)
        run_head(d, n, 0);
    for (int depth = 1, left; n > 0; depth++) {
        left = still_live(d, ask, n, depth, r);
        r += n;
        n = left;
        if (n == 0)
            break;
        go_on(d, n, r);
        model_draft_advance(d);
    }
    return r;
}

/* The answers are in the order in which guess_depths() asked for them. */
static void finish_guesses(struct model_drafter *d, const struct model_drafter_ask *ask, int n_ask)
{
    int64_t r = 0;

    for (int i = 0; i < n_ask; i++)
        model_drafter_crop(d, ask[i].slot, d->rows_before[i]);
    for (int depth = 0; depth < d->info.n_max; depth++)
        for (int i = 0; i < n_ask; i++) {
            const struct model_drafter_ask *a = &ask[i];

            if (depth >= a->n)
                continue;
            a->guess[depth] = d->last_of[a->slot] < 0 ? -1 : model_draft_answer(d, r++, &a->p[depth]);
            if (depth > 0 && a->guess[depth - 1] < 0)
                a->guess[depth] = -1;
        }
}

static void measure_guesses(struct model_drafter *d, int n_ask)
{
    const size_t mark = dev_mark(d->net.dev);

    run_head(d, n_ask, 0);
    dev_release(d->net.dev, mark);
    d->batch.n = d->batch.n_seq = 0;
    for (int i = 0; i < n_ask; i++)
        model_draft_append(d, i, 1);
    go_on(d, n_ask, n_ask);
}

static const struct drafter_kind mtp = { take_hidden, guess_depths, finish_guesses, measure_guesses };

/* Changes to matrices that only the block has: the main stack's answers stay as they are. */
static enum err_code open_changes(struct model_drafter *d, const char *path, struct err *e)
{
    if (adapter_open(&d->changes, path, e) != ERR_OK)
        return e->code;
    for (size_t i = 0; i < d->changes->n; i++)
        if (model_class_of(str_of(d->changes->mat[i].name), d->target->plan.n_layer) != MODEL_MTP ||
            strstr(d->changes->mat[i].name, "shared_head") != NULL)
            return err_set(e, ERR_UNSUPPORTED,
                           "%s: changes %s: not an adapter of the multi-token-prediction block alone", path,
                           d->changes->mat[i].name);
    return model_adapter_open(&d->adapter, d->target, d->changes, e);
}

enum err_code model_drafter_mtp(struct model_drafter **out, const struct model *m, const char *adapter, struct err *e)
{
    const struct nextn_weights *w = m->nextn;
    const struct arch_layer_plan *like = &m->plan.layer[m->plan.n_layer - 1];
    struct model_drafter *d;

    if (m->plan.n_nextn == 0)
        return err_set(e, ERR_UNSUPPORTED, "%s has no multi-token-prediction block", gguf_path(m->gguf));
    if (m->plan.nextn_mixer != MIX_ATTN)
        return err_set(e, ERR_UNSUPPORTED, "%s: guesses by its multi-token-prediction block are not supported",
                       gguf_path(m->gguf));
    if (w == NULL)
        return err_set(e, ERR_ARG, "the model was opened without its multi-token-prediction block");
    if (model_draft_open(&d, m, &mtp, e) != ERR_OK)
        return e->code;
    if (adapter != NULL && open_changes(d, adapter, e) != ERR_OK) {
        model_drafter_close(d);
        return e->code;
    }
    d->net.plan = m->plan;
    d->net.plan.n_layer = 1;
    d->net.plan.layer[0] = (struct arch_layer_plan){ MIX_ATTN, like->ffn, like->n_ff };
    d->net.layer = &m->nextn->layer;
    d->embd = w->embd.data != NULL ? w->embd : m->embd_last;
    d->head = w->head.data != NULL ? w->head : m->head;
    d->mix = w->mix;
    d->embd_norm = w->embd_norm;
    d->hidden_norm = w->hidden_norm;
    d->out_norm = w->out_norm != NULL ? w->out_norm : m->out_norm;
    d->info = (struct model_drafter_info){
        .n_max = MODEL_GUESSES_MAX, .n_embd = m->plan.n_embd, .n_tap = 1, .tap = { m->plan.n_layer - 1 }
    };
    d->width = m->plan.n_embd;
    *out = d;
    return ERR_OK;
}
