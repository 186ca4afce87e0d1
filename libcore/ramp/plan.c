/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - what a recipe makes of a model.                                         room: ramp */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "quant/quant.h"
#include "ramp/internal.h"

enum { LAYERS_MAX = 65536, SAMPLE_BYTES = 256 };

/* Parts of names of tensors that stay as they are: small, or read as floats. */
static const char *const kept_parts[] = {
    "_norm.weight", "ffn_gate_inp.weight", "_conv1d",     "shortconv.conv.weight",
    "ple_norm_",    "position_embd",       "token_types", "attn_rel_b.weight",
};

bool ramp_is_kept(const struct gguf_tensor *t)
{
    if (t->ne[1] * t->ne[2] * t->ne[3] == 1) /* a vector, whatever it is stored as */
        return true;
    if (t->name.n < 6 || memcmp(t->name.p + t->name.n - 6, "weight", 6) != 0)
        return true;
    for (size_t i = 0; i < sizeof kept_parts / sizeof *kept_parts; i++)
        if (str_has(t->name, kept_parts[i]))
            return true;
    return false;
}

uint64_t ramp_fingerprint(const struct gguf *g)
{
    uint64_t h = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        size_t n = t->size_bytes < SAMPLE_BYTES ? t->size_bytes : SAMPLE_BYTES;

        h = io_hash(h, t->name.p, t->name.n);
        h = io_hash(h, t->ne, sizeof t->ne);
        h = io_hash(h, quant_types[t->type]->name, strlen(quant_types[t->type]->name));
        h = io_hash(h, (const char *)t->data + (t->size_bytes - n) / 2, n);
    }
    return h;
}

int64_t ramp_layer_of(struct str name)
{
    int64_t v = 0;
    size_t i = 4;

    if (name.n < 6 || memcmp(name.p, "blk.", 4) != 0)
        return -1;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && v < LAYERS_MAX; i++)
        v = 10 * v + (name.p[i] - '0');
    return i == 4 || v >= LAYERS_MAX ? -1 : v;
}

static int64_t model_number(const struct gguf *g, struct str arch, const char *key)
{
    char name[256];
    const struct gguf_kv *kv;
    int64_t v = 0;

    snprintf(name, sizeof name, "%.*s.%s", (int)(arch.n < 64 ? arch.n : 64), arch.p, key);
    kv = gguf_kv_find(g, name);
    return kv != NULL && gguf_kv_i64(kv, 0, &v) && v > 0 ? v : 0;
}

static struct ramp_model model_of(const struct gguf *g, bool importance)
{
    struct str arch = STR("");
    struct ramp_model m = { .importance = importance };
    bool known = gguf_str(g, "general.architecture", &arch);
    int64_t heads = known ? model_number(g, arch, "attention.head_count") : 0;
    int64_t kv = known ? model_number(g, arch, "attention.head_count_kv") : 0;

    m.gqa = kv > 0 ? heads / kv : 0;
    m.experts = known ? model_number(g, arch, "expert_count") : 0;
    m.tied = gguf_find(g, "output.weight") == NULL;
    return m;
}

/* The places of layers for one rule. */
struct places {
    bool has[LAYERS_MAX];
    int64_t n;
};

static enum err_code find_places(struct places *p, const struct ramp_recipe *r, size_t rule, const struct gguf *g,
                                 struct err *e)
{
    memset(p, 0, sizeof *p);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int64_t layer = ramp_layer_of(t->name);
        bool fits;

        if (layer < 0 || p->has[layer] || ramp_is_kept(t))
            continue;
        if (ramp_rule_names(r, rule, t->name, &fits, e))
            return e->code;
        p->has[layer] = fits;
        p->n += fits;
    }
    return ERR_OK;
}

static int64_t place_of(const struct places *p, int64_t layer)
{
    int64_t at = 0;

    for (int64_t i = 0; i < layer; i++)
        at += p->has[i];
    return at;
}

/* A type of smaller blocks for rows that the type cannot have: of more bits, but for nvfp4, a quarter of a bit less. */
static int fallback(int type, int64_t ne0)
{
    static const int by[][2] = {
        { QUANT_q2_k, QUANT_q4_0 },      { QUANT_q3_k, QUANT_q4_0 },     { QUANT_q4_k, QUANT_q5_0 },
        { QUANT_q5_k, QUANT_q5_1 },      { QUANT_q6_k, QUANT_q8_0 },     { QUANT_tq1_0, QUANT_q4_0 },
        { QUANT_tq2_0, QUANT_q4_0 },     { QUANT_iq1_s, QUANT_iq4_nl },  { QUANT_iq1_m, QUANT_iq4_nl },
        { QUANT_iq2_xxs, QUANT_iq4_nl }, { QUANT_iq2_xs, QUANT_iq4_nl }, { QUANT_iq2_s, QUANT_iq4_nl },
        { QUANT_iq3_xxs, QUANT_iq4_nl }, { QUANT_iq3_s, QUANT_iq4_nl },  { QUANT_iq4_xs, QUANT_iq4_nl },
        { QUANT_iq2_k, QUANT_iq4_nl },   { QUANT_iq3_k, QUANT_iq4_nl },  { QUANT_iq4_ks, QUANT_iq4_nl },
        { QUANT_iq4_k, QUANT_q5_0 },     { QUANT_iq5_k, QUANT_q5_1 },    { QUANT_iq6_k, QUANT_q8_0 },
        { QUANT_q1_0, QUANT_q4_0 },      { QUANT_q2_0, QUANT_q4_0 },     { QUANT_nvfp4, QUANT_mxfp4 },
    };

    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (by[i][0] == type && quant_row_bytes(by[i][1], ne0) >= 0)
            return by[i][1];
    return QUANT_f16;
}

