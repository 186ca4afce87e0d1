/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - what a DFlash drafter guesses at every token of greedy answers, for bench/tree.py.
 *
 *   tree MODEL DRAFTER LIMIT TOKENS SET.jsonl|TEXT ...
 *
 * The first LIMIT items of task sets, with messages, are answered greedily, up to TOKENS tokens; of a text pieces of 64
 * tokens are gone on with. What a drafter guesses at a place depends on the tokens before it alone, so one pass over
 * the answer shows what every way to speculate would have met there. A line for each answer on standard output: its
 * set; for each of its tokens but the first a list of places, each [rank of the answer's token among the likeliest, p
 * of the likeliest, of the second ...]; rank 0 is the likeliest, -1: it is not among them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/json.h"
#include "chat/chat.h"
#include "gguf/gguf.h"
#include "model/drafter_internal.h"
#include "model/model.h"
#include "run/run.h"
#include "run/taps.h"
#include "text/text.h"

enum { CTX = 1024, TOP = 8, PIECE = 64 };

struct bench {
    struct gguf *g, *file;
    struct text *text;
    struct chat *chat;
    struct model *m;
    struct model_drafter *d;
    struct run *r;
    float *logits; /* of a block */
    int n_vocab, n_max;
    int64_t limit, tokens;
};

static void must(enum err_code code, const struct err *e)
{
    if (code == ERR_OK)
        return;
    fprintf(stderr, "tree: %s\n", e->msg);
    exit(3);
}

static void *need(void *p)
{
    if (p == NULL) {
        fputs("tree: out of memory\n", stderr);
        exit(1);
    }
    return p;
}

static void bench_open(struct bench *b, char **argv)
{
    const struct model_opts mo = { .device = "cpu", .n_threads = 2 };
    struct run_opts ro = { .ctx_tokens = CTX, .n_seq = 1, .rows_max = CTX };
    struct err e = { 0 };

    must(gguf_open(&b->g, argv[1], &e), &e);
    must(text_open(&b->text, b->g, &e), &e);
    must(chat_open(&b->chat, b->text, (struct str){ 0 }, &e), &e);
    must(model_open(&b->m, b->g, &mo, &e), &e);
    must(gguf_open(&b->file, argv[2], &e), &e);
    must(model_drafter_dflash(&b->d, b->m, b->file, &e), &e);
    b->n_max = model_drafter_info(b->d)->n_max;
    b->n_vocab = model_info(b->m)->n_vocab;
    ro.tap_layers = model_drafter_info(b->d)->tap;
    ro.n_taps = model_drafter_info(b->d)->n_tap;
    must(run_open(&b->r, b->m, &ro, &e), &e);
    must(model_drafter_reserve(b->d, 1, CTX, 64, &e), &e);
    b->logits = need(calloc((size_t)b->n_max * (size_t)b->n_vocab, sizeof *b->logits));
    b->limit = atoll(argv[3]);
    b->tokens = atoll(argv[4]);
}

/* The greedy answer joins v. */
static void answer(struct bench *b, struct text_tokens *v)
{
    const float *row = NULL;
    struct err e = { 0 };

    run_clear(b->r, 0);
    must(run_feed(b->r, 0, v->v, v->n - 1, 1, NULL, NULL, NULL, &e), &e);
    for (int64_t i = 0; i < b->tokens && v->n < CTX - 32; i++) {
        const struct run_row one = { .seq = 0, .token = v->v[v->n - 1], .logits = true };
        int best = 0;

        must(run_step(b->r, &one, 1, &e), &e);
        row = run_logits(b->r, 0);
        for (int t = 1; t < b->n_vocab; t++)
            best = row[t] > row[best] ? t : best;
        must(text_tokens_push(v, best, &e), &e);
        if (text_is_end(b->text, best))
            break;
    }
}

/* The likeliest tokens of a row of logits, and where `token` is among them. */
static json_t *place(const float *row, int n, int token)
{
    json_t *out = need(json_array());
    int top[TOP], rank = -1;
    double sum = 0;

    for (int i = 0; i < TOP; i++) {
        int best = -1;

        for (int t = 0; t < n; t++) {
            bool taken = false;

            for (int j = 0; j < i; j++)
                taken |= top[j] == t;
            if (!taken && (best < 0 || row[t] > row[best]))
                best = t;
        }
        top[i] = best;
        rank = best == token ? i : rank;
    }
    for (int t = 0; t < n; t++)
        sum += exp((double)row[t] - (double)row[top[0]]);
    json_array_append_new(out, json_integer(rank));
    for (int i = 0; i < TOP; i++)
        json_array_append_new(out, json_real(round(exp((double)row[top[i]] - (double)row[top[0]]) / sum * 1e5) / 1e5));
    return out;
}

