/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-quantize: its options, measuring, mixes for budgets.   room: cmd */
#ifndef QUANTIZE_PROGRAM_H
#define QUANTIZE_PROGRAM_H
#include "cli/cli.h"
#include "gguf/gguf.h"
#include "measure/measure.h"
#include "ramp/losses.h"
#include "ramp/ramp.h"

enum { GROUP_TENSOR, GROUP_LAYER, GROUP_CLASS };
enum { METHOD_PROBES, METHOD_FISHER, METHOD_NSDS };

struct quantize_options {
    const char *type, *recipe, *imatrix;
    struct cli_list tensors, merge;
    bool pure, again, unbiased, force, dry_run, check, verbose, quiet;
    int effort;
    int32_t n_threads;
    /* measuring */
    const char *measure, *data, *probes, *device, *save_imatrix;
    bool random;
    int64_t tokens, seed;
    int group, method;
    struct {
        bool text, method, probes, effort; /* was said, and is held against what a complete file was measured with */
    } said;
    /* searching */
    struct cli_list budgets;
    int search; /* 1: by evolution */
    const char *save_recipe;
};

/* measure.c: what o->measure has is read, what is missing is measured and added to it. */
MUST_CHECK enum err_code cli_quantize_measure(struct ramp_losses *out, const struct quantize_options *o,
                                              const struct gguf *g, struct err *e);
/* fisher.c: kl[type] for each of the types but the tensor's own: what second moments say that it costs. */
MUST_CHECK enum err_code cli_quantize_fisher(double kl[], const struct measure_moments *m, const struct gguf_tensor *t,
                                             const struct ramp_coder *c, const int *types, size_t n_types,
                                             const struct progress *progress, struct err *e);
/* mix.c: a recipe, with comments, of the mix that loses least under the budgets; the caller frees it. rules: types and
 * floors of some tensors. */
MUST_CHECK enum err_code cli_quantize_mix(char **recipe, const struct quantize_options *o, const struct gguf *g,
                                          const struct ramp_losses *l, const struct ramp_recipe *rules, struct err *e);
/* Lines of a file after the rules there are. */
MUST_CHECK enum err_code cli_quantize_rules(struct ramp_recipe *r, const char *path, struct err *e);
#endif
