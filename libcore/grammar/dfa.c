/* SPDX-License-Identifier: Apache-2.0 */
/* dfa.c - automata made deterministic, intersected, copied back into a builder.  room: grammar
 *
 * The subset construction, with calls of rules as symbols beside bytes: a state has at most one way
 * on for a byte and one for a rule. A call of a rule that may be empty is also an empty edge, so
 * that a call, once begun, reads at least one byte. States without a way to an end are left out.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/internal.h"

enum { SETS_MAX = 1 << 22 }; /* members of all sets of one automaton */

struct make {
    struct grammar_build *b;
    uint32_t end;
    struct grammar_dfa *d;
    uint32_t cap_n, cap_call, n_call;
    uint32_t *pool, n_pool, cap_pool; /* members of all sets */
    uint32_t *set_at;                 /* [n + 1] */
    uint32_t *slot, slot_mask;        /* sets by their hash; 0: free */
    uint32_t *list, n_list, cap_list; /* the set being made */
    uint32_t *stack, cap_stack;
    struct grammar_edge *out; /* the edges of the state in hand */
    uint32_t n_out, cap_out;
};

void grammar_dfa_free(struct grammar_dfa *d)
{
    if (d == NULL)
        return;
    free(d->next);
    free(d->flag);
    free(d->call_at);
    free(d->call);
    free(d);
}

static void make_free(struct make *m)
{
    free(m->pool);
    free(m->set_at);
    free(m->slot);
    free(m->list);
    free(m->stack);
    free(m->out);
}

static bool push_word(struct make *m, uint32_t **v, uint32_t *n, uint32_t *cap, uint32_t x)
{
    void *more = m->b->code != ERR_OK ? NULL : grammar_grow(m->b, *v, *n, cap, sizeof **v);

    if (more == NULL)
        return false;
    *v = more;
    (*v)[(*n)++] = x;
    return true;
}

/* A new epoch of marks: no state is marked. */
bool grammar_unmark(struct grammar_build *b)
{
    if (b->cap_stamp < b->n_state || b->epoch == UINT32_MAX) {
        uint32_t *more = realloc(b->stamp, (size_t)b->cap_state * sizeof *more);

        if (more == NULL) {
            grammar_nomem(b);
            return false;
        }
        b->stamp = more;
        b->cap_stamp = b->cap_state;
        memset(b->stamp, 0, (size_t)b->cap_stamp * sizeof *b->stamp);
        b->epoch = 0;
    }
    b->epoch++;
    return true;
}

/* Adds a state and what lies behind empty edges to the list. */
static void close_over(struct make *m, uint32_t state)
{
    struct grammar_build *b = m->b;
    uint32_t n = 0;

    if (b->stamp[state] == b->epoch || !push_word(m, &m->stack, &n, &m->cap_stack, state))
        return;
    b->stamp[state] = b->epoch;
    while (n > 0) {
        bool keep;
        uint32_t s = m->stack[--n], steps = 1;

        keep = s == m->end || b->flag[s] != 0;
        for (uint32_t i = b->first[s]; i != 0; i = b->edge[i].next, steps++) {
            const struct grammar_edge *edge = &b->edge[i];
            bool empty = edge->kind == GRAMMAR_EPS;

            keep = keep || !empty;
            empty = empty || (edge->kind == GRAMMAR_CALL && b->rule[edge->rule].nullable);
            if (!empty || b->stamp[edge->to] == b->epoch)
                continue;
            b->stamp[edge->to] = b->epoch;
            if (!push_word(m, &m->stack, &n, &m->cap_stack, edge->to))
                return;
        }
        if (!grammar_spend(b, steps) || (keep && !push_word(m, &m->list, &m->n_list, &m->cap_list, s)))
            return;
    }
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

static uint32_t hash_list(const uint32_t *v, uint32_t n)
{
    uint64_t h = n;

    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ v[i]) * 0x9E3779B97F4A7C15U;
        h ^= h >> 29;
    }
    return (uint32_t)(h >> 20);
}

static bool grow_slots(struct make *m)
{
    uint32_t size = m->slot_mask == 0 ? 64 : (m->slot_mask + 1) * 2;
    uint32_t *slot = calloc(size, sizeof *slot);

    if (slot == NULL) {
        grammar_nomem(m->b);
        return false;
    }
    free(m->slot);
    m->slot = slot;
    m->slot_mask = size - 1;
    for (uint32_t s = 1; s < m->d->n; s++) {
        uint32_t i = hash_list(m->pool + m->set_at[s], m->set_at[s + 1] - m->set_at[s]) & m->slot_mask;

        while (slot[i] != 0)
            i = (i + 1) & m->slot_mask;
        slot[i] = s;
    }
    return true;
}

