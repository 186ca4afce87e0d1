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

/* Where the path goes on behind the one of a row, of n bytes, which it has to equal unless that ends with a star; NULL:
 * it is another one. */
static const char *rest_of(const char *path, size_t n_path, const char *p, size_t n)
{
    if (n > 0 && p[n - 1] == '*')
        return n_path >= n && memcmp(p, path, n - 1) == 0 ? path + n - 1 : NULL;
    return n_path == n && memcmp(p, path, n) == 0 ? path + n : NULL;
}

bool serve_method_at(enum serve_method *out, const char *path, struct str *rest)
{
    const size_t n = strlen(path) - (strlen(path) > 1 && path[strlen(path) - 1] == '/'); /* a slash at the end */

    for (int i = 0; i < SERVE_N_METHODS; i++)
        for (const char *p = rows[i].paths; p != NULL && *p != '\0'; p += strcspn(p, " "), p += *p == ' ') {
            const char *from = rest_of(path, n, p, strcspn(p, " "));

            if (from != NULL) {
                *out = (enum serve_method)i;
                *rest = (struct str){ from, n - (size_t)(from - path) };
                return true;
            }
        }
    return false;
}

void serve_name_methods(char *out, size_t room, bool engine, const char *before)
{
    size_t used = 0;

    for (int i = 0; i < SERVE_N_METHODS && used < room; i++)
        if (!engine || (rows[i].answer == NULL && !rows[i].streams))
            used += (size_t)snprintf(out + used, room - used, "%s%s%s", used > 0 ? ", " : "", before, rows[i].name);
}

const char *serve_user(enum serve_method m, const json_t *body)
{
    const json_t *of = rows[m].anthropic ? json_object_get(body, "metadata") : body;

    return json_string_value(json_object_get(of, rows[m].anthropic ? "user_id" : "user"));
}
