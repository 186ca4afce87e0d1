/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - near vectors without looking at each.                             room: recall
 *
 * A hierarchy of navigable small worlds (Malkov and Yashunin 2016): every text is linked to near ones, chosen so that
 * they lie in different directions; few texts are in the upper levels, where a search begins. Texts are added one
 * after the other and levels come from their numbers, so that the same texts make the same file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "recall/internal.h"

enum { AHEAD = 2 };

struct near {
    uint32_t text;
    float score;
    bool done; /* its neighbours were looked at */
};
/* The best that a search met, best first. */
struct front {
    struct near v[WIDTH + 1];
    int n;
    uint32_t *seen; /* [n] the search that met it last */
    uint32_t search;
};

static int links_max(int level)
{
    return level == 0 ? 2 * LINKS : LINKS;
}

static uint32_t *links_of(const struct graph *g, uint64_t i, int level)
{
    return level == 0 ? g->link + i * 2 * LINKS : g->upper + (g->upper_at[i] + (uint64_t)(level - 1)) * LINKS;
}

static float score_of(const struct graph *g, const float *v, uint64_t i)
{
    return g->dot(v, g->vector + i * g->stride, g->stride);
}

/* ---- searching ---- */

static void meet_text(struct front *f, const struct graph *g, const float *v, uint32_t i)
{
    if (f->seen[i] == f->search)
        return;
    f->seen[i] = f->search;
    const struct near x = { i, score_of(g, v, i), false };
    int at = f->n;

    if (at == WIDTH && x.score <= f->v[at - 1].score)
        return;
    at -= at == WIDTH;
    for (; at > 0 && x.score > f->v[at - 1].score; at--)
        f->v[at] = f->v[at - 1];
    f->v[at] = x;
    f->n += f->n < WIDTH;
}

/* Vectors lie far from each other: the memory is asked for one before it is needed. */
static void fetch_vector(const struct graph *g, uint64_t i)
{
    for (uint64_t k = 0; k < g->stride; k += LANES)
        __builtin_prefetch(g->vector + i * g->stride + k);
}

/* From what f has: its texts' neighbours in the level, until no better ones are met. */
static void spread(struct front *f, const struct graph *g, const float *v, int level)
{
    for (int i = 0; i < f->n;) {
        const uint32_t *link = links_of(g, f->v[i].text, level);

        if (f->v[i].done) {
            i++;
            continue;
        }
        f->v[i].done = true;
        for (int k = 0; k < links_max(level) && link[k] != NO_LINK; k++) {
            if (k + AHEAD < links_max(level) && link[k + AHEAD] != NO_LINK)
                fetch_vector(g, link[k + AHEAD]);
            meet_text(f, g, v, link[k]);
        }
        i = 0;
    }
}

static void begin_front(struct front *f, const struct graph *g, const float *v, uint32_t from)
{
    f->n = 0;
    f->search++;
    meet_text(f, g, v, from);
}

/* The nearest by single steps, down to a level. */
static uint32_t descend_levels(const struct graph *g, const float *v, uint32_t at, int from, int to)
{
    float best = score_of(g, v, at);

    for (int level = from; level > to; level--)
        for (bool moved = true; moved;) {
            const uint32_t *link = links_of(g, at, level);

            moved = false;
            for (int k = 0; k < LINKS && link[k] != NO_LINK; k++) {
                const float score = score_of(g, v, link[k]);

                if (score > best) {
                    best = score;
                    at = link[k];
                    moved = true;
                    break; /* link is of another text now */
                }
            }
        }
    return at;
}

enum err_code recall_graph_search(const struct graph *g, const float *v, int k, struct recall_hit *hits, int *n,
                                  struct err *e)
{
    struct front *f = calloc(1, sizeof *f);
    enum err_code code = ERR_OK;

    *n = 0;
    if (f == NULL || (f->seen = calloc((size_t)g->n + 1, sizeof *f->seen)) == NULL)
        code = err_nomem(e);
    if (code == ERR_OK && g->n > 0) {
        begin_front(f, g, v, descend_levels(g, v, (uint32_t)g->entry, g->level[g->entry], 0));
        spread(f, g, v, 0);
        for (int i = 0; i < f->n; i++)
            recall_keep(hits, n, k, (struct recall_hit){ (int64_t)f->v[i].text, f->v[i].score, 0 });
    }
    if (f != NULL)
        free(f->seen);
    free(f);
    return code;
}

/* ---- building ---- */

