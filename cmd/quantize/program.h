/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-quantize: its options, measuring, mixes for budgets.   room: cmd */
#ifndef QUANTIZE_PROGRAM_H
#define QUANTIZE_PROGRAM_H
#include <glob.h>
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "measure/losses.h"
#include "ramp/losses.h"
#include "ramp/ramp.h"

struct quantize_options {
    const char *type, *recipe, *imatrix;
    struct cli_list tensors, merge;
    bool pure, again, unbiased, force, dry_run, check, verbose, quiet;
    int effort;
    int32_t n_threads;
    struct measure_losses_opts
        losses; /* path NULL: nothing is measured; what it shares with the above is set when it is */
    /* searching */
    struct cli_list budgets;
    int search; /* 1: by evolution */
    const char *save_recipe, *plot;
    bool curve;   /* --budget list */
    bool by_role; /* the losses are another model's */
};

/* measure.c: what o->losses.path has is read, what is missing is measured and added to it, unless they are by role. */
MUST_CHECK enum err_code cli_quantize_measure(struct ramp_losses *out, const struct quantize_options *o,
                                              const struct gguf *g, struct err *e);
/* mix.c: a recipe, with comments, of the mix that loses least under the budgets; the caller frees it. rules: types and
 * floors of some tensors. */
MUST_CHECK enum err_code cli_quantize_mix(char **recipe, const struct quantize_options *o, const struct gguf *g,
                                          const struct ramp_losses *l, const struct ramp_recipe *rules, struct err *e);
/* The same for a file of at most that size alone: the loss that is predicted, its error, and the file's bytes.
 * ERR_LIMIT: there is none so small. */
struct quantize_best {
    double kl, se;
    uint64_t file_bytes;
};
MUST_CHECK enum err_code cli_quantize_best(struct quantize_best *out, const struct quantize_options *o,
                                           const struct gguf *g, const struct ramp_losses *l,
                                           const struct ramp_recipe *rules, uint64_t file_bytes, struct err *e);
/* curve.c: for each mix that came with the program its size, its predicted loss and the loss of the best mix of that
 * size, on stdout, and as the picture o->plot. */
MUST_CHECK enum err_code cli_quantize_curve(const struct quantize_options *o, const struct ramp_losses *l,
                                            const struct ramp_recipe *rules, struct err *e);
/* list.c: the files of these mixes, for globfree(); the name of one, without directory and ending, to buf. */
MUST_CHECK enum err_code cli_quantize_mixes(glob_t *found, struct err *e);
void cli_quantize_mix_name(const char *path, char *buf, size_t buf_bytes);
/* list.c: the mixes that came with the program, and the types that can be written, on stdout. */
MUST_CHECK enum err_code cli_quantize_list(struct err *e);
#endif
