/* SPDX-License-Identifier: Apache-2.0 */
/* route.c - files of routes (route.h).                                      room: reason */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "reason/route.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum {
    EXPRESSION_MAX = 4096, /* bytes */
    EXPRESSIONS_MAX = 10000,
    STEPS_MAX = 1000000, /* of PCRE2 for one expression at one place of a text */
    EFFORT_LEAST = 10000000,
    EFFORT_OF_BYTE = 100, /* for all places of a text: EFFORT_LEAST, and this for each of its bytes */
    HEAP_MAX_KIB = 64 << 10,
};

enum kind { WORD, PATTERN, FILE_TYPE };

struct expression {
    pcre2_code *code;
    int class;
    enum kind kind;
};

struct reason_routes {
    json_t *file;
    const char *name[REASON_CLASSES_MAX], *about[REASON_CLASSES_MAX], *fallback;
    int n;
    double threshold;
    struct expression *v;
    size_t n_v, cap;
    pcre2_match_data *data;
    pcre2_match_context *steps;
};

static enum err_code compile(pcre2_code **out, struct str s, uint32_t more, struct err *e)
{
    unsigned char text[160];
    size_t at;
    int code;

    *out = pcre2_compile((PCRE2_SPTR)s.p, s.n,
                         PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C |
                             PCRE2_AUTO_CALLOUT | more,
                         &code, &at, NULL);
    if (*out != NULL)
        return ERR_OK;
    if (code == PCRE2_ERROR_HEAP_FAILED)
        return err_nomem(e);
    pcre2_get_error_message(code, text, sizeof text);
    return err_set(e, ERR_FORMAT, "the expression, at character %zu: %s", at, (const char *)text);
}

/* What is compiled of a word: it stands alone. Of a file type: a name that ends in it. */
static enum err_code wrap(pcre2_code **out, struct str s, enum kind kind, struct err *e)
{
    static const struct {
        const char *before, *after;
    } around[] = { { "(?<!\\w)(?:", ")(?!\\w)" }, { "", "" }, { "\\w\\.(?:", ")(?!\\w)" } };
    const uint32_t any_case = kind == PATTERN ? 0 : PCRE2_CASELESS;
    const size_t n = s.n + 64;
    char *all = malloc(n);
    enum err_code code;

    if (all == NULL)
        return err_nomem(e);
    (void)snprintf(all, n, "%s%.*s%s", around[kind].before, (int)s.n, s.p, around[kind].after);
    code = compile(out, str_of(all), any_case, e);
    free(all);
    return code;
}

static enum err_code add_expression(struct reason_routes *r, const json_t *v, int class, enum kind kind, struct err *e)
{
    const struct str s = json_text(v);
    struct expression x = { .class = class, .kind = kind };

    if (!json_is_string(v) || s.n == 0 || s.n > EXPRESSION_MAX || memchr(s.p, '\0', s.n) != NULL)
        return err_set(e, ERR_FORMAT, "is not a text of 1 to %d bytes", EXPRESSION_MAX);
    if (kind == FILE_TYPE && !json_is_name(s))
        return err_set(e, ERR_FORMAT, "is no file type, as \"py\"");
    if (r->n_v == EXPRESSIONS_MAX)
        return err_set(e, ERR_FORMAT, "more than %d expressions", EXPRESSIONS_MAX);
    if (compile(&x.code, s, 0, e)) /* alone: what is put around a word must not close its brackets */
        return e->code;
    pcre2_code_free(x.code);
    if (wrap(&x.code, s, kind, e))
        return e->code;
    if (memory_room(&r->v, &r->cap, r->n_v + 1, sizeof *r->v, e)) {
        pcre2_code_free(x.code);
        return e->code;
    }
    r->v[r->n_v++] = x;
    return ERR_OK;
}

static enum err_code add_list(struct reason_routes *r, const json_t *list, int class, enum kind kind, const char *key,
                              struct err *e)
{
    const json_t *one;
    size_t i;

    if (list == NULL)
        return ERR_OK;
    if (!json_is_array(list)) {
        err_set(e, ERR_FORMAT, "is not an array");
        return err_at(e, "/%s", key);
    }
    json_array_foreach (list, i, one)
        if (add_expression(r, one, class, kind, e))
            return err_at(e, "/%s/%zu", key, i);
    return ERR_OK;
}

static enum err_code add_class(struct reason_routes *r, const json_t *o, struct err *e)
{
    const json_t *about = json_object_get(o, "about");
    struct str name = { 0 };
    const int i = r->n;

    if (json_check_members(o, " name about words patterns files ", e))
        return e->code;
    if (!json_get_str(o, "name", &name) || !json_is_name(name))
        return json_member_fault(e, "name", "is no name of letters, digits, - and _");
    for (int k = 0; k < i; k++)
        if (str_is(name, r->name[k]))
            return json_member_fault(e, "name", "another class has it");
    if (about != NULL && (!json_is_string(about) || strlen(json_string_value(about)) != json_text(about).n))
        return json_member_fault(e, "about", "is no text");
    r->name[r->n] = name.p;
    r->about[r->n++] = about != NULL ? json_string_value(about) : "";
    return add_list(r, json_object_get(o, "words"), i, WORD, "words", e) ||
                   add_list(r, json_object_get(o, "patterns"), i, PATTERN, "patterns", e) ||
                   add_list(r, json_object_get(o, "files"), i, FILE_TYPE, "files", e)
               ? e->code
               : ERR_OK;
}

