/* SPDX-License-Identifier: Apache-2.0 */
/* ask.c - the request of a question: its limits, its sampler, what is mixed in.  room: ask */
#include <stdlib.h>
#include <string.h>

#include "ask/internal.h"
#include "chat/chat.h"
#include "grammar/grammar.h"

struct ask ask_defaults(void)
{
    return (struct ask){ .tool_choice = "auto",
                         .think = -1,
                         .reason = reason_defaults(),
                         .n_notes = -1,
                         .n_recite = -1,
                         .tokens_max = -1,
                         .sample = sample_defaults(),
                         .n_adapters = -1,
                         .draft_max = -1 };
}

enum err_code ask_breakers(struct text_tokens *out, const struct text *t, const struct str *breakers, size_t n,
                           struct err *e)
{
    static const struct str usual[] = { { "\n", 1 }, { ":", 1 }, { "\"", 1 }, { "*", 1 } };
    const struct str *v = n > 0 ? breakers : usual;
    const size_t n_v = n > 0 ? n : sizeof usual / sizeof *usual;
    const int32_t n_tokens = t != NULL ? text_info(t)->n_tokens : 0;

    for (int32_t id = 0; id < n_tokens; id++) {
        bool breaks = false;

        for (size_t i = 0; i < n_v && !breaks; i++)
            breaks = str_find(text_piece(t, id), 0, v[i]) != SIZE_MAX;
        if (breaks && text_tokens_push(out, id, e))
            return e->code;
    }
    return ERR_OK;
}

static enum err_code set_sampler(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    struct sample_opts *o = &r->q.sample;

    *o = a->sample;
    if (o->dry_multiplier <= 0 || o->dry_breakers != NULL)
        return ERR_OK;
    r->breakers.n = 0;
    if (ask_breakers(&r->breakers, m->text, a->breakers, a->n_breakers, e))
        return e->code;
    o->dry_breakers = r->breakers.v;
    o->n_dry_breakers = (size_t)r->breakers.n;
    return ERR_OK;
}

/* Tables, and the text that is recited if the model has its tokens. */
static void set_memory(struct ask_request *r, const struct ask *a, const struct ask_model *m)
{
    struct engram_recital recital = r->mix.recital;

    for (int64_t i = 0; i < recital.n && m->n_vocab > 0; i++)
        recital.n = recital.token[i] < m->n_vocab ? recital.n : 0;
    const struct engram_mix *tables = r->closed ? NULL : a->tables;

    if (tables != NULL)
        r->mix = *tables;
    r->mix.recital = recital;
    r->q.memory = tables != NULL || recital.n > 0 ? &engram_memory : NULL;
    r->q.memory_of = &r->mix;
}

bool ask_set_mixed(json_t *o, const struct ask_request *r, const struct gen_mixed *mixed, int n)
{
    const int n_files = r->mix.table != NULL ? engram_n_files(r->mix.table) : 0;
    json_t *all = json_array();
    bool ok = true;

    for (int i = 0; i < n && i < n_files; i++)
        if (r->mix.ceiling[i] > 0) /* else it is turned off */
            json_push(&all,
                      json_pack("{s:o, s:I, s:I, s:f}", "name", json_bytes(str_of(engram_file_name(r->mix.table, i))),
                                "matched", (json_int_t)mixed[i].matched, "changed", (json_int_t)mixed[i].changed,
                                "weight", mixed[i].weight));
    if (all == NULL || (json_array_size(all) > 0 && json_object_set(o, "tables", all) != 0))
        ok = false;
    json_decref(all);
    if (ok && n > n_files)
        ok = json_object_set_new(o, "recited",
                                 json_pack("{s:I, s:I}", "matched", (json_int_t)mixed[n_files].matched, "changed",
                                           (json_int_t)mixed[n_files].changed)) == 0;
    return ok;
}

static void set_limits(struct gen_request *q, const struct ask *a)
{
    const bool of_text = a->messages != NULL && a->max_is_text && a->tokens_max > 0;

    q->text_max = of_text ? a->tokens_max : -1;
    q->predict_max = a->embeds ? 0 : of_text ? -1 : a->tokens_max;
    q->min_tokens = a->tokens_min;
    q->ignore_eos = a->ignore_eos;
    q->stops = a->stops;
    q->n_stops = a->n_stops;
    q->stop_token = a->stop_token;
    q->n_stop_tokens = a->n_stop_tokens;
    q->draft_max = a->draft_max;
    q->uncertainty = a->uncertainty;
    q->priority = a->priority;
}

