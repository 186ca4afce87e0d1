/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - what tables are worth to a model: perplexity with and without, and the fit of weights.  room: cmd (cli_) */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/pool.h"
#include "cli/engram.h"
#include "engram-build/program.h"
#include "eval/eval.h"
#include "gguf/gguf.h"
#include "text/text.h"

enum { CTX = 512 };

struct texts {
    struct eval_tokens *v;
    size_t             n;
    struct text_tokens open; /* the document that is being read */
};

struct score {
    const struct texts *texts;
    struct cli_engram   table;
    struct engram_fit  *fit; /* NULL: score */
    int32_t n_vocab;
    size_t  text;
    int64_t at, window; /* the token that comes next, in that text */
    int64_t n;
    double  before, after;  /* sums of -ln p */
    double *window_gain;    /* of `after`, by window */
    int64_t *window_n;
};

static enum err_code take(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    struct texts *t = ctx;
    struct eval_tokens *v;

    for (int64_t i = 0; i < p->n; i++)
        if (text_tokens_push(&t->open, p->token[i], e))
            return e->code;
    if (!p->end || t->open.n < 2)
        return ERR_OK;
    v = realloc(t->v, (t->n + 1) * sizeof *v);
    if (v == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    t->v = v;
    t->v[t->n++] = (struct eval_tokens){ t->open.v, t->open.n };
    t->open = (struct text_tokens){ 0 };
    return ERR_OK;
}

/* The model's row and the table's word on the next token of the text; windows give each token once, in order. */
static enum err_code add(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct score *s = ctx;
    const struct eval_tokens *t;
    struct engram_next next;
    float  max = -INFINITY, q = 0, mass = 0, w;
    double sum = 0, p;

    if (s->at == s->texts->v[s->text].n) {
        s->text++;
        s->at = 1;
    }
    t = &s->texts->v[s->text];
    engram_mix_look(&s->table.mix, t->v, s->at, &next);
    for (int32_t i = 0; i < s->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < s->n_vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    p = exp((double)logits[token] - (double)max) / sum;
    if (!(p >= 0))
        return err_set(e, ERR_DEVICE, "window %lld: a probability is not a number", (long long)window);
    for (int i = 0; i < next.n; i++) {
        mass += next.q[i];
        q = next.token[i] == token ? next.q[i] : q;
    }
    if (s->fit != NULL && next.n > 0 &&
        engram_fit_add(s->fit, engram_evidence(&next), (float)(1 / sum), (float)p, q, mass, (int)(window & 1), e))
        return e->code;
    w = next.n > 0 ? engram_weight(&s->table.mix, engram_evidence(&next), (float)(1 / sum)) : 0;
    p = p > 1e-30 ? p : 1e-30;
    const double mixed = (1 - (double)w * (double)mass) * p + (double)w * (double)q;

    s->n++;
    s->at++;
    s->before -= log(p);
    s->after -= log(mixed);
    s->window_gain[window] += log(p) - log(mixed);
    s->window_n[window]++;
    return ERR_OK;
}

static bool tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (cli_status_asked())
        fprintf(stderr, "%s: %llu of %llu windows\n", cli_name(), (unsigned long long)done,
                (unsigned long long)total);
    cli_progress("%llu of %llu windows", (unsigned long long)done, (unsigned long long)total);
    return !cli_interrupted();
}

static enum err_code report(const struct build_options *o, const struct score *s, int64_t n_windows, struct err *e)
{
    const struct eval_mean d = eval_group_mean(s->window_gain, s->window_n, n_windows);
    const double before = exp(s->before / (double)s->n), after = exp(s->after / (double)s->n);
    const double percent = 100 * expm1(d.mean), lo = 100 * expm1(d.mean - 1.96 * d.se),
                 hi = 100 * expm1(d.mean + 1.96 * d.se);

    if (o->json)
        return cli_json_line(json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "type", "engram-score", "tokens",
                                       (json_int_t)s->n, "windows", (json_int_t)n_windows, "ppl",
                                       cli_json_real(before), "ppl_engram", cli_json_real(after), "change_percent",
                                       cli_json_real(percent), "change_lo_percent", cli_json_real(lo),
                                       "change_hi_percent", cli_json_real(hi)), e);
    printf("perplexity %.4f, with the table %.4f: %+.3f %% (95 %%: %+.3f to %+.3f), %lld tokens, %lld windows\n", before,
           after, percent, lo, hi, (long long)s->n, (long long)n_windows);
    return cli_flush_stdout(e);
}

