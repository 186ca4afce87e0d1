/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c - standard output and error, which wait for their reader, but after a signal not for one that has stopped
 * reading. A pipe that another program has made non-blocking is waited for as any other.             room: cmd */
#define _GNU_SOURCE /* fopencookie() */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "cli/cli.h"

enum { BUFFER_BYTES = 1 << 16 };
#define LOOK_MS     50    /* between looks for a signal */
#define PATIENCE_MS 200.0 /* for a reader after a signal */

static FILE *terminal_out, *terminal_err;
static int output_failed; /* errno of the first write to stdout that failed */

int cli_stdout_errno(void)
{
    return output_failed != 0 ? output_failed : EIO;
}

/* Whoever asks may come long after the write: other calls have changed errno since. */
static void note_failure(int fd)
{
    if (fd == STDOUT_FILENO && output_failed == 0)
        output_failed = errno;
}

/* Waits until something can be written; false: a signal came, and nobody reads. */
static bool wait_for_reader(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    double from_ms = -1;

    while (poll(&p, 1, LOOK_MS) <= 0) {
        if (!cli_interrupted())
            continue;
        if (from_ms < 0)
            from_ms = clock_ms();
        if (clock_ms() - from_ms > PATIENCE_MS)
            return false;
    }
    return true;
}

static ssize_t write_all(void *of, const char *p, size_t n)
{
    const int fd = (int)(intptr_t)of;
    size_t done = 0;

    while (done < n) {
        /* When a pipe can be written, PIPE_BUF bytes do not block. */
        const size_t left = n - done, some = cli_interrupted() && left > PIPE_BUF ? PIPE_BUF : left;
        ssize_t w;

        if (!wait_for_reader(fd)) {
            errno = EINTR;
            break;
        }
        w = write(fd, p + done, some);
        if (w < 0 && errno != EINTR && errno != EAGAIN)
            break;
        done += w > 0 ? (size_t)w : 0;
    }
    if (done < n)
        note_failure(fd);
    return (ssize_t)done;
}

static int close_stream(void *of)
{
    const int fd = (int)(intptr_t)of, failed = close(fd);

    if (failed != 0)
        note_failure(fd);
    return failed;
}

static void replace_stream(FILE **stream, int fd, int mode, FILE **was)
{
    static char buffers[2][BUFFER_BYTES];
    FILE *f =
        fopencookie((void *)(intptr_t)fd, "w", (cookie_io_functions_t){ .write = write_all, .close = close_stream });

    *was = *stream;
    if (f == NULL || setvbuf(f, buffers[fd - 1], mode, BUFFER_BYTES) != 0)
        cli_exit_nomem();
    *stream = f;
}

void cli_open_streams(void)
{
    replace_stream(&stderr, STDERR_FILENO, _IOLBF, &terminal_err);
    replace_stream(&stdout, STDOUT_FILENO, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, &terminal_out);
}

FILE *cli_terminal(int fd)
{
    return fd == STDERR_FILENO ? terminal_err : terminal_out;
}
