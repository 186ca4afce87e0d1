/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - what the files of the room share.                                       room: ramp */
#ifndef RAMP_INTERNAL_H
#define RAMP_INTERNAL_H
#include "ramp/ramp.h"

/* What a recipe may ask about a model. */
struct ramp_model {
    int64_t gqa;     /* query heads for each of keys, 0: not known */
    int64_t experts; /* 0: none */
    bool tied;       /* no output matrix of its own */
    bool importance;
};

/* merge.c: whether they change a tensor; a row of one; what goes into the file, malloc'ed, NULL: out of memory. */
bool ramp_merges(const struct ramp_merge *m, struct str name);
void ramp_merge_row(const struct ramp_merge *m, const struct gguf_tensor *t, int64_t r, float *w);
char *ramp_merge_text(const struct ramp_merge *m);
/* Files and scales. */
void ramp_merge_hash(const struct ramp_merge *m, uint64_t *h, void (*file)(uint64_t *h, const char *path));

size_t ramp_rules(const struct ramp_recipe *r);
int ramp_rule_type(const struct ramp_recipe *r, size_t i);
bool ramp_rule_floor(const struct ramp_recipe *r, size_t i); /* its type is the least, for whatever gives one */
int ramp_recipe_default(const struct ramp_recipe *r);        /* -1: none */
int64_t ramp_recipe_file_type(const struct ramp_recipe *r);
/* Does the expression of rule i fit? ERR_FORMAT: it needs too many steps. */
MUST_CHECK enum err_code ramp_rule_names(const struct ramp_recipe *r, size_t i, struct str name, bool *fits,
                                         struct err *e);
/* Do the conditions of a rule hold for the layer in place i of the n that have a tensor of its names? */
bool ramp_rule_holds(const struct ramp_recipe *r, size_t rule, const struct ramp_model *m, int64_t i, int64_t n);

/* What rules say of a tensor: rows of quant_types[], -1: nothing. Kept tensors have neither. */
struct ramp_ruled {
    int type, floor;
};
MUST_CHECK enum err_code ramp_rules_apply(struct ramp_ruled *out, const struct ramp_recipe *r, const struct gguf *g,
                                          bool importance, struct err *e);

/* plan.c: the number after "blk.", or -1. */
int64_t ramp_layer_of(struct str tensor);

/* Rows of a tensor in another type. */
struct ramp_encoding {
    const struct gguf_tensor *t; /* these three by the caller, before ramp_encode() */
    int type;
    const float *weights;           /* of columns, NULL: all count alike */
    const struct ramp_merge *merge; /* NULL: none */
    struct pool *pool;
    unsigned simd;
    int effort;
    bool unbiased;
    float *rows; /* two for each thread */
    int64_t longest, rows_max, first, step;
    const int64_t *pick; /* rows instead of first, first + step ...; NULL: none */
    unsigned char *bad;  /* [rows_max] a row has what is not finite */
    unsigned char *out;
};
/* For rows of up to `longest` elements, up to rows_max at once. */
MUST_CHECK enum err_code ramp_encoding_open(struct ramp_encoding *c, int64_t longest, int64_t rows_max,
                                            const struct ramp_coder *by, struct err *e);
void ramp_encoding_close(struct ramp_encoding *c);
/* Rows of n elements to encode at once, at least 1: what a signal waits for is a quarter of a second of the slowest
 * types. */
int64_t ramp_batch_rows(const struct ramp_coder *by, int64_t n);
/* Rows first, first + step, ... n of them, to `out`, side by side. ERR_FORMAT: one has a value that is not finite. */
MUST_CHECK enum err_code ramp_encode(struct ramp_encoding *c, void *out, int64_t first, int64_t step, int64_t n,
                                     struct err *e);

const char *ramp_importance_path(const struct ramp_importance *im);
/* Weights of the columns of matrix `at` of a tensor, or NULL; ERR_FORMAT when the shapes differ. buf: ne[0] floats. */
MUST_CHECK enum err_code ramp_importance_of(const struct ramp_importance *im, const struct gguf_tensor *t, int64_t at,
                                            float *buf, const float **out, struct err *e);
#endif
