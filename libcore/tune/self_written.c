/* SPDX-License-Identifier: Apache-2.0 */
/* self_written.c - what a model rehearses while it learns, written by itself: texts, and answers to questions. */
#include "tune/self_written.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "base/io.h"
#include "base/rng.h"
#include "chat/chat.h"
#include "train/writer.h"

enum {
    WORD_LEAST = 3, /* bytes of a word that is put into a question */
    FEW = 50,       /* a word is replaced that at most one in FEW questions has, */
    FEW_LEAST = 2,  /* or as few as that */
};
enum { SOURCE = 1 << 30 }; /* numbers of draws, apart from those of words */
enum { KNOWN = -1 };       /* what a text is: train_text_entry.of; 0: from nothing, else 1 + its source */
#define THINKING    0.3    /* of the questions are answered after reasoning */
#define LIKE_LEARNT 0.75   /* of them are like what is learnt */

struct words {
    struct str *v; /* [n], each once */
    size_t n;
};
/* Questions of one kind. */
struct source {
    const json_t *chats;
    uint64_t *seen; /* [n_seen] hashes of their words, ascending, one for each time */
    size_t n_seen, cap_seen;
};

struct own {
    struct tune_job *j;
    struct run *run;
    const struct run_adapter *adapters; /* [n_adapters] of the run, with which it writes */
    int n_adapters;
    double time_s; /* for texts, and again for answers */
    struct train_writer *writer;
    struct train_texts texts;
    char *all; /* the texts as bytes, where the words lie */
    struct words words;
    struct chat *format;
    struct source *source; /* [n_source] what is learnt, then the task sets; without those that have no question */
    int n_source, n_learn;
    const struct source *from; /* of the newest question */
    bool changed;
    struct text_tokens prompt; /* of the newest question */
    int64_t asked;
    int64_t most; /* texts that are being written */
    double stop_ms;
    bool stopped;   /* by the program */
    struct err err; /* of a question */
};

static int64_t n_texts(const struct own *w)
{
    return (w->j->o->rehearse + 7) / 8;
}

