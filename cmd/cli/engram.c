/* SPDX-License-Identifier: Apache-2.0 */
/* engram.c - opens tables of n-grams for a model.                           room: cmd */
#include "cli/engram.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "base/pool.h"
#include "cli/open.h"
#include "engram/build.h"
#include "text/text.h"

enum { PATH_BYTES = 4096, CONTEXT_BYTES_MAX = 256 << 20, CONTEXT_MEMORY = 64 << 20 };

int64_t cli_engram_today(void)
{
    return (int64_t)time(NULL) / 86400;
}

enum err_code cli_engram_named(const char *arg, char *buf, size_t buf_bytes, const char **domains, float *weight,
                               float most, struct err *e)
{
    char *at;

    if (cli_file_number(arg, buf, buf_bytes, 0, most, weight, e))
        return e->code;
    at = access(buf, F_OK) != 0 ? strrchr(buf, '@') : NULL;
    if (at != NULL)
        *at = '\0';
    *domains = at != NULL ? at + 1 : NULL;
    return *buf != '\0' ? ERR_OK : err_set(e, ERR_ARG, "'%s' names no table", arg);
}

static int by_parts(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;

    for (int i = 1; i <= ENGRAM_PARTS; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

/* Sorts tokens by their parts: {token, parts} as one record. */
static enum err_code sort_spaced(struct cli_engram *x, int32_t n, struct err *e)
{
    int32_t(*v)[1 + ENGRAM_PARTS] = malloc(((size_t)n + 1) * sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    for (int32_t i = 0; i < n; i++) {
        v[i][0] = x->spaced[i];
        memcpy(v[i] + 1, x->parts[x->spaced[i]], sizeof *x->parts);
    }
    qsort(v, (size_t)n, sizeof *v, by_parts);
    for (int32_t i = 0; i < n; i++)
        x->spaced[i] = v[i][0];
    free(v);
    return ERR_OK;
}

/* What is left of each word when the space before it is a token of its own. */
static enum err_code map_spaces(struct cli_engram *x, const struct text *text, int32_t n_vocab, struct err *e)
{
    const int32_t n_text = text_info(text)->n_tokens;
    struct text_tokens ids = { 0 };
    enum err_code code = ERR_OK;
    int32_t n = 0;

    x->parts = malloc((size_t)n_vocab * sizeof *x->parts);
    x->spaced = malloc((size_t)n_vocab * sizeof *x->spaced);
    if (x->parts == NULL || x->spaced == NULL)
        return err_nomem(e);
    memset(x->parts, -1, (size_t)n_vocab * sizeof *x->parts);
    for (int32_t i = 0; code == ERR_OK && i < n_vocab && i < n_text; i++) {
        const struct str s = text_piece(text, i);

        if (s.n < 2 || s.p[0] != ' ' || s.p[1] == ' ' || text_is_control(text, i))
            continue;
        ids.n = 0;
        code = text_encode(text, (struct str){ s.p + 1, s.n - 1 }, 0, &ids, e);
        if (code != ERR_OK || ids.n < 1 || ids.n > ENGRAM_PARTS || ids.v[0] == i)
            continue;
        memcpy(x->parts[i], ids.v, (size_t)ids.n * sizeof *ids.v);
        x->spaced[n++] = i;
    }
    text_tokens_free(&ids);
    if (code == ERR_OK)
        code = sort_spaced(x, n, e);
    x->mix.parts = (const int32_t(*)[ENGRAM_PARTS])x->parts;
    x->mix.spaced = x->spaced;
    x->mix.n_spaced = n;
    x->mix.space = text_find(text, " ");
    return code;
}

enum err_code cli_engram_open(struct cli_engram *x, const char *const *names, size_t n, bool thinking,
                              const struct gguf *g, const struct text *text, int32_t n_vocab, struct err *e)
{
    const char *path[ENGRAM_FILES_MAX], *domains[ENGRAM_FILES_MAX];
    const struct engram_opts o = { text_fingerprint(g), cli_engram_today(), domains };
    char *buf = malloc((size_t)ENGRAM_FILES_MAX * PATH_BYTES);
    enum err_code code = ERR_OK;

    if (buf == NULL)
        return err_nomem(e);
    if (n > ENGRAM_FILES_MAX)
        code = err_set(e, ERR_ARG, "more than %d tables", ENGRAM_FILES_MAX);
    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        path[i] = buf + i * PATH_BYTES;
        x->mix.ceiling[i] = CLI_ENGRAM_WEIGHT;
        code = cli_engram_named(names[i], buf + i * PATH_BYTES, PATH_BYTES, &domains[i], &x->mix.ceiling[i], 1, e);
    }
    if (code == ERR_OK && n > 0)
        code = engram_open(&x->table, path, (int)n, &o, e);
    if (code == ERR_OK)
        code = map_spaces(x, text, n_vocab, e);
    x->mix.table = x->table;
    x->mix.thinking = thinking;
    x->mix.n_vocab = n_vocab;
    free(buf);
    return code;
}

void cli_engram_close(struct cli_engram *x)
{
    engram_close(x->table);
    free(x->parts);
    free(x->spaced);
    *x = (struct cli_engram){ 0 };
}

static enum err_code build_table(const char *path, struct str said, const struct gguf *g, const struct text *text,
                                 struct pool *pool, struct err *e)
{
    const struct engram_build_opts bo = { .tokenizer = text_fingerprint(g),
                                          .day = cli_engram_today(),
                                          .order = ENGRAM_ORDER_MAX,
                                          .memory_bytes = CONTEXT_MEMORY,
                                          .pool = pool };
    struct engram_builder *b = NULL;
    struct text_tokens ids = { 0 };

    if (text_encode(text, said, 0, &ids, e) == ERR_OK && engram_build_open(&b, path, &bo, e) == ERR_OK) {
        if (engram_build_tokens(b, ids.v, ids.n, e) || engram_build_end(b, e))
            engram_build_abort(b);
        else
            e->code = engram_build_commit(b, NULL, e);
    }
    text_tokens_free(&ids);
    return e->code;
}

/* A directory for a table is named after the process that made it, which holds a lock on it: also a process that is not
 * seen from here does (another container). */
static const char begins[] = "chimere-table-";

static void remove_dir(int in, const char *name, int fd)
{
    DIR *d = fdopendir(fd);
    const struct dirent *f;

    if (d == NULL) {
        close(fd);
        return;
    }
    while ((f = readdir(d)) != NULL)
        if (strcmp(f->d_name, ".") != 0 && strcmp(f->d_name, "..") != 0)
            unlinkat(fd, f->d_name, 0);
    unlinkat(in, name, AT_REMOVEDIR);
    closedir(d);
}

static void remove_left(const char *dir)
{
    DIR *d = opendir(dir);
    const struct dirent *f;

    while (d != NULL && (f = readdir(d)) != NULL) {
        char *end;
        struct stat st;

        if (strncmp(f->d_name, begins, sizeof begins - 1) != 0)
            continue;
        const long pid = strtol(f->d_name + sizeof begins - 1, &end, 10);

        if (pid <= 0 || pid > INT_MAX || *end != '-' || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
            continue;
        const int fd = openat(dirfd(d), f->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0)
            remove_dir(dirfd(d), f->d_name, fd);
        else if (fd >= 0)
            close(fd);
    }
    if (d != NULL)
        closedir(d);
}

enum err_code cli_engram_make(struct cli_engram_made *made, struct str said, const struct gguf *g,
                              const struct text *text, int n_threads, struct err *e)
{
    const char *dir = getenv("TMPDIR");
    struct pool *pool = NULL;

    *e = (struct err){ 0 };
    if (dir == NULL || *dir == '\0')
        dir = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    remove_left(dir);
    (void)snprintf(made->path, sizeof made->path - sizeof "/context", "%s/%s%ld-XXXXXX", dir, begins, (long)getpid());
    if (mkdtemp(made->path) == NULL) {
        err_errno(e, ERR_IO, errno, "%s: cannot make a directory for the table", made->path);
        *made->path = '\0';
        return e->code;
    }
    made->lock = open(made->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (made->lock >= 0)
        (void)flock(made->lock, LOCK_EX | LOCK_NB); /* where there are no locks the process id alone tells */
    strcat(made->path, "/context");                 /* its name in reports */
    enum err_code code = pool_open(&pool, n_threads > 0 ? n_threads : pool_cpus(), e);
    if (code == ERR_OK)
        code = build_table(made->path, said, g, text, pool, e);
    pool_close(pool);
    if (code != ERR_OK)
        cli_engram_unmake(made);
    return code;
}

void cli_engram_unmake(struct cli_engram_made *made)
{
    char *slash = strrchr(made->path, '/');

    if (slash == NULL)
        return;
    unlink(made->path);
    *slash = '\0';
    rmdir(made->path);
    *made->path = '\0';
    if (made->lock >= 0)
        close(made->lock);
}

enum err_code cli_context_read(char **said, size_t *n, const char *file, bool again, struct err *e)
{
    struct cli_plain plain = { .name = cli_file_name(file) };

    *said = NULL;
    if (again ? io_read_regular(said, n, file, CONTEXT_BYTES_MAX, e)
              : io_read_all(said, n, file, CONTEXT_BYTES_MAX, cli_interrupted, e))
        return e->code;
    io_unmark(*said, n);
    if (*n == 0)
        err_set(e, ERR_FORMAT, "%s: is empty", plain.name);
    else if (cli_plain_add(&plain, (struct str){ *said, *n }, e) == ERR_OK && cli_plain_end(&plain, e) == ERR_OK)
        return ERR_OK;
    free(*said);
    *said = NULL;
    return e->code;
}

enum err_code cli_engram_open_all(struct cli_engram *x, const struct cli_list *engrams, const char *context_table,
                                  struct str context, bool again, bool thinking, const struct cli_opened *model,
                                  struct err *e)
{
    char *own = NULL;
    const char *names[ENGRAM_FILES_MAX + 1];
    struct cli_engram_made made = { .path = "" };
    size_t n = 0;
    enum err_code code = ERR_OK;

    for (; n < engrams->n && n < ENGRAM_FILES_MAX; n++)
        names[n] = engrams->v[n];
    if (context_table != NULL && cli_context_read(&own, &context.n, context_table, again, e))
        return e->code;
    context.p = own != NULL ? own : context.p;
    if (context.p != NULL) {
        code = cli_engram_make(&made, context, model->gguf, model->text, model->o.n_threads, e);
        names[n++] = made.path;
    }
    free(own);
    if (code == ERR_OK)
        code = cli_engram_open(x, names, n + (engrams->n > ENGRAM_FILES_MAX), thinking, model->gguf, model->text,
                               model_info(model->model)->n_vocab, e);
    cli_engram_unmake(&made);
    return code;
}
