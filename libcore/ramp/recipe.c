/* SPDX-License-Identifier: Apache-2.0 */
/* recipe.c - the lines of a recipe.                                                room: ramp
 *
 *     default TYPE
 *     file-type N
 *     unbiased
 *     REGEX = TYPE [if CONDITION ...]
 *     REGEX >= TYPE [if CONDITION ...]
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "quant/quant.h"
#include "ramp/internal.h"

enum {
    RULES_MAX = 100000,
    CONDITIONS_MAX = 8,
    STEPS_MAX = 1000000, /* of PCRE2 for one name */
    LINE_MAX_BYTES = 4096,
};

enum condition_kind { FIRST, FIRST_PART, MORE_BITS, MIDDLE, GQA, EXPERTS, EXPERTS_LEAST, TIED, IMATRIX, NO_IMATRIX };

struct condition {
    enum condition_kind kind;
    int64_t n;
};

/* Words of conditions; a word that ends in = takes a number. */
static const struct {
    const char *word;
    enum condition_kind kind;
} words[] = {
    { "first=1/", FIRST_PART }, { "first=", FIRST },          { "more-bits", MORE_BITS },     { "middle", MIDDLE },
    { "gqa>=", GQA },           { "experts=", EXPERTS },      { "experts>=", EXPERTS_LEAST }, { "tied", TIED },
    { "imatrix", IMATRIX },     { "no-imatrix", NO_IMATRIX },
};

struct rule {
    pcre2_code *code;
    int type, n;
    bool floor;
    struct condition v[CONDITIONS_MAX];
};

struct ramp_recipe {
    struct rule *v;
    size_t n, cap;
    int type; /* default */
    int64_t file_type;
    bool unbiased;
    char *text; /* NUL-terminated lines */
    size_t text_bytes;
    pcre2_match_data *data;
    pcre2_match_context *steps;
};

enum err_code ramp_recipe_open(struct ramp_recipe **out, struct err *e)
{
    struct ramp_recipe *r = calloc(1, sizeof *r);

    if (r == NULL)
        return err_nomem(e);
    r->type = -1;
    r->file_type = -1;
    r->text = calloc(1, 1);
    r->data = pcre2_match_data_create(1, NULL);
    r->steps = pcre2_match_context_create(NULL);
    if (r->text == NULL || r->data == NULL || r->steps == NULL) {
        ramp_recipe_close(r);
        return err_nomem(e);
    }
    pcre2_set_match_limit(r->steps, STEPS_MAX);
    *out = r;
    return ERR_OK;
}

void ramp_recipe_close(struct ramp_recipe *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n; i++)
        pcre2_code_free(r->v[i].code);
    pcre2_match_data_free(r->data);
    pcre2_match_context_free(r->steps);
    free(r->v);
    free(r->text);
    free(r);
}

const char *ramp_recipe_text(const struct ramp_recipe *r)
{
    return r->text;
}

bool ramp_recipe_empty(const struct ramp_recipe *r)
{
    return r->n == 0 && r->type < 0;
}

bool ramp_recipe_unbiased(const struct ramp_recipe *r)
{
    return r->unbiased;
}

size_t ramp_rules(const struct ramp_recipe *r)
{
    return r->n;
}

int ramp_rule_type(const struct ramp_recipe *r, size_t i)
{
    return r->v[i].type;
}

bool ramp_rule_floor(const struct ramp_recipe *r, size_t i)
{
    return r->v[i].floor;
}

int ramp_recipe_default(const struct ramp_recipe *r)
{
    return r->type;
}

int64_t ramp_recipe_file_type(const struct ramp_recipe *r)
{
    return r->file_type;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of *s, empty at the end. */
static struct str next_word(struct str *s)
{
    struct str w = { s->p, 0 };

    while (s->n > 0 && is_space(*s->p)) {
        s->p++;
        s->n--;
    }
    for (w.p = s->p; s->n > 0 && !is_space(*s->p); s->p++, s->n--)
        w.n++;
    return w;
}

/* A whole number of at most 9 digits. */
static bool read_number(struct str s, int64_t *out)
{
    int64_t v = 0;

    if (s.n == 0 || s.n > 9)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        v = 10 * v + (s.p[i] - '0');
    }
    *out = v;
    return true;
}

static enum err_code read_type(int *out, struct str word, struct err *e)
{
    int type = quant_find_name(word);

    if (word.n == 0)
        return err_set(e, ERR_FORMAT, "the type is missing");
    if (type < 0)
        return err_set(e, ERR_FORMAT, "%.*s: not a tensor type", (int)(word.n < 40 ? word.n : 40), word.p);
    if (quant_fitter(type, 0) == NULL)
        return err_set(e, ERR_FORMAT, "%s: a type that is read but not written", quant_types[type]->name);
    *out = type;
    return ERR_OK;
}

