/* SPDX-License-Identifier: Apache-2.0 */
/* session_list.c - several sessions in a table; which one of a directory was written last.       room: cmd */
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "gguf/gguf.h"
#include "run/program.h"
#include "run/session.h"
#include "run/transcript.h"
#include "text/text.h"

enum { WORDS_BYTES = 56, NAME_BYTES = 256, TEXT_TOKENS = 64 /* of what is no chat */ };

struct row {
    const char *path;
    struct err bad; /* it could not be read as a session */
    char name[NAME_BYTES], model[128], words[WORDS_BYTES];
    int64_t bytes, n_tokens, n_turns; /* n_turns -1: no chat, or of another model */
    time_t written;
};

/* ---- what is in one ---- */

static enum err_code count_turns(struct row *r, struct cli_run *s, const struct text_tokens *held, struct err *e)
{
    struct cli_transcript x;
    const json_t *m;
    size_t i;

    if (cli_run_format(s, e) || cli_transcript_read(&x, s->format, s->open.text, held, e))
        return e->code;
    r->n_turns = 0;
    json_array_foreach (x.messages, i, m) {
        if (strcmp(json_string_value(json_object_get(m, "role")), "user") == 0 && r->n_turns++ == 0)
            cli_first_words(r->words, sizeof r->words, json_string_value(json_object_get(m, "content")));
    }
    cli_transcript_free(&x);
    return ERR_OK;
}

static enum err_code read_text(struct row *r, const struct cli_run *s, const struct text_tokens *held, struct err *e)
{
    const int64_t n = held->n < TEXT_TOKENS ? held->n : TEXT_TOKENS;
    char *p;
    size_t bytes;

    if (text_decode(s->open.text, held->v, n, TEXT_SPECIAL, &p, &bytes, e))
        return e->code;
    cli_first_words(r->words, sizeof r->words, p);
    free(p);
    return ERR_OK;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;

    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* held: the tokens of the session that is open as s->kept; NULL: none is. */
static void look_at(struct row *r, struct cli_run *s, const struct text_tokens *held)
{
    const bool own = held != NULL && s->o->session != NULL && is_same_file(r->path, s->o->session);
    struct cli_session other = { 0 }, *x = own ? &s->kept : &other;
    struct stat st;

    r->n_turns = -1;
    snprintf(r->name, sizeof r->name, "%s", r->path);
    cli_clean(r->name);
    if (!own && cli_session_open(&other, r->path, true, &r->bad))
        return;
    const struct run_session_id id = run_session_of(x->file);

    held = own ? held : &other.held;
    r->written = stat(r->path, &st) == 0 ? st.st_mtime : 0;
    r->bytes = run_session_stat(x->file).file_bytes;
    r->n_tokens = held->n;
    if (id.name != NULL) {
        snprintf(r->model, sizeof r->model, "%s", id.name);
        cli_clean(r->model);
    }
    if (id.name != NULL && id.tokenizer != text_fingerprint(s->open.gguf))
        snprintf(r->words, sizeof r->words, "(of %.48s)", r->model);
    else if (x->chat || own)
        (void)count_turns(r, s, held, &r->bad);
    else
        (void)read_text(r, s, held, &r->bad);
    cli_session_close(&other);
}

/* ---- as a table, as JSON ---- */

/* A row is one line of a terminal, if there is room for ten columns of what it begins with. */
static void cut_words(struct row *r, int room)
{
    char whole[WORDS_BYTES];

    if (room < 10)
        room = 10;
    if (cli_columns(r->words) <= room)
        return;
    memcpy(whole, r->words, sizeof whole);
    cli_first_words(r->words, (size_t)room + 1, whole);
}

static void print_rows(struct row *v, size_t n)
{
    const int screen = isatty(STDOUT_FILENO) ? cli_width(STDOUT_FILENO) : INT_MAX;
    int width = 4;

    for (size_t i = 0; i < n; i++)
        width = cli_columns(v[i].name) > width ? cli_columns(v[i].name) : width;
    printf("FILE%*s  WRITTEN           TURNS  TOKENS       SIZE  FIRST WORDS\n", width - 4, "");
    for (size_t i = 0; i < n; i++) {
        char day[24] = "-", turns[24] = "-";
        struct tm tm;

        printf("%s%*s  ", v[i].name, width - cli_columns(v[i].name), "");
        if (v[i].written != 0 && localtime_r(&v[i].written, &tm) != NULL)
            (void)strftime(day, sizeof day, "%Y-%m-%d %H:%M", &tm);
        if (v[i].n_turns >= 0)
            snprintf(turns, sizeof turns, "%" PRId64, v[i].n_turns);
        cut_words(&v[i], screen - width - 47);
        if (v[i].bad.code != ERR_OK)
            printf("-                     -       -          -  %s\n", v[i].bad.msg);
        else
            printf("%-16s  %5s  %6" PRId64 "  %6.1f MB  %s\n", day, turns, v[i].n_tokens, (double)v[i].bytes / 1e6,
                   v[i].words);
    }
}

static enum err_code print_json(const struct row *r, struct err *e)
{
    json_t *top = json_pack("{s:s, s:o}", "type", "session", "file", json_bytes(str_of(r->path)));
    bool ok = top != NULL;

