/* SPDX-License-Identifier: Apache-2.0 */
/* request.c - bodies of OpenAI's interface: each member is known, checked and noted, or refused
 * with its JSON pointer.     room: serve */
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

bool serve_fault(struct serve_fault *f, int status, const char *pointer, const char *fmt, ...)
{
    va_list ap;

    f->status = status;
    (void)snprintf(f->pointer, sizeof f->pointer, "%s", pointer);
    va_start(ap, fmt);
    (void)vsnprintf(f->message, sizeof f->message, fmt, ap);
    va_end(ap);
    return false;
}

bool serve_nomem(struct serve_fault *f)
{
    return serve_fault(f, 503, "", "out of memory");
}

bool serve_refuse_at(struct serve_fault *f, const char *pointer, const char *what)
{
    return serve_fault(f, 400, pointer, "%s: %s", pointer + 1, what);
}

bool serve_refuse_here(const struct serve_reading *r, const char *what)
{
    return serve_refuse_at(r->f, r->at, what);
}

bool serve_wrong_at(const struct serve_reading *r, const char *key, const char *what)
{
    (void)serve_point_to(r->at, strlen(r->at), key);
    return serve_refuse_here(r, what);
}

bool serve_wrong_item(const struct serve_reading *r, size_t i, const char *key, const char *what)
{
    char number[24];

    (void)snprintf(number, sizeof number, "%zu", i);
    if (key == NULL)
        return serve_wrong_at(r, number, what);
    (void)serve_point_to(r->at, strlen(r->at), number);
    return serve_wrong_at(r, key, what);
}

/* ---- parsing ---- */

