/* SPDX-License-Identifier: Apache-2.0 */
/* program.h - inside chimere-engram-build: its options, texts that come in.     room: cmd */
#ifndef ENGRAM_BUILD_PROGRAM_H
#define ENGRAM_BUILD_PROGRAM_H
#include "cli/cli.h"
#include "cli/open.h"
#include "engram-build/walk.h"
#include "engram/mix.h"

struct engram_heard;
struct pool;
struct recall;
struct text;

struct build_options {
    struct cli_model_opts model;
    const char *out, *date;
    int32_t order;
    int64_t memory_bytes, size_bytes;
    float count_min;
    struct cli_list tables;
    const char *prompt;
    int32_t layer, nearest;
    bool bm25, hybrid, rerank, flat, snippet, exact;
    struct cli_walk_opts walk;
    bool documents; /* index: files are cut into texts, of these many bytes */
    int32_t chunk, overlap;
    const char *vectors; /* index: "none", a file, or NULL */
    const char *embed_command, *embedder, *tokenizer, *faiss;
    int32_t embed_seconds;
    bool lines, jsonl, json, quiet, verbose, force;
    bool replaces; /* out is there, and holds something */
    int64_t day;   /* of date, or today */
    const char *domain;
    struct cli_list from, held_out;
    float score_min;
    int32_t keep; /* old files */
};

/* input.c: documents of the files ("-": stdin; none: stdin) as tokens, in order. Text comes in pieces that a
 * tokenizer cannot tell from the whole; end: the document ends with them. text NULL: there are no tokens. */
struct cli_engram_piece {
    struct str text;
    const int32_t *token; /* [n] */
    int64_t n;
    bool end;
    double part;        /* of all text, so far; 0: not known */
    bool line;          /* the document is a line, or an object of JSON lines */
    const char *file;   /* a regular file; NULL: another source */
    int64_t number;     /* of the line, from 1; 0: the document is a file */
    int64_t time_ns;    /* of the file's last change, since 1970 */
    struct str members; /* of the object, as JSON, without the text; n 0: none */
};
typedef enum err_code cli_engram_sink(void *ctx, const struct cli_engram_piece *p, struct err *e);
MUST_CHECK enum err_code cli_engram_read(const struct build_options *o, char *const *files, const struct text *text,
                                         struct pool *pool, cli_engram_sink *sink, void *ctx, struct err *e);

/* The members of an object but its text, as one line of JSON. */
MUST_CHECK enum err_code cli_engram_members(struct cli_buf *out, const json_t *o, struct err *e);

/* Lines of the files, packed or not. */
typedef enum err_code cli_engram_line(void *ctx, struct str line, struct err *e);
MUST_CHECK enum err_code cli_engram_lines(const struct build_options *o, const char *const *files, cli_engram_line *fn,
                                          void *ctx, struct err *e);

/* tables.c: commands that read tables */
MUST_CHECK enum err_code cli_engram_merge(const struct build_options *o, char *const *files, bool decay, bool prune,
                                          struct err *e);
MUST_CHECK enum err_code cli_engram_dump(const struct build_options *o, char *const *files, struct err *e);
MUST_CHECK enum err_code cli_engram_stats(const struct build_options *o, char *const *files, struct err *e);
MUST_CHECK enum err_code cli_engram_check(const struct build_options *o, char *const *files, struct err *e);
/* What was written, its size, how long it took since from_ms, and where the file is that was there before. */
void cli_engram_tell(const struct build_options *o, double from_ms, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "contexts written" on a terminal; false after an interrupt. */
struct progress cli_engram_progress(void);
/* index.c: texts into an index; the nearest ones of an index as JSON lines */
MUST_CHECK enum err_code cli_engram_index(const struct build_options *o, char *const *files, struct err *e);
MUST_CHECK enum err_code cli_engram_query(const struct build_options *o, const char *path, struct err *e);
/* embedder.c: a table of vectors for tokens as a GGUF file */
MUST_CHECK enum err_code cli_engram_embedder(const struct build_options *o, struct err *e);
/* Adds to o where a text of an index comes from, and the members of its object. */
MUST_CHECK enum err_code cli_engram_origin(json_t *o, const struct recall *r, int64_t text, struct err *e);
/* score.c: a model's perplexity on texts without and with tables */
MUST_CHECK enum err_code cli_engram_score(const struct build_options *o, char *const *files, struct err *e);
/* What the model says of texts, of files or of one text. */
MUST_CHECK enum err_code cli_engram_hear(struct engram_heard *h, const struct build_options *o, char *const *files,
                                         const struct str *text, struct cli_opened *x, struct err *e);
/* heard_cache.c: what the model said of n tokens in h->n_windows windows from the user's cache; false: it is not
 * there, or not whole. key: of all that it depends on. write: for the next time, if it can be kept. */
bool cli_engram_heard_read(struct engram_heard *h, uint64_t key, int64_t n);
void cli_engram_heard_write(const struct engram_heard *h, uint64_t key);
/* scored.c: scored answers of o->from become epochs of a table, one for each domain, where that does not hurt. *status
 * is EXIT_NO where it would */
MUST_CHECK enum err_code cli_engram_scored(const struct build_options *o, const char *path, int *status, struct err *e);
MUST_CHECK enum err_code cli_engram_rollback(const char *path, struct err *e);
#endif
