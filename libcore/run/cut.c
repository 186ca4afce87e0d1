/* SPDX-License-Identifier: Apache-2.0 */
/* cut.c - contiguous ranges of layers for devices, by dynamic programming over layers and devices. */
#include "run/cut.h"

#include <stdlib.h>

#define LAYER_PS 20000000 /* of a layer, whatever it reads: the least that cmd/cli/estimate.c has measured */
#define NONE     INT64_MAX

/* The best ranges of the first devices for the first layers: the cost of all, the largest of one, and where the last
 * range begins; all NONE: there are none. */
struct best {
    int64_t all, most;
    int from;
};

static bool is_better(const struct best *a, const struct best *b)
{
    return a->all != b->all ? a->all < b->all : a->most < b->most;
}

/* Picoseconds to read n bytes; whole ones, so that equal devices have equal sums. */
static int64_t time_of(int64_t n, double speed)
{
    const double ps = (double)n * 1e12 / speed;

    return ps < 1e15 ? (int64_t)ps : (int64_t)1e15;
}

/* How full a device is, in millionths. */
static int64_t fill_of(int64_t bytes, int64_t room)
{
    const double part = room == INT64_MAX ? 0.0 : (double)bytes / (room > 1 ? (double)room : 1.0);

    return part < 1e12 ? (int64_t)(part * 1e6) : (int64_t)1e18;
}

/* Ranges of n_dev devices into v[d][layers]; by time where there is room, or by how full they are. */
static bool search(struct best *v, const struct run_cut *c, bool by_time)
{
    const int n = c->n_layer;

    for (int d = 0; d <= c->n_dev; d++)
        for (int i = 0; i <= n; i++)
            v[d * (n + 1) + i] = (struct best){ NONE, NONE, 0 };
    v[0] = (struct best){ 0, 0, 0 };
    for (int d = 0; d < c->n_dev; d++)
        for (int a = 0; a < n; a++) {
            const struct best *before = &v[d * (n + 1) + a];

            if (before->all == NONE || (a > 0 && !c->may[a]))
                continue;
            int64_t bytes = 0, time = time_of(c->beside[d], c->speed[d]);

            for (int b = a + 1; b <= n; b++) {
                bytes += c->bytes[b - 1];
                time += time_of(c->reads[b - 1], c->speed[d]) + LAYER_PS;
                if (b < n && !c->may[b])
                    continue;
                if (by_time && bytes > c->room[d])
                    break;
                const int64_t cost = by_time ? time : fill_of(bytes, c->room[d]);
                const struct best x = { by_time ? before->all + cost : 0, cost > before->most ? cost : before->most,
                                        a };

                if (is_better(&x, &v[(d + 1) * (n + 1) + b]))
                    v[(d + 1) * (n + 1) + b] = x;
            }
        }
    return v[c->n_dev * (n + 1) + n].all != NONE;
}

enum err_code run_cut_choose(int *first, bool *fits, const struct run_cut *c, struct err *e)
{
    const int n = c->n_layer;
    struct best *v = calloc((size_t)(c->n_dev + 1) * (size_t)(n + 1), sizeof *v);

    if (v == NULL)
        return err_nomem(e);
    *fits = search(v, c, true);
    if (!*fits && !search(v, c, false)) {
        free(v);
        return err_set(e, ERR_ARG, "%d devices: the model's %d layers cannot be cut in as many ranges", c->n_dev, n);
    }
    for (int d = c->n_dev, i = n; d > 0; d--) {
        i = v[d * (n + 1) + i].from;
        first[d - 1] = i;
    }
    free(v);
    return ERR_OK;
}
