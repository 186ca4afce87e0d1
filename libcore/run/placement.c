/* SPDX-License-Identifier: Apache-2.0 */
/* placement.c - dry runs of a model and its run, counted; layers shared among devices; experts placed in what is left.
 */
#include "run/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "base/memory.h"
#include "base/rng.h"
#include "model/adapter.h"
#include "model/forward.h"
#include "ops/ops.h"
#include "run/cut.h"
#include "run/internal.h"
#include "state/state.h"

static int64_t sum(const int64_t *v, int n)
{
    int64_t all = 0;

    for (int i = 0; i < n; i++)
        all += v[i];
    return all;
}

/* What is known of a model and its layers once they were counted. */
struct counted {
    const struct gguf *g;
    const struct run_placement_opts *o;
    bool may[ARCH_LAYERS_MAX];        /* another device may begin with it */
    int64_t weights[ARCH_LAYERS_MAX]; /* in the file, experts included */
    int64_t kv[ARCH_LAYERS_MAX], state[ARCH_LAYERS_MAX];
    int64_t beside[MODEL_DEVS_MAX]; /* most that a device took beside its layers */
};

static int most_first(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? 1 : x > y ? -1 : 0;
}

/* The share of uses that the most used experts on the host have, as many as the cache holds. */
static enum err_code expect_hits(struct run_placement *f, const uint64_t *uses, struct err *e)
{
    uint64_t *v = calloc((size_t)f->n_layer * (size_t)f->n_expert + 1, sizeof *v);
    double all = 0, held = 0;
    int64_t n = 0;

    if (v == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < (int64_t)f->n_layer * f->n_expert; i++)
        if (f->expert_bytes[i / f->n_expert] > 0 && (f->experts == NULL || !f->experts->here[i]))
            v[n++] = uses != NULL ? uses[i] + 1 : 1; /* those that were never used are not worth nothing */
    qsort(v, (size_t)n, sizeof *v, most_first);
    for (int64_t i = 0; i < n; i++) {
        all += (double)v[i];
        held += i < f->cache.slots ? (double)v[i] : 0;
    }
    f->cache_share = all > 0 ? held / all : 1;
    free(v);
    return ERR_OK;
}

static void note_plan(struct run_placement *f, struct counted *c, const struct model *m, const struct run *r)
{
    const struct arch_plan *p = model_plan(m);

    f->n_layer = p->n_layer;
    f->n_expert = p->moe.n_expert;
    f->n_used = p->moe.n_used;
    f->ctx_tokens = r->ctx;
    f->n_seq = r->n_seq;
    f->rows_max = r->rows_max;
    f->pass_bytes = arch_plan_width(p) * (int64_t)sizeof(float) * (p->front ? 2 : 1);
    run_kv(r, &f->kv_k, &f->kv_v);
    f->kv_blocks = quant_row_bytes(QUANT_q8_0, p->attn.dim_k) >= 0 && quant_row_bytes(QUANT_q4_0, p->attn.dim_v) >= 0;
    model_layer_bytes(m, c->weights);
    for (int i = 0; i < p->n_layer; i++) {
        f->expert_bytes[i] = model_expert_bytes(m, i);
        c->may[i] = model_may_cut(p, i);
        c->kv[i] = state_layer_kv_bytes(r->state, i);
        c->state[i] = state_layer_rec_bytes(r->state, i);
    }
}

/* Device k, which has its layers or a part of all. */
static struct dev *device_of(const struct run_placement *f, const struct model *m, int k)
{
    return f->rows ? dev_member(model_part(m, 0), k) : model_part(m, k);
}

/* What adapters take on a device. */
static int64_t adapter_bytes(const struct run_placement *f, const struct counted *c, const struct model *m, int k)
{
    const int dev = f->rows ? 0 : k; /* every device has all of them */
    int64_t n = 0;

    for (int i = 0; i < c->o->n_adapters; i++) {
        const int64_t bytes = model_adapter_bytes(m, c->o->adapters[i], dev);
        const size_t held = dev_held(model_part(m, dev));
        void *p = dev_is_host(model_part(m, dev)) || bytes == 0 ? NULL : dev_alloc(model_part(m, dev), (size_t)bytes);

        n += p == NULL ? bytes : (int64_t)(dev_held(model_part(m, dev)) - held);
        dev_free(model_part(m, dev), p, (size_t)bytes);
    }
    return n;
}