/* Members with texts that the model reads. All else is compared and copied as C strings are. */
static bool is_read(const char *name)
{
    static const char *const names[] = { "content", "reasoning_content", "refusal", "text",    "prompt",   "input",
                                         "output",  "instructions",      "system",  "context", "thinking", "data",
                                         "query",   "documents" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* A member with a string that must not contain \u0000 and does, in v: the member `name` or its item */
static const char *misplaced_nul(const json_t *v, const char *name)
{
    const char *key, *found = NULL;
    json_t *inner;
    size_t i;

    if (json_is_string(v) && !is_read(name) && memchr(json_string_value(v), '\0', json_string_length(v)) != NULL)
        return name;
    json_array_foreach (v, i, inner)
        if (found == NULL)
            found = misplaced_nul(inner, name);
    json_object_foreach ((json_t *)(uintptr_t)v, key, inner)
        if (found == NULL)
            found = misplaced_nul(inner, key);
    return found;
}

enum err_code serve_parse(json_t **out, struct str text, const char *what, struct err *e)
{
    const char *name;

    *out = NULL;
    if (json_parse_request(out, text, what, e))
        return e->code;
    name = misplaced_nul(*out, "");
    return name != NULL ? err_set(e, ERR_FORMAT, "%s: \\u0000 is not allowed in \"%s\"", what, name) : ERR_OK;
}

const char *serve_place_in_body(const struct err *why)
{
    const char *at = why->where[0] == '/' ? why->where : "";

    return strncmp(at, "/body/", 6) == 0 ? at + 5 : at;
}

/* ---- values ---- */

bool serve_whole_number(const json_t *v, int64_t *out)
{
    const double x = json_real_value(v);

    if (!json_is_integer(v) && !(json_is_real(v) && x == floor(x) && fabs(x) < 0x1p53))
        return false;
    *out = json_is_integer(v) ? json_integer_value(v) : (int64_t)x;
    return true;
}

bool serve_read_number(const struct serve_reading *r, const json_t *v, double least, double most, double *out)
{
    const double x = json_number_value(v);

    if (!json_is_number(v) || !(x >= least && x <= most))
        return serve_fault(r->f, 400, r->at,
                           most >= INT32_MAX ? "%s: not a number of %g or more" : "%s: not a number from %g to %g",
                           r->at + 1, least, most);
    *out = x;
    return true;
}

bool serve_read_integer(const struct serve_reading *r, const json_t *v, int64_t least, int64_t most, int64_t *out)
{
    int64_t n;

    if (!serve_whole_number(v, &n) || n < least || n > most)
        return serve_fault(r->f, 400, r->at, "%s: not a whole number from %lld to %lld", r->at + 1, (long long)least,
                           (long long)most);
    *out = n;
    return true;
}

static bool flag(const struct serve_reading *r, const json_t *v, bool *out)
{
    if (!json_is_boolean(v))
        return serve_refuse_here(r, "not true or false");
    *out = json_is_true(v);
    return true;
}

/* ---- members ---- */

typedef bool read_fn(struct serve_reading *r, const json_t *v);

static bool read_string(struct serve_reading *r, const json_t *v)
{
    return json_is_string(v) || serve_refuse_here(r, "not a string");
}

static bool read_messages(struct serve_reading *r, const json_t *v)
{
    size_t i;
    json_t *m;

    if (!json_is_array(v) || json_array_size(v) == 0)
        return serve_refuse_here(r, "not an array with messages");
    json_array_foreach (v, i, m) {
        const json_t *content = json_object_get(m, "content");

        if ((content == NULL || json_is_null(content)) &&
            strcmp(json_string_value(json_object_get(m, "role")), "assistant") != 0)
            return serve_wrong_item(r, i, "content", "missing");
        if (json_is_string(json_object_get(m, "reasoning")) && json_object_get(m, "reasoning_content") == NULL &&
            json_object_set(m, "reasoning_content", json_object_get(m, "reasoning"))) /* as other servers call it */
            return serve_nomem(r->f);
    }
    r->w->ask.messages = (json_t *)(uintptr_t)v;
    return true;
}

static bool read_prompt(struct serve_reading *r, const json_t *v)
{
    r->w->prompt = (json_t *)(uintptr_t)v;
    return json_is_string(v) || (json_is_array(v) && json_array_size(v) > 0) ||
           serve_refuse_here(r, "not a text, tokens, or an array of them");
}

static bool read_input(struct serve_reading *r, const json_t *v)
{
    r->w->input = (json_t *)(uintptr_t)v;
    return read_prompt(r, v);
}

static bool read_parallel(struct serve_reading *r, const json_t *v)
{
    bool many = true;

    if (!flag(r, v, &many))
        return false;
    r->w->ask.one_call = !many;
    return true;
}

static bool read_stream_options(struct serve_reading *r, const json_t *v)
{
    if (!json_is_object(v))
        return serve_refuse_here(r, "not an object");
    r->w->usage = json_is_true(json_object_get(v, "include_usage"));
    return true;
}

static bool read_n(struct serve_reading *r, const json_t *v)
{
    int64_t n = 0;

    if (!serve_read_integer(r, v, 1, CHOICES_MAX, &n))
        return false;
    r->w->n = (int)n;
    return true;
}

/* A text, or an array of texts: at most STOPS_MAX. */
static bool texts(struct serve_reading *r, const json_t *v, struct str out[STOPS_MAX], size_t *n_out)
{
    const size_t n = json_is_array(v) ? json_array_size(v) : 1;

    if (n > STOPS_MAX)
        return serve_fault(r->f, 400, r->at, "%s: more than %d texts", r->at + 1, STOPS_MAX);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;

        if (!json_is_string(s) || json_string_length(s) == 0)
            return json_is_array(v) ? serve_wrong_item(r, i, NULL, "not a text, or empty")
                                    : serve_refuse_here(r, "not a text, or an array of texts, or empty");
        out[(*n_out)++] = json_text(s);
    }
    return true;
}

static bool read_stop(struct serve_reading *r, const json_t *v)
{
    r->w->ask.stops = r->w->stops;
    return texts(r, v, r->w->stops, &r->w->ask.n_stops);
}

static bool read_breakers(struct serve_reading *r, const json_t *v)
{
    r->w->ask.breakers = r->w->breakers;
    r->w->ask.sample.dry_breakers = NULL; /* not the server's */
    r->w->ask.sample.n_dry_breakers = 0;
    return texts(r, v, r->w->breakers, &r->w->ask.n_breakers);
}

static bool read_stop_tokens(struct serve_reading *r, const json_t *v)
{
    size_t i;
    json_t *id;

    if (!json_is_array(v))
        return serve_refuse_here(r, "not an array of token ids");
    if (json_array_size(v) > STOPS_MAX)
        return serve_fault(r->f, 400, r->at, "%s: more than %d tokens", r->at + 1, STOPS_MAX);
    json_array_foreach (v, i, id) {
        int64_t token;

        if (!serve_whole_number(id, &token) || token < 0 || token >= r->s->n_vocab)
            return serve_wrong_item(r, i, NULL, "no token id of this model");
        r->w->stop_tokens[r->w->ask.n_stop_tokens++] = (int32_t)token;
    }
    r->w->ask.stop_token = r->w->stop_tokens;
    return true;
}

static bool read_seed(struct serve_reading *r, const json_t *v)
{
    int64_t seed;

    if (!serve_whole_number(v, &seed))
        return serve_refuse_here(r, "not a whole number");
    r->w->ask.sample.seed = (uint64_t)seed;
    r->w->seeded = true;
    return true;
}

/* Completions: of how many tokens; chats: whether. */
static bool read_logprobs(struct serve_reading *r, const json_t *v)
{
    bool on = false;
    int64_t n = 0;

    if (r->text ? !serve_read_integer(r, v, 0, TOP_MAX, &n) : !flag(r, v, &on))
        return false;
    if (r->text || (on && r->w->top < 0))
        r->w->top = (int)n;
    return true;
}

static bool read_top_logprobs(struct serve_reading *r, const json_t *v)
{
    int64_t n = 0;

    if (!serve_read_integer(r, v, 0, TOP_MAX, &n))
        return false;
    r->w->top = (int)n;
    return true;
}

static bool add_bias(struct serve_reading *r, const char *at, int64_t id, const json_t *v)
{
    if (id < 0 || id >= r->s->n_vocab)
        return serve_wrong_at(r, at, "no token id of this model");
    if (!json_is_false(v) && (!json_is_number(v) || fabs(json_number_value(v)) > 100))
        return serve_wrong_at(r, at, "not a number from -100 to 100, or false");
    const float bias = json_is_false(v) ? -100 : (float)json_number_value(v);

    r->w->bias[r->w->ask.sample.n_bias++] = (struct sample_bias){ (int32_t)id, bias <= -100 ? -INFINITY : bias };
    return true;
}

/* An object of ids and numbers, or llama.cpp's array of both: [[15, -1], [7, false]]. */
static bool read_bias(struct serve_reading *r, const json_t *v)
{
    const char *key;
    json_t *value;
    size_t i;

    if (!json_is_object(v) && !json_is_array(v))
        return serve_refuse_here(r, "not an object of token ids and numbers");
    free(r->w->bias);
    r->w->bias = calloc(json_object_size(v) + json_array_size(v) + 1, sizeof *r->w->bias);
    if (r->w->bias == NULL)
        return serve_nomem(r->f);
    r->w->ask.sample.bias = r->w->bias;
    r->w->ask.sample.n_bias = 0;
    json_object_foreach ((json_t *)(uintptr_t)v, key, value) {
        char *end;
        const long id = strtol(key, &end, 10);

        if (!add_bias(r, key, *key < '0' || *key > '9' || *end != '\0' ? -1 : id, value))
            return false;
    }
    json_array_foreach ((json_t *)(uintptr_t)v, i, value) {
        char at[24];
        int64_t id;

        (void)snprintf(at, sizeof at, "%zu", i);
        if (json_array_size(value) != 2 || !serve_whole_number(json_array_get(value, 0), &id))
            return serve_wrong_at(r, at, "not an array of a token id and a number");
        if (!add_bias(r, at, id, json_array_get(value, 1)))
            return false;
    }
    return true;
}

/* A number of the sampler. */
static bool read_option(struct serve_reading *r, const struct sample_option *row, const json_t *v)
{
    int64_t whole = 0;
    double x = 0;

    if (row->whole ? !serve_read_integer(r, v, (int64_t)row->least, (int64_t)row->most, &whole)
                   : !serve_read_number(r, v, row->least, row->most, &x))
        return false;
    sample_option_set(&r->w->ask.sample, row, row->whole ? (double)whole : x);
    return true;
}

static bool read_min_tokens(struct serve_reading *r, const json_t *v)
{
    return serve_read_integer(r, v, 0, INT64_MAX, &r->w->ask.tokens_min);
}

static bool read_add_answer(struct serve_reading *r, const json_t *v)
{
    bool add = true;

    if (!flag(r, v, &add))
        return false;
    r->w->ask.add_no_answer = !add;
    return true;
}

/* -1, as clients of llama.cpp and LM Studio send it: as if it were not given. */
static bool read_predict(struct serve_reading *r, const json_t *v)
{
    return serve_read_integer(r, v, -1, INT64_MAX, &r->w->ask.tokens_max);
}

static bool read_priority(struct serve_reading *r, const json_t *v)
{
    int64_t n = 0;

    if (!serve_read_integer(r, v, -1000, 1000, &n))
        return false;
    r->w->ask.priority = (int)n;
    return true;
}

/* Takes the value. Two members that say otherwise of one variable contradict each other. */
bool serve_set_kwarg(struct serve_reading *r, const char *key, json_t *value)
{
    const json_t *old = json_object_get(r->w->kwargs, key);

    if (old != NULL && value != NULL && !json_equal(old, value)) {
        json_decref(value);
        return serve_fault(r->f, 400, r->at, "%s: another member says otherwise of %s", r->at + 1, key);
    }
    if (r->w->kwargs == NULL)
        r->w->kwargs = json_object();
    return (r->w->kwargs != NULL && value != NULL && json_object_set_new(r->w->kwargs, key, value) == 0) ||
           serve_nomem(r->f);
}

/* Which adapters there are serve_start() knows. */
static bool read_lora(struct serve_reading *r, const json_t *v)
{
    size_t i;
    json_t *one;

    if (!json_is_array(v))
        return serve_refuse_here(r, "not an array of {\"id\": 0, \"scale\": 1.0}");
    json_array_foreach (v, i, one)
        if (fabs(json_number_value(json_object_get(one, "scale"))) > 1e6)
            return serve_wrong_item(r, i, "scale", "not a number from -1e6 to 1e6");
    r->w->lora = (json_t *)(uintptr_t)v;
    return true;
}

/* true: as the server says; false: no; or a weight. serve_start() knows of tables. */
static bool read_engram(struct serve_reading *r, const json_t *v)
{
    if (!json_is_boolean(v) && !json_is_number(v))
        return serve_refuse_here(r, "not true, false, or a number from 0 to 1");
    double weight = 0;

    if (json_is_boolean(v))
        r->w->engram = json_is_true(v) ? -1 : 0;
    else if (!serve_read_number(r, v, 0, 1, &weight))
        return false;
    else
        r->w->engram = (float)weight;
    r->w->asks_engram = r->w->engram != 0;
    return true;
}

/* Texts of an index. true: as the server says; false: none; or their number. */
static bool count_texts(struct serve_reading *r, const json_t *v, int *n_texts, bool *asks)
{
    int64_t n = json_is_true(v) ? -1 : 0;

    if (!json_is_boolean(v) && !serve_read_integer(r, v, 0, INT_MAX, &n))
        return false;
    *n_texts = (int)n;
    *asks = n != 0;
    return true;
}

static bool read_examples(struct serve_reading *r, const json_t *v)
{
    return count_texts(r, v, &r->w->ask.n_notes, &r->w->asks_examples);
}

static bool read_recite(struct serve_reading *r, const json_t *v)
{
    return count_texts(r, v, &r->w->ask.n_recite, &r->w->asks_recite);
}

static bool read_context_table(struct serve_reading *r, const json_t *v)
{
    if (!json_is_string(v) || json_string_length(v) == 0)
        return serve_refuse_here(r, "not a text");
    r->w->context_table = json_text(v);
    return true;
}

static bool read_context(struct serve_reading *r, const json_t *v)
{
    if (!json_is_boolean(v) && json_object_get(r->body, "context_table") != NULL)
        return serve_refuse_here(r, "not together with context_table");
    r->w->asks_context = json_is_true(v);
    r->w->no_context = !json_is_true(v);
    r->w->has_context = !json_is_boolean(v);
    return json_is_boolean(v) || read_context_table(r, v);
}

/* A shorter vector is another model's: only one that was trained for it may be cut. */
static bool read_dimensions(struct serve_reading *r, const json_t *v)
{
    int64_t n;

    return (serve_whole_number(v, &n) && n == r->s->o.n_embd) ||
           serve_fault(r->f, 400, r->at, "%s: the vectors of this model have %d numbers, and cannot be cut", r->at + 1,
                       (int)r->s->o.n_embd);
}

static bool read_encoding(struct serve_reading *r, const json_t *v)
{
    const char *s = json_string_value(v);

    if (s == NULL || (strcmp(s, "float") != 0 && strcmp(s, "base64") != 0))
        return serve_refuse_here(r, "not float or base64");
    r->w->base64 = strcmp(s, "base64") == 0;
    return true;
}

/* Whether the log keeps the answer. Without a log nothing does. */
static bool read_store(struct serve_reading *r, const json_t *v)
{
    bool store = true;

    if (r->s->o.journal == NULL)
        return serve_idle_member(SERVE_CHAT, "store", v, r->f) == SERVE_IDLE;
    if (!flag(r, v, &store))
        return false;
    r->w->unstored = !store;
    return true;
}

static bool read_normalize(struct serve_reading *r, const json_t *v)
{
    int64_t n;

    if (!serve_whole_number(v, &n) || (n != -1 && n != 2))
        return serve_refuse_here(r, "not 2 (length 1) or -1 (as they are)");
    r->w->raw = n == -1;
    return true;
}

enum {
    CHAT = 1 << SERVE_CHAT | 1 << SERVE_RESPONSE | 1 << SERVE_MESSAGE,
    TEXT = 1 << SERVE_COMPLETION,
    EMBED = 1 << SERVE_EMBEDDING,
    BOTH = CHAT | TEXT,
    ALL = BOTH | EMBED
};
static const struct {
    const char *name;
    unsigned methods;
    read_fn *read;
} members[] = {
    /* beside those of the sampler (sample/options.h), which are of BOTH */
    { "model", ALL, read_string },
    { "messages", CHAT, read_messages },
    { "prompt", TEXT, read_prompt },
    { "input", EMBED, read_input },
    { "encoding_format", EMBED, read_encoding },
    { "embd_normalize", EMBED, read_normalize },
    { "dimensions", EMBED, read_dimensions },
    { "tools", CHAT, serve_read_tools },
    { "tool_choice", CHAT, serve_read_tool_choice },
    { "parallel_tool_calls", CHAT, read_parallel },
    { "response_format", BOTH, serve_read_format },
    { "json_schema", BOTH, serve_read_json },
    { "structured_outputs", BOTH, serve_read_structured },
    { "guided_json", BOTH, serve_read_json },
    { "guided_regex", BOTH, serve_read_regex },
    { "guided_choice", BOTH, serve_read_choice },
    { "guided_grammar", BOTH, serve_read_grammar },
    { "stream_options", BOTH, read_stream_options },
    { "n", BOTH, read_n },
    { "grammar", BOTH, serve_read_grammar },
    { "regex", BOTH, serve_read_regex },
    { "stop", BOTH, read_stop },
    { "stop_token_ids", BOTH, read_stop_tokens },
    { "min_tokens", BOTH, read_min_tokens },
    { "seed", BOTH, read_seed },
    { "logprobs", BOTH, read_logprobs },
    { "top_logprobs", CHAT, read_top_logprobs },
    { "logit_bias", BOTH, read_bias },
    { "dry_sequence_breakers", BOTH, read_breakers },
    { "max_tokens", BOTH, read_predict },
    { "max_completion_tokens", CHAT, read_predict },
    { "n_predict", BOTH, read_predict },
    { "enable_thinking", CHAT, serve_read_think },
    { "add_generation_prompt", CHAT, read_add_answer },
    { "chat_template_kwargs", CHAT, serve_read_kwargs },
    { "reasoning_effort", CHAT, serve_read_effort },
    { "reasoning_budget", CHAT, serve_read_budget },
    { "thinking_budget_tokens", CHAT, serve_read_budget },
    { "reasoning_grace", CHAT, serve_read_grace },
    { "reasoning_min", CHAT, serve_read_least },
    { "reasoning_budget_message", CHAT, serve_read_budget_message },
    { "think_stop", CHAT, serve_read_think_stop },
    { "think_probe", CHAT, serve_read_think_probe },
    { "think_suppress", CHAT, serve_read_think_suppress },
    { "best_of", CHAT, serve_read_best_of },
    { "vote", CHAT, serve_read_vote },
    { "verifier", CHAT, serve_read_verifier },
    { "priority", BOTH, read_priority },
    { "lora", ALL, read_lora },
    { "engram", BOTH, read_engram },
    { "context", BOTH, read_context },
    { "context_table", BOTH, read_context_table },
    { "examples", CHAT, read_examples },
    { "recite", CHAT, read_recite },
    { "retrieve", CHAT, serve_read_retrieve },
    { "retrieve_below", CHAT, serve_read_retrieve_below },
    /* what others have left is not used (owner_of()) */
    { "prompt_cache_key", BOTH, read_string },
    { "cache_salt", BOTH, read_string },
    /* whether the log keeps the answer */
    { "store", BOTH, read_store },
};

/* Members that are true or false, and where they go. */
static const struct {
    const char *name;
    unsigned methods;
    size_t at; /* in struct serve_question */
} flags[] = {
    { "stream", BOTH, offsetof(struct serve_question, stream) },
    { "timings_per_token", BOTH, offsetof(struct serve_question, timings) },
    { "return_progress", BOTH, offsetof(struct serve_question, progress) },
    { "continue_final_message", CHAT, offsetof(struct serve_question, ask.continues_last) },
    { "ignore_eos", BOTH, offsetof(struct serve_question, ask.ignore_eos) },
    { "uncertainty", BOTH, offsetof(struct serve_question, ask.uncertainty) },
    { "think_loops", BOTH, offsetof(struct serve_question, ask.reason.loops) },
    { "echo", TEXT, offsetof(struct serve_question, echo) },
};

/* Members without meaning without another one, neither false nor null, or with one beside them. */
static const struct {
    const char *name, *other, *what;
    unsigned methods;
    bool beside;
} pairs[] = {
    { "top_logprobs", "logprobs", "needs logprobs: true", CHAT, false },
    { "stream_options", "stream", "needs stream: true", BOTH, false },
    { "return_progress", "stream", "needs stream: true", BOTH, false },
    { "tool_choice", "tools", "there are no tools", 1 << SERVE_CHAT, false },
    { "parallel_tool_calls", "tools", "there are no tools", 1 << SERVE_CHAT, false },
    { "max_tokens", "max_completion_tokens", "says the same as max_completion_tokens: give one of them", CHAT, true },
    { "n_predict", "max_tokens", "says the same as max_tokens: give one of them", BOTH, true },
    { "n_predict", "max_completion_tokens", "says the same as max_completion_tokens: give one of them", CHAT, true },
    { "thinking_budget_tokens", "reasoning_budget", "says the same as reasoning_budget: give one of them", CHAT, true },
    { "add_generation_prompt", "continue_final_message", "not together with continue_final_message", CHAT, true },
    { "echo", "stream", "not together with stream", TEXT, true },
    { "vote", "best_of", "needs best_of", CHAT, false },
    { "verifier", "best_of", "needs best_of", CHAT, false },
};

static bool is_on(const json_t *body, const char *name)
{
    const json_t *v = json_object_get(body, name);

    return v != NULL && !json_is_null(v) && !json_is_false(v);
}

static bool check_pairs(const json_t *body, enum serve_method method, struct serve_fault *f)
{
    char pointer[POINTER_BYTES];

    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const json_t *v = json_object_get(body, pairs[i].name);
        const bool there = pairs[i].beside ? is_on(body, pairs[i].name) : v != NULL && !json_is_null(v);

        if ((pairs[i].methods >> method & 1) && there && is_on(body, pairs[i].other) == pairs[i].beside) {
            (void)serve_point_to(pointer, 0, pairs[i].name);
            return serve_fault(f, 400, pointer, "%s: %s", pairs[i].name, pairs[i].what);
        }
    }
    return true;
}

