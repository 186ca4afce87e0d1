/* SPDX-License-Identifier: Apache-2.0 */
/* recall.h - an index of texts beside a model: notes for what a user says.   room: cmd */
#ifndef CLI_RECALL_H
#define CLI_RECALL_H
#include "ask/ask.h"
#include "cli/cli.h"
#include "recall/recall.h"

struct gguf;

enum { CLI_NOTES = 3 /* texts by default */, CLI_NOTES_MAX = 100 };

struct cli_notes {
    char path[4096];
    struct recall *r;
    const struct text *text; /* not owned */
    int n;                   /* texts at most */
    struct ask_index index;  /* for questions; valid as long as x stays where it is */
};
/* What index does: notes are the texts that share the rare words of the last message, if that is the user's. A text is
 * recited if it is "NAME: WHAT" or "NAME - WHAT", and that message has the name, word for word, without the rest, and
 * half of its rare words are in the text. */
/* arg: "FILE" or "FILE:n". ERR_FORMAT: not an index, or one of another tokenizer than g's. */
MUST_CHECK enum err_code cli_notes_open(struct cli_notes *x, const char *arg, const struct gguf *g,
                                        const struct text *text, struct err *e);
void cli_notes_close(struct cli_notes *x); /* {0} is allowed */

/* A text that answers questions on it (recall_answer()). */
struct cli_document {
    char *own; /* the text of a file; NULL: it is another's */
    struct str said;
    const char *source;      /* its name in reports */
    const struct text *text; /* not owned */
    struct ask_index index;  /* for questions; valid as long as x stays where it is */
};
/* file: "-" is stdin; again: only a regular file. ERR_FORMAT: it is empty, or no text; ERR_LIMIT: it has more than 256
 * MiB. */
MUST_CHECK enum err_code cli_document_open(struct cli_document *x, const char *file, bool again,
                                           const struct text *text, struct err *e);
void cli_document_close(struct cli_document *x); /* {0} is allowed */
/* The same of a text that outlives x. */
void cli_document_use(struct cli_document *x, struct str said, const char *source, const struct text *text);
/* The first 2048 bytes of a text, whole characters: what a prompt has room for. */
struct str cli_notes_head(struct str s);
/* Adds to o where a text comes from: file, line and heading, as far as they are known. False: memory is out. */
bool cli_origin_json(json_t *o, const struct recall *r, int64_t text);
/* ERR_FORMAT: the index was made with another tokenizer than g's. */
MUST_CHECK enum err_code cli_notes_check(const struct recall *r, const char *path, const struct gguf *g, struct err *e);
#endif
