/* SPDX-License-Identifier: Apache-2.0 */
/* ngram.c - guesses from the sequence's own text: what followed the same tokens before.
 *
 * For every 3 and every 2 tokens in a row a table has the last place after them. A place that was
 * found stays in use as long as the text repeats itself, so a long quotation costs one
 * look-up; else the last place of the longest of the two is taken. Constant time for a token.
 * Entries are checked against the text when they are used: nothing has to be removed when a text
 * changes. */
#include <stdlib.h>
#include <string.h>

#include "draft/internal.h"
#include "run/run.h"

enum { LONG = 3, SHORT = 2, WAYS = 4, MATCH_MAX = 32 };

struct seq_index {
    int64_t indexed;   /* tokens whose n-grams are in the tables */
    int64_t at;        /* place after tokens that the text's end repeats: the guess; -1: none */
    int64_t read;      /* tokens of the text that `at` is right for */
    int32_t *table[2]; /* [buckets][WAYS] places, newest first: of 3 tokens, of 2; 0: none */
};

struct ngram {
    const struct draft_text *text; /* [n_seq] */
    int n_seq;
    uint64_t buckets;      /* a power of two */
    struct seq_index *seq; /* [n_seq] */
};

static enum err_code open_ngram(void **out, const struct draft_source *s, struct err *e)
{
    (void)s;
    *out = calloc(1, sizeof(struct ngram));
    return *out != NULL ? ERR_OK : err_nomem(e);
}

static void close_ngram(void *of)
{
    struct ngram *g = of;

    for (int i = 0; i < g->n_seq; i++)
        for (int t = 0; t < 2; t++)
            free(g->seq[i].table[t]);
    free(g->seq);
    free(g);
}

static enum err_code attach_texts(void *of, const struct draft_env *env, struct err *e)
{
    struct ngram *g = of;
    const int n_seq = run_n_seq(env->run);
    bool all;

    g->text = env->text;
    for (g->buckets = 64; g->buckets * WAYS / 2 < (uint64_t)run_ctx(env->run); g->buckets *= 2)
        ;
    g->seq = calloc((size_t)n_seq, sizeof *g->seq);
    all = g->seq != NULL;
    for (int i = 0; all && i < n_seq; i++) {
        g->n_seq = i + 1;
        g->seq[i].at = -1;
        for (int t = 0; t < 2; t++)
            all &= (g->seq[i].table[t] = calloc(g->buckets, WAYS * sizeof(int32_t))) != NULL;
    }
    return all ? ERR_OK : err_set(e, ERR_NOMEM, "out of memory: tables of n-grams");
}

/* The n tokens before place `at`. */
static int32_t *bucket(const struct ngram *g, const struct seq_index *m, const int32_t *token, int64_t at, int n)
{
    uint64_t h = 0;

    for (int i = 1; i <= n; i++)
        h = (h ^ (uint64_t)(uint32_t)token[at - i]) * 0x9e3779b97f4a7c15u;
    return m->table[n == SHORT] + (h >> 20 & (g->buckets - 1)) * WAYS;
}

static bool same_context(const int32_t *token, int64_t a, int64_t b, int n)
{
    return a >= n && b >= n && memcmp(token + a - n, token + b - n, (size_t)n * sizeof *token) == 0;
}

/* The last place but `at` itself that follows the same n tokens; -1: none. */
static int64_t find_context(const struct ngram *g, const struct seq_index *m, const int32_t *token, int64_t at, int n)
{
    const int32_t *b = bucket(g, m, token, at, n);
    int64_t best = -1;

    for (int i = 0; i < WAYS; i++)
        if (b[i] < at && b[i] > best && same_context(token, b[i], at, n))
            best = b[i];
    return best;
}

/* The place goes to the front of its bucket; one that follows the same tokens, or the last one,
 * makes room. */
static void insert_place(const struct ngram *g, struct seq_index *m, const int32_t *token, int64_t at, int n)
{
    int32_t *b = bucket(g, m, token, at, n);
    int i = 0;

    while (i < WAYS - 1 && b[i] != 0 && !(b[i] <= at && same_context(token, b[i], at, n)))
        i++;
    memmove(b + 1, b, (size_t)i * sizeof *b);
    b[0] = (int32_t)at;
}

/* Where the end of token[0 .. n) was before. Places from 1 on stand for what follows the tokens
 * before them. */
static void follow(const struct ngram *g, struct seq_index *m, const int32_t *token, int64_t n)
{
    /* the place that the whole text leads to is not indexed yet */
    for (int64_t i = m->indexed; i < n; i++) {
        if (i >= LONG)
            insert_place(g, m, token, i, LONG);
        if (i >= SHORT)
            insert_place(g, m, token, i, SHORT);
    }
    m->indexed = n;
    for (; m->at >= 0 && m->read < n; m->read++)
        m->at = token[m->at] == token[m->read] ? m->at + 1 : -1;
    m->read = n;
    if (m->at < 0 && n >= LONG)
        m->at = find_context(g, m, token, n, LONG);
    if (m->at < 0 && n >= SHORT)
        m->at = find_context(g, m, token, n, SHORT);
}

/* How sure a place is: by how many tokens before it are the end of the text. */
static float sureness(const int32_t *token, int64_t at, int64_t n)
{
    int match = 0;

    while (match < MATCH_MAX && match < at && token[at - 1 - match] == token[n - 1 - match])
        match++;
    return 1.0f - 1.0f / (1.0f + 0.5f * (float)match);
}

static void cut_text(void *of, int seq, int64_t n)
{
    struct seq_index *m = &((struct ngram *)of)->seq[seq];

    m->indexed = m->indexed < n ? m->indexed : n;
    m->at = -1;
}

static void fork_text(void *of, int dst, int src)
{
    struct ngram *g = of;
    struct seq_index *to = &g->seq[dst];
    const struct seq_index *from = &g->seq[src];

    for (int t = 0; t < 2; t++)
        memcpy(to->table[t], from->table[t], g->buckets * WAYS * sizeof(int32_t));
    to->indexed = from->indexed;
    to->at = -1;
}

static enum err_code guess_ngrams(void *of, struct draft_ask *ask, int n, bool *late, struct err *e)
{
    struct ngram *g = of;

    (void)late;
    (void)e;
    for (int i = 0; i < n; i++) {
        struct draft_ask *a = &ask[i];
        struct seq_index *m = &g->seq[a->seq];
        const int32_t *token = g->text[a->seq].token;
        const int64_t end = g->text[a->seq].n;
        int made = 0;

        follow(g, m, token, end);
        const float p = m->at >= 0 ? sureness(token, m->at, end) : 0;
        /* Where the text runs into its own end, it goes on with the guesses. */
        for (; m->at >= 0 && made < a->n; made++) {
            a->guess[made] = m->at + made < end ? token[m->at + made] : a->guess[m->at + made - end];
            a->p[made] = p;
        }
        a->n = made;
    }
    return ERR_OK;
}

const struct draft_type draft_type_ngram = {
    .name = "ngram",
    .free = true,
    .open = open_ngram,
    .close = close_ngram,
    .attach = attach_texts,
    .cut = cut_text,
    .fork = fork_text,
    .guess = guess_ngrams,
};
