/* SPDX-License-Identifier: Apache-2.0 */
/* losses.h - what types cost the tensors of a model, measured into a file that grows.       room: measure
 *
 * The file is that of ramp/losses.h. What it lacks is measured and added line by line, in the order of the model's
 * tensors, then of all tensors in one type. After an interruption the same call goes on, to the same bytes. */
#ifndef MEASURE_LOSSES_H
#define MEASURE_LOSSES_H
#include "ramp/losses.h"

enum measure_grouping { MEASURE_TENSOR, MEASURE_LAYER, MEASURE_CLASS }; /* what is probed together */
enum measure_method { MEASURE_PROBES, MEASURE_FISHER, MEASURE_NSDS };

struct measure_losses_opts {
    const char *path, *imatrix; /* the file; where the inputs of the text are written as well, NULL: nowhere */
    const char *data, *probes;  /* a text to measure with, NULL: random tokens or the model's own; "q3_k,q5_k" */
    const char *also; /* types that are measured beside the usual ones and those that the file has so far, NULL:
                       * none; "iq3_k,iq4_k" */
    const char *device;
    bool random, again, dry_run; /* again: types of quantised tensors; dry_run: nothing may be missing */
    int64_t tokens, seed;
    enum measure_grouping group;
    enum measure_method method;
    int effort, n_threads;
    struct {
        bool text, method, probes, effort; /* was said, and is held against what a complete file was measured with */
    } said;
    bool (*stop)(void); /* io_read_all() */
};
/* Where a measurement is. */
struct measure_tick {
    const char *doing;
    int64_t run, runs; /* runs of the model; runs 0: not one of them */
    double part;       /* of this one that is done */
};
struct measure_watch {
    bool (*tick)(void *ctx, const struct measure_tick *t); /* false: ERR_CANCEL */
    const struct progress *stop;                           /* only asked whether to go on */
    void *ctx;
};
/* Reads the file, measures what is missing, and adds it. *complete: nothing was missing. g outlives *out. ERR_FORMAT:
 * the file is wrong, or was begun with other options. ERR_ARG: something is missing in a dry run, or a probe tells
 * nothing. ERR_UNSUPPORTED: there is no gradient of the model. */
MUST_CHECK enum err_code measure_losses(struct ramp_losses *out, bool *complete, const struct measure_losses_opts *o,
                                        const struct gguf *g, const struct measure_watch *watch, struct err *e);
#endif
