/* SPDX-License-Identifier: Apache-2.0 */
/* quality.c - perplexity of a text, divergence from a reference.            room: cmd */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/io.h"
#include "bench/bench.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/run.h"

/* Texts that are shorter than a window, of which nothing is scored. */
static int64_t short_texts(const struct bench_texts *t, const struct eval_window_opts *w, int64_t *n_tokens)
{
    struct eval_window_opts all = *w;
    int64_t n = 0;

    all.windows_max = 0;
    *n_tokens = 0;
    for (size_t i = 0; i < t->n; i++)
        if (eval_window_count(&t->v[i], 1, &all) == 0) {
            n++;
            *n_tokens += t->v[i].n;
        }
    return n;
}

/* Says of short texts in the record, and once to the user. */
static void tell_short(json_t *r, const struct bench_texts *t, const struct eval_window_opts *w)
{
    int64_t n_tokens, n = short_texts(t, w, &n_tokens);

    cli_bench_int(r, "n_texts", (int64_t)t->n);
    cli_bench_int(r, "n_short_texts", n);
    if (n > 0)
        cli_warn("%lld of %zu texts are shorter than a window of %lld tokens: nothing of their %lld tokens is scored",
                 (long long)n, t->n, (long long)w->ctx_tokens, (long long)n_tokens);
}

/* ---- perplexity ---- */

struct ppl_job {
    struct eval_ppl ppl;
    int32_t n_vocab;
};

static enum err_code add_ppl(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct ppl_job *j = ctx;
    double lp = eval_logprob(logits, j->n_vocab, token);

    if (!isfinite(lp))
        return err_set(e, ERR_DEVICE, "window %lld: a probability is not a number", (long long)window);
    eval_ppl_add(&j->ppl, window, lp);
    return ERR_OK;
}

static const char *convention(const struct eval_window_opts *w, char buf[64])
{
    if (w->stride_tokens == 0)
        snprintf(buf, 64, "ctx=%lld half", (long long)w->ctx_tokens);
    else
        snprintf(buf, 64, "ctx=%lld stride=%lld", (long long)w->ctx_tokens, (long long)w->stride_tokens);
    return buf;
}

static enum err_code report_ppl(struct bench *b, const struct ppl_job *j, const struct bench_texts *t,
                                const struct eval_window_opts *w, double ms, struct err *e)
{
    int64_t n_windows = eval_window_count(t->v, t->n, w);
    struct eval_mean tokens = eval_ppl_tokens(&j->ppl);
    struct eval_mean nll = eval_group_mean(j->ppl.win_sum, j->ppl.win_n, n_windows);
    int64_t fed = n_windows * w->ctx_tokens;
    char how[64], what[160], hash[24];
    json_t *r;

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)t->hash);
    snprintf(what, sizeof what, "%s text=%s windows=%lld", convention(w, how), hash, (long long)n_windows);
    r = cli_bench_record("ppl", what, "ppl", "lower");
    cli_bench_real(r, "ppl", tokens.mean);
    cli_bench_real(r, "ppl_se", tokens.se);
    cli_bench_real(r, "ppl_windows_se", tokens.mean * nll.se);
    cli_bench_real(r, "nll_nats", nll.mean);
    cli_bench_real(r, "noise", 0.002 * tokens.mean);
    cli_bench_int(r, "n_scored", j->ppl.n);
    cli_bench_int(r, "n_tokens", t->n_tokens);
    cli_bench_int(r, "n_windows", n_windows);
    cli_bench_int(r, "ctx_tokens", w->ctx_tokens);
    tell_short(r, t, w);
    cli_bench_int(r, "stride_tokens", w->stride_tokens);
    cli_bench_real(r, "tps", ms > 0 ? (double)fed * 1e3 / ms : 0);
    cli_bench_line(b, "%s: perplexity %.4f +- %.4f (by windows %.4f), %lld of %lld tokens scored, %.0f tokens/s",
                   b->label, tokens.mean, tokens.se, tokens.mean * nll.se, (long long)j->ppl.n, (long long)t->n_tokens,
                   ms > 0 ? (double)fed * 1e3 / ms : 0);
    return cli_bench_done(b, r, e);
}

