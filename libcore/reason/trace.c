/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c - what was thought, noted once, and how rules would have ended it. */
#include "reason/trace.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/text.h"

void reason_trace_free(struct reason_trace *t)
{
    for (int64_t i = 0; i < t->n_place; i++)
        free(t->place[i].trial);
    free(t->place);
    free(t->thought);
    *t = (struct reason_trace){ .answer_tokens = t->answer_tokens, .every_tokens = t->every_tokens };
}

/* ---- noting ---- */

void reason_trace_token(struct reason_trace *t, const struct gen_seen *s, bool sentence)
{
    struct err e;

    if (t->failed || memory_room(&t->thought, &t->cap, (size_t)t->n + 1, sizeof *t->thought, &e)) {
        t->failed = true;
        return;
    }
    t->thought[t->n] = *s;
    t->thought[t->n++].reasoning = sentence;
}

void reason_trace_ask(struct reason_trace *t, bool sentence, int closing, int forced)
{
    struct err e;

    if (t->failed || memory_room(&t->place, &t->cap_place, (size_t)t->n_place + 1, sizeof *t->place, &e)) {
        t->failed = true;
        return;
    }
    t->place[t->n_place++] =
        (struct reason_place){ .n = t->n, .sentence = sentence, .closing = closing, .forced = forced };
}

void reason_trace_place(struct reason_trace *t, const struct gen_seen *s, int n)
{
    struct reason_place *p = &t->place[t->n_place - 1];

    if (t->failed)
        return;
    p->trial = malloc((size_t)n * sizeof *p->trial);
    t->failed = p->trial == NULL;
    if (t->failed)
        return;
    memcpy(p->trial, s, (size_t)n * sizeof *s);
    p->n_trial = n;
}

/* ---- in a file ---- */

/* Numbers in a row: what each token has, one kind after the other. */
static json_t *numbers_of(const struct gen_seen *s, int64_t n, bool tokens)
{
    json_t *all = json_array();

    for (int64_t i = 0; i < n; i++) {
        json_push(&all, tokens ? json_integer(s[i].token) : json_integer(s[i].reasoning));
        json_push(&all, json_real((double)s[i].p_max));
        json_push(&all, json_real((double)s[i].entropy));
    }
    return all;
}

bool reason_trace_set(json_t *o, const struct reason_trace *t)
{
    json_t *places = json_array();

    for (int64_t i = 0; i < t->n_place; i++) {
        const struct reason_place *p = &t->place[i];
        const int n = p->n_trial < REASON_TRIAL_MAX ? p->n_trial : REASON_TRIAL_MAX;

        json_push(&places, json_pack("{s:I, s:b, s:i, s:i, s:b, s:o}", "n", (json_int_t)p->n, "sentence", p->sentence,
                                     "closing", p->closing, "forced", p->forced, "right", p->right, "answer",
                                     numbers_of(p->trial, n, true)));
    }
    return json_object_set_new(o, "thought", numbers_of(t->thought, t->n, false)) == 0 &&
           json_object_set_new(o, "places", places) == 0;
}

/* The three numbers of each token. *n -1: they are none. */
static struct gen_seen *read_numbers(const json_t *all, int64_t *n, int32_t n_first)
{
    const size_t size = json_array_size(all);
    struct gen_seen *s = calloc(size / 3 + 1, sizeof *s);

    *n = json_is_array(all) && size % 3 == 0 ? (int64_t)(size / 3) : -1;
    for (size_t i = 0; s != NULL && i < size && *n >= 0; i += 3) {
        const json_int_t first = json_integer_value(json_array_get(all, i));
        const double p = json_number_value(json_array_get(all, i + 1)),
                     entropy = json_number_value(json_array_get(all, i + 2));

        if (first < 0 || first >= n_first || !(p >= 0 && p <= 1) || !(entropy >= 0 && entropy < 1e3))
            *n = -1;
        s[i / 3] = (struct gen_seen){
            .token = (int32_t)first, .reasoning = first == 1, .p_max = (float)p, .entropy = (float)entropy
        };
    }
    return s;
}

static enum err_code read_place(struct reason_trace *t, const json_t *o, int32_t n_vocab, struct err *e)
{
    struct reason_place *p;
    int64_t n;

    if (memory_room(&t->place, &t->cap_place, (size_t)t->n_place + 1, sizeof *t->place, e))
        return e->code;
    p = &t->place[t->n_place++];
    *p = (struct reason_place){ .n = json_integer_value(json_object_get(o, "n")),
                                .sentence = json_is_true(json_object_get(o, "sentence")),
                                .closing = (int)json_integer_value(json_object_get(o, "closing")),
                                .forced = (int)json_integer_value(json_object_get(o, "forced")),
                                .right = json_is_true(json_object_get(o, "right")),
                                .trial = read_numbers(json_object_get(o, "answer"), &n, n_vocab) };
    if (p->trial == NULL)
        return err_nomem(e);
    p->n_trial = (int)n;
    if (n < 0 || n > REASON_TRIAL_MAX || p->n < 0 || p->n > t->n || p->closing < 0 || p->closing > GEN_BACK_MAX ||
        p->forced < 0 || p->forced > p->closing || (t->n_place > 1 && p[-1].n >= p->n))
        return err_set(e, ERR_FORMAT, "place %lld is none", (long long)t->n_place);
    return ERR_OK;
}

