/* SPDX-License-Identifier: Apache-2.0 */
/* chain.h - inside the room: the sampler and what its stages share.            room: sample
 *
 * sample_next copies the logits into x and sends them through the stages of stages.def in order.
 * Edits (bias, penalties, DRY) change single entries through sample_edit. Cuts shrink x to a
 * list of candidates in ascending id; nothing is ever sorted, so a draw walks ids upwards.
 * Work goes by blocks of SAMPLE_BLOCK entries whose largest value is kept: a cut opens only the
 * blocks that can hold a survivor. Sums: each block by halving (block_body.h), then the block sums in
 * ascending order, all in double.
 */
#ifndef SAMPLE_CHAIN_H
#define SAMPLE_CHAIN_H
#include "base/arena.h"
#include "sample/sample.h"

enum {
    SAMPLE_BLOCK   = 256,
    SAMPLE_DRY_MAX = 1024, /* a repetition counts up to this length, in tokens */
    SAMPLE_BINS    = 2048,
};

struct sample_kernels {
    float (*scan)(const float *in, float *x);
    void (*weigh)(const float *x, float *w, float max, float inv_temp);
    double (*sum)(const float *w);
};
const struct sample_kernels *sample_kernels_for(unsigned features); /* bits of base/simd.h */

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
    int32_t  n;
};

struct sample_dry {
    uint8_t *breaker; /* [n_vocab] 1: ends a repetition */
    uint16_t *length; /* [n_vocab] longest repetition the token would continue; 0 between calls */
    int32_t *found;   /* [n_vocab] tokens with length > 0 */
    uint16_t *z;      /* [SAMPLE_DRY_MAX] the Z-function's beginning */
    float    *power;  /* [SAMPLE_DRY_MAX] multiplier * base^i */
};

struct sampler {
    struct sample_opts opts; /* its pointers point into arena */
    const struct sample_kernels *kernels;
    sample_stage_fn *stages[SAMPLE_N_STAGES]; /* those that are on */
    int32_t n_stages;
    int32_t n_vocab;
    int32_t n_blocks;
    struct arena arena; /* everything below but history */

    int32_t *history; /* [n_history] what penalties and DRY look back at; grows */
    size_t   n_history, history_cap;
    uint64_t position; /* tokens accepted */
    struct sample_counts counts;
    struct sample_dry dry;

    /* One call of sample_next. Arrays hold n_blocks * SAMPLE_BLOCK entries. */
    float   *x;         /* logits; entries from n on are -inf */
    float   *block_max; /* [n_blocks] largest x of each block, while dense */
    uint8_t *dirty;     /* [n_blocks] an edit made block_max wrong */
    double  *block_sum; /* [n_blocks] of w */
    float   *w;         /* weights exp((x - max) / temp), when weighed */
    int32_t *id;        /* token of each candidate, unless dense */
    uint32_t *key;      /* what a cut orders by, ascending */
    double  *bins;      /* [SAMPLE_BINS] */
    struct sample_top *top; /* [n_top] */
    int32_t n;       /* candidates */
    bool    dense;   /* candidates are still all of the vocabulary, id is not used */
    bool    weighed; /* w, block_sum and total are valid */
    double  total;   /* of w */
    float   max;     /* largest x */
    float   inv_temp;
    int32_t token;   /* chosen; -1 while open */
};

/* chain.c */
void sample_edit(struct sampler *s, int32_t token, float logit);
/* penalty.c */
void sample_counts_add(struct sample_counts *c, int32_t token);
void sample_counts_drop(struct sample_counts *c, int32_t token);
/* pick.c */
int32_t sample_best(struct sampler *s); /* fills top with raw x, best first; how many there are */
/* cut.c */
void sample_weigh(struct sampler *s); /* makes w valid */
#endif