static enum err_code measure_ppl(struct bench *b, struct run *run, const struct bench_texts *t,
                                 const struct eval_window_opts *w, struct err *e)
{
    const struct progress progress = cli_bench_progress("windows");
    const size_t n = (size_t)eval_window_count(t->v, t->n, w) + 1;
    struct ppl_job j = { .ppl = { .win_sum = calloc(n, sizeof *j.ppl.win_sum),
                                  .win_n = calloc(n, sizeof *j.ppl.win_n) },
                         .n_vocab = model_info(b->open.model)->n_vocab };
    const double from = clock_ms();
    enum err_code code = j.ppl.win_sum == NULL || j.ppl.win_n == NULL
                             ? err_nomem(e)
                             : eval_windows(run, t->v, t->n, w, add_ppl, &j, &progress, e);

    if (code == ERR_OK)
        code = report_ppl(b, &j, t, w, clock_ms() - from, e);
    free(j.ppl.win_sum);
    free(j.ppl.win_n);
    return code;
}

/* Of the texts that the operands name, with a run of the model. */
static enum err_code with_texts(struct bench *b,
                                enum err_code (*measure)(struct bench *b, struct run *run, const struct bench_texts *t,
                                                         const struct eval_window_opts *w, struct err *e),
                                struct err *e)
{
    struct eval_window_opts w;
    struct bench_texts t;
    struct run *run = NULL;
    enum err_code code;

    if (cli_bench_open(b, true, e) || cli_bench_texts(&t, b, e))
        return e->code;
    w = cli_bench_windows(b);
    code = cli_bench_run(&run, b, (struct run_opts){ .ctx_tokens = w.ctx_tokens, .rows_max = b->o->model.chunk }, e);
    if (code == ERR_OK)
        code = measure(b, run, &t, &w, e);
    run_close(run);
    cli_bench_texts_free(&t);
    return code;
}

enum err_code cli_bench_cmd_ppl(struct bench *b, struct err *e)
{
    return with_texts(b, measure_ppl, e);
}

/* ---- saved logits: the head, then n_scored rows of n_vocab packed numbers, little-endian ---- */

/* The checksum is that of the head before it and of the rows, each with the hash of what is before it as its seed. */

#define HEAD_BYTES 64
#define SUM_AT     56
static const char magic[8] = { 'C', 'H', 'I', 'M', 'L', 'O', 'G', '1' };

struct head {
    uint64_t n_vocab, ctx, stride, n_scored, hash, fingerprint, sum; /* sum 0: of an older version, without */
};

static void put_head(unsigned char out[HEAD_BYTES], const struct head *h)
{
    const uint64_t v[7] = { h->n_vocab, h->ctx, h->stride, h->n_scored, h->hash, h->fingerprint, h->sum };

    memcpy(out, magic, 8);
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 8; j++)
            out[8 + 8 * i + j] = (unsigned char)(v[i] >> (8 * j));
}

static void get_head(struct head *h, const unsigned char *in)
{
    uint64_t v[7] = { 0 };

    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 8; j++)
            v[i] |= (uint64_t)in[8 + 8 * i + j] << (8 * j);
    *h = (struct head){ v[0], v[1], v[2], v[3], v[4], v[5], v[6] };
}

static struct head head_of(const struct bench *b, const struct bench_texts *t, const struct eval_window_opts *w)
{
    return (struct head){
        .n_vocab = (uint64_t)model_info(b->open.model)->n_vocab,
        .ctx = (uint64_t)w->ctx_tokens,
        .stride = (uint64_t)w->stride_tokens,
        .n_scored = (uint64_t)eval_scored_count(t->v, t->n, w),
        .hash = t->hash,
        .fingerprint = b->fingerprint,
    };
}

struct save_job {
    struct io_out *out;
    uint16_t *row;
    int32_t n_vocab;
    uint64_t sum;
};

static enum err_code save_row(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct save_job *j = ctx;

    (void)window;
    (void)token;
    eval_pack_logits(j->row, logits, j->n_vocab);
    j->sum = io_hash(j->sum, j->row, (size_t)j->n_vocab * sizeof *j->row);
    return io_out_write(j->out, j->row, (size_t)j->n_vocab * sizeof *j->row, e);
}

