/* SPDX-License-Identifier: Apache-2.0 */
/* launches.h - what a step of a model becomes on a GPU: fusions, operations, launches.    room: model
 *
 * A table has the operations of each part of a layer, in order, and which of them go together in steps of few rows.
 * With the shapes and types of a model's weights, and the table of launches (gemm/launch.h), it says what a step
 * becomes on a GPU. The operations that a step has, and what a GPU launched for it, must be the same: launches_test.
 */
#ifndef MODEL_LAUNCHES_H
#define MODEL_LAUNCHES_H
#include "base/base.h"
#include "gemm/launch.h"

struct model;

/* Rows of one sequence of at most 256 positions, without drafts, adapters, undo, and with all experts on the GPU. */
struct model_step_shape {
    int rows, picks; /* rows with logits, the last ones */
    bool digest;     /* of which only digests are wanted */
    bool rotated;    /* keys are stored in a type that is rotated */
    bool eight;      /* activations of 8 bits */
    int sm;          /* 90, 120; 0: not on a GPU, where all operations are alone */
};

struct model_count {
    const char *what;
    int64_t n, more; /* n, or up to `more` more */
};
enum { MODEL_COUNTS = 48 };
struct model_step_plan {
    struct model_count fusion[GEMM_N_FUSIONS]; /* by gemm_fusion_name() */
    struct model_count op[MODEL_COUNTS];       /* calls of operations, by name */
    struct model_count kernel[MODEL_COUNTS];   /* launches, by file */
    int n_ops, n_kernels;
    bool exact; /* kernels: every part's matrices are of one format, or floats */
};
void model_plan_step(const struct model *m, const struct model_step_shape *s, struct model_step_plan *out);

/* The table: operations of a part that follow each other. Those with a condition come if a layer is so. */
struct model_span {
    const char *part;     /* "attention", "experts" ... */
    const char *together; /* the fusion; "alone" */
    char when[64];        /* when the part has these; empty: always */
    char ops[320];
};
bool model_span_at(int i, struct model_span *out); /* false: past the last */

/* What was launched while time was measured (model_time()), in the same words; entries written. */
struct model_launched {
    const char *what;
    bool fusion;
    uint64_t n;
};
enum { MODEL_LAUNCHED_MAX = 80 };
int model_launched(const struct model *m, struct model_launched *out, int max);
uint64_t model_launches(const struct model *m); /* all kernels; 0 on the CPU */
#endif
