/* SPDX-License-Identifier: Apache-2.0 */
/* nfa.c - the builder: states, edges, rules; characters as bytes.               room: grammar
 *
 * Ranges of code points become few edges over bytes by cutting a range where its digits change:
 * UTF-8 is digits of base 64 behind a first byte, \uXXXX in JSON is four digits of base 16, a
 * surrogate pair six digits of 2, 4, 4, 2, 4 and 4 bits.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "grammar/internal.h"

void grammar_build_free(struct grammar_build *b)
{
    for (uint32_t i = 0; i < b->n_rule; i++)
        grammar_dfa_free(b->rule[i].dfa);
    free(b->rule);
    free(b->edge);
    free(b->first);
    free(b->flag);
    free(b->stamp);
    b->stamp = NULL;
    b->cap_stamp = 0;
    b->rule = NULL;
    b->edge = NULL;
    b->first = NULL;
    b->flag = NULL;
    b->n_rule = b->n_edge = b->n_state = b->cap_rule = b->cap_edge = b->cap_state = 0;
}

bool grammar_fail(struct grammar_build *b, enum err_code code, const char *fmt, ...)
{
    char text[400];
    va_list args;

    if (b->code != ERR_OK)
        return false;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    b->code = err_set(b->e, code, "%s", text);
    return true;
}

void grammar_nomem(struct grammar_build *b)
{
    if (b->code == ERR_OK)
        b->code = err_nomem(b->e);
}

bool grammar_spend(struct grammar_build *b, uint64_t steps)
{
    b->work += steps;
    if (b->work > GRAMMAR_WORK_MAX)
        grammar_fail(b, ERR_LIMIT, "the grammar takes too many steps to compile");
    return b->code == ERR_OK;
}

void *grammar_grow(struct grammar_build *b, void *v, uint32_t n, uint32_t *cap, size_t size)
{
    uint32_t room = *cap == 0 ? 16 : *cap * 2;
    void *more;

    if (n < *cap)
        return v;
    more = realloc(v, (size_t)room * size);
    if (more == NULL) {
        grammar_nomem(b);
        return NULL;
    }
    *cap = room;
    return more;
}

uint32_t grammar_state(struct grammar_build *b)
{
    uint32_t cap = b->cap_state;
    void *first, *flag;

    if (b->code != ERR_OK)
        return 0;
    if (b->n_state >= GRAMMAR_EDGES_MAX) {
        grammar_fail(b, ERR_LIMIT, "the grammar has more than %d states", GRAMMAR_EDGES_MAX);
        return 0;
    }
    first = grammar_grow(b, b->first, b->n_state, &cap, sizeof *b->first);
    if (first == NULL)
        return 0;
    b->first = first;
    flag = grammar_grow(b, b->flag, b->n_state, &b->cap_state, sizeof *b->flag);
    if (flag == NULL)
        return 0;
    b->flag = flag;
    b->first[b->n_state] = 0;
    b->flag[b->n_state] = 0;
    return b->n_state++;
}

uint32_t grammar_rule_add(struct grammar_build *b, struct str name)
{
    void *rule;

    if (b->n_rule >= GRAMMAR_RULES_MAX)
        grammar_fail(b, ERR_LIMIT, "the grammar has more than %d rules", GRAMMAR_RULES_MAX);
    rule = b->code != ERR_OK ? NULL : grammar_grow(b, b->rule, b->n_rule, &b->cap_rule, sizeof *b->rule);
    if (rule == NULL)
        return 0;
    b->rule = rule;
    b->rule[b->n_rule] = (struct grammar_rule){ .name = name };
    b->rule[b->n_rule].start = grammar_state(b);
    b->rule[b->n_rule].end = grammar_state(b);
    return b->n_rule++;
}

static void add_edge(struct grammar_build *b, uint32_t from, struct grammar_edge edge)
{
    void *more;

    if (b->code != ERR_OK)
        return;
    if (b->n_edge == 0)
        b->n_edge = 1;
    if (b->n_edge >= GRAMMAR_EDGES_MAX) {
        grammar_fail(b, ERR_LIMIT, "the grammar has more than %d transitions", GRAMMAR_EDGES_MAX);
        return;
    }
    more = grammar_grow(b, b->edge, b->n_edge, &b->cap_edge, sizeof *b->edge);
    if (more == NULL)
        return;
    b->edge = more;
    edge.next = b->first[from];
    b->first[from] = b->n_edge;
    b->edge[b->n_edge++] = edge;
}

void grammar_eps(struct grammar_build *b, uint32_t from, uint32_t to)
{
    if (from != to)
        add_edge(b, from, (struct grammar_edge){ .to = to, .kind = GRAMMAR_EPS });
}

void grammar_bytes(struct grammar_build *b, uint32_t from, uint32_t to, uint8_t lo, uint8_t hi)
{
    add_edge(b, from, (struct grammar_edge){ .to = to, .lo = lo, .hi = hi, .kind = GRAMMAR_BYTES });
}

void grammar_call(struct grammar_build *b, uint32_t from, uint32_t to, uint32_t rule)
{
    add_edge(b, from, (struct grammar_edge){ .to = to, .rule = rule, .kind = GRAMMAR_CALL });
}

void grammar_text(struct grammar_build *b, uint32_t from, uint32_t to, struct str s)
{
    for (size_t i = 0; i < s.n && b->code == ERR_OK; i++) {
        uint32_t next = i + 1 == s.n ? to : grammar_state(b);

        grammar_bytes(b, from, next, (uint8_t)s.p[i], (uint8_t)s.p[i]);
        from = next;
    }
    if (s.n == 0)
        grammar_eps(b, from, to);
}

void grammar_mark(struct grammar_build *b, uint32_t from, uint32_t to, struct str s)
{
    for (size_t i = 0; i < s.n && b->code == ERR_OK; i++) {
        uint32_t next = i + 1 == s.n ? to : grammar_state(b);

        b->flag[from] |= GRAMMAR_MARK;
        grammar_bytes(b, from, next, (uint8_t)s.p[i], (uint8_t)s.p[i]);
        from = next;
    }
    if (s.n == 0)
        grammar_eps(b, from, to);
}

void grammar_range_add(struct grammar_build *b, struct grammar_ranges *r, uint32_t lo, uint32_t hi)
{
    void *more = b->code != ERR_OK ? NULL : grammar_grow(b, r->v, r->n, &r->cap, sizeof *r->v);

    if (more == NULL)
        return;
    r->v = more;
    r->v[r->n++] = (struct grammar_range){ lo, hi };
}

static int by_lo(const void *a, const void *b)
{
    uint32_t x = ((const struct grammar_range *)a)->lo, y = ((const struct grammar_range *)b)->lo;

    return (x > y) - (x < y);
}

void grammar_ranges_settle(struct grammar_build *b, struct grammar_ranges *r, bool negate)
{
    uint32_t n = 0, at = 0, n_old;

    if (r->n > 1)
        qsort(r->v, r->n, sizeof *r->v, by_lo);
    for (uint32_t i = 0; i < r->n; i++) {
        if (n > 0 && r->v[i].lo <= r->v[n - 1].hi + 1) {
            if (r->v[i].hi > r->v[n - 1].hi)
                r->v[n - 1].hi = r->v[i].hi;
        } else {
            r->v[n++] = r->v[i];
        }
    }
    r->n = n;
    if (!negate)
        return;
    grammar_range_add(b, r, GRAMMAR_CP_MAX + 1, GRAMMAR_CP_MAX + 1);
    if (b->code != ERR_OK)
        return;
    n_old = r->n;
    n = 0;
    for (uint32_t i = 0; i < n_old; i++) {
        struct grammar_range old = r->v[i];

        if (old.lo > at)
            r->v[n++] = (struct grammar_range){ at, old.lo - 1 };
        at = old.hi + 1;
    }
    r->n = n;
}

enum digit_kind { BYTE, HEX, HEX_HIGH, HEX_LOW };
struct digit {
    uint8_t kind, bits, base; /* base: added to the value */
};

