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

enum err_code text_same_tokens(const struct gguf *a, const struct gguf *b, struct err *e)
{
    struct gguf_strs x = gguf_strs(gguf_kv_find(a, "tokenizer.ggml.tokens"));
    struct gguf_strs y = gguf_strs(gguf_kv_find(b, "tokenizer.ggml.tokens"));
    struct str s, t;

    if (x.left == 0 || y.left == 0)
        return err_set(e, ERR_FORMAT, "%s has no tokens", gguf_path(x.left == 0 ? a : b));
    for (uint64_t i = 0; gguf_strs_next(&x, &s) && gguf_strs_next(&y, &t); i++)
        if (!str_eq(s, t))
            return err_set(e, ERR_FORMAT, "%s has another tokenizer than %s: token %llu is not the same", gguf_path(a),
                           gguf_path(b), (unsigned long long)i);
    return ERR_OK;
}
