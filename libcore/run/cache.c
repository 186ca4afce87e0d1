/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c - what sequences were made of, and snapshots on the way: the ladder of run.h. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "arch/arch.h"
#include "model/forward.h"
#include "run/internal.h"
#include "state/state.h"

enum { SPACING_MIN = 32, RUNGS_MAX = 1 << 16 };

static int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int64_t run_snapshot_bytes(const struct model *m)
{
    const struct arch_plan *p = model_plan(m);
    int64_t floats = 0;

    for (int i = 0; i < p->n_layer; i++)
        floats += arch_plan_conv_floats(p, i) + arch_plan_rec_floats(p, i) + arch_plan_table_floats(p, i);
    floats += p->table.ngram > 0 ? p->table.ngram - 1 : 0; /* tokens */
    return floats * (int64_t)sizeof(float);
}

/* How many rungs, and how far apart. */
static void plan_rungs(struct run *r, int64_t bytes)
{
    struct run_cache *c = &r->cache;
    int64_t n, grid;

    c->rec_bytes = (size_t)run_snapshot_bytes(r->m);
    assert(c->rec_bytes == state_rec_bytes(r->state));
    if (c->rec_bytes == 0)
        return;
    n = bytes / (int64_t)c->rec_bytes / r->n_seq;
    n = n > RUNGS_MAX ? RUNGS_MAX : n;
    grid = n / 2;
    if (grid > 0) {
        c->spacing = ceil_div(r->ctx, grid + 1);
        c->spacing = c->spacing < SPACING_MIN ? SPACING_MIN : c->spacing;
        grid = r->ctx / c->spacing;
    }
    /* A small context needs no more than its grid and as many marks. */
    c->per_seq = (int)(n > 2 * (grid + 1) ? 2 * (grid + 1) : n);
}

enum err_code run_cache_open(struct run *r, int64_t bytes, struct err *e)
{
    struct run_cache *c = &r->cache;
    size_t n_seq = (size_t)r->n_seq, n;

    if (bytes < 0)
        return err_set(e, ERR_ARG, "%lld bytes for checkpoints", (long long)bytes);
    plan_rungs(r, bytes);
    n = n_seq * (size_t)c->per_seq;
    c->track = calloc(n_seq, sizeof *c->track);
    c->tokens = calloc(n_seq * (size_t)r->ctx, sizeof *c->tokens);
    c->rungs = calloc(n + 1, sizeof *c->rungs);
    c->shared = calloc(n + 1, sizeof *c->shared);
    c->spare = calloc(n + 1, sizeof *c->spare);
    c->blocks = malloc(n * c->rec_bytes + 1);
    c->has_before = calloc(n_seq, sizeof *c->has_before);
    c->pos_before = calloc(n_seq, sizeof *c->pos_before);
    c->before = r->stop_keeps ? malloc(n_seq * c->rec_bytes + 1) : NULL;
    if (c->has_before == NULL || c->pos_before == NULL || (c->before == NULL && r->stop_keeps) || c->track == NULL ||
        c->tokens == NULL || c->rungs == NULL || c->shared == NULL || c->spare == NULL || c->blocks == NULL)
        return err_set(e, ERR_NOMEM, "out of memory: %zu MiB for %zu checkpoints", n * c->rec_bytes >> 20, n);
    for (int q = 0; q < r->n_seq; q++)
        c->track[q] = (struct track){ c->tokens + q * r->ctx, c->rungs + q * c->per_seq, 0 };
    for (size_t i = 0; i < n; i++)
        c->spare[i] = (int)(n - 1 - i);
    c->n_spare = (int)n;
    return ERR_OK;
}

void run_cache_close(struct run *r)
{
    free(r->cache.track);
    free(r->cache.tokens);
    free(r->cache.rungs);
    free(r->cache.shared);
    free(r->cache.spare);
    free(r->cache.blocks);
    free(r->cache.before);
    free(r->cache.has_before);
    free(r->cache.pos_before);
}

static unsigned char *block_at(const struct run_cache *c, int block)
{
    return c->blocks + (size_t)block * c->rec_bytes;
}

