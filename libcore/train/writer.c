/* SPDX-License-Identifier: Apache-2.0 */
/* writer.c - the model writes: texts to train on, with what its layers gave for each token.
 *
 * The rows are taken where a drafter takes them: the recorder is a drafter that never guesses. */
#include "train/writer.h"

#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "base/memory.h"
#include "gen/gen.h"
#include "quant/quant.h"
#include "run/run.h"
#include "run/taps.h"
#include "text/text.h"

/* What a sequence holds. */
struct record {
    int32_t *token;    /* [ctx] */
    uint16_t *feature; /* [ctx][width] */
    int64_t n;
};

struct answer {
    struct train_ask ask; /* its prompt lies in token */
    int64_t id, n;
    size_t cap;
    int32_t *token; /* prompt and answer */
    bool busy;
};

struct train_writer {
    struct gen *gen;
    struct run *run;
    const struct text *text;
    struct record *record; /* [n_seq] */
    struct answer *answer; /* [n_seq] */
    float *rows;           /* [n_tap][rows_max][n_embd] of the last step; one copy for all sequences */
    bool copied;           /* they are there */
    int n_seq, n_tap, n_embd;
    int64_t ctx, n_predict, n_written;
};

/* ---- the recorder ---- */

static int64_t common_tokens(const struct record *r, const int32_t *token, int64_t n)
{
    int64_t i = 0;

    n = n < r->n ? n : r->n;
    while (i < n && r->token[i] == token[i])
        i++;
    return i;
}

static int64_t width_of(const struct train_writer *w)
{
    return (int64_t)w->n_tap * w->n_embd;
}

/* The sequence holds n tokens, its own or another's, whose rows are known. */
static void begin_record(void *of, int seq, const int32_t *token, int64_t n)
{
    struct train_writer *w = of;
    struct record *to = &w->record[seq];
    const struct record *from = to;
    int64_t same = common_tokens(to, token, n);

    for (int s = 0; s < w->n_seq && same < n; s++)
        if (common_tokens(&w->record[s], token, n) > same) {
            from = &w->record[s];
            same = common_tokens(from, token, n);
        }
    if (from != to) {
        memcpy(to->token, from->token, (size_t)same * sizeof *token);
        memcpy(to->feature, from->feature, (size_t)(same * width_of(w)) * sizeof *to->feature);
    }
    to->n = same;
}

static enum err_code guess_nothing(void *of, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    (void)of;
    (void)cost;
    (void)e;
    for (int i = 0; i < n; i++)
        g[i].n = 0;
    return ERR_OK;
}

/* Where a tap's rows of the last step begin. */
static float *rows_of(const struct train_writer *w, int tap)
{
    return w->rows + (int64_t)tap * run_rows_max(w->run) * w->n_embd;
}

static void settle_record(void *of, int seq, const int32_t *token, int n, int n_guessed, int n_kept)
{
    struct train_writer *w = of;
    struct record *r = &w->record[seq];
    const int first = run_first_row(w->run, seq);

    (void)n_guessed;
    (void)n_kept;
    for (int t = 0; !w->copied && t < w->n_tap; t++)
        run_tap_rows(w->run, t, 0, run_tap_n(w->run), rows_of(w, t));
    w->copied = true;
    for (int i = 0; i < n && r->n < w->ctx; i++) {
        for (int t = 0; t < w->n_tap; t++)
            quant_types[QUANT_bf16]->encode(r->feature + r->n * width_of(w) + (int64_t)t * w->n_embd,
                                            rows_of(w, t) + (int64_t)(first + i) * w->n_embd, w->n_embd, NULL);
        r->token[r->n++] = token[i];
    }
}

static const struct gen_drafter recorder = { begin_record, guess_nothing, settle_record };

/* ---- opening ---- */

int64_t train_writer_bytes(const struct run *run, int64_t width)
{
    return run_n_seq(run) * train_texts_bytes(run_ctx(run), width) + run_rows_max(run) * width * (int64_t)sizeof(float);
}

void train_writer_close(struct train_writer *w)
{
    if (w == NULL)
        return;
    gen_close(w->gen);
    for (int i = 0; i < w->n_seq; i++) {
        if (w->record != NULL) {
            free(w->record[i].token);
            free(w->record[i].feature);
        }
        if (w->answer != NULL)
            free(w->answer[i].token);
    }
    free(w->record);
    free(w->answer);
    free(w->rows);
    free(w);
}

static bool alloc_all(struct train_writer *w)
{
    bool all = true;

    w->record = calloc((size_t)w->n_seq, sizeof *w->record);
    w->answer = calloc((size_t)w->n_seq, sizeof *w->answer);
    w->rows = calloc((size_t)run_rows_max(w->run) * (size_t)width_of(w), sizeof *w->rows);
    for (int i = 0; w->record != NULL && i < w->n_seq; i++) {
        w->record[i].token = malloc((size_t)w->ctx * sizeof *w->record[i].token);
        w->record[i].feature = malloc((size_t)(w->ctx * width_of(w)) * sizeof *w->record[i].feature);
        all &= w->record[i].token != NULL && w->record[i].feature != NULL;
    }
    return all && w->record != NULL && w->answer != NULL && w->rows != NULL;
}

