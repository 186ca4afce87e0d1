/* SPDX-License-Identifier: Apache-2.0 */
/* options.c - rules and their probes as texts: "cgr:0.97", "every=16,stub=The answer is".     room: reason */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reason/reason.h"

static const struct {
    const char *name;
    float usual, least, most; /* of the threshold */
    bool whole;
} rules[] = {
    [REASON_RULE_NONE] = { "", 0, 0, 0, false },
    [REASON_RULE_EAT] = { "eat", 1e-3f, 0, 100, false },
    [REASON_RULE_CGR] = { "cgr", 0.97f, 0, 1, false },
    [REASON_RULE_DEER] = { "deer", 0.95f, 0, 1, false },
    [REASON_RULE_SAME] = { "same", 3, 2, REASON_SAME_MAX, true },
    [REASON_RULE_ABF] = { "abf", 0.95f, 0, 1, false },
};

_Static_assert(sizeof rules / sizeof *rules == REASON_RULES, "a row for each");

const char *reason_rule_name(enum reason_rule r)
{
    return rules[r].name;
}

/* A decimal number, all of s. */
static bool read_number(struct str s, double *out)
{
    char text[40], *end;

    if (s.n == 0 || s.n >= sizeof text || strspn(memcpy(text, s.p, s.n), "0123456789.eE+-") < s.n)
        return false;
    text[s.n] = '\0';
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out);
}

/* Takes the text before a character off s; all of it where that does not come. */
static struct str take_to(struct str *s, char c)
{
    const char *at = memchr(s->p, c, s->n);
    const struct str part = { s->p, at != NULL ? (size_t)(at - s->p) : s->n };

    *s = at != NULL ? (struct str){ at + 1, s->n - part.n - 1 } : (struct str){ s->p + s->n, 0 };
    return part;
}

enum err_code reason_read_stop(struct reason_opts *o, struct str s, struct err *e)
{
    const bool has_number = s.n > 0 && memchr(s.p, ':', s.n) != NULL;
    const struct str name = s.n > 0 ? take_to(&s, ':') : s;
    int r = REASON_RULE_NONE + 1;
    double x;

    while (r < REASON_RULES && !str_is(name, rules[r].name))
        r++;
    if (r == REASON_RULES)
        return err_set(e, ERR_ARG, "not eat, cgr, deer, same or abf, or one of these with a colon and a number");
    x = (double)rules[r].usual;
    if (has_number && (!read_number(s, &x) || !(x >= (double)rules[r].least && x <= (double)rules[r].most) ||
                       (rules[r].whole && x != floor(x))))
        return err_set(e, ERR_ARG, "%s: not a %snumber from %g to %g", rules[r].name, rules[r].whole ? "whole " : "",
                       (double)rules[r].least, (double)rules[r].most);
    o->rule = (enum reason_rule)r;
    o->threshold = (float)x;
    return ERR_OK;
}

enum err_code reason_read_suppress(struct reason_opts *o, struct str s, struct err *e)
{
    double x;

    if (!read_number(s, &x) || !(x >= 0 && x <= 1))
        return err_set(e, ERR_ARG, "not a number from 0 to 1");
    o->suppresses = true;
    o->suppress_above = (float)x;
    return ERR_OK;
}

/* A whole number from least to most. */
static enum err_code read_whole(int64_t *out, const char *name, struct str s, int64_t least, int64_t most,
                                struct err *e)
{
    int64_t n = 0;
    size_t i = 0;

    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && n <= most)
        n = n * 10 + (s.p[i++] - '0');
    if (s.n == 0 || i < s.n || n < least || n > most)
        return err_set(e, ERR_ARG, "%s: not a whole number from %lld to %lld", name, (long long)least, (long long)most);
    *out = n;
    return ERR_OK;
}

enum err_code reason_read_probe(struct reason_opts *o, struct str s, struct err *e)
{
    struct reason_opts read = *o;
    int64_t trial = o->trial_tokens, lag = o->lag;
    const struct {
        const char *name;
        int64_t *to, least, most;
    } parts[] = { { "every", &read.every_tokens, 1, INT32_MAX },
                  { "after", &read.after_tokens, 0, INT32_MAX },
                  { "tokens", &trial, 1, REASON_TRIAL_MAX },
                  { "lag", &lag, 0, REASON_LAG_MAX } };
    bool more = true;

    while (more) {
        const bool has_value = s.n > 0 && memchr(s.p, '=', s.n) != NULL;
        const struct str name = s.n > 0 ? take_to(&s, '=') : s;
        size_t i = 0;

        if (has_value && str_is(name, "stub") && s.n > 0) {
            read.stub = s;
            break;
        }
        while (i < sizeof parts / sizeof *parts && !str_is(name, parts[i].name))
            i++;
        if (!has_value || i == sizeof parts / sizeof *parts)
            return err_set(e, ERR_ARG, "not every=N, after=N, tokens=N, lag=N, stub=TEXT, with commas between them");
        more = memchr(s.p, ',', s.n) != NULL;
        if (read_whole(parts[i].to, parts[i].name, take_to(&s, ','), parts[i].least, parts[i].most, e))
            return e->code;
    }
    *o = read;
    o->trial_tokens = (int)trial;
    o->lag = (int)lag;
    return ERR_OK;
}
