/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - what tables are worth to a model: perplexity with and without, and the fit of weights.  room: cmd */
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

/* What a model made of the tokens of texts. */
struct said {
    double p;   /* of the token that came */
    float sure; /* of the likeliest one */
    int32_t window;
};
struct cli_engram_heard {
    struct eval_tokens *text; /* [n_texts] */
    size_t n_texts;
    struct text_tokens open; /* the document that is being read */
    struct said *said;       /* [n] of all texts, one behind the other: each token but the first */
    int64_t n, n_windows;
    int32_t n_vocab;
};

static enum err_code take(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    struct cli_engram_heard *h = ctx;
    struct eval_tokens *text;

    for (int64_t i = 0; i < p->n; i++)
        if (text_tokens_push(&h->open, p->token[i], e))
            return e->code;
    if (!p->end || h->open.n < 2)
        return ERR_OK;
    text = realloc(h->text, (h->n_texts + 1) * sizeof *text);
    if (text == NULL)
        return err_nomem(e);
    h->text = text;
    h->text[h->n_texts++] = (struct eval_tokens){ h->open.v, h->open.n };
    h->open = (struct text_tokens){ 0 };
    return ERR_OK;
}

/* Windows give each token once, in order. */
static enum err_code hear(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct cli_engram_heard *h = ctx;
    float max = -INFINITY;
    double sum = 0, p;

    for (int32_t i = 0; i < h->n_vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < h->n_vocab; i++)
        sum += exp((double)logits[i] - (double)max);
    p = exp((double)logits[token] - (double)max) / sum;
    if (!(p >= 0))
        return err_set(e, ERR_DEVICE, "window %lld: a probability is not a number", (long long)window);
    h->said[h->n++] = (struct said){ p > 1e-30 ? p : 1e-30, (float)(1 / sum), (int32_t)window };
    return ERR_OK;
}

static bool tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (cli_status_asked())
        fprintf(stderr, "%s: %llu of %llu windows\n", cli_name(), (unsigned long long)done, (unsigned long long)total);
    cli_progress_count("the model reads", (int64_t)done, (int64_t)total, " windows");
    return !cli_interrupted();
}

/* The model reads the texts. */
static enum err_code listen(const struct build_options *o, struct cli_opened *x, struct cli_engram_heard *h,
                            struct err *e)
{
    const struct progress progress = { tick, NULL };
    const int64_t ctx = o->model.ctx_tokens > 0 ? o->model.ctx_tokens : CTX;
    const struct text_info *info = text_info(x->text);
    const struct eval_window_opts w = { .ctx_tokens = ctx,
                                        .stride_tokens = ctx > 1 ? ctx / 2 : 1,
                                        .bos = info->add_bos ? info->bos : -1 };
    struct run *run = NULL;
    enum err_code code;

    if (h->n_texts == 0)
        return err_set(e, ERR_ARG, "the text for the model has fewer than two tokens: nothing can be scored");
    h->n_vocab = model_info(x->model)->n_vocab;
    h->n_windows = eval_window_count(h->text, h->n_texts, &w);
    h->said = calloc((size_t)eval_scored_count(h->text, h->n_texts, &w) + 1, sizeof *h->said);
    if (h->said == NULL)
        return err_nomem(e);
    code = cli_open_run(
        &run, x, &(struct run_opts){ .ctx_tokens = ctx, .rows_max = o->model.chunk, .stop = cli_interrupted }, e);
    if (code == ERR_OK)
        code = eval_windows(run, h->text, h->n_texts, &w, hear, h, &progress, e);
    cli_progress_end();
    run_close(run);
    return code;
}

static enum err_code read_text(struct cli_engram_heard *h, struct str s, const struct text *text, struct err *e)
{
    struct text_tokens ids = { 0 };
    enum err_code code = text_encode(text, s, 0, &ids, e);

    if (code == ERR_OK)
        code = take(h, &(struct cli_engram_piece){ s, ids.v, ids.n, true, 1, false }, e);
    text_tokens_free(&ids);
    return code;
}

enum err_code cli_engram_hear(struct cli_engram_heard **out, const struct build_options *o, char *const *files,
                              const struct str *text, struct cli_opened *x, struct err *e)
{
    struct cli_engram_heard *h = calloc(1, sizeof *h);
    struct pool *pool = NULL;
    enum err_code code = h != NULL ? ERR_OK : err_nomem(e);

    if (code == ERR_OK && text == NULL)
        code = pool_open(&pool, o->model.n_threads > 0 ? o->model.n_threads : pool_cpus(), e);
    if (code == ERR_OK)
        code = text == NULL ? cli_engram_read(o, files, x->text, pool, take, h, e) : read_text(h, *text, x->text, e);
    pool_close(pool);
    if (code == ERR_OK)
        code = listen(o, x, h, e);
    if (code != ERR_OK)
        cli_engram_heard_close(h);
    else
        *out = h;
    return code;
}

void cli_engram_heard_close(struct cli_engram_heard *h)
{
    for (size_t i = 0; h != NULL && i < h->n_texts; i++)
        free((void *)(uintptr_t)h->text[i].v);
    if (h != NULL) {
        free(h->text);
        free(h->said);
        text_tokens_free(&h->open);
    }
    free(h);
}

/* ---- what tables say of it ---- */

struct score {
    double before, after; /* sums of -ln p */
    double *window_gain;  /* [windows] of `after`; NULL: not asked for */
    int64_t *window_n;
};

