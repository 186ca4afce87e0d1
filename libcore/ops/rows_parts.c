/* SPDX-License-Identifier: Apache-2.0 */
/* rows_parts.c - activations of which each device has computed some columns: who has which, until someone needs others.
 * room: ops
 *
 * An exchange between devices costs about the same however little crosses, so columns stay where they are until an
 * operation reads them elsewhere. Then all that it needs crosses at once, and with it what nobody has read so far: most
 * likely the next operations will. Only columns in scratch are left behind like this. What is released there, nobody
 * reads any more. */
#include <string.h>

#include "ops/internal.h"
#include "ops/rows.h"

/* ---- where columns lie ---- */

static intptr_t begin_of(struct tensor x)
{
    return (intptr_t)x.data;
}

static intptr_t end_of(struct tensor x)
{
    return begin_of(x) + (intptr_t)(((x.ne[1] - 1) * x.stride + x.ne[0]) * (int64_t)sizeof(float));
}

/* The column of b that a begins at, as if b had all columns between its rows. */
static int64_t column_in(struct tensor a, struct tensor b)
{
    const int64_t apart = (begin_of(a) - begin_of(b)) / (int64_t)sizeof(float);

    return (apart % b.stride + b.stride) % b.stride;
}

static bool meet(struct tensor a, struct tensor b)
{
    if (a.ne[1] == 0 || b.ne[1] == 0 || begin_of(a) >= end_of(b) || begin_of(b) >= end_of(a))
        return false;
    if (a.stride != b.stride)
        return true;
    const int64_t at = column_in(a, b); /* a's columns may go on in the next row of b */

    return at < b.ne[0] || at + a.ne[0] > b.stride;
}

/* All of a is in b. */
static bool inside(struct tensor a, struct tensor b)
{
    if (begin_of(a) < begin_of(b) || end_of(a) > end_of(b))
        return false;
    return b.stride == b.ne[0] || (a.stride == b.stride && column_in(a, b) + a.ne[0] <= b.ne[0]);
}

/* ---- exchanges ---- */

static void pass_to(struct rows *c, int k, const struct rows_late *p)
{
    const int64_t n = p->y.stride == p->y.ne[0] ? 1 : p->y.ne[1]; /* with gaps row by row */

    for (int64_t r = 0; r < n && !c->measuring; r++) {
        struct tensor some = n == 1 ? p->y : op_slice(p->y, r, 1);

        some.stride = some.ne[0];
        dev_pass(c->dev[p->member], c->dev[k], T(some), dev_rows_tensor(c, p->member, some));
    }
}

void dev_rows_settle(struct rows *c, bool now)
{
    int kept = 0;

    for (int i = 0; i < c->n_late && !now; i++)
        now = c->late[i].wanted;
    if (!now)
        return;
    for (int i = 0; i < c->n_late; i++) {
        const struct rows_late *p = &c->late[i];

        if (!p->wanted && p->read) {
            c->late[kept++] = *p;
            continue;
        }
        for (int k = 0; k < c->n; k++)
            if (k != p->member)
                pass_to(c, k, p);
        c->bytes += (c->n - 1) * p->y.ne[0] * p->y.ne[1] * (int64_t)sizeof(float);
    }
    c->n_late = kept;
    c->exchanges++;
}

void dev_rows_reads(struct rows *c, int k, struct tensor x)
{
    for (int i = 0; i < c->n_late; i++) {
        struct rows_late *p = &c->late[i];

        if (!meet(p->y, x))
            continue;
        p->read = true;
        p->wanted |= p->member != k;
    }
}

void dev_rows_whole(struct rows *c, const struct tensor *x, int n)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < c->n; k++)
            dev_rows_reads(c, k, x[i]);
    dev_rows_settle(c, false);
}

