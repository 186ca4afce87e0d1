/* SPDX-License-Identifier: Apache-2.0 */
/* score.c - what tables are worth to a model: perplexity with and without.  room: cmd */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/io.h"
#include "base/pool.h"
#include "cli/engram.h"
#include "engram-build/program.h"
#include "engram/heard.h"
#include "eval/eval.h"
#include "gguf/gguf.h"
#include "text/text.h"

enum { CTX = 512 };

static enum err_code take_piece(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    return engram_heard_text(ctx, p->token, p->n, p->end, e);
}

/* A text that a model reads, in windows that give each token once, in order. */
struct listening {
    struct engram_heard *heard;
    int32_t n_vocab;
};

static enum err_code hear_token(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    const struct listening *l = ctx;

    return engram_heard_say(l->heard, window, token, logits, l->n_vocab, e);
}

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    if (cli_status_asked())
        fprintf(stderr, "%s: %llu of %llu windows\n", cli_name(), (unsigned long long)done, (unsigned long long)total);
    cli_progress_count("the model reads", (int64_t)done, (int64_t)total, " windows");
    return !cli_interrupted();
}

/* All that the numbers depend on. */
static uint64_t heard_key(const struct build_options *o, const struct cli_opened *x, const struct engram_heard *h,
                          const struct eval_window_opts *w)
{
    const uint64_t fixed[] = { model_fingerprint(x->model), x->adapters.hash, (uint64_t)o->model.acts };
    char text[200];
    uint64_t key;

    (void)snprintf(text, sizeof text, "%s %lld %lld %d kv %.64s on %.64s", CHIMERE_VERSION, (long long)w->ctx_tokens,
                   (long long)w->stride_tokens, (int)w->bos, o->model.kv != NULL ? o->model.kv : "",
                   cli_open_device_kind(&o->model));
    key = io_hash(io_hash(0, text, strlen(text)), fixed, sizeof fixed);
    for (size_t i = 0; i < h->n_texts; i++)
        key = io_hash(key + 1, h->text[i].token, (size_t)h->text[i].n * sizeof *h->text[i].token);
    return key;
}

static enum err_code run_model(const struct build_options *o, struct cli_opened *x, struct engram_heard *h,
                               const struct eval_tokens *texts, const struct eval_window_opts *w, struct err *e)
{
    const struct progress progress = { show_progress, NULL };
    struct listening l = { h, model_info(x->model)->n_vocab };
    struct run *run = NULL;
    enum err_code code = cli_open_run(
        &run, x, &(struct run_opts){ .ctx_tokens = w->ctx_tokens, .rows_max = o->model.chunk, .stop = cli_interrupted },
        e);

    if (code == ERR_OK)
        code = eval_windows(run, texts, h->n_texts, w, hear_token, &l, &progress, e);
    cli_progress_end();
    run_close(run);
    return code;
}

/* The model reads the texts, unless it is known what it says. */
static enum err_code listen(const struct build_options *o, struct cli_opened *x, struct engram_heard *h, struct err *e)
{
    const int64_t ctx = o->model.ctx_tokens > 0 ? o->model.ctx_tokens : CTX;
    const struct text_info *info = text_info(x->text);
    const struct eval_window_opts w = { .ctx_tokens = ctx,
                                        .stride_tokens = ctx > 1 ? ctx / 2 : 1,
                                        .bos = info->add_bos ? info->bos : -1 };
    const uint64_t key = heard_key(o, x, h, &w);
    struct eval_tokens *texts;
    enum err_code code = ERR_OK;

    if (h->n_texts == 0)
        return err_set(e, ERR_ARG, "the text for the model has fewer than two tokens: nothing can be scored");
    texts = calloc(h->n_texts, sizeof *texts);
    if (texts == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < h->n_texts; i++)
        texts[i] = (struct eval_tokens){ h->text[i].token, h->text[i].n };
    h->n_windows = eval_window_count(texts, h->n_texts, &w);
    if (cli_engram_heard_read(h, key, eval_scored_count(texts, h->n_texts, &w))) {
        cli_note("the model has read this text before");
    } else {
        code = run_model(o, x, h, texts, &w, e);
        if (code == ERR_OK)
            cli_engram_heard_write(h, key);
    }
    free(texts);
    return code;
}

enum err_code cli_engram_hear(struct engram_heard *h, const struct build_options *o, char *const *files,
                              const struct str *text, struct cli_opened *x, struct err *e)
{
    struct text_tokens ids = { 0 };
    struct pool *pool = NULL;
    enum err_code code;

    if (text != NULL)
        code =
            text_encode(x->text, *text, 0, &ids, e) || engram_heard_text(h, ids.v, ids.n, true, e) ? e->code : ERR_OK;
    else
        code = pool_open(&pool, o->model.n_threads > 0 ? o->model.n_threads : pool_cpus(), e) ||
                       cli_engram_read(o, files, x->text, pool, take_piece, h, e)
                   ? e->code
                   : ERR_OK;
    text_tokens_free(&ids);
    pool_close(pool);
    return code ? code : listen(o, x, h, e);
}

/* ---- what tables say of it ---- */

static enum err_code report_score(const struct build_options *o, const struct engram_heard *h,
                                  const struct engram_heard_score *s, struct err *e)
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

static enum err_code score_table(const struct build_options *o, const struct engram_heard *h,
                                 const struct engram_mix *mix, struct err *e)
{
    struct engram_heard_score s = { .window_gain = calloc((size_t)h->n_windows + 1, sizeof *s.window_gain),
                                    .window_n = calloc((size_t)h->n_windows + 1, sizeof *s.window_n) };
    enum err_code code = s.window_gain != NULL && s.window_n != NULL ? ERR_OK : err_nomem(e);

    if (code == ERR_OK) {
        engram_heard_weigh(h, mix, false, &s);
        code = report_score(o, h, &s, e);
    }
    free(s.window_gain);
    free(s.window_n);
    return code;
}

enum err_code cli_engram_score(const struct build_options *o, char *const *files, struct err *e)
{
    struct engram_heard h = { 0 };
    struct cli_opened x = { 0 };
    struct cli_engram table = { 0 };
    enum err_code code;

    code = cli_open(&x, &o->model, e) || cli_open_text(&x, true, e) || cli_open_model(&x, e) ||
                   cli_engram_open(&table, o->tables.v, o->tables.n, true, x.gguf, x.text, model_info(x.model)->n_vocab,
                                   e) ||
                   cli_engram_hear(&h, o, files, NULL, &x, e)
               ? e->code
               : score_table(o, &h, &table.mix, e);
    engram_heard_close(&h);
    cli_engram_close(&table);
    cli_opened_close(&x);
    return code;
}
