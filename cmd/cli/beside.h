/* SPDX-License-Identifier: Apache-2.0 */
/* beside.h - what options put beside a model: a document, indexes of texts, tables of n-grams.   room: cmd */
#ifndef CLI_BESIDE_H
#define CLI_BESIDE_H
#include <math.h>

#include "cli/engram.h"
#include "cli/recall.h"

struct cli_opened;
struct reason_calibration;

struct cli_beside_opts { /* NULL, 0: not given */
    struct cli_list engrams;
    bool engram_thinking;
    const char *context, *context_table, *examples, *recite;
    int retrieve;         /* --retrieve; 1: auto */
    float retrieve_below; /* NaN: as a calibration says, or the default */
};
#define CLI_BESIDE_DEFAULTS .retrieve_below = NAN
struct cli_beside {
    struct cli_document context;
    struct cli_notes notes; /* --examples */
    struct cli_notes named; /* --recite */
    struct cli_engram engram;
};
/* Opens the document and the indexes, each once, also when it is called again. The model's file and tokenizer are open.
 * ERR_FORMAT: one of them is not what it should be, or is of another tokenizer. */
MUST_CHECK enum err_code cli_beside_texts(struct cli_beside *x, const struct cli_beside_opts *o,
                                          const struct cli_opened *model, struct err *e);
/* Opens the tables, with that of the document, when the model is open, too. */
MUST_CHECK enum err_code cli_beside_tables(struct cli_beside *x, const struct cli_beside_opts *o,
                                           const struct cli_opened *model, struct err *e);
bool cli_beside_has_tables(const struct cli_beside_opts *o);
/* What is open becomes a part of a question; x stays where it is until the answer has ended. */
void cli_beside_ask(struct ask *a, const struct cli_beside *x);
/* When they are used. c: of --calibration, NULL: none. ERR_FORMAT: it says nothing of that. */
MUST_CHECK enum err_code cli_beside_retrieve(struct ask *a, const struct cli_beside_opts *o,
                                             const struct reason_calibration *c, struct err *e);
void cli_beside_close(struct cli_beside *x); /* {0} is allowed */

/* Adds the contents of tables and indexes, domains, weights and numbers of texts to a hash; not --context. Of a pipe,
 * which can be read only once, the name. */
MUST_CHECK enum err_code cli_beside_hash(uint64_t *h, const struct cli_beside_opts *o, struct err *e);
/* The same of a file; NULL: none. */
MUST_CHECK enum err_code cli_hash_file(uint64_t *h, const char *path, struct err *e);
uint64_t cli_hash_text(uint64_t h, const char *text); /* NULL: none */
#endif
