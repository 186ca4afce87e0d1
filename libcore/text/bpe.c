/* SPDX-License-Identifier: Apache-2.0 */
/* bpe.c - byte-level byte pair encoding.                                        room: text
 *
 * Sennrich, Haddow, Birch: "Neural machine translation of rare words with subword units" (ACL
 * 2016), over bytes as in GPT-2. Of all neighbours that a merge joins, the one with the lowest rank
 * is joined first, the leftmost of equal ones, until none is left. Short words are scanned again
 * and again; long ones keep their candidates in a heap: O(n log n) whatever the text.
 */
#include <stdlib.h>
#include <string.h>
#include "gguf/gguf.h"
#include "text/vocab.h"

#define SHORT_WORD 48   /* symbols that are joined without a heap */
#define PROBES_MAX 4096 /* a table that needs more was built to be slow */

static size_t merge_home(const struct text *t, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;

    return (size_t)((key ^ key >> 29) * 0x9E3779B97F4A7C15U >> (64 - t->merge_bits));
}

/* INT32_MAX when nothing joins the two. */
static int32_t merge_rank(const struct text *t, int32_t left, int32_t right)
{
    size_t mask = ((size_t)1 << t->merge_bits) - 1;

    for (size_t i = merge_home(t, left, right);; i = (i + 1) & mask) {
        const struct text_merge *m = &t->merges[i];
        if (m->left == left && m->right == right)
            return m->rank;
        if (m->rank < 0)
            return INT32_MAX;
    }
}

/* Of merges given twice the first counts. */
static enum err_code merge_add(struct text *t, int32_t left, int32_t right, int32_t rank, struct err *e)
{
    size_t mask = ((size_t)1 << t->merge_bits) - 1, i = merge_home(t, left, right);

    for (int probes = 0; t->merges[i].rank >= 0; i = (i + 1) & mask) {
        if (t->merges[i].left == left && t->merges[i].right == right)
            return ERR_OK;
        if (++probes > PROBES_MAX)
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges: too many collisions");
    }
    t->merges[i] = (struct text_merge){ left, right, rank };
    return ERR_OK;
}

/* The token that a merge makes. Files list merges in the order of their tokens, so the one after
 * the last is tried first. */
static int32_t find_joined(const struct text *t, struct str spell, int32_t last)
{
    int32_t next = last + 1;

    return next < t->info.n_tokens && str_eq(t->tok[next].spell, spell) ? next : text_spell_find(t, spell);
}

/* "left right": the space is the first one that is not the first byte. */
static enum err_code load_merge(struct text *t, struct str line, int32_t rank, struct err *e)
{
    const char *gap = line.n > 2 ? memchr(line.p + 1, ' ', line.n - 2) : NULL;

    if (gap == NULL)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges[%d]: \"%.*s\" is not a pair", rank, STR_ARG(line));
    size_t cut = (size_t)(gap - line.p);
    char buf[1024], *joined = line.n <= sizeof buf ? buf : malloc(line.n);
    if (joined == NULL)
        return err_nomem(e);
    memcpy(joined, line.p, cut);
    memcpy(joined + cut, gap + 1, line.n - cut - 1);
    int32_t left = text_spell_find(t, (struct str){ line.p, cut });
    int32_t right = text_spell_find(t, (struct str){ gap + 1, line.n - cut - 1 });
    int32_t both = find_joined(t, (struct str){ joined, line.n - 1 }, rank > 0 ? t->merged[rank - 1] : -1);
    if (joined != buf)
        free(joined);
    if (left < 0 || right < 0 || both < 0)
        return err_set(e, ERR_FORMAT,
                       "tokenizer.ggml.merges[%d]: \"%.*s\" names a token that is not in "
                       "the vocabulary",
                       rank, STR_ARG(line));
    t->merged[rank] = both;
    return merge_add(t, left, right, rank, e);
}

