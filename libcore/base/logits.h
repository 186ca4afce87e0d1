/* SPDX-License-Identifier: Apache-2.0 */
/* logits.h - what a caller wants to know of a row of logits, and the answer.   room: base
 *
 * A row has n_vocab floats and may stay on the device. The operation that reads it (op_top), the run
 * that asks for it and the sampler that chooses from it share these two structs. NaN counts
 * as -inf, +inf as the largest float. Weights and their sums are those of base/softmax.h.
 */
#ifndef BASE_LOGITS_H
#define BASE_LOGITS_H
#include "base/base.h"

enum { LOGITS_TOP_MAX = 256, LOGITS_IDS_MAX = 1024 };

struct logits_want {
    int32_t n_top;        /* 1 .. LOGITS_TOP_MAX largest logits; 0: the row itself */
    float inv_temp;       /* for the sum `heated` */
    const int32_t *ids;   /* [n_ids] the logits of these tokens are wanted too; read as the step begins */
    int32_t n_ids;        /* <= LOGITS_IDS_MAX */
    const uint32_t *mask; /* bit t % 32 of word t / 32 is set: token t may be chosen; NULL: all
                           * may. Others count as -inf in all but raw_max and raw_total. */
};
struct logits_entry {
    int32_t token;
    float logit;
};
struct logits_digest {
    const struct logits_entry *top; /* [n_top] best first, lowest id on ties */
    int32_t n_top;
    bool all;            /* top has every logit that is not -inf */
    const int32_t *ids;  /* [n_ids] the tokens asked for; -1: none */
    const float *logits; /* [n_ids] their logits */
    int32_t n_ids;
    float max;        /* of the tokens that may be chosen */
    double total;     /* of w = exp(x - max) */
    double heated;    /* of exp((x - max) inv_temp) */
    double weighted;  /* of w (x - max): the entropy is ln(total) - weighted / total */
    double squared;   /* of w (x - max)^2: the varentropy is squared / total - (weighted / total)^2 */
    float second;     /* of these tokens, the largest logit but one; -inf: there is none; NaN: n_top was 1 */
    float raw_max;    /* of the whole row */
    double raw_total; /* of exp(x - raw_max) of the whole row: log-probabilities refer to it */
};
#endif
