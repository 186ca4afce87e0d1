/* SPDX-License-Identifier: Apache-2.0 */
/* weights.c - finds a plan's tensors in the file and checks their shapes. */
#include <stdio.h>

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
static const struct gguf_tensor *need(struct binder *b, const char *name, char full[128])
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

static const struct gguf_tensor *need_shape(struct binder *b, const char *name, int64_t ne0, int64_t ne1,
                                            int64_t ne2)
{
    char full[128];
    const struct gguf_tensor *t = need(b, name, full);

    if (t == NULL || (t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == ne2 && t->ne[3] == 1))
        return t;
    err_set(b->e, ERR_FORMAT, "%s: tensor %s is %lld x %lld x %lld, not %lld x %lld x %lld",
            gguf_path(b->g), full, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2],
            (long long)ne0, (long long)ne1, (long long)ne2);
    return NULL;
}

static const void *to_device(struct binder *b, const void *host, size_t n)
{
    const void *p = host == NULL || b->e->code != ERR_OK ? NULL : dev_weights(b->dev, host, n);

    if (p == NULL && b->e->code == ERR_OK)
        err_set(b->e, ERR_NOMEM, "out of memory: the weights do not fit device %s", dev_name(b->dev));
    return p;
}

struct tensor bind_mat(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2)
{
    const struct gguf_tensor *t = need_shape(b, name, ne0, ne1, ne2);

    if (t == NULL)
        return (struct tensor){ .type = QUANT_f32 };
    return (struct tensor){
        /* operations never write weights */
        .type = t->type, .ne = { ne0, ne1, ne2 }, .stride = ne0, .pitch = ne1,
        .data = (void *)(uintptr_t)to_device(b, t->data, t->size_bytes),
    };
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
        err_set(b->e, ERR_NOMEM, "out of memory");
    return v;
}

/* n floats on the host, whatever the tensor's dimensions. */
static float *widened(struct binder *b, const char *name, int64_t n)
{
    char full[128];
    const struct gguf_tensor *t = need(b, name, full);
    float *v;

    if (t == NULL)
        return NULL;
    int64_t rows = t->ne[1] * t->ne[2] * t->ne[3];
    if (t->ne[0] * rows != n) {
        err_set(b->e, ERR_FORMAT, "%s: tensor %s has %lld elements, not %lld", gguf_path(b->g), full,
                (long long)(t->ne[0] * rows), (long long)n);
        return NULL;
    }
    v = room_for(b, n);
    for (int64_t r = 0; v != NULL && r < rows; r++)
        quant_types[t->type]->decode(v + r * t->ne[0],
                                     (const unsigned char *)t->data + r * quant_row_bytes(t->type, t->ne[0]),
                                     t->ne[0]);
    return v;
}

const float *bind_vec(struct binder *b, const char *name, int64_t n)
{
    return to_device(b, widened(b, name, n), (size_t)n * sizeof(float));
}

const float *bind_vec_opt(struct binder *b, const char *name, int64_t n)
{
    return bind_has(b, name) ? bind_vec(b, name, n) : NULL;
}

const float *bind_transposed(struct binder *b, const char *const *names, int n, int64_t columns, int64_t rows)
{
    float *out = room_for(b, columns * rows * n);

    for (int i = 0; i < n; i++) {
        const float *v = widened(b, names[i], columns * rows);

        for (int64_t r = 0; v != NULL && out != NULL && r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                out[(c * n + i) * rows + r] = v[r * columns + c];
    }
    return to_device(b, out, (size_t)(columns * rows * n) * sizeof *out);
}
