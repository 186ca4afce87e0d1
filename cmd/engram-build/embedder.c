/* SPDX-License-Identifier: Apache-2.0 */
/* embedder.c - a vector for each token, as a GGUF file: made, opened, used.   room: cmd */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/io.h"
#include "engram-build/embed.h"
#include "engram-build/safetensors.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

#define ARCHITECTURE "embedder"
#define ROWS         "token_embd.weight"

/* ---- a text's vector ---- */

static enum err_code check_table(const struct cli_embed_table *t, struct err *e)
{
    struct str arch;

    if (!gguf_str(t->g, "general.architecture", &arch) || !str_is(arch, ARCHITECTURE))
        return err_set(e, ERR_FORMAT, "not an embedder (chimere-engram-build embedder makes one)");
    if (t->rows == NULL || t->rows->n_dims != 2 || t->rows->ne[0] > RECALL_DIMS_MAX)
        return err_set(e, ERR_FORMAT, "%s: not a vector for each token", ROWS);
    return ERR_OK;
}

enum err_code cli_embed_table_open(struct cli_embed_table *t, const char *path, int *dims, struct err *e)
{
    char real[PATH_MAX];

    if (gguf_open(&t->g, path, e))
        return e->code;
    t->rows = gguf_find(t->g, ROWS);
    if (check_table(t, e))
        return err_wrap(e, "%s", path);
    if (text_open(&t->text, t->g, e))
        return e->code;
    if (text_info(t->text)->n_tokens > t->rows->ne[1])
        return err_set(e, ERR_FORMAT, "%s: has %lld vectors for %d tokens", path, (long long)t->rows->ne[1],
                       text_info(t->text)->n_tokens);
    *dims = (int)t->rows->ne[0];
    t->row = malloc((size_t)*dims * sizeof *t->row);
    t->sum = malloc((size_t)*dims * sizeof *t->sum);
    if (t->row == NULL || t->sum == NULL)
        return err_nomem(e);
    const int64_t shape[] = { t->rows->type, t->rows->ne[0], t->rows->ne[1] };

    t->fingerprint = io_hash(io_hash(text_fingerprint(t->g), shape, sizeof shape), t->rows->data, t->rows->size_bytes);
    if (realpath(path, real) != NULL && strlen(real) < sizeof t->path)
        memcpy(t->path, real, strlen(real) + 1);
    return ERR_OK;
}

void cli_embed_table_close(struct cli_embed_table *t)
{
    free(t->row);
    free(t->sum);
    text_close(t->text);
    gguf_close(t->g);
}

enum err_code cli_embed_table_text(struct cli_embed_table *t, struct str text, float *v, bool *took, struct err *e)
{
    const int64_t dims = t->rows->ne[0];
    const size_t row_bytes = (size_t)quant_row_bytes(t->rows->type, dims);
    struct text_tokens tokens = { 0 };
    double length = 0;

    if (text_encode(t->text, text, 0, &tokens, e)) {
        text_tokens_free(&tokens);
        return e->code;
    }
    memset(t->sum, 0, (size_t)dims * sizeof *t->sum);
    for (int64_t i = 0; i < tokens.n; i++) {
        quant_types[t->rows->type]->decode(t->row, (const char *)t->rows->data + (size_t)tokens.v[i] * row_bytes, dims);
        for (int64_t d = 0; d < dims; d++)
            t->sum[d] += (double)t->row[d];
    }
    for (int64_t d = 0; d < dims; d++)
        length += t->sum[d] * t->sum[d];
    *took = length > 0 && isfinite(length);
    for (int64_t d = 0; *took && d < dims; d++)
        v[d] = (float)(t->sum[d] / sqrt(length));
    text_tokens_free(&tokens);
    return ERR_OK;
}

/* ---- the file ---- */

/* Rows of the type that the file has; none may have what is no number. */
static enum err_code check_rows(const struct cli_matrix *m, const char *path, struct err *e)
{
    const size_t row_bytes = (size_t)quant_row_bytes(m->type, m->dims);
    float *row = malloc((size_t)m->dims * sizeof *row);
    enum err_code code = row != NULL ? ERR_OK : err_nomem(e);

    for (int64_t i = 0; code == ERR_OK && i < m->rows; i++) {
        quant_types[m->type]->decode(row, m->data + (size_t)i * row_bytes, m->dims);
        for (int64_t d = 0; code == ERR_OK && d < m->dims; d++)
            if (!isfinite(row[d]))
                code = err_set(e, ERR_FORMAT, "%s: number %lld of row %lld is not finite", path, (long long)d,
                               (long long)i);
    }
    free(row);
    return code;
}

/* The tokenizer of a model's file. */
static enum err_code copy_tokenizer(struct gguf_writer *w, const struct gguf *g, struct err *e)
{
    static const char prefix[] = "tokenizer.ggml.";

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (kv->key.n >= sizeof prefix - 1 && memcmp(kv->key.p, prefix, sizeof prefix - 1) == 0 &&
            gguf_write_kv(w, kv, e))
            return e->code;
    }
    return ERR_OK;
}

static int64_t tokens_of(const struct gguf *g)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.tokens");

    return kv != NULL ? (int64_t)kv->n : 0;
}

static enum err_code write_table(const struct build_options *o, const struct cli_matrix *m, const struct gguf *g,
                                 const struct cli_spm *spm, struct err *e)
{
    const int64_t ne[] = { m->dims, m->rows };
    struct gguf_writer *w;
    enum err_code code;

    if (gguf_write_open(&w, o->out, e))
        return e->code;
    code = gguf_write_str(w, "general.architecture", STR(ARCHITECTURE), e);
    if (code == ERR_OK)
        code = g != NULL ? copy_tokenizer(w, g, e) : cli_spm_write(spm, w, e);
    if (code == ERR_OK)
        code = gguf_write_tensor(w, STR(ROWS), m->type, 2, ne, e) ||
                       gguf_write_data(w, m->data, (size_t)quant_row_bytes(m->type, m->dims) * (size_t)m->rows, e)
                   ? e->code
                   : ERR_OK;
    if (code == ERR_OK)
        return gguf_write_commit(w, e);
    gguf_write_abort(w);
    return code;
}

enum err_code cli_engram_embedder(const struct build_options *o, struct err *e)
{
    const double from = clock_ms();
    const char *table = o->from.v[0];
    struct cli_safetensors st = { 0 };
    struct cli_matrix m = { 0 };
    struct cli_spm spm = { 0 };
    struct cli_opened x = { 0 };
    enum err_code code = cli_safetensors_open(&st, &m, table, e) || check_rows(&m, table, e) ? e->code : ERR_OK;

    if (code == ERR_OK)
        code = o->tokenizer != NULL ? cli_spm_open(&spm, o->tokenizer, e) : cli_open(&x, &o->model, e);
    const int64_t tokens = code != ERR_OK ? 0 : o->tokenizer != NULL ? spm.n : tokens_of(x.gguf);

    if (code == ERR_OK && m.rows < tokens)
        code = err_set(e, ERR_FORMAT, "%s: has %lld rows for %lld tokens%s", table, (long long)m.rows,
                       (long long)tokens, o->tokenizer != NULL ? "" : " (--tokenizer names the tokenizer)");
    if (code == ERR_OK)
        code = write_table(o, &m, x.gguf, &spm, e);
    if (code == ERR_OK)
        cli_engram_tell(o, from, "vectors of %lld numbers for %lld tokens", (long long)m.dims, (long long)tokens);
    cli_opened_close(&x);
    cli_spm_close(&spm);
    cli_safetensors_close(&st);
    return code;
}
