/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c - the tensor lists: shapes, sizes and places checked, names looked up. */
#include "gguf/parse.h"
#include "quant/quant.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

static int by_name(const void *v, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = v;

    return gguf_str_cmp(t[a].name, t[b].name);
}

static int by_place(const void *v, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = v;
    const unsigned char *p = t[a].data, *q = t[b].data;

    return p != q ? (p > q) - (p < q) : (a > b) - (a < b);
}

/* Bytes of a tensor from its type and shape; at: where its dimensions lie. */
static enum err_code tensor_size(const struct gguf_in *in, struct gguf_tensor *t, size_t at)
{
    const struct quant_type *q = quant_types[t->type];
    int64_t row = quant_row_bytes(t->type, t->ne[0]), rows = t->ne[1] * t->ne[2] * t->ne[3];

    if (t->ne[0] % q->block_elems != 0) {
        err_set(in->e, ERR_FORMAT, "block: tensor %.*s: rows of %" PRId64 " elements, %s has blocks of %d",
                STR_ARG(t->name), t->ne[0], q->name, q->block_elems);
        return gguf_bad(in, at);
    }
    if (row <= 0 || (uint64_t)rows > SIZE_MAX / (uint64_t)row) {
        err_set(in->e, ERR_FORMAT, "overflow: tensor %.*s: its bytes do not fit in memory", STR_ARG(t->name));
        return gguf_bad(in, at);
    }
    t->size_bytes = (size_t)row * (size_t)rows;
    return ERR_OK;
}

static enum err_code take_dims(struct gguf_in *in, struct gguf_tensor *t)
{
    uint32_t n_dims;
    int64_t product = 1;

    if (gguf_take_u32(in, &n_dims, "a number of dimensions"))
        return in->e->code;
    if (n_dims < 1 || n_dims > 4) {
        err_set(in->e, ERR_FORMAT, "dimensions: tensor %.*s has %" PRIu32 ", allowed are 1 to 4", STR_ARG(t->name),
                n_dims);
        return gguf_bad(in, in->at - 4);
    }
    t->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < 4; i++)
        t->ne[i] = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t ne;

        if (gguf_take_u64(in, &ne, "a dimension"))
            return in->e->code;
        if (ne == 0) {
            err_set(in->e, ERR_FORMAT, "zero-dimension: tensor %.*s: dimension %" PRIu32 " is 0", STR_ARG(t->name), i);
            return gguf_bad(in, in->at - 8);
        }
        if (ne > (uint64_t)(INT64_MAX / product)) {
            err_set(in->e, ERR_FORMAT, "overflow: tensor %.*s has more than 2^63 - 1 elements", STR_ARG(t->name));
            return gguf_bad(in, in->at - 8);
        }
        t->ne[i] = (int64_t)ne;
        product *= t->ne[i];
    }
    return ERR_OK;
}

/* All but data, which waits until the end of the list is known. */
static enum err_code take_tensor(struct gguf_in *in, struct gguf_tensor *t)
{
    size_t dims_at;
    uint32_t id;
    uint64_t offset;

    if (gguf_take_name(in, &t->name, GGUF_NAME_MAX, "a tensor name"))
        return in->e->code;
    dims_at = in->at + 4;
    if (take_dims(in, t) || gguf_take_u32(in, &id, "a tensor type"))
        return in->e->code;
    t->type = quant_find_id(id);
    if (t->type < 0 && quant_other_name(id) != NULL) {
        err_set(in->e, ERR_UNSUPPORTED,
                "type: tensor %.*s is %s (type %" PRIu32 "), a type of ik_llama.cpp that is not read", STR_ARG(t->name),
                quant_other_name(id), id);
        return gguf_bad(in, in->at - 4);
    }
    if (t->type < 0) {
        err_set(in->e, ERR_UNSUPPORTED, "type: tensor %.*s has type id %" PRIu32 ", which this build does not know",
                STR_ARG(t->name), id);
        return gguf_bad(in, in->at - 4);
    }
    if (gguf_take_u64(in, &offset, "a tensor's offset"))
        return in->e->code;
    t->data = NULL;
    return tensor_size(in, t, dims_at);
}

/* Where the list stores a tensor's offset. */
static size_t tensor_offset_at(const struct gguf_in *in, const struct gguf_tensor *t)
{
    return gguf_offset(in, t->name.p + t->name.n) + 4 + 8 * (size_t)t->n_dims + 4;
}

/* data of each tensor: aligned and inside the file. in->at: end of the list. */
static enum err_code place_tensors(const struct gguf_in *in, uint32_t align, struct gguf_tensor *t, size_t n)
{
    size_t pad = (align - in->at % align) % align;
    size_t space = gguf_left(in) >= pad ? gguf_left(in) - pad : 0; /* bytes of the data section */

