/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h - the file of an index as it is mapped.                          room: recall
 *
 * A head and arrays, each at a multiple of 64 bytes. Numbers are little-endian. */
#ifndef RECALL_INTERNAL_H
#define RECALL_INTERNAL_H
#include "base/io.h"
#include "recall/recall.h"

enum {
    FORMAT = 4,            /* its vectors are in another file, under numbers of their own */
    FORMAT_UNNUMBERED = 3, /* these numbers are those of the texts */
    FORMAT_PLAIN = 2,      /* its vectors are a model's, in the file */
    FORMAT_OLD = 1,        /* has no origins */
    HEAD_BYTES = 512,
    ALIGN_BYTES = 64,
    LANES = 16,          /* a vector in the file is padded to a multiple of this many floats */
    WORD_BYTES_MAX = 64, /* longer words end there */
    LINKS = 16,          /* of a text in the graph's upper levels; twice as many in the lowest */
    LEVELS_MAX = 16,
    WIDTH = 128, /* candidates that are kept while the graph is searched */
};
#define NO_LINK UINT32_MAX

struct posting {
    uint32_t text, count;
};

enum array {
    ARRAY_MEAN,        /* float [stride] of all vectors, before they were normalised */
    ARRAY_VECTOR,      /* float [n_texts][stride], length 1 or 0, the mean taken away */
    ARRAY_TEXT_END,    /* uint64 [n_texts] */
    ARRAY_TEXT,        /* bytes */
    ARRAY_LENGTH,      /* uint32 [n_texts] words of a text */
    ARRAY_WORD_END,    /* uint64 [n_words] */
    ARRAY_WORD,        /* bytes; words ascend */
    ARRAY_POSTING_END, /* uint64 [n_words] */
    ARRAY_POSTING,     /* struct posting, ascending under one word */
    ARRAY_LEVEL,       /* uint8 [n_texts]: the highest level that a text is in; absent without a graph */
    ARRAY_LINK,        /* uint32 [n_texts][2 LINKS]: neighbours in the lowest level, NO_LINK behind them */
    ARRAY_UPPER,       /* uint32 [sum of levels][LINKS]: in levels 1 and up, text by text */
    ARRAY_ORIGIN,      /* struct origin [n_texts]; this and the rest are absent in files of FORMAT_OLD */
    ARRAY_FILE_TIME,   /* int64 [n_files] ns since 1970 */
    ARRAY_FILE_END,    /* uint64 [n_files] */
    ARRAY_FILE,        /* bytes: names */
    ARRAY_HEADING_END, /* uint64 [n_texts] */
    ARRAY_HEADING,     /* bytes */
    ARRAY_MEMBERS_END, /* uint64 [n_texts] */
    ARRAY_MEMBERS,     /* bytes: JSON objects */
    ARRAY_BY_STEM,     /* uint32 [n_words]: words by their English stem, then by their number */
    ARRAYS,
};

/* Of a text. */
struct origin {
    uint64_t line, hash; /* hash: of the heading and the text */
    uint32_t file;       /* NO_FILE: not known */
    uint32_t label;      /* of its vector in another file, if sizes.labels > 0; else 0 */
};
#define NO_FILE UINT32_MAX

struct sizes {
    uint64_t tokenizer, model, n_texts, dims, layer, text_bytes, n_words, word_bytes, n_postings, n_upper, graph;
    /* Since version 2; behind the sum of the arrays in the head. */
    uint64_t origins /* 0 or 1: whether there are any */, n_files, file_bytes, heading_bytes, members_bytes;
    /* Since version 3; 0 before. */
    uint64_t maker, outside_bytes /* 0: the vectors are here */, outside_sum;
    /* Since version 4, behind the path; 0 before. */
    uint64_t labels; /* vectors of the other file; << 32: a number of how they are written */
};

/* n: a multiple of LANES */
typedef float recall_dot(const float *a, const float *b, uint64_t n);

struct recall {
    recall_dot *dot;
    struct io_map map;
    struct sizes s;
    char path[RECALL_PATH_BYTES];
    uint64_t stride;
    const float *mean, *vector;
    const uint64_t *text_end, *word_end, *posting_end;
    const char *text, *word;
    const uint32_t *length, *link, *upper;
    const struct posting *posting;
    const uint8_t *level;
    const struct origin *origin; /* NULL: there are none */
    const int64_t *file_time;
    const uint64_t *file_end, *heading_end, *members_end;
    const char *file, *heading, *members;
    const uint32_t *by_stem; /* NULL: there are no stems */
    uint64_t *upper_at;      /* [n_texts] in rows of LINKS; NULL without a graph */
    uint64_t entry;          /* where a search of the graph begins */
    double length_mean;
};

struct part {
    const void *p;
    uint64_t bytes;
};

/* open.c */
uint64_t recall_stride(uint64_t dims);
uint64_t recall_n_labels(const struct sizes *s);
void recall_array_bytes(uint64_t bytes[ARRAYS], const struct sizes *s);
void recall_put_head(unsigned char head[HEAD_BYTES], const struct sizes *s, const char *path, uint64_t sum);
/* Of the arrays, one after the other; origins: of all of them. */
uint64_t recall_sum(const struct part part[ARRAYS], bool origins);

/* words.c: the next word of s at or after *at, in lower case; its bytes, 0: there is none. */
size_t recall_word(struct str s, size_t *at, char word[WORD_BYTES_MAX]);
/* Calls fn for each word of s as an index has them, so for two with a hyphen between them also for both in one, until
 * it fails. *length grows by how many words there are, without the joined ones. */
typedef enum err_code recall_word_fn(void *ctx, const char *word, size_t n, struct err *e);
MUST_CHECK enum err_code recall_each_word(struct str s, recall_word_fn *fn, void *ctx, uint32_t *length, struct err *e);

/* porter.c: the stem of a word of n bytes in lower case; of words with other letters than a to z they are the stem. */
size_t recall_stem_english(const char *word, size_t n, char out[WORD_BYTES_MAX]);

/* near.c */
recall_dot *recall_dot_best(void); /* of this processor; the sum is the same on all */
/* Takes the mean away and makes the length 1, or all 0. */
void recall_direct(float *v, const float *mean, uint64_t dims);
/* Puts a hit into hits[0 .. *n), sorted, of at most k. */
void recall_keep(struct recall_hit *hits, int *n, int k, struct recall_hit h);

/* graph.c: a hierarchy of small worlds (Malkov and Yashunin 2016) */
struct graph {
    recall_dot *dot;
    const float *vector; /* [n][stride] */
    uint64_t n, stride, entry;
    uint8_t *level; /* [n] */
    uint32_t *link, *upper;
    uint64_t *upper_at, n_upper;
};
MUST_CHECK enum err_code recall_graph_make(struct graph *g, const struct progress *p, struct err *e);
/* The same from the graph of an index whose vectors stay: was[i] is the number of text i there, of at least one, or
 * NO_LINK. What is new is linked in, and what is gone is bridged. */
MUST_CHECK enum err_code recall_graph_go_on(struct graph *g, const struct graph *old, const uint32_t *was,
                                            const struct progress *p, struct err *e);
/* That of an index; it lives as long as r. */
struct graph recall_graph_of(const struct recall *r);
void recall_graph_free(struct graph *g);
MUST_CHECK enum err_code recall_graph_search(const struct graph *g, const float *v, int k, struct recall_hit *hits,
                                             int *n, struct err *e);
#endif
