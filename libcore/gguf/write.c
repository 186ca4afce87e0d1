/* SPDX-License-Identifier: Apache-2.0 */
/* write.c - streaming GGUF files out: metadata, tensor list, then the bytes of each tensor.
 *
 * What this writes, gguf_open() accepts: names, shapes and sizes obey the same rules, and are
 * ERR_ARG here. Only names and sizes stay in memory; the two counts at the head are patched in
 * last.
 */
#include "base/arena.h"
#include "base/memory.h"
#include "gguf/parse.h"
#include "quant/quant.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum phase { IN_KVS, IN_TENSORS, IN_DATA };

struct item {
    struct str name;
    uint64_t size_bytes; /* of a tensor, or of a value written by gguf_write_kv */
    uint64_t at;         /* of such a value: its offset */
};

struct items {
    struct item *v;
    size_t n, room;
};

struct gguf_writer {
    struct io_out *o;
    char *path;
    struct arena names;
    struct items kvs, tensors;
    enum phase phase;
    bool failed;      /* the file has a hole: commit refuses it */
    uint32_t align;   /* bytes */
    uint64_t offset;  /* of the next tensor in the data section */
    size_t at;        /* tensor that receives data */
    uint64_t at_done; /* bytes it has */
};

static enum err_code put_bytes(struct gguf_writer *w, const void *p, size_t n, struct err *e)
{
    enum err_code code = io_out_write(w->o, p, n, e);

    if (code)
        w->failed = true;
    return code;
}

static enum err_code skip_bytes(struct gguf_writer *w, size_t n, struct err *e)
{
    enum err_code code = io_out_skip(w->o, n, e);

    if (code)
        w->failed = true;
    return code;
}

static enum err_code put_u32(struct gguf_writer *w, uint32_t v, struct err *e)
{
    unsigned char b[4];

    for (int i = 0; i < 4; i++)
        b[i] = (unsigned char)(v >> (8 * i));
    return put_bytes(w, b, sizeof b, e);
}

