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

/* The tensor, or NULL with the error set when it is missing or not of this shape. */
static const struct gguf_tensor *need(struct binder *b, const char *name, int64_t ne0, int64_t ne1,
                                      int64_t ne2)
{
    char full[128];
    const struct gguf_tensor *t;

    if (b->e->code != ERR_OK)
        return NULL;
    full_name(b, name, full);
    t = gguf_find(b->g, full);
    if (t == NULL) {
        err_set(b->e, ERR_FORMAT, "%s: tensor %s is missing", gguf_path(b->g), full);
        return NULL;
    }
    if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != ne2 || t->ne[3] != 1) {
        err_set(b->e, ERR_FORMAT, "%s: tensor %s is %lld x %lld x %lld, not %lld x %lld x %lld",
                gguf_path(b->g), full, (long long)t->ne[0], (long long)t->ne[1], (long long)t->ne[2],
                (long long)ne0, (long long)ne1, (long long)ne2);
        return NULL;
    }
    return t;
}

struct tensor bind_mat(struct binder *b, const char *name, int64_t ne0, int64_t ne1, int64_t ne2)
{
    const struct gguf_tensor *t = need(b, name, ne0, ne1, ne2);

    if (t == NULL)
        return (struct tensor){ .type = QUANT_f32 };
    return (struct tensor){
        /* operations never write weights */
        .type = t->type, .ne = { ne0, ne1, ne2 }, .stride = ne0, .pitch = ne1,
        .data = (void *)(uintptr_t)t->data,
    };
}

const float *bind_vec(struct binder *b, const char *name, int64_t n)
{
    const struct gguf_tensor *t = need(b, name, n, 1, 1);
    float *v = t == NULL ? NULL : arena_array(b->arena, (size_t)n, sizeof *v);

    if (v == NULL) {
        if (t != NULL)
            err_set(b->e, ERR_NOMEM, "out of memory");
        return NULL;
    }
    quant_types[t->type]->decode(v, t->data, n);
    return v;
}

const float *bind_conv(struct binder *b, const char *name, int64_t taps, int64_t channels)
{
    const struct gguf_tensor *t = need(b, name, taps, channels, 1);
    float *v, row[ARCH_TAPS_MAX];

    if (t == NULL)
        return NULL;
    v = arena_array(b->arena, (size_t)(taps * channels), sizeof *v);
    if (v == NULL) {
        err_set(b->e, ERR_NOMEM, "out of memory");
        return NULL;
    }
    int64_t row_bytes = quant_row_bytes(t->type, taps);
    for (int64_t c = 0; c < channels; c++) {
        quant_types[t->type]->decode(row, (const unsigned char *)t->data + c * row_bytes, taps);
        for (int64_t j = 0; j < taps; j++)
            v[j * channels + c] = row[j];
    }
    return v;
}