static enum err_code load_merges(struct text *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.merges");
    struct gguf_strs it = gguf_strs(kv);
    struct str line;
    enum err_code rc = ERR_OK;

    if (kv == NULL || kv->kind != GGUF_ARR || (kv->elem_kind != GGUF_STR && kv->n > 0))
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges: %s", kv == NULL ? "missing" : "not an array of strings");
    if (kv->n > INT32_MAX / 4)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.merges: too many");
    t->merge_bits = 4;
    while (((uint64_t)1 << t->merge_bits) < 2 * kv->n)
        t->merge_bits++;
    t->merges = arena_array(&t->mem, (size_t)1 << t->merge_bits, sizeof *t->merges);
    t->merged = arena_array(&t->mem, (size_t)kv->n, sizeof *t->merged);
    if (t->merges == NULL || t->merged == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < (size_t)1 << t->merge_bits; i++)
        t->merges[i] = (struct text_merge){ -1, -1, -1 };
    for (int32_t rank = 0; rc == ERR_OK && gguf_strs_next(&it, &line); rank++)
        rc = load_merge(t, line, rank, e);
    return rc;
}

enum err_code text_load_bpe(struct text *t, const struct gguf *g, struct err *e)
{
    struct str pre = STR("default");
    struct text_pretok flags;

    gguf_str(g, "tokenizer.ggml.pre", &pre);
    enum err_code rc = text_split_open(&t->split, &flags, pre, e);
    if (rc != ERR_OK)
        return rc;
    t->whole_words = flags.whole_words;
    t->info.add_bos = flags.add_bos;
    for (unsigned b = 0; b < 256; b++) {
        char spell[2];
        size_t n = text_byte_spell(spell, (unsigned char)b);
        t->byte_id[b] = text_spell_find(t, (struct str){ spell, n });
    }
    return load_merges(t, g, e);
}

/* Up to SHORT_WORD symbols: the best neighbour is looked for in all of them. */
static int merge_short(const struct text *t, int32_t *id, int n)
{
    int32_t rank[SHORT_WORD]; /* of id[i] with id[i + 1] */

    for (int i = 0; i < n; i++)
        rank[i] = i + 1 < n ? merge_rank(t, id[i], id[i + 1]) : INT32_MAX;
    while (n > 1) {
        int best = 0;
        for (int i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == INT32_MAX)
            break;
        id[best] = t->merged[rank[best]];
        n--;
        for (int i = best + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
        }
        if (best > 0)
            rank[best - 1] = merge_rank(t, id[best - 1], id[best]);
        rank[best] = best + 1 < n ? merge_rank(t, id[best], id[best + 1]) : INT32_MAX;
    }
    return n;
}

/* Symbols of a long word: a list, and a heap of (rank, position) in one number. An entry is stale
 * when the symbol there no longer makes that rank with its neighbour. */
struct long_word {
    const struct text *t;
    int32_t *id, *rank, *prev, *next; /* prev, next: -1 at the ends */
    uint64_t *heap;
    size_t n_heap;
};

