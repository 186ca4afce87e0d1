/* sample.h - logits to a token: a chain of stages over a float array.          room: sample (base)
 *
 * Order of stages (each skipped when off): logit bias, repetition / presence / frequency penalties,
 * DRY, [greedy ends here when temp is 0], temperature... see chimere-run(1), SAMPLING, which states the order.
 * A draw depends on (seed, stream, position) only: the same request gives the same tokens alone or
 * in a batch. One thread per sampler.
 */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H
#include "base/base.h"

struct sample_bias {
    int32_t token;
    float   bias; /* added to the logit; -INFINITY forbids the token */
};

struct sample_opts {
    float    temp;              /* 0: greedy, exact argmax, lowest id on ties */
    int32_t  top_k;             /* 0: off */
    float    top_p;             /* 1: off */
    float    min_p;             /* 0: off */
    float    typical_p;         /* 1: off */
    float    repeat_penalty;    /* 1: off (Keskar et al. 2019, CTRL) */
    float    presence_penalty;  /* 0: off */
    float    frequency_penalty; /* 0: off */
    int32_t  penalty_last_n;    /* tokens looked back at; -1: all */
    float    dry_multiplier;    /* 0: off */
    float    dry_base;
    int32_t  dry_allowed_length;
    int32_t  dry_last_n;        /* -1: all */
    const int32_t *dry_breakers; /* tokens that end a repetition */
    size_t   n_dry_breakers;
    const struct sample_bias *bias;
    size_t   n_bias;
    uint64_t seed;
    uint64_t stream;            /* number of the sequence in a batch of draws with one seed */
    int32_t  n_top;             /* log-probabilities of this many best tokens wanted */
};
/* Everything off, temp 0. */
struct sample_opts sample_defaults(void);

struct sample_top {
    int32_t token;
    float   logprob; /* natural log, of the model's own distribution: softmax of the raw logits */
};
struct sample_pick {
    int32_t token;
    float   logprob;              /* as above, of the chosen token */
    const struct sample_top *top; /* n_top entries, best first; valid until the next call */
    int32_t n_top;
};

struct sampler;
/* Copies what o points to. ERR_ARG names the option that is out of range. */
MUST_CHECK enum err_code sample_open(struct sampler **out, const struct sample_opts *o, int32_t n_vocab,
                                     struct err *e);
void sample_close(struct sampler *s);
/* A token that the sequence now contains (prompt or chosen): penalties and DRY look at these. */
MUST_CHECK enum err_code sample_accept(struct sampler *s, int32_t token, struct err *e);
/* Chooses from logits[n_vocab], which are left unchanged. NaN counts as -inf; when no logit is finite:
 * ERR_DEVICE. Does not accept the choice. */
MUST_CHECK enum err_code sample_next(struct sampler *s, const float *logits, struct sample_pick *pick,
                                     struct err *e);
#endif
