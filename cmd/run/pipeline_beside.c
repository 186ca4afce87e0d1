/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_beside.c - what a pipeline uses beside the model: indexes, tables, adapters, commands.      room: cmd */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/child.h"
#include "run/pipeline.h"

enum { STATUS_TIME = 124, STATUS_BYTES = 125, STATUS_SIGNAL = 128 };

enum err_code cli_pipeline_path(char **out, const struct cli_pipeline *x, const char *name, struct err *e)
{
    const char *within = strncmp(name, "./", 2) == 0 ? name + 2 : name;
    const size_t n = strlen(x->directory) + strlen(name) + 2;
    char *path = malloc(n);

    if (path == NULL)
        return err_nomem(e);
    (void)snprintf(path, n, "%s%s%s", *name == '/' ? "" : x->directory, *name == '/' ? "" : "/", within);
    *out = path;
    return ERR_OK;
}

/* A file of a generation, if it has one. */
static enum err_code find_part(char **out, const char *generation, const char *name, struct err *e)
{
    const size_t n = strlen(generation) + strlen(name) + 2;
    char *path = malloc(n);

    if (path == NULL)
        return err_nomem(e);
    (void)snprintf(path, n, "%s/%s", generation, name);
    if (access(path, F_OK) != 0) {
        free(path);
        path = NULL;
    }
    *out = path;
    return ERR_OK;
}

static enum err_code add_table(struct cli_step_memory *m, const char *path, struct err *e)
{
    const char **v = realloc(m->opts.engrams.v, (m->opts.engrams.n + 1) * sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    v[m->opts.engrams.n++] = path;
    m->opts.engrams.v = v;
    return ERR_OK;
}

/* Adapter, table and index of a directory, as far as they are there. */
static enum err_code use_generation(struct cli_pipeline *x, struct cli_step_memory *m, const char *generation,
                                    struct err *e)
{
    char *adapter = NULL;
    enum err_code code;

    if (access(generation, F_OK) != 0)
        return err_set(e, ERR_IO, "%s: there is no such generation", generation);
    if (find_part(&m->path[0], generation, "memory.engram", e) ||
        find_part(&m->path[1], generation, "notes.index", e) || find_part(&adapter, generation, "adapter.gguf", e))
        return e->code;
    m->opts.examples = m->path[1];
    code = m->path[0] != NULL ? add_table(m, m->path[0], e) : ERR_OK;
    if (code == ERR_OK && adapter != NULL) {
        const char *names[] = { adapter };

        code = cli_adapters_open(&m->adapters, &(struct cli_list){ .v = names, .n = 1 }, x->s->open.gguf, e);
    }
    free(adapter);
    return code;
}

static enum err_code open_texts(struct cli_pipeline *x, const struct pipeline_step *s, struct err *e)
{
    const struct pipeline_memory *from = &s->memory;
    struct cli_step_memory *m = &x->memory[s->at];
    char *path;
    const json_t *one;
    size_t i;

