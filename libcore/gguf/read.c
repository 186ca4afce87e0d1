/* SPDX-License-Identifier: Apache-2.0 */
/* read.c - opening GGUF files: every count, length, type and offset is checked here, once.
 *
 * One pass over the metadata and one over the tensor list, then two sorts of 4-byte indices, which
 * find duplicates and serve the look-ups later. Memory: one struct per entry that is there, refused
 * when all of them would take more than the file and GGUF_SLACK_BYTES. A check subtracts from what
 * is left instead of adding to a position, so that nothing can wrap.
 */
#include "gguf/parse.h"
#include "base/io.h"
#include "quant/quant.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct kvs {
    struct gguf_kv *v;
    uint32_t       *order; /* by key */
    size_t          n;
};

struct split {
    uint64_t no, count, tensors; /* count 0: not of a set */
    size_t   at;                 /* offset of the key split.count, for messages */
};

struct part {
    char         *path;
    struct io_map map;
    bool          mapped;     /* map is ours to close */
    uint64_t      n_kv, n_tensors;
    size_t        tensors_at; /* offset of the tensor list */
    uint32_t      align;
    struct split  split;
};

struct gguf {
    char               *path;
    struct part        *parts;
    size_t              n_parts;
    size_t              file_bytes;
    struct kvs          kvs;
    struct gguf_tensor *tensors;
    uint32_t           *order; /* of the tensors, by name */
    size_t              n_tensors;
};

/* A reading position in one part. */
struct in {
    const char          *file;
    const unsigned char *base;
    size_t               size, at; /* bytes, at <= size */
    struct err          *e;        /* not NULL */
};

/* Ends a message begun with err_set: puts file and offset in front, and returns its code. */
static enum err_code bad(const struct in *in, size_t at)
{
    return err_wrap(in->e, "%s: offset %zu", in->file, at);
}

static size_t left(const struct in *in)
{
    return in->size - in->at;
}

static size_t offset_of(const struct in *in, const void *p)
{
    return (size_t)((const unsigned char *)p - in->base);
}

/* The head of a text that a message can show, cut between characters. */
static struct str shown(struct str s)
{
    if (s.n > 80) {
        s.n = 80;
        while (s.n > 0 && ((unsigned char)s.p[s.n] & 0xc0) == 0x80)
            s.n--;
    }
    return s;
}

static enum err_code need(struct in *in, uint64_t n, const char *what)
{
    if (n <= left(in))
        return ERR_OK;
    err_set(in->e, ERR_FORMAT, "truncated: %s takes %" PRIu64 " bytes, the file has %zu left", what, n,
            left(in));
    return bad(in, in->at);
}

static enum err_code take_u32(struct in *in, uint32_t *v, const char *what)
{
    if (need(in, 4, what))
        return in->e->code;
    *v = gguf_load_u32(in->base + in->at);
    in->at += 4;
    return ERR_OK;
}

static enum err_code take_u64(struct in *in, uint64_t *v, const char *what)
{
    if (need(in, 8, what))
        return in->e->code;
    *v = gguf_load_u64(in->base + in->at);
    in->at += 8;
    return ERR_OK;
}

/* A key or a tensor's name: what a message may show and a C string can ask for. */
static enum err_code take_name(struct in *in, struct str *s, size_t max, const char *what)
{
    size_t   at = in->at;
    uint64_t n;

    if (take_u64(in, &n, what))
        return in->e->code;
    if (n > left(in)) {
        err_set(in->e, ERR_FORMAT, "string-length: %s of %" PRIu64 " bytes, the file has %zu left",
                what, n, left(in));
        return bad(in, at);
    }
    if (n == 0 || n > max) {
        err_set(in->e, ERR_FORMAT, "name-length: %s of %" PRIu64 " bytes, allowed are 1 to %zu", what,
                n, max);
        return bad(in, at);
    }
    *s = (struct str){ (const char *)in->base + in->at, (size_t)n };
    if (!gguf_text_ok(*s)) {
        err_set(in->e, ERR_FORMAT, "name-text: %s is not UTF-8 or has a control character", what);
        return bad(in, in->at);
    }
    in->at += (size_t)n;
    return ERR_OK;
}

