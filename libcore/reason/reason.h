/* SPDX-License-Identifier: Apache-2.0 */
/* reason.h - the governor of an answer: when its reasoning ends, and when it repeats itself.   room: reason
 *
 * A governor (gen/hooks.h) sees each token of an answer and says how it goes on. It is deterministic: the same
 * tokens give the same orders. Its rules are functions of tokens and numbers, which need no model.
 */
#ifndef REASON_REASON_H
#define REASON_REASON_H
#include "gen/hooks.h"

struct reason_trace;
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

/* When the model is certain enough of its answer to stop thinking. */
enum reason_rule {
    REASON_RULE_NONE,
    REASON_RULE_EAT,  /* the entropy behind the end of thinking settles: its variance is below the threshold */
    REASON_RULE_CGR,  /* the least probability in a trial answer is at least the threshold */
    REASON_RULE_DEER, /* their geometric mean is */
    REASON_RULE_SAME, /* as many trial answers in a row are equal */
    REASON_RULE_ABF,  /* the confidence over the last tokens of the thinking is at least the threshold */
    REASON_RULES,
};
enum {
    REASON_SAME_MAX = 16,    /* trial answers that are compared */
    REASON_WINDOW_MAX = 128, /* tokens */
    REASON_TRIAL_MAX = 64,   /* tokens of a trial answer */
    REASON_LAG_MAX = 1024,
};

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
    enum reason_rule rule;
    float threshold; /* of the rule */
    /* How it is asked how certain the model is. */
    int64_t every_tokens;       /* between places that are no ends of lines and sentences; 0: these alone */
    int64_t after_tokens;       /* not before that many */
    int trial_tokens;           /* of a trial answer; 0: 6 */
    int lag;                    /* tokens that are thought until its result counts */
    struct str stub;            /* answers that are tried begin with it; n 0: none */
    bool suppresses;            /* words that begin a reflection are left out */
    float suppress_above;       /* this certainty, the more often the more certain the model is */
    struct reason_trace *trace; /* what was thought is noted there (reason/trace.h), outlives the answer; NULL: nowhere.
                                 * With no rule and no suppression: it asks at places and for tokens of its own */
};
struct reason_opts reason_defaults(void); /* no budget and no rule; loops end */
/* "RULE" or "RULE:x" into rule and threshold. ERR_ARG: nothing has changed, here and below. */
MUST_CHECK enum err_code reason_read_stop(struct reason_opts *o, struct str s, struct err *e);
/* "every=N,after=N,tokens=N,lag=N,stub=TEXT", any of them in any order; the stub comes last and is the rest of the
 * text, which o then points to. ERR_ARG. */
MUST_CHECK enum err_code reason_read_probe(struct reason_opts *o, struct str s, struct err *e);
MUST_CHECK enum err_code reason_read_suppress(struct reason_opts *o, struct str s, struct err *e); /* "0.9" */
/* Forgets options of probes that have no effect with the rule. */
void reason_drop_idle(struct reason_opts *o);
const char *reason_rule_name(enum reason_rule r); /* "eat" ...; "": NONE */
/* What asking takes: tokens of a trial answer, which needs a sequence to spare; the most tokens of a look at one row,
 * which needs as many draft rows, GEN_DRAFT_MAX where the text or the marks are not known. 0: it is not done. */
int reason_trial_tokens(const struct reason_opts *o);
int reason_peek_tokens(const struct reason_opts *o);
/* Whether the options go together and with the marks. The place is the member of a request: "/reasoning_grace",
 * "/reasoning_min", "/reasoning_budget_message", "/think_stop", "/think_probe", "/think_suppress". ERR_ARG; ERR_NOMEM.
 */
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

/* ---- certainty: what probes found, as numbers ---- */

/* EAT, entropy after </think> (arXiv 2509.26522): an exponential mean of the entropies, and the variance around it.
 * {0} and the constants: no probe yet. */
