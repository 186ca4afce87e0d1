/* SPDX-License-Identifier: Apache-2.0 */
/* span.h - inside recall: spans of a paragraph, as features of a linear ranker.                  room: recall
 *
 * A span is a run of words of one sentence. It is ranked by the sum of the weights of its features (weights.c), which
 * differ by what the question asks for. bench/context_train.c learns the weights. */
#ifndef RECALL_SPAN_H
#define RECALL_SPAN_H
#include "recall/document.h"

/* What the question asks for, as far as weights differ by it. */
enum span_class {
    SPAN_WHAT,         /* what does it burn */
    SPAN_WHAT_SUBJECT, /* what lives in the cellar */
    SPAN_WHAT_NOUN,    /* which fuel */
    SPAN_WHAT_NAMED,   /* which river */
    SPAN_WHO,
    SPAN_WHO_SUBJECT, /* who built it */
    SPAN_WHEN,
    SPAN_WHERE,
    SPAN_MANY,
    SPAN_MEASURE,
    SPAN_OFTEN,
    SPAN_COLOUR,
    SPAN_WHY,
    SPAN_HOW,
    SPAN_DESCRIPTION,
    SPAN_CLASSES,
};

/* Features; a number behind one says how many there are in a row. */
enum span_feature {
    /* the word before, and the one behind */
    BEFORE_START,
    BEFORE_STOP,
    BEFORE_ROLE,
    BEFORE_PREP = BEFORE_ROLE + 8,
    BEFORE_LEAD = BEFORE_PREP + 11,
    BEFORE_PREP_ASKED, /* "known for" of "known for what" */
    BEFORE_PREP_OTHER,
    BEFORE_NAME,
    BEFORE_NUMBER,
    BEFORE_CAPITAL,
    BEFORE_ED,
    AFTER_END,
    AFTER_STOP,
    AFTER_ROLE,
    AFTER_OF = AFTER_ROLE + 8,
    AFTER_LEAD,
    AFTER_NAME,
    AFTER_NUMBER,
    AFTER_CAPITAL,
    AFTER_ED,
    /* its own first and last word */
    FIRST_ROLE,
    FIRST_PLACE = FIRST_ROLE + 8,
    FIRST_TO,
    FIRST_BECAUSE,
    FIRST_NUMBER,
    FIRST_CAPITAL,
    FIRST_ED,
    FIRST_ING,
    LAST_ROLE,
    LAST_NUMBER = LAST_ROLE + 8,
    LAST_CAPITAL,
    LAST_S,
    LAST_FITS, /* as the noun it is plural, or is not */
    /* what is in it */
    HAS_ROLE,
    HAS_OF = HAS_ROLE + 8,
    HAS_STOP,
    HAS_LEAD,
    HAS_NAME,
    HAS_NUMBER,
    HAS_CAPITAL,
    HAS_DATE,
    HAS_TIMES,
    ALL_CAPITALS,
    ALL_NUMBER,
    ALL_DATE,
    IS_YEAR,
    IS_COLOUR,
    IS_BY_SIGN, /* of money or a percentage */
    NUMBER_OF_ASKED,
    NUMBER_OF_OTHER,
    UNIT_FITS,
    UNIT_MISSES,
    UNIT_ONLY,   /* in the paragraph */
    CAPITAL_CUT, /* a name goes on before or behind it */
    BEGINS_SENTENCE,
    LENGTH,
    /* words of the question beside it: none, next, .. */
    LEAD_BEFORE = LENGTH + 6,
    LEAD_BEHIND = LEAD_BEFORE + 6,
    NAME_BEFORE = LEAD_BEHIND + 6,
    NAME_BEHIND = NAME_BEFORE + 3,
    NOUN_BEFORE = NAME_BEHIND + 3,
    NOUN_BEHIND,
    /* what stands between the span and the next word of the question */
    GAP_BEFORE,
    GAP_BEHIND = GAP_BEFORE + 6,
    /* the clause: up to a comma, a conjunction or the like */
    CLAUSE_BESIDE = GAP_BEHIND + 6,
    /* nothing else in the paragraph is like it */
    ONLY_NAME = CLAUSE_BESIDE + 6,
    ONLY_NUMBER,
    ONLY_DATE,
    ONLY_NAME_IN_SENTENCE,
    ONLY_NUMBER_IN_SENTENCE,
    /* the sentence */
    NOUN_IN_SENTENCE,
    SENTENCE_BESIDE,
    SENTENCE_NAMES = SENTENCE_BESIDE + 6,
    SENTENCE_BEST = SENTENCE_NAMES + 3,
    SENTENCE_FIRST,
    SENTENCE_LONG,
    SENTENCE_DENIES = SENTENCE_LONG + 2,
    SENTENCE_BEHIND_LEAD, /* words of the question are in the one before */
    /* the paragraph */
    PARAGRAPH_RANK,
    PARAGRAPH_SHARE = PARAGRAPH_RANK + 3,
    /* of saying nothing */
    NONE = PARAGRAPH_SHARE + 5,
    NONE_SHARE,
    NONE_BESIDE = NONE_SHARE + 5,
    NONE_NAMES = NONE_BESIDE + 6,
    NONE_WORDS = NONE_NAMES + 3,
    SPAN_FEATURES = NONE_WORDS + 4,
};
enum { SPAN_FEATURES_EACH = 64 /* of a span, at most */ };

struct ranked_span {
    struct str text; /* n 0: no text */
    int n;
    unsigned char feature[SPAN_FEATURES_EACH];
};
typedef void span_see(void *of, const struct ranked_span *s);

/* Of a search, over its paragraphs. */
struct span_search {
    span_see *see;
    void *of;
    int rank;           /* of the paragraph at hand */
    double share;       /* of the question's weight that it has */
    double best_share;  /* of any of them */
    double best_beside; /* of a sentence's words, and of its names: 0 .. 2 */
    enum span_class class;
    int n_names, n_beside;
};
/* Shows every span of a paragraph. */
MUST_CHECK enum err_code recall_spans(struct span_search *x, struct str paragraph, const struct recall_asked *q,
                                      struct err *e);
/* Shows nothing, with its features. */
void recall_no_span(const struct span_search *x);

enum span_class recall_span_class(const struct recall_asked *q);

/* weights.c: [class][feature] */
extern const signed char recall_span_weight[SPAN_CLASSES][SPAN_FEATURES];

/* document.c: shows what recall_answer() ranks: the spans of some paragraphs, and nothing at the end. see() is not
 * called where nothing is ranked, because the text is no question, or names a line, or is about something else. */
MUST_CHECK enum err_code recall_point(struct str document, const struct text *t, struct str question, span_see *see,
                                      void *of, enum span_class *class, struct err *e);
#endif
