/* SPDX-License-Identifier: Apache-2.0 */
/* request_tables.h - tables of n-grams that are made of a request's text.              room: cmd
 *
 * Those of the last requests are kept for a while: who goes on with a conversation sends its document again. Equal
 * texts have one table.
 */
#ifndef SERVE_STDIO_REQUEST_TABLES_H
#define SERVE_STDIO_REQUEST_TABLES_H
#include "cli/engram.h"

struct cli_request_tables;
struct cli_opened;

/* model: not owned, with its text. thinking: tables count in reasoning, too. bytes_max: of all tables together, where
 * more than one is used. */
MUST_CHECK enum err_code cli_request_tables_open(struct cli_request_tables **out, const struct cli_opened *model,
                                                 bool thinking, int64_t bytes_max, struct err *e);
void cli_request_tables_close(struct cli_request_tables *m); /* all are given back; NULL is allowed */

/* Whether a table of the text is there, or can be made beside those that are used: a bound from its length. */
bool cli_request_table_fits(void *made, struct str text);
/* Tables of `with`, NULL: none, and one of the text: *out is valid until *use is given back and while `with` is.
 * ERR_LIMIT: more than a MiB of text; ERR_ARG: too many tables. */
MUST_CHECK enum err_code cli_request_table(void *made, struct str text, const struct engram_mix *with,
                                           struct engram_mix *out, void **use, struct err *e);
/* What the text of a table says on questions. */
const struct ask_index *cli_request_table_document(void *use);
void cli_request_table_drop(void *made, void *use);
#endif
