/* SPDX-License-Identifier: Apache-2.0 */
/* sample.h - logits to a token: a chain of stages over a float array.          room: sample
 *
 * Order of stages, each skipped when off (stages.def is this list):
 *   shun      forbids the tokens that the caller shuns
 *   mix       mixes a sparse distribution in (struct sample_mix)
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
#include "base/logits.h"
#include "sample/options.h"

struct sample_bias {
    int32_t token;
    float bias; /* added to the logit, twice if given twice; -INFINITY forbids the token */
};

struct sample_opts {
    /* temp 0: greedy, exact argmax, lowest id on ties; a float or a whole number each (options.h) */
#define SAMPLE_TYPE_REAL               float
#define SAMPLE_TYPE_WHOLE              int32_t
#define SAMPLE_MEMBER(kind, name, ...) SAMPLE_TYPE_##kind name;
    SAMPLE_OPTIONS(SAMPLE_MEMBER, 0)
    const int32_t *dry_breakers; /* tokens that end a repetition; never penalised themselves */
    size_t n_dry_breakers;
    const struct sample_bias *bias;
    size_t n_bias;
    uint64_t seed;
    uint64_t stream; /* number of the sequence in a batch of draws with one seed */
    int32_t n_top;   /* log-probabilities of this many best tokens wanted */
};
/* Everything off, temp 0. If they are switched on, penalties look back at 64 tokens, and DRY (base
 * 1.75, allowed length 2) at all. */
struct sample_opts sample_defaults(void);

struct sample_top {
    int32_t token;
    float logprob; /* natural log, of the model's own distribution: softmax of the raw logits */
};
struct sample_pick {
    int32_t token;
    float logprob;                /* as above, of the chosen token */
    const struct sample_top *top; /* best first, lowest id on ties; valid until the next call */
    int32_t n_top;                /* as asked for, or all tokens whose probability is not 0 */
};

struct sampler;

/* A sparse distribution q to mix into the model's p, the softmax over the tokens that the mask
 * allows: p' = (1 - w Q) p + w q, where Q is the sum of q over those of its tokens that are neither
 * masked nor shunned; q of the others is dropped. What Q lacks to 1 stays the model's. Bias and all
 * that follows work on p'. For every token -ln p' <= -ln p - ln(1 - w): w = 1 - exp(-b) costs at
 * most b nats. */
struct sample_mix {
    const int32_t *token; /* [n], n <= SAMPLE_MIX_MAX, no token twice */
    const float *q;       /* of each, 0 .. 1; their sum is at most 1 */
    int32_t n;
    float weight; /* w, 0 .. 1 (1 - 2^-20 stands for what is above); 0 changes no bit */
};
enum { SAMPLE_MIX_MAX = 32 };

/* Copies what o points to; takes about 4 bytes per token of the vocabulary, 16 when temp is not 0.
 * ERR_ARG: the place is the option that is out of range, "/top_p" or "/bias/2"; the message does not name it. */
MUST_CHECK enum err_code sample_open(struct sampler **out, const struct sample_opts *o, int32_t n_vocab, struct err *e);
void sample_close(struct sampler *s);
/* A token that the sequence now contains (prompt or chosen): penalties and DRY look at these. The
 * only call that allocates, and only while penalties or DRY are on. */
MUST_CHECK enum err_code sample_accept(struct sampler *s, int32_t token, struct err *e);
/* Takes back the newest n accepted tokens; no more than were accepted. To find out what a row needs if the guesses
 * before it are right: accept them, call sample_wants(), and take them back. */
void sample_back(struct sampler *s, uint64_t n);

/* What the next choice needs of the row that comes next, so that the row itself need not be fetched.
 * ids: room for LOGITS_IDS_MAX tokens, which w->ids points to. mix: NULL, or the tokens that will be
 * mixed in; q and weight may be set later. w->mask is NULL: the caller may set it, and ask for more
 * (a larger n_top, more ids). */
void sample_wants(struct sampler *s, const struct sample_mix *mix, struct logits_want *w, int32_t *ids);
/* Chooses from a digest of the row. mix: NULL for none. shun: tokens that may not be chosen. *enough
 * false: nothing was chosen, and the caller must use sample_next_row(). Else the result is the same
 * as that of sample_next_row(), to the bit. Errors as there. */
MUST_CHECK enum err_code sample_next_digest(struct sampler *s, const struct logits_digest *d,
                                            const struct sample_mix *mix, const int32_t *shun, int32_t n_shun,
                                            struct sample_pick *pick, bool *enough, struct err *e);
/* Chooses from logits[n_vocab], which are left unchanged. mask: bit t % 32 of word t / 32 is set
 * where token t may be chosen; NULL: all may. NaN counts as -inf, +inf as the largest float; when no
 * logit is finite: ERR_DEVICE. ERR_ARG: mask, bias and shun forbid all tokens with a finite logit; a
 * token outside the vocabulary; a mix out of range. The place is "/bias", "/shun/2" and so on, named by
 * the message, too. Does not accept the choice. */
MUST_CHECK enum err_code sample_next_row(struct sampler *s, const float *logits, const uint32_t *mask,
                                         const struct sample_mix *mix, const int32_t *shun, int32_t n_shun,
                                         struct sample_pick *pick, struct err *e);
/* The sums of a digest, to the bit, computed from a whole row: max, second, total, weighted, squared, raw_max,
 * raw_total; the rest of *d is 0. Where no logit is finite the sums are 0. */
void sample_sums(struct sampler *s, const float *logits, const uint32_t *mask, struct logits_digest *d);

/* What a row's distribution over the tokens that may be chosen looks like. */
struct sample_numbers {
    float p_max;      /* the largest probability */
    float entropy;    /* H = -sum p ln p, in nats */
    float varentropy; /* sum p (ln p + H)^2 */
    float margin;     /* the largest probability less the next one; NaN: the digest has one logit alone */
};
/* Where no logit is finite all are NaN. */
struct sample_numbers sample_numbers(const struct logits_digest *d);
#endif
