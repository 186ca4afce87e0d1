/* SPDX-License-Identifier: Apache-2.0 */
/* line_requests.c - a request on each line, its replies on lines (line_requests.h).                 room: cmd */
#include "serve-stdio/line_requests.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A request that is not over: its id, as the line had it. */
struct asked {
    struct asked *next;
    json_t *id;
    int64_t serve_id;
};

static enum err_code print_line(json_t *id, const char *type, const char *key, json_t *value, int status, struct err *e)
{
    json_t *line = json_pack("{s:O, s:s}", "id", id, "type", type);

    bool ok = line != NULL && (status <= 0 || json_object_set_new(line, "status", json_integer(status)) == 0);

    if (key != NULL) /* which also releases the value */
        ok = json_object_set_new(ok ? line : NULL, key, value) == 0;
    return cli_json_line(json_if(ok, line), e);
}

static enum err_code print_error(json_t *id, const char *message, const char *pointer, int status, struct err *e)
{
    json_t *body = serve_error(NULL, status, pointer, message);
    enum err_code code = body == NULL
                             ? err_nomem(e)
                             : print_line(id, "error", "error", json_incref(json_object_get(body, "error")), status, e);

    json_decref(body);
    return code;
}

/* What needs no memory itself. */
static enum err_code print_no_memory(const json_t *id, struct err *e)
{
    (void)fputs("{\"id\":", stdout);
    (void)json_dumpf(id, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    (void)puts(",\"type\":\"error\",\"status\":503,\"error\":{\"message\":\"out of memory\",\"type\":\"server_error\","
               "\"param\":null,\"code\":null}}");
    return cli_flush_stdout(e);
}

static struct asked **find_asked(struct cli_line_requests *s, const json_t *id)
{
    struct asked **link = &s->asked;

    while (*link != NULL && !json_equal((*link)->id, id))
        link = &(*link)->next;
    return link;
}

static void forget_asked(struct cli_line_requests *s, struct asked *a)
{
    struct asked **link = &s->asked;

    while (*link != a)
        link = &(*link)->next;
    *link = a->next;
    json_decref(a->id);
    free(a);
}

/* The first member of an object that is none of `known`; NULL: there is none, or nobody minds. */
static const char *find_unknown(const json_t *v, const char *const *known, bool lenient)
{
    const char *key;
    json_t *member;

    json_object_foreach ((json_t *)(uintptr_t)v, key, member) {
        size_t i = 0;

        while (known[i] != NULL && strcmp(known[i], key) != 0)
            i++;
        if (known[i] == NULL && !lenient)
            return key;
    }
    return NULL;
}

static enum err_code print_unknown(json_t *id, const char *key, struct err *e)
{
    char pointer[SERVE_POINTER_BYTES], message[SERVE_POINTER_BYTES + 80];

    (void)serve_point_to(pointer, 0, key);
    (void)snprintf(message, sizeof message, "%s: not a member of this request (--lenient ignores such)", pointer + 1);
    return print_error(id, message, pointer, 400, e);
}

static enum err_code cancel_request(struct cli_line_requests *s, json_t *id, const json_t *body, struct err *e)
{
    static const char *const known[] = { "id", NULL };
    const json_t *which = json_object_get(body, "id");
    struct asked **link = find_asked(s, which);
    json_t *found = json_boolean(which != NULL && *link != NULL);
    enum err_code code = ERR_OK;

