/* SPDX-License-Identifier: Apache-2.0 */
/* buf.c - growing bytes, and arrays of token ids.                          room: cmd */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "cli/cli.h"
#include "text/text.h"

enum err_code cli_buf_add(struct cli_buf *b, struct str s, struct err *e)
{
    if (s.n > SIZE_MAX / 4 - b->n)
        return err_nomem(e);
    if (memory_room(&b->p, &b->cap, b->n + s.n + 1, 1, e))
        return e->code;
    if (s.n > 0)
        memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    b->p[b->n] = '\0';
    return ERR_OK;
}

void cli_buf_free(struct cli_buf *b)
{
    free(b->p);
    *b = (struct cli_buf){ 0 };
}

enum err_code cli_read_ids(struct text_tokens *out, struct str json, const char *what, struct err *e)
{
    struct text_tokens ids = { 0 };
    json_t *a, *item;
    size_t i;

    if (json_parse(&a, json, what, e))
        return e->code;
    if (!json_is_array(a)) {
        json_decref(a);
        return err_set(e, ERR_FORMAT, "%s: not a JSON array of token ids", what);
    }
    json_array_foreach (a, i, item) {
        json_int_t v = json_is_integer(item) ? json_integer_value(item) : -1;

        if (v < 0 || v > INT32_MAX)
            err_set(e, ERR_FORMAT, "%s: item %zu of the array is not a token id", what, i);
        else if (text_tokens_push(&ids, (int32_t)v, e) == ERR_OK)
            continue;
        text_tokens_free(&ids);
        json_decref(a);
        return e->code;
    }
    json_decref(a);
    *out = ids;
    return ERR_OK;
}

enum err_code cli_size(int64_t *out, const char *s, const char *option, struct err *e)
{
    char *end;
    double v = strtod(s, &end);
    int shift = *end == 'k' || *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : *end == 'T' ? 40 : 0;

    if (shift > 0)
        end++;
    v = ldexp(v, shift);
    if (end == s || *end != '\0' || !(v >= 1 && v < 0x1p62))
        return err_set(e, ERR_ARG, "--%s %s: not a size such as 512M or 16G", option, s);
    *out = (int64_t)v;
    return ERR_OK;
}

enum err_code cli_list_strings(struct str **out, const struct cli_list *l, struct err *e)
{
    struct str *v = calloc(l->n + 1, sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < l->n; i++)
        v[i] = str_of(l->v[i]);
    *out = v;
    return ERR_OK;
}
