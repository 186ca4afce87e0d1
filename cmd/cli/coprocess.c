/* SPDX-License-Identifier: Apache-2.0 */
/* coprocess.c - a program beside ours that answers lines (coprocess.h).           room: cmd */
#define _GNU_SOURCE /* pipe2 */
#include "cli/coprocess.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/lines.h"

enum {
    LINE_MAX_BYTES = 1 << 20, /* of what it writes */
    END_MS = 300,             /* for its own end, once its standard input is closed */
};

struct cli_coprocess {
    struct cli_coprocess_opts o;
    char *words, **argv; /* of the command; argv points into words */
    pid_t pid;           /* and its process group; 0: none */
    int in;              /* its standard input; -1: closed */
    struct cli_lines out;
    int64_t n; /* the line whose answer is waited for, from 1 */
};

/* Words between blanks; quotes keep blanks. No shell sees them. */
static enum err_code split_words(struct cli_coprocess *c, const char *command, struct err *e)
{
    char *to, quote = 0;
    bool in_word = false;
    size_t n = 0;

    c->words = to = malloc(strlen(command) + 1);
    c->argv = calloc(strlen(command) / 2 + 2, sizeof *c->argv);
    if (c->words == NULL || c->argv == NULL)
        return err_nomem(e);
    for (; *command != '\0'; command++) {
        const bool blank = quote == 0 && strchr(" \t\r\n", *command) != NULL;

        if (blank && in_word)
            *to++ = '\0';
        if (!blank && !in_word)
            c->argv[n++] = to;
        in_word = !blank;
        if (*command == quote || (quote == 0 && (*command == '"' || *command == '\'')))
            quote = quote ? 0 : *command;
        else if (!blank)
            *to++ = *command;
    }
    *to = '\0';
    if (quote != 0)
        return err_set(e, ERR_ARG, "%s: a quote is not closed", c->o.name);
    return n > 0 ? ERR_OK : err_set(e, ERR_ARG, "%s: the command is empty", c->o.name);
}

