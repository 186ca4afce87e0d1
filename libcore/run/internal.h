/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside the room run. */
#ifndef RUN_INTERNAL_H
#define RUN_INTERNAL_H
#include "model/forward.h"
#include "run/run.h"

/* A snapshot of the recurrent layers at a position of a sequence. */
struct rung {
    int64_t pos;
    int block; /* of run_cache.blocks */
    bool grid; /* keeps the spacing: never dropped for another */
    bool mark; /* asked for */
};

/* The tokens of a sequence, and its rungs. */
struct track {
    int32_t *token;    /* [ctx]; run_pos() of them */
    struct rung *rung; /* [per_seq], ascending */
    int n;
};

/* Blocks are shared by forked sequences: no list is longer than per_seq, so a block is always spare. */
struct run_cache {
    size_t rec_bytes;      /* of a block; 0: no recurrent layers */
    int per_seq;           /* rungs of a sequence, at most */
    int64_t spacing;       /* tokens between rungs of the grid; 0: no grid */
    unsigned char *blocks; /* [n_seq * per_seq][rec_bytes], taken from the system as it is touched */
    int *shared;           /* [n_seq * per_seq] rungs that hold the block */
    int *spare;            /* stack of blocks that nobody holds */
    int n_spare;
    unsigned char *before; /* [n_seq][rec_bytes] copies from before a step that may be aborted; NULL: none may be */
    bool *has_before;      /* [n_seq] `before` has a copy for the current step */
    int64_t *pos_before;   /* [n_seq] tokens before it */
    struct track *track;   /* [n_seq] */
    int32_t *tokens;
    struct rung *rungs;
};

/* A sequence's adapters, without those of scale 0. */
struct run_list {
    int n;
    struct run_adapter v[RUN_ADAPTERS_MAX];
    uint64_t key[RUN_ADAPTERS_MAX]; /* model_adapter_key() when the sequence got its first token */
};

struct run_adapt {
    int rank;              /* run_opts.adapter_rank; 0: only `list` is allocated */
    struct run_list *list; /* [n_seq] */
    const struct model_adapter *of[RUN_ADAPTERS_STEP];
    struct model_adapt step;
    int32_t *which, *which_picked; /* [rows_max], [logits_max] of RUN_ADAPTERS_MAX */
    float *scale, *scale_picked;
};

/* A step: what was asked, and where the answer is. A step of all rows is number 0; those that are under way with others
 * are number 1 and on (run_flights()), and have a part each of the arrays that it has whole. */
struct run_asked {
    int first_row, first_pick; /* of its part of [rows_max] and of [logits_max] */
    int rows_max, logits_max;
    int n_rows, n_used, n_pick; /* rows, sequences, rows of logits */
    bool under_way;
    bool digests;      /* were asked for: */
    struct op_top top; /* for all its rows of logits */
};

struct run {
    struct model *m;
    struct state *state;
    int64_t ctx;
    int n_seq, rows_max, logits_max, draft_max;
    int n_flights; /* 1: none but number 0 */
    struct run_asked asked[1 + RUN_FLIGHTS_MAX];
    struct run_asked *now;        /* the step in hand */
    const struct run_asked *last; /* whose logits run_logits() has */
    int n_under_way;
    int *flight;        /* [n_seq] the step under way that has the sequence; 0: none has */
    bool (*stop)(void); /* run_opts */
    bool stop_keeps;
    int *draft; /* [n_seq] draft rows that are not settled */
    int32_t n_vocab;
    struct run_cache cache;
    float *logits;                /* [logits_max][n_vocab] on the device, taken from the system as it is touched */
    float *fetched;               /* the same on the host; where the device is the host, the same memory */
    bool *here;                   /* [rows_max] rows of logits that have been fetched */
    struct run_want_memory *want; /* NULL where the device is the host */
    size_t logits_bytes;
    /* For tests: [n_layer + 2][n][n_embd] the residual stream of the next step, the input of layer 0, the output of
     * every layer, the output of the final norm; NULL: not wanted. */
    float *hidden;
    struct model_taps taps; /* n 0: none */
    int tap_layer[RUN_TAPS_MAX];
    size_t tap_bytes;
    struct run_adapt adapt;
    /* the current step, [rows_max] each; rows are sorted by sequence, those of one sequence keep their order */
    int32_t *token, *pos;
    int32_t *pick;        /* then as many for the pieces of a step */
    int *logits_of;       /* caller's row -> row of logits, -1: not asked for */
    int *place;           /* caller's row -> sorted row */
    struct op_seq *seq;   /* [n_seq], then room for the parts and pieces of a step */
    int32_t *table_row;   /* [rows_max][model_table_rows()] */
    int *count;           /* [n_seq] first the rows of each sequence, later the place of its next row */
    int64_t *grow;        /* [n_seq] rows that each sequence would get, for state_kv_need() */
    struct run_row *feed; /* for run_feed() */
    int type_k, type_v;   /* rows of quant_types[] */
};