enum err_code ask_update(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    if (set_sampler(r, a, m, e) || (r->second != NULL && ask_update(r->second, a, m, e)))
        return e->code;
    set_limits(&r->q, a);
    set_memory(r, a, m);
    r->q.adapters = a->adapters;
    r->q.n_adapters = a->n_adapters;
    return ERR_OK;
}

/* What the engine has to know of the prompt. */
static void set_prompt(struct ask_request *r, const struct ask *a)
{
    struct gen_request *q = &r->q;

    q->prompt = r->prompt.v;
    q->n_prompt = r->prompt.n;
    q->chat = a->messages != NULL;
    q->thinking = r->thinking;
    q->in_parts = a->in_parts;
    q->pool = a->embeds;
}

/* Whether the template itself does something about an effort. */
static bool template_knows_efforts(const struct ask_model *m)
{
    return str_find(chat_template(m->chat), 0, STR("reasoning_effort")) != SIZE_MAX;
}

/* A limit of reasoning needs a mark to close it with. */
static enum err_code check_marks(const struct reason_opts *o, const struct ask_model *m, struct err *e)
{
    const bool share = o->effort > REASON_EFFORT_NONE && !template_knows_efforts(m);
    const char *at = o->budget_tokens > 0          ? "/reasoning_budget"
                     : o->least_tokens > 0         ? "/reasoning_min"
                     : share                       ? "/reasoning_effort"
                     : o->rule != REASON_RULE_NONE ? "/think_stop"
                     : o->suppresses               ? "/think_suppress"
                                                   : NULL;

    if (o->marks != NULL || at == NULL)
        return ERR_OK;
    err_set(e, ERR_UNSUPPORTED,
            "the model's template writes answers of the kind \"%s\", which have no mark that ends reasoning",
            chat_parser(m->chat));
    return err_at(e, "%s", at);
}

/* When the reasoning of a chat ends, also that of a model which opens it itself, and answers that repeat themselves. */
static enum err_code set_governor(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    const struct text_marks *marks = a->messages != NULL ? chat_marks(m->chat) : NULL;
    const bool is_read = r->q.part_marks != NULL && marks != NULL, off = ask_is_not_to_reason(a);
    struct reason_opts *o = &r->reason;

    *o = a->reason;
    o->text = m->text;
    o->marks = is_read ? r->q.part_marks : marks;
    if (a->effort_is_hint && o->marks == NULL)
        o->effort = REASON_EFFORT_ANY;
    if (a->messages == NULL || off) {
        *o = reason_defaults();
        o->text = m->text;
        o->marks = a->messages != NULL ? is_read ? r->q.part_marks : marks : NULL;
        o->budget_tokens = a->messages != NULL && is_read ? 0 : -1;
        o->loops = a->reason.loops;
    } else if (a->rule_is_hint && o->marks == NULL) {
        o->rule = REASON_RULE_NONE;
        o->suppresses = false;
    }
    r->reasons = is_read && !off;
    if (a->messages != NULL && !off && (check_marks(o, m, e) || reason_check(o, e)))
        return e->code;
    if (a->embeds || (!o->loops && o->budget_tokens < 0 && o->effort == REASON_EFFORT_ANY && o->least_tokens == 0 &&
                      o->rule == REASON_RULE_NONE && !o->suppresses && o->trace == NULL))
        return ERR_OK;
    r->q.governor = &reason_governor;
    r->q.governor_opts = o;
    return ERR_OK;
}

/* What would be done to reasoning that is off. */
static enum err_code check_off(const struct ask *a, struct err *e)
{
    const struct reason_opts *o = &a->reason;
    const bool effort = o->effort > REASON_EFFORT_NONE && !a->effort_is_hint;
    const bool rule = o->rule != REASON_RULE_NONE && !a->rule_is_hint, suppress = o->suppresses && !a->rule_is_hint;
    const char *at = o->budget_tokens > 0  ? "/reasoning_budget"
                     : effort              ? "/reasoning_effort"
                     : o->grace_tokens > 0 ? "/reasoning_grace"
                     : o->least_tokens > 0 ? "/reasoning_min"
                     : o->message.n > 0    ? "/reasoning_budget_message"
                     : rule                ? "/think_stop"
                     : suppress            ? "/think_suppress"
                                           : NULL;

