/* SPDX-License-Identifier: Apache-2.0 */
/* merge.c - many epochs into one: walks their tries side by side.            room: engram */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "engram/internal.h"

/* Weights of tables, again and again, do not lead out of floats: the sum of 2^32 counts is one, too. */
#define COUNT_MAX 1e28
enum { CONTEXTS_BETWEEN_DROPS = 1 << 20 };

/* Where a source stands in the contexts of one level. */
struct cursor {
    const struct epoch *ep;
    uint64_t at, end;
    double scale;  /* of its counts */
    int64_t older; /* days from its day to the merged epoch's */
};
struct merge {
    struct emit *m;
    const struct merge_rule *rule;
    const struct progress *progress;
    struct cursor *cursor; /* [ENGRAM_ORDER_MAX][n] */
    int n;
    struct entry *v;
    size_t v_cap;
    uint64_t done, total;
    const struct file *file; /* [n_files] */
    int n_files;
    uint64_t dropped; /* contexts that were done when pages of the files were dropped last */
};

static int by_token(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->token != y->token)
        return x->token < y->token ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* Entries of one token follow each other in the order of the sources: their sum does not depend on anything else. */
static size_t join_entries(struct entry *v, size_t n)
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
static enum err_code collect_nexts(struct merge *g, int l, const uint64_t *at, size_t *n, struct err *e)
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

        if (memory_room(&g->v, &g->v_cap, all + (size_t)(r.end - r.begin), sizeof *g->v, e))
            return e->code;
        for (uint64_t k = r.begin; k < r.end; k++)
            g->v[all++] = (struct entry){ (int32_t)v->next[k], (uint32_t)(v->age[k] + c->older), i,
                                          (double)v->count[k] * c->scale };
        n_sources++;
    }
    if (n_sources > 1) {
        qsort(g->v, all, sizeof *g->v, by_token);
        all = join_entries(g->v, all);
    }
    for (size_t i = 0; i < all; i++) {
        struct entry *x = &g->v[i];

        x->count = x->count < COUNT_MAX ? x->count : COUNT_MAX;
        const bool old = rule->unused_days >= 0 && x->age > rule->unused_days;
        const double score = x->count + (double)(ENGRAM_ORDER_MAX - l) / (2 * ENGRAM_ORDER_MAX);

        if (!old && (float)x->count > 0 && x->count >= rule->count_min && score >= rule->score_min)
            g->v[kept++] = *x;
    }
    *n = kept;
    return ERR_OK;
}

/* Files are read from begin to end: pages that were read stay in the system's cache, and not in this process. */
static void drop_pages(struct merge *g)
{
    if (g->done - g->dropped < CONTEXTS_BETWEEN_DROPS)
        return;
    g->dropped = g->done;
    for (int f = 0; f < g->n_files; f++)
        io_map_drop(&g->file[f].map, g->file[f].map.data, g->file[f].map.size);
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
    if (collect_nexts(g, l, at, &n, e))
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
        drop_pages(g);
        if (l < 2 && !progress_tick(g->progress, g->done, g->total))
            return err_set(e, ERR_CANCEL, "interrupted");
    }
}

static bool takes(const struct merge_rule *rule, const struct epoch *ep)
{
    return rule->domain == NULL || strcmp(rule->domain, ep->domain) == 0;
}

static int order_of(const struct file *file, int n_files, const struct merge_rule *rule)
{
    int order = 1;

    for (int f = 0; f < n_files; f++)
        for (int i = 0; i < file[f].n_epochs; i++)
            if (takes(rule, &file[f].epoch[i]) && file[f].epoch[i].order > order)
                order = file[f].epoch[i].order;
    return order;
}

