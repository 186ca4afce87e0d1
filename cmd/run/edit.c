/* SPDX-License-Identifier: Apache-2.0 */
/* edit.c - lines typed on a terminal (edit.h).                                room: cmd */
#define _XOPEN_SOURCE 700 /* wcwidth() */
#include "run/edit.h"
#include <errno.h>
#include <poll.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>
#include "base/io.h"
#include "cli/cli.h"
#ifdef CHIMERE_EDIT
#include <dlfcn.h>
#include <histedit.h>
#endif

enum { KEPT_LINES = 1000, FILE_BYTES_MAX = 4 << 20, LOCK_TRIES = 8 };
#ifdef CHIMERE_EDIT
/* The first line of a history: what begins otherwise is somebody's file and stays as it is. */
static const char mark[] = "# history of chimere-run -i\n";
#endif

struct cli_edit {
    const char *prompt;
    char *line;  /* the newest one, without its newline */
    char *typed; /* [cap] the same, as the terminal gave it */
    size_t cap;
    const struct cli_edit_command *command;
    int n_commands;
#ifdef CHIMERE_EDIT
    EditLine *el; /* NULL: lines are not edited */
    History *history;
    char *path; /* of the history's file; NULL: none */
#endif
};

/* Is there something to read? A signal that comes before poll() waits must not be lost: the caller looks at it again
 * soon. */
static bool await_input(void)
{
    struct pollfd fd = { .fd = STDIN_FILENO, .events = POLLIN };

    return poll(&fd, 1, 100) > 0;
}

static const char *read_plain_line(struct cli_edit *x)
{
    ssize_t got;

    fputs(x->prompt, stdout);
    fflush(stdout);
    do /* the terminal gives a line at a time, so none waits in stdin */
        if (cli_interrupted())
            return NULL;
    while (!await_input());
    got = getline(&x->typed, &x->cap, stdin);
    if (got < 0)
        clearerr(stdin);
    return got > 0 ? x->typed : NULL;
}

#ifdef CHIMERE_EDIT
/* libedit is loaded when a conversation begins: with the libraries that it needs it would be a quarter of what each
 * start of the program costs. */
static struct {
    EditLine *(*el_init)(const char *, FILE *, FILE *, FILE *);
    void (*el_end)(EditLine *);
    int (*el_set)(EditLine *, int, ...), (*el_wset)(EditLine *, int, ...), (*el_get)(EditLine *, int, ...);
    int (*el_source)(EditLine *, const char *);
    void (*el_resize)(EditLine *);
    const char *(*el_gets)(EditLine *, int *);
    const LineInfo *(*el_line)(EditLine *);
    int (*el_insertstr)(EditLine *, const char *);
    unsigned char (*complete_file)(EditLine *, int);
    History *(*history_init)(void);
    void (*history_end)(History *);
    int (*history)(History *, HistEvent *, int, ...);
} lib;

static bool load_libedit(void)
{
    const struct {
        const char *name;
        void *to; /* a function's address */
    } rows[] = {
        { "el_init", &lib.el_init },
        { "el_end", &lib.el_end },
        { "el_set", &lib.el_set },
        { "el_wset", &lib.el_wset },
        { "el_get", &lib.el_get },
        { "el_source", &lib.el_source },
        { "el_resize", &lib.el_resize },
        { "el_gets", &lib.el_gets },
        { "el_line", &lib.el_line },
        { "el_insertstr", &lib.el_insertstr },
        { "_el_fn_complete", &lib.complete_file },
        { "history", &lib.history },
        { "history_init", &lib.history_init },
        { "history_end", &lib.history_end },
    };
    void *at = dlopen("libedit.so.2", RTLD_NOW); /* Debian's name, and that of others */
    bool found;

    if (at == NULL)
        at = dlopen("libedit.so.0", RTLD_NOW);
    found = at != NULL;
    for (size_t i = 0; found && i < sizeof rows / sizeof *rows; i++) {
        void *function = dlsym(at, rows[i].name);

        memcpy(rows[i].to, &function, sizeof function);
        found = function != NULL;
    }
    return found; /* it stays until the program ends */
}

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

