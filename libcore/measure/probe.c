/* SPDX-License-Identifier: Apache-2.0 */
/* probe.c - a model and what is changed in it, on the same tokens.                   room: measure */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "measure/measure.h"
#include "model/model.h"
#include "run/run.h"

struct measure {
    const struct gguf *g;
    struct model_opts opts;
    struct measure_text text;
    int32_t n_vocab;
    int64_t n_rows; /* that count, of a sequence */
    uint16_t *ref;  /* [n_seq][n_rows][n_vocab], eval_pack_logits() */
    float *row;     /* one of them, unpacked */
    double *sum;    /* [n_seq] of KL */
    int64_t *count;
};

/* What is done with the logits of a row that counts, the one at `at` of these. */
struct pass {
    struct measure *m;
    int seq;
    int64_t at;
    bool keep;
};

static enum err_code take_row(void *ctx, int64_t pos, const float *logits, struct err *e)
{
    struct pass *p = ctx;
    struct measure *m = p->m;
    uint16_t *ref = m->ref + ((size_t)p->seq * (size_t)m->n_rows + (size_t)p->at) * (size_t)m->n_vocab;

    if (p->keep) {
        eval_pack_logits(ref, logits, m->n_vocab);
    } else {
        struct eval_kl d;

        eval_unpack_logits(m->row, ref, m->n_vocab);
        d = eval_kl(m->row, logits, m->n_vocab, 0);
        if (!isfinite(d.kl))
            return err_set(e, ERR_DEVICE, "sequence %d, token %lld: the divergence is not a number", p->seq,
                           (long long)pos);
        m->sum[p->seq] += (double)d.kl;
        m->count[p->seq]++;
    }
    p->at++;
    return ERR_OK;
}

static enum err_code run_all(struct measure *m, const struct gguf *g, bool keep, const struct progress *progress,
                             struct err *e)
{
    struct model *model = NULL;
    struct run *r = NULL;
    enum err_code rc = model_open(&model, g, &m->opts, e);

    if (rc == ERR_OK && keep) {
        size_t n = (size_t)m->text.n_seq * (size_t)m->n_rows;

        m->n_vocab = model_info(model)->n_vocab;
        m->ref = calloc(n, (size_t)m->n_vocab * sizeof *m->ref);
        m->row = malloc((size_t)m->n_vocab * sizeof *m->row);
        if (m->ref == NULL || m->row == NULL)
            rc = err_set(e, ERR_NOMEM, "no memory for the logits of %zu tokens", n);
    }
    if (rc == ERR_OK)
        rc = run_open(&r, model, &(struct run_opts){ .ctx_tokens = m->text.n_tokens }, e);
    for (int s = 0; rc == ERR_OK && s < m->text.n_seq; s++) {
        struct pass p = { .m = m, .seq = s, .keep = keep };

        run_clear(r, 0);
        m->sum[s] = 0;
        m->count[s] = 0;
        rc = run_feed(r, 0, m->text.v + s * m->text.n_tokens, m->text.n_tokens, m->n_rows, take_row, &p, NULL, e);
        if (rc == ERR_OK && !progress_tick(progress, (uint64_t)s + 1, (uint64_t)m->text.n_seq))
            rc = err_set(e, ERR_CANCEL, "interrupted");
    }
    run_close(r);
    model_close(model);
    return rc;
}

enum err_code measure_open(struct measure **out, const struct gguf *g, const struct model_opts *o,
                           const struct measure_text *text, const struct progress *progress, struct err *e)
{
    struct measure *m = calloc(1, sizeof *m);
    size_t n = (size_t)text->n_seq * (size_t)text->n_tokens;
    enum err_code rc = ERR_OK;

    if (m == NULL)
        return err_nomem(e);
    *m = (struct measure){ .g = g, .opts = *o, .text = *text, .n_rows = text->n_tokens - text->from };
    m->text.v = malloc(n * sizeof *m->text.v);
    m->sum = calloc((size_t)text->n_seq, sizeof *m->sum);
    m->count = calloc((size_t)text->n_seq, sizeof *m->count);
    if (m->text.v == NULL || m->sum == NULL || m->count == NULL) {
        rc = err_nomem(e);
    } else {
        memcpy(m->text.v, text->v, n * sizeof *m->text.v);
        rc = run_all(m, g, true, progress, e);
    }
    if (rc) {
        measure_close(m);
        return rc;
    }
    *out = m;
    return ERR_OK;
}

void measure_close(struct measure *m)
{
    if (m == NULL)
        return;
    free(m->text.v);
    free(m->sum);
    free(m->count);
    free(m->ref);
    free(m->row);
    free(m);
}

enum err_code measure_kl(struct measure *m, const struct gguf *changed, struct eval_mean *out,
                         const struct progress *progress, struct err *e)
{
    if (run_all(m, changed, false, progress, e))
        return e->code;
    *out = eval_group_mean(m->sum, m->count, m->text.n_seq);
    return ERR_OK;
}
