/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c - the text files of directories.                                    room: cmd */
#include "engram-build/walk.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "cli/child.h"

enum {
    DEPTH_MAX = 200, /* directories in each other, each with an open descriptor */
    FILE_BYTES_MAX = 64 << 20,
    IGNORE_BYTES_MAX = 1 << 20,
};

struct rule {
    char *pattern;
    size_t base;                  /* bytes of the path that lie before what the pattern is compared with */
    bool keeps, directory, whole; /* keeps: "!"; directory: only these; whole: the path and not the name alone */
};
struct place {
    dev_t dev;
    ino_t ino;
    bool read;
};
struct walk {
    const struct cli_walk_opts *o;
    cli_walk_fn *fn;
    void *ctx;
    struct cli_buf path, text;
    struct rule *rule; /* [n_rules] those of outer directories first */
    size_t n_rules, rules_cap;
    struct place *seen; /* [n_seen] what was named; where links are followed, all directories */
    size_t n_seen, seen_cap;
    size_t top; /* bytes of the path that was named, and a slash */
    int64_t n_files, n_other, n_ignored;
};

/* ---- patterns ---- */

/* Whether c is in the class at p, "[:alpha:]", of ASCII; *end: behind it. False: there is none; *end is as it was. */
static bool in_class(const char *p, char c, const char **end)
{
    static const struct {
        const char *name;
        int (*has)(int c);
    } classes[] = {
        { "alnum", isalnum }, { "alpha", isalpha }, { "blank", isblank }, { "cntrl", iscntrl },
        { "digit", isdigit }, { "graph", isgraph }, { "lower", islower }, { "print", isprint },
        { "punct", ispunct }, { "space", isspace }, { "upper", isupper }, { "xdigit", isxdigit },
    };

    for (size_t i = 0; i < sizeof classes / sizeof *classes && p[1] == ':'; i++) {
        const size_t n = strlen(classes[i].name);

        if (strncmp(p + 2, classes[i].name, n) == 0 && strncmp(p + 2 + n, ":]", 2) == 0) {
            *end = p + n + 4;
            return (unsigned char)c < 0x80 && classes[i].has((unsigned char)c);
        }
    }
    return false;
}

/* Whether c is in the set at p, which begins with '['; *end: behind it. A set without an end is a '['. */
static bool in_set(const char *p, char c, const char **end)
{
    const bool not = p[1] == '!' || p[1] == '^';
    const char *at = p + 1 + not ;
    bool in = false;

    for (const char *first = at; *at != '\0' && (*at != ']' || at == first); at++) {
        const char *behind = NULL;

        in = (*at == '[' && in_class(at, c, &behind)) || in;
        if (behind != NULL) {
            at = behind - 1;
            continue;
        }
        const char from = *at == '\\' && at[1] != '\0' ? *++at : *at;
        char to = from;

        if (at[1] == '-' && at[2] != ']' && at[2] != '\0') {
            at += 2;
            to = *at == '\\' && at[1] != '\0' ? *++at : *at;
        }
        in = in || ((unsigned char)c >= (unsigned char)from && (unsigned char)c <= (unsigned char)to);
    }
    *end = *at == ']' ? at + 1 : p + 1;
    return *at == ']' ? in != not &&c != '/' : c == '[';
}

/* Whether one character of the pattern stands for c; *next: behind it. */
static bool one_matches(const char *p, char c, const char **next)
{
    if (*p == '[')
        return in_set(p, c, next);
    if (*p == '\\' && p[1] != '\0')
        p++;
    else if (*p == '?') {
        *next = p + 1;
        return c != '/';
    }
    *next = p + 1;
    return *p == c;
}

