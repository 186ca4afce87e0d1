/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - a line that comes and goes on a terminal.                   room: cmd (cli_) */
#include <stdarg.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "cli/cli.h"

#define EVERY_MS   100.0 /* ten times a second at most */
#define WAIT_MS    300.0 /* what is done sooner needs no line */
#define LINE_BYTES 78    /* fits a narrow terminal */

static bool   shown;
static double last_ms;

double cli_now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static bool foreground_terminal(void)
{
    return isatty(STDERR_FILENO) && tcgetpgrp(STDERR_FILENO) == getpgrp();
}

bool cli_stderr_color(void)
{
    const char *no = getenv("NO_COLOR");

    return isatty(STDERR_FILENO) && (no == NULL || no[0] == '\0');
}

void cli_progress(const char *fmt, ...)
{
    double  now = cli_now_ms();
    char    line[LINE_BYTES];
    va_list ap;

    if (cli_verbosity() < 0)
        return;
    if (last_ms <= 0) /* the first call starts the wait */
        last_ms = now + WAIT_MS - EVERY_MS;
    if (now - last_ms < EVERY_MS)
        return;
    last_ms = now;
    if (!foreground_terminal())
        return;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    fprintf(stderr, "\r\033[K%s", line);
    fflush(stderr);
    shown = true;
}

void cli_progress_end(void)
{
    if (shown) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    shown = false;
    last_ms = 0;
}