/* Room for one more state, whose row is empty. */
static bool grow_states(struct make *m)
{
    struct grammar_dfa *d = m->d;
    uint32_t room = m->cap_n == 0 ? 16 : m->cap_n * 2;
    void *next, *flag, *call_at, *set_at;

    if (d->n < m->cap_n)
        return true;
    if (d->n >= GRAMMAR_STATES_MAX || (size_t)room * d->n_cls * sizeof *d->next > GRAMMAR_TABLE_MAX) {
        grammar_fail(m->b, ERR_LIMIT, "a rule needs more than %u states", (unsigned)d->n);
        return false;
    }
    if ((next = realloc(d->next, (size_t)room * d->n_cls * sizeof *d->next)) != NULL)
        d->next = next;
    if ((flag = realloc(d->flag, room)) != NULL)
        d->flag = flag;
    if ((call_at = realloc(d->call_at, ((size_t)room + 1) * sizeof *d->call_at)) != NULL)
        d->call_at = call_at;
    if ((set_at = realloc(m->set_at, ((size_t)room + 1) * sizeof *m->set_at)) != NULL)
        m->set_at = set_at;
    if (next == NULL || flag == NULL || call_at == NULL || set_at == NULL) {
        grammar_nomem(m->b);
        return false;
    }
    m->cap_n = room;
    return true;
}

/* The state of the list's set, made if it is new; 0 for the empty set. */
static uint32_t state_of_list(struct make *m)
{
    struct grammar_dfa *d = m->d;
    uint32_t i, s;

    if (m->n_list == 0 || m->b->code != ERR_OK)
        return 0;
    qsort(m->list, m->n_list, sizeof *m->list, by_number);
    if (d->n * 2 >= m->slot_mask && !grow_slots(m))
        return 0;
    i = hash_list(m->list, m->n_list) & m->slot_mask;
    for (; (s = m->slot[i]) != 0; i = (i + 1) & m->slot_mask)
        if (m->set_at[s + 1] - m->set_at[s] == m->n_list &&
            memcmp(m->pool + m->set_at[s], m->list, m->n_list * sizeof *m->list) == 0)
            return s;
    if (!grow_states(m))
        return 0;
    if (m->n_pool > SETS_MAX) {
        grammar_fail(m->b, ERR_LIMIT, "a rule is too ambiguous to be made deterministic");
        return 0;
    }
    s = d->n++;
    m->slot[i] = s;
    memset(d->next + (size_t)s * d->n_cls, 0, d->n_cls * sizeof *d->next);
    d->flag[s] = 0;
    for (uint32_t k = 0; k < m->n_list; k++) {
        d->flag[s] |= m->b->flag[m->list[k]] | (m->list[k] == m->end ? GRAMMAR_ACC : 0);
        if (!push_word(m, &m->pool, &m->n_pool, &m->cap_pool, m->list[k]))
            return 0;
    }
    m->set_at[s + 1] = m->n_pool;
    return s;
}

/* Classes of bytes: a new one begins wherever an edge within reach of start begins or ends. */
static void find_classes(struct make *m, uint32_t start)
{
    struct grammar_build *b = m->b;
    bool border[257] = { false };
    uint32_t n = 0, c = 0;

    if (!grammar_unmark(b) || !push_word(m, &m->stack, &n, &m->cap_stack, start))
        return;
    b->stamp[start] = b->epoch;
    while (n > 0) {
        for (uint32_t i = b->first[m->stack[--n]], s; i != 0; i = b->edge[i].next) {
            const struct grammar_edge *edge = &b->edge[i];

            s = edge->to;
            if (edge->kind == GRAMMAR_BYTES)
                border[edge->lo] = border[edge->hi + 1] = true;
            if (b->stamp[s] == b->epoch)
                continue;
            b->stamp[s] = b->epoch;
            if (!grammar_spend(b, 1) || !push_word(m, &m->stack, &n, &m->cap_stack, s))
                return;
        }
    }
    for (int i = 0; i < 256; i++) {
        if (i > 0 && border[i])
            c++;
        m->d->cls[i] = (uint8_t)c;
    }
    m->d->n_cls = c + 1;
}

