/* SPDX-License-Identifier: Apache-2.0 */
/* recall.h - search for texts by their words, by a model's hidden rows, or by both.
 * room: recall
 *
 * An index (chimere-index(5)) is one file: the texts, a vector for each, and which words each has. An open index never
 * changes: any number of threads may search it.
 */
#ifndef RECALL_RECALL_H
#define RECALL_RECALL_H
#include "base/base.h"

struct pool;
struct progress;
struct recall;
struct recall_builder;
struct text;

#define RECALL_MAGIC "CHIMRECL" /* the first 8 bytes of the file */

enum {
    RECALL_TEXTS_MAX = 1 << 26,
    RECALL_TEXT_BYTES_MAX = 1 << 20,
    RECALL_DIMS_MAX = 1 << 16,
    RECALL_HITS_MAX = 1000,  /* of a search */
    RECALL_FLAT_MAX = 20000, /* with up to this many texts all vectors are compared; with more there is a graph */
};

/* ---- searching ---- */

/* Maps a file and checks all of it: sums, bounds, order. ERR_FORMAT says what is wrong. */
MUST_CHECK enum err_code recall_open(struct recall **out, const char *path, struct err *e);
void recall_close(struct recall *r); /* NULL is allowed */

/* What made the vectors. */
enum recall_maker {
    RECALL_MODEL,     /* means of its rows after a layer */
    RECALL_ELSEWHERE, /* another program */
    RECALL_EMBEDDER,  /* a file of a vector for each token */
};
enum { RECALL_PATH_BYTES = 320 };
struct recall_info {
    uint64_t tokenizer; /* text_fingerprint() of the model's file, for the weights of words */
    uint64_t model;     /* model_fingerprint(), or a number of the program or file, that made the vectors */
    int64_t n_texts;
    int dims, layer; /* of the vectors, dims 0: there are none; means of the rows after this layer */
    int64_t n_words, bytes;
    bool graph; /* recall_near() need not compare every vector */
    enum recall_maker maker;
    const char *path;                    /* of the embedder's file; "": not known */
    uint64_t outside_bytes, outside_sum; /* of the file that has the vectors; 0: it is this one */
    int64_t n_labels;                    /* vectors of that file, some of which may be of texts that are gone */
};
struct recall_info recall_info(const struct recall *r);
struct str recall_text(const struct recall *r, int64_t i);
/* The number of a text's vector in the file that has them. */
int64_t recall_label(const struct recall *r, int64_t i);

/* Where a text comes from. What is not known is 0, or has no bytes. */
struct recall_origin {
    struct str file;
    int64_t line;       /* of the file, where the text begins, from 1 */
    int64_t time_ns;    /* of the file's last change, since 1970 */
    struct str heading; /* that it stands under */
    struct str members; /* of the JSON object that it was: an object without the text */
    uint64_t hash;      /* of the heading and the text, by io_hash() */
};
struct recall_origin recall_origin_of(const struct recall *r, int64_t i);

struct recall_hit {
    int64_t text;
    float score; /* by words: BM25's; by vectors: the cosine; of both: recall_fuse() */
    float share; /* by words: how much of the query's weight the text's words have, 0 .. 1 */
};
/* Each search fills hits[0 .. *n), best first, equal ones in the order of the file; at most k <= RECALL_HITS_MAX. */
/* Texts with words of the query, by BM25 (k1 1.2, b 0.75). The weight of a word is its idf times the number of tokens
 * that t makes of it: rare words consist of several tokens, question words ("what is the meaning of") do not. A word of
 * the query is also any word with its English stem, or one that it makes with a neighbour ("OPL-3" is OPL3); these
 * count half. One that no text has is split ("TnSeq" is Tn Seq). exact: none of this, and the weight is squared, which
 * suits questions for a name. */
MUST_CHECK enum err_code recall_words(const struct recall *r, const struct text *t, struct str query, bool exact, int k,
                                      struct recall_hit *hits, int *n, struct err *e);
/* The scores that recall_words(), exact, gives texts[0 .. n), n >= 1, in an index of these alone: score[i] is 0 for a
 * text without words of the query. *most: what a text can have at most. */
MUST_CHECK enum err_code recall_rank(const struct text *t, struct str query, const struct str *texts, int n,
                                     float *score, double *most, struct err *e);
/* A vector as those of the index are, in *to, [dims]: the mean is taken away, and the length is 1 or 0. */
void recall_aim(const struct recall *r, const float *v, float *to);
/* Texts whose vectors have the direction of v, which is [dims] as given to recall_build_vector(). ERR_UNSUPPORTED: they
 * are outside. all: compare every
 * vector, even if there is a graph. pool may be NULL. */