static enum err_code save_reference(struct bench *b, struct run *run, const struct bench_texts *t,
                                    const struct eval_window_opts *w, struct err *e)
{
    struct progress progress = cli_bench_progress("windows");
    struct head h = head_of(b, t, w);
    struct save_job j = { .n_vocab = (int32_t)h.n_vocab };
    unsigned char bytes[HEAD_BYTES];
    enum err_code code;

    put_head(bytes, &h);
    j.sum = io_hash(0, bytes, SUM_AT);
    j.row = calloc((size_t)h.n_vocab, sizeof *j.row);
    if (j.row == NULL)
        return err_nomem(e);
    code = io_out_open(&j.out, b->o->save, e);
    if (code == ERR_OK)
        code = io_out_write(j.out, bytes, sizeof bytes, e);
    if (code == ERR_OK)
        code = eval_windows(run, t->v, t->n, w, save_row, &j, &progress, e);
    h.sum = j.sum;
    put_head(bytes, &h);
    if (code == ERR_OK)
        code = io_out_patch(j.out, SUM_AT, bytes + SUM_AT, sizeof bytes - SUM_AT, e);
    code = io_out_end(j.out, code, e);
    free(j.row);
    cli_progress_end();
    if (code == ERR_OK)
        cli_note("%s: %llu rows of %llu logits", b->o->save, (unsigned long long)h.n_scored,
                 (unsigned long long)h.n_vocab);
    return code;
}

/* ---- divergence ---- */

struct kl_job {
    struct bench *b, ref; /* ref: the second model, if there is one */
    struct run *run, *ref_run;
    struct io_map saved; /* else this */
    uint64_t sum;        /* of what was read of it so far */
    const struct bench_texts *t;
    struct eval_window_opts w;
    int32_t n_vocab;
    float *rows;       /* reference logits of a window, or one row */
    int64_t n_rows;    /* of the window so far */
    struct eval_kl *v; /* [scored] */
    int64_t *window;   /* [scored] */
    int64_t n;
};

static enum err_code keep_row(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct kl_job *j = ctx;

    (void)window;
    (void)token;
    (void)e;
    memcpy(j->rows + j->n_rows++ * j->n_vocab, logits, (size_t)j->n_vocab * sizeof *logits);
    return ERR_OK;
}

static enum err_code add_kl(void *ctx, int64_t window, int32_t token, const float *logits, struct err *e)
{
    struct kl_job *j = ctx;
    const float *ref = j->rows + j->n_rows * j->n_vocab;

    if (j->saved.data != NULL) {
        const uint16_t *row = (const uint16_t *)(const void *)(j->saved.data + HEAD_BYTES) + j->n * j->n_vocab;

        ref = j->rows;
        j->sum = io_hash(j->sum, row, (size_t)j->n_vocab * sizeof *row);
        eval_unpack_logits(j->rows, row, j->n_vocab);
    }
    j->v[j->n] = eval_kl(ref, logits, j->n_vocab, token);
    if (!isfinite((double)j->v[j->n].kl) || !isfinite((double)j->v[j->n].logprob))
        return err_set(e, ERR_DEVICE, "window %lld: a probability is not a number", (long long)window);
    j->window[j->n++] = window;
    j->n_rows++;
    return ERR_OK;
}

/* Window by window: the reference's rows, then the model's against them. */
static enum err_code walk_windows(struct kl_job *j, struct err *e)
{
    struct progress progress = cli_bench_progress("windows");
    int64_t n = eval_window_count(j->t->v, j->t->n, &j->w);

    if (j->saved.data != NULL)
        return eval_windows(j->run, j->t->v, j->t->n, &j->w, add_kl, j, &progress, e);
    if (n == 0)
        return err_set(e, ERR_ARG, "the text is shorter than a window");
    for (int64_t i = 0; i < n; i++) {
        struct eval_window_opts one = j->w;

        one.windows_first = i;
        one.windows_max = 1;
        if (!progress_tick(&progress, (uint64_t)i, (uint64_t)n))
            return err_set(e, ERR_CANCEL, "interrupted");
        j->n_rows = 0;
        if (eval_windows(j->ref_run, j->t->v, j->t->n, &one, keep_row, j, NULL, e))
            return e->code;
        j->n_rows = 0;
        if (eval_windows(j->run, j->t->v, j->t->n, &one, add_kl, j, NULL, e))
            return e->code;
    }
    return ERR_OK;
}

/* The document a window belongs to; with one document, windows stand for documents. */
static int64_t group_of(const struct kl_job *j, int64_t window)
{
    int64_t at = 0;

    if (j->t->n < 2)
        return window;
    for (size_t i = 0; i < j->t->n; i++) {
        struct eval_window_opts all = j->w;

        all.windows_max = 0;
        at += eval_window_count(&j->t->v[i], 1, &all);
        if (window < at)
            return (int64_t)i;
    }
    return (int64_t)j->t->n - 1;
}

