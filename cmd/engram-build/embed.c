/* SPDX-License-Identifier: Apache-2.0 */
/* embed.c - vectors of texts: of a model, of another program, of a table.     room: cmd */
#include "engram-build/embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "cli/coprocess.h"
#include "run/run.h"

/* ---- numbers ---- */

static enum err_code set_dims(struct cli_embedder *m, int dims, struct err *e)
{
    free(m->v);
    m->v = malloc((size_t)CLI_EMBED_BATCH * (size_t)dims * sizeof *m->v);
    m->dims = m->v != NULL ? dims : 0;
    return m->v != NULL ? ERR_OK : err_nomem(e);
}

enum err_code cli_embed_numbers(struct cli_embedder *m, int i, const float *v, size_t n, struct err *e)
{
    if (n < 1 || n > RECALL_DIMS_MAX)
        return err_set(e, ERR_IO, "a vector of %zu numbers: 1 to %d", n, RECALL_DIMS_MAX);
    if (m->dims > 0 && n != (size_t)m->dims)
        return err_set(e, ERR_IO, "a vector of %zu numbers, not %d", n, m->dims);
    for (size_t d = 0; d < n; d++)
        if (!isfinite(v[d]))
            return err_set(e, ERR_IO, "number %zu of the vector is not finite", d + 1);
    if (m->v == NULL && set_dims(m, (int)n, e))
        return e->code;
    memcpy(m->v + (size_t)i * n, v, n * sizeof *v);
    return ERR_OK;
}

enum err_code cli_embed_line(struct cli_embedder *m, int i, struct str line, struct err *e)
{
    json_t *a = NULL;
    const enum err_code parsed = json_parse(&a, line, "it", e);

    if (parsed == ERR_NOMEM)
        return parsed;
    if (parsed != ERR_OK || !json_is_array(a)) {
        json_decref(a);
        return err_set(e, ERR_IO, "the line is not a JSON array of numbers");
    }
    const size_t n = json_array_size(a);
    float *v = malloc((n + 1) * sizeof *v);
    enum err_code code = v != NULL ? ERR_OK : err_nomem(e);

    for (size_t d = 0; code == ERR_OK && d < n; d++) {
        const json_t *x = json_array_get(a, d);

        v[d] = (float)json_number_value(x);
        if (!json_is_number(x))
            code = err_set(e, ERR_IO, "the line is not a JSON array of numbers");
    }
    if (code == ERR_OK)
        code = cli_embed_numbers(m, i, v, n, e);
    json_decref(a);
    free(v);
    return code;
}

/* ---- a model ---- */

enum err_code cli_embed_open_run(struct cli_embedder *m, const struct build_options *o, int layer, int64_t ctx,
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
    return cli_open_run(&m->run, &m->x, &ro, e);
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

static enum err_code run_model(struct cli_embedder *m, struct err *e)
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

static enum err_code add_tokens(struct cli_embedder *m, struct str text, bool *took, struct err *e)
{
    struct text_tokens *t = &m->token[m->n];

    t->n = 0;
    if (text_encode(m->x.text, text, 0, t, e))
        return e->code;
    t->n = t->n < CLI_EMBED_CTX ? t->n : CLI_EMBED_CTX;
    *took = t->n > 0;
    return ERR_OK;
}

/* ---- another program ---- */

static enum err_code start_command(struct cli_embedder *m, const struct build_options *o, struct err *e)
{
    const struct cli_coprocess_opts co = { .name = "--embed-command",
                                           .asked = "text",
                                           .answer = "vector",
                                           .option = "--embed-time",
                                           .seconds = o->embed_seconds,
                                           .bad = ERR_IO };

    m->command_number = io_hash(0, o->embed_command, strlen(o->embed_command));
    return cli_coprocess_open(&m->command, o->embed_command, &co, e);
}

/* As a JSON string: a text may have several lines. */
static enum err_code add_line(struct cli_embedder *m, struct str text, struct err *e)
{
    json_t *s = json_bytes(text);
    char *line = s != NULL ? json_line(s) : NULL;
    enum err_code code = line != NULL ? ERR_OK : err_nomem(e);

    json_decref(s);
    if (m->n == 0)
        m->lines.n = 0;
    if (code == ERR_OK && (cli_buf_add(&m->lines, str_of(line), e) || cli_buf_add(&m->lines, STR("\n"), e)))
        code = e->code;
    free(line);
    return code;
}

static enum err_code take_line(void *ctx, int i, struct str line, struct err *e)
{
    return cli_embed_line(ctx, i, line, e);
}

/* ---- any of them ---- */

enum err_code cli_embed_open(struct cli_embedder *m, const struct build_options *o, enum recall_maker maker,
                             const char *path, int layer, struct err *e)
{
    int dims = 0;

    m->maker = maker;
    if (maker == RECALL_MODEL)
        return m->run == NULL && cli_embed_open_run(m, o, layer, CLI_EMBED_CTX, e)
                   ? e->code
                   : set_dims(m, model_info(m->x.model)->n_embd, e);
    if (maker == RECALL_ELSEWHERE)
        return o->embed_command != NULL ? start_command(m, o, e) : ERR_OK;
    return cli_embed_table_open(&m->table, path, &dims, e) ? e->code : set_dims(m, dims, e);
}

void cli_embed_close(struct cli_embedder *m)
{
    run_close(m->run);
    for (int i = 0; i < CLI_EMBED_BATCH; i++)
        text_tokens_free(&m->token[i]);
    cli_coprocess_close(m->command);
    cli_buf_free(&m->lines);
    cli_embed_table_close(&m->table);
    free(m->v);
    cli_opened_close(&m->x);
}

struct recall_vectors cli_embed_made(const struct cli_embedder *m)
{
    struct recall_vectors v = { .maker = m->maker, .dims = m->dims };

    if (m->maker == RECALL_MODEL) {
        v.model = model_fingerprint(m->x.model);
        v.layer = m->layer;
    } else if (m->maker == RECALL_ELSEWHERE)
        v.model = m->command_number;
    else {
        v.model = m->table.fingerprint;
        v.path = m->table.path;
    }
    return v;
}

enum err_code cli_embed_add(struct cli_embedder *m, struct str text, bool *took, struct err *e)
{
    enum err_code code;

    *took = true;
    if (m->maker == RECALL_MODEL)
        code = add_tokens(m, text, took, e);
    else if (m->maker == RECALL_ELSEWHERE)
        code = add_line(m, text, e);
    else
        code = cli_embed_table_text(&m->table, text, m->v + (size_t)m->n * (size_t)m->dims, took, e);
    m->n += code == ERR_OK && *took;
    return code;
}

enum err_code cli_embed_run(struct cli_embedder *m, struct err *e)
{
    if (m->maker == RECALL_MODEL)
        return run_model(m, e);
    if (m->maker == RECALL_EMBEDDER || m->n == 0)
        return ERR_OK;
    return cli_coprocess_ask(m->command, (struct str){ m->lines.p, m->lines.n }, m->n, take_line, m, e);
}
