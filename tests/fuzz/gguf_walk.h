/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_walk.h - reads everything that an open gguf hands out; for the fuzzer and the unit test.
 * The sum depends on every byte of metadata and on both ends of every tensor. */
#ifndef FUZZ_GGUF_WALK_H
#define FUZZ_GGUF_WALK_H
#include "gguf/gguf.h"

#include <assert.h>
#include <string.h>

static inline uint64_t gguf_walk_bytes(uint64_t sum, const void *p, size_t n)
{
    const unsigned char *c = p;

    for (size_t i = 0; i < n; i++)
        sum = (sum ^ c[i]) * 1099511628211U;
    return sum;
}

static inline uint64_t gguf_walk_kv(uint64_t sum, const struct gguf_kv *kv)
{
    struct gguf_strs it = gguf_strs(kv);
    struct str s;
    uint64_t n = 0;

    sum = gguf_walk_bytes(sum, kv->data, kv->size_bytes);
    for (; gguf_strs_next(&it, &s); n++)
        sum = gguf_walk_bytes(sum, s.p, s.n);
    assert(n == (kv->elem_kind == GGUF_STR ? kv->n : 0));
    for (uint64_t i = 0; i <= kv->n; i++) {
        int64_t v = 0;
        double f = 0;

        if (gguf_kv_i64(kv, i, &v))
            assert(i < kv->n);
        if (gguf_kv_f64(kv, i, &f))
            assert(i < kv->n);
        sum = sum * 31 + (uint64_t)v + (f != 0);
    }
    return sum;
}

static inline uint64_t gguf_walk(const struct gguf *g)
{
    uint64_t sum = gguf_file_bytes(g) + strlen(gguf_path(g));
    char name[65];

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        sum = gguf_walk_kv(gguf_walk_bytes(sum, kv->key.p, kv->key.n), kv);
        if (kv->key.n < sizeof name) {
            uint64_t u8 = 0;
            uint32_t u4 = 0;
            float f4 = 0;
            bool b = false;
            struct str s = { NULL, 0 };

            memcpy(name, kv->key.p, kv->key.n);
            name[kv->key.n] = '\0';
            assert(gguf_kv_find(g, name) == kv);
            if (gguf_u64(g, name, &u8) || gguf_u32(g, name, &u4) || gguf_bool(g, name, &b))
                sum += u8 + u4 + b;
            if (gguf_f32(g, name, &f4))
                sum += f4 != 0;
            if (gguf_str(g, name, &s))
                sum += s.n;
        }
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        assert(t->name.n < sizeof name && t->size_bytes > 0);
        memcpy(name, t->name.p, t->name.n);
        name[t->name.n] = '\0';
        assert(gguf_find(g, name) == t);
        sum = gguf_walk_bytes(sum, t->data, 1);
        sum = gguf_walk_bytes(sum, (const char *)t->data + t->size_bytes - 1, 1);
    }
    return sum;
}
#endif
