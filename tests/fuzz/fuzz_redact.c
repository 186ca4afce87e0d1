/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_redact.c - patterns, one a line up to an empty one, and behind it a text: what is left of the text was there, in
 * its order, and a pattern that takes too long leaves nothing. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "journal/journal.h"

enum { PATTERNS_MAX = 4 };

/* Whether the parts between the marks are parts of the text, one behind the other. */
static bool is_rest_of(struct str left, struct str text)
{
    const struct str mark = STR(JOURNAL_REDACTED);
    size_t at = 0;

    for (size_t from = 0; from <= left.n;) {
        const size_t end = str_find(left, from, mark);
        const struct str part = { left.p + from, (end != SIZE_MAX ? end : left.n) - from };
        const size_t found = part.n > 0 ? str_find(text, at, part) : at;

        if (found == SIZE_MAX)
            return false;
        at = found + part.n;
        from += part.n + mark.n;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *all = malloc(n + 1), *left;
    const char *patterns[PATTERNS_MAX];
    struct journal_redactor *r;
    size_t n_patterns = 0, n_left, at = 0;
    struct err e;

    assert(all != NULL);
    memcpy(all, data, n);
    all[n] = '\0';
    while (at < n && n_patterns < PATTERNS_MAX && all[at] != '\n' && all[at] != '\0') {
        patterns[n_patterns++] = all + at;
        at += strcspn(all + at, "\n");
        all[at++] = '\0';
    }
    const struct str text = { all + (at < n ? at : n), at < n ? n - at : 0 };

    if (journal_redactor_open(&r, patterns, n_patterns, &e) == ERR_OK) {
        for (int cut = 0; cut < 2; cut++) {
            journal_redactor_begin(r);
            if (journal_redact(r, text, cut != 0, &left, &n_left, &e)) {
                assert(e.code == ERR_LIMIT || e.code == ERR_NOMEM);
                continue;
            }
            assert(n_patterns > 1 || is_rest_of((struct str){ left, n_left }, text));
            assert(n_patterns > 0 || (n_left == text.n && memcmp(left, text.p, n_left) == 0));
            free(left);
        }
        journal_redactor_close(r);
    }
    free(all);
    return 0;
}
