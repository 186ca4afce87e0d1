/* SPDX-License-Identifier: Apache-2.0 */
/* verifier_command.c - a program that scores solutions, a line for each (verifier.h).     room: cmd */
#define _GNU_SOURCE /* pipe2 */
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
#include "cli/verifier.h"

enum {
    LINE_MAX_BYTES = 1 << 20, /* of what it writes */
    END_MS = 300,             /* for its own end, once its standard input is closed */
};

struct cli_judge {
    char *words, **argv; /* of the command; argv points into words */
    pid_t pid;           /* and its process group; 0: none */
    int in;              /* its standard input; -1: closed */
    struct cli_lines out;
    int32_t seconds;
    int64_t n; /* solutions so far */
};

/* Words between blanks; quotes keep blanks. No shell sees them. */
static enum err_code split_words(struct cli_judge *j, const char *command, struct err *e)
{
    char *to, quote = 0;
    bool in_word = false;
    size_t n = 0;

    j->words = to = malloc(strlen(command) + 1);
    j->argv = calloc(strlen(command) / 2 + 2, sizeof *j->argv);
    if (j->words == NULL || j->argv == NULL)
        return err_nomem(e);
    for (; *command != '\0'; command++) {
        const bool blank = quote == 0 && strchr(" \t\r\n", *command) != NULL;

        if (blank && in_word)
            *to++ = '\0';
        if (!blank && !in_word)
            j->argv[n++] = to;
        in_word = !blank;
        if (*command == quote || (quote == 0 && (*command == '"' || *command == '\'')))
            quote = quote ? 0 : *command;
        else if (!blank)
            *to++ = *command;
    }
    *to = '\0';
    if (quote != 0)
        return err_set(e, ERR_ARG, "cmd: a quote is not closed");
    return n > 0 ? ERR_OK : err_set(e, ERR_ARG, "cmd: the command is empty");
}

static int spawn(struct cli_judge *j, int in, int out)
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
            why = posix_spawnp(&j->pid, j->argv[0], &files, &attr, j->argv, environ);
        j->pid = why == 0 ? j->pid : 0;
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return why;
}

static enum err_code start(struct cli_judge *j, struct err *e)
{
    int in[2], out[2], why;

    if (pipe2(in, O_CLOEXEC) != 0)
        return err_errno(e, ERR_IO, errno, "cmd: cannot make a pipe");
    j->in = in[1];
    if (pipe2(out, O_CLOEXEC) != 0) {
        why = errno;
        close(in[0]);
        return err_errno(e, ERR_IO, why, "cmd: cannot make a pipe");
    }
    j->out.fd = out[0];
    why = spawn(j, in[0], out[1]);
    close(in[0]);
    close(out[1]);
    if (why != 0)
        return err_errno(e, ERR_IO, why, "cmd:%.100s: cannot start", j->argv[0]);
    if (fcntl(j->in, F_SETFL, O_NONBLOCK) != 0)
        return err_errno(e, ERR_IO, errno, "cmd: cannot set up a pipe");
    return ERR_OK;
}

enum err_code cli_judge_open(struct cli_judge **out, const char *command, int32_t seconds, struct err *e)
{
    struct cli_judge *j = calloc(1, sizeof *j);

    if (j == NULL)
        return err_nomem(e);
    j->in = j->out.fd = -1;
    j->out.line_max = LINE_MAX_BYTES;
    j->seconds = seconds;
    if (split_words(j, command, e) || start(j, e)) {
        cli_judge_close(j);
        return e->code;
    }
    *out = j;
    return ERR_OK;
}

/* Waits for its end; false: it goes on. */
static bool has_ended(struct cli_judge *j, int wait_ms, int *status)
{
    const struct timespec step = { 0, 5000000 };
    const double until = clock_ms() + wait_ms;

    while (j->pid > 0) {
        const pid_t ended = waitpid(j->pid, status, WNOHANG);

        if (ended == j->pid || (ended < 0 && errno != EINTR)) {
            (void)kill(-j->pid, SIGKILL); /* what it has started */
            j->pid = 0;
            break;
        }
        if (clock_ms() >= until)
            return false;
        (void)nanosleep(&step, NULL);
    }
    return true;
}

void cli_judge_close(struct cli_judge *j)
{
    int status;

    if (j == NULL)
        return;
    if (j->in >= 0)
        close(j->in);
    if (!has_ended(j, END_MS, &status)) {
        (void)kill(-j->pid, SIGKILL);
        (void)has_ended(j, 10000, &status);
    }
    if (j->out.fd >= 0)
        close(j->out.fd);
    cli_lines_free(&j->out);
    free(j->words);
    free(j->argv);
    free(j);
}

/* It has closed a pipe: how it ended, or that it has not. */
static enum err_code say_end(struct cli_judge *j, const char *what, struct err *e)
{
    int status = 0;

