/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h - inside chimere-draft-train: what adapters learn from.                room: cmd */
#ifndef DRAFT_TRAIN_LORA_H
#define DRAFT_TRAIN_LORA_H
#include "draft-train/program.h"

struct adapter;
struct gguf;
struct grad;
struct grad_soft;
struct tune_lora;

struct train_item {
    struct text_tokens token;
    int32_t *target;        /* [token.n] the next token of the answer, whose rows are the last but one; -1: given */
    int n_answer;           /* rows with a target */
    struct grad_soft *said; /* [n_answer] what the model says there; NULL: the answer is what counts */
    int set; /* of the task sets, from 0 on; of what it wrote 0: a text from nothing, else kinds of questions */
};
struct train_items {
    struct train_item *v;  /* [n] */
    int64_t n, cap, n_out; /* left out: too long, empty, or an answer that is no text */
    char **set_name;       /* [n_set] of task sets: "facts"; NULL: one set without a name */
    int n_set;
    json_t *chats, *open; /* arrays of {messages, tools}: questions with and without an answer; NULL: none */
    json_t *sets;         /* of task sets such an array of each; NULL: none */
};
/* Adds what is in files of JSON lines: {"prompt", "answer"}, {"messages", "answer"}, {"messages"} with the assistant's last,
 * or {"text"}, which counts whole; with `open` also questions without an answer. ERR_FORMAT: file, line and what is
 * wrong. */
MUST_CHECK enum err_code cli_train_items(struct train_items *to, const struct text *text, int64_t tokens_max, bool open,
                                         const char *const *files, size_t n, struct err *e);
/* To `to`, which is empty, at most `most` items of the task sets that came with the program, spread over them, each with its
 * set; none where the sets are not there or the model has no chat template. */
MUST_CHECK enum err_code cli_train_item_sets(struct train_items *to, int64_t most, const struct text *text,
                                             int64_t tokens_max, struct err *e);
/* Moves one of `every` items to `out`, which is empty, at most `most`, spread evenly. */
MUST_CHECK enum err_code cli_train_items_split(struct train_items *s, struct train_items *out, int64_t every,
                                               int64_t most, struct err *e);
/* Of items that are the same one stays. *n_gone: how many go. */
MUST_CHECK enum err_code cli_train_items_once(struct train_items *s, int64_t *n_gone, struct err *e);
/* At most n items stay, spread evenly. */
void cli_train_items_thin(struct train_items *s, int64_t n);
/* How many items of a are also in b; 0 if memory is short. */
int64_t cli_train_items_same(const struct train_items *a, const struct train_items *b);
void cli_train_item_free(struct train_item *i);
void cli_train_items_free(struct train_items *s);
/* Takes the tokens; the first n_prompt of them are given. */
MUST_CHECK enum err_code cli_train_items_add(struct train_items *s, struct text_tokens token, int64_t n_prompt,
                                             int64_t tokens_max, struct err *e);

/* What a training begins with. */
struct train_begin {
    struct adapter *old;               /* the file of --out; NULL: there is none */
    struct tune_lora *champion, *lora; /* of old, what serves; what learns, with its numbers or new */
    bool fresh;                        /* lora is new */
};
/* ERR_ARG: a shape is asked for that the old one has not; else what adapter_open() and tune_lora_new() say. To be closed in
 * any case, before g. */
MUST_CHECK enum err_code cli_train_begin(struct train_begin *b, const struct train_options *o, const struct cli *cli,
                                         const struct gguf *model, struct grad *g, struct err *e);
void cli_train_begin_close(struct train_begin *b);

/* What the model writes itself. */
enum {
    TRAIN_OWN_TEXT = 128,
    TRAIN_OWN_ANSWER = 128,
    TRAIN_OWN_ASKED = 384
}; /* tokens at most; the last: of a given question */
struct train_own {
    const struct adapter *adapter;     /* with which it writes; NULL: none */
    const struct train_items *learn;   /* its questions are like these, */
    const json_t *sets;                /* or like those of one of these arrays; NULL: none */
    const json_t *known;               /* questions that it answers as they are; NULL: none */
    int64_t n_texts, n_answers;        /* texts from nothing, answers to questions of its own, at most */
    int64_t tokens_max;                /* of a question and its answer */
    int64_t room_bytes;                /* for all its sequences; on a GPU for all but one */
    double time_s;                     /* for texts, and again for answers, at most */
    struct train_items *own, *answers; /* joined by what it wrote, and by answers to `known`; what it says there is
                                                not noted yet */
};
/* A function of model, adapter, seed and questions where there was time for all. ERR_CANCEL after ^C. */
MUST_CHECK enum err_code cli_train_own(const struct train_own *to, const struct train_options *o,
                                       const struct text *text, struct err *e);
#endif