/* One digit from lo to hi. HEX_HIGH and HEX_LOW are a surrogate's second digit with what stands
 * before. */
static void put_digit(struct grammar_build *b, uint32_t from, uint32_t to, struct digit d, uint32_t lo, uint32_t hi)
{
    lo += d.base;
    hi += d.base;
    if (d.kind == BYTE) {
        grammar_bytes(b, from, to, (uint8_t)lo, (uint8_t)hi);
        return;
    }
    if (d.kind == HEX_LOW) {
        uint32_t u = grammar_state(b);

        grammar_text(b, from, u, STR("\\u"));
        from = u;
    }
    if (d.kind != HEX) {
        uint32_t second = grammar_state(b);

        grammar_bytes(b, from, second, 'D', 'D');
        grammar_bytes(b, from, second, 'd', 'd');
        from = second;
    }
    if (lo < 10)
        grammar_bytes(b, from, to, (uint8_t)('0' + lo), (uint8_t)('0' + (hi < 10 ? hi : 9)));
    if (hi >= 10) {
        uint8_t first = (uint8_t)(lo < 10 ? 0 : lo - 10), last = (uint8_t)(hi - 10);

        grammar_bytes(b, from, to, (uint8_t)('A' + first), (uint8_t)('A' + last));
        grammar_bytes(b, from, to, (uint8_t)('a' + first), (uint8_t)('a' + last));
    }
}

