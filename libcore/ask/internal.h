/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside of ask: the parts of a request, each made by a file.   room: ask */
#ifndef ASK_INTERNAL_H
#define ASK_INTERNAL_H
#include "ask/ask.h"

/* Whether the answer is to have no reasoning, whatever the template and the model do. */
bool ask_is_not_to_reason(const struct ask *a);
/* prompt.c: r->prompt, r->thinking, r->recital and its place in r->mix, the borders */
MUST_CHECK enum err_code ask_make_prompt(struct ask_request *r, const struct ask *a, const struct ask_model *m,
                                         struct err *e);
/* The tools that the model is offered; NULL: none. */
const json_t *ask_tools(const struct ask *a);
/* form.c: r->grammar, r->parser, r->tools, of a prompt that was made */
MUST_CHECK enum err_code ask_make_form(struct ask_request *r, const struct ask *a, const struct ask_model *m,
                                       const struct ask_request *like, struct err *e);
#endif
