/* SPDX-License-Identifier: Apache-2.0 */
/* questions.h - questions like others, with other words.                         room: tune
 *
 * Three in four are those that a model is going to learn, about something else: words that few of them share are
 * replaced by words of its own texts, numbers by others. What is most in danger of being forgotten is what is asked in
 * the same way. The others are made in the same way from the task sets, so that each of them is another one than what
 * is tested. */
#ifndef TUNE_QUESTIONS_H
#define TUNE_QUESTIONS_H
#include "base/json.h"
#include "text/text.h"

struct chat;
struct tune_source;

struct tune_words {
    struct str *v; /* [n], each once */
    size_t n;
};
/* The caller sets text, seed and now_s; all else is zero at first. */
struct tune_questions {
    const struct text *text;
    int64_t seed, now_s;        /* now_s: chat_prompt.now_s */
    struct tune_words words;    /* to put into questions */
    char *all;                  /* the texts as bytes, where the words lie */
    struct tune_source *source; /* [n_source] what is learnt, then the task sets; without those that have no question */
    int n_source, n_learn;
    struct chat *format; /* opened for the first question */
    /* of the newest question */
    int64_t asked; /* its number */
    const struct tune_source *from;
    bool changed;              /* some words are others */
    struct text_tokens prompt; /* as the model is asked it */
};
/* Questions like those of `learn`, or of one of the arrays in `sets`, which outlive it; NULL: none. */
MUST_CHECK enum err_code tune_questions_open(struct tune_questions *q, const json_t *learn, const json_t *sets,
                                             struct err *e);
/* The words of what the model wrote. */
MUST_CHECK enum err_code tune_questions_words(struct tune_questions *q, const int32_t *token, int64_t n_tokens,
                                              struct err *e);
/* Question number `number`: a given one as it is, or one of the sources with other words. ERR_UNSUPPORTED: the model
 * has no chat template. */
MUST_CHECK enum err_code tune_questions_make(struct tune_questions *q, int64_t number, const json_t *given,
                                             struct err *e);
/* Which source the newest one is of: 0 what is learnt, if there is any. */
int tune_questions_source(const struct tune_questions *q);
void tune_questions_close(struct tune_questions *q);
#endif