    if (ok && r->bad.code == ERR_OK)
        ok = cli_json_set(top, "model", r->model[0] != '\0' ? json_bytes(str_of(r->model)) : json_null()) &&
             cli_json_set(top, "n_tokens", json_integer(r->n_tokens)) &&
             cli_json_set(top, "n_turns", r->n_turns >= 0 ? json_integer(r->n_turns) : json_null()) &&
             cli_json_set(top, "file_bytes", json_integer(r->bytes)) &&
             cli_json_set(top, "written", json_integer((json_int_t)r->written)) &&
             cli_json_set(top, "first_words", json_bytes(str_of(r->words)));
    if (ok)
        ok = cli_json_set(top, "error", r->bad.code != ERR_OK ? json_bytes(str_of(r->bad.msg)) : json_null());
    return cli_json_line(json_if(ok, top), e);
}

static enum err_code list(struct cli_run *s, char *const *paths, size_t n, const struct text_tokens *held, int *status,
                          struct err *e)
{
    struct row *v = calloc(n + 1, sizeof *v);
    enum err_code code = ERR_OK;

    if (v == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < n && code == ERR_OK; i++) {
        v[i].path = paths[i];
        look_at(&v[i], s, held);
        if (*status == EXIT_OK)
            *status = cli_status_of(v[i].bad.code);
        if (s->o->json)
            code = print_json(&v[i], e);
    }
    if (!s->o->json)
        print_rows(v, n);
    free(v);
    return code ? code : cli_flush_stdout(e);
}

enum err_code cli_session_list(struct cli_run *s, char *const *paths, int *status, struct err *e)
{
    size_t n = 0;

    while (paths[n] != NULL)
        n++;
    return list(s, paths, n, NULL, status, e);
}

/* ---- those of a directory ---- */

static int newest_first(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    struct stat s, t;

    if (stat(*x, &s) != 0 || stat(*y, &t) != 0)
        return strcmp(*x, *y);
    if (s.st_mtim.tv_sec != t.st_mtim.tv_sec)
        return s.st_mtim.tv_sec > t.st_mtim.tv_sec ? -1 : 1;
    if (s.st_mtim.tv_nsec != t.st_mtim.tv_nsec)
        return s.st_mtim.tv_nsec > t.st_mtim.tv_nsec ? -1 : 1;
    return strcmp(*x, *y);
}

/* DIRECTORY/NAME.session, the one that was written last first; out is freed by globfree(). */
static enum err_code find_all(glob_t *out, const char *beside, struct err *e)
{
    const char *slash = beside != NULL ? strrchr(beside, '/') : NULL;
    char pattern[4096];
    size_t n = 0;
    int got;

    for (const char *p = beside; slash != NULL && p <= slash && n + 16 < sizeof pattern; p++) {
        if (strchr("*?[\\", *p) != NULL)
            pattern[n++] = '\\';
        pattern[n++] = *p;
    }
    snprintf(pattern + n, sizeof pattern - n, "*.session");
    got = glob(pattern, 0, NULL, out);
    if (got == GLOB_NOSPACE)
        return err_nomem(e);
    if (got != 0)
        return err_set(e, ERR_IO, "there is no %s", pattern);
    qsort(out->gl_pathv, out->gl_pathc, sizeof *out->gl_pathv, newest_first);
    return ERR_OK;
}

enum err_code cli_session_list_here(struct cli_run *s, const struct text_tokens *held, struct err *e)
{
    glob_t found;
    int status = EXIT_OK;

    if (find_all(&found, s->o->session, e))
        return e->code;
    const enum err_code code = list(s, found.gl_pathv, found.gl_pathc, held, &status, e);

    globfree(&found);
    return code;
}

enum err_code cli_session_last(char *path, size_t path_bytes, struct err *e)
{
    glob_t found;
    struct stat st;
    size_t i = 0;

    if (find_all(&found, NULL, e))
        return e->code;
    while (i < found.gl_pathc && (stat(found.gl_pathv[i], &st) != 0 || !S_ISREG(st.st_mode)))
        i++;
    if (i == found.gl_pathc)
        err_set(e, ERR_IO, "no *.session is a file");
    else if (snprintf(path, path_bytes, "%s", found.gl_pathv[i]) >= (int)path_bytes)
        err_set(e, ERR_IO, "the name of the last session is too long");
    globfree(&found);
    return e->code;
}
