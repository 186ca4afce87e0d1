/* SPDX-License-Identifier: Apache-2.0 */
/* fisher.c - what types cost a tensor, from second moments of its inputs and of its outputs' gradients. */
#include <stdlib.h>
#include <string.h>

#include "measure/internal.h"
#include "quant/quant.h"

/* Weights of rows and columns for half the mean of g^2 x^2 d^2 over the n_tokens that count. The sum of g^2 x^2 over
 * the tokens that use the matrix is taken as the sum of g^2 times the mean of x^2. */
static void fisher_weights(float *rows, float *columns, const struct measure_moment *at, double n_tokens)
{
    for (int64_t k = 0; k < at->n_expert; k++) {
        double n = at->rows[k] > 0 ? (double)at->rows[k] : 1;

        for (int64_t i = k * at->n_in; i < (k + 1) * at->n_in; i++)
            columns[i] = (float)((double)at->in[i] / n);
        for (int64_t o = k * at->n_out; o < (k + 1) * at->n_out; o++)
            rows[o] = (float)(.5 * (double)at->out[o] / n_tokens);
    }
}

static enum err_code add_losses(double kl[], const struct measure_moment *at, double n_tokens,
                                const struct gguf_tensor *t, const struct ramp_coder *c, const int *types,
                                size_t n_types, const struct progress *progress, struct err *e)
{
    float *rows = malloc((size_t)(at->n_expert * at->n_out) * sizeof *rows);
    float *columns = malloc((size_t)(at->n_expert * at->n_in) * sizeof *columns);
    double own[QUANT_N] = { 0 };
    enum err_code rc = rows != NULL && columns != NULL ? ERR_OK : err_nomem(e);

    if (rc == ERR_OK) {
        fisher_weights(rows, columns, at, n_tokens);
        rc = ramp_weighted_errors(own, t, c, types, n_types, rows, columns, progress, e);
    }
    for (size_t k = 0; k < n_types && rc == ERR_OK; k++)
        if (types[k] != t->type)
            kl[types[k]] += own[types[k]];
    free(rows);
    free(columns);
    return rc;
}

enum err_code measure_fisher(double kl[], const struct measure_moments *m, const struct gguf_tensor *t,
                             const struct ramp_coder *c, const int *types, size_t n_types,
                             const struct progress *progress, struct err *e)
{
    double n_tokens = (double)m->text.n_seq * (double)(m->text.n_tokens - m->text.from);
    bool any = false;

    for (size_t k = 0; k < n_types; k++)
        if (types[k] != t->type)
            kl[types[k]] = 0;
    for (int i = 0; i < m->n; i++) {
        const struct measure_moment *at = &m->v[i];

        if (!str_is(t->name, at->name) || at->n_in != t->ne[0] ||
            at->n_out * at->n_expert != t->ne[1] * t->ne[2] * t->ne[3])
            continue;
        any = true;
        if (add_losses(kl, at, n_tokens, t, c, types, n_types, progress, e))
            return e->code;
    }
    return any ? ERR_OK
               : err_set(e, ERR_UNSUPPORTED, "%.*s: there is no gradient of it: use --method probes", STR_ARG(t->name));
}