static enum err_code walk(const struct build_options *o, struct cli_opened *x, const struct texts *t, struct score *s,
                          struct err *e)
{
    const struct progress progress = { tick, NULL };
    const int64_t ctx = o->model.ctx_tokens > 0 ? o->model.ctx_tokens : CTX;
    const struct text_info *info = text_info(x->text);
    const struct eval_window_opts w = { .ctx_tokens = ctx, .stride_tokens = ctx > 1 ? ctx / 2 : 1,
                                        .bos = info->add_bos ? info->bos : -1 };
    const int64_t n = eval_window_count(t->v, t->n, &w);
    struct run *run = NULL;
    enum err_code code;
    int used = 0;

    s->texts = t;
    s->at = 1;
    s->window_gain = calloc((size_t)n + 1, sizeof *s->window_gain);
    s->window_n = calloc((size_t)n + 1, sizeof *s->window_n);
    if (s->window_gain == NULL || s->window_n == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    code = cli_open_run(&run, x, &(struct run_opts){ .ctx_tokens = ctx, .rows_max = o->model.chunk, .stop = cli_interrupted }, e);
    if (code == ERR_OK)
        code = eval_windows(run, t->v, t->n, &w, add, s, &progress, e);
    cli_progress_end();
    run_close(run);
    if (code == ERR_OK && s->fit == NULL)
        return report(o, s, n, e);
    if (code == ERR_OK)
        code = engram_fit_write(s->fit, o->out, &used, e);
    if (code == ERR_OK)
        cli_note("%s: %d kinds of evidence help, from %lld tokens", o->out, used, (long long)s->n);
    return code;
}

enum err_code cli_engram_score(const struct build_options *o, char *const *files, bool fit, struct err *e)
{
    const char *const *tables = fit ? &o->out : o->tables.v;
    struct io_lock *lock = NULL;
    struct cli_opened x = { 0 };
    struct texts t = { 0 };
    struct score s = { 0 };
    struct pool *pool = NULL;
    enum err_code code;

    code = cli_open(&x, &o->model, e) || cli_open_text(&x, true, e) || cli_open_model(&x, e) ? e->code : ERR_OK;
    if (code == ERR_OK && fit)
        code = io_lock(&lock, o->out, e) || engram_fit_open(&s.fit, e) ? e->code : ERR_OK;
    if (code == ERR_OK)
        code = pool_open(&pool, o->model.n_threads > 0 ? o->model.n_threads : pool_cpus(), e);
    if (code == ERR_OK)
        code = cli_engram_read(o, files, x.text, pool, take, &t, e);
    pool_close(pool);
    if (code == ERR_OK) {
        s.n_vocab = model_info(x.model)->n_vocab;
        code = cli_engram_open(&s.table, tables, fit ? 1 : o->tables.n, true, x.gguf, x.text, s.n_vocab, e);
    }
    if (code == ERR_OK)
        code = walk(o, &x, &t, &s, e);
    for (size_t i = 0; i < t.n; i++)
        free((void *)(uintptr_t)t.v[i].v);
    free(t.v);
    text_tokens_free(&t.open);
    free(s.window_gain);
    free(s.window_n);
    engram_fit_close(s.fit);
    cli_engram_close(&s.table);
    io_unlock(lock);
    cli_opened_close(&x);
    return code;
}
