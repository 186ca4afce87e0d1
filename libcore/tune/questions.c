/* SPDX-License-Identifier: Apache-2.0 */
/* questions.c - questions like others, with other words. */
#include "tune/questions.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ask/ask.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/rng.h"
#include "chat/chat.h"

enum {
    WORD_LEAST = 3, /* bytes of a word that is put into a question */
    FEW = 50,       /* a word is replaced that at most one in FEW questions has, */
    FEW_LEAST = 2,  /* or as few as that */
};
enum { SOURCE = 1 << 30 }; /* numbers of draws, apart from those of words */
#define THINKING    0.3    /* of the questions are answered after reasoning */
#define LIKE_LEARNT 0.75   /* of them are like what is learnt */

/* Questions of one kind. */
struct tune_source {
    const json_t *chats;
    uint64_t *seen; /* [n_seen] hashes of their words, ascending, one for each time */
    size_t n_seen, cap_seen;
};

/* A number from [0, 1) for the question that is asked now. */
static double draw_unit(const struct tune_questions *q, uint64_t what)
{
    return rng_unit((uint64_t)q->seed, 0x6f776e0000u + what, (uint64_t)q->asked);
}

/* ---- words ---- */

static bool in_word(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || (unsigned char)c >= 0x80;
}

/* The next word at or after *at; false: none. */
static bool next_word(struct str s, size_t *at, struct str *word)
{
    while (*at < s.n && !in_word(s.p[*at]))
        ++*at;
    word->p = s.p + *at;
    while (*at < s.n && in_word(s.p[*at]))
        ++*at;
    word->n = (size_t)(s.p + *at - word->p);
    return word->n > 0;
}

