/* SPDX-License-Identifier: Apache-2.0 */
/* engram.h - a memory of n-grams beside the model: tables, what they say next, how much that counts.
 * room: engram (base)
 *
 * A table (chimere-engram(5)) says which tokens followed the last 1 to 8 tokens, and how often. It is a file of
 * epochs, one for each write; an epoch is a trie of contexts, newest token first, so keys are compared whole and
 * shorter contexts lie on the way to longer ones. Counts halve every 30 days. Open tables never change: any
 * number of threads may look into them.
 */
#ifndef ENGRAM_ENGRAM_H
#define ENGRAM_ENGRAM_H
#include "base/base.h"

struct engram;
struct engram_builder;
struct io_out;
struct pool;

enum {
    ENGRAM_ORDER_MAX = 8,  /* tokens of a context */
    ENGRAM_NEXT_MAX = 32,  /* tokens that a look-up gives */
    ENGRAM_FILES_MAX = 16, /* tables side by side */
    ENGRAM_EPOCHS_MAX = 4096,
    ENGRAM_TOKEN_MAX = INT32_MAX,
    ENGRAM_HALF_LIFE_DAYS = 30,
    ENGRAM_UNUSED_DAYS = 90,
};

/* ---- look-up ---- */

struct engram_opts {
    uint64_t tokenizer; /* text_fingerprint() of the model; another one in a file is ERR_FORMAT. 0: any */
    int64_t  day;       /* today, in days since 1970: counts are what they are worth on that day */
};
/* Maps the files and checks them whole: sums, order of keys, bounds. ERR_FORMAT says what is wrong. Several files
 * are one table. */
MUST_CHECK enum err_code engram_open(struct engram **out, const char *const *paths, int n_paths,
                                     const struct engram_opts *o, struct err *e);
void engram_close(struct engram *g); /* NULL is allowed */

struct engram_next {
    int32_t token[ENGRAM_NEXT_MAX];
    float   q[ENGRAM_NEXT_MAX]; /* probabilities, descending; their sum may be below 1 */
    int     n;                  /* 0: the table says nothing */
    int     order;              /* tokens of the longest context that was seen, 1 .. ENGRAM_ORDER_MAX */
    int     file;               /* the one that knows most of it */
    double  count;              /* how often it was seen, decayed */
};
/* What follows token[0 .. n), by the longest context that one of the files has. */
void engram_look(const struct engram *g, const int32_t *token, int64_t n, struct engram_next *out);

/* ---- what is in a file ---- */

struct engram_order_stat {
    uint64_t contexts, nexts, bytes;
};
struct engram_epoch_stat {
    int64_t  day;
    int      order;
    uint64_t tokens, documents, bytes; /* tokens and documents that it was counted from */
    struct engram_order_stat of[ENGRAM_ORDER_MAX];
};
int      engram_n_epochs(const struct engram *g, int file);
struct engram_epoch_stat engram_epoch_stat(const struct engram *g, int file, int epoch);
uint64_t engram_file_bytes(const struct engram *g, int file);
uint64_t engram_tokenizer(const struct engram *g, int file);

/* One context of an epoch and what followed it. token is valid during the call; false ends the walk. */
struct engram_row {
    const int32_t *context; /* [order], oldest first */
    int            order;
    int32_t        next;
    double         count;   /* on the epoch's day */
    int            unused_days; /* before the epoch's day */
};
typedef bool engram_row_fn(void *ctx, const struct engram_row *r);
/* All rows of an epoch in the order of the file: context by context, longer ones before their ends. */
void engram_rows(const struct engram *g, int file, int epoch, engram_row_fn *fn, void *ctx);

/* ---- writing ---- */

struct engram_build_opts {
    uint64_t tokenizer;
    int64_t  day;          /* of this write */
    int      order;        /* longest context, 1 .. ENGRAM_ORDER_MAX */
    uint64_t memory_bytes; /* for tokens that wait to be sorted; at least 1 MiB */
    struct pool *pool;     /* sorts; the file is the same for any number of threads */
    bool     add;          /* keep what the file has and append an epoch */
};
/* The file appears whole at commit, or stays as it was. Sorted parts lie beside it while there are several. */
MUST_CHECK enum err_code engram_build_open(struct engram_builder **out, const char *path,
                                           const struct engram_build_opts *o, struct err *e);
/* Tokens of a document; the next call goes on with it until engram_build_end(). No context crosses its borders. */
MUST_CHECK enum err_code engram_build_tokens(struct engram_builder *b, const int32_t *token, int64_t n, struct err *e);
MUST_CHECK enum err_code engram_build_end(struct engram_builder *b, struct err *e);
/* Ends b in any case. progress: contexts written. */
MUST_CHECK enum err_code engram_build_commit(struct engram_builder *b, const struct progress *p, struct err *e);
void engram_build_abort(struct engram_builder *b); /* NULL is allowed */

struct engram_merge_opts {
    const float *scale;       /* [files] of counts; NULL: 1 */
    int64_t      day;         /* counts are brought to this day */
    int64_t      unused_days; /* rows without a write for longer are left out; -1: none */
    double       count_min;   /* rows below are left out, after decay */
    uint64_t     bytes_max;   /* the rarest rows are left out, of equally rare ones the longest; 0: no limit */
};
/* All epochs of all files of g into one epoch of a new file. The first file's weights are kept. */
MUST_CHECK enum err_code engram_merge(const struct engram *g, const char *path, const struct engram_merge_opts *o,
                                      const struct progress *p, struct err *e);

/* One writer for each file: ERR_IO when another one has it. */
struct engram_lock;
MUST_CHECK enum err_code engram_lock(struct engram_lock **out, const char *path, struct err *e);
void engram_unlock(struct engram_lock *l); /* NULL is allowed */
#endif
