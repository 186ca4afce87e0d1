/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c - which tensors are measured together, in which types, and what that says of others. */
#include <math.h>
#include <string.h>

#include "measure/internal.h"
#include "model/model.h"
#include "quant/quant.h"

/* Types that a search may choose from; the second list where rows are no multiple of 256, the third where they are none
 * of 32. */
static const int wide[] = { QUANT_iq1_s,   QUANT_iq2_xxs, QUANT_iq2_xs, QUANT_iq2_s,  QUANT_q2_k,
                            QUANT_iq3_xxs, QUANT_q3_k,    QUANT_iq3_s,  QUANT_iq4_xs, QUANT_q4_k,
                            QUANT_q5_k,    QUANT_q6_k,    QUANT_q8_0 };
static const int narrow[] = { QUANT_q4_0, QUANT_iq4_nl, QUANT_q4_1, QUANT_q5_0, QUANT_q5_1, QUANT_q8_0 };
static const int odd[] = { QUANT_f16 };
#define COUNT(a) (sizeof(a) / sizeof *(a))

const int *measure_types(const struct gguf_tensor *t, size_t *n)
{
    *n = t->ne[0] % 256 == 0 ? COUNT(wide) : t->ne[0] % 32 == 0 ? COUNT(narrow) : COUNT(odd);
    return t->ne[0] % 256 == 0 ? wide : t->ne[0] % 32 == 0 ? narrow : odd;
}

int measure_group_of(const struct gguf *g, size_t i, int n_layer, enum measure_grouping by, const bool *wanted,
                     const int *group)
{
    const struct gguf_tensor *t = gguf_tensor_at(g, i);
    enum model_class c = model_class_of(t->name, n_layer);

    for (size_t k = 0; k < i && by != MEASURE_TENSOR; k++) {
        const struct gguf_tensor *u = gguf_tensor_at(g, k);
        const char *dot = memchr(t->name.p + 4, '.', t->name.n > 4 ? t->name.n - 4 : 0);
        size_t n = dot != NULL ? (size_t)(dot - t->name.p) : t->name.n; /* "blk.7" */

        if (wanted[k] && model_class_of(u->name, n_layer) == c &&
            (by == MEASURE_CLASS || (u->name.n >= n && memcmp(u->name.p, t->name.p, n) == 0 && u->name.p[n] == '.')))
            return group[k];
    }
    return (int)i;
}

double measure_between(const double *error, const double *kl, int n, double at)
{
    double lo_e = 0, lo_k = 0, hi_e = INFINITY, hi_k = 0;

    for (int i = 0; i < n; i++) {
        if (error[i] <= at && error[i] > lo_e) {
            lo_e = error[i];
            lo_k = kl[i];
        }
        if (error[i] > at && error[i] < hi_e) {
            hi_e = error[i];
            hi_k = kl[i];
        }
    }
    if (lo_e <= 0)
        return hi_e < INFINITY ? hi_k * at / hi_e : 0;
    if (hi_e == INFINITY)
        return lo_k * at / lo_e;
    if (!(lo_k > 0 && hi_k > 0))
        return lo_k + (hi_k - lo_k) * (at - lo_e) / (hi_e - lo_e);
    return exp(log(lo_k) + (log(hi_k) - log(lo_k)) * (log(at) - log(lo_e)) / (log(hi_e) - log(lo_e)));
}
