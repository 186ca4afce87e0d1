/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_mcp.c - lines of the Model Context Protocol, any bytes: each gets at most one message, a good one, and nothing
 * is left behind. No engine: calls are understood, and refused or kept. Run from the repository's root. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "serve/mcp.h"
#include "text/text.h"

static enum err_code count(void *ctx, json_t *message, struct err *e)
{
    int *n = ctx;
    char *text = message != NULL ? json_dumps(message, JSON_COMPACT) : NULL;

    (void)e;
    assert(text != NULL && json_object_get(message, "id") != NULL);
    assert((json_object_get(message, "result") != NULL) != (json_object_get(message, "error") != NULL));
    ++*n;
    free(text);
    json_decref(message);
    return ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct text *tiny;
    struct gguf *g = NULL;
    struct serve *s = NULL;
    struct serve_mcp *m = NULL;
    struct serve_reply r;
    int said = 0, lines = 0;

    if (tiny == NULL) {
        assert(gguf_open(&g, "tests/golden/tokenizer/tiny-qwen35.gguf", NULL) == ERR_OK);
        assert(text_open(&tiny, g, NULL) == ERR_OK);
        gguf_close(g);
    }
    assert(serve_open(&s, &(struct serve_opts){ .text = tiny, .model = "m", .predict_max = -1 }, NULL) == ERR_OK);
    assert(serve_mcp_open(&m, s, count, &said, NULL) == ERR_OK);
    for (size_t at = 0; at < n;) {
        const char *p = (const char *)data + at, *end = memchr(p, '\n', n - at);
        const size_t length = end != NULL ? (size_t)(end - p) : n - at;

        assert(serve_mcp_line(m, (struct str){ p, length }, NULL) == ERR_OK);
        while (serve_next(s, &r))
            assert(serve_mcp_reply(m, &r, NULL) == ERR_OK);
        assert(said <= ++lines);
        at += length + 1;
    }
    serve_mcp_close(m);
    serve_close(s);
    return 0;
}
