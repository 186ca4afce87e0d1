/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h - inside chimere-draft-train: what adapters learn from.                room: cmd (cli_) */
#ifndef DRAFT_TRAIN_LORA_H
#define DRAFT_TRAIN_LORA_H
#include "draft-train/program.h"

struct train_item {
    struct text_tokens token;
    int32_t           *target;   /* [token.n] the next token of the answer; -1: given */
    int                n_answer; /* rows with a target */
};
struct train_items {
    struct train_item *v; /* [n] */
    int64_t            n, cap, n_out; /* left out: too long, empty, or an answer that is no text */
};
/* Adds what is in files of JSON lines: {"prompt", "answer"}, {"messages", "answer"}, {"messages"} with the assistant's last,
 * or {"text"}, which counts whole. ERR_FORMAT: file, line and what is wrong. */
MUST_CHECK enum err_code cli_train_items(struct train_items *to, const struct text *text, int64_t tokens_max,
                                         const char *const *files, size_t n, struct err *e);
/* Those of the task sets that came with the program; none where they are not there. */
MUST_CHECK enum err_code cli_train_item_sets(struct train_items *to, const struct text *text, int64_t tokens_max,
                                             struct err *e);
/* Moves every n-th item to `out`, which is empty, at most `most`. */
MUST_CHECK enum err_code cli_train_items_split(struct train_items *s, struct train_items *out, int64_t every, int64_t most,
                                               struct err *e);
void cli_train_items_free(struct train_items *s);
#endif
