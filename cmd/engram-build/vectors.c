/* SPDX-License-Identifier: Apache-2.0 */
/* vectors.c - vectors of a file: JSON arrays, or NumPy's .npy.                room: cmd */
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "engram-build/embed.h"

struct reading {
    struct cli_embedder *m;
    cli_vector_fn *fn;
    void *ctx;
    const char *path;
    int64_t n;
};

static enum err_code take_vector(struct reading *r, enum err_code code, struct err *e)
{
    if (code == ERR_IO)
        e->code = ERR_FORMAT; /* the file's fault */
    if (code != ERR_OK)
        return err_wrap(e, "%s: vector %lld", r->path, (long long)r->n + 1);
    r->n++;
    return cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : r->fn(r->ctx, e);
}

static enum err_code take_line(void *ctx, struct str line, struct err *e)
{
    struct reading *r = ctx;

    while (line.n > 0 && strchr("\r\n", line.p[line.n - 1]) != NULL)
        line.n--;
    return take_vector(r, cli_embed_line(r->m, 0, line, e), e);
}

/* The head of a .npy (NumPy's NEP 1): a Python dictionary. Its rows are at *data. */
static enum err_code read_head(struct str file, size_t *data, size_t *rows, size_t *dims, struct err *e)
{
    const unsigned char *p = (const unsigned char *)file.p;
    char head[1024];
    size_t from = p[6] == 1 ? 10 : 12, n = 0;
    const char *shape;
    unsigned long long a = 0, b = 0;
    int end = 0;

    if (file.n > from)
        n = p[6] == 1 ? (size_t)(p[8] | p[9] << 8)
                      : p[8] | (size_t)p[9] << 8 | (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (file.n <= from || n >= sizeof head || n > file.n - from)
        return err_set(e, ERR_FORMAT, "its head is damaged");
    memcpy(head, file.p + from, n);
    head[n] = '\0';
    if (strstr(head, "'descr': '<f4'") == NULL || strstr(head, "'fortran_order': False") == NULL)
        return err_set(e, ERR_UNSUPPORTED, "not an array of little-endian float32, row by row");
    shape = strstr(head, "'shape': (");
    if (shape == NULL || sscanf(shape + 10, "%20llu , %20llu )%n", &a, &b, &end) != 2 || end == 0)
        return err_set(e, ERR_UNSUPPORTED, "not an array of two dimensions");
    *data = from + n;
    if (b < 1 || b > RECALL_DIMS_MAX || a > RECALL_TEXTS_MAX || (file.n - *data) / 4 / b != a ||
        (file.n - *data) % (4 * (size_t)b) != 0)
        return err_set(e, ERR_FORMAT, "%llu vectors of %llu numbers do not fill it: cut?", a, b);
    *rows = (size_t)a;
    *dims = (size_t)b;
    return ERR_OK;
}

static enum err_code read_numpy(struct reading *r, const struct io_map *map, struct err *e)
{
    float *row;
    size_t at = 0, n = 0, dims = 0;
    enum err_code code = ERR_OK;

    if (read_head((struct str){ (const char *)map->data, map->size }, &at, &n, &dims, e))
        return err_wrap(e, "%s", r->path);
    row = malloc(dims * sizeof *row); /* the file's need not be aligned */
    if (row == NULL)
        return err_nomem(e);
    for (size_t i = 0; code == ERR_OK && i < n; i++) {
        memcpy(row, map->data + at + i * dims * sizeof *row, dims * sizeof *row);
        code = take_vector(r, cli_embed_numbers(r->m, 0, row, dims, e), e);
    }
    free(row);
    return code;
}

enum err_code cli_embed_file(struct cli_embedder *m, const struct build_options *o, cli_vector_fn *fn, void *ctx,
                             struct err *e)
{
    const char *const files[] = { o->vectors, NULL };
    struct reading r = { m, fn, ctx, o->vectors, 0 };
    struct io_map map;
    struct err not_regular;
    enum err_code code;

    if (io_map_open(&map, o->vectors, &not_regular)) /* a pipe, or not there */
        return cli_engram_lines(o, files, take_line, &r, e);
    code = map.size >= 8 && memcmp(map.data, "\x93NUMPY", 6) == 0 ? read_numpy(&r, &map, e)
                                                                  : cli_engram_lines(o, files, take_line, &r, e);
    io_map_close(&map);
    return code;
}
