/* SPDX-License-Identifier: Apache-2.0 */
/* reply.c - replies in the form of OpenAI's interface.                       room: serve */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "journal/journal.h"
#include "serve/internal.h"

bool serve_add(struct serve_buf *b, struct str s)
{
    if (memory_room(&b->p, &b->cap, b->n + s.n + 1, 1, NULL))
        return false;
    if (s.n > 0)
        memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    b->p[b->n] = '\0';
    return true;
}

json_t *serve_text(const struct serve_buf *b)
{
    return json_bytes((struct str){ b->p != NULL ? b->p : "", b->n });
}

bool serve_keep_call(json_t **calls, const struct chat_piece *p)
{
    if (*calls == NULL)
        *calls = json_array();
    json_push(calls, json_pack("{s:o, s:s, s:{s:o, s:o}}", "id", json_bytes(p->id), "type", "function", "function",
                               "name", json_bytes(p->name), "arguments", json_bytes(p->text)));
    return *calls != NULL;
}

const char *serve_finish(const struct serve_job *j, const struct serve_choice *c)
{
    switch (c->end) {
    case GEN_LENGTH:
    case GEN_CONTEXT:
    case GEN_LOOP:
        return "length";
    case GEN_CANCELLED:
        return "cancelled";
    case GEN_EOS:
    case GEN_STOP_STRING:
    case GEN_STOPPED:
    case GEN_STEP:
    case GEN_FAILED:
        break;
    }
    return json_array_size(c->calls) == 0 ? "stop" : j->w.functions ? "function_call" : "tool_calls";
}

/* One token with its bytes, as log-probabilities of chats have it. */
static json_t *one_logprob(const struct serve *s, int32_t token, float logprob)
{
    const struct str piece = text_piece(s->o.text, token);
    json_t *bytes = json_array();

    for (size_t i = 0; i < piece.n && bytes != NULL; i++)
        if (json_array_append_new(bytes, json_integer((unsigned char)piece.p[i]))) {
            json_decref(bytes);
            bytes = NULL;
        }
    return json_pack("{s:o, s:o, s:o}", "token", json_bytes(piece), "logprob",
                     isfinite(logprob) ? json_real((double)logprob) : json_null(), "bytes", bytes);
}

json_t *serve_logprob(const struct serve *s, const struct sample_pick *pick, int n_top)
{
    json_t *o = one_logprob(s, pick->token, pick->logprob), *top = json_array();
    bool ok = o != NULL && top != NULL;

    for (int i = 0; i < n_top && i < pick->n_top && ok; i++)
        ok = json_array_append_new(top, one_logprob(s, pick->top[i].token, pick->top[i].logprob)) == 0;
    if (ok && json_object_set(o, "top_logprobs", top) == 0) {
        json_decref(top);
        return o;
    }
    json_decref(o);
    json_decref(top);
    return NULL;
}

json_t *serve_numbers(const struct serve *s, const struct gen_event *ev)
{
    const double numbers[] = { (double)ev->entropy, (double)ev->varentropy, (double)ev->margin };
    static const char *const names[] = { "entropy", "varentropy", "margin" };
    json_t *o = json_pack("{s:o, s:b}", "token", json_bytes(text_piece(s->o.text, ev->pick.token)), "reasoning",
                          (int)ev->reasoning);
    bool ok = o != NULL;

    for (int i = 0; i < 3; i++)
        ok = ok && json_object_set_new(o, names[i], isfinite(numbers[i]) ? json_real(numbers[i]) : json_null()) == 0;
    return json_if(ok, o);
}

/* The n best tokens of a row, best first, the lower id on ties. */
static int best_of(const float *logits, int32_t n_vocab, struct sample_top *top, int n)
{
    int k = 0;

    for (int32_t t = 0; t < n_vocab; t++) {
        int at = k < n ? k++ : n;

        if (at == n && !(n > 0 && logits[t] > top[n - 1].logprob))
            continue;
        for (at = at == n ? n - 1 : at; at > 0 && logits[t] > top[at - 1].logprob; at--)
            top[at] = top[at - 1];
        top[at] = (struct sample_top){ t, logits[t] };
    }
    return k;
}

