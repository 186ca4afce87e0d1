/* SPDX-License-Identifier: Apache-2.0 */
/* rows_scans.c - recurrent layers on devices that share every layer: scans by heads.  room: ops
 *
 * Each device packs the inputs of its heads side by side, scans them as a layer with fewer heads, and puts the outputs
 * where they are among all, with rows of other scans as they were. */
#include "ops/rows.h"

/* The memory as device k has it, `floats` of a slot. */
static struct op_rec rec_there(struct rows *c, int k, const struct op_rec *rec, int64_t floats)
{
    struct op_rec m = *rec;

    m.data = P(rec->data);
    m.floats = floats;
    if (rec->log.rows == 0)
        return m;
    m.log.data = P(rec->log.data);
    m.log.width =
        (int64_t)(dev_rows_period(c, k, rec->log.data, (size_t)rec->log.width * sizeof(float)) / sizeof(float));
    m.log.floats = m.log.rows * m.log.width;
    return m;
}

void dev_rows_ssm1(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor cc,
                   const struct op_ssm1 *a, const struct op_rows *r)
{
    WHOLE(x, dt, b, cc);
    dev_rows_writes(ctx, y);
    EACH(const struct op_ssm1 m = { a->n_state, P(a->a), P(a->d), P(a->dt_bias),
                                    rec_there(c, k, &a->rec, a->rec.floats) };
         op_ssm1(d, T(y), T(x), T(dt), T(b), T(cc), &m, r));
}

/* Columns from `at` on, `rounds` times n units of `width`, of which a device takes some. */
struct strip {
    int64_t at, rounds, n, width;
};

/* Device k's own ones of a round. */
static struct tensor own_part(const struct rows *c, int k, struct tensor x, struct strip s, int64_t round)
{
    const struct rows_part own = dev_rows_part_of(c, k, s.n);

    return op_cols(x, s.at + (round * s.n + own.first) * s.width, (own.end - own.first) * s.width);
}

/* Each device reads its units of x. */
static void ask_units(struct rows *c, struct tensor x, const struct strip *s, int n)
{
    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < s[i].rounds; j++)
            for (int k = 0; k < c->n; k++)
                dev_rows_reads(c, k, own_part(c, k, x, s[i], j));
}

/* Each has computed those of y. */
static void note_units(struct rows *c, struct tensor y, const struct strip *s, int n)
{
    for (int k = 0; k < c->n; k++)
        for (int i = 0; i < n; i++)
            for (int64_t j = 0; j < s[i].rounds && s[i].n >= c->n; j++)
                dev_rows_note(c, k, own_part(c, k, y, s[i], j));
    dev_rows_settle(c, false);
}

/* Device k's own units of x side by side, in scratch. */
static struct tensor own_units(struct rows *c, int k, struct tensor x, const struct strip *s, int n)
{
    int64_t all = 0, at = 0;

    for (int i = 0; i < n; i++)
        all += s[i].rounds * own_part(c, k, x, s[i], 0).ne[0];
    const struct tensor y = dev_scratch(c->dev[k], all, x.ne[1]);

    for (int i = 0; i < n; i++) {
        const int64_t some = own_part(c, k, x, s[i], 0).ne[0];

        op_heads_pick(c->dev[k], op_cols(y, at, s[i].rounds * some), op_cols(T(x), s[i].at, x.ne[0] - s[i].at), some,
                      s[i].n * s[i].width, dev_rows_part_of(c, k, s[i].n).first * s[i].width);
        at += s[i].rounds * some;
    }
    return y;
}

static int64_t end_of(struct strip s)
{
    return s.at + s.rounds * s.n * s.width;
}

/* The same of rows of weights. */
static const float *own_floats(struct rows *c, int k, const float *v, int64_t rows, const struct strip *s, int n)
{
    const int64_t all = end_of(s[n - 1]);
    const struct tensor x = {
        .type = QUANT_f32, .ne = { all, rows, 1 }, .stride = all, .data = (void *)(uintptr_t)v /* not written */
    };

    return v == NULL ? NULL : own_units(c, k, x, s, n).data;
}

/* Back to where they are in y, which all devices have. */
static void put_units(struct rows *c, int k, struct tensor y, struct tensor x, const struct strip *s, int n)
{
    int64_t at = 0, some;

    for (int i = 0; i < n; i++)
        for (int64_t j = 0; j < s[i].rounds; j++, at += some) {
            some = own_part(c, k, y, s[i], j).ne[0];
            op_heads_pick(c->dev[k], T(own_part(c, k, y, s[i], j)), op_cols(x, at, some), some, some, 0);
        }
}

/* Channels are shared out as rows of them in memory; 0: every device has all. */
static int strips_of(struct rows *c, struct strip *s, const struct op_rec *rec)
{
    const struct rows_area *a = rec->floats > 0 ? dev_rows_area(c, rec->data) : NULL;
    int n = 0;

    for (; a != NULL && n < a->area.n_section && a->area.section->n >= c->n; n++) {
        const struct dev_section *from = &a->area.section[n];

        s[n] = (struct strip){ n > 0 ? end_of(s[n - 1]) : 0, from->times, from->n,
                               (int64_t)(from->piece / sizeof(float)) };
    }
    return n;
}

