/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h - what was thought, noted once, and how rules would have ended it.      room: reason
 *
 *   struct reason_trace t = { .answer_tokens = 64, .every_tokens = 4 };
 *   opts.trace = &t                   of a request without a rule; its greedy answer is what it would be anyway
 *   reason_replay(&t, text, rule, &s) where a rule or a budget would have ended it, at what cost
 *
 * At each place the whole answer is asked for that the model would give there, so a rule's answer is known without
 * asking again. One thread uses a trace.
 */
#ifndef REASON_TRACE_H
#define REASON_TRACE_H
#include "base/json.h"
#include "reason/reason.h"

struct reason_place {
    int64_t n;              /* tokens thought before it */
    bool sentence;          /* a line or sentence ends there */
    int closing;            /* tokens that would end the reasoning */
    int forced;             /* of them, those that count as thought */
    int n_trial;            /* tokens of the answer that follows, the one that ends it among them */
    struct gen_seen *trial; /* [n_trial] token, p_max and entropy; only trace_tokens_max of them in a file */
    bool right;             /* the caller's: whether that answer is */
};
struct reason_trace {
    /* what is asked */
    int answer_tokens; /* of an answer, at most */
    int every_tokens;  /* between places that are no ends of lines and sentences; 0: these alone */
    /* what was found */
    struct gen_seen *thought; /* [n] p_max and entropy; `reasoning` says that a line or sentence ends with it */
    struct reason_place *place;
    int64_t n, n_place;
    size_t cap, cap_place;
    bool failed; /* memory was short: it is not whole */
    /* the caller's: the reasoning that the model ended itself */
    int64_t n_own; /* tokens, as gen_stats.reasoning_tokens has them */
    bool right;
};
void reason_trace_free(struct reason_trace *t);

/* Of the governor: a token of the reasoning; that an answer is asked for behind it; that answer, n 0: it did not fit.
 */
void reason_trace_token(struct reason_trace *t, const struct gen_seen *s, bool sentence);
void reason_trace_ask(struct reason_trace *t, bool sentence, int closing, int forced);
void reason_trace_place(struct reason_trace *t, const struct gen_seen *s, int n);

/* As members "thought" and "places" of an object, and back. The answers are cut after REASON_TRIAL_MAX tokens: rules
 * read no more. false: memory is out. ERR_FORMAT: it is no trace. */
bool reason_trace_set(json_t *o, const struct reason_trace *t);
MUST_CHECK enum err_code reason_trace_read(struct reason_trace *t, const json_t *o, int32_t n_vocab, struct err *e);

/* ---- replay ---- */

struct reason_stop {
    int64_t place; /* whose answer counts; -1: the model's own end */
    int64_t tokens;
    int64_t probes, rows; /* that were asked for until then, and the rows that they take */
    bool right;
};
/* Where a budget (budget_tokens, grace_tokens) or a rule (rule, threshold, every_tokens, after_tokens, trial_tokens,
 * least_tokens) of the options would have ended it: at the first place at or behind the token where it closes. Those of
 * a rule that asks at ends of lines are exact, and those of a budget if budget and grace are multiples of
 * every_tokens of the trace; no lag, no stub, no suppression. */
struct reason_stop reason_replay(const struct reason_trace *t, const struct text *text, const struct reason_opts *o,
                                 int32_t n_vocab);
/* The oracle: of the places where a rule with these options could ask (every_tokens) the first one from which on every
 * answer is right, the model's own end included. It asks for nothing. */
struct reason_stop reason_oracle(const struct reason_trace *t, const struct reason_opts *o);

struct reason_total {
    int64_t n, right, tokens, rows; /* sums */
};
void reason_total_add(struct reason_total *t, const struct reason_stop *s);
/* Of the settings with at least `least` right that with the fewest tokens and rows, of equal ones the last; -1: none.
 */
int reason_pick(const struct reason_total *of, int n, int64_t least);
#endif