static void store_u64(unsigned char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static enum err_code put_u64(struct gguf_writer *w, uint64_t v, struct err *e)
{
    unsigned char b[8];

    store_u64(b, v);
    return put_bytes(w, b, sizeof b, e);
}

static enum err_code put_str(struct gguf_writer *w, struct str s, struct err *e)
{
    enum err_code code = put_u64(w, s.n, e);

    return code ? code : put_bytes(w, s.p, s.n, e);
}

/* Zeros up to the next multiple of the alignment. */
static enum err_code put_pad(struct gguf_writer *w, struct err *e)
{
    static const char zeros[64];
    size_t n = (size_t)((w->align - io_out_pos(w->o) % w->align) % w->align);

    while (n > 0) {
        size_t part = n < sizeof zeros ? n : sizeof zeros;
        enum err_code code = put_bytes(w, zeros, part, e);

        if (code)
            return code;
        n -= part;
    }
    return ERR_OK;
}

static enum err_code check_name(struct gguf_writer *w, struct str s, size_t max, struct err *e)
{
    if (s.n == 0 || s.n > max)
        return err_set(e, ERR_ARG, "%s: name-length: a name of %zu bytes, allowed are 1 to %zu", w->path, s.n, max);
    if (!gguf_text_ok(s))
        return err_set(e, ERR_ARG, "%s: name-text: a name is not UTF-8 or has a control character", w->path);
    return ERR_OK;
}

static enum err_code add_item(struct gguf_writer *w, struct items *l, struct str name, uint64_t size_bytes,
                              struct err *e)
{
    char *copy;

    if (l->n == UINT32_MAX)
        return err_set(e, ERR_LIMIT, "%s: too many entries", w->path);
    copy = arena_strdup(&w->names, name);
    if (copy == NULL || memory_room(&l->v, &l->room, l->n + 1, sizeof *l->v, NULL))
        return err_set(e, ERR_NOMEM, "%s: out of memory", w->path);
    l->v[l->n++] = (struct item){ { copy, name.n }, size_bytes, 0 };
    return ERR_OK;
}

static int by_name(const void *v, uint32_t a, uint32_t b)
{
    const struct item *item = v;

    return gguf_str_cmp(item[a].name, item[b].name);
}

static enum err_code check_unique(struct gguf_writer *w, const struct items *l, const char *rule, struct err *e)
{
    uint32_t *order = calloc(l->n + 1, sizeof *order);
    enum err_code code = ERR_OK;

    if (order == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory", w->path);
    gguf_sort(order, l->n, by_name, l->v);
    for (size_t i = 1; i < l->n && code == ERR_OK; i++)
        if (str_eq(l->v[order[i - 1]].name, l->v[order[i]].name))
            code = err_set(e, ERR_ARG, "%s: %s: %.*s", w->path, rule, STR_ARG(gguf_shown(l->v[order[i]].name)));
    free(order);
    return code;
}

static enum err_code open_with(struct gguf_writer **out, const char *path,
                               enum err_code (*open)(struct io_out **, const char *, struct err *), struct err *e)
{
    struct gguf_writer *w = calloc(1, sizeof *w);
    size_t n = strlen(path) + 1;
    enum err_code code;

    if (w == NULL || (w->path = malloc(n)) == NULL) {
        free(w);
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    }
    memcpy(w->path, path, n);
    w->align = GGUF_ALIGN_DEFAULT;
    code = open(&w->o, path, e);
    if (code == ERR_OK)
        code = put_u32(w, GGUF_MAGIC, e);
    if (code == ERR_OK)
        code = put_u32(w, 3, e);
    if (code == ERR_OK)
        code = put_u64(w, 0, e); /* the counts: see gguf_write_commit */
    if (code == ERR_OK)
        code = put_u64(w, 0, e);
    if (code) {
        gguf_write_abort(w);
        return code;
    }
    *out = w;
    return ERR_OK;
}

enum err_code gguf_write_open(struct gguf_writer **out, const char *path, struct err *e)
{
    return open_with(out, path, io_out_open, e);
}

enum err_code gguf_write_open_part(struct gguf_writer **out, const char *path, struct err *e)
{
    return open_with(out, path, io_out_open_part, e);
}

bool gguf_write_old(struct gguf_writer *w, uint64_t skip, void *data, size_t n)
{
    return io_out_old(w->o, io_out_pos(w->o) + skip, data, n);
}

static enum err_code check_align(struct gguf_writer *w, const struct gguf_kv *kv, struct err *e)
{
    uint32_t align;

    if (!str_is(kv->key, "general.alignment"))
        return ERR_OK;
    align = kv->kind == GGUF_U32 ? gguf_load_u32(kv->data) : 0;
    if (align < GGUF_ALIGN_MIN || align > GGUF_ALIGN_MAX || (align & (align - 1)) != 0)
        return err_set(e, ERR_ARG, "%s: alignment: not a u32, a power of two from %d to %u", w->path, GGUF_ALIGN_MIN,
                       GGUF_ALIGN_MAX);
    w->align = align;
    return ERR_OK;
}

/* Key and kinds of kv, whose value the caller puts next. */
static enum err_code put_key(struct gguf_writer *w, const struct gguf_kv *kv, struct err *e)
{
    enum err_code code = check_name(w, kv->key, GGUF_KEY_MAX, e);

    assert(w->phase == IN_KVS);
    if (code == ERR_OK)
        code = check_align(w, kv, e);
    if (code == ERR_OK)
        code = add_item(w, &w->kvs, kv->key, 0, e);
    if (code == ERR_OK)
        code = put_str(w, kv->key, e);
    if (code == ERR_OK)
        code = put_u32(w, (uint32_t)kv->kind, e);
    if (code == ERR_OK && kv->kind == GGUF_ARR) {
        code = put_u32(w, (uint32_t)kv->elem_kind, e);
        if (code == ERR_OK)
            code = put_u64(w, kv->n, e);
    }
    if (code)
        w->failed = true;
    return code;
}

enum err_code gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv, struct err *e)
{
    enum err_code code = put_key(w, kv, e);

    if (code)
        return code;
    w->kvs.v[w->kvs.n - 1].at = io_out_pos(w->o);
    w->kvs.v[w->kvs.n - 1].size_bytes = kv->size_bytes;
    return put_bytes(w, kv->data, kv->size_bytes, e);
}

enum err_code gguf_write_again(struct gguf_writer *w, const char *key, const void *v, uint64_t n_bytes, struct err *e)
{
    enum err_code code = ERR_OK;
    size_t i = 0;

    while (i < w->kvs.n && !str_is(w->kvs.v[i].name, key))
        i++;
    if (i == w->kvs.n || w->kvs.v[i].at == 0 || w->kvs.v[i].size_bytes != n_bytes)
        code = err_set(e, ERR_ARG, "%s: %s: no value of %llu bytes was written", w->path, key,
                       (unsigned long long)n_bytes);
    if (code == ERR_OK)
        code = io_out_patch(w->o, w->kvs.v[i].at, v, n_bytes, e);
    if (code)
        w->failed = true;
    return code;
}

static enum err_code write_scalar(struct gguf_writer *w, const char *key, enum gguf_kind kind, uint32_t v,
                                  struct err *e)
{
    unsigned char b[8];
    struct gguf_kv kv = { str_of(key), kind, kind, 1, b, gguf_kind_bytes(kind) };

    store_u64(b, v);
    return gguf_write_kv(w, &kv, e);
}

enum err_code gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v, struct err *e)
{
    return write_scalar(w, key, GGUF_U32, v, e);
}

