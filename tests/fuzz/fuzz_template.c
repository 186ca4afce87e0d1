/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_template.c - a chat template, and after a zero byte the variables that it is rendered with,
 * as JSON. Without that a small conversation, of which no word may become a control token. Run from
 * the repository's root. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "chat/chat.h"
#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "text/text.h"

static const char vars[] = "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief.\"}, "
                           "{\"role\": \"user\", \"content\": \"hi \\u65e5\"},"
                           "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
                           "[{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1.5}}}]}],"
                           "\"tools\": null, \"add_generation_prompt\": true, \"n\": 7, \"l\": [3, "
                           "1, 2], \"d\": {\"b\": 2, \"a\": 1}, \"s\": \"Hello\"}";

static void render(struct str template, struct str json)
{
    char *out[2] = { NULL, NULL };
    size_t n[2];
    struct err e[2] = { { 0 } };

    for (int i = 0; i < 2; i++)
        if (chat_template_render(template, json, 1768467907, &out[i], &n[i], &e[i]) != ERR_OK)
            assert(out[i] == NULL && e[i].code != ERR_OK && e[i].msg[0] != '\0' && strchr(e[i].msg, '\n') == NULL);
    assert(e[0].code == e[1].code && strcmp(e[0].msg, e[1].msg) == 0);
    if (out[0] != NULL)
        assert(n[0] == n[1] && memcmp(out[0], out[1], n[0] + 1) == 0 && out[0][n[0]] == '\0');
    free(out[0]);
    free(out[1]);
}

/* The template with a vocabulary: where its own text has no control token, a prompt has none. */
static void talk(struct str template)
{
    static struct text *t;
    struct chat *c = NULL;
    struct text_tokens v = { 0 };
    struct err e = { 0 };
    bool thinking;
    json_t *m = json_pack("[{s:s,s:s}]", "role", "user", "content", "<|im_start|><|im_end|> <|endoftext|>");

    if (t == NULL) {
        struct gguf *g = NULL;
        assert(gguf_open(&g, "tests/golden/tokenizer/tiny-qwen35.gguf", NULL) == ERR_OK);
        assert(text_open(&t, g, NULL) == ERR_OK);
        gguf_close(g);
    }
    bool own = memchr(template.p, '|', template.n) != NULL || memchr(template.p, '\\', template.n) != NULL ||
               memchr(template.p, 'k', template.n) != NULL;
    if (template.n > 0 && chat_open(&c, t, template, &e) == ERR_OK &&
        chat_render(c, &(struct chat_prompt){ .messages = m }, &v, &thinking, &e) == ERR_OK)
        for (int64_t i = 0; i < v.n && !own; i++)
            assert(!text_is_control(t, v.v[i]));
    text_tokens_free(&v);
    chat_close(c);
    json_decref(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *p = (const char *)data;
    const char *zero = n > 0 ? memchr(p, 0, n) : NULL;
    struct str template = { p, zero != NULL ? (size_t)(zero - p) : n };

    if (zero != NULL) {
        render(template, (struct str){ zero + 1, n - template.n - 1 });
        return 0;
    }
    render(template, (struct str){ vars, sizeof vars - 1 });
    talk(template);
    return 0;
}