static void remember_line(struct cli_edit *x, const char *line)
{
    HistEvent ev;

    lib.history(x->history, &ev, H_ENTER, line);
}

/* From here on no lines are kept, and the reason is printed; always if the user named the file. */
static void give_up(struct cli_edit *x, const struct err *e)
{
    if (getenv("CHIMERE_HISTORY") != NULL)
        cli_warn("history: %s; lines are not kept", e->msg);
    else
        cli_note("history  %s; lines are not kept", e->msg);
    free(x->path);
    x->path = NULL;
}

/* An empty file becomes a history. */
static enum err_code check_mark(int fd, struct stat *st, const char *path, struct err *e)
{
    char begin[sizeof mark] = "";

    if (st->st_size == 0) {
        if (io_write_all(fd, mark, sizeof mark - 1, e))
            return err_wrap(e, "%s", path), e->code;
        st->st_size = sizeof mark - 1;
    } else if (pread(fd, begin, sizeof mark - 1, 0) < 0 || strcmp(begin, mark) != 0) {
        return err_set(e, ERR_FORMAT, "%s: is no history of chimere-run", path);
    }
    return ERR_OK;
}

/* The file, for this program alone until it is closed: another one may write it, or put a shorter one in its place. */
static enum err_code open_locked(int *fd, struct stat *st, const char *path, struct err *e)
{
    struct stat at_path;

    for (int i = 0; i < LOCK_TRIES; i++) {
        *fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0600);
        if (*fd < 0)
            return err_errno(e, ERR_IO, errno, "%s: cannot open", path);
        if (fstat(*fd, st) == 0 && S_ISREG(st->st_mode) && flock(*fd, LOCK_EX) == 0 && fstat(*fd, st) == 0 &&
            stat(path, &at_path) == 0 && st->st_ino == at_path.st_ino && st->st_dev == at_path.st_dev) {
            if (check_mark(*fd, st, path, e))
                close(*fd);
            return e->code;
        }
        close(*fd);
        if (!S_ISREG(st->st_mode))
            return err_set(e, ERR_IO, "%s: not a regular file", path);
    }
    return err_set(e, ERR_IO, "%s: is replaced again and again", path);
}

/* The end of the file, from the beginning of a line, as a string. */
static enum err_code read_end(char **data, size_t *n, int fd, const struct stat *st, const char *path, struct err *e)
{
    const off_t from = st->st_size > FILE_BYTES_MAX ? st->st_size - FILE_BYTES_MAX : 0;
    size_t want = (size_t)(st->st_size - from);
    ssize_t got = 0;
    char *line;

    *n = 0;
    *data = calloc(want + 1, 1); /* the caller's in any case */
    if (*data == NULL)
        return err_nomem(e);
    while (*n < want && (got = pread(fd, *data + *n, want - *n, from + (off_t)*n)) > 0)
        *n += (size_t)got;
    if (got < 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot read", path);
    line = from > 0 ? memchr(*data, '\n', *n) : NULL;
    if (line != NULL) {
        *n -= (size_t)(line + 1 - *data);
        memmove(*data, line + 1, *n);
        (*data)[*n] = '\0';
    }
    return ERR_OK;
}

/* The last lines of the file; where it has grown long, only they stay in it. */
static enum err_code load_history(struct cli_edit *x, struct err *e)
{
    char *data = NULL, *from;
    size_t n, lines = 0;
    int fd;
    struct stat st;
    struct io_out *out;

