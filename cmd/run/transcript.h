/* SPDX-License-Identifier: Apache-2.0 */
/* transcript.h - the tokens of a conversation, back to messages.              room: cmd
 *
 * What a template writes around a message of each role is learned from the template itself, by rendering a small
 * conversation; where messages begin in a long one, chat_borders() knows. What belongs to no message that was learned
 * (a token in front of the text, calls and results of tools in some templates) has no role. */
#ifndef RUN_TRANSCRIPT_H
#define RUN_TRANSCRIPT_H
#include "base/base.h"
#include "base/json.h"

struct chat;
struct text;
struct text_tokens;

struct cli_transcript {
    json_t *messages; /* array: {"role", "content"}, of the assistant perhaps "reasoning_content" */
    int64_t *from;    /* [messages] the place of each in the tokens: where what is before it has its last message's text
                       * end */
};
/* ERR_UNSUPPORTED: the template does not show where messages are. */
MUST_CHECK enum err_code cli_transcript_read(struct cli_transcript *out, const struct chat *format,
                                             const struct text *t, const struct text_tokens *v, struct err *e);
void cli_transcript_free(struct cli_transcript *x);
/* The index of the last message of a role; -1: there is none. */
int cli_transcript_last(const struct cli_transcript *x, const char *role);
/* Takes out the oldest message of the user and what follows it, up to the next one of the user; false: only one is
 * left. */
bool cli_transcript_drop(json_t *messages);
/* The messages for people to read, on stdout. */
void cli_transcript_print(const json_t *messages);
#endif
