/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - what follows: the longest context that is known, in all epochs of all files.  room: engram */
#include <stdlib.h>
#include <string.h>

#include "engram/internal.h"

enum { HELD_MAX = 4 * ENGRAM_NEXT_MAX };

/* The place of a token among the contexts [r.begin, r.end); UINT64_MAX: it is not there. */
static uint64_t find(const uint32_t *token, struct range r, uint32_t wanted)
{
    while (r.begin < r.end) {
        const uint64_t mid = r.begin + (r.end - r.begin) / 2;

        if (token[mid] == wanted)
            return mid;
        if (token[mid] < wanted)
            r.begin = mid + 1;
        else
            r.end = mid;
    }
    return UINT64_MAX;
}

/* The longest context of an epoch with something behind it: its order, 0 for none, and place. */
static int longest(const struct epoch *ep, const int32_t *end, int64_t n, uint64_t *place)
{
    struct range r = { 0, ep->level[0].n };
    uint64_t hash = 0;
    int found = 0;

    for (int l = 0; l < ep->order && l < n; l++) {
        const struct level *v = &ep->level[l];
        const uint32_t token = (uint32_t)end[-1 - l];
        uint64_t k;

        hash = engram_hash(hash, token);
        if (!engram_filter_has(v->filter, v->n_blocks, hash) || (k = find(v->token, r, token)) == UINT64_MAX)
            break;
        const struct range next = engram_nexts(ep, l, k);

        if (next.begin < next.end) {
            found = l + 1;
            *place = k;
        }
        r = engram_children(ep, l, k);
    }
    return found;
}

struct held {
    int32_t token[HELD_MAX];
    double  count[HELD_MAX];
    int     n;
    double  total, of_file[ENGRAM_FILES_MAX];
};

static void hold(struct held *h, const struct epoch *ep, int l, uint64_t place, double scale, int file)
{
    const struct level *v = &ep->level[l];
    const struct range r = engram_nexts(ep, l, place);
    const double total = (double)v->total[place] * scale;

    h->total += total;
    h->of_file[file] += total;
    for (uint64_t i = r.begin; i < r.end && i < r.begin + ENGRAM_NEXT_MAX; i++) {
        int at = 0;

        while (at < h->n && h->token[at] != (int32_t)v->next[i])
            at++;
        if (at == HELD_MAX)
            continue;
        if (at == h->n) {
            h->token[at] = (int32_t)v->next[i];
            h->count[at] = 0;
            h->n++;
        }
        h->count[at] += (double)v->count[i] * scale;
    }
}

/* The commonest of them, ties by token. */
static void tell(const struct held *h, struct engram_next *out)
{
    bool taken[HELD_MAX] = { false };

    for (out->n = 0; out->n < ENGRAM_NEXT_MAX && out->n < h->n; out->n++) {
        int best = -1;

        for (int i = 0; i < h->n; i++)
            if (!taken[i] && (best < 0 || h->count[i] > h->count[best] ||
                              (h->count[i] == h->count[best] && h->token[i] < h->token[best])))
                best = i;
        taken[best] = true;
        out->token[out->n] = h->token[best];
        out->q[out->n] = (float)(h->count[best] / h->total);
    }
}

void engram_look(const struct engram *g, const int32_t *token, int64_t n, struct engram_next *out)
{
    struct held h = { .n = 0 };
    int order = 0;

    for (int f = 0; f < g->n_files; f++)
        for (int i = 0; i < g->file[f].n_epochs; i++) {
            const struct epoch *ep = &g->file[f].epoch[i];
            uint64_t place = 0;
            const int found = longest(ep, token + n, n, &place);

            if (found > order) {
                memset(&h, 0, sizeof h);
                order = found;
            }
            if (found > 0 && found == order)
                hold(&h, ep, found - 1, place, engram_decay(g->day - ep->day), f);
        }
    *out = (struct engram_next){ .order = order, .count = h.total, .whole = order == n };
    if (!(h.total > 0))
        return;
    tell(&h, out);
    for (int f = 1; f < g->n_files; f++)
        if (h.of_file[f] > h.of_file[out->file])
            out->file = f;
}