    if (open_locked(&fd, &st, x->path, e))
        return e->code;
    if (read_end(&data, &n, fd, &st, x->path, e)) {
        free(data);
        close(fd);
        return e->code;
    }
    for (from = data + n; from > data && lines <= KEPT_LINES; from--)
        lines += from[-1] == '\n';
    if (lines > KEPT_LINES)
        from = strchr(from, '\n') + 1;
    if (from > data + n / 2 || st.st_size > FILE_BYTES_MAX) {
        struct err own = { 0 };

        if (io_out_open(&out, x->path, &own) == ERR_OK) {
            if (io_out_write(out, mark, sizeof mark - 1, &own) ||
                io_out_write(out, from, (size_t)(data + n - from), &own))
                io_out_abort(out);
            else if (io_out_commit(out, &own))
                cli_note("history  %s", own.msg); /* it stays long */
        }
    }
    from += from == data && strncmp(from, mark, sizeof mark - 1) == 0 ? sizeof mark - 1 : 0;
    while (*from != '\0') {
        const size_t len = strcspn(from, "\n");
        const bool last = from[len] == '\0';

        from[len] = '\0';
        if (len > 0)
            remember_line(x, from);
        from += len + !last;
    }
    free(data);
    close(fd);
    return ERR_OK;
}

static void open_history(struct cli_edit *x)
{
    char path[4096];
    struct err e = { 0 };

    if (!history_path(path, sizeof path))
        return;
    x->path = strdup(path);
    if (x->path != NULL && load_history(x, &e))
        give_up(x, &e);
}

/* A line at the end of the history's file, in one write; one that another program left unfinished is ended first. */
static enum err_code append_line(const char *path, const char *line, struct err *e)
{
    const size_t n = strlen(line);
    char *copy = malloc(n + 3), last = '\n';
    int fd = -1;
    struct stat st;

    if (copy == NULL)
        return err_nomem(e);
    if (open_locked(&fd, &st, path, e) == ERR_OK) {
        if (st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) != 1)
            last = '\n';
        (void)snprintf(copy, n + 3, "%s%s\n", last != '\n' ? "\n" : "", line);
        if (io_write_all(fd, copy, strlen(copy), e))
            err_wrap(e, "%s", path);
        close(fd);
    }
    free(copy);
    return e->code;
}

static void keep_line(struct cli_edit *x, const char *line)
{
    struct err e = { 0 };

    if (x->el == NULL || line[0] == '\0' || line[0] == ' ')
        return;
    remember_line(x, line);
    if (x->path != NULL && strchr(line, '\n') == NULL && append_line(x->path, line, &e)) /* its lines are messages */
        give_up(x, &e);
}

/* ---- libedit ---- */

static char *prompt_of(EditLine *el)
{
    struct cli_edit *x;

    lib.el_get(el, EL_CLIENTDATA, &x);
    return (char *)(uintptr_t)x->prompt;
}

/* The terminal's width has changed. It has broken the line anew, and libedit does not know where: from the row where
 * the prompt stands now, all is drawn again. */
static void redraw_line(struct cli_edit *x)
{
    const LineInfo *typed = lib.el_line(x->el);
    mbstate_t st = { 0 };
    const int columns = cli_width(STDOUT_FILENO);
    int column = (int)strlen(x->prompt), rows = 0;
    wchar_t c;

    for (const char *p = typed->buffer; p < typed->cursor;) {
        const size_t n = mbrtowc(&c, p, (size_t)(typed->cursor - p), &st);

        if (n == 0 || n > (size_t)(typed->cursor - p))
            break;
        p += n;
        if (c == L'\n') {
            rows += column / columns + 1;
            column = 0;
        } else {
            column += wcwidth(c) > 0 ? wcwidth(c) : 0;
        }
    }
    rows += column / columns;
    if (rows > 0)
        printf("\r\033[%dA\033[J", rows);
    else
        printf("\r\033[J");
    fflush(stdout);
    lib.el_resize(x->el);
    lib.el_set(x->el, EL_REFRESH);
}

static bool is_line_empty(EditLine *el)
{
    const LineInfo *typed = lib.el_line(el);

    return typed->lastchar == typed->buffer;
}