/* Mean of one figure of each row and its standard error by groups. */
enum figure { FIGURE_KL, FIGURE_TOP, FIGURE_NLL, FIGURE_REF_NLL, FIGURE_DIFF };
static double figure_of(const struct eval_kl *v, enum figure f)
{
    switch (f) {
    case FIGURE_KL:
        return (double)v->kl;
    case FIGURE_TOP:
        return v->same_top;
    case FIGURE_NLL:
        return -(double)v->logprob;
    case FIGURE_REF_NLL:
        return -(double)v->ref_logprob;
    default:
        return (double)v->ref_logprob - (double)v->logprob;
    }
}

static struct eval_mean mean_of(const struct kl_job *j, enum figure f, double *sum, int64_t *n, int64_t groups)
{
    memset(sum, 0, (size_t)groups * sizeof *sum);
    memset(n, 0, (size_t)groups * sizeof *n);
    for (int64_t i = 0, last = -1, g = 0; i < j->n; i++) {
        if (j->window[i] != last)
            g = group_of(j, last = j->window[i]);
        sum[g] += figure_of(&j->v[i], f);
        n[g]++;
    }
    return eval_group_mean(sum, n, groups);
}

static enum err_code report_kl(struct kl_job *j, const struct head *ref, struct err *e)
{
    int64_t windows = eval_window_count(j->t->v, j->t->n, &j->w);
    int64_t groups = j->t->n < 2 ? windows : (int64_t)j->t->n;
    double *sum = calloc((size_t)groups, sizeof *sum), *sorted = calloc((size_t)j->n, sizeof *sorted);
    int64_t *n = calloc((size_t)groups, sizeof *n);
    struct eval_mean m[5];
    static const struct {
        const char *key;
        double q;
    } cuts[] = {
        { "kl_median_nats", 0.5 },
        { "kl_p90_nats", 0.9 },
        { "kl_p99_nats", 0.99 },
        { "kl_max_nats", 1 },
    };
    char how[64], what[160];
    json_t *r;

    if (sum == NULL || n == NULL || sorted == NULL) {
        free(sum);
        free(n);
        free(sorted);
        return err_nomem(e);
    }
    for (int f = 0; f < 5; f++)
        m[f] = mean_of(j, (enum figure)f, sum, n, groups);
    for (int64_t i = 0; i < j->n; i++)
        sorted[i] = (double)j->v[i].kl;
    eval_sort(sorted, j->n);
    snprintf(what, sizeof what, "%s text=%016llx reference=%016llx windows=%lld", convention(&j->w, how),
             (unsigned long long)j->t->hash, (unsigned long long)ref->fingerprint, (long long)windows);
    r = cli_bench_record("kl", what, "kl_mean_nats", "lower");
    cli_bench_real(r, "kl_mean_nats", m[FIGURE_KL].mean);
    cli_bench_real(r, "kl_mean_se_nats", m[FIGURE_KL].se);
    cli_bench_real(r, "noise", 2 * m[FIGURE_KL].se);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        cli_bench_real(r, cuts[i].key, eval_quantile(sorted, j->n, cuts[i].q));
    cli_bench_real(r, "same_top_fraction", m[FIGURE_TOP].mean);
    cli_bench_real(r, "same_top_se", m[FIGURE_TOP].se);
    cli_bench_real(r, "ppl", exp(m[FIGURE_NLL].mean));
    cli_bench_real(r, "reference_ppl", exp(m[FIGURE_REF_NLL].mean));
    cli_bench_real(r, "ppl_ratio", exp(m[FIGURE_DIFF].mean));
    cli_bench_real(r, "ppl_ratio_se", exp(m[FIGURE_DIFF].mean) * m[FIGURE_DIFF].se);
    cli_bench_int(r, "n_scored", j->n);
    cli_bench_int(r, "n_documents", (int64_t)j->t->n);
    tell_short(r, j->t, &j->w);
    cli_bench_text(r, "se_by", j->t->n < 2 ? "window" : "document");
    cli_bench_line(j->b, "KL mean %.6f +- %.6f, median %.6f, 90 %% %.6f, 99 %% %.6f, most %.6f nats", m[FIGURE_KL].mean,
                   m[FIGURE_KL].se, eval_quantile(sorted, j->n, 0.5), eval_quantile(sorted, j->n, 0.9),
                   eval_quantile(sorted, j->n, 0.99), sorted[j->n - 1]);
    cli_bench_line(j->b, "same top token %.3f +- %.3f %%; perplexity %.4f, reference %.4f, ratio %.5f +- %.5f",
                   100 * m[FIGURE_TOP].mean, 100 * m[FIGURE_TOP].se, exp(m[FIGURE_NLL].mean),
                   exp(m[FIGURE_REF_NLL].mean), exp(m[FIGURE_DIFF].mean), exp(m[FIGURE_DIFF].mean) * m[FIGURE_DIFF].se);
    free(sum);
    free(n);
    free(sorted);
    return cli_bench_done(j->b, r, e);
}

