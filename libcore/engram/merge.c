/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - many epochs into one: walks their tries side by side.            room: engram */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engram/internal.h"

/* Where a source stands in the contexts of one level. */
struct cursor {
    const struct epoch *ep;
    uint64_t at, end;
    double   scale; /* of its counts */
    int64_t  older; /* days from its day to the merged epoch's */
};
struct merge {
    struct emit *m;
    const struct merge_rule *rule;
    const struct progress   *progress;
    struct cursor *cursor; /* [ENGRAM_ORDER_MAX][n] */
    int            n;
    struct entry  *v;
    size_t         v_cap;
    uint64_t       done, total;
};

static int by_token(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* Room for n entries. */
static enum err_code grow(struct merge *g, size_t n, struct err *e)
{
    struct entry *v;

    if (n <= g->v_cap)
        return ERR_OK;
    n = n < 64 ? 64 : n + n / 2;
    v = realloc(g->v, n * sizeof *v);
    if (v == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    g->v = v;
    g->v_cap = n;
    return ERR_OK;
}

/* Entries of one token follow each other in the order of the sources: their sum does not depend on anything else. */
static size_t join(struct entry *v, size_t n)
{
    size_t kept = 0;

    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && v[kept - 1].token == v[i].token) {
            v[kept - 1].count += v[i].count;
            if (v[i].age < v[kept - 1].age)
                v[kept - 1].age = v[i].age;
        } else
            v[kept++] = v[i];
    }
    return kept;
}

/* What followed a context, into g->v; *n rows. at[i]: its place in source i, or UINT64_MAX. */
static enum err_code collect(struct merge *g, int l, const uint64_t *at, size_t *n, struct err *e)
{
    const struct merge_rule *rule = g->rule;
    size_t all = 0, kept = 0;
    int n_sources = 0;

    for (int i = 0; i < g->n; i++) {
        const struct cursor *c = &g->cursor[l * g->n + i];

        if (at[i] == UINT64_MAX)
            continue;
        const struct level *v = &c->ep->level[l];
        const struct range r = engram_nexts(c->ep, l, at[i]);

        if (grow(g, all + (size_t)(r.end - r.begin), e))
            return e->code;
        for (uint64_t k = r.begin; k < r.end; k++)
            g->v[all++] = (struct entry){ (int32_t)v->next[k], (uint32_t)(v->age[k] + c->older), i,
                                          (double)v->count[k] * c->scale };
        n_sources++;
    }
    if (n_sources > 1) {
        qsort(g->v, all, sizeof *g->v, by_token);
        all = join(g->v, all);
    }
    for (size_t i = 0; i < all; i++) {
        const struct entry *x = &g->v[i];
        const bool old = rule->unused_days >= 0 && x->age > rule->unused_days;
        const double score = x->count + (double)(ENGRAM_ORDER_MAX - l) / (2 * ENGRAM_ORDER_MAX);

        if (!old && (float)x->count > 0 && isfinite((float)x->count) && x->count >= rule->count_min &&
            score >= rule->score_min)
            g->v[kept++] = *x;
    }
    *n = kept;
    return ERR_OK;
}

static enum err_code merge_level(struct merge *g, int l, int order, uint64_t hash_before, struct err *e);

/* The contexts of all sources that have `token` next: their children, then themselves. */
static enum err_code merge_one(struct merge *g, int l, int order, uint32_t token, uint64_t hash_before, struct err *e)
{
    struct cursor *c = g->cursor + l * g->n, *child = c + g->n;
    const uint64_t hash = engram_hash(hash_before, token);
    uint64_t at[ENGRAM_EPOCHS_MAX], before;
    size_t n = 0;

    for (int i = 0; i < g->n; i++) {
        const bool has = c[i].at < c[i].end && c[i].ep->level[l].token[c[i].at] == token;

        at[i] = has ? c[i].at++ : UINT64_MAX;
        g->done += has;
        if (l + 1 < order) {
            const struct range r = has ? engram_children(c[i].ep, l, at[i]) : (struct range){ 0, 0 };

            child[i] = (struct cursor){ c[i].ep, r.begin, r.end, c[i].scale, c[i].older };
        }
    }
    before = engram_emit_contexts(g->m);
    if (l + 1 < order && merge_level(g, l + 1, order, hash, e))
        return e->code;
    if (collect(g, l, at, &n, e))
        return e->code;
    if (n == 0 && engram_emit_contexts(g->m) == before)
        return ERR_OK; /* nothing of it is left */
    return engram_emit(g->m, l, token, hash, g->v, n, e);
}

static enum err_code merge_level(struct merge *g, int l, int order, uint64_t hash_before, struct err *e)
{
    const struct cursor *c = g->cursor + l * g->n;