    if (at == NULL)
        return ERR_OK;
    err_set(e, ERR_ARG, "reasoning is off, so this has no effect");
    return err_at(e, "%s", at);
}

/* What contradicts itself, whoever asks. */
static enum err_code check_ask(const struct ask *a, const struct ask_request *r, struct err *e)
{
    /* of reasoning, which counts for the least number, there may be any amount */
    if (a->tokens_max >= 0 && a->tokens_min > a->tokens_max && !(a->max_is_text && r->reasons)) {
        err_set(e, ERR_ARG, "at least %lld tokens, but at most %lld", (long long)a->tokens_min,
                (long long)a->tokens_max);
        return err_at(e, "/min_tokens");
    }
    return a->messages != NULL && ask_is_not_to_reason(a) ? check_off(a, e) : ERR_OK;
}

static enum err_code make_request(struct ask_request *r, const struct ask *a, const struct ask_model *m,
                                  const struct ask_request *like, struct err *e)
{
    r->q = gen_defaults();
    if (ask_make_prompt(r, a, m, e))
        return e->code;
    /* Clients that shorten their conversation then look for these words and numbers. */
    if (m->prompt_max > 0 && r->prompt.n > m->prompt_max)
        return err_set(e, ERR_LIMIT, "the prompt is too long: %lld tokens > %lld of the context",
                       (long long)r->prompt.n, (long long)m->prompt_max);
    if (ask_make_form(r, a, m, like, e) || set_governor(r, a, m, e) || check_ask(a, r, e))
        return e->code;
    set_prompt(r, a);
    if (r->grammar != NULL) {
        r->q.constraint = &gen_grammar;
        r->q.rules = r->grammar;
    }
    return ask_update(r, a, m, e);
}

static enum err_code open_one(struct ask_request **out, const struct ask *a, const struct ask_model *m,
                              const struct ask_request *like, struct err *e)
{
    struct ask_request *r = calloc(1, sizeof *r);

    if (r == NULL)
        return err_nomem(e);
    if (make_request(r, a, m, like, e)) {
        ask_close(r);
        return e->code;
    }
    *out = r;
    return ERR_OK;
}

/* ---- first a direct answer ---- */

static enum err_code check_advice(const struct ask *a, struct err *e)
{
    if (a->tokens_max != 0 && !ask_is_not_to_reason(a) && json_object_get(a->kwargs, "enable_thinking") == NULL &&
        !a->continues_last)
        return ERR_OK;
    err_set(e, ERR_ARG,
            a->tokens_max == 0 ? "there is no answer to judge with 0 tokens"
                               : "another member decides already whether the model thinks");
    return err_at(e, "/enable_thinking");
}

/* The second request behind the first one. What both prompts begin with is kept for it: false if they are the same. */
static bool link_second(struct ask_request *r, struct ask_request *second)
{
    struct gen_request *q = &r->q;
    const int room = (int)(sizeof r->border / sizeof r->border[0]);
    int64_t common = 0;

    r->second = second;
    q->second = &second->q;
    while (common < r->prompt.n - 1 && common < r->second->prompt.n &&
           r->prompt.v[common] == r->second->prompt.v[common])
        common++;
    const bool same = common == r->prompt.n - 1 && r->second->prompt.n == r->prompt.n &&
                      r->prompt.v[common] == r->second->prompt.v[common];

    while (q->n_marks > 0 && (r->border[q->n_marks - 1] >= common || q->n_marks == room))
        q->n_marks--;
    if (common > 0)
        r->border[q->n_marks++] = common;
    return !same;
}

/* The reasoning request behind the direct one. */
static enum err_code add_second(struct ask_request *r, const struct ask *a, const struct ask_model *m, struct err *e)
{
    struct ask_request *second;

    if (open_one(&second, a, m, r, e))
        return e->code;
    r->q.doubt_below = r->advice.threshold.below;
    if (link_second(r, second))
        return ERR_OK;
    err_set(e, ERR_UNSUPPORTED, "the model's template has no thinking to turn on and off");
    return err_at(e, "/enable_thinking");
}

