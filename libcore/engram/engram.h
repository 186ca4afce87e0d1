/* SPDX-License-Identifier: Apache-2.0 */
/* engram.h - n-gram tables beside the model: look-ups, and their weight in the mixture.
 * room: engram (base gen)
 *
 * A table (chimere-engram(5)) says which tokens followed the last 1 to 8 tokens, and how often. It is a file of
 * epochs, one for each write; an epoch is a trie of contexts, newest token first, so keys are compared whole and
 * shorter contexts lie on the way to longer ones. Counts halve every 30 days. Open tables never change: any
 * number of threads may look into them.
 */
#ifndef ENGRAM_ENGRAM_H
#define ENGRAM_ENGRAM_H
#include "base/base.h"

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
    ENGRAM_PARTS = 4,      /* tokens of a word that is written after a space of its own */
    ENGRAM_TOKEN_MAX = INT32_MAX,
    ENGRAM_HALF_LIFE_DAYS = 30,
    ENGRAM_UNUSED_DAYS = 90,
};

/* ---- look-up ---- */

struct engram_opts {
    uint64_t tokenizer; /* text_fingerprint() of the model; another one in a file is ERR_FORMAT. 0: any */
    int64_t  day;       /* today, in days since 1970: counts are what they are worth on that day */
    const char *const *domains; /* [n_paths] NULL: all epochs; or names with commas between them: epochs of these alone.
                                 * NULL: all of all */
};
/* Maps the files and checks them whole: sums, order of keys, bounds. ERR_FORMAT says what is wrong. Several files
 * are one table. */
MUST_CHECK enum err_code engram_open(struct engram **out, const char *const *paths, int n_paths,
                                     const struct engram_opts *o, struct err *e);
/* Letters, digits, '.', '_' and '-', 1 to 63 of them. */
bool engram_domain_ok(struct str name);
/* The files of both, first's first, as one table: they stay theirs and have to outlive it. ERR_ARG: they are too many. */
MUST_CHECK enum err_code engram_join(struct engram **out, const struct engram *first, const struct engram *second, struct err *e);
/* The epochs of first's file (NULL: none), then those of more's that `with` marks, [epochs of more]: a table with the weights
 * of first. Both outlive it. */
MUST_CHECK enum err_code engram_view(struct engram **out, const struct engram *first, const struct engram *more, const bool *with,
                                     struct err *e);
void engram_close(struct engram *g); /* NULL is allowed */

struct engram_next {
    int32_t token[ENGRAM_NEXT_MAX];
    float   q[ENGRAM_NEXT_MAX]; /* probabilities, descending; their sum may be below 1 */
    int     n;                  /* 0: the table says nothing */
    int     order;              /* tokens of the longest context that was seen, 1 .. ENGRAM_ORDER_MAX */
    int     file;               /* the one that knows most of it */
    bool    whole;              /* the context is all of the text */
    double  count;              /* how often it was seen, decayed */
};
/* What follows token[0 .. n), by the longest context that one of the files has. */
void engram_look(const struct engram *g, const int32_t *token, int64_t n, struct engram_next *out);

/* ---- the mixture ---- */

/* A text named in the prompt, to be recited in the answer. */
struct engram_recital {
    const int32_t *token;      /* [n] without the name; n 0: there is none */
    int64_t        n;
    int64_t        n_prompt;   /* tokens of the prompt: the answer begins there */
    int32_t        end;        /* what follows the text: a token that ends a turn; -1: nothing */
    int32_t        close;      /* ends the reasoning; -1: none does */
    int32_t        newline[2]; /* tokens of newlines, no part of the answer's text where it begins; -1: none */
    float          weight;     /* of the text in the mixture, 0 .. 1 */
};
/* The token that follows token[0 .. n) in the text, the longest of the last 8 tokens of the answer looked for, or the
 * text's first where an answer begins (whole: right behind the reasoning). False: it says nothing. */
bool engram_recite(const struct engram_recital *r, const int32_t *token, int64_t n, struct engram_next *out);

/* What gen_memory's functions get: p' = (1 - w) p + w q. If a recital knows the next token of the answer's text, it is used
 * instead of the table. */
struct engram_mix {
    const struct engram *table; /* NULL: none */
    struct engram_recital recital;
    float          ceiling[ENGRAM_FILES_MAX]; /* of each file: w is at most this; -ln(1 - w) nats is what a token can lose */
    bool           thinking; /* mix into reasoning, too */
    int32_t        n_vocab;  /* of the model: other tokens of a table are left out */
    /* The text may end in a space that belongs to the token of the next word. space: the token of a space alone, -1: none.
     * parts[t]: tokens of t's text without the space in front, -1 behind them; t is in spaced, which is sorted by
     * parts, first one first. */
    int32_t        space;
    const int32_t (*parts)[ENGRAM_PARTS]; /* [n_vocab] */
    const int32_t *spaced;                /* [n_spaced] */
    int32_t        n_spaced;
};
extern const struct gen_memory engram_memory; /* its object: a struct engram_mix */

/* As engram_look(), with a space at the end or within taken for part of the token that follows, if that is known
 * better. */
