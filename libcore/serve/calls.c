/* SPDX-License-Identifier: Apache-2.0 */
/* calls.c - members of a chat about calls: tools, which of them may be called, and the old form of them, functions.
 * room: serve */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/internal.h"

bool serve_read_tools(struct serve_reading *r, const json_t *v)
{
    size_t i;
    json_t *tool;

    if (!json_is_array(v))
        return serve_refuse_here(r, "not an array");
    json_array_foreach (v, i, tool) {
        json_t *function = json_object_get(tool, "function");

        if (json_string_length(json_object_get(function, "name")) == 0)
            return serve_wrong_item(r, i, "function", "has no name");
        if (json_is_null(json_object_get(function, "parameters"))) /* there are none */
            (void)json_object_del(function, "parameters");
    }
    if (r->w->ask.tools == NULL)
        r->w->ask.tools = json_array_size(v) > 0 ? (json_t *)(uintptr_t)v : NULL;
    return true;
}

static bool is_mode(const char *s)
{
    return strcmp(s, "auto") == 0 || strcmp(s, "none") == 0 || strcmp(s, "required") == 0;
}

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Of the tools those that are allowed: the model is shown no others. */
static bool allow_tools(struct serve_reading *r, const json_t *v)
{
    const json_t *allowed = json_object_get(v, "allowed_tools"), *names = json_object_get(allowed, "tools");
    const char *mode = json_string_value(json_object_get(allowed, "mode"));
    json_t *named, *tool;
    size_t i, k;

    (void)serve_point_to(r->at, strlen(r->at), "allowed_tools");
    if (mode == NULL || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return serve_wrong_at(r, "mode", "not auto or required");
    if (json_array_size(names) == 0)
        return serve_wrong_at(r, "tools", "not an array of tools, or empty");
    if ((r->w->tools = json_array()) == NULL)
        return serve_nomem(r->f);
    json_array_foreach (names, i, named) {
        const size_t before = json_array_size(r->w->tools);

        json_array_foreach (json_object_get(r->body, "tools"), k, tool)
            if (name_of(named) != NULL && name_of(tool) != NULL && strcmp(name_of(named), name_of(tool)) == 0 &&
                json_array_append(r->w->tools, tool))
                return serve_nomem(r->f);
        if (json_array_size(r->w->tools) == before) {
            (void)serve_point_to(r->at, strlen(r->at), "tools");
            return serve_wrong_item(r, i, NULL, "there is no such tool");
        }
    }
    r->w->ask.tools = r->w->tools;
    r->w->ask.tool_choice = mode;
    return true;
}

bool serve_read_tool_choice(struct serve_reading *r, const json_t *v)
{
    const char *s = json_string_value(v), *name = name_of(v);

    if (json_object_get(v, "allowed_tools") != NULL)
        return allow_tools(r, v);
    if (s == NULL ? name == NULL : !is_mode(s))
        return serve_refuse_here(
            r, "not auto, none, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    if (s == NULL && is_mode(name)) {
        (void)serve_point_to(r->at, strlen(r->at), "function");
        return serve_wrong_at(r, "name", "not the name of a tool");
    }
    r->w->ask.tool_choice = s != NULL ? s : name;
    return true;
}

/* ---- functions ---- */

/* Puts the value, which is taken, into the member of another name. */
static bool rename_member(json_t *o, const char *from, const char *to, json_t *v, struct serve_fault *f)
{
    return (v != NULL && json_object_set_new(o, to, v) == 0 && json_object_del(o, from) == 0) || serve_nomem(f);
}

/* Calls and results among the messages. What the old form has no ids for belongs to the last call. */
static bool take_turns(const json_t *messages, struct serve_fault *f)
{
    size_t i;
    json_t *m;

    json_array_foreach (messages, i, m) {
        json_t *call = json_object_get(m, "function_call");
        const char *role = json_string_value(json_object_get(m, "role"));

        if (json_is_object(call) &&
            !rename_member(m, "function_call", "tool_calls",
                           json_pack("[{s:s, s:s, s:O}]", "id", "call", "type", "function", "function", call), f))
            return false;
        if (role != NULL && strcmp(role, "function") == 0 &&
            (json_object_set_new(m, "role", json_string("tool")) ||
             json_object_set_new(m, "tool_call_id", json_string("call"))))
            return serve_nomem(f);
    }
    return true;
}

bool serve_take_functions(json_t *body, struct serve_fault *f)
{
    json_t *functions = json_object_get(body, "functions"), *choice = json_object_get(body, "function_call"), *list;
    json_t *function;
    size_t i;

    if (json_is_null(functions))
        (void)json_object_del(body, "functions");
    if (json_is_null(choice))
        (void)json_object_del(body, "function_call");
    if (!take_turns(json_object_get(body, "messages"), f))
        return false;
    if (json_is_array(functions)) {
        if (json_object_get(body, "tools") != NULL)
            return serve_fault(f, 400, "/functions", "functions: not together with tools");
        list = json_array();
        json_array_foreach (functions, i, function)
            json_push(&list, json_pack("{s:s, s:O}", "type", "function", "function", function));
        if (!rename_member(body, "functions", "tools", list, f) ||
            json_object_set_new(body, "parallel_tool_calls", json_false()))
            return f->status != 0 ? false : serve_nomem(f);
    }
    choice = json_object_get(body, "function_call");
    if (choice == NULL)
        return true;
    if (json_object_get(body, "tools") == NULL)
        return serve_fault(f, 400, "/function_call", "function_call: there are no functions");
    return rename_member(body, "function_call", "tool_choice",
                         json_is_object(choice) ? json_pack("{s:s, s:O}", "type", "function", "function", choice)
                                                : json_incref(choice),
                         f);
}

void serve_move_functions_fault(const struct serve_question *w, struct serve_fault *f)
{
    static const char tools[] = "/tools/", function[] = "/function", choice[] = "/tool_choice";
    char place[POINTER_BYTES];
    char *after;

    if (!w->functions)
        return;
    if (strncmp(f->pointer, choice, sizeof choice - 1) == 0) {
        const char *rest = f->pointer + sizeof choice - 1;

        if (strncmp(rest, function, sizeof function - 1) == 0)
            rest += sizeof function - 1;
        (void)snprintf(place, sizeof place, "/function_call%.480s", rest);
    } else if (strncmp(f->pointer, tools, sizeof tools - 1) == 0) {
        const unsigned long index = strtoul(f->pointer + sizeof tools - 1, &after, 10);

        if (strncmp(after, function, sizeof function - 1) == 0)
            after += sizeof function - 1;
        (void)snprintf(place, sizeof place, "/functions/%lu%.460s", index, after);
    } else {
        return;
    }
    serve_move_fault_to(f, place);
}