    if (!json_is_string(which) && !json_is_integer(which))
        return print_error(id, "id: missing, or neither a string nor a whole number", "/id", 400, e);
    if (find_unknown(body, known, s->lenient) != NULL)
        return print_unknown(id, find_unknown(body, known, s->lenient), e);
    if (*link != NULL) {
        struct asked *a = *link;

        serve_cancel(s->serve, a->serve_id);
        code = print_line(a->id, "cancelled", NULL, NULL, 0, e);
        if (code == ERR_NOMEM)
            code = print_no_memory(a->id, e);
        forget_asked(s, a);
    }
    if (code != ERR_OK)
        return code;
    return print_line(id, "response", "body", json_pack("{s:o}", "found", found), 200, e);
}

static enum err_code start_request(struct cli_line_requests *s, json_t *id, const char *method, json_t *body,
                                   const char *client, struct err *e)
{
    enum serve_method m;
    struct asked *a;

    if (strcmp(method, "cancel") == 0)
        return cancel_request(s, id, body, e);
    if (!serve_method(&m, str_of(method))) {
        char message[512] = "method: not one of cancel, ";

        serve_name_methods(message + strlen(message), sizeof message - strlen(message), false, "");
        return print_error(id, message, "/method", 404, e);
    }
    if (*find_asked(s, id) != NULL)
        return print_error(id, "id: a request with this id is in progress", "/id", 409, e);
    a = calloc(1, sizeof *a);
    if (a == NULL)
        return err_nomem(e);
    a->id = json_incref(id);
    a->next = s->asked;
    s->asked = a;
    if (serve_ask(s->serve, m, body, &(struct serve_client){ .name = str_of(client), .key = STR("") }, a, &a->serve_id,
                  e) == ERR_OK)
        return ERR_OK;
    forget_asked(s, a);
    return e->code;
}

static enum err_code take_request(void *of, struct str line, int64_t number, struct err *e)
{
    static const char *const known[] = { "id", "method", "body", "client", NULL };
    struct cli_line_requests *s = of;
    struct err why = { 0 };
    json_t *o_line = NULL, *id, *null = json_null();
    const char *method, *client;
    char what[48];
    bool has_id;
    enum err_code code;

    for (size_t i = 0; i < line.n && (line.p[i] == ' ' || line.p[i] == '\t' || line.p[i] == '\r'); i++)
        if (i + 1 == line.n)
            return ERR_OK;
    if (line.n == 0)
        return ERR_OK;
    (void)snprintf(what, sizeof what, "line %" PRId64, number);
    code = serve_parse(&o_line, line, what, &why);
    id = json_object_get(o_line, "id");
    has_id = json_is_string(id) || json_is_integer(id);
    method = json_string_value(json_object_get(o_line, "method"));
    client = json_object_get(o_line, "client") != NULL ? json_string_value(json_object_get(o_line, "client")) : "";
    if (code == ERR_NOMEM)
        err_nomem(e);
    else if (code)
        code = print_error(has_id ? id : null, why.msg, serve_place_in_body(&why), 400, e);
    else if (!json_is_object(o_line))
        code = print_error(null, "the line is not an object", NULL, 400, e);
    else if (!has_id)
        code = print_error(null, "id: missing, or neither a string nor a whole number", "/id", 400, e);
    else if (method == NULL)
        code = print_error(id, "method: missing", "/method", 400, e);
    else if (client == NULL)
        code = print_error(id, "client: not a text", "/client", 400, e);
    else if (find_unknown(o_line, known, s->lenient) != NULL)
        code = print_unknown(id, find_unknown(o_line, known, s->lenient), e);
    else
        code = start_request(s, id, method, json_object_get(o_line, "body"), client, e);
    if (code == ERR_NOMEM)
        code = print_no_memory(has_id ? id : null, e);
    json_decref(o_line);
    return code;
}

static enum err_code print_reply(void *of, struct serve_reply *r, struct err *e)
{
    struct cli_line_requests *s = of;
    struct asked *a = r->user;
    enum err_code code;

    if (r->kind == SERVE_BEGIN)
        return ERR_OK;
    if (r->kind == SERVE_END)
        code = print_line(a->id, "end", NULL, NULL, 0, e);
    else if (r->kind == SERVE_ERROR)
        code = print_line(a->id, "error", "error", json_incref(json_object_get(r->body, "error")), r->status, e);
    else
        code = print_line(a->id, r->kind == SERVE_CHUNK ? "chunk" : "response", "body", json_incref(r->body),
                          r->kind == SERVE_BODY ? r->status : 0, e);
    json_decref(r->body);
    if (code == ERR_NOMEM) { /* the request ends, no other */
        serve_cancel(s->serve, a->serve_id);
        code = print_no_memory(a->id, e);
        forget_asked(s, a);
    } else if (r->last) {
        forget_asked(s, a);
    }
    return code;
}

static enum err_code print_lost(void *of, int status, const char *why, struct err *e)
{
    (void)of;
    return status == 503 ? print_no_memory(json_null(), e) : print_error(json_null(), why, NULL, status, e);
}

struct cli_stdin_requests cli_line_talk(struct cli_line_requests *s)
{
    return (struct cli_stdin_requests){ s, take_request, print_lost, print_reply, .leaves = false };
}

void cli_line_requests_end(struct cli_line_requests *s)
{
    while (s->asked != NULL)
        forget_asked(s, s->asked);
}