/* A character of the terminal. libedit's own would go on reading after a signal. */
static int read_char(EditLine *el, wchar_t *c)
{
    mbstate_t st = { 0 };
    struct cli_edit *x;
    char byte;

    lib.el_get(el, EL_CLIENTDATA, &x);
    for (;;) {
        ssize_t n;
        size_t got;

        if (cli_interrupted())
            return -1;
        if (cli_resized())
            redraw_line(x);
        if (!await_input())
            continue;
        n = read(STDIN_FILENO, &byte, 1);
        if (n == 0)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        /* A ^D that was typed before libedit changed the terminal's mode has become a zero. */
        if (byte == '\0' && is_line_empty(el))
            byte = 'D' & 31;
        const bool begins = mbsinit(&st) != 0;

        got = mbrtowc(c, &byte, 1, &st);
        if (got == (size_t)-1) { /* no character: left out, but the byte that ends half of one begins another */
            st = (mbstate_t){ 0 };
            got = begins ? (size_t)-1 : mbrtowc(c, &byte, 1, &st);
        }
        if (got == (size_t)-1)
            st = (mbstate_t){ 0 };
        else if (got != (size_t)-2)
            return 1;
    }
}

/* ---- what is pasted, and commands that are completed ---- */

/* A terminal that was asked to puts what is pasted between these. */
#define PASTE_BEGINS "\033[200~"
static const char paste_ends[] = "\033[201~";

static void bracket_pastes(bool on)
{
    fputs(on ? "\033[?2004h" : "\033[?2004l", stdout);
    fflush(stdout);
}

/* Lines that are pasted are a part of the line that is typed: nothing is sent before the user ends it. A line ends with
 * CR, LF or both; the terminal's mode exchanges the two. */
static unsigned char take_paste(EditLine *el, int key)
{
    enum { END_BYTES = sizeof paste_ends - 1 };
    struct cli_buf b = { 0 };
    struct err e = { 0 };
    char bytes[MB_LEN_MAX];
    wchar_t c, half = L'\0'; /* of the end of a line: what has come */
    unsigned char result = CC_EOF;

    (void)key;
    while (read_char(el, &c) > 0) {
        const bool ends = c == L'\r' || c == L'\n', other_half = ends && half != L'\0' && half != c;
        mbstate_t st = { 0 };
        const size_t n = wcrtomb(bytes, ends ? L'\n' : c, &st);

        half = ends && !other_half ? c : L'\0';
        if (other_half || c == L'\0' || n == (size_t)-1)
            continue;
        if (cli_buf_add(&b, (struct str){ bytes, n }, &e))
            break;
        if (b.n < END_BYTES || memcmp(b.p + b.n - END_BYTES, paste_ends, END_BYTES) != 0)
            continue;
        b.p[b.n - END_BYTES] = '\0';
        result = b.n == END_BYTES || lib.el_insertstr(el, b.p) == 0 ? CC_REFRESH : CC_ERROR;
        break;
    }
    cli_buf_free(&b);
    return result;
}

/* Completes the command that the line begins with, or the name of a file behind it. */
static unsigned char complete_line(EditLine *el, int key)
{
    const LineInfo *typed = lib.el_line(el);
    const size_t n = (size_t)(typed->cursor - typed->buffer), word = strcspn(typed->buffer, " ");
    struct cli_edit *x;
    const char *common = NULL;
    size_t n_common = 0;
    int n_found = 0, found = 0;

    lib.el_get(el, EL_CLIENTDATA, &x);
    for (int i = 0; i < x->n_commands && n > 0 && typed->buffer[0] == '/'; i++) {
        const char *name = x->command[i].name;
        size_t same = 0;

        if (word < n && strlen(name) == word - 1 && strncmp(name, typed->buffer + 1, word - 1) == 0)
            return x->command[i].takes_file ? lib.complete_file(el, key) : CC_ERROR;
        if (word < n || strncmp(name, typed->buffer + 1, n - 1) != 0)
            continue;
        while (common != NULL && same < n_common && name[same] == common[same])
            same++;
        n_common = common != NULL ? same : strlen(name);
        common = name;
        found = i;
        n_found++;
    }
    if (n_found == 0)
        return CC_ERROR;
    if (n_common > n - 1 || n_found == 1) {
        char rest[64];

        (void)snprintf(rest, sizeof rest, "%.*s%s", (int)(n_common - (n - 1)), common + n - 1,
                       n_found == 1 && x->command[found].takes ? " " : "");
        return lib.el_insertstr(el, rest) == 0 ? CC_REFRESH : CC_ERROR;
    }
    putchar('\n');
    for (int i = 0; i < x->n_commands; i++)
        if (strncmp(x->command[i].name, typed->buffer + 1, n - 1) == 0)
            printf("/%s ", x->command[i].name);
    putchar('\n');
    fflush(stdout);
    return CC_REDISPLAY;
}