json_t *serve_row_logprob(const struct serve *s, int32_t token, const float *logits, int n_top)
{
    struct sample_top top[TOP_MAX];
    struct sample_pick pick = { .token = token, .logprob = NAN, .top = top };
    double sum = 0, max = -INFINITY;

    for (int32_t t = 0; logits != NULL && t < s->n_vocab; t++)
        max = logits[t] > max ? logits[t] : max;
    for (int32_t t = 0; logits != NULL && t < s->n_vocab; t++)
        sum += logits[t] > -INFINITY ? exp(logits[t] - max) : 0; /* a NaN counts as -inf, as it does in samplers */
    if (sum > 0) {
        pick.logprob = (float)(logits[token] - max - log(sum));
        pick.n_top = best_of(logits, s->n_vocab, top, n_top);
        for (int i = 0; i < pick.n_top; i++)
            top[i].logprob = (float)(top[i].logprob - max - log(sum));
    }
    return serve_logprob(s, &pick, n_top);
}

/* Completions have columns instead: tokens, token_logprobs, top_logprobs. */
static json_t *columns(const json_t *logprobs)
{
    json_t *tokens = json_array(), *values = json_array(), *tops = json_array(), *entry, *t;
    bool ok = tokens != NULL && values != NULL && tops != NULL;
    size_t i, k;

    json_array_foreach (logprobs, i, entry) {
        const bool first = json_is_null(json_object_get(entry, "logprob")); /* nothing stands before it */
        json_t *top = first ? json_null() : json_object();

        ok = ok && top != NULL;
        json_array_foreach (json_object_get(entry, "top_logprobs"), k, t)
            ok = ok && json_object_set(top, json_string_value(json_object_get(t, "token")),
                                       json_object_get(t, "logprob")) == 0;
        ok = ok && json_array_append(tokens, json_object_get(entry, "token")) == 0 &&
             json_array_append(values, json_object_get(entry, "logprob")) == 0 && json_array_append(tops, top) == 0;
        json_decref(top);
    }
    if (!ok) {
        json_decref(tokens);
        json_decref(values);
        json_decref(tops);
        return NULL;
    }
    return json_pack("{s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", values, "top_logprobs", tops);
}

static json_t *logprobs_of(const struct serve_job *j, json_t *list)
{
    if (j->w.top < 0)
        return json_null();
    if (j->method != SERVE_CHAT)
        return columns(list);
    return json_pack("{s:o}", "content",
                     list != NULL ? json_incref(list) : json_array()); /* reasoning alone has none */
}

/* What tables and recited texts did to all answers: numbers of tokens, and the mean of the weights. */
static bool set_mixed(json_t *o, const struct serve_job *j)
{
    struct gen_mixed all[GEN_MIXED_MAX] = { { 0 } };
    const struct serve_choice *some = NULL;

    for (int i = 0; i < j->n_choices; i++) {
        const struct serve_choice *c = &j->choice[i];

        some = c->n_mixed > 0 ? c : some;
        for (int k = 0; k < c->n_mixed; k++) {
            all[k].matched += c->mixed[k].matched;
            all[k].changed += c->mixed[k].changed;
            all[k].weight += c->mixed[k].weight / j->n_choices;
        }
    }
    return some == NULL || ask_set_mixed(o, some->request, all, some->n_mixed);
}

/* Texts of indexes that the prompt has; NULL: none was looked at. */
static json_t *notes_of(const struct serve_job *j)
{
    json_t *notes = j->request != NULL && j->request[0] != NULL ? j->request[0]->notes : NULL;

    for (int i = 0; notes == NULL && i < j->n_choices; i++) /* one that was in doubt has them */
        notes = j->choice[i].request != NULL ? j->choice[i].request->notes : NULL;
    return notes;
}