void dev_rows_writes(struct rows *c, struct tensor y)
{
    int kept = 0;

    for (int i = 0; i < c->n_late; i++) {
        if (inside(c->late[i].y, y))
            continue;
        c->late[kept] = c->late[i];
        c->late[kept++].wanted |= meet(c->late[i].y, y);
    }
    c->n_late = kept;
    dev_rows_settle(c, false);
}

void dev_rows_released(void *ctx, size_t used)
{
    struct rows *c = ctx;
    const unsigned char *end = dev_scratch_at(c->self, used);
    int kept = 0;

    for (int i = 0; i < c->n_late && used > 0; i++)
        if ((const unsigned char *)c->late[i].y.data < end)
            c->late[kept++] = c->late[i];
    c->n_late = kept;
}

/* ---- what is in parts ---- */

void dev_rows_note(struct rows *c, int k, struct tensor y)
{
    const unsigned char *p = y.data, *scratch = dev_scratch_at(c->self, 0);

    if (y.ne[1] == 0)
        return;
    if (c->n_late == ROWS_LATE_MAX)
        dev_rows_settle(c, true);
    c->late[c->n_late++] = (struct rows_late){ k, y, false, p < scratch || p >= scratch + c->self->used };
}

/* Finds how the columns of x are shared out, in units of x.ne[0] / units; s->n = 0: every device has all. False: not by
 * units, or in too many parts. */
static bool find_parts(const struct rows *c, struct rows_cut *s, struct tensor x, int64_t units)
{
    const int64_t each = x.ne[0] / units;
    int64_t all = 0;

    s->n = 0;
    for (int i = 0; i < c->n_late; i++) {
        const struct rows_late *p = &c->late[i];

        if (!meet(p->y, x))
            continue;
        const int64_t first = column_in(p->y, x);

        if (!inside(p->y, x) || p->y.stride != x.stride || first % each != 0 || p->y.ne[0] % each != 0 ||
            s->n == ROWS_CUT_MAX)
            return false;
        s->part[s->n++] = (struct rows_stretch){ p->member, first / each, p->y.ne[0] / each };
        all += p->y.ne[0];
    }
    return s->n == 0 || all == x.ne[0];
}

static bool same_parts(const struct rows_cut *a, const struct rows_cut *b)
{
    bool same = a->n == b->n;

    for (int i = 0; i < a->n && same; i++)
        same = a->part[i].member == b->part[i].member && a->part[i].first == b->part[i].first &&
               a->part[i].n == b->part[i].n;
    return same;
}

void dev_rows_cut(struct rows *c, struct rows_cut *s, int64_t units, struct tensor y, const struct tensor *x, int n)
{
    bool apart = true;

    s->units = units;
    s->n = 0;
    for (int i = 0; i < n && apart; i++) {
        struct rows_cut other;

        apart = find_parts(c, &other, x[i], units) && (other.n == 0 || s->n == 0 || same_parts(&other, s));
        if (apart && other.n > 0) {
            s->n = other.n;
            memcpy(s->part, other.part, (size_t)other.n * sizeof *s->part);
        }
    }
    s->cut = apart && s->n > 0;
    if (!s->cut) {
        dev_rows_whole(c, x, n);
        for (s->n = 0; s->n < c->n; s->n++)
            s->part[s->n] = (struct rows_stretch){ s->n, 0, units };
    }
    for (int i = 0; i < s->n && s->cut; i++)
        for (int j = 0; j < n; j++)
            dev_rows_reads(c, s->part[i].member, dev_rows_columns(s, i, x[j]));
    dev_rows_writes(c, y);
}

struct tensor dev_rows_columns(const struct rows_cut *s, int i, struct tensor t)
{
    const int64_t each = t.ne[0] / s->units;

    return op_cols(t, s->part[i].first * each, s->part[i].n * each);
}

void dev_rows_note_cut(struct rows *c, const struct rows_cut *s, struct tensor y)
{
    for (int i = 0; i < s->n && s->cut; i++)
        dev_rows_note(c, s->part[i].member, dev_rows_columns(s, i, y));
    dev_rows_settle(c, false);
}
