/* SPDX-License-Identifier: Apache-2.0 */
/* aside.h - a thread that serves sockets while the engine's thread is busy elsewhere.        room: cmd
 *
 * One lock is around everything that turns of the loop touch. The engine's thread holds it but for the time in which a
 * model is loaded or a step runs: meanwhile the other thread takes turns when a socket has something. So only one of
 * both is in there, and neither waits for the other longer than a turn takes.
 */
#ifndef SERVE_STDIO_ASIDE_H
#define SERVE_STDIO_ASIDE_H
#include "base/base.h"

struct cli_aside;
/* fd: readable when there is something to do. turn: called with the lock; returns the milliseconds after which it is to
 * be called again anyway. The caller has left. */
MUST_CHECK enum err_code cli_aside_open(struct cli_aside **out, int fd, int (*turn)(void *of), void *of, struct err *e);
void cli_aside_leave(struct cli_aside *a); /* the engine's thread goes elsewhere */
void cli_aside_return(struct cli_aside *a);
void cli_aside_close(struct cli_aside *a); /* by the engine's thread, when it has returned; NULL is allowed */
#endif