    for (size_t i = 0; i < n; i++) {
        size_t at = tensor_offset_at(in, &t[i]);
        uint64_t offset = gguf_load_u64(in->base + at);

        if (offset % align != 0) {
            err_set(in->e, ERR_FORMAT, "offset-alignment: tensor %.*s at %" PRIu64 " is not aligned to %" PRIu32,
                    STR_ARG(t[i].name), offset, align);
            return gguf_bad(in, at);
        }
        if (offset > space || t[i].size_bytes > space - offset) {
            err_set(in->e, ERR_FORMAT,
                    "past-end: an incomplete download? tensor %.*s of %zu bytes at %" PRIu64
                    ", the data section has %zu",
                    STR_ARG(t[i].name), t[i].size_bytes, offset, space);
            return gguf_bad(in, at);
        }
        t[i].data = in->base + in->at + pad + offset;
    }
    return ERR_OK;
}

/* Files in the usual order of tensors need no sort here. order: n to use freely. */
static enum err_code check_overlap(const struct gguf_in *in, const struct gguf_tensor *t, size_t n, uint32_t *order)
{
    bool in_order = true;

    for (size_t i = 1; i < n && in_order; i++)
        in_order = (const unsigned char *)t[i - 1].data + t[i - 1].size_bytes <= (const unsigned char *)t[i].data;
    if (in_order)
        return ERR_OK;
    gguf_sort(order, n, by_place, t);
    for (size_t i = 1; i < n; i++) {
        const struct gguf_tensor *a = &t[order[i - 1]], *b = &t[order[i]];

        if ((const unsigned char *)a->data + a->size_bytes > (const unsigned char *)b->data) {
            err_set(in->e, ERR_FORMAT, "overlap: tensors %.*s and %.*s", STR_ARG(a->name), STR_ARG(b->name));
            return gguf_bad(in, tensor_offset_at(in, a > b ? a : b));
        }
    }
    return ERR_OK;
}

static enum err_code read_tensors(struct gguf *g, const struct gguf_part *p, struct err *e)
{
    struct gguf_tensor *t = g->tensors + g->n_tensors;
    struct gguf_in in = gguf_part_in(p, p->tensors_at, e);
    size_t n = (size_t)p->n_tensors;

    for (size_t i = 0; i < n; i++)
        if (take_tensor(&in, &t[i]))
            return e->code;
    if (place_tensors(&in, p->align, t, n) || check_overlap(&in, t, n, g->order + g->n_tensors))
        return e->code;
    g->n_tensors += n;
    return ERR_OK;
}

static enum err_code check_names(const struct gguf *g, struct err *e)
{
    for (size_t i = 1; i < g->n_tensors; i++) {
        uint32_t a = g->order[i - 1], b = g->order[i], last = a > b ? a : b;
        struct str name = g->tensors[last].name;
        const struct gguf_part *p = g->parts;
        size_t end = (size_t)p->n_tensors; /* of p's tensors, in the order of the set */
        struct gguf_in in;

        if (!str_eq(g->tensors[a].name, g->tensors[b].name))
            continue;
        for (; last >= end; end += (size_t)p->n_tensors)
            p++;
        in = gguf_part_in(p, 0, e);
        err_set(e, ERR_FORMAT, "duplicate-tensor: %.*s", STR_ARG(name));
        return gguf_bad(&in, gguf_offset(&in, name.p) - 8);
    }
    return ERR_OK;
}

enum err_code gguf_read_lists(struct gguf *g, struct err *e)
{
    size_t n = 0;

    for (size_t i = 0; i < g->n_parts; i++)
        n += (size_t)g->parts[i].n_tensors;
    if (n > UINT32_MAX)
        return err_set(e, ERR_FORMAT, "%s: offset 8: tensor-count: %zu tensors", g->path, n);
    g->tensors = calloc(n + 1, sizeof *g->tensors);
    g->order = calloc(n + 1, sizeof *g->order);
    if (g->tensors == NULL || g->order == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %zu tensors", g->path, n);
    for (size_t i = 0; i < g->n_parts; i++)
        if (read_tensors(g, &g->parts[i], e))
            return e->code;
    assert(g->n_tensors == n);
    gguf_sort(g->order, n, by_name, g->tensors);
    return check_names(g, e);
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    assert(i < g->n_tensors);
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name)
{
    struct str want = str_of(name);
    size_t lo = 0, hi = g->n_tensors;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = gguf_str_cmp(g->tensors[g->order[mid]].name, want);

        if (c == 0)
            return &g->tensors[g->order[mid]];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