static enum err_code skip_strs(struct in *in, const struct gguf_kv *kv)
{
    for (uint64_t i = 0; i < kv->n; i++) {
        uint64_t n;

        if (left(in) < 8) {
            err_set(in->e, ERR_FORMAT, "truncated: string %" PRIu64 " of %" PRIu64 " of key %.*s", i,
                    kv->n, STR_ARG(shown(kv->key)));
            return bad(in, in->at);
        }
        n = gguf_load_u64(in->base + in->at);
        if (n > left(in) - 8) {
            err_set(in->e, ERR_FORMAT,
                    "string-length: string %" PRIu64 " of key %.*s of %" PRIu64
                    " bytes, the file has %zu left",
                    i, STR_ARG(shown(kv->key)), n, left(in) - 8);
            return bad(in, in->at);
        }
        in->at += 8 + (size_t)n;
    }
    return ERR_OK;
}

static enum err_code check_bools(const struct in *in, const struct gguf_kv *kv)
{
    for (size_t i = 0; i < kv->n; i++)
        if (kv->data[i] > 1) {
            err_set(in->e, ERR_FORMAT, "bool: key %.*s is %u, allowed are 0 and 1",
                    STR_ARG(shown(kv->key)), (unsigned)kv->data[i]);
            return bad(in, offset_of(in, kv->data + i));
        }
    return ERR_OK;
}

static enum err_code take_kind(struct in *in, enum gguf_kind *kind, struct str key)
{
    uint32_t k;

    if (take_u32(in, &k, "a value kind"))
        return in->e->code;
    if (k > GGUF_F64) {
        err_set(in->e, ERR_FORMAT, "kind: key %.*s has value kind %" PRIu32 ", allowed are 0 to %d",
                STR_ARG(shown(key)), k, GGUF_F64);
        return bad(in, in->at - 4);
    }
    *kind = (enum gguf_kind)k;
    return ERR_OK;
}

static enum err_code take_array_head(struct in *in, struct gguf_kv *kv)
{
    unsigned width;

    if (take_kind(in, &kv->elem_kind, kv->key))
        return in->e->code;
    if (kv->elem_kind == GGUF_ARR) {
        err_set(in->e, ERR_FORMAT, "nested-array: key %.*s is an array of arrays",
                STR_ARG(shown(kv->key)));
        return bad(in, in->at - 4);
    }
    if (take_u64(in, &kv->n, "an array's count"))
        return in->e->code;
    width = kv->elem_kind == GGUF_STR ? 8 : gguf_kind_bytes(kv->elem_kind);
    if (kv->n > left(in) / width) {
        err_set(in->e, ERR_FORMAT,
                "array-count: key %.*s has %" PRIu64 " elements of at least %u bytes, the file has %zu left",
                STR_ARG(shown(kv->key)), kv->n, width, left(in));
        return bad(in, in->at - 8);
    }
    return ERR_OK;
}

static enum err_code take_kv(struct in *in, struct gguf_kv *kv)
{
    size_t start;

    if (take_name(in, &kv->key, GGUF_KEY_MAX, "a key") || take_kind(in, &kv->kind, kv->key))
        return in->e->code;
    kv->elem_kind = kv->kind;
    kv->n = 1;
    if (kv->kind == GGUF_ARR && take_array_head(in, kv))
        return in->e->code;
    start = in->at;
    kv->data = in->base + start;
    if (kv->elem_kind == GGUF_STR) {
        if (skip_strs(in, kv))
            return in->e->code;
    } else {
        uint64_t bytes = kv->n * gguf_kind_bytes(kv->elem_kind);

        if (need(in, bytes, "a value"))
            return in->e->code;
        if (kv->elem_kind == GGUF_BOOL && check_bools(in, kv))
            return in->e->code;
        in->at += (size_t)bytes;
    }
    kv->size_bytes = in->at - start;
    return ERR_OK;
}

static int str_cmp(struct str a, struct str b)
{
    int c = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);

    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

static int by_key(const void *v, uint32_t a, uint32_t b)
{
    const struct gguf_kv *kv = v;

    return str_cmp(kv[a].key, kv[b].key);
}

static int by_name(const void *v, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = v;

    return str_cmp(t[a].name, t[b].name);
}

static int by_place(const void *v, uint32_t a, uint32_t b)
{
    const struct gguf_tensor *t = v;
    const unsigned char *p = t[a].data, *q = t[b].data;

    return (p > q) - (p < q);
}

