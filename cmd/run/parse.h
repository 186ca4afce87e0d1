/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h - an answer on stdin, split as a family of models writes it.    room: cmd */
#ifndef RUN_PARSE_H
#define RUN_PARSE_H
#include "base/base.h"

struct cli_parse_opts {
    const char *format; /* a name of chat_reader_name(): "qwen3.5" */
    const char *tools;  /* a file of tools in OpenAI's form; NULL: none, and calls are text */
    bool reasoning;     /* the prompt has opened the reasoning already */
};
/* Prints one JSON object: chat_reader_result(). ERR_ARG: no such format. */
MUST_CHECK enum err_code cli_parse_answer(const struct cli_parse_opts *o, struct err *e);
#endif
