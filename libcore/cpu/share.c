/* SPDX-License-Identifier: Apache-2.0 */
/* share.c - rows shared among threads (share.h). */
#include "cpu/share.h"

#include "cpu/cpu.h"

static int32_t units_of(int64_t rows)
{
    return (int32_t)((rows + CPU_PANEL - 1) / CPU_PANEL);
}

static int groups_of(const struct cpu *c, int32_t units)
{
    int workers = pool_size(c->pool);

    return workers < units ? workers : (int)units;
}

/* Units before group g. */
static int32_t units_before(int g, int groups, int32_t units)
{
    return (int32_t)((int64_t)g * units / groups);
}

static int own_group(int worker, int groups, int workers)
{
    return (int)((int64_t)worker * groups / workers);
}

size_t cpu_share_bytes(const struct cpu *c)
{
    return ((size_t)pool_size(c->pool) + 1) * sizeof(struct cpu_group) + 64;
}

/* Many rows of a matrix lie in one stream of memory, but the threads should have enough to share. */
void cpu_share_out(const struct cpu *c, struct cpu_share *s, int64_t rows, int32_t n)
{
    enum { UNITS_MAX = 256 / CPU_PANEL, SHARES = 16 };
    int32_t units = units_of(rows);

    *s = (struct cpu_share){ rows, n, units, UNITS_MAX, groups_of(c, units), pool_size(c->pool), NULL };
    while (s->piece > 1 && n * (units / s->piece) < SHARES * s->workers)
        s->piece /= 2;
    s->group = dev_scratch_bytes(c->dev, ((size_t)s->groups + 1) * sizeof *s->group);
    for (int g = 0; g < s->groups; g++)
        atomic_init(&s->group[g].taken, 0);
    atomic_init(&s->group[s->groups].taken, s->groups);
}

static int group_of(const struct cpu_share *s, int worker, int step)
{
    int g = own_group(worker, s->groups, s->workers) + step;

    return g < s->groups ? g : g - s->groups;
}

/* Pieces of a group in a matrix. */
static int32_t pieces_of(const struct cpu_share *s, int g)
{
    return (units_before(g + 1, s->groups, s->units) - units_before(g, s->groups, s->units) + s->piece - 1) / s->piece;
}

static void piece_at(const struct cpu_share *s, int g, int32_t i, struct cpu_piece *p)
{
    int32_t from = units_before(g, s->groups, s->units), each = units_before(g + 1, s->groups, s->units) - from;
    int32_t pieces = pieces_of(s, g), unit = i % pieces * s->piece, n = each - unit < s->piece ? each - unit : s->piece;

    p->i = i;
    p->of = i / pieces;
    p->row = (int64_t)(from + unit) * CPU_PANEL;
    p->n = s->rows - p->row < n * CPU_PANEL ? s->rows - p->row : n * CPU_PANEL;
}

bool cpu_take(const struct cpu_share *s, int worker, struct cpu_piece *p)
{
    for (; p->step < s->groups; p->step++) {
        int g = group_of(s, worker, p->step);
        int32_t all = pieces_of(s, g) * s->n, i;

        if (p->step > 0 && atomic_load(&s->group[s->groups].taken) == 0) /* no need to look at each */
            return false;
        if (atomic_load(&s->group[g].taken) >= all)
            continue;
        i = atomic_fetch_add(&s->group[g].taken, 1);
        if (i >= all)
            continue;
        if (i == all - 1)
            atomic_fetch_sub(&s->group[s->groups].taken, 1);
        piece_at(s, g, i, p);
        return true;
    }
    return false;
}

bool cpu_after(const struct cpu_share *s, int worker, const struct cpu_piece *p, struct cpu_piece *next)
{
    int g = group_of(s, worker, p->step);

    if (p->i + 1 >= pieces_of(s, g) * s->n)
        return false;
    piece_at(s, g, p->i + 1, next);
    return true;
}
