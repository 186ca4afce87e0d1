/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - files of the command line: none takes a standard descriptor, no output is in use as something else.
 * room: cmd */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <signal.h>
#include <unistd.h>
#include "cli/cli.h"

/* A descriptor that is closed gets one that cannot be used the way it is meant: reading 0 and writing 1 and 2 fail,
 * and no file that is opened later is taken for them. Writing beyond the limit of a file's size fails, too, and does
 * not kill. */
void cli_open_standard(void)
{
    signal(SIGXFSZ, SIG_IGN);
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) != -1)
            continue;
        if (open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) !=
            fd) /* the lower ones are open: it is this one or none */
            _exit(EXIT_FAILED);
    }
}

enum err_code cli_file_number(const char *arg, char *buf, size_t buf_bytes, float least, float most, float *x,
                              struct err *e)
{
    const char *colon = access(arg, F_OK) != 0 ? strrchr(arg, ':') : NULL; /* a file of the whole name wins */
    const size_t n = colon != NULL ? strlen(colon + 1) : 0;
    char *end;

    if (n > 0 && strspn(colon + 1, "0123456789.+-eE") == n) {
        *x = strtof(colon + 1, &end);
        if (*end != '\0' || !(*x >= least && *x <= most))
            return err_set(e, ERR_ARG, "%s: what follows the colon is not a number from %g to %g", arg, (double)least,
                           (double)most);
    } else
        colon = arg + strlen(arg);
    if ((size_t)(colon - arg) >= buf_bytes)
        return err_set(e, ERR_ARG, "%.40s...: the name is too long", arg);
    memcpy(buf, arg, (size_t)(colon - arg));
    buf[colon - arg] = '\0';
    return ERR_OK;
}

/* Whether two names are one file, or will be: the same name in the same directory. */
static bool same_place(const char *a, const char *b)
{
    const char *name_a = strrchr(a, '/'), *name_b = strrchr(b, '/');
    char dir_a[4096] = ".", dir_b[4096] = ".";
    struct stat st_a, st_b;

    if (strcmp(name_a != NULL ? name_a + 1 : a, name_b != NULL ? name_b + 1 : b) != 0)
        return false;
    if (name_a != NULL)
        snprintf(dir_a, sizeof dir_a, "%.*s/", (int)(name_a - a), a);
    if (name_b != NULL)
        snprintf(dir_b, sizeof dir_b, "%.*s/", (int)(name_b - b), b);
    return stat(dir_a, &st_a) == 0 && stat(dir_b, &st_b) == 0 && st_a.st_dev == st_b.st_dev &&
           st_a.st_ino == st_b.st_ino;
}

void cli_check_beside(const char *option, const char *path, const char *out)
{
    const char *end = path != NULL ? strrchr(path, '.') : NULL;
    char whole[4096];

    if (end == NULL || (size_t)(end - path) >= sizeof whole ||
        (strcmp(end, ".train") != 0 && strcmp(end, ".lock") != 0 &&
         (end[1] == '\0' || end[1 + strspn(end + 1, "0123456789")])))
        return;
    snprintf(whole, sizeof whole, "%.*s", (int)(end - path), path);
    if (strcmp(whole, out) == 0 || same_place(whole, out))
        cli_usage("--%s %s: that name is for what lies beside %s", option, path, out);
}

/* st: of the output, if it is a regular file. */
static void check_output(const char *name, const char *out, const struct stat *st, const char *path, const char *what)
{
    struct stat other;

    if (strcmp(path, "-") == 0)
        return;
    if (strcmp(out, path) == 0 || same_place(out, path) ||
        (st != NULL && stat(path, &other) == 0 && st->st_dev == other.st_dev && st->st_ino == other.st_ino))
        cli_usage("--%s %s: is also %s", name, out, what);
}

static const char *file_of(const struct cli_opt *o)
{
    return o->kind == OPT_FILE || o->kind == OPT_OUT ? *(const char *const *)o->to : NULL;
}

/* A value that names a file, as it is and without a number after a colon. */
static void check_value(const char *name, const char *out, const struct stat *st, const char *value, const char *what)
{
    const char *colon = strrchr(value, ':');
    char path[4096];

    check_output(name, out, st, value, what);
    if (colon != NULL && (size_t)(colon - value) < sizeof path) {
        snprintf(path, sizeof path, "%.*s", (int)(colon - value), value);
        check_output(name, out, st, path, what);
    }
}

/* Lists that name files say so; a drafter's name may be a file's, too. */
static const struct cli_list *list_of(const struct cli_opt *o)
{
    return o->kind == OPT_LIST && (strstr(o->arg, "file") != NULL || strcmp(o->name, "draft") == 0) ? o->to : NULL;
}

static void check_one(const struct cli *cli, const struct cli_opt *o, const char *out, char *const *operands)
{
    static const char *const streams[] = { "standard input", "standard output", "standard error" };
    char path[4096], what[80];
    struct stat st, stream;
    struct err e = { 0 };
    const struct stat *is = stat(out, &st) == 0 && S_ISREG(st.st_mode) ? &st : NULL;

    for (int fd = 0; is != NULL && fd <= 2; fd++)
        if (fstat(fd, &stream) == 0 && stream.st_dev == st.st_dev && stream.st_ino == st.st_ino)
            cli_usage("--%s %s: is also %s", o->name, out, streams[fd]);
    for (const struct cli_opt *p = cli->opts; p->kind != OPT_END; p++) {
        const struct cli_list *list = list_of(p);

        snprintf(what, sizeof what, "the file of --%s", p->name);
        for (size_t i = 0; list != NULL && i < list->n; i++)
            check_value(o->name, out, is, list->v[i], what);
        if (p == o || file_of(p) == NULL)
            continue;
        check_value(o->name, out, is, file_of(p), what);
        if (strcmp(p->name, "model") == 0 && cli_model_path(file_of(p), path, sizeof path, &e) == ERR_OK)
            check_output(o->name, out, is, path, what);
    }
    for (; *operands != NULL; operands++)
        check_output(o->name, out, is, *operands, "a file that is read");
    if (cli_model_path(NULL, path, sizeof path, &e) == ERR_OK)
        check_output(o->name, out, is, path, "the model");
}

void cli_check_outputs(const struct cli *cli, char *const *operands)
{
    for (const struct cli_opt *o = cli->opts; o->kind != OPT_END; o++) {
        const char *out = o->kind == OPT_OUT ? file_of(o) : NULL;

        const bool stream = out != NULL && strcmp(out, "-") == 0;

        if (stream && o->lo == 0)
            cli_usage("--%s -: needs the name of a file", o->name);
        if (out != NULL && !stream)
            check_one(cli, o, out, operands);
    }
}

void cli_check_kind(const char *option, const char *path, struct str magic, const char *what)
{
    char head[32];
    struct stat st;
    int fd;
    bool same;

    if (path == NULL || strcmp(path, "-") == 0 || stat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
        return; /* if it cannot be written at all, opening it says so */
    fd = open(path, O_RDONLY | O_CLOEXEC);
    same = fd >= 0 && magic.n <= sizeof head && read(fd, head, magic.n) == (ssize_t)magic.n &&
           memcmp(head, magic.p, magic.n) == 0;
    if (fd >= 0)
        close(fd);
    if (!same)
        cli_usage("--%s %s: exists, is no %s, and stays as it is", option, path, what);
}
