/* SPDX-License-Identifier: Apache-2.0 */
/* pick.c - between a run and a sampler: a row's best logits, or the row.             room: cmd (cli_) */
#include "cli/pick.h"

enum err_code cli_pick(struct sampler *s, struct run *r, int i, struct sample_pick *pick, bool *whole,
                       struct err *e)
{
    struct logits_digest d;
    bool enough = false;

    *whole = true;
    if (i >= 0 && run_digest(r, i, &d)) {
        if (sample_next_digest(s, &d, NULL, NULL, 0, pick, &enough, e))
            return e->code;
        *whole = !enough;
    }
    return enough ? ERR_OK
                  : sample_next_row(s, i < 0 ? run_logits_last(r) : run_logits(r, i), NULL, NULL, NULL, 0, pick, e);
}