/* The option of the sampler that a member names. *first: the first of its names. */
static const struct sample_option *find_option(const char *key, struct str *first)
{
    const struct sample_option *row;
    const size_t n = strlen(key);

    for (int i = 0; (row = sample_option(i)) != NULL; i++)
        for (const char *name = row->names; *name != '\0'; name += strspn(name, " ")) {
            const size_t len = strcspn(name, " ");

            *first = (struct str){ row->names, strcspn(row->names, " ") };
            if (len == n && memcmp(name, key, n) == 0)
                return row;
            name += len;
        }
    return NULL;
}

size_t serve_point_to(char out[POINTER_BYTES], size_t n, const char *key)
{
    return json_point_to(out, POINTER_BYTES, n, key);
}

static bool read_member(struct serve_reading *r, const json_t *body, enum serve_method method, const char *key,
                        const json_t *value, bool lenient)
{
    struct str first;
    const struct sample_option *option = BOTH >> method & 1 ? find_option(key, &first) : NULL;

    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (strcmp(flags[i].name, key) == 0 && (flags[i].methods >> method & 1))
            return json_is_null(value) || flag(r, value, (bool *)((char *)r->w + flags[i].at));
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++)
        if (strcmp(members[i].name, key) == 0 && (members[i].methods >> method & 1))
            return json_is_null(value) || members[i].read(r, value);
    if (option == NULL) {
        const enum serve_idle idle = serve_idle_member(method, key, value, r->f);

        return idle == SERVE_IDLE ||
               (idle == SERVE_UNKNOWN &&
                (lenient || serve_refuse_here(r, "not a member of this request (--lenient ignores such)")));
    }
    if (!json_is_null(value) && !str_is(first, key) && json_is_number(json_object_getn(body, first.p, first.n)))
        return serve_fault(r->f, 400, r->at, "%s: says the same as %.*s: give one of them", r->at + 1, STR_ARG(first));
    return json_is_null(value) || read_option(r, option, value);
}

