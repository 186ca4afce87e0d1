/* SPDX-License-Identifier: Apache-2.0 */
/* pretok.c - cutting text into words by the published regular expressions (PCRE2).  room: text
 *
 * Compiled once and shared by all threads. PCRE2's \s counts U+180E as a space and the tokenizers'
 * (Unicode White_Space) do not, so \s and \S are written out before compiling. The just-in-time
 * compiler is used where the system allows it. Matching limits are lifted: the patterns of
 * pretoks.def need no nested backtracking, and a word may be as long as the text.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <assert.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include "text/vocab.h"

#define PATTERNS_MAX 6
#define SPACES       "\\t-\\r\\x{85}\\p{Z}" /* White_Space as members of a class */

struct text_split {
    pcre2_code *code[PATTERNS_MAX];
    int n;
};

struct split_row {
    const char *id;
    const char *pattern[PATTERNS_MAX];
};
struct pretok_row {
    const char *name, *split;
    struct text_pretok flags;
};

#define SPLIT(id, ...) { #id, { __VA_ARGS__ } },
#define PRETOK(name, split, whole, bos)
static const struct split_row splits[] = {
#include "text/pretoks.def"
};
#define SPLIT(id, ...)
#define PRETOK(name, split, whole, bos) { name, #split, { whole, bos } },
static const struct pretok_row pretoks[] = {
#include "text/pretoks.def"
};

/* Pattern with \s and \S written out, malloc'ed. Classes do not nest in these patterns. */
static char *expand(const char *pattern)
{
    char *out = malloc(strlen(pattern) * (sizeof SPACES + 3) + 1);
    size_t n = 0;
    bool in_class = false;

    if (out == NULL)
        return NULL;
    for (const char *p = pattern; *p != '\0'; p++) {
        if (*p == '\\' && (p[1] == 's' || p[1] == 'S')) {
            assert(!(in_class && p[1] == 'S'));
            const char *open = in_class ? "" : p[1] == 's' ? "[" : "[^";
            for (const char *q = open; *q != '\0'; q++)
                out[n++] = *q;
            memcpy(out + n, SPACES, sizeof SPACES - 1);
            n += sizeof SPACES - 1;
            if (!in_class)
                out[n++] = ']';
            p++;
            continue;
        }
        if (*p == '\\')
            out[n++] = *p++;
        else if (*p == '[')
            in_class = true;
        else if (*p == ']')
            in_class = false;
        out[n++] = *p;
    }
    out[n] = '\0';
    return out;
}

static enum err_code compile(pcre2_code **out, const char *pattern, struct err *e)
{
    int code;
    size_t at;
    char *text = expand(pattern);

    if (text == NULL)
        return err_nomem(e);
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &code, &at, NULL);
    free(text);
    if (*out == NULL && code == PCRE2_ERROR_HEAP_FAILED)
        return err_nomem(e);
    if (*out == NULL)
        return err_set(e, ERR_UNSUPPORTED, "PCRE2 cannot compile a pre-tokenizer (error %d at %zu)", code, at);
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE); /* without it the interpreter is used */
    return ERR_OK;
}

enum err_code text_split_open(struct text_split **out, struct text_pretok *flags, struct str name, struct err *e)
{
    const struct pretok_row *row = NULL;

    for (size_t i = 0; i < sizeof pretoks / sizeof pretoks[0] && row == NULL; i++)
        if (str_is(name, pretoks[i].name))
            row = &pretoks[i];
    if (row == NULL)
        return err_set(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre: unknown pre-tokenizer \"%.*s\"", STR_ARG(name));
    struct text_split *sp = calloc(1, sizeof *sp);
    if (sp == NULL)
        return err_nomem(e);
    for (size_t i = 0; i < sizeof splits / sizeof splits[0]; i++) {
        if (strcmp(splits[i].id, row->split) != 0)
            continue;
        for (int k = 0; k < PATTERNS_MAX && splits[i].pattern[k] != NULL; k++) {
            enum err_code rc = compile(&sp->code[sp->n], splits[i].pattern[k], e);
            if (rc != ERR_OK) {
                text_split_close(sp);
                return rc;
            }
            sp->n++;
        }
    }
    assert(sp->n > 0); /* each row of PRETOK names a row of SPLIT */
    *flags = row->flags;
    *out = sp;
    return ERR_OK;
}

void text_split_close(struct text_split *s)
{
    if (s == NULL)
        return;
    for (int i = 0; i < s->n; i++)
        pcre2_code_free(s->code[i]);
    free(s);
}

struct pretok_run {
    const struct text_split *sp;
    pcre2_match_data *md[PATTERNS_MAX];
    pcre2_match_context *mc;
    text_piece_fn *fn;
    void *ctx;
    struct err *e;
};

/* The next match in s at or after `from`: 1 found, 0 none, below 0 an error. */
static int next_match(struct pretok_run *r, int level, struct str s, size_t from)
{
    int rc = pcre2_match(r->sp->code[level], (PCRE2_SPTR)s.p, s.n, from, PCRE2_NO_UTF_CHECK, r->md[level], r->mc);

    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->sp->code[level], (PCRE2_SPTR)s.p, s.n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         r->md[level], r->mc);
    return rc == PCRE2_ERROR_NOMATCH ? 0 : rc < 0 ? rc : 1;
}

static enum err_code split_at(struct pretok_run *r, int level, struct str s)
{
    size_t done = 0; /* handed on so far */

    if (level == r->sp->n)
        return r->fn(r->ctx, s);
    const size_t *span = pcre2_get_ovector_pointer(r->md[level]);
    while (done < s.n) {
        int found = next_match(r, level, s, done);
        if (found < 0)
            return err_set(r->e, found == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_LIMIT,
                           "the pre-tokenizer cannot split this text (PCRE2 error %d)", found);
        size_t begin = found > 0 ? span[0] : s.n, end = found > 0 ? span[1] : s.n;
        enum err_code rc = ERR_OK;
        assert(begin >= done && (found == 0 || end > begin)); /* no pattern matches nothing */
        if (begin > done)
            rc = split_at(r, level + 1, (struct str){ s.p + done, begin - done });
        if (rc == ERR_OK && end > begin)
            rc = split_at(r, level + 1, (struct str){ s.p + begin, end - begin });
        if (rc != ERR_OK)
            return rc;
        done = end;
    }
    return ERR_OK;
}

enum err_code text_split_run(const struct text_split *sp, struct str s, text_piece_fn *fn, void *ctx, struct err *e)
{
    struct pretok_run r = { .sp = sp, .mc = pcre2_match_context_create(NULL), .fn = fn, .ctx = ctx, .e = e };
    enum err_code rc = ERR_OK;

    if (r.mc == NULL)
        rc = err_nomem(e);
    for (int i = 0; i < sp->n && rc == ERR_OK; i++) {
        r.md[i] = pcre2_match_data_create(1, NULL);
        if (r.md[i] == NULL)
            rc = err_nomem(e);
    }
    if (rc == ERR_OK) {
        pcre2_set_match_limit(r.mc, UINT32_MAX);
        pcre2_set_depth_limit(r.mc, UINT32_MAX);
        rc = split_at(&r, 0, s);
    }
    for (int i = 0; i < sp->n; i++)
        pcre2_match_data_free(r.md[i]);
    pcre2_match_context_free(r.mc);
    return rc;
}