static bool gather_edges(struct make *m, uint32_t s)
{
    m->n_out = 0;
    for (uint32_t k = m->set_at[s]; k < m->set_at[s + 1]; k++)
        for (uint32_t i = m->b->first[m->pool[k]]; i != 0; i = m->b->edge[i].next) {
            void *more;

            if (m->b->edge[i].kind == GRAMMAR_EPS)
                continue;
            more = grammar_grow(m->b, m->out, m->n_out, &m->cap_out, sizeof *m->out);
            if (more == NULL)
                return false;
            m->out = more;
            m->out[m->n_out++] = m->b->edge[i];
        }
    return grammar_spend(m->b, m->n_out + 1);
}

static void step_bytes(struct make *m, uint32_t s)
{
    struct grammar_dfa *d = m->d;
    bool border[257] = { false };
    uint32_t last = 0;

    for (uint32_t i = 0; i < m->n_out; i++)
        if (m->out[i].kind == GRAMMAR_BYTES)
            border[d->cls[m->out[i].lo]] = border[d->cls[m->out[i].hi] + 1] = true;
    for (uint32_t c = 0; c < d->n_cls && m->b->code == ERR_OK; c++) {
        if (border[c]) {
            m->n_list = 0;
            if (!grammar_unmark(m->b) || !grammar_spend(m->b, m->n_out))
                return;
            for (uint32_t i = 0; i < m->n_out; i++)
                if (m->out[i].kind == GRAMMAR_BYTES && d->cls[m->out[i].lo] <= c && c <= d->cls[m->out[i].hi])
                    close_over(m, m->out[i].to);
            last = state_of_list(m);
        }
        d->next[(size_t)s * d->n_cls + c] = last;
    }
}

static int by_rule(const void *a, const void *b)
{
    uint32_t x = ((const struct grammar_edge *)a)->rule, y = ((const struct grammar_edge *)b)->rule;

    return (x > y) - (x < y);
}

static void step_calls(struct make *m, uint32_t s)
{
    struct grammar_dfa *d = m->d;
    uint32_t n = 0;

    d->call_at[s] = m->n_call;
    for (uint32_t i = 0; i < m->n_out; i++)
        if (m->out[i].kind == GRAMMAR_CALL)
            m->out[n++] = m->out[i];
    if (n > 1)
        qsort(m->out, n, sizeof *m->out, by_rule);
    for (uint32_t i = 0, k; i < n && m->b->code == ERR_OK; i = k) {
        uint32_t ret;
        void *more;

        m->n_list = 0;
        if (!grammar_unmark(m->b))
            return;
        for (k = i; k < n && m->out[k].rule == m->out[i].rule; k++)
            close_over(m, m->out[k].to);
        ret = state_of_list(m);
        if (ret == 0)
            continue;
        more = grammar_grow(m->b, d->call, m->n_call, &m->cap_call, sizeof *d->call);
        if (more == NULL)
            return;
        d->call = more;
        d->call[m->n_call++] = (struct grammar_call){ m->out[i].rule, ret, 0 };
    }
    d->call_at[s + 1] = m->n_call;
}

/* Keeps the states from which an end can be reached; rules that are called are taken to have one.
 */
static void trim_states(struct grammar_build *b, struct grammar_dfa *d)
{
    uint32_t *to = calloc((size_t)d->n + 1, sizeof *to), n = 1, n_call = 0;
    bool more = true;

    if (to == NULL) {
        grammar_nomem(b);
        return;
    }
    while (more && grammar_spend(b, (uint64_t)d->n * d->n_cls)) {
        more = false;
        for (uint32_t s = d->n; s-- > 1;) {
            const uint32_t *row = d->next + (size_t)s * d->n_cls;
            bool live = (d->flag[s] & GRAMMAR_ACC) != 0;

            if (to[s] != 0)
                continue;
            for (uint32_t c = 0; c < d->n_cls && !live; c++)
                live = to[row[c]] != 0;
            for (uint32_t i = d->call_at[s]; i < d->call_at[s + 1] && !live; i++)
                live = to[d->call[i].ret] != 0;
            to[s] = live;
            more = more || live;
        }
    }
    to[1] = 1;
    for (uint32_t s = 1; s < d->n; s++)
        if (to[s] != 0)
            to[s] = n++;
    for (uint32_t s = 1, from = 0, end; s < d->n; s++, from = end) {
        end = d->call_at[s + 1];
        if (to[s] == 0)
            continue;
        for (uint32_t c = 0; c < d->n_cls; c++)
            d->next[(size_t)to[s] * d->n_cls + c] = to[d->next[(size_t)s * d->n_cls + c]];
        d->flag[to[s]] = d->flag[s];
        d->call_at[to[s]] = n_call;
        for (uint32_t i = from; i < end; i++)
            if (to[d->call[i].ret] != 0)
                d->call[n_call++] = (struct grammar_call){ d->call[i].rule, to[d->call[i].ret], 0 };
        d->call_at[to[s] + 1] = n_call;
    }
    d->n = n;
    free(to);
}