/* Device k of a dry run. */
static void count_part(struct run_placement *f, const struct counted *c, const struct model *m, const struct run *r,
                       int k)
{
    struct run_placement_part *p = &f->part[k];
    const int64_t all = (int64_t)dev_held(device_of(f, m, k)), state = state_part_bytes(r->state, k);

    if (!f->rows) {
        p->weights = *model_part_weights(m, k);
        f->weight_bytes[k] = sum(p->weights.device, MODEL_N_CLASSES);
    }
    p->kv_bytes = f->rows ? state_member_kv_bytes(r->state, k) : 0;
    for (int i = p->first; i < p->end && !f->rows; i++)
        p->kv_bytes += c->kv[i];
    p->state_bytes = state - p->kv_bytes;
    p->logits_bytes = f->rows || k == f->n_dev - 1 ? (int64_t)r->logits_bytes : 0;
    p->scratch_bytes = all - state - p->logits_bytes - f->weight_bytes[k];
    p->adapter_bytes = adapter_bytes(f, c, m, k);
    p->beside_bytes = c->o->beside_bytes != NULL ? c->o->beside_bytes[k] : 0;
    p->total_bytes = p->fixed_bytes + all + p->adapter_bytes + p->beside_bytes;
}

/* A step of one token is composed, as steps are when they are measured. */
static enum err_code count_exchanges(struct run_placement *f, const struct model *m, const struct run *r, struct err *e)
{
    const struct model_sizes one = { .rows = 1, .logits = 1 };
    int64_t before, after;
    const int64_t n = dev_exchanges(model_part(m, 0), &before);

    if (model_reserve(m, r->state, &one, e))
        return e->code;
    f->exchanges = dev_exchanges(model_part(m, 0), &after) - n;
    f->exchange_bytes = after - before;
    return ERR_OK;
}

static void add_parts(struct run_placement *f)
{
    f->total_bytes = f->adapter_bytes = f->beside_bytes = f->kv_bytes = f->state_bytes = f->logits_bytes = 0;
    f->scratch_bytes = 0;
    for (int k = 0; k < f->n_dev; k++) {
        const struct run_placement_part *p = &f->part[k];

        f->total_bytes += p->total_bytes;
        f->adapter_bytes += p->adapter_bytes;
        f->beside_bytes += p->beside_bytes;
        f->kv_bytes += p->kv_bytes;
        f->state_bytes += p->state_bytes;
        f->logits_bytes += p->logits_bytes;
        f->scratch_bytes += p->scratch_bytes;
    }
}

/* Opens everything as a dry run with the ranges of layers in f->first and these experts there, and counts. */
static enum err_code count_memory(struct run_placement *f, struct counted *c, const struct run_opts *ro,
                                  const struct model_experts *experts, struct err *e)
{
    struct model_opts mo = c->o->model;
    struct model *m = NULL;
    struct run *r = NULL;
    enum err_code code;

    mo.device = f->device;
    mo.placement.dry_run = true;
    mo.placement.step_rows = f->step_rows;
    mo.placement.absent = c->o->absent;
    mo.placement.experts = experts;
    mo.placement.first = f->n_dev > 1 && !f->rows && f->part[0].end > 0 ? f->first : NULL;
    mo.placement.weight_bytes = NULL;
    code = model_open(&m, c->g, &mo, e);
    if (code == ERR_OK) {
        const int64_t on_host = model_host(m) == NULL ? 0 : (int64_t)dev_held(model_host(m));

        for (int k = 0; k < f->n_dev && f->rows; k++)
            f->weight_bytes[k] = (int64_t)dev_held(device_of(f, m, k));
        code = run_open(&r, m, ro, e);
        if (code == ERR_OK) {
            const struct state_place place = model_place(m);

            note_plan(f, c, m, r);
            f->weights = *model_weights(m);
            f->kv_tokens = state_kv_rows(r->state);
            for (int k = 0, i = 0; k < f->n_dev; k++) {
                f->part[k].first = f->first[k] = f->rows ? 0 : i;
                while (i < f->n_layer && (f->rows || place.on[i] == k))
                    i++;
                f->part[k].end = i;
                count_part(f, c, m, r, k);
            }
            add_parts(f);
            f->cache = (struct io_cache_stats){ 0 };
            if (f->rows)
                code = count_exchanges(f, m, r, e);
            else if (model_cache_stats(m, &f->cache))
                code = expect_hits(f, c->o->uses, e);
            f->host_scratch_bytes = model_host(m) == NULL ? 0 : (int64_t)dev_held(model_host(m)) - on_host;
        }
    }
    run_close(r);
    model_close(m);
    return code;
}

