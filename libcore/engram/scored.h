/* SPDX-License-Identifier: Apache-2.0 */
/* scored.h - scored answers become epochs of a table where that does not hurt.           room: engram
 *
 * The new epochs, one for each domain, are a table of their own first. A model has read held-out text once
 * (engram/heard.h); then the old table is weighed with what it said, and with one new epoch after the other: an epoch
 * that makes the text less likely is left out.
 *
 *   engram_scored_open
 *   engram_scored_line ..., engram_scored_group    the answers
 *   engram_scored_build                            the new epochs
 *   engram_scored_test, engram_scored_write
 *   engram_scored_close */
#ifndef ENGRAM_SCORED_H
#define ENGRAM_SCORED_H
#include "engram/heard.h"

struct engram_scored;
struct text;

struct engram_scored_opts {
    const struct engram *old; /* the table that is there; NULL: none */
    const struct text *text;  /* the tokenizer, */
    uint64_t tokenizer;       /* and its text_fingerprint() */
    float score_min;          /* answers with less are left out */
    const char *domain;       /* of answers that name none; NULL: none */
    int64_t day;
    int order;
    uint64_t memory_bytes; /* for the answers, and again for the epochs' build */
    struct pool *pool;
};
/* What o points to outlives it. ERR_NOMEM. */
MUST_CHECK enum err_code engram_scored_open(struct engram_scored **out, const struct engram_scored_opts *o,
                                            struct err *e);
void engram_scored_close(struct engram_scored *s); /* NULL is allowed */
/* A line of JSON: {"text", "score"}, and perhaps "domain". A text without a line feed at its end gets one. ERR_LIMIT:
 * the answers take more than memory_bytes. */
MUST_CHECK enum err_code engram_scored_line(struct engram_scored *s, struct str line, struct err *e);
/* After all lines: the same answer counts once; one group for each domain. ERR_LIMIT: too many domains. */
MUST_CHECK enum err_code engram_scored_group(struct engram_scored *s, struct err *e);

struct engram_scored_counts {
    int64_t n;             /* answers that are new */
    int64_t n_other;       /* lines that are no answers */
    int64_t n_low;         /* answers that score too low, */
    int64_t n_known;       /* that are known */
    int n_groups, n_added; /* domains; those whose epochs are taken, after the test */
};
struct engram_scored_counts engram_scored_counts(const struct engram_scored *s);

/* Builds the new epochs as a table at `path`, which stays mapped and is removed. progress: answers. ERR_CANCEL. */
MUST_CHECK enum err_code engram_scored_build(struct engram_scored *s, const char *path, const struct progress *progress,
                                             struct err *e);

/* An epoch that was weighed: the perplexity of the model alone, without the epoch, and with it. */
struct engram_trial {
    double alone, before, after;
    bool added;
};
struct engram_scored_group {
    const char *domain; /* "": none */
    int64_t n;          /* answers */
    uint64_t tokens;
};
typedef enum err_code engram_tried_fn(void *ctx, const struct engram_scored_group *group,
                                      const struct engram_trial *trial, struct err *e);
/* Weighs one epoch after the other, beside those that were taken. mix: of no table, with the ceiling of the table's
 * weight. counts().n_added are taken. */
MUST_CHECK enum err_code engram_scored_test(struct engram_scored *s, const struct engram_heard *heard,
                                            const struct engram_mix *mix, engram_tried_fn *tried, void *ctx,
                                            struct err *e);
/* The old epochs and those that were taken. */
MUST_CHECK enum err_code engram_scored_write(const struct engram_scored *s, const char *path, struct err *e);

/* ---- the decision ---- */

/* The perplexity with the epochs that `with` marks; alone: of the model, without tables. */
typedef enum err_code engram_weigh_fn(void *ctx, const bool *with, bool alone, double *perplexity, struct err *e);
/* Marks those of n epochs that do not hurt: each is weighed beside those that were taken before. tried() is called
 * after each. */
MUST_CHECK enum err_code engram_choose(bool *with, int n, engram_weigh_fn *weigh,
                                       enum err_code (*tried)(void *ctx, int i, const struct engram_trial *t,
                                                              struct err *e),
                                       void *ctx, struct err *e);
#endif