/* The table's word on each token of the texts. */
static enum err_code weigh(const struct cli_engram_heard *h, const struct engram_mix *mix, struct engram_fit *fit,
                           struct score *s, struct err *e)
{
    int64_t k = 0;

    for (size_t t = 0; t < h->n_texts; t++)
        for (int64_t at = 1; at < h->text[t].n && k < h->n; at++, k++) {
            const struct said *d = &h->said[k];
            struct engram_next next;
            float mass = 0, q = 0;

            engram_mix_look(mix, h->text[t].v, at, &next);
            for (int i = 0; i < next.n; i++) {
                mass += next.q[i];
                q = next.token[i] == h->text[t].v[at] ? next.q[i] : q;
            }
            if (fit != NULL && next.n > 0 &&
                engram_fit_add(fit, engram_evidence(&next), d->sure, (float)d->p, q, mass, (int)(d->window & 1), e))
                return e->code;
            const float w = next.n > 0 ? engram_weight(mix, engram_evidence(&next), d->sure) : 0;
            const double mixed = (1 - (double)w * (double)mass) * d->p + (double)w * (double)q;

            s->before -= log(d->p);
            s->after -= log(mixed);
            if (s->window_gain != NULL) {
                s->window_gain[d->window] += log(d->p) - log(mixed);
                s->window_n[d->window]++;
            }
        }
    return ERR_OK;
}

double cli_engram_perplexity(const struct cli_engram_heard *h, const struct engram_mix *mix)
{
    struct score s = { 0 };
    struct err e;

    (void)weigh(h, mix, NULL, &s, &e);
    return h->n > 0 ? exp(s.after / (double)h->n) : NAN;
}

static enum err_code report(const struct build_options *o, const struct cli_engram_heard *h, const struct score *s,
                            struct err *e)
{
    const struct eval_mean d = eval_group_mean(s->window_gain, s->window_n, h->n_windows);
    const double before = exp(s->before / (double)h->n), after = exp(s->after / (double)h->n);
    const double percent = 100 * expm1(d.mean), lo = 100 * expm1(d.mean - 1.96 * d.se),
                 hi = 100 * expm1(d.mean + 1.96 * d.se);

    if (o->json)
        return cli_json_line(json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "type", "engram-score", "tokens",
                                       (json_int_t)h->n, "windows", (json_int_t)h->n_windows, "ppl",
                                       cli_json_real(before), "ppl_engram", cli_json_real(after), "change_percent",
                                       cli_json_real(percent), "change_lo_percent", cli_json_real(lo),
                                       "change_hi_percent", cli_json_real(hi)),
                             e);
    printf("perplexity %.4f, with the table %.4f: %+.3f %% (95 %%: %+.3f to %+.3f), %lld tokens, %lld windows\n",
           before, after, percent, lo, hi, (long long)h->n, (long long)h->n_windows);
    return cli_flush_stdout(e);
}

static enum err_code score(const struct build_options *o, const struct cli_engram_heard *h,
                           const struct engram_mix *mix, struct err *e)
{
    struct score s = { .window_gain = calloc((size_t)h->n_windows + 1, sizeof *s.window_gain),
                       .window_n = calloc((size_t)h->n_windows + 1, sizeof *s.window_n) };
    enum err_code code = s.window_gain != NULL && s.window_n != NULL ? ERR_OK : err_nomem(e);

    if (code == ERR_OK)
        code = weigh(h, mix, NULL, &s, e);
    if (code == ERR_OK)
        code = report(o, h, &s, e);
    free(s.window_gain);
    free(s.window_n);
    return code;
}

static enum err_code fit_table(const struct build_options *o, const struct cli_engram_heard *h,
                               const struct engram_mix *mix, struct err *e)
{
    struct engram_fit *f = NULL;
    struct score s = { 0 };
    enum err_code code = engram_fit_open(&f, e);
    int used = 0;

    if (code == ERR_OK)
        code = weigh(h, mix, f, &s, e);
    if (code == ERR_OK)
        code = engram_fit_write(f, o->out, &used, e);
    if (code == ERR_OK)
        cli_note("%s: %d kinds of evidence help, from %lld tokens", o->out, used, (long long)h->n);
    engram_fit_close(f);
    return code;
}

enum err_code cli_engram_score(const struct build_options *o, char *const *files, bool fit, struct err *e)
{
    const char *const *tables = fit ? &o->out : o->tables.v;
    struct cli_engram_heard *h = NULL;
    struct io_lock *lock = NULL;
    struct cli_opened x = { 0 };
    struct cli_engram table = { 0 };
    enum err_code code;

    code = cli_open(&x, &o->model, e) || cli_open_text(&x, true, e) || cli_open_model(&x, e) ? e->code : ERR_OK;
    if (code == ERR_OK && fit)
        code = io_lock(&lock, o->out, e);
    if (code == ERR_OK)
        code = cli_engram_open(&table, tables, fit ? 1 : o->tables.n, true, x.gguf, x.text,
                               model_info(x.model)->n_vocab, e);
    if (code == ERR_OK)
        code = cli_engram_hear(&h, o, files, NULL, &x, e);
    if (code == ERR_OK)
        code = fit ? fit_table(o, h, &table.mix, e) : score(o, h, &table.mix, e);
    cli_engram_heard_close(h);
    cli_engram_close(&table);
    io_unlock(lock);
    cli_opened_close(&x);
    return code;
}
