/* SPDX-License-Identifier: Apache-2.0 */
/* synth.c - what a model of a known shape weighs, where it would lie, how fast it can be.
 * room: cmd (cli_) */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/pool.h"
#include "bench/bench.h"
#include "cli/placement.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "run/placement.h"
#include "shape/shape.h"

#define RESERVE_BYTES ((int64_t)512 << 20) /* of this machine's memory: for activations and others */

struct synth {
    struct bench *b;
    struct shape *shape;
    struct eval_traffic t;
    int64_t ctx_tokens, memory_bytes; /* of one sequence at that context */
    json_t *r;
};

/* What goes where on a device of that size: planned by what would run the model. */
static enum err_code plan_device(struct synth *s, struct err *e)
{
    struct bench *b = s->b;
    struct run_opts ro = { .ctx_tokens = s->ctx_tokens, .rows_max = b->o->model.chunk };

    b->open.o.plan = true;
    return cli_open_model(&b->open, e) ? e->code : cli_open_plan(&b->open, &ro, e);
}

/* Bytes of an element of the KV cache: as planned, or as the CPU has it. */
static double kv_bytes(const struct bench *b)
{
    struct run_opts ro = { .kv_k = "f32", .kv_v = "f32" };
    char kv[CLI_KV_BYTES];

    cli_open_kv(&b->o->model, &ro, kv);
    if (b->open.placement != NULL)
        return cli_bench_kv_bytes(b->open.placement->kv_k, b->open.placement->kv_v);
    return cli_bench_kv_bytes(ro.kv_k, ro.kv_v);
}

static void describe_shape(struct synth *s)
{
    int64_t bytes = shape_bytes(s->shape);
    json_t *kinds = json_object();
    double step = eval_memory_bytes(&s->t, 0, kv_bytes(s->b));
    int64_t memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    bool fits = bytes + s->memory_bytes + RESERVE_BYTES < memory;

    for (int c = 0; c < MODEL_N_CLASSES; c++) {
        if (s->t.weight_bytes[c] == 0)
            continue;
        json_object_set_new(kinds, model_class_name((enum model_class)c), json_integer(s->t.weight_bytes[c]));
        step += eval_step_bytes(&s->t, (enum model_class)c, 1);
        cli_bench_line(s->b, "  %-14s %10.3f GB, a token reads %8.3f GB", model_class_name((enum model_class)c),
                       (double)s->t.weight_bytes[c] / 1e9, eval_step_bytes(&s->t, (enum model_class)c, 1) / 1e9);
    }
    cli_bench_int(s->r, "weight_bytes", bytes);
    cli_bench_int(s->r, "n_params", s->t.n_params);
    cli_bench_real(s->r, "bits_per_weight", 8.0 * (double)bytes / (double)s->t.n_params);
    cli_bench_int(s->r, "ctx_tokens", s->ctx_tokens);
    cli_bench_int(s->r, "sequence_bytes", s->memory_bytes);
    cli_bench_int(s->r, "state_bytes", s->t.state_bytes);
    cli_bench_real(s->r, "kv_bytes_per_token", (double)s->t.kv_floats * kv_bytes(s->b));
    cli_bench_real(s->r, "step_bytes", step);
    cli_bench_int(s->r, "memory_bytes", memory);
    json_object_set_new(s->r, "fits_memory", json_boolean(fits));
    json_object_set_new(s->r, "weight_bytes_by_kind", kinds);
    cli_bench_line(s->b,
                   "  weights %.3f GB, %.2f bits each of %.2f G; a sequence of %lld tokens %.3f "
                   "GB; %s the %.1f GB here",
                   (double)bytes / 1e9, 8.0 * (double)bytes / (double)s->t.n_params, (double)s->t.n_params / 1e9,
                   (long long)s->ctx_tokens, (double)s->memory_bytes / 1e9, fits ? "fits" : "DOES NOT FIT",
                   (double)memory / 1e9);
    if (s->b->o->bandwidth > 0) {
        cli_bench_real(s->r, "decode_bound_tps", (double)s->b->o->bandwidth * 1e9 / step);
        cli_bench_line(s->b, "  a token reads %.3f GB: at most %.1f tokens/s at %g GB/s", step / 1e9,
                       (double)s->b->o->bandwidth * 1e9 / step, (double)s->b->o->bandwidth);
    }
}

static enum err_code list_shapes(void)
{
    const char *name;

    for (size_t i = 0; (name = shape_name_at(i)) != NULL; i++)
        printf("%s\n", name);
    return ERR_OK;
}

enum err_code cli_bench_cmd_synth(struct bench *b, struct err *e)
{
    struct synth s = { .b = b };
    const double card = (double)b->o->bandwidth * 1e9; /* 0: not given */
    char what[256], routing[32];
    enum err_code code;

    if (b->o->shape == NULL)
        return list_shapes();
    if (cli_bench_shape(&s.shape, routing, b, e))
        return e->code;
    s.ctx_tokens = b->o->model.ctx_tokens > 0 ? b->o->model.ctx_tokens : 8192;
    code = cli_open_shape(&b->open, &b->o->model, s.shape, e) ? e->code : eval_traffic(&s.t, b->open.gguf, e);
    if (code == ERR_OK && b->o->model.vram != NULL)
        code = plan_device(&s, e);
    if (code == ERR_OK) {
        s.memory_bytes = s.t.state_bytes + (int64_t)((double)s.t.kv_floats * kv_bytes(b) * (double)s.ctx_tokens);
        snprintf(what, sizeof what, "%s mix=%s%s", b->o->shape, b->o->mix, routing);
        cli_bench_line(b, "%s", what);
        s.r = cli_bench_record("synth", what, "weight_bytes", "lower");
        cli_bench_real(s.r, "noise", 0);
        describe_shape(&s);
        if (b->open.placement != NULL) {
            cli_placement_text(b->open.placement, card, cli_bench_show, b);
            json_object_set_new(s.r, "plan", cli_placement_json(b->open.placement, card));
        }
    }
    if (code == ERR_OK && b->o->write != NULL) {
        code = b->o->holes ? shape_write_holes(s.shape, b->o->write, e)
                           : shape_write(s.shape, b->o->write, (uint64_t)b->o->seed, &cli_bench_weights, e);
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
