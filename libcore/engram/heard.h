/* SPDX-License-Identifier: Apache-2.0 */
/* heard.h - what a model says of texts; then any number of tables can be weighed without it.     room: engram */
#ifndef ENGRAM_HEARD_H
#define ENGRAM_HEARD_H
#include "engram/build.h"
#include "engram/mix.h"

struct engram_heard_text {
    int32_t *token; /* [n], n >= 2 */
    int64_t n;
    size_t cap;
};
/* Of a token that came. */
struct engram_heard_token {
    double p;   /* its probability */
    float sure; /* that of the likeliest one */
    int32_t window;
};
struct engram_heard {
    struct engram_heard_text *text; /* [n_texts] */
    struct engram_heard_text open;  /* a text that is not complete */
    size_t n_texts;
    struct engram_heard_token *said; /* [n] of all texts, one after the other: each token but the first */
    int64_t n;
    size_t cap;
    int64_t n_windows; /* set by the caller */
};
void engram_heard_close(struct engram_heard *h);
/* Adds tokens to the newest text; end: it is complete. One of a single token is left out. */
MUST_CHECK enum err_code engram_heard_text(struct engram_heard *h, const int32_t *token, int64_t n, bool end,
                                           struct err *e);
/* What the model says of the next token: the logits [n_vocab] before it. ERR_DEVICE: they are not numbers. */
MUST_CHECK enum err_code engram_heard_say(struct engram_heard *h, int64_t window, int32_t token, const float *logits,
                                          int32_t n_vocab, struct err *e);

struct engram_heard_score {
    double before, after; /* sums of -ln p: of the model, with the tables */
    double *window_gain;  /* [n_windows] of `after`, and the tokens; NULL: not asked for */
    int64_t *window_n;
};
/* The tables' word on each token is added to *s. Each text begins as an answer without a prompt does. believed: the
 * tables have their most cautious weights throughout, whatever they said before: what they claim is judged then, not
 * what is left of it. */
void engram_heard_weigh(const struct engram_heard *h, const struct engram_mix *mix, bool believed,
                        struct engram_heard_score *s);
double engram_heard_perplexity(const struct engram_heard *h,
                               const struct engram_mix *mix); /* believed. NAN: no token */
#endif