/* How many texts of indexes and documents stand in the prompts, or are recited. */
static bool set_texts(json_t *o, const struct serve_job *j)
{
    json_t *notes = notes_of(j);

    return notes == NULL || json_object_set_new(o, "texts", json_integer((json_int_t)json_array_size(notes))) == 0;
}

json_t *serve_usage(const struct serve_job *j)
{
    int64_t prompt = 0, cached = 0, tokens = 0, reasoning = 0;

    for (int i = 0; i < j->n_choices; i++) {
        const struct gen_stats *t = &j->choice[i].stats;

        if (i % j->w.n == 0) { /* a prompt counts once */
            prompt += t->prompt_tokens;
            cached += t->cached_tokens;
        }
        tokens += t->tokens;
        reasoning += t->reasoning_tokens;
    }
    tokens += j->more_tokens;
    reasoning += j->more_reasoning;
    if (j->method == SERVE_EMBEDDING)
        return json_pack("{s:I, s:I}", "prompt_tokens", (json_int_t)prompt, "total_tokens", (json_int_t)prompt);
    json_t *o = json_pack("{s:I, s:I, s:I, s:{s:I, s:i}, s:{s:I, s:i, s:i, s:i}}", "prompt_tokens", (json_int_t)prompt,
                          "completion_tokens", (json_int_t)tokens, "total_tokens", (json_int_t)(prompt + tokens),
                          "prompt_tokens_details", "cached_tokens", (json_int_t)cached, "audio_tokens", 0,
                          "completion_tokens_details", "reasoning_tokens", (json_int_t)reasoning, "audio_tokens", 0,
                          "accepted_prediction_tokens", 0, "rejected_prediction_tokens", 0);

    return json_if(o != NULL && set_mixed(o, j) && set_texts(o, j), o);
}

/* Adds the number of tokens, their time, the time of one, and the tokens in a second. */
static bool set_rate(json_t *o, const char *what, int64_t n, double ms)
{
    const struct {
        const char *name;
        json_t *v;
    } members[] = {
        { "n", json_integer(n) },
        { "ms", json_real(ms) },
        { "per_token_ms", n > 0 ? json_real(ms / (double)n) : json_null() },
        { "per_second", ms > 0 ? json_real((double)n / ms * 1e3) : json_null() },
    };
    bool ok = true;
    char name[40];

    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        (void)snprintf(name, sizeof name, "%s_%s", what, members[i].name);
        ok = json_object_set_new(o, name, members[i].v) == 0 && ok;
    }
    return ok;
}

bool serve_set_timings(json_t *o, const struct serve_choice *c)
{
    const struct gen_stats *t = &c->stats;
    const double until = c->first_ms > 0 ? c->first_ms : c->now_ms;
    json_t *v = json_pack("{s:I}", "cache_n", (json_int_t)t->cached_tokens);

    if (o != NULL && v != NULL && set_rate(v, "prompt", t->prompt_tokens - t->cached_tokens, until - c->begin_ms) &&
        set_rate(v, "predicted", c->n_tokens, c->now_ms - until) &&
        (t->drafted == 0 || (json_object_set_new(v, "draft_n", json_integer(t->drafted)) == 0 &&
                             json_object_set_new(v, "draft_n_accepted", json_integer(t->kept)) == 0)))
        return json_object_set_new(o, "timings", v) == 0;
    json_decref(v);
    return false;
}

static json_t *choice_of_chat(const struct serve_job *j, const struct serve_choice *c)
{
    const bool calls = json_array_size(c->calls) > 0;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                          calls && c->text.n == 0 ? json_null() : serve_text(&c->text));
    bool ok = m != NULL;

    if (ok && c->reasoning.n > 0)
        ok = json_object_set_new(m, "reasoning_content", serve_text(&c->reasoning)) == 0;
    if (ok && calls && j->w.functions)
        ok = json_object_set(m, "function_call", json_object_get(json_array_get(c->calls, 0), "function")) == 0;
    else if (ok && calls)
        ok = json_object_set(m, "tool_calls", c->calls) == 0;
    if (ok)
        return json_pack("{s:i, s:o, s:o, s:s, s:o*}", "index", c->index, "message", m, "logprobs",
                         logprobs_of(j, c->logprobs), "finish_reason", serve_finish(j, c), "uncertainty",
                         json_incref(c->uncertainty));
    json_decref(m);
    return NULL;
}