typedef int cmp_fn(const void *v, uint32_t a, uint32_t b);

/* Heapsort of n indices: in place and never quadratic, whatever the file says. */
static void sort(uint32_t *order, size_t n, cmp_fn *cmp, const void *v)
{
    size_t root = n / 2, end = n;

    while (end > 1) {
        uint32_t x;
        size_t   i, kid;

        if (root > 0) {
            x = order[--root];
        } else {
            x = order[--end];
            order[end] = order[0];
        }
        for (i = root; (kid = 2 * i + 1) < end; i = kid) {
            if (kid + 1 < end && cmp(v, order[kid], order[kid + 1]) < 0)
                kid++;
            if (cmp(v, x, order[kid]) >= 0)
                break;
            order[i] = order[kid];
        }
        order[i] = x;
    }
}

/* Indices from..from + n - 1, sorted. */
static void sort_from(uint32_t *order, size_t from, size_t n, cmp_fn *cmp, const void *v)
{
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)(from + i);
    sort(order, n, cmp, v);
}

static const struct gguf_kv *kvs_find(const struct kvs *k, struct str key)
{
    size_t lo = 0, hi = k->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int    c = str_cmp(k->v[k->order[mid]].key, key);

        if (c == 0)
            return &k->v[k->order[mid]];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

static void kvs_free(struct kvs *k)
{
    free(k->v);
    free(k->order);
    *k = (struct kvs){ 0 };
}

static struct in part_in(const struct part *p, size_t at, struct err *e)
{
    return (struct in){ p->path, p->map.data, p->map.size, at, e };
}

/* Magic, version and counts. */
static enum err_code read_head(struct part *p, struct err *e)
{
    struct in in = part_in(p, 0, e);
    uint32_t  magic, version;
    uint64_t  index_max = (uint64_t)in.size + GGUF_SLACK_BYTES;

    if (take_u32(&in, &magic, "the magic number"))
        return e->code;
    if (magic != 0x46554747U) {
        if (magic == 0x47475546U)
            err_set(e, ERR_UNSUPPORTED, "byte-order: a big-endian GGUF file");
        else
            err_set(e, ERR_FORMAT, "magic: not a GGUF file");
        return bad(&in, 0);
    }
    if (take_u32(&in, &version, "the version"))
        return e->code;
    if (version != 2 && version != 3) {
        if (version != 0 && (version & 0xffff) == 0)
            err_set(e, ERR_UNSUPPORTED, "byte-order: a big-endian GGUF file");
        else
            err_set(e, version == 0 ? ERR_FORMAT : ERR_UNSUPPORTED,
                    "version: GGUF version %" PRIu32 ", supported are 2 and 3", version);
        return bad(&in, 4);
    }
    if (take_u64(&in, &p->n_tensors, "the tensor count") || take_u64(&in, &p->n_kv, "the key count"))
        return e->code;
    if (p->n_tensors > left(&in) / GGUF_TENSOR_MIN_BYTES || p->n_tensors > UINT32_MAX) {
        err_set(e, ERR_FORMAT, "tensor-count: %" PRIu64 " tensors, the file has %zu bytes left",
                p->n_tensors, left(&in));
        return bad(&in, 8);
    }
    if (p->n_kv > left(&in) / GGUF_KV_MIN_BYTES || p->n_kv > UINT32_MAX) {
        err_set(e, ERR_FORMAT, "key-count: %" PRIu64 " keys, the file has %zu bytes left", p->n_kv,
                left(&in));
        return bad(&in, 16);
    }
    if (p->n_kv * (sizeof(struct gguf_kv) + sizeof(uint32_t)) +
            p->n_tensors * (sizeof(struct gguf_tensor) + sizeof(uint32_t)) > index_max) {
        err_set(e, ERR_FORMAT,
                "index-size: %" PRIu64 " tensors and %" PRIu64 " keys in only %zu bytes", p->n_tensors,
                p->n_kv, in.size);
        return bad(&in, 8);
    }
    return ERR_OK;
}

static enum err_code read_align(struct part *p, const struct kvs *k, struct err *e)
{
    const struct gguf_kv *kv = kvs_find(k, STR("general.alignment"));
    struct in in = part_in(p, 0, e);

    p->align = GGUF_ALIGN_DEFAULT;
    if (kv == NULL)
        return ERR_OK;
    if (kv->kind != GGUF_U32) {
        err_set(e, ERR_FORMAT, "alignment: general.alignment has value kind %d, needed is %d (u32)",
                kv->kind, GGUF_U32);
        return bad(&in, offset_of(&in, kv->key.p + kv->key.n));
    }
    p->align = gguf_load_u32(kv->data);
    if (p->align < GGUF_ALIGN_MIN || p->align > GGUF_ALIGN_MAX || (p->align & (p->align - 1)) != 0) {
        err_set(e, ERR_FORMAT, "alignment: %" PRIu32 " is not a power of two from %d to %u", p->align,
                GGUF_ALIGN_MIN, GGUF_ALIGN_MAX);
        return bad(&in, offset_of(&in, kv->data));
    }
    return ERR_OK;
}

static enum err_code split_key(const struct part *p, const struct kvs *k, struct str key, uint64_t *out,
                               struct err *e)
{
    const struct gguf_kv *kv = kvs_find(k, key);
    struct in in = part_in(p, 0, e);
    int64_t   v;

    if (kv == NULL) {
        err_set(e, ERR_FORMAT, "split: a part of %" PRIu64 " without the key %s", p->split.count, key.p);
        return bad(&in, p->split.at);
    }
    if (kv->kind == GGUF_ARR || !gguf_kv_i64(kv, 0, &v) || v < 0) {
        err_set(e, ERR_FORMAT, "split: %s is not a whole number", key.p);
        return bad(&in, offset_of(&in, kv->data));
    }
    *out = (uint64_t)v;
    return ERR_OK;
}

/* split.count 0 or 1, or no such key: a file of its own, as tools leave it after merging. */
static enum err_code read_split(struct part *p, const struct kvs *k, struct err *e)
{
    const struct gguf_kv *kv = kvs_find(k, STR("split.count"));
    struct in in = part_in(p, 0, e);

    p->split = (struct split){ 0 };
    if (kv == NULL)
        return ERR_OK;
    p->split.at = offset_of(&in, kv->key.p);
    if (split_key(p, k, STR("split.count"), &p->split.count, e))
        return e->code;
    if (p->split.count <= 1) {
        p->split.count = 0;
        return ERR_OK;
    }
    if (split_key(p, k, STR("split.no"), &p->split.no, e) ||
        split_key(p, k, STR("split.tensors.count"), &p->split.tensors, e))
        return e->code;
    if (p->split.count > 99999 || p->split.no >= p->split.count) {
        err_set(e, ERR_FORMAT, "split: split.no %" PRIu64 " of split.count %" PRIu64, p->split.no,
                p->split.count);
        return bad(&in, p->split.at);
    }
    return ERR_OK;
}

static enum err_code read_kvs(struct part *p, struct kvs *k, struct err *e)
{
    struct in in = part_in(p, GGUF_HEAD_BYTES, e);
    size_t    n = (size_t)p->n_kv;

    k->n = n;
    k->v = calloc(n + 1, sizeof *k->v); /* + 1: calloc(0) may be NULL */
    k->order = calloc(n + 1, sizeof *k->order);
    if (k->v == NULL || k->order == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %zu keys", p->path, n);
    for (size_t i = 0; i < n; i++)
        if (take_kv(&in, &k->v[i]))
            return e->code;
    sort_from(k->order, 0, n, by_key, k->v);
    for (size_t i = 1; i < n; i++) {
        struct str a = k->v[k->order[i - 1]].key, b = k->v[k->order[i]].key;

        if (str_eq(a, b)) {
            err_set(e, ERR_FORMAT, "duplicate-key: %.*s", STR_ARG(shown(a)));
            return bad(&in, offset_of(&in, a.p > b.p ? a.p : b.p) - 8);
        }
    }
    p->tensors_at = in.at;
    if (read_align(p, k, e) || read_split(p, k, e))
        return e->code;
    return ERR_OK;
}

/* Bytes of a tensor from its type and shape; at: where its dimensions lie. */
static enum err_code tensor_size(const struct in *in, struct gguf_tensor *t, size_t at)
{
    const struct quant_type *q = quant_types[t->type];
    int64_t row = quant_row_bytes(t->type, t->ne[0]), rows = t->ne[1] * t->ne[2] * t->ne[3];

    if (t->ne[0] % q->block_elems != 0) {
        err_set(in->e, ERR_FORMAT,
                "block: tensor %.*s: rows of %" PRId64 " elements, %s has blocks of %d",
                STR_ARG(t->name), t->ne[0], q->name, q->block_elems);
        return bad(in, at);
    }
    if (row <= 0 || (uint64_t)rows > SIZE_MAX / (uint64_t)row) {
        err_set(in->e, ERR_FORMAT, "overflow: tensor %.*s: its bytes do not fit in memory",
                STR_ARG(t->name));
        return bad(in, at);
    }
    t->size_bytes = (size_t)row * (size_t)rows;
    return ERR_OK;
}

static enum err_code take_dims(struct in *in, struct gguf_tensor *t)
{
    uint32_t n_dims;
    int64_t  product = 1;

    if (take_u32(in, &n_dims, "a number of dimensions"))
        return in->e->code;
    if (n_dims < 1 || n_dims > 4) {
        err_set(in->e, ERR_FORMAT, "dimensions: tensor %.*s has %" PRIu32 ", allowed are 1 to 4",
                STR_ARG(t->name), n_dims);
        return bad(in, in->at - 4);
    }
    t->n_dims = (int)n_dims;
    for (uint32_t i = 0; i < 4; i++)
        t->ne[i] = 1;
    for (uint32_t i = 0; i < n_dims; i++) {
        uint64_t ne;

        if (take_u64(in, &ne, "a dimension"))
            return in->e->code;
        if (ne == 0) {
            err_set(in->e, ERR_FORMAT, "zero-dimension: tensor %.*s: dimension %" PRIu32 " is 0",
                    STR_ARG(t->name), i);
            return bad(in, in->at - 8);
        }
        if (ne > (uint64_t)(INT64_MAX / product)) {
            err_set(in->e, ERR_FORMAT, "overflow: tensor %.*s has more than 2^63 - 1 elements",
                    STR_ARG(t->name));
            return bad(in, in->at - 8);
        }
        t->ne[i] = (int64_t)ne;
        product *= t->ne[i];
    }
    return ERR_OK;
}

/* All but data, which waits until the end of the list is known. */
static enum err_code take_tensor(struct in *in, struct gguf_tensor *t)
{
    size_t   dims_at;
    uint32_t id;
    uint64_t offset;

    if (take_name(in, &t->name, GGUF_NAME_MAX, "a tensor name"))
        return in->e->code;
    dims_at = in->at + 4;
    if (take_dims(in, t) || take_u32(in, &id, "a tensor type"))
        return in->e->code;
    t->type = quant_find_id(id);
    if (t->type < 0) {
        err_set(in->e, ERR_UNSUPPORTED, "type: tensor %.*s has type id %" PRIu32
                ", which this build does not know", STR_ARG(t->name), id);
        return bad(in, in->at - 4);
    }
    if (take_u64(in, &offset, "a tensor's offset"))
        return in->e->code;
    t->data = NULL;
    return tensor_size(in, t, dims_at);
}

/* Where the list stores a tensor's offset. */
static size_t tensor_offset_at(const struct in *in, const struct gguf_tensor *t)
{
    return offset_of(in, t->name.p + t->name.n) + 4 + 8 * (size_t)t->n_dims + 4;
}

/* data of each tensor: aligned and inside the file. in->at: end of the list. */
static enum err_code place(const struct in *in, uint32_t align, struct gguf_tensor *t, size_t n)
{
    size_t pad = (align - in->at % align) % align;
    size_t space = left(in) >= pad ? left(in) - pad : 0; /* bytes of the data section */

    for (size_t i = 0; i < n; i++) {
        size_t   at = tensor_offset_at(in, &t[i]);
        uint64_t offset = gguf_load_u64(in->base + at);

        if (offset % align != 0) {
            err_set(in->e, ERR_FORMAT,
                    "offset-alignment: tensor %.*s at %" PRIu64 " is not aligned to %" PRIu32,
                    STR_ARG(t[i].name), offset, align);
            return bad(in, at);
        }
        if (offset > space || t[i].size_bytes > space - offset) {
            err_set(in->e, ERR_FORMAT,
                    "past-end: tensor %.*s of %zu bytes at %" PRIu64 ", the data section has %zu",
                    STR_ARG(t[i].name), t[i].size_bytes, offset, space);
            return bad(in, at);
        }
        t[i].data = in->base + in->at + pad + offset;
    }
    return ERR_OK;
}

/* Files in the usual order of tensors need no sort here. order: n to use freely. */
static enum err_code check_overlap(const struct in *in, const struct gguf_tensor *t, size_t n,
                                   uint32_t *order)
{
    bool in_order = true;

    for (size_t i = 1; i < n && in_order; i++)
        in_order = (const unsigned char *)t[i - 1].data + t[i - 1].size_bytes <=
                   (const unsigned char *)t[i].data;
    if (in_order)
        return ERR_OK;
    sort_from(order, 0, n, by_place, t);
    for (size_t i = 1; i < n; i++) {
        const struct gguf_tensor *a = &t[order[i - 1]], *b = &t[order[i]];

        if ((const unsigned char *)a->data + a->size_bytes > (const unsigned char *)b->data) {
            err_set(in->e, ERR_FORMAT, "overlap: tensors %.*s and %.*s", STR_ARG(a->name),
                    STR_ARG(b->name));
            return bad(in, tensor_offset_at(in, a > b ? a : b));
        }
    }
    return ERR_OK;
}

static enum err_code read_tensors(struct gguf *g, const struct part *p, struct err *e)
{
    struct gguf_tensor *t = g->tensors + g->n_tensors;
    struct in in = part_in(p, p->tensors_at, e);
    size_t    n = (size_t)p->n_tensors;

    for (size_t i = 0; i < n; i++)
        if (take_tensor(&in, &t[i]))
            return e->code;
    if (place(&in, p->align, t, n) || check_overlap(&in, t, n, g->order + g->n_tensors))
        return e->code;
    g->n_tensors += n;
    return ERR_OK;
}

static enum err_code check_names(const struct gguf *g, struct err *e)
{
    for (size_t i = 1; i < g->n_tensors; i++) {
        uint32_t a = g->order[i - 1], b = g->order[i], last = a > b ? a : b;
        const struct gguf_tensor *t = &g->tensors[last];
        const struct part *p = g->parts;
        size_t    before = (size_t)p->n_tensors;
        struct in in;

        if (!str_eq(g->tensors[a].name, t->name) || !str_eq(g->tensors[b].name, t->name))
            continue;
        for (; last >= before; before += (size_t)p->n_tensors)
            p++;
        in = part_in(p, 0, e);
        err_set(e, ERR_FORMAT, "duplicate-tensor: %.*s", STR_ARG(t->name));
        return bad(&in, offset_of(&in, t->name.p) - 8);
    }
    return ERR_OK;
}

/* The tensor lists of all parts, whose metadata has been read. */
static enum err_code read_lists(struct gguf *g, struct err *e)
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
    sort_from(g->order, 0, n, by_name, g->tensors);
    return check_names(g, e);
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
        size_t       room = g->n_parts == 0 ? 1 : 2 * g->n_parts;
        struct part *p = realloc(g->parts, room * sizeof *p);

        if (p == NULL)
            return err_set(e, ERR_NOMEM, "%s: out of memory", path);
        g->parts = p;
    }
    g->parts[g->n_parts] = (struct part){ 0 };
    g->parts[g->n_parts].path = copy_text(path, strlen(path));
    if (g->parts[g->n_parts].path == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory", path);
    g->n_parts++;
    return ERR_OK;
}

static enum err_code map_part(struct gguf *g, struct err *e)
{
    struct part *p = &g->parts[g->n_parts - 1];

    if (io_map_open(&p->map, p->path, e))
        return e->code;
    p->mapped = true;
    g->file_bytes += p->map.size;
    return read_head(p, e);
}

/* The next part of a set: its metadata is read for the checks; kept when it is the first part. */
static enum err_code open_next(struct gguf *g, const char *path, uint64_t no, struct err *e)
{
    struct kvs   kvs = { 0 };
    struct split want = g->parts[0].split;
    struct part *p;
    struct in    in;

    if (add_part(g, path, e) || map_part(g, e))
        return e->code;
    p = &g->parts[g->n_parts - 1];
    if (read_kvs(p, &kvs, e)) {
        kvs_free(&kvs);
        return e->code;
    }
    if (no == 0) {
        kvs_free(&g->kvs);
        g->kvs = kvs;
    } else {
        kvs_free(&kvs);
    }
    if (p->split.no == no && p->split.count == want.count && p->split.tensors == want.tensors)
        return ERR_OK;
    in = part_in(p, 0, e);
    err_set(e, ERR_FORMAT,
            "split: part %" PRIu64 " of %" PRIu64 " with %" PRIu64 " tensors, needed is part %" PRIu64
            " of %" PRIu64 " with %" PRIu64,
            p->split.no, p->split.count, p->split.tensors, no, want.count, want.tensors);
    return bad(&in, p->split.at);
}

/* g->parts[0] is one part of a set: opens the others, which lie beside it, in their order. */
static enum err_code open_set(struct gguf *g, struct err *e)
{
    struct split split = g->parts[0].split;
    struct in    in = part_in(&g->parts[0], 0, e);
    struct part  first;
    char         tail[32];
    uint64_t     total = 0;
    size_t       tail_n, stem_n = strlen(g->path);
    char        *path = copy_text(g->path, stem_n);

    if (path == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory", g->path);
    tail_n = (size_t)snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", (unsigned)split.no + 1,
                              (unsigned)split.count);
    if (stem_n < tail_n || strcmp(path + stem_n - tail_n, tail) != 0) {
        free(path);
        err_set(e, ERR_FORMAT, "split: the name of this part must end in %s", tail);
        return bad(&in, split.at);
    }
    stem_n -= tail_n;
    for (uint64_t no = 0; no < split.count; no++) {
        if (no == split.no)
            continue;
        snprintf(path + stem_n, tail_n + 1, "-%05u-of-%05u.gguf", (unsigned)no + 1,
                 (unsigned)split.count);
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
        err_set(e, ERR_FORMAT, "split: %" PRIu64 " tensors in all parts, split.tensors.count is %" PRIu64,
                total, split.tensors);
        return bad(&in, split.at);
    }
    return ERR_OK;
}

static enum err_code begin(struct gguf **out, const char *path, struct err *e)
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
    struct err   own;
    struct gguf *g = NULL;

    if (e == NULL)
        e = &own;
    if (begin(&g, path, e))
        return e->code;
    if (map_part(g, e) || read_kvs(&g->parts[0], &g->kvs, e) ||
        (g->parts[0].split.count != 0 && open_set(g, e)) || read_lists(g, e)) {
        gguf_close(g);
        return e->code;
    }
    *out = g;
    return ERR_OK;
}

