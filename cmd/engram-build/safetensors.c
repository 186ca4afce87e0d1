/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors.c - reads a .safetensors file with one matrix.                  room: cmd */
#include "engram-build/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "quant/quant.h"

enum { HEAD_BYTES_MAX = 1 << 26, TENSORS_MAX = 1 << 16, DIMS_MAX = 8 };

struct range {
    uint64_t from, to;
};

static int type_of(struct str dtype)
{
    return str_is(dtype, "F32")    ? QUANT_f32
           : str_is(dtype, "F16")  ? QUANT_f16
           : str_is(dtype, "BF16") ? QUANT_bf16
                                   : -1;
}

/* A whole number of at least 0, of an array. */
static bool whole(const json_t *a, size_t i, uint64_t *out)
{
    const json_t *v = json_array_get(a, i);

    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

/* One tensor: its range, and *m if it is a matrix. */
static enum err_code read_tensor(const json_t *o, const char *name, struct str data, struct range *at,
                                 struct cli_matrix *m, bool *matrix, struct err *e)
{
    const json_t *shape = json_object_get(o, "shape"), *offsets = json_object_get(o, "data_offsets");
    uint64_t elements = 1, ne[DIMS_MAX] = { 0 };
    struct str dtype;
    const size_t n_dims = json_array_size(shape);

    if (!json_get_str(o, "dtype", &dtype) || !json_is_array(shape) || n_dims > DIMS_MAX ||
        json_array_size(offsets) != 2 || !whole(offsets, 0, &at->from) || !whole(offsets, 1, &at->to))
        return err_set(e, ERR_FORMAT, "tensor %.100s: has no dtype, shape and data_offsets", name);
    if (at->from > at->to || at->to > data.n)
        return err_set(e, ERR_FORMAT, "tensor %.100s: lies outside of the file", name);
    for (size_t i = 0; i < n_dims; i++) {
        if (!whole(shape, i, &ne[i]) || (ne[i] > 0 && elements > data.n / ne[i]))
            return err_set(e, ERR_FORMAT, "tensor %.100s: is larger than the file", name);
        elements *= ne[i];
    }
    *matrix = n_dims == 2;
    if (!*matrix)
        return ERR_OK;
    const int type = type_of(dtype);

    if (type < 0)
        return err_set(e, ERR_UNSUPPORTED, "tensor %.100s: of %.*s; F32, F16 and BF16 can be read", name,
                       STR_ARG(dtype));
    if (elements == 0 || ne[0] > INT32_MAX || ne[1] > INT32_MAX ||
        at->to - at->from != elements * (uint64_t)quant_types[type]->block_bytes)
        return err_set(e, ERR_FORMAT, "tensor %.100s: its bytes are not those of its shape", name);
    *m = (struct cli_matrix){ type, (int64_t)ne[0], (int64_t)ne[1], (const unsigned char *)data.p + at->from };
    return ERR_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;

    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

/* The bytes of the tensors fill those of the file, and no two share one. */
static enum err_code check_ranges(struct range *at, size_t n, uint64_t bytes, struct err *e)
{
    uint64_t end = 0;

    qsort(at, n, sizeof *at, by_place);
    for (size_t i = 0; i < n; i++) {
        if (at[i].from != end)
            return err_set(e, ERR_FORMAT, at[i].from < end ? "tensors overlap" : "has bytes that belong to no tensor");
        end = at[i].to;
    }
    return end == bytes ? ERR_OK : err_set(e, ERR_FORMAT, "has bytes that belong to no tensor");
}

static enum err_code read_tensors(const json_t *head, struct str data, struct cli_matrix *m, struct err *e)
{
    struct range *at = malloc((json_object_size(head) + 1) * sizeof *at);
    size_t n = 0, n_matrices = 0;
    const char *name;
    json_t *o;
    enum err_code code = at != NULL ? ERR_OK : err_nomem(e);

    json_object_foreach ((json_t *)(uintptr_t)head, name, o) {
        bool matrix = false;

        if (code != ERR_OK || strcmp(name, "__metadata__") == 0)
            continue;
        code = read_tensor(o, name, data, &at[n], m, &matrix, e);
        n++;
        n_matrices += matrix;
    }
    if (code == ERR_OK)
        code = check_ranges(at, n, data.n, e);
    free(at);
    if (code == ERR_OK && n_matrices != 1)
        code = err_set(e, ERR_UNSUPPORTED, "has %zu matrices, not one: it is no table of embeddings", n_matrices);
    return code;
}

static enum err_code read_file(const struct io_map *map, struct cli_matrix *m, struct err *e)
{
    uint64_t n = 0;
    json_t *head;
    enum err_code code;

    if (map->size < 8)
        return err_set(e, ERR_FORMAT, "not a .safetensors file: it is too short");
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)map->data[i] << 8 * i;
    if (n > map->size - 8 || n > HEAD_BYTES_MAX)
        return err_set(e, ERR_FORMAT, "not a .safetensors file: a header of %llu bytes", (unsigned long long)n);
    if (json_parse(&head, (struct str){ (const char *)map->data + 8, (size_t)n }, "the header", e))
        return e->code;
    code = !json_is_object(head) || json_object_size(head) > TENSORS_MAX
               ? err_set(e, ERR_FORMAT, "not a .safetensors file: its header is not an object of tensors")
               : read_tensors(head, (struct str){ (const char *)map->data + 8 + n, map->size - 8 - (size_t)n }, m, e);
    json_decref(head);
    return code;
}

enum err_code cli_safetensors_open(struct cli_safetensors *s, struct cli_matrix *m, const char *path, struct err *e)
{
    if (io_map_open(&s->map, path, e))
        return e->code;
    if (read_file(&s->map, m, e)) {
        if (e->code == ERR_LIMIT)
            e->code = ERR_FORMAT;
        return err_wrap(e, "%s", path);
    }
    return ERR_OK;
}

void cli_safetensors_close(struct cli_safetensors *s)
{
    io_map_close(&s->map);
}
