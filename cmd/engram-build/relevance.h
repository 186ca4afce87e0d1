/* SPDX-License-Identifier: Apache-2.0 */
/* relevance.h - inside chimere-engram-build: whether a text answers a question, by a model.     room: cmd */
#ifndef ENGRAM_BUILD_RELEVANCE_H
#define ENGRAM_BUILD_RELEVANCE_H
#include "engram-build/embed.h"

struct chat;

struct cli_relevance {
    struct cli_embedder *m; /* its model runs */
    struct chat *chat;
    int32_t yes, no; /* tokens */
};
MUST_CHECK enum err_code cli_relevance_open(struct cli_relevance *j, struct cli_embedder *m, struct err *e);
void cli_relevance_close(struct cli_relevance *j); /* {0} is allowed */
/* *p: the probability of yes, of yes and no. */
MUST_CHECK enum err_code cli_relevance_of(struct cli_relevance *j, struct str question, struct str text, float *p,
                                          struct err *e);
/* Asks about pairs of texts, of which one answers a question. ERR_UNSUPPORTED: the model tells them apart no better
 * than chance. */
MUST_CHECK enum err_code cli_relevance_fits(struct cli_relevance *j, struct err *e);
#endif