static enum err_code read_condition(struct condition *c, struct str word, struct err *e)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        char last = words[i].word[n - 1];

        if (word.n < n || memcmp(word.p, words[i].word, n) != 0)
            continue;
        c->kind = words[i].kind;
        if (last != '=' && last != '/' && word.n == n)
            return ERR_OK;
        if ((last == '=' || last == '/') && read_number((struct str){ word.p + n, word.n - n }, &c->n) && c->n > 0)
            return ERR_OK;
    }
    return err_set(e, ERR_FORMAT, "%.*s: not a condition", (int)(word.n < 40 ? word.n : 40), word.p);
}

static enum err_code compile(pcre2_code **out, struct str regex, struct err *e)
{
    int code;
    size_t at;

    if (regex.n == 0)
        return err_set(e, ERR_FORMAT, "the expression is empty");
    for (size_t i = 0; i < regex.n; i++)
        if (is_space(regex.p[i]))
            return err_set(e, ERR_FORMAT, "a space in the expression");
    *out = pcre2_compile((PCRE2_SPTR)regex.p, regex.n, PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
    if (*out == NULL && code == PCRE2_ERROR_HEAP_FAILED)
        return err_nomem(e);
    if (*out == NULL) {
        unsigned char text[160];

        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, ERR_FORMAT, "the expression, at character %zu: %s", at, (const char *)text);
    }
    return ERR_OK;
}

static enum err_code room_for_rule(struct ramp_recipe *r, struct err *e)
{
    if (r->n == RULES_MAX)
        return err_set(e, ERR_FORMAT, "more than %d rules", RULES_MAX);
    return memory_room(&r->v, &r->cap, r->n + 1, sizeof *r->v, e);
}

static enum err_code add_rule(struct ramp_recipe *r, struct str regex, bool floor, struct str rest, struct err *e)
{
    struct rule rule = { .floor = floor };
    struct str word;
    enum err_code rc = read_type(&rule.type, next_word(&rest), e);

    if (rc == ERR_OK && (word = next_word(&rest)).n > 0) {
        if (!str_is(word, "if"))
            return err_set(e, ERR_FORMAT, "%.*s: \"if\" is expected here", (int)(word.n < 40 ? word.n : 40), word.p);
        while (rc == ERR_OK && (word = next_word(&rest)).n > 0) {
            if (rule.n == CONDITIONS_MAX)
                return err_set(e, ERR_FORMAT, "more than %d conditions", CONDITIONS_MAX);
            rc = read_condition(&rule.v[rule.n++], word, e);
        }
        if (rc == ERR_OK && rule.n == 0)
            return err_set(e, ERR_FORMAT, "no condition after \"if\"");
    }
    if (rc == ERR_OK)
        rc = room_for_rule(r, e);
    if (rc == ERR_OK)
        rc = compile(&rule.code, regex, e);
    if (rc == ERR_OK)
        r->v[r->n++] = rule;
    return rc;
}

/* REGEX = TYPE or REGEX >= TYPE, without spaces around it. */
static enum err_code add_rule_line(struct ramp_recipe *r, struct str line, struct err *e)
{
    const char *eq = memchr(line.p, '=', line.n);

    if (eq == NULL)
        return err_set(e, ERR_FORMAT, "neither a rule, REGEX = TYPE or REGEX >= TYPE, nor a setting");
    struct str regex = { line.p, (size_t)(eq - line.p) };

    /* ">=" after a space; without one the sign may belong to the expression. */
    bool floor = regex.n > 1 && regex.p[regex.n - 1] == '>' && is_space(regex.p[regex.n - 2]);

    regex.n -= floor;
    while (regex.n > 0 && is_space(regex.p[regex.n - 1]))
        regex.n--;
    return add_rule(r, regex, floor, (struct str){ eq + 1, line.n - (size_t)(eq + 1 - line.p) }, e);
}

static enum err_code add_line(struct ramp_recipe *r, struct str line, struct err *e)
{
    struct str rest = line, word = next_word(&rest);

    if (str_is(word, "default")) {
        if (r->type >= 0)
            return err_set(e, ERR_FORMAT, "a second \"default\"");
        enum err_code rc = read_type(&r->type, next_word(&rest), e);

        return rc || next_word(&rest).n == 0 ? rc : err_set(e, ERR_FORMAT, "only a type may follow \"default\"");
    }
    if (str_is(word, "file-type")) {
        if (r->file_type >= 0)
            return err_set(e, ERR_FORMAT, "a second \"file-type\"");
        if (!read_number(next_word(&rest), &r->file_type) || next_word(&rest).n > 0)
            return err_set(e, ERR_FORMAT, "a number is expected after \"file-type\"");
        return ERR_OK;
    }
    if (str_is(word, "unbiased")) {
        r->unbiased = true;
        return next_word(&rest).n == 0 ? ERR_OK : err_set(e, ERR_FORMAT, "more than \"unbiased\"");
    }
    return add_rule_line(r, line, e);
}

