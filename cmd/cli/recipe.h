/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.h - reading recipes (chimere-recipe(5)), and shapes whose types they choose.            room: cmd */
#ifndef CLI_RECIPE_H
#define CLI_RECIPE_H
#include "gguf/gguf.h"
#include "ramp/ramp.h"
#include "shape/shape.h"

/* Lines of a file after the rules there are. */
MUST_CHECK enum err_code cli_recipe_read(struct ramp_recipe *r, const char *path, struct err *e);
/* A shape in a mix of shape_open(), or by a recipe: one that came with the program, or a file NAME.recipe. */
MUST_CHECK enum err_code cli_shape_open(struct shape **out, const char *spec, const char *mix, struct err *e);
/* The shape's file with holes for weights; path, of at least 64 bytes, gets its former name: it has none any more. */
MUST_CHECK enum err_code cli_shape_holes(struct gguf **out, char *path, size_t path_bytes, const struct shape *shape,
                                         struct err *e);
#endif
