/* SPDX-License-Identifier: Apache-2.0 */
/* conversation.h - a conversation in a file: what a prompt adds to it, what it saves.      room: cmd
 *
 * Beside the state of the model (run/session.h) the file has the tokens that were chosen but not yet evaluated,
 * and whether it is a chat. A prompt is either whole (--messages, --tokens): what it shares with the session is
 * not evaluated again; or it goes on from the session: see cli_session_prefix(). */
#ifndef RUN_CONVERSATION_H
#define RUN_CONVERSATION_H
#include "cli/adapters.h"
#include "cli/cli.h"
#include "run/run.h"
#include "text/text.h"

struct chat;
struct run_session;

struct cli_session {
    struct run_session *file; /* NULL: no --session */
    const char *path;
    struct text_tokens held; /* what it had when it was opened, tokens that wait included */
    bool begun;              /* it had something */
    uint64_t system;         /* a hash of the system message that it began with; 0: none */
    char answer[64];         /* id of its last answer in the log; "": it has none there */
    int64_t n_answer;        /* tokens up to the end of that */
    bool shared;             /* --session-ro: it is only read */
    bool chat;
    bool loaded;
    struct run_match match;
};

MUST_CHECK enum err_code cli_session_open(struct cli_session *s, const char *path, bool shared, struct err *e);
void cli_session_close(struct cli_session *s);

/* The system message of a session that begins, NULL: none; and whether it is the one of a session that has begun. */
void cli_session_set_system(struct cli_session *s, const char *text);
bool cli_session_same_system(const struct cli_session *s, const char *text);
/* ERR_ARG when one that has begun is a chat and the prompt is not, or the other way round. */
MUST_CHECK enum err_code cli_session_same_kind(const struct cli_session *s, bool chat, struct err *e);
/* For a prompt that goes on: the session's tokens to *prompt, and the end of reasoning that a chat broke off in.
 * ERR_ARG as from that. */
MUST_CHECK enum err_code cli_session_prefix(const struct cli_session *s, bool chat, const struct chat *format,
                                            struct text_tokens *prompt, struct err *e);
/* Types of keys and values to open the run with, when the session has some. */
void cli_session_kv(const struct cli_session *s, const char **k, const char **v);
/* The run holds as much of the prompt as the session can give, but not its last n_logits tokens. */
MUST_CHECK enum err_code cli_session_load(struct cli_session *s, struct run *r, uint64_t tokenizer, const char *model,
                                          const struct cli_adapters *adapters, const struct text_tokens *prompt,
                                          int64_t n_logits, struct err *e);
/* chosen: tokens of the answer, those at its end perhaps not evaluated. Does nothing for a session that is only read.
 */
MUST_CHECK enum err_code cli_session_save(struct cli_session *s, struct run *r, bool chat,
                                          const struct text_tokens *chosen, int64_t prompt_tokens, struct err *e);

/* What the session gave: counts, and the first difference with the text around it. */
json_t *cli_session_json(const struct cli_session *s, const struct text *t, const struct text_tokens *prompt);
void cli_session_note(const struct cli_session *s, const struct text *t, const struct text_tokens *prompt);
#endif
