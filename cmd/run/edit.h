/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h - lines typed on a terminal: with editing and a history where libedit is built in, else as the terminal gives
 * them. The history is a file of lines (see cli_edit_open()); lines that begin with a blank are not kept. room: cmd */
#ifndef RUN_EDIT_H
#define RUN_EDIT_H
#include "base/base.h"

struct cli_edit;

/* The history is $CHIMERE_HISTORY (empty: none), else $XDG_STATE_HOME/chimere/history, else
 * ~/.local/state/chimere/history. One that cannot be read or written is left out. */
MUST_CHECK enum err_code cli_edit_open(struct cli_edit **out, struct err *e);
void cli_edit_close(struct cli_edit *x); /* NULL is allowed */

enum cli_typed { TYPED_LINE, TYPED_END, TYPED_SIGNAL };
/* *line, without its newline, is valid until the next call. TYPED_SIGNAL: cli_signal() tells which. */
enum cli_typed cli_edit_line(struct cli_edit *x, const char *prompt, const char **line);
#endif
