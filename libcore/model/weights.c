/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - finds a plan's tensors in the file and checks their shapes. */
#include <stdio.h>
#include <string.h>

#include "base/io.h"
#include "gemm/gemm.h"
#include "gguf/gguf.h"
#include "model/internal.h"
#include "quant/quant.h"

static void full_name(const struct binder *b, const char *name, char full[128])
{
    if (b->layer < 0)
        (void)snprintf(full, 128, "%s", name);
    else
        (void)snprintf(full, 128, "blk.%d.%s", b->layer, name);
}

bool bind_has(const struct binder *b, const char *name)
{
    char full[128];

    full_name(b, name, full);
    return gguf_find(b->g, full) != NULL;
}

/* The tensor, or NULL with the error set when it is missing. */
static const struct gguf_tensor *need_tensor(struct binder *b, const char *name, char full[128])
{
    const struct gguf_tensor *t;

    full_name(b, name, full);
    if (b->e->code != ERR_OK)
        return NULL;
    t = gguf_find(b->g, full);
    if (t == NULL)
        err_set(b->e, ERR_FORMAT, "%s: tensor %s is missing", gguf_path(b->g), full);
    else
        b->used[t - gguf_tensor_at(b->g, 0)] = true;
    return t;
}

static const struct gguf_tensor *need_shape(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2)
{
    char full[128];
    const struct gguf_tensor *t = need_tensor(b, name, full);

    if (t != NULL && b->dev != NULL && !dev_is_host(b->dev) && !gemm_knows(t->type)) {
        err_set(b->e, ERR_UNSUPPORTED, "%s: tensor %s is %s, for which device %s has no kernels", gguf_path(b->g), full,
                quant_types[t->type]->name, dev_name(b->dev));
        return NULL;
    }
    if (t == NULL || (t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == 1))
        return t;
    err_set(b->e, ERR_FORMAT, "%s: tensor %s is %lld x %lld x %lld, not %lld x %lld x %lld", gguf_path(b->g), full,
            (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2], (long long)ne0, (long long)ne1,
            (long long)ne2);
    return NULL;
}

/* Which of the model's tensors a matrix is, as struct tensor says it; products are made with it. Those of a drafter's
 * own file have no numbers. */
static int number_of(struct binder *b, const struct gguf_tensor *t)
{
    const int64_t i = t - gguf_tensor_at(b->g, 0);

    if (b->multiplied == NULL)
        return 0;
    b->multiplied[i] = true;
    return (int)(1 + i);
}

/* Weights on the host or the device; laid NULL: they are not in the file. */
static const void *put_weights(struct binder *b, struct dev *d, const struct dev_pieces *v, int64_t *bytes, bool *laid)
{
    size_t held = dev_held(d);
    const bool copy = b->copy && laid != NULL;
    const void *p = copy ? dev_weights_copy(d, v, laid) : dev_weights_pieces(d, v);
    int64_t more = (int64_t)(dev_held(d) - held);

    *bytes += more;
    if (copy && dev_is_host(d))
        b->bytes->copied += more;
    if (copy && *laid)
        b->bytes->laid += more;
    if (p == NULL)
        err_set(b->e, ERR_NOMEM, "out of memory: the weights do not fit device %s", dev_name(d));
    return p;
}

static const void *pieces_to_device(struct binder *b, const char *name, const struct dev_pieces *v, bool *laid)
{
    char full[128];

    if (v->host == NULL || b->e->code != ERR_OK || b->dev == NULL)
        return v->host;
    full_name(b, name, full);
    return put_weights(b, b->dev, v, &b->bytes->device[model_class_of(str_of(full), b->n_layer)], laid);
}

/* What is not in the file. */
static const void *to_device(struct binder *b, const char *name, const void *host, size_t n)
{
    return pieces_to_device(b, name, &(struct dev_pieces){ .host = host, .bytes = n, .n = 1 }, NULL);
}

/* A tensor in n pieces, some of which are kept: those with keep[i]. */
static struct dev_pieces rows_of(const struct binder *b, const struct gguf_tensor *t, int64_t n, const bool *keep)
{
    return (struct dev_pieces){ t->data,     t->size_bytes / (size_t)n,   n,        keep,
                                t->type,     b->as_stored ? 0 : t->ne[0], t->ne[1], b->section,
                                b->n_section };
}

struct tensor bind_mat(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2)
{
    const struct gguf_tensor *t = need_shape(b, name, ne0, ne1, ne2);
    struct dev_pieces v;
    const void *p;
    bool laid = false;

    if (t == NULL)
        return (struct tensor){ .type = QUANT_f32 };
    v = rows_of(b, t, 1, NULL);
    p = pieces_to_device(b, name, &v, &laid);
    if (b->copy && p != t->data)
        gguf_drop(b->g, t);
    return (struct tensor){ .type = t->type,
                            .ne = { ne0, ne1, ne2 },
                            .stride = ne0,
                            .pitch = ne1,
                            .data = (void *)(uintptr_t)p,
                            .laid = laid,
                            .of = number_of(b, t) }; /* never written */
}