void engram_mix_look(const struct engram_mix *m, const int32_t *token, int64_t n, struct engram_next *out);
/* The evidence of a look-up in one number; the weight that belongs to it when the model's likeliest token has p_max. */
uint32_t engram_evidence(const struct engram_next *next);
float    engram_weight(const struct engram_mix *m, uint32_t evidence, float p_max);

/* Weights by evidence, from what a model and a table said of held-out text. */
struct engram_fit;
MUST_CHECK enum err_code engram_fit_open(struct engram_fit **out, struct err *e);
void engram_fit_close(struct engram_fit *f); /* NULL is allowed */
/* A token had probability p from the model and q from the table, which gave `mass` in all. half: 0 or 1, of the text. */
MUST_CHECK enum err_code engram_fit_add(struct engram_fit *f, uint32_t evidence, float p_max, float p, float q,
                                        float mass, int half, struct err *e);
/* Writes the weights into the table. No weight is above the one of a table that
 * was not fitted; where one half's best does not help the other half, it is 0. *used: kinds
 * of evidence whose weight is above 0. */
MUST_CHECK enum err_code engram_fit_write(const struct engram_fit *f, const char *path, int *used, struct err *e);
bool engram_fitted(const struct engram *g, int file);

/* ---- what is in a file ---- */

struct engram_order_stat {
    uint64_t contexts, nexts, bytes;
};
struct engram_epoch_stat {
    int64_t  day;
    int      order;
    uint64_t tokens, documents, bytes; /* tokens and documents that it was counted from */
    const char *domain; /* "": none; lives as long as the table */
    struct engram_order_stat of[ENGRAM_ORDER_MAX];
};
int      engram_n_epochs(const struct engram *g, int file);
struct engram_epoch_stat engram_epoch_stat(const struct engram *g, int file, int epoch);
int      engram_n_files(const struct engram *g);
uint64_t engram_file_bytes(const struct engram *g, int file);
uint64_t engram_tokenizer(const struct engram *g, int file);

/* Whether an epoch lists a document: `known` of struct engram_build_opts. */
bool     engram_knows(const struct engram *g, uint64_t known);

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
    const char *domain;    /* of the epoch; NULL: none */
    const uint64_t *known; /* [n_known] numbers of the documents, ascending, that the epoch lists; not copied */
    uint64_t n_known;
    uint64_t resume;       /* a number of what is built, for engram_build_leave(); 0: nothing is left */
};
/* The file appears whole at commit, or stays as it was. Where the tokens are more than the memory holds, sorted parts lie
 * beside it, PATH.part-0 and so on. Parts of an earlier build with the same `resume` are used, and its day is kept; the
 * caller must then pass the same tokens again from the start. Other parts are removed. ERR_IO: there is a file of another
 * kind with this name. */
MUST_CHECK enum err_code engram_build_open(struct engram_builder **out, const char *path,
                                           const struct engram_build_opts *o, struct err *e);
/* Tokens of a document; the next call goes on with it until engram_build_end(). No context crosses its borders. */
MUST_CHECK enum err_code engram_build_tokens(struct engram_builder *b, const int32_t *token, int64_t n, struct err *e);
MUST_CHECK enum err_code engram_build_end(struct engram_builder *b, struct err *e);
uint64_t engram_build_resumed(const struct engram_builder *b); /* tokens that earlier parts have */
/* Ends b in any case, after ERR_CANCEL as engram_build_leave(). progress: contexts written. */
MUST_CHECK enum err_code engram_build_commit(struct engram_builder *b, const struct progress *p, struct err *e);
void engram_build_abort(struct engram_builder *b); /* NULL is allowed */
/* The same, and parts stay; returns how many. */
int  engram_build_leave(struct engram_builder *b);

struct engram_merge_opts {
    const float *scale;       /* [files] of counts; NULL: 1 */
    int64_t      day;         /* counts are brought to this day */
    int64_t      unused_days; /* rows without a write for longer are left out; -1: none */
    double       count_min;   /* rows below are left out, after decay */
    uint64_t     bytes_max;   /* the rarest rows are left out, of equally rare ones the longest; 0: no limit */
};
/* All epochs of all files of g into a new file that has one epoch for each domain, the first one's first. The first file's
 * weights are kept. */
MUST_CHECK enum err_code engram_merge(const struct engram *g, const char *path, const struct engram_merge_opts *o,
                                      const struct progress *p, struct err *e);

/* The epochs of g's first file as they are. */
MUST_CHECK enum err_code engram_write(const struct engram *g, const char *path, struct err *e);

/* Tables of an earlier format, ".engr" version 1, which have hashes in the place of contexts: those that occur in the
 * texts are found, and those that follow from them. ERR_FORMAT, ERR_UNSUPPORTED: what path is not. */
struct engram_import;
MUST_CHECK enum err_code engram_import_open(struct engram_import **out, const char *path, struct err *e);
void engram_import_close(struct engram_import *x); /* NULL is allowed */
MUST_CHECK enum err_code engram_import_text(struct engram_import *x, const int32_t *token, int64_t n, struct err *e);
void engram_import_stat(const struct engram_import *x, uint64_t *found, uint64_t *all); /* contexts */
/* What was found becomes a table; shorter contexts get the sums of longer ones. */
MUST_CHECK enum err_code engram_import_write(const struct engram_import *x, const char *path, uint64_t tokenizer,
                                             int64_t day, struct err *e);
#endif
