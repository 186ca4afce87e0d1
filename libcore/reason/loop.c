/* SPDX-License-Identifier: Apache-2.0 */
/* loop.c - whether a text repeats itself.                                    room: reason */
#include "reason/reason.h"

int reason_loop_add(struct reason_loop *l, int32_t token, int64_t repeats, int64_t least)
{
    int found = 0;

    for (int p = 1; p <= REASON_PERIOD_MAX; p++) {
        const bool same = p <= l->n && l->last[(l->n - p) % REASON_PERIOD_MAX] == token;

        l->same[p - 1] = same ? l->same[p - 1] + 1 : 0;
        const int64_t copies = 1 + l->same[p - 1] / p; /* whole ones; the tokens before the first that is the same */

        if (found == 0 && p <= l->n && copies >= repeats && copies * p >= least)
            found = p;
    }
    l->last[l->n++ % REASON_PERIOD_MAX] = token;
    return found;
}