static void let_go(struct run_cache *c, int block)
{
    if (--c->shared[block] == 0)
        c->spare[c->n_spare++] = block;
}

/* Every second mark goes, the newest stays unless it is the only one. False: there are none. */
static bool thin_out(struct run_cache *c, struct track *t)
{
    int marks = 0, kept = 0, n = t->n;

    for (int i = 0; i < n; i++)
        marks += t->rung[i].grid ? 0 : 1;
    for (int i = 0, left = marks; i < n; i++) {
        bool drop = !t->rung[i].grid && (left-- % 2 == 0 || marks == 1);

        if (drop)
            let_go(c, t->rung[i].block);
        else
            t->rung[kept++] = t->rung[i];
    }
    t->n = kept;
    return marks > 0;
}

static void take_rung(struct run *r, int seq, bool grid, bool mark)
{
    struct run_cache *c = &r->cache;
    struct track *t = &c->track[seq];
    int64_t pos = run_pos(r, seq);
    struct err e;

    if (c->per_seq == 0 || pos == 0 || r->draft[seq] > 0)
        return;
    if (t->n > 0 && t->rung[t->n - 1].pos == pos) {
        t->rung[t->n - 1].grid |= grid;
        t->rung[t->n - 1].mark |= mark;
        return;
    }
    if (t->n == c->per_seq && !thin_out(c, t))
        return; /* a mark, and the grid needs all there is */
    if (model_commit(r->m, r->state, seq, &e) != ERR_OK)
        return; /* the next step says so */
    assert(c->n_spare > 0);
    int block = c->spare[--c->n_spare];
    c->shared[block] = 1;
    state_rec_read(r->state, seq, block_at(c, block));
    t->rung[t->n++] = (struct rung){ pos, block, grid, mark };
}

static int64_t last_grid(const struct track *t)
{
    for (int i = t->n - 1; i >= 0; i--)
        if (t->rung[i].grid)
            return t->rung[i].pos;
    return 0;
}

int64_t run_due(const struct run *r, int seq)
{
    const struct run_cache *c = &r->cache;
    int64_t next;

    if (c->spacing == 0)
        return INT64_MAX;
    next = last_grid(&c->track[seq]) + c->spacing - run_pos(r, seq);
    return next > 0 ? next : 1;
}

void run_cache_append(struct run *r, int seq, int64_t pos, const int32_t *tokens, int n)
{
    memcpy(r->cache.track[seq].token + pos, tokens, (size_t)n * sizeof *tokens);
}

void run_cache_grown(struct run *r, int seq)
{
    const struct run_cache *c = &r->cache;
    int64_t pos = run_pos(r, seq);

    /* At the end of the context there is nothing to go on from. */
    if (c->spacing > 0 && pos < r->ctx && pos - last_grid(&c->track[seq]) >= c->spacing)
        take_rung(r, seq, true, false);
}

void run_cache_cut(struct run *r, int seq, int64_t pos)
{
    struct track *t = &r->cache.track[seq];

    while (t->n > 0 && t->rung[t->n - 1].pos > pos)
        let_go(&r->cache, t->rung[--t->n].block);
}

void run_cache_fork(struct run *r, int dst, int src)
{
    struct run_cache *c = &r->cache;
    struct track *to = &c->track[dst], *from = &c->track[src];

    if (dst == src)
        return;
    run_cache_cut(r, dst, 0);
    memcpy(to->token, from->token, (size_t)run_pos(r, src) * sizeof *to->token);
    for (to->n = 0; to->n < from->n; to->n++) {
        to->rung[to->n] = from->rung[to->n];
        c->shared[to->rung[to->n].block]++;
    }
}

void run_mark(struct run *r, int seq)
{
    take_rung(r, seq, false, true);
}

const int32_t *run_tokens(const struct run *r, int seq)
{
    return r->cache.track[seq].token;
}

/* The highest rung at or below pos, or the beginning. */
static void restore(struct run *r, int seq, int64_t pos)
{
    const struct run_cache *c = &r->cache;
    const struct track *t = &c->track[seq];

    run_cache_cut(r, seq, pos);
    if (t->n > 0)
        state_rec_write(r->state, seq, t->rung[t->n - 1].pos, block_at(c, t->rung[t->n - 1].block));
    else
        state_clear(r->state, seq);
}

