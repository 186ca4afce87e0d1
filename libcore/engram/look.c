/* SPDX-License-Identifier: Apache-2.0 */
/* look.c - what follows: the longest context that is known, in all epochs of all files.  room: engram */
#include <stdlib.h>
#include <string.h>

#include "engram/internal.h"

enum { HELD_MAX = 4 * ENGRAM_NEXT_MAX };

/* The place of a token among the contexts [r.begin, r.end); UINT64_MAX: it is not there. */
static uint64_t find_token(const uint32_t *token, struct range r, uint32_t wanted)
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

/* The longest context of an epoch with something behind it: its order, 0 for none, and place. hash: of the contexts of
 * each order that end here. */
static int longest_context(const struct engram *g, const struct epoch *ep, const int32_t *end, int64_t n,
                           const uint64_t *hash, uint64_t *place)
{
    struct range r = { 0, ep->level[0].n };
    int found = 0;

    /* Whether a context is there depends on nothing but its hash: all orders are waited for at once. */
    for (int l = 0; l < ep->order && l < n; l++)
        engram_filter_fetch(ep->level[l].filter, ep->level[l].n_blocks, hash[l]);
    for (int l = 0; l < ep->order && l < n; l++) {
        const struct level *v = &ep->level[l];
        const uint32_t token = (uint32_t)end[-1 - l];
        uint64_t k;

        if (!g->has(v->filter, v->n_blocks, hash[l]) || (k = find_token(v->token, r, token)) == UINT64_MAX)
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
    double count[HELD_MAX];
    int n, epochs; /* that these are from */
    double total, of_file[ENGRAM_FILES_MAX];
};

static void forget_held(struct held *h)
{
    h->n = h->epochs = 0;
    h->total = 0;
    memset(h->of_file, 0, sizeof h->of_file);
}

static void hold_context(struct held *h, const struct epoch *ep, int l, uint64_t place, double scale, int file)
{
    const struct level *v = &ep->level[l];
    const struct range r = engram_nexts(ep, l, place);
    const double total = (double)v->total[place] * scale;

    h->epochs++;
    h->total += total;
    h->of_file[file] += total;
    for (uint64_t i = r.begin; i < r.end && i < r.begin + ENGRAM_NEXT_MAX; i++) {
        int at = h->epochs == 1 ? h->n : 0; /* an epoch has each token once */

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
static void tell_commonest(const struct held *h, struct engram_next *out)
{
    bool taken[HELD_MAX];

    memset(taken, 0, (size_t)h->n * sizeof *taken);
    for (out->n = 0; out->n < ENGRAM_NEXT_MAX && out->n < h->n; out->n++) {
        int best = h->epochs == 1 ? out->n : -1; /* as the rows of an epoch are sorted */

        for (int i = 0; h->epochs > 1 && i < h->n; i++)
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
    uint64_t hash[ENGRAM_ORDER_MAX], before = 0;
    struct held h;
    int order = 0;

    forget_held(&h);
    for (int l = 0; l < ENGRAM_ORDER_MAX && l < n; l++)
        before = hash[l] = engram_hash(before, (uint32_t)token[n - 1 - l]);

    for (int f = 0; f < g->n_files; f++)
        for (int i = 0; i < g->file[f].n_epochs; i++) {
            const struct epoch *ep = &g->file[f].epoch[i];
            uint64_t place = 0;
            const int found = longest_context(g, ep, token + n, n, hash, &place);

            if (found > order) {
                forget_held(&h);
                order = found;
            }
            if (found > 0 && found == order)
                hold_context(&h, ep, found - 1, place, engram_decay(g->day - ep->day), f);
        }
    *out = (struct engram_next){ .order = order, .count = h.total, .whole = order == n };
    if (!(h.total > 0))
        return;
    tell_commonest(&h, out);
    for (int f = 1; f < g->n_files; f++)
        if (h.of_file[f] > h.of_file[out->file])
            out->file = f;
}
