/* SPDX-License-Identifier: Apache-2.0 */
/* tables.h - a compiled grammar, a vocabulary, a place.                         room: grammar */
#ifndef GRAMMAR_TABLES_H
#define GRAMMAR_TABLES_H
#include "grammar/internal.h"

enum {
    GRAMMAR_LAST = 8,   /* flag: ACC and nothing comes after; a call that returns here needs no frame */
    GRAMMAR_OUT = 16,   /* flag: bytes lead on from here */
    GRAMMAR_CALLS = 32, /* flag: calls lead on from here */
    GRAMMAR_TRIES = 5,  /* the whole vocabulary, and without plain tokens of up to 4, 8, 16, 64 characters */
    GRAMMAR_PLAIN_MAX = 64,
    GRAMMAR_CONFIGS = 128,          /* ways that stay open at a time */
    GRAMMAR_FRAMES = 1 << 14,       /* frames of all stacks of a place and its past */
    GRAMMAR_TOKEN_BYTES_MAX = 1024, /* longer tokens are never allowed */
};

/* Preorder; node 0 is the root, depth 0. */
struct grammar_node {
    uint32_t skip; /* the next node that is not below this one */
    int32_t token; /* that ends here, or -1; more of the same bytes: vocab->same */
    uint16_t depth;
    uint8_t byte;
    bool twice; /* vocab->same has more */
};
struct grammar_trie {
    struct grammar_node *node;
    uint32_t n;
};

struct grammar_vocab {
    int32_t n_tokens, n_words; /* words of 32 bits of a mask */
    struct str *piece;         /* [n_tokens] into blob */
    char *blob;
    uint8_t *kind; /* [n_tokens] */
    int32_t *same; /* [n_tokens] next token of the same bytes, or -1 */
    struct grammar_trie trie[GRAMMAR_TRIES], control;
    uint32_t *plain[GRAMMAR_TRIES];     /* bits of the tokens that trie i lacks; [0] is NULL */
    uint32_t *ends;                     /* bits of end tokens */
    int32_t n_ends, n_trie, n_control;  /* tokens among ends, in the tries of both kinds */
    uint32_t below[GRAMMAR_TRIES][256]; /* nodes of a trie that begin with a byte */
    bool single[256];                   /* some token is this byte alone */
};

/* Ready parts of a state's mask. */
struct grammar_ready {
    uint32_t *bits; /* [n_words], may be shared */
    uint32_t *exit; /* nodes of the trie at which the rule may end and tokens go on */
    uint32_t n_exit, trie;
    uint32_t deep; /* frames that the tokens of bits add at most */
    uint64_t hash;
};

struct grammar {
    const struct grammar_vocab *v; /* or NULL */
    uint32_t n, n_cls, n_rule;     /* states (0: dead) */
    uint32_t root;                 /* start of the rule that is the text */
    uint8_t cls[256];
    uint32_t *next;        /* [n][n_cls] */
    uint8_t *flag, *plain; /* [n]; plain: characters of plain text that surely may come */
    uint16_t *need;        /* [n] frames that the rule needs to end */
    uint32_t *call_at;     /* [n + 1] */
    struct grammar_call *call;
    uint32_t *rule_at; /* [n_rule + 1] first state of each rule, its start */
    uint32_t need_max;
    uint32_t *ready_of; /* [n] 1 + index in ready, 0: none */
    struct grammar_ready *ready;
    uint32_t n_ready;
    bool *free_at; /* [n] every token may come; NULL: nowhere */
};

/* A frame: where a call returns to, and the frame below (0: the rule is the text). */
struct grammar_frame {
    uint32_t ret, below, hash;
    uint32_t depth;
};
/* One way: a state and its stack. */
struct grammar_config {
    uint32_t state, frame;
    bool read; /* has read a byte in this rule: it may end */
};
struct grammar_set {
    uint32_t n;
    bool may_end, over; /* over: a token after the end was taken */
    struct grammar_config v[GRAMMAR_CONFIGS];
};

enum { GRAMMAR_PAST = GRAMMAR_BACK_MAX + 1, GRAMMAR_SCRATCH = 1 << 14 };

struct grammar_place {
    const struct grammar *g;
    uint32_t now, n_past;    /* set in force; how many before it can be gone back to */
    uint32_t n_frames, deep; /* deep: the deepest frame made since it was set to 0 */
    bool full;               /* a way was dropped since it was cleared */
    struct grammar_set set[GRAMMAR_PAST];
    struct grammar_frame frame[GRAMMAR_FRAMES];
    /* What is below is scratch of one call. */
    struct grammar_set temp[2];
    uint32_t move[GRAMMAR_FRAMES];
    struct grammar_config config[GRAMMAR_SCRATCH];
    uint32_t level_at[GRAMMAR_TOKEN_BYTES_MAX + 2], level_n[GRAMMAR_TOKEN_BYTES_MAX + 2];
    uint32_t level_frames[GRAMMAR_TOKEN_BYTES_MAX + 2];
};

/* place.c */
enum { GRAMMAR_BELOW = GRAMMAR_FRAMES }; /* a frame: the caller is not known (ready parts) */
/* Where configs v[n] come to by one byte, into to[] (room of max); *left: a rule ended whose caller
 * is BELOW. Frames are added behind p->n_frames. only: 0, or flags of which a state must have one.
 */
uint32_t grammar_step(struct grammar_place *p, const struct grammar_config *v, uint32_t n, uint8_t byte, unsigned only,
                      struct grammar_config *to, uint32_t max, bool *left);
/* What the end of a rule called from `frame` leads to, closed. */
uint32_t grammar_pop(struct grammar_place *p, uint32_t frame, struct grammar_config *to, uint32_t max);
void grammar_tidy(struct grammar_place *p); /* makes room for frames */

/* mask.c: g->ready and g->free_at. */
enum err_code grammar_make_ready(struct grammar *g, struct err *e);
#endif