enum err_code gguf_write_f32(struct gguf_writer *w, const char *key, float v, struct err *e)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    return write_scalar(w, key, GGUF_F32, bits, e);
}

enum err_code gguf_write_bool(struct gguf_writer *w, const char *key, bool v, struct err *e)
{
    return write_scalar(w, key, GGUF_BOOL, v, e);
}

enum err_code gguf_write_str(struct gguf_writer *w, const char *key, struct str v, struct err *e)
{
    struct gguf_kv kv = { .key = str_of(key), .kind = GGUF_STR, .elem_kind = GGUF_STR, .n = 1 };
    enum err_code code = put_key(w, &kv, e);

    return code ? code : put_str(w, v, e);
}

enum err_code gguf_write_arr(struct gguf_writer *w, const char *key, enum gguf_kind elem_kind, const void *v,
                             uint64_t n, struct err *e)
{
    unsigned width = gguf_kind_bytes(elem_kind);
    struct gguf_kv kv = { str_of(key), GGUF_ARR, elem_kind, n, v, 0 };

    assert(width != 0);
    if (n > SIZE_MAX / width)
        return err_set(e, ERR_ARG, "%s: array-count: %" PRIu64 " elements", w->path, n);
    for (size_t i = 0; elem_kind == GGUF_BOOL && i < n; i++)
        assert(kv.data[i] <= 1);
    kv.size_bytes = (size_t)n * width;
    return gguf_write_kv(w, &kv, e);
}

enum err_code gguf_write_strs(struct gguf_writer *w, const char *key, const struct str *v, uint64_t n, struct err *e)
{
    struct gguf_kv kv = { .key = str_of(key), .kind = GGUF_ARR, .elem_kind = GGUF_STR, .n = n };
    enum err_code code = put_key(w, &kv, e);

    for (size_t i = 0; code == ERR_OK && i < n; i++)
        code = put_str(w, v[i], e);
    return code;
}

/* Bytes of a tensor, or ERR_ARG for a shape that its type cannot have. */
static enum err_code shape_bytes(struct gguf_writer *w, struct gguf_tensor *t, struct err *e)
{
    int64_t row, product = 1;
    bool ok = t->n_dims >= 1 && t->n_dims <= 4;

    for (int i = 0; ok && i < t->n_dims; i++) {
        ok = t->ne[i] > 0 && t->ne[i] <= INT64_MAX / product;
        product *= ok ? t->ne[i] : 1;
    }
    if (!ok)
        return err_set(e, ERR_ARG, "%s: dimensions: tensor %.*s", w->path, STR_ARG(t->name));
    row = quant_row_bytes(t->type, t->ne[0]);
    if (row <= 0)
        return err_set(e, ERR_ARG, "%s: block: tensor %.*s: rows of %" PRId64 " elements in %s", w->path,
                       STR_ARG(t->name), t->ne[0], quant_types[t->type]->name);
    if (product / t->ne[0] > INT64_MAX / row)
        return err_set(e, ERR_ARG, "%s: overflow: tensor %.*s", w->path, STR_ARG(t->name));
    t->size_bytes = (size_t)row * (size_t)(product / t->ne[0]);
    return ERR_OK;
}

static enum err_code put_tensor(struct gguf_writer *w, const struct gguf_tensor *t, struct err *e)
{
    enum err_code code = put_str(w, t->name, e);

    if (code == ERR_OK)
        code = put_u32(w, (uint32_t)t->n_dims, e);
    for (int i = 0; code == ERR_OK && i < t->n_dims; i++)
        code = put_u64(w, (uint64_t)t->ne[i], e);
    if (code == ERR_OK)
        code = put_u32(w, quant_types[t->type]->id, e);
    if (code == ERR_OK)
        code = put_u64(w, w->offset, e);
    return code;
}

enum err_code gguf_write_tensor(struct gguf_writer *w, struct str name, int type, int n_dims, const int64_t *ne,
                                struct err *e)
{
    struct gguf_tensor t = { .name = name, .type = type, .n_dims = n_dims };
    enum err_code code = check_name(w, name, GGUF_NAME_MAX, e);