static void watch(struct bench *b, const char *set, const struct text_tokens *v, int64_t n_prompt)
{
    json_t *line = json_pack("{s:s, s:[]}", "set", set, "at"), *all = json_object_get(line, "at");
    struct model_drafter_row row[CTX];
    int32_t guess[MODEL_GUESSES_MAX];
    float p[MODEL_GUESSES_MAX];
    struct err e = { 0 };

    run_clear(b->r, 0);
    must(run_feed(b->r, 0, v->v, v->n, 1, NULL, NULL, NULL, &e), &e);
    for (int64_t at = n_prompt; at < v->n - 1;
         at++) { /* v[at] is the newest token, v[at + 1] the first to be guessed */
        const struct model_drafter_ask ask = { 0, v->v[at], b->n_max, guess, p };
        const int64_t from = at == n_prompt ? 0 : at - 1;
        json_t *places = json_array();

        if (at == n_prompt)
            model_drafter_crop(b->d, 0, 0);
        for (int64_t i = from; i < at; i++)
            row[i - from] = (struct model_drafter_row){ 0, false, (int32_t)i, v->v[i + 1] };
        b->d->trace.logits = b->logits;
        must(model_drafter_run(b->d, run_taps(b->r), row, (int)(at - from), &ask, 1, &e), &e);
        b->d->trace.logits = NULL;
        for (int64_t i = 0; i < b->n_max && at + 1 + i < v->n; i++)
            json_array_append_new(places, place(b->logits + i * b->n_vocab, b->n_vocab, v->v[at + 1 + i]));
        json_array_append_new(all, places);
    }
    json_dumpf(line, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(line);
}

static void one(struct bench *b, const char *set, struct text_tokens *v)
{
    const int64_t n_prompt = v->n;

    answer(b, v);
    watch(b, set, v, n_prompt);
}

static void task(struct bench *b, const char *set, const char *line, struct text_tokens *v)
{
    struct err e = { 0 };
    json_t *item = NULL, *extra;
    bool thinking;

    must(json_parse(&item, str_of(line), set, &e), &e);
    extra = json_pack("{s:O}", "enable_thinking", json_object_get(item, "enable_thinking"));
    must(chat_render(b->chat,
                     &(struct chat_prompt){ .messages = json_object_get(item, "messages"),
                                            .tools = json_object_get(item, "tools"),
                                            .extra = extra,
                                            .generate = true },
                     v, &thinking, &e),
         &e);
    one(b, set, v);
    json_decref(extra);
    json_decref(item);
}

static void text(struct bench *b, const char *set, FILE *f, struct text_tokens *v)
{
    struct text_tokens all = { 0 };
    char buf[65536];
    struct err e = { 0 };
    size_t n = fread(buf, 1, sizeof buf - 1, f);

    must(text_encode(b->text, (struct str){ buf, n }, 0, &all, &e), &e);
    for (int64_t i = 0; i < b->limit && (i + 1) * PIECE <= all.n; i++) {
        v->n = 0;
        for (int64_t j = 0; j < PIECE; j++)
            must(text_tokens_push(v, all.v[(all.n - PIECE) * i / b->limit + j], &e), &e);
        one(b, set, v);
    }
    text_tokens_free(&all);
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    struct text_tokens v = { 0 };

    if (argc < 6) {
        fputs("usage: tree MODEL DRAFTER LIMIT TOKENS SET.jsonl|TEXT ...\n", stderr);
        return 2;
    }
    bench_open(&b, argv);
    for (char **path = argv + 5; *path != NULL; path++) {
        const char *slash = strrchr(*path, '/'), *set = slash != NULL ? slash + 1 : *path;
        FILE *f = fopen(*path, "r");
        char *line = NULL;
        size_t cap = 0;

        if (f == NULL) {
            perror(*path);
            return 3;
        }
        if (strstr(set, ".jsonl") == NULL)
            text(&b, set, f, &v);
        else
            for (int64_t i = 0; i < b.limit && getline(&line, &cap, f) > 0; i++) {
                v.n = 0;
                task(&b, set, line, &v);
            }
        free(line);
        fclose(f);
    }
    return 0;
}
