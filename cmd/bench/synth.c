/* SPDX-License-Identifier: Apache-2.0 */
/* synth.c - what a model of a known shape weighs, where it would lie, how fast it can be.  room:
 * cmd (cli_) */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/pool.h"
#include "bench/bench.h"
#include "gguf/gguf.h"
#include "shape/shape.h"

#define RESERVE_BYTES                                                                              \
    ((int64_t)512 << 20) /* of a GPU's memory: for activations, and what else draws on it */

struct synth {
    struct bench *b;
    struct shape *shape;
    struct eval_traffic t;
    int64_t ctx_tokens, memory_bytes; /* of one sequence at that context */
    json_t *r;
};

/* Metadata through a real reader: a skeleton file is written, read, and gone. */
static enum err_code plan(struct synth *s, struct err *e)
{
    char dir[] = "/tmp/chimere-XXXXXX", path[64];
    struct gguf *g = NULL;
    enum err_code code;

    if (mkdtemp(dir) == NULL)
        return err_set(e, ERR_IO, "/tmp: cannot make a directory");
    snprintf(path, sizeof path, "%s/skeleton.gguf", dir);
    code = shape_write_skeleton(s->shape, path, e);
    if (code == ERR_OK)
        code = gguf_open(&g, path, e);
    if (code == ERR_OK)
        code = eval_traffic(&s->t, g, e);
    gguf_close(g);
    unlink(path);
    rmdir(dir);
    if (code != ERR_OK)
        return code;
    memset(s->t.weight_bytes, 0, sizeof s->t.weight_bytes);
    s->t.n_params = 0;
    for (size_t i = 0; i < shape_n_tensors(s->shape); i++) {
        const struct shape_tensor *w = shape_tensor_at(s->shape, i);
        enum model_class c = model_class_of(str_of(w->name), s->t.n_layer);

        s->t.weight_bytes[c] += w->size_bytes;
        s->t.n_params += w->ne[0] * w->ne[1] * w->ne[2];
        if (c == MODEL_EMBEDDING)
            s->t.row_bytes = w->size_bytes / w->ne[1];
    }
    return ERR_OK;
}

static void describe(struct synth *s)
{
    int64_t bytes = shape_bytes(s->shape);
    json_t *kinds = json_object();
    double step = eval_memory_bytes(&s->t, 0, cli_bench_kv_bytes(s->b));
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    bool fits = bytes + s->memory_bytes + RESERVE_BYTES < memory;

    for (int c = 0; c < MODEL_N_CLASSES; c++) {
        if (s->t.weight_bytes[c] == 0)
            continue;
        json_object_set_new(kinds, model_class_name((enum model_class)c),
                            json_integer(s->t.weight_bytes[c]));
        step += eval_step_bytes(&s->t, (enum model_class)c, 1);
        cli_bench_line(s->b, "  %-14s %10.3f GB, a token reads %8.3f GB",
                       model_class_name((enum model_class)c), (double)s->t.weight_bytes[c] / 1e9,
                       eval_step_bytes(&s->t, (enum model_class)c, 1) / 1e9);
    }
    cli_bench_int(s->r, "weight_bytes", bytes);
    cli_bench_int(s->r, "n_params", s->t.n_params);
    cli_bench_real(s->r, "bits_per_weight", 8.0 * (double)bytes / (double)s->t.n_params);
    cli_bench_int(s->r, "ctx_tokens", s->ctx_tokens);
    cli_bench_int(s->r, "sequence_bytes", s->memory_bytes);
    cli_bench_int(s->r, "state_bytes", s->t.state_bytes);
    cli_bench_real(s->r, "kv_bytes_per_token", (double)s->t.kv_floats * cli_bench_kv_bytes(s->b));
    cli_bench_real(s->r, "step_bytes", step);
    cli_bench_int(s->r, "memory_bytes", memory);
    json_object_set_new(s->r, "fits_memory", json_boolean(fits));
    json_object_set_new(s->r, "weight_bytes_by_kind", kinds);
    cli_bench_line(s->b,
                   "  weights %.3f GB, %.2f bits each of %.2f G; a sequence of %lld tokens %.3f "
                   "GB; %s the %.1f GB here",
                   (double)bytes / 1e9, 8.0 * (double)bytes / (double)s->t.n_params,
                   (double)s->t.n_params / 1e9, (long long)s->ctx_tokens,
                   (double)s->memory_bytes / 1e9, fits ? "fits" : "DOES NOT FIT",
                   (double)memory / 1e9);
    if (s->b->o->bandwidth > 0) {
        cli_bench_real(s->r, "decode_bound_tps", (double)s->b->o->bandwidth * 1e9 / step);
        cli_bench_line(s->b, "  a token reads %.3f GB: at most %.1f tokens/s at %g GB/s",
                       step / 1e9, (double)s->b->o->bandwidth * 1e9 / step,
                       (double)s->b->o->bandwidth);
    }
}

/* ---- placement: what serves every token first, then experts layer by layer ---- */

static bool is_expert_of(const struct shape_tensor *w, int layer)
{
    char prefix[32];

    snprintf(prefix, sizeof prefix, "blk.%d.", layer);
    return strncmp(w->name, prefix, strlen(prefix)) == 0 && strstr(w->name, "_exps.") != NULL;
}

