/* SPDX-License-Identifier: Apache-2.0 */
/* chat.h - messages to a prompt by the model's own template.                    room: chat
 *
 * A template is Jinja, rendered as jinja2 3.1 does it in the environment of transformers:
 * trim_blocks, lstrip_blocks, loop controls, generation blocks, the immutable sandbox, tojson =
 * json.dumps(ensure_ascii=False), raise_exception and strftime_now. Templates are hostile input:
 * steps, depth, memory and output are bounded (ERR_LIMIT).
 *
 * Each byte of a rendered text came from the template or from the data. Control tokens are
 * recognised only where all of their bytes came from the template, so that what a user writes never
 * becomes one.
 *
 * A struct chat never changes after open and may be used by any number of threads.
 */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H
#include "base/base.h"
#include "base/json.h"

struct chat;
struct text;
struct text_marks;
struct text_tokens;

/* template_text: n == 0: the file's. t is not owned and lives longer than the chat. ERR_FORMAT
 * has the line and column in the template as its place; ERR_UNSUPPORTED: there is no template. */
MUST_CHECK enum err_code chat_open(struct chat **out, const struct text *t, struct str template_text, struct err *e);
void chat_close(struct chat *c);                /* NULL is allowed */
struct str chat_template(const struct chat *c); /* its text */

/* How answers are written: a name of chat_reader_name(), by default the one of chat_reader_find(). */
const char *chat_parser(const struct chat *c);
/* Sets it, before the chat is used. ERR_ARG: there is none of this name. */
MUST_CHECK enum err_code chat_set_parser(struct chat *c, const char *parser, struct err *e);
/* The marks of reasoning in these answers; they live as long as the chat. NULL: answers have no reasoning. */
const struct text_marks *chat_marks(const struct chat *c);
/* The same and the marks of calls of tools, for answers that may have some. NULL: answers have neither. */
const struct text_marks *chat_marks_with_calls(const struct chat *c);
/* The marks of reasoning of any parser, for a vocabulary. ERR_ARG: there is none of this name. */
MUST_CHECK enum err_code chat_marks_of(struct text_marks *out, const char *parser, const struct text *t, struct err *e);
/* Ends the reasoning that tokens of a conversation break off in, if they do. */
MUST_CHECK enum err_code chat_close_reasoning(const struct chat *c, struct text_tokens *v, struct err *e);

struct chat_prompt {
    const json_t *messages;  /* OpenAI's: role, content, tool_calls, reasoning_content ... */
    const json_t *tools;     /* array, or NULL */
    const json_t *documents; /* array, or NULL */
    /* More variables of the template, as "enable_thinking": an object, or NULL. They override those
     * that are set otherwise; "messages" and "tools" are ERR_ARG. */
    const json_t *extra;
    struct text_memo *memo; /* of earlier prompts (text/text.h); NULL: none */
    bool generate;          /* the prompt ends where an answer begins */
    bool continues;         /* the last message, the assistant's, goes on: the prompt ends with its text */
    bool closes;            /* reasoning that the template opens at the end is closed there */
    bool follows;           /* the messages follow an answer that was given: only what comes after its text is
                     made */
    int64_t now_s;          /* the date that strftime_now sees: seconds since 1970 in local time */
};
/* Appends the tokens of the prompt to *out. *thinking: an answer begins inside reasoning, as the
 * end of the prompt says. Arguments of tool calls may be strings of JSON, "" and null mean none.
 * ERR_FORMAT: what is wrong with the template or a message; ERR_UNSUPPORTED: images, sound, or messages that follow an
 * answer with a template that does not show it. The place is a pointer into a body of OpenAI's interface,
 * "/messages/3/tool_calls/0/function/arguments" or "/chat_template_kwargs"; if a template fails and the message is not
 * known, its line and column. On failure *out is as before. */
MUST_CHECK enum err_code chat_render(const struct chat *c, const struct chat_prompt *p, struct text_tokens *out,
                                     bool *thinking, struct err *e);
/* The same as text: malloc'ed, NUL-terminated. */
MUST_CHECK enum err_code chat_render_text(const struct chat *c, const struct chat_prompt *p, char **out, size_t *n,
                                          struct err *e);

/* Positions in a prompt at which messages begin, and the answer: ascending, at most max are
 * written, the last ones when there are more. Returns how many. */
int chat_borders(const struct chat *c, const int32_t *token, int64_t n, int64_t *at, int max);
/* A template without a model: vars is a JSON object, the variables that the template sees,
 * unchanged; integers of any size. *out is malloc'ed, NUL-terminated. ERR_FORMAT: the
 * place is the line and column in the template or in vars, as the message says, or "/messages/3" in vars. */
MUST_CHECK enum err_code chat_template_render(struct str template_text, struct str vars, int64_t now_s, char **out,
                                              size_t *n, struct err *e);
#endif
