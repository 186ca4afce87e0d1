/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - which tokenizer a file has. room: text */
#include <string.h>
#include "base/io.h"
#include "gguf/gguf.h"
#include "text/text.h"

uint64_t text_fingerprint(const struct gguf *g)
{
    static const char prefix[] = "tokenizer.ggml.";
    uint64_t h = 0;

    for (size_t i = 0; i < gguf_n_kv(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);

        if (kv->key.n < sizeof prefix - 1 || memcmp(kv->key.p, prefix, sizeof prefix - 1) != 0)
            continue;
        h = io_hash(h, kv->key.p, kv->key.n);
        h = io_hash(h, kv->data, kv->size_bytes);
    }
    return h;
}
