/* SPDX-License-Identifier: Apache-2.0 */
/* kv.c - the metadata of one file, read and checked in one pass, and looked up by key. */
#include "gguf/parse.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

static enum err_code skip_strs(struct gguf_in *in, const struct gguf_kv *kv)
{
    for (uint64_t i = 0; i < kv->n; i++) {
        uint64_t n;

        if (gguf_left(in) < 8) {
            err_set(in->e, ERR_FORMAT, "truncated: string %" PRIu64 " of %" PRIu64 " of key %.*s", i, kv->n,
                    STR_ARG(gguf_shown(kv->key)));
            return gguf_bad(in, in->at);
        }
        n = gguf_load_u64(in->base + in->at);
        if (n > gguf_left(in) - 8) {
            err_set(in->e, ERR_FORMAT,
                    "string-length: string %" PRIu64 " of key %.*s of %" PRIu64 " bytes, the file has %zu left", i,
                    STR_ARG(gguf_shown(kv->key)), n, gguf_left(in) - 8);
            return gguf_bad(in, in->at);
        }
        in->at += 8 + (size_t)n;
    }
    return ERR_OK;
}

static enum err_code check_bools(const struct gguf_in *in, const struct gguf_kv *kv)
{
    for (size_t i = 0; i < kv->n; i++)
        if (kv->data[i] > 1) {
            err_set(in->e, ERR_FORMAT, "bool: key %.*s is %u, allowed are 0 and 1", STR_ARG(gguf_shown(kv->key)),
                    (unsigned)kv->data[i]);
            return gguf_bad(in, gguf_offset(in, kv->data + i));
        }
    return ERR_OK;
}

static enum err_code take_kind(struct gguf_in *in, enum gguf_kind *kind, struct str key)
{
    uint32_t k;

    if (gguf_take_u32(in, &k, "a value kind"))
        return in->e->code;
    if (k > GGUF_F64) {
        err_set(in->e, ERR_FORMAT, "kind: key %.*s has value kind %" PRIu32 ", allowed are 0 to %d",
                STR_ARG(gguf_shown(key)), k, GGUF_F64);
        return gguf_bad(in, in->at - 4);
    }
    *kind = (enum gguf_kind)k;
    return ERR_OK;
}

static enum err_code take_array_head(struct gguf_in *in, struct gguf_kv *kv)
{
    unsigned width;

    if (take_kind(in, &kv->elem_kind, kv->key))
        return in->e->code;
    if (kv->elem_kind == GGUF_ARR) {
        err_set(in->e, ERR_FORMAT, "nested-array: key %.*s is an array of arrays", STR_ARG(gguf_shown(kv->key)));
        return gguf_bad(in, in->at - 4);
    }
    if (gguf_take_u64(in, &kv->n, "an array's count"))
        return in->e->code;
    width = kv->elem_kind == GGUF_STR ? 8 : gguf_kind_bytes(kv->elem_kind);
    if (kv->n > gguf_left(in) / width) {
        err_set(in->e, ERR_FORMAT,
                "array-count: key %.*s has %" PRIu64 " elements of at least %u bytes, the file has %zu left",
                STR_ARG(gguf_shown(kv->key)), kv->n, width, gguf_left(in));
        return gguf_bad(in, in->at - 8);
    }
    return ERR_OK;
}

static enum err_code take_kv(struct gguf_in *in, struct gguf_kv *kv)
{
    size_t start;

    if (gguf_take_name(in, &kv->key, GGUF_KEY_MAX, "a key") || take_kind(in, &kv->kind, kv->key))
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

        if (gguf_need(in, bytes, "a value"))
            return in->e->code;
        if (kv->elem_kind == GGUF_BOOL && check_bools(in, kv))
            return in->e->code;
        in->at += (size_t)bytes;
    }
    kv->size_bytes = in->at - start;
    return ERR_OK;
}

static int by_key(const void *v, uint32_t a, uint32_t b)
{
    const struct gguf_kv *kv = v;

    return gguf_str_cmp(kv[a].key, kv[b].key);
}