static int spawn(struct cli_coprocess *c, int in, int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, pipe_only;
    int why = posix_spawn_file_actions_init(&files);

    if (why != 0)
        return why;
    why = posix_spawnattr_init(&attr);
    if (why == 0) {
        sigemptyset(&none);
        sigemptyset(&pipe_only);
        sigaddset(&pipe_only, SIGPIPE);
        (void)posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        (void)posix_spawnattr_setsigmask(&attr, &none);
        (void)posix_spawnattr_setsigdefault(&attr, &pipe_only);
        why = posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
        if (why == 0)
            why = posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
        if (why == 0)
            why = posix_spawnp(&c->pid, c->argv[0], &files, &attr, c->argv, environ);
        c->pid = why == 0 ? c->pid : 0;
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return why;
}

static enum err_code start(struct cli_coprocess *c, struct err *e)
{
    int in[2], out[2], why;

    if (pipe2(in, O_CLOEXEC) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot make a pipe", c->o.name);
    c->in = in[1];
    if (pipe2(out, O_CLOEXEC) != 0) {
        why = errno;
        close(in[0]);
        return err_errno(e, ERR_IO, why, "%s: cannot make a pipe", c->o.name);
    }
    c->out.fd = out[0];
    why = spawn(c, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    if (why != 0)
        return err_errno(e, ERR_IO, why, "%s:%.100s: cannot start", c->o.name, c->argv[0]);
    if (fcntl(c->in, F_SETFL, O_NONBLOCK) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot set up a pipe", c->o.name);
    return ERR_OK;
}

enum err_code cli_coprocess_open(struct cli_coprocess **out, const char *command, const struct cli_coprocess_opts *o,
                                 struct err *e)
{
    struct cli_coprocess *c = calloc(1, sizeof *c);

    if (c == NULL)
        return err_nomem(e);
    c->in = c->out.fd = -1;
    c->out.line_max = LINE_MAX_BYTES;
    c->o = *o;
    if (split_words(c, command, e) || start(c, e)) {
        cli_coprocess_close(c);
        return e->code;
    }
    *out = c;
    return ERR_OK;
}

/* Waits for its end; false: it goes on. */
static bool has_ended(struct cli_coprocess *c, int wait_ms, int *status)
{
    const struct timespec step = { 0, 5000000 };
    const double until = clock_ms() + wait_ms;

    while (c->pid > 0) {
        const pid_t ended = waitpid(c->pid, status, WNOHANG);

        if (ended == c->pid || (ended < 0 && errno != EINTR)) {
            (void)kill(-c->pid, SIGKILL); /* what it has started */
            c->pid = 0;
            break;
        }
        if (clock_ms() >= until)
            return false;
        (void)nanosleep(&step, NULL);
    }
    return true;
}

void cli_coprocess_close(struct cli_coprocess *c)
{
    int status;

    if (c == NULL)
        return;
    if (c->in >= 0)
        close(c->in);
    if (!has_ended(c, END_MS, &status)) {
        (void)kill(-c->pid, SIGKILL);
        (void)has_ended(c, 10000, &status);
    }
    if (c->out.fd >= 0)
        close(c->out.fd);
    cli_lines_free(&c->out);
    free(c->words);
    free(c->argv);
    free(c);
}

/* It has closed a pipe: how it ended, or that it has not. */
static enum err_code say_end(struct cli_coprocess *c, const char *what, struct err *e)
{
    int status = 0;

    const bool ended = has_ended(c, END_MS, &status);

    if (!ended)
        (void)err_set(e, ERR_IO, "%s:%.100s: closed its %s", c->o.name, c->argv[0], what);
    else if (WIFSIGNALED(status))
        (void)err_set(e, ERR_IO, "%s:%.100s: ended by signal %d", c->o.name, c->argv[0], WTERMSIG(status));
    else
        (void)err_set(e, ERR_IO, "%s:%.100s: ended with status %d", c->o.name, c->argv[0], WEXITSTATUS(status));
    const struct err because = *e;

    return err_set(e, ERR_IO, "%s before %s %" PRId64 " had a %s", because.msg, c->o.asked, c->n, c->o.answer);
}

/* A write that finds no reader, and no signal for it. */
static ssize_t write_quietly(int fd, const char *p, size_t n)
{
    const struct timespec at_once = { 0, 0 };
    sigset_t pipe_only, before, pending;
    ssize_t done;
    int why;

    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
    done = write(fd, p, n);
    why = errno;
    if (done < 0 && why == EPIPE && sigismember(&pending, SIGPIPE) == 0)
        while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR)
            ;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = why;
    return done;
}

/* One line, or the reason why there is none. *line is valid until the next call. */
static enum err_code take_line(struct cli_coprocess *c, bool *have, struct str *line, struct err *e)
{
    const enum cli_line kind = cli_lines_next(&c->out, line);

    if (kind == CLI_LINE_NO_MEMORY)
        return err_nomem(e);
    if (kind == CLI_LINE_TOO_LONG)
        return err_set(e, c->o.bad, "%s:%.100s: a line of more than %d bytes for %s %" PRId64, c->o.name, c->argv[0],
                       LINE_MAX_BYTES, c->o.asked, c->n);
    *have = kind == CLI_LINE;
    return ERR_OK;
}

/* Waits until it can be written to or read from, and writes some of *text. After an interrupt what it has said by then
 * is still heard. */
static enum err_code wait_for(struct cli_coprocess *c, struct str *text, double until, struct err *e)
{
    const bool stop = c->o.stop != NULL ? c->o.stop() : cli_interrupted();
    struct pollfd p[2] = { { .fd = c->out.fd, .events = POLLIN },
                           { .fd = text->n > 0 && !stop ? c->in : -1, .events = POLLOUT } };
    const double left = until - clock_ms();

    if (stop && (poll(p, 1, 0) <= 0 || (p[0].revents & POLLIN) == 0))
        return err_set(e, ERR_CANCEL, "interrupted");
    if (left <= 0)
        return err_set(e, ERR_LIMIT, "%s:%.100s: no %s of %s %" PRId64 " after %d s (%s)", c->o.name, c->argv[0],
                       c->o.answer, c->o.asked, c->n, (int)c->o.seconds, c->o.option);
    if (poll(p, 2, (int)(left < 100 ? left + 1 : 100)) < 0 && errno != EINTR)
        return err_errno(e, ERR_IO, errno, "%s:%.100s: cannot wait for it", c->o.name, c->argv[0]);
    if (p[1].revents != 0) {
        const ssize_t n = write_quietly(c->in, text->p, text->n);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return say_end(c, "standard input", e);
        *text = n > 0 ? (struct str){ text->p + n, text->n - (size_t)n } : *text;
    }
    return p[0].revents != 0 ? cli_lines_read(&c->out, 0, e) : ERR_OK;
}

enum err_code cli_coprocess_ask(struct cli_coprocess *c, struct str text, int n, cli_coprocess_fn *fn, void *ctx,
                                struct err *e)
{
    double until = clock_ms() + 1000.0 * c->o.seconds;
    struct str line;
    bool have = false;

    c->n++;
    if (cli_lines_read(&c->out, 0, e) || take_line(c, &have, &line, e))
        return e->code;
    if (have)
        return err_set(e, c->o.bad, "%s:%.100s: a line before it got %s %" PRId64, c->o.name, c->argv[0], c->o.asked,
                       c->n);
    for (int i = 0; i < n;) {
        if (wait_for(c, &text, until, e))
            return e->code;
        for (have = true; have && i < n;) {
            if (take_line(c, &have, &line, e))
                return e->code;
            if (!have)
                break;
            if (i == n - 1 && text.n > 0)
                return err_set(e, c->o.bad, "%s:%.100s: a %s before %s %" PRId64 " was read", c->o.name, c->argv[0],
                               c->o.answer, c->o.asked, c->n);
            if (fn(ctx, i, line, e))
                return err_wrap(e, "%s:%.100s: %s %" PRId64, c->o.name, c->argv[0], c->o.asked, c->n);
            until = clock_ms() + 1000.0 * c->o.seconds;
            c->n += ++i < n;
        }
        if (i < n && c->out.eof)
            return say_end(c, "standard output", e);
    }
    return ERR_OK;
}