/* run.c: the rows in front of a sequence without tokens are computed with its adapters, if it has any. */
MUST_CHECK enum err_code run_meta_rows(struct run *r, int seq, struct err *e);

/* digest.c */
MUST_CHECK enum err_code run_want_open(struct run *r, struct err *e);
void run_want_close(struct run *r);
MUST_CHECK enum err_code run_want_check(const struct run *r, const struct run_row *rows, const struct logits_want *want,
                                        int n, struct err *e);
/* What the step in hand has to find in its rows of logits (NULL: nothing), and where it puts the answers: *digest on
 * the device, *answer on the host. want: in the order of the caller's rows, or NULL. masks is called now, or later by
 * the step. */
const struct op_top *run_want_begin(struct run *r, const struct logits_want *want, run_masks *masks, void *ctx,
                                    void **digest, void **answer);

/* flight.c */
/* How many steps may be under way at once, and their parts of the arrays. */
void run_flights_open(struct run *r, const struct run_opts *o);

/* run.c: a step of r->asked[number] is done, or under way. An error has been dealt with. */
MUST_CHECK enum err_code run_start(struct run *r, int number, const struct run_row *rows,
                                   const struct logits_want *want, int n, run_masks *masks, void *ctx, struct err *e);

/* taps.c */
MUST_CHECK enum err_code run_taps_open(struct run *r, const struct run_opts *o, struct err *e);
void run_taps_close(struct run *r);

/* adapt.c */
MUST_CHECK enum err_code run_adapt_open(struct run *r, const struct run_opts *o, struct err *e);
void run_adapt_close(struct run *r);
/* Checks that the sequences which get rows (r->count) can have their adapters in this step. */
MUST_CHECK enum err_code run_adapt_check(struct run *r, struct err *e);
/* The adapter lists of the step's sorted rows; NULL: no row has adapters. */
const struct model_adapt *run_adapt_begin(struct run *r);
uint64_t run_adapt_hash(const struct run *r, int seq); /* run_adapters_hash() of what it has */

/* cache.c */
/* before: for a step with these rows that may be aborted. Copies what the step changes in sequences that have several
 * rows in it, since these would have to be read again. back: restores it. */
MUST_CHECK enum err_code run_cache_before(struct run *r, const struct run_row *rows, int n, struct err *e);
void run_cache_back(struct run *r, int seq);
MUST_CHECK enum err_code run_cache_open(struct run *r, int64_t bytes, struct err *e);
void run_cache_close(struct run *r);
/* n tokens were appended to a sequence. */
void run_cache_append(struct run *r, int seq, int64_t pos, const int32_t *tokens, int n);
/* The sequence has no drafts left: takes a rung if one is due. */
void run_cache_grown(struct run *r, int seq);
/* The sequence was cut to pos tokens: rungs beyond are dropped. */
void run_cache_cut(struct run *r, int seq, int64_t pos);
void run_cache_fork(struct run *r, int dst, int src);
/* The sequence was loaded: run_pos() of these tokens. */
void run_cache_loaded(struct run *r, int seq, const int32_t *tokens);
/* Compares two lists of tokens; `kept` of the result is 0. */
struct run_match run_cache_compare(const int32_t *had, int64_t n_had, const int32_t *given, int64_t n_given);
/* The snapshot at the newest mark with from < position < to; NULL: none. */
const void *run_cache_mark(const struct run *r, int seq, int64_t from, int64_t to, int64_t *pos);
#endif
