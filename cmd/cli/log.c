/* SPDX-License-Identifier: Apache-2.0 */
/* log.c - answers are kept in a directory (log.h).                           room: cmd */
#include "cli/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapt/adapt.h"
#include "cli/engram.h"
#include "cli/recall.h"

static void warn(void *of, const char *message)
{
    (void)of;
    cli_warn("--log: %s", message);
}

enum err_code cli_log_open(struct journal **out, const struct cli_log_opts *o, struct err *e)
{
    const struct journal_opts jo = { .dir = o->dir,
                                     .is_there = o->is_there,
                                     .redact = o->redact.v,
                                     .n_redact = o->redact.n,
                                     .bytes_max = o->bytes_max,
                                     .warn = warn };

    *out = NULL;
    if (o->dir == NULL || journal_open(out, &jo, e) == ERR_OK)
        return ERR_OK;
    return err_wrap(e, strncmp(e->where, "/redact", 7) == 0 ? "--redact" : "--log");
}

/* Where the link leads that a file's directory is; false: it is none. */
static bool read_generation(const char *path, char *buf, size_t room)
{
    const char *slash = strrchr(path, '/');
    char dir[4096];
    ssize_t n;

    if (slash == NULL || slash == path || (size_t)(slash - path) >= sizeof dir)
        return false;
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = '\0';
    n = readlink(dir, buf, room - 1);
    if (n <= 0)
        return false;
    buf[n] = '\0';
    return true;
}

struct files {
    json_t *adapters, *tables;
    char generation[4096]; /* "": none */
};

static void note_generation(struct files *f, const char *path)
{
    if (f->generation[0] == '\0' && !read_generation(path, f->generation, sizeof f->generation))
        f->generation[0] = '\0';
}

static enum err_code list_files(struct files *f, const struct cli_log_beside *x, struct err *e)
{
    const char *const indexes[] = { x->examples, x->recite }, *domains;
    char path[4096];
    float weight;

    for (int i = 0; i < x->adapters->n; i++) {
        const struct adapter *a = x->adapters->file[i];

        note_generation(f, a->path);
        json_push(&f->adapters,
                  json_pack("{s:o, s:o, s:f}", "file", json_bytes(str_of(a->path)), "fingerprint",
                            cli_json_hash(adapter_fingerprint(a)), "scale", (double)x->adapters->list[i].scale));
    }
    for (size_t i = 0; i < x->engrams->n; i++) {
        weight = CLI_ENGRAM_WEIGHT;
        if (cli_engram_named(x->engrams->v[i], path, sizeof path, &domains, &weight, 1, e))
            return e->code;
        note_generation(f, path);
        json_push(&f->tables, json_pack("{s:o, s:f}", "file", json_bytes(str_of(path)), "weight", (double)weight));
    }
    if (x->context_table != NULL)
        json_push(&f->tables, json_pack("{s:o}", "text", json_bytes(str_of(x->context_table))));
    for (size_t i = 0; i < 2; i++) {
        weight = 0;
        if (indexes[i] != NULL && cli_file_number(indexes[i], path, sizeof path, 0, CLI_NOTES_MAX, &weight, e))
            return e->code;
        if (indexes[i] != NULL)
            note_generation(f, path);
    }
    return ERR_OK;
}

enum err_code cli_log_facts(json_t **out, const struct cli_log_beside *x, struct err *e)
{
    struct files f = { json_array(), json_array(), "" };
    enum err_code code = list_files(&f, x, e);
    json_t *o;

    if (code != ERR_OK) {
        json_decref(f.adapters);
        json_decref(f.tables);
        return code;
    }
    note_generation(&f, x->open->path);
    o = json_pack("{s:s, s:s, s:{s:o, s:o}, s:o, s:o}", "program", cli_name(), "build", CHIMERE_VERSION, "model",
                  "file", json_bytes(str_of(x->open->path)), "fingerprint",
                  x->fingerprint != NULL ? json_incref((json_t *)(uintptr_t)x->fingerprint)
                                         : cli_json_hash(model_fingerprint(x->open->model)),
                  "adapters", f.adapters, "tables", f.tables);
    if (o != NULL && f.generation[0] != '\0' && !cli_json_set(o, "generation", json_bytes(str_of(f.generation))))
        o = json_if(false, o);
    if (o == NULL)
        return err_nomem(e);
    *out = o;
    return ERR_OK;
}
