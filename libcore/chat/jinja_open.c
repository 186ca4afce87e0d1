/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_open.c - a template's text to its tree.                                 room: chat */
#include <stdlib.h>
#include <string.h>
#include "chat/jinja_tree.h"

/* Newlines of all kinds become \n, and one at the end goes. */
static bool normalise(struct jinja *t, struct str s)
{
    char *p = chat_heap_take(&t->heap, s.n + 1);
    size_t n = 0;

    if (p == NULL)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        p[n++] = s.p[i] == '\r' ? '\n' : s.p[i];
        if (s.p[i] == '\r' && i + 1 < s.n && s.p[i + 1] == '\n')
            i++;
    }
    if (n > 0 && p[n - 1] == '\n')
        n--;
    t->source = (struct str){ p, n };
    return true;
}

static enum err_code parse(struct jinja *t, struct err *e)
{
    static const char *const known[SYM_KNOWN] = { "loop", "caller", "kwargs", "varargs", "self" };
    struct parse p = { .t = t, .e = e };
    size_t n;

    for (size_t i = 0, len; i < t->source.n; i += len) {
        len = (unsigned char)t->source.p[i] < 0x80 ? 1 : str_utf8((struct str){ t->source.p + i, t->source.n - i });
        if (len == 0)
            return chat_jinja_fail(t, e, (uint32_t)i, "not valid UTF-8");
    }
    for (int i = 0; i < SYM_KNOWN; i++)
        if (chat_tree_symbol(&p, str_of(known[i])) < 0)
            return e->code;
    if (chat_jinja_lex(t, &p.tok, &n, e))
        return e->code;
    t->root = chat_tree_body(&p);
    free(p.tok);
    return t->root != NULL ? ERR_OK : e->code;
}

enum err_code chat_jinja_open(struct jinja **out, struct str source, struct err *e)
{
    struct err own = { 0 };
    struct jinja *t = calloc(1, sizeof *t);
    enum err_code rc = ERR_OK;

    if (t == NULL)
        return err_nomem(e);
    if (source.n > JIN_TEMPLATE_BYTES_MAX)
        rc = err_set(&own, ERR_LIMIT, "template: longer than %d MiB", JIN_TEMPLATE_BYTES_MAX >> 20);
    t->heap.max = (size_t)JIN_HEAP_BYTES_MAX + 64 * source.n;
    if (rc == ERR_OK && !normalise(t, source))
        rc = err_nomem(&own);
    if (rc == ERR_OK)
        rc = parse(t, &own);
    if (rc) {
        chat_jinja_close(t);
        return err_copy(e, &own);
    }
    *out = t;
    return ERR_OK;
}

void chat_jinja_close(struct jinja *t)
{
    if (t == NULL)
        return;
    chat_heap_free(&t->heap);
    free(t);
}
