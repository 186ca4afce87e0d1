/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - vectors of texts: means of a model's hidden rows.                room: cmd */
#include "engram-build/embed.h"

#include <stdlib.h>

#include "run/run.h"

enum err_code cli_embed_open(struct cli_embedder *m, const struct build_options *o, int layer, int64_t ctx,
                             struct err *e)
{
    struct run_opts ro = { .n_seq = CLI_EMBED_BATCH,
                           .ctx_tokens = ctx,
                           .rows_max = o->model.chunk > 0 ? o->model.chunk : CLI_EMBED_CTX,
                           .n_taps = 1,
                           .tap_layers = &m->layer,
                           .kv_tokens = ctx > CLI_EMBED_CTX ? ctx + CLI_EMBED_BATCH * CLI_EMBED_CTX : 0,
                           .stop = cli_interrupted };

    if (cli_open_model(&m->x, e))
        return e->code;
    const struct model_info *info = model_info(m->x.model);

    /* Means of the last layer's rows find little: what a text is about stands in the first half. A quarter was best. */
    m->layer = layer >= 0 ? layer : info->n_layer / 4 > 0 ? info->n_layer / 4 - 1 : 0;
    if (m->layer >= info->n_layer)
        return err_set(e, ERR_ARG, "--layer %d: the model has %d", m->layer, info->n_layer);
    m->dims = info->n_embd;
    m->v = malloc((size_t)CLI_EMBED_BATCH * (size_t)m->dims * sizeof *m->v);
    if (m->v == NULL)
        return err_nomem(e);
    return cli_open_run(&m->run, &m->x, &ro, e);
}

void cli_embed_close(struct cli_embedder *m)
{
    run_close(m->run);
    for (int i = 0; i < CLI_EMBED_BATCH; i++)
        text_tokens_free(&m->token[i]);
    free(m->v);
    cli_opened_close(&m->x);
}

/* Means of the rows of texts token[from .. from + n), in one step if all have room there. */
static enum err_code embed_step(struct cli_embedder *m, int from, int n, struct err *e)
{
    const int rows_max = run_rows_max(m->run);
    struct run_row *row = malloc((size_t)rows_max * sizeof *row);
    float *hidden = malloc((size_t)m->dims * sizeof *hidden);
    double *sum = calloc((size_t)n * (size_t)m->dims, sizeof *sum);
    int64_t at[CLI_EMBED_BATCH] = { 0 };
    enum err_code code = row && hidden && sum ? ERR_OK : err_nomem(e);

    for (int i = 0; i < n; i++)
        run_clear(m->run, i);
    for (int i = 0; code == ERR_OK && i < n;) {
        int rows = 0;

        for (; i < n; i++) {
            for (; at[i] < m->token[from + i].n && rows < rows_max; at[i]++)
                row[rows++] = (struct run_row){ .token = m->token[from + i].v[at[i]], .seq = i };
            if (at[i] < m->token[from + i].n)
                break;
        }
        code = rows > 0 ? run_step(m->run, row, rows, e) : ERR_OK;
        for (int k = 0; code == ERR_OK && k < rows && run_tap(m->run, 0, k, hidden); k++)
            for (int d = 0; d < m->dims; d++)
                sum[(size_t)row[k].seq * (size_t)m->dims + (size_t)d] += (double)hidden[d];
    }
    for (int i = 0; code == ERR_OK && i < n; i++)
        for (int d = 0; d < m->dims; d++)
            m->v[(size_t)(from + i) * (size_t)m->dims + (size_t)d] =
                (float)(sum[(size_t)i * (size_t)m->dims + (size_t)d] / (double)m->token[from + i].n);
    free(row);
    free(hidden);
    free(sum);
    return code;
}

enum err_code cli_embed_run(struct cli_embedder *m, struct err *e)
{
    const int rows_max = run_rows_max(m->run);

    for (int from = 0, n; from < m->n; from += n) {
        int64_t rows = 0;

        for (n = 0; from + n < m->n && (n == 0 || rows + m->token[from + n].n <= rows_max); n++)
            rows += m->token[from + n].n;
        if (embed_step(m, from, n, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code cli_embed_add(struct cli_embedder *m, struct str text, bool *took, struct err *e)
{
    struct text_tokens *t = &m->token[m->n];

    t->n = 0;
    if (text_encode(m->x.text, text, 0, t, e))
        return e->code;
    t->n = t->n < CLI_EMBED_CTX ? t->n : CLI_EMBED_CTX;
    *took = t->n > 0;
    m->n += *took;
    return ERR_OK;
}