static bool part_fits(const struct run_placement_part *p)
{
    return p->budget_bytes == 0 || p->total_bytes <= p->budget_bytes;
}

static bool fits(const struct run_placement *f)
{
    bool all = true;

    for (int k = 0; k < f->n_dev; k++)
        all &= part_fits(&f->part[k]);
    return all;
}

/* ---- several devices ---- */

/* Bytes of a layer, and of them those that a token reads. */
static int64_t layer_bytes(const struct run_placement *f, const struct counted *c, int i, int64_t *reads)
{
    *reads = c->weights[i] + 2 * c->state[i] / f->n_seq - (int64_t)(f->n_expert - f->n_used) * f->expert_bytes[i];
    return c->weights[i] + c->kv[i] + c->state[i];
}

/* Ranges by what was counted; *found: there is room with them, if no device takes more than so far beside layers. */
static enum err_code choose_cut(struct run_placement *f, struct counted *c, int *first, bool *found, struct err *e)
{
    int64_t *bytes = calloc(2 * (size_t)f->n_layer, sizeof *bytes), *reads = bytes + f->n_layer;
    int64_t room[MODEL_DEVS_MAX], beside[MODEL_DEVS_MAX] = { 0 };
    double speed[MODEL_DEVS_MAX];
    enum err_code code;

    if (bytes == NULL)
        return err_nomem(e);
    for (int i = 0; i < f->n_layer; i++)
        bytes[i] = layer_bytes(f, c, i, &reads[i]);
    for (int k = 0; k < f->n_dev; k++) {
        const struct run_placement_part *p = &f->part[k];
        int64_t more = p->total_bytes;

        for (int i = p->first; i < p->end; i++)
            more -= bytes[i];
        c->beside[k] = more > c->beside[k] ? more : c->beside[k];
        room[k] = p->budget_bytes == 0 ? INT64_MAX : p->budget_bytes - c->beside[k];
        speed[k] = c->o->speed != NULL && c->o->speed[k] > 0 ? c->o->speed[k] : 450e9;
    }
    beside[f->n_dev - 1] = f->weights.device[MODEL_OUTPUT];
    code = run_cut_choose(first, found,
                          &(struct run_cut){ f->n_layer, f->n_dev, c->may, bytes, reads, room, speed, beside }, e);
    free(bytes);
    return code;
}

/* Counts with the best ranges of layers. What a device takes beside its layers depends on which it has, so they are
 * chosen and counted in turns. */
static enum err_code count_cut(struct run_placement *f, struct counted *c, const struct run_opts *ro, struct err *e)
{
    enum { TURNS = 8 };
    int next[MODEL_DEVS_MAX], good[MODEL_DEVS_MAX];
    const size_t bytes = (size_t)f->n_dev * sizeof *next;
    bool found = true, any = false;