/* Gives every tensor that rule `rule` is the first of its kind to fit its type. */
static enum err_code apply_rule(struct ramp_ruled *p, const struct ramp_recipe *r, size_t rule, const struct gguf *g,
                                const struct ramp_model *m, struct places *places, struct err *e)
{
    enum err_code rc = find_places(places, r, rule, g, e);

    for (size_t i = 0; i < gguf_n_tensors(g) && rc == ERR_OK; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        int64_t layer = ramp_layer_of(t->name);
        int *to = ramp_rule_floor(r, rule) ? &p[i].floor : &p[i].type;
        bool fits = false;

        if (ramp_is_kept(t) || *to >= 0)
            continue;
        rc = ramp_rule_names(r, rule, t->name, &fits, e);
        if (rc == ERR_OK && fits &&
            ramp_rule_holds(r, rule, m, layer >= 0 ? place_of(places, layer) : 0, layer >= 0 ? places->n : 1))
            *to = ramp_rule_type(r, rule);
    }
    return rc;
}

enum err_code ramp_rules_apply(struct ramp_ruled *out, const struct ramp_recipe *r, const struct gguf *g,
                               bool importance, struct err *e)
{
    struct ramp_model m = model_of(g, importance);
    struct places *places = malloc(sizeof *places);
    enum err_code rc = places != NULL ? ERR_OK : err_nomem(e);

    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        out[i] = (struct ramp_ruled){ -1, -1 };
    for (size_t i = 0; rc == ERR_OK && i < ramp_rules(r); i++)
        rc = apply_rule(out, r, i, g, &m, places, e);
    free(places);
    return rc;
}

int ramp_fitting(int type, int64_t ne0)
{
    return quant_row_bytes(type, ne0) < 0 ? fallback(type, ne0) : type;
}

static bool is_float(int type)
{
    return type == QUANT_f32 || type == QUANT_f16 || type == QUANT_bf16;
}

enum err_code ramp_once(const struct gguf_tensor *t, int type, bool again, struct err *e)
{
    if (type == t->type || again || is_float(t->type))
        return ERR_OK;
    return err_set(e, ERR_UNSUPPORTED,
                   "%.*s: is %s already, and would be rounded twice (--allow-requantize accepts that)",
                   STR_ARG(t->name), quant_types[t->type]->name);
}

static enum err_code settle_types(struct ramp_plan *p, const struct ramp_ruled *by, const struct ramp_recipe *r,
                                  const struct gguf *g, bool again, struct err *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct ramp_choice *c = &p->v[i];
        uint64_t elems = (uint64_t)(t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]);
        int wanted = by[i].type >= 0 ? by[i].type : ramp_recipe_default(r), floor;

        if (wanted < 0 && ramp_recipe_empty(r))
            wanted = t->type;
        c->kept = ramp_is_kept(t);
        if (!c->kept && wanted < 0)
            return err_set(e, ERR_ARG, "%.*s: no rule has a type for it, and there is no default", STR_ARG(t->name));
        c->type = c->kept ? t->type : ramp_fitting(wanted, t->ne[0]);
        c->replaced = !c->kept && c->type != wanted;
        floor = !c->kept && by[i].floor >= 0 ? ramp_fitting(by[i].floor, t->ne[0]) : -1;
        if (floor >= 0 && quant_row_bytes(floor, t->ne[0]) > quant_row_bytes(c->type, t->ne[0]))
            c->type = floor;
        c->kept |= c->type == t->type;
        if (ramp_once(t, c->type, again, e))
            return e->code;
        p->bytes += (uint64_t)quant_row_bytes(c->type, t->ne[0]) * (elems / (uint64_t)t->ne[0]);
        p->elems += elems;
    }
    return ERR_OK;
}

enum err_code ramp_plan_open(struct ramp_plan *out, const struct ramp_recipe *r, const struct gguf *g, bool importance,
                             bool again, struct err *e)
{
    struct ramp_plan p = { .n = gguf_n_tensors(g), .file_type = ramp_recipe_file_type(r) };
    struct ramp_ruled *by = malloc((p.n + 1) * sizeof *by);
    enum err_code rc = ERR_OK;
    uint32_t was;

    if (ramp_recipe_empty(r) && gguf_u32(g, "general.file_type", &was))
        p.file_type = was;
    p.v = calloc(p.n + 1, sizeof *p.v);
    if (p.v == NULL || by == NULL)
        rc = err_nomem(e);
    if (rc == ERR_OK)
        rc = ramp_rules_apply(by, r, g, importance, e);
    if (rc == ERR_OK)
        rc = settle_types(&p, by, r, g, again, e);
    free(by);
    if (rc) {
        ramp_plan_close(&p);
        return rc;
    }
    *out = p;
    return ERR_OK;
}

enum err_code ramp_plan_merge(struct ramp_plan *p, const struct gguf *g, const struct ramp_merge *m, bool again,
                              struct err *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (!ramp_merges(m, t->name))
            continue;
        p->v[i].kept = false;
        if (ramp_once(t, QUANT_N, again, e))
            return e->code;
        if (quant_fitter(p->v[i].type, 0) == NULL)
            return err_set(e, ERR_UNSUPPORTED, "%.*s: %s is a type that is only read", STR_ARG(t->name),
                           quant_types[p->v[i].type]->name);
    }
    return ERR_OK;
}

void ramp_plan_close(struct ramp_plan *p)
{
    free(p->v);
    *p = (struct ramp_plan){ 0 };
}
