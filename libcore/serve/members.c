/* SPDX-License-Identifier: Apache-2.0 */
/* members.c - members of objects inside of a body: which there are, which have to be there, and of what kind they are.
 * room: serve
 *
 * Of a body's own members methods.def says that, or request.c, responses.c and messages.c. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

enum { AT_BYTES = 64, WHAT_BYTES = SERVE_WHAT_BYTES };
enum {
    CHAT = 1 << SERVE_CHAT,
    RESP = 1 << SERVE_RESPONSE,
    MSG = 1 << SERVE_MESSAGE,
    TALK = CHAT | RESP,
    TEXT = 1 << SERVE_COMPLETION,
    EMBED = 1 << SERVE_EMBEDDING
};

/* Objects, and what their members may be, as name:kind|kind, with a ! where there has to be one. A kind is S, a text;
 * A, an array; L, the array ["text"]; O, an object; B, true or false; T, true; F, false; I, a whole number; N, a
 * number; X, anything; n, null alone; or the one text or number that it may be. With a ~ a member has no effect. The
 * first row with an object's place and "type" counts; an object without a row may have any members. */
static const struct row {
    unsigned methods;
    const char *at;   /* a JSON pointer, in which * is each item of an array */
    const char *type; /* NULL: any */
    const char *members;
} rows[] = {
    { CHAT, "/messages/*", NULL,
      "role:S! content:S|A name:S tool_calls:A tool_call_id:S reasoning_content:S refusal:n annotations:A audio:n "
      "function_call:O reasoning:S reasoning_details:A~ cache_control:O~ provider_specific_fields:O~ id:S~" },
    { CHAT, "/messages/*/function_call", NULL, "name:S! arguments:S!" },
    { CHAT, "/messages/*/content/*", NULL, "type:text! text:S! cache_control:O~ annotations:A~" },
    { CHAT, "/messages/*/tool_calls/*", NULL, "id:S type:function index:I function:O!" },
    { CHAT, "/messages/*/tool_calls/*/function", NULL, "name:S! arguments:S|O" },
    { CHAT, "/functions/*", NULL, "name:S! description:S parameters:O strict:B" },
    { CHAT, "/function_call", NULL, "name:S!" },
    { CHAT, "/tools/*", NULL, "type:function function:O! cache_control:O~" },
    { CHAT, "/tools/*/function", NULL, "name:S! description:S parameters:O strict:B" },
    { CHAT, "/tool_choice", "allowed_tools", "type:X allowed_tools:O!" },
    { CHAT, "/tool_choice/allowed_tools", NULL, "mode:auto|required! tools:A!" },
    { CHAT, "/tool_choice/allowed_tools/tools/*", NULL, "type:function function:O!" },
    { CHAT, "/tool_choice/allowed_tools/tools/*/function", NULL, "name:S!" },
    { CHAT, "/tool_choice", NULL, "type:function function:O!" },
    { CHAT, "/tool_choice/function", NULL, "name:S!" },
    { CHAT | TEXT, "/response_format", "json_schema", "type:X json_schema:O schema:O|B" },
    { CHAT | TEXT, "/response_format", NULL, "type:text|json_object|json_schema! schema:O|B" },
    { CHAT | TEXT, "/structured_outputs", NULL,
      "json:O|B|S regex:S choice:A grammar:S json_object:T disable_fallback:B~ disable_any_whitespace:F~ "
      "disable_additional_properties:F~ whitespace_pattern:n structural_tag:n" },
    { CHAT | TEXT, "/response_format/json_schema", NULL, "name:S description:S schema:O|B! strict:B" },
    { CHAT | TEXT, "/stream_options", NULL, "include_usage:B include_obfuscation:B continuous_usage_stats:F~" },
    { TALK | TEXT | EMBED | MSG, "/lora/*", NULL, "id:I! scale:N!" },
    { RESP, "/input/*", "function_call", "type:X id:S call_id:S! name:S! arguments:S! status:S" },
    { RESP, "/input/*", "function_call_output", "type:X id:S call_id:S! output:S|A! status:S" },
    { RESP, "/input/*", "reasoning", "type:X id:S summary:A content:A encrypted_content:S status:S" },
    { RESP, "/input/*", NULL,
      "type:message|function_call|function_call_output|reasoning role:S! content:S|A! id:S status:S phase:S" },
    { RESP, "/input/*/content/*", "refusal", "type:X refusal:S!" },
    { RESP, "/input/*/content/*", NULL,
      "type:input_text|output_text|text|reasoning_text! text:S! annotations:A logprobs:A" },
    { RESP, "/input/*/output/*", NULL, "type:input_text|output_text|text! text:S!" },
    { RESP, "/tools/*", NULL, "type:function! name:S! description:S parameters:O strict:B cache_control:O~" },
    { RESP, "/tool_choice", "allowed_tools", "type:X mode:auto|required! tools:A!" },
    { RESP, "/tool_choice/tools/*", NULL, "type:function! name:S!" },
    { RESP, "/tool_choice", NULL, "type:function! name:S!" },
    { RESP, "/text", NULL, "format:O verbosity:low|medium|high~" },
    { RESP, "/text/format", "json_schema", "type:X name:S description:S schema:O|B! strict:B" },
    { RESP, "/text/format", NULL, "type:text|json_object|json_schema!" },
    { RESP, "/reasoning", NULL, "effort:S summary:S" },
    { RESP, "/stream_options", NULL, "include_obfuscation:B" },
    { MSG, "/system/*", NULL, "type:text! text:S! cache_control:O~ citations:A~" },
    { MSG, "/messages/*", NULL, "role:user|assistant|system! content:S|A!" },
    { MSG, "/messages/*/content/*", "text", "type:X text:S! cache_control:O~ citations:A~" },
    { MSG, "/messages/*/content/*", "thinking", "type:X thinking:S! signature:S" },
    { MSG, "/messages/*/content/*", "redacted_thinking", "type:X data:S" },
    { MSG, "/messages/*/content/*", "tool_use",
      "type:X id:S! name:S! input:O! cache_control:O~ caller:O~ toolset_name:S~" },
    { MSG, "/messages/*/content/*", "tool_result",
      "type:X tool_use_id:S! content:S|A is_error:B cache_control:O~ toolset_name:S~" },
    { MSG, "/messages/*/content/*", "image", "type:X source:O! cache_control:O~" },
    { MSG, "/messages/*/content/*", NULL,
      "type:text|thinking|redacted_thinking|tool_use|tool_result|document! source:O! title:S context:S citations:O "
      "cache_control:O~" },
    { MSG, "/messages/*/content/*/content/*", "text", "type:X text:S! cache_control:O~ citations:A~" },
    { MSG, "/messages/*/content/*/content/*", "image", "type:X source:O! cache_control:O~" },
    { MSG, "/messages/*/content/*/content/*", NULL,
      "type:text|document! source:O! title:S context:S citations:O cache_control:O~" },
    { MSG, "/tools/*", NULL,
      "type:S name:S! description:S input_schema:O strict:B cache_control:O~ eager_input_streaming:B~ defer_loading:B~ "
      "allowed_callers:A~ input_examples:A~" },
    { MSG, "/tool_choice", NULL, "type:auto|any|tool|none! name:S disable_parallel_tool_use:B" },
    { MSG, "/thinking", NULL,
      "type:enabled|disabled|adaptive|between_tools! budget_tokens:I display:summarized|omitted" },
    { MSG, "/metadata", NULL, "user_id:S" },
    { MSG, "/output_config", NULL, "effort:low|medium|high|xhigh|max format:O task_budget:O~" },
    { MSG, "/output_config/format", NULL, "type:json_schema! schema:O! name:S" },
    { MSG, "/output_format", NULL, "type:json_schema! schema:O! name:S" },
};

