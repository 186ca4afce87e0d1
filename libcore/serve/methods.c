/* SPDX-License-Identifier: Apache-2.0 */
/* methods.c - the table of methods (methods.def), and how one is found.      room: serve */
#include <stdio.h>
#include <string.h>

#include "serve/internal.h"

static const struct serve_row rows[SERVE_N_METHODS] = {
#define METHOD(id, ...) { __VA_ARGS__ },
#include "serve/methods.def"
#undef METHOD
};

const struct serve_row *serve_row(enum serve_method m)
{
    return &rows[m];
}

bool serve_method(enum serve_method *out, struct str name)
{
    if (name.n > 4 && memcmp(name.p, "/v1/", 4) == 0)
        name = (struct str){ name.p + 4, name.n - 4 };
    else if (name.n > 1 && name.p[0] == '/')
        name = (struct str){ name.p + 1, name.n - 1 };
    for (int i = 0; i < SERVE_N_METHODS; i++)
        if (str_is(name, rows[i].name) || (rows[i].other != NULL && str_is(name, rows[i].other))) {
            *out = (enum serve_method)i;
            return true;
        }
    return false;
}

bool serve_method_at(enum serve_method *out, const char *path)
{
    const size_t n = strlen(path);

    for (int i = 0; i < SERVE_N_METHODS; i++)
        for (const char *p = rows[i].paths; p != NULL && *p != '\0'; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && memcmp(p, path, n) == 0) {
                *out = (enum serve_method)i;
                return true;
            }
    return false;
}

void serve_name_methods(char *out, size_t room, bool engine, const char *before)
{
    size_t used = 0;

    for (int i = 0; i < SERVE_N_METHODS && used < room; i++)
        if (!engine || rows[i].answer == NULL)
            used += (size_t)snprintf(out + used, room - used, "%s%s%s", used > 0 ? ", " : "", before, rows[i].name);
}

const char *serve_user(enum serve_method m, const json_t *body)
{
    const json_t *of = rows[m].anthropic ? json_object_get(body, "metadata") : body;

    return json_string_value(json_object_get(of, rows[m].anthropic ? "user_id" : "user"));
}