struct reason_eat {
    double alpha; /* weight of the newest probe */
    double mean, variance;
    int64_t n;
};
void reason_eat_add(struct reason_eat *m, float entropy);
/* Whether it has settled, low enough: with n >= least, variance < variance_below, mean <= mean_at_most. */
bool reason_eat_settled(const struct reason_eat *m, double variance_below, int64_t least, double mean_at_most);

/* Certainties of a trial answer, 0 .. 1; all are 0 of one without tokens. */
struct reason_trial {
    float cgr;  /* the least p_max (arXiv 2509.07820) */
    float deer; /* their geometric mean (arXiv 2504.15895) */
    float cgrs; /* 1 - mean entropy / ln n_vocab (arXiv 2508.05337) */
};
struct reason_trial reason_trial_of(const struct gen_seen *token, int n, int32_t n_vocab);

/* Answer consistency (arXiv 2412.20993) over the last k trial answers. {.k}: none yet. */
struct reason_same {
    int k; /* 1 .. REASON_SAME_MAX */
    int64_t n;
    uint64_t last[REASON_SAME_MAX]; /* hashes of answer i at i % k; 0: an empty one */
};
void reason_same_add(struct reason_same *s, struct str answer);
float reason_same_index(const struct reason_same *s); /* 1 - entropy of the answers / ln k; NaN before there are k */
bool reason_same_all(const struct reason_same *s);    /* there are k, all equal, and not empty */

/* Confidence over a window of tokens (ABF): 5/8 mean p_max + 3/8 (1 - mean entropy / ln n_vocab). {.window}: no token
 * yet. */
struct reason_abf {
    int window; /* 1 .. REASON_WINDOW_MAX */
    int64_t n;
    float p_max[REASON_WINDOW_MAX], entropy[REASON_WINDOW_MAX]; /* token i at i % window */
};
float reason_abf_add(struct reason_abf *a, float p_max, float entropy, int32_t n_vocab); /* the score now */

/* What a rule makes of one answer's reasoning. */
struct reason_judge {
    enum reason_rule rule;
    float threshold;
    int32_t n_vocab;
    struct reason_eat eat;
    struct reason_same same;
    struct reason_abf abf;
    float certainty;       /* by the rule, NaN: not known yet */
    float trial_certainty; /* for the suppression, cgrs of the newest trial answer or look; NaN */
};
struct reason_judge reason_judge_of(const struct reason_opts *o, int32_t n_vocab);
/* Each adds what was found and returns whether the model is certain enough: a trial answer of n tokens, perhaps with
 * the token that ends it; the entropy of the row behind the end of the reasoning; a token that was thought. */
bool reason_judge_trial(struct reason_judge *j, const struct text *t, const struct gen_seen *s, int n);
bool reason_judge_peek(struct reason_judge *j, float entropy);
bool reason_judge_token(struct reason_judge *j, float p_max, float entropy);
/* Tokens more until a line or sentence ends: what the options say, or an eighth of the budget, at most 64. */
int64_t reason_grace_of(const struct reason_opts *o, int64_t budget);

/* ---- suppression of reflections (CGRS, arXiv 2508.05337) ---- */

/* The probability with which a word is suppressed: 0 up to delta, 1 at certainty 1, linear between. */
float reason_suppress_chance(float certainty, float delta);
/* Whether a token is one of the words, in any case: what surrounds the ASCII letters at both ends does not count. */
bool reason_is_word(struct str piece, const struct str *words, int n);
/* The tokens of a vocabulary that complete one of the words. */
struct reason_words;
MUST_CHECK enum err_code reason_words_open(struct reason_words **out, const struct text *t, const struct str *words,
                                           int n, struct err *e);
void reason_words_close(struct reason_words *w); /* NULL is allowed */
/* Those that do behind a text that ends like this; it is longer than any of the words, or the whole text. Returns how
 * many; *token stays valid until w is closed. */
int reason_words_next(const struct reason_words *w, struct str tail, const int32_t **token);
#endif
