/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.c - the characters of a Unicode property, as PCRE2 knows them.        room: grammar
 *
 * PCRE2 has the tables but does not list them: a text of all code points, block by block, is
 * searched for runs of the property. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include "grammar/internal.h"

enum { BLOCK = 4096 };

static size_t put_utf8(uint8_t *p, uint32_t cp)
{
    size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;

    if (n == 1) {
        p[0] = (uint8_t)cp;
        return 1;
    }
    for (size_t i = n; i-- > 1; cp >>= 6)
        p[i] = (uint8_t)(0x80 | (cp & 0x3F));
    p[0] = (uint8_t)((0xF00U >> n & 0xFF) | cp);
    return n;
}

static uint32_t get_utf8(const uint8_t *p)
{
    int n = p[0] < 0x80 ? 1 : p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    uint32_t cp = n == 1 ? p[0] : p[0] & (0xFFU >> (n + 1));

    for (int i = 1; i < n; i++)
        cp = cp << 6 | (p[i] & 0x3FU);
    return cp;
}

void grammar_property(struct grammar_build *b, const char *runs, struct grammar_ranges *to)
{
    int why;
    PCRE2_SIZE where;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)runs, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &why, &where, NULL);
    pcre2_match_data *match = code == NULL ? NULL : pcre2_match_data_create_from_pattern(code, NULL);
    uint8_t *text = malloc((size_t)4 * BLOCK + 1);

    if (match == NULL || text == NULL)
        grammar_nomem(b);
    for (uint32_t base = 0; base <= GRAMMAR_CP_MAX && b->code == ERR_OK; base += BLOCK) {
        size_t n = 0, at = 0;

        for (uint32_t cp = base; cp < base + BLOCK; cp++)
            if (cp < 0xD800 || cp > 0xDFFF)
                n += put_utf8(text + n, cp);
        while (at < n && pcre2_match(code, text, n, at, PCRE2_NO_UTF_CHECK, match, NULL) > 0) {
            const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
            size_t last = found[1] - 1;

            while ((text[last] & 0xC0) == 0x80)
                last--;
            grammar_range_add(b, to, get_utf8(text + found[0]), get_utf8(text + last));
            at = found[1];
        }
    }
    free(text);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}
