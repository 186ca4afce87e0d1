/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - which model this is, without reading all of it. */
#include <string.h>

#include "base/io.h"
#include "gguf/gguf.h"
#include "model/internal.h"
#include "quant/quant.h"

enum { SAMPLE_BYTES = 64 };

static uint64_t add_hash(uint64_t h, uint64_t v)
{
    return io_hash(h, &v, sizeof v);
}

/* Keys that a plan is made from: general.architecture and "ARCH.*". Names and descriptions may change. */
static bool matters(struct str key, const char *arch)
{
    size_t n = strlen(arch);

    return str_is(key, "general.architecture") || (key.n > n && memcmp(key.p, arch, n) == 0 && key.p[n] == '.');
}

/* The first bytes and some in the middle: weights that were trained, converted or quantized differently differ
 * in nearly every tensor. */
static uint64_t add_tensor(uint64_t h, const struct gguf_tensor *t)
{
    const unsigned char *p = t->data;
    size_t n = t->size_bytes < SAMPLE_BYTES ? t->size_bytes : SAMPLE_BYTES;

    h = io_hash(h, t->name.p, t->name.n);
    h = add_hash(h, (uint64_t)quant_types[t->type]->id);
    for (int i = 0; i < 4; i++)
        h = add_hash(h, (uint64_t)t->ne[i]);
    h = io_hash(h, p, n);
    return io_hash(h, p + (t->size_bytes - n) / 2, n);
}

uint64_t model_fingerprint(const struct model *m)
{
    const struct gguf *g = m->gguf;
    uint64_t h = 0;

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (!matters(kv->key, m->info.arch))
            continue;
        h = io_hash(h, kv->key.p, kv->key.n);
        h = add_hash(h, (uint64_t)kv->kind);
        h = io_hash(h, kv->data, kv->size_bytes);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++)
        h = add_tensor(h, gguf_tensor_at(g, i));
    return m->info.n_used == m->info.n_used_trained ? h : add_hash(h, (uint64_t)m->info.n_used);
}