static json_t *choice_of_text(const struct serve *s, const struct serve_job *j, const struct serve_choice *c)
{
    json_t *text = NULL;

    if (j->w.echo) {
        char *p = NULL;
        size_t n = 0;
        struct serve_buf all = { NULL, 0, 0 };

        if (text_decode(s->o.text, c->request->prompt.v, c->request->prompt.n, TEXT_SPECIAL, &p, &n, NULL) == ERR_OK &&
            serve_add(&all, (struct str){ p, n }) && serve_add(&all, (struct str){ c->text.p, c->text.n }))
            text = serve_text(&all);
        free(p);
        free(all.p);
    } else {
        text = serve_text(&c->text);
    }
    return json_pack("{s:i, s:o, s:o, s:s, s:o*}", "index", c->index, "text", text, "logprobs",
                     logprobs_of(j, c->logprobs), "finish_reason", serve_finish(j, c), "uncertainty",
                     json_incref(c->uncertainty));
}

void serve_reply_id(const struct serve *s, const struct serve_job *j, char out[SERVE_ID_BYTES])
{
    char number[JOURNAL_NUMBER_BYTES];

    journal_number(number, j->created_s, s->process, j->id);
    (void)snprintf(out, SERVE_ID_BYTES, "%s%s", j->row->id, number);
}

static json_t *reply_head(const struct serve *s, const struct serve_job *j, const char *object)
{
    char id[SERVE_ID_BYTES];

    serve_reply_id(s, j, id);
    return json_pack("{s:s, s:s, s:I, s:O, s:s}", "id", id, "object", object, "created", (json_int_t)j->created_s,
                     "model", s->model, "system_fingerprint", s->fingerprint);
}

static json_t *thinking_json(const struct serve_choice *c)
{
    return ask_thinking_json(c->request, &c->stats);
}

/* Of an answer, or an array of all. */
static json_t *of_choices(const struct serve_job *j, const struct serve_choice *c,
                          json_t *(*json)(const struct serve_choice *c))
{
    json_t *all;

    if (c != NULL || j->n_choices == 1)
        return json(c != NULL ? c : &j->choice[0]);
    all = json_array();
    for (int i = 0; i < j->n_choices; i++)
        json_push(&all, json(&j->choice[i]));
    return all;
}

/* What is told of the reasoning of an answer, or of all; NULL: the model has none. */
static json_t *thinking_of(const struct serve_job *j, const struct serve_choice *c)
{
    if (j->n_choices == 0 || j->choice[0].request == NULL || j->choice[0].request->reason.marks == NULL)
        return NULL;
    return of_choices(j, c, thinking_json);
}

static json_t *retrieve_json(const struct serve_choice *c)
{
    return ask_retrieve_json(&c->stats);
}

/* What answers without notes led to; NULL: none was asked. */
static json_t *retrieve_of(const struct serve_job *j, const struct serve_choice *c)
{
    if (j->n_choices == 0 || j->choice[0].request == NULL || !j->choice[0].request->retrieves)
        return NULL;
    return of_choices(j, c, retrieve_json);
}

/* Members that no other server has; NULL: none. Interfaces without choices have their numbers of tokens here. */
static json_t *own_members(const struct serve_job *j, const struct serve_choice *c)
{
    json_t *numbers = j->asked != NULL ? j->choice[0].uncertainty : NULL, *thinking = thinking_of(j, c);
    json_t *retrieve = retrieve_of(j, c);

    if (thinking == NULL && numbers == NULL && j->search == NULL && retrieve == NULL)
        return NULL;
    return json_pack("{s:o*, s:O*, s:O*, s:o*}", "thinking", thinking, "uncertainty", numbers, "search", j->search,
                     "retrieve", retrieve);
}