struct tensor bind_heads(struct binder *b, const char *name, int64_t ne0, int64_t ne1, const struct dev_section *s,
                         int n)
{
    b->section = s;
    b->n_section = n;
    const struct tensor t = bind_mat(b, name, ne0, ne1, 1);

    b->n_section = 0;
    return t;
}

static struct tensor rows_only(struct binder *b, const char *name, int64_t ne0, int64_t ne1, bool by_ids, bool adapts)
{
    const struct gguf_tensor *t = need_shape(b, name, ne0, ne1, 1);
    char full[128];
    enum model_class class;
    size_t held, more;
    const void *p;

    if (t == NULL || b->dev == NULL)
        return (struct tensor){ .type = QUANT_f32 };
    full_name(b, name, full);
    class = model_class_of(str_of(full), b->n_layer);
    held = dev_held(b->dev);
    p = (by_ids ? dev_weights : dev_weights_rows)(b->dev, t->data, t->size_bytes);
    if (p == NULL)
        err_set(b->e, ERR_NOMEM, "out of memory: the weights do not fit device %s", dev_name(b->dev));
    more = dev_held(b->dev) - held;
    b->bytes->device[class] += (int64_t)more;
    b->bytes->host[class] += more == 0 ? (int64_t)t->size_bytes : 0;
    return (struct tensor){ .type = t->type,
                            .ne = { ne0, ne1, 1 },
                            .stride = ne0,
                            .pitch = ne1,
                            .data = (void *)(uintptr_t)p,
                            .of = adapts ? number_of(b, t) : 0 };
}

struct tensor bind_rows(struct binder *b, const char *name, int64_t ne0, int64_t ne1, bool by_ids)
{
    return rows_only(b, name, ne0, ne1, by_ids, true);
}

struct tensor bind_table(struct binder *b, const char *name, int64_t ne0, int64_t ne1)
{
    return rows_only(b, name, ne0, ne1, false, false);
}

/* Experts that stay on the host, in the mapped file or copied. */
static const void *experts_on_host(struct binder *b, const struct gguf_tensor *t, int64_t n_expert, int64_t n_here,
                                   bool *laid)
{
    const size_t bytes = t->size_bytes / (size_t)n_expert;
    struct dev_pieces v;
    int64_t *all = &b->bytes->host[MODEL_EXPERTS];
    bool *keep;

    if (!b->copy || b->e->code != ERR_OK) {
        *all += (n_expert - n_here) * (int64_t)bytes;
        return t->data;
    }
    keep = arena_array(b->arena, (size_t)n_expert, sizeof *keep);
    if (keep == NULL) {
        err_nomem(b->e);
        return t->data;
    }
    for (int64_t i = 0; i < n_expert; i++)
        keep[i] = !b->here[i];
    v = rows_of(b, t, n_expert, keep);
    return put_weights(b, b->host, &v, all, laid);
}

static int64_t count_true(const bool *v, int64_t n)
{
    int64_t k = 0;

    for (int64_t i = 0; i < n; i++)
        k += v[i];
    return k;
}

struct tensor bind_experts(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t n_expert,
                           struct tensor *host)
{
    const struct gguf_tensor *t = b->here == NULL ? NULL : need_shape(b, name, ne0, ne1, n_expert);
    struct tensor all;
    struct dev_pieces v;
    int64_t n_here;

    if (b->here == NULL)
        return bind_mat(b, name, ne0, ne1, n_expert);
    if (t == NULL)
        return (struct tensor){ .type = QUANT_f32 };
    n_here = count_true(b->here, n_expert);
    all = (struct tensor){
        .type = t->type, .ne = { ne0, ne1, n_expert }, .stride = ne0, .pitch = ne1, .of = number_of(b, t)
    };
    all.data = (void *)(uintptr_t)experts_on_host(b, t, n_expert, n_here, &all.laid);
    *host = all;
    all.laid = false;
    v = rows_of(b, t, n_expert, b->here);
    all.data = n_here == 0 ? NULL : (void *)(uintptr_t)pieces_to_device(b, name, &v, &all.laid);
    if (b->copy && host->data != t->data)
        gguf_drop(b->g, t);
    if (!dev_is_host(b->dev))
        all.ne[2] = n_here;
    return all;
}