enum err_code train_writer_open(struct train_writer **out, struct run *run, const struct text *text,
                                const struct run_adapter *adapters, int n_adapters, int n_tap, int64_t n_predict,
                                struct err *e)
{
    struct train_writer *w = calloc(1, sizeof *w);
    const struct gen_opts o = {
        .run = run, .text = text, .drafter = &recorder, .drafter_of = w, .adapters = adapters, .n_adapters = n_adapters
    };

    if (w == NULL)
        return err_nomem(e);
    w->run = run;
    w->text = text;
    w->n_seq = run_n_seq(run);
    w->n_tap = n_tap;
    w->n_embd = run_n_embd(run);
    w->ctx = run_ctx(run);
    w->n_predict = n_predict;
    if (!alloc_all(w))
        err_set(e, ERR_NOMEM, "out of memory: rows of %d texts", w->n_seq);
    else if (gen_open(&w->gen, &o, e) == ERR_OK) {
        *out = w;
        return ERR_OK;
    }
    train_writer_close(w);
    return e->code;
}

int64_t train_writer_tokens(const struct train_writer *w)
{
    return w->n_written;
}

/* ---- writing ---- */

static enum err_code submit_ask(struct train_writer *w, struct answer *a, const struct train_ask *ask, struct err *e)
{
    const int64_t most = ask->n_prompt + w->n_predict, cap = most < w->ctx ? most : w->ctx;
    const struct ask_model m = { .text = w->text };
    struct ask q = ask_defaults();
    struct ask_request *r;

    if (memory_room(&a->token, &a->cap, (size_t)cap + 1, sizeof *a->token, e))
        return e->code;
    a->ask = *ask;
    memcpy(a->token, ask->prompt, (size_t)ask->n_prompt * sizeof *a->token);
    a->n = ask->n_prompt;
    q.token = a->token;
    q.n_token = ask->n_prompt;
    q.tokens_max = cap - ask->n_prompt;
    q.ignore_eos = true; /* the end token is part of the text */
    q.sample.temp = ask->temp;
    q.sample.seed = ask->seed;
    q.sample.stream = ask->stream;
    if (ask_open(&r, &q, &m, NULL, e))
        return e->code;
    r->q.user = a;
    a->busy = true;
    const enum err_code code = gen_submit(w->gen, &r->q, &a->id, e);

    ask_close(r);
    return code;
}

/* The text is whole: before its sequence is given to another one. */
static enum err_code keep_text(struct train_writer *w, struct answer *a, int seq, struct train_texts *to, struct err *e)
{
    const struct record *r = &w->record[seq];
    const struct train_text_entry text = { 0, a->ask.n_prompt, a->n, a->ask.of, a->ask.source };
    const int64_t n_written = a->n - a->ask.n_prompt;

    a->busy = false;
    w->n_written += n_written;
    if (n_written < 2 || common_tokens(r, a->token, a->n - 1) < a->n - 1)
        return ERR_OK;
    return train_texts_add(to, text, a->token, r->feature, e);
}

static enum err_code hear_event(struct train_writer *w, const struct gen_event *ev, struct train_texts *to,
                                struct err *e)
{
    struct answer *a = ev->user;

    if (!a->busy || a->id != ev->id)
        return ERR_OK; /* the end of one that was kept */
    if (ev->kind == GEN_TOKEN) {
        a->token[a->n++] = ev->pick.token;
        if (!text_is_end(w->text, ev->pick.token))
            return ERR_OK;
        gen_cancel(w->gen, a->id);
        return keep_text(w, a, ev->seq, to, e);
    }
    if (ev->kind != GEN_END)
        return ERR_OK;
    if (ev->end == GEN_FAILED) {
        *e = ev->err;
        return e->code;
    }
    return keep_text(w, a, ev->seq, to, e);
}

static bool any_busy(const struct train_writer *w)
{
    for (int i = 0; i < w->n_seq; i++)
        if (w->answer[i].busy)
            return true;
    return false;
}

enum err_code train_writer_run(struct train_writer *w, struct train_texts *to, train_next *next,
                               bool (*go_on)(void *ctx), void *ctx, struct err *e)
{
    struct gen_event ev;
    struct train_ask ask;
    bool more = true;

    while (go_on(ctx)) {
        for (int i = 0; more && i < w->n_seq; i++) {
            if (w->answer[i].busy)
                continue;
            more = next(ctx, &ask);
            if (more && submit_ask(w, &w->answer[i], &ask, e))
                return e->code;
        }
        if (!any_busy(w))
            return ERR_OK;
        w->copied = false;
        if (gen_step(w->gen, e))
            return e->code;
        while (gen_next(w->gen, &ev))
            if (hear_event(w, &ev, to, e))
                return e->code;
    }
    return ERR_OK;
}

void train_writer_drop(struct train_writer *w)
{
    for (int i = 0; i < w->n_seq; i++) {
        if (w->answer[i].busy)
            gen_cancel(w->gen, w->answer[i].id);
        w->answer[i].busy = false;
    }
}
