/* SPDX-License-Identifier: Apache-2.0 */
/* embed.h - inside chimere-engram-build: vectors of texts.                   room: cmd */
#ifndef ENGRAM_BUILD_EMBED_H
#define ENGRAM_BUILD_EMBED_H
#include "engram-build/program.h"
#include "recall/recall.h"
#include "text/text.h"

enum {
    CLI_EMBED_CTX = 512,  /* tokens of a text that a model reads for its vector */
    CLI_EMBED_BATCH = 16, /* texts in a step, and that a program is given before it has answered */
};

/* A vector for each token; a text's is the mean of its tokens', of length 1. */
struct cli_embed_table {
    struct gguf *g;
    struct text *text;
    const struct gguf_tensor *rows;
    float *row;
    double *sum; /* [dims] both */
    uint64_t fingerprint;
    char path[RECALL_PATH_BYTES]; /* "": too long */
};
MUST_CHECK enum err_code cli_embed_table_open(struct cli_embed_table *t, const char *path, int *dims, struct err *e);
void cli_embed_table_close(struct cli_embed_table *t); /* {0} is allowed */
/* *took false: the text has no tokens. */
MUST_CHECK enum err_code cli_embed_table_text(struct cli_embed_table *t, struct str text, float *v, bool *took,
                                              struct err *e);

/* Starts as {0}. The caller opens x and its tokenizer; cli_embed_close() closes both. */
struct cli_embedder {
    struct cli_opened x;
    enum recall_maker maker;
    struct run *run; /* RECALL_MODEL, and cli_embed_open_run() */
    int layer;
    struct text_tokens token[CLI_EMBED_BATCH];
    struct cli_coprocess *command; /* RECALL_ELSEWHERE; NULL: a file's lines */
    uint64_t command_number;
    struct cli_buf lines;         /* that it gets */
    struct cli_embed_table table; /* RECALL_EMBEDDER */
    int dims;                     /* 0: not known before the first vector */
    int n;                        /* texts that wait; at most CLI_EMBED_BATCH */
    float *v;                     /* [CLI_EMBED_BATCH][dims] */
};
/* maker: of the vectors; path: of an embedder's file. layer -1: the one that is best by default. */
MUST_CHECK enum err_code cli_embed_open(struct cli_embedder *m, const struct build_options *o, enum recall_maker maker,
                                        const char *path, int layer, struct err *e);
/* The model, for whatever purpose; ctx: tokens of the longest sequence. */
MUST_CHECK enum err_code cli_embed_open_run(struct cli_embedder *m, const struct build_options *o, int layer,
                                            int64_t ctx, struct err *e);
void cli_embed_close(struct cli_embedder *m);
/* What makes the vectors. */
struct recall_vectors cli_embed_made(const struct cli_embedder *m);
/* A text waits; *took false: it has no tokens. */
MUST_CHECK enum err_code cli_embed_add(struct cli_embedder *m, struct str text, bool *took, struct err *e);
/* The vectors of all texts that wait, into v. */
MUST_CHECK enum err_code cli_embed_run(struct cli_embedder *m, struct err *e);
/* Vector i of v from a JSON array. */
MUST_CHECK enum err_code cli_embed_line(struct cli_embedder *m, int i, struct str line, struct err *e);
/* The same from n numbers. */
MUST_CHECK enum err_code cli_embed_numbers(struct cli_embedder *m, int i, const float *v, size_t n, struct err *e);

/* vectors.c: calls fn for each vector of a file, of JSON arrays in lines or of NumPy, which stands in m->v. */
typedef enum err_code cli_vector_fn(void *ctx, struct err *e);
MUST_CHECK enum err_code cli_embed_file(struct cli_embedder *m, const struct build_options *o, cli_vector_fn *fn,
                                        void *ctx, struct err *e);
#endif
