/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - tables made: written from tokens, merged; and what is in one. */
#ifndef ENGRAM_BUILD_H
#define ENGRAM_BUILD_H
#include "engram/look.h"

struct engram_builder;
struct pool;

enum {
    ENGRAM_TOKEN_MAX = INT32_MAX,
    ENGRAM_UNUSED_DAYS = 90,
};

/* ---- written ---- */

struct engram_build_opts {
    uint64_t tokenizer;
    int64_t day;           /* of this write */
    int order;             /* longest context, 1 .. ENGRAM_ORDER_MAX */
    uint64_t memory_bytes; /* for tokens that wait to be sorted; at least 1 MiB */
    struct pool *pool;     /* sorts; the file is the same for any number of threads */
    bool add;              /* keep what the file has and append an epoch */
    const char *domain;    /* of the epoch; NULL: none */
    const uint64_t *known; /* [n_known] numbers of the documents that the epoch lists, ascending; not copied */
    uint64_t n_known;
    int versions;    /* old files that stay: PATH.1, PATH.2 and so on; 0: none are made */
    uint64_t resume; /* a number that identifies this build, for engram_build_leave(); 0: nothing is left behind */
};
/* The complete file appears at commit, or the old one stays as it was. If the tokens do not fit into the memory, sorted
 * parts are written beside the file, PATH.part-0 and so on. Parts of an earlier build with the same `resume` are used,
 * and its day is kept; the caller must then pass the same tokens again from the start. Other parts are removed. ERR_IO:
 * there is a file of another kind with this name. */
MUST_CHECK enum err_code engram_build_open(struct engram_builder **out, const char *path,
                                           const struct engram_build_opts *o, struct err *e);
/* Adds tokens of a document; further calls continue it until engram_build_end(). No context crosses its borders. */
MUST_CHECK enum err_code engram_build_tokens(struct engram_builder *b, const int32_t *token, int64_t n, struct err *e);
MUST_CHECK enum err_code engram_build_end(struct engram_builder *b, struct err *e);
uint64_t engram_build_resumed(const struct engram_builder *b); /* tokens in parts of an earlier build */
/* Ends b in any case, after ERR_CANCEL as engram_build_leave(). progress: contexts written. */
MUST_CHECK enum err_code engram_build_commit(struct engram_builder *b, const struct progress *p, struct err *e);
void engram_build_abort(struct engram_builder *b); /* NULL is allowed */
/* The same, but the parts stay; returns how many there are. */
int engram_build_leave(struct engram_builder *b);

struct engram_merge_opts {
    const float *scale;  /* [files] of counts; NULL: 1 */
    int64_t day;         /* counts are brought to this day */
    int64_t unused_days; /* rows that were not written for longer than this are left out; -1: none are */
    double count_min;    /* rows with a smaller count after decay are left out */
    uint64_t bytes_max;  /* of the file: the rarest rows are left out, of equally rare ones the longest; 0: no limit */
};
/* Merges all epochs of all files of g into a new file with one epoch for each domain, in the order in which the domains
 * first appear. ERR_ARG: no row would be left. */
MUST_CHECK enum err_code engram_merge(const struct engram *g, const char *path, const struct engram_merge_opts *o,
                                      const struct progress *p, struct err *e);

/* Writes the epochs of g's first file unchanged. */
MUST_CHECK enum err_code engram_write(const struct engram *g, const char *path, struct err *e);

/* ---- what is in a file ---- */

struct engram_order_stat {
    uint64_t contexts, nexts, bytes;
};
struct engram_epoch_stat {
    int64_t day;
    int order;
    uint64_t tokens, documents, bytes; /* tokens and documents that it was counted from */
    const char *domain;                /* "": none; lives as long as the table */
    struct engram_order_stat of[ENGRAM_ORDER_MAX];
};
int engram_n_epochs(const struct engram *g, int file);
struct engram_epoch_stat engram_epoch_stat(const struct engram *g, int file, int epoch);

/* Whether some epoch lists this document: `known` of struct engram_build_opts. */
bool engram_knows(const struct engram *g, uint64_t known);

/* One context of an epoch and a token that followed it. The context is valid during the call; false ends the walk. */
struct engram_row {
    const int32_t *context; /* [order], oldest first */
    int order;
    int32_t next;
    double count;    /* on the epoch's day */
    int unused_days; /* before the epoch's day */
};
typedef bool engram_row_fn(void *ctx, const struct engram_row *r);
/* All rows of an epoch in the order of the file: context by context, longer ones before the shorter ones that they end
 * in. */
void engram_rows(const struct engram *g, int file, int epoch, engram_row_fn *fn, void *ctx);
#endif
