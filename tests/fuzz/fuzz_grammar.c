/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_grammar.c - a grammar in one of three notations, then a zero byte and a text. The first byte
 * says which notation: s, g or r. What opens is used: the text as bytes and as choices of tokens. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "grammar/tables.h"

enum { STEPS_MAX = 200 };

static struct grammar_vocab *bytes_and_some(void)
{
    static char byte[256];
    static const char *const more[] = { "\":", "},{", "[[", "]]", "\"a", "ab", "  ", "</t>" };
    struct str piece[256 + 16];
    uint8_t kind[256 + 16] = { 0 };
    struct grammar_vocab *v;
    int32_t n = 0;

    for (int i = 0; i < 256; i++) {
        byte[i] = (char)i;
        piece[n++] = (struct str){ &byte[i], 1 };
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        piece[n++] = str_of(more[i]);
    kind[n] = GRAMMAR_TOKEN_CONTROL;
    piece[n++] = STR("<t>");
    kind[n] = GRAMMAR_TOKEN_END;
    piece[n++] = STR("<end>");
    assert(grammar_vocab_make(&v, piece, kind, n, NULL) == ERR_OK);
    return v;
}

/* Takes what the mask has, chosen by the text; what is taken can be given back. */
static void use(const struct grammar *g, const uint8_t *text, size_t n)
{
    const struct grammar_vocab *v = g->v;
    struct grammar_place *p;
    uint32_t mask[16], again[16];

    assert(grammar_begin(&p, g, NULL) == ERR_OK);
    (void)grammar_take_text(p, (struct str){ (const char *)text, n });
    grammar_back(p, 1);
    for (size_t i = 0; i < n && i < STEPS_MAX; i++) {
        int32_t token = text[i] % v->n_tokens, many = grammar_mask(p, mask);

        assert(many > 0);
        while ((mask[token / 32] >> (token % 32) & 1) == 0)
            token = (token + 1) % v->n_tokens;
        assert(grammar_take(p, token));
        grammar_back(p, 1);
        assert(grammar_mask(p, again) == many && memcmp(mask, again, sizeof(uint32_t) * 9) == 0);
        if (v->kind[token] != GRAMMAR_TOKEN_END)
            assert(grammar_take(p, token));
    }
    grammar_end(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct grammar_vocab *v;
    struct grammar *g = NULL, *tagged = NULL;
    struct err e = { 0 };
    const uint8_t *zero = n < 2 ? NULL : memchr(data + 1, 0, n - 1);
    size_t len = n < 2 ? 0 : zero == NULL ? n - 1 : (size_t)(zero - data) - 1;
    struct str s = { (const char *)data + 1, len };
    json_t *schema = NULL;

    if (n < 2)
        return 0;
    if (v == NULL)
        v = bytes_and_some();
    if (data[0] == 's' && json_parse(&schema, s, "schema", &e) == ERR_OK)
        (void)!grammar_open_schema(&g, v, schema, &e);
    else if (data[0] == 'g')
        (void)!grammar_open_gbnf(&g, v, s, &e);
    else if (data[0] == 'r')
        (void)!grammar_open_regex(&g, v, s, &e);
    json_decref(schema);
    assert(g != NULL || data[0] == 0 || e.code != ERR_OK || strchr("sgr", data[0]) == NULL);
    assert(strchr(e.msg, '\n') == NULL);
    if (g != NULL && zero != NULL) {
        use(g, zero + 1, n - len - 2);
        if (grammar_open_tagged(&tagged, g, STR("<t>"), (int)(n % 3), STR("</t>"), &e) == ERR_OK)
            use(tagged, zero + 1, n - len - 2);
        grammar_close(tagged);
    }
    grammar_close(g);
    return 0;
}