/* What has no effect without a member that neither the request nor the server has is a mistake. */
static bool check_options(const struct serve_question *w, const json_t *body, struct serve_fault *f)
{
    char pointer[POINTER_BYTES];
    const struct sample_option *row;
    const char *key;
    json_t *value;
    struct str first;

    json_object_foreach ((json_t *)(uintptr_t)body, key, value) {
        const bool breakers = strcmp(key, "dry_sequence_breakers") == 0;
        const char *needs = "dry-multiplier";
        bool said = false;

        row = find_option(breakers ? "dry_base" : key, &first);
        if (row == NULL || json_is_null(value) || sample_option_acts(&w->ask.sample, row))
            continue;
        needs = row->needs;
        for (int i = 0; (row = sample_option(i)) != NULL; i++)
            for (const char *need = needs; *need != '\0'; need += strcspn(need, "|"), need += *need == '|')
                if (str_is((struct str){ need, strcspn(need, "|") }, row->option))
                    said = said || json_object_getn(body, row->names, strcspn(row->names, " ")) != NULL;
        (void)serve_point_to(pointer, 0, key);
        if (!said)
            return serve_fault(f, 400, pointer, "%s: has no effect without %s", pointer + 1,
                               needs[0] == 'd' ? "dry_multiplier" : "a penalty");
    }
    return true;
}

