/* SPDX-License-Identifier: Apache-2.0 */
/* mask.c - the tokens that may come: a walk of the vocabulary's trie for each open way.
 * room: grammar
 *
 * Depth by depth the walk keeps where the bytes so far lead: mostly one way, one look-up a node. A
 * way that dies takes its whole subtree with it. What a walk costs is the number of nodes that it
 * looks at; states where that is much are walked when the grammar is opened, with the caller
 * unknown (GRAMMAR_BELOW), and their masks kept: what comes after the end of the rule is walked
 * when the stack is known.
 */
#include <stdlib.h>
#include <string.h>
#include "base/memory.h"
#include "grammar/tables.h"

enum {
    READY_NODES = 1024,       /* states whose walk has fewer nodes need nothing ready */
    READY_WALK_MAX = 3 << 20, /* nodes walked when a grammar is opened */
    READY_BYTES_MAX = 48 << 20,
    SLOW_MAX = 1 << 19, /* steps with calls or returns of one mask */
};

static const uint8_t plain_least[GRAMMAR_TRIES] = { 0, 4, 8, 16, GRAMMAR_PLAIN_MAX };

struct walk {
    struct grammar_place *p;
    const struct grammar_trie *t;
    const struct grammar_vocab *v;
    uint32_t *mask; /* NULL: only asked for whether there is one token */
    int32_t one;    /* that token; -1: none yet, -2: several */
    unsigned only;
    uint64_t nodes, slow;
    uint32_t *exit, n_exit; /* NULL: not recorded */
    size_t cap_exit;
    bool failed; /* no memory for exits */
};

static void found(struct walk *w, const struct grammar_node *node)
{
    int32_t token = node->token;

    if (w->mask == NULL) {
        w->one = w->one == -1 && !node->twice ? token : w->one == token ? token : -2;
        return;
    }
    w->mask[token / 32] |= 1U << (token % 32);
    if (node->twice)
        while ((token = w->v->same[token]) >= 0)
            w->mask[token / 32] |= 1U << (token % 32);
}

static void add_exit(struct walk *w, uint32_t node)
{
    if (memory_room(&w->exit, &w->cap_exit, (size_t)w->n_exit + 1, sizeof *w->exit, NULL))
        w->failed = true;
    else
        w->exit[w->n_exit++] = node;
}

/* One node by way of grammar_step(): several ways, calls, returns. False: nothing leads on from
 * here. */
static bool step_slow(struct walk *w, uint32_t i)
{
    struct grammar_place *p = w->p;
    const struct grammar_node *node = &w->t->node[i];
    uint32_t d = node->depth, at = p->level_at[d - 1] + p->level_n[d - 1];
    uint32_t max = GRAMMAR_SCRATCH - at < GRAMMAR_CONFIGS ? GRAMMAR_SCRATCH - at : GRAMMAR_CONFIGS;
    bool left;

    w->slow += p->level_n[d - 1];
    p->n_frames = p->level_frames[d - 1];
    p->level_at[d] = at;
    p->level_n[d] = grammar_step(p, p->config + p->level_at[d - 1], p->level_n[d - 1], node->byte, w->only,
                                 p->config + at, max, &left);
    p->level_frames[d] = p->n_frames;
    if (left && node->skip > i + 1)
        add_exit(w, i);
    if (node->token >= 0 && (left || p->level_n[d] > 0))
        found(w, node);
    return p->level_n[d] > 0;
}

/* All tokens below node `top`, whose ways lie at its level. */
static void walk_trie(struct walk *w, uint32_t top)
{
    struct grammar_place *p = w->p;
    const struct grammar *g = p->g;
    const struct grammar_node *node = w->t->node;
    const uint32_t *next = g->next, n_cls = g->n_cls;
    uint32_t i = top + 1, end = node[top].skip;

    while (i < end && w->one != -2 && w->slow < SLOW_MAX) {
        const uint32_t d = node[i].depth, at = p->level_at[d - 1];

        w->nodes++;
        if (p->level_n[d - 1] == 1 && w->only == 0) {
            const struct grammar_config c = p->config[at];
            uint32_t to = next[(size_t)c.state * n_cls + g->cls[node[i].byte]];
            unsigned hard = c.frame == 0 ? GRAMMAR_CALLS : GRAMMAR_CALLS | GRAMMAR_ACC;

            if (to == 0) {
                i = node[i].skip;
                continue;
            }
            if ((g->flag[to] & hard) == 0 && g->need[to] == 0) {
                p->level_at[d] = at + 1;
                p->level_n[d] = 1;
                p->level_frames[d] = p->level_frames[d - 1];
                p->config[at + 1] = (struct grammar_config){ to, c.frame, true };
                if (node[i].token >= 0)
                    found(w, &node[i]);
                i++;
                continue;
            }
        }
        i = step_slow(w, i) ? i + 1 : node[i].skip;
    }
}