/* Of near texts, best first, those that are nearer to v than to one chosen before; what room is left the others get. */
static int choose_neighbours(const struct graph *g, const struct near *v, int n, uint32_t *out, int max)
{
    uint32_t rest[WIDTH + 1];
    int chosen = 0, n_rest = 0;

    for (int i = 0; i < n && chosen < max; i++) {
        const float *at = g->vector + v[i].text * g->stride;
        bool hidden = false;

        for (int k = 0; k < chosen && !hidden; k++)
            hidden = score_of(g, at, out[k]) > v[i].score;
        if (hidden)
            rest[n_rest++] = v[i].text;
        else
            out[chosen++] = v[i].text;
    }
    for (int i = 0; i < n_rest && chosen < max; i++)
        out[chosen++] = rest[i];
    for (int i = chosen; i < max; i++)
        out[i] = NO_LINK;
    return chosen;
}

/* Text `to` gets a link to `from`; where it is full, the best are chosen again. */
static void link_back(const struct graph *g, uint32_t to, uint32_t from, int level)
{
    const int max = links_max(level);
    uint32_t *link = links_of(g, to, level);
    const float *v = g->vector + to * g->stride;
    struct near all[2 * LINKS + 1];
    int n = 0;

    while (n < max && link[n] != NO_LINK)
        n++;
    if (n < max) {
        link[n] = from;
        return;
    }
    for (int i = 0; i <= max; i++) {
        const uint32_t text = i < max ? link[i] : from;

        if (i + AHEAD < max)
            fetch_vector(g, link[i + AHEAD]);
        const struct near x = { text, score_of(g, v, text), false };
        int at = i;

        for (; at > 0 && x.score > all[at - 1].score; at--)
            all[at] = all[at - 1];
        all[at] = x;
    }
    choose_neighbours(g, all, max + 1, link, max);
}

static void insert_text(struct graph *g, struct front *f, uint32_t i)
{
    const float *v = g->vector + i * g->stride;
    const int top = g->level[g->entry], mine = g->level[i];
    uint32_t at = descend_levels(g, v, (uint32_t)g->entry, top, mine < top ? mine : top);

    for (int level = mine < top ? mine : top; level >= 0; level--) {
        uint32_t *link = links_of(g, i, level);

        begin_front(f, g, v, at);
        spread(f, g, v, level);
        at = f->v[0].text;
        const int n = choose_neighbours(g, f->v, f->n, link, LINKS);

        for (int k = 0; k < n; k++)
            link_back(g, link[k], i, level);
    }
    if (mine > top)
        g->entry = i;
}

/* How many levels up a text is: each has one of LINKS of the one below. */
static uint8_t level_of(uint64_t i)
{
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u;
    int level = 0;

    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    for (h ^= h >> 31; level + 1 < LEVELS_MAX && h % LINKS == 0; h /= LINKS)
        level++;
    return (uint8_t)level;
}

/* Room for n texts, with levels, and no links. */
static enum err_code open_graph(struct graph *g, struct front **out, struct err *e)
{
    struct front *f = calloc(1, sizeof *f);

    *out = f;
    g->upper_at = malloc(((size_t)g->n + 1) * sizeof *g->upper_at);
    g->link = malloc(((size_t)g->n * 2 * LINKS + 1) * sizeof *g->link);
    if (f == NULL || g->level == NULL || g->upper_at == NULL || g->link == NULL)
        return err_nomem(e);
    for (uint64_t i = 0; i < g->n; i++) {
        g->upper_at[i] = g->n_upper;
        g->n_upper += g->level[i];
    }
    g->upper = malloc(((size_t)g->n_upper * LINKS + 1) * sizeof *g->upper);
    f->seen = calloc((size_t)g->n + 1, sizeof *f->seen);
    if (f->seen == NULL || g->upper == NULL)
        return err_nomem(e);
    memset(g->link, 0xFF, (size_t)g->n * 2 * LINKS * sizeof *g->link);
    memset(g->upper, 0xFF, (size_t)g->n_upper * LINKS * sizeof *g->upper);
    return ERR_OK;
}

static enum err_code close_front(struct front *f, enum err_code code)
{
    if (f != NULL)
        free(f->seen);
    free(f);
    return code;
}

enum err_code recall_graph_make(struct graph *g, const struct progress *p, struct err *e)
{
    struct front *f;
    enum err_code code;

