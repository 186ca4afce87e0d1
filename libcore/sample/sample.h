/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - logits to a token: a chain of stages over a float array.          room: sample (base)
 *
 * Order of stages, each skipped when off (stages.def is this list):
 *   bias      adds each token's bias to its logit
 *   penalty   tokens in the last penalty_last_n: logit / repeat_penalty where it is above 0, else
 *             logit * repeat_penalty; then - presence_penalty - frequency_penalty * count
 *   dry       - dry_multiplier * dry_base^(m - dry_allowed_length) for a token that would continue
 *             a repetition of m >= dry_allowed_length tokens (its longest one)
 *   greedy    temp 0 ends here: the largest logit
 *   temp      divides logits by temp; from here on p is the softmax over what is left
 *   top_k     keeps the k largest
 *   top_p     keeps the fewest largest whose p sum to top_p or more
 *   min_p     keeps p >= min_p * the largest p
 *   typical   keeps the fewest with -ln p closest to the entropy whose p sum to typical_p or more
 *   draw      picks by p
 * Every cut keeps at least one token; where tokens tie at its edge, the lowest ids stay.
 * A draw depends on (seed, stream, tokens accepted so far) only: the same request gives the same
 * tokens alone or in a batch. One thread per sampler.
 */
#ifndef SAMPLE_SAMPLE_H
#define SAMPLE_SAMPLE_H
#include "base/base.h"

struct sample_bias {
    int32_t token;
    float   bias; /* added to the logit, twice if given twice; -INFINITY forbids the token */
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
    int32_t  penalty_last_n;    /* tokens looked back at; 0: off; -1: all */
    float    dry_multiplier;    /* 0: off */
    float    dry_base;          /* 1 or more */
    int32_t  dry_allowed_length; /* 1 to 1024; repetitions count up to 1024 tokens */
    int32_t  dry_last_n;        /* tokens looked back at; -1: all */
    const int32_t *dry_breakers; /* tokens that end a repetition; never penalised themselves */
    size_t   n_dry_breakers;
    const struct sample_bias *bias;
    size_t   n_bias;
    uint64_t seed;
    uint64_t stream;            /* number of the sequence in a batch of draws with one seed */
    int32_t  n_top;             /* log-probabilities of this many best tokens wanted */
};
/* Everything off, temp 0; penalties would look back at 64 tokens, DRY (base 1.75, allowed length 2)
 * at all. */
struct sample_opts sample_defaults(void);

struct sample_top {
    int32_t token;
    float   logprob; /* natural log, of the model's own distribution: softmax of the raw logits */
};
struct sample_pick {
    int32_t token;
    float   logprob;              /* as above, of the chosen token */
    const struct sample_top *top; /* best first, lowest id on ties; valid until the next call */
    int32_t n_top;                /* as asked for, or all tokens whose probability is not 0 */
};

struct sampler;

/* What the next choice needs of a row of logits that lies elsewhere, so that the row itself need not come. */
struct sample_want {
    int32_t        n_top;    /* so many of the largest logits; 0: the whole row */
    float          inv_temp; /* and the sum of exp((x - max) * inv_temp) */
    const int32_t *ids;      /* and the logits of these; valid until the sampler is used again */
    int32_t        n_ids;
};
/* The answer. Weights and sums are those of base/softmax.h; NaN counts as -inf, +inf as the largest float. */
struct sample_digest {
    const struct sample_top *top; /* logits: the largest, best first, lowest id on ties */
    int32_t      n_top;           /* as many as wanted, or all that are not -inf */
    const float *logits;          /* of the ids */
    float        max;             /* of the row */
    double       total, heated;   /* sums of exp(x - max), of exp((x - max) * inv_temp) */
};
enum { SAMPLE_WANT_TOP = 256, SAMPLE_WANT_IDS = 1024 };

/* Copies what o points to; takes about 4 bytes per token of the vocabulary, 16 when temp is not 0.
 * ERR_ARG names the option that is out of range. */
MUST_CHECK enum err_code sample_open(struct sampler **out, const struct sample_opts *o,
                                     int32_t n_vocab, struct err *e);
void sample_close(struct sampler *s);
/* A token that the sequence now contains (prompt or chosen): penalties and DRY look at these. The
 * only call that allocates, and only while penalties or DRY are on. */
MUST_CHECK enum err_code sample_accept(struct sampler *s, int32_t token, struct err *e);
/* Chooses from logits[n_vocab], which are left unchanged. NaN counts as -inf, +inf as the largest
 * float; when no logit is finite: ERR_DEVICE; when the bias forbids all that are: ERR_ARG. Does not
 * accept the choice. */
MUST_CHECK enum err_code sample_next(struct sampler *s, const float *logits,
                                     struct sample_pick *pick, struct err *e);

/* Of the row that comes next. */
void sample_want(struct sampler *s, struct sample_want *w);
/* As sample_next(), with the same result to the bit, from what sample_want() asked for last. Sets
 * *enough to false and chooses nothing when that does not settle the choice: then sample_next() is due. */
MUST_CHECK enum err_code sample_next_of(struct sampler *s, const struct sample_digest *d,
                                        struct sample_pick *pick, bool *enough, struct err *e);
#endif
