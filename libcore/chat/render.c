/* SPDX-License-Identifier: Apache-2.0 */
/* render.c - a template with variables, without a model.                        room: chat */
#include <stdlib.h>
#include <string.h>
#include "chat/chat.h"
#include "chat/jinja.h"

/* The variables of an object, read into the rendering. A conversation is one that has "messages":
 * published templates change lists, which is allowed there alone. */
static bool set_variables(struct jin *j, const struct vdict *d)
{
    for (size_t i = 0; i < d->n; i++) {
        struct str key = chat_str(&d->v[i].key);
        for (int k = 0; k < j->t->n_sym; k++)
            if (str_eq(j->t->sym[k], key)) {
                j->root[k] = d->v[i].v;
                j->root_set[k] = true;
            }
        if (str_is(key, "messages") && d->v[i].v.kind == VAL_LIST) {
            j->messages = d->v[i].v;
            j->lists_change = true;
        }
    }
    return true;
}

enum err_code chat_template_render(struct str template_text, struct str vars, int64_t now_s, char **out, size_t *n,
                                   struct err *e)
{
    struct jinja *t = NULL;
    struct jin j;
    struct sbuf b = { 0 };
    struct val all;
    struct err own = { 0 };
    enum err_code rc = chat_jinja_open(&t, template_text, &own);
    char *text = NULL;

    if (rc == ERR_OK)
        rc = chat_jin_open(&j, t, vars.n, &own);
    if (rc == ERR_OK) {
        j.now_s = now_s;
        bool ok = chat_json_read(&j, vars, "variables", &all);
        if (ok && all.kind != VAL_DICT)
            err_set(&own, ERR_FORMAT, "variables: not an object");
        if (ok && own.code == ERR_OK && set_variables(&j, all.u.d) && chat_jin_run(&j, &b) &&
            (text = malloc(b.n + 1)) == NULL)
            err_nomem(&own);
        if (text != NULL) {
            if (b.n > 0)
                memcpy(text, b.p, b.n);
            text[b.n] = '\0';
            *out = text;
            *n = b.n;
        }
        rc = own.code;
        chat_jin_close(&j);
    }
    chat_jinja_close(t);
    return rc == ERR_OK ? ERR_OK : err_copy(e, &own);
}
