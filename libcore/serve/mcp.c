/* SPDX-License-Identifier: Apache-2.0 */
/* mcp.c - the Model Context Protocol (mcp.h).                                room: serve */
#include "serve/mcp.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "serve/internal.h"

#define META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define META_SERVER       "io.modelcontextprotocol/serverInfo"
#define MODERN            "2026-07-28"
#define LEGACY            "2025-11-25"

enum {
    PARSE_ERROR = -32700,
    INVALID_REQUEST = -32600,
    NO_METHOD = -32601,
    INVALID_PARAMS = -32602,
    INTERNAL = -32603,
    UNSUPPORTED_VERSION = -32022,
    LIST_MS = 3600000,
    PROGRESS_MS = 500
};

/* A tool that runs. */
struct call {
    struct call *next;
    json_t *id, *progress; /* progress: a token; NULL: none is wanted */
    int64_t serve_id;
    bool modern;
    enum { GENERATE, SCORE } tool;
    int64_t first; /* score: the first token of the text */
    struct serve_buf text, reasoning;
    json_t *finish, *usage, *reply_id, *notes, *thinking, *numbers, *search;
    int64_t n_parts;
    double told_ms; /* when progress was last told */
};

struct serve_mcp {
    struct serve *serve;
    serve_mcp_say *say;
    void *ctx;
    bool begun; /* by initialize */
    struct call *calls;
};

/* A message that asks. */
struct asking {
    json_t *id, *params, *meta;
    const char *method;
    bool modern;
};

enum err_code serve_mcp_open(struct serve_mcp **out, struct serve *serve, serve_mcp_say *say, void *ctx, struct err *e)
{
    struct serve_mcp *m = calloc(1, sizeof *m);

    if (m == NULL)
        return err_nomem(e);
    *m = (struct serve_mcp){ .serve = serve, .say = say, .ctx = ctx };
    *out = m;
    return ERR_OK;
}

static void forget_call(struct serve_mcp *m, struct call *c)
{
    struct call **link = &m->calls;

    while (*link != c)
        link = &(*link)->next;
    *link = c->next;
    json_decref(c->id);
    json_decref(c->progress);
    json_decref(c->finish);
    json_decref(c->usage);
    json_decref(c->reply_id);
    json_decref(c->notes);
    json_decref(c->thinking);
    json_decref(c->numbers);
    json_decref(c->search);
    free(c->text.p);
    free(c->reasoning.p);
    free(c);
}

void serve_mcp_close(struct serve_mcp *m)
{
    if (m == NULL)
        return;
    while (m->calls != NULL) {
        serve_cancel(m->serve, m->calls->serve_id);
        forget_call(m, m->calls);
    }
    free(m);
}

/* ---- messages ---- */

/* Without one of its members, for which there was no memory, a message is none. It is taken. */
static enum err_code say(struct serve_mcp *m, json_t *message, struct err *e)
{
    return m->say(m->ctx, json_if(!json_ran_out(), message), e);
}

static enum err_code say_error(struct serve_mcp *m, json_t *id, int code, const char *message, json_t *data,
                               struct err *e)
{
    json_t *error = json_pack("{s:i, s:o}", "code", code, "message", json_bytes(str_of(message)));

    if (data != NULL && (error == NULL || json_object_set_new(error, "data", data))) {
        json_decref(error);
        error = NULL;
    }
    return say(m, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "error", error), e);
}

static enum err_code say_result(struct serve_mcp *m, json_t *id, bool modern, json_t *result, struct err *e)
{
    if (modern && result != NULL &&
        (json_object_set_new(result, "resultType", json_string("complete")) ||
         json_object_set_new(
             result, "_meta",
             json_pack("{s:{s:s, s:s}}", META_SERVER, "name", "chimere", "version", CHIMERE_VERSION)))) {
        json_decref(result);
        result = NULL;
    }
    return say(m, json_pack("{s:s, s:O, s:o}", "jsonrpc", "2.0", "id", id, "result", result), e);
}

/* A mistake that the model on the other side can correct: a result, not an error of the protocol. */
static enum err_code say_failed(struct serve_mcp *m, json_t *id, bool modern, const char *message, struct err *e)
{
    return say_result(m, id, modern,
                      json_pack("{s:[{s:s, s:o}], s:b}", "content", "type", "text", "text", json_bytes(str_of(message)),
                                "isError", 1),
                      e);
}

