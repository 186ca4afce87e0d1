/* SPDX-License-Identifier: Apache-2.0 */
/* tables.c - merge, decay, prune, dump, stats, check.                       room: cmd */
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include "base/clock.h"
#include "cli/engram.h"
#include "base/io.h"
#include "engram-build/faiss.h"
#include "engram-build/program.h"
#include "engram/build.h"
#include "gguf/gguf.h"
#include "recall/recall.h"
#include "text/text.h"

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    static uint64_t before;

    (void)ctx;
    if (done < before) /* another pass over the tables */
        cli_progress_end();
    before = done;
    if (cli_status_asked())
        fprintf(stderr, "%s: %.1f of %.1f million contexts\n", cli_name(), (double)done / 1e6, (double)total / 1e6);
    cli_progress_count("written", (int64_t)done, (int64_t)total, " contexts");
    return !cli_interrupted();
}

struct progress cli_engram_progress(void)
{
    return (struct progress){ show_progress, NULL };
}

void cli_engram_tell(const struct build_options *o, double from_ms, const char *fmt, ...)
{
    const bool kept = o->replaces && o->keep > 0;
    char what[128];
    struct stat st;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (stat(o->out, &st) == 0)
        cli_summary("%s: %s, %.3f MB, in %.1f s%s%s%s", o->out, what, (double)st.st_size / 1e6,
                    (clock_ms() - from_ms) / 1e3, kept ? "; the old one is " : "", kept ? o->out : "",
                    kept ? ".1" : "");
}

/* ---- new tables from old ones ---- */

struct sources {
    char path[ENGRAM_FILES_MAX][4096];
    const char *name[ENGRAM_FILES_MAX], *domains[ENGRAM_FILES_MAX];
    float weight[ENGRAM_FILES_MAX];
    int n;
};

/* An output never replaces an input. */
static enum err_code check_out(const char *out, const char *in, struct err *e)
{
    struct stat a, b;

