/* SPDX-License-Identifier: Apache-2.0 */
/* open.c - what is measured: models, random models, texts.                 room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/io.h"
#include "bench/bench.h"
#include "cli/placement.h"
#include "cli/recipe.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "quant/quant.h"
#include "run/run.h"
#include "shape/shape.h"

#define TEXT_MAX (1U << 30) /* bytes of one text */

/* A new directory where n more bytes fit: in memory if there is a file system for that. */
static enum err_code room_for(char *dir, size_t dir_bytes, int64_t n, struct err *e)
{
    static const char *const places[] = { "/dev/shm", "/tmp" };

    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct statvfs fs;

        if (statvfs(places[i], &fs) != 0 || (double)fs.f_bavail * (double)fs.f_frsize < (double)n * 1.02)
            continue;
        snprintf(dir, dir_bytes, "%s/chimere-XXXXXX", places[i]);
        if (mkdtemp(dir) != NULL)
            return ERR_OK;
    }
    return err_set(e, ERR_IO, "neither /dev/shm nor /tmp has %.2f GB free for the weights", (double)n / 1e9);
}

static bool weights_tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress("weights: %.2f of %.2f GB", (double)done / 1e9, (double)total / 1e9);
    return !cli_interrupted();
}

const struct progress cli_bench_weights = { weights_tick, NULL };

enum err_code cli_bench_shape(struct shape **out, char routing[32], const struct bench *b, struct err *e)
{
    routing[0] = '\0';
    if (cli_shape_open(out, b->o->shape, b->o->mix, e))
        return e->code;
    if (b->o->routing <= 0)
        return ERR_OK;
    snprintf(routing, 32, " routing=%g", (double)b->o->routing);
    if (shape_route(*out, (double)b->o->routing, e))
        shape_close(*out);
    return e->code;
}

/* Makes the shape's file, and takes its name away again: it lives as long as it is mapped. */
static enum err_code open_shape(struct bench *b, struct err *e)
{
    struct shape *s;
    char dir[64], routing[32];
    enum err_code code;

    if (cli_bench_shape(&s, routing, b, e))
        return e->code;
    if (room_for(dir, sizeof dir, shape_bytes(s), e)) {
        shape_close(s);
        return e->code;
    }
    snprintf(b->open.path, sizeof b->open.path, "%s/model.gguf", dir);
    snprintf(b->label, sizeof b->label, "shape:%.150s:%.40s%s", b->o->shape, b->o->mix, routing);
    code = shape_write(s, b->open.path, (uint64_t)b->o->seed, &cli_bench_weights, e);
    cli_progress_end();
    if (code == ERR_OK)
        code = gguf_open(&b->open.gguf, b->open.path, e);
    unlink(b->open.path);
    rmdir(dir);
    shape_close(s);
    return code;
}

static void note_device(struct bench *b)
{
    snprintf(b->device, sizeof b->device, "%s", model_info(b->open.model)->device);
    snprintf(b->kernels, sizeof b->kernels, "%s", model_info(b->open.model)->simd);
    b->n_threads = model_info(b->open.model)->n_threads;
}

enum err_code cli_bench_open(struct bench *b, bool with_text, struct err *e)
{
    const char *name;

    b->open.o = b->o->model;
    if (b->o->shape != NULL) {
        if (open_shape(b, e))
            return e->code;
    } else {
        if (cli_open(&b->open, &b->o->model, e))
            return e->code;
        name = strrchr(b->open.path, '/');
        snprintf(b->label, sizeof b->label, "%.120s%s", name ? name + 1 : b->open.path, b->open.adapters.name);
    }
    if (cli_open_model(&b->open, e) || (with_text && cli_open_text(&b->open, true, e)))
        return e->code;
    note_device(b);
    b->fingerprint = cli_open_fingerprint(&b->open);
    return ERR_OK;
}

void cli_bench_close(struct bench *b)
{
    cli_opened_close(&b->open);
}

void cli_bench_show(void *ctx, const char *line)
{
    cli_bench_line(ctx, "%s", line);
}

enum err_code cli_bench_run(struct run **out, struct bench *b, struct run_opts ro, struct err *e)
{
    bool planned = b->open.placement != NULL;
    const char *k, *v;