struct walk {
    unsigned method; /* a bit */
    bool lenient;
    struct serve_fault *f;
    char at[AT_BYTES], pointer[POINTER_BYTES];
    size_t n_at, n;
};

/* ---- kinds ---- */

static bool is_kind(const json_t *v, const char *kind, size_t n)
{
    const char *s = json_string_value(v);
    int64_t whole;

    if (*kind == '-' || isdigit((unsigned char)*kind))
        return json_is_number(v) && json_number_value(v) == strtod(kind, NULL);
    if (n > 1 || (islower((unsigned char)*kind) && *kind != 'n'))
        return s != NULL && strlen(s) == n && memcmp(s, kind, n) == 0;
    switch (*kind) {
    case 'S':
        return s != NULL;
    case 'A':
        return json_is_array(v);
    case 'L':
        s = json_string_value(json_array_get(v, 0));
        return json_array_size(v) == 1 && s != NULL && strcmp(s, "text") == 0;
    case 'O':
        return json_is_object(v);
    case 'B':
        return json_is_boolean(v);
    case 'T':
    case 'F':
        return *kind == 'T' ? json_is_true(v) : json_is_false(v);
    case 'I':
        return serve_whole_number(v, &whole);
    case 'N':
        return json_is_number(v);
    default:
        return *kind == 'X';
    }
}

static const char *kind_name(char kind)
{
    static const char *const names[] = { "Sa text",   "Aan array", "Oan object", "Btrue or false", "Ia whole number",
                                         "Na number", "nnull",     "Ttrue",      "Ffalse" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i][0] == kind)
            return names[i] + 1;
    return "";
}

bool serve_is_of(const json_t *v, const char *kinds, char what[WHAT_BYTES])
{
    size_t used = 0;

    for (const char *k = kinds;; k++) {
        const size_t n = strcspn(k, "|!~ ");
        const char *name = n == 1 ? kind_name(*k) : k;

        if (is_kind(v, k, n))
            return true;
        used += (size_t)snprintf(what + used, WHAT_BYTES - used, "%s%.*s", used > 0 ? " or " : "", n == 1 ? 40 : (int)n,
                                 name);
        k += n;
        if (*k != '|')
            return false;
    }
}

/* ---- places ---- */

