/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.h - the adapters of --lora.                                       room: cmd */
#ifndef CLI_ADAPTERS_H
#define CLI_ADAPTERS_H
#include "cli/cli.h"
#include "model/adapter.h"
#include "run/run.h"

struct gguf;

struct cli_adapters {
    int n;
    char name[128]; /* what sessions call them: " + r4.gguf:0.5" for each */
    int rank;       /* of all: run_opts.adapter_rank */
    int64_t bytes;  /* that they take of a device */
    uint64_t hash;  /* of contents and scales; 0: there are none */
    const struct adapter *file[RUN_ADAPTERS_MAX];
    struct adapter *own[RUN_ADAPTERS_MAX];      /* file[i]; NULL: the caller's, who closes it */
    struct model_adapter *on[RUN_ADAPTERS_MAX]; /* of the model; NULL: not yet */
    struct run_adapter list[RUN_ADAPTERS_MAX];  /* by then */
};

/* What a file that is not a model is, and which option takes it, by its header; NULL: it is no adapter. */
const char *cli_adapter_what(const struct gguf *g);
/* Reads the files, FILE[:SCALE] each, which must be for this model. */
MUST_CHECK enum err_code cli_adapters_open(struct cli_adapters *x, const struct cli_list *names, const struct gguf *g,
                                           struct err *e);
/* Adds one that is open already, at its full strength; it has to be for this model, and stays open as long as x. */
MUST_CHECK enum err_code cli_adapters_add(struct cli_adapters *x, const struct adapter *a, const struct gguf *g,
                                          struct err *e);
/* To the model's device, once. */
MUST_CHECK enum err_code cli_adapters_load(struct cli_adapters *x, const struct model *m, struct err *e);
/* Every sequence of the run takes them; they are loaded if they are not. */
MUST_CHECK enum err_code cli_adapters_set(struct cli_adapters *x, const struct model *m, struct run *r, struct err *e);
void cli_adapters_close(struct cli_adapters *x); /* after the runs, before the model */
#endif
