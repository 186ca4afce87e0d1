/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_vote.c - any bytes as an answer, of which the canonical form is whole and not much longer; as the line of a
 * verifier, of which the scores are 0 .. 1 or unknown; and as the size of a search. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "reason/search.h"

enum { STEPS = 3 };

static bool is_score(double x)
{
    return x >= 0 && x <= 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct str s = { (const char *)data, n };
    double score, step[STEPS];
    char *canon, size[24] = "";
    size_t n_canon;
    int branches, width;
    struct err e;

    if (reason_canon(s, &canon, &n_canon, &e) == ERR_OK) {
        assert(n_canon <= n + (256 << 10) && canon[n_canon] == '\0');
        for (size_t i = 0; i < n_canon; i++) /* one line, in small letters */
            assert(canon[i] != '\n' && !(canon[i] >= 'A' && canon[i] <= 'Z'));
        free(canon);
    }
    if (n > 0)
        memcpy(size, data, n < sizeof size ? n : sizeof size - 1);
    if (reason_search_size(size, &branches, &width))
        assert(branches >= 1 && branches <= REASON_SEARCH_MAX && width >= 1 && branches % width == 0);
    if (reason_score_line(s, &score, step, STEPS, &e) == ERR_OK) {
        assert(is_score(score));
        for (int i = 0; i < STEPS; i++)
            assert(isnan(step[i]) || is_score(step[i]));
    }
    return 0;
}