    if (count_memory(f, c, ro, NULL, e) || f->n_dev == 1 || f->rows || c->o->share != NULL)
        return e->code;
    memset(c->beside, 0, sizeof c->beside);
    for (int i = 0; i < TURNS && found; i++) {
        if (fits(f)) {
            memcpy(good, f->first, bytes);
            any = true;
        }
        if (choose_cut(f, c, next, &found, e))
            return e->code;
        if ((any && !found) || memcmp(next, f->first, bytes) == 0)
            break;
        memcpy(f->first, next, bytes);
        if (count_memory(f, c, ro, NULL, e))
            return e->code;
    }
    if (!any || fits(f))
        return ERR_OK;
    memcpy(f->first, good, bytes);
    return count_memory(f, c, ro, NULL, e);
}

/* ---- experts on the host ---- */

/* Chooses which experts go to the devices when each has room for room[k] bytes of them. */
static enum err_code choose_experts(struct model_experts **out, const struct run_placement *f, const uint64_t *uses,
                                    const int64_t *room, struct err *e)
{
    enum { TENSORS = 3, ALIGN = 320 }; /* of a layer's experts; most that a device adds to each */
    struct model_experts_layer *layer = calloc((size_t)f->n_layer + 1, sizeof *layer);
    int end[MODEL_DEVS_MAX];
    enum err_code code;

    if (layer == NULL)
        return err_nomem(e);
    for (int i = 0; i < f->n_layer; i++)
        if (f->expert_bytes[i] > 0)
            layer[i] = (struct model_experts_layer){ f->expert_bytes[i], TENSORS * ALIGN };
    for (int k = 0; k < f->n_dev; k++)
        end[k] = f->part[k].end;
    code = model_experts_place(
        out, &(struct model_experts_in){ f->n_layer, f->n_expert, f->n_used, layer, uses, 0, f->n_dev, room, end }, e);
    free(layer);
    return code;
}

static enum err_code too_small(const struct run_placement *f, struct err *e)
{
    int k = 0;

    while (k < f->n_dev - 1 && part_fits(&f->part[k]))
        k++;
    const struct run_placement_part *p = &f->part[k];
    char layers[64] = "";

    if (f->n_dev > 1)
        (void)snprintf(layers, sizeof layers, " with layers %d to %d", p->first, p->end - 1);
    return err_set(
        e, ERR_LIMIT,
        "%s: %.3f GB are too little: %s%s takes at least %.3f GB (weights %.3f GB, KV %.3f GB, state %.3f GB, "
        "scratch %.3f GB, the device itself %.3f GB)",
        p->device, (double)p->budget_bytes / 1e9, f->n_expert > 0 ? "with all experts on the host, this" : "this",
        layers, (double)p->total_bytes / 1e9, (double)f->weight_bytes[k] / 1e9, (double)p->kv_bytes / 1e9,
        (double)p->state_bytes / 1e9, (double)(p->logits_bytes + p->scratch_bytes) / 1e9, (double)p->fixed_bytes / 1e9);
}

/* Replaces f's placement by one for room[k] bytes of experts on each device, and adds up what it takes. */
static enum err_code try_room(struct run_placement *f, struct counted *c, const struct run_opts *ro,
                              const int64_t *room, struct err *e)
{
    struct model_experts *p = NULL;

    if (choose_experts(&p, f, c->o->uses, room, e))
        return e->code;
    model_experts_free(f->experts);
    f->experts = p;
    return count_memory(f, c, ro, p, e);
}

/* Not all experts fit. */
static enum err_code share_experts(struct run_placement *f, struct counted *c, const struct run_opts *ro, struct err *e)
{
    int64_t room[MODEL_DEVS_MAX];

