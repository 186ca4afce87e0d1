/* SPDX-License-Identifier: Apache-2.0 */
/* mtp.c - an adapter of a multi-token-prediction block learns from texts of its model. */
#include "tune/mtp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "grad/grad.h"
#include "train/dflash.h"
#include "train/half.h"
#include "tune/lora.h"

static const struct train_adam_opts adam = { 0.9f, 0.99f, 1e-8f, 0.0f, 1.0f };

int64_t tune_mtp_bytes(const struct grad *g, const struct tune_lora *lora, int64_t rows_max)
{
    const int64_t row = (int64_t)sizeof(struct grad_seq) + grad_n_embd(g) * (int64_t)sizeof(float) + 16;

    return 4 * lora->n_params * (int64_t)sizeof(float) + rows_max * row + grad_bytes(g, rows_max, lora->rank, true);
}

enum err_code tune_mtp_open(struct tune_mtp *t, struct grad *g, struct tune_lora *lora, const struct tune_mtp_opts *o,
                            struct err *e)
{
    const size_t n = (size_t)o->rows_max;

    *t = (struct tune_mtp){ .o = *o, .g = g, .lora = lora };
    if (train_adam_open(&t->adam, lora->n_params, e))
        return e->code;
    t->gradient = malloc((size_t)lora->n_params * sizeof *t->gradient);
    t->adapter = calloc((size_t)lora->n, sizeof *t->adapter);
    t->seq = calloc(n, sizeof *t->seq);
    t->hidden = malloc(n * (size_t)grad_n_embd(g) * sizeof *t->hidden);
    t->target = malloc(n * sizeof *t->target);
    t->right = malloc(n);
    t->first = malloc(n * sizeof *t->first);
    t->text = calloc((size_t)o->n_text, sizeof *t->text);
    if (t->gradient == NULL || t->adapter == NULL || t->seq == NULL || t->hidden == NULL || t->target == NULL ||
        t->right == NULL || t->first == NULL || t->text == NULL) {
        tune_mtp_close(t);
        return err_nomem(e);
    }
    return ERR_OK;
}

void tune_mtp_close(struct tune_mtp *t)
{
    train_adam_close(&t->adam);
    free(t->gradient);
    free(t->adapter);
    free(t->seq);
    free(t->hidden);
    free(t->target);
    free(t->right);
    free(t->first);
    free(t->text);
    *t = (struct tune_mtp){ 0 };
}

/* Rows of a text: for each token but the last two its own, with the token after it. */
static int64_t rows_of(const struct train_text_entry *text)
{
    return text->n > 2 ? text->n - 2 : 0;
}

/* Those of them whose guess is of a token that the model wrote after one of its own. */
static int64_t losses_of(const struct train_text_entry *text)
{
    const int64_t given = text->n_prompt > 0 ? text->n_prompt - 1 : 0;

    return rows_of(text) > given ? rows_of(text) - given : 0;
}

static void add_sequence(struct tune_mtp *t, const struct train_texts *texts, const struct train_text_entry *text,
                         int seq, int64_t first, float weight)
{
    const int32_t *token = texts->token + text->at;
    const uint16_t *from = texts->feature + text->at * texts->width;
    const int64_t n = rows_of(text), width = texts->width;
    float *to = t->hidden + first * width;

    for (int64_t i = 0; i < n * width; i++) {
        const uint32_t bits = (uint32_t)from[i] << 16;

        memcpy(&to[i], &bits, sizeof bits);
    }
    for (int64_t i = 0; i < n; i++)
        t->target[first + i] = i + 1 >= text->n_prompt ? token[i + 2] : -1;
    t->first[seq] = first;
    t->seq[seq] = (struct grad_seq){ token + 1, t->target + first, (int)n, weight, to, NULL };
}

/* text[from ..] that fit a pass; *next: the one after them. Returns how many have rows. */
static int take_texts(struct tune_mtp *t, const struct train_texts *texts, const struct train_text_entry *const *text,
                      int64_t n, int64_t from, int64_t *next, float weight)
{
    int64_t rows = 0;
    int some = 0;

    for (; from < n && rows + rows_of(text[from]) <= t->o.rows_max; from++) {
        if (losses_of(text[from]) == 0)
            continue;
        add_sequence(t, texts, text[from], some++, rows, weight);
        rows += rows_of(text[from]);
    }
    grad_hidden(t->g, t->hidden, rows);
    *next = from;
    return some;
}

/* -log p of the target and its gradient; notes whether it is the likeliest. */
static double judge_row(void *ctx, int seq, int row, float *logits, int32_t n)
{
    const struct tune_mtp *t = ctx;
    const int64_t at = t->first[seq] + row;
    const int32_t want = t->target[at];
    const float weight = t->seq[seq].weight;
    int32_t best = 0;
    double sum = 0, loss;

    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    t->right[at] = best == want;
    const float top = logits[best];

    loss = (double)top - (double)logits[want];
    for (int32_t i = 0; i < n; i++) {
        logits[i] = expf(logits[i] - top);
        sum += (double)logits[i];
    }
    for (int32_t i = 0; i < n; i++)
        logits[i] *= (float)((double)weight / sum);
    logits[want] -= weight;
    return (double)weight * (loss + log(sum));
}

