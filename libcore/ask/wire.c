/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c - a question, and the events of its answer, as JSON (wire.h).       room: ask */
#include "ask/wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- bytes ---- */

enum { NUL = 0x100 /* stands for the byte 0 */ };

static json_t *write_bytes(struct str s)
{
    char *text = malloc(2 * s.n + 1);
    size_t n = 0;

    for (size_t i = 0; i < s.n && text != NULL; i++)
        n += str_utf8_put(text + n, s.p[i] == '\0' ? NUL : (unsigned char)s.p[i]);
    json_t *v = text != NULL ? json_stringn(text, n) : NULL;

    free(text);
    return v;
}

static enum err_code read_bytes(struct str *out, struct arena *arena, const json_t *v, struct err *e)
{
    const struct str s = json_text(v);
    char *p = arena_alloc(arena, s.n + 1);
    size_t n = 0;

    if (p == NULL)
        return err_nomem(e);
    if (s.p == NULL)
        return err_set(e, ERR_FORMAT, "not a text");
    for (size_t i = 0, length; i < s.n; i += length) {
        const uint32_t c = str_utf8_get(s.p + i, s.n - i, &length);

        if (c > NUL)
            return err_set(e, ERR_FORMAT, "not a text of bytes");
        p[n++] = (char)(unsigned char)(c == NUL ? 0 : c);
    }
    *out = (struct str){ p, n };
    return ERR_OK;
}

/* ---- a question ---- */

enum kind {
    YES,   /* bool */
    INT,   /* int, not below -1 */
    LONG,  /* int64_t, the same */
    REAL,  /* float */
    BYTES, /* struct str */
    WORD,  /* const char * */
    LIST,  /* json_t *: an array */
    ANY,   /* json_t * */
};
#define ROW(kind, name, member) \
    { \
        name, kind, offsetof(struct ask, member) \
    }
