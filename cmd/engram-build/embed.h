/* SPDX-License-Identifier: Apache-2.0 */
/* embed.h - inside chimere-engram-build: vectors of texts.                   room: cmd */
#ifndef ENGRAM_BUILD_EMBED_H
#define ENGRAM_BUILD_EMBED_H
#include "engram-build/program.h"
#include "text/text.h"

enum {
    CLI_EMBED_CTX = 512,  /* tokens of a text that its vector is made of */
    CLI_EMBED_BATCH = 16, /* texts in a step */
};

/* Starts as {0}. The caller opens x and its tokenizer; cli_embed_close() closes both. */
struct cli_embedder {
    struct cli_opened x;
    struct run *run;
    int dims, layer;
    struct text_tokens token[CLI_EMBED_BATCH];
    int n;    /* texts that wait; at most CLI_EMBED_BATCH */
    float *v; /* [CLI_EMBED_BATCH][dims] */
};
/* layer -1: the one that is best by default; ctx: tokens of the longest sequence. */
MUST_CHECK enum err_code cli_embed_open(struct cli_embedder *m, const struct build_options *o, int layer, int64_t ctx,
                                        struct err *e);
void cli_embed_close(struct cli_embedder *m);
/* A text waits; *took false: it has no tokens. */
MUST_CHECK enum err_code cli_embed_add(struct cli_embedder *m, struct str text, bool *took, struct err *e);
/* The vectors of all texts that wait, into v. */
MUST_CHECK enum err_code cli_embed_run(struct cli_embedder *m, struct err *e);
#endif