    if (!has_ended(j, END_MS, &status))
        return err_set(e, ERR_IO, "cmd:%.100s: closed its %s before solution %" PRId64 " had a score", j->argv[0], what,
                       j->n);
    if (WIFSIGNALED(status))
        return err_set(e, ERR_IO, "cmd:%.100s: ended by signal %d before solution %" PRId64 " had a score", j->argv[0],
                       WTERMSIG(status), j->n);
    return err_set(e, ERR_IO, "cmd:%.100s: ended with status %d before solution %" PRId64 " had a score", j->argv[0],
                   WEXITSTATUS(status), j->n);
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
static enum err_code take_line(struct cli_judge *j, bool *have, struct str *line, struct err *e)
{
    const enum cli_line kind = cli_lines_next(&j->out, line);

    if (kind == CLI_LINE_NO_MEMORY)
        return err_nomem(e);
    if (kind == CLI_LINE_TOO_LONG)
        return err_set(e, ERR_FORMAT, "cmd:%.100s: a line of more than %d bytes for solution %" PRId64, j->argv[0],
                       LINE_MAX_BYTES, j->n);
    *have = kind == CLI_LINE;
    return ERR_OK;
}

/* Writes the solution and reads a line, whichever is possible. */
static enum err_code exchange(struct cli_judge *j, struct str text, struct str *line, struct err *e)
{
    const double until = clock_ms() + 1000.0 * j->seconds;
    bool have = false;

    while (!have || text.n > 0) {
        struct pollfd p[2] = { { .fd = j->out.fd, .events = POLLIN },
                               { .fd = text.n > 0 ? j->in : -1, .events = POLLOUT } };
        const double left = until - clock_ms();

        if (cli_interrupted())
            return err_set(e, ERR_CANCEL, "interrupted");
        if (left <= 0)
            return err_set(e, ERR_LIMIT, "cmd:%.100s: no score of solution %" PRId64 " after %d s (--verifier-time)",
                           j->argv[0], j->n, (int)j->seconds);
        if (have)
            return err_set(e, ERR_FORMAT, "cmd:%.100s: a score before solution %" PRId64 " was read", j->argv[0], j->n);
        if (poll(p, 2, (int)(left < 100 ? left + 1 : 100)) < 0 && errno != EINTR)
            return err_errno(e, ERR_IO, errno, "cmd:%.100s: cannot wait for it", j->argv[0]);
        if (p[1].revents != 0) {
            const ssize_t n = write_quietly(j->in, text.p, text.n);

            if (n < 0 && errno != EAGAIN && errno != EINTR)
                return say_end(j, "standard input", e);
            text = n > 0 ? (struct str){ text.p + n, text.n - (size_t)n } : text;
        }
        if (p[0].revents != 0 && cli_lines_read(&j->out, 0, e))
            return e->code;
        if (take_line(j, &have, line, e))
            return e->code;
        if (!have && j->out.eof)
            return say_end(j, "standard output", e);
    }
    return ERR_OK;
}

/* {"problem", "steps", "answer"} and a newline; NULL: memory is out. */
static char *line_of(const struct cli_solution *s)
{
    json_t *steps = json_array(), *o;
    char *text, *line;
    size_t n;

    for (size_t i = 0; i < s->n_steps; i++)
        json_push(&steps, json_bytes(str_of(s->step[i])));
    o = json_pack("{s:o, s:o, s:o}", "problem", json_bytes(str_of(s->problem)), "steps", steps, "answer",
                  s->answer != NULL ? json_bytes(str_of(s->answer)) : json_null());
    text = o != NULL ? json_line(o) : NULL;
    json_decref(o);
    if (text == NULL)
        return NULL;
    n = strlen(text);
    line = realloc(text, n + 2);
    if (line == NULL) {
        free(text);
        return NULL;
    }
    memcpy(line + n, "\n", 2);
    return line;
}

enum err_code cli_judge_score(struct cli_judge *j, struct cli_solution *s, struct err *e)
{
    char *text = line_of(s);
    struct str line;
    bool early = false;
    enum err_code code;

    j->n++;
    if (text == NULL)
        return err_nomem(e);
    code = cli_lines_read(&j->out, 0, e) ? e->code : take_line(j, &early, &line, e);
    if (code == ERR_OK && early)
        code = err_set(e, ERR_FORMAT, "cmd:%.100s: a line before it got solution %" PRId64, j->argv[0], j->n);
    if (code == ERR_OK)
        code = exchange(j, str_of(text), &line, e);
    free(text);
    if (code == ERR_OK && reason_score_line(line, &s->score, s->scores, s->n_steps, e))
        code = err_wrap(e, "cmd:%.100s: solution %" PRId64, j->argv[0], j->n);
    return code;
}