static const struct gguf_kv *kvs_find(const struct gguf_kvs *k, struct str key)
{
    size_t lo = 0, hi = k->n;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = gguf_str_cmp(k->v[k->order[mid]].key, key);

        if (c == 0)
            return &k->v[k->order[mid]];
        if (c < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

void gguf_kvs_free(struct gguf_kvs *k)
{
    free(k->v);
    free(k->order);
    *k = (struct gguf_kvs){ 0 };
}

static enum err_code read_align(struct gguf_part *p, const struct gguf_kvs *k, struct err *e)
{
    const struct gguf_kv *kv = kvs_find(k, STR("general.alignment"));
    struct gguf_in in = gguf_part_in(p, 0, e);

    p->align = GGUF_ALIGN_DEFAULT;
    if (kv == NULL)
        return ERR_OK;
    if (kv->kind != GGUF_U32) {
        err_set(e, ERR_FORMAT, "alignment: general.alignment has value kind %d, needed is %d (u32)", kv->kind,
                GGUF_U32);
        return gguf_bad(&in, gguf_offset(&in, kv->key.p + kv->key.n));
    }
    p->align = gguf_load_u32(kv->data);
    if (p->align < GGUF_ALIGN_MIN || p->align > GGUF_ALIGN_MAX || (p->align & (p->align - 1)) != 0) {
        err_set(e, ERR_FORMAT, "alignment: %" PRIu32 " is not a power of two from %d to %u", p->align, GGUF_ALIGN_MIN,
                GGUF_ALIGN_MAX);
        return gguf_bad(&in, gguf_offset(&in, kv->data));
    }
    return ERR_OK;
}

static enum err_code split_key(const struct gguf_part *p, const struct gguf_kvs *k, struct str key, uint64_t *out,
                               struct err *e)
{
    const struct gguf_kv *kv = kvs_find(k, key);
    struct gguf_in in = gguf_part_in(p, 0, e);
    int64_t v;

    if (kv == NULL) {
        err_set(e, ERR_FORMAT, "split: a part of %" PRIu64 " without the key %s", p->split.count, key.p);
        return gguf_bad(&in, p->split.at);
    }
    if (kv->kind == GGUF_ARR || !gguf_kv_i64(kv, 0, &v) || v < 0) {
        err_set(e, ERR_FORMAT, "split: %s is not a whole number", key.p);
        return gguf_bad(&in, gguf_offset(&in, kv->data));
    }
    *out = (uint64_t)v;
    return ERR_OK;
}

/* split.count 0 or 1, or no such key: a file of its own, as tools leave it after merging. */
static enum err_code read_split(struct gguf_part *p, const struct gguf_kvs *k, struct err *e)
{
    const struct gguf_kv *kv = kvs_find(k, STR("split.count"));
    struct gguf_in in = gguf_part_in(p, 0, e);

    p->split = (struct gguf_split){ 0 };
    if (kv == NULL)
        return ERR_OK;
    p->split.at = gguf_offset(&in, kv->key.p);
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
        err_set(e, ERR_FORMAT, "split: split.no %" PRIu64 " of split.count %" PRIu64, p->split.no, p->split.count);
        return gguf_bad(&in, p->split.at);
    }
    return ERR_OK;
}

enum err_code gguf_read_kvs(struct gguf_part *p, struct gguf_kvs *k, struct err *e)
{
    struct gguf_in in = gguf_part_in(p, GGUF_HEAD_BYTES, e);
    size_t n = (size_t)p->n_kv;

    k->n = n;
    k->v = calloc(n + 1, sizeof *k->v); /* + 1: calloc(0) may be NULL */
    k->order = calloc(n + 1, sizeof *k->order);
    if (k->v == NULL || k->order == NULL)
        return err_set(e, ERR_NOMEM, "%s: out of memory for %zu keys", p->path, n);
    for (size_t i = 0; i < n; i++)
        if (take_kv(&in, &k->v[i]))
            return e->code;
    gguf_sort(k->order, n, by_key, k->v);
    for (size_t i = 1; i < n; i++) {
        struct str a = k->v[k->order[i - 1]].key, b = k->v[k->order[i]].key;

        if (str_eq(a, b)) {
            err_set(e, ERR_FORMAT, "duplicate-key: %.*s", STR_ARG(gguf_shown(a)));
            return gguf_bad(&in, gguf_offset(&in, a.p > b.p ? a.p : b.p) - 8);
        }
    }
    p->tensors_at = in.at;
    if (read_align(p, k, e) || read_split(p, k, e))
        return e->code;
    return ERR_OK;
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