/* UTF-8 without control characters but tabs. */
static bool is_text(struct str s)
{
    while (s.n > 0) {
        size_t n = str_utf8(s);

        if (n == 0 || ((unsigned char)*s.p < 0x20 && *s.p != '\t') || *s.p == 0x7f)
            return false;
        s.p += n;
        s.n -= n;
    }
    return true;
}

static enum err_code keep_text(struct ramp_recipe *r, struct str line, struct err *e)
{
    char *text = realloc(r->text, r->text_bytes + line.n + 2);

    if (text == NULL)
        return err_nomem(e);
    r->text = text;
    memcpy(text + r->text_bytes, line.p, line.n);
    r->text_bytes += line.n;
    text[r->text_bytes++] = '\n';
    text[r->text_bytes] = '\0';
    return ERR_OK;
}

/* Without spaces around it. */
static struct str trimmed(struct str s)
{
    while (s.n > 0 && is_space(*s.p)) {
        s.p++;
        s.n--;
    }
    while (s.n > 0 && is_space(s.p[s.n - 1]))
        s.n--;
    return s;
}

static enum err_code add_text(struct ramp_recipe *r, struct str line,
                              enum err_code (*add)(struct ramp_recipe *r, struct str line, struct err *e),
                              struct err *e)
{
    if (line.n > LINE_MAX_BYTES || !is_text(line))
        return err_set(e, ERR_FORMAT, "not a line of text");
    return add(r, line, e) ? e->code : keep_text(r, line, e);
}

enum err_code ramp_recipe_add(struct ramp_recipe *r, struct str text, const char *from, struct err *e)
{
    text = str_unmarked(text);
    for (size_t no = 1; text.n > 0; no++) {
        const char *nl = memchr(text.p, '\n', text.n);
        size_t n = nl != NULL ? (size_t)(nl - text.p) : text.n;
        struct str line = { text.p, n };
        const char *hash = memchr(line.p, '#', line.n);

        text.p += nl != NULL ? n + 1 : n;
        text.n -= nl != NULL ? n + 1 : n;
        if (hash != NULL)
            line.n = (size_t)(hash - line.p);
        line = trimmed(line);
        if (line.n == 0)
            continue;
        if (add_text(r, line, add_line, e))
            return e->code == ERR_NOMEM ? e->code : err_wrap(e, "%s:%zu", from, no);
    }
    return ERR_OK;
}

enum err_code ramp_recipe_add_rule(struct ramp_recipe *r, struct str rule, struct err *e)
{
    if (memchr(rule.p, '#', rule.n) != NULL) /* in the text of the recipe a comment would begin there */
        return err_set(e, ERR_FORMAT, "'#' in a rule");
    return add_text(r, trimmed(rule), add_rule_line, e);
}

enum err_code ramp_rule_names(const struct ramp_recipe *r, size_t i, struct str name, bool *fits, struct err *e)
{
    int rc = pcre2_match(r->v[i].code, (PCRE2_SPTR)name.p, name.n, 0, 0, r->data, r->steps);

    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return err_nomem(e);
    if (rc < 0 && rc != PCRE2_ERROR_NOMATCH)
        return err_set(e, ERR_FORMAT, "an expression takes too many steps for the name %.*s", (int)name.n, name.p);
    *fits = rc >= 0;
    return ERR_OK;
}

enum err_code ramp_rule_finds(const struct ramp_recipe *r, size_t i, const struct gguf *g, bool *found, struct err *e)
{
    *found = false;
    for (size_t k = 0; k < gguf_n_tensors(g) && !*found; k++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, k);

        if (!ramp_is_kept(t) && ramp_rule_names(r, i, t->name, found, e))
            return e->code;
    }
    return ERR_OK;
}

/* Layers that llama.cpp's mixes give more bits: the first and last eighth, and every third between. */
static bool more_bits(int64_t i, int64_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

bool ramp_rule_holds(const struct ramp_recipe *r, size_t rule, const struct ramp_model *m, int64_t i, int64_t n)
{
    bool holds = true;

    for (int k = 0; k < r->v[rule].n; k++) {
        const struct condition *c = &r->v[rule].v[k];

        switch (c->kind) {
        case FIRST:
            holds &= i < c->n;
            break;
        case FIRST_PART:
            holds &= i < n / c->n;
            break;
        case MORE_BITS:
            holds &= more_bits(i, n);
            break;
        case MIDDLE:
            holds &= i >= n / 8 && i < 7 * n / 8;
            break;
        case GQA:
            holds &= m->gqa >= c->n;
            break;
        case EXPERTS:
            holds &= m->experts == c->n;
            break;
        case EXPERTS_LEAST:
            holds &= m->experts >= c->n;
            break;
        case TIED:
            holds &= m->tied;
            break;
        case IMATRIX:
            holds &= m->importance;
            break;
        case NO_IMATRIX:
            holds &= !m->importance;
            break;
        }
    }
    return holds;
}