    for (;;) {
        uint32_t token = UINT32_MAX;

        for (int i = 0; i < g->n; i++)
            if (c[i].at < c[i].end && c[i].ep->level[l].token[c[i].at] < token)
                token = c[i].ep->level[l].token[c[i].at];
        if (token == UINT32_MAX)
            return ERR_OK;
        if (merge_one(g, l, order, token, hash_before, e))
            return e->code;
        if (l < 2 && !progress_tick(g->progress, g->done, g->total))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
}

static int order_of(const struct file *file, int n_files)
{
    int order = 1;

    for (int f = 0; f < n_files; f++)
        for (int i = 0; i < file[f].n_epochs; i++)
            order = file[f].epoch[i].order > order ? file[f].epoch[i].order : order;
    return order;
}

enum err_code engram_merge_into(struct emit *m, const struct file *file, int n_files, const struct merge_rule *rule,
                                const struct progress *p, struct err *e)
{
    struct merge g = { .m = m, .rule = rule, .progress = p };
    const int order = order_of(file, n_files);
    enum err_code code;

    for (int f = 0; f < n_files; f++)
        g.n += file[f].n_epochs;
    if (g.n > ENGRAM_EPOCHS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d epochs", ENGRAM_EPOCHS_MAX);
    g.cursor = calloc((size_t)(g.n > 0 ? g.n : 1) * (ENGRAM_ORDER_MAX + 1), sizeof *g.cursor);
    if (g.cursor == NULL)
        return err_set(e, ERR_NOMEM, "out of memory");
    for (int f = 0, i = 0; f < n_files; f++)
        for (int k = 0; k < file[f].n_epochs; k++, i++) {
            const struct epoch *ep = &file[f].epoch[k];
            const int64_t older = rule->day > ep->day ? rule->day - ep->day : 0;

            g.cursor[i] = (struct cursor){ ep, 0, ep->level[0].n,
                                           engram_decay(older) * (rule->scale ? (double)rule->scale[f] : 1), older };
            for (int l = 0; l < ep->order; l++)
                g.total += ep->level[l].n;
        }
    code = merge_level(&g, 0, order, 0, e);
    free(g.cursor);
    free(g.v);
    return code;
}

/* ---- files ---- */

/* Bytes of the file with the rows of that score and more. *empty: there are none. */
static enum err_code size_at(const struct engram *g, struct merge_rule *rule, double score, const struct progress *p,
                             uint64_t *bytes, bool *empty, struct err *e)
{
    struct emit *dry;
    enum err_code code;

    rule->score_min = score;
    if (engram_emit_open(&dry, NULL, order_of(g->file, g->n_files), e))
        return e->code;
    code = engram_merge_into(dry, g->file, g->n_files, rule, p, e);
    *bytes = HEAD_BYTES + engram_emit_bytes(dry);
    *empty = engram_emit_contexts(dry) == 0;
    engram_emit_close(dry);
    return code;
}

/* The least score whose rows fit, to half of what equal counts of neighbouring orders differ by. */
static enum err_code fit_size(const struct engram *g, struct merge_rule *rule, uint64_t bytes_max,
                              const struct progress *p, struct err *e)
{
    const double step = 1.0 / (4 * ENGRAM_ORDER_MAX);
    double lo = 0, hi = 1;
    uint64_t bytes;
    bool empty;

    if (size_at(g, rule, 0, p, &bytes, &empty, e))
        return e->code;
    if (bytes <= bytes_max)
        return ERR_OK;
    for (;; lo = hi, hi *= 2) {
        if (size_at(g, rule, hi, p, &bytes, &empty, e))
            return e->code;
        if (bytes <= bytes_max)
            break;
        if (empty)
            return err_set(e, ERR_ARG, "an empty table takes %llu bytes", (unsigned long long)bytes);
    }
    while (hi - lo > step) {
        const double mid = lo + (hi - lo) / 2;

        if (size_at(g, rule, mid, p, &bytes, &empty, e))
            return e->code;
        *(bytes <= bytes_max ? &hi : &lo) = mid;
    }
    rule->score_min = hi;
    return ERR_OK;
}

enum err_code engram_merge(const struct engram *g, const char *path, const struct engram_merge_opts *o,
                           const struct progress *p, struct err *e)
{
    struct merge_rule rule = { o->scale, o->day, o->unused_days, o->count_min, 0 };
    struct emit *m = NULL;
    struct io_out *out = NULL;
    unsigned char head[HEAD_BYTES];
    uint64_t tokens = 0, documents = 0;
    enum err_code code;

    for (int f = 0; f < g->n_files; f++)
        for (int i = 0; i < g->file[f].n_epochs; i++) {
            tokens += g->file[f].epoch[i].tokens;
            documents += g->file[f].epoch[i].documents;
        }
    if (o->bytes_max > 0 && fit_size(g, &rule, o->bytes_max, p, e))
        return e->code;
    if (engram_emit_open(&m, path, order_of(g->file, g->n_files), e))
        return e->code;
    memcpy(head, g->file[0].map.data, HEAD_BYTES);
    code = engram_merge_into(m, g->file, g->n_files, &rule, p, e);
    if (code == ERR_OK)
        code = io_out_open(&out, path, e);
    if (code == ERR_OK)
        code = io_out_write(out, head, sizeof head, e);
    if (code == ERR_OK)
        code = engram_emit_write(m, out, o->day, tokens, documents, e);
    engram_emit_close(m);
    if (code == ERR_OK)
        return io_out_commit(out, e);
    io_out_abort(out);
    return code;
}
