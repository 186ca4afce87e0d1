/* SPDX-License-Identifier: Apache-2.0 */
/* mix.h - what is mixed into a model's probabilities: a table's, or a text that is recited; and with which weight. */
#ifndef ENGRAM_MIX_H
#define ENGRAM_MIX_H
#include "engram/look.h"
#include "engram/weigh.h"

struct gen_context;
struct gen_memory;

enum { ENGRAM_PARTS = 4 }; /* tokens of a word that follows a separate space token */

/* A text named in the prompt, to be recited in the answer. */
struct engram_recital {
    const int32_t *token; /* [n] without the name; n 0: there is none */
    int64_t n;
    int32_t end;        /* what follows the text: a token that ends a turn; -1: nothing */
    int32_t newline[2]; /* tokens of newlines, which are skipped where the answer's text begins; -1: none */
    float weight;       /* of the text in the mixture, 0 .. 1 */
};
/* The token that follows in the text: it is looked up by as many of the answer's last tokens as match, at most 8. Where
 * the answer's text begins, it is the text's first token (whole: right behind the reasoning). False: there is none. */
bool engram_recite(const struct engram_recital *r, const struct gen_context *at, struct engram_next *out);

/* The object of gen_memory's functions, for p' = (1 - w) p + w q. If the recital knows the next token of the answer's
 * text, it is used instead of the table. */
struct engram_mix {
    const struct engram *table; /* NULL: none */
    struct engram_recital recital;
    float ceiling[ENGRAM_FILES_MAX]; /* of each file: w is never larger; a token loses at most -ln(1 - w) nats */
    bool thinking;                   /* also mix into reasoning */
    int32_t n_vocab;                 /* of the model: tokens of a table beyond it are left out */
    /* The text may end in a space that belongs to the token of the next word. space: the token of a single space, -1:
     * none. parts[t]: the tokens of t's text without its leading space, filled up with -1. `spaced` lists the tokens t
     * that have parts, sorted by them. */
    int32_t space;
    const int32_t (*parts)[ENGRAM_PARTS]; /* [n_vocab] */
    const int32_t *spaced;                /* [n_spaced] */
    int32_t n_spaced;
};
extern const struct gen_memory engram_memory; /* its object: a struct engram_mix; its parts: the table's files, then the
                                               * recital, if there is one */

/* As engram_look(), but a separate space token in the text may count as part of the token that follows it, if the table
 * knows more about that. */
void engram_mix_look(const struct engram_mix *m, const int32_t *token, int64_t n, struct engram_next *out);
/* What a look-up said of a token that came, and had p from the model. */
struct engram_came {
    double p, q, mass; /* mass: sum of all q */
};
struct engram_came engram_came(const struct engram_next *next, int32_t token, double p);
/* The evidence of a look-up as one number, and the weights for it, the most cautious one first, if the model's
 * likeliest token has probability p_max. */
uint32_t engram_evidence(const struct engram_next *next);
void engram_weights(const struct engram_mix *m, uint32_t evidence, float p_max, float w[ENGRAM_STRENGTHS]);
#endif