    if (from->generation != NULL) {
        if (cli_pipeline_path(&path, x, from->generation, e))
            return e->code;
        const enum err_code code = use_generation(x, m, path, e);

        free(path);
        if (code)
            return err_at(e, "/generation");
    }
    if (from->index != NULL) {
        free(m->path[1]);
        m->path[1] = NULL;
        if (cli_pipeline_path(&m->path[1], x, from->index, e))
            return e->code;
        m->opts.examples = m->path[1];
    }
    if (from->recite != NULL && cli_pipeline_path(&m->path[2], x, from->recite, e))
        return e->code;
    m->opts.recite = m->path[2];
    json_array_foreach (from->tables, i, one) {
        if (cli_pipeline_path(&path, x, json_string_value(one), e))
            return e->code;
        if (add_table(m, path, e)) {
            free(path);
            return e->code;
        }
    }
    return cli_beside_texts(&m->beside, &m->opts, &x->s->open, e);
}

enum err_code cli_pipeline_texts(struct cli_pipeline *x, struct err *e)
{
    for (int i = 0; i < pipeline_n_steps(x->p); i++) {
        const struct pipeline_step *s = pipeline_step_at(x->p, i);

        if (s->kind == PIPELINE_PROMPT && s->has_memory && open_texts(x, s, e)) {
            err_wrap(e, "%s/memory", s->where);
            return err_wrap(e, "%s", x->s->o->pipeline);
        }
    }
    return ERR_OK;
}

enum err_code cli_pipeline_tables(struct cli_pipeline *x, struct err *e)
{
    for (int i = 0; i < pipeline_n_steps(x->p); i++) {
        const struct pipeline_step *s = pipeline_step_at(x->p, i);
        struct cli_step_memory *m = &x->memory[i];

        if (s->kind == PIPELINE_PROMPT && s->has_memory &&
            (cli_beside_tables(&m->beside, &m->opts, &x->s->open, e) ||
             cli_adapters_load(&m->adapters, x->s->open.model, e))) {
            err_wrap(e, "%s/memory", s->where);
            return err_wrap(e, "%s", x->s->o->pipeline);
        }
    }
    return ERR_OK;
}

int cli_pipeline_rank(const struct cli_pipeline *x)
{
    int most = 0;

    for (int i = 0; i < pipeline_n_steps(x->p); i++)
        most = x->memory[i].adapters.rank > most ? x->memory[i].adapters.rank : most;
    return most;
}

void cli_pipeline_forget(struct cli_pipeline *x)
{
    for (int i = 0; x->memory != NULL && i < pipeline_n_steps(x->p); i++) {
        struct cli_step_memory *m = &x->memory[i];

        cli_beside_close(&m->beside);
        cli_adapters_close(&m->adapters);
        for (size_t k = 0; k < m->opts.engrams.n; k++)
            if (m->opts.engrams.v[k] != m->path[0])
                free((char *)(uintptr_t)m->opts.engrams.v[k]);
        free(m->opts.engrams.v);
        for (int k = 0; k < 3; k++)
            free(m->path[k]);
    }
    free(x->memory);
    x->memory = NULL;
}

/* ---- commands ---- */

static int status_of(const struct cli_child_end *end)
{
    switch (end->how) {
    case CLI_CHILD_SIGNAL:
        return STATUS_SIGNAL + end->status;
    case CLI_CHILD_TIME:
        return STATUS_TIME;
    case CLI_CHILD_BYTES:
        return STATUS_BYTES;
    default:
        return end->status;
    }
}

/* The words of a command, malloc'ed. A word that begins with ./ or ../ is a path relative to the pipeline file. */
static enum err_code place_words(char **argv, const struct cli_pipeline *x, const struct pipeline_command *c,
                                 struct err *e)
{
    for (int i = 0; i < c->n; i++) {
        const bool within = strncmp(c->argv[i], "./", 2) == 0 || strncmp(c->argv[i], "../", 3) == 0;

        if (within ? cli_pipeline_path(&argv[i], x, c->argv[i], e) != ERR_OK : (argv[i] = strdup(c->argv[i])) == NULL)
            return err_nomem(e);
    }
    return ERR_OK;
}

enum err_code cli_pipeline_command(json_t **result, const struct cli_pipeline *x, const struct pipeline_command *c,
                                   struct str in, struct err *e)
{
    static const char *const ends[] = { "exit", "signal", "time", "bytes" };
    char **argv = calloc((size_t)c->n + 1, sizeof *argv);
    struct cli_buf out = { 0 };
    struct cli_child_end end = { .status = 0 };
    enum err_code code = argv != NULL ? place_words(argv, x, c, e) : err_nomem(e);

    if (code == ERR_OK)
        code = cli_child_argv(&end, (const char *const *)argv, in, &out, c->bytes, c->seconds, e);
    if (code == ERR_OK) {
        json_t *o = json_pack("{s:i, s:s}", "status", status_of(&end), "end", ends[end.how]);

        code = o != NULL ? pipeline_set_text(o, (struct str){ out.p != NULL ? out.p : "", out.n }, e) : err_nomem(e);
        if (code == ERR_OK)
            *result = o;
        else
            json_decref(o);
    }
    cli_buf_free(&out);
    for (int i = 0; argv != NULL && i < c->n; i++)
        free(argv[i]);
    free(argv);
    return code;
}
