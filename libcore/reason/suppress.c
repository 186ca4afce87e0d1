/* SPDX-License-Identifier: Apache-2.0 */
/* suppress.c - words with which a reflection begins, as tokens of a vocabulary.       room: reason */
#include <stdlib.h>
#include <string.h>

#include "reason/reason.h"
#include "text/text.h"

float reason_suppress_chance(float certainty, float delta)
{
    if (certainty >= 1)
        return 1;
    return certainty > delta ? (certainty - delta) / (1 - delta) : 0;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Without what surrounds the ASCII letters. */
static struct str trim(struct str s)
{
    while (s.n > 0 && !is_letter(s.p[s.n - 1]))
        s.n--;
    while (s.n > 0 && !is_letter(*s.p))
        s.p++, s.n--;
    return s;
}

static bool same_letters(struct str a, struct str b)
{
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if ((a.p[i] | 0x20) != (b.p[i] | 0x20))
            return false;
    return true;
}

bool reason_is_word(struct str piece, const struct str *words, int n)
{
    const struct str core = trim(piece);

    for (int i = 0; i < n; i++)
        if (same_letters(core, words[i]))
            return true;
    return false;
}

/* ---- a vocabulary ---- */

/* The tokens behind some first letters of a word, which may be none. */
struct follow {
    struct str letters; /* of a word */
    struct text_tokens token;
};
struct reason_words {
    struct text_tokens anew; /* a whole word, behind anything */
    struct follow *follow;   /* [n] */
    int n;
};

/* The list behind these letters; NULL: there is none yet. */
static struct follow *find_follow(const struct reason_words *w, struct str letters)
{
    for (int i = 0; i < w->n; i++)
        if (same_letters(w->follow[i].letters, letters))
            return &w->follow[i];
    return NULL;
}

/* Adds a token to the lists that it belongs to. */
static enum err_code add_token(struct reason_words *w, const struct text *t, int32_t token, const struct str *words,
                               int n, struct err *e)
{
    const struct str piece = text_piece(t, token), core = trim(piece);
    const bool goes_on = piece.n > 0 && is_letter(*piece.p);

    for (int i = 0; i < n && core.n > 0; i++) {
        const size_t before = words[i].n - core.n; /* letters that are there already */
        struct text_tokens *list;

        if (core.n > words[i].n || (before > 0 && !goes_on) ||
            !same_letters(core, (struct str){ words[i].p + before, core.n }))
            continue;
        list = goes_on ? &find_follow(w, (struct str){ words[i].p, before })->token : &w->anew;
        if ((list->n == 0 || list->v[list->n - 1] != token) && text_tokens_push(list, token, e))
            return e->code;
    }
    return ERR_OK;
}

enum err_code reason_words_open(struct reason_words **out, const struct text *t, const struct str *words, int n,
                                struct err *e)
{
    const int32_t n_tokens = text_info(t)->n_tokens;
    struct reason_words *w = calloc(1, sizeof *w);
    enum err_code code = ERR_OK;
    size_t most = 1;

    for (int i = 0; i < n; i++)
        most += words[i].n;
    if (w == NULL || (w->follow = calloc(most, sizeof *w->follow)) == NULL) {
        free(w);
        return err_nomem(e);
    }
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < words[i].n; k++)
            if (find_follow(w, (struct str){ words[i].p, k }) == NULL)
                w->follow[w->n++].letters = (struct str){ words[i].p, k };
    for (int32_t id = 0; id < n_tokens && code == ERR_OK; id++)
        if (!text_is_control(t, id))
            code = add_token(w, t, id, words, n, e);
    for (int i = 0; i < w->n && code == ERR_OK; i++)
        code = text_tokens_add(&w->follow[i].token, w->anew.v, w->anew.n, e);
    if (code != ERR_OK) {
        reason_words_close(w);
        return code;
    }
    *out = w;
    return ERR_OK;
}

void reason_words_close(struct reason_words *w)
{
    if (w == NULL)
        return;
    for (int i = 0; i < w->n; i++)
        text_tokens_free(&w->follow[i].token);
    text_tokens_free(&w->anew);
    free(w->follow);
    free(w);
}

int reason_words_next(const struct reason_words *w, struct str tail, const int32_t **token)
{
    const struct follow *f;
    size_t n = 0;

    while (n < tail.n && is_letter(tail.p[tail.n - 1 - n]))
        n++;
    f = find_follow(w, (struct str){ tail.p + tail.n - n, n });
    *token = f != NULL ? f->token.v : w->anew.v;
    return (int)(f != NULL ? f->token.n : w->anew.n);
}