bool serve_add_beside(json_t *o, const struct serve_job *j, const struct serve_choice *c)
{
    json_t *loose = j->request != NULL && j->request[0] != NULL ? j->request[0]->loose : NULL;
    json_t *notes = notes_of(j), *own = own_members(j, c);

    return (own == NULL || json_object_set_new(o, "chimere", own) == 0) &&
           (notes == NULL || json_object_set(o, "notes", notes) == 0) &&
           (loose == NULL || json_object_set(o, "warnings", loose) == 0);
}

/* By RFC 4648; malloc'ed, *n characters. NULL: memory is out. */
static char *base64_of(const unsigned char *raw, size_t bytes, size_t *n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = malloc(bytes / 3 * 4 + 8);

    *n = 0;
    for (size_t i = 0; text != NULL && i < bytes; i += 3) {
        const unsigned b = (unsigned)raw[i] << 16 | (i + 1 < bytes ? (unsigned)raw[i + 1] << 8 : 0) |
                           (i + 2 < bytes ? raw[i + 2] : 0u);

        text[(*n)++] = digits[b >> 18];
        text[(*n)++] = digits[b >> 12 & 63];
        text[(*n)++] = i + 1 < bytes ? digits[b >> 6 & 63] : '=';
        text[(*n)++] = i + 2 < bytes ? digits[b & 63] : '=';
    }
    return text;
}

json_t *serve_embedding(const struct serve *s, const struct serve_job *j, const float *v)
{
    const size_t n = (size_t)s->o.n_embd;
    double sum = 0;
    json_t *list = NULL;

    for (size_t i = 0; i < n; i++)
        sum += (double)v[i] * (double)v[i];
    const double scale = j->w.raw ? 1 : sum > 0 ? 1 / sqrt(sum) : 0;
    if (!j->w.base64) {
        list = json_array();
        for (size_t i = 0; i < n; i++)
            json_push(&list, json_real((double)v[i] * scale));
        return list;
    }
    float *scaled = malloc(n * sizeof *scaled + 1);
    char *text;
    size_t n_text;

    for (size_t i = 0; scaled != NULL && i < n; i++)
        scaled[i] = (float)((double)v[i] * scale);
    text = scaled != NULL ? base64_of((const unsigned char *)scaled, n * sizeof *scaled, &n_text) : NULL;
    if (text != NULL)
        list = json_stringn(text, n_text);
    free(scaled);
    free(text);
    return list;
}

static json_t *whole_embedding(const struct serve *s, const struct serve_job *j)
{
    json_t *data = json_array();

    for (int i = 0; i < j->n_choices && data != NULL; i++)
        if (json_array_append_new(data, json_pack("{s:s, s:i, s:O}", "object", "embedding", "index", i, "embedding",
                                                  j->choice[i].embedding))) {
            json_decref(data);
            data = NULL;
        }
    return json_pack("{s:s, s:o, s:O, s:o}", "object", "list", "data", data, "model", s->model, "usage",
                     serve_usage(j));
}

json_t *serve_whole(const struct serve *s, const struct serve_job *j)
{
    json_t *choices, *o;

    if (j->method == SERVE_EMBEDDING)
        return whole_embedding(s, j);
    choices = json_array();
    for (int i = 0; i < j->n_choices && choices != NULL; i++) {
        const struct serve_choice *c = &j->choice[i];

        if (json_array_append_new(choices, j->method == SERVE_CHAT ? choice_of_chat(j, c) : choice_of_text(s, j, c))) {
            json_decref(choices);
            choices = NULL;
        }
    }
    o = reply_head(s, j, j->method == SERVE_CHAT ? "chat.completion" : "text_completion");
    if (choices != NULL && o != NULL && json_object_set(o, "choices", choices) == 0 &&
        json_object_set_new(o, "usage", serve_usage(j)) == 0 && serve_add_beside(o, j, NULL) &&
        (!j->w.timings || serve_set_timings(o, &j->choice[0]))) {
        json_decref(choices);
        return o;
    }
    json_decref(choices);
    json_decref(o);
    return NULL;
}