enum err_code gguf_parse(struct gguf **out, const char *name, const void *data, size_t n, struct err *e)
{
    struct err   own;
    struct gguf *g = NULL;

    if (e == NULL)
        e = &own;
    if (begin(&g, name, e))
        return e->code;
    g->parts[0].map = (struct io_map){ data, n };
    g->file_bytes = n;
    if (read_head(&g->parts[0], e) || read_kvs(&g->parts[0], &g->kvs, e) || read_lists(g, e)) {
        gguf_close(g);
        return e->code;
    }
    *out = g;
    return ERR_OK;
}

void gguf_close(struct gguf *g)
{
    if (g == NULL)
        return;
    for (size_t i = 0; i < g->n_parts; i++) {
        if (g->parts[i].mapped)
            io_map_close(&g->parts[i].map);
        free(g->parts[i].path);
    }
    free(g->parts);
    kvs_free(&g->kvs);
    free(g->tensors);
    free(g->order);
    free(g->path);
    free(g);
}

const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

size_t gguf_file_bytes(const struct gguf *g)
{
    return g->file_bytes;
}

size_t gguf_n_kv(const struct gguf *g)
{
    return g->kvs.n;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i)
{
    assert(i < g->kvs.n);
    return &g->kvs.v[i];
}

const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key)
{
    return kvs_find(&g->kvs, str_of(key));
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
    size_t     lo = 0, hi = g->n_tensors;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int    c = str_cmp(g->tensors[g->order[mid]].name, want);

        if (c == 0)
            return &g->tensors[g->order[mid]];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
