/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the room share about a chat.                   room: chat */
#ifndef CHAT_INTERNAL_H
#define CHAT_INTERNAL_H
#include "chat/chat.h"
#include "text/marks.h"
#include "text/text.h"

enum { CHAT_OPENER_TOKENS = 8, CHAT_OPENERS_MAX = 8 };

/* Tokens that a message begins with; after: a message begins behind them. */
struct chat_opener {
    int32_t v[CHAT_OPENER_TOKENS];
    int n;
    bool after;
};
struct chat {
    const struct text *text;
    struct jinja *template;
    char *source;
    size_t source_bytes;
    const char *parser;
    struct text_marks marks;      /* of its reasoning; open.n 0: it has none */
    struct text_marks call_marks; /* the same, and those of calls; call[0].n 0: it has none */
    struct chat_opener opener[CHAT_OPENERS_MAX];
    int n_openers;
};

/* A rendered prompt. mark: for each byte whether the template wrote it. */
struct chat_text {
    char *p; /* NUL-terminated */
    unsigned char *mark;
    size_t n;
};
MUST_CHECK enum err_code chat_write(const struct chat *c, const struct chat_prompt *p, struct chat_text *out,
                                    struct err *e);
void chat_text_free(struct chat_text *t);
/* marks.c. Closes the reasoning that the prompt opens at its end, if it does. */
MUST_CHECK enum err_code chat_close_text(const struct chat *c, struct chat_text *t, struct err *e);

/* marks.c. Whether a prompt ends with the opening mark of reasoning; mark: which of its bytes the template wrote. */
bool chat_ends_inside(const struct chat *c, struct str prompt, const unsigned char *mark);

/* borders.c: a part of chat_open(). */
MUST_CHECK enum err_code chat_learn_borders(struct chat *c, struct err *e);
#endif
