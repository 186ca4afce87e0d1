/* SPDX-License-Identifier: Apache-2.0 */
/* shape.h - models of published shapes with random weights.                   room: shape
 *
 * To measure the size and speed of a model of a known shape, no trained weights are needed. A shape lists
 * its tensors; writing it fills them with random numbers of sane scale (normal, variance 1 /
 * inputs), encoded by the types of a mix, so that activations stay finite and routing spreads over
 * the experts. Rows are drawn from a small stock for each type and width: the values repeat, the
 * bytes are there. There is no tokenizer.
 */
#ifndef SHAPE_SHAPE_H
#define SHAPE_SHAPE_H
#include "base/base.h"

struct shape;

struct shape_tensor {
    char name[64];
    int type; /* row of quant_types[] */
    int n_dims;
    int64_t ne[4];
    int64_t size_bytes;
};

const char *shape_name_at(size_t i); /* names of shapes; NULL past the last */
const char *shape_mix_at(size_t i);  /* of mixes */

/* spec: "NAME[,layers=N][,experts=N][,vocab=N][,table=N]" (table: rows of each head of a table of n-grams). mix: a mix
 * or a quant type. ERR_ARG for unknown ones. Where a row is no multiple of a type's block, a type of nearly the size
 * with blocks of 32 stands in. */
MUST_CHECK enum err_code shape_open(struct shape **out, const char *spec, const char *mix, struct err *e);
/* Another type for a tensor. ERR_ARG: there is no such tensor, it cannot be filled with this type, or its rows are no
 * multiple of the type's block. */
MUST_CHECK enum err_code shape_set_type(struct shape *s, struct str name, int type, struct err *e);
void shape_close(struct shape *s); /* NULL is allowed */

/* Routers choose the expert of rank r in proportion to (1 + r) to the power of -skew, but none for more than 45 % of
 * the tokens; ranks are in another order in each layer. 0: evenly. ERR_ARG if there are no experts. */
MUST_CHECK enum err_code shape_route(struct shape *s, double skew, struct err *e);

int64_t shape_bytes(const struct shape *s); /* of all tensors */

/* A GGUF file. progress gets bytes. */
MUST_CHECK enum err_code shape_write(const struct shape *s, const char *path, uint64_t seed,
                                     const struct progress *progress, struct err *e);
/* The same with holes for weights: a file of the same size that takes next to no room, enough to plan. */
MUST_CHECK enum err_code shape_write_holes(const struct shape *s, const char *path, struct err *e);
#endif
