/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - dry runs of a model and its run, counted; experts placed in what is left. */
#include "run/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/forward.h"
#include "ops/ops.h"
#include "run/internal.h"
#include "state/state.h"

static int64_t sum(const int64_t *v, int n)
{
    int64_t all = 0;

    for (int i = 0; i < n; i++)
        all += v[i];
    return all;
}

static int64_t held_bytes(const struct model *m)
{
    return (int64_t)dev_held(model_dev(m));
}

static void note_plan(struct run_placement *f, const struct model *m, const struct run *r)
{
    const struct arch_plan *p = model_plan(m);

    f->n_layer = p->n_layer;
    f->n_expert = p->moe.n_expert;
    f->n_used = p->moe.n_used;
    f->ctx_tokens = r->ctx;
    f->n_seq = r->n_seq;
    f->rows_max = r->rows_max;
    run_kv(r, &f->kv_k, &f->kv_v);
    f->kv_blocks = quant_row_bytes(QUANT_q8_0, p->attn.dim_k) >= 0 && quant_row_bytes(QUANT_q4_0, p->attn.dim_v) >= 0;
    for (int i = 0; i < p->n_layer; i++)
        f->expert_bytes[i] = model_expert_bytes(m, i);
}

/* Opens everything as a dry run with these experts there, and counts. */
static enum err_code count_memory(struct run_placement *f, const struct gguf *g, const struct run_placement_opts *o,
                                  const struct model_experts *experts, struct err *e)
{
    struct model_opts mo = o->model;
    struct model *m = NULL;
    struct run *r = NULL;
    enum err_code code;

    mo.placement.dry_run = true;
    mo.placement.step_rows = f->step_rows;
    mo.placement.absent = o->absent;
    mo.placement.experts = experts;
    mo.placement.weight_bytes = NULL;
    code = model_open(&m, g, &mo, e);
    if (code == ERR_OK) {
        int64_t weights = held_bytes(m), all, on_host = model_host(m) == NULL ? 0 : (int64_t)dev_held(model_host(m));

        code = run_open(&r, m, &o->run, e);
        if (code == ERR_OK) {
            note_plan(f, m, r);
            all = held_bytes(m);
            f->weights = *model_weights(m);
            f->weight_bytes = sum(f->weights.device, MODEL_N_CLASSES);
            f->kv_tokens = state_kv_rows(r->state);
            f->kv_bytes = (int64_t)state_kv_bytes(r->state) * f->kv_tokens;
            f->state_bytes = state_bytes(r->state) - f->kv_bytes;
            f->logits_bytes = (int64_t)r->logits_bytes;
            f->scratch_bytes = all - weights - state_bytes(r->state) - f->logits_bytes + weights -
                               sum(f->weights.device, MODEL_N_CLASSES);
            f->host_scratch_bytes = model_host(m) == NULL ? 0 : (int64_t)dev_held(model_host(m)) - on_host;
            f->adapter_bytes = o->adapter_bytes;
            f->beside_bytes = o->beside_bytes;
            f->total_bytes = f->fixed_bytes + all + f->adapter_bytes + f->beside_bytes;
        }
    }
    run_close(r);
    model_close(m);
    return code;
}

/* Chooses which experts go to the device when it has room for `room` bytes of them. */
static enum err_code choose_experts(struct model_experts **out, const struct run_placement *f, const uint64_t *uses,
                                    int64_t room, struct err *e)
{
    enum { TENSORS = 3, ALIGN = 320 }; /* of a layer's experts; most that a device adds to each */
    struct model_experts_layer *layer = calloc((size_t)f->n_layer + 1, sizeof *layer);
    enum err_code code;

    if (layer == NULL)
        return err_nomem(e);
    for (int i = 0; i < f->n_layer; i++)
        if (f->expert_bytes[i] > 0)
            layer[i] = (struct model_experts_layer){ f->expert_bytes[i], TENSORS * ALIGN };
    code = model_experts_place(out, &(struct model_experts_in){ f->n_layer, f->n_expert, f->n_used, layer, uses, room },
                               e);
    free(layer);
    return code;
}

