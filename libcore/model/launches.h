/* SPDX-License-Identifier: Apache-2.0 */
/* launches.h - what a step of a model becomes on a GPU: operations, fusions, launches.    room: model
 *
 * A table has the operations of each part of a layer, in order, and which of them go together in steps of few rows.
 * With the shapes and types of a model's weights, and the table of launches (gemm/launch.h), launches_test says what a
 * step becomes on a GPU: the operations that a step has, and what a GPU launched for it, must be the same.
 */
#ifndef MODEL_LAUNCHES_H
#define MODEL_LAUNCHES_H
#include "base/base.h"

struct model;

/* The table: operations of a part that follow each other. Those with a condition come if a layer is so. */
struct model_span {
    const char *part;     /* "attention", "experts" ... */
    const char *together; /* the fusion; "alone" */
    char when[64];        /* when the part has these; empty: always */
    char ops[320];
};
bool model_span_at(int i, struct model_span *out); /* false: past the last */

/* Kernels launched while time was measured (model_time()); 0 on the CPU. */
uint64_t model_launches(const struct model *m);
#endif