struct digits {
    struct grammar_build *b;
    uint32_t to;
    const struct digit *d; /* [n] */
    int n;
    uint32_t any[6]; /* state from which the last i digits may be anything; 0: not made yet */
};

/* Numbers lo .. hi of the last n digits. */
static void put_digits(struct digits *s, uint32_t from, uint32_t lo, uint32_t hi, int n)
{
    const struct digit d = s->d[s->n - n];
    uint32_t rest = 0, mask, top_lo, top_hi, mid;

    if (s->b->code != ERR_OK)
        return;
    for (int i = 1; i < n; i++)
        rest += s->d[s->n - i].bits;
    mask = ((uint32_t)1 << rest) - 1;
    if (n == 1) {
        put_digit(s->b, from, s->to, d, lo, hi);
        return;
    }
    top_lo = lo >> rest;
    top_hi = hi >> rest;
    if ((lo & mask) != 0 || top_lo == top_hi) {
        if ((lo & mask) != 0 || (hi & mask) != mask) {
            mid = grammar_state(s->b);
            put_digit(s->b, from, mid, d, top_lo, top_lo);
            put_digits(s, mid, lo & mask, top_lo == top_hi ? hi & mask : mask, n - 1);
            if (top_lo == top_hi)
                return;
            top_lo++;
        }
    }
    if ((hi & mask) != mask) {
        mid = grammar_state(s->b);
        put_digit(s->b, from, mid, d, top_hi, top_hi);
        put_digits(s, mid, 0, hi & mask, n - 1);
        if (top_hi-- == top_lo)
            return;
    }
    if (top_lo > top_hi)
        return;
    if (s->any[n - 1] == 0) {
        s->any[n - 1] = grammar_state(s->b);
        put_digits(s, s->any[n - 1], 0, mask, n - 1);
    }
    put_digit(s->b, from, s->any[n - 1], d, top_lo, top_hi);
}

/* What of r lies within lo .. hi, without surrogates, each part less `base` as digits of s. */
static void put_within(struct digits *s, uint32_t from, const struct grammar_range *r, uint32_t n, uint32_t lo,
                       uint32_t hi, uint32_t base)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t a = r[i].lo > lo ? r[i].lo : lo, z = r[i].hi < hi ? r[i].hi : hi;

        if (a <= z && a < 0xD800)
            put_digits(s, from, a - base, (z < 0xD800 ? z : 0xD7FF) - base, s->n);
        if (a <= z && z > 0xDFFF)
            put_digits(s, from, (a > 0xDFFF ? a : 0xE000) - base, z - base, s->n);
    }
}

static void put_utf8(struct grammar_build *b, uint32_t from, uint32_t to, const struct grammar_range *r, uint32_t n)
{
    static const struct digit d1[] = { { BYTE, 7, 0 } };
    static const struct digit d2[] = { { BYTE, 5, 0xC0 }, { BYTE, 6, 0x80 } };
    static const struct digit d3[] = { { BYTE, 4, 0xE0 }, { BYTE, 6, 0x80 }, { BYTE, 6, 0x80 } };
    static const struct digit d4[] = { { BYTE, 3, 0xF0 }, { BYTE, 6, 0x80 }, { BYTE, 6, 0x80 }, { BYTE, 6, 0x80 } };
    struct digits s = { .b = b, .to = to, .d = d1, .n = 1 };

    put_within(&s, from, r, n, 0, 0x7F, 0);
    s.d = d2;
    s.n = 2;
    put_within(&s, from, r, n, 0x80, 0x7FF, 0);
    s.d = d3;
    s.n = 3;
    put_within(&s, from, r, n, 0x800, 0xFFFF, 0);
    s.d = d4;
    s.n = 4;
    put_within(&s, from, r, n, 0x10000, GRAMMAR_CP_MAX, 0);
}

static bool has_char(const struct grammar_range *r, uint32_t n, uint32_t cp)
{
    for (uint32_t i = 0; i < n; i++)
        if (r[i].lo <= cp && cp <= r[i].hi)
            return true;
    return false;
}