static enum err_code too_small(const struct run_placement *f, struct err *e)
{
    return err_set(
        e, ERR_LIMIT,
        "%s: %.3f GB are too little: %s takes at least %.3f GB (weights %.3f GB, KV %.3f GB, state %.3f GB, "
        "scratch %.3f GB, the device itself %.3f GB)",
        f->device, (double)f->budget_bytes / 1e9, f->n_expert > 0 ? "with all experts on the host, this" : "this",
        (double)f->total_bytes / 1e9, (double)sum(f->weights.device, MODEL_N_CLASSES) / 1e9, (double)f->kv_bytes / 1e9,
        (double)f->state_bytes / 1e9, (double)(f->logits_bytes + f->scratch_bytes) / 1e9, (double)f->fixed_bytes / 1e9);
}

/* Replaces f's placement by one for `room` bytes of experts, and adds up what it takes. */
static enum err_code try_room(struct run_placement *f, const struct gguf *g, const struct run_placement_opts *o,
                              int64_t room, struct err *e)
{
    struct model_experts *p = NULL;

    if (choose_experts(&p, f, o->uses, room, e))
        return e->code;
    model_experts_free(f->experts);
    f->experts = p;
    return count_memory(f, g, o, p, e);
}

/* Not all experts fit. */
static enum err_code share_experts(struct run_placement *f, const struct gguf *g, const struct run_placement_opts *o,
                                   struct err *e)
{
    int64_t room = f->weights.device[MODEL_EXPERTS] / 2; /* first some, to see what sharing takes */

    if (f->n_expert == 0)
        return too_small(f, e);
    for (int i = 0; i < 4; i++) {
        if (try_room(f, g, o, room, e))
            return e->code;
        if (i > 0 && f->total_bytes <= f->budget_bytes)
            return ERR_OK;
        room = f->budget_bytes - (f->total_bytes - f->weights.device[MODEL_EXPERTS]);
    }
    if (try_room(f, g, o, 0, e))
        return e->code;
    return f->total_bytes <= f->budget_bytes ? ERR_OK : too_small(f, e);
}

/* The device's own facts: is it there, what does it take for itself, how much is left. */
static enum err_code find_device(struct run_placement *f, const struct run_placement_opts *o, struct err *e)
{
    const struct dev_opts dev_opts = { .n_threads = 1, .dry_run = true, .absent = o->absent };
    const char *name = o->model.device == NULL ? "cpu" : o->model.device;
    struct dev *d;
    struct dev_memory mem;

    (void)snprintf(f->device, sizeof f->device, "%s", name);
    f->budget_bytes = o->budget_bytes;
    enum err_code code = dev_open(&d, name, &dev_opts, e);
    if (code != ERR_OK)
        return code;
    mem = dev_memory(d);
    f->is_host = dev_is_host(d);
    f->present = mem.present;
    f->own_scratch = !mem.estimate;
    f->fixed_bytes = mem.fixed_bytes >= 0 ? mem.fixed_bytes : RUN_PLACEMENT_FIXED;
    if (f->budget_bytes == 0 && mem.free_bytes >= 0)
        f->budget_bytes = f->fixed_bytes + mem.free_bytes - RUN_PLACEMENT_MARGIN;
    else if (mem.free_bytes >= 0 && f->budget_bytes - f->fixed_bytes > mem.free_bytes)
        code = err_set(e, ERR_LIMIT, "%s: %.3f GB asked for, %.3f GB are free", dev_name(d),
                       (double)f->budget_bytes / 1e9, (double)(mem.free_bytes + f->fixed_bytes) / 1e9);
    dev_close(d);
    return code;
}

/* Whether the host has memory left after taking `bytes` more. */
static bool leaves_enough(int64_t bytes)
{
    int64_t left = memory_left("");

    return left - bytes >= RUN_PLACEMENT_LEAVES && left - bytes >= left / 8;
}

/* A plan with the types of keys and values that o has, or defaults. */
static enum err_code plan_with(struct run_placement *f, const struct gguf *g, const struct run_placement_opts *o,
                               struct err *e)
{
    model_experts_free(f->experts);
    f->experts = NULL;
    f->step_rows = RUN_PLACEMENT_ROWS;
    if (count_memory(f, g, o, NULL, e))
        return e->code;
    if (f->budget_bytes != 0 && f->total_bytes > f->budget_bytes) { /* smaller steps before fewer experts */
        f->step_rows = 0;
        if (count_memory(f, g, o, NULL, e))
            return e->code;
    }
    return f->budget_bytes != 0 && f->total_bytes > f->budget_bytes ? share_experts(f, g, o, e) : ERR_OK;
}

