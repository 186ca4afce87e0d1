/* SPDX-License-Identifier: Apache-2.0 */
/* vocab.c - the tokens of a vocabulary as tries.                                room: grammar
 *
 * A token is plain of k characters when it is k whole UTF-8 characters, none of them a quote, a
 * backslash or a control character: what most tokens are, and what a string of JSON takes whatever
 * comes before. Beside the trie of all tokens there are tries without the plain tokens of up to 4,
 * 8, 16 and 64 characters.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/tables.h"
#include "text/text.h"

struct entry {
    struct str s;
    int32_t token;
    int32_t plain; /* characters; 0: not plain */
};

static const int32_t plain_most[GRAMMAR_TRIES] = { 0, 4, 8, 16, GRAMMAR_PLAIN_MAX };

static int by_bytes(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    size_t n = x->s.n < y->s.n ? x->s.n : y->s.n;
    int c = memcmp(x->s.p, y->s.p, n);

    if (c == 0)
        c = (x->s.n > y->s.n) - (x->s.n < y->s.n);
    return c != 0 ? c : (x->token > y->token) - (x->token < y->token);
}

static int32_t plain_chars(struct str s)
{
    int32_t k = 0;

    while (s.n > 0) {
        size_t n = str_utf8(s);

        if (n == 0 || (uint8_t)s.p[0] < 0x20 || s.p[0] == '"' || s.p[0] == '\\')
            return 0;
        s.p += n;
        s.n -= n;
        k++;
    }
    return k;
}

static bool same_bytes(const struct entry *a, const struct entry *b)
{
    return a->s.n == b->s.n && memcmp(a->s.p, b->s.p, a->s.n) == 0;
}

/* The trie of sorted entries without the plain ones of up to `without` characters. */
static enum err_code make_trie(struct grammar_trie *t, const struct entry *v, int32_t n, int32_t without, struct err *e)
{
    size_t room = 1;
    struct grammar_node *node;
    uint32_t *open = malloc((GRAMMAR_TOKEN_BYTES_MAX + 1) * sizeof *open); /* nodes from the root down */
    const struct entry *last = NULL;

    for (int32_t i = 0; i < n; i++)
        room += v[i].s.n;
    node = malloc(room * sizeof *node);
    if (node == NULL || open == NULL) {
        free(node);
        free(open);
        return err_nomem(e);
    }
    node[0] = (struct grammar_node){ .token = -1 };
    open[0] = 0;
    t->n = 1;
    for (int32_t i = 0; i < n; i++) {
        size_t common = 0;

        if (v[i].plain > 0 && v[i].plain <= without)
            continue;
        if (last != NULL && same_bytes(last, &v[i])) {
            node[t->n - 1].twice = true;
            continue;
        }
        while (last != NULL && common < last->s.n && common < v[i].s.n && last->s.p[common] == v[i].s.p[common])
            common++;
        for (size_t d = common + 1; last != NULL && d <= last->s.n; d++)
            node[open[d]].skip = t->n;
        for (size_t d = common; d < v[i].s.n; d++) {
            open[d + 1] = t->n;
            node[t->n++] =
                (struct grammar_node){ .token = -1, .depth = (uint16_t)(d + 1), .byte = (uint8_t)v[i].s.p[d] };
        }
        node[t->n - 1].token = v[i].token;
        last = &v[i];
    }
    for (size_t d = 0; d <= (last == NULL ? 0 : last->s.n); d++)
        node[open[d]].skip = t->n;
    free(open);
    t->node = node;
    return ERR_OK;
}

static enum err_code make_tries(struct grammar_vocab *v, struct entry *entry, int32_t n, struct entry *control,
                                int32_t n_control, struct err *e)
{
    enum err_code rc = ERR_OK;

    qsort(entry, (size_t)n, sizeof *entry, by_bytes);
    qsort(control, (size_t)n_control, sizeof *control, by_bytes);
    for (int32_t i = 0; i + 1 < n; i++)
        v->same[entry[i].token] = same_bytes(&entry[i], &entry[i + 1]) ? entry[i + 1].token : -1;
    for (int32_t i = 0; i + 1 < n_control; i++)
        v->same[control[i].token] = same_bytes(&control[i], &control[i + 1]) ? control[i + 1].token : -1;
    for (int t = 0; t < GRAMMAR_TRIES && rc == ERR_OK; t++) {
        rc = make_trie(&v->trie[t], entry, n, plain_most[t], e);
        if (rc == ERR_OK)
            for (uint32_t i = 1; i < v->trie[t].n; i = v->trie[t].node[i].skip)
                v->below[t][v->trie[t].node[i].byte] = v->trie[t].node[i].skip - i;
        for (int32_t i = 0; i < n && t > 0 && rc == ERR_OK; i++)
            if (entry[i].plain > 0 && entry[i].plain <= plain_most[t])
                v->plain[t][entry[i].token / 32] |= 1U << (entry[i].token % 32);
    }
    return rc != ERR_OK ? rc : make_trie(&v->control, control, n_control, 0, e);
}