MUST_CHECK enum err_code recall_near(const struct recall *r, const float *v, int k, bool all, struct pool *pool,
                                     struct recall_hit *hits, int *n, struct err *e);
/* Joins the hits of words and those of vectors, near v, by a sum of their scores with learnt weights. */
MUST_CHECK enum err_code recall_fuse(const struct recall *r, const float *v, const struct recall_hit *words,
                                     int n_words, const struct recall_hit *near, int n_near, int k,
                                     struct recall_hit *hits, int *n, struct err *e);

/* The part of a text, of at most n bytes and of whole words, that has the most words of the query; where it has none,
 * the beginning. */
struct str recall_snippet(struct str text, struct str query, size_t n);

/* ---- a document ---- */

struct recall_said {
    struct str text; /* a part of the document; n 0: it says nothing on the question */
    int64_t line;    /* where it begins, from 1 */
    float share;     /* of the question's weight that its line or paragraph has, 0 .. 1 */
};
/* What a document says on a question: the text of a line "NAME: TEXT" that the question names, or the words of a
 * paragraph that a ranker with learnt weights takes for the answer. Forms of a word, upper and lower case, and hyphens
 * do not matter; what is asked for is read from English words (who, when, how many). A question for yes or no, one that
 * has the answer itself, and one of whose weight less than a half is there, or a name and less than a quarter, have
 * none. */
MUST_CHECK enum err_code recall_answer(struct recall_said *out, struct str document, const struct text *t,
                                       struct str question, struct err *e);

/* ---- building ---- */

struct recall_outside {
    float *v; /* [n][dims], which may be changed */
    int64_t n;
    int dims;
    bool adds;           /* they come behind those of the old index's file */
    uint64_t bytes, sum; /* to be set: of the file, and their io_hash() */
};
/* Writes vectors to a file of its own. */
typedef enum err_code recall_outside_fn(void *ctx, struct recall_outside *o, struct err *e);
struct recall_build_opts {
    uint64_t tokenizer;
    bool graph;                 /* also for few texts */
    int versions;               /* old files that stay: PATH.1, PATH.2 and so on; 0: none are made */
    recall_outside_fn *outside; /* NULL: the vectors are in the file */
    void *ctx;
    uint32_t how; /* not 0: a number of how `outside` writes, which goes on only with a file of the same number */
};
MUST_CHECK enum err_code recall_build_open(struct recall_builder **out, const struct recall_build_opts *o,
                                           struct err *e);
/* text and origin are copied; origin NULL: not known; its hash is not read. The words of the heading count as words of
 * the text. All is kept in memory until the end. */
MUST_CHECK enum err_code recall_build_add(struct recall_builder *b, struct str text, const struct recall_origin *origin,
                                          struct err *e);
int64_t recall_build_count(const struct recall_builder *b);
/* A text that was added, and its heading; valid until the next one is added. */
struct str recall_build_text(const struct recall_builder *b, int64_t i, struct str *heading);
/* Vectors for the texts that were added, which are all; of nothing until they are given. Without this call the index
 * has none. */
struct recall_vectors {
    enum recall_maker maker;
    uint64_t model;
    int dims, layer;
    const char *path; /* of an embedder; NULL: none is kept, nor is one that is too long */
};
MUST_CHECK enum err_code recall_build_vectors(struct recall_builder *b, const struct recall_vectors *v, struct err *e);
/* Whether the vectors of an index are of the same origin. v->dims 0: not known. */
bool recall_same_vectors(const struct recall *r, const struct recall_vectors *v);
/* Texts that `old` has, too, with the same heading, take their vectors from there, and the mean that is taken away
 * stays that of old. Where it has less than half of the texts, nothing is taken, so that a mean does not outlive its
 * texts; nor is it from a file of version 1. Vectors in another file stay there, those of texts that are gone, too,
 * until they are more than a fifth of the new texts: then nothing is taken. *n: how many were taken. old's vectors are
 * of the same origin, and it stays open until the commit. */
MUST_CHECK enum err_code recall_build_reuse(struct recall_builder *b, const struct recall *old, int64_t *n,
                                            struct err *e);
bool recall_build_has_vector(const struct recall_builder *b, int64_t i); /* it was taken from an old index */
/* The vector of text i: v is [dims]. A text without one is near to nothing. */
void recall_build_vector(struct recall_builder *b, int64_t i, const float *v);
/* Ends b in any case; the complete file appears, or the old one stays. progress: texts linked into the graph. */
MUST_CHECK enum err_code recall_build_commit(struct recall_builder *b, const char *path, const struct progress *p,
                                             struct err *e);
void recall_build_abort(struct recall_builder *b); /* NULL is allowed */
#endif
