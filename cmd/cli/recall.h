/* SPDX-License-Identifier: Apache-2.0 */
/* recall.h - an index of texts beside a model: notes for what a user says.   room: cmd */
#ifndef CLI_RECALL_H
#define CLI_RECALL_H
#include "cli/cli.h"
#include "recall/recall.h"

struct engram_recital;
struct gguf;
struct text_tokens;

enum { CLI_NOTES = 3 /* texts by default */, CLI_NOTES_MAX = 100 };

struct cli_notes {
    struct recall *r;
    const struct text *text; /* not owned */
    int n;                   /* texts at most */
};
/* arg: "FILE" or "FILE:n". ERR_FORMAT: not an index, or one of another tokenizer than g's. */
MUST_CHECK enum err_code cli_notes_open(struct cli_notes *x, const char *arg, const struct gguf *g,
                                        const struct text *text, struct err *e);
void cli_notes_close(struct cli_notes *x); /* {0} is allowed */
/* The first 2048 bytes of a text, whole characters: what a prompt has room for. */
struct str cli_notes_head(struct str s);
/* Puts the texts that share the rare words of the last message in front of it, if that is the user's. */
MUST_CHECK enum err_code cli_notes_add(const struct cli_notes *x, json_t *messages, struct err *e);
/* What follows the name in a text "NAME: WHAT" or "NAME - WHAT". The last message must be the user's and have the name, word
 * for word, without the rest; the text must have half of the message's rare words. {0}: there is none. Lives as long as x. */
MUST_CHECK enum err_code cli_notes_named(const struct cli_notes *x, const json_t *messages, struct str *out,
                                         struct err *e);
/* What a text says becomes a recital, but for where the answer begins; its tokens, which are kept in *tokens, are below n_vocab
 * or there is none: out->n 0. */
MUST_CHECK enum err_code cli_notes_recital(struct str what, const struct text *text, int32_t n_vocab,
                                           struct text_tokens *tokens, struct engram_recital *out, struct err *e);
/* ERR_FORMAT: the index was made with another tokenizer than g's. */
MUST_CHECK enum err_code cli_notes_check(const struct recall *r, const char *path, const struct gguf *g, struct err *e);
#endif