static void count_right(const struct tune_mtp *t, int n_seq, struct train_loss *loss)
{
    for (int s = 0; s < n_seq; s++)
        for (int64_t r = t->first[s]; r < t->first[s] + t->seq[s].n; r++)
            if (t->target[r] >= 0) {
                loss->n++;
                loss->right += t->right[r];
            }
}

enum err_code tune_mtp_step(struct tune_mtp *t, struct train_texts *texts, double part, struct train_loss *loss,
                            struct err *e)
{
    const double rate = train_rate((double)t->o.rate, t->adam.step, t->o.n_warm, part);
    int64_t tokens = 0;

    for (int i = 0; i < t->o.n_text; i++) {
        if (train_texts_draw(texts, rng_unit(t->o.seed, 1000 + (uint64_t)t->adam.step, (uint64_t)i), &t->text[i], e))
            return e->code;
        tokens += losses_of(t->text[i]);
    }
    *loss = (struct train_loss){ .weight = tokens > 0 ? 1 : 0 };
    memset(t->gradient, 0, (size_t)t->lora->n_params * sizeof *t->gradient);
    for (int64_t i = 0, next; i < t->o.n_text; i = next) {
        const int n = take_texts(t, texts, t->text, t->o.n_text, i, &next, 1.0f / (float)(tokens > 0 ? tokens : 1));
        double sum;

        if (n == 0)
            continue;
        tune_lora_at(t->lora, t->lora->theta, t->gradient, 0, n, t->adapter);
        if (grad_backward(t->g,
                          &(struct grad_batch){ .seq = t->seq,
                                                .n_seq = n,
                                                .adapter = t->adapter,
                                                .n_adapter = t->lora->n,
                                                .loss = judge_row,
                                                .loss_ctx = t,
                                                .keep = true },
                          &sum, e))
            return e->code;
        loss->sum += sum;
        count_right(t, n, loss);
    }
    if (!isfinite(loss->sum) ||
        !isfinite(train_adam_step(&t->adam, grad_pool(t->g), &adam, (float)rate, t->lora->theta, t->gradient, NULL)))
        return err_set(e, ERR_FORMAT, "step %lld: the loss is not a number: a smaller --rate may help",
                       (long long)t->adam.step);
    return ERR_OK;
}

/* A step of the model from the newest token `at` on: its guess, if it is right, and one more token. */
static int64_t steps_of(const struct train_text_entry *text, const unsigned char *right)
{
    int64_t steps = 0;

    for (int64_t at = text->n_prompt; at < text->n - 1; steps++) /* row at - 1 guesses token at + 1 */
        at += at > 0 && at - 1 < rows_of(text) && right[at - 1] ? 2 : 1;
    return steps;
}

enum err_code tune_mtp_walk(struct tune_mtp *t, const struct tune_lora *lora, const struct train_texts *texts,
                            int64_t *steps, const struct progress *progress, struct err *e)
{
    struct grad_adapter *a = lora == NULL ? NULL : calloc((size_t)lora->n, sizeof *a);
    enum err_code code = lora != NULL && a == NULL ? err_nomem(e) : ERR_OK;

    if (a != NULL)
        tune_lora_at(lora, lora->theta, NULL, 0, 1, a);
    for (int64_t i = 0, next; i < texts->n && code == ERR_OK; i++) {
        const struct train_text_entry *one = &texts->v[i];
        const int n = take_texts(t, texts, &one, 1, 0, &next, 1.0f);
        double sum;

        memset(t->right, 0, (size_t)t->o.rows_max);
        if (n > 0)
            code = grad_forward(t->g,
                                &(struct grad_batch){ .seq = t->seq,
                                                      .n_seq = n,
                                                      .adapter = a,
                                                      .n_adapter = lora != NULL ? lora->n : 0,
                                                      .loss = judge_row,
                                                      .loss_ctx = t },
                                &sum, e);
        steps[i] = steps_of(one, t->right);
        if (code == ERR_OK && !progress_tick(progress, (uint64_t)i + 1, (uint64_t)texts->n))
            code = err_set(e, ERR_CANCEL, "interrupted");
    }
    free(a);
    return code;
}

static struct train_half half_of(const struct tune_mtp *t)
{
    return (struct train_half){ t->lora->n_params, t->lora->theta,         t->adam.m,
                                t->adam.v,         (uint32_t)t->adam.step, t->spent_s };
}

enum err_code tune_mtp_save(const struct tune_mtp *t, const char *path, struct str job, struct err *e)
{
    const struct train_half h = half_of(t);

    return train_half_write(&h, path, job, e);
}

enum err_code tune_mtp_load(struct tune_mtp *t, const char *path, struct str job, struct err *e)
{
    struct train_half h = half_of(t);

    if (train_half_read(&h, path, job, e))
        return e->code;
    t->adam.step = h.step;
    t->spent_s = h.spent_s;
    return ERR_OK;
}
