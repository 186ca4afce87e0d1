/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - the class of a request: by expressions, by file types, by the model.      room: cmd */
#ifndef CLI_ROUTE_H
#define CLI_ROUTE_H
#include "cli/open.h"
#include "reason/route.h"

enum cli_stage { CLI_STAGE_PATTERN, CLI_STAGE_FILE, CLI_STAGE_MODEL, CLI_STAGE_DEFAULT };
struct cli_request {
    struct str text, files; /* files: names of them, a line each */
    /* the result */
    uint64_t open; /* classes that it may still be, a bit each */
    const char *class;
    enum cli_stage stage;
    double certainty;             /* 0 .. 1; of the class that was the likeliest */
    double p[REASON_CLASSES_MAX]; /* of each class; NaN: the model was not asked for it */
};
const char *cli_stage_name(enum cli_stage stage);
/* A file of routes; "-" is stdin. Messages name the JSON pointer of what is wrong. */
MUST_CHECK enum err_code cli_routes_open(struct reason_routes **out, const char *path, struct err *e);
/* The first stages, which need no model. *left: how many requests they leave to it. */
MUST_CHECK enum err_code cli_route_patterns(const struct reason_routes *r, struct cli_request *v, size_t n,
                                            size_t *left, struct err *e);
/* The last stage, for those that are left: the probability of each class's name as the answer, of all of these. x has
 * its text and model. ERR_CANCEL after a signal. */
MUST_CHECK enum err_code cli_route_model(const struct reason_routes *r, struct cli_opened *x, int parallel,
                                         struct cli_request *v, size_t n, struct err *e);
#endif
