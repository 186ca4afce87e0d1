/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_reason.c - options of reasoning, one a line: a rule, its probes, a suppression, an effort, numbers of tokens.
 * What is taken is in range; what is refused changes nothing. The rules are fed with the rest. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "fuzz/fuzz.h"
#include "reason/reason.h"

/* The next line, without its end. */
static struct str take_line(struct str *all)
{
    const char *end = all->n > 0 ? memchr(all->p, '\n', all->n) : NULL;
    const struct str line = { all->p, end != NULL ? (size_t)(end - all->p) : all->n };

    *all = (struct str){ all->p + line.n + (end != NULL), all->n - line.n - (end != NULL) };
    return line;
}

static void read_options(struct reason_opts *o, struct str *all)
{
    enum err_code (*const read[])(struct reason_opts *, struct str,
                                  struct err *) = { reason_read_stop, reason_read_probe, reason_read_suppress };
    char name[32] = "";
    struct str line;
    struct err e;

    for (size_t i = 0; i < sizeof read / sizeof *read; i++) {
        const struct reason_opts before = *o;

        if (read[i](o, take_line(all), &e) != ERR_OK)
            assert(e.code == ERR_ARG && strchr(e.msg, '\n') == NULL && memcmp(&before, o, sizeof before) == 0);
    }
    assert(o->rule < REASON_RULES && isfinite(o->threshold) && o->threshold >= 0 && o->threshold <= 100);
    assert(o->rule != REASON_RULE_SAME || (o->threshold >= 2 && o->threshold <= REASON_SAME_MAX));
    assert(o->every_tokens >= 0 && o->after_tokens >= 0 && o->lag >= 0 && o->lag <= REASON_LAG_MAX);
    assert(o->trial_tokens >= 0 && o->trial_tokens <= REASON_TRIAL_MAX);
    assert(o->suppress_above >= 0 && o->suppress_above <= 1);
    line = take_line(all);
    memcpy(name, line.p, line.n < sizeof name ? line.n : sizeof name - 1);
    o->effort = reason_effort_of(name);
    o->effort = o->effort == REASON_EFFORTS ? REASON_EFFORT_ANY : o->effort;
    line = take_line(all);
    for (size_t i = 0; i + 8 <= line.n && i < 24; i += 8) {
        int64_t *const to[] = { &o->budget_tokens, &o->grace_tokens, &o->least_tokens };

        memcpy(to[i / 8], line.p + i, 8);
    }
}

/* The rules, fed with what is left: each stays in its range. */
static void feed_rules(const struct reason_opts *o, struct str all)
{
    struct reason_eat eat = { .alpha = 0.2 };
    struct reason_same same = { .k = o->rule == REASON_RULE_SAME ? (int)o->threshold : 1 };
    struct reason_abf abf = { .window = 1 + (int)(all.n % REASON_WINDOW_MAX) };
    struct gen_seen seen[REASON_TRIAL_MAX] = { { 0 } };

    for (size_t i = 0; i < all.n; i++) {
        const float x = (float)(unsigned char)all.p[i] / 255;
        struct gen_seen *s = &seen[i % REASON_TRIAL_MAX];
        const int n = (int)(i < REASON_TRIAL_MAX ? i + 1 : REASON_TRIAL_MAX);

        s->p_max = x;
        s->entropy = 5 * (1 - x);
        reason_eat_add(&eat, s->entropy);
        reason_same_add(&same, (struct str){ all.p + i, i % 2 });
        const struct reason_trial t = reason_trial_of(seen, n, 256);
        const float score = reason_abf_add(&abf, x, s->entropy, 256), chance = reason_suppress_chance(t.cgrs, x);
        const float index = reason_same_index(&same);

        assert(eat.variance >= 0 && eat.mean >= 0 && eat.mean <= 5);
        assert(t.cgr <= t.deer * 1.001f && t.deer <= 1.001f && score <= 1.001f && score >= 0);
        assert(chance >= 0 && chance <= 1 && (isnan(index) || (index > -0.001f && index <= 1)));
        assert(!reason_same_all(&same) || index == 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str all = { (const char *)data, n };
    struct reason_opts o = reason_defaults();
    struct err e;

    read_options(&o, &all);
    if (reason_check(&o, &e) != ERR_OK)
        assert(e.code == ERR_ARG && (strncmp(e.where, "/reasoning_", 11) == 0 || strcmp(e.where, "/think_probe") == 0));
    reason_drop_idle(&o);
    if (reason_check(&o, &e) != ERR_OK)
        assert(strcmp(e.where, "/think_probe") != 0);
    feed_rules(&o, all);
    return 0;
}