/* The reference: saved logits that fit the text and the windows, or a second model. */
static enum err_code open_reference(struct kl_job *j, struct head *ref, struct err *e)
{
    const char *path = j->b->o->reference;
    struct head want = head_of(j->b, j->t, &j->w);
    struct bench_opts o = *j->b->o;
    struct io_map map;

    if (io_map_open(&map, path, e))
        return e->code;
    if (map.size >= HEAD_BYTES && memcmp(map.data, magic, sizeof magic) == 0) {
        j->saved = map;
        get_head(ref, map.data);
        j->sum = io_hash(0, map.data, SUM_AT);
        if (ref->n_vocab != want.n_vocab || ref->ctx != want.ctx || ref->stride != want.stride ||
            ref->n_scored != want.n_scored || ref->hash != want.hash)
            return err_set(e, ERR_FORMAT, "%s: saved of another text, vocabulary or windows", path);
        if (map.size != HEAD_BYTES + ref->n_scored * ref->n_vocab * 2)
            return err_set(e, ERR_FORMAT, "%s: %s: has %zu bytes, its header says %zu", path,
                           map.size < HEAD_BYTES + ref->n_scored * ref->n_vocab * 2 ? "is cut" : "is too long",
                           map.size, (size_t)(HEAD_BYTES + ref->n_scored * ref->n_vocab * 2));
        return ERR_OK;
    }
    io_map_close(&map);
    o.model.file = path;
    o.model.loras.n = 0; /* are the tested model's */
    o.model.experts = 0; /* likewise */
    j->ref = (struct bench){ .o = &o };
    if (cli_bench_open(&j->ref, false, e))
        return e->code;
    j->ref.o = j->b->o;
    *ref = want;
    ref->fingerprint = j->ref.fingerprint;
    if (model_info(j->ref.open.model)->n_vocab != j->n_vocab)
        return err_set(e, ERR_FORMAT, "%s: another vocabulary", path);
    return cli_bench_run(&j->ref_run, &j->ref,
                         (struct run_opts){ .ctx_tokens = j->w.ctx_tokens, .rows_max = j->b->o->model.chunk }, e);
}

static enum err_code diverge(struct bench *b, struct run *run, const struct bench_texts *t,
                             const struct eval_window_opts *w, struct err *e)
{
    struct kl_job j = { .b = b, .run = run, .t = t, .w = *w, .n_vocab = model_info(b->open.model)->n_vocab };
    int64_t n = eval_scored_count(t->v, t->n, w);
    struct head ref = { 0 };
    enum err_code code = open_reference(&j, &ref, e);

    if (code == ERR_OK) {
        j.rows = calloc((size_t)(j.saved.data ? 1 : w->ctx_tokens) * (size_t)j.n_vocab, sizeof *j.rows);
        j.v = calloc((size_t)n + 1, sizeof *j.v);
        j.window = calloc((size_t)n + 1, sizeof *j.window);
        if (j.rows == NULL || j.v == NULL || j.window == NULL)
            code = err_nomem(e);
    }
    if (code == ERR_OK)
        code = walk_windows(&j, e);
    if (code == ERR_OK && j.saved.data != NULL && ref.sum != 0 && ref.sum != j.sum)
        code = err_set(e, ERR_FORMAT, "%s: damaged: its checksum is wrong", b->o->reference);
    if (code == ERR_OK)
        code = report_kl(&j, &ref, e);
    run_close(j.ref_run);
    cli_bench_close(&j.ref);
    io_map_close(&j.saved);
    free(j.rows);
    free(j.v);
    free(j.window);
    return code;
}

enum err_code cli_bench_cmd_kl(struct bench *b, struct err *e)
{
    if ((b->o->reference == NULL) == (b->o->save == NULL))
        return err_set(e, ERR_ARG, "kl: either --reference or --save");
    return with_texts(b, b->o->save ? save_reference : diverge, e);
}
