/* SPDX-License-Identifier: Apache-2.0 */
/* bias.c - logit bias.                                                         room: sample */
#include <float.h>
#include <math.h>

#include "sample/chain.h"

enum err_code sample_stage_bias(struct sampler *s, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < s->opts.n_bias; i++) {
        const struct sample_bias *b = &s->opts.bias[i];
        if (b->bias >= -FLT_MAX) {
            sample_edit(s, b->token, s->x[b->token] + b->bias);
        } else {
            sample_forbid(s, b->token);
        }
    }
    return ERR_OK;
}
