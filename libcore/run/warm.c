/* SPDX-License-Identifier: Apache-2.0 */
/* warm.c - what a device does once, done before the first prompt. */
#include "model/forward.h"
#include "model/model.h"
#include "ops/ops.h"
#include "run/internal.h"

enum { STEPS = 3 }; /* the third one of the same shape is captured as a graph (kernels/device/step.cu) */

bool run_records(const struct run *r)
{
    return dev_records(model_dev(r->m));
}

enum err_code run_warm_up(struct run *r, struct err *e)
{
    const struct run_row row = { .logits = true };
    const struct logits_want want = { .n_top = 1, .inv_temp = 1 };

    if (!run_records(r))
        return ERR_OK;
    for (int i = 0; i < STEPS && i < r->ctx; i++)
        if (run_step_want(r, &row, &want, 1, NULL, NULL, e))
            return e->code;
    run_clear(r, 0);
    r->asked[0].n_rows = 0;
    model_forget_uses(r->m);
    return ERR_OK;
}