    if (stat(out, &a) == 0 && stat(in, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return err_set(e, ERR_ARG, "%s: is an input, and will not be replaced", out);
    return ERR_OK;
}

static enum err_code find_sources(struct sources *s, char *const *files, const char *out, struct err *e)
{
    for (; files[s->n] != NULL; s->n++) {
        if (s->n == ENGRAM_FILES_MAX)
            return err_set(e, ERR_ARG, "more than %d tables", ENGRAM_FILES_MAX);
        s->weight[s->n] = 1;
        if (cli_engram_named(files[s->n], s->path[s->n], sizeof s->path[0], &s->domains[s->n], &s->weight[s->n], 1e6F,
                             e))
            return e->code;
        s->name[s->n] = s->path[s->n];
        if (out != NULL && check_out(out, s->name[s->n], e))
            return e->code;
    }
    return ERR_OK;
}

static int64_t newest_day(const struct engram *g, int n_files)
{
    int64_t day = 0;

    for (int f = 0; f < n_files; f++)
        for (int i = 0; i < engram_n_epochs(g, f); i++) {
            const int64_t at = engram_epoch_stat(g, f, i).day;

            day = at > day ? at : day;
        }
    return day;
}

static void date_of(int64_t day, char buf[16])
{
    const time_t s = (time_t)(day * 86400);
    struct tm tm = { .tm_mday = 1 };

    gmtime_r(&s, &tm);
    snprintf(buf, 16, "%04d-%02d-%02d", (tm.tm_year + 1900) % 10000, (tm.tm_mon + 1) % 100, tm.tm_mday % 100);
}

/* Counts are not worth more on a day before the one they were written on. */
static enum err_code before_last(const struct build_options *o, const char *path, int64_t newest, struct err *e)
{
    char day[16], last[16];

    date_of(o->day, day);
    date_of(newest, last);
    return err_set(e, ERR_ARG, "--day %s is before the last epoch of %s, %s", day, path, last);
}

enum err_code cli_engram_merge(const struct build_options *o, char *const *files, bool decay, bool prune, struct err *e)
{
    const struct progress progress = cli_engram_progress();
    struct sources *s = calloc(1, sizeof *s);
    struct io_lock *lock = NULL;
    struct engram *g = NULL;
    const double from = clock_ms();
    enum err_code code;

    if (s == NULL)
        return err_nomem(e);
    code = find_sources(s, files, o->out, e) || io_lock(&lock, o->out, e) ||
                   engram_open(&g, s->name, s->n, &(struct engram_opts){ .day = o->day, .domains = s->domains }, e) ||
                   (decay && o->day < newest_day(g, s->n) && before_last(o, s->name[0], newest_day(g, s->n), e))
               ? e->code
               : ERR_OK;
    if (code == ERR_OK) {
        const int64_t newest = newest_day(g, s->n);
        const struct engram_merge_opts mo = {
            .scale = s->weight,
            .day = decay ? o->day : newest,
            .unused_days = decay ? ENGRAM_UNUSED_DAYS : -1,
            .count_min = (double)o->count_min,
            .bytes_max = prune ? (uint64_t)o->size_bytes : 0,
        };

        code = engram_merge(g, o->out, &mo, &progress, e);
    }
    cli_progress_end();
    engram_close(g);
    io_unlock(lock);
    free(s);
    if (code == ERR_OK)
        cli_engram_tell(o, from, decay ? "decayed" : prune ? "pruned" : "merged");
    return code;
}

/* ---- looking at tables and indexes ---- */

static bool is_index(const char *path)
{
    struct io_map m;
    struct err ignored;
    bool is;

    if (io_map_open(&m, path, &ignored))
        return false;
    is = m.size >= 8 && memcmp(m.data, RECALL_MAGIC, 8) == 0;
    io_map_close(&m);
    return is;
}

static enum err_code look_at_index(const struct build_options *o, const char *path, bool print, struct err *e)
{
    struct recall *r;
    char outside[4096] = "";
    enum err_code code = ERR_OK;

    if (recall_open(&r, path, e))
        return e->code;
    const struct recall_info i = recall_info(r);

    if (i.outside_bytes > 0 && cli_faiss_check(r, path, outside, sizeof outside, e)) {
        recall_close(r);
        return e->code;
    }
    if (!print)
        cli_summary("%s: %lld texts, all sums right", path, (long long)i.n_texts);
    else if (o->json)
        code = cli_json_line(json_pack("{s:s, s:o, s:I, s:I, s:i, s:i, s:b, s:I, s:o*}", "type", "index", "file",
                                       json_bytes(str_of(path)), "texts", (json_int_t)i.n_texts, "words",
                                       (json_int_t)i.n_words, "dims", i.dims, "layer", i.layer, "graph", (int)i.graph,
                                       "bytes", (json_int_t)i.bytes, "vectors_file",
                                       *outside != '\0' ? json_bytes(str_of(outside)) : NULL),
                             e);
    else {
        printf("%s: %lld texts, %lld words, vectors of %d from layer %d%s, %lld bytes%s%s\n", path,
               (long long)i.n_texts, (long long)i.n_words, i.dims, i.layer, i.graph ? ", with a graph" : "",
               (long long)i.bytes, *outside != '\0' ? ", vectors in " : "", outside);
        code = cli_flush_stdout(e);
    }
    recall_close(r);
    return code;
}

static enum err_code dump_index(const char *path, struct err *e)
{
    struct recall *r;
    enum err_code code = ERR_OK;

    if (recall_open(&r, path, e))
        return e->code;
    for (int64_t i = 0; code == ERR_OK && i < recall_info(r).n_texts; i++) {
        json_t *o =
            json_pack("{s:s, s:I, s:o}", "type", "text", "id", (json_int_t)i, "text", json_bytes(recall_text(r, i)));

        code = o == NULL ? err_nomem(e) : cli_engram_origin(o, r, i, e);
        if (code != ERR_OK)
            json_decref(o);
        else
            code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : cli_json_line(o, e);
    }
    recall_close(r);
    return code;
}

static enum err_code open_one(struct engram **g, const struct build_options *o, const char *path, struct err *e)
{
    return engram_open(g, &path, 1, &(struct engram_opts){ .day = o->day }, e);
}

struct dump {
    const struct text *text; /* NULL: numbers only */
    int epoch;
    char date[16];
    enum err_code code;
    struct err *e;
};

static bool dump_row(void *ctx, const struct engram_row *r)
{
    struct dump *d = ctx;
    json_t *ids = json_array();
    struct cli_buf s = { 0 };
    json_t *o = json_pack("{s:i, s:s, s:o, s:i, s:o, s:i}", "epoch", d->epoch, "day", d->date, "context", ids, "next",
                          (int)r->next, "count", cli_json_real(r->count), "unused_days", r->unused_days);
    bool ok = o != NULL && ids != NULL;

    for (int i = 0; ok && i < r->order; i++) {
        ok = json_array_append_new(ids, json_integer(r->context[i])) == 0;
        if (ok && d->text != NULL)
            ok = cli_buf_add(&s, text_piece(d->text, r->context[i]), d->e) == ERR_OK;
    }
    if (ok && d->text != NULL)
        ok = cli_json_set(o, "context_text", json_bytes((struct str){ s.p, s.n })) &&
             cli_json_set(o, "next_text", json_bytes(text_piece(d->text, r->next)));
    cli_buf_free(&s);
    if (!ok) {
        json_decref(o);
        d->code = err_nomem(d->e);
        return false;
    }
    d->code = cli_interrupted() ? err_set(d->e, ERR_CANCEL, "interrupted") : cli_json_line(o, d->e);
    return d->code == ERR_OK;
}

enum err_code cli_engram_dump(const struct build_options *o, char *const *files, struct err *e)
{
    struct cli_opened x = { 0 };
    struct dump d = { .e = e };
    struct sources *s = calloc(1, sizeof *s);
    struct engram *g = NULL;

    if (s == NULL)
        return err_nomem(e);
    if (is_index(files[0])) {
        free(s);
        return dump_index(files[0], e);
    }
    d.code = find_sources(s, files, NULL, e);

    if (d.code == ERR_OK && o->model.file != NULL) /* rows as text, too */
        d.code = cli_open(&x, &o->model, e) ? e->code : cli_open_text(&x, true, e);
    if (d.code == ERR_OK)
        d.code =
            engram_open(&g, s->name, 1,
                        &(struct engram_opts){ x.gguf != NULL ? text_fingerprint(x.gguf) : 0, o->day, s->domains }, e);
    d.text = x.text;
    for (d.epoch = 0; d.code == ERR_OK && d.epoch < engram_n_epochs(g, 0); d.epoch++) {
        date_of(engram_epoch_stat(g, 0, d.epoch).day, d.date);
        engram_rows(g, 0, d.epoch, dump_row, &d);
    }
    engram_close(g);
    cli_opened_close(&x);
    free(s);
    return d.code;
}

static enum err_code print_stat(const struct build_options *o, const char *path, int i,
                                const struct engram_epoch_stat *s, struct err *e)
{
    json_t *orders;
    char date[16];

    date_of(s->day, date);
    if (!o->json) {
        printf("%s: epoch %d of %s%s%s: %llu tokens, %llu documents, %llu bytes\n", path, i, date,
               *s->domain != '\0' ? ", domain " : "", s->domain, (unsigned long long)s->tokens,
               (unsigned long long)s->documents, (unsigned long long)s->bytes);
        for (int l = 0; l < s->order; l++)
            printf("  order %d: %llu contexts, %llu rows, %llu bytes\n", l + 1, (unsigned long long)s->of[l].contexts,
                   (unsigned long long)s->of[l].nexts, (unsigned long long)s->of[l].bytes);
        return cli_flush_stdout(e);
    }
    orders = json_array();
    for (int l = 0; l < s->order; l++)
        json_array_append_new(orders, json_pack("{s:i, s:I, s:I, s:I}", "order", l + 1, "contexts",
                                                (json_int_t)s->of[l].contexts, "rows", (json_int_t)s->of[l].nexts,
                                                "bytes", (json_int_t)s->of[l].bytes));
    return cli_json_line(json_pack("{s:s, s:o, s:i, s:s, s:s, s:I, s:I, s:I, s:o}", "type", "epoch", "file",
                                   json_bytes(str_of(path)), "epoch", i, "day", date, "domain", s->domain, "tokens",
                                   (json_int_t)s->tokens, "documents", (json_int_t)s->documents, "bytes",
                                   (json_int_t)s->bytes, "orders", orders),
                         e);
}

enum err_code cli_engram_stats(const struct build_options *o, char *const *files, struct err *e)
{
    for (; *files != NULL; files++) {
        struct engram *g;
        enum err_code code = ERR_OK;

        if (is_index(*files)) {
            if (look_at_index(o, *files, true, e))
                return e->code;
            continue;
        }
        if (open_one(&g, o, *files, e))
            return e->code;
        for (int i = 0; code == ERR_OK && i < engram_n_epochs(g, 0); i++) {
            const struct engram_epoch_stat s = engram_epoch_stat(g, 0, i);

            code = print_stat(o, *files, i, &s, e);
        }
        engram_close(g);
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

enum err_code cli_engram_check(const struct build_options *o, char *const *files, struct err *e)
{
    for (; *files != NULL; files++) {
        struct engram *g;

        if (is_index(*files)) {
            if (look_at_index(o, *files, false, e))
                return e->code;
            continue;
        }
        if (open_one(&g, o, *files, e))
            return e->code;
        cli_summary("%s: %d epochs, all sums right", *files, engram_n_epochs(g, 0));
        engram_close(g);
    }
    return ERR_OK;
}
