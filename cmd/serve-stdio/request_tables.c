/* SPDX-License-Identifier: Apache-2.0 */
/* request_tables.c - tables of texts in requests (request_tables.h).                             room: cmd */
#include "serve-stdio/request_tables.h"

#include <stdlib.h>
#include <string.h>

#include "cli/open.h"
#include "cli/recall.h"

enum { TEXT_BYTES_MAX = 1 << 20, TABLE_OF_TEXT = 200 /* times the bytes of its text: the largest table there is */ };

/* A table and its text, in a list with the one that was asked for last in front. */
struct kept {
    struct kept *next;
    struct engram *table;
    char *text;
    size_t n;
    struct cli_document document;
    int users;
};
struct use {
    struct kept *kept;
    struct engram *joined; /* with others; NULL: alone */
};
struct cli_request_tables {
    const struct cli_opened *model;
    bool thinking, spaces_known;
    struct cli_engram spaces; /* without a table */
    uint64_t bytes_max;       /* of all tables */
    struct kept *first;
};

enum err_code cli_request_tables_open(struct cli_request_tables **out, const struct cli_opened *model, bool thinking,
                                      int64_t bytes_max, struct err *e)
{
    struct cli_request_tables *m = calloc(1, sizeof *m);

    if (m == NULL)
        return err_nomem(e);
    m->model = model;
    m->thinking = thinking;
    m->bytes_max = (uint64_t)bytes_max;
    *out = m;
    return ERR_OK;
}

static void close_kept(struct kept *k)
{
    engram_close(k->table);
    free(k->text);
    free(k);
}

void cli_request_tables_close(struct cli_request_tables *m)
{
    if (m == NULL)
        return;
    while (m->first != NULL) {
        struct kept *k = m->first;

        m->first = k->next;
        close_kept(k);
    }
    cli_engram_close(&m->spaces);
    free(m);
}

static uint64_t bytes_of(const struct kept *k)
{
    return engram_file_bytes(k->table, 0) + k->n;
}

/* Of those that nobody uses the oldest go, until there is room for `more` bytes. */
static void trim_tables(struct cli_request_tables *m, uint64_t more)
{
    uint64_t bytes = more;

    for (const struct kept *k = m->first; k != NULL; k = k->next)
        bytes += k->users > 0 ? bytes_of(k) : 0;
    for (struct kept **link = &m->first, *k; (k = *link) != NULL;) {
        bytes += k->users == 0 ? bytes_of(k) : 0;
        if (k->users > 0 || bytes <= m->bytes_max) {
            link = &k->next;
            continue;
        }
        bytes -= bytes_of(k);
        *link = k->next;
        close_kept(k);
    }
}

/* The table of this text; NULL: there is none. */
static struct kept **place_of(struct cli_request_tables *m, struct str text)
{
    struct kept **link = &m->first;

    while (*link != NULL && !((*link)->n == text.n && memcmp((*link)->text, text.p, text.n) == 0))
        link = &(*link)->next;
    return link;
}

bool cli_request_table_fits(void *made, struct str text)
{
    struct cli_request_tables *m = made;
    uint64_t bytes = 0;

    if (*place_of(m, text) != NULL)
        return true;
    for (const struct kept *k = m->first; k != NULL; k = k->next)
        bytes += k->users > 0 ? bytes_of(k) : 0;
    return bytes == 0 || bytes + TABLE_OF_TEXT * (uint64_t)text.n <= m->bytes_max;
}

static enum err_code make_table(struct cli_request_tables *m, struct str text, struct kept **out, struct err *e)
{
    const struct cli_opened *x = m->model;
    const char *path[1];
    struct cli_engram_made made = { .path = "" };
    struct kept *k = calloc(1, sizeof *k);

    if (k == NULL || (k->text = malloc(text.n)) == NULL) {
        free(k);
        return err_nomem(e);
    }
    memcpy(k->text, text.p, text.n);
    k->n = text.n;
    cli_document_use(&k->document, (struct str){ k->text, k->n }, "context", x->text);
    path[0] = made.path;
    enum err_code code = cli_engram_make(&made, text, x->gguf, x->text, x->o.n_threads, e);
    if (code == ERR_OK)
        code = engram_open(&k->table, path, 1, &(struct engram_opts){ .day = cli_engram_today() }, e);
    cli_engram_unmake(&made);
    if (code != ERR_OK) {
        close_kept(k);
        return code;
    }
    *out = k;
    return ERR_OK;
}

/* The table of this text, in front of the list. */
static enum err_code find_table(struct cli_request_tables *m, struct str text, struct kept **out, struct err *e)
{
    struct kept **link = place_of(m, text);

    *out = *link;
    if (*link != NULL) {
        *link = (*link)->next;
    } else {
        trim_tables(m, TABLE_OF_TEXT * (uint64_t)text.n);
        if (make_table(m, text, out, e))
            return e->code;
    }
    (*out)->next = m->first;
    m->first = *out;
    return ERR_OK;
}

enum err_code cli_request_table(void *made, struct str text, const struct engram_mix *with, struct engram_mix *out,
                                void **use, struct err *e)
{
    struct cli_request_tables *m = made;
    struct use *u;

    *e = (struct err){ 0 };
    if (text.n > TEXT_BYTES_MAX)
        return err_set(e, ERR_LIMIT, "more than %d MiB of text", TEXT_BYTES_MAX >> 20);
    if (with == NULL && !m->spaces_known) {
        if (cli_engram_open(&m->spaces, NULL, 0, m->thinking, m->model->gguf, m->model->text,
                            model_info(m->model->model)->n_vocab, e)) {
            cli_engram_close(&m->spaces);
            return e->code;
        }
        m->spaces_known = true;
    }
    u = calloc(1, sizeof *u);
    if (u == NULL)
        return err_nomem(e);
    if (find_table(m, text, &u->kept, e) || (with != NULL && engram_join(&u->joined, with->table, u->kept->table, e))) {
        free(u);
        trim_tables(m, 0);
        return e->code;
    }
    u->kept->users++;
    trim_tables(m, 0);
    *out = with != NULL ? *with : m->spaces.mix;
    out->table = u->joined != NULL ? u->joined : u->kept->table;
    out->ceiling[engram_n_files(out->table) - 1] = CLI_ENGRAM_WEIGHT;
    *use = u;
    return ERR_OK;
}

const struct ask_index *cli_request_table_document(void *use)
{
    return &((const struct use *)use)->kept->document.index;
}

void cli_request_table_drop(void *made, void *use)
{
    struct use *u = use;

    engram_close(u->joined);
    u->kept->users--;
    free(u);
    trim_tables(made, 0);
}