void dev_rows_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    struct rows *c = ctx;
    struct strip s[DEV_SECTIONS_MAX];
    const int n = strips_of(c, s, &a->rec);

    if (n == 0)
        WHOLE(x);
    ask_units(c, x, s, n);
    dev_rows_writes(c, y);
    for (int k = 0; k < c->n; k++) {
        struct dev *d = c->dev[k];
        const size_t mark = dev_mark(d);
        const struct tensor in = n > 0 ? own_units(c, k, x, s, n) : T(x);
        const struct tensor out = n > 0 ? own_units(c, k, y, s, n) : T(y);
        struct op_conv m = *a;

        m.w = n > 0 ? own_floats(c, k, a->w, a->taps, s, n) : P(a->w);
        m.bias = n > 0 ? own_floats(c, k, a->bias, 1, s, n) : P(a->bias);
        m.rec = rec_there(c, k, &a->rec, in.ne[0] * op_conv_back(a));
        op_conv(d, out, in, &m, r);
        put_units(c, k, y, out, s, n);
        dev_release(d, mark);
    }
    note_units(c, y, s, n);
}

/* Value heads go with their key heads. Where they are not grouped, each of `rounds` rounds of them has all keys. */
void dev_rows_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                  const struct op_gdn *a, const struct op_rows *r)
{
    struct rows *c = ctx;
    const int64_t rounds = a->k_grouped ? 1 : a->n_v / a->n_k, each = a->k_grouped ? a->n_v / a->n_k : 1;
    const struct strip one = { 0, rounds, a->n_k, each };
    const struct strip three[2] = { { 0, 2, a->n_k, a->dim },
                                    { (int64_t)2 * a->n_k * a->dim, rounds, a->n_k, each * a->dim_v } };
    const struct strip value = { 0, rounds, a->n_k, each * a->dim_v };

    ask_units(c, qkv, three, 2);
    ask_units(c, alpha, &one, 1);
    ask_units(c, beta, &one, 1);
    dev_rows_writes(c, y);
    for (int k = 0; k < c->n; k++) {
        const struct rows_part own = dev_rows_part_of(c, k, a->n_k);
        struct dev *d = c->dev[k];
        const size_t mark = dev_mark(d);
        const int n_k = (int)(own.end - own.first), n_v = n_k * (int)(rounds * each);
        struct op_gdn m = { n_k,
                            n_v,
                            a->dim,
                            a->dim_v,
                            a->k_grouped,
                            a->eps,
                            own_floats(c, k, a->a, 1, &one, 1),
                            own_floats(c, k, a->dt_bias, 1, &one, 1),
                            rec_there(c, k, &a->rec, (int64_t)n_v * a->dim * a->dim_v) };
        struct tensor in = own_units(c, k, qkv, three, 2), out = own_units(c, k, y, &value, 1);

        op_gdn(d, out, in, own_units(c, k, alpha, &one, 1), own_units(c, k, beta, &one, 1), &m, r);
        put_units(c, k, y, out, &value, 1);
        dev_release(d, mark);
    }
    note_units(c, y, &value, 1);
}

void dev_rows_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                  const struct op_kda *a, const struct op_rows *r)
{
    struct rows *c = ctx;
    const struct strip head = { 0, 1, a->n_head, a->dim }, one = { 0, 1, a->n_head, 1 };
    const struct strip three = { 0, 3, a->n_head, a->dim }; /* queries, keys and values: rounds of heads */

    ask_units(c, qkv, &three, 1);
    ask_units(c, decay, &head, 1);
    ask_units(c, beta, &one, 1);
    dev_rows_writes(c, y);
    for (int k = 0; k < c->n; k++) {
        const struct rows_part own = dev_rows_part_of(c, k, a->n_head);
        struct dev *d = c->dev[k];
        const size_t mark = dev_mark(d);
        const int n = (int)(own.end - own.first);
        const struct op_kda m = { n,
                                  a->dim,
                                  a->eps,
                                  (const float *)P(a->a) + own.first,
                                  (const float *)P(a->dt_bias) + own.first * a->dim,
                                  rec_there(c, k, &a->rec, (int64_t)n * a->dim * a->dim),
                                  a->bound };
        struct tensor in = own_units(c, k, qkv, &three, 1), out = own_units(c, k, y, &head, 1);

        op_kda(d, out, in, own_units(c, k, decay, &head, 1), own_units(c, k, beta, &one, 1), &m, r);
        put_units(c, k, y, out, &head, 1);
        dev_release(d, mark);
    }
    note_units(c, y, &head, 1);
}

/* Heads go with their group of B and C; where there is one group every device has it. */
void dev_rows_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                   const struct op_rows *r)
{
    struct rows *c = ctx;
    const int64_t units = a->n_group > 1 ? a->n_group : a->n_head, each = a->n_head / units;
    const int64_t inner = (int64_t)a->n_head * a->dim;
    const struct strip one = { 0, 1, units, each },
                       all[2] = { { 0, 1, units, each * a->dim }, { inner, 2, a->n_group, a->n_state } };

    ask_units(c, xbc, all, 2);
    ask_units(c, dt, &one, 1);
    dev_rows_writes(c, y);
    for (int k = 0; k < c->n; k++) {
        const struct rows_part own = dev_rows_part_of(c, k, units);
        struct dev *d = c->dev[k];
        const size_t mark = dev_mark(d);
        const int n = (int)((own.end - own.first) * each), n_group = a->n_group > 1 ? (int)(own.end - own.first) : 1;
        struct op_ssm2 m = { n,
                             a->dim,
                             n_group,
                             a->n_state,
                             (const float *)P(a->a) + own.first * each,
                             (const float *)P(a->d) + own.first * each,
                             (const float *)P(a->dt_bias) + own.first * each,
                             rec_there(c, k, &a->rec, (int64_t)n * a->dim * a->n_state) };
        struct tensor in = own_units(c, k, xbc, all, 2), out = own_units(c, k, y, all, 1);

        op_ssm2(d, out, in, own_units(c, k, dt, &one, 1), &m, r);
        put_units(c, k, y, out, all, 1);
        dev_release(d, mark);
    }
    note_units(c, y, all, 1);
}
