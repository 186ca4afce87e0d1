/* SPDX-License-Identifier: Apache-2.0 */
/* items.h - what adapters learn from: questions with answers, and texts.         room: tune */
#ifndef TUNE_ITEMS_H
#define TUNE_ITEMS_H
#include "base/json.h"
#include "grad/grad.h"
#include "text/text.h"

struct tune_item {
    struct text_tokens token;
    int32_t *target;        /* [token.n] the next token of the answer, whose rows are the last but one; -1: given */
    int n_answer;           /* rows with a target */
    struct grad_soft *said; /* [n_answer] what the model says there; NULL: the answer is what counts */
    int set;     /* of the task sets, from 0 on; of what it wrote 0: a text from nothing, else kinds of questions */
    bool thinks; /* the answer follows a thought, */
    bool has_thought;       /* which is not empty */
    bool is_text;           /* there is no question: nobody expects it to be known by heart */
    json_t *pair;           /* of a question that is one message, read with twins: {prompt, answer}; else NULL */
    struct tune_item *twin; /* the same question asked so that the model thinks; NULL: none, or it is an item itself */
};
struct tune_items {
    struct tune_item *v; /* [n] */
    size_t cap;
    int64_t n, n_out; /* left out: too long, empty, or an answer that is no text */
    char **set_name;  /* [n_set] of task sets: "facts"; NULL: one set without a name */
    int n_set;
    json_t *chats, *open; /* arrays of {messages, tools}: questions with and without an answer; NULL: none */
    json_t *sets;         /* of task sets such an array of each; NULL: none */
};

/* How lines become items. */
struct tune_reading {
    const struct text *text;
    int64_t tokens_max;              /* longer items are left out */
    int64_t now_s;                   /* for templates that name the day: chat_prompt.now_s */
    bool open;                       /* questions without an answer are welcome */
    bool twins;                      /* items without a thought get a twin with an empty one, where the model thinks */
    const struct progress *progress; /* told the bytes that were read; NULL: nobody */
};
/* Adds the lines of a file whose bytes are `all`: {"prompt", "answer"}, {"messages", "answer"}, {"messages"} with the
 * assistant's last, or {"text"}, which counts whole; in the others "learn": "answer" makes the thought a part of what
 * is given. ERR_FORMAT: path, line and what is wrong. */
MUST_CHECK enum err_code tune_items_read(struct tune_items *to, const struct tune_reading *how, const char *path,
                                         struct str all, struct err *e);
/* The same for a task set, which gets a number and this name. */
MUST_CHECK enum err_code tune_items_read_set(struct tune_items *to, const struct tune_reading *how, const char *name,
                                             const char *path, struct str all, struct err *e);
/* Adds an array of {"prompt", "answer"}, whose questions are not among the chats. */
MUST_CHECK enum err_code tune_items_add_pairs(struct tune_items *to, const struct tune_reading *how,
                                              const json_t *pairs, struct err *e);
/* An array of the items' pairs; NULL when memory is out. */
json_t *tune_items_pairs(const struct tune_items *s);
/* Takes the tokens; the first n_prompt of them are given. */
MUST_CHECK enum err_code tune_items_add(struct tune_items *s, struct text_tokens token, int64_t n_prompt,
                                        int64_t tokens_max, struct err *e);

/* All of `from` to the end of `to`. */
MUST_CHECK enum err_code tune_items_move(struct tune_items *to, struct tune_items *from, struct err *e);
/* Moves one of `every` items to `out`, which has none, at most `most`, spread evenly. */
MUST_CHECK enum err_code tune_items_split(struct tune_items *s, struct tune_items *out, int64_t every, int64_t most,
                                          struct err *e);
/* Of items that are the same one stays. *n_gone: how many go. */
MUST_CHECK enum err_code tune_items_once(struct tune_items *s, int64_t *n_gone, struct err *e);
/* Makes items of the twins, at the end. To be called when the items are split. */
MUST_CHECK enum err_code tune_items_part_twins(struct tune_items *s, struct err *e);
/* Each item with a twin is that or its twin from now on, by chance. */
void tune_items_choose_twins(struct tune_items *s, uint64_t seed);
/* At most n items stay, spread evenly: the first always, or, with `last`, the last. */
void tune_items_thin(struct tune_items *s, int64_t n, bool last);
/* Moves n items, spread evenly, to the beginning; the others follow in their order. */
MUST_CHECK enum err_code tune_items_front(struct tune_items *s, int64_t n, struct err *e);
void tune_items_drop_texts(struct tune_items *s);
/* Removes the items of a that are also in b. *n_gone: how many. */
MUST_CHECK enum err_code tune_items_drop(struct tune_items *a, const struct tune_items *b, int64_t *n_gone,
                                         struct err *e);
/* How many items of a are also in b; 0 if memory is short. */
int64_t tune_items_same(const struct tune_items *a, const struct tune_items *b);
int64_t tune_items_longest(const struct tune_items *s); /* tokens */
int64_t tune_items_tokens(const struct tune_items *s);
void tune_item_free(struct tune_item *i);
void tune_items_free(struct tune_items *s);
#endif
