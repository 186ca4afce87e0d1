/* SPDX-License-Identifier: Apache-2.0 */
/* reason.h - the governor of an answer: when its reasoning ends, and when it repeats itself.   room: reason
 *
 * A governor (gen/hooks.h) sees each token of an answer and says how it goes on. It is deterministic: the same
 * tokens give the same orders. Its rules are functions of tokens and numbers, which need no model.
 */
#ifndef REASON_REASON_H
#define REASON_REASON_H
#include "gen/hooks.h"

struct text;
struct text_marks;

/* How much a model is to reason: a share of the largest budget. */
enum reason_effort {
    REASON_EFFORT_ANY, /* nothing was said */
    REASON_EFFORT_NONE,
    REASON_EFFORT_MINIMAL, /* a 16th, at least a token */
    REASON_EFFORT_LOW,     /* an 8th, at least a token */
    REASON_EFFORT_MEDIUM,  /* a half, at least a token */
    REASON_EFFORT_HIGH,    /* all */
    REASON_EFFORT_XHIGH,   /* all */
    REASON_EFFORTS,
};
const char *reason_effort_name(enum reason_effort f);     /* "none", "minimal" ...; "": ANY */
enum reason_effort reason_effort_of(const char *name);    /* REASON_EFFORTS: there is none of this name */
int64_t reason_share(enum reason_effort f, int64_t most); /* tokens */

struct reason_opts {
    const struct text *text;        /* of the model, outlives the answers; NULL: it has none, and nothing is closed */
    const struct text_marks *marks; /* of the reasoning and of calls in it; outlive the answers; NULL: there are none */
    int64_t budget_tokens;     /* of reasoning, the largest; 0: it is closed where it opens; -1: any number, or with
                                * an effort a quarter of the context */
    enum reason_effort effort; /* which share of that */
    int64_t grace_tokens;      /* more, until a line or sentence ends; -1: an eighth of the budget, at most 64 */
    int64_t least_tokens;      /* the model's own end is held back before, once */
    struct str message;        /* said before the end that the budget makes; n 0: none */
    bool loops;                /* ends reasoning and answers that repeat themselves */
};
struct reason_opts reason_defaults(void); /* no budget; loops end */
/* Whether the options go together and with the marks. The place is the member of a request: "/reasoning_grace",
 * "/reasoning_min", "/reasoning_budget_message". ERR_ARG; ERR_NOMEM. */
MUST_CHECK enum err_code reason_check(const struct reason_opts *o, struct err *e);
/* Options: struct reason_opts, as reason_check() accepts them. The budget also leaves an answer a quarter of the
 * context behind the prompt, at most 512 tokens. It never exceeds budget, grace and closing text, but for a call of a
 * tool in the reasoning, for whose end it waits 1,024 tokens at most. */
extern const struct gen_governor reason_governor;

/* ---- rules ---- */

/* Whether a token ends a line or a sentence: its text without trailing spaces ends in a newline or . ! ? and their wide
 * forms (U+3002, U+FF01, U+FF1F). */
bool reason_ends_sentence(struct str piece);

struct reason_budget {
    int64_t budget, grace, n; /* tokens; n: so far */
};
/* Counts a token of reasoning. true: the reasoning is to end behind it. */
bool reason_budget_add(struct reason_budget *b, bool ends_sentence);

enum { REASON_PERIOD_MAX = 64 };
/* The last tokens of a text, to see that it repeats itself. {0}: nothing yet. */
struct reason_loop {
    int64_t n;
    int32_t last[REASON_PERIOD_MAX]; /* token i is at i % REASON_PERIOD_MAX */
    int64_t same[REASON_PERIOD_MAX]; /* the newest tokens that equal the ones p + 1 before them: same[p] of them */
};
/* Adds a token. Returns the smallest period p of 1 .. 64 for which the end of the text consists of copies of p tokens,
 * at least `repeats` of them and at least `least` tokens; 0: there is none. */
int reason_loop_add(struct reason_loop *l, int32_t token, int64_t repeats, int64_t least);
#endif
