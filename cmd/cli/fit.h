/* SPDX-License-Identifier: Apache-2.0 */
/* fit.h - what goes where: --device, --vram, --plan, --expert-profile, --no-mmap, --repack.   room: cmd (cli_)
 *
 * Between the options and an open model: a plan for the device's memory (run/fit.h), printed or followed. */
#ifndef CLI_FIT_H
#define CLI_FIT_H
#include "cli/cli.h"
#include "model/model.h"
#include "run/run.h"

struct run_fit;

struct cli_fit {
    /* from the options; NULL: not given */
    const char *device, *vram, *profile;
    bool        plan, no_mmap;
    int         repack; /* CLI_REPACK_... */
    /* ours */
    struct run_fit *fit;      /* NULL: the host's memory, nothing to plan */
    uint64_t       *uses;     /* [n_layer][n_expert] of the profile; NULL: none */
    int             n_layer, n_expert;
    uint64_t        fingerprint;
};

enum { CLI_REPACK_AUTO, CLI_REPACK_OFF };
/* Mistakes in the options: exits with EXIT_USAGE. */
void cli_fit_check(const struct cli_fit *f);
/* The device that is meant: --device, else "cuda" with --vram, else "cpu". */
const char *cli_fit_device(const struct cli_fit *f);
/* There is something to plan: a sketch is opened first, to learn what is asked of a run. */
bool cli_fit_planned(const struct cli_fit *f);
/* Makes the plan for a run, reads the profile, and sets what is planned in mo, whose n_threads, acts and copy_weights
 * are set. "auto" is settled: the CPU when there is no usable GPU. f must outlive the model. */
MUST_CHECK enum err_code cli_fit_make(struct cli_fit *f, const struct gguf *g, struct model_opts *mo,
                                      const struct run_opts *ro, struct err *e);
/* The plan in lines of text, for --plan and -v. */
typedef void cli_fit_line(void *ctx, const char *line);
void    cli_fit_text(const struct cli_fit *f, cli_fit_line *line, void *ctx);
json_t *cli_fit_json(const struct cli_fit *f); /* NULL when memory is out */
/* Prints the plan to stdout. */
MUST_CHECK enum err_code cli_fit_print(const struct cli_fit *f, bool json, struct err *e);
void    cli_fit_note(const struct cli_fit *f); /* with -v */
/* Writes the profile: what it had, and the uses of this run. Does nothing without --expert-profile. */
MUST_CHECK enum err_code cli_fit_save(const struct cli_fit *f, const struct model *m, struct err *e);
void cli_fit_close(struct cli_fit *f);

/* "512M", "15.5G": powers of 1024. */
MUST_CHECK enum err_code cli_size(int64_t *out, const char *s, const char *option, struct err *e);
#endif
