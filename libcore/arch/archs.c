/* SPDX-License-Identifier: Apache-2.0 */
/* archs.c - the table of families, and reading of metadata with limits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arch/arch.h"
#include "gguf/gguf.h"

#define ARCH(name) extern const struct arch arch_##name;
#include "arch/archs.def"
#undef ARCH

static const struct arch *const archs[] = {
#define ARCH(name) &arch_##name,
#include "arch/archs.def"
#undef ARCH
};

static const struct gguf_kv *find_key(struct arch_keys *k, const char *key, char full[128])
{
    (void)snprintf(full, 128, "%s.%s", k->prefix, key);
    return gguf_kv_find(k->g, full);
}

const struct gguf_kv *arch_kv(struct arch_keys *k, const char *key)
{
    char full[128];

    return find_key(k, key, full);
}

static bool scalar(struct arch_keys *k, const struct gguf_kv *kv, const char *full)
{
    if (kv->kind != GGUF_ARR && kv->kind != GGUF_STR)
        return true;
    err_set(k->e, ERR_FORMAT, "%s: %s is not a number", gguf_path(k->g), full);
    return false;
}

int arch_int_or(struct arch_keys *k, const char *key, int least, int most, int absent)
{
    char full[128];
    const struct gguf_kv *kv = find_key(k, key, full);
    int64_t v = 0;

    if (k->e->code != ERR_OK || kv == NULL)
        return absent;
    if (!scalar(k, kv, full))
        return 0;
    if (!gguf_kv_i64(kv, 0, &v) || v < least || v > most) {
        err_set(k->e, ERR_FORMAT, "%s: %s is not a whole number in %d .. %d", gguf_path(k->g), full, least, most);
        return 0;
    }
    return (int)v;
}

int arch_int(struct arch_keys *k, const char *key, int least, int most)
{
    char full[128];

    if (k->e->code == ERR_OK && find_key(k, key, full) == NULL)
        err_set(k->e, ERR_FORMAT, "%s: %s is missing", gguf_path(k->g), full);
    return arch_int_or(k, key, least, most, 0);
}

float arch_float_or(struct arch_keys *k, const char *key, float least, float most, float absent)
{
    char full[128];
    const struct gguf_kv *kv = find_key(k, key, full);
    double v = 0;

    if (k->e->code != ERR_OK || kv == NULL)
        return absent;
    if (!scalar(k, kv, full))
        return 0;
    if (!gguf_kv_f64(kv, 0, &v) || !isfinite(v) || v < (double)least || v > (double)most) {
        err_set(k->e, ERR_FORMAT, "%s: %s is not a number in %g .. %g", gguf_path(k->g), full, (double)least,
                (double)most);
        return 0;
    }
    return (float)v;
}

float arch_float(struct arch_keys *k, const char *key, float least, float most)
{
    char full[128];

    if (k->e->code == ERR_OK && find_key(k, key, full) == NULL)
        err_set(k->e, ERR_FORMAT, "%s: %s is missing", gguf_path(k->g), full);
    return arch_float_or(k, key, least, most, 0);
}

bool arch_bool_or(struct arch_keys *k, const char *key, bool absent)
{
    char full[128];
    const struct gguf_kv *kv = find_key(k, key, full);
    bool v = absent;

    if (k->e->code != ERR_OK || kv == NULL)
        return absent;
    if (!gguf_bool(k->g, full, &v))
        err_set(k->e, ERR_FORMAT, "%s: %s is not true or false", gguf_path(k->g), full);
    return v;
}

void arch_ints(struct arch_keys *k, const char *key, int least, int most, int *out, int n)
{
    char full[128];
    const struct gguf_kv *kv = find_key(k, key, full);

    if (kv == NULL || kv->kind != GGUF_ARR) {
        int v = arch_int(k, key, least, most);

        for (int i = 0; i < n; i++)
            out[i] = v;
        return;
    }
    for (int i = 0; i < n && k->e->code == ERR_OK; i++) {
        int64_t v = 0;

        if (!gguf_kv_i64(kv, (uint64_t)i, &v) || v < least || v > most)
            err_set(k->e, ERR_FORMAT, "%s: %s has no whole number in %d .. %d for layer %d", gguf_path(k->g), full,
                    least, most, i);
        out[i] = (int)v;
    }
}

int arch_shared(struct arch_keys *k, const char *key, const int *list, int n)
{
    int v = 0;

    for (int i = 0; i < n && k->e->code == ERR_OK; i++) {
        if (list[i] != 0 && v != 0 && list[i] != v)
            err_set(k->e, ERR_UNSUPPORTED, "%s: %s.%s differs between layers", gguf_path(k->g), k->prefix, key);
        v = list[i] != 0 ? list[i] : v;
    }
    return v;
}

void arch_bad(struct arch_keys *k, const char *what)
{
    if (k->e->code == ERR_OK)
        err_set(k->e, ERR_FORMAT, "%s: %s", gguf_path(k->g), what);
}

void arch_refuse(struct arch_keys *k, const char *what)
{
    if (k->e->code == ERR_OK)
        err_set(k->e, ERR_UNSUPPORTED, "%s: %s", gguf_path(k->g), what);
}

bool arch_has_tensor(const struct arch_keys *k, const char *name, int layer)
{
    char full[128];

    if (layer < 0)
        (void)snprintf(full, sizeof full, "%s", name);
    else
        (void)snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return gguf_find(k->g, full) != NULL;
}

void arch_need(const struct arch_plan *p, struct arch_keys *k, const char *const *names, int n)
{
    for (int i = 0; i < n * p->n_layer && k->e->code == ERR_OK; i++)
        if (!arch_has_tensor(k, names[i % n], i / n))
            err_set(k->e, ERR_FORMAT, "%s: tensor blk.%d.%s is missing", gguf_path(k->g), i / n, names[i % n]);
}

static enum err_code make_common(struct arch_plan *p, struct arch_keys *k)
{
    const struct gguf *g = k->g;
    struct err *e = k->e;
    int blocks = arch_int(k, "block_count", 1, ARCH_LAYERS_MAX);
    const struct gguf_tensor *embd = gguf_find(g, "token_embd.weight");

    p->n_nextn = arch_int_or(k, "nextn_predict_layers", 0, ARCH_LAYERS_MAX - 1, 0);
    p->n_embd = arch_int(k, "embedding_length", 1, ARCH_WIDTH_MAX);
    p->norm_eps = arch_float(k, "attention.layer_norm_rms_epsilon", 0.0f, 1.0f);
    p->ctx_train = arch_int(k, "context_length", 1, ARCH_CTX_MAX);
    if (e->code != ERR_OK)
        return e->code;
    if (p->n_nextn >= blocks)
        return err_set(e, ERR_FORMAT, "%s: %s.nextn_predict_layers is not less than block_count", gguf_path(g),
                       p->arch->name);
    if (p->n_nextn > 0) { /* pruned files keep the key without the block */
        if (!arch_has_tensor(k, "nextn.eh_proj.weight", blocks - p->n_nextn) &&
            (arch_has_tensor(k, "attn_norm.weight", blocks - 1) ||
             arch_has_tensor(k, "hc_attn_norm.weight", blocks - 1)))
            p->n_nextn = 0;
    }
    p->n_layer = blocks - p->n_nextn;
    p->nextn_mixer = MIX_ATTN;
    if (embd == NULL)
        return err_set(e, ERR_FORMAT, "%s: tensor token_embd.weight is missing", gguf_path(g));
    if (embd->ne[1] > INT32_MAX / 4)
        return err_set(e, ERR_FORMAT, "%s: tensor token_embd.weight has too many rows", gguf_path(g));
    p->n_vocab = (int32_t)embd->ne[1];
    p->embd_scale = p->residual_scale = p->logit_scale = 1.0f;
    p->streams.n = 1;
    p->ffn_norm = "ffn_norm.weight";
    p->out_norm = "output_norm.weight";
    return ERR_OK;
}

/* The family that a file names; NULL: *e says what is wrong. */
static const struct arch *find_arch(const struct gguf *g, struct err *e)
{
    struct str name = { 0 };
    char known[512] = "";
    size_t used = 0;

    if (!gguf_str(g, "general.architecture", &name)) {
        err_set(e, ERR_FORMAT, "%s: general.architecture is missing", gguf_path(g));
        return NULL;
    }
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (str_is(name, archs[i]->name))
            return archs[i];
    for (size_t i = 0; i < sizeof archs / sizeof archs[0] && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", archs[i]->name);
    err_set(e, ERR_UNSUPPORTED, "%s: architecture '%.*s' is not known to this version, which has %s", gguf_path(g),
            STR_ARG(name), known);
    return NULL;
}

enum err_code arch_plan_make(struct arch_plan *p, const struct gguf *g, struct err *e)
{
    const struct arch *arch = find_arch(g, e);
    struct arch_keys k = { g, arch != NULL ? arch->name : "", e };

    if (arch == NULL)
        return e->code;
    e->code = ERR_OK;
    memset(p, 0, sizeof *p);
    p->arch = arch;
    if (make_common(p, &k) == ERR_OK)
        arch->make(p, &k);
    return e->code;
}
