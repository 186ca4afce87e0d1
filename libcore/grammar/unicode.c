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

void grammar_property(struct grammar_build *b, const char *runs, struct grammar_ranges *to)
{
    int why;
    PCRE2_SIZE where;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)runs, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &why, &where, NULL);
    pcre2_match_data *match = code == NULL ? NULL : pcre2_match_data_create_from_pattern(code, NULL);
    char *text = malloc((size_t)4 * BLOCK + 1);

    if (match == NULL || text == NULL)
        grammar_nomem(b);
    for (uint32_t base = 0; base <= GRAMMAR_CP_MAX && b->code == ERR_OK; base += BLOCK) {
        size_t n = 0, at = 0;

        for (uint32_t cp = base; cp < base + BLOCK; cp++)
            if (cp < 0xD800 || cp > 0xDFFF)
                n += str_utf8_put(text + n, cp);
        while (at < n && pcre2_match(code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, match, NULL) > 0) {
            const PCRE2_SIZE *found = pcre2_get_ovector_pointer(match);
            size_t last = found[1] - 1, len;

            while ((text[last] & 0xC0) == 0x80)
                last--;
            grammar_range_add(b, to, str_utf8_get(text + found[0], n - found[0], &len),
                              str_utf8_get(text + last, n - last, &len));
            at = found[1];
        }
    }
    free(text);
    pcre2_match_data_free(match);
    pcre2_code_free(code);
}
