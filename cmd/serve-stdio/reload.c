/* SPDX-License-Identifier: Apache-2.0 */
/* reload.c - files beside a model, which are exchanged (reload.h).           room: cmd */
#include "serve-stdio/reload.h"

#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "cli/engram.h"
#include "cli/log.h"
#include "serve-stdio/request_tables.h"
#include "cli/open.h"
#include "cli/recall.h"
#include "gen/gen.h"

enum { SETS_MAX = 4 }; /* that requests have: with more the adapters of a step would be too many (RUN_ADAPTERS_STEP) */
_Static_assert((int)SETS_MAX *(int)RUN_ADAPTERS_MAX <= (int)RUN_ADAPTERS_STEP, "a step takes those of all sets");

/* Tables of n-grams, the last one that of the document if there is one. */
struct tables {
    struct cli_engram engram;
    struct cli_document document; /* own NULL: none */
};

/* What stood beside the model at a time. A kind that was not exchanged is the same object in several sets. */
struct set {
    struct set *older;
    struct serve_attachments s;
    struct cli_adapters *adapters;
    const char *adapter_names[RUN_ADAPTERS_MAX];
    struct tables *tables;   /* NULL: none */
    struct cli_notes *notes; /* NULL: none */
    struct cli_notes *named; /* NULL: none */
    json_t *facts;           /* for a log; NULL: there is none */
};

struct cli_reload {
    struct cli_reload_opts o;
    struct cli_opened *model;
    struct run *run;
    struct set *now;
    struct cli_request_tables *made;
    bool due; /* a SIGHUP that is not answered */
};

/* ---- kinds ---- */

static void close_adapters(struct cli_reload *b, struct cli_adapters *x)
{
    for (int i = 0; b->run != NULL && i < x->n; i++)
        run_forget_adapter(b->run, x->on[i]);
    cli_adapters_close(x);
    if (x != &b->model->adapters)
        free(x);
}

static enum err_code open_adapters(struct cli_reload *b, struct cli_adapters **out, struct err *e)
{
    struct cli_adapters *x = calloc(1, sizeof *x);

    if (x == NULL)
        return err_nomem(e);
    if (cli_adapters_open(x, &b->model->o.loras, b->model->gguf, e) || cli_adapters_load(x, b->model->model, e) ||
        run_check_adapters(b->run, x->list, x->n, e)) {
        cli_adapters_close(x);
        free(x);
        return e->code;
    }
    *out = x;
    return ERR_OK;
}

static void close_tables(struct tables *x)
{
    if (x == NULL)
        return;
    cli_engram_close(&x->engram);
    cli_document_close(&x->document);
    free(x);
}

static enum err_code open_tables(const struct cli_reload *b, bool again, struct tables **out, struct err *e)
{
    struct tables *x;

    if (b->o.beside->engrams.n == 0 && b->o.beside->context_table == NULL && b->o.beside->context == NULL)
        return ERR_OK;
    x = calloc(1, sizeof *x);
    if (x == NULL)
        return err_nomem(e);
    if ((b->o.beside->context != NULL &&
         cli_document_open(&x->document, b->o.beside->context, again, b->model->text, e)) ||
        cli_engram_open_all(&x->engram, &b->o.beside->engrams, b->o.beside->context_table, x->document.said, again,
                            b->o.beside->engram_thinking, b->model, e)) {
        close_tables(x);
        return e->code;
    }
    *out = x;
    return ERR_OK;
}

static void close_notes(struct cli_notes *x)
{
    if (x != NULL)
        cli_notes_close(x);
    free(x);
}

/* arg NULL: *out stays. */
static enum err_code open_notes(const struct cli_reload *b, const char *arg, struct cli_notes **out, struct err *e)
{
    struct cli_notes *x;

    if (arg == NULL)
        return ERR_OK;
    x = calloc(1, sizeof *x);
    if (x == NULL)
        return err_nomem(e);
    if (cli_notes_open(x, arg, b->model->gguf, b->model->text, e)) {
        close_notes(x);
        return e->code;
    }
    *out = x;
    return ERR_OK;
}

/* ---- sets ---- */

static void make_set(const struct cli_reload *b, struct set *x)
{
    for (int i = 0; i < x->adapters->n; i++) {
        const char *path = x->adapters->file[i]->path, *slash = strrchr(path, '/');

        x->adapter_names[i] = slash != NULL ? slash + 1 : path;
    }
    x->s = (struct serve_attachments){ .adapters = x->adapters->list,
                                       .n_adapters = x->adapters->n,
                                       .adapter_names = x->adapter_names,
                                       .notes_max = CLI_NOTES_MAX,
                                       .table = cli_request_table,
                                       .table_room = cli_request_table_fits,
                                       .drop_table = cli_request_table_drop,
                                       .document = cli_request_table_document,
                                       .tables_of = b->made };
    if (x->tables != NULL)
        x->s.engram = &x->tables->engram.mix;
    if (x->tables != NULL && x->tables->document.own != NULL)
        x->s.context = &x->tables->document.index;
    x->s.notes = x->notes != NULL ? &x->notes->index : NULL;
    x->s.recite = x->named != NULL ? &x->named->index : NULL;
}

/* For a log. */
static enum err_code note_facts(const struct cli_reload *b, struct set *x, struct err *e)
{
    const struct cli_log_beside beside = { b->model,
                                           x->adapters,
                                           &b->o.beside->engrams,
                                           b->o.beside->context != NULL ? b->o.beside->context
                                                                        : b->o.beside->context_table,
                                           b->o.beside->examples,
                                           b->o.beside->recite,
                                           NULL };

