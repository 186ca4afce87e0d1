/* SPDX-License-Identifier: Apache-2.0 */
/* compile.c - rules to tables.                                                  room: grammar
 *
 * In order: which rules may be empty; left recursion, which would read nothing for ever; callees
 * before callers, each made deterministic with small callees copied in; all in one table whose
 * classes of bytes are merged where columns are equal; states from which the text cannot end
 * removed.
 */
#include <stdlib.h>
#include <string.h>
#include "grammar/tables.h"

enum {
    COPY_STATES_MAX = 4096, /* of a rule times its calls: more is called, not copied */
    COPY_TOTAL_MAX = 1 << 16,
    NEED_NONE = 0xFFFF,
};

/* Calls of rules as lists: rule i has to[at[i]] .. to[at[i + 1] - 1]. */
struct calls {
    uint32_t *at, *to, n, cap;
    uint32_t *stack, cap_stack;
};

static void calls_free(struct calls *c)
{
    free(c->at);
    free(c->to);
    free(c->stack);
}

static bool push_word(struct grammar_build *b, uint32_t **v, uint32_t *n, uint32_t *cap, uint32_t x)
{
    void *more = b->code != ERR_OK ? NULL : grammar_grow(b, *v, *n, cap, sizeof **v);

    if (more == NULL)
        return false;
    *v = more;
    (*v)[(*n)++] = x;
    return true;
}

/* Rules called within reach of `start`; first: before any byte is read. *ends: `end` is within
 * reach. */
static void add_calls(struct grammar_build *b, struct calls *c, uint32_t start, uint32_t end, bool first, bool *ends)
{
    uint32_t n = 0;

    *ends = start == end;
    if (!grammar_unmark(b) || !push_word(b, &c->stack, &n, &c->cap_stack, start))
        return;
    b->stamp[start] = b->epoch;
    while (n > 0)
        for (uint32_t i = b->first[c->stack[--n]]; i != 0; i = b->edge[i].next) {
            const struct grammar_edge edge = b->edge[i];

            if (!grammar_spend(b, 1) || (edge.kind == GRAMMAR_CALL && !push_word(b, &c->to, &c->n, &c->cap, edge.rule)))
                return;
            if (b->stamp[edge.to] == b->epoch || (first && edge.kind == GRAMMAR_BYTES) ||
                (first && edge.kind == GRAMMAR_CALL && !b->rule[edge.rule].nullable))
                continue;
            b->stamp[edge.to] = b->epoch;
            *ends = *ends || edge.to == end;
            if (!push_word(b, &c->stack, &n, &c->cap_stack, edge.to))
                return;
        }
}

static bool list_calls(struct grammar_build *b, struct calls *c, bool first)
{
    bool ends;

    c->at = calloc((size_t)b->n_rule + 1, sizeof *c->at);
    if (c->at == NULL)
        grammar_nomem(b);
    for (uint32_t r = 0; r < b->n_rule && b->code == ERR_OK; r++) {
        add_calls(b, c, b->rule[r].start, b->rule[r].end, first, &ends);
        c->at[r + 1] = c->n;
    }
    return b->code == ERR_OK;
}

static void find_nullable(struct grammar_build *b)
{
    struct calls c = { 0 };
    bool more = true, ends;

    while (more && b->code == ERR_OK) {
        more = false;
        for (uint32_t r = b->n_rule; r-- > 0;) {
            if (b->rule[r].nullable)
                continue;
            c.n = 0;
            add_calls(b, &c, b->rule[r].start, b->rule[r].end, true, &ends);
            b->rule[r].nullable = ends;
            more = more || ends;
        }
    }
    calls_free(&c);
}

/* Strongly connected parts (Tarjan): order[] gets callees before callers, recursive is set. */
struct walk {
    const struct calls *c;
    uint32_t *index, *low, *at, *path, *open, n_open, n_index;
    bool *is_open;
    uint32_t *order, n_order;
};