enum err_code run_cache_before(struct run *r, const struct run_row *rows, int n, struct err *e)
{
    struct run_cache *c = &r->cache;

    memset(r->grow, 0, (size_t)r->n_seq * sizeof *r->grow);
    for (int i = 0; i < n; i++)
        r->grow[rows[i].seq] += !rows[i].draft;
    for (int q = 0; q < r->n_seq && c->before != NULL; q++) {
        c->has_before[q] = r->grow[q] > 1;
        c->pos_before[q] = run_pos(r, q);
        if (!c->has_before[q])
            continue;
        if (model_commit(r->m, r->state, q, e))
            return e->code;
        state_rec_read(r->state, q, c->before + (size_t)q * c->rec_bytes);
    }
    return ERR_OK;
}

void run_cache_back(struct run *r, int seq)
{
    struct run_cache *c = &r->cache;

    r->draft[seq] = 0;
    if (c->has_before[seq])
        state_rec_write(r->state, seq, c->pos_before[seq], c->before + (size_t)seq * c->rec_bytes);
    else
        run_clear(r, seq);
}

struct run_match run_cache_compare(const int32_t *had, int64_t n_had, const int32_t *given, int64_t n_given)
{
    struct run_match m = { .held = n_had, .had = -1, .given = -1 };

    while (m.common < n_had && m.common < n_given && had[m.common] == given[m.common])
        m.common++;
    if (m.common < n_had)
        m.had = had[m.common];
    if (m.common < n_given)
        m.given = given[m.common];
    return m;
}

/* Tokens a match would keep of a sequence with this many in common: what undo or a rung reaches. */
static int64_t reach(const struct run *r, int seq, int64_t want)
{
    const struct track *t = &r->cache.track[seq];
    const int64_t held = run_pos(r, seq);

    if (held - want <= state_undoable(r->state, seq))
        return want < held ? want : held;
    for (int i = t->n - 1; i >= 0; i--)
        if (t->rung[i].pos <= want)
            return t->rung[i].pos;
    return 0;
}

int64_t run_kept(const struct run *r, int seq, const int32_t *tokens, int64_t n)
{
    const struct run_match m = run_cache_compare(run_tokens(r, seq), run_pos(r, seq), tokens, n);

    return reach(r, seq, m.common < n ? m.common : n - 1);
}

enum err_code run_match(struct run *r, int seq, const int32_t *tokens, int64_t n, struct run_match *out, struct err *e)
{
    struct run_match m;
    int64_t want;

    if (seq < 0 || seq >= r->n_seq || n < 1 || r->draft[seq] > 0)
        return err_set(e, ERR_ARG, "a match of %lld tokens with sequence %d", (long long)n, seq);
    m = run_cache_compare(run_tokens(r, seq), run_pos(r, seq), tokens, n);
    want = m.common < n ? m.common : n - 1;
    if (want < m.held && m.held - want > state_undoable(r->state, seq))
        restore(r, seq, want);
    else if (want < m.held && run_undo(r, seq, m.held - want, e) != ERR_OK)
        return e->code;
    m.kept = run_pos(r, seq);
    *out = m;
    return ERR_OK;
}

void run_cache_loaded(struct run *r, int seq, const int32_t *tokens)
{
    memcpy(r->cache.track[seq].token, tokens, (size_t)run_pos(r, seq) * sizeof *tokens);
    take_rung(r, seq, r->cache.spacing > 0 && run_pos(r, seq) < r->ctx, false);
}

const void *run_cache_mark(const struct run *r, int seq, int64_t from, int64_t to, int64_t *pos)
{
    const struct track *t = &r->cache.track[seq];

    for (int i = t->n - 1; i >= 0 && t->rung[i].pos > from; i--)
        if (t->rung[i].mark && t->rung[i].pos < to) {
            *pos = t->rung[i].pos;
            return block_at(&r->cache, t->rung[i].block);
        }
    return NULL;
}