static enum err_code take_memory(struct grammar_vocab *v, const struct str *piece, const uint8_t *kind, struct err *e)
{
    size_t n = (size_t)v->n_tokens, bytes = 0, at = 0;
    bool good;

    for (size_t i = 0; i < n; i++)
        bytes += piece[i].n;
    v->n_words = (v->n_tokens + 31) / 32;
    v->piece = calloc(n + 1, sizeof *v->piece);
    v->blob = malloc(bytes + 1);
    v->kind = calloc(n + 1, sizeof *v->kind);
    v->same = malloc((n + 1) * sizeof *v->same);
    v->ends = calloc((size_t)v->n_words + 1, sizeof *v->ends);
    good = v->piece != NULL && v->blob != NULL && v->kind != NULL && v->same != NULL && v->ends != NULL;
    for (int t = 1; t < GRAMMAR_TRIES; t++) {
        v->plain[t] = calloc((size_t)v->n_words + 1, sizeof *v->plain[t]);
        good = good && v->plain[t] != NULL;
    }
    if (!good)
        return err_nomem(e);
    for (size_t i = 0; i < n; i++) {
        if (piece[i].n > 0)
            memcpy(v->blob + at, piece[i].p, piece[i].n);
        v->piece[i] = (struct str){ v->blob + at, piece[i].n };
        v->kind[i] = kind[i];
        v->same[i] = -1;
        at += piece[i].n;
    }
    return ERR_OK;
}

/* Tokens of one kind that tries have. */
static int32_t list(const struct grammar_vocab *v, uint8_t kind, struct entry *entry)
{
    int32_t n = 0;

    for (int32_t i = 0; i < v->n_tokens; i++)
        if (v->kind[i] == kind && v->piece[i].n > 0 && v->piece[i].n <= GRAMMAR_TOKEN_BYTES_MAX)
            entry[n++] = (struct entry){ v->piece[i], i, plain_chars(v->piece[i]) };
    return n;
}

enum err_code grammar_vocab_make(struct grammar_vocab **out, const struct str *piece, const uint8_t *kind, int32_t n,
                                 struct err *e)
{
    struct grammar_vocab *v = calloc(1, sizeof *v);
    struct entry *entry = calloc(2 * ((size_t)n + 1), sizeof *entry), *control;
    enum err_code rc;

    if (v == NULL || entry == NULL) {
        free(v);
        free(entry);
        return err_nomem(e);
    }
    control = entry + n + 1;
    v->n_tokens = n;
    rc = take_memory(v, piece, kind, e);
    if (rc == ERR_OK) {
        v->n_trie = list(v, GRAMMAR_TOKEN, entry);
        v->n_control = list(v, GRAMMAR_TOKEN_CONTROL, control);
        for (int32_t i = 0; i < v->n_trie; i++)
            if (entry[i].s.n == 1)
                v->single[(uint8_t)entry[i].s.p[0]] = true;
        for (int32_t i = 0; i < n; i++)
            if (kind[i] == GRAMMAR_TOKEN_END) {
                v->ends[i / 32] |= 1U << (i % 32);
                v->n_ends++;
            }
        rc = make_tries(v, entry, v->n_trie, control, v->n_control, e);
    }
    free(entry);
    if (rc != ERR_OK) {
        grammar_vocab_close(v);
        return rc;
    }
    *out = v;
    return ERR_OK;
}

enum err_code grammar_vocab_open(struct grammar_vocab **out, const struct text *t, struct err *e)
{
    int32_t n = text_info(t)->n_tokens;
    struct str *piece = calloc((size_t)n + 1, sizeof *piece);
    uint8_t *kind = calloc((size_t)n + 1, sizeof *kind);
    enum err_code rc;

    if (piece == NULL || kind == NULL) {
        free(piece);
        free(kind);
        return err_nomem(e);
    }
    for (int32_t i = 0; i < n; i++) {
        piece[i] = text_piece(t, i);
        kind[i] = text_is_end(t, i) ? GRAMMAR_TOKEN_END : text_is_control(t, i) ? GRAMMAR_TOKEN_CONTROL : GRAMMAR_TOKEN;
    }
    rc = grammar_vocab_make(out, piece, kind, n, e);
    free(piece);
    free(kind);
    return rc;
}

void grammar_vocab_close(struct grammar_vocab *v)
{
    if (v == NULL)
        return;
    for (int t = 0; t < GRAMMAR_TRIES; t++) {
        free(v->trie[t].node);
        free(v->plain[t]);
    }
    free(v->control.node);
    free(v->ends);
    free(v->same);
    free(v->kind);
    free(v->piece);
    free(v->blob);
    free(v);
}