/* Puts ways at the level of a node: the walk below it begins with them. */
static void set_level(struct walk *w, uint32_t node, uint32_t at, uint32_t n)
{
    uint32_t d = w->t->node[node].depth;

    w->p->level_at[d] = at;
    w->p->level_n[d] = n;
    w->p->level_frames[d] = w->p->n_frames;
}

/* The trie without the plain tokens that state s surely takes. */
static int trie_of(const struct grammar *g, uint32_t s)
{
    int t = GRAMMAR_TRIES - 1;

    while (plain_least[t] > g->plain[s])
        t--;
    return t;
}

static uint32_t frame_depth(const struct grammar_place *p, uint32_t frame)
{
    return frame == GRAMMAR_BELOW ? 0 : p->frame[frame].depth;
}

/* Without anything ready. The frame may be GRAMMAR_BELOW. */
static void walk_config(struct walk *w, struct grammar_config c)
{
    const struct grammar *g = w->p->g;
    int t = w->only != 0 ? 0 : trie_of(g, c.state);

    if (frame_depth(w->p, c.frame) + g->need_max > GRAMMAR_DEPTH_MAX)
        t = 0; /* near the end of the stack only single steps are sure */
    if (w->only == 0)
        w->t = &w->v->trie[t];
    if (t > 0 && w->mask == NULL)
        w->one = -2;
    if (t > 0 && w->mask != NULL)
        for (int32_t i = 0; i < w->v->n_words; i++)
            w->mask[i] |= w->v->plain[t][i];
    w->p->config[0] = c;
    set_level(w, 0, 0, 1);
    walk_trie(w, 0);
}

static void use_ready(struct walk *w, const struct grammar_ready *r, struct grammar_config c)
{
    struct grammar_place *p = w->p;
    uint32_t n;

    for (int32_t i = 0; i < w->v->n_words; i++)
        w->mask[i] |= r->bits[i];
    if (c.frame == 0 || r->n_exit == 0)
        return;
    w->t = &w->v->trie[r->trie];
    n = grammar_pop(p, c.frame, p->config, GRAMMAR_CONFIGS);
    for (uint32_t i = 0; i < r->n_exit && n > 0 && w->slow < SLOW_MAX; i++) {
        set_level(w, r->exit[i], 0, n);
        walk_trie(w, r->exit[i]);
    }
}

/* Every open way of the place. */
static void walk_all(struct walk *w)
{
    struct grammar_place *p = w->p;
    const struct grammar *g = p->g;
    const struct grammar_set *now = &p->set[p->now];
    uint32_t n_frames;

    grammar_tidy(p);
    n_frames = p->n_frames;
    for (uint32_t i = 0; i < now->n && w->one != -2; i++, p->n_frames = n_frames) {
        const struct grammar_config c = now->v[i];
        uint32_t r = g->ready_of == NULL ? 0 : g->ready_of[c.state];

        w->only = 0;
        if (r != 0 && p->frame[c.frame].depth + g->ready[r - 1].deep + g->need_max > GRAMMAR_DEPTH_MAX)
            r = 0;
        if (r != 0 && w->mask == NULL)
            w->one = -2;
        else if (r != 0)
            use_ready(w, &g->ready[r - 1], c);
        else
            walk_config(w, c);
        p->n_frames = n_frames;
        if ((g->flag[c.state] & (GRAMMAR_FREE | GRAMMAR_MARK)) == 0)
            continue;
        w->only = GRAMMAR_FREE | GRAMMAR_MARK;
        w->t = &w->v->control;
        walk_config(w, c);
    }
}

