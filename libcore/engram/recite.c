/* SPDX-License-Identifier: Apache-2.0 */
/* recite.c - a text that the prompt has named goes on in the answer: what follows the answer's last tokens in it.
 * room: engram
 *
 * An n-gram looks back a few tokens and cannot know what a question named. So the key is in two parts: the name, rare
 * words of the prompt, by which the text was found, and the newest tokens of the answer, by which the place in it is
 * found. */
#include <string.h>

#include "engram/internal.h"
#include "gen/hooks.h"

enum { BACK = 8 /* tokens of the answer that are looked for, at most */ };

bool engram_recite(const struct engram_recital *r, const struct gen_context *at, struct engram_next *out)
{
    const int32_t *token = at->token;
    const int64_t n = at->n;
    int64_t from = at->text_from, m;

    if (r->n == 0)
        return false;
    while (from < n && (token[from] == r->newline[0] || token[from] == r->newline[1]))
        from++;
    *out = (struct engram_next){ .q = { 1 }, .whole = at->reasoned && at->text_from == n };
    if (from == n) { /* the first token */
        out->token[0] = r->token[0];
        out->n = 1;
        return true;
    }
    for (m = n - from < BACK ? n - from : BACK; m > 0; m--)
        for (int64_t i = 0; i + m <= r->n; i++)
            if (memcmp(r->token + i, token + n - m, (size_t)m * sizeof *token) == 0) {
                out->token[0] = i + m < r->n ? r->token[i + m] : r->end;
                out->n = out->token[0] >= 0;
                out->order = (int)m;
                return out->n > 0;
            }
    return false;
}