    assert(w->phase != IN_DATA && type >= 0 && type < QUANT_N);
    w->phase = IN_TENSORS;
    for (int i = 0; i < n_dims && i < 4; i++)
        t.ne[i] = ne[i];
    if (code == ERR_OK)
        code = shape_bytes(w, &t, e);
    if (code == ERR_OK && t.size_bytes > INT64_MAX - GGUF_ALIGN_MAX - w->offset)
        code = err_set(e, ERR_ARG, "%s: overflow: tensor %.*s", w->path, STR_ARG(name));
    if (code == ERR_OK)
        code = add_item(w, &w->tensors, name, t.size_bytes, e);
    if (code == ERR_OK)
        code = put_tensor(w, &t, e);
    if (code) {
        w->failed = true;
        return code;
    }
    w->offset += (t.size_bytes + w->align - 1) / w->align * w->align;
    return ERR_OK;
}

static enum err_code begin_data(struct gguf_writer *w, struct err *e)
{
    enum err_code code = check_unique(w, &w->kvs, "duplicate-key", e);

    w->phase = IN_DATA;
    if (code == ERR_OK)
        code = check_unique(w, &w->tensors, "duplicate-tensor", e);
    if (code == ERR_OK && w->tensors.n > 0)
        code = put_pad(w, e);
    if (code)
        w->failed = true;
    return code;
}

enum err_code gguf_write_data(struct gguf_writer *w, const void *data, size_t n, struct err *e)
{
    const unsigned char *p = data;
    enum err_code code = w->phase == IN_DATA ? ERR_OK : begin_data(w, e);

    while (code == ERR_OK && n > 0) {
        uint64_t size_bytes;
        size_t part;

        if (w->at == w->tensors.n) {
            w->failed = true;
            return err_set(e, ERR_ARG, "%s: data: %zu bytes after the last tensor", w->path, n);
        }
        size_bytes = w->tensors.v[w->at].size_bytes;
        part = n < size_bytes - w->at_done ? n : (size_t)(size_bytes - w->at_done);
        code = p == NULL ? skip_bytes(w, part, e) : put_bytes(w, p, part, e);
        p = p == NULL ? NULL : p + part;
        n -= part;
        w->at_done += part;
        if (code == ERR_OK && w->at_done == size_bytes) {
            w->at++;
            w->at_done = 0;
            code = put_pad(w, e); /* after the last one too: other readers count on it */
        }
    }
    return code;
}

enum err_code gguf_write_keep(struct gguf_writer *w, struct err *e)
{
    enum err_code code = w->phase == IN_DATA ? ERR_OK : begin_data(w, e);

    assert(w->at < w->tensors.n && w->at_done == 0);
    if (code == ERR_OK)
        code = io_out_keep(w->o, w->tensors.v[w->at].size_bytes, e);
    w->at++;
    if (code == ERR_OK)
        code = put_pad(w, e);
    if (code)
        w->failed = true;
    return code;
}

/* Everything that was declared is there: the counts go into the head. */
static enum err_code finish_file(struct gguf_writer *w, struct err *e)
{
    unsigned char counts[16];
    enum err_code code = w->phase == IN_DATA ? ERR_OK : begin_data(w, e);

    if (code)
        return code;
    if (w->failed)
        return err_set(e, ERR_IO, "%s: an earlier step of writing failed", w->path);
    if (w->at < w->tensors.n) {
        const struct item *t = &w->tensors.v[w->at];

        return err_set(e, ERR_ARG, "%s: data: tensor %.*s lacks %" PRIu64 " bytes", w->path, STR_ARG(t->name),
                       t->size_bytes - w->at_done);
    }
    store_u64(counts, w->tensors.n);
    store_u64(counts + 8, w->kvs.n);
    return io_out_patch(w->o, 8, counts, sizeof counts, e);
}

enum err_code gguf_write_commit(struct gguf_writer *w, struct err *e)
{
    enum err_code code = finish_file(w, e);

    if (code == ERR_OK) {
        code = io_out_commit(w->o, e);
        w->o = NULL; /* ended either way */
    }
    gguf_write_abort(w);
    return code;
}

void gguf_write_abort(struct gguf_writer *w)
{
    if (w == NULL)
        return;
    io_out_abort(w->o);
    arena_free(&w->names);
    free(w->kvs.v);
    free(w->tensors.v);
    free(w->path);
    free(w);
}
