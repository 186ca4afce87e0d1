/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - adapters from GGUF files. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "adapt/internal.h"
#include "gguf/gguf.h"
#include "quant/quant.h"

enum { NAME_BYTES = 80 }; /* of a tensor: gguf.h has at most 64 */

static bool ends_with(struct str name, const char *suffix)
{
    size_t n = strlen(suffix);

    return name.n > n && memcmp(name.p + name.n - n, suffix, n) == 0;
}

/* The tensor of the other half of a pair; NULL: there is none. */
static const struct gguf_tensor *other(const struct gguf *g, struct str name, const char *suffix)
{
    char full[NAME_BYTES];

    (void)snprintf(full, sizeof full, "%.*s%s", (int)(name.n - strlen(suffix)), name.p, suffix);
    return gguf_find(g, full);
}

static enum err_code check_head(const struct gguf *g, bool *scales, float *alpha, struct str *arch, struct err *e)
{
    const char *path = gguf_path(g);
    struct str type = str_of("");

    if (!gguf_str(g, "general.type", &type) || !str_is(type, "adapter"))
        return err_set(e, ERR_FORMAT, "%s: not an adapter: general.type is '%.*s'", path, STR_ARG(type));
    type = str_of("");
    *scales = gguf_str(g, "adapter.type", &type) && str_is(type, "scales");
    if (!*scales && !str_is(type, "lora"))
        return err_set(e, ERR_UNSUPPORTED, "%s: an adapter of type '%.*s', and only 'lora' and 'scales' are known",
                       path, STR_ARG(type));
    if (gguf_kv_find(g, "adapter.alora.invocation_tokens") != NULL)
        return err_set(e, ERR_UNSUPPORTED, "%s: an adapter that waits for tokens that invoke it (aLoRA)", path);
    if (!gguf_str(g, "general.architecture", arch))
        return err_set(e, ERR_FORMAT, "%s: general.architecture is missing", path);
    *alpha = 1.0f;
    if (!*scales && !gguf_f32(g, "adapter.lora.alpha", alpha))
        return err_set(e, ERR_FORMAT, "%s: adapter.lora.alpha is missing", path);
    if (!isfinite(*alpha) || *alpha == 0.0f)
        return err_set(e, ERR_FORMAT, "%s: adapter.lora.alpha is %g", path, (double)*alpha);
    if (gguf_n_tensors(g) == 0)
        return err_set(e, ERR_FORMAT, "%s: the adapter has no tensors", path);
    return ERR_OK;
}

static enum err_code check_tensor(const struct gguf *g, const struct gguf_tensor *t, bool scales, struct err *e)
{
    const bool a = ends_with(t->name, ADAPTER_A);

    if (scales && (!ends_with(t->name, ADAPTER_S) || t->ne[2] != 1 || t->ne[3] != 1))
        return err_set(e, ERR_FORMAT, "%s: tensor %.*s is not the scales of a matrix", gguf_path(g), STR_ARG(t->name));
    if (!scales && !a && !ends_with(t->name, ADAPTER_B))
        return err_set(e, ERR_FORMAT, "%s: tensor %.*s is neither lora_a nor lora_b", gguf_path(g), STR_ARG(t->name));
    if (!scales && other(g, t->name, a ? ADAPTER_B : ADAPTER_A) == NULL)
        return err_set(e, ERR_FORMAT, "%s: tensor %.*s has no %s beside it", gguf_path(g), STR_ARG(t->name),
                       a ? "lora_b" : "lora_a");
    if (t->type != QUANT_f32 && t->type != QUANT_f16 && t->type != QUANT_bf16 && t->type != QUANT_q8_0)
        return err_set(e, ERR_UNSUPPORTED, "%s: tensor %.*s is of type %s, not one of f32, f16, bf16, q8_0",
                       gguf_path(g), STR_ARG(t->name), quant_types[t->type]->name);
    return ERR_OK;
}