    x->facts = NULL;
    if (b->o.logs && cli_log_facts(&x->facts, &beside, e))
        return e->code;
    x->s.facts = x->facts;
    return ERR_OK;
}

enum err_code cli_reload_open(struct cli_reload **out, const struct cli_reload_opts *o, struct cli_opened *model,
                              struct run *r, struct err *e)
{
    struct cli_reload *b = calloc(1, sizeof *b);

    if (b == NULL || (b->now = calloc(1, sizeof *b->now)) == NULL) {
        free(b);
        return err_nomem(e);
    }
    b->o = *o;
    b->model = model;
    b->run = r;
    b->now->adapters = &model->adapters;
    if (open_tables(b, false, &b->now->tables, e) || open_notes(b, b->o.beside->examples, &b->now->notes, e) ||
        open_notes(b, b->o.beside->recite, &b->now->named, e) ||
        cli_request_tables_open(&b->made, model, o->beside->engram_thinking, o->table_bytes, e)) {
        cli_reload_close(b);
        return e->code;
    }
    make_set(b, b->now);
    if (note_facts(b, b->now, e)) {
        cli_reload_close(b);
        return e->code;
    }
    *out = b;
    return ERR_OK;
}

const struct serve_attachments *cli_reload_now(const struct cli_reload *b)
{
    return &b->now->s;
}

/* The set before this one, which no other set's owner is left of, goes with what only it has. */
static void close_set(struct cli_reload *b, struct set *x)
{
    bool adapters = false, tables = false, notes = false, named = false; /* another set has them */

    for (const struct set *y = b->now; y != NULL; y = y->older) {
        adapters = adapters || y->adapters == x->adapters;
        tables = tables || y->tables == x->tables;
        notes = notes || y->notes == x->notes;
        named = named || y->named == x->named;
    }
    if (!adapters)
        close_adapters(b, x->adapters);
    if (!tables)
        close_tables(x->tables);
    if (!notes)
        close_notes(x->notes);
    if (!named)
        close_notes(x->named);
    json_decref(x->facts);
    free(x);
}

static int sweep(struct cli_reload *b, const struct serve *s)
{
    struct set **link = &b->now->older, *x;
    int n = 1;

    while ((x = *link) != NULL) {
        if (serve_uses(s, &x->s)) {
            link = &x->older;
            n++;
            continue;
        }
        *link = x->older;
        close_set(b, x);
    }
    return n;
}

void cli_reload_stays(const char *option, const struct err *e)
{
    cli_warn("SIGHUP: %s: %s; what was there stays", option, e->msg);
}

static void reopen_draft(const struct cli_reload *b)
{
    struct draft *fresh;
    struct err e = { 0 };

    if (*b->o.draft == NULL)
        return;
    if (cli_guess_again(&fresh, b->o.guess, b->model, b->run, &e)) {
        cli_reload_stays("--draft", &e);
        return;
    }
    cli_guess_keep(*b->o.draft, b->o.guess, b->model);
    cli_guess_recall(fresh, b->o.guess, b->model);
    gen_set_drafter(b->o.gen, fresh);
    draft_close(*b->o.draft);
    *b->o.draft = fresh;
}

/* Opens what the options name. What cannot be used, and adapters that are what they were, leave the old ones. */
static void reopen(struct cli_reload *b, struct serve *s)
{
    struct set *x = calloc(1, sizeof *x);
    struct cli_adapters *adapters = NULL;
    struct err e = { 0 }, why;

    if (x == NULL) {
        cli_warn("SIGHUP: out of memory; what was there stays");
        return;
    }
    *x = *b->now;
    if (b->model->o.loras.n > 0 && open_adapters(b, &adapters, &e))
        cli_reload_stays("--lora", &e);
    if (adapters != NULL && adapters->hash == x->adapters->hash)
        close_adapters(b, adapters);
    else if (adapters != NULL)
        x->adapters = adapters;
    if (open_tables(b, true, &x->tables, &e))
        cli_reload_stays(b->o.beside->engrams.n > 0     ? "--engram"
                         : b->o.beside->context != NULL ? "--context"
                                                        : "--context-table",
                         &e);
    if (open_notes(b, b->o.beside->examples, &x->notes, &e))
        cli_reload_stays("--examples", &e);
    if (open_notes(b, b->o.beside->recite, &x->named, &e))
        cli_reload_stays("--recite", &e);
    make_set(b, x);
    if (note_facts(b, x, &why))
        cli_reload_stays("--log", &why);
    if (e.code != ERR_OK) /* something stayed, so that it is of no one generation */
        (void)json_object_del(x->facts, "generation");
    reopen_draft(b);
    x->older = b->now;
    b->now = x;
    serve_exchange(s, &x->s);
    cli_note("SIGHUP: files beside the model were opened again");
}

bool cli_reload_turn(struct cli_reload *b, struct serve *s)
{
    const bool came = cli_hung_up();

    b->due = came || b->due;
    if (b->due || b->now->older != NULL) {
        if (sweep(b, s) < SETS_MAX && b->due) {
            b->due = false;
            reopen(b, s);
        }
    }
    return came;
}

void cli_reload_close(struct cli_reload *b)
{
    if (b == NULL)
        return;
    b->run = NULL; /* closed */
    while (b->now != NULL) {
        struct set *x = b->now;

        b->now = x->older;
        close_set(b, x);
    }
    cli_request_tables_close(b->made);
    free(b);
}