enum err_code serve_mcp_lost(struct serve_mcp *m, const char *why, struct err *e)
{
    return say_error(m, json_null(), INVALID_REQUEST, why, NULL, e);
}

/* Memory that is out ends a request, not the server. */
static enum err_code lose_request(struct serve_mcp *m, json_t *id, struct err *e)
{
    (void)json_ran_out();
    return say_error(m, id, INTERNAL, "out of memory", NULL, e);
}

/* ---- tools ---- */

static const char generate_tool[] =
    "{\"name\":\"generate\",\"title\":\"Generate text\",\"description\":\"Asks a local language model. Give a prompt, "
    "or "
    "messages of a conversation. The answer is the text; reasoning is a field of its "
    "own.\",\"inputSchema\":{\"type\":\"object\","
    "\"properties\":{"
    "\"prompt\":{\"type\":\"string\",\"description\":\"What the user says; with raw, a text to go on from\"},"
    "\"messages\":{\"type\":\"array\",\"items\":{\"type\":\"object\"},\"description\":\"A conversation, as objects "
    "with role "
    "and content, instead of prompt and system\"},"
    "\"system\":{\"type\":\"string\",\"description\":\"How the model is to answer\"},"
    "\"raw\":{\"type\":\"boolean\",\"description\":\"Go on from the prompt as it stands, without the chat template\"},"
    "\"max_tokens\":{\"type\":\"integer\",\"minimum\":0},"
    "\"temperature\":{\"type\":\"number\",\"minimum\":0,\"description\":\"0: always the likeliest token; default 1\"},"
    "\"top_p\":{\"type\":\"number\",\"minimum\":0,\"maximum\":1},"
    "\"seed\":{\"type\":\"integer\",\"description\":\"The same seed gives the same answer\"},"
    "\"stop\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"description\":\"Texts that end the answer\"},"
    "\"schema\":{\"type\":\"object\",\"description\":\"A JSON Schema that the answer has to follow\"},"
    "\"reasoning_effort\":{\"type\":\"string\",\"enum\":[\"none\",\"minimal\",\"low\",\"medium\",\"high\",\"xhigh\"]},"
    "\"reasoning_budget\":{\"type\":\"integer\",\"minimum\":-1,\"description\":\"Tokens of reasoning, then it "
    "is closed; -1: no limit\"},"
    "\"best_of\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"Answer so often, and keep one by "
    "votes\"},"
    "\"vote\":{\"type\":\"string\",\"enum\":[\"majority\",\"weighted\",\"best\"]},"
    "\"verifier\":{\"type\":[\"string\",\"boolean\"],\"description\":\"Scores those answers: self, or true, "
    "the server's\"},"
    "\"think_stop\":{\"type\":[\"string\",\"boolean\"],\"description\":\"End the reasoning when the model is "
    "certain of its answer: eat, cgr, deer, same or abf, perhaps with a threshold (same:2); false: never\"},"
    "\"think_probe\":{\"type\":\"string\",\"description\":\"How that is looked at, such as every=16,tokens=6\"},"
    "\"think_suppress\":{\"type\":[\"number\",\"boolean\"],\"description\":\"Above this certainty words that begin "
    "a reflection become rare; false: never\"},"
    "\"uncertainty\":{\"type\":\"boolean\",\"description\":\"Also give the entropy, varentropy and margin of each "
    "token\"}},"
    "\"additionalProperties\":false},\"outputSchema\":{\"type\":\"object\",\"properties\":{"
    "\"id\":{\"type\":\"string\"},\"notes\":{\"type\":\"array\",\"description\":\"Texts of the server's indexes that "
    "were used\"},"
    "\"text\":{\"type\":\"string\"},\"reasoning\":{\"type\":\"string\"},\"finish_reason\":{\"type\":\"string\"},"
    "\"prompt_tokens\":{\"type\":\"integer\"},\"cached_tokens\":{\"type\":\"integer\"},"
    "\"completion_tokens\":{\"type\":\"integer\"},\"reasoning_tokens\":{\"type\":\"integer\"},"
    "\"thinking\":{\"type\":\"object\",\"description\":\"Why the reasoning ended\"},"
    "\"search\":{\"type\":\"object\",\"description\":\"The answers of best_of, and their votes\"},"
    "\"uncertainty\":{\"type\":\"array\",\"items\":{\"type\":\"object\"}}},"
    "\"required\":[\"text\",\"finish_reason\"]},"
    "\"annotations\":{\"readOnlyHint\":true,\"openWorldHint\":false}}";