static void visit(struct grammar_build *b, struct walk *w, uint32_t root)
{
    uint32_t n = 0;

    w->path[n++] = root;
    while (n > 0) {
        uint32_t r = w->path[n - 1], to;

        if (w->index[r] == 0) {
            w->index[r] = w->low[r] = ++w->n_index;
            w->open[w->n_open++] = r;
            w->is_open[r] = true;
            w->at[r] = w->c->at[r];
        }
        if (w->at[r] < w->c->at[r + 1]) {
            to = w->c->to[w->at[r]++];
            b->rule[to].refs++;
            if (to == r)
                b->rule[r].recursive = true;
            if (w->index[to] == 0)
                w->path[n++] = to;
            else if (w->is_open[to] && w->index[to] < w->low[r])
                w->low[r] = w->index[to];
            continue;
        }
        n--;
        if (n > 0 && w->low[r] < w->low[w->path[n - 1]])
            w->low[w->path[n - 1]] = w->low[r];
        if (w->low[r] != w->index[r])
            continue;
        do {
            to = w->open[--w->n_open];
            w->is_open[to] = false;
            w->order[w->n_order++] = to;
            if (to != r)
                b->rule[to].recursive = b->rule[r].recursive = true;
        } while (to != r);
    }
}

static bool walk_open(struct grammar_build *b, struct walk *w, const struct calls *c)
{
    size_t n = (size_t)b->n_rule + 1;

    *w = (struct walk){ .c = c };
    w->index = calloc(n * 6, sizeof *w->index);
    w->is_open = calloc(n, sizeof *w->is_open);
    if (w->index == NULL || w->is_open == NULL) {
        grammar_nomem(b);
        return false;
    }
    w->low = w->index + n;
    w->at = w->low + n;
    w->path = w->at + n;
    w->open = w->path + n;
    w->order = w->open + n;
    return true;
}

static void walk_close(struct walk *w)
{
    free(w->index);
    free(w->is_open);
}

/* A rule that can call itself before a byte is read. */
static void refuse_left_recursion(struct grammar_build *b)
{
    struct calls c = { 0 };
    struct walk w = { 0 };

    if (list_calls(b, &c, true) && walk_open(b, &w, &c))
        for (uint32_t r = 0; r < b->n_rule; r++)
            if (w.index[r] == 0)
                visit(b, &w, r);
    for (uint32_t r = 0; r < b->n_rule; r++) {
        if (b->rule[r].recursive)
            grammar_fail(b, ERR_FORMAT, "%.*s: left recursion: it calls itself before anything is read",
                         STR_ARG(b->rule[r].name));
        b->rule[r].refs = 0;
    }
    walk_close(&w);
    calls_free(&c);
}

/* Puts copies of small rules in place of calls of them. */
static void copy_in(struct grammar_build *b, struct calls *c, uint32_t rule, uint32_t *total)
{
    uint32_t n = 0;

    if (!grammar_unmark(b) || !push_word(b, &c->stack, &n, &c->cap_stack, b->rule[rule].start))
        return;
    b->stamp[b->rule[rule].start] = b->epoch;
    while (n > 0)
        for (uint32_t i = b->first[c->stack[--n]]; i != 0 && grammar_spend(b, 1); i = b->edge[i].next) {
            uint32_t to = b->edge[i].to;
            const struct grammar_rule *callee = &b->rule[b->edge[i].kind == GRAMMAR_CALL ? b->edge[i].rule : rule];

            if (to < b->cap_stamp && b->stamp[to] != b->epoch) {
                b->stamp[to] = b->epoch;
                if (!push_word(b, &c->stack, &n, &c->cap_stack, to))
                    return;
            }
            if (b->edge[i].kind != GRAMMAR_CALL || callee->recursive || callee->dfa == NULL ||
                *total + callee->dfa->n > COPY_TOTAL_MAX ||
                (callee->refs > 1 && (uint64_t)callee->dfa->n * callee->refs > COPY_STATES_MAX))
                continue;
            *total += callee->dfa->n;
            b->edge[i].kind = GRAMMAR_EPS;
            b->edge[i].to = grammar_state(b);
            grammar_dfa_put(b, callee->dfa, b->edge[i].to, to);
        }
}

