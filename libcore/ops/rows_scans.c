/* SPDX-License-Identifier: Apache-2.0 */
/* rows_scans.c - recurrent layers on devices that share every layer: scans by heads.  room: ops
 *
 * Each device packs the inputs of its heads side by side, scans them as a layer with fewer heads, and puts the outputs
 * where they are among all. */
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

void dev_rows_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    WHOLE(x);
    dev_rows_writes(ctx, y);
    EACH(struct op_conv m = *a; m.w = P(a->w); m.bias = P(a->bias); m.rec = rec_there(c, k, &a->rec, a->rec.floats);
         op_conv(d, T(y), T(x), &m, r));
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

/* `rounds` times n units of `width` columns, of which a device takes some. */
struct strip {
    int64_t rounds, n, width;
};

static struct tensor round_of(struct tensor x, struct strip s, struct rows_part own, int64_t round)
{
    return op_cols(x, (round * s.n + own.first) * s.width, (own.end - own.first) * s.width);
}

/* Each device reads its units of x. */
static void ask_units(struct rows *c, struct tensor x, struct strip s)
{
    for (int k = 0; k < c->n; k++)
        for (int64_t j = 0; j < s.rounds; j++)
            dev_rows_reads(c, k, round_of(x, s, dev_rows_part_of(c, k, s.n), j));
}

/* Each has computed those of y. */
static void note_units(struct rows *c, struct tensor y, struct strip s)
{
    for (int k = 0; k < c->n; k++) {
        const struct rows_part own = dev_rows_part_of(c, k, s.n);

        for (int64_t j = 0; j < s.rounds && own.cut; j++)
            dev_rows_note(c, k, round_of(y, s, own, j));
    }
    dev_rows_settle(c, false);
}

/* Puts the own units of x side by side into columns `at` and following of y, which is the device's; how many they are.
 */
static int64_t pick_units(struct dev *d, struct tensor y, int64_t at, struct tensor x, struct strip s,
                          struct rows_part own)
{
    const int64_t some = (own.end - own.first) * s.width, all = s.rounds * some;

    op_heads_pick(d, op_cols(y, at, all), x, some, s.n * s.width, own.first * s.width);
    return all;
}

/* The same of x alone, in scratch. */
static struct tensor own_units(struct dev *d, struct tensor x, struct strip s, struct rows_part own)
{
    struct tensor y = dev_scratch(d, s.rounds * (own.end - own.first) * s.width, x.ne[1]);

    (void)pick_units(d, y, 0, x, s, own);
    return y;
}

/* The same of a vector. */
static const float *own_floats(struct dev *d, const float *v, struct strip s, struct rows_part own)
{
    const struct tensor x = { .type = QUANT_f32,
                              .ne = { s.rounds * s.n * s.width, 1, 1 },
                              .stride = s.rounds * s.n * s.width,
                              .data = (void *)(uintptr_t)v }; /* not written */

    return own_units(d, x, s, own).data;
}

/* Back to where they are in y, which all devices have. */
static void put_units(struct dev *d, struct tensor y, struct tensor x, struct strip s, struct rows_part own)
{
    const int64_t some = (own.end - own.first) * s.width;

    for (int64_t i = 0; i < s.rounds; i++)
        op_heads_pick(d, round_of(y, s, own, i), op_cols(x, i * some, some), some, some, 0);
}

/* Value heads go with their key heads. Where they are not grouped, each of `rounds` rounds of them has all keys. */
void dev_rows_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                  const struct op_gdn *a, const struct op_rows *r)
{
    struct rows *c = ctx;
    const int64_t rounds = a->k_grouped ? 1 : a->n_v / a->n_k, each = a->k_grouped ? a->n_v / a->n_k : 1;
    const int64_t keys = (int64_t)a->n_k * a->dim;
    const struct strip key = { 1, a->n_k, a->dim }, one = { rounds, a->n_k, each };
    const struct strip value = { rounds, a->n_k, each * a->dim_v };

    ask_units(c, op_cols(qkv, 0, 2 * keys), (struct strip){ 2, a->n_k, a->dim });
    ask_units(c, op_cols(qkv, 2 * keys, (int64_t)a->n_v * a->dim_v), value);
    ask_units(c, alpha, one);
    ask_units(c, beta, one);
    dev_rows_settle(c, false);
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
                            own_floats(d, P(a->a), one, own),
                            own_floats(d, P(a->dt_bias), one, own),
                            rec_there(c, k, &a->rec, (int64_t)n_v * a->dim * a->dim_v) };
        struct tensor in = dev_scratch(d, (int64_t)2 * n_k * a->dim + (int64_t)n_v * a->dim_v, qkv.ne[1]);
        struct tensor out = dev_scratch(d, (int64_t)n_v * a->dim_v, y.ne[1]), all = T(qkv);
        int64_t at = pick_units(d, in, 0, op_cols(all, 0, keys), key, own);

        at += pick_units(d, in, at, op_cols(all, keys, keys), key, own);
        (void)pick_units(d, in, at, op_cols(all, 2 * keys, (int64_t)a->n_v * a->dim_v), value, own);
        op_gdn(d, out, in, own_units(d, T(alpha), one, own), own_units(d, T(beta), one, own), &m, r);
        put_units(d, T(y), out, value, own);
        dev_release(d, mark);
    }
    note_units(c, y, value);
}

void dev_rows_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                  const struct op_kda *a, const struct op_rows *r)
{
    struct rows *c = ctx;
    const struct strip head = { 1, a->n_head, a->dim }, one = { 1, a->n_head, 1 };
    const struct strip three = { 3, a->n_head, a->dim }; /* queries, keys and values: rounds of heads */

    ask_units(c, qkv, three);
    ask_units(c, decay, head);
    ask_units(c, beta, one);
    dev_rows_settle(c, false);
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
        struct tensor in = own_units(d, T(qkv), three, own), out = dev_scratch(d, (int64_t)n * a->dim, y.ne[1]);

        op_kda(d, out, in, own_units(d, T(decay), head, own), own_units(d, T(beta), one, own), &m, r);
        put_units(d, T(y), out, head, own);
        dev_release(d, mark);
    }
    note_units(c, y, head);
}

/* Heads go with their group of B and C; where there is one group every device has it. */
void dev_rows_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                   const struct op_rows *r)
{
    struct rows *c = ctx;
    const int64_t units = a->n_group > 1 ? a->n_group : a->n_head, each = a->n_head / units;
    const int64_t inner = (int64_t)a->n_head * a->dim, group = (int64_t)a->n_group * a->n_state;
    const struct strip head = { 1, units, each * a->dim }, one = { 1, units, each }, bc = { 1, units, a->n_state };

    WHOLE(xbc);
    ask_units(c, dt, one);
    dev_rows_settle(c, false);
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
        struct tensor in = dev_scratch(d, (int64_t)n * a->dim + (int64_t)2 * n_group * a->n_state, xbc.ne[1]);
        struct tensor out = dev_scratch(d, (int64_t)n * a->dim, y.ne[1]), all = T(xbc);
        int64_t at = pick_units(d, in, 0, op_cols(all, 0, inner), head, own);

        for (int i = 0; i < 2; i++) {
            struct tensor from = op_cols(all, inner + i * group, group);

            if (a->n_group > 1)
                at += pick_units(d, in, at, from, bc, own);
            else
                op_heads_pick(d, op_cols(in, at + i * group, group), from, group, group, 0);
        }
        op_ssm2(d, out, in, own_units(d, T(dt), one, own), &m, r);
        put_units(d, T(y), out, head, own);
        dev_release(d, mark);
    }
    note_units(c, y, head);
}