struct grammar_dfa *grammar_dfa_make(struct grammar_build *b, uint32_t start, uint32_t end)
{
    struct make m = { .b = b, .end = end };

    if (b->code != ERR_OK)
        return NULL;
    m.d = calloc(1, sizeof *m.d);
    if (m.d == NULL) {
        grammar_nomem(b);
        return NULL;
    }
    find_classes(&m, start);
    m.d->n = 1;
    if (b->code == ERR_OK && grow_states(&m) && grammar_unmark(b)) {
        memset(m.d->next, 0, m.d->n_cls * sizeof *m.d->next);
        m.d->flag[0] = 0;
        m.set_at[0] = m.set_at[1] = 0;
        m.d->call_at[0] = m.d->call_at[1] = 0;
        close_over(&m, start);
        if (m.n_list == 0)
            push_word(&m, &m.list, &m.n_list, &m.cap_list, start);
        state_of_list(&m);
        for (uint32_t s = 1; s < m.d->n && b->code == ERR_OK; s++)
            if (gather_edges(&m, s)) {
                step_bytes(&m, s);
                step_calls(&m, s);
            }
    }
    make_free(&m);
    if (b->code == ERR_OK)
        trim_states(b, m.d);
    if (b->code == ERR_OK)
        return m.d;
    grammar_dfa_free(m.d);
    return NULL;
}

/* The product: states are pairs, found by a table of pairs in a hash. */
struct product {
    struct grammar_build *b;
    const struct grammar_dfa *x, *y;
    struct grammar_dfa *d;
    uint64_t *pair; /* [cap_n] */
    uint32_t *slot, slot_mask, cap_n;
};

static uint32_t slot_of(const struct product *p, uint64_t pair)
{
    uint32_t i = (uint32_t)((pair * 0x9E3779B97F4A7C15U) >> 32) & p->slot_mask;

    while (p->slot[i] != 0 && p->pair[p->slot[i]] != pair)
        i = (i + 1) & p->slot_mask;
    return i;
}

static bool grow_product(struct product *p)
{
    struct grammar_dfa *d = p->d;
    uint32_t room = p->cap_n == 0 ? 64 : p->cap_n * 2;
    void *next, *flag, *pair;
    uint32_t *slot;

    if (d->n >= GRAMMAR_STATES_MAX || (size_t)room * d->n_cls * sizeof *d->next > GRAMMAR_TABLE_MAX) {
        grammar_fail(p->b, ERR_LIMIT, "a combination of patterns needs more than %u states", (unsigned)d->n);
        return false;
    }
    if ((next = realloc(d->next, (size_t)room * d->n_cls * sizeof *d->next)) != NULL)
        d->next = next;
    if ((flag = realloc(d->flag, room)) != NULL)
        d->flag = flag;
    if ((pair = realloc(p->pair, room * sizeof *p->pair)) != NULL)
        p->pair = pair;
    slot = calloc((size_t)room * 2, sizeof *slot);
    if (next == NULL || flag == NULL || pair == NULL || slot == NULL) {
        free(slot);
        grammar_nomem(p->b);
        return false;
    }
    free(p->slot);
    p->slot = slot;
    p->slot_mask = room * 2 - 1;
    p->cap_n = room;
    for (uint32_t s = 1; s < d->n; s++)
        p->slot[slot_of(p, p->pair[s])] = s;
    return true;
}

static uint32_t pair_state(struct product *p, uint32_t x, uint32_t y, bool not_y)
{
    uint64_t pair = (uint64_t)x << 32 | y;
    uint32_t i, s;
    bool acc_y;

    if (x == 0 || (y == 0 && !not_y) || p->b->code != ERR_OK)
        return 0;
    if (p->d->n >= p->cap_n && !grow_product(p))
        return 0;
    i = slot_of(p, pair);
    if (p->slot[i] != 0)
        return p->slot[i];
    s = p->d->n++;
    p->slot[i] = s;
    p->pair[s] = pair;
    acc_y = y != 0 && (p->y->flag[y] & GRAMMAR_ACC) != 0;
    p->d->flag[s] = (p->x->flag[x] & GRAMMAR_ACC) != 0 && acc_y != not_y ? GRAMMAR_ACC : 0;
    return s;
}

