/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - what a log keeps of a question and of its answer's figures.     room: ask */
#include <math.h>
#include <string.h>

#include "ask/internal.h"

void ask_count(struct ask_figures *f, const struct gen_event *ev)
{
    const double logprob = (double)ev->pick.logprob;

    if (ev->reasoning || ev->forced || !isfinite(logprob))
        return;
    f->least = f->n == 0 || logprob < f->least ? logprob : f->least;
    f->sum += logprob;
    f->entropy += (double)ev->entropy;
    f->n++;
}

/* What a calibration led to. */
static bool add_advice(json_t *o, const struct ask_request *r, const struct gen_stats *t)
{
    const struct reason_advice *a = &r->advice;
    const bool direct = t->doubt.asked && !t->doubt.doubted;
    const double right = direct && t->doubt.whole ? reason_isotonic_at(a->right, (double)t->doubt.least) : (double)NAN;
    json_t *more = json_pack("{s:b, s:s?, s:o, s:o, s:I, s:I}", "thought",
                             t->doubt.asked ? t->doubt.doubted : a->threshold.thinks == REASON_THINKS_ALWAYS, "class",
                             a->class, "least", t->doubt.asked ? json_real((double)t->doubt.least) : json_null(),
                             "calibrated", isfinite(right) ? json_real(right) : json_null(), "direct_tokens",
                             (json_int_t)t->doubt.tokens, "read_again", (json_int_t)t->doubt.read);
    const bool ok = more != NULL && json_object_update(o, more) == 0;

    json_decref(more);
    return ok;
}

json_t *ask_retrieve_json(const struct gen_stats *t)
{
    const struct gen_doubt *d = &t->doubt;

    return json_pack("{s:b, s:o, s:I, s:I}", "looked_up", d->doubted, "mean_logprob",
                     isfinite(d->mean) ? json_real((double)d->mean) : json_null(), "dropped_tokens",
                     (json_int_t)d->tokens, "read_again", (json_int_t)d->read);
}

json_t *ask_thinking_json(const struct ask_request *r, const struct gen_stats *t)
{
    const struct gen_thought *w = &t->thought;
    json_t *o =
        json_pack("{s:s, s:I, s:o, s:I}", "end", gen_why_name(w->end), "tokens", (json_int_t)t->reasoning_tokens,
                  "budget", w->budget >= 0 ? json_integer(w->budget) : json_null(), "forced", (json_int_t)w->forced);
    json_t *more = !w->weighed ? json_object()
                               : json_pack("{s:o, s:I, s:I, s:I, s:I, s:I}", "certainty",
                                           isfinite(w->certainty) ? json_real((double)w->certainty) : json_null(),
                                           "suppressed", (json_int_t)w->suppressed, "probes", (json_int_t)t->probes,
                                           "probe_rows", (json_int_t)t->probe_rows, "probe_tokens",
                                           (json_int_t)t->probe_tokens, "held_steps", (json_int_t)t->probe_held_steps);
    const bool ok =
        o != NULL && more != NULL && json_object_update(o, more) == 0 && (!r->is_advised || add_advice(o, r, t));

    json_decref(more);
    return json_if(ok, o);
}

/* The numbers of the sampler, under the names that requests have for them. */
static json_t *report_sampler(const struct sample_opts *s)
{
    json_t *o = json_pack("{s:I}", "seed", (json_int_t)s->seed);
    const struct sample_option *row;
    bool ok = o != NULL;

    for (int i = 0; ok && (row = sample_option(i)) != NULL; i++) {
        const double v = sample_option_value(s, row);

        ok = json_object_setn_new(o, row->names, strcspn(row->names, " "),
                                  row->whole ? json_integer((json_int_t)v) : json_real(v)) == 0;
    }
    return json_if(ok, o);
}

static bool set_borrowed(json_t *o, const char *key, const json_t *v)
{
    return v == NULL || json_object_set(o, key, (json_t *)(uintptr_t)v) == 0;
}

static bool set_text(json_t *o, const char *key, struct str s)
{
    return s.p == NULL || json_object_set_new(o, key, json_bytes(s)) == 0;
}

/* What was asked. */
static bool report_question(json_t *o, const struct ask *a)
{
    if (a->messages == NULL && a->text.p == NULL) {
        json_t *ids = json_array();

        for (int64_t i = 0; i < a->n_token; i++)
            json_push(&ids, json_integer(a->token[i]));
        return json_object_set_new(o, "prompt", ids) == 0;
    }
    return set_borrowed(o, "messages", a->messages) && set_text(o, "prompt", a->text) &&
           set_borrowed(o, "tools", ask_tools(a)) && set_borrowed(o, "schema", a->form.schema) &&
           set_text(o, "grammar", a->form.gbnf) && set_text(o, "regex", a->form.regex);
}

json_t *ask_report(const struct ask *a, const struct ask_request *r, const struct ask_figures *f,
                   const struct gen_stats *t)
{
    const bool looked = f->n > 0 && isfinite(f->entropy);
    json_t *o = json_object();
    bool ok = o != NULL && report_question(o, a) && set_borrowed(o, "notes", r->notes);

    ok = ok && json_object_set_new(o, "usage",
                                   json_pack("{s:I, s:I, s:I, s:I}", "prompt_tokens", (json_int_t)t->prompt_tokens,
                                             "cached_tokens", (json_int_t)t->cached_tokens, "completion_tokens",
                                             (json_int_t)t->tokens, "reasoning_tokens",
                                             (json_int_t)t->reasoning_tokens)) == 0;
    ok = ok && json_object_set_new(o, "mean_logprob", f->n > 0 ? json_real(f->sum / (double)f->n) : json_null()) == 0 &&
         json_object_set_new(o, "min_logprob", f->n > 0 ? json_real(f->least) : json_null()) == 0 &&
         json_object_set_new(o, "mean_entropy", looked ? json_real(f->entropy / (double)f->n) : json_null()) == 0 &&
         json_object_set_new(o, "sampler", report_sampler(&r->q.sample)) == 0;
    return json_if(ok, o);
}
