/* SPDX-License-Identifier: Apache-2.0 */
/* guess.h - from --draft and --draft-max to drafters and the run that they need.             room: cmd
 *
 *     cli_guess_open(&draft, &g, &x, e)      after cli_open_model(): also loads the weights where they were planned
 *     cli_open_run(&run, &x, &ro, e)         ro from cli_guess_open()
 *     draft_attach(draft, run, e)
 *     cli_guess_recall(draft, &g, &x)        ... cli_guess_keep(draft, &g, &x) before it is closed
 */
#ifndef CLI_GUESS_H
#define CLI_GUESS_H
#include "cli/open.h"
#include "draft/draft.h"

struct cli_guess {
    const struct cli_list *names;    /* --draft */
    int32_t max;                     /* --draft-max; -1: not given */
    bool tables_guess;               /* the tables are a drafter, too */
    const struct engram_mix *tables; /* NULL: none */
};
/* Nothing is to guess. */
bool cli_guess_off(const struct cli_guess *g);
/* The name counts: no "off" comes after it. */
bool cli_guess_has(const struct cli_guess *g, const char *name);
/* The model's multi-token-prediction block may be needed: for x.nextn, before cli_open_model(). */
bool cli_guess_block(const struct cli_guess *g);
/* *out: the drafters, NULL: none. Draft rows and the layers that drafters read come to *ro, behind its own layers; they
 * are kept in layers. The plan has to know what drafters need, so they are opened with the dry run of the model first,
 * and with the model when it is there. Close *out after the gen and before the run. */
MUST_CHECK enum err_code cli_guess_open(struct draft **out, const struct cli_guess *g, struct cli_opened *x,
                                        struct run_opts *ro, int layers[RUN_TAPS_MAX], struct err *e);
/* The same drafters from their files as they are now, for a run that is open, with its layers. Close *out likewise. */
MUST_CHECK enum err_code cli_guess_again(struct draft **out, const struct cli_guess *g, const struct cli_opened *x,
                                         struct run *r, struct err *e);
/* What earlier processes learnt of these drafters' costs (chimere-run(1), FILES), after draft_attach(); and what this
 * one knows, for later ones, before draft_close(). Only speed depends on it: what cannot be read or written is as if it
 * were not there, with a word if the program is verbose. d NULL: nothing happens. */
void cli_guess_recall(struct draft *d, const struct cli_guess *g, const struct cli_opened *x);
void cli_guess_keep(const struct draft *d, const struct cli_guess *g, const struct cli_opened *x);
#endif