static const char score_tool[] =
    "{\"name\":\"score\",\"title\":\"Score a text\",\"description\":\"Says how likely a text is to a local language "
    "model, "
    "token by token, as natural logarithms of probabilities.\",\"inputSchema\":{\"type\":\"object\",\"properties\":{"
    "\"text\":{\"type\":\"string\",\"description\":\"The text to judge\"},"
    "\"context\":{\"type\":\"string\",\"description\":\"What stands before it, and is not judged\"}},"
    "\"required\":[\"text\"],\"additionalProperties\":false},\"outputSchema\":{\"type\":\"object\",\"properties\":{"
    "\"logprob\":{\"type\":\"number\"},\"perplexity\":{\"type\":\"number\"},\"tokens\":{\"type\":\"array\",\"items\":"
    "{\"type\":\"string\"}},\"token_logprobs\":{\"type\":\"array\",\"items\":{\"type\":\"number\"}}},"
    "\"required\":[\"logprob\",\"perplexity\",\"tokens\",\"token_logprobs\"]},"
    "\"annotations\":{\"readOnlyHint\":true,\"idempotentHint\":true,\"openWorldHint\":false}}";

static json_t *tool_of(const char *text)
{
    json_t *tool = NULL;

    return json_parse_own(&tool, str_of(text), "a tool", NULL) == ERR_OK ? tool : NULL;
}

