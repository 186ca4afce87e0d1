/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - whether a text is one that a grammar allows, without a model.  room: cmd */
#ifndef RUN_CHECK_H
#define RUN_CHECK_H
#include "ask/ask.h"

/* Where a grammar comes from: one of the three. Paths; "-" is refused, the text comes from there. */
struct cli_grammar {
    const char *schema, *grammar; /* files: a JSON schema, GBNF */
    const char *regex;            /* the expression itself */
};

/* The form, read from there. {0} is none. */
struct cli_form {
    struct ask_form form;
    json_t *schema;
    char *text;
};
/* Messages begin with the file's name. */
MUST_CHECK enum err_code cli_form_read(struct cli_form *out, const struct cli_grammar *from, struct err *e);
void cli_form_free(struct cli_form *f);
/* Puts the file's name, or "--regex", before what is wrong with a form. */
void cli_form_fault(const struct cli_grammar *from, struct err *e);

/* --check: reads stdin to its end. EXIT_OK: the grammar allows all of it; EXIT_NO: it does not, and
 * a line says where it leaves the grammar; EXIT_DATA: the grammar is bad, beyond the limits included;
 * EXIT_FAILED: a file cannot be read, memory is out. */
int cli_check(const struct cli_grammar *from);
#endif