static void make_rules(struct grammar_build *b, uint32_t root)
{
    struct calls c = { 0 };
    struct walk w = { 0 };
    uint32_t total = 0;

    if (list_calls(b, &c, false) && walk_open(b, &w, &c))
        visit(b, &w, root);
    for (uint32_t i = 0; i < w.n_order && b->code == ERR_OK; i++) {
        struct grammar_rule *rule = &b->rule[w.order[i]];

        copy_in(b, &c, w.order[i], &total);
        rule->dfa = grammar_dfa_make(b, rule->start, rule->end);
    }
    walk_close(&w);
    calls_free(&c);
}

/* The rules that root still calls, in order; rule_at[] of each, 0 of the others. */
static uint32_t lay_out(struct grammar_build *b, uint32_t root, uint32_t *rule_at, uint32_t *list, uint32_t *n_calls)
{
    uint32_t n = 0, states = 1;

    list[n++] = root;
    rule_at[root] = states;
    states += b->rule[root].dfa->n - 1;
    for (uint32_t i = 0; i < n; i++) {
        const struct grammar_dfa *d = b->rule[list[i]].dfa;

        *n_calls += d->call_at[d->n];
        for (uint32_t k = 0; k < d->call_at[d->n]; k++) {
            uint32_t to = d->call[k].rule;

            if (rule_at[to] != 0)
                continue;
            rule_at[to] = states;
            states += b->rule[to].dfa->n - 1;
            list[n++] = to;
        }
    }
    rule_at[b->n_rule] = states;
    return n;
}

/* Borders of classes that the plain lengths need, whatever the grammar. */
static const uint8_t always[] = { 0x20, 0x22, 0x23, 0x5C, 0x5D, 0x80, 0x90, 0xA0, 0xC0,
                                  0xC2, 0xE0, 0xE1, 0xED, 0xEE, 0xF0, 0xF1, 0xF4, 0xF5 };

static void find_classes(struct grammar *g, const struct grammar_build *b, const uint32_t *list, uint32_t n)
{
    bool border[256] = { false };
    uint32_t c = 0;

    for (size_t i = 0; i < sizeof always; i++)
        border[always[i]] = true;
    for (uint32_t i = 0; i < n; i++)
        for (int k = 1; k < 256; k++)
            border[k] = border[k] || b->rule[list[i]].dfa->cls[k] != b->rule[list[i]].dfa->cls[k - 1];
    if (g->v != NULL)
        for (int k = 1; k < 256; k++)
            border[k] = border[k] || g->v->single[k] != g->v->single[k - 1];
    for (int k = 0; k < 256; k++) {
        if (k > 0 && border[k])
            c++;
        g->cls[k] = (uint8_t)c;
    }
    g->n_cls = c + 1;
}

static void fill_tables(struct grammar *g, const struct grammar_build *b, const uint32_t *rule_at, const uint32_t *list,
                        uint32_t n)
{
    uint32_t n_call = 0, s = 1;

    g->call_at[0] = g->call_at[1] = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct grammar_dfa *d = b->rule[list[i]].dfa;
        uint32_t base = s - 1;

        g->rule_at[i] = s;
        for (uint32_t k = 1; k < d->n; k++, s++) {
            for (int byte = 0; byte < 256; byte++) {
                uint32_t to = d->next[(size_t)k * d->n_cls + d->cls[byte]];

                if (to != 0 && (g->v == NULL || g->v->single[byte] || (d->flag[k] & GRAMMAR_FREE) != 0))
                    g->next[(size_t)s * g->n_cls + g->cls[byte]] = base + to;
            }
            g->flag[s] = d->flag[k];
            for (uint32_t j = d->call_at[k]; j < d->call_at[k + 1]; j++)
                g->call[n_call++] = (struct grammar_call){ rule_at[d->call[j].rule], base + d->call[j].ret, NEED_NONE };
            g->call_at[s + 1] = n_call;
        }
    }
    g->rule_at[n] = s;
}

