/* SPDX-License-Identifier: Apache-2.0 */
/* windows.c - texts cut into windows, and what a row of logits says of a text's token. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "eval/eval.h"
#include "run/run.h"

/* One window of a text: tokens at .. at + n - 1 are fed; those from position `first` on are scored.
 */
struct window {
    int64_t at, n, first;
};

/* The i-th window of a text; false past the last. */
static bool window_at(struct window *w, const struct eval_tokens *t, const struct eval_window_opts *o, int64_t i)
{
    int64_t done = i == 0 ? 1 : o->ctx_tokens + (i - 1) * o->stride_tokens; /* scored by earlier windows */

    if (o->stride_tokens == 0) {
        *w = (struct window){ i * o->ctx_tokens, o->ctx_tokens, o->ctx_tokens / 2 + 1 };
        return w->at + w->n <= t->n;
    }
    w->at = i * o->stride_tokens;
    w->n = t->n - w->at < o->ctx_tokens ? t->n - w->at : o->ctx_tokens;
    w->first = done > w->at ? done - w->at : 1; /* side by side, nothing predicts a window's first */
    return w->first < w->n;
}

/* 0: not among those asked for; 1: is; -1: past them. */
static int window_wanted(const struct eval_window_opts *o, int64_t index)
{
    if (index < o->windows_first)
        return 0;
    return o->windows_max == 0 || index < o->windows_first + o->windows_max ? 1 : -1;
}

static void count_windows(const struct eval_tokens *texts, size_t n_texts, const struct eval_window_opts *o,
                          int64_t *windows, int64_t *scored)
{
    struct window w;
    int64_t index = 0;

    *windows = *scored = 0;
    for (size_t t = 0; t < n_texts; t++)
        for (int64_t i = 0; window_wanted(o, index) >= 0 && window_at(&w, &texts[t], o, i); i++, index++)
            if (window_wanted(o, index)) {
                ++*windows;
                *scored += w.n - w.first;
            }
}

int64_t eval_window_count(const struct eval_tokens *texts, size_t n_texts, const struct eval_window_opts *o)
{
    int64_t windows, scored;

    count_windows(texts, n_texts, o, &windows, &scored);
    return windows;
}

int64_t eval_scored_count(const struct eval_tokens *texts, size_t n_texts, const struct eval_window_opts *o)
{
    int64_t windows, scored;

    count_windows(texts, n_texts, o, &windows, &scored);
    return scored;
}

struct scorer {
    eval_sink *sink;
    void *ctx;
    int64_t window;
    const int32_t *tokens; /* the window's */
};

static enum err_code score_row(void *ctx, int64_t pos, const float *logits, struct err *e)
{
    struct scorer *s = ctx;

    return s->sink(s->ctx, s->window, s->tokens[pos + 1], logits, e);
}

/* Feeds one window; its last token is needed only as what the one before predicts. */
static enum err_code feed_window(struct run *r, int32_t *copy, const struct window *w, struct scorer *s, int32_t bos,
                                 struct err *e)
{
    memcpy(copy, s->tokens, (size_t)w->n * sizeof *copy);
    if (bos >= 0)
        copy[0] = bos;
    run_clear(r, 0);
    return run_feed(r, 0, copy, w->n - 1, w->n - w->first, score_row, s, NULL, e);
}

