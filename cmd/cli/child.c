/* SPDX-License-Identifier: Apache-2.0 */
/* child.c - runs a command beside the program.                               room: cmd */
#include "cli/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum { WORDS_MAX = 100, READ_BYTES = 1 << 16, LOOK_MS = 200, WAIT_MS = 2 };

extern char **environ;

struct child {
    const char *name;
    pid_t pid;
    int in, out; /* our ends; -1: closed */
    int seconds;
    double until_ms;
    bool has_end; /* of it */
    struct cli_child_end end;
};

/* Cuts at blanks, in place. */
static int split_words(char *s, char *word[WORDS_MAX + 1])
{
    char *at = NULL;
    int n = 0;

    for (char *w = strtok_r(s, " \t\r\n", &at); w != NULL; w = strtok_r(NULL, " \t\r\n", &at)) {
        if (n == WORDS_MAX)
            return 0;
        word[n++] = w;
    }
    word[n] = NULL;
    return n;
}

/* Starts it with descriptors 0 and 1, in a process group of its own, so that all of it can be ended. */
static int spawn(struct child *c, const char *const *word, int in, int out)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t pipe_only;
    int errnum = posix_spawn_file_actions_init(&files);

    if (errnum != 0)
        return errnum;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    if ((errnum = posix_spawnattr_init(&attr)) == 0) {
        posix_spawnattr_setpgroup(&attr, 0);
        posix_spawnattr_setsigdefault(&attr, &pipe_only);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
        if ((errnum = posix_spawn_file_actions_adddup2(&files, in, 0)) == 0 &&
            (errnum = posix_spawn_file_actions_adddup2(&files, out, 1)) == 0 &&
            (errnum = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0)) == 0)
            errnum = posix_spawnp(&c->pid, word[0], &files, &attr, (char **)(uintptr_t)word, environ);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return errnum;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static enum err_code start(struct child *c, const char *const *word, int in_fd, struct err *e)
{
    int in[2] = { -1, -1 }, out[2] = { -1, -1 }, errnum = 0;

    if (pipe(out) != 0 || (in_fd < 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, in) != 0))
        errnum = errno;
    for (int i = 0; errnum == 0 && i < 2; i++) {
        (void)fcntl(out[i], F_SETFD, FD_CLOEXEC);
        if (in[i] >= 0)
            (void)fcntl(in[i], F_SETFD, FD_CLOEXEC);
    }
    if (errnum == 0)
        errnum = spawn(c, word, in_fd >= 0 ? in_fd : in[0], out[1]);
    close_end(&in[0]);
    close_end(&out[1]);
    if (errnum != 0) {
        close_end(&in[1]);
        close_end(&out[0]);
        return err_errno(e, ERR_FORMAT, errnum, "%s: cannot start", c->name);
    }
    c->in = in[1];
    c->out = out[0];
    return ERR_OK;
}

static void note_end(struct child *c, enum cli_child_how how, int status)
{
    c->has_end = true;
    c->end.how = how;
    c->end.status = status;
}

static enum err_code check_time(struct child *c, struct err *e)
{
    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (clock_ms() < c->until_ms)
        return ERR_OK;
    note_end(c, CLI_CHILD_TIME, 0);
    return err_set(e, ERR_FORMAT, "%s: took longer than %d s", c->name, c->seconds);
}

/* Writes some of `in`; a command that does not read all of it is no error. */
static void write_some(struct child *c, struct str *in)
{
    const ssize_t n = send(c->in, in->p, in->n, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n > 0) {
        in->p += n;
        in->n -= (size_t)n;
    } else if (n < 0 && errno != EAGAIN && errno != EINTR)
        in->n = 0;
    if (in->n == 0)
        close_end(&c->in);
}

static enum err_code exchange(struct child *c, struct str in, struct cli_buf *out, size_t max, struct err *e)
{
    static char buf[READ_BYTES];
    const size_t before = out->n;