static enum err_code read_routes(struct reason_routes *r, struct err *e)
{
    const json_t *threshold = json_object_get(r->file, "threshold"), *classes = json_object_get(r->file, "classes"),
                 *one;
    struct str fallback = { 0 };
    size_t i;

    if (json_check_members(r->file, " default threshold classes ", e))
        return e->code;
    if (!json_get_str(r->file, "default", &fallback) || !json_is_name(fallback))
        return json_member_fault(e, "default", "is no name of letters, digits, - and _");
    r->fallback = fallback.p;
    r->threshold = threshold != NULL ? json_number_value(threshold) : 0.5;
    if (threshold != NULL && (!json_is_number(threshold) || !(r->threshold >= 0 && r->threshold <= 1)))
        return json_member_fault(e, "threshold", "is no number of 0 .. 1");
    if (!json_is_array(classes) || json_array_size(classes) == 0 || json_array_size(classes) > REASON_CLASSES_MAX)
        return json_member_fault(e, "classes", "is no array of 1 to 64 classes");
    json_array_foreach (classes, i, one)
        if (add_class(r, one, e))
            return err_at(e, "/classes/%zu", i);
    return ERR_OK;
}

enum err_code reason_routes_open(struct reason_routes **out, json_t *v, struct err *e)
{
    struct reason_routes *r = calloc(1, sizeof *r);
    enum err_code code;

    if (r == NULL)
        return err_nomem(e);
    r->file = json_incref(v);
    r->data = pcre2_match_data_create(1, NULL);
    r->steps = pcre2_match_context_create(NULL);
    code = r->data != NULL && r->steps != NULL ? read_routes(r, e) : err_nomem(e);
    if (code) {
        reason_routes_close(r);
        return code;
    }
    pcre2_set_match_limit(r->steps, STEPS_MAX);
    pcre2_set_heap_limit(r->steps, HEAP_MAX_KIB);
    *out = r;
    return ERR_OK;
}

void reason_routes_close(struct reason_routes *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n_v; i++)
        pcre2_code_free(r->v[i].code);
    free(r->v);
    pcre2_match_data_free(r->data);
    pcre2_match_context_free(r->steps);
    json_decref(r->file);
    free(r);
}

json_t *reason_routes_file(const struct reason_routes *r)
{
    return r->file;
}

int reason_routes_n(const struct reason_routes *r)
{
    return r->n;
}

const char *reason_route_name(const struct reason_routes *r, int i)
{
    return r->name[i];
}

const char *reason_route_about(const struct reason_routes *r, int i)
{
    return r->about[i];
}

const char *reason_routes_default(const struct reason_routes *r)
{
    return r->fallback;
}

double reason_routes_threshold(const struct reason_routes *r)
{
    return r->threshold;
}

struct effort {
    size_t at, done, most;
};

/* Called before each item of an expression. PCRE2 has a limit for each place alone, and takes a repeated character as
 * one step: "\s*x" would read a text of blanks once for each of them. */
static int spend(pcre2_callout_block *b, void *user)
{
    struct effort *f = user;
    const size_t at = b->current_position;

    f->done += 1 + (at > f->at ? at - f->at : f->at - at);
    f->at = at;
    return f->done > f->most ? PCRE2_ERROR_MATCHLIMIT : 0;
}

static enum err_code find(const struct reason_routes *r, struct str text, bool files, uint64_t *classes, struct err *e)
{
    uint64_t found = 0;

    for (size_t i = 0; i < r->n_v; i++) {
        const struct expression *x = &r->v[i];
        struct effort f = { .most = EFFORT_LEAST + EFFORT_OF_BYTE * text.n };
        int rc;

        if ((x->kind == FILE_TYPE) != files || (found >> x->class & 1) != 0)
            continue;
        pcre2_set_callout(r->steps, spend, &f);
        rc = pcre2_match(x->code, (PCRE2_SPTR)text.p, text.n, 0, 0, r->data, r->steps);
        if (rc == PCRE2_ERROR_NOMEMORY)
            return err_nomem(e);
        found |= (uint64_t)(rc >= 0) << x->class;
    }
    *classes = found;
    return ERR_OK;
}

enum err_code reason_route_text(const struct reason_routes *r, struct str text, uint64_t *classes, struct err *e)
{
    return find(r, text, false, classes, e);
}

enum err_code reason_route_files(const struct reason_routes *r, struct str text, uint64_t *classes, struct err *e)
{
    return find(r, text, true, classes, e);
}

/* The one class of a set; -1: it has none, or several. */
static int only_one(uint64_t classes)
{
    int i = 0;

    if (classes == 0 || (classes & (classes - 1)) != 0)
        return -1;
    while ((classes >> i & 1) == 0)
        i++;
    return i;
}

enum err_code reason_route_find(const struct reason_routes *r, struct str text, struct str files,
                                struct reason_route_found *out, struct err *e)
{
    uint64_t by_text, by_name, by_file;

    if (reason_route_text(r, text, &by_text, e) || reason_route_files(r, text, &by_file, e) ||
        reason_route_files(r, files, &by_name, e))
        return e->code;
    by_file |= by_name;
    out->by_file = false;
    out->open = by_text != 0 ? by_text : by_file != 0 ? by_file : r->n < 64 ? ((uint64_t)1 << r->n) - 1 : UINT64_MAX;
    out->class = only_one(by_text);
    if (out->class >= 0)
        return ERR_OK;
    out->by_file = true;
    out->class = only_one(by_text != 0 ? by_text & by_file : by_file);
    return ERR_OK;
}
