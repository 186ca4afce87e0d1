/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - requests of other interfaces become those of a chat, and its faults become theirs.     room: serve */
#include <stdio.h>
#include <string.h>

#include "serve/internal.h"

bool serve_is_type(const json_t *o, const char *type)
{
    const char *s = json_string_value(json_object_get(o, "type"));

    return s != NULL && strcmp(s, type) == 0;
}

json_t *serve_member(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);

    return json_is_null(v) ? NULL : v;
}

bool serve_set(json_t *o, const char *key, json_t *v, struct serve_fault *f)
{
    return json_object_set_new(o, key, v) == 0 || serve_nomem(f);
}

/* ---- requests ---- */

/* A member that is the same in a chat, if it has no other name in this request. */
static bool keep_member(const struct serve_taking *t, const struct serve_dialect *d, const char *key, json_t *v)
{
    for (const struct serve_renamed *r = d->renamed; r->ours != NULL; r++)
        if (strcmp(key, r->ours) == 0)
            return serve_fault(t->f, 400, t->at, "%s: not a member of this request, which has %s", key, r->theirs);
    if (strcmp(key, "n") == 0 || strcmp(key, "logprobs") == 0 || strcmp(key, "top_logprobs") == 0)
        return (json_is_integer(v) && json_integer_value(v) == (*key == 'n')) || json_is_false(v) ||
               serve_refuse_at(t->f, t->at, "one answer, without log-probabilities: ask for chat/completions");
    return serve_set(t->chat, key, json_incref(v), t->f);
}

static bool take_member(struct serve_taking *t, const struct serve_dialect *d, const char *key, json_t *v)
{
    (void)serve_point_to(t->at, 0, key);
    for (const struct serve_taken *m = d->taken; m->key != NULL; m++)
        if (strcmp(key, m->key) == 0)
            return m->take == NULL || m->take(t, v);
    return keep_member(t, d, key, v);
}

json_t *serve_make_chat(enum serve_method method, const json_t *body, bool answers, bool lenient, struct serve_fault *f)
{
    const struct serve_dialect *d = serve_row(method)->dialect;
    struct serve_taking t = { .body = body, .f = f };
    const char *key;
    json_t *v;

    if (answers && d->needs != NULL && json_is_object(body) && serve_member(body, d->needs) == NULL) {
        (void)serve_point_to(t.at, 0, d->needs);
        serve_refuse_at(f, t.at, "missing");
        return NULL;
    }
    if (!serve_check_members(body, method, lenient, f))
        return NULL;
    t.chat = json_object();
    if (t.chat == NULL)
        serve_nomem(f);
    json_object_foreach ((json_t *)(uintptr_t)body, key, v)
        if (f->status != 0 || (!json_is_null(v) && !take_member(&t, d, key, v)))
            break;
    if (f->status == 0 && d->finish(&t))
        return t.chat;
    json_decref(t.chat);
    return NULL;
}

/* ---- faults ---- */

/* Where in the request that is of which the chat says `pointer`. */
static void find_place(const struct serve_dialect *d, const json_t *body, const char *pointer, char out[POINTER_BYTES])
{
    static const char function[] = "/function"; /* of a tool: the others have no object around its members */
    const char *inner = strncmp(pointer, "/tool", 5) == 0 ? strstr(pointer, function) : NULL;

    if (d->place(body, pointer, out))
        return;
    for (const struct serve_renamed *r = d->renamed; r->ours != NULL; r++) {
        const size_t n = strlen(r->from);

        if (strncmp(pointer, r->from, n) == 0 && (pointer[n] == '/' || pointer[n] == '\0')) {
            (void)snprintf(out, POINTER_BYTES, "%.60s%.400s", r->to, pointer + n);
            return;
        }
    }
    if (inner != NULL)
        (void)snprintf(out, POINTER_BYTES, "%.*s%s", (int)(inner - pointer), pointer, inner + sizeof function - 1);
    else
        (void)snprintf(out, POINTER_BYTES, "%s", pointer);
}

void serve_move_fault(const struct serve_dialect *d, const json_t *body, struct serve_fault *f)
{
    char place[POINTER_BYTES];

    find_place(d, body, f->pointer, place);
    serve_move_fault_to(f, place);
}

void serve_move_fault_to(struct serve_fault *f, const char *place)
{
    const size_t n = strlen(f->pointer);
    char rest[sizeof f->message];

    if (n > 0 && strncmp(f->message, f->pointer + 1, n - 1) == 0 && f->message[n - 1] == ':') {
        (void)snprintf(rest, sizeof rest, "%s", f->message + n - 1);
        (void)snprintf(f->message, sizeof f->message, "%s%.390s", place + 1, rest);
    }
    (void)snprintf(f->pointer, sizeof f->pointer, "%s", place);
}
