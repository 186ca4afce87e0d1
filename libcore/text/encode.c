/* SPDX-License-Identifier: Apache-2.0 */
/* encode.c - text to tokens and back.                                           room: text */
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "text/vocab.h"

void text_tokens_free(struct text_tokens *a)
{
    free(a->v);
    *a = (struct text_tokens){ 0 };
}

enum err_code text_tokens_push(struct text_tokens *a, int32_t id, struct err *e)
{
    if (memory_room(&a->v, &a->cap, (size_t)a->n + 1, sizeof *a->v, e))
        return e->code;
    a->v[a->n++] = id;
    return ERR_OK;
}

enum err_code text_tokens_add(struct text_tokens *a, const int32_t *v, int64_t n, struct err *e)
{
    for (int64_t i = 0; i < n; i++)
        if (text_tokens_push(a, v[i], e))
            return e->code;
    return ERR_OK;
}

static enum err_code encode_plain(struct text_enc *x, struct str s)
{
    struct str clean;
    char *copy;

    if (s.n == 0)
        return ERR_OK;
    if (x->t->kind == TEXT_SPM)
        return text_spm_encode(x, s);
    enum err_code rc = text_utf8_clean(s, &clean, &copy, x->e);
    if (rc == ERR_OK)
        rc = text_bpe_encode(x, clean);
    if (copy != NULL)
        text_words_forget(x);
    free(copy);
    return rc;
}

/* White space of the C locale, by which rstrip is defined. */
static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The special token at byte i of s, the longest. A control token takes marked bytes only. */
static int32_t special_at(const struct text *t, bool control, struct str s, const unsigned char *mark, size_t i)
{
    const struct text_specials *set = &t->special[control];
    unsigned char c = (unsigned char)s.p[i];
    int32_t id = -1;

    if (set->first[c] < set->first[c + 1])
        id = text_special_at(t, set, (struct str){ s.p + i, s.n - i });
    if (id >= 0 && mark != NULL && memchr(mark + i, 0, t->tok[id].spell.n) != NULL && control &&
        (t->tok[id].type == TOKEN_CONTROL || t->tok[id].type == TOKEN_UNKNOWN))
        return special_at(t, false, s, NULL, i);
    return id;
}

static enum err_code add_cut(struct text_enc *x, size_t byte, int64_t token)
{
    struct text_cuts *c = x->cuts;

    if (memory_room(&c->v, &c->cap, c->n + 1, sizeof *c->v, x->e))
        return x->e->code;
    c->v[c->n++] = (struct text_cut){ byte, token };
    return ERR_OK;
}

/* From byte `begin` on. mark: NULL, or for each byte of s whether it may be part of a control token. */
static enum err_code encode_all(struct text_enc *x, struct str s, size_t begin, bool control, const unsigned char *mark)
{
    const struct text *t = x->t;
    enum err_code rc = ERR_OK;

    for (size_t i = begin; i < s.n && rc == ERR_OK;) {
        int32_t id = special_at(t, control, s, mark, i);
        if (id < 0) {
            i++;
            continue;
        }
        rc = encode_plain(x, (struct str){ s.p + begin, i - begin });
        if (rc == ERR_OK)
            rc = text_tokens_push(x->out, id, x->e);
        i += t->tok[id].spell.n;
        while (t->tok[id].rstrip && i < s.n && is_blank(s.p[i]))
            i++;
        begin = i;
        if (rc == ERR_OK && x->cuts != NULL)
            rc = add_cut(x, i, x->out->n);
    }
    return rc == ERR_OK ? encode_plain(x, (struct str){ s.p + begin, s.n - begin }) : rc;
}

enum err_code text_encode(const struct text *t, struct str s, unsigned flags, struct text_tokens *out, struct err *e)
{
    struct text_enc x = { .t = t, .out = out, .e = e };
    int64_t n0 = out->n;
    enum err_code rc = ERR_OK;

    text_words_open(&x, s.n);
    if (flags & TEXT_ADD && t->info.add_bos && t->info.bos >= 0)
        rc = text_tokens_push(out, t->info.bos, e);
    if (rc == ERR_OK)
        rc = encode_all(&x, s, 0, flags & TEXT_SPECIAL, NULL);
    if (rc == ERR_OK && flags & TEXT_ADD && t->info.add_eos && t->info.eos >= 0)
        rc = text_tokens_push(out, t->info.eos, e);
    if (rc != ERR_OK)
        out->n = n0;
    free(x.words);
    free(x.scratch);
    return rc;
}

enum err_code text_encode_marked(const struct text *t, struct str s, const unsigned char *mark, struct text_memo *memo,
                                 struct text_tokens *out, struct err *e)
{
    struct text_tokens own = { 0 };
    struct text_cuts cuts = { 0 };
    struct text_enc x = { .t = t, .out = &own, .e = e, .cuts = memo != NULL ? &cuts : NULL };
    struct text_known known = { 0 };
    struct text_cut from = { 0 };

    if (memo != NULL)
        from = text_memo_find(memo, s, mark, &known);
    text_words_open(&x, s.n - from.byte);
    enum err_code rc = text_tokens_add(&own, known.token, from.token, e);

    if (rc == ERR_OK)
        rc = encode_all(&x, s, from.byte, true, mark);
    if (rc == ERR_OK && memo != NULL)
        text_memo_keep(memo, s, mark, own.v, own.n, &cuts, &known);
    if (rc == ERR_OK)
        rc = text_tokens_add(out, own.v, own.n, e);
    text_tokens_free(&own);
    free(cuts.v);
    free(x.words);
    free(x.scratch);
    return rc;
}

struct str text_piece(const struct text *t, int32_t id)
{
    return id >= 0 && id < t->info.n_tokens ? t->tok[id].piece : (struct str){ "", 0 };
}

bool text_is_control(const struct text *t, int32_t id)
{
    return id >= 0 && id < t->info.n_tokens && (t->tok[id].type == TOKEN_CONTROL || t->tok[id].type == TOKEN_UNKNOWN);
}

bool text_is_end(const struct text *t, int32_t id)
{
    return id >= 0 && id < t->info.n_tokens && t->tok[id].end;
}

enum err_code text_decode(const struct text *t, const int32_t *v, int64_t n, unsigned flags, char **out, size_t *out_n,
                          struct err *e)
{
    size_t bytes = 0, at = 0;
    bool strip = t->kind == TEXT_SPM && t->space_prefix;

    for (int64_t i = 0; i < n; i++)
        bytes += text_piece(t, v[i]).n;
    char *p = malloc(bytes + 1);
    if (p == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < n; i++) {
        struct str piece = text_piece(t, v[i]);
        bool control = text_is_control(t, v[i]);
        if (control && !(flags & TEXT_SPECIAL))
            continue;
        if (strip && !control) {
            size_t cut = piece.n > 0 && piece.p[0] == ' ';
            piece = (struct str){ piece.p + cut, piece.n - cut };
            strip = false;
        }
        memcpy(p + at, piece.p, piece.n);
        at += piece.n;
    }
    p[at] = '\0';
    *out = p;
    *out_n = at;
    return ERR_OK;
}
