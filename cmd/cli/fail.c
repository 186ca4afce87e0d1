/* SPDX-License-Identifier: Apache-2.0 */
/* fail.c - messages, exit statuses, closing stdout.                        room: cmd */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "cli/cli.h"

enum { MESSAGE_BYTES = 16384 };

static const char *program = "chimere";
static int verbosity;

void cli_set_name(const char *name)
{
    program = name;
}

const char *cli_name(void)
{
    return program;
}

void cli_set_verbosity(int v)
{
    verbosity = v;
    if (v > 0)
        cli_note_no_ops();
}

int cli_verbosity(void)
{
    return verbosity;
}

void cli_clean(char *s)
{
    for (size_t left = strlen(s), n; left > 0; left -= n, s += n) {
        const unsigned char *c = (const unsigned char *)s;

        n = str_utf8((struct str){ s, left });
        if (n == 0 || (n == 1 && (*c < 0x20 || *c == 0x7f)) || (n == 2 && c[0] == 0xc2 && c[1] < 0xa0)) {
            n = n > 0 ? n : 1;
            memset(s, '?', n);
        }
    }
}

void cli_first_words(char *buf, size_t n, const char *text)
{
    size_t used = 0;

    for (text += strspn(text, " \t\r\n"); *text != '\0' && used < n - 1;) {
        const size_t blanks = strspn(text, " \t\r\n");

        if (blanks == 0 || text[blanks] != '\0')
            buf[used++] = blanks > 0 ? ' ' : *text;
        text += blanks > 0 ? blanks : 1;
    }
    if (*text != '\0') {
        for (used = n - 4; used > 0 && ((unsigned char)buf[used] & 0xc0) == 0x80;) /* not within a character */
            used--;
        memcpy(buf + used, "...", 3);
        used += 3;
    }
    buf[used] = '\0';
    cli_clean(buf);
}

/* Where a message has an empty name or value: at its beginning, or after the option. -1: nowhere. */
static int empty_at(const char *message)
{
    const size_t option = *message == '-' ? strcspn(message, " :") : 0;
    const char *p = message + option + (option > 0 && message[option] == ':');

    if (option == 0)
        return *message == ':' ? 0 : -1;
    return strncmp(p, " : ", 3) == 0 ? (int)(p + 1 - message) : -1;
}

/* One line; it may quote a file, or words of the command line. */
static void print_line(char *message)
{
    const int at = empty_at(message);

    cli_clean(message);
    if (at < 0)
        fprintf(stderr, "%s: %s", program, message);
    else
        fprintf(stderr, "%s: %.*s''%s", program, at, message, message + at);
}

/* Names options that were not typed: the message may be about one of them. */
static void say_origins(const char *message)
{
    const char *name, *from, *told[4];
    size_t at = 0, n = 0, i;

    while (n < sizeof told / sizeof *told && cli_mention_origin(message, &at, &name, &from)) {
        for (i = 0; i < n && told[i] != name; i++)
            ;
        if (i == n && strstr(message, from) == NULL)
            fprintf(stderr, "; --%s is from %s", name, from);
        told[n++] = name;
    }
}

void cli_warn(const char *fmt, ...)
{
    char message[MESSAGE_BYTES];
    va_list ap;

    if (verbosity < 0)
        return;
    cli_progress_end();
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    print_line(message);
    fputc('\n', stderr);
}

static void print_text(const char *fmt, va_list ap)
{
    char message[MESSAGE_BYTES];

    cli_progress_end();
    vsnprintf(message, sizeof message, fmt, ap);
    cli_clean(message);
    fprintf(stderr, "%s\n", message);
}

void cli_note(const char *fmt, ...)
{
    va_list ap;

    if (verbosity < 1)
        return;
    va_start(ap, fmt);
    print_text(fmt, ap);
    va_end(ap);
}

void cli_summary(const char *fmt, ...)
{
    va_list ap;

    if (verbosity < 0 || (verbosity == 0 && !isatty(STDERR_FILENO)))
        return;
    va_start(ap, fmt);
    print_text(fmt, ap);
    va_end(ap);
}

void cli_exit_nomem(void)
{
    struct err e = { 0 };

    (void)err_nomem(&e);
    exit(cli_fail(&e));
}

int cli_columns(const char *s)
{
    int n = 0;

    for (; *s != '\0'; s++)
        n += ((unsigned char)*s & 0xc0) != 0x80;
    return n;
}

int cli_width(int fd)
{
    struct winsize w = { 0 };

    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col : 80;
}

int cli_status_of(enum err_code code)
{
    return code == ERR_OK ? EXIT_OK : code == ERR_FORMAT || code == ERR_UNSUPPORTED ? EXIT_DATA : EXIT_FAILED;
}

int cli_fail(const struct err *e)
{
    struct err shown = *e;

    cli_progress_end();
    print_line(shown.msg);
    say_origins(shown.msg);
    fputc('\n', stderr);
    switch (e->code) {
    case ERR_OK:
        return EXIT_OK;
    case ERR_ARG:
        return EXIT_USAGE;
    case ERR_FORMAT:
    case ERR_UNSUPPORTED:
        return EXIT_DATA;
    case ERR_IO:
    case ERR_NOMEM:
    case ERR_LIMIT:
    case ERR_DEVICE:
    case ERR_CANCEL:
        break;
    }
    return EXIT_FAILED;
}

enum err_code cli_as_data(struct err *e)
{
    if (e->code == ERR_LIMIT)
        e->code = ERR_UNSUPPORTED;
    return e->code;
}

/* Whether a message has said what to type instead. */
static bool says_what(const char *message)
{
    static const char *const words[] = { "did you mean ", ": use ", "or use ", " replaces it" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(message, words[i]) != NULL)
            return true;
    return false;
}

void cli_usage(const char *fmt, ...)
{
    char message[MESSAGE_BYTES];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    print_line(message);
    say_origins(message);
    if (says_what(message))
        fputs("\n", stderr);
    else
        fprintf(stderr, " (%s -h lists the options)\n", program);
    exit(EXIT_USAGE);
}

enum err_code cli_flush_stdout(struct err *e)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return ERR_OK;
    if (cli_stdout_errno() == EINTR)
        return err_set(e, ERR_IO, "standard output: nobody read it when the signal came: the rest is lost");
    return err_errno(e, ERR_IO, cli_stdout_errno(), "standard output: cannot write");
}

int cli_close_stdout(int status)
{
    bool failed = ferror(stdout) != 0;

    if (fclose(stdout) != 0)
        failed = true;
    if (!failed || status != EXIT_OK)
        return status;
    fprintf(stderr, "%s: standard output: cannot write: %s\n", program, strerror(cli_stdout_errno()));
    return EXIT_FAILED;
}
