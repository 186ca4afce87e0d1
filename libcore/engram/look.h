/* SPDX-License-Identifier: Apache-2.0 */
/* look.h - n-gram tables: opened, and looked up.
 *
 * A table (chimere-engram(5)) says which tokens followed the last 1 to 8 tokens, and how often. It is a file of
 * epochs, one for each write. An epoch is a trie of contexts, newest token first: contexts are compared in full
 * (there are no hashes), and shorter contexts are found on the way to longer ones. Counts halve every 30 days.
 * Open tables never change: any number of threads may use them.
 */
#ifndef ENGRAM_LOOK_H
#define ENGRAM_LOOK_H
#include "base/base.h"

struct engram;

enum {
    ENGRAM_ORDER_MAX = 8,  /* tokens of a context */
    ENGRAM_NEXT_MAX = 32,  /* tokens that a look-up gives */
    ENGRAM_FILES_MAX = 16, /* tables side by side */
    ENGRAM_EPOCHS_MAX = 4096,
    ENGRAM_DOMAIN_BYTES = 64, /* of a domain's name, with the NUL */
    ENGRAM_HALF_LIFE_DAYS = 30,
};

struct engram_opts {
    uint64_t tokenizer;         /* text_fingerprint() of the model; another one in a file is ERR_FORMAT. 0: any */
    int64_t day;                /* today, in days since 1970: counts are decayed to this day */
    const char *const *domains; /* [n_paths] names separated by commas: only epochs of these domains; an entry NULL: all
                                 * epochs of the file. NULL: all epochs of all files */
};
/* Maps the files and checks all of their contents: sums, order of keys, bounds. ERR_FORMAT says what is wrong. Several
 * files act as one table. */
MUST_CHECK enum err_code engram_open(struct engram **out, const char *const *paths, int n_paths,
                                     const struct engram_opts *o, struct err *e);
/* Whether a domain's name is valid: 1 to 63 letters, digits, '.', '_' and '-'. */
bool engram_domain_ok(struct str name);
/* One table of the files of both, those of `first` first. The files still belong to the two tables, which must outlive
 * it. ERR_ARG: too many files. */
MUST_CHECK enum err_code engram_join(struct engram **out, const struct engram *first, const struct engram *second,
                                     struct err *e);
/* A table of the epochs of first's file (NULL: none) and then those epochs of more's file that `with` [epochs of more]
 * marks. Both must outlive it. */
MUST_CHECK enum err_code engram_view(struct engram **out, const struct engram *first, const struct engram *more,
                                     const bool *with, struct err *e);
void engram_close(struct engram *g); /* NULL is allowed */

struct engram_next {
    int32_t token[ENGRAM_NEXT_MAX];
    float q[ENGRAM_NEXT_MAX]; /* probabilities, descending; their sum may be below 1 */
    int n;                    /* 0: the table says nothing */
    int order;                /* tokens of the longest context that was seen, 1 .. ENGRAM_ORDER_MAX */
    int file;                 /* the file with the most counts for it */
    bool whole;               /* the context is the whole text */
    double count;             /* how often it was seen, decayed */
};
/* What follows token[0 .. n), by the longest context that one of the files has. */
void engram_look(const struct engram *g, const int32_t *token, int64_t n, struct engram_next *out);

int engram_n_files(const struct engram *g);
const char *engram_file_name(const struct engram *g, int file); /* without the directory; lives as long as the table */
uint64_t engram_file_bytes(const struct engram *g, int file);
#endif
