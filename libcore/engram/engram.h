/* SPDX-License-Identifier: Apache-2.0 */
/* engram.h - n-gram tables beside the model: look-ups, and their weight in the mixture.
 * room: engram
 *
 * A table (chimere-engram(5)) says which tokens followed the last 1 to 8 tokens, and how often. It is a file of
 * epochs, one for each write. An epoch is a trie of contexts, newest token first: contexts are compared in full
 * (there are no hashes), and shorter contexts are found on the way to longer ones. Counts halve every 30 days.
 * Open tables never change: any number of threads may use them.
 */
#ifndef ENGRAM_ENGRAM_H
#define ENGRAM_ENGRAM_H
#include "base/base.h"

struct gen_context;
struct gen_memory;
struct engram;
struct engram_builder;
struct io_out;
struct pool;

enum {
    ENGRAM_ORDER_MAX = 8,  /* tokens of a context */
    ENGRAM_NEXT_MAX = 32,  /* tokens that a look-up gives */
    ENGRAM_FILES_MAX = 16, /* tables side by side */
    ENGRAM_EPOCHS_MAX = 4096,
    ENGRAM_DOMAIN_BYTES = 64, /* of a domain's name, with the NUL */
    ENGRAM_PARTS = 4,         /* tokens of a word that follows a separate space token */
    ENGRAM_TOKEN_MAX = INT32_MAX,
    ENGRAM_HALF_LIFE_DAYS = 30,
    ENGRAM_UNUSED_DAYS = 90,
};

/* ---- look-up ---- */

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
/* One table of the files of both, those of `first` first. The files still belong to the two tables, which must outlive it.
 * ERR_ARG: too many files. */
MUST_CHECK enum err_code engram_join(struct engram **out, const struct engram *first, const struct engram *second,
                                     struct err *e);
/* A table of the epochs of first's file (NULL: none) and then those epochs of more's file that `with` [epochs of more] marks,
 * with the weights of `first`. Both must outlive it. */
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

/* ---- the mixture ---- */

/* A text named in the prompt, to be recited in the answer. */
struct engram_recital {
    const int32_t *token; /* [n] without the name; n 0: there is none */
    int64_t n;
    int32_t end;        /* what follows the text: a token that ends a turn; -1: nothing */
    int32_t newline[2]; /* tokens of newlines, which are skipped where the answer's text begins; -1: none */
    float weight;       /* of the text in the mixture, 0 .. 1 */
};
/* The token that follows in the text: it is looked up by as many of the answer's last tokens as match, at most 8. Where the
 * answer's text begins, it is the text's first token (whole: right behind the reasoning). False: there is none. */
bool engram_recite(const struct engram_recital *r, const struct gen_context *at, struct engram_next *out);

/* The object of gen_memory's functions, for p' = (1 - w) p + w q. If the recital knows the next token of the answer's text,
 * it is used instead of the table. */
struct engram_mix {
    const struct engram *table; /* NULL: none */
    struct engram_recital recital;
    float ceiling[ENGRAM_FILES_MAX]; /* of each file: the largest w; a token loses at most -ln(1 - w) nats */
    bool thinking;                   /* also mix into reasoning */
    int32_t n_vocab;                 /* of the model: tokens of a table beyond it are left out */
    /* The text may end in a space that belongs to the token of the next word. space: the token of a single space, -1: none.
     * parts[t]: the tokens of t's text without its leading space, filled up with -1. `spaced` lists the tokens t that have
     * parts, sorted by them. */
    int32_t space;
    const int32_t (*parts)[ENGRAM_PARTS]; /* [n_vocab] */
    const int32_t *spaced;                /* [n_spaced] */
    int32_t n_spaced;
};
extern const struct gen_memory engram_memory; /* its object: a struct engram_mix */

/* As engram_look(), but a separate space token in the text may count as part of the token that follows it, if the table
 * knows more about that. */
void engram_mix_look(const struct engram_mix *m, const int32_t *token, int64_t n, struct engram_next *out);
/* The evidence of a look-up as one number, and the weight for it if the model's likeliest token has probability p_max. */
uint32_t engram_evidence(const struct engram_next *next);
float engram_weight(const struct engram_mix *m, uint32_t evidence, float p_max);

/* Weights by evidence, from what a model and a table said of held-out text. */
struct engram_fit;
MUST_CHECK enum err_code engram_fit_open(struct engram_fit **out, struct err *e);
void engram_fit_close(struct engram_fit *f); /* NULL is allowed */
/* A token had probability p from the model and q from the table, which gave `mass` in all. half: 0 or 1, of the text. */
MUST_CHECK enum err_code engram_fit_add(struct engram_fit *f, uint32_t evidence, float p_max, float p, float q,
                                        float mass, int half, struct err *e);
/* Writes the weights into the table. No weight is above that of a table without a fit. If the best
 * weight of one half of the text does not help the other half, it is 0. *used: how many kinds of
 * evidence have a weight above 0. */
MUST_CHECK enum err_code engram_fit_write(const struct engram_fit *f, const char *path, int *used, struct err *e);
bool engram_fitted(const struct engram *g, int file);

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
int engram_n_files(const struct engram *g);
uint64_t engram_file_bytes(const struct engram *g, int file);
uint64_t engram_tokenizer(const struct engram *g, int file);

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

/* ---- writing ---- */

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
    uint64_t resume; /* a number that identifies this build, for engram_build_leave(); 0: nothing is left behind */
};
/* The complete file appears at commit, or the old one stays as it was. If the tokens do not fit into the memory, sorted
 * parts are written beside the file, PATH.part-0 and so on. Parts of an earlier build with the same `resume` are used, and
 * its day is kept; the caller must then pass the same tokens again from the start. Other parts are removed. ERR_IO: there is
 * a file of another kind with this name. */
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
 * first appear. The first file's weights are kept. */
MUST_CHECK enum err_code engram_merge(const struct engram *g, const char *path, const struct engram_merge_opts *o,
                                      const struct progress *p, struct err *e);

/* Writes the epochs of g's first file unchanged. */
MUST_CHECK enum err_code engram_write(const struct engram *g, const char *path, struct err *e);

/* Imports tables of an earlier format, ".engr" version 1, which have hashes instead of contexts. Contexts that occur in the
 * given texts are found, and those that follow from them. ERR_FORMAT, ERR_UNSUPPORTED: the file is not such a table. */
struct engram_import;
MUST_CHECK enum err_code engram_import_open(struct engram_import **out, const char *path, struct err *e);
void engram_import_close(struct engram_import *x); /* NULL is allowed */
MUST_CHECK enum err_code engram_import_text(struct engram_import *x, const int32_t *token, int64_t n, struct err *e);
void engram_import_stat(const struct engram_import *x, uint64_t *found, uint64_t *all); /* contexts */
/* Writes what was found as a table; shorter contexts get the sums of longer ones. */
MUST_CHECK enum err_code engram_import_write(const struct engram_import *x, const char *path, uint64_t tokenizer,
                                             int64_t day, struct err *e);
#endif