static int by_word(const void *a, const void *b)
{
    const struct str *x = a, *y = b;
    const int order = memcmp(x->p, y->p, x->n < y->n ? x->n : y->n);

    return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

enum err_code tune_questions_words(struct tune_questions *q, const int32_t *token, int64_t n_tokens, struct err *e)
{
    struct tune_words *to = &q->words;
    struct str all = { 0 }, word;
    size_t n = 0;

    if (text_decode(q->text, token, n_tokens, 0, &q->all, &all.n, e))
        return e->code;
    all.p = q->all;
    for (size_t at = 0; next_word(all, &at, &word);)
        n += word.n >= WORD_LEAST;
    to->v = calloc(n + 1, sizeof *to->v);
    if (to->v == NULL)
        return err_nomem(e);
    for (size_t at = 0; next_word(all, &at, &word);)
        if (word.n >= WORD_LEAST)
            to->v[to->n++] = word;
    qsort(to->v, to->n, sizeof *to->v, by_word);
    n = 0;
    for (size_t i = 0; i < to->n; i++)
        if (n == 0 || by_word(&to->v[n - 1], &to->v[i]) != 0)
            to->v[n++] = to->v[i];
    to->n = n;
    return ERR_OK;
}

/* ---- questions ---- */

/* fn for each text of the user's in a question. */
typedef enum err_code content_fn(struct tune_questions *q, json_t *message, struct str content, struct err *e);

static enum err_code each_content(struct tune_questions *q, const json_t *chat, content_fn *fn, struct err *e)
{
    json_t *message;
    size_t i;

    json_array_foreach (json_object_get(chat, "messages"), i, message) {
        struct str role, content;

        if (json_get_str(message, "role", &role) && str_is(role, "user") &&
            json_get_str(message, "content", &content) && fn(q, message, content, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code note_words(struct tune_questions *q, json_t *message, struct str content, struct err *e)
{
    struct tune_source *s = &q->source[q->n_source];
    struct str word;

    (void)message;
    for (size_t at = 0; next_word(content, &at, &word);) {
        if (memory_room(&s->seen, &s->cap_seen, s->n_seen + 1, sizeof *s->seen, e))
            return e->code;
        s->seen[s->n_seen++] = io_hash(0, word.p, word.n);
    }
    return ERR_OK;
}

static enum err_code add_source(struct tune_questions *q, const json_t *chats, struct err *e)
{
    struct tune_source *s = &q->source[q->n_source];
    json_t *chat;
    size_t i;

    if (json_array_size(chats) == 0)
        return ERR_OK;
    s->chats = chats;
    json_array_foreach (chats, i, chat)
        if (each_content(q, chat, note_words, e))
            return e->code;
    if (s->n_seen > 0)
        qsort(s->seen, s->n_seen, sizeof *s->seen, io_by_hash);
    q->n_source++;
    return ERR_OK;
}

enum err_code tune_questions_open(struct tune_questions *q, const json_t *learn, const json_t *sets, struct err *e)
{
    const json_t *set;
    size_t i;

    q->source = calloc(json_array_size(sets) + 1, sizeof *q->source);
    if (q->source == NULL)
        return err_nomem(e);
    if (add_source(q, learn, e))
        return e->code;
    q->n_learn = q->n_source;
    json_array_foreach (sets, i, set)
        if (add_source(q, set, e))
            return e->code;
    return ERR_OK;
}

void tune_questions_close(struct tune_questions *q)
{
    for (int i = 0; i < q->n_source; i++)
        free(q->source[i].seen);
    free(q->source);
    free(q->words.v);
    free(q->all);
    chat_close(q->format);
    text_tokens_free(&q->prompt);
}

/* How often a word is in the questions of the same kind. */
static size_t times_seen(const struct tune_questions *q, struct str word)
{
    const uint64_t h = io_hash(0, word.p, word.n);
    const struct tune_source *s = q->from;
    const uint64_t *at = bsearch(&h, s->seen, s->n_seen, sizeof h, io_by_hash);
    size_t n = 0;

    if (at == NULL)
        return 0;
    while (at > s->seen && at[-1] == h)
        at--;
    while (at + n < s->seen + s->n_seen && at[n] == h)
        n++;
    return n;
}

static bool is_rare(const struct tune_questions *q, struct str word)
{
    const size_t share = json_array_size(q->from->chats) / FEW;

    return times_seen(q, word) <= (share > FEW_LEAST ? share : FEW_LEAST);
}

/* The share of words that few questions have. */
static double rare_share(const struct tune_questions *q, struct str content)
{
    size_t n = 0, all = 0;
    struct str word;

    for (size_t at = 0; next_word(content, &at, &word); all++)
        n += is_rare(q, word);
    return all > 0 ? (double)n / (double)all : 0;
}

static bool is_number(struct str word)
{
    for (size_t i = 0; i < word.n; i++)
        if (!isdigit((unsigned char)word.p[i]))
            return false;
    return true;
}

/* Another number with as many digits; the same one each time in a question. */
static void write_other_number(const struct tune_questions *q, FILE *f, struct str word)
{
    const uint64_t h = io_hash(0, word.p, word.n);

    for (size_t i = 0; i < word.n; i++) {
        const int first = i == 0, n = 10 - first, was = word.p[i] - '0' - first;
        const int more = first + (int)(rng_unit((uint64_t)q->seed + h, i, (uint64_t)q->asked) * (n - first));
        const char digit = (char)('0' + first + (was < 0 ? more - 1 : (was + more) % n));

        fwrite(&digit, 1, 1, f);
    }
}

/* Other words in the place of those that few questions have, or of every second one, where they are the most. */
static enum err_code replace_words(struct tune_questions *q, json_t *message, struct str content, struct err *e)
{
    const double chance = rare_share(q, content) > 0.5 ? 0.5 : 1;
    size_t from = 0, n = 0;
    uint64_t place = 2;
    struct str word;
    char *to = NULL;
    FILE *f = open_memstream(&to, &n);
    bool ok;

    if (f == NULL)
        return err_nomem(e);
    for (size_t at = 0; next_word(content, &at, &word); place += 2) {
        if (!is_rare(q, word) || draw_unit(q, place + 1) >= chance)
            continue;
        const struct str other = q->words.v[(size_t)(draw_unit(q, place) * (double)q->words.n)];

        fwrite(content.p + from, 1, (size_t)(word.p - content.p) - from, f);
        if (is_number(word))
            write_other_number(q, f, word);
        else
            fwrite(other.p, 1, other.n, f);
        from = at;
        q->changed = true;
    }
    fwrite(content.p + from, 1, content.n - from, f);
    ok = fclose(f) == 0 && json_object_set_new(message, "content", json_stringn_nocheck(to, n)) == 0;
    free(to);
    return ok ? ERR_OK : err_nomem(e);
}

/* q->prompt becomes this question, as the model is asked it. */
static enum err_code render_question(struct tune_questions *q, const json_t *chat, struct err *e)
{
    const struct ask_model m = { .text = q->text, .chat = q->format };
    struct ask a = ask_defaults();

    a.messages = json_object_get(chat, "messages");
    a.tools = json_object_get(chat, "tools");
    a.think = draw_unit(q, 0) < THINKING;
    a.now_s = q->now_s;
    return ask_prompt(&q->prompt, &a, &m, NULL, e);
}

/* One of the questions that are to be asked with other words. */
static const json_t *choose_question(struct tune_questions *q)
{
    const int n_sets = q->n_source - q->n_learn;
    const bool learn = n_sets == 0 || (q->n_learn > 0 && draw_unit(q, SOURCE) < LIKE_LEARNT);
    const int at = learn ? 0 : q->n_learn + (int)(draw_unit(q, SOURCE + 1) * n_sets);

    q->from = &q->source[at];
    return json_array_get(q->from->chats, (size_t)(draw_unit(q, 1) * (double)json_array_size(q->from->chats)));
}

enum err_code tune_questions_make(struct tune_questions *q, int64_t number, const json_t *given, struct err *e)
{
    json_t *mine;
    enum err_code code;

    q->asked = number;
    mine = json_deep_copy(given != NULL ? given : choose_question(q));
    code = mine == NULL ? err_nomem(e) : ERR_OK;
    q->prompt.n = 0;
    q->changed = false;
    if (code == ERR_OK && given == NULL)
        code = each_content(q, mine, replace_words, e);
    if (code == ERR_OK && q->format == NULL)
        code = chat_open(&q->format, q->text, (struct str){ 0 }, e);
    if (code == ERR_OK)
        code = render_question(q, mine, e);
    json_decref(mine);
    return code;
}

int tune_questions_source(const struct tune_questions *q)
{
    return (int)(q->from - q->source);
}