static uint32_t need_out(const struct grammar *g, uint32_t s)
{
    const uint32_t *row = g->next + (size_t)s * g->n_cls;
    uint32_t best = NEED_NONE;

    for (uint32_t c = 0; c < g->n_cls; c++)
        if (g->need[row[c]] < best)
            best = g->need[row[c]];
    for (uint32_t i = g->call_at[s]; i < g->call_at[s + 1]; i++)
        if (g->call[i].need < best)
            best = g->call[i].need;
    return best;
}

/* need[] by sweeps until nothing changes: each lowers some number, so they end. */
static void find_needs(struct grammar_build *b, struct grammar *g)
{
    bool more = true;

    for (uint32_t s = 0; s < g->n; s++)
        g->need[s] = (g->flag[s] & GRAMMAR_ACC) != 0 ? 0 : NEED_NONE;
    while (more && grammar_spend(b, (uint64_t)g->n * (g->n_cls + 2))) {
        more = false;
        for (uint32_t s = g->n; s-- > 1;) {
            uint32_t best;

            for (uint32_t i = g->call_at[s]; i < g->call_at[s + 1]; i++) {
                struct grammar_call *call = &g->call[i];
                uint32_t inside = need_out(g, call->rule) + ((g->flag[call->ret] & GRAMMAR_LAST) != 0 ? 0 : 1);
                uint32_t need = inside > g->need[call->ret] ? inside : g->need[call->ret];

                if (need < call->need) {
                    call->need = need;
                    more = true;
                }
            }
            if ((g->flag[s] & GRAMMAR_ACC) != 0)
                continue;
            best = need_out(g, s);
            if (best < g->need[s]) {
                g->need[s] = (uint16_t)best;
                more = true;
            }
        }
    }
}

/* Takes out ways that cannot end, and says of each state what it is. */
static void prune(struct grammar *g)
{
    uint32_t n_call = 0;

    for (uint32_t s = 0, from = 0, end; s < g->n; s++, from = end) {
        uint32_t *row = g->next + (size_t)s * g->n_cls;

        end = g->call_at[s + 1];
        for (uint32_t c = 0; c < g->n_cls; c++) {
            if (g->need[row[c]] == NEED_NONE)
                row[c] = 0;
            if (row[c] != 0)
                g->flag[s] |= GRAMMAR_OUT;
        }
        g->call_at[s] = n_call;
        for (uint32_t i = from; i < end; i++)
            if (g->call[i].need < NEED_NONE)
                g->call[n_call++] = g->call[i];
        g->call_at[s + 1] = n_call;
        if (n_call != g->call_at[s])
            g->flag[s] |= GRAMMAR_CALLS;
        if (s > 0 && g->need[s] < NEED_NONE && g->need[s] > g->need_max)
            g->need_max = g->need[s];
    }
}

/* Equal columns become one class. */
static enum err_code merge_columns(struct grammar *g, struct err *e)
{
    uint64_t hash[256] = { 0 };
    uint32_t to[256], first[256], n = 0, *next;

    for (uint32_t s = 0; s < g->n; s++)
        for (uint32_t c = 0; c < g->n_cls; c++) {
            hash[c] = (hash[c] ^ g->next[(size_t)s * g->n_cls + c]) * 0x9E3779B97F4A7C15U;
            hash[c] ^= hash[c] >> 29;
        }
    for (uint32_t c = 0; c < g->n_cls; c++) {
        uint32_t k = 0, s;

        for (; k < n; k++) {
            if (hash[first[k]] != hash[c])
                continue;
            for (s = 0; s < g->n; s++)
                if (g->next[(size_t)s * g->n_cls + c] != g->next[(size_t)s * g->n_cls + first[k]])
                    break;
            if (s == g->n)
                break;
        }
        if (k == n)
            first[n++] = c;
        to[c] = k;
    }
    for (uint32_t s = 0; s < g->n; s++)
        for (uint32_t k = 0; k < n; k++)
            g->next[(size_t)s * n + k] = g->next[(size_t)s * g->n_cls + first[k]];
    for (int i = 0; i < 256; i++)
        g->cls[i] = (uint8_t)to[g->cls[i]];
    g->n_cls = n;
    next = realloc(g->next, (size_t)g->n * n * sizeof *next);
    if (next == NULL)
        return err_nomem(e);
    g->next = next;
    return ERR_OK;
}

