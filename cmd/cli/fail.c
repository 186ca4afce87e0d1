/* SPDX-License-Identifier: Apache-2.0 */
/* fail.c - messages, exit statuses, closing stdout.                        room: cmd (cli_) */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include "cli/cli.h"

static const char *program = "chimere";
static int         verbosity;

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
}

int cli_verbosity(void)
{
    return verbosity;
}

void cli_warn(const char *fmt, ...)
{
    va_list ap;

    if (verbosity < 0)
        return;
    cli_progress_end();
    fprintf(stderr, "%s: ", program);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

void cli_note(const char *fmt, ...)
{
    va_list ap;

    if (verbosity < 1)
        return;
    cli_progress_end();
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
}

int cli_fail(const struct err *e)
{
    cli_progress_end();
    fprintf(stderr, "%s: ", program);
    for (const char *p = e->msg; *p; p++) /* it may quote a file */
        fputc((unsigned char)*p < 0x20 || *p == 0x7f ? '?' : *p, stderr);
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

void cli_usage(const char *fmt, ...)
{
    va_list ap;

    fprintf(stderr, "%s: ", program);
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fprintf(stderr, " (%s -h lists the options)\n", program);
    exit(EXIT_USAGE);
}

enum err_code cli_flush_stdout(struct err *e)
{
    if (!ferror(stdout)) /* else errno is of the write that failed just before */
        errno = EIO;
    if (fflush(stdout) != 0 || ferror(stdout))
        return err_errno(e, ERR_IO, errno, "standard output: cannot write");
    return ERR_OK;
}

int cli_close_stdout(int status)
{
    bool failed = ferror(stdout) != 0;

    errno = EIO;
    if (fclose(stdout) != 0)
        failed = true;
    if (!failed || status != EXIT_OK)
        return status;
    fprintf(stderr, "%s: standard output: cannot write: %s\n", program, strerror(errno));
    return EXIT_FAILED;
}
