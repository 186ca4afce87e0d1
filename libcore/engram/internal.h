/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the file of a table as it is mapped, and how epochs are written.  room: engram
 *
 * A file is a head and epochs. An epoch is a head, for each order 1 .. `order` the arrays of struct level, each
 * at a multiple of 64 bytes, and the sums of all that in blocks of a MiB. Numbers are little-endian.
 */
#ifndef ENGRAM_INTERNAL_H
#define ENGRAM_INTERNAL_H
#include <stdio.h>
#include "base/io.h"
#include "engram/build.h"
#include "engram/import.h"
#include "engram/mix.h"

enum {
    FORMAT = 1,
    HEAD_BYTES = 4096, /* of a file */
    EPOCH_BYTES = 512, /* head of an epoch */
    ALIGN_BYTES = 64,
    NAME_BYTES = 256,    /* of a file's name, with the NUL */
    SUM_BYTES = 1 << 20, /* bytes that a sum covers */
    PARTS = 8,           /* arrays of a level */
    AGE_MAX = UINT16_MAX,
    FILTER_WORDS = 8, /* of 32 bits in a block of a filter */
    FILTER_BITS = 12, /* for a context */
};

/* Contexts of one order. Context k continues context p of the order below where child_end[p - 1] <= k < child_end[p]
 * with one older token. */
struct level {
    uint64_t n, n_next, n_blocks;
    const uint32_t *token;     /* [n] the oldest one, ascending under one parent */
    const uint64_t *child_end; /* [n] in the order above */
    const uint64_t *next_end;  /* [n] in next, count and age */
    const float *total;        /* [n] sum of count */
    const uint32_t *filter;    /* [n_blocks][FILTER_WORDS] */
    const uint32_t *next;      /* [n_next] by count, descending, then by token */
    const float *count;        /* [n_next] worth on the epoch's day */
    const uint16_t *age;       /* [n_next] days from the last write to the epoch's day */
};
struct epoch {
    const unsigned char *at; /* its bytes */
    int64_t day;
    int order;
    uint64_t tokens, documents, bytes;
    char domain[ENGRAM_DOMAIN_BYTES];
    uint64_t n_known;
    const uint64_t *known; /* [n_known] of documents, ascending */
    struct level level[ENGRAM_ORDER_MAX];
};
struct file {
    struct io_map map;
    char name[NAME_BYTES];
    uint64_t tokenizer;
    struct epoch *epoch; /* [n_epochs] */
    int n_epochs;
};
typedef bool engram_filter_fn(const uint32_t *filter, uint64_t n_blocks, uint64_t hash);
struct engram {
    struct file file[ENGRAM_FILES_MAX];
    int n_files;
    int64_t day;
    engram_filter_fn *has; /* engram_filter_has() */
    bool borrowed;         /* the files are those of others */
    struct epoch *own;     /* of a view; NULL: none */
};

struct range {
    uint64_t begin, end;
};

/* table.c */
void engram_put_head(unsigned char head[HEAD_BYTES], uint64_t tokenizer, uint64_t bytes); /* bytes: of the file */
/* Writes the head again, with the length that the file has now. */
MUST_CHECK enum err_code engram_end_file(struct io_out *out, unsigned char head[HEAD_BYTES], struct err *e);
/* ep: sizes are set. sums_hash: of the sums behind the arrays. */
void engram_put_epoch(unsigned char head[EPOCH_BYTES], const struct epoch *ep, uint64_t sums_hash);
/* Marks a head as that of a sorted part: the number of what is built, and how much of it the part and those before it
 * have. */
void engram_put_part(unsigned char head[HEAD_BYTES], uint64_t resume, uint64_t done);
bool engram_get_part(const char *path, uint64_t *resume, uint64_t *done); /* false: the file is no such part */
MUST_CHECK enum err_code engram_map(struct file *out, const char *path, uint64_t tokenizer, struct err *e);
void engram_unmap(struct file *f);
/* Bytes of the arrays of a level, in the order of struct level. */
void engram_part_bytes(uint64_t bytes[PARTS], uint64_t n, uint64_t n_next, uint64_t n_blocks, bool top);
struct range engram_children(const struct epoch *ep, int level, uint64_t k);
struct range engram_nexts(const struct epoch *ep, int level, uint64_t k);
/* 2^(-days / half-life) */
double engram_decay(int64_t days);

/* filter.c: a split block Bloom filter (Putze, Sanders, Singler 2007; the layout of Apache Parquet). No context
 * that is in it is denied. */
uint64_t engram_filter_blocks(uint64_t n);
uint64_t engram_hash(uint64_t before, uint32_t token); /* of a context with one older token; 0: of none */
void engram_filter_add(uint32_t *filter, uint64_t n_blocks, uint64_t hash);
void engram_filter_fetch(const uint32_t *filter, uint64_t n_blocks, uint64_t hash); /* will be asked soon */
/* Whether it may be there. CPUID is slow: the function for this processor is asked for once. */
engram_filter_fn *engram_filter_has(void);

/* build.c: a table of rows, sorted by the context, its newest token first, then by the next token. */
struct engram_row_at {
    const int32_t *at; /* the next token; at[-1 - k] are those before it */
    int order;
    double count; /* whole */
};
struct engram_build_opts; /* of which tokenizer, day, order and versions are used */
MUST_CHECK enum err_code engram_write_rows(const char *path, const struct engram_row_at *row, size_t n,
                                           const struct engram_build_opts *o, uint64_t tokens, struct err *e);

/* emit.c: writes an epoch, contexts after those that continue them, siblings by token. */
struct emit;
struct entry {
    int32_t token;
    uint32_t age;
    int source; /* merging: which one it is from */
    double count;
};
/* path (not copied): temporary files without a name lie beside it. NULL: nothing is written, only counted. */
MUST_CHECK enum err_code engram_emit_open(struct emit **out, const char *path, int order, struct err *e);
void engram_emit_close(struct emit *m); /* NULL is allowed */
/* A context of the level; entries in any order of different tokens, which this sorts. hash: of the context. */
MUST_CHECK enum err_code engram_emit(struct emit *m, int level, uint32_t token, uint64_t hash, struct entry *v,
                                     size_t n, struct err *e);
void engram_sort_entries(struct entry *v, size_t n, int (*order)(const void *, const void *));
uint64_t engram_emit_contexts(const struct emit *m);
uint64_t engram_emit_bytes(const struct emit *m, uint64_t n_known); /* of the epoch */
/* of: its day, tokens, documents, domain and known ones. */
MUST_CHECK enum err_code engram_emit_write(struct emit *m, struct io_out *out, const struct epoch *of, struct err *e);

/* merge.c: all epochs of the files into m. */
struct merge_rule {
    const float *scale;
    int64_t day, unused_days;
    double count_min, score_min;
    const char *domain; /* epochs of this one alone; NULL: all */
};
MUST_CHECK enum err_code engram_merge_into(struct emit *m, const struct file *file, int n_files,
                                           const struct merge_rule *rule, const struct progress *p, struct err *e);
#endif