    g->level = malloc((size_t)g->n + 1);
    for (uint64_t i = 0; g->level != NULL && i < g->n; i++)
        g->level[i] = level_of(i);
    code = open_graph(g, &f, e);
    for (uint64_t i = 1; code == ERR_OK && i < g->n; i++) {
        insert_text(g, f, (uint32_t)i);
        if (i % 256 == 0 && !progress_tick(p, i, g->n))
            code = err_set(e, ERR_CANCEL, "interrupted");
    }
    return close_front(f, code);
}

/* ---- going on from an old graph ---- */

/* Candidates, [n] that may be there twice, best first in v; how many. */
static int meet_candidates(struct near *v, const struct graph *g, uint32_t of, const uint32_t *text, int n)
{
    int n_met = 0;

    for (int i = 0; i < n; i++) {
        int at = 0;

        while (at < n_met && v[at].text != text[i])
            at++;
        if (i + AHEAD < n)
            fetch_vector(g, text[i + AHEAD]);
        if (at < n_met || text[i] == of)
            continue;
        const struct near x = { text[i], score_of(g, g->vector + of * g->stride, text[i]), false };

        if (at == WIDTH && x.score <= v[at - 1].score)
            continue;
        at -= at == WIDTH;
        for (; at > 0 && x.score > v[at - 1].score; at--)
            v[at] = v[at - 1];
        v[at] = x;
        n_met += n_met < WIDTH;
    }
    return n_met;
}

/* The links that text i had as text `was`. In the place of those that are gone are the best of what these were linked
 * to (Singh, Subramanya, Krishnaswamy and Simhadri 2021). */
static void take_links(struct graph *g, const struct graph *old, const uint32_t *now, uint32_t i, uint32_t was,
                       int level)
{
    const uint32_t *had = links_of(old, was, level);
    uint32_t *link = links_of(g, i, level), met[2 * LINKS * (2 * LINKS + 1)];
    struct near v[WIDTH + 1];
    const int max = links_max(level);
    int kept = 0, n = 0, n_had = 0;

    for (; n_had < max && had[n_had] != NO_LINK; n_had++)
        if (now[had[n_had]] != NO_LINK)
            link[kept++] = met[n++] = now[had[n_had]];
    for (int k = 0; kept < n_had && k < n_had; k++) {
        const uint32_t *next = links_of(old, had[k], level);

        for (int m = 0; now[had[k]] == NO_LINK && m < max && next[m] != NO_LINK; m++)
            if (now[next[m]] != NO_LINK)
                met[n++] = now[next[m]];
    }
    if (kept < n_had)
        choose_neighbours(g, v, meet_candidates(v, g, i, met, n), link, max);
}

enum err_code recall_graph_go_on(struct graph *g, const struct graph *old, const uint32_t *was,
                                 const struct progress *p, struct err *e)
{
    uint32_t *now = malloc((size_t)old->n * sizeof *now + 1); /* numbers of the old texts in g */
    struct front *f = NULL;
    enum err_code code = now != NULL ? ERR_OK : err_nomem(e);

    g->level = malloc((size_t)g->n + 1);
    for (uint64_t i = 0; code == ERR_OK && i < old->n; i++)
        now[i] = NO_LINK;
    for (uint64_t i = 0; code == ERR_OK && g->level != NULL && i < g->n; i++) {
        const bool first = was[i] != NO_LINK && now[was[i]] == NO_LINK; /* of texts that are the same */

        g->level[i] = first ? old->level[was[i]] : level_of(i);
        if (first)
            now[was[i]] = (uint32_t)i;
    }
    if (code == ERR_OK)
        code = open_graph(g, &f, e);
    g->entry = UINT64_MAX;
    for (uint64_t i = 0; code == ERR_OK && i < g->n; i++) {
        if (was[i] == NO_LINK || now[was[i]] != i)
            continue;
        for (int level = 0; level <= g->level[i]; level++)
            take_links(g, old, now, (uint32_t)i, was[i], level);
        if (g->entry == UINT64_MAX || g->level[i] > g->level[g->entry])
            g->entry = i;
    }
    for (uint64_t i = 0; code == ERR_OK && i < g->n; i++) {
        if (was[i] != NO_LINK && now[was[i]] == i && (*links_of(g, i, 0) != NO_LINK || i == g->entry))
            continue; /* one whose neighbours are all gone is linked anew */
        insert_text(g, f, (uint32_t)i);
        if (i % 256 == 0 && !progress_tick(p, i, g->n))
            code = err_set(e, ERR_CANCEL, "interrupted");
    }
    free(now);
    return close_front(f, code);
}

void recall_graph_free(struct graph *g)
{
    free(g->level);
    free(g->upper_at);
    free(g->link);
    free(g->upper);
}