/* Goes to a member, or to an item; false: nothing there has a row. */
static bool enter(struct walk *w, const char *at, const char *key)
{
    const size_t n = strlen(at);

    if (w->n_at + n + 2 > AT_BYTES || (at == key && at[strcspn(at, "/*")] != '\0'))
        return false;
    w->n_at += (size_t)snprintf(w->at + w->n_at, AT_BYTES - w->n_at, "/%s", at);
    w->n = serve_point_to(w->pointer, w->n, key);
    return true;
}

static void walk_back(struct walk *w, size_t n_at, size_t n)
{
    w->at[w->n_at = n_at] = '\0';
    w->pointer[w->n = n] = '\0';
}

/* Whether the items of an array here have a row, or what is in them. */
static bool has_items(const struct walk *w)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((rows[i].methods & w->method) != 0 && strncmp(rows[i].at, w->at, w->n_at) == 0 &&
            strncmp(rows[i].at + w->n_at, "/*", 2) == 0)
            return true;
    return false;
}

static const struct row *row_of(const struct walk *w, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((rows[i].methods & w->method) != 0 && strcmp(rows[i].at, w->at) == 0 &&
            (rows[i].type == NULL || (type != NULL && strcmp(rows[i].type, type) == 0)))
            return &rows[i];
    return NULL;
}

/* ---- the walk ---- */

static bool refuse_member(struct walk *w, const char *key, const char *what)
{
    if (key != NULL)
        w->n = serve_point_to(w->pointer, w->n, key);
    return serve_fault(w->f, 400, w->pointer, "%s: %s", w->n > 0 ? w->pointer + 1 : "the body", what);
}

static bool check_object(struct walk *w, const struct row *row, const json_t *o)
{
    char what[WHAT_BYTES + 8] = "not ";
    const char *key;
    json_t *v;

    for (const char *m = row->members; *m != '\0'; m += strcspn(m, " "), m += *m == ' ') {
        const int n = (int)strcspn(m, ":");
        char name[40];

        (void)snprintf(name, sizeof name, "%.*s", n, m);
        v = json_object_get(o, name);
        if ((v == NULL || json_is_null(v)) && m[strcspn(m, " !")] == '!')
            return refuse_member(w, name, "missing");
        if (v != NULL && !json_is_null(v) && !serve_is_of(v, m + n + 1, what + 4))
            return refuse_member(w, name, what);
        if (v != NULL && m[strcspn(m, " ~")] == '~')
            serve_note_idle(w->f, str_of(name));
    }
    json_object_foreach ((json_t *)(uintptr_t)o, key, v) {
        const size_t n = strlen(key);
        const char *m = row->members;

        while (*m != '\0' && !(strncmp(m, key, n) == 0 && m[n] == ':'))
            m += strcspn(m, " "), m += *m == ' ';
        if (*m == '\0' && !w->lenient)
            return refuse_member(w, key, "not a member of this request (--lenient ignores such)");
    }
    return true;
}

static bool walk_members(struct walk *w, const json_t *v);

static bool walk_items(struct walk *w, const json_t *list)
{
    const size_t n_at = w->n_at, n = w->n;
    char number[24];
    json_t *item;
    size_t i;

    if (!has_items(w))
        return true;
    json_array_foreach (list, i, item) {
        (void)snprintf(number, sizeof number, "%zu", i);
        if (!enter(w, "*", number))
            continue;
        if (!json_is_object(item) && row_of(w, item) != NULL)
            return refuse_member(w, NULL, "not an object");
        if (!walk_members(w, item))
            return false;
        walk_back(w, n_at, n);
    }
    return true;
}

static bool walk_members(struct walk *w, const json_t *v)
{
    const size_t n_at = w->n_at, n = w->n;
    const struct row *row = json_is_object(v) ? row_of(w, v) : NULL;
    const char *key;
    json_t *inner;

    if (json_is_array(v))
        return walk_items(w, v);
    if (row != NULL && !check_object(w, row, v))
        return false;
    if (row != NULL || n_at == 0)
        json_object_foreach ((json_t *)(uintptr_t)v, key, inner) {
            if ((!json_is_array(inner) && !json_is_object(inner)) || !enter(w, key, key))
                continue;
            if (!walk_members(w, inner))
                return false;
            walk_back(w, n_at, n);
        }
    return true;
}

bool serve_check_object(const json_t *body, const char *members, bool lenient, struct serve_fault *f)
{
    struct walk w = { .lenient = lenient, .f = f };
    const struct row row = { 0, "", NULL, members };

    return json_is_object(body) ? check_object(&w, &row, body) : serve_fault(f, 400, "", "the body is not an object");
}

bool serve_check_members(const json_t *body, enum serve_method method, bool lenient, struct serve_fault *f)
{
    struct walk w = { .method = 1u << method, .lenient = lenient, .f = f };
    const struct row top = { w.method, "", NULL, serve_row(method)->members };

    if (top.members != NULL && strchr(top.members, '!') == NULL && (body == NULL || json_is_null(body)))
        return true;
    if (!json_is_object(body))
        return serve_fault(f, 400, "", "the body is not an object");
    return (top.members == NULL || check_object(&w, &top, body)) && walk_members(&w, body);
}
