/* SPDX-License-Identifier: Apache-2.0 */
/* keys.c - the keys of a server (keys.h).                                    room: cmd */
#include "serve-stdio/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/io.h"

enum { BYTES_MAX = 1 << 20 };

struct cli_keys {
    char *p; /* the file */
    size_t n;
};

void cli_keys_free(struct cli_keys *k)
{
    if (k != NULL)
        free(k->p);
    free(k);
}

enum err_code cli_keys_read(struct cli_keys **keys, const char *path, bool again, struct err *e)
{
    struct cli_keys *k = calloc(1, sizeof *k);
    size_t line = 1, odd = 0;
    bool any = false;

    if (k == NULL)
        return err_nomem(e);
    if (again ? io_read_regular(&k->p, &k->n, path, BYTES_MAX, e)
              : io_read_all(&k->p, &k->n, path, BYTES_MAX, cli_interrupted, e)) {
        free(k);
        return e->code;
    }
    io_unmark(k->p, &k->n);
    for (size_t i = 0; i < k->n; i++) {
        const bool end = k->p[i] == '\n' || (k->p[i] == '\r' && (i + 1 == k->n || k->p[i + 1] == '\n'));

        line += k->p[i] == '\n';
        odd = odd == 0 && !end && (k->p[i] <= ' ' || k->p[i] > '~') ? line : odd;
        any = any || !end;
    }
    if (!any || odd > 0) {
        cli_keys_free(k);
        return !any ? err_set(e, ERR_FORMAT, "%s: has no key", path)
                    : err_set(e, ERR_FORMAT,
                              "%s: line %zu: a key has letters, digits and signs of ASCII, and no spaces", path, odd);
    }
    cli_keys_free(*keys);
    *keys = k;
    return ERR_OK;
}

/* Takes the same time wherever the two differ. */
static bool same_key(struct str key, const char *given, size_t n)
{
    size_t differ = key.n ^ n;

    for (size_t i = 0; i < key.n; i++)
        differ |= (unsigned char)key.p[i] ^ (unsigned char)given[i < n ? i : n];
    return differ == 0;
}

bool cli_keys_have(const struct cli_keys *k, const char *key)
{
    bool found = false;

    for (size_t at = 0, n; at < k->n; at += n + 1) {
        const char *end = memchr(k->p + at, '\n', k->n - at);

        n = end != NULL ? (size_t)(end - k->p) - at : k->n - at;
        const struct str one = { k->p + at, n > 0 && k->p[at + n - 1] == '\r' ? n - 1 : n };
        const bool equal = same_key(one, key, strlen(key));

        found = found || (one.n > 0 && equal);
    }
    return found;
}