/* The sizes that a and b say; name: of the matrix. */
static enum err_code read_sizes(struct adapter_mat *m, const struct gguf *g, const char *name,
                                const struct gguf_tensor *a, const struct gguf_tensor *b, struct err *e)
{
    const bool rows = str_is(str_of(name), ADAPTER_EMBD);
    const int64_t rank = b->ne[0], rank_a = rows ? a->ne[0] : a->ne[1];

    if (a->ne[3] != 1 || b->ne[3] != 1 || a->ne[2] != b->ne[2] || (rows && a->ne[2] != 1))
        return err_set(e, ERR_FORMAT, "%s: %s has %lld matrices in lora_a, %lld in lora_b", gguf_path(g), name,
                       (long long)(a->ne[2] * a->ne[3]), (long long)(b->ne[2] * b->ne[3]));
    if (rank_a != rank)
        return err_set(e, ERR_FORMAT, "%s: %s has rank %lld in lora_a, %lld in lora_b", gguf_path(g), name,
                       (long long)rank_a, (long long)rank);
    if (rank > ADAPTER_RANK_MAX)
        return err_set(e, ERR_UNSUPPORTED, "%s: %s has rank %lld, more than %d", gguf_path(g), name, (long long)rank,
                       ADAPTER_RANK_MAX);
    *m = (struct adapter_mat){ .name = name,
                               .n_in = rows ? b->ne[1] : a->ne[0],
                               .n_out = rows ? a->ne[1] : b->ne[1],
                               .n_mat = a->ne[2],
                               .rank = (int)rank,
                               .rows = rows };
    return ERR_OK;
}

static enum err_code widen(float *out, const struct gguf *g, const struct gguf_tensor *t, struct err *e)
{
    const int64_t rows = t->ne[1] * t->ne[2], row_bytes = quant_row_bytes(t->type, t->ne[0]), n = rows * t->ne[0];

    for (int64_t r = 0; r < rows; r++)
        quant_types[t->type]->decode(out + r * t->ne[0], (const unsigned char *)t->data + r * row_bytes, t->ne[0]);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return err_set(e, ERR_FORMAT, "%s: tensor %.*s has a number that is not finite", gguf_path(g),
                           STR_ARG(t->name));
    gguf_drop(g, t);
    return ERR_OK;
}

/* Matrix i from its two tensors. */
static enum err_code read_mat(struct own_adapter *o, size_t i, const struct gguf *g, const struct gguf_tensor *a,
                              struct err *e)
{
    const struct gguf_tensor *b = other(g, a->name, ADAPTER_B);
    struct adapter_mat m;
    char name[NAME_BYTES];

    (void)snprintf(name, sizeof name, "%.*s", (int)(a->name.n - strlen(ADAPTER_A)), a->name.p);
    if (read_sizes(&m, g, name, a, b, e))
        return e->code;
    if (!adapter_room(o, i, &m))
        return err_set(e, ERR_NOMEM, "out of memory: %s", gguf_path(g));
    if (widen(o->a.mat[i].a, g, a, e) || widen(o->a.mat[i].b, g, b, e))
        return e->code;
    return ERR_OK;
}

/* The scales of matrix i. */
static enum err_code read_scales(struct own_adapter *o, size_t i, const struct gguf *g, const struct gguf_tensor *t,
                                 struct err *e)
{
    char name[NAME_BYTES];
    const struct adapter_mat m = { .name = name, .n_out = t->ne[0], .n_mat = t->ne[1] };

    (void)snprintf(name, sizeof name, "%.*s", (int)(t->name.n - strlen(ADAPTER_S)), t->name.p);
    if (str_is(str_of(name), ADAPTER_EMBD))
        return err_set(e, ERR_UNSUPPORTED, "%s: scales of %s", gguf_path(g), name);
    if (!adapter_room(o, i, &m))
        return err_set(e, ERR_NOMEM, "out of memory: %s", gguf_path(g));
    return widen(o->a.mat[i].b, g, t, e);
}

static enum err_code read_all(struct adapter **out, const struct gguf *g, struct err *e)
{
    struct own_adapter *o;
    struct str arch, record;
    float alpha;
    size_t n = 0;
    bool scales = false;

    if (check_head(g, &scales, &alpha, &arch, e))
        return e->code;
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        if (check_tensor(g, gguf_tensor_at(g, i), scales, e))
            return e->code;
    o = adapter_new(gguf_path(g), arch, alpha, gguf_n_tensors(g) / (scales ? 1 : 2));
    if (o != NULL && gguf_str(g, ADAPTER_RECORD, &record) && (o->a.record = arena_strdup(&o->arena, record)) == NULL) {
        adapter_close(&o->a);
        o = NULL;
    }
    if (o == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %s", gguf_path(g));
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        if (scales ? read_scales(o, i, g, t, e) : ends_with(t->name, ADAPTER_A) && read_mat(o, n++, g, t, e)) {
            adapter_close(&o->a);
            return e->code;
        }
    }
    *out = &o->a;
    return ERR_OK;
}

enum err_code adapter_open(struct adapter **out, const char *path, struct err *e)
{
    struct gguf *g;
    enum err_code code;

    if (gguf_open(&g, path, e))
        return e->code;
    code = read_all(out, g, e);
    gguf_close(g);
    return code;
}