bool serve_read_body(struct serve_question *w, const struct serve *s, enum serve_method method, const json_t *body,
                     struct serve_fault *f)
{
    char pointer[POINTER_BYTES];
    struct serve_reading r = { w, s, body, pointer, method == SERVE_COMPLETION, f };
    const char *key;
    json_t *value;

    *w = (struct serve_question){ .ask = ask_defaults(), .n = 1, .top = -1, .engram = -1 };
    w->ask.sample.temp = 1; /* as the interface says */
    if (s->o.reason != NULL)
        w->ask.reason = *s->o.reason;
    w->ask.effort_is_hint = w->ask.rule_is_hint = true;
    w->ask.retrieves = s->o.retrieves;
    w->ask.retrieve_below = s->o.retrieve_below;
    if (s->o.sample != NULL)
        w->ask.sample = *s->o.sample;
    if (serve_row(method)->dialect == NULL && !serve_check_members(body, method, s->o.lenient, f))
        return false; /* what a body was made of was checked before */
    w->functions = method == SERVE_CHAT && json_is_array(json_object_get(body, "functions"));
    if (method == SERVE_CHAT && !serve_take_functions((json_t *)(uintptr_t)body, f))
        return false;
    json_object_foreach ((json_t *)(uintptr_t)body, key, value) {
        (void)serve_point_to(pointer, 0, key);
        if (!read_member(&r, body, method, key, value, s->o.lenient))
            return false;
    }
    if (!check_pairs(body, method, f) || !check_options(w, body, f))
        return false;
    if (json_object_get(body, "think_probe") == NULL)
        reason_drop_idle(&w->ask.reason);
    if ((CHAT >> method & 1) && w->ask.messages == NULL)
        return serve_fault(f, 400, "/messages", "messages: missing");
    if (method == SERVE_COMPLETION && w->prompt == NULL)
        return serve_fault(f, 400, "/prompt", "prompt: missing");
    if (method == SERVE_EMBEDDING && w->input == NULL)
        return serve_fault(f, 400, "/input", "input: missing");
    if (w->ask.tools == NULL && ask_call_is_due(w->ask.tool_choice))
        return serve_fault(f, 400, "/tool_choice", "tool_choice: there are no tools");
    if (w->best_of > 0 && w->n > 1)
        return serve_fault(f, 400, "/n", "n: not together with best_of");
    if (w->asks_retrieve && (w->best_of > 0 || w->ask.calibration != NULL))
        return serve_fault(f, 400, "/retrieve", "retrieve: auto does not go together with %s",
                           w->best_of > 0 ? "best_of" : "enable_thinking: auto");
    w->ask.retrieves = w->ask.retrieves && w->best_of == 0 && w->ask.calibration == NULL;
    if (json_object_get(body, "retrieve_below") != NULL && !w->ask.retrieves)
        return serve_fault(f, 400, "/retrieve_below", "retrieve_below: needs retrieve: auto");
    if (w->best_of > 0)
        w->n = w->best_of;
    if (w->best_of > 1 && w->ask.sample.temp <= 0)
        return serve_fault(f, 400, "/best_of", "best_of: has no effect at temperature 0");
    if (w->vote != REASON_MAJORITY && w->verifier == SERVE_NO_VERIFIER)
        return serve_fault(f, 400, "/vote", "vote: %s needs a verifier, which gives the scores",
                           reason_vote_name(w->vote));
    if (method == SERVE_EMBEDDING)
        w->ask.embeds = true;
    else if (method != SERVE_COMPLETION)
        w->ask.n_borders = BORDERS_MAX;
    if (w->ask.tokens_max < 0)
        w->ask.tokens_max = s->o.predict_max;
    w->ask.kwargs = w->kwargs;
    w->ask.sample.n_top = w->top > 0 ? w->top : 0;
    return true;
}

void serve_question_free(struct serve_question *w)
{
    json_decref(w->kwargs);
    json_decref(w->schema);
    json_decref(w->tools);
    free(w->choices.p);
    free(w->bias);
    *w = (struct serve_question){ .n = 0 };
}
