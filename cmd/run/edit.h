/* SPDX-License-Identifier: Apache-2.0 */
/* edit.h - lines typed on a terminal: with editing and a history where libedit is built in, else as the terminal gives
 * them. The history is a file of lines (see cli_edit_open()); lines that begin with a blank are not kept, and pasted
 * text of several lines is kept only until the program ends. room: cmd */
#ifndef RUN_EDIT_H
#define RUN_EDIT_H
#include "base/base.h"

struct cli_buf;
struct cli_edit;

/* A command that Tab completes after its '/'. */
struct cli_edit_command {
    const char *name;       /* without the '/' */
    bool takes, takes_file; /* something behind it; the name of a file */
};
/* command[n_commands] stays the caller's, and is used until the editor is closed. The history is $CHIMERE_HISTORY
 * (empty: none), else $XDG_STATE_HOME/chimere/history, else ~/.local/state/chimere/history. One that cannot be read or
 * written is left out. */
MUST_CHECK enum err_code cli_edit_open(struct cli_edit **out, const struct cli_edit_command *command, int n_commands,
                                       struct err *e);
void cli_edit_close(struct cli_edit *x); /* NULL is allowed */

enum cli_typed { TYPED_LINE, TYPED_END, TYPED_SIGNAL };
/* *line, without newlines at its end, is valid until the next call. It has several lines where they were pasted.
 * TYPED_SIGNAL: cli_signal() tells which. */
enum cli_typed cli_edit_line(struct cli_edit *x, const char *prompt, const char **line);

/* editor.c: $VISUAL, else $EDITOR, else vi on a file with the text, and what was written to *text. After an error the
 * text is as it was, and the message names the file if something else stands there. ERR_IO: the editor did not start,
 * or failed. */
MUST_CHECK enum err_code cli_edit_text(struct cli_buf *text, struct err *e);
#endif
