/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - paths into results, and templates: "Write {{plan}} for {{input}}".   room: pipeline */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "pipeline/internal.h"

enum { CHOICES_MAX = 8 };

/* Text, and behind it the first of the choices that is there. */
struct piece {
    struct str text;
    struct pipeline_path path[CHOICES_MAX];
    struct str literal; /* p NULL: none; the last choice */
    int n_path;
};
struct pipeline_text {
    const struct piece *v;
    size_t n;
};

static bool is_part(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

enum err_code pipeline_path_read(struct pipeline_path *out, struct str s, size_t *at,
                                 const struct pipeline_scope *scope, struct err *e)
{
    struct pipeline_path p = { .n = 0 };
    size_t i = *at;

    do {
        const size_t from = i += p.n > 0;

        while (i < s.n && is_part(s.p[i]))
            i++;
        if (i == from)
            return err_set(e, ERR_FORMAT, "at byte %zu a name was expected, as in step.json.member", from);
        if (p.n == PATH_PARTS_MAX)
            return err_set(e, ERR_FORMAT, "a path of more than %d parts", PATH_PARTS_MAX);
        p.part[p.n++] = (struct str){ s.p + from, i - from };
    } while (i < s.n && s.p[i] == '.');
    if (!str_is(p.part[0], "input") && scope->check(scope->of, p.part[0], e))
        return e->code;
    *at = i;
    *out = p;
    return ERR_OK;
}

const json_t *pipeline_path_find(const struct pipeline_path *p, const json_t *state)
{
    const json_t *v = state;

    for (int i = 0; i < p->n && v != NULL; i++) {
        const struct str part = p->part[i];
        size_t index = 0, k = 0;

        if (!json_is_array(v)) {
            v = json_object_getn(v, part.p, part.n);
            continue;
        }
        while (k < part.n && k < 9 && part.p[k] >= '0' && part.p[k] <= '9')
            index = 10 * index + (size_t)(part.p[k++] - '0');
        v = k == part.n ? json_array_get(v, index) : NULL;
    }
    return p->n == 1 ? json_object_get(v, "text") : v;
}

bool pipeline_quoted(struct str *out, struct str s, size_t *at)
{
    const char quote = *at < s.n ? s.p[*at] : '\0';
    const char *end;

    if (quote != '\'' && quote != '"')
        return false;
    end = memchr(s.p + *at + 1, quote, s.n - *at - 1);
    if (end == NULL)
        return false;
    *out = (struct str){ s.p + *at + 1, (size_t)(end - s.p) - *at - 1 };
    *at = (size_t)(end - s.p) + 1;
    return true;
}

static void skip_blanks(struct str s, size_t *at)
{
    while (*at < s.n && (s.p[*at] == ' ' || s.p[*at] == '\n' || s.p[*at] == '\t'))
        ++*at;
}

/* "a.json.b | c | 'none'}}" */
static enum err_code read_choices(struct piece *p, struct str s, size_t *at, const struct pipeline_scope *scope,
                                  struct err *e)
{
    for (;; ++*at) {
        skip_blanks(s, at);
        if (pipeline_quoted(&p->literal, s, at)) {
            skip_blanks(s, at);
            break;
        }
        if (p->n_path == CHOICES_MAX)
            return err_set(e, ERR_FORMAT, "more than %d names between {{ and }}", CHOICES_MAX);
        if (pipeline_path_read(&p->path[p->n_path], s, at, scope, e))
            return e->code;
        p->n_path++;
        skip_blanks(s, at);
        if (*at >= s.n || s.p[*at] != '|')
            break;
    }
    if (str_find(s, *at, STR("}}")) != *at)
        return err_set(e, ERR_FORMAT, "{{ is not closed by }} at byte %zu", *at);
    *at += 2;
    return ERR_OK;
}

static size_t count_pieces(struct str s)
{
    size_t n = 1;

    for (size_t at = 0; (at = str_find(s, at, STR("{{"))) != SIZE_MAX; at += 2)
        n++;
    return n;
}

enum err_code pipeline_text_make(const struct pipeline_text **out, struct arena *a, struct str s,
                                 const struct pipeline_scope *scope, struct err *e)
{
    const size_t most = count_pieces(s);
    struct pipeline_text *t = arena_alloc(a, sizeof *t);
    struct piece *v;
    size_t at = 0;

    if (s.n > PIPELINE_TEXT_MAX)
        return err_set(e, ERR_FORMAT, "a text of more than %d bytes", PIPELINE_TEXT_MAX);
    if (most > PIPELINE_RUNS_MAX)
        return err_set(e, ERR_FORMAT, "more than %d places with {{", PIPELINE_RUNS_MAX);
    v = arena_array(a, most, sizeof *v);
    if (t == NULL || v == NULL)
        return err_nomem(e);
    for (;;) {
        const size_t next = str_find(s, at, STR("{{"));
        const size_t end = next != SIZE_MAX ? next : s.n;

        v[t->n].text = (struct str){ s.p + at, end - at };
        if (next == SIZE_MAX)
            break;
        at = next + 2;
        if (read_choices(&v[t->n++], s, &at, scope, e))
            return e->code;
    }
    t->n++;
    t->v = v;
    *out = t;
    return ERR_OK;
}

/* ---- filling in ---- */

struct made {
    char *p;
    size_t n, cap;
};

static enum err_code add(struct made *m, struct str s, struct err *e)
{
    if (s.n > PIPELINE_MADE_MAX - m->n)
        return err_set(e, ERR_LIMIT, "a text of more than %d bytes", PIPELINE_MADE_MAX);
    if (memory_room(&m->p, &m->cap, m->n + s.n + 1, 1, e))
        return e->code;
    if (s.n > 0)
        memcpy(m->p + m->n, s.p, s.n);
    m->n += s.n;
    m->p[m->n] = '\0';
    return ERR_OK;
}

/* A text as it is, another value as JSON. */
static enum err_code add_value(struct made *m, const json_t *v, struct err *e)
{
    char *text;
    enum err_code code;

    if (json_is_string(v))
        return add(m, json_text(v), e);
    text = json_dump(v, JSON_ENCODE_ANY);
    if (text == NULL)
        return err_nomem(e);
    code = add(m, str_of(text), e);
    free(text);
    return code;
}

static enum err_code add_piece(struct made *m, const struct piece *p, const json_t *state, struct err *e)
{
    if (add(m, p->text, e))
        return e->code;
    for (int i = 0; i < p->n_path; i++) {
        const json_t *v = pipeline_path_find(&p->path[i], state);

        if (v != NULL && !json_is_null(v))
            return add_value(m, v, e);
    }
    return add(m, p->literal, e);
}

enum err_code pipeline_fill(char **out, size_t *n, const struct pipeline_text *t, const json_t *state, struct err *e)
{
    struct made m = { 0 };

    for (size_t i = 0; i < t->n; i++)
        if (add_piece(&m, &t->v[i], state, e)) {
            free(m.p);
            return e->code;
        }
    *out = m.p;
    *n = m.n;
    return ERR_OK;
}

enum err_code pipeline_set_text(json_t *result, struct str text, struct err *e)
{
    json_t *v = NULL;
    struct err none;

    while (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    if (json_parse(&v, text, "", &none) == ERR_NOMEM)
        return err_nomem(e);
    if (json_object_set_new(result, "text", json_bytes(text)) != 0 ||
        json_object_set_new(result, "json", v != NULL ? v : json_null()) != 0)
        return err_nomem(e);
    return ERR_OK;
}
