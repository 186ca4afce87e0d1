/* SPDX-License-Identifier: Apache-2.0 */
/* self_written.c - what a model rehearses while it learns, written by itself: texts, and answers to questions. */
#include "tune/self_written.h"

#include "adapt/adapt.h"
#include "train/writer.h"
#include "tune/questions.h"

enum { KNOWN = -1 }; /* what a text is: train_text_entry.of; 0: from nothing, else 1 + its source */

struct own {
    struct tune_job *j;
    struct tune_run run; /* which writes */
    double time_s;       /* for texts, and again for answers */
    struct train_writer *writer;
    struct train_texts texts;
    struct tune_questions questions;
    int32_t first; /* token of a text from nothing */
    int64_t asked;
    int64_t most; /* texts that are being written */
    double stop_ms;
    bool stopped;   /* by the program */
    struct err err; /* of a question */
};

static int64_t n_texts(const struct own *w)
{
    return (w->j->pace.rehearse + 7) / 8;
}

/* ---- what is written ---- */

/* A text begins where texts do. */
static bool next_text(void *ctx, struct train_ask *ask)
{
    struct own *w = ctx;
    const struct text_info *t = text_info(w->j->text);

    w->first = t->bos >= 0 ? t->bos : text_find(w->j->text, "<|endoftext|>");
    w->first = w->first >= 0 ? w->first : t->eos;
    if (w->asked == n_texts(w) || w->first < 0)
        return false;
    *ask = (struct train_ask){
        .prompt = &w->first, .n_prompt = 1, .temp = 1.0f, .seed = (uint64_t)w->j->o->seed, .stream = (uint64_t)w->asked
    };
    w->asked++;
    return true;
}

/* What is asked for an answer to the newest question: the most likely one. */
static struct train_ask ask_of(const struct own *w, int of)
{
    return (struct train_ask){ .prompt = w->questions.prompt.v, .n_prompt = w->questions.prompt.n, .of = of };
}

/* The questions that were given, then one like those that are learnt or tested. */
static bool next_question(void *ctx, struct train_ask *ask)
{
    struct own *w = ctx;
    struct tune_questions *q = &w->questions;
    const json_t *given = w->j->data.keep.open;
    const int64_t n_given = (int64_t)json_array_size(given);

    while (w->asked < n_given + (q->n_source > 0 && q->words.n > 0 ? w->j->pace.rehearse : 0)) {
        const bool change = w->asked >= n_given;
        const json_t *chat = change ? NULL : json_array_get(given, (size_t)w->asked);

        if (tune_questions_make(q, w->asked++, chat, &w->err))
            return false;
        if (q->prompt.n + TUNE_OWN_ANSWER > w->j->own_tokens || q->changed != change)
            continue;
        *ask = ask_of(w, change ? 1 + tune_questions_source(q) : KNOWN);
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
        train_writer_open(&w->writer, w->run.run, w->j->text, w->run.adapters, w->run.n_adapters, 0, n_predict, e) ||
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
    const int64_t n = (int64_t)json_array_size(w->j->data.keep.open) + w->j->pace.rehearse;

    if (tune_questions_open(&w->questions, w->j->data.learn.chats, w->j->data.sets, e))
        return e->code;
    if (json_array_size(w->j->data.keep.open) == 0 && w->questions.n_source == 0)
        return ERR_OK;
    return write_all(w, next_question, n, TUNE_OWN_ANSWER, e) ? e->code : take_texts(w, e);
}

static enum err_code write_all_kinds(struct own *w, struct err *e)
{
    if (write_all(w, next_text, n_texts(w), TUNE_OWN_TEXT, e) ||
        tune_questions_words(&w->questions, w->texts.token, w->texts.at, e) || take_texts(w, e))
        return e->code;
    return write_questions(w, e);
}

enum err_code tune_write_own(struct tune_job *j, double time_s, struct err *e)
{
    const struct adapter *old = j->begin.old;
    struct own w = { .j = j,
                     .time_s = time_s,
                     .questions = { .text = j->text, .seed = j->o->seed, .now_s = j->o->now_s } };

    if (old != NULL && adapter_is_scales(old)) /* a run takes no scales */
        old = NULL;
    if (j->calls->open_run(j->calls->ctx, old, j->own_tokens, j->room_bytes, &w.run, e))
        return e->code;
    const enum err_code code = write_all_kinds(&w, e);

    tune_questions_close(&w.questions);
    train_writer_close(w.writer);
    train_texts_close(&w.texts);
    j->calls->close_run(j->calls->ctx, w.run.run);
    return code;
}
