/* SPDX-License-Identifier: Apache-2.0 */
/* redact.c - takes out of a text what patterns match (journal.h).            room: journal
 *
 * PCRE2 bounds the steps at one place of a text, not those of a whole text. So a text is searched in stretches, and
 * between them it is seen how much time of the processor the line has taken. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "journal/journal.h"

enum {
    PATTERN_BYTES_MAX = 1 << 16,
    STEPS_MAX = 100000,   /* of a search at one place */
    HEAP_KIB_MAX = 16384, /* that it may take */
    STRETCH_BYTES = 256,  /* of places that are searched in one call; twice as many after one that was quick */
    QUICK_NS = 1000000,
    LINE_NS_MAX = 500000000
};

struct journal_redactor {
    size_t n;
    pcre2_code **code; /* [n] */
    char **pattern;    /* [n] */
    pcre2_match_data *data;
    pcre2_match_context *context;
    int64_t from_ns;
};

struct grown {
    char *p;
    size_t n, cap;
};

static int64_t processor_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- patterns ---- */

static enum err_code compile(struct journal_redactor *r, const char *pattern, struct err *e)
{
    PCRE2_SIZE at;
    int code;

    if (strlen(pattern) > PATTERN_BYTES_MAX)
        return err_set(e, ERR_ARG, "the pattern is longer than %d bytes", PATTERN_BYTES_MAX);
    r->code[r->n] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                  PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &code, &at, NULL);
    if (r->code[r->n] == NULL && code == PCRE2_ERROR_HEAP_FAILED)
        return err_nomem(e);
    if (r->code[r->n] == NULL) {
        unsigned char text[160] = "";

        pcre2_get_error_message(code, text, sizeof text);
        return err_set(e, ERR_ARG, "'%.80s': %s, at byte %zu", pattern, (const char *)text, (size_t)at);
    }
    r->pattern[r->n] = strdup(pattern);
    if (r->pattern[r->n++] == NULL)
        return err_nomem(e);
    if (pcre2_match(r->code[r->n - 1], (PCRE2_SPTR) "", 0, 0, 0, r->data, r->context) >= 0)
        return err_set(e, ERR_ARG, "'%.80s': matches where nothing is", pattern);
    return ERR_OK;
}

enum err_code journal_redactor_open(struct journal_redactor **out, const char *const *patterns, size_t n, struct err *e)
{
    struct journal_redactor *r = calloc(1, sizeof *r);

    if (r == NULL)
        return err_nomem(e);
    r->code = calloc(n + 1, sizeof(pcre2_code *));
    r->pattern = calloc(n + 1, sizeof(char *));
    r->data = pcre2_match_data_create(1, NULL);
    r->context = pcre2_match_context_create(NULL);
    if (r->code == NULL || r->pattern == NULL || r->data == NULL || r->context == NULL) {
        journal_redactor_close(r);
        return err_nomem(e);
    }
    pcre2_set_match_limit(r->context, STEPS_MAX);
    pcre2_set_heap_limit(r->context, HEAP_KIB_MAX);
    for (size_t i = 0; i < n; i++)
        if (compile(r, patterns[i], e)) {
            journal_redactor_close(r);
            return err_at(e, "/redact/%zu", i);
        }
    *out = r;
    return ERR_OK;
}

void journal_redactor_close(struct journal_redactor *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n; i++) {
        pcre2_code_free(r->code[i]);
        free(r->pattern[i]);
    }
    free(r->code);
    free(r->pattern);
    pcre2_match_data_free(r->data);
    pcre2_match_context_free(r->context);
    free(r);
}

void journal_redactor_begin(struct journal_redactor *r)
{
    r->from_ns = processor_ns();
}

/* ---- texts ---- */

static enum err_code add_bytes(struct grown *b, struct str s, struct err *e)
{
    if (memory_room(&b->p, &b->cap, b->n + s.n + 1, 1, e))
        return e->code;
    if (s.n > 0)
        memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    return ERR_OK;
}

/* The next match from a place on, which is between characters: *from, *to; *from SIZE_MAX: there is none. */
static enum err_code find(struct journal_redactor *r, size_t i, struct str s, size_t at, bool cut, size_t *from,
                          size_t *to, struct err *e)
{
    const uint32_t options = PCRE2_NOTEMPTY | (cut ? PCRE2_PARTIAL_HARD : 0);
    int64_t now = processor_ns(), before = now;
    size_t stretch = STRETCH_BYTES;
    int rc = PCRE2_ERROR_NOMATCH;

    for (size_t next; at <= s.n && rc == PCRE2_ERROR_NOMATCH; at = next) {
        for (next = at + stretch; next < s.n && ((unsigned char)s.p[next] & 0xC0) == 0x80;)
            next++;
        next = next < s.n ? next : s.n + 1;
        if (now - r->from_ns > LINE_NS_MAX)
            return err_set(e, ERR_LIMIT, "'%.80s': takes too long", r->pattern[i]);
        pcre2_set_offset_limit(r->context, next - 1);
        rc = pcre2_match(r->code[i], (PCRE2_SPTR)s.p, s.n, at, options | (at > 0 ? PCRE2_NO_UTF_CHECK : 0), r->data,
                         r->context);
        now = processor_ns();
        stretch = now - before < QUICK_NS ? 2 * stretch : STRETCH_BYTES;
        before = now;
    }
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(r->data);

    *from = SIZE_MAX;
    if (rc == PCRE2_ERROR_NOMATCH)
        return ERR_OK;
    if (rc == PCRE2_ERROR_NOMEMORY || rc == PCRE2_ERROR_HEAPLIMIT)
        return err_nomem(e);
    if ((rc < 0 && rc != PCRE2_ERROR_PARTIAL) || v[0] > v[1] || v[1] > s.n)
        return err_set(e, ERR_LIMIT, "'%.80s': gave up at its bound of steps", r->pattern[i]);
    *from = v[0];
    *to = rc == PCRE2_ERROR_PARTIAL ? s.n : v[1];
    return ERR_OK;
}

static enum err_code redact_one(struct journal_redactor *r, size_t i, struct str s, bool cut, struct grown *out,
                                struct err *e)
{
    size_t at = 0, from, to = 0;

    while (at < s.n) {
        if (find(r, i, s, at, cut, &from, &to, e))
            return e->code;
        if (from == SIZE_MAX)
            break;
        if (from < at || to <= at) /* by \K: before what was looked at */
            return err_set(e, ERR_LIMIT, "'%.80s': matches backwards", r->pattern[i]);
        if (add_bytes(out, (struct str){ s.p + at, from - at }, e) || add_bytes(out, STR(JOURNAL_REDACTED), e))
            return e->code;
        at = to;
    }
    return add_bytes(out, (struct str){ s.p + at, s.n - at }, e);
}

enum err_code journal_redact(struct journal_redactor *r, struct str text, bool cut, char **out, size_t *n,
                             struct err *e)
{
    struct grown now = { 0 }, next;

    if (add_bytes(&now, text, e))
        return e->code;
    for (size_t i = 0; i < r->n; i++) {
        next = (struct grown){ 0 };
        const enum err_code code = redact_one(r, i, (struct str){ now.p, now.n }, cut, &next, e);

        free(now.p);
        now = next;
        if (code != ERR_OK) {
            free(now.p);
            return code;
        }
    }
    *out = now.p;
    *n = now.n;
    return ERR_OK;
}