static enum err_code open_advised(struct ask_request **out, const struct ask *a, const struct ask_model *m,
                                  const struct ask_request *like, struct err *e)
{
    struct ask direct = *a, thorough = *a;
    struct reason_advice advice;
    struct ask_request *r;
    char *text;
    size_t n;

    if (check_advice(a, e) || ask_user_text(&text, &n, a->messages, e))
        return e->code;
    const enum err_code code = reason_calibration_find(a->calibration, (struct str){ text, n }, &advice, e);

    free(text);
    if (code)
        return code;
    direct.think = 0;
    direct.reason = reason_defaults();
    direct.reason.loops = a->reason.loops;
    thorough.think = 1;
    if (open_one(&r, advice.threshold.thinks == REASON_THINKS_ALWAYS ? &thorough : &direct, m, like, e))
        return e->code;
    r->is_advised = true;
    r->advice = advice;
    if (advice.threshold.thinks == REASON_THINKS_BELOW && add_second(r, &thorough, m, e)) {
        ask_close(r);
        return e->code;
    }
    if (r->second != NULL) {
        r->second->is_advised = true;
        r->second->advice = advice;
    }
    *out = r;
    return ERR_OK;
}

/* ---- first an answer without notes ---- */

enum { UNKNOWN = 3 };
static const struct str unknown[UNKNOWN] = { { "I do not know", 13 }, { "I don't know", 12 }, { "I'm not sure", 12 } };

bool ask_abstains(struct str text)
{
    for (int i = 0; i < UNKNOWN; i++)
        if (str_find(text, 0, unknown[i]) != SIZE_MAX)
            return true;
    return false;
}

/* The request with notes, where an index has some; before it one without them. */
static enum err_code open_unsure(struct ask_request **out, const struct ask *a, const struct ask_model *m,
                                 const struct ask_request *like, struct err *e)
{
    struct ask closed = *a;
    struct ask_request *noted, *r;

    if (open_one(&noted, a, m, like, e))
        return e->code;
    if (json_array_size(noted->notes) == 0) {
        *out = noted;
        return ERR_OK;
    }
    closed.notes = closed.recite = closed.context = NULL;
    if (open_one(&r, &closed, m, noted, e)) {
        ask_close(noted);
        return e->code;
    }
    r->closed = a->context != NULL;
    r->retrieves = noted->retrieves = true;
    r->q.doubts_mean = true;
    r->q.doubt_mean = a->retrieve_below;
    r->q.doubt_texts = unknown;
    r->q.n_doubt_texts = UNKNOWN;
    (void)link_second(r, noted);
    *out = r;
    return ERR_OK;
}

enum err_code ask_open(struct ask_request **out, const struct ask *a, const struct ask_model *m,
                       const struct ask_request *like, struct err *e)
{
    if (a->retrieves && a->calibration == NULL && a->messages != NULL && a->tokens_max != 0)
        return open_unsure(out, a, m, like, e);
    if (a->calibration != NULL && a->messages != NULL)
        return open_advised(out, a, m, like, e);
    return open_one(out, a, m, like, e);
}

int64_t ask_context(int64_t n_prompt, bool reasons, int64_t tokens_max, int64_t ctx_train)
{
    enum { ROOM = 8192 /* tokens of an answer, or of its reasoning, that may have any number */ };
    const bool limited = tokens_max >= 0 && tokens_max < INT32_MAX;
    const int64_t n = n_prompt + (limited ? tokens_max : ROOM) + (reasons && tokens_max >= 0 ? ROOM : 0);

    return ctx_train > 0 && n > ctx_train ? ctx_train : n;
}

void ask_turn(struct ask_request **r)
{
    struct ask_request *first = *r, *second = first->second;

    first->second = NULL;
    second->first = first;
    *r = second;
}

void ask_close(struct ask_request *r)
{
    if (r == NULL)
        return;
    ask_close(r->second);
    ask_close(r->first);
    if (!r->shares_grammar)
        grammar_close(r->grammar);
    json_decref(r->tools);
    json_decref(r->notes);
    json_decref(r->messages);
    json_decref(r->loose);
    text_tokens_free(&r->prompt);
    text_tokens_free(&r->recital);
    text_tokens_free(&r->breakers);
    free(r);
}
