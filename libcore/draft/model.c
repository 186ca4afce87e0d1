/* SPDX-License-Identifier: Apache-2.0 */
/* model.c - guesses of a small model with the same tokens, a GGUF file of any family that can be
 * run. It reads what the sequences say, greedily writes what may come, and forgets that again. */
#include <math.h>
#include <stdlib.h>

#include "draft/internal.h"
#include "model/model.h"
#include "run/run.h"

struct small {
    struct model *model;
    struct run *run;
    const struct draft_text *text; /* [n_seq] */
    bool (*stop)(void);            /* draft_opts.stop */
    int32_t n_vocab;               /* of the large model */
    struct run_row *row;           /* [n_seq] */
    struct logits_want *want;      /* [n_seq] */
};

static enum err_code open_small(void **out, const struct draft_source *s, struct err *e)
{
    const struct model_opts mo = { .device = s->opts->device, .n_threads = s->opts->n_threads };
    struct small *m = calloc(1, sizeof *m);

    if (m == NULL)
        return err_nomem(e);
    if (model_open(&m->model, s->file, &mo, e) != ERR_OK) {
        free(m);
        return e->code;
    }
    m->n_vocab = model_info(s->opts->model)->n_vocab;
    m->stop = s->opts->stop;
    *out = m;
    return ERR_OK;
}

static void close_small(void *of)
{
    struct small *m = of;

    run_close(m->run);
    model_close(m->model);
    free(m->row);
    free(m->want);
    free(m);
}

static enum err_code attach_small(void *of, const struct draft_env *env, struct err *e)
{
    struct small *m = of;
    const struct run_opts ro = { .ctx_tokens = run_ctx(env->run) + GEN_DRAFT_MAX,
                                 .n_seq = run_n_seq(env->run),
                                 .undo_tokens = 2 * GEN_DRAFT_MAX,
                                 .logits_max = run_n_seq(env->run),
                                 .stop = m->stop };

    m->text = env->text;
    m->row = calloc((size_t)ro.n_seq, sizeof *m->row);
    m->want = calloc((size_t)ro.n_seq, sizeof *m->want);
    return m->row == NULL || m->want == NULL ? err_nomem(e) : run_open(&m->run, m->model, &ro, e);
}

/* Tokens that the large model alone has end what can be guessed of a text. */
static bool knows_tokens(const struct small *m, const struct draft_text *t, int64_t from)
{
    for (int64_t i = from; i < t->n; i++)
        if (t->token[i] >= model_info(m->model)->n_vocab)
            return false;
    return true;
}

/* The small model has read the text of each ask but its newest token; else there are no guesses. */
static enum err_code catch_up(struct small *m, struct draft_ask *ask, int n, bool *late, struct err *e)
{
    for (int i = 0; i < n; i++) {
        const struct draft_text *t = &m->text[ask[i].seq];
        struct run_match match;

        if (run_match(m->run, ask[i].seq, t->token, t->n, &match, e) != ERR_OK)
            return e->code;
        const int64_t left = t->n - 1 - match.kept;
        *late |= left > GEN_DRAFT_MAX;
        if (!knows_tokens(m, t, match.kept))
            ask[i].n = 0;
        else if (left > 0 &&
                 run_feed(m->run, ask[i].seq, t->token + match.kept, left, 0, NULL, NULL, NULL, e) != ERR_OK)
            return e->code;
    }
    return ERR_OK;
}

/* The most likely token after row i of the last step; -1 when the large model does not have it. */
static int32_t best_of(struct small *m, int i, float *p)
{
    const int32_t n = model_info(m->model)->n_vocab;
    struct logits_digest d;
    const float *x;
    int32_t best = 0;
    double sum = 0;

    if (run_digest(m->run, i, &d)) {
        *p = d.n_top > 0 ? (float)(1.0 / d.total) : 0;
        return d.n_top > 0 && d.top[0].token < m->n_vocab ? d.top[0].token : -1;
    }
    x = run_logits(m->run, i);
    for (int32_t j = 1; j < n; j++)
        best = x[j] > x[best] ? j : best;
    for (int32_t j = 0; j < n; j++)
        sum += exp((double)x[j] - (double)x[best]);
    *p = sum >= 1 ? (float)(1.0 / sum) : 0;
    return best < m->n_vocab ? best : -1;
}

/* One more guess for each ask that has `depth` of them; how many asks have. */
static enum err_code deeper(struct small *m, struct draft_ask *ask, int n, int depth, int *n_row, struct err *e)
{
    int at = 0;

    for (int i = 0; i < n; i++) {
        const struct draft_text *t = &m->text[ask[i].seq];

        if (ask[i].n <= depth)
            continue;
        m->want[at] = (struct logits_want){ .n_top = 1, .inv_temp = 1 };
        m->row[at++] = (struct run_row){ .token = depth == 0 ? t->token[t->n - 1] : ask[i].guess[depth - 1],
                                         .seq = ask[i].seq,
                                         .logits = true };
    }
    *n_row = at;
    if (at > 0 && run_step_want(m->run, m->row, m->want, at, NULL, NULL, e) != ERR_OK)
        return e->code;
    at = 0;
    for (int i = 0; i < n; i++) {
        if (ask[i].n <= depth)
            continue;
        ask[i].guess[depth] = best_of(m, at++, &ask[i].p[depth]);
        if (ask[i].guess[depth] < 0)
            ask[i].n = depth;
    }
    return ERR_OK;
}

static enum err_code guess_small(void *of, struct draft_ask *ask, int n, bool *late, struct err *e)
{
    struct small *m = of;
    int n_row = n;

    *late = false;
    enum err_code code = catch_up(m, ask, n, late, e);
    for (int depth = 0; code == ERR_OK && n_row > 0 && depth < GEN_DRAFT_MAX; depth++)
        code = deeper(m, ask, n, depth, &n_row, e);
    if (code != ERR_CANCEL)
        return code;
    for (int i = 0; i < n; i++)
        ask[i].n = 0;
    *e = (struct err){ 0 };
    return ERR_OK;
}

const struct draft_type draft_type_model = {
    .name = "model",
    .file = true,
    .open = open_small,
    .close = close_small,
    .attach = attach_small,
    .guess = guess_small,
};
