/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_document.c - any bytes as a question, up to the first line feed, and a document: what it says on the question is
 * a part of it, at the line that is named, and the same again; and of each span that is ranked the features are some.
 * Run from the repository's root. */
#include <assert.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "gguf/gguf.h"
#include "recall/recall.h"
#include "recall/span.h"
#include "text/text.h"

static void look(void *of, const struct ranked_span *s)
{
    const struct str *document = of;

    assert(s->text.n == 0 || (s->text.p >= document->p && s->text.p + s->text.n <= document->p + document->n));
    assert(s->n >= 0 && s->n <= SPAN_FEATURES_EACH);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct text *tiny;
    static struct gguf *g;
    const char *nl = n > 0 ? memchr(data, '\n', n) : NULL, *p = (const char *)data;
    const size_t asked = nl != NULL ? (size_t)(nl - p) : n, from = nl != NULL ? asked + 1 : n;
    struct str question = { p, asked }, document = { p + from, n - from };
    struct recall_said said, again;
    enum span_class class = SPAN_CLASSES;
    int64_t line = 1;
    struct err e = { 0 };

    if (g == NULL) {
        assert(gguf_open(&g, "tests/golden/tokenizer/tiny-qwen35.gguf", NULL) == ERR_OK);
        assert(text_open(&tiny, g, NULL) == ERR_OK);
    }
    assert(recall_answer(&said, document, tiny, question, &e) == ERR_OK);
    assert(recall_answer(&again, document, tiny, question, &e) == ERR_OK);
    assert(said.text.p == again.text.p && said.text.n == again.text.n);
    assert(recall_point(document, tiny, question, look, &document, &class, &e) == ERR_OK && class <= SPAN_CLASSES);
    if (said.text.n == 0)
        return 0;
    look(&document, &(struct ranked_span){ .text = said.text });
    for (const char *c = document.p; c < said.text.p; c++)
        line += *c == '\n';
    assert(said.line == line && said.share >= 0 && said.share <= 1.0001F);
    return 0;
}