static json_t *list_tools(bool modern)
{
    json_t *list = json_pack("{s:[o, o]}", "tools", tool_of(generate_tool), tool_of(score_tool));

    if (list != NULL && modern &&
        (json_object_set_new(list, "ttlMs", json_integer(LIST_MS)) ||
         json_object_set_new(list, "cacheScope", json_string("public")))) {
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* Why the arguments of generate make no body; NULL: *body is it, unless memory is out. */
static const char *generate_body(const json_t *args, enum serve_method *method, json_t **body)
{
    enum { OF_CHATS = 8 }; /* the first ones */
    static const char *const same[] = {
        "reasoning_effort", "reasoning_budget", "think_stop", "think_probe", "think_suppress", "best_of", "vote",
        "verifier",         "uncertainty",      "max_tokens", "temperature", "top_p",          "seed",    "stop"
    };
    json_t *prompt = json_object_get(args, "prompt"), *messages = json_object_get(args, "messages"), *b = json_object();
    json_t *system = json_object_get(args, "system"), *raw = json_object_get(args, "raw"), *value;
    const char *key, *why = NULL;
    bool ok = b != NULL, chats = messages != NULL || system != NULL;

    for (int i = 0; i < OF_CHATS; i++)
        chats |= json_object_get(args, same[i]) != NULL;
    if (raw != NULL && !json_is_boolean(raw))
        why = "raw: not true or false";
    else if ((prompt != NULL) == (messages != NULL))
        why = "give either prompt or messages";
    else if (prompt != NULL && !json_is_string(prompt))
        why = "prompt: not a text";
    else if (system != NULL && !json_is_string(system))
        why = "system: not a text";
    else if (system != NULL && messages != NULL)
        why = "system: belongs into the messages here";
    else if (json_is_true(raw) && chats)
        why = "raw: goes with a prompt, and without system, votes and what is for reasoning";
    *method = json_is_true(raw) ? SERVE_COMPLETION : SERVE_CHAT;
    json_object_foreach ((json_t *)(uintptr_t)args, key, value) {
        bool known = strcmp(key, "prompt") == 0 || strcmp(key, "messages") == 0 || strcmp(key, "system") == 0 ||
                     strcmp(key, "raw") == 0;

        for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
            if (strcmp(key, same[i]) == 0) {
                known = true;
                ok = ok && json_object_set(b, key, value) == 0;
            }
        if (strcmp(key, "schema") == 0)
            ok = ok && json_object_set_new(b, "response_format",
                                           json_pack("{s:s, s:{s:s, s:O}}", "type", "json_schema", "json_schema",
                                                     "name", "answer", "schema", value)) == 0;
        else if (!known && why == NULL)
            why = "an argument is not one of those that the tool's inputSchema lists";
    }
    if (why == NULL && *method == SERVE_COMPLETION)
        ok = ok && json_object_set(b, "prompt", prompt) == 0;
    else if (why == NULL && messages != NULL)
        ok = ok && json_object_set(b, "messages", messages) == 0;
    else if (why == NULL)
        ok = ok &&
             json_object_set_new(b, "messages",
                                 system != NULL ? json_pack("[{s:s, s:O}, {s:s, s:O}]", "role", "system", "content",
                                                            system, "role", "user", "content", prompt)
                                                : json_pack("[{s:s, s:O}]", "role", "user", "content", prompt)) == 0;
    ok = ok && json_object_set_new(b, "stream", json_true()) == 0 &&
         json_object_set_new(b, "stream_options", json_pack("{s:b}", "include_usage", 1)) == 0;
    if (!ok || why != NULL) {
        json_decref(b);
        b = NULL;
    }
    *body = b;
    return why;
}

static bool encode_pair(const struct serve *s, struct str a, struct str b, struct text_tokens *out, struct err *e)
{
    const struct text_info *info = text_info(s->o.text);
    struct serve_buf all = { NULL, 0, 0 };
    bool ok = (serve_add(&all, a) && serve_add(&all, b)) || err_nomem(e) == ERR_OK;

    ok = ok && text_encode(s->o.text, (struct str){ all.p, all.n }, TEXT_SPECIAL | TEXT_ADD, out, e) == ERR_OK;
    if (ok && info->add_eos && out->n > 0 && out->v[out->n - 1] == info->eos)
        out->n--;
    free(all.p);
    return ok;
}

/* The tokens of both together; *first is the first one that the context alone does not begin with. */
static const char *score_body(const struct serve *s, const json_t *args, int64_t *first, json_t **body, struct err *e)
{
    const json_t *text = json_object_get(args, "text"), *context = json_object_get(args, "context");
    struct str before = STR(""), judged = json_text(text);
    struct text_tokens a = { 0 }, b = { 0 };
    const char *key, *why = NULL;
    json_t *value, *ids = json_array();
    bool ok = ids != NULL;

    *body = NULL;
    json_object_foreach ((json_t *)(uintptr_t)args, key, value)
        if (strcmp(key, "text") != 0 && strcmp(key, "context") != 0)
            why = "an argument is not one of those that the tool's inputSchema lists";
    if (!json_is_string(text) || judged.n == 0)
        why = "text: missing, empty, or not a text";
    else if (context != NULL && !json_is_string(context))
        why = "context: not a text";
    else if (context != NULL)
        before = json_text(context);
    if (why == NULL && encode_pair(s, before, STR(""), &a, e) && encode_pair(s, before, judged, &b, e)) {
        for (*first = 0; *first < a.n && *first < b.n && a.v[*first] == b.v[*first];)
            ++*first;
        for (int64_t i = 0; i < b.n && ok; i++)
            ok = json_array_append_new(ids, json_integer(b.v[i])) == 0;
        if (ok)
            *body = json_pack("{s:O, s:i, s:b, s:i}", "prompt", ids, "max_tokens", 0, "echo", 1, "logprobs", 0);
    }
    json_decref(ids);
    text_tokens_free(&a);
    text_tokens_free(&b);
    return why;
}

static struct call *call_with(struct serve_mcp *m, const json_t *id)
{
    struct call *c = m->calls;

    while (c != NULL && !json_equal(c->id, id))
        c = c->next;
    return c;
}

static enum err_code call_tool(struct serve_mcp *m, const struct asking *a, struct err *e)
{
    const char *name = json_string_value(json_object_get(a->params, "name")), *why;
    json_t *args = json_object_get(a->params, "arguments"), *none = json_object(), *body = NULL;
    json_t *progress = json_object_get(a->meta, "progressToken");
    enum serve_method method = SERVE_COMPLETION;
    const bool generate = name != NULL && strcmp(name, "generate") == 0;
    const bool known = generate || (name != NULL && strcmp(name, "score") == 0);
    struct err bad = { 0 };
    int64_t first = 0;
    struct call *c;

    if (!known || (args != NULL && !json_is_object(args))) {
        json_decref(none);
        return say_error(m, a->id, INVALID_PARAMS,
                         known ? "params/arguments: not an object" : "the tools are generate and score", NULL, e);
    }
    if (none == NULL)
        return err_nomem(e);
    args = args != NULL ? args : none;
    why = generate ? generate_body(args, &method, &body) : score_body(m->serve, args, &first, &body, &bad);
    json_decref(none);
    if (why != NULL || (bad.code != ERR_OK && bad.code != ERR_NOMEM))
        return say_failed(m, a->id, a->modern, why != NULL ? why : bad.msg, e);
    c = body != NULL ? calloc(1, sizeof *c) : NULL;
    if (c == NULL) {
        json_decref(body);
        return err_nomem(e);
    }
    *c = (struct call){ .next = m->calls,
                        .id = json_incref(a->id),
                        .modern = a->modern,
                        .tool = generate ? GENERATE : SCORE,
                        .first = first };
    if (json_is_string(progress) || json_is_integer(progress))
        c->progress = json_incref(progress);
    m->calls = c;
    const enum err_code code = serve_ask(m->serve, method, body,
                                         &(struct serve_client){ .name = STR(""), .key = STR("") }, c, &c->serve_id, e);

    json_decref(body);
    if (code != ERR_OK)
        forget_call(m, c);
    return code;
}

/* ---- requests ---- */

static enum err_code initialize(struct serve_mcp *m, const struct asking *a, struct err *e)
{
    if (!json_is_string(json_object_get(a->params, "protocolVersion")))
        return say_error(m, a->id, INVALID_PARAMS, "params/protocolVersion: missing", NULL, e);
    m->begun = true; /* whatever was asked for: the client ends it if this is not its version */
    return say_result(m, a->id, false,
                      json_pack("{s:s, s:{s:{}}, s:{s:s, s:s}}", "protocolVersion", LEGACY, "capabilities", "tools",
                                "serverInfo", "name", "chimere", "version", CHIMERE_VERSION),
                      e);
}

static enum err_code answer_method(struct serve_mcp *m, const struct asking *a, struct err *e)
{
    if (a->modern && strcmp(a->method, "server/discover") == 0)
        return say_result(m, a->id, true,
                          json_pack("{s:[s, s], s:{s:{}}, s:i, s:s}", "supportedVersions", MODERN, LEGACY,
                                    "capabilities", "tools", "ttlMs", LIST_MS, "cacheScope", "public"),
                          e);
    if (strcmp(a->method, "tools/list") == 0)
        return json_object_get(a->params, "cursor") != NULL
                   ? say_error(m, a->id, INVALID_PARAMS, "params/cursor: there is one page of tools", NULL, e)
                   : say_result(m, a->id, a->modern, list_tools(a->modern), e);
    if (strcmp(a->method, "tools/call") == 0)
        return call_tool(m, a, e);
    return say_error(m, a->id, NO_METHOD, "no such method here: the server has tools only", NULL, e);
}

/* Of which revision a request is, and whether it may ask now. */
static enum err_code request(struct serve_mcp *m, struct asking *a, struct err *e)
{
    const json_t *version = json_object_get(a->meta, META_VERSION);
    const char *asked = json_string_value(version);

    if (call_with(m, a->id) != NULL)
        return say_error(m, a->id, INVALID_REQUEST, "a request with this id is in progress", NULL, e);
    if (version == NULL) {
        if (strcmp(a->method, "initialize") == 0)
            return initialize(m, a, e);
        if (strcmp(a->method, "ping") == 0)
            return say_result(m, a->id, false, json_object(), e);
        return m->begun ? answer_method(m, a, e)
                        : say_error(m, a->id, INVALID_PARAMS,
                                    "params/_meta has no " META_VERSION ", and nobody sent initialize", NULL, e);
    }
    if (asked == NULL)
        return say_error(m, a->id, INVALID_PARAMS, "params/_meta/" META_VERSION ": not a text", NULL, e);
    if (strcmp(asked, MODERN) != 0)
        return say_error(m, a->id, UNSUPPORTED_VERSION, "the protocol version is not supported",
                         json_pack("{s:[s, s], s:O}", "supported", MODERN, LEGACY, "requested", version), e);
    if (!json_is_object(json_object_get(a->meta, META_CAPABILITIES)))
        return say_error(m, a->id, INVALID_PARAMS, "params/_meta/" META_CAPABILITIES ": missing, or not an object",
                         NULL, e);
    a->modern = true;
    return answer_method(m, a, e);
}

static void cancel_call(struct serve_mcp *m, const json_t *params)
{
    struct call *c = call_with(m, json_object_get(params, "requestId"));

    if (c == NULL)
        return;
    serve_cancel(m->serve, c->serve_id);
    forget_call(m, c);
}

static enum err_code message(struct serve_mcp *m, json_t *o, struct err *e)
{
    struct asking a = { .id = json_object_get(o, "id"),
                        .params = json_object_get(o, "params"),
                        .method = json_string_value(json_object_get(o, "method")) };
    const char *rpc = json_string_value(json_object_get(o, "jsonrpc"));
    const bool good_id = json_is_string(a.id) || json_is_integer(a.id);
    json_t *id = good_id ? a.id : json_null();

    if (json_is_array(o))
        return say_error(m, id, INVALID_REQUEST, "one message a line: the protocol has no batches", NULL, e);
    if (rpc == NULL || strcmp(rpc, "2.0") != 0)
        return say_error(m, id, INVALID_REQUEST, "not a message of JSON-RPC 2.0", NULL, e);
    if (a.method == NULL) /* we ask nothing: a reply is nobody's */
        return json_object_get(o, "result") != NULL || json_object_get(o, "error") != NULL
                   ? ERR_OK
                   : say_error(m, id, INVALID_REQUEST, "the message has no method", NULL, e);
    if (a.id != NULL && !good_id)
        return say_error(m, id, INVALID_REQUEST, "id: neither a string nor a whole number", NULL, e);
    if (a.id == NULL) {
        if (strcmp(a.method, "notifications/cancelled") == 0)
            cancel_call(m, a.params);
        return ERR_OK;
    }
    if (a.params != NULL && !json_is_object(a.params))
        return say_error(m, id, INVALID_PARAMS, "params: not an object", NULL, e);
    a.meta = json_object_get(a.params, "_meta");
    return request(m, &a, e);
}

enum err_code serve_mcp_line(struct serve_mcp *m, struct str line, struct err *e)
{
    struct err why = { 0 };
    json_t *o, *id;

    (void)json_ran_out(); /* what others lost is not this one's */
    enum err_code code = serve_parse(&o, line, "the line", &why);

    if (code == ERR_NOMEM)
        return lose_request(m, json_null(), e);
    id = json_object_get(o, "id");
    code =
        code ? say_error(m, json_is_string(id) || json_is_integer(id) ? id : json_null(), PARSE_ERROR, why.msg, NULL, e)
             : message(m, o, e);
    if (code == ERR_NOMEM)
        code = lose_request(m, json_is_string(id) || json_is_integer(id) ? id : json_null(), e);
    json_decref(o);
    return code;
}

/* ---- replies ---- */

static bool add_text(struct serve_buf *b, const json_t *v)
{
    return !json_is_string(v) || serve_add(b, json_text(v));
}

static void keep_json(json_t **slot, json_t *v)
{
    if (v == NULL || json_is_null(v))
        return;
    json_decref(*slot);
    *slot = json_incref(v);
}

/* A part of an answer. */
static enum err_code take_chunk(struct serve_mcp *m, struct call *c, const json_t *body, struct err *e)
{
    const json_t *choice = json_array_get(json_object_get(body, "choices"), 0),
                 *delta = json_object_get(choice, "delta"), *numbers = json_object_get(choice, "uncertainty");
    const double now = clock_ms();

    keep_json(&c->usage, json_object_get(body, "usage"));
    keep_json(&c->finish, json_object_get(choice, "finish_reason"));
    keep_json(&c->reply_id, json_object_get(body, "id"));
    keep_json(&c->notes, json_object_get(body, "notes"));
    keep_json(&c->thinking, json_object_get(json_object_get(body, "chimere"), "thinking"));
    keep_json(&c->search, json_object_get(json_object_get(body, "chimere"), "search"));
    if (numbers != NULL && ((c->numbers == NULL && (c->numbers = json_array()) == NULL) ||
                            json_array_extend(c->numbers, (json_t *)(uintptr_t)numbers)))
        return err_nomem(e);
    if (!add_text(&c->text, json_object_get(choice, "text")) ||
        !add_text(&c->text, json_object_get(delta, "content")) ||
        !add_text(&c->reasoning, json_object_get(delta, "reasoning_content")))
        return err_nomem(e);
    c->n_parts++;
    if (c->progress == NULL || now < c->told_ms + PROGRESS_MS)
        return ERR_OK;
    c->told_ms = now;
    return say(m,
               json_pack("{s:s, s:s, s:{s:O, s:I}}", "jsonrpc", "2.0", "method", "notifications/progress", "params",
                         "progressToken", c->progress, "progress", (json_int_t)c->n_parts),
               e);
}

static json_t *with_content(json_t *structured, json_t *text)
{
    return json_pack("{s:[{s:s, s:o}], s:o, s:b}", "content", "type", "text", "text", text, "structuredContent",
                     structured, "isError", 0);
}

static json_t *generated(const struct call *c)
{
    json_t *o = json_pack("{s:O, s:o, s:O, s:O, s:O, s:O, s:O, s:O*, s:O*, s:O*}", "id", c->reply_id, "text",
                          serve_text(&c->text), "finish_reason", c->finish, "prompt_tokens",
                          json_object_get(c->usage, "prompt_tokens"), "cached_tokens",
                          json_object_get(json_object_get(c->usage, "prompt_tokens_details"), "cached_tokens"),
                          "completion_tokens", json_object_get(c->usage, "completion_tokens"), "reasoning_tokens",
                          json_object_get(json_object_get(c->usage, "completion_tokens_details"), "reasoning_tokens"),
                          "thinking", c->thinking, "uncertainty", c->numbers, "search", c->search);

    if (o != NULL && ((c->reasoning.n > 0 && json_object_set_new(o, "reasoning", serve_text(&c->reasoning))) ||
                      (c->notes != NULL && json_object_set(o, "notes", c->notes)))) {
        json_decref(o);
        o = NULL;
    }
    return with_content(o, serve_text(&c->text));
}

/* NULL: memory is out, or *n is 0, nothing has a probability. */
static json_t *scored(const struct call *c, const json_t *body, size_t *n)
{
    const json_t *v = json_object_get(json_array_get(json_object_get(body, "choices"), 0), "logprobs");
    const json_t *values = json_object_get(v, "token_logprobs"), *texts = json_object_get(v, "tokens");
    json_t *tokens = json_array(), *list = json_array(), *o = NULL, *line = NULL;
    bool ok = tokens != NULL && list != NULL;
    double sum = 0;
    char *dump;

    *n = 0;

    for (size_t i = (size_t)c->first; i < json_array_size(values) && ok; i++) {
        json_t *one = json_array_get(values, i);

        if (!json_is_number(one)) /* the first of all, before which nothing stands */
            continue;
        ok = json_array_append(list, one) == 0 && json_array_append(tokens, json_array_get(texts, i)) == 0;
        sum += json_number_value(one);
        ++*n;
    }
    if (ok && *n > 0)
        o = json_pack("{s:f, s:f, s:O, s:O}", "logprob", sum, "perplexity", exp(-sum / (double)*n), "tokens", tokens,
                      "token_logprobs", list);
    json_decref(tokens);
    json_decref(list);
    dump = o != NULL ? json_line(o) : NULL;
    line = dump != NULL ? json_string(dump) : NULL;
    free(dump);
    return o != NULL ? with_content(o, line) : NULL;
}

static enum err_code say_score(struct serve_mcp *m, const struct call *c, const json_t *body, struct err *e)
{
    size_t n = 0;
    json_t *result = scored(c, body, &n);

    return n > 0 ? say_result(m, c->id, c->modern, result, e)
                 : say_failed(m, c->id, c->modern,
                              "text: one token, before which nothing stands, has no probability: give a context", e);
}

enum err_code serve_mcp_reply(struct serve_mcp *m, struct serve_reply *r, struct err *e)
{
    struct call *c = r->user;
    const json_t *error = json_object_get(r->body, "error");
    enum err_code code = ERR_OK;

    (void)json_ran_out();
    if (r->kind == SERVE_BEGIN)
        return ERR_OK;
    if (r->kind == SERVE_CHUNK)
        code = take_chunk(m, c, r->body, e);
    else if (r->kind == SERVE_END)
        code = say_result(m, c->id, c->modern, generated(c), e);
    else if (r->kind == SERVE_BODY)
        code = say_score(m, c, r->body, e);
    else if (r->status >= 500)
        code = say_error(m, c->id, INTERNAL, json_string_value(json_object_get(error, "message")), NULL, e);
    else
        code = say_failed(m, c->id, c->modern, json_string_value(json_object_get(error, "message")), e);
    json_decref(r->body);
    if (code == ERR_NOMEM) {
        code = lose_request(m, c->id, e);
        if (!r->last)
            serve_cancel(m->serve, c->serve_id);
        r->last = true;
    }
    if (r->last && code == ERR_OK)
        forget_call(m, c);
    return code;
}
