/* SPDX-License-Identifier: Apache-2.0 */
/* pick.c - between a run and a sampler: a row's best logits, or the row.             room: cmd (cli_) */
#include "cli/pick.h"

struct run_want cli_pick_want(struct sampler *s)
{
    struct sample_want w;

    sample_want(s, &w);
    return (struct run_want){ w.n_top, w.inv_temp, w.ids, w.n_ids };
}

enum err_code cli_pick(struct sampler *s, struct run *r, int i, struct sample_pick *pick, bool *whole,
                       struct err *e)
{
    struct sample_top top[SAMPLE_WANT_TOP];
    struct run_digest d;
    bool enough = false;

    *whole = true;
    if (i >= 0 && run_digest(r, i, &d)) {
        for (int32_t j = 0; j < d.n_top; j++)
            top[j] = (struct sample_top){ d.top[j].token, d.top[j].logit };
        const struct sample_digest sd = { top, d.n_top, d.logits, d.max, d.total, d.heated };
        if (sample_next_of(s, &sd, pick, &enough, e))
            return e->code;
        *whole = !enough;
    }
    return enough ? ERR_OK : sample_next(s, i < 0 ? run_logits_last(r) : run_logits(r, i), pick, e);
}
