/* SPDX-License-Identifier: Apache-2.0 */
/* ramp.h - mixes of types for a model, and models written in them.          room: ramp
 *
 * A recipe is a list of rules, chimere-recipe(5): which tensors get which type. A plan is a recipe applied to one
 * model. ramp_quantize() writes the model by a plan. One caller at a time. Only ramp_quantize() and ramp_check() use
 * several threads, and their results do not depend on how many.
 */
#ifndef RAMP_RAMP_H
#define RAMP_RAMP_H
#include "gguf/gguf.h"

struct adapter;
struct pool;

/* Rules in the order they were added; the first that fits a tensor gives its type. */
struct ramp_recipe;
MUST_CHECK enum err_code ramp_recipe_open(struct ramp_recipe **out, struct err *e);
void ramp_recipe_close(struct ramp_recipe *r); /* NULL is allowed */
/* Appends lines to a recipe; `from` names them in messages: ERR_FORMAT "FROM:LINE: what is wrong".
 * A second default or file type is one of the errors. */
MUST_CHECK enum err_code ramp_recipe_add(struct ramp_recipe *r, struct str text, const char *from, struct err *e);
/* Appends one rule, REGEX = TYPE or REGEX >= TYPE, and nothing else. */
MUST_CHECK enum err_code ramp_recipe_add_rule(struct ramp_recipe *r, struct str rule, struct err *e);
/* *found: the expression of rule i fits the name of a tensor that is not always kept. ERR_FORMAT: it needs too many
 * steps. */
MUST_CHECK enum err_code ramp_rule_finds(const struct ramp_recipe *r, size_t i, const struct gguf *g, bool *found,
                                         struct err *e);
bool ramp_recipe_empty(const struct ramp_recipe *r);    /* no rule and no default: types stay as they are */
bool ramp_recipe_unbiased(const struct ramp_recipe *r); /* for ramp_coder */
/* The rules as lines, NUL-terminated; lives as long as the recipe and until rules are added. */
const char *ramp_recipe_text(const struct ramp_recipe *r);

struct ramp_choice {
    int type;      /* row of quant_types[] */
    bool kept;     /* the tensor's bytes are copied */
    bool replaced; /* the rows are no multiple of the rule's blocks, so a wider type with smaller blocks is used */
};
struct ramp_plan {
    struct ramp_choice *v; /* one for each tensor of the model */
    size_t n;
    uint64_t bytes, elems; /* of the tensors' data, without padding */
    int64_t file_type;     /* general.file_type, -1: not known */
};
/* Without any rule or default all tensors are kept. Vectors, norms, routers, small convolutions and position tables are
 * kept whatever the recipe says, and so are tensors that have the type already. Other tensors that are not f32, f16 or
 * bf16 are ERR_UNSUPPORTED without `again`, because their errors would add up. importance: there will be an importance
 * file, for rules that ask for it. */
MUST_CHECK enum err_code ramp_plan_open(struct ramp_plan *out, const struct ramp_recipe *r, const struct gguf *g,
                                        bool importance, bool again, struct err *e);
void ramp_plan_close(struct ramp_plan *p);

/* Adapters that become a part of the weights, each times its scale, before those are encoded. */
enum { RAMP_MERGE_MAX = 8 };
struct ramp_merge {
    int n;
    const struct adapter *adapter[RAMP_MERGE_MAX]; /* adapter_check()ed against the model */
    float scale[RAMP_MERGE_MAX];
};
/* Changes the plan so that the tensors which the adapters change are not copied. ERR_UNSUPPORTED: such a tensor is
 * quantized and would keep its type, and `again` is false; or this build does not write its type. */
MUST_CHECK enum err_code ramp_plan_merge(struct ramp_plan *p, const struct gguf *g, const struct ramp_merge *m,
                                         bool again, struct err *e);

/* Mean squares of the inputs of matrices, llama.cpp's imatrix files in GGUF form: for each weight the
 * tensors NAME.in_sum2 [inputs, matrices] and NAME.counts [1, matrices]. */
struct ramp_importance;
MUST_CHECK enum err_code ramp_importance_open(struct ramp_importance **out, const char *path, struct err *e);
/* ERR_FORMAT: a matrix of the model has another shape there or a number that is negative or not finite; all numbers are
 * 0; or the file is of another model: it has none of the matrices, or more than half of its own are not in the model.
 * Reads all of the file. has: [tensors] true for those that it has; kept ones are false. */
MUST_CHECK enum err_code ramp_importance_check(const struct ramp_importance *im, const struct gguf *g, bool *has,
                                               struct err *e);
void ramp_importance_close(struct ramp_importance *im); /* NULL is allowed */

/* How rows are written in another type. */
struct ramp_coder {
    struct pool *pool;
    unsigned simd;
    int effort; /* enum quant_effort */
    /* The block with the least squared error is a little shorter than the original weights, so products are too small,
     * in all layers alike, which harms a model more than the error itself. With this each block's scales are raised
     * until its dot product with the original weights equals their squared length; the error grows by the same part.
     * For types whose blocks have scales in f16, all but iq1_m, tq1_0, tq2_0, mxfp4, nvfp4. */
    bool unbiased;
};