bool cli_glob(const char *p, const char *s)
{
    const char *const begin = p, *star = NULL, *star_at = NULL, *stars = NULL, *stars_at = NULL, *next;

    /* Only the last "*" and the last "**" can take more: what came before them has its first match. Within a name "**"
     * is "*". */
    for (;;) {
        const size_t n = p[0] == '*' && (p == begin || p[-1] == '/') ? strspn(p, "*") : 0;

        if (n > 1 && (p[n] == '/' || p[n] == '\0')) {
            p += n + (p[n] == '/');
            stars = p;
            stars_at = s;
            star = NULL;
        } else if (*p == '*') {
            star = ++p;
            star_at = s;
        } else if (*s != '\0' && *p != '\0' && one_matches(p, *s, &next)) {
            p = next;
            s++;
        } else if (*s == '\0' && *p == '\0') {
            return true;
        } else if (star != NULL && *star_at != '\0' && *star_at != '/') {
            s = ++star_at;
            p = star;
        } else if (stars != NULL && *stars_at != '\0') {
            const bool directories = stars[-1] == '/';

            while (*++stars_at != '\0' && directories && stars_at[-1] != '/')
                ;
            s = stars_at;
            p = stars;
            star = NULL;
        } else
            return false;
    }
}

static enum err_code add_rule(struct walk *w, struct str line, size_t base, struct err *e)
{
    struct rule r = { .base = base };

    while (line.n > 0 && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n' ||
                          (line.p[line.n - 1] == ' ' && (line.n < 2 || line.p[line.n - 2] != '\\'))))
        line.n--;
    if (line.n == 0 || line.p[0] == '#' || memchr(line.p, '\0', line.n) != NULL)
        return ERR_OK;
    r.keeps = line.p[0] == '!';
    line.p += r.keeps;
    line.n -= r.keeps;
    r.directory = line.n > 0 && line.p[line.n - 1] == '/';
    line.n -= r.directory;
    r.whole = line.n > 0 && memchr(line.p, '/', line.n) != NULL;
    if (line.n > 0 && line.p[0] == '/') {
        line.p++;
        line.n--;
    }
    if (line.n == 0)
        return ERR_OK;
    if (memory_room(&w->rule, &w->rules_cap, w->n_rules + 1, sizeof *w->rule, e))
        return e->code;
    r.pattern = strndup(line.p, line.n);
    if (r.pattern == NULL)
        return err_nomem(e);
    w->rule[w->n_rules++] = r;
    return ERR_OK;
}

static void drop_rules(struct walk *w, size_t n)
{
    while (w->n_rules > n)
        free(w->rule[--w->n_rules].pattern);
}

static bool is_ignored(const struct walk *w, const char *name, bool directory)
{
    for (size_t i = w->n_rules; i > 0; i--) {
        const struct rule *r = &w->rule[i - 1];

        if ((!r->directory || directory) && cli_glob(r->pattern, r->whole ? w->path.p + r->base : name))
            return !r->keeps;
    }
    return false;
}

static bool is_excluded(const struct walk *w, const char *name, bool directory)
{
    struct walk one = { .path = w->path };
    bool excluded = false;
    struct err e;

    for (size_t i = 0; !excluded && i < w->o->exclude.n; i++) {
        if (add_rule(&one, str_of(w->o->exclude.v[i]), w->top, &e) == ERR_OK)
            excluded = is_ignored(&one, name, directory);
        drop_rules(&one, 0);
    }
    free(one.rule);
    return excluded;
}

/* ---- files ---- */

/* The command for a file of this name, and the length of the name without the extension; NULL: it has none. */
static const char *filter_of(const struct walk *w, const char *name, size_t *stem)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < w->o->filter.n; i++) {
        const char *f = w->o->filter.v[i];
        const size_t k = strcspn(f, "=");

        if (n > k + 1 && name[n - k - 1] == '.' && memcmp(name + n - k, f, k) == 0) {
            *stem = n - k - 1;
            return f + k + 1;
        }
    }
    *stem = n;
    return NULL;
}

static enum err_code read_whole(int fd, struct cli_buf *out, struct err *e)
{
    static char buf[1 << 16];

    for (size_t got = 1; got > 0;) {
        if (io_read_some(&got, fd, buf, sizeof buf, cli_interrupted, e) ||
            cli_buf_add(out, (struct str){ buf, got }, e))
            return e->code;
        if (out->n > FILE_BYTES_MAX)
            return err_set(e, ERR_LIMIT, "has more than %d MiB", FILE_BYTES_MAX >> 20);
    }
    return ERR_OK;
}

