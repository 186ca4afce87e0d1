/* SPDX-License-Identifier: Apache-2.0 */
/* forward.h - for the room `run`: a model's device, plan and forward pass.       room: model */
#ifndef MODEL_FORWARD_H
#define MODEL_FORWARD_H
#include "base/base.h"
#include "ops/ops.h"
#include "state/state.h"

struct model;
struct arch_plan;
struct state;

/* Pieces of a long step for each of several devices. */
enum { MODEL_DEV_PIECES = 4 };
struct dev *model_dev(const struct model *m); /* the last one: of logits and hidden rows */
int model_n_devs(const struct model *m);
struct dev *model_part(const struct model *m, int i);  /* device i of them */
struct state_place model_place(const struct model *m); /* where its layers lie */
struct model_weights;
const struct model_weights *model_part_weights(const struct model *m, int i); /* of device i, for its layers */
void model_layer_bytes(const struct model *m, int64_t *bytes); /* [n_layer] of the layers' tensors in the file */
/* Whether another device may begin with this layer. */
bool model_may_cut(const struct arch_plan *p, int layer);
/* first[0 .. n_dev]: the first layer of each device, and past the last; by their shares of the layers, NULL: even ones.
 * ERR_ARG: there are not as many ranges. */
MUST_CHECK enum err_code model_cut(int *first, const struct arch_plan *p, int n_dev, const double *share,
                                   struct err *e);
struct dev *model_host(const struct model *m); /* the device of experts on the host; NULL: there are none */
bool model_is_dry(const struct model *m);      /* model_placement.dry_run: it computes nothing */
int model_step_rows(const struct model *m);    /* model_placement.step_rows */
const struct arch_plan *model_plan(const struct model *m);
int model_table_rows(const struct model *m); /* rows of an n-gram table that a token takes; 0: there is none */
int64_t model_expert_bytes(const struct model *m, int layer); /* of one routed expert; 0: none in this layer */

/* The rows of the residual stream that a step leaves on the last device for a drafter, until the next step. `rows` has
 * n parts, one for each layer; row i of the step is row i of each part. */
struct model_taps {
    const int *layer; /* [n]: after this one; n_layer: after the final norm */
    int n, rows_max;
    float *rows; /* [n][rows_max][n_embd] on the device */
};

/* The adapters of a step's rows: `rows` and `picked` are lists of indexes into `of`, for all rows and for those whose
 * logits are wanted. To measure memory, `of` is NULL and only rows.floats is used. */
struct model_adapter;
struct model_adapt {
    const struct model_adapter *const *of; /* [rows.n] */
    struct op_terms rows, picked;
};

/* What one step computes. Rows of a sequence are consecutive; the caller has checked tokens and limits, and set
 * op_seq.again and .drafts. */
struct model_step {
    const struct op_rows *rows;
    const int32_t *pick; /* [n_pick] rows whose logits are wanted, ascending */
    int n_pick;
    int32_t *pick_here;              /* room for n_pick; NULL: n_pick is 0 */
    float *logits;                   /* [n_pick][n_vocab] */
    const struct op_top *top;        /* what to find in the logits; NULL: nothing */
    void *digest;                    /* on the device: [n_pick] answers of op_top */
    void *answer;                    /* on the host: the same */
    struct op_seq *parts;            /* room for 5 * rows->n_seq */
    int32_t *table_row;              /* room for model_table_rows() * rows->n; NULL: these are 0 */
    float *hidden;                   /* NULL, or [n_layer + 2][rows][n_embd]: run/internal.h */
    const struct model_taps *taps;   /* NULL: none */
    const struct model_adapt *adapt; /* NULL: none */
    bool (*stop)(void);              /* run_opts.stop */
    int lane; /* 0: when model_forward() returns, it is done; else it is under way (dev_launch()),
               * and what it puts on the host is there after model_land() */
};
/* ERR_CANCEL: st->stop() was true; the recurrent blocks of the step's sequences are then undefined. */
MUST_CHECK enum err_code model_forward(const struct model *m, struct state *s, const struct model_step *st,
                                       struct err *e);
MUST_CHECK enum err_code model_land(const struct model *m, int lane, struct err *e);
/* Removes the newest n rows of a sequence: n <= state_undoable(). If its recurrent layers have already applied them,
 * the base is copied and the remaining rows are computed again from their inputs, which gives the same bytes. */
MUST_CHECK enum err_code model_undo(const struct model *m, struct state *s, int slot, int64_t n, struct err *e);
/* Recurrent layers apply the rows that they only logged: before state_rec_read(). */
MUST_CHECK enum err_code model_commit(const struct model *m, struct state *s, int slot, struct err *e);
/* The largest steps. */
struct model_sizes {
    int rows, logits; /* rows; those of them with logits */
    int lanes;        /* there may be steps in lanes 1 .. lanes, not with experts on the host; 0: there are none */
    int lane_rows, lane_logits;
    int adapt_rank; /* ranks of a row's adapters in all; 0: none */
};
/* Reserves scratch for such steps, and for undo. */
MUST_CHECK enum err_code model_reserve(const struct model *m, struct state *s, const struct model_sizes *most,
                                       struct err *e);
#endif