struct ramp_job {
    const struct gguf *g;
    const struct ramp_plan *plan;
    const struct ramp_importance *importance; /* or NULL: all columns count alike */
    const struct ramp_merge *merge;           /* or NULL; the plan knows of it */
    const char *recipe;                       /* text, goes into the file */
    const char *version;                      /* of the program, likewise */
    struct ramp_coder coder;
    struct progress progress; /* of elements */
    size_t *had;              /* NULL, or how many tensors a killed process had written */
};
/* Writes job->g to path (gguf_write_open() and its promises) with its metadata and, beside these,
 *     chimere.quantize.version, .recipe   strings
 *     chimere.quantize.merged             with adapters: their files and scales, "r4.gguf:0.5 ..."
 *     chimere.quantize.hashes             u64 for each tensor: h = 0; for each row h = XXH64(row, seed h)
 * Peak memory beside the mappings is some MiB for each thread and the longest row; what was read is given back.
 * A process that was killed leaves what it wrote as ".NAME.part" beside the output: the same job goes on from there,
 * with the same bytes, after it has compared the tensors that are there with their hashes. An error or interrupt
 * removes that file. ERR_FORMAT: a weight or an importance is not finite. */
MUST_CHECK enum err_code ramp_quantize(const struct ramp_job *job, const char *path, struct err *e);

/* Bytes of the file that it writes with type[i] for tensor i and this recipe; m NULL: nothing is merged. 0: memory is
 * out. */
uint64_t ramp_file_bytes(const struct gguf *g, const int *type, const struct ramp_recipe *r, const struct ramp_merge *m,
                         const char *version);

/* Are all tensors as their hashes say? ERR_FORMAT if the file has no hashes; *bad is the first tensor that differs, or
 * n_tensors. */
MUST_CHECK enum err_code ramp_check(const struct gguf *g, const struct progress *p, size_t *bad, struct err *e);

/* ---- what types cost ---- */

/* A tensor that is never quantised, whatever the recipe says. */
bool ramp_is_kept(const struct gguf_tensor *t);
/* The type, or its substitute if rows of ne0 elements are not whole blocks of it. */
int ramp_fitting(int type, int64_t ne0);
/* ERR_UNSUPPORTED: the tensor is not f32, f16 or bf16 and would be rounded twice, unless `again`. */
MUST_CHECK enum err_code ramp_once(const struct gguf_tensor *t, int type, bool again, struct err *e);
/* Of names, shapes, types and samples of the bytes: the same for the same model in any number of parts. */
uint64_t ramp_fingerprint(const struct gguf *g);

/* The bytes of a tensor in another type that its rows can have and that is written, free() them; all columns count
 * alike. progress: of rows; NULL: none. ERR_FORMAT: a value is not finite. */
MUST_CHECK enum err_code ramp_recode(void **data, const struct gguf_tensor *t, const struct ramp_coder *c, int type,
                                     const struct progress *progress, struct err *e);
/* Squared error of the type over the squares of the weights, on rows of about 2^18 elements, evenly spread. */
MUST_CHECK enum err_code ramp_error(double *out, const struct gguf_tensor *t, const struct ramp_coder *c, int type,
                                    struct err *e);
/* Of a tensor's weights: excess kurtosis, at most 1000, and the sum of singular values times e to the power of the
 * entropy of their shares, a mean over matrices. Of at most 16 matrices of at most 2048 rows each, evenly spread.
 * ERR_UNSUPPORTED: a build without OpenBLAS. */
MUST_CHECK enum err_code ramp_spread(double *kurtosis, double *rank, const struct gguf_tensor *t, unsigned simd,
                                     struct err *e);
/* Computes the scores of n tensors from these two numbers and writes them over `kurtosis`. Each number goes through a
 * sigmoid of its distance from the median in robust standard deviations; the score is 1 - (1 - a)(1 - b), at most .999.
 */
MUST_CHECK enum err_code ramp_nsds(double *kurtosis, double *rank, size_t n, struct err *e);
/* out[type], for each of the types except the tensor's own: the sum of rows[o] * columns[i] * (change by the type at o,
 * i)^2 over all matrices of the tensor; rows [matrices][ne1] and columns [matrices][ne0] are at least 0. For large
 * tensors only rows of about 2^18 elements in all are used, evenly spread among those with a weight. The result is then
 * scaled up by the same sum over the weights themselves, of all rows divided by that of the rows used. progress: of one
 * of the steps. */
MUST_CHECK enum err_code ramp_weighted_errors(double out[], const struct gguf_tensor *t, const struct ramp_coder *c,
                                              const int *types, size_t n_types, const float *rows, const float *columns,
                                              const struct progress *progress, struct err *e);
#endif
