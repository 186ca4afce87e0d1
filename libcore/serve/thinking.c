/* SPDX-License-Identifier: Apache-2.0 */
/* thinking.c - members of a chat about its reasoning, and about several answers.     room: serve */
#include <string.h>

#include "serve/internal.h"

bool serve_read_budget(struct serve_reading *r, const json_t *v)
{
    if (!serve_read_integer(r, v, -1, INT64_MAX, &r->w->ask.reason.budget_tokens))
        return false;
    return r->w->ask.reason.budget_tokens != 0 || serve_set_kwarg(r, "enable_thinking", json_false());
}

bool serve_read_think(struct serve_reading *r, const json_t *v)
{
    if (json_is_string(v) && str_is(json_text(v), "auto")) {
        r->w->ask.calibration = r->s->o.calibration;
        return (r->w->ask.calibration != NULL && reason_calibration_thinks(r->w->ask.calibration)) ||
               serve_refuse_here(r, "auto needs a server with --calibration");
    }
    return json_is_boolean(v) ? serve_set_kwarg(r, "enable_thinking", json_incref((json_t *)(uintptr_t)v))
                              : serve_refuse_here(r, "not true, false or auto");
}

/* Whether texts are looked up only where an answer without them is in doubt. */
bool serve_read_retrieve(struct serve_reading *r, const json_t *v)
{
    const bool is_auto = json_is_string(v) && str_is(json_text(v), "auto");

    r->w->ask.retrieves = r->w->asks_retrieve = is_auto;
    return is_auto || (json_is_string(v) && str_is(json_text(v), "always")) ||
           serve_refuse_here(r, "not \"always\" or \"auto\"");
}

bool serve_read_retrieve_below(struct serve_reading *r, const json_t *v)
{
    double x = 0;

    if (!serve_read_number(r, v, -1e6, 0, &x))
        return false;
    r->w->ask.retrieve_below = (float)x;
    return true;
}

bool serve_read_kwargs(struct serve_reading *r, const json_t *v)
{
    const char *key;
    json_t *value;

    if (!json_is_object(v))
        return serve_refuse_here(r, "not an object");
    json_object_foreach ((json_t *)(uintptr_t)v, key, value)
        if (!serve_set_kwarg(r, key, json_incref(value)))
            return false;
    return true;
}

/* Templates that know efforts see it as it is. */
bool serve_read_effort(struct serve_reading *r, const json_t *v)
{
    const char *s = json_string_value(v);
    const enum reason_effort effort = s != NULL ? reason_effort_of(s) : REASON_EFFORTS;

    if (effort == REASON_EFFORTS)
        return serve_refuse_here(r, "not none, minimal, low, medium, high or xhigh");
    r->w->ask.reason.effort = effort;
    return serve_set_kwarg(r, "reasoning_effort", json_string(s)) &&
           (effort != REASON_EFFORT_NONE || serve_set_kwarg(r, "enable_thinking", json_false()));
}

/* Several answers to a chat, of which one is kept. */
bool serve_read_best_of(struct serve_reading *r, const json_t *v)
{
    int64_t n = 0;

    if (!serve_read_integer(r, v, 1, CHOICES_MAX, &n))
        return false;
    r->w->best_of = (int)n;
    return true;
}

bool serve_read_vote(struct serve_reading *r, const json_t *v)
{
    const char *s = json_string_value(v);

    for (int i = REASON_MAJORITY; i <= REASON_BEST && s != NULL; i++)
        if (strcmp(s, reason_vote_name((enum reason_vote)i)) == 0) {
            r->w->vote = (enum reason_vote)i;
            return true;
        }
    return serve_refuse_here(r, "not majority, weighted or best");
}

/* A request names no command and no file. */
bool serve_read_verifier(struct serve_reading *r, const json_t *v)
{
    if (json_is_true(v) && r->s->o.judge == NULL)
        return serve_refuse_here(r, "true needs a server with --verifier");
    r->w->verifier = json_is_true(v)                                     ? SERVE_JUDGE
                     : json_is_string(v) && str_is(json_text(v), "self") ? SERVE_SELF
                                                                         : SERVE_NO_VERIFIER;
    return r->w->verifier != SERVE_NO_VERIFIER || json_is_false(v) ||
           serve_refuse_here(r, "not \"self\", true or false: the server's is true (--verifier)");
}

bool serve_read_grace(struct serve_reading *r, const json_t *v)
{
    return serve_read_integer(r, v, 0, INT64_MAX, &r->w->ask.reason.grace_tokens);
}

bool serve_read_least(struct serve_reading *r, const json_t *v)
{
    return serve_read_integer(r, v, 0, INT64_MAX, &r->w->ask.reason.least_tokens);
}

bool serve_read_budget_message(struct serve_reading *r, const json_t *v)
{
    if (!json_is_string(v))
        return serve_refuse_here(r, "not a text");
    r->w->ask.reason.message = json_text(v);
    return true;
}

/* A rule or its probes, which are no longer those of the server. */
static bool read_certainty(struct serve_reading *r, const json_t *v,
                           enum err_code (*read)(struct reason_opts *o, struct str s, struct err *e))
{
    struct err why;

    if (!json_is_string(v))
        return serve_refuse_here(r, "not a text");
    r->w->ask.rule_is_hint = false;
    return read(&r->w->ask.reason, json_text(v), &why) == ERR_OK || serve_refuse_here(r, why.msg);
}

bool serve_read_think_stop(struct serve_reading *r, const json_t *v)
{
    r->w->ask.reason.rule = REASON_RULE_NONE;
    return json_is_false(v) || read_certainty(r, v, reason_read_stop);
}

bool serve_read_think_probe(struct serve_reading *r, const json_t *v)
{
    return read_certainty(r, v, reason_read_probe);
}

bool serve_read_think_suppress(struct serve_reading *r, const json_t *v)
{
    double x = 0;

    if (!json_is_false(v) && !serve_read_number(r, v, 0, 1, &x))
        return false;
    r->w->ask.rule_is_hint = r->w->ask.rule_is_hint && json_is_false(v);
    r->w->ask.reason.suppresses = !json_is_false(v);
    r->w->ask.reason.suppress_above = (float)x;
    return true;
}