/* What stops the walk, and not only one file. */
static bool is_fatal(enum err_code code)
{
    return code == ERR_CANCEL || code == ERR_NOMEM;
}

static void warn_of(const struct walk *w, const struct err *e)
{
    cli_warn("%s: %s", w->path.p, e->msg);
}

/* Marks what is read only once: what was named, and with `add` also what was not. */
static enum err_code was_read(struct walk *w, const struct stat *st, bool add, bool *read, struct err *e)
{
    size_t i = 0;

    while (i < w->n_seen && (w->seen[i].dev != st->st_dev || w->seen[i].ino != st->st_ino))
        i++;
    *read = i < w->n_seen && w->seen[i].read;
    if (i == w->n_seen && !add)
        return ERR_OK;
    if (i == w->n_seen && memory_room(&w->seen, &w->seen_cap, i + 1, sizeof *w->seen, e))
        return e->code;
    w->n_seen += i == w->n_seen;
    w->seen[i] = (struct place){ st->st_dev, st->st_ino, true };
    return ERR_OK;
}

/* The file's text, and its time before it was read: if it changes meanwhile, the next run sees that. */
static enum err_code read_text(struct walk *w, int fd, const char *name, char **form, int64_t *time_ns, bool *is_text,
                               struct err *e)
{
    struct cli_plain plain = { .name = w->path.p };
    struct err odd = { 0 };
    struct stat st;
    size_t stem;
    const char *command = filter_of(w, name, &stem);
    bool read;

    *is_text = false;
    w->text.n = 0;
    if (fstat(fd, &st) != 0)
        return err_errno(e, ERR_IO, errno, "cannot look at it");
    if (!S_ISREG(st.st_mode) || was_read(w, &st, false, &read, e) || read)
        return ERR_OK;
    *time_ns = io_changed_ns(&st);
    if (command != NULL ? cli_child_run(command, fd, (struct str){ 0 }, &w->text, FILE_BYTES_MAX, CLI_CHILD_SECONDS, e)
                        : read_whole(fd, &w->text, e))
        return e->code;
    if (w->text.n == 0)
        return ERR_OK;
    *is_text = cli_plain_add(&plain, (struct str){ w->text.p, w->text.n }, &odd) == ERR_OK &&
               cli_plain_end(&plain, &odd) == ERR_OK;
    *form = strndup(name, stem);
    return *form != NULL ? ERR_OK : err_nomem(e);
}

static enum err_code take_file(struct walk *w, int fd, const char *name, struct err *e)
{
    char *form = NULL;
    int64_t time_ns = 0;
    bool is_text = false;
    enum err_code code = read_text(w, fd, name, &form, &time_ns, &is_text, e);

    if (code != ERR_OK && !is_fatal(code)) {
        warn_of(w, e);
        code = ERR_OK;
    } else if (code == ERR_OK && is_text) {
        const struct cli_walked file = { w->path.p, form, { w->text.p, w->text.n }, time_ns };

        w->n_files++;
        code = w->fn(w->ctx, &file, e);
    } else if (code == ERR_OK)
        w->n_other++;
    free(form);
    return code;
}

/* ---- directories ---- */

static enum err_code walk_dir(struct walk *w, int fd, int depth, struct err *e);

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **name, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(name[i]);
    free(name);
}

/* Of files that are not hidden, in order. Takes fd. */
static enum err_code read_names(struct walk *w, int fd, char ***out, size_t *n, struct err *e)
{
    size_t cap = 0;
    char **name = NULL;
    enum err_code code = ERR_OK;
    struct dirent *d;
    DIR *dir = fdopendir(fd);