    if (f->n_expert == 0)
        return too_small(f, e);
    for (int k = 0; k < f->n_dev; k++) /* first some, to see what sharing takes */
        room[k] = part_fits(&f->part[k]) ? INT64_MAX : f->part[k].weights.device[MODEL_EXPERTS] / 2;
    for (int i = 0; i < 4; i++) {
        if (try_room(f, c, ro, room, e))
            return e->code;
        if (i > 0 && fits(f))
            return ERR_OK;
        for (int k = 0; k < f->n_dev; k++) {
            const struct run_placement_part *p = &f->part[k];

            room[k] = p->budget_bytes == 0 ? INT64_MAX
                                           : p->budget_bytes - (p->total_bytes - p->weights.device[MODEL_EXPERTS]);
        }
    }
    for (int k = 0; k < f->n_dev; k++)
        room[k] = part_fits(&f->part[k]) ? room[k] : 0;
    if (try_room(f, c, ro, room, e))
        return e->code;
    return fits(f) ? ERR_OK : too_small(f, e);
}

/* A device's own facts: is it there, what does it take for itself, how much is left; times: how often it is named. */
static enum err_code find_device(struct run_placement *f, const struct run_placement_opts *o, int k, int times,
                                 struct err *e)
{
    const struct dev_opts dev_opts = { .n_threads = 1, .dry_run = true, .absent = o->absent };
    struct run_placement_part *p = &f->part[k];
    struct dev *d;
    struct dev_memory mem;

    p->budget_bytes = o->budgets != NULL ? o->budgets[k] : o->budget_bytes;
    enum err_code code = dev_open(&d, p->device, &dev_opts, e);
    if (code != ERR_OK)
        return code;
    mem = dev_memory(d);
    f->is_host = dev_is_host(d);
    p->present = mem.present;
    f->own_scratch = !mem.estimate;
    p->fixed_bytes = mem.fixed_bytes >= 0 ? mem.fixed_bytes : RUN_PLACEMENT_FIXED;
    if (p->budget_bytes == 0 && mem.free_bytes >= 0)
        p->budget_bytes = p->fixed_bytes + (mem.free_bytes - RUN_PLACEMENT_MARGIN) / times;
    else if (mem.free_bytes >= 0 && p->budget_bytes - p->fixed_bytes > mem.free_bytes)
        code = err_set(e, ERR_LIMIT, "%s: %.3f GB asked for, %.3f GB are free", p->device,
                       (double)p->budget_bytes / 1e9, (double)(mem.free_bytes + p->fixed_bytes) / 1e9);
    dev_close(d);
    return code;
}

/* The first n devices of the list; 0: all. */
static enum err_code find_devices(struct run_placement *f, const struct run_placement_opts *o, int n, struct err *e)
{
    struct dev_list l;
    size_t at = 0;

    if (dev_list_parse(&l, o->model.device == NULL ? "cpu" : o->model.device, e))
        return e->code;
    f->n_named = l.n;
    f->n_dev = n > 0 && n < l.n ? n : l.n;
    f->rows = o->model.placement.rows && f->n_dev > 1;
    f->budget_bytes = f->fixed_bytes = 0;
    f->present = true;
    for (int k = 0; k < f->n_dev; k++) {
        int times = 0;

        for (int i = 0; i < f->n_dev; i++)
            times += strcmp(l.name[i], l.name[k]) == 0;
        f->part[k] = (struct run_placement_part){ .first = 0 };
        (void)snprintf(f->part[k].device, sizeof f->part[k].device, "%s", l.name[k]);
        at += (size_t)snprintf(f->device + at, sizeof f->device - at, "%s%s", k > 0 ? "," : "", l.name[k]);
        if (at >= sizeof f->device)
            return err_set(e, ERR_ARG, "%s: too many devices", l.name[0]);
        if (find_device(f, o, k, times, e))
            return e->code;
        f->budget_bytes += f->part[k].budget_bytes;
        f->fixed_bytes += f->part[k].fixed_bytes;
        f->present &= f->part[k].present;
    }
    return ERR_OK;
}

/* Whether the host has memory left after taking `bytes` more. */
static bool leaves_enough(int64_t bytes)
{
    int64_t left = memory_left("");

    return left - bytes >= RUN_PLACEMENT_LEAVES && left - bytes >= left / 8;
}

/* Ranges by the caller's shares, before anything is counted. */
static enum err_code cut_by_shares(struct run_placement *f, struct counted *c, struct err *e)
{
    struct arch_plan *p = c->o->share != NULL && f->n_dev > 1 ? malloc(sizeof *p) : NULL;
    int first[MODEL_DEVS_MAX + 1];
    enum err_code code;

