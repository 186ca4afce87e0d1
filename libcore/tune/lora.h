/* SPDX-License-Identifier: Apache-2.0 */
/* lora.h - adapters in training: their numbers in one row, from and to files.  room: tune
 *
 * The parameters of all matrices lie one after the other in the file's order: a, then b of each (adapt/adapt.h has the
 * layout). A new adapter begins with a uniform within +-1/sqrt(n_in) and b zero, so that it changes nothing yet (Hu et
 * al. 2021). */
#ifndef TUNE_LORA_H
#define TUNE_LORA_H
#include "base/base.h"

struct adapter;
struct grad;
struct grad_adapter;

struct tune_lora {
    struct grad *g;       /* not owned */
    struct adapter *file; /* names and sizes; its floats are set when it is written */
    int *matrix;          /* [n] of the grad */
    int n, rank;
    int64_t n_params;
    float *theta; /* [n_params] */
};

struct tune_lora_opts {
    const char *arch; /* general.architecture of the model */
    int rank;         /* 0: scales, which begin as zeros (adapt/adapt.h) */
    float alpha;      /* of scales 1 */
    unsigned classes; /* bits of enum model_class; matrices with fewer than 2 rank rows or columns are left out */
    uint64_t seed;
};
/* ERR_ARG: no matrix is of these classes. ERR_NOMEM. */
MUST_CHECK enum err_code tune_lora_new(struct tune_lora **out, struct grad *g, const struct tune_lora_opts *o,
                                       struct err *e);
/* Of a file's numbers. ERR_UNSUPPORTED: it has a matrix that the grad has not, or token_embd.weight. */
MUST_CHECK enum err_code tune_lora_of(struct tune_lora **out, struct grad *g, const struct adapter *a, struct err *e);
void tune_lora_close(struct tune_lora *l); /* NULL is allowed */
/* Multiplies what the adapter adds by x: its b. */
void tune_lora_weaken(struct tune_lora *l, float x);
/* Whether it adds nothing: all of b is zero. */
bool tune_lora_is_neutral(const struct tune_lora *l);
/* As adapter_write() with theta. */
MUST_CHECK enum err_code tune_lora_write(struct tune_lora *l, const char *path, const char *type, struct err *e);

/* out [l->n]: for the sequences from .. to - 1 of a batch, with these parameters; gradient NULL: none, else [n_params],
 * which a backward pass adds to. */
void tune_lora_at(const struct tune_lora *l, const float *theta, float *gradient, int from, int to,
                  struct grad_adapter *out);
#endif
