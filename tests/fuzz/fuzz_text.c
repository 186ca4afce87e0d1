/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_text.c - bytes that begin with "GGUF": a model file whose tokenizer is opened and used.
 * Other bytes: a text for a small vocabulary; the first byte has the flags. Run from the
 * repository's root. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "gguf/parse.h"
#include "text/vocab.h"

/* Encodes and decodes s; a stream over its tokens gives whole characters, and all of them. */
static void use(const struct text *t, struct str s, unsigned flags, bool exact)
{
    struct text_tokens ids = { 0 };
    struct text_stream *st = NULL;
    struct str ready, clean, stops[] = { STR("stop\n"), STR("\n\n") };
    char *back = NULL, *copy = NULL;
    size_t n = 0, streamed = 0;
    bool stopped = false;
    enum err_code rc = text_encode(t, s, flags, &ids, NULL);

    assert(rc == ERR_OK && text_decode(t, ids.v, ids.n, flags, &back, &n, NULL) == ERR_OK);
    assert(text_utf8_clean(s, &clean, &copy, NULL) == ERR_OK);
    assert(!exact || (n == clean.n && memcmp(back, clean.p, n) == 0));
    assert(text_stream_open(&st, t, stops, flags & TEXT_ADD ? 2 : 0, NULL) == ERR_OK);
    for (int64_t i = 0; i < ids.n; i++) {
        assert(text_stream_push(st, ids.v[i], &ready, &stopped, NULL) == ERR_OK);
        for (size_t k = 0, len; k < ready.n; k += len)
            assert(text_utf8_get(ready.p + k, ready.n - k, &len) != TEXT_BAD || len == 3);
        streamed += ready.n;
    }
    streamed += text_stream_flush(st).n;
    assert(!exact || stopped || flags & TEXT_SPECIAL || copy != NULL || streamed == n);
    text_stream_close(st);
    text_tokens_free(&ids);
    free(back);
    free(copy);
}

static void open_and_use(const char *data, size_t n)
{
    struct gguf *g = NULL;
    struct text *t = NULL;
    struct err e = { 0 };
    struct str sample = STR(" Some text,\twith <s>specials</s> <|im_end|> \xC3\xA9\xFF 12345  \n\n<0x41>");

    if (gguf_parse(&g, "input", data, n, &e) == ERR_OK && text_open(&t, g, &e) == ERR_OK)
        for (unsigned flags = 0; flags < 4; flags++)
            use(t, sample, flags, false);
    else
        assert(e.code != ERR_OK && strchr(e.msg, '\n') == NULL);
    text_close(t);
    gguf_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct text *tiny;
    struct gguf *g = NULL;
    const char *p = (const char *)data;

    if (n >= 4 && memcmp(data, "GGUF", 4) == 0) {
        open_and_use(p, n);
        return 0;
    }
    if (tiny == NULL) {
        assert(gguf_open(&g, "tests/golden/tokenizer/tiny-qwen35.gguf", NULL) == ERR_OK);
        assert(text_open(&tiny, g, NULL) == ERR_OK);
        gguf_close(g);
    }
    if (n > 0)
        use(tiny, (struct str){ p + 1, n - 1 }, data[0] & 3, true);
    return 0;
}
