/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_cut.c - any bytes as a document of each form: texts have their size, and lines of the document. */
#include <assert.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "recall/cut.h"

struct cutting {
    size_t chunk;
    int64_t lines, line;
};

static enum err_code check_chunk(void *ctx, const struct recall_chunk *c, struct err *e)
{
    struct cutting *x = ctx;

    (void)e;
    assert(c->text.n > 0 && c->text.n <= x->chunk && c->line >= x->line && c->line <= x->lines);
    assert(memchr(c->heading.p, '\n', c->heading.n) == NULL);
    x->line = c->line;
    return ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const size_t chunks[][2] = { { 16, 0 }, { 40, 20 }, { 1000, 100 } };
    int64_t lines = 1;
    struct err e = { 0 };

    for (size_t i = 0; i < n; i++)
        lines += data[i] == '\n';
    for (int form = 0; form <= RECALL_MAN; form++)
        for (int k = 0; k < 3; k++) {
            const struct recall_cut_opts o = { (enum recall_form)form, chunks[k][0], chunks[k][1] };
            struct cutting x = { o.chunk, lines, 0 };

            assert(recall_cut((struct str){ (const char *)data, n }, &o, check_chunk, &x, &e) == ERR_OK);
        }
    return 0;
}
