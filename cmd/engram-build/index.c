/* SPDX-License-Identifier: Apache-2.0 */
/* index.c - texts into an index.                                             room: cmd */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "engram-build/embed.h"
#include "engram-build/faiss.h"
#include "engram-build/walk.h"
#include "gguf/gguf.h"
#include "recall/cut.h"
#include "recall/recall.h"

struct indexing {
    const struct build_options *o;
    const struct cli_walked *file; /* that is cut now */
    struct cli_embedder m;
    struct cli_faiss_build faiss;
    struct recall_builder *b;
    struct recall *old;  /* the index that is there; NULL: none whose vectors are of use */
    bool made;           /* there are vectors */
    bool sized;          /* the builder has room for vectors */
    int64_t n_given;     /* vectors of a file */
    int64_t n_old;       /* texts whose vectors it had */
    struct cli_buf open; /* the document that is being read; the text whose vector is wanted */
    int64_t n_cut;       /* texts that were too long for one */
};

/* How much of a text makes one text of the index: all, or up to a line's end, a space, a character. */
static size_t part_of(struct str s)
{
    size_t n = RECALL_TEXT_BYTES_MAX, at;

    if (s.n <= n)
        return s.n;
    for (at = n; at > n / 2; at--)
        if (s.p[at - 1] == '\n')
            return at;
    for (at = n; at > n / 2; at--)
        if (s.p[at - 1] == ' ')
            return at;
    for (at = n; at > n - 4 && ((unsigned char)s.p[at] & 0xc0) == 0x80; at--)
        ;
    return at;
}

static int64_t lines_in(struct str s)
{
    int64_t n = 0;

    for (size_t i = 0; i < s.n; i++)
        n += s.p[i] == '\n';
    return n;
}

static enum err_code add_text(struct indexing *x, struct str s, struct recall_origin from, struct err *e)
{
    while (s.n > 0 && strchr(" \t\r\n", s.p[s.n - 1]) != NULL)
        s.n--;
    while (s.n > 0 && strchr("\r\n", s.p[0]) != NULL) {
        from.line += from.line > 0 && s.p[0] == '\n';
        s.p++;
        s.n--;
    }
    x->n_cut += s.n > RECALL_TEXT_BYTES_MAX;
    while (s.n > 0) {
        const size_t n = part_of(s);

        if (recall_build_add(x->b, (struct str){ s.p, n }, &from, e))
            return e->code;
        from.line += from.line > 0 ? lines_in((struct str){ s.p, n }) : 0;
        s.p += n;
        s.n -= n;
    }
    return ERR_OK;
}

/* Where a blank line ends a paragraph; its length, without that line. */
static size_t paragraph(struct str s)
{
    for (size_t i = 0; i + 1 < s.n; i++) {
        size_t k = i + 1;

        if (s.p[i] != '\n')
            continue;
        while (k < s.n && (s.p[k] == ' ' || s.p[k] == '\t' || s.p[k] == '\r'))
            k++;
        if (k < s.n && s.p[k] == '\n')
            return i + 1;
    }
    return s.n;
}

static enum err_code take_piece(void *ctx, const struct cli_engram_piece *p, struct err *e)
{
    struct indexing *x = ctx;
    struct recall_origin from = { .file = p->file != NULL ? str_of(p->file) : (struct str){ 0 },
                                  .line = p->number > 0 ? p->number : 1,
                                  .time_ns = p->time_ns,
                                  .members = p->members };

    if (cli_buf_add(&x->open, p->text, e))
        return e->code;
    if (!p->end)
        return ERR_OK;
    struct str s = { x->open.p, x->open.n };

    while (s.n > 0) {
        const size_t n = p->line ? s.n : paragraph(s);

        if (add_text(x, (struct str){ s.p, n }, from, e))
            return e->code;
        from.line += p->line ? 0 : lines_in((struct str){ s.p, n });
        s.p += n;
        s.n -= n;
        while (s.n > 0 && (s.p[0] == '\n' || s.p[0] == '\r')) {
            from.line += !p->line && s.p[0] == '\n';
            s.p++;
            s.n--;
        }
    }
    x->open.n = 0;
    cli_progress("%lld texts read", (long long)recall_build_count(x->b));
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : ERR_OK;
}

/* ---- files of directories ---- */

static enum err_code take_chunk(void *ctx, const struct recall_chunk *c, struct err *e)
{
    struct indexing *x = ctx;
    const struct recall_origin from = {
        .file = str_of(x->file->path), .line = c->line, .time_ns = x->file->time_ns, .heading = c->heading
    };

    return recall_build_add(x->b, c->text, &from, e);
}