    *n = 0;
    if (dir == NULL) {
        close(fd);
        return err_errno(e, ERR_IO, errno, "cannot read it");
    }
    errno = 0;
    while (code == ERR_OK && (d = readdir(dir)) != NULL) {
        if (d->d_name[0] != '.') {
            code = memory_room(&name, &cap, *n + 1, sizeof *name, e);
            if (code == ERR_OK && (name[*n] = strdup(d->d_name)) == NULL)
                code = err_nomem(e);
            *n += code == ERR_OK;
        }
        errno = 0;
    }
    if (code == ERR_OK && errno != 0) {
        err_errno(e, ERR_IO, errno, "cannot read all of it");
        warn_of(w, e);
    }
    closedir(dir);
    if (code == ERR_OK && *n > 0)
        qsort(name, *n, sizeof *name, by_name);
    if (code == ERR_OK)
        *out = name;
    else
        free_names(name, *n);
    return code;
}

static enum err_code read_ignore(struct walk *w, int dir, struct err *e)
{
    const int fd = openat(dir, ".gitignore", O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    struct stat st;
    enum err_code code = ERR_OK;

    if (fd < 0) {
        if (errno != ENOENT)
            cli_warn("%s: its .gitignore cannot be opened, and is not used: %s", w->path.p, strerror(errno));
        return ERR_OK;
    }
    w->text.n = 0;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= IGNORE_BYTES_MAX)
        code = read_whole(fd, &w->text, e);
    else
        cli_warn("%s: its .gitignore is no file of at most 1 MiB, and is not used", w->path.p);
    close(fd);
    const size_t mark = w->text.n - str_unmarked((struct str){ w->text.p, w->text.n }).n;

    for (size_t at = mark; code == ERR_OK && at < w->text.n;) {
        const char *end = memchr(w->text.p + at, '\n', w->text.n - at);
        const size_t n = end != NULL ? (size_t)(end - w->text.p) - at : w->text.n - at;

        code = add_rule(w, (struct str){ w->text.p + at, n }, w->path.n, e);
        at += n + 1;
    }
    return code;
}

static enum err_code walk_name(struct walk *w, int dir, const char *name, int depth, struct err *e)
{
    const int links = w->o->follow ? 0 : O_NOFOLLOW;
    struct stat st;

    if (fstatat(dir, name, &st, w->o->follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? ERR_OK : err_errno(e, ERR_IO, errno, "cannot look at it");
    const bool directory = S_ISDIR(st.st_mode);

    if (!directory && !S_ISREG(st.st_mode)) {
        w->n_other++;
        return ERR_OK;
    }
    if (is_excluded(w, name, directory) || is_ignored(w, name, directory)) {
        w->n_ignored++;
        return ERR_OK;
    }
    const int fd =
        openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | links | (directory ? O_DIRECTORY : 0));

    if (fd < 0)
        return err_errno(e, ERR_IO, errno, "cannot open");
    if (directory)
        return walk_dir(w, fd, depth + 1, e);
    const enum err_code code = take_file(w, fd, name, e);

    close(fd);
    return code;
}

/* Takes fd; the path ends with the directory's name. */
static enum err_code walk_dir(struct walk *w, int fd, int depth, struct err *e)
{
    const size_t n_rules = w->n_rules, n_path = w->path.n;
    char **name = NULL;
    size_t n = 0;
    bool read = false;
    int names_fd = -1;
    struct stat st;
    enum err_code code = ERR_OK;

    if (depth > DEPTH_MAX)
        code = err_set(e, ERR_LIMIT, "lies deeper than %d directories", DEPTH_MAX);
    else if (fstat(fd, &st) != 0)
        code = err_errno(e, ERR_IO, errno, "cannot look at it");
    else
        code = was_read(w, &st, w->o->follow, &read, e);
    if (code == ERR_OK && !read && (names_fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        code = err_errno(e, ERR_IO, errno, "cannot open");
    if (names_fd >= 0)
        code = read_names(w, names_fd, &name, &n, e);
    if (code == ERR_OK && w->path.p[w->path.n - 1] != '/')
        code = cli_buf_add(&w->path, STR("/"), e);
    if (code == ERR_OK && n > 0)
        code = read_ignore(w, fd, e);
    const size_t n_dir = w->path.n;

    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : cli_buf_add(&w->path, str_of(name[i]), e);
        if (code == ERR_OK)
            code = walk_name(w, fd, name[i], depth, e);
        if (code != ERR_OK && !is_fatal(code)) {
            warn_of(w, e);
            code = ERR_OK;
        }
        w->path.n = n_dir;
        w->path.p[n_dir] = '\0';
    }
    free_names(name, n);
    drop_rules(w, n_rules);
    w->path.n = n_path;
    w->path.p[n_path] = '\0';
    close(fd);
    return code;
}

/* What is named twice, or lies in a directory that is named, too, is read once. */
static enum err_code see_names(struct walk *w, char *const *paths, struct err *e)
{
    struct stat st;
    bool read;

