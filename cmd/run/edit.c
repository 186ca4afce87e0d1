/* SPDX-License-Identifier: Apache-2.0 */
/* edit.c - lines typed on a terminal (edit.h).                                room: cmd (cli_) */
#include "run/edit.h"
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#include "base/io.h"
#include "cli/cli.h"
#ifdef CHIMERE_EDIT
#include <histedit.h>
#endif

enum { KEPT_LINES = 1000, FILE_BYTES_MAX = 4 << 20 };

struct cli_edit {
    const char *prompt;
    char       *line;  /* the newest one, without its newline */
#ifdef CHIMERE_EDIT
    EditLine   *el;
    History    *history;
    int         fd; /* of the history's file, to append to; -1: none */
#else
    char       *typed;
    size_t      cap;
#endif
};

#ifdef CHIMERE_EDIT
/* ---- the history's file ---- */

/* The directories in front of the last name, for this user alone. */
static void make_directories(char *path)
{
    for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0700); /* one that is there is fine; else opening the file fails */
        *at = '/';
    }
}

static bool history_path(char *buf, size_t buf_bytes)
{
    const char *own = getenv("CHIMERE_HISTORY"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n;

    if (own != NULL)
        n = snprintf(buf, buf_bytes, "%s", own);
    else if (state != NULL && state[0] == '/')
        n = snprintf(buf, buf_bytes, "%s/chimere/history", state);
    else
        n = snprintf(buf, buf_bytes, "%s/.local/state/chimere/history", home != NULL ? home : "");
    if (n <= 0 || (size_t)n >= buf_bytes || (own == NULL && buf[0] != '/'))
        return false;
    if (own == NULL)
        make_directories(buf);
    return true;
}

static void remember(struct cli_edit *x, const char *line)
{
    HistEvent ev;

    history(x->history, &ev, H_ENTER, line);
}

/* The last lines of the file; where it has grown long, only they stay in it. */
static void load_history(struct cli_edit *x, const char *path)
{
    char      *data, *from;
    size_t     n, lines = 0;
    struct io_out *out;
    struct err e;

    if (io_read_all(&data, &n, path, FILE_BYTES_MAX, &e))
        return;
    for (from = data + n; from > data && lines <= KEPT_LINES; from--)
        lines += from[-1] == '\n';
    if (lines > KEPT_LINES)
        from = strchr(from, '\n') + 1;
    if (from > data + n / 2 && io_out_open(&out, path, &e) == ERR_OK) {
        if (io_out_write(out, from, (size_t)(data + n - from), &e))
            io_out_abort(out);
        else if (io_out_commit(out, &e))
            cli_note("history  %s", e.msg);
    }
    for (char *end; (end = strchr(from, '\n')) != NULL; from = end + 1) {
        *end = '\0';
        if (*from != '\0')
            remember(x, from);
    }
    free(data);
}

static void open_history(struct cli_edit *x)
{
    char path[4096];
    struct stat st;

    if (!history_path(path, sizeof path))
        return;
    x->fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
    if (x->fd < 0 || fstat(x->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        cli_note("history  %s: not a file that can be written", path);
        return;
    }
    close(x->fd);
    load_history(x, path);
    x->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
}

/* One write for a line: programs side by side do not mix theirs. */
static void keep(struct cli_edit *x, const char *line)
{
    char *copy;
    size_t n = strlen(line);
    struct err e;

    if (n == 0 || line[0] == ' ')
        return;
    remember(x, line);
    copy = x->fd >= 0 ? malloc(n + 2) : NULL;
    if (copy == NULL)
        return;
    memcpy(copy, line, n);
    memcpy(copy + n, "\n", 2);
    if (io_write_all(x->fd, copy, n + 1, &e))
        cli_note("history  %s", e.msg);
    free(copy);
}

/* ---- libedit ---- */

static char *prompt_of(EditLine *el)
{
    struct cli_edit *x;

    el_get(el, EL_CLIENTDATA, &x);
    return (char *)(uintptr_t)x->prompt;
}

/* A character of the terminal. libedit's own would go on reading after a signal. */
static int read_char(EditLine *el, wchar_t *c)
{
    mbstate_t st = { 0 };
    char      byte;

    for (;;) {
        struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };
        ssize_t       n;
        size_t        got;

        /* A signal that comes before poll() waits must not be lost: it is looked at again soon. */
        if (cli_interrupted())
            return -1;
        if (poll(&fd, 1, 100) <= 0)
            continue;
        n = read(STDIN_FILENO, &byte, 1);
        if (n == 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        /* A ^D that was typed before libedit changed the terminal's mode has become a zero. */
        const LineInfo *typed = el_line(el);
        if (byte == '\0' && typed->lastchar == typed->buffer)
            byte = 'D' & 31;
        got = mbrtowc(c, &byte, 1, &st);
        if (got == (size_t)-2)
            continue;
        if (got != (size_t)-1)
            return 1;
        st = (mbstate_t){ 0 }; /* no character: left out */
    }
}

static enum err_code open_libedit(struct cli_edit *x, struct err *e)
{
    HistEvent ev;

    /* Characters of several bytes are edited as one, whatever the locale is. */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX < 4)
        setlocale(LC_CTYPE, "C.UTF-8");
    x->fd = -1;
    x->history = history_init();
    x->el = el_init(cli_name(), stdin, stdout, stderr);
    if (x->history == NULL || x->el == NULL)
        return err_set(e, ERR_IO, "the terminal cannot be used for editing");
    history(x->history, &ev, H_SETSIZE, KEPT_LINES);
    history(x->history, &ev, H_SETUNIQUE, 1);
    el_set(x->el, EL_CLIENTDATA, x);
    el_set(x->el, EL_PROMPT, prompt_of);
    el_set(x->el, EL_EDITOR, "emacs");
    el_set(x->el, EL_SIGNAL, 0);
    el_set(x->el, EL_HIST, history, x->history);
    el_set(x->el, EL_GETCFN, read_char);
    el_source(x->el, NULL); /* ~/.editrc */
    open_history(x);
    return ERR_OK;
}

static const char *read_line(struct cli_edit *x)
{
    int         count = 0;
    const char *line;

    el_resize(x->el);
    line = el_gets(x->el, &count);
    return count > 0 ? line : NULL;
}

static void close_libedit(struct cli_edit *x)
{
    if (x->el != NULL)
        el_end(x->el);
    if (x->history != NULL)
        history_end(x->history);
    if (x->fd >= 0)
        close(x->fd);
}
#else
static enum err_code open_libedit(struct cli_edit *x, struct err *e)
{
    (void)x;
    (void)e;
    return ERR_OK;
}

static const char *read_line(struct cli_edit *x)
{
    ssize_t got;

    fputs(x->prompt, stdout);
    fflush(stdout);
    got = getline(&x->typed, &x->cap, stdin);
    if (got < 0)
        clearerr(stdin);
    return got > 0 ? x->typed : NULL;
}

static void keep(struct cli_edit *x, const char *line)
{
    (void)x;
    (void)line;
}

static void close_libedit(struct cli_edit *x)
{
    free(x->typed);
}
#endif

enum err_code cli_edit_open(struct cli_edit **out, struct err *e)
{
    struct cli_edit *x = calloc(1, sizeof *x);

    if (x == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    if (open_libedit(x, e)) {
        cli_edit_close(x);
        return e->code;
    }
    *out = x;
    return ERR_OK;
}

void cli_edit_close(struct cli_edit *x)
{
    if (x == NULL)
        return;
    close_libedit(x);
    free(x->line);
    free(x);
}

enum cli_typed cli_edit_line(struct cli_edit *x, const char *prompt, const char **line)
{
    const char *typed;

    x->prompt = prompt;
    cli_await_signals();
    typed = read_line(x);
    if (typed == NULL) {
        putchar('\n');
        return cli_interrupted() ? TYPED_SIGNAL : TYPED_END;
    }
    free(x->line);
    x->line = strdup(typed);
    if (x->line == NULL)
        return TYPED_END;
    x->line[strcspn(x->line, "\r\n")] = '\0';
    keep(x, x->line);
    *line = x->line;
    return TYPED_LINE;
}