static void bind_keys(struct cli_edit *x)
{
    lib.el_wset(x->el, EL_ADDFN, L"chimere-paste", L"take what is pasted", take_paste); /* el_set() loses copies */
    lib.el_set(x->el, EL_BIND, PASTE_BEGINS, "chimere-paste", NULL);
    lib.el_wset(x->el, EL_ADDFN, L"chimere-complete", L"complete a command", complete_line);
    lib.el_set(x->el, EL_BIND, "^I", "chimere-complete", NULL);
}

static enum err_code open_libedit(struct cli_edit *x, struct err *e)
{
    HistEvent ev;

    if (cli_dumb_terminal()) { /* it moves no cursor: lines come as the terminal itself edits them */
        cli_note("editing  none: TERM names no terminal that can edit");
        return ERR_OK;
    }
    if (!load_libedit()) {
        cli_note("editing  none: libedit is not installed");
        return ERR_OK;
    }
    /* Characters of several bytes are edited as one, whatever the locale is. */
    setlocale(LC_CTYPE, "");
    if (MB_CUR_MAX < 4)
        setlocale(LC_CTYPE, "C.UTF-8");
    x->history = lib.history_init();
    x->el = lib.el_init(cli_name(), stdin, cli_terminal(STDOUT_FILENO), cli_terminal(STDERR_FILENO));
    if (x->history == NULL || x->el == NULL)
        return err_set(e, ERR_IO, "the terminal cannot be used for editing");
    lib.history(x->history, &ev, H_SETSIZE, KEPT_LINES);
    lib.history(x->history, &ev, H_SETUNIQUE, 1);
    lib.el_set(x->el, EL_CLIENTDATA, x);
    lib.el_set(x->el, EL_PROMPT, prompt_of);
    lib.el_set(x->el, EL_EDITOR, "emacs");
    lib.el_set(x->el, EL_SIGNAL, 0);
    lib.el_set(x->el, EL_HIST, lib.history, x->history);
    lib.el_set(x->el, EL_GETCFN, read_char);
    lib.el_source(x->el, NULL); /* ~/.editrc */
    bind_keys(x);
    cli_catch_resizes();
    open_history(x);
    return ERR_OK;
}

static const char *read_line(struct cli_edit *x)
{
    int count = 0;
    const char *line;

    if (x->el == NULL)
        return read_plain_line(x);
    lib.el_resize(x->el);
    lib.el_set(x->el, EL_PREP_TERM, 1); /* el_gets() prints the prompt before it does this */
    bracket_pastes(true);
    line = lib.el_gets(x->el, &count);
    bracket_pastes(false);
    return count > 0 ? line : NULL;
}

static void close_libedit(struct cli_edit *x)
{
    if (x->el != NULL)
        lib.el_end(x->el);
    if (x->history != NULL)
        lib.history_end(x->history);
    free(x->path);
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
    return read_plain_line(x);
}

static void keep_line(struct cli_edit *x, const char *line)
{
    (void)x;
    (void)line;
}

static void close_libedit(struct cli_edit *x)
{
    (void)x;
}
#endif

enum err_code cli_edit_open(struct cli_edit **out, const struct cli_edit_command *command, int n_commands,
                            struct err *e)
{
    struct cli_edit *x = calloc(1, sizeof *x);

    if (x == NULL)
        return err_nomem(e);
    x->command = command;
    x->n_commands = n_commands;
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
    free(x->typed);
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
    for (size_t n = strlen(x->line); n > 0 && strchr("\r\n", x->line[n - 1]) != NULL;)
        x->line[--n] = '\0';
    keep_line(x, x->line);
    *line = x->line;
    return TYPED_LINE;
}