struct grammar_dfa *grammar_dfa_and(struct grammar_build *b, const struct grammar_dfa *x, const struct grammar_dfa *y,
                                    bool not_y)
{
    struct product p = { .b = b, .x = x, .y = y };
    uint8_t byte[256];

    if (b->code != ERR_OK || x == NULL || y == NULL)
        return NULL;
    p.d = calloc(1, sizeof *p.d);
    if (p.d == NULL) {
        grammar_nomem(b);
        return NULL;
    }
    for (int i = 0; i < 256; i++) {
        if (i == 0 || x->cls[i] != x->cls[i - 1] || y->cls[i] != y->cls[i - 1])
            byte[p.d->n_cls++] = (uint8_t)i;
        p.d->cls[i] = (uint8_t)(p.d->n_cls - 1);
    }
    p.d->n = 1;
    if (grow_product(&p)) {
        p.d->flag[0] = 0;
        memset(p.d->next, 0, p.d->n_cls * sizeof *p.d->next);
        pair_state(&p, 1, 1, not_y);
    }
    for (uint32_t s = 1; s < p.d->n && grammar_spend(b, p.d->n_cls); s++)
        for (uint32_t c = 0; c < p.d->n_cls; c++) {
            uint32_t sx = (uint32_t)(p.pair[s] >> 32), sy = (uint32_t)p.pair[s];
            uint32_t to = pair_state(&p, x->next[(size_t)sx * x->n_cls + x->cls[byte[c]]],
                                     sy == 0 ? 0 : y->next[(size_t)sy * y->n_cls + y->cls[byte[c]]], not_y);

            p.d->next[(size_t)s * p.d->n_cls + c] = to;
        }
    free(p.pair);
    free(p.slot);
    if (b->code == ERR_OK && (p.d->call_at = calloc((size_t)p.d->n + 1, sizeof *p.d->call_at)) == NULL)
        grammar_nomem(b);
    if (b->code == ERR_OK)
        trim_states(b, p.d);
    if (b->code == ERR_OK)
        return p.d;
    grammar_dfa_free(p.d);
    return NULL;
}

bool grammar_dfa_empty(const struct grammar_dfa *d)
{
    if ((d->flag[1] & GRAMMAR_ACC) != 0)
        return false;
    for (uint32_t c = 0; c < d->n_cls; c++)
        if (d->next[d->n_cls + c] != 0)
            return false;
    return d->call_at[1] == d->call_at[2];
}

bool grammar_dfa_has(const struct grammar_dfa *d, struct str s)
{
    uint32_t at = 1;

    for (size_t i = 0; i < s.n && at != 0; i++)
        at = d->next[(size_t)at * d->n_cls + d->cls[(uint8_t)s.p[i]]];
    return at != 0 && (d->flag[at] & GRAMMAR_ACC) != 0;
}

void grammar_dfa_put(struct grammar_build *b, const struct grammar_dfa *d, uint32_t from, uint32_t to)
{
    uint32_t base = b->n_state;

    if (b->code != ERR_OK || d == NULL)
        return;
    for (uint32_t s = 1; s < d->n; s++)
        grammar_state(b);
    grammar_eps(b, from, base);
    for (uint32_t s = 1; s < d->n && grammar_spend(b, d->n_cls); s++) {
        const uint32_t *row = d->next + (size_t)s * d->n_cls;
        int run = 0; /* first byte of a run with one target */

        b->flag[base + s - 1] = d->flag[s] & (GRAMMAR_FREE | GRAMMAR_MARK);
        for (int i = 1; i <= 256; i++) {
            if (i < 256 && row[d->cls[i]] == row[d->cls[run]])
                continue;
            if (row[d->cls[run]] != 0)
                grammar_bytes(b, base + s - 1, base + row[d->cls[run]] - 1, (uint8_t)run, (uint8_t)(i - 1));
            run = i;
        }
        for (uint32_t i = d->call_at[s]; i < d->call_at[s + 1]; i++)
            grammar_call(b, base + s - 1, base + d->call[i].ret - 1, d->call[i].rule);
        if ((d->flag[s] & GRAMMAR_ACC) != 0)
            grammar_eps(b, base + s - 1, to);
    }
}
