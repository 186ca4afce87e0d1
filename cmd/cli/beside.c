/* SPDX-License-Identifier: Apache-2.0 */
/* beside.c - what options put beside a model (beside.h).                     room: cmd */
#include "cli/beside.h"

#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "cli/open.h"
#include "reason/calibration.h"

static enum err_code open_notes(struct cli_notes *x, const char *arg, const struct cli_opened *model, struct err *e)
{
    return arg == NULL || x->r != NULL ? ERR_OK : cli_notes_open(x, arg, model->gguf, model->text, e);
}

enum err_code cli_beside_texts(struct cli_beside *x, const struct cli_beside_opts *o, const struct cli_opened *model,
                               struct err *e)
{
    if (o->context != NULL && x->context.own == NULL &&
        cli_document_open(&x->context, o->context, false, model->text, e))
        return e->code;
    return open_notes(&x->notes, o->examples, model, e) || open_notes(&x->named, o->recite, model, e) ? e->code
                                                                                                      : ERR_OK;
}

bool cli_beside_has_tables(const struct cli_beside_opts *o)
{
    return o->engrams.n > 0 || o->context_table != NULL || o->context != NULL;
}

enum err_code cli_beside_tables(struct cli_beside *x, const struct cli_beside_opts *o, const struct cli_opened *model,
                                struct err *e)
{
    if (!cli_beside_has_tables(o))
        return ERR_OK;
    if (model->text == NULL)
        return err_set(e, ERR_UNSUPPORTED, "%s: has no tokenizer, so no tables", model->path);
    return cli_engram_open_all(&x->engram, &o->engrams, o->context_table, x->context.said, false, o->engram_thinking,
                               model, e);
}

void cli_beside_ask(struct ask *a, const struct cli_beside *x)
{
    a->context = x->context.own != NULL ? &x->context.index : NULL;
    a->notes = x->notes.r != NULL ? &x->notes.index : NULL;
    a->recite = x->named.r != NULL ? &x->named.index : NULL;
    a->tables = x->engram.table != NULL ? &x->engram.mix : NULL;
}

enum err_code cli_beside_retrieve(struct ask *a, const struct cli_beside_opts *o, const struct reason_calibration *c,
                                  struct err *e)
{
    a->retrieves = o->retrieve == 1;
    a->retrieve_below = ASK_RETRIEVE_BELOW;
    if (c != NULL && reason_calibration_retrieve(c, &a->retrieve_below) == false && a->retrieves &&
        isnan(o->retrieve_below))
        return err_set(e, ERR_FORMAT,
                       "--calibration: says nothing of --retrieve: chimere-bench calibrate --examples adds it");
    if (!isnan(o->retrieve_below))
        a->retrieve_below = o->retrieve_below;
    return ERR_OK;
}

void cli_beside_close(struct cli_beside *x)
{
    cli_engram_close(&x->engram);
    cli_notes_close(&x->notes);
    cli_notes_close(&x->named);
    cli_document_close(&x->context);
}

/* ---- hashes ---- */

uint64_t cli_hash_text(uint64_t h, const char *text)
{
    return text != NULL ? io_hash(h + 1, text, strlen(text)) : h;
}

enum err_code cli_hash_file(uint64_t *h, const char *path, struct err *e)
{
    struct io_map m;
    struct stat st;

    if (path == NULL)
        return ERR_OK;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        *h = cli_hash_text(*h, path);
        return ERR_OK;
    }
    if (io_map_open(&m, path, e))
        return e->code;
    *h = io_hash(*h + 1, m.data, m.size);
    io_map_close(&m);
    return ERR_OK;
}

enum err_code cli_beside_hash(uint64_t *h, const struct cli_beside_opts *o, struct err *e)
{
    const char *indexes[] = { o->examples, o->recite }, *domains;
    char path[4096];
    float x;

    for (size_t i = 0; i < o->engrams.n; i++) {
        x = CLI_ENGRAM_WEIGHT;
        if (cli_engram_named(o->engrams.v[i], path, sizeof path, &domains, &x, 1, e) || cli_hash_file(h, path, e))
            return e->code;
        *h = io_hash(cli_hash_text(*h, domains), &x, sizeof x);
    }
    for (size_t i = 0; i < 2; i++) {
        x = 0;
        *h += i + 1;
        if (indexes[i] != NULL &&
            (cli_file_number(indexes[i], path, sizeof path, 0, 1e9F, &x, e) || cli_hash_file(h, path, e)))
            return e->code;
        *h = io_hash(*h, &x, sizeof x);
    }
    *h += o->engram_thinking;
    return cli_hash_file(h, o->context_table, e);
}
