/* SPDX-License-Identifier: Apache-2.0 */
/* spm.c - SentencePiece with scores (BPE models, "llama").                      room: text
 *
 * Kudo, Richardson: "SentencePiece" (EMNLP 2018). Spaces are U+2581. Of all neighbours that
 * together spell a token, the pair with the highest score is joined first, the leftmost of equal
 * ones. What is no token in the end is given byte by byte.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "gguf/gguf.h"
#include "text/vocab.h"

#define SPACE   "\xE2\x96\x81" /* U+2581 */
#define SPACE_N 3

struct symbol {
    uint32_t at, n;     /* bytes in the text; n is 0 once joined to another */
    int32_t prev, next; /* -1 at the ends */
};
struct pair {
    float score;
    int32_t left;
    uint32_t n; /* bytes of both: stale when they have changed */
};
struct merge {
    const struct text *t;
    const char *p;
    struct symbol *sym;
    struct pair *heap;
    size_t n_heap;
};

static bool is_space(struct str s, size_t i)
{
    return s.n - i >= SPACE_N && memcmp(s.p + i, SPACE, SPACE_N) == 0;
}

static enum err_code load_scores(struct text *t, const struct gguf *g, struct err *e)
{
    const struct gguf_kv *kv = gguf_kv_find(g, "tokenizer.ggml.scores");
    double v;

    if (kv == NULL || kv->kind != GGUF_ARR || kv->n != (uint64_t)t->info.n_tokens)
        return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores: %s", kv == NULL ? "missing" : "not one for each token");
    for (int32_t i = 0; i < t->info.n_tokens; i++) {
        if (!gguf_kv_f64(kv, (uint64_t)i, &v) || isnan(v))
            return err_set(e, ERR_FORMAT, "tokenizer.ggml.scores[%d]: not a number", i);
        t->tok[i].score = (float)v;
    }
    return ERR_OK;
}

enum err_code text_load_spm(struct text *t, const struct gguf *g, struct err *e)
{
    t->space_prefix = true;
    t->info.add_bos = true;
    gguf_bool(g, "tokenizer.ggml.add_space_prefix", &t->space_prefix);
    gguf_bool(g, "tokenizer.ggml.remove_extra_whitespaces", &t->trim_spaces);
    for (unsigned b = 0; b < 256; b++) {
        static const char hex[] = "0123456789ABCDEF";
        const char spell[6] = { '<', '0', 'x', hex[b >> 4], hex[b & 15], '>' }, raw = (char)b;
        t->byte_id[b] = text_spell_find(t, (struct str){ spell, 6 });
        if (t->byte_id[b] < 0)
            t->byte_id[b] = text_spell_find(t, (struct str){ &raw, 1 });
    }
    t->words_apart = true;
    for (int32_t i = 0; i < t->info.n_tokens && t->words_apart; i++) {
        struct str s = t->tok[i].spell;
        size_t lead = 0;
        while (is_space(s, lead))
            lead += SPACE_N;
        for (; lead < s.n && t->words_apart; lead++)
            t->words_apart = !is_space(s, lead);
    }
    return load_scores(t, g, e);
}

static bool merges_before(struct pair a, struct pair b)
{
    return a.score > b.score || (a.score == b.score && a.left < b.left);
}

static void heap_push(struct merge *m, struct pair v)
{
    size_t i = m->n_heap++;

    for (; i > 0 && merges_before(v, m->heap[(i - 1) / 2]); i = (i - 1) / 2)
        m->heap[i] = m->heap[(i - 1) / 2];
    m->heap[i] = v;
}

static struct pair heap_pop(struct merge *m)
{
    struct pair top = m->heap[0], last = m->heap[--m->n_heap];
    size_t i = 0, kid;

    while ((kid = 2 * i + 1) < m->n_heap) {
        if (kid + 1 < m->n_heap && merges_before(m->heap[kid + 1], m->heap[kid]))
            kid++;
        if (!merges_before(m->heap[kid], last))
            break;
        m->heap[i] = m->heap[kid];
        i = kid;
    }
    m->heap[i] = last;
    return top;
}

static void consider_join(struct merge *m, int32_t left)
{
    if (left < 0 || m->sym[left].next < 0)
        return;
    uint32_t n = m->sym[left].n + m->sym[m->sym[left].next].n;
    if (n > m->t->spell_max)
        return;
    int32_t id = text_spell_find(m->t, (struct str){ m->p + m->sym[left].at, n });
    if (id >= 0)
        heap_push(m, (struct pair){ m->t->tok[id].score, left, n });
}

static void join_symbols(struct merge *m, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        consider_join(m, i);
    while (m->n_heap > 0) {
        struct pair best = heap_pop(m);
        struct symbol *left = &m->sym[best.left];
        if (left->n == 0 || left->next < 0 || left->n + m->sym[left->next].n != best.n)
            continue;
        m->sym[left->next].n = 0;
        left->n = best.n;
        left->next = m->sym[left->next].next;
        if (left->next >= 0)
            m->sym[left->next].prev = best.left;
        consider_join(m, best.left);
        consider_join(m, left->prev);
    }
}