/* An object of a line; *said: this file had a line that is none. */
static enum err_code take_object(struct indexing *x, struct str line, int64_t number, bool *said, struct err *e)
{
    struct recall_origin from = { .file = str_of(x->file->path), .line = number, .time_ns = x->file->time_ns };
    json_t *o = NULL;
    struct str text;
    enum err_code code = json_parse(&o, line, "it", e);

    if (code == ERR_NOMEM)
        return code;
    if (code == ERR_OK && json_get_str(o, "text", &text)) {
        x->open.n = 0;
        if (json_object_size(o) > 1)
            code = cli_engram_members(&x->open, o, e);
        from.members = (struct str){ x->open.p, x->open.n };
        if (code == ERR_OK)
            code = add_text(x, text, from, e);
    } else if (!*said) {
        cli_note("%s: line %lld and others like it are no objects with a text: left out", x->file->path,
                 (long long)number);
        *said = true;
        code = ERR_OK;
    } else
        code = ERR_OK;
    json_decref(o);
    return code;
}

static enum err_code take_objects(struct indexing *x, struct str s, struct err *e)
{
    int64_t number = 0;
    bool said = false;

    for (size_t at = 0; at < s.n;) {
        const char *end = memchr(s.p + at, '\n', s.n - at);
        const size_t n = end != NULL ? (size_t)(end - s.p) - at : s.n - at, blanks = strspn(s.p + at, " \t\r");

        number++;
        if (blanks < n && take_object(x, (struct str){ s.p + at, n }, number, &said, e))
            return e->code;
        at += n + 1;
    }
    return ERR_OK;
}

static enum err_code take_walked(void *ctx, const struct cli_walked *file, struct err *e)
{
    struct indexing *x = ctx;
    const struct recall_cut_opts o = { recall_form_of(str_of(file->name), file->text), (size_t)x->o->chunk,
                                       (size_t)x->o->overlap };
    const size_t n = strlen(file->name);
    const struct str text = str_unmarked(file->text);
    enum err_code code;

    x->file = file;
    code = n > 6 && strcmp(file->name + n - 6, ".jsonl") == 0 ? take_objects(x, text, e)
                                                              : recall_cut(text, &o, take_chunk, x, e);
    cli_progress("%lld texts read", (long long)recall_build_count(x->b));
    return code;
}

/* ---- vectors ---- */

/* Room for the vectors, whose length is known now, and those of texts that the index has already. An index of other
 * vectors has none that fit, and one that is damaged is written anew. */
static enum err_code begin_vectors(struct indexing *x, struct err *e)
{
    const struct recall_vectors made = cli_embed_made(&x->m);

    x->sized = true;
    if (recall_build_vectors(x->b, &made, e))
        return e->code;
    return x->old != NULL ? recall_build_reuse(x->b, x->old, &x->n_old, e) : ERR_OK;
}

static enum err_code open_old(struct indexing *x, struct err *e)
{
    const struct recall_vectors made = cli_embed_made(&x->m);
    char file[4096];
    struct err ignored;

    if (access(x->o->out, F_OK) != 0)
        return ERR_OK;
    if (recall_open(&x->old, x->o->out, &ignored)) {
        x->old = NULL;
        return ignored.code == ERR_NOMEM ? err_copy(e, &ignored) : ERR_OK;
    }
    if (!recall_same_vectors(x->old, &made) ||
        (recall_info(x->old).outside_bytes > 0 && cli_faiss_check(x->old, x->o->out, file, sizeof file, &ignored))) {
        recall_close(x->old);
        x->old = NULL;
        return ERR_OK;
    }
    x->m.dims = recall_info(x->old).dims; /* a command's, too */
    x->faiss.old = x->old;
    return ERR_OK;
}

static enum err_code take_vector(void *ctx, struct err *e)
{
    struct indexing *x = ctx;
    const int64_t all = recall_build_count(x->b);

    if (x->n_given == all)
        return err_set(e, ERR_FORMAT, "%s: more vectors than the %lld texts", x->o->vectors, (long long)all);
    if (!x->sized && begin_vectors(x, e))
        return e->code;
    recall_build_vector(x->b, x->n_given++, x->m.v);
    return ERR_OK;
}

static enum err_code take_file(struct indexing *x, struct err *e)
{
    if (cli_embed_file(&x->m, x->o, take_vector, x, e))
        return e->code;
    if (x->n_given < recall_build_count(x->b))
        return err_set(e, ERR_FORMAT, "%s: %lld vectors for %lld texts", x->o->vectors, (long long)x->n_given,
                       (long long)recall_build_count(x->b));
    return ERR_OK;
}

static enum err_code embed_waiting(struct indexing *x, const int64_t *number, int64_t done, struct err *e)
{
    const int64_t all = recall_build_count(x->b);