static void heap_push(struct long_word *w, int32_t rank, int32_t at)
{
    uint64_t key = (uint64_t)(uint32_t)rank << 32 | (uint32_t)at;
    size_t i = w->n_heap++;

    for (; i > 0 && w->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = key;
}

static uint64_t heap_pop(struct long_word *w)
{
    uint64_t top = w->heap[0], last = w->heap[--w->n_heap];
    size_t i = 0, kid;

    while ((kid = 2 * i + 1) < w->n_heap) {
        if (kid + 1 < w->n_heap && w->heap[kid + 1] < w->heap[kid])
            kid++;
        if (w->heap[kid] >= last)
            break;
        w->heap[i] = w->heap[kid];
        i = kid;
    }
    w->heap[i] = last;
    return top;
}

/* Notes what joins the symbol at `at` with its neighbour. */
static void consider_join(struct long_word *w, int32_t at)
{
    w->rank[at] = INT32_MAX;
    if (w->next[at] < 0)
        return;
    w->rank[at] = merge_rank(w->t, w->id[at], w->id[w->next[at]]);
    if (w->rank[at] != INT32_MAX)
        heap_push(w, w->rank[at], at);
}

/* n symbols in id, joined in place; how many remain, or -1 when memory is out. */
static int64_t merge_long(struct text_enc *x, int32_t *id, int32_t n)
{
    size_t bytes = (size_t)n * (3 * sizeof(int32_t) + 2 * sizeof(uint64_t));
    uint64_t *mem = malloc(bytes);
    struct long_word w = { .t = x->t, .id = id, .heap = mem };

    if (mem == NULL)
        return -1;
    w.rank = (int32_t *)(mem + 2 * (size_t)n); /* a merge takes one entry and adds at most two */
    w.prev = w.rank + n;
    w.next = w.prev + n;
    for (int32_t i = 0; i < n; i++) {
        w.prev[i] = i - 1;
        w.next[i] = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n; i++)
        consider_join(&w, i);
    while (w.n_heap > 0) {
        uint64_t top = heap_pop(&w);
        int32_t rank = (int32_t)(top >> 32), at = (int32_t)(top & UINT32_MAX), gone = w.next[at];
        if (w.rank[at] != rank)
            continue;
        id[at] = x->t->merged[rank];
        w.next[at] = w.next[gone];
        w.rank[gone] = INT32_MAX;
        if (w.next[at] >= 0)
            w.prev[w.next[at]] = at;
        consider_join(&w, at);
        if (w.prev[at] >= 0)
            consider_join(&w, w.prev[at]);
    }
    int64_t k = 0;
    for (int32_t i = 0; i >= 0; i = w.next[i])
        id[k++] = id[i];
    free(mem);
    return k;
}

static enum err_code merge_word(struct text_enc *x, struct str w)
{
    int32_t few[SHORT_WORD], *id = few;
    int64_t n = 0;

    if (w.n > INT32_MAX / 2)
        return err_set(x->e, ERR_LIMIT, "a word of more than 1 GiB");
    if (w.n > SHORT_WORD)
        id = text_scratch(x, w.n * sizeof *id);
    if (id == NULL)
        return err_nomem(x->e);
    for (size_t i = 0; i < w.n; i++) {
        id[n] = x->t->byte_id[(unsigned char)w.p[i]];
        n += id[n] >= 0; /* what the vocabulary cannot say is dropped */
    }
    n = n <= SHORT_WORD ? merge_short(x->t, id, (int)n) : merge_long(x, id, (int32_t)n);
    if (n < 0)
        return err_nomem(x->e);
    return text_tokens_add(x->out, id, n, x->e);
}

/* The token that is spelled as the word w, or -1. */
static int32_t whole_word(struct text_enc *x, struct str w)
{
    char few[2 * SHORT_WORD], *spell = few;
    size_t n = 0;

    if (w.n > SHORT_WORD && w.n <= x->t->spell_max)
        spell = text_scratch(x, 2 * w.n);
    if (w.n > x->t->spell_max || spell == NULL)
        return -1;
    for (size_t i = 0; i < w.n; i++)
        n += text_byte_spell(spell + n, (unsigned char)w.p[i]);
    return text_spell_find(x->t, (struct str){ spell, n });
}

static enum err_code encode_word(void *ctx, struct str w)
{
    struct text_enc *x = ctx;
    uint64_t hash = text_hash(w.p, w.n);
    int64_t n0 = x->out->n;
    int32_t id = -1;
    enum err_code rc;

    if (text_words_find(x, w, hash, &rc))
        return rc;
    if (x->t->whole_words)
        id = whole_word(x, w);
    rc = id >= 0 ? text_tokens_push(x->out, id, x->e) : merge_word(x, w);
    if (rc == ERR_OK)
        text_words_keep(x, w, hash, n0);
    return rc;
}

enum err_code text_bpe_encode(struct text_enc *x, struct str s)
{
    return text_split_run(x->t->split, s, encode_word, x, x->e);
}