/* The first types of keys and values with which there is a plan. */
static enum err_code plan_kv(struct run_placement *f, const struct gguf *g, struct run_placement_opts o, struct err *e)
{
    static const char *const smaller[][2] = { { "q8_0", "q8_0" }, { "q8_0", "q4_0" } };
    bool given = o.run.kv_k != NULL || o.run.kv_v != NULL;
    enum err_code code = plan_with(f, g, &o, e);

    for (int i = 0; i < 2 && code == ERR_LIMIT && !given && !f->is_host && f->kv_blocks && f->kv_bytes > 0; i++) {
        o.run.kv_k = smaller[i][0];
        o.run.kv_v = smaller[i][1];
        f->kv_fallback = true;
        code = plan_with(f, g, &o, e);
    }
    return code;
}

enum err_code run_placement_make(struct run_placement **out, const struct gguf *g, const struct run_placement_opts *o,
                                 struct err *e)
{
    struct run_placement *f = calloc(1, sizeof *f);
    enum err_code code;

    if (f != NULL)
        f->expert_bytes = calloc(ARCH_LAYERS_MAX, sizeof *f->expert_bytes);
    if (f == NULL || f->expert_bytes == NULL) {
        run_placement_free(f);
        return err_nomem(e);
    }
    code = find_device(f, o, e);
    if (code == ERR_OK)
        code = plan_kv(f, g, *o, e);
    for (int64_t i = 0; o->uses != NULL && i < (int64_t)f->n_layer * f->n_expert; i++)
        f->measured |= o->uses[i] > 0;
    if (code != ERR_OK) {
        run_placement_free(f);
        return code;
    }
    if (f->experts != NULL && !f->is_host && leaves_enough(f->weights.host[MODEL_EXPERTS]))
        f->weights.copied = f->weights.host[MODEL_EXPERTS];
    *out = f;
    return ERR_OK;
}

/* What RUN_PLACEMENT_TOKENS random tokens use, or nearly, added to uses. */
static enum err_code count_uses(uint64_t *uses, struct model *m, struct err *e)
{
    const struct run_opts ro = { .ctx_tokens = RUN_PLACEMENT_TOKENS, .rows_max = RUN_PLACEMENT_TOKENS };
    int32_t token[RUN_PLACEMENT_TOKENS];
    struct run *r;
    enum err_code code;

    if (run_open(&r, m, &ro, e))
        return e->code;
    for (int i = 0; i < RUN_PLACEMENT_TOKENS; i++)
        token[i] = (int32_t)(rng_unit(1, 0, (uint64_t)i) * model_info(m)->n_vocab);
    code = run_feed(r, 0, token, RUN_PLACEMENT_TOKENS, 0, NULL, NULL, NULL, e);
    if (code == ERR_OK)
        model_uses(m, uses);
    run_close(r);
    return code;
}

enum err_code run_placement_measure(struct run_placement *f, const struct gguf *g, int n_threads, struct err *e)
{
    const struct model_opts mo = {
        .device = "cpu", .n_threads = n_threads, .n_used = f->n_used, .placement.count_sets = RUN_PLACEMENT_SETS
    };
    uint64_t *uses;
    struct model *m;
    enum err_code code;

    if (f->experts == NULL || f->measured)
        return ERR_OK;
    uses = calloc((size_t)f->n_layer * (size_t)f->n_expert + 1, sizeof *uses);
    if (uses == NULL)
        return err_nomem(e);
    code = model_open(&m, g, &mo, e);
    if (code == ERR_OK) {
        code = count_uses(uses, m, e);
        model_close(m);
    }
    if (code == ERR_OK)
        code = model_experts_choose(f->experts, f->n_used, uses, e);
    f->measured = code == ERR_OK;
    free(uses);
    return code;
}

void run_placement_free(struct run_placement *f)
{
    if (f == NULL)
        return;
    model_experts_free(f->experts);
    free(f->expert_bytes);
    free(f);
}

void run_placement_apply(const struct run_placement *f, struct model_opts *o)
{
    o->placement.experts = f->experts;
    o->placement.weight_bytes = &f->weight_bytes;
    o->placement.step_rows = f->step_rows;
    o->placement.copy_weights |= !f->is_host && f->weights.copied > 0;
}

void run_placement_apply_run(const struct run_placement *f, struct run_opts *o)
{
    if (o->kv_k != NULL || o->kv_v != NULL)
        return;
    o->kv_k = f->kv_k;
    o->kv_v = f->kv_v;
}