/* How many characters of plain text surely may come. A character is bytes through at most 8 states of
 * a UTF-8 reader, and a length is one more than the least of those behind it. So the numbers of pairs
 * of states start high and fall until nothing changes. */
struct reader {
    uint8_t lo, hi, to;
};
static const struct reader utf8[8][9] = {
    { { 0x20, 0x21, 0 },
      { 0x23, 0x5B, 0 },
      { 0x5D, 0x7F, 0 },
      { 0xC2, 0xDF, 1 },
      { 0xE0, 0xE0, 4 },
      { 0xE1, 0xEC, 2 },
      { 0xED, 0xED, 5 },
      { 0xEE, 0xEF, 2 },
      { 0xF0, 0xF0, 6 } },
    { { 0x80, 0xBF, 0 } },
    { { 0x80, 0xBF, 1 } },
    { { 0x80, 0xBF, 2 } },
    { { 0xA0, 0xBF, 1 } },
    { { 0x80, 0x9F, 1 } },
    { { 0x90, 0xBF, 2 } },
    { { 0x80, 0x8F, 2 } },
};
static const struct reader utf8_high[2] = { { 0xF1, 0xF3, 3 }, { 0xF4, 0xF4, 7 } };

static uint8_t plain_of(const struct grammar *g, const uint8_t *at, uint32_t s, uint32_t u)
{
    const uint32_t *row = g->next + (size_t)s * g->n_cls;
    uint32_t best = GRAMMAR_PLAIN_MAX;
    int n = u == 0 ? 11 : 1;

    for (int i = 0; i < n; i++) {
        const struct reader *r = i < 9 ? &utf8[u][i] : &utf8_high[i - 9];

        for (int k = r->lo, last = -1; k <= r->hi; k++) {
            uint32_t to = row[g->cls[k]], v;

            if (g->cls[k] == last)
                continue;
            last = g->cls[k];
            v = to == 0 ? 0 : at[(size_t)to * 8 + r->to];
            if (to != 0 && r->to == 0 && v < GRAMMAR_PLAIN_MAX)
                v++;
            if (v < best)
                best = v;
            if (best == 0)
                return 0;
        }
    }
    return (uint8_t)best;
}

static void find_plain(struct grammar_build *b, struct grammar *g)
{
    uint8_t *at = malloc((size_t)g->n * 8);
    bool more = true;

    if (at == NULL) {
        grammar_nomem(b);
        return;
    }
    memset(at, GRAMMAR_PLAIN_MAX, (size_t)g->n * 8);
    memset(at, 0, 8);
    while (more && grammar_spend(b, (uint64_t)g->n * 8)) {
        more = false;
        for (uint32_t s = g->n; s-- > 1;)
            for (uint32_t u = 8; u-- > 0;) {
                uint8_t v = at[(size_t)s * 8 + u] == 0 ? 0 : plain_of(g, at, s, u);

                more = more || v != at[(size_t)s * 8 + u];
                at[(size_t)s * 8 + u] = v;
            }
    }
    for (uint32_t s = 0; s < g->n; s++)
        g->plain[s] = at[(size_t)s * 8];
    free(at);
}

static bool take_memory(struct grammar_build *b, struct grammar *g, uint32_t n_calls)
{
    size_t n = g->n;

    /* What a whole grammar is joined with, as marks of reasoning, is not counted: one verdict for both. */
    if (n > GRAMMAR_STATES_MAX + (b->joined ? GRAMMAR_JOINED_MAX : 0)) {
        grammar_fail(b, ERR_LIMIT, "the grammar needs %zu states; the limit is %d", n, GRAMMAR_STATES_MAX);
        return false;
    }
    g->next = calloc(n * g->n_cls, sizeof *g->next);
    g->flag = calloc(n, sizeof *g->flag);
    g->plain = calloc(n, sizeof *g->plain);
    g->need = calloc(n, sizeof *g->need);
    g->call_at = calloc(n + 1, sizeof *g->call_at);
    g->call = calloc((size_t)n_calls + 1, sizeof *g->call);
    g->rule_at = calloc((size_t)g->n_rule + 1, sizeof *g->rule_at);
    if (g->next == NULL || g->flag == NULL || g->plain == NULL || g->need == NULL || g->call_at == NULL ||
        g->call == NULL || g->rule_at == NULL)
        grammar_nomem(b);
    return b->code == ERR_OK;
}

