/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - opening GGUF files: every count, length, type and offset is checked here, once.
 *
 * One pass over the metadata (kv.c) and one over the tensor lists (tensors.c), then sorts of 4-byte
 * indices, which find duplicates and serve the look-ups later. Memory: one struct per entry that is
 * there, refused when all of them would take more than the file and GGUF_SLACK_BYTES.
 */
#include "gguf/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Magic, version and counts. */
static enum err_code read_head(struct gguf_part *p, struct err *e)
{
    struct gguf_in in = gguf_part_in(p, 0, e);
    uint32_t magic, version;
    uint64_t index_max = (uint64_t)in.size + GGUF_SLACK_BYTES;
    size_t room;

    if (gguf_take_u32(&in, &magic, "the magic number"))
        return e->code;
    if (magic != GGUF_MAGIC) {
        if (magic == 0x47475546U)
            err_set(e, ERR_UNSUPPORTED, "byte-order: a big-endian GGUF file");
        else
            err_set(e, ERR_FORMAT, "magic: not a GGUF file");
        return gguf_bad(&in, 0);
    }
    if (gguf_take_u32(&in, &version, "the version"))
        return e->code;
    if (version != 2 && version != 3) {
        if (version != 0 && (version & 0xffff) == 0)
            err_set(e, ERR_UNSUPPORTED, "byte-order: a big-endian GGUF file");
        else
            err_set(e, version == 0 ? ERR_FORMAT : ERR_UNSUPPORTED,
                    "version: GGUF version %" PRIu32 ", supported are 2 and 3", version);
        return gguf_bad(&in, 4);
    }
    if (gguf_take_u64(&in, &p->n_tensors, "the tensor count") || gguf_take_u64(&in, &p->n_kv, "the key count"))
        return e->code;
    if (p->n_tensors > gguf_left(&in) / GGUF_TENSOR_MIN_BYTES || p->n_tensors > UINT32_MAX) {
        err_set(e, ERR_FORMAT, "tensor-count: %" PRIu64 " tensors, the file has %zu bytes left", p->n_tensors,
                gguf_left(&in));
        return gguf_bad(&in, 8);
    }
    room = gguf_left(&in) - (size_t)p->n_tensors * GGUF_TENSOR_MIN_BYTES;
    if (p->n_kv > room / GGUF_KV_MIN_BYTES || p->n_kv > UINT32_MAX) {
        err_set(e, ERR_FORMAT, "key-count: %" PRIu64 " keys, the file has %zu bytes left for them", p->n_kv, room);
        return gguf_bad(&in, 16);
    }
    if (p->n_kv * (sizeof(struct gguf_kv) + sizeof(uint32_t)) +
            p->n_tensors * (sizeof(struct gguf_tensor) + sizeof(uint32_t)) >
        index_max) {
        err_set(e, ERR_FORMAT, "index-size: %" PRIu64 " tensors and %" PRIu64 " keys in only %zu bytes", p->n_tensors,
                p->n_kv, in.size);
        return gguf_bad(&in, 8);
    }
    return ERR_OK;
}

static char *copy_text(const char *z, size_t n)
{
    char *p = malloc(n + 1);

    if (p != NULL) {
        memcpy(p, z, n);
        p[n] = '\0';
    }
    return p;
}

/* One more part at the end of g->parts, empty but for its path. */
static enum err_code add_part(struct gguf *g, const char *path, struct err *e)
{
    if ((g->n_parts & (g->n_parts - 1)) == 0) { /* full at each power of two */
        size_t room = g->n_parts == 0 ? 1 : 2 * g->n_parts;
        struct gguf_part *p = realloc(g->parts, room * sizeof *p);

        if (p == NULL)
            return err_set(e, ERR_NOMEM, "%s: out of memory", path);
        g->parts = p;
    }
    g->parts[g->n_parts] = (struct gguf_part){ 0 };
    g->parts[g->n_parts].path = copy_text(path, strlen(path));
    if (g->parts[g->n_parts].path == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    g->n_parts++;
    return ERR_OK;
}

static enum err_code map_part(struct gguf *g, struct err *e)
{
    struct gguf_part *p = &g->parts[g->n_parts - 1];

    if (io_map_open(&p->map, p->path, e))
        return e->code;
    p->mapped = true;
    g->file_bytes += p->map.size;
    return read_head(p, e);
}

/* The next part of a set: its metadata is read for the checks; kept when it is the first part. */
static enum err_code open_next(struct gguf *g, const char *path, uint64_t no, struct err *e)
{
    struct gguf_kvs kvs = { 0 };
    struct gguf_split want = g->parts[0].split;
    struct gguf_part *p;
    struct gguf_in in;

    if (add_part(g, path, e) || map_part(g, e))
        return e->code;
    p = &g->parts[g->n_parts - 1];
    if (gguf_read_kvs(p, &kvs, e)) {
        gguf_kvs_free(&kvs);
        return e->code;
    }
    if (no == 0) {
        gguf_kvs_free(&g->kvs);
        g->kvs = kvs;
    } else {
        gguf_kvs_free(&kvs);
    }
    if (p->split.no == no && p->split.count == want.count && p->split.tensors == want.tensors)
        return ERR_OK;
    in = gguf_part_in(p, 0, e);
    err_set(e, ERR_FORMAT,
            "split: part %" PRIu64 " of %" PRIu64 " with %" PRIu64 " tensors, needed is part %" PRIu64 " of %" PRIu64
            " with %" PRIu64,
            p->split.no, p->split.count, p->split.tensors, no, want.count, want.tensors);
    return gguf_bad(&in, p->split.at);
}

/* g->parts[0] is one part of a set: opens the others, which lie beside it, in their order. */
static enum err_code open_set(struct gguf *g, struct err *e)
{
    struct gguf_split split = g->parts[0].split;
    struct gguf_in in = gguf_part_in(&g->parts[0], 0, e);
    struct gguf_part first;
    char tail[32];
    uint64_t total = 0;
    size_t tail_n, stem_n = strlen(g->path);
    char *path = copy_text(g->path, stem_n);

