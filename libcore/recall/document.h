/* SPDX-License-Identifier: Apache-2.0 */
/* document.h - inside recall: what a document says on a question.            room: recall */
#ifndef RECALL_DOCUMENT_H
#define RECALL_DOCUMENT_H
#include "recall/internal.h"

enum {
    RECALL_STEM_BYTES = WORD_BYTES_MAX,
    RECALL_ASKED_MAX = 64, /* words of a question; the others are left out */
    RECALL_KEYS_MAX = 24,  /* of a word */
};

enum recall_role {
    RECALL_CONTENT,
    RECALL_DET,
    RECALL_AUX,
    RECALL_PREP,
    RECALL_CONJ,
    RECALL_REL,
    RECALL_PRON,
    RECALL_ADV
};
enum recall_kind {
    RECALL_DATE,
    RECALL_NUMBER,
    RECALL_COLOUR,
    RECALL_SHADE,
    RECALL_PLACE,
    RECALL_BARE_PLACE, /* an answer to "where" does without it */
    RECALL_ASKS,
    RECALL_LINKS,
    RECALL_TIMES, /* how often */
    RECALL_DENIES,
    RECALL_LIGHT,  /* verbs that say little: "take place" */
    RECALL_PERSON, /* "the mayor" */
    RECALL_STANDS, /* verbs that say no more than "is" of a place */
};
enum recall_wanted {
    RECALL_WHAT,
    RECALL_WHO,
    RECALL_NAMES,
    RECALL_WHEN,
    RECALL_WHERE,
    RECALL_MANY,
    RECALL_MEASURE,
    RECALL_OFTEN,
    RECALL_COLOURS,
    RECALL_WHY,
    RECALL_HOW,         /* in what way */
    RECALL_NAMED,       /* "which river" */
    RECALL_DESCRIPTION, /* of what is named, and nothing else is asked */
};

/* english.c; words are in lower case */
uint64_t recall_stem_key(const char *word, size_t n); /* equal for forms of a word */
/* Those of a word and of words that mean the same in a question; how many. */
int recall_stem_keys(const char *word, size_t n, uint64_t key[RECALL_KEYS_MAX]);
enum recall_role recall_role_of(const char *word, size_t n);
bool recall_is_kind(enum recall_kind kind, const char *word, size_t n);
enum recall_wanted recall_wanted_by(const char *word, size_t n); /* "which year": RECALL_WHEN */

/* A word where it stands. */
struct recall_at {
    struct str s; /* as it is written */
    char low[WORD_BYTES_MAX];
    size_t n; /* of low, its lower case */
    uint64_t key;
    enum recall_role role;
    bool capital, digit; /* begins with a capital; has a digit */
    int asked;           /* the word of the question that it is, -1: none */
};
/* A question. */
struct recall_asked {
    struct recall_at word[RECALL_ASKED_MAX]; /* in order */
    double weight[RECALL_ASKED_MAX];         /* 0: not content, or a word that stood before */
    bool name[RECALL_ASKED_MAX];             /* is written like a name */
    int n;
    uint64_t key[RECALL_ASKED_MAX * RECALL_KEYS_MAX]; /* [n_keys] of content */
    int key_of[RECALL_ASKED_MAX * RECALL_KEYS_MAX], n_keys;
    uint64_t filter[8]; /* a bit for each key */
    enum recall_wanted wanted;
    int noun;     /* the word that says what is wanted ("which year", "how tall"); -1: none */
    int prep;     /* the preposition that goes with what is wanted ("known for what", "to whom"); -1: none */
    bool asks;    /* it is a question, and not one for yes or no */
    bool subject; /* "what lives in the cellar" */
    bool denies;  /* "who does not" */
};
/* document.c: the next word of s at or after *at; false: there is none. q: whose words are looked for; NULL: none. */
bool recall_next_at(struct str s, size_t *at, const struct recall_asked *q, struct recall_at *out);
/* question.c */
void recall_read_question(struct recall_asked *q, struct str question);

bool recall_at_is(const struct recall_at *w, const char *word);
bool recall_at_is_of(const struct recall_at *w, enum recall_kind kind);
#endif
