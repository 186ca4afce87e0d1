/* SPDX-License-Identifier: Apache-2.0 */
/* learnt.c - what is known of costs and guesses, as JSON for another process. */
#include <string.h>

#include "base/json.h"
#include "draft/internal.h"

/* ---- writing ---- */

static json_t *numbers(const double *v, int n)
{
    json_t *list = json_array();

    for (int i = 0; i < n; i++)
        json_push(&list, json_real(v[i]));
    return list;
}

static json_t *type_json(const struct draft_learnt_type *t, const char *name)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:i, s:i}", "name", json_bytes(str_of(name)), "call",
                     numbers(t->call, GEN_DRAFT_MAX + 1), "kept", numbers(t->kept, GEN_DRAFT_MAX), "sure",
                     numbers(t->sure, GEN_DRAFT_MAX), "tries", t->tries, "pause", t->pause);
}

json_t *draft_learnt_json(const struct draft_learnt *l, const char *const *names, int n)
{
    json_t *types = json_array();

    for (int i = 0; i < n; i++)
        json_push(&types, type_json(&l->type[i], names[i]));
    return json_pack("{s:o, s:f, s:o}", "row", numbers(l->row, GEN_COSTS), "budget", l->budget, "drafters", types);
}

/* ---- reading ---- */

static bool read_numbers(double *v, int n, const json_t *list)
{
    bool good = json_is_array(list) && json_array_size(list) == (size_t)n;

    for (int i = 0; i < n && good; i++) {
        good = json_is_number(json_array_get(list, (size_t)i));
        v[i] = json_number_value(json_array_get(list, (size_t)i));
    }
    return good;
}

static bool read_int(int *v, const json_t *o)
{
    const json_int_t i = json_integer_value(o);

    *v = (int)i;
    return json_is_integer(o) && i >= 0 && i <= 1 << 20;
}

static bool read_type(struct draft_learnt_type *t, const json_t *o, const char *name)
{
    struct str its;

    return json_get_str(o, "name", &its) && str_is(its, name) &&
           read_numbers(t->call, GEN_DRAFT_MAX + 1, json_object_get(o, "call")) &&
           read_numbers(t->kept, GEN_DRAFT_MAX, json_object_get(o, "kept")) &&
           read_numbers(t->sure, GEN_DRAFT_MAX, json_object_get(o, "sure")) &&
           read_int(&t->tries, json_object_get(o, "tries")) && read_int(&t->pause, json_object_get(o, "pause"));
}

bool draft_learnt_read(struct draft_learnt *out, const json_t *o, const char *const *names, int n)
{
    const json_t *types = json_object_get(o, "drafters");
    bool good = json_is_array(types) && json_array_size(types) == (size_t)n &&
                read_numbers(out->row, GEN_COSTS, json_object_get(o, "row")) &&
                json_is_number(json_object_get(o, "budget"));

    out->budget = json_number_value(json_object_get(o, "budget"));
    for (int i = 0; i < n && good; i++)
        good = read_type(&out->type[i], json_array_get(types, (size_t)i), names[i]);
    return good;
}
