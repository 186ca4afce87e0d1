/* SPDX-License-Identifier: Apache-2.0 */
/* progress.c - a line that comes and goes on a terminal.                   room: cmd */
#include <stdarg.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/cli.h"

#define EVERY_MS   100.0 /* ten times a second at most */
#define WAIT_MS    300.0 /* what is done sooner needs no line */
#define LINE_BYTES 256

static volatile sig_atomic_t shown, waiting;
static double last_ms;
/* The line to show if a wait takes too long. It is formatted beforehand, because the timer's handler may only write(2).
 */
static char line[LINE_BYTES];
static size_t line_bytes;

static const char clear_line[] = "\r\033[K";

/* One that cannot clear a line gets none. */
static bool foreground_terminal(void)
{
    return isatty(STDERR_FILENO) && !cli_dumb_terminal() && tcgetpgrp(STDERR_FILENO) == getpgrp();
}

bool cli_dumb_terminal(void)
{
    const char *term = getenv("TERM");

    return term == NULL || *term == '\0' || strcmp(term, "dumb") == 0;
}

bool cli_stderr_color(void)
{
    const char *no = getenv("NO_COLOR");

    return isatty(STDERR_FILENO) && !cli_dumb_terminal() && (no == NULL || no[0] == '\0');
}

static void on_timer(int sig)
{
    ssize_t n;

    (void)sig;
    if (!waiting)
        return;
    n = write(STDERR_FILENO, line, line_bytes);
    (void)n;
    waiting = 0;
    shown = 1;
}

/* Calls on_timer() once, in WAIT_MS. */
static void start_timer(void)
{
    struct sigaction sa = { 0 };
    const struct itimerval wait = { .it_value = { .tv_usec = (suseconds_t)(WAIT_MS * 1e3) } };

    sa.sa_handler = on_timer;
    sa.sa_flags = SA_RESTART;
    sigemptyset(&sa.sa_mask);
    if (sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &wait, NULL) == 0)
        waiting = 1;
}

/* How much of a text fits: whole fields, if the first one does. */
static size_t fitting_bytes(const char *text, size_t bytes, size_t columns)
{
    if (bytes <= columns)
        return bytes;
    for (size_t n = columns; n > 0; n--)
        if (text[n] == ',' && text[n + 1] == ' ')
            return n;
    return columns;
}

/* The line for a terminal, of its width at most. */
static void make_line(const char *fmt, va_list ap)
{
    const size_t columns = (size_t)cli_width(STDERR_FILENO) - 1;
    const size_t n = sizeof clear_line - 1;
    int used;

    memcpy(line, clear_line, n);
    used = vsnprintf(line + n, sizeof line - n, fmt, ap);
    if (used < 0)
        used = 0;
    if ((size_t)used > sizeof line - n - 1)
        used = (int)(sizeof line - n - 1);
    line_bytes = n + fitting_bytes(line + n, (size_t)used, columns);
}

static void show_line(const char *fmt, va_list ap)
{
    double now = clock_ms();
    bool first = last_ms <= 0;

    if (cli_verbosity() < 0)
        return;
    if (first) /* the first call starts the wait */
        last_ms = now + WAIT_MS - EVERY_MS;
    else if (now - last_ms < EVERY_MS)
        return;
    else
        last_ms = now;
    if (!foreground_terminal())
        return;
    waiting = 0;
    make_line(fmt, ap);
    if (first) {
        start_timer();
        return;
    }
    fwrite(line, 1, line_bytes, stderr);
    fflush(stderr);
    shown = 1;
}

void cli_progress(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    show_line(fmt, ap);
    va_end(ap);
}

const char *cli_clock(double seconds, char buf[32])
{
    const long long s = seconds > 0 ? (long long)seconds : 0;

    if (s >= 3600)
        snprintf(buf, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buf, 32, "%lld:%02lld", s / 60, s % 60);
    return buf;
}

void cli_progress_count(const char *what, int64_t done, int64_t total, const char *unit)
{
    static const char *counted;
    static double from_ms;
    static int64_t from;
    double s, rate;
    char clock[32];

    if (last_ms <= 0 || counted != what || done < from) { /* another count */
        counted = what;
        from_ms = clock_ms();
        from = done;
    }
    s = (clock_ms() - from_ms) / 1e3;
    rate = s > 0 ? (double)(done - from) / s : 0;
    if (rate > 0)
        cli_progress("%s: %lld of %lld%s, %.1f/s, %s left", what, (long long)done, (long long)total, unit, rate,
                     cli_clock((double)(total - done) / rate, clock));
    else
        cli_progress("%s: %lld of %lld%s", what, (long long)done, (long long)total, unit);
}

void cli_progress_end(void)
{
    waiting = 0;
    if (shown) {
        fputs(clear_line, stderr);
        fflush(stderr);
    }
    shown = 0;
    last_ms = 0;
}