enum err_code engram_merge_into(struct emit *m, const struct file *file, int n_files, const struct merge_rule *rule,
                                const struct progress *p, struct err *e)
{
    struct merge g = { .m = m, .rule = rule, .progress = p, .file = file, .n_files = n_files };
    const int order = order_of(file, n_files, rule);
    enum err_code code;

    for (int f = 0; f < n_files; f++)
        for (int k = 0; k < file[f].n_epochs; k++)
            g.n += takes(rule, &file[f].epoch[k]);
    if (g.n > ENGRAM_EPOCHS_MAX)
        return err_set(e, ERR_LIMIT, "more than %d epochs", ENGRAM_EPOCHS_MAX);
    g.cursor = calloc((size_t)(g.n > 0 ? g.n : 1) * (ENGRAM_ORDER_MAX + 1), sizeof *g.cursor);
    if (g.cursor == NULL)
        return err_nomem(e);
    for (int f = 0, i = 0; f < n_files; f++)
        for (int k = 0; k < file[f].n_epochs; k++) {
            const struct epoch *ep = &file[f].epoch[k];
            const int64_t older = rule->day > ep->day ? rule->day - ep->day : 0;

            if (!takes(rule, ep))
                continue;
            g.cursor[i++] = (struct cursor){ ep, 0, ep->level[0].n,
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

/* What becomes an epoch of the new file. */
struct share {
    const char *domain;
    uint64_t tokens, documents, n_known;
    uint64_t *known; /* [n_known] */
};
struct job {
    const struct engram *g;
    struct merge_rule rule;
    struct share *share; /* [n] by domain */
    int n;
    const struct progress *progress;
};

static void close_shares(struct job *j)
{
    for (int i = 0; i < j->n; i++)
        free(j->share[i].known);
    free(j->share);
}

static enum err_code add_share(struct job *j, const struct epoch *ep, struct err *e)
{
    struct share *s = j->share;
    uint64_t *known;
    int i = 0;

    while (i < j->n && strcmp(s[i].domain, ep->domain) != 0)
        i++;
    if (i == j->n) {
        if ((s = realloc(s, (size_t)(j->n + 1) * sizeof *s)) == NULL)
            return err_nomem(e);
        j->share = s;
        s[j->n++] = (struct share){ .domain = ep->domain };
    }
    s[i].tokens += ep->tokens;
    s[i].documents += ep->documents;
    if (ep->n_known == 0)
        return ERR_OK;
    if ((known = realloc(s[i].known, (size_t)(s[i].n_known + ep->n_known) * sizeof *known)) == NULL)
        return err_nomem(e);
    s[i].known = known;
    memcpy(known + s[i].n_known, ep->known, (size_t)ep->n_known * sizeof *known);
    s[i].n_known += ep->n_known;
    return ERR_OK;
}

static enum err_code open_shares(struct job *j, struct err *e)
{
    const struct engram *g = j->g;

    for (int f = 0; f < g->n_files; f++)
        for (int i = 0; i < g->file[f].n_epochs; i++)
            if (add_share(j, &g->file[f].epoch[i], e))
                return e->code;
    for (int i = 0; i < j->n; i++) {
        struct share *s = &j->share[i];
        uint64_t n = 0;

        if (s->n_known > 0)
            qsort(s->known, (size_t)s->n_known, sizeof *s->known, io_by_hash);
        for (uint64_t k = 0; k < s->n_known; k++)
            if (n == 0 || s->known[k] != s->known[n - 1])
                s->known[n++] = s->known[k];
        s->n_known = n;
    }
    return ERR_OK;
}

/* Contexts and rows of a share; path NULL: only counted. */
static enum err_code merge_share(const struct job *j, const struct share *s, const char *path, struct emit **m,
                                 struct err *e)
{
    struct merge_rule rule = j->rule;

    rule.domain = s->domain;
    if (engram_emit_open(m, path, order_of(j->g->file, j->g->n_files, &rule), e))
        return e->code;
    return engram_merge_into(*m, j->g->file, j->g->n_files, &rule, j->progress, e);
}

/* Bytes of the file with the rows of that score and more. *empty: there are none. */
static enum err_code size_at(struct job *j, double score, uint64_t *bytes, bool *empty, struct err *e)
{
    enum err_code code = ERR_OK;

    j->rule.score_min = score;
    *bytes = HEAD_BYTES;
    *empty = true;
    for (int i = 0; code == ERR_OK && i < j->n; i++) {
        struct emit *dry = NULL;

        code = merge_share(j, &j->share[i], NULL, &dry, e);
        if (code == ERR_OK) {
            *bytes += engram_emit_bytes(dry, j->share[i].n_known);
            *empty = *empty && engram_emit_contexts(dry) == 0;
        }
        engram_emit_close(dry);
    }
    return code;
}

/* The least score whose rows fit, to half of what equal counts of neighbouring orders differ by. */
static enum err_code fit_size(struct job *j, uint64_t bytes_max, struct err *e)
{
    const double step = 1.0 / (4 * ENGRAM_ORDER_MAX);
    double lo = 0, hi = 1;
    uint64_t bytes;
    bool empty;

    if (size_at(j, 0, &bytes, &empty, e))
        return e->code;
    if (bytes <= bytes_max)
        return ERR_OK;
    for (;; lo = hi, hi *= 2) {
        if (size_at(j, hi, &bytes, &empty, e))
            return e->code;
        if (bytes <= bytes_max)
            break;
        if (empty)
            return err_set(e, ERR_ARG, "an empty table takes %llu bytes", (unsigned long long)bytes);
    }
    while (hi - lo > step) {
        const double mid = lo + (hi - lo) / 2;

        if (size_at(j, mid, &bytes, &empty, e))
            return e->code;
        *(bytes <= bytes_max ? &hi : &lo) = mid;
    }
    j->rule.score_min = hi;
    return ERR_OK;
}

static enum err_code write_share(const struct job *j, const struct share *s, const char *path, struct io_out *out,
                                 uint64_t *contexts, struct err *e)
{
    struct epoch ep = {
        .day = j->rule.day, .tokens = s->tokens, .documents = s->documents, .n_known = s->n_known, .known = s->known
    };
    struct emit *m = NULL;
    enum err_code code = merge_share(j, s, path, &m, e);

    (void)snprintf(ep.domain, sizeof ep.domain, "%s", s->domain);
    if (code == ERR_OK)
        *contexts += engram_emit_contexts(m);
    if (code == ERR_OK)
        code = engram_emit_write(m, out, &ep, e);
    engram_emit_close(m);
    return code;
}

static enum err_code write_shares(const struct job *j, const char *path, struct err *e)
{
    unsigned char head[HEAD_BYTES];
    struct io_out *out;
    uint64_t contexts = 0;
    enum err_code code = io_out_open(&out, path, e);

    if (code != ERR_OK)
        return code;
    engram_put_head(head, j->g->file[0].tokenizer, 0);
    code = io_out_write(out, head, sizeof head, e);
    for (int i = 0; code == ERR_OK && i < j->n; i++)
        code = write_share(j, &j->share[i], path, out, &contexts, e);
    if (code == ERR_OK && contexts == 0)
        code = err_set(e, ERR_ARG, "no row would be left: %s is not written", path);
    if (code == ERR_OK)
        code = engram_end_file(out, head, e);
    return io_out_end(out, code, e);
}

enum err_code engram_merge(const struct engram *g, const char *path, const struct engram_merge_opts *o,
                           const struct progress *p, struct err *e)
{
    struct job j = { .g = g, .rule = { o->scale, o->day, o->unused_days, o->count_min, 0, NULL }, .progress = p };
    enum err_code code = open_shares(&j, e);

    if (code == ERR_OK && o->bytes_max > 0)
        code = fit_size(&j, o->bytes_max, e);
    if (code == ERR_OK)
        code = write_shares(&j, path, e);
    close_shares(&j);
    return code;
}
