/* SPDX-License-Identifier: Apache-2.0 */
/* chain.h - inside the room: the sampler and what its stages share.            room: sample
 *
 * sample_next_row copies the logits into x and sends them through the stages of stages.def in order.
 * Edits (mix, bias, penalties, DRY) change single entries through sample_edit. Cuts shrink x to a
 * list of candidates in ascending id; nothing is ever sorted, so a draw walks ids upwards.
 * Work goes by blocks of SAMPLE_BLOCK entries whose largest value is kept: a cut opens only the
 * blocks that can hold a survivor. Sums: each block by halving, then the block sums by halving
 * (base/softmax.h), all in double.
 */
#ifndef SAMPLE_CHAIN_H
#define SAMPLE_CHAIN_H
#include "base/arena.h"
#include "base/softmax.h"
#include "sample/sample.h"

enum {
    SAMPLE_BLOCK = SOFTMAX_BLOCK,
    SAMPLE_BINS = 2048,
};

typedef enum err_code sample_stage_fn(struct sampler *s, struct err *e);
#define STAGE(name, on) sample_stage_fn sample_stage_##name;
#include "sample/stages.def"
#undef STAGE
#define STAGE(name, on) +1
enum {
    SAMPLE_N_STAGES = 0
#include "sample/stages.def"
};
#undef STAGE

/* Tokens seen in the penalty window, each once, with their counts. */
struct sample_counts {
    int32_t *slot;  /* [n_vocab] index into token and count, plus 1; 0: not seen */
    int32_t *token; /* [n] */
    int32_t *count; /* [n] */
    int32_t n;
};

struct sample_dry {
    uint8_t *breaker; /* [n_vocab] 1: ends a repetition */
    uint16_t *length; /* [n_vocab] longest repetition the token would continue; 0 between calls */
    int32_t *found;   /* [n_vocab] tokens with length > 0 */
    uint16_t *z;      /* [SAMPLE_DRY_MAX] the Z-function's beginning */
    float *power;     /* [SAMPLE_DRY_MAX] multiplier * base^i */
};

struct sampler {
    struct sample_opts opts; /* its pointers point into arena */
    const struct softmax_kernels *kernels;
    sample_stage_fn *stages[SAMPLE_N_STAGES]; /* those that are on */
    int32_t n_stages;
    int32_t n_vocab;
    int32_t n_blocks;
    struct arena arena; /* everything below but history */

    int32_t *history; /* [n_history] what penalties and DRY look back at; grows */
    size_t n_history, history_cap;
    uint64_t position; /* tokens accepted */
    struct sample_counts counts;
    struct sample_dry dry;

    /* One choice. Arrays hold n_blocks * SAMPLE_BLOCK entries. */
    float *x;               /* logits; entries from n on are -inf */
    float *block_max;       /* [n_blocks] largest x of each block, while dense */
    uint8_t *dirty;         /* [n_blocks] an edit made block_max wrong */
    double *block_sum;      /* [n_blocks] of w */
    double *sums;           /* [3][n_blocks] for softmax_fold() */
    float *w;               /* weights exp((x - max) / temp), when weighed */
    int32_t *id;            /* token of each candidate, unless dense */
    uint32_t *key;          /* what a cut orders by, ascending */
    double *bins;           /* [SAMPLE_BINS] */
    struct sample_top *top; /* [n_top] */
    int32_t n;              /* candidates */
    bool dense;             /* candidates are still all of the vocabulary, id is not used */
    bool weighed;           /* w, block_sum and total are valid */
    double total;           /* of w */
    float max;              /* largest x */
    float inv_temp;
    int32_t token; /* chosen; -1 while open */

    const struct sample_mix *mix; /* of this choice; NULL: none */
    const int32_t *shun;          /* [n_shun] */
    int32_t n_shun;
    double mass; /* of exp(x - max) before the stages: the sum that mix is relative to */

    /* sample_next_digest(): x holds the tokens that are known, the others are -inf. */
    uint32_t *known_bit; /* [n_blocks * SAMPLE_BLOCK / 32] tokens that are known; 0 between calls */
    bool empty;          /* x and block_max are all -inf */
    bool sparse;         /* in such a call */
    bool edited;         /* some logit is not the model's */
    bool lacking;        /* a stage needs more than is known */
    float known;         /* every logit above is known; of equal ones, those with the lowest ids */
    double heated;       /* total of all tokens, unless edited */
};

/* chain.c */
void sample_edit(struct sampler *s, int32_t token, float logit);
void sample_forbid(struct sampler *s, int32_t token); /* needs no logit */
/* The token's logit is known, or s is lacking. */
bool sample_knows(struct sampler *s, int32_t token);
/* From the model's logits in x to a token: pick but for its logprob, or s->lacking. */
MUST_CHECK enum err_code sample_run(struct sampler *s, struct err *e);
/* What comes with a choice: noted, or ERR_ARG. */
MUST_CHECK enum err_code sample_with(struct sampler *s, const struct sample_mix *mix, const int32_t *shun,
                                     int32_t n_shun, struct err *e);
/* dry.c */
int32_t sample_dry_ids(struct sampler *s, int32_t *ids, int32_t max); /* that it would edit now */
/* penalty.c */
void sample_counts_add(struct sample_counts *c, int32_t token);
void sample_counts_drop(struct sample_counts *c, int32_t token);
/* pick.c */
int32_t sample_best(struct sampler *s); /* fills top with raw x, best first; how many there are */
/* cut.c */
void sample_weigh(struct sampler *s); /* makes w valid */
float sample_inv_temp(const struct sample_opts *o);
/* digest.c: notes that s is lacking unless all logits from v up are known. */
void sample_needs(struct sampler *s, float v);
#endif