static void put_json(struct grammar_build *b, uint32_t from, uint32_t to, const struct grammar_range *r, uint32_t n)
{
    static const struct digit four[] = { { HEX, 4, 0 }, { HEX, 4, 0 }, { HEX, 4, 0 }, { HEX, 4, 0 } };
    static const struct digit pair[] = { { HEX_HIGH, 2, 8 }, { HEX, 4, 0 }, { HEX, 4, 0 },
                                         { HEX_LOW, 2, 12 }, { HEX, 4, 0 }, { HEX, 4, 0 } };
    static const char letter[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    static const struct grammar_range plain[] = {
        { 0x20, 0x21 }, { 0x23, '<' - 1 }, { '<', '<' }, { '<' + 1, 0x5B }, { 0x5D, GRAMMAR_CP_MAX }
    };
    struct digits s = { .b = b, .to = to, .d = four, .n = 4 };
    uint32_t slash = grammar_state(b), u = grammar_state(b);

    for (uint32_t i = 0; i < n && b->code == ERR_OK; i++)
        for (int k = 0; k < 5; k++) {
            struct grammar_range cut = { r[i].lo > plain[k].lo ? r[i].lo : plain[k].lo,
                                         r[i].hi < plain[k].hi ? r[i].hi : plain[k].hi };

            if (cut.lo <= cut.hi && !(k == 2 && b->no_marks))
                put_utf8(b, from, to, &cut, 1);
        }
    grammar_bytes(b, from, slash, '\\', '\\');
    for (int k = 0; letter[k] != '\0'; k++)
        if (has_char(r, n, (unsigned char)means[k]) && !(letter[k] == '/' && b->python)) /* two characters there */
            grammar_bytes(b, slash, to, (uint8_t)letter[k], (uint8_t)letter[k]);
    grammar_bytes(b, slash, u, 'u', 'u');
    put_within(&s, u, r, n, 0, 0xFFFF, 0);
    s = (struct digits){ .b = b, .to = to, .d = pair, .n = 6 };
    put_within(&s, u, r, n, 0x10000, GRAMMAR_CP_MAX, 0x10000);
}

enum grammar_spell grammar_spelled(const struct grammar_build *b)
{
    return b->raw ? GRAMMAR_RAW : GRAMMAR_JSON;
}

void grammar_chars(struct grammar_build *b, uint32_t from, uint32_t to, const struct grammar_range *r, uint32_t n,
                   enum grammar_spell spell)
{
    if (!grammar_spend(b, 8 + (uint64_t)n))
        return;
    if (spell == GRAMMAR_JSON)
        put_json(b, from, to, r, n);
    else
        put_utf8(b, from, to, r, n);
}

/* 0 .. n times, n below the size of a block. */
static void repeat_up_to(struct grammar_build *b, uint32_t from, uint32_t to, int64_t n, grammar_emit *emit, void *ctx)
{
    grammar_eps(b, from, to);
    for (int64_t i = 0; i < n && b->code == ERR_OK; i++) {
        uint32_t next = grammar_state(b);

        emit(b, from, next, ctx);
        grammar_eps(b, next, to);
        from = next;
    }
}

static uint32_t repeat_exactly(struct grammar_build *b, uint32_t from, int64_t n, grammar_emit *emit, void *ctx)
{
    for (int64_t i = 0; i < n && b->code == ERR_OK; i++) {
        uint32_t next = grammar_state(b);

        emit(b, from, next, ctx);
        from = next;
    }
    return from;
}

/* ---- long repetitions ---- */

/* A count is written in digits of base BLOCK: a block of level k is BLOCK blocks of level k - 1, and one of level 0 is
 * one repetition. So any count needs a few rules, each of about BLOCK calls. */
enum { BLOCK = 64, LEVELS = 6 };

struct blocks {
    struct grammar_build *b;
    grammar_emit *emit;
    void *ctx;
    uint32_t exact[LEVELS], up_to[LEVELS]; /* rules: BLOCK^k times; fewer times than that. 0: not made yet */
};

static uint32_t block_rule(struct blocks *s, int level);
static uint32_t rest_rule(struct blocks *s, int level);

static uint32_t put_blocks(struct blocks *s, uint32_t from, int64_t n, int level)
{
    for (int64_t i = 0; i < n && s->b->code == ERR_OK; i++) {
        uint32_t next = grammar_state(s->b);

        if (level == 0)
            s->emit(s->b, from, next, s->ctx);
        else
            grammar_call(s->b, from, next, block_rule(s, level));
        from = next;
    }
    return from;
}

/* 0 .. n blocks of a level, and where fewer than n are written, up to one of it that is not full; returns the state
 * behind n. */
static uint32_t put_up_to(struct blocks *s, uint32_t from, uint32_t to, int64_t n, int level)
{
    uint32_t rest = level > 0 && n > 0 ? grammar_state(s->b) : to;

    for (int64_t i = 0; i < n && s->b->code == ERR_OK; i++) {
        grammar_eps(s->b, from, rest);
        from = put_blocks(s, from, 1, level);
    }
    if (rest != to)
        grammar_call(s->b, rest, to, rest_rule(s, level));
    return from;
}

static uint32_t block_rule(struct blocks *s, int level)
{
    uint32_t rule = s->exact[level], end;

    if (rule != 0 || s->b->code != ERR_OK)
        return rule;
    rule = s->exact[level] = grammar_rule_add(s->b, STR("repetition"));
    if (s->b->code != ERR_OK)
        return 0;
    end = put_blocks(s, s->b->rule[rule].start, BLOCK, level - 1);
    if (s->b->code == ERR_OK)
        grammar_eps(s->b, end, s->b->rule[rule].end);
    return rule;
}

static uint32_t rest_rule(struct blocks *s, int level)
{
    uint32_t rule = s->up_to[level], at;

    if (rule != 0 || s->b->code != ERR_OK)
        return rule;
    rule = s->up_to[level] = grammar_rule_add(s->b, STR("repetition"));
    if (s->b->code != ERR_OK)
        return 0;
    at = s->b->rule[rule].start;
    for (int k = level - 1; k >= 0 && s->b->code == ERR_OK; k--)
        at = put_up_to(s, at, s->b->rule[rule].end, BLOCK - 1, k);
    if (s->b->code == ERR_OK)
        grammar_eps(s->b, at, s->b->rule[rule].end);
    return rule;
}

static int spelling(const struct grammar_build *b)
{
    return b->raw | b->python << 1 | b->no_marks << 2;
}

/* The blocks of single characters are the same for all strings of a grammar. */
static struct blocks blocks_of(struct grammar_build *b, grammar_emit *emit, void *ctx)
{
    struct blocks s = { .b = b, .emit = emit, .ctx = ctx };

    if (ctx == NULL && b->blocks_emit == emit && b->blocks_spelled == spelling(b)) {
        memcpy(s.exact, b->blocks, sizeof s.exact);
        memcpy(s.up_to, b->blocks + LEVELS, sizeof s.up_to);
    }
    return s;
}

static void keep_blocks(struct grammar_build *b, const struct blocks *s)
{
    if (s->ctx != NULL)
        return;
    b->blocks_emit = s->emit;
    b->blocks_spelled = spelling(b);
    memcpy(b->blocks, s->exact, sizeof s->exact);
    memcpy(b->blocks + LEVELS, s->up_to, sizeof s->up_to);
}

static void repeat_blocks(struct grammar_build *b, uint32_t from, uint32_t to, int64_t min, int64_t max,
                          grammar_emit *emit, void *ctx)
{
    struct blocks s = blocks_of(b, emit, ctx);
    int64_t size[LEVELS] = { 1 }, more = max - min;

    for (int k = 1; k < LEVELS; k++)
        size[k] = size[k - 1] * BLOCK;
    for (int k = LEVELS; k-- > 0; min %= size[k])
        from = put_blocks(&s, from, min / size[k], k);
    for (int k = LEVELS; k-- > 0 && max >= 0; more %= size[k])
        from = put_up_to(&s, from, to, more / size[k], k);
    if (max < 0 && b->code == ERR_OK)
        emit(b, from, from, ctx);
    grammar_eps(b, from, to);
    keep_blocks(b, &s);
}

void grammar_repeat(struct grammar_build *b, uint32_t from, uint32_t to, int64_t min, int64_t max, grammar_emit *emit,
                    void *ctx)
{
    enum { IN_ONE = 2 * BLOCK }; /* repetitions that are written out as they are */
    uint32_t loop;

    if (b->code != ERR_OK)
        return;
    if (min > GRAMMAR_REPEAT_MAX) {
        grammar_fail(b, ERR_LIMIT, "a repetition of at least %lld; the limit is %d", (long long)min,
                     GRAMMAR_REPEAT_MAX);
        return;
    }
    if (max > GRAMMAR_LENGTH_MAX) /* no text is so long */
        max = -1;
    if ((max < 0 ? min : max) > IN_ONE && !b->unrolled) {
        repeat_blocks(b, from, to, min, max, emit, ctx);
        return;
    }
    from = repeat_exactly(b, from, min, emit, ctx);
    if (max < 0) {
        loop = grammar_state(b);
        grammar_eps(b, from, loop);
        emit(b, loop, loop, ctx);
        grammar_eps(b, loop, to);
    } else {
        repeat_up_to(b, from, to, max - min, emit, ctx);
    }
}