    if (in.n == 0)
        close_end(&c->in);
    while (c->out >= 0) {
        struct pollfd p[] = { { c->out, POLLIN, 0 }, { c->in, POLLOUT, 0 } };

        if (check_time(c, e))
            return e->code;
        if (poll(p, 2, LOOK_MS) < 0 && errno != EINTR)
            return err_errno(e, ERR_IO, errno, "%s", c->name);
        if (c->in >= 0 && p[1].revents != 0)
            write_some(c, &in);
        if (p[0].revents == 0)
            continue;
        const ssize_t n = read(c->out, buf, sizeof buf);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_errno(e, ERR_IO, errno, "%s", c->name);
        if ((size_t)n > max - (out->n - before)) {
            note_end(c, CLI_CHILD_BYTES, 0);
            return cli_buf_add(out, (struct str){ buf, max - (out->n - before) }, e)
                       ? e->code
                       : err_set(e, ERR_FORMAT, "%s: prints more than %zu bytes", c->name, max);
        }
        if (n == 0)
            close_end(&c->out);
        else if (cli_buf_add(out, (struct str){ buf, (size_t)n }, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code await_end(struct child *c, struct err *e)
{
    const struct timespec wait = { 0, WAIT_MS * 1000000 };
    int status = 0;

    for (pid_t got; (got = waitpid(c->pid, &status, WNOHANG)) != c->pid;) {
        if (got < 0 && errno != EINTR)
            return err_errno(e, ERR_IO, errno, "%s", c->name);
        if (check_time(c, e))
            return e->code;
        (void)nanosleep(&wait, NULL);
    }
    c->pid = 0;
    if (WIFSIGNALED(status)) {
        note_end(c, CLI_CHILD_SIGNAL, WTERMSIG(status));
        return err_set(e, ERR_FORMAT, "%s: ended by signal %d", c->name, WTERMSIG(status));
    }
    note_end(c, CLI_CHILD_EXIT, WEXITSTATUS(status));
    return WEXITSTATUS(status) == 0 ? ERR_OK
                                    : err_set(e, ERR_FORMAT, "%s: ended with status %d", c->name, WEXITSTATUS(status));
}

/* From start to end. in_fd -1: `in` is its standard input. */
static enum err_code run_child(struct child *c, const char *const *word, int in_fd, struct str in, struct cli_buf *out,
                               size_t max, struct err *e)
{
    int status;
    enum err_code code;

    c->in = c->out = -1;
    c->name = word[0];
    c->until_ms = clock_ms() + 1e3 * c->seconds;
    code = start(c, word, in_fd, e);
    if (code == ERR_OK)
        code = exchange(c, in, out, max, e);
    if (code == ERR_OK)
        code = await_end(c, e);
    close_end(&c->in);
    close_end(&c->out);
    if (c->pid > 0) {
        (void)kill(-c->pid, SIGKILL);
        while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    return code;
}

enum err_code cli_child_run(const char *command, int in_fd, struct str in, struct cli_buf *out, size_t max, int seconds,
                            struct err *e)
{
    char *words = strdup(command), *word[WORDS_MAX + 1];
    struct child c = { .seconds = seconds };
    enum err_code code;

    if (words == NULL)
        return err_nomem(e);
    code = split_words(words, word) == 0 ? err_set(e, ERR_ARG, "a command has 1 to %d words", WORDS_MAX)
                                         : run_child(&c, (const char *const *)word, in_fd, in, out, max, e);
    free(words);
    return code;
}

enum err_code cli_child_argv(struct cli_child_end *end, const char *const *argv, struct str in, struct cli_buf *out,
                             size_t max, int seconds, struct err *e)
{
    struct child c = { .seconds = seconds };
    struct err own = { 0 };

    if (run_child(&c, argv, -1, in, out, max, &own) && (!c.has_end || own.code != ERR_FORMAT))
        return err_copy(e, &own);
    *end = c.end;
    return ERR_OK;
}