static int64_t expert_bytes(const struct synth *s, int layer)
{
    int64_t n = 0;

    for (size_t i = 0; i < shape_n_tensors(s->shape); i++)
        if (is_expert_of(shape_tensor_at(s->shape, i), layer))
            n += shape_tensor_at(s->shape, i)->size_bytes;
    return n;
}

static enum err_code place(struct synth *s, struct err *e)
{
    static const enum model_class order[] = {MODEL_OTHER,     MODEL_ROUTER,   MODEL_ATTENTION,
                                            MODEL_RECURRENT, MODEL_SHARED,   MODEL_DENSE,
                                            MODEL_OUTPUT,    MODEL_EMBEDDING};
    int64_t vram, left, on_device = 0;
    int n_on = 0, n_moe = 0;
    json_t *where = json_object();

    if (cli_bench_bytes(&vram, s->b->o->vram, "vram", e)) {
        json_decref(where);
        return e->code;
    }
    left = vram - RESERVE_BYTES - s->memory_bytes;
    cli_bench_line(s->b, "  of %.2f GB on the device: %.2f GB reserved, %.3f GB for the sequence",
                   (double)vram / 1e9, (double)RESERVE_BYTES / 1e9, (double)s->memory_bytes / 1e9);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        int64_t n = s->t.weight_bytes[order[i]];
        bool on = n > 0 && n <= left &&
                  (order[i] != MODEL_EMBEDDING || s->t.tied); /* rows are looked up: no need */

        if (n == 0)
            continue;
        json_object_set_new(where, model_class_name(order[i]), json_string(on ? "device" : "host"));
        cli_bench_line(s->b, "    %-14s %9.3f GB  %s", model_class_name(order[i]), (double)n / 1e9,
                       on ? "device" : "host");
        left -= on ? n : 0;
        on_device += on ? n : 0;
    }
    for (int i = 0; i < s->t.n_layer; i++) {
        int64_t n = expert_bytes(s, i);

        if (n == 0)
            continue;
        n_moe++;
        if (n > left)
            continue;
        left -= n;
        on_device += n;
        n_on++;
    }
    if (n_moe > 0)
        cli_bench_line(s->b, "    %-14s %9.3f GB  %d of %d layers on the device", "experts",
                       (double)s->t.weight_bytes[MODEL_EXPERTS] / 1e9, n_on, n_moe);
    cli_bench_line(s->b, "  device %.3f GB of weights, host %.3f GB, free %.3f GB%s",
                   (double)on_device / 1e9, (double)(shape_bytes(s->shape) - on_device) / 1e9,
                   (double)left / 1e9, left < 0 ? ": THE SEQUENCE ALONE DOES NOT FIT" : "");
    cli_bench_int(s->r, "vram_bytes", vram);
    cli_bench_int(s->r, "device_weight_bytes", on_device);
    cli_bench_int(s->r, "host_weight_bytes", shape_bytes(s->shape) - on_device);
    cli_bench_int(s->r, "device_free_bytes", left);
    cli_bench_int(s->r, "expert_layers_on_device", n_on);
    cli_bench_int(s->r, "expert_layers", n_moe);
    json_object_set_new(s->r, "placement", where);
    return ERR_OK;
}

static bool tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress("weights: %.2f of %.2f GB", (double)done / 1e9, (double)total / 1e9);
    return !cli_interrupted();
}

static enum err_code list_shapes(const struct bench *b)
{
    const char *name;

    for (size_t i = 0; (name = shape_name_at(i)) != NULL; i++)
        printf("%s\n", name);
    (void)b;
    return ERR_OK;
}

enum err_code cli_bench_cmd_synth(struct bench *b, struct err *e)
{
    struct synth s = {.b = b};
    struct progress progress = {tick, NULL};
    char what[256];
    enum err_code code;

    if (b->o->shape == NULL)
        return list_shapes(b);
    if (shape_open(&s.shape, b->o->shape, b->o->mix, e))
        return e->code;
    code = plan(&s, e);
    if (code == ERR_OK) {
        s.ctx_tokens = b->o->ctx_tokens > 0 ? b->o->ctx_tokens : 8192;
        s.memory_bytes = s.t.state_bytes + (int64_t)((double)s.t.kv_floats * cli_bench_kv_bytes(b) *
                                                     (double)s.ctx_tokens);
        snprintf(what, sizeof what, "%s mix=%s", b->o->shape, b->o->mix);
        cli_bench_line(b, "%s", what);
        s.r = cli_bench_record("synth", what, "weight_bytes", "lower");
        cli_bench_real(s.r, "noise", 0);
        describe(&s);
        if (b->o->vram != NULL)
            code = place(&s, e);
    }
    if (code == ERR_OK && b->o->write != NULL) {
        code = shape_write(s.shape, b->o->write, (uint64_t)b->o->seed, &progress, e);
        cli_bench_text(s.r, "file", b->o->write);
    }
    cli_progress_end();
    if (code == ERR_OK)
        code = cli_bench_done(b, s.r, e);
    else
        json_decref(s.r);
    shape_close(s.shape);
    return code;
}