    ro.stop = cli_interrupted;
    if (cli_open_plan(&b->open, &ro, e))
        return e->code;
    if (b->o->verbose && b->open.placement != NULL && !planned)
        cli_placement_text(b->open.placement, 0, cli_bench_show, b);
    if (cli_open_run(out, &b->open, &ro, e))
        return e->code;
    note_device(b);
    run_kv(*out, &k, &v);
    snprintf(b->kv, sizeof b->kv, "%s,%s", k, v);
    return ERR_OK;
}

double cli_bench_kv_bytes(const char *k, const char *v)
{
    const char *name[2] = { k, v };
    double bytes = 0;

    for (int i = 0; i < 2; i++) {
        int type = quant_find_name(str_of(name[i]));

        if (type >= 0)
            bytes += 0.5 * quant_types[type]->block_bytes / quant_types[type]->block_elems;
    }
    return bytes;
}

/* ---- texts ---- */

static enum err_code add_text(struct bench_texts *t, const struct bench *b, struct str s, struct err *e)
{
    const struct ask_model m = { .text = b->open.text };
    struct ask a = ask_defaults();
    struct text_tokens ids = { 0 };
    struct eval_tokens *v = realloc(t->v, (t->n + 1) * sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    t->v = v;
    a.text = s;
    a.plain = true;
    if (ask_prompt(&ids, &a, &m, NULL, e)) {
        text_tokens_free(&ids);
        return e->code;
    }
    t->hash = io_hash(t->hash, ids.v, (size_t)ids.n * sizeof *ids.v);
    t->n_tokens += ids.n;
    t->v[t->n++] = (struct eval_tokens){ ids.v, ids.n };
    return ERR_OK;
}

/* The member "text" of each line. */
static enum err_code add_lines(struct bench_texts *t, const struct bench *b, const char *path, struct err *e)
{
    json_t *all;
    enum err_code code = cli_bench_load(&all, path, e);

    if (code)
        return code;
    for (size_t i = 0; code == ERR_OK && i < json_array_size(all); i++) {
        struct str s;

        code = json_get_str(json_array_get(all, i), "text", &s)
                   ? add_text(t, b, s, e)
                   : err_set(e, ERR_FORMAT, "%s: record %zu has no text", path, i + 1);
    }
    json_decref(all);
    return code;
}

static enum err_code add_file(struct bench_texts *t, const struct bench *b, const char *path, struct err *e)
{
    size_t n = strlen(path);
    char *data;
    enum err_code code;

    if (n > 6 && strcmp(path + (n - 6), ".jsonl") == 0)
        return add_lines(t, b, path, e);
    if (io_read_text(&data, &n, path, TEXT_MAX, cli_interrupted, e))
        return e->code;
    if (n > 0 && data[n - 1] == '\n') /* the end of the last line ends the text */
        n--;
    code = add_text(t, b, (struct str){ data, n }, e);
    free(data);
    return code;
}

enum err_code cli_bench_texts(struct bench_texts *out, const struct bench *b, struct err *e)
{
    struct bench_texts t = { .hash = 0xcbf29ce484222325u };

    enum err_code code = *b->operands == NULL ? add_file(&t, b, "-", e) : ERR_OK;

    for (char **f = b->operands; code == ERR_OK && *f != NULL; f++)
        code = add_file(&t, b, *f, e);
    if (code)
        cli_bench_texts_free(&t);
    else
        *out = t;
    return code;
}

void cli_bench_texts_free(struct bench_texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        free((void *)(uintptr_t)t->v[i].v);
    free(t->v);
    *t = (struct bench_texts){ 0 };
}

struct eval_window_opts cli_bench_windows(const struct bench *b)
{
    const struct text_info *info = text_info(b->open.text);

    return (struct eval_window_opts){
        .ctx_tokens = b->o->model.ctx_tokens > 0 ? b->o->model.ctx_tokens : 512,
        .stride_tokens = b->o->stride,
        .windows_max = b->o->windows,
        .bos = info->add_bos ? info->bos : -1,
    };
}

static bool show_progress(void *ctx, uint64_t done, uint64_t total)
{
    const char *what = ctx;

    if (cli_status_asked())
        fprintf(stderr, "%s: %s: %" PRIu64 " of %" PRIu64 "\n", cli_name(), what, done, total);
    cli_progress_count(what, (int64_t)done, (int64_t)total, "");
    return !cli_interrupted();
}

struct progress cli_bench_progress(const char *what)
{
    return (struct progress){ show_progress, (void *)(uintptr_t)what };
}