/* Members beside the text of a part of a stream: lists of what tokens have. */
static bool set_beside(json_t *choice, const struct serve_job *j, const json_t *beside)
{
    json_t *logprobs = json_object_get(beside, "logprobs"), *numbers = json_object_get(beside, "uncertainty");

    return (logprobs == NULL || json_object_set_new(choice, "logprobs", logprobs_of(j, logprobs)) == 0) &&
           (numbers == NULL || json_object_set(choice, "uncertainty", numbers) == 0);
}

/* delta: of a chat, or the text of a completion; taken, as beside is (NULL: nothing). */
json_t *serve_chunk(const struct serve *s, const struct serve_job *j, const struct serve_choice *c, json_t *delta,
                    json_t *beside, const char *finish)
{
    const bool chat = j->method == SERVE_CHAT;
    json_t *o = reply_head(s, j, chat ? "chat.completion.chunk" : "text_completion"), *choice = NULL;
    json_t *reason = finish != NULL ? json_string(finish) : json_null();

    if (chat)
        choice = json_pack("{s:i, s:o, s:o}", "index", c->index, "delta", delta, "finish_reason", reason);
    else
        choice = json_pack("{s:i, s:o, s:o}", "index", c->index, "text", delta, "finish_reason", reason);
    const bool ok = o != NULL && choice != NULL && set_beside(choice, j, beside) &&
                    (!j->w.timings || serve_set_timings(o, c)) &&
                    json_object_set_new(o, "choices", json_pack("[O]", choice)) == 0 &&
                    (finish == NULL || serve_add_beside(o, j, c));

    json_decref(beside);
    json_decref(choice);
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

json_t *serve_usage_chunk(const struct serve *s, const struct serve_job *j)
{
    json_t *o = reply_head(s, j, j->method == SERVE_CHAT ? "chat.completion.chunk" : "text_completion");

    if (o != NULL && json_object_set_new(o, "choices", json_array()) == 0 &&
        json_object_set_new(o, "usage", serve_usage(j)) == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* What Anthropic's interface calls an error, and what OpenAI's does. */
static const char *error_type(bool anthropic, int status)
{
    if (status == 401)
        return "authentication_error";
    if (status == 429)
        return "rate_limit_error";
    if (!anthropic)
        return status >= 500 ? "server_error" : "invalid_request_error";
    return status == 403   ? "permission_error"
           : status == 404 ? "not_found_error"
           : status == 413 ? "request_too_large"
           : status == 503 ? "overloaded_error"
           : status >= 500 ? "api_error"
                           : "invalid_request_error";
}

json_t *serve_error(const struct serve_row *row, int status, const char *pointer, const char *message)
{
    const bool anthropic = row != NULL && row->anthropic, placed = pointer != NULL && pointer[0] != '\0';
    const char *code = status == 401 ? "invalid_api_key" : status == 429 ? "rate_limit_exceeded" : NULL;
    json_t *param = placed ? json_bytes(str_of(pointer)) : anthropic ? NULL : json_null();
    const char *type = error_type(anthropic, status);

    if (anthropic)
        return json_pack("{s:s, s:{s:s, s:o, s:o*}}", "type", "error", "error", "type", type, "message",
                         json_bytes(str_of(message)), "param", param);
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message", json_bytes(str_of(message)), "type", type,
                     "param", param, "code", code);
}

json_t *serve_fault_body(const struct serve_row *row, const struct serve_fault *f)
{
    json_t *body = serve_error(row, f->status, f->pointer, f->message), *error = json_object_get(body, "error");

    if (body == NULL || f->code == NULL)
        return body;
    return json_if((row->anthropic ? json_object_set_new(error, "details", json_pack("{s:s}", "error_code", f->code))
                                   : json_object_set_new(error, "code", json_string(f->code))) == 0,
                   body);
}
