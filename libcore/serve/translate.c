/* SPDX-License-Identifier: Apache-2.0 */
/* translate.c - what interfaces have in common whose requests become those of a chat.       room: serve */
#include <stdio.h>
#include <string.h>

#include "serve/internal.h"

bool serve_refuse_at(struct serve_fault *f, const char *pointer, const char *what)
{
    return serve_fault(f, 400, pointer, "%s: %s", pointer + 1, what);
}

bool serve_is_type(const json_t *o, const char *type)
{
    const char *s = json_string_value(json_object_get(o, "type"));

    return s != NULL && strcmp(s, type) == 0;
}

bool serve_keep_member(json_t *chat, const struct serve_renamed *names, size_t n_names, const char *key, json_t *v,
                       struct serve_fault *f)
{
    char pointer[POINTER_BYTES];

    (void)serve_point_to(pointer, 0, key);
    for (size_t i = 0; i < n_names; i++)
        if (strcmp(key, names[i].ours) == 0)
            return serve_fault(f, 400, pointer, "%s: not a member of this request, which has %s", key, names[i].theirs);
    if (strcmp(key, "n") == 0 || strcmp(key, "logprobs") == 0 || strcmp(key, "top_logprobs") == 0)
        return (json_is_integer(v) && json_integer_value(v) == (*key == 'n')) || json_is_false(v) ||
               serve_refuse_at(f, pointer, "one answer, without log-probabilities: ask for chat/completions");
    return json_object_set(chat, key, v) == 0 || serve_nomem(f);
}

const char *serve_renamed_place(const struct serve_renamed *names, size_t n_names, const char *pointer,
                                const char **rest)
{
    for (size_t i = 0; i < n_names; i++) {
        const size_t n = strlen(names[i].from);

        if (strncmp(pointer, names[i].from, n) == 0 && (pointer[n] == '/' || pointer[n] == '\0')) {
            *rest = pointer + n;
            return names[i].to;
        }
    }
    return NULL;
}

void serve_move_fault(struct serve_fault *f, const char *place)
{
    const size_t n = strlen(f->pointer);
    char rest[sizeof f->message];

    if (n > 0 && strncmp(f->message, f->pointer + 1, n - 1) == 0 && f->message[n - 1] == ':') {
        (void)snprintf(rest, sizeof rest, "%s", f->message + n - 1);
        (void)snprintf(f->message, sizeof f->message, "%s%.390s", place + 1, rest);
    }
    (void)snprintf(f->pointer, sizeof f->pointer, "%s", place);
}
