/* SPDX-License-Identifier: Apache-2.0 */
/* reason.h - governors of reasoning: when it ends.                           room: reason
 *
 * A governor (gen/hooks.h) sees each token of an answer and says how it goes on. It is deterministic: the same
 * tokens and numbers give the same orders.
 */
#ifndef REASON_REASON_H
#define REASON_REASON_H
#include "gen/hooks.h"

struct text_marks;

struct reason_opts {
    const struct text_marks *marks; /* of the reasoning; outlives the answers; NULL: it has none */
    int64_t budget_tokens;          /* of reasoning: then it is closed; 0: where it opens; -1: any number */
};
/* Options: struct reason_opts. ERR_UNSUPPORTED: no marks. */
extern const struct gen_governor reason_governor;
#endif