    if (c->o->share == NULL || f->n_dev == 1)
        return ERR_OK;
    if (p == NULL)
        return err_nomem(e);
    code = arch_plan_make(p, c->g, e) ? e->code : model_cut(first, p, f->n_dev, c->o->share, e);
    free(p);
    for (int k = 0; k < f->n_dev && code == ERR_OK; k++) {
        f->first[k] = f->part[k].first = first[k];
        f->part[k].end = first[k + 1];
    }
    return code;
}

/* A plan with the types of keys and values that ro has, or defaults. */
static enum err_code plan_with(struct run_placement *f, struct counted *c, const struct run_opts *ro, struct err *e)
{
    model_experts_free(f->experts);
    f->experts = NULL;
    f->step_rows = RUN_PLACEMENT_ROWS;
    if (cut_by_shares(f, c, e) || count_cut(f, c, ro, e))
        return e->code;
    if (!fits(f)) { /* smaller steps before fewer experts */
        f->step_rows = 0;
        if (count_cut(f, c, ro, e))
            return e->code;
    }
    return fits(f) ? ERR_OK : share_experts(f, c, ro, e);
}

/* The first types of keys and values with which there is a plan. */
static enum err_code plan_kv(struct run_placement *f, struct counted *c, struct run_opts ro, struct err *e)
{
    static const char *const smaller[][2] = { { "q8_0", "q8_0" }, { "q8_0", "q4_0" } };
    bool given = ro.kv_k != NULL || ro.kv_v != NULL;
    enum err_code code;

    f->kv_fallback = false;
    code = plan_with(f, c, &ro, e);
    for (int i = 0; i < 2 && code == ERR_LIMIT && !given && !f->is_host && f->kv_blocks && f->kv_bytes > 0; i++) {
        ro.kv_k = smaller[i][0];
        ro.kv_v = smaller[i][1];
        f->kv_fallback = true;
        code = plan_with(f, c, &ro, e);
    }
    return code;
}

/* With all devices, or with the fewest that have room for the whole model and for keys and values as they are by
 * default. */
static enum err_code plan_devices(struct run_placement *f, struct counted *c, struct err *e)
{
    enum err_code code = ERR_LIMIT;
    int n = c->o->fewest ? 1 : 0;

    do {
        if (find_devices(f, c->o, n, e))
            return e->code;
        code = plan_kv(f, c, c->o->run, e);
        if (code != ERR_OK && code != ERR_LIMIT)
            return code;
    } while (n > 0 && n++ < f->n_named && (code == ERR_LIMIT || f->experts != NULL || f->kv_fallback));
    return code;
}

enum err_code run_placement_make(struct run_placement **out, const struct gguf *g, const struct run_placement_opts *o,
                                 struct err *e)
{
    struct run_placement *f = calloc(1, sizeof *f);
    struct counted *c = calloc(1, sizeof *c);
    enum err_code code;

    if (f != NULL)
        f->expert_bytes = calloc(ARCH_LAYERS_MAX, sizeof *f->expert_bytes);
    if (f == NULL || c == NULL || f->expert_bytes == NULL) {
        run_placement_free(f);
        free(c);
        return err_nomem(e);
    }
    c->g = g;
    c->o = o;
    code = plan_devices(f, c, e);
    free(c);
    for (int64_t i = 0; o->uses != NULL && i < (int64_t)f->n_layer * f->n_expert; i++)
        f->measured |= o->uses[i] > 0;
    if (code != ERR_OK) {
        run_placement_free(f);
        return code;
    }
    if (f->experts != NULL && !f->is_host && f->cache.slots == 0 && leaves_enough(f->weights.host[MODEL_EXPERTS]))
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
    o->device = f->device;
    o->placement.first = f->n_dev > 1 && !f->rows ? f->first : NULL;
    o->placement.weight_bytes = f->weight_bytes;
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
