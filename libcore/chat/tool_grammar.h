/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar.h - what a model may write where it calls a tool.                    room: chat */
#ifndef CHAT_TOOL_GRAMMAR_H
#define CHAT_TOOL_GRAMMAR_H
#include "base/base.h"
#include "base/json.h"

struct grammar;
struct grammar_vocab;

struct chat_tool_opts {
    const char *parser; /* a name of chat_reader_name() */
    const struct grammar_vocab *vocab;
    const json_t *tools; /* OpenAI's array */
    const char *choice;  /* "auto", "required", or the name of a tool */
    bool reasoning;      /* the prompt has opened the reasoning already */
    bool one;            /* one call at most */
    json_t *loose;       /* array: gets a line for each thing that auto does not hold to a schema; NULL: not wanted */
};
/* auto: free text, and a call once its opening mark is written after the reasoning. Others: after
 * the reasoning one call at least, then the end. Parameters come in the order of the schema.
 * *out = NULL: auto, and answers of the syntax have no calls. With auto, arguments that the grammar
 * cannot bind are free, and told in `loose`; else, and of a tool with "strict": true, ERR_UNSUPPORTED or ERR_LIMIT.
 * ERR_ARG: no such tool or parser. The place is a pointer into a body of OpenAI's interface:
 * "/tools/1/function/parameters/properties/x", "/tools" for all together. */
MUST_CHECK enum err_code chat_tool_grammar(struct grammar **out, const struct chat_tool_opts *o, struct err *e);
#endif
