/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - inside of pipeline: paths, templates and expressions are compiled.    room: pipeline */
#ifndef PIPELINE_INTERNAL_H
#define PIPELINE_INTERNAL_H
#include "base/arena.h"
#include "pipeline/pipeline.h"

enum { PATH_PARTS_MAX = 16 };

/* "classify.json.class": a step, or input, and members of its result. */
struct pipeline_path {
    struct str part[PATH_PARTS_MAX]; /* within the text that was compiled */
    int n;
};
/* Whether a step of this name may be looked at from where a text stands; ERR_FORMAT if not. */
struct pipeline_scope {
    enum err_code (*check)(const void *of, struct str name, struct err *e);
    const void *of;
};

/* Reads a path at s.p + *at. ERR_FORMAT: there is none, or its step may not be looked at. */
MUST_CHECK enum err_code pipeline_path_read(struct pipeline_path *out, struct str s, size_t *at,
                                            const struct pipeline_scope *scope, struct err *e);
/* Its value; a step alone is its text. NULL: it is not there. */
const json_t *pipeline_path_find(const struct pipeline_path *p, const json_t *state);
/* A text in quotes ' or ", without escapes, at s.p + *at. */
bool pipeline_quoted(struct str *out, struct str s, size_t *at);

/* Compile; what they make lies in the arena, and `s` stays in use. ERR_FORMAT has no place. */
MUST_CHECK enum err_code pipeline_text_make(const struct pipeline_text **out, struct arena *a, struct str s,
                                            const struct pipeline_scope *scope, struct err *e);
MUST_CHECK enum err_code pipeline_expr_make(const struct pipeline_expr **out, struct arena *a, struct str s,
                                            const struct pipeline_scope *scope, struct err *e);
#endif