    if (cli_interrupted())
        return err_set(e, ERR_CANCEL, "interrupted");
    if (cli_embed_run(&x->m, e))
        return e->code;
    if (!x->sized && begin_vectors(x, e))
        return e->code;
    for (int i = 0; i < x->m.n; i++)
        recall_build_vector(x->b, number[i], x->m.v + (size_t)i * (size_t)x->m.dims);
    x->m.n = 0;
    if (cli_status_asked())
        fprintf(stderr, "%s: %lld texts\n", cli_name(), (long long)done);
    cli_progress_count("vectors", done, all, " texts");
    return ERR_OK;
}

static enum err_code embed_texts(struct indexing *x, struct err *e)
{
    const int64_t all = recall_build_count(x->b);
    int64_t number[CLI_EMBED_BATCH];

    if (open_old(x, e) || (x->m.dims > 0 && begin_vectors(x, e)))
        return e->code;
    for (int64_t i = 0; i < all; i++) {
        struct str heading, text = recall_build_text(x->b, i, &heading);
        bool took;

        if (recall_build_has_vector(x->b, i))
            continue;
        x->open.n = 0;
        if (heading.n > 0 && (cli_buf_add(&x->open, heading, e) || cli_buf_add(&x->open, STR("\n"), e)))
            return e->code;
        if (cli_buf_add(&x->open, text, e) || cli_embed_add(&x->m, (struct str){ x->open.p, x->open.n }, &took, e))
            return e->code;
        if (took)
            number[x->m.n - 1] = i;
        if (x->m.n == CLI_EMBED_BATCH && embed_waiting(x, number, i + 1, e))
            return e->code;
    }
    return x->m.n > 0 ? embed_waiting(x, number, all, e) : ERR_OK;
}

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress_count("graph", (int64_t)done, (int64_t)total, " texts");
    return !cli_interrupted();
}

/* The model that makes the vectors, or its tokenizer alone, and the builder. */
static enum err_code open_index(struct indexing *x, struct err *e)
{
    const struct build_options *o = x->o;
    const enum recall_maker maker = o->embedder != NULL                              ? RECALL_EMBEDDER
                                    : o->embed_command != NULL || o->vectors != NULL ? RECALL_ELSEWHERE
                                                                                     : RECALL_MODEL;
    struct recall_build_opts bo = { .versions = o->keep };

    if (o->faiss != NULL) {
        if (cli_faiss_ready(e))
            return e->code;
        x->faiss = (struct cli_faiss_build){ o->out, o->faiss, o->model.n_threads, NULL };
        bo.outside = cli_faiss_write;
        bo.how = cli_faiss_how(o->faiss);
        bo.ctx = &x->faiss;
    }
    if (cli_open(&x->m.x, &o->model, e) || cli_open_text(&x->m.x, true, e))
        return e->code;
    bo.tokenizer = text_fingerprint(x->m.x.gguf);
    if (x->made && cli_embed_open(&x->m, o, maker, o->embedder, o->layer, e))
        return e->code;
    return recall_build_open(&x->b, &bo, e);
}

enum err_code cli_engram_index(const struct build_options *o, char *const *files, struct err *e)
{
    const struct progress progress = { show_progress, NULL };
    struct indexing *x = calloc(1, sizeof *x);
    const double from = clock_ms();
    struct io_lock *lock = NULL;
    enum err_code code;

    if (x == NULL)
        return err_nomem(e);
    x->o = o;
    x->made = o->vectors == NULL || strcmp(o->vectors, "none") != 0;
    code = io_lock(&lock, o->out, e) || open_index(x, e) ? e->code : ERR_OK;
    if (code == ERR_OK)
        code = o->documents ? cli_walk(&o->walk, files, take_walked, x, e)
                            : cli_engram_read(o, files, NULL, NULL, take_piece, x, e);
    if (code == ERR_OK && x->made)
        code = o->vectors != NULL ? take_file(x, e) : embed_texts(x, e);
    const long long n = code == ERR_OK ? recall_build_count(x->b) : 0;

    if (code == ERR_OK && n == 0)
        code = err_set(e, ERR_ARG, "no text: the index would be empty");
    if (code == ERR_OK && x->n_cut > 0)
        cli_warn("%lld texts of more than %d bytes became several", (long long)x->n_cut, RECALL_TEXT_BYTES_MAX);
    if (code == ERR_OK)
        code = recall_build_commit(x->b, o->out, &progress, e);
    else
        recall_build_abort(x->b);
    cli_progress_end();
    cli_faiss_sweep(o->out);
    if (code == ERR_OK)
        cli_engram_tell(o, from, "%lld texts, vectors of %lld were there", n, (long long)x->n_old);
    recall_close(x->old);
    cli_buf_free(&x->open);
    cli_embed_close(&x->m);
    io_unlock(lock);
    free(x);
    return code;
}
