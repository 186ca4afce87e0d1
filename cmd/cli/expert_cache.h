/* SPDX-License-Identifier: Apache-2.0 */
/* expert_cache.h - what --expert-cache has read, as JSON and as notes.                   room: cmd */
#ifndef CLI_EXPERT_CACHE_H
#define CLI_EXPERT_CACHE_H
#include "base/reads.h"
#include "cli/cli.h"

struct model;

/* {"hits", "reads", ...}: see chimere-run(1). Of what has come since `from`; NULL: since the model was opened. */
json_t *cli_cache_json(const struct io_cache_stats *now, const struct io_cache_stats *from);
/* With -v: what the cache is, and what it has done. They say nothing of a model without one. */
void cli_cache_note(const struct model *m);
void cli_cache_note_reads(const struct model *m);
/* --expert-cache was given and has no effect: a warning. */
void cli_cache_warn(const struct model *m, int64_t cache_bytes);
#endif
