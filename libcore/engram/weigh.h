/* SPDX-License-Identifier: Apache-2.0 */
/* weigh.h - how far a table is believed in one text: prediction with expert advice.             room: engram
 *
 * The experts are the model alone, and the model with the table mixed in at three strengths. Their shares begin with
 * fixed numbers, are multiplied by the probability that each gave to the token that came, and a part of them is shared
 * out again: fixed share (Herbster and Warmuth, "Tracking the best expert", Machine Learning 32, 1998). The part is
 * 1 / (n + 1)^2 after n tokens, so that over a text of any length all of these parts together cost at most ln 2.
 *
 * So over any tokens the loss, the sum of -ln p', exceeds that of the model alone by at most ENGRAM_EXCESS_NATS for
 * each table: ln 8, since the model's share is at least 1/8 when they begin, and ln 2. */
#ifndef ENGRAM_WEIGH_H
#define ENGRAM_WEIGH_H
#include "base/base.h"

enum { ENGRAM_STRENGTHS = 3 };
#define ENGRAM_EXCESS_NATS 2.7725887 /* ln 8 + ln 2 */

struct engram_trust {
    double alone;                      /* the share of the model alone */
    double strength[ENGRAM_STRENGTHS]; /* of the table at each strength; the sum of all shares is 1 */
    int64_t n;                         /* tokens since they began */
};
struct engram_trust engram_trust_begin(void);
/* w of p' = (1 - w) p + w q. w: that of each strength. */
float engram_trust_weight(const struct engram_trust *t, const float w[ENGRAM_STRENGTHS]);
/* A token came that had p from the model and q from the table, whose probabilities add up to mass. */
void engram_trust_learn(struct engram_trust *t, const float w[ENGRAM_STRENGTHS], double p, double q, double mass);
/* The prompt ends: the model's share is raised to 1/8 if it is less, and n is 0. */
void engram_trust_settle(struct engram_trust *t);
#endif