/* What a mask has at least: the single bytes that may come, of which each has a token. */
static void add_bytes(struct walk *w)
{
    struct grammar_place *p = w->p;
    const struct grammar_set *now = &p->set[p->now];
    const struct grammar_trie *t = &w->v->trie[0];
    uint32_t n_frames = p->n_frames;
    bool left;

    for (uint32_t i = 1; i < t->n; i = t->node[i].skip, p->n_frames = n_frames)
        if (t->node[i].token >= 0 &&
            grammar_step(p, now->v, now->n, t->node[i].byte, 0, p->config, GRAMMAR_CONFIGS, &left) > 0)
            found(w, &t->node[i]);
    p->n_frames = n_frames;
}

static int32_t count_bits(const uint32_t *mask, int32_t n_words)
{
    int32_t n = 0;

    for (int32_t i = 0; i < n_words; i++) {
        uint32_t x = mask[i];

        x -= x >> 1 & 0x55555555U;
        x = (x & 0x33333333U) + (x >> 2 & 0x33333333U);
        n += (int32_t)(((x + (x >> 4)) & 0x0F0F0F0FU) * 0x01010101U >> 24);
    }
    return n;
}

int32_t grammar_mask(struct grammar_place *p, uint32_t *mask)
{
    const struct grammar_vocab *v = p->g->v;
    struct walk w = { .p = p, .v = v, .mask = mask, .one = -1 };

    if (v == NULL)
        return 0;
    if (grammar_free(p)) {
        memset(mask, 0xFF, (size_t)v->n_words * sizeof *mask);
        if (v->n_tokens % 32 != 0)
            mask[v->n_words - 1] = ((uint32_t)1 << (v->n_tokens % 32)) - 1;
        return v->n_tokens;
    }
    memset(mask, 0, (size_t)v->n_words * sizeof *mask);
    walk_all(&w);
    if (w.slow >= SLOW_MAX)
        add_bytes(&w);
    if (grammar_may_end(p))
        for (int32_t i = 0; i < v->n_words; i++)
            mask[i] |= v->ends[i];
    return count_bits(mask, v->n_words);
}

int32_t grammar_only(struct grammar_place *p)
{
    const struct grammar_vocab *v = p->g->v;
    struct walk w = { .p = p, .v = v, .one = -1 };

    if (v == NULL || grammar_free(p) || (grammar_may_end(p) && (v->n_ends != 1 || !grammar_done(p))))
        return -1;
    for (int32_t i = 0; grammar_may_end(p) && i < v->n_tokens; i++)
        if (v->kind[i] == GRAMMAR_TOKEN_END)
            return i;
    walk_all(&w);
    return w.one >= 0 ? w.one : -1;
}

/* Making ready. */
struct cost {
    uint32_t state, nodes;
};

static int by_cost(const void *a, const void *b)
{
    const struct cost *x = a, *y = b;

    if (x->nodes != y->nodes)
        return x->nodes < y->nodes ? 1 : -1;
    return (x->state > y->state) - (x->state < y->state);
}

/* States by the nodes of the trie below the bytes that lead on from them. */
static uint32_t list_costs(const struct grammar *g, struct cost *cost)
{
    uint32_t n = 0;

    for (uint32_t s = 1; s < g->n; s++) {
        const uint32_t *below = g->v->below[trie_of(g, s)];
        uint32_t nodes = 0;

        for (int i = 0; i < 256; i++)
            if (g->next[(size_t)s * g->n_cls + g->cls[i]] != 0)
                nodes += below[i];
        if (nodes >= READY_NODES || g->plain[s] >= plain_least[1])
            cost[n++] = (struct cost){ s, nodes };
    }
    qsort(cost, n, sizeof *cost, by_cost);
    return n;
}

/* Keeps what w has found for a state, or says where the same is kept already. Bytes that it takes.
 */
static size_t keep_ready(struct grammar *g, struct walk *w, uint32_t state)
{
    struct grammar_ready r = {
        .bits = w->mask, .exit = w->exit, .n_exit = w->n_exit, .trie = (uint32_t)trie_of(g, state), .deep = w->p->deep
    };
    size_t mask_bytes = (size_t)w->v->n_words * sizeof *r.bits;

    for (int32_t i = 0; i < w->v->n_words; i++)
        r.hash = ((r.hash ^ r.bits[i]) * 0x9E3779B97F4A7C15U) ^ (r.hash >> 29);
    for (uint32_t i = g->n_ready; i-- > 0;) {
        const struct grammar_ready *o = &g->ready[i];

        if (o->hash != r.hash || memcmp(o->bits, r.bits, mask_bytes) != 0)
            continue;
        free(r.bits);
        r.bits = o->bits;
        if (o->n_exit != r.n_exit || o->trie != r.trie || o->deep != r.deep ||
            (r.n_exit > 0 && memcmp(o->exit, r.exit, r.n_exit * sizeof *r.exit) != 0))
            break;
        free(r.exit);
        g->ready_of[state] = i + 1;
        return 0;
    }
    g->ready[g->n_ready++] = r;
    g->ready_of[state] = g->n_ready;
    return mask_bytes + r.n_exit * sizeof *r.exit;
}

