/* SPDX-License-Identifier: Apache-2.0 */
/* texts.h - texts of a model with the hidden states of each token, in memory of a fixed size.      room: train
 *
 * A text is a prompt and what the model wrote after it. If there is no more room, the oldest texts are removed. */
#ifndef TRAIN_TEXTS_H
#define TRAIN_TEXTS_H
#include "ops/math.h"

struct train_text_entry {
    int64_t at;       /* index of its first token in token[] and feature[] */
    int64_t n_prompt; /* tokens that the model did not write */
    int64_t n;        /* all tokens; the last one has no features, and needs none */
    int of;           /* the caller's number for its class */
    int source;       /* the caller's number for its prompt */
};
struct train_texts {
    int64_t cap, width;         /* tokens; features of a token */
    int32_t *token;             /* [cap] */
    uint16_t *feature;          /* [cap][width] BF16, in m's memory */
    struct dev_math *m;         /* not owned */
    struct train_text_entry *v; /* [n], oldest first */
    int64_t n, at;
    size_t cap_v, cap_sum;
    int64_t added; /* texts added so far; shows whether values computed from the texts are still valid */
    double *sum;   /* of train_texts_draw() */
    int64_t summed;
};
/* m: whose memory has the features; NULL: the host's. ERR_NOMEM. */
MUST_CHECK enum err_code train_texts_open(struct train_texts *t, struct dev_math *m, int64_t cap, int64_t width,
                                          struct err *e);
void train_texts_close(struct train_texts *t);
/* Copies a text; one that is longer than cap is left out. text.at is ignored. ERR_NOMEM. */
MUST_CHECK enum err_code train_texts_add(struct train_texts *t, struct train_text_entry text, const int32_t *token,
                                         const uint16_t *feature, struct err *e);
/* Draws a text by a random number 0 <= at < 1, in proportion to (tokens written)^0.75. There must be a text. ERR_NOMEM.
 */
MUST_CHECK enum err_code train_texts_draw(struct train_texts *t, double at, const struct train_text_entry **text,
                                          struct err *e);
int64_t train_texts_bytes(int64_t cap, int64_t width);
#endif
