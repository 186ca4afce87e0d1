/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.h - how far a model's direct answers can be trusted: when it has to think.      room: reason
 *
 * The score of an answer is the least probability in it: at each of its tokens the largest one that the model gave. A
 * file of calibration says below which score a question is thought about, for all questions or by their classes; what
 * is right of the answers with a score; and what the model is worth as a verifier of its own answers. It is JSON, see
 * chimere-reason(7), and belongs to one model.
 */
#ifndef REASON_CALIBRATION_H
#define REASON_CALIBRATION_H
#include "base/base.h"
#include "base/json.h"

/* ---- isotonic regression: which share of the answers with a score is right ---- */

/* A function that never falls: linear between its knots, constant outside. */
struct reason_isotonic {
    double *x, *y; /* [n] x ascending */
    size_t n;      /* 0: nothing is known */
};
/* Pool adjacent violators over the weighted means of equal scores; knots at both ends of each block. weight NULL: 1
 * each. ERR_NOMEM. */
MUST_CHECK enum err_code reason_isotonic_fit(struct reason_isotonic *out, const double *score, const bool *right,
                                             const double *weight, size_t n, struct err *e);
double reason_isotonic_at(const struct reason_isotonic *m, double x); /* NaN: nothing is known */
void reason_isotonic_free(struct reason_isotonic *m);
/* Of probabilities, against what came: the calibration error in ten bins of equal width, |mean probability - share that
 * is right| weighted by their sizes; the mean square (Brier). NaN: n is 0. */
double reason_calibration_error(const double *p, const bool *right, size_t n);
double reason_brier(const double *p, const bool *right, size_t n);

/* ---- thresholds ---- */

enum reason_thinks { REASON_THINKS_ALWAYS, REASON_THINKS_NEVER, REASON_THINKS_BELOW };
const char *reason_thinks_name(enum reason_thinks t); /* "always", "never", "below" */
struct reason_threshold {
    enum reason_thinks thinks;
    float below; /* THINKS_BELOW: a score, 0 .. 1 */
};
/* A question that was answered both ways. p[0 .. n_p): p_max of the choices of its direct answer, in order. */
struct reason_trial_item {
    const float *p;
    size_t n_p;
    bool direct_right, thought_right;
    int64_t direct_tokens, thought_tokens; /* of the whole answers */
};
/* What a threshold makes of a question: its tokens, those of a direct answer that was dropped among them. */
int64_t reason_threshold_tokens(struct reason_threshold t, const struct reason_trial_item *item);
bool reason_threshold_right(struct reason_threshold t, const struct reason_trial_item *item);
double reason_score(const struct reason_trial_item *item); /* the least of p; 1: there is none */
/* The fewest tokens among all thresholds that lose no right answer against always thinking, in number; of equal ones
 * the higher. n 0: always. ERR_NOMEM. */
MUST_CHECK enum err_code reason_threshold_pick(struct reason_threshold *out, const struct reason_trial_item *item,
                                               size_t n, struct err *e);

/* ---- files ---- */

struct reason_routes;
struct reason_calibration;
/* ERR_FORMAT with e->where, the JSON pointer of what is wrong; ERR_NOMEM. Keeps a reference to v. */
MUST_CHECK enum err_code reason_calibration_open(struct reason_calibration **out, json_t *v, struct err *e);
void reason_calibration_close(struct reason_calibration *c);           /* NULL is allowed */
uint64_t reason_calibration_model(const struct reason_calibration *c); /* its model_fingerprint() */
bool reason_calibration_thinks(const struct reason_calibration *c);    /* it says when to think */
/* Below which mean log-probability of an answer's tokens texts are looked up; false: it does not say. */
bool reason_calibration_retrieve(const struct reason_calibration *c, float *below);
/* What holds for a question. */
struct reason_advice {
    const char *class; /* that the file's routes find in it; NULL: the file has no routes */
    struct reason_threshold threshold;
    const struct reason_isotonic *right; /* lives as long as c */
};
/* Words, patterns and file types decide on the class; the default class where they leave none, or several. ERR_NOMEM.
 */
MUST_CHECK enum err_code reason_calibration_find(const struct reason_calibration *c, struct str text,
                                                 struct reason_advice *out, struct err *e);
/* The model's scores of its own answers: how often something right has the higher score, the 95 % interval, and the
 * share with a score above a half. */
struct reason_verifier_worth {
    double area, lo, hi, yes_rate;
    int64_t n;
};
bool reason_calibration_verifier(const struct reason_calibration *c, struct reason_verifier_worth *out);
#endif