static const struct {
    const char *name;
    enum kind kind;
    size_t at;
} rows[] = {
    ROW(LIST, "messages", messages),
    ROW(BYTES, "text", text),
    ROW(YES, "plain", plain),
    ROW(YES, "add_no_answer", add_no_answer),
    ROW(YES, "continues_last", continues_last),
    ROW(LIST, "tools", tools),
    ROW(WORD, "tool_choice", tool_choice),
    ROW(YES, "one_call", one_call),
    ROW(YES, "tools_are_told", tools_are_told),
    ROW(INT, "think", think),
    ROW(ANY, "kwargs", kwargs),
    ROW(LONG, "budget", reason.budget_tokens),
    ROW(LONG, "grace", reason.grace_tokens),
    ROW(LONG, "least", reason.least_tokens),
    ROW(BYTES, "message", reason.message),
    ROW(YES, "loops", reason.loops),
    ROW(LONG, "every", reason.every_tokens),
    ROW(LONG, "after", reason.after_tokens),
    ROW(INT, "trial", reason.trial_tokens),
    ROW(INT, "lag", reason.lag),
    ROW(BYTES, "stub", reason.stub),
    ROW(YES, "suppresses", reason.suppresses),
    ROW(REAL, "suppress_above", reason.suppress_above),
    ROW(YES, "effort_is_hint", effort_is_hint),
    ROW(YES, "rule_is_hint", rule_is_hint),
    ROW(LONG, "now_s", now_s),
    ROW(YES, "reads_form", reads_form),
    ROW(ANY, "schema", form.schema),
    ROW(BYTES, "gbnf", form.gbnf),
    ROW(BYTES, "regex", form.regex),
    ROW(LONG, "tokens_max", tokens_max),
    ROW(YES, "max_is_text", max_is_text),
    ROW(LONG, "tokens_min", tokens_min),
    ROW(YES, "ignore_eos", ignore_eos),
    ROW(YES, "in_parts", in_parts),
    ROW(INT, "top", sample.n_top),
    ROW(YES, "uncertainty", uncertainty),
    ROW(INT, "draft_max", draft_max),
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* NULL: memory is out, or *none: there is nothing to write. */
static json_t *write_member(const void *from, enum kind kind, bool *none)
{
    struct str bytes = { NULL, 0 };
    const char *word = NULL;
    json_t *v = NULL;

    if (kind == BYTES)
        bytes = *(const struct str *)from;
    else if (kind == WORD)
        word = *(const char *const *)from;
    else if (kind == LIST || kind == ANY)
        v = *(json_t *const *)from;
    *none = kind >= BYTES && bytes.p == NULL && word == NULL && v == NULL;
    if (*none)
        return NULL;
    switch (kind) {
    case YES:
        return json_boolean(*(const bool *)from);
    case INT:
        return json_integer(*(const int *)from);
    case LONG:
        return json_integer(*(const int64_t *)from);
    case REAL:
        return json_real((double)*(const float *)from);
    case BYTES:
        return write_bytes(bytes);
    case WORD:
        return json_bytes(str_of(word));
    case LIST:
    case ANY:
        break;
    }
    return json_incref(v);
}

static json_t *write_tokens(const int32_t *token, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        json_push(&all, json_integer(token[i]));
    return all;
}

static json_t *write_texts(const struct str *text, size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        json_push(&all, write_bytes(text[i]));
    return all;
}

static json_t *write_biases(const struct sample_opts *o)
{
    json_t *all = json_array();

    for (size_t i = 0; i < o->n_bias; i++) /* null: the token is forbidden */
        json_push(&all, json_pack("[i, o]", (int)o->bias[i].token,
                                  isfinite(o->bias[i].bias) ? json_real((double)o->bias[i].bias) : json_null()));
    return all;
}

/* The effort and the rule by their names, the numbers of the sampler by those of its members. */
static bool write_names(json_t *o, const struct ask *a)
{
    const struct sample_option *row;
    char rule[40] = "";
    bool ok = json_object_set_new(o, "effort", json_string(reason_effort_name(a->reason.effort))) == 0;

    if (a->reason.rule != REASON_RULE_NONE)
        (void)snprintf(rule, sizeof rule, "%s:%.9g", reason_rule_name(a->reason.rule), (double)a->reason.threshold);
    ok = ok && json_object_set_new(o, "rule", json_string(rule)) == 0;
    for (int i = 0; ok && (row = sample_option(i)) != NULL; i++)
        ok = json_object_set_new(o, row->member, json_real(sample_option_value(&a->sample, row))) == 0;
    return ok && json_object_set_new(o, "seed", json_integer((json_int_t)a->sample.seed)) == 0;
}

json_t *ask_write(const struct ask *a)
{
    json_t *o = json_object();
    bool ok = o != NULL && write_names(o, a);

    for (int i = 0; i < N_ROWS && ok; i++) {
        bool none;
        json_t *v = write_member((const char *)a + rows[i].at, rows[i].kind, &none);

        ok = none || json_object_set_new(o, rows[i].name, v) == 0;
    }
    ok = ok && json_object_set_new(o, "tokens", write_tokens(a->token, (size_t)a->n_token)) == 0 &&
         json_object_set_new(o, "stop_tokens", write_tokens(a->stop_token, a->n_stop_tokens)) == 0 &&
         json_object_set_new(o, "stops", write_texts(a->stops, a->n_stops)) == 0 &&
         json_object_set_new(o, "breakers", write_texts(a->breakers, a->n_breakers)) == 0 &&
         json_object_set_new(o, "biases", write_biases(&a->sample)) == 0;
    return json_if(ok, o);
}

static bool whole_in(const json_t *v, int64_t least, int64_t most)
{
    return json_is_integer(v) && json_integer_value(v) >= least && json_integer_value(v) <= most;
}

static enum err_code read_member(struct ask_sent *s, void *to, enum kind kind, json_t *v, struct err *e)
{
    if ((kind == YES && !json_is_boolean(v)) || (kind == INT && !whole_in(v, -1, INT32_MAX)) ||
        (kind == LONG && !whole_in(v, -1, INT64_MAX / 4)) || (kind == REAL && !json_is_number(v)) ||
        (kind == WORD && !json_is_string(v)) || (kind == LIST && !json_is_array(v)))
        return err_set(e, ERR_FORMAT, "of another kind, or out of range");
    switch (kind) {
    case YES:
        *(bool *)to = json_is_true(v);
        break;
    case INT:
        *(int *)to = (int)json_integer_value(v);
        break;
    case LONG:
        *(int64_t *)to = json_integer_value(v);
        break;
    case REAL:
        *(float *)to = (float)json_number_value(v);
        break;
    case BYTES:
        return read_bytes(to, &s->arena, v, e);
    case WORD:
        *(const char **)to = json_string_value(v);
        break;
    case LIST:
    case ANY:
        *(json_t **)to = v;
        break;
    }
    return ERR_OK;
}

static enum err_code read_tokens(const int32_t **to, size_t *n, struct ask_sent *s, const json_t *v, struct err *e)
{
    int32_t *token = arena_array(&s->arena, json_array_size(v), sizeof *token);
    const json_t *one;
    size_t i;

    if (token == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, one) {
        if (!whole_in(one, 0, INT32_MAX))
            return err_set(e, ERR_FORMAT, "not a token id");
        token[i] = (int32_t)json_integer_value(one);
    }
    *to = token;
    *n = json_array_size(v);
    return ERR_OK;
}

static enum err_code read_texts(const struct str **to, size_t *n, struct ask_sent *s, const json_t *v, struct err *e)
{
    struct str *text = arena_array(&s->arena, json_array_size(v), sizeof *text);
    const json_t *one;
    size_t i;

    if (text == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, one) {
        if (read_bytes(&text[i], &s->arena, one, e))
            return e->code;
        if (text[i].n == 0)
            return err_set(e, ERR_FORMAT, "an empty text");
    }
    *to = text;
    *n = json_array_size(v);
    return ERR_OK;
}

static enum err_code read_biases(struct ask_sent *s, const json_t *v, struct err *e)
{
    struct sample_bias *bias = arena_array(&s->arena, json_array_size(v), sizeof *bias);
    const json_t *one;
    size_t i;

    if (bias == NULL)
        return err_nomem(e);
    json_array_foreach (v, i, one) {
        const json_t *x = json_array_get(one, 1);

        if (!whole_in(json_array_get(one, 0), 0, INT32_MAX) || !(json_is_null(x) || json_is_number(x)))
            return err_set(e, ERR_FORMAT, "not a token id and a number");
        bias[i].token = (int32_t)json_integer_value(json_array_get(one, 0));
        bias[i].bias = json_is_null(x) ? -INFINITY : (float)json_number_value(x);
    }
    s->ask.sample.bias = bias;
    s->ask.sample.n_bias = json_array_size(v);
    return ERR_OK;
}

static enum err_code read_lists(struct ask_sent *s, struct err *e)
{
    struct ask *a = &s->ask;
    size_t n_token;

    if (read_tokens(&a->token, &n_token, s, json_object_get(s->of, "tokens"), e))
        return err_at(e, "/tokens");
    a->n_token = (int64_t)n_token;
    if (read_tokens(&a->stop_token, &a->n_stop_tokens, s, json_object_get(s->of, "stop_tokens"), e))
        return err_at(e, "/stop_tokens");
    if (read_texts(&a->stops, &a->n_stops, s, json_object_get(s->of, "stops"), e))
        return err_at(e, "/stops");
    if (read_texts(&a->breakers, &a->n_breakers, s, json_object_get(s->of, "breakers"), e))
        return err_at(e, "/breakers");
    return read_biases(s, json_object_get(s->of, "biases"), e) ? err_at(e, "/biases") : ERR_OK;
}

static enum err_code read_sampler(struct ask_sent *s, struct err *e)
{
    const json_t *seed = json_object_get(s->of, "seed");
    const struct sample_option *row;

    for (int i = 0; (row = sample_option(i)) != NULL; i++) {
        const json_t *v = json_object_get(s->of, row->member);
        const double x = json_number_value(v);

        if (!json_is_number(v) || !(x >= row->least && x <= row->most) || (row->whole && x != floor(x))) {
            err_set(e, ERR_FORMAT, "of another kind, or out of range");
            return err_at(e, "/%s", row->member);
        }
        sample_option_set(&s->ask.sample, row, x);
    }
    s->ask.sample.seed = (uint64_t)json_integer_value(seed);
    return ERR_OK;
}

/* What options() of reason.h reads is checked by it. */
static enum err_code read_reason(struct ask_sent *s, struct err *e)
{
    const char *effort = json_string_value(json_object_get(s->of, "effort"));
    const struct str rule = json_text(json_object_get(s->of, "rule"));
    struct reason_opts *o = &s->ask.reason;

    if (effort != NULL && *effort != '\0')
        o->effort = reason_effort_of(effort);
    if (o->effort >= REASON_EFFORTS || o->trial_tokens < 0 || o->trial_tokens > REASON_TRIAL_MAX || o->lag < 0 ||
        o->lag > REASON_LAG_MAX || o->every_tokens < 0 || o->after_tokens < 0 || o->least_tokens < 0 ||
        !(o->suppress_above >= 0 && o->suppress_above <= 1) || (rule.p != NULL && memchr(rule.p, '\0', rule.n) != NULL))
        return err_set(e, ERR_FORMAT, "how reasoning ends is out of range");
    return rule.n > 0 && reason_read_stop(o, rule, e) ? err_at(e, "/rule") : ERR_OK;
}

static enum err_code read_question(struct ask_sent *s, struct err *e)
{
    struct ask *a = &s->ask;

    for (int i = 0; i < N_ROWS; i++) {
        json_t *v = json_object_get(s->of, rows[i].name);

        if (v != NULL && read_member(s, (char *)a + rows[i].at, rows[i].kind, v, e))
            return err_at(e, "/%s", rows[i].name);
    }
    if (a->tokens_min < 0 || a->sample.n_top < 0 || (a->kwargs != NULL && !json_is_object(a->kwargs)))
        return err_set(e, ERR_FORMAT, "a limit is out of range");
    return read_reason(s, e) || read_sampler(s, e) || read_lists(s, e) ? e->code : ERR_OK;
}

enum err_code ask_read(struct ask_sent **out, json_t *v, struct err *e)
{
    struct ask_sent *s = calloc(1, sizeof *s);

    if (s == NULL)
        return err_nomem(e);
    s->ask = ask_defaults();
    s->of = json_incref(v);
    if (read_question(s, e)) {
        ask_sent_close(s);
        return e->code;
    }
    *out = s;
    return ERR_OK;
}

void ask_sent_close(struct ask_sent *s)
{
    if (s == NULL)
        return;
    json_decref(s->of);
    arena_free(&s->arena);
    free(s);
}

/* ---- events ---- */

/* null: it is no number. */
static json_t *write_real(float x)
{
    return isfinite(x) ? json_real((double)x) : json_null();
}

static float read_real(const json_t *v)
{
    return json_is_number(v) ? (float)json_number_value(v) : NAN;
}

static json_t *write_token(const struct gen_event *ev)
{
    json_t *top = json_array();

    for (int32_t i = 0; i < ev->pick.n_top; i++)
        json_push(&top, json_pack("[i, o]", (int)ev->pick.top[i].token, write_real(ev->pick.top[i].logprob)));
    return json_pack("{s:i, s:o, s:o, s:o, s:[o, o, o], s:b, s:b}", "token", (int)ev->pick.token, "text",
                     write_bytes(ev->text), "logprob", write_real(ev->pick.logprob), "top", top, "numbers",
                     write_real(ev->entropy), write_real(ev->varentropy), write_real(ev->margin), "reasoning",
                     ev->reasoning, "forced", ev->forced);
}

json_t *ask_write_error(const struct err *e)
{
    return json_pack("{s:i, s:o, s:o}", "code", (int)e->code, "message", json_bytes(str_of(e->msg)), "where",
                     json_bytes(str_of(e->where)));
}

void ask_read_error(const json_t *v, struct err *e)
{
    const json_int_t code = json_integer_value(json_object_get(v, "code"));
    const char *message = json_string_value(json_object_get(v, "message")),
               *where = json_string_value(json_object_get(v, "where"));

    err_set(e, code > ERR_OK && code <= ERR_CANCEL ? (enum err_code)code : ERR_IO, "%s",
            message != NULL ? message : "failed");
    if (where != NULL && *where != '\0')
        (void)err_at(e, "%s", where);
}

#define COUNTS(X) \
    X(prompt_tokens) X(cached_tokens) X(tokens) X(reasoning_tokens) X(drafted) X(kept) X(forced) X(steps) X(whole_rows)

static json_t *write_end(const struct gen_event *ev, const struct ask_request *r)
{
    json_t *o =
        json_pack("{s:i, s:o, s:b}", "end", (int)ev->end, "text", write_bytes(ev->text), "reasoning", ev->reasoning);
    bool ok = o != NULL;

#define WRITE_COUNT(name) ok = ok && json_object_set_new(o, #name, json_integer(ev->stats.name)) == 0;
    COUNTS(WRITE_COUNT)
    if (ok && r->reason.marks != NULL)
        ok = json_object_set_new(o, "thinking", ask_thinking_json(r, &ev->stats)) == 0;
    if (ok && ev->end == GEN_FAILED)
        ok = json_object_set_new(o, "error", ask_write_error(&ev->err)) == 0;
    return json_if(ok, o);
}

json_t *ask_write_event(const struct gen_event *ev, const struct ask_request *r)
{
    if (ev->kind == GEN_BEGIN)
        return json_pack("{s:I}", "begun", (json_int_t)ev->stats.cached_tokens);
    if (ev->kind == GEN_PROMPT)
        return json_pack("{s:I}", "read", (json_int_t)ev->done);
    return ev->kind == GEN_TOKEN ? write_token(ev) : write_end(ev, r);
}

static enum err_code read_token(struct ask_event *x, const json_t *v, int32_t n_vocab, struct err *e)
{
    const json_t *id = json_object_get(v, "token"), *numbers = json_object_get(v, "numbers"),
                 *top = json_object_get(v, "top"), *one;
    const size_t n = json_array_size(top);
    size_t i;

    if (!whole_in(id, 0, (int64_t)n_vocab - 1) || n > (size_t)n_vocab)
        return err_set(e, ERR_FORMAT, "not a token");
    if (memory_room(&x->top, &x->top_cap, n, sizeof *x->top, e))
        return e->code;
    json_array_foreach (top, i, one) {
        if (!whole_in(json_array_get(one, 0), 0, (int64_t)n_vocab - 1))
            return err_set(e, ERR_FORMAT, "not a token");
        x->top[i].token = (int32_t)json_integer_value(json_array_get(one, 0));
        x->top[i].logprob = read_real(json_array_get(one, 1));
    }
    x->ev.kind = GEN_TOKEN;
    x->ev.pick = (struct sample_pick){ .token = (int32_t)json_integer_value(id),
                                       .logprob = read_real(json_object_get(v, "logprob")),
                                       .top = x->top,
                                       .n_top = (int32_t)n };
    x->ev.entropy = read_real(json_array_get(numbers, 0));
    x->ev.varentropy = read_real(json_array_get(numbers, 1));
    x->ev.margin = read_real(json_array_get(numbers, 2));
    x->ev.forced = json_is_true(json_object_get(v, "forced"));
    return ERR_OK;
}

static enum err_code read_end(struct ask_event *x, const json_t *v, struct err *e)
{
    const json_t *end = json_object_get(v, "end");

    if (!whole_in(end, 0, GEN_FAILED))
        return err_set(e, ERR_FORMAT, "not an end of an answer");
    x->ev.kind = GEN_END;
    x->ev.end = (enum gen_end)json_integer_value(end);
#define READ_COUNT(name) x->ev.stats.name = json_integer_value(json_object_get(v, #name));
    COUNTS(READ_COUNT)
    x->thinking = json_object_get(v, "thinking");
    if (x->ev.end == GEN_FAILED)
        ask_read_error(json_object_get(v, "error"), &x->ev.err);
    return ERR_OK;
}

enum err_code ask_read_event(struct ask_event *x, const json_t *v, int32_t n_vocab, struct err *e)
{
    const json_t *text = json_object_get(v, "text"), *read = json_object_get(v, "read");

    arena_free(&x->arena);
    x->ev = (struct gen_event){ .reasoning = json_is_true(json_object_get(v, "reasoning")) };
    x->thinking = NULL;
    if (json_object_get(v, "begun") != NULL) {
        x->ev.kind = GEN_BEGIN;
        return ERR_OK;
    }
    if (read != NULL) {
        x->ev.kind = GEN_PROMPT;
        x->ev.done = json_integer_value(read);
        return ERR_OK;
    }
    if (read_bytes(&x->ev.text, &x->arena, text, e))
        return e->code;
    return json_object_get(v, "token") != NULL ? read_token(x, v, n_vocab, e) : read_end(x, v, e);
}

void ask_event_close(struct ask_event *x)
{
    free(x->top);
    arena_free(&x->arena);
    *x = (struct ask_event){ 0 };
}