static enum err_code give_symbol(struct text_enc *x, struct str s)
{
    int32_t id = s.n <= x->t->spell_max ? text_spell_find(x->t, s) : -1;
    enum err_code rc = ERR_OK;

    if (id >= 0)
        return text_tokens_push(x->out, id, x->e);
    for (size_t i = 0; i < s.n && rc == ERR_OK; i++) {
        id = x->t->byte_id[(unsigned char)s.p[i]];
        if (id < 0)
            id = x->t->unk;
        if (id >= 0)
            rc = text_tokens_push(x->out, id, x->e);
    }
    return rc;
}

/* Length of the symbol that begins with c, as its first byte tells. */
static size_t symbol_bytes(char first)
{
    unsigned char c = (unsigned char)first;

    return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

static enum err_code encode_stretch(struct text_enc *x, struct str s)
{
    size_t n_max = s.n;
    enum err_code rc = ERR_OK;

    if (s.n > INT32_MAX / 2)
        return err_set(x->e, ERR_LIMIT, "a text of more than 1 GiB");
    char *mem = text_scratch(x, n_max * (sizeof(struct symbol) + 2 * sizeof(struct pair)));
    if (mem == NULL)
        return err_nomem(x->e);
    struct merge m = { .t = x->t,
                       .p = s.p,
                       .sym = (struct symbol *)(void *)mem,
                       .heap = (struct pair *)(void *)(mem + n_max * sizeof(struct symbol)) };
    int32_t n = 0;
    for (size_t i = 0, k; i < s.n; i += k, n++) {
        k = symbol_bytes(s.p[i]);
        if (k > s.n - i)
            k = s.n - i;
        m.sym[n] = (struct symbol){ (uint32_t)i, (uint32_t)k, n - 1, i + k < s.n ? n + 1 : -1 };
    }
    join_symbols(&m, n);
    for (int32_t i = 0; i >= 0 && rc == ERR_OK; i = m.sym[i].next)
        rc = give_symbol(x, (struct str){ s.p + m.sym[i].at, m.sym[i].n });
    return rc;
}

static enum err_code encode_word(struct text_enc *x, struct str w)
{
    uint64_t hash = text_hash(w.p, w.n);
    int64_t n0 = x->out->n;
    enum err_code rc;

    if (text_words_find(x, w, hash, &rc))
        return rc;
    rc = encode_stretch(x, w);
    if (rc == ERR_OK)
        text_words_keep(x, w, hash, n0);
    return rc;
}

/* No token has a space after another character, so nothing joins across such a place. */
static enum err_code encode_apart(struct text_enc *x, struct str s)
{
    size_t begin = 0;
    bool in_spaces = true;
    enum err_code rc = ERR_OK;

    for (size_t i = 0, k; i < s.n && rc == ERR_OK; i += k) {
        k = symbol_bytes(s.p[i]);
        if (k > s.n - i)
            k = s.n - i;
        bool space = is_space(s, i);
        if (space && !in_spaces) {
            rc = encode_word(x, (struct str){ s.p + begin, i - begin });
            begin = i;
        }
        in_spaces = space;
    }
    return rc == ERR_OK && begin < s.n ? encode_word(x, (struct str){ s.p + begin, s.n - begin }) : rc;
}

/* Spaces written as the vocabulary writes them; with trim, none at the ends and never two. */
static size_t escape(char *out, struct str s, bool prefix, bool trim)
{
    size_t n = 0;
    bool held = prefix; /* a space that is written before the next character */

    for (size_t i = 0; i < s.n; i++) {
        if (trim && s.p[i] == ' ') {
            held = held || n > 0;
            continue;
        }
        if (held) {
            memcpy(out + n, SPACE, SPACE_N);
            n += SPACE_N;
        }
        held = false;
        if (s.p[i] == ' ') {
            memcpy(out + n, SPACE, SPACE_N);
            n += SPACE_N;
        } else {
            out[n++] = s.p[i];
        }
    }
    return n;
}

enum err_code text_spm_encode(struct text_enc *x, struct str s)
{
    if (s.n > SIZE_MAX / SPACE_N - SPACE_N)
        return err_set(x->e, ERR_LIMIT, "text too long");
    char *buf = malloc((s.n + 1) * SPACE_N);
    if (buf == NULL)
        return err_nomem(x->e);
    struct str text = { buf, escape(buf, s, x->t->space_prefix, x->t->trim_spaces) };
    enum err_code rc = x->t->words_apart ? encode_apart(x, text) : encode_stretch(x, text);
    text_words_forget(x);
    free(buf);
    return rc;
}