/* A number from [0, 1) for the question that is asked now. */
static double draw(const struct own *w, uint64_t what)
{
    return rng_unit((uint64_t)w->j->o->seed, 0x6f776e0000u + what, (uint64_t)w->asked);
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

/* The words of what the model wrote. */
static enum err_code collect_words(struct own *w, struct err *e)
{
    struct words *to = &w->words;
    struct str all = { 0 }, word;
    size_t n = 0;

    if (text_decode(w->j->text, w->texts.token, w->texts.at, 0, &w->all, &all.n, e))
        return e->code;
    all.p = w->all;
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
typedef enum err_code content_fn(struct own *w, json_t *message, struct str content, struct err *e);

static enum err_code each_content(struct own *w, const json_t *chat, content_fn *fn, struct err *e)
{
    json_t *message;
    size_t i;

    json_array_foreach (json_object_get(chat, "messages"), i, message) {
        struct str role, content;

        if (json_get_str(message, "role", &role) && str_is(role, "user") &&
            json_get_str(message, "content", &content) && fn(w, message, content, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code note_words(struct own *w, json_t *message, struct str content, struct err *e)
{
    struct str word;

    struct source *s = &w->source[w->n_source];

    (void)message;
    for (size_t at = 0; next_word(content, &at, &word);) {
        if (s->n_seen == s->cap_seen) {
            const size_t cap = s->cap_seen > 0 ? 2 * s->cap_seen : 1024;
            uint64_t *v = realloc(s->seen, cap * sizeof *v);

            if (v == NULL)
                return err_nomem(e);
            s->seen = v;
            s->cap_seen = cap;
        }
        s->seen[s->n_seen++] = io_hash(0, word.p, word.n);
    }
    return ERR_OK;
}

static int by_hash(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static enum err_code add_source(struct own *w, const json_t *chats, struct err *e)
{
    struct source *s = &w->source[w->n_source];
    json_t *chat;
    size_t i;

    if (json_array_size(chats) == 0)
        return ERR_OK;
    s->chats = chats;
    json_array_foreach (chats, i, chat)
        if (each_content(w, chat, note_words, e))
            return e->code;
    if (s->n_seen > 0)
        qsort(s->seen, s->n_seen, sizeof *s->seen, by_hash);
    w->n_source++;
    return ERR_OK;
}

static enum err_code open_sources(struct own *w, struct err *e)
{
    json_t *set;
    size_t i;

    w->source = calloc(json_array_size(w->j->data.sets) + 1, sizeof *w->source);
    if (w->source == NULL)
        return err_nomem(e);
    if (add_source(w, w->j->data.learn.chats, e))
        return e->code;
    w->n_learn = w->n_source;
    json_array_foreach (w->j->data.sets, i, set)
        if (add_source(w, set, e))
            return e->code;
    return ERR_OK;
}

static void close_sources(struct own *w)
{
    for (int i = 0; i < w->n_source; i++)
        free(w->source[i].seen);
    free(w->source);
}

/* How often a word is in the questions of the same kind. */
static size_t times_seen(const struct own *w, struct str word)
{
    const uint64_t h = io_hash(0, word.p, word.n);
    const struct source *s = w->from;
    const uint64_t *at = bsearch(&h, s->seen, s->n_seen, sizeof h, by_hash);
    size_t n = 0;

    if (at == NULL)
        return 0;
    while (at > s->seen && at[-1] == h)
        at--;
    while (at + n < s->seen + s->n_seen && at[n] == h)
        n++;
    return n;
}

static bool is_rare(const struct own *w, struct str word)
{
    const size_t share = json_array_size(w->from->chats) / FEW;

    return times_seen(w, word) <= (share > FEW_LEAST ? share : FEW_LEAST);
}

/* The share of words that few questions have. */
static double rare_share(const struct own *w, struct str content)
{
    size_t n = 0, all = 0;
    struct str word;

    for (size_t at = 0; next_word(content, &at, &word); all++)
        n += is_rare(w, word);
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
static void write_other_number(const struct own *w, FILE *f, struct str word)
{
    const uint64_t h = io_hash(0, word.p, word.n);

    for (size_t i = 0; i < word.n; i++) {
        const int first = i == 0, n = 10 - first, was = word.p[i] - '0' - first;
        const int more = first + (int)(rng_unit((uint64_t)w->j->o->seed + h, i, (uint64_t)w->asked) * (n - first));
        const char digit = (char)('0' + first + (was < 0 ? more - 1 : (was + more) % n));

        fwrite(&digit, 1, 1, f);
    }
}

/* Other words in the place of those that few questions have, or of every second one, where they are the most. */
static enum err_code replace_words(struct own *w, json_t *message, struct str content, struct err *e)
{
    const double chance = rare_share(w, content) > 0.5 ? 0.5 : 1;
    size_t from = 0, n = 0;
    uint64_t place = 2;
    struct str word;
    char *to = NULL;
    FILE *f = open_memstream(&to, &n);
    bool ok;

    if (f == NULL)
        return err_nomem(e);
    for (size_t at = 0; next_word(content, &at, &word); place += 2) {
        if (!is_rare(w, word) || draw(w, place + 1) >= chance)
            continue;
        const struct str other = w->words.v[(size_t)(draw(w, place) * (double)w->words.n)];

        fwrite(content.p + from, 1, (size_t)(word.p - content.p) - from, f);
        if (is_number(word))
            write_other_number(w, f, word);
        else
            fwrite(other.p, 1, other.n, f);
        from = at;
        w->changed = true;
    }
    fwrite(content.p + from, 1, content.n - from, f);
    ok = fclose(f) == 0 && json_object_set_new(message, "content", json_stringn_nocheck(to, n)) == 0;
    free(to);
    return ok ? ERR_OK : err_nomem(e);
}

/* w->prompt becomes this question, as the model is asked it. */
static enum err_code render_question(struct own *w, const json_t *chat, struct err *e)
{
    json_t *extra = json_pack("{s:b}", "enable_thinking", draw(w, 0) < THINKING);
    bool thinking;
    const enum err_code code = extra == NULL
                                   ? err_nomem(e)
                                   : chat_render(w->format,
                                                 &(struct chat_prompt){ .messages = json_object_get(chat, "messages"),
                                                                        .tools = json_object_get(chat, "tools"),
                                                                        .extra = extra,
                                                                        .generate = true,
                                                                        .now_s = w->j->o->now_s },
                                                 &w->prompt, &thinking, e);

    json_decref(extra);
    return code;
}

/* w->prompt becomes one of the questions, if asked for with other words. */
static enum err_code make_question(struct own *w, const json_t *chat, bool change, struct err *e)
{
    json_t *mine = json_deep_copy(chat);
    enum err_code code = mine == NULL ? err_nomem(e) : ERR_OK;

    w->prompt.n = 0;
    w->changed = false;
    if (code == ERR_OK && change)
        code = each_content(w, mine, replace_words, e);
    if (code == ERR_OK)
        code = render_question(w, mine, e);
    json_decref(mine);
    return code;
}

/* ---- what is written ---- */

/* A text begins where texts do. */
static bool next_text(void *ctx, struct train_ask *ask)
{
    struct own *w = ctx;
    const struct text_info *t = text_info(w->j->text);
    int32_t first = t->bos >= 0 ? t->bos : text_find(w->j->text, "<|endoftext|>");

    first = first >= 0 ? first : t->eos;
    if (w->asked == n_texts(w) || first < 0)
        return false;
    w->prompt.n = 0;
    if (text_tokens_push(&w->prompt, first, &w->err))
        return false;
    *ask = (struct train_ask){ .prompt = w->prompt.v,
                               .n_prompt = 1,
                               .temp = 1.0f,
                               .seed = (uint64_t)w->j->o->seed,
                               .stream = (uint64_t)w->asked };
    w->asked++;
    return true;
}

/* One of the questions that are to be asked with other words. */
static const json_t *choose_question(struct own *w)
{
    const int n_sets = w->n_source - w->n_learn;
    const bool learn = n_sets == 0 || (w->n_learn > 0 && draw(w, SOURCE) < LIKE_LEARNT);
    const int at = learn ? 0 : w->n_learn + (int)(draw(w, SOURCE + 1) * n_sets);

    w->from = &w->source[at];
    return json_array_get(w->from->chats, (size_t)(draw(w, 1) * (double)json_array_size(w->from->chats)));
}

/* The questions that were given, then one like those that are learnt or tested. */
static bool next_question(void *ctx, struct train_ask *ask)
{
    struct own *w = ctx;
    const int64_t given = (int64_t)json_array_size(w->j->data.keep.open);

    while (w->asked < given + (w->n_source > 0 && w->words.n > 0 ? w->j->o->rehearse : 0)) {
        const bool change = w->asked >= given;
        const json_t *chat = change ? choose_question(w) : json_array_get(w->j->data.keep.open, (size_t)w->asked);
        const enum err_code code = make_question(w, chat, change, &w->err);

        w->asked++;
        if (code != ERR_OK)
            return false;
        if (w->prompt.n + TUNE_OWN_ANSWER > w->j->own_tokens || w->changed != change)
            continue;
        *ask = (struct train_ask){ .prompt = w->prompt.v,
                                   .n_prompt = w->prompt.n,
                                   .of = change ? 1 + (int)(w->from - w->source) : KNOWN };
        return true;
    }
    return false;
}

static bool writing_goes_on(void *ctx)
{
    struct own *w = ctx;
    const struct tune_tick t = { TUNE_WRITING, w->texts.n, w->most, (w->stop_ms - tune_now_ms(w->j)) / 1e3 };

    w->stopped = !w->j->calls->tick(w->j->calls->ctx, &t);
    return !w->stopped && w->err.code == ERR_OK && tune_now_ms(w->j) < w->stop_ms;
}

/* At most n texts, as long as there is time. */
static enum err_code write_all(struct own *w, train_next *next, int64_t n, int64_t n_predict, struct err *e)
{
    w->asked = 0;
    w->most = n;
    w->stop_ms = tune_now_ms(w->j) + w->time_s * 1e3;
    train_writer_close(w->writer);
    w->writer = NULL;
    train_texts_close(&w->texts);
    if (train_texts_open(&w->texts, NULL, n * w->j->own_tokens + 1, 0, e) ||
        train_writer_open(&w->writer, w->run, w->j->text, w->adapters, w->n_adapters, 0, n_predict, e) ||
        train_writer_run(w->writer, &w->texts, next, writing_goes_on, w, e))
        return e->code;
    if (w->stopped)
        return err_set(e, ERR_CANCEL, "interrupted");
    if (w->err.code)
        *e = w->err;
    return w->err.code;
}

static enum err_code take_texts(const struct own *w, struct err *e)
{
    for (int64_t i = 0; i < w->texts.n; i++) {
        const struct train_text_entry *t = &w->texts.v[i];
        struct text_tokens copy = { 0 };

        for (int64_t k = 0; k < t->n; k++)
            if (text_tokens_push(&copy, w->texts.token[t->at + k], e)) {
                text_tokens_free(&copy);
                return e->code;
            }
        struct tune_items *to = t->of == KNOWN ? &w->j->data.keep : &w->j->data.own;
        const int64_t n = to->n;

        if (tune_items_add(to, copy, t->n_prompt, w->j->own_tokens, e))
            return e->code;
        if (to->n > n && t->of != KNOWN)
            to->v[n].set = t->of;
    }
    return ERR_OK;
}

static enum err_code write_questions(struct own *w, struct err *e)
{
    const int64_t n = (int64_t)json_array_size(w->j->data.keep.open) + w->j->o->rehearse;

    if (open_sources(w, e))
        return e->code;
    if (json_array_size(w->j->data.keep.open) == 0 && w->n_source == 0)
        return ERR_OK;
    if (chat_open(&w->format, w->j->text, (struct str){ 0 }, e) || write_all(w, next_question, n, TUNE_OWN_ANSWER, e))
        return e->code;
    return take_texts(w, e);
}

static enum err_code write_all_kinds(struct own *w, struct err *e)
{
    if (write_all(w, next_text, n_texts(w), TUNE_OWN_TEXT, e) || collect_words(w, e) || take_texts(w, e))
        return e->code;
    return write_questions(w, e);
}

enum err_code tune_write_own(struct tune_job *j, double time_s, struct err *e)
{
    const struct adapter *old = j->begin.old;
    struct own w = { .j = j, .time_s = time_s };

    if (old != NULL && adapter_is_scales(old)) /* a run takes no scales */
        old = NULL;
    if (j->calls->open_run(j->calls->ctx, old, j->own_tokens, j->room_bytes, &w.run, &w.adapters, &w.n_adapters, e))
        return e->code;
    const enum err_code code = write_all_kinds(&w, e);

    chat_close(w.format);
    text_tokens_free(&w.prompt);
    free(w.words.v);
    free(w.all);
    close_sources(&w);
    train_writer_close(w.writer);
    train_texts_close(&w.texts);
    j->calls->close_run(j->calls->ctx, w.run);
    return code;
}