/* ACC and neither bytes nor calls lead on. Before pruning, which only takes ways away. */
static void find_last(struct grammar *g)
{
    for (uint32_t s = 1; s < g->n; s++) {
        const uint32_t *row = g->next + (size_t)s * g->n_cls;
        bool out = g->call_at[s] != g->call_at[s + 1];

        for (uint32_t c = 0; c < g->n_cls && !out; c++)
            out = row[c] != 0;
        if (!out && (g->flag[s] & GRAMMAR_ACC) != 0)
            g->flag[s] |= GRAMMAR_LAST;
    }
}

static void make_tables(struct grammar_build *b, struct grammar *g, uint32_t root)
{
    uint32_t *rule_at = calloc(2 * ((size_t)b->n_rule + 1), sizeof *rule_at);
    uint32_t *list = rule_at == NULL ? NULL : rule_at + b->n_rule + 1, n_calls = 0;

    if (rule_at == NULL) {
        grammar_nomem(b);
        return;
    }
    g->n_rule = lay_out(b, root, rule_at, list, &n_calls);
    g->n = rule_at[b->n_rule];
    g->root = 1;
    find_classes(g, b, list, g->n_rule);
    if (take_memory(b, g, n_calls)) {
        fill_tables(g, b, rule_at, list, g->n_rule);
        find_last(g);
        find_needs(b, g);
        prune(g);
        if (b->code == ERR_OK && g->need[g->root] == NEED_NONE)
            grammar_fail(b, ERR_FORMAT, "nothing can satisfy this: no text is complete");
        if (b->code == ERR_OK && g->need[g->root] > GRAMMAR_DEPTH_MAX)
            grammar_fail(b, ERR_LIMIT, "every text is nested deeper than %d", GRAMMAR_DEPTH_MAX);
        if (b->code == ERR_OK)
            find_plain(b, g);
        if (b->code == ERR_OK)
            b->code = merge_columns(g, b->e);
    }
    free(rule_at);
}

enum err_code grammar_compile(struct grammar **out, const struct grammar_vocab *v, struct grammar_build *b,
                              uint32_t root)
{
    struct grammar *g = b->code != ERR_OK ? NULL : calloc(1, sizeof *g);

    if (g == NULL) {
        grammar_nomem(b);
        grammar_build_free(b);
        return b->code;
    }
    g->v = v;
    find_nullable(b);
    if (b->code == ERR_OK)
        refuse_left_recursion(b);
    if (b->code == ERR_OK)
        make_rules(b, root);
    if (b->code == ERR_OK)
        make_tables(b, g, root);
    grammar_build_free(b);
    if (b->code == ERR_OK)
        b->code = grammar_make_ready(g, b->e);
    if (b->code != ERR_OK) {
        grammar_close(g);
        return b->code;
    }
    *out = g;
    return ERR_OK;
}

void grammar_close(struct grammar *g)
{
    if (g == NULL)
        return;
    for (uint32_t i = 0; i < g->n_ready; i++) {
        bool shared = false;

        for (uint32_t k = 0; k < i && !shared; k++)
            shared = g->ready[k].bits == g->ready[i].bits;
        if (!shared)
            free(g->ready[i].bits);
        free(g->ready[i].exit);
    }
    free(g->ready);
    free(g->ready_of);
    free(g->free_at);
    free(g->next);
    free(g->flag);
    free(g->plain);
    free(g->need);
    free(g->call_at);
    free(g->call);
    free(g->rule_at);
    free(g);
}