int bind_cached(struct binder *b, const struct op_moe *moe)
{
    struct dev *d = b->here != NULL ? b->host : b->dev;
    struct dev_cached v = { .moe = moe };
    const void *const at[3] = { moe->gate.data, moe->up.data, moe->down.data };
    int layer;

    if (!b->cache || d == NULL || b->e->code != ERR_OK)
        return 0;
    for (int i = 0; i < 3; i++)
        v.map[i] = at[i] != NULL ? gguf_map_of(b->g, at[i], &v.path[i]) : NULL;
    if (b->uses != NULL && b->layer < b->n_layer)
        v.uses = b->uses + b->layer * moe->up.ne[2];
    layer = dev_cache_layer(d, &v);
    if (layer == 0)
        err_set(b->e, ERR_UNSUPPORTED, "--expert-cache: device %s does not read experts from the file", dev_name(d));
    return layer;
}

const int32_t *bind_slots(struct binder *b, int n_expert, bool there)
{
    int32_t *v = arena_array(b->arena, (size_t)n_expert, sizeof *v), n = 0;

    if (v == NULL) {
        if (b->e->code == ERR_OK)
            err_nomem(b->e);
        return NULL;
    }
    for (int32_t i = 0; i < n_expert; i++)
        v[i] = b->here[i] != there ? -1 : there && !dev_is_host(b->dev) ? n++ : i;
    return there ? to_device(b, "ffn_gate_inp.weight", v, (size_t)n_expert * sizeof *v) : v;
}

struct tensor bind_mat_opt(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2)
{
    if (!bind_has(b, name))
        return (struct tensor){ .type = QUANT_f32 };
    return bind_mat(b, name, ne0, ne1, ne2);
}

static float *room_for(struct binder *b, int64_t n)
{
    float *v = arena_array(b->arena, (size_t)n, sizeof *v);

    if (v == NULL && b->e->code == ERR_OK)
        err_nomem(b->e);
    return v;
}

/* n floats on the host, in rows of ne0; 0: whatever the tensor's dimensions. */
static float *widened(struct binder *b, const char *name, int64_t n, int64_t ne0)
{
    char full[128];
    const struct gguf_tensor *t = need_tensor(b, name, full);
    float *v;

    if (t == NULL)
        return NULL;
    int64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
    if (t->ne[0] * rows != n) {
        err_set(b->e, ERR_FORMAT, "%s: tensor %s has %lld elements, not %lld", gguf_path(b->g), full,
                (long long)(t->ne[0] * rows), (long long)n);
        return NULL;
    }
    if (ne0 != 0 && t->ne[0] != ne0) {
        err_set(b->e, ERR_FORMAT, "%s: tensor %s has rows of %lld elements, not %lld", gguf_path(b->g), full,
                (long long)t->ne[0], (long long)ne0);
        return NULL;
    }
    v = room_for(b, n);
    for (int64_t r = 0; v != NULL && r < rows; r++)
        quant_types[t->type]->decode(v + r * t->ne[0],
                                     (const unsigned char *)t->data + r * quant_row_bytes(t->type, t->ne[0]), t->ne[0]);
    return v;
}

const float *bind_vec(struct binder *b, const char *name, int64_t n)
{
    return to_device(b, name, widened(b, name, n, 0), (size_t)n * sizeof(float));
}

const float *bind_own(struct binder *b, const char *name, const float *v, int64_t n)
{
    return to_device(b, name, v, (size_t)n * sizeof *v);
}

const float *bind_vec_opt(struct binder *b, const char *name, int64_t n)
{
    return bind_has(b, name) ? bind_vec(b, name, n) : NULL;
}

const float *bind_transposed(struct binder *b, const char *const *names, int n, int64_t columns, int64_t rows)
{
    float *out = room_for(b, columns * rows * n);

    for (int i = 0; i < n; i++) {
        const float *v = widened(b, names[i], columns * rows, columns);

        for (int64_t r = 0; v != NULL && out != NULL && r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                out[(c * n + i) * rows + r] = v[r * columns + c];
    }
    return to_device(b, names[0], out, (size_t)(columns * rows * n) * sizeof *out);
}

void bind_unread(const struct binder *b, int first, int n)
{
    for (int block = first; block < first + n; block++) {
        char start[32];
        const size_t len = (size_t)snprintf(start, sizeof start, "blk.%d.", block);

        for (size_t i = 0; i < gguf_n_tensors(b->g); i++) {
            const struct str name = gguf_tensor_at(b->g, i)->name;

            b->used[i] |= name.n > len && memcmp(name.p, start, len) == 0;
        }
    }
}

/* A tensor that nothing reads (a bias, a scale) would make the output wrong without a word. */
enum err_code bind_all_used(const struct binder *b)
{
    for (size_t i = 0; b->e->code == ERR_OK && i < gguf_n_tensors(b->g); i++)
        if (!b->used[i])
            err_set(b->e, ERR_UNSUPPORTED, "%s: tensor %.*s is not one this architecture uses", gguf_path(b->g),
                    STR_ARG(gguf_tensor_at(b->g, i)->name));
    return b->e->code;
}