/* States below this one have no caller: those of the text itself, unless it is called as a rule,
 * too. */
static uint32_t first_called(const struct grammar *g)
{
    for (uint32_t i = 0; i < g->call_at[g->n]; i++)
        if (g->call[i].rule == g->root)
            return 0;
    return g->rule_at[1];
}

static enum err_code make_ready(struct grammar *g, struct grammar_place *p, const struct cost *cost, uint32_t n,
                                struct err *e)
{
    uint64_t nodes = 0;
    size_t bytes = 0;
    uint32_t called = first_called(g);

    for (uint32_t i = 0; i < n && nodes < READY_WALK_MAX && bytes < READY_BYTES_MAX; i++) {
        struct walk w = { .p = p, .v = g->v, .one = -1 };
        bool good;

        w.mask = calloc((size_t)g->v->n_words, sizeof *w.mask);
        if (w.mask == NULL)
            return err_nomem(e);
        p->n_frames = 1;
        p->deep = 0;
        walk_config(&w, (struct grammar_config){ cost[i].state, cost[i].state < called ? 0 : GRAMMAR_BELOW, true });
        nodes += w.nodes + w.slow * 4 + READY_NODES;
        good = !w.failed && w.slow < SLOW_MAX && w.n_exit <= 1U << 15;
        if (good && (w.nodes >= READY_NODES || w.t != &g->v->trie[0])) {
            bytes += keep_ready(g, &w, cost[i].state);
        } else {
            free(w.mask);
            free(w.exit);
        }
    }
    return ERR_OK;
}

/* Where in free text nothing is forbidden: no token completes a mark and goes on wrongly. */
static enum err_code make_free(struct grammar *g, struct grammar_place *p, struct err *e)
{
    const struct grammar_vocab *v = g->v;
    uint32_t *mask = calloc((size_t)v->n_words + 1, sizeof *mask);

    g->free_at = calloc(g->n, sizeof *g->free_at);
    if (g->free_at == NULL || mask == NULL) {
        free(mask);
        return err_nomem(e);
    }
    for (uint32_t s = 1; s < g->n; s++) {
        struct walk w = { .p = p, .v = v, .mask = mask, .one = -1 };

        if ((g->flag[s] & GRAMMAR_FREE) == 0)
            continue;
        memset(mask, 0, (size_t)v->n_words * sizeof *mask);
        p->n_frames = 1;
        walk_config(&w, (struct grammar_config){ s, 0, true });
        w.only = GRAMMAR_FREE | GRAMMAR_MARK;
        w.t = &v->control;
        p->n_frames = 1;
        walk_config(&w, (struct grammar_config){ s, 0, true });
        g->free_at[s] = (g->flag[s] & GRAMMAR_ACC) != 0 && count_bits(mask, v->n_words) == v->n_trie + v->n_control;
    }
    free(mask);
    return ERR_OK;
}

enum err_code grammar_make_ready(struct grammar *g, struct err *e)
{
    struct grammar_place *p = NULL;
    struct cost *cost;
    uint32_t n;
    bool has_free = false;
    enum err_code rc;

    if (g->v == NULL)
        return ERR_OK;
    cost = calloc(g->n, sizeof *cost);
    g->ready_of = calloc(g->n, sizeof *g->ready_of);
    rc = cost == NULL || g->ready_of == NULL ? err_nomem(e) : grammar_begin(&p, g, e);
    if (rc == ERR_OK) {
        n = list_costs(g, cost);
        g->ready = calloc((size_t)n + 1, sizeof *g->ready);
        rc = g->ready == NULL ? err_nomem(e) : make_ready(g, p, cost, n, e);
    }
    for (uint32_t s = 1; s < g->n; s++)
        has_free = has_free || (g->flag[s] & GRAMMAR_FREE) != 0;
    if (rc == ERR_OK && has_free)
        rc = make_free(g, p, e);
    grammar_end(p);
    free(cost);
    return rc;
}