enum err_code eval_windows(struct run *r, const struct eval_tokens *texts, size_t n_texts,
                           const struct eval_window_opts *o, eval_sink *sink, void *ctx,
                           const struct progress *progress, struct err *e)
{
    int64_t total, done = 0, index = 0;
    int32_t *copy;
    enum err_code code = ERR_OK;

    if (o->ctx_tokens < 4)
        return err_set(e, ERR_ARG, "--ctx %lld: a window has at least 4 tokens", (long long)o->ctx_tokens);
    if (o->stride_tokens < 0 || o->stride_tokens > o->ctx_tokens)
        return err_set(e, ERR_ARG, "--stride %lld: must be from 1 to the %lld tokens of a window",
                       (long long)o->stride_tokens, (long long)o->ctx_tokens);
    total = eval_window_count(texts, n_texts, o);
    if (total == 0)
        return err_set(e, ERR_ARG, "the text is shorter than a window of %lld tokens", (long long)o->ctx_tokens);
    copy = calloc((size_t)o->ctx_tokens, sizeof *copy);
    if (copy == NULL)
        return err_nomem(e);
    for (size_t t = 0; t < n_texts && code == ERR_OK; t++) {
        struct window w;

        for (int64_t i = 0; code == ERR_OK && done < total && window_at(&w, &texts[t], o, i); i++, index++) {
            struct scorer s = { sink, ctx, index, texts[t].v + w.at };

            if (!window_wanted(o, index))
                continue;
            if (!progress_tick(progress, (uint64_t)done++, (uint64_t)total))
                code = err_set(e, ERR_CANCEL, "interrupted");
            else
                code = feed_window(r, copy, &w, &s, o->bos, e);
        }
    }
    free(copy);
    return code;
}

/* Largest logit, and the sum of exp(logit - largest). */
static double partition(const float *logits, int32_t n, float *largest)
{
    float max = logits[0];
    double sum = 0;

    for (int32_t i = 1; i < n; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - max);
    *largest = max;
    return sum;
}

double eval_logprob(const float *logits, int32_t n, int32_t token)
{
    float max;
    double sum = partition(logits, n, &max);

    return (double)(logits[token] - max) - log(sum);
}

void eval_ppl_add(struct eval_ppl *p, int64_t window, double logprob)
{
    p->n++;
    p->sum -= logprob;
    p->sum2 += logprob * logprob;
    if (p->win_sum != NULL) {
        p->win_sum[window] -= logprob;
        p->win_n[window]++;
    }
}

struct eval_mean eval_ppl_tokens(const struct eval_ppl *p)
{
    double n = (double)p->n, nll = p->n > 0 ? p->sum / n : 0, var;

    if (p->n < 2)
        return (struct eval_mean){ exp(nll), 0 };
    var = p->sum2 / n - nll * nll;
    return (struct eval_mean){ exp(nll), var > 0 ? sqrt(var / (n - 1)) * exp(nll) : 0 };
}

static int32_t argmax(const float *v, int32_t n)
{
    int32_t best = 0;

    for (int32_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

struct eval_kl eval_kl(const float *ref, const float *logits, int32_t n, int32_t token)
{
    float max_p, max_q;
    double sum_p = partition(ref, n, &max_p), sum_q = partition(logits, n, &max_q);
    double ln_p = log(sum_p), ln_q = log(sum_q), kl = 0;

    for (int32_t i = 0; i < n; i++) {
        double p = (double)(ref[i] - max_p) - ln_p, q = (double)(logits[i] - max_q) - ln_q;

        if (p > -40) /* below, exp(p) times any difference of logits is lost in rounding */
            kl += (double)expf((float)p) * (p - q);
    }
    return (struct eval_kl){
        .kl = (float)(kl > 0 ? kl : 0),
        .logprob = (float)((double)(logits[token] - max_q) - ln_q),
        .ref_logprob = (float)((double)(ref[token] - max_p) - ln_p),
        .same_top = argmax(ref, n) == argmax(logits, n),
    };
}

#define PACK_STEPS 2048.0f /* in a unit of logit: 65535 of them reach 32 */

void eval_pack_logits(uint16_t *out, const float *logits, int32_t n)
{
    float max = logits[argmax(logits, n)];

    for (int32_t i = 0; i < n; i++) {
        float d = (max - logits[i]) * PACK_STEPS + 0.5f;

        out[i] = d < 65535.0f ? (uint16_t)d : 65535;
    }
}

void eval_unpack_logits(float *out, const uint16_t *packed, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        out[i] = -(float)packed[i] / PACK_STEPS;
}