    for (int i = 0; paths[i] != NULL; i++)
        if (stat(paths[i], &st) == 0 && was_read(w, &st, true, &read, e))
            return e->code;
    for (size_t i = 0; i < w->n_seen; i++)
        w->seen[i].read = false;
    return ERR_OK;
}

static enum err_code walk_path(struct walk *w, const char *path, struct err *e)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const char *slash = strrchr(path, '/');
    struct stat st;
    enum err_code code;

    w->path.n = 0;
    if (fd < 0 || fstat(fd, &st) != 0) {
        code = err_errno(e, ERR_IO, errno, "%s: cannot open", path);
        if (fd >= 0)
            close(fd);
        return code;
    }
    code = cli_buf_add(&w->path, str_of(path), e);
    w->top = w->path.n + (w->path.n > 0 && path[w->path.n - 1] != '/');
    if (code == ERR_OK && S_ISDIR(st.st_mode)) {
        code = walk_dir(w, fd, 0, e);
        return code == ERR_OK || is_fatal(code) ? code : err_wrap(e, "%s", path);
    }
    if (code == ERR_OK)
        code = take_file(w, fd, slash != NULL ? slash + 1 : path, e);
    close(fd);
    return code;
}

enum err_code cli_walk_check(const struct cli_walk_opts *o, struct err *e)
{
    for (size_t i = 0; i < o->filter.n; i++) {
        const char *f = o->filter.v[i];
        const size_t n = strcspn(f, "=");

        if (n == 0 || f[n] == '\0' || strspn(f + n + 1, " \t") == strlen(f + n + 1) || memchr(f, '/', n) != NULL)
            return err_set(e, ERR_ARG, "--filter %s: is not EXTENSION=COMMAND, like 'pdf=pdftotext - -'", f);
    }
    for (size_t i = 0; i < o->exclude.n; i++) {
        struct walk one = { 0 };
        const enum err_code code = add_rule(&one, str_of(o->exclude.v[i]), 0, e);
        const bool names = one.n_rules == 1 && !one.rule[0].keeps;

        drop_rules(&one, 0);
        free(one.rule);
        if (code != ERR_OK)
            return code;
        if (!names)
            return err_set(e, ERR_ARG, "--exclude %s: leaves nothing out; \\ is needed before # and ! at the beginning",
                           o->exclude.v[i]);
    }
    return ERR_OK;
}

enum err_code cli_walk(const struct cli_walk_opts *o, char *const *paths, cli_walk_fn *fn, void *ctx, struct err *e)
{
    struct walk w = { .o = o, .fn = fn, .ctx = ctx };
    char left_out[120];
    enum err_code code = see_names(&w, paths, e);

    for (int i = 0; code == ERR_OK && paths[i] != NULL; i++)
        code = walk_path(&w, paths[i], e);
    if (code == ERR_OK) {
        snprintf(left_out, sizeof left_out, "left out: %lld (no text, links, devices), %lld (ignored or excluded)",
                 (long long)w.n_other, (long long)w.n_ignored);
        if (w.n_files == 0)
            code = err_set(e, ERR_ARG, "no file with text, so there is no index; %s", left_out);
        else
            cli_note("files: %lld; %s", (long long)w.n_files, left_out);
    }
    drop_rules(&w, 0);
    free(w.rule);
    free(w.seen);
    cli_buf_free(&w.path);
    cli_buf_free(&w.text);
    return code;
}