    if (path == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory", g->path);
    tail_n = (size_t)snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", (unsigned)split.no + 1, (unsigned)split.count);
    if (stem_n < tail_n || strcmp(path + stem_n - tail_n, tail) != 0) {
        free(path);
        err_set(e, ERR_FORMAT, "split: the name of this part must end in %s", tail);
        return gguf_bad(&in, split.at);
    }
    stem_n -= tail_n;
    for (uint64_t no = 0; no < split.count; no++) {
        if (no == split.no)
            continue;
        snprintf(path + stem_n, tail_n + 1, "-%05u-of-%05u.gguf", (unsigned)no + 1, (unsigned)split.count);
        if (open_next(g, path, no, e)) {
            free(path);
            return e->code;
        }
    }
    free(path);
    first = g->parts[0];
    memmove(g->parts, g->parts + 1, (size_t)split.no * sizeof first);
    g->parts[split.no] = first;
    for (size_t i = 0; i < g->n_parts; i++)
        total += g->parts[i].n_tensors;
    if (total != split.tensors) {
        err_set(e, ERR_FORMAT, "split: %" PRIu64 " tensors in all parts, split.tensors.count is %" PRIu64, total,
                split.tensors);
        return gguf_bad(&in, split.at);
    }
    return ERR_OK;
}

static enum err_code begin_file(struct gguf **out, const char *path, struct err *e)
{
    struct gguf *g = calloc(1, sizeof *g);

    if (g == NULL || (g->path = copy_text(path, strlen(path))) == NULL || add_part(g, path, e)) {
        gguf_close(g);
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    }
    *out = g;
    return ERR_OK;
}

enum err_code gguf_open(struct gguf **out, const char *path, struct err *e)
{
    struct err own;
    struct gguf *g = NULL;

    if (e == NULL)
        e = &own;
    if (begin_file(&g, path, e))
        return e->code;
    if (map_part(g, e) || gguf_read_kvs(&g->parts[0], &g->kvs, e) || (g->parts[0].split.count != 0 && open_set(g, e)) ||
        gguf_read_lists(g, e)) {
        gguf_close(g);
        return e->code;
    }
    *out = g;
    return ERR_OK;
}

enum err_code gguf_parse(struct gguf **out, const char *name, const void *data, size_t n, struct err *e)
{
    struct err own;
    struct gguf *g = NULL;

    if (e == NULL)
        e = &own;
    if (begin_file(&g, name, e))
        return e->code;
    g->parts[0].map = (struct io_map){ .data = data, .size = n };
    g->file_bytes = n;
    if (read_head(&g->parts[0], e) || gguf_read_kvs(&g->parts[0], &g->kvs, e) || gguf_read_lists(g, e)) {
        gguf_close(g);
        return e->code;
    }
    *out = g;
    return ERR_OK;
}

enum err_code gguf_with(struct gguf **out, const struct gguf *g, const struct gguf_tensor *tensors, struct err *e)
{
    struct gguf *v = malloc(sizeof *v);

    if (v != NULL) {
        *v = *g;
        v->lent = true;
        v->tensors = malloc((g->n_tensors + 1) * sizeof *v->tensors);
    }
    if (v == NULL || v->tensors == NULL) {
        free(v);
        return err_set(e, ERR_NOMEM, "%s: out of memory", g->path);
    }
    memcpy(v->tensors, tensors, g->n_tensors * sizeof *v->tensors);
    *out = v;
    return ERR_OK;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    if (g->lent) {
        free(g->tensors);
        free(g);
        return;
    }
    for (size_t i = 0; i < g->n_parts; i++) {
        if (g->parts[i].mapped)
            io_map_close(&g->parts[i].map);
        free(g->parts[i].path);
    }
    free(g->parts);
    gguf_kvs_free(&g->kvs);
    free(g->tensors);
    free(g->order);
    free(g->path);
    free(g);
}

static const struct gguf_part *part_of(const struct gguf *g, const unsigned char *at)
{
    for (size_t i = 0; i < g->n_parts; i++) {
        const struct gguf_part *p = &g->parts[i];

        if (p->mapped && at >= p->map.data && at < p->map.data + p->map.size)
            return p;
    }
    return NULL;
}

void gguf_drop(const struct gguf *g, const struct gguf_tensor *t)
{
    const struct gguf_part *p = part_of(g, t->data);

    if (p != NULL)
        io_map_drop(&p->map, t->data, t->size_bytes);
}

const struct io_map *gguf_map_of(const struct gguf *g, const void *data, const char **path)
{
    const struct gguf_part *p = part_of(g, data);

    *path = p != NULL ? p->path : NULL;
    return p != NULL ? &p->map : NULL;
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

size_t gguf_file_bytes(const struct gguf *g)
{
    return g->file_bytes;
}

const char *gguf_part_path(const struct gguf *g, size_t i)
{
    return i < g->n_parts ? g->parts[i].path : NULL;
}