enum err_code reason_trace_read(struct reason_trace *t, const json_t *o, int32_t n_vocab, struct err *e)
{
    const json_t *places = json_object_get(o, "places"), *one;
    enum err_code code = ERR_OK;
    size_t i;

    reason_trace_free(t);
    t->thought = read_numbers(json_object_get(o, "thought"), &t->n, 2);
    if (t->thought == NULL)
        code = err_nomem(e);
    else if (t->n < 0 || !json_is_array(places))
        code = err_set(e, ERR_FORMAT, "no \"thought\" with \"places\"");
    json_array_foreach (places, i, one)
        if (code == ERR_OK)
            code = read_place(t, one, n_vocab, e);
    if (code != ERR_OK)
        reason_trace_free(t);
    return code;
}

/* ---- replay ---- */

/* A rule on its way through what was thought. */
struct replay {
    const struct reason_trace *t;
    const struct text *text;
    const struct reason_opts *o;
    struct reason_judge judge;
    struct reason_budget budget;
    bool certain;
    struct reason_stop stop;
};

/* The model is certain: what was thought is the budget from now on. true: it closes here. */
static bool be_certain(struct replay *r, bool sentence)
{
    if (r->certain)
        return false;
    r->certain = true;
    r->budget.budget = r->budget.n;
    r->budget.grace = reason_grace_of(r->o, r->budget.n);
    return sentence || r->budget.grace == 0;
}

static bool may_ask(const struct reason_opts *o, const struct reason_place *p)
{
    return p->sentence || (o->every_tokens > 0 && p->n % o->every_tokens == 0);
}

/* Whether the rule asks at a place, and is content with what it hears. */
static bool ask_at(struct replay *r, const struct reason_place *p)
{
    const struct reason_opts *o = r->o;
    const int trial = reason_trial_tokens(o), n = p->n_trial < trial ? p->n_trial : trial;

    if (!may_ask(o, p) || r->certain || p->n < o->after_tokens || p->n < o->least_tokens || p->n >= r->budget.budget ||
        (trial == 0 && o->rule != REASON_RULE_EAT))
        return false;
    r->stop.probes++;
    r->stop.rows += p->closing + n;
    if (trial > 0)
        return n > 0 && reason_judge_trial(&r->judge, r->text, p->trial, n);
    return p->n_trial > 0 && reason_judge_peek(&r->judge, p->trial->entropy);
}

/* A token more; whether the reasoning closes behind it. */
static bool think(struct replay *r, const struct gen_seen *s)
{
    const bool sentence = s->reasoning;
    bool closes = reason_budget_add(&r->budget, sentence);

    if (reason_judge_token(&r->judge, s->p_max, s->entropy) && r->budget.n >= r->o->after_tokens &&
        r->budget.n >= r->o->least_tokens)
        closes = be_certain(r, sentence) || closes;
    return closes;
}

/* Ends at the first place from number i on. */
static struct reason_stop stop_at(const struct replay *r, int64_t i)
{
    const struct reason_trace *t = r->t;
    struct reason_stop s = r->stop;

    s.place = i < t->n_place ? i : -1;
    s.tokens = i < t->n_place ? t->place[i].n + t->place[i].forced : t->n_own;
    s.right = i < t->n_place ? t->place[i].right : t->right;
    return s;
}

struct reason_stop reason_replay(const struct reason_trace *t, const struct text *text, const struct reason_opts *o,
                                 int32_t n_vocab)
{
    struct replay r = { .t = t, .text = text, .o = o, .judge = reason_judge_of(o, n_vocab) };
    int64_t at = 0;

    r.budget.budget = o->budget_tokens >= 0 ? o->budget_tokens : INT64_MAX;
    r.budget.grace = o->budget_tokens >= 0 ? reason_grace_of(o, o->budget_tokens) : 0;
    for (int64_t n = 1; n <= t->n; n++) {
        while (at < t->n_place && t->place[at].n < n)
            at++;
        if (think(&r, &t->thought[n - 1]))
            return stop_at(&r, at);
        if (at < t->n_place && t->place[at].n == n && ask_at(&r, &t->place[at]) &&
            be_certain(&r, t->place[at].sentence))
            return stop_at(&r, at);
    }
    return stop_at(&r, t->n_place);
}

struct reason_stop reason_oracle(const struct reason_trace *t, const struct reason_opts *o)
{
    const struct replay r = { .t = t };
    int64_t first = t->n_place;

    for (int64_t i = t->n_place - 1; i >= 0 && t->right && (t->place[i].right || !may_ask(o, &t->place[i])); i--)
        first = may_ask(o, &t->place[i]) ? i : first;
    return stop_at(&r, first);
}

void reason_total_add(struct reason_total *t, const struct reason_stop *s)
{
    t->n++;
    t->right += s->right;
    t->tokens += s->tokens;
    t->rows += s->rows;
}

int reason_pick(const struct reason_total *of, int n, int64_t least)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (of[i].right >= least && (best < 0 || of[i].tokens + of[i].rows <= of[best].tokens + of[best].rows))
            best = i;
    return best;
}
