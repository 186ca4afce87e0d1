/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c - operations: shape checks, timing, and the call of the device's function.  room: ops */
#include <assert.h>
#include <math.h>
#include <time.h>

#include "ops/internal.h"
#include "quant/quant.h"

struct tensor op_cols(struct tensor x, int64_t c, int64_t n)
{
    assert(x.type == QUANT_f32 && c >= 0 && c + n <= x.ne[0]);
    x.ne[0] = n;
    if (x.data != NULL)
        x.data = (float *)x.data + c;
    return x;
}

struct tensor op_slice(struct tensor x, int64_t r, int64_t n)
{
    assert(x.type == QUANT_f32 && r >= 0 && r + n <= x.ne[1]);
    x.ne[1] = n;
    if (x.data != NULL)
        x.data = (float *)x.data + r * x.stride;
    return x;
}

struct tensor op_matrix(struct tensor w, int64_t i)
{
    assert(i >= 0 && i < w.ne[2]);
    w.ne[2] = 1;
    w.from += i * w.pitch;
    if (w.data != NULL)
        w.data = (unsigned char *)w.data + i * w.pitch * quant_row_bytes(w.type, w.ne[0]);
    return w;
}

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Measuring: the device's own need is a peak that is gone when the call returns. */
static void note_need(struct dev *d, size_t need)
{
    if (d->peak < d->used + dev_aligned(need))
        d->peak = d->used + dev_aligned(need);
}

static bool is_floats(struct tensor t, int64_t ne0, int64_t ne1)
{
    return t.type == QUANT_f32 && t.ne[0] == ne0 && t.ne[1] == ne1 && t.stride >= ne0;
}

static bool same_shape(struct tensor a, struct tensor b)
{
    return is_floats(a, b.ne[0], b.ne[1]) && b.type == QUANT_f32;
}

/* One call of the device's function; measuring, if it is to be called at all, for its needs. */
#define RUN_AS(op, function, ...) \
    do { \
        uint64_t t0_ = d->timing ? now_ns() : 0; \
        if (!d->measuring || d->impl.table->measure != NULL) \
            d->impl.table->function(d->impl.ctx, __VA_ARGS__); \
        if (d->timing && !d->measuring) { \
            d->time[DEV_OP_##op].ns += now_ns() - t0_; \
            d->time[DEV_OP_##op].calls++; \
        } \
    } while (0)
#define RUN(op, ...) RUN_AS(op, op, __VA_ARGS__)

/* The device says what such a call takes. */
static bool measures_by_call(const struct dev *d)
{
    return d->measuring && d->impl.table->measure == NULL;
}

#define NOTE(need, ...) note_need(d, d->impl.table->need != NULL ? d->impl.table->need(d->impl.ctx, __VA_ARGS__) : 0)

void op_embed(struct dev *d, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
              float scale)
{
    assert(is_floats(y, w.ne[0], y.ne[1]));
    if (measures_by_call(d))
        NOTE(embed_need, y, w);
    else
        RUN(embed, y, w, token, ids, scale);
}

void op_matmul(struct dev *d, struct tensor y, struct tensor w, struct tensor x)
{
    assert(is_floats(y, w.ne[1], x.ne[1]) && is_floats(x, w.ne[0], y.ne[1]));
    if (measures_by_call(d))
        NOTE(matmul_need, y, w, x);
    else
        RUN(matmul, y, w, x);
}

void op_matmuls(struct dev *d, const struct op_product *p, int n, struct tensor x)
{
    assert(n > 0 && n <= OP_PRODUCTS_MAX);
    if (d->impl.table->matmuls == NULL) {
        for (int i = 0; i < n; i++)
            op_matmul(d, p[i].y, p[i].w, x);
        return;
    }
    for (int i = 0; i < n; i++)
        assert(is_floats(p[i].y, p[i].w.ne[1], x.ne[1]) && is_floats(x, p[i].w.ne[0], p[i].y.ne[1]));
    if (measures_by_call(d))
        NOTE(matmuls_need, p, n, x);
    else
        RUN_AS(matmul, matmuls, p, n, x);
}

void op_rms_norm(struct dev *d, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group, float eps)
{
    group = group == 0 ? x.ne[0] : group;
    assert(same_shape(y, x) && x.ne[0] % group == 0);
    assert(w == NULL || n_w == group || n_w == x.ne[0]);
    RUN(rms_norm, y, x, w, n_w, group, eps);
}

void op_rms_norm_gated(struct dev *d, struct tensor y, struct tensor x, struct tensor z, const float *w, int64_t n_w,
                       int64_t group, float eps)
{
    group = group == 0 ? x.ne[0] : group;
    assert(same_shape(y, x) && same_shape(z, x) && x.ne[0] % group == 0);
    assert(w == NULL || n_w == group || n_w == x.ne[0]);
    RUN(rms_norm_gated, y, x, z, w, n_w, group, eps);
}

void op_add(struct dev *d, struct tensor y, struct tensor x, float s)
{
    assert(same_shape(y, x));
    RUN(add, y, x, s);
}

void op_add_gated(struct dev *d, struct tensor y, struct tensor x, struct tensor g)
{
    assert(same_shape(y, x) && is_floats(g, 1, x.ne[1]));
    RUN(add_gated, y, x, g);
}

void op_glu(struct dev *d, struct tensor y, struct tensor gate, struct tensor up)
{
    assert(same_shape(y, gate) && same_shape(y, up));
    RUN(glu, y, gate, up);
}

void op_geglu(struct dev *d, struct tensor y, struct tensor gate, struct tensor up)
{
    assert(same_shape(y, gate) && same_shape(y, up));
    RUN(geglu, y, gate, up);
}

void op_relu2(struct dev *d, struct tensor y)
{
    assert(y.type == QUANT_f32);
    RUN(relu2, y);
}

void op_sigmoid_mul(struct dev *d, struct tensor y, struct tensor g)
{
    assert(g.type == QUANT_f32 && y.type == QUANT_f32 && g.ne[1] == y.ne[1] && y.ne[0] % g.ne[0] == 0);
    RUN(sigmoid_mul, y, g);
}

void op_mul(struct dev *d, struct tensor y, struct tensor x)
{
    assert(same_shape(y, x));
    RUN(mul, y, x);
}

void op_scale(struct dev *d, struct tensor y, float s)
{
    assert(y.type == QUANT_f32);
    RUN(scale, y, s);
}

void op_silu(struct dev *d, struct tensor y, float s)
{
    assert(y.type == QUANT_f32);
    RUN(silu, y, s);
}

void op_streams_mix(struct dev *d, struct tensor y, struct tensor x, struct tensor g)
{
    assert(same_shape(g, x) && x.ne[0] % y.ne[0] == 0 && is_floats(y, y.ne[0], x.ne[1]));
    RUN(streams_mix, y, x, g);
}

void op_streams_add(struct dev *d, struct tensor x, struct tensor y, struct tensor a)
{
    assert(is_floats(y, y.ne[0], x.ne[1]) && is_floats(x, a.ne[0] * y.ne[0], a.ne[1]) && a.type == QUANT_f32);
    RUN(streams_add, x, y, a);
}

void op_streams_gate(struct dev *d, struct tensor y, struct tensor key, struct tensor query, struct tensor value)
{
    assert(same_shape(y, key) && same_shape(query, key) && is_floats(value, value.ne[0], key.ne[1]));
    assert(key.ne[0] % value.ne[0] == 0);
    RUN(streams_gate, y, key, query, value);
}

void op_index_store(struct dev *d, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                    const struct op_rows *r)
{
    assert(is_floats(k, kv->dim_x, r->n) && a->ratio >= 1 && a->rope.dim == kv->dim_x);
    RUN(index_store, k, kv, a, r);
}

/* Every row has blocks to choose from. */
static bool has_choice(const struct op_index *a, const struct op_rows *r)
{
    bool all = true;

    for (int i = 0; i < r->n_seq; i++)
        all &= r->seq[i].n == 0 || (r->seq[i].pos + 1) / a->ratio > a->most;
    return all;
}

void op_index_pick(struct dev *d, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                   const struct op_rows *r)
{
    assert(is_floats(q, (int64_t)a->n_head * kv->dim_x, r->n) && (d->measuring || has_choice(a, r)));
    if (measures_by_call(d))
        NOTE(index_need, kv, a, r);
    else
        RUN(index_pick, pick, q, kv, a, r);
}

void op_attn_picked(struct dev *d, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                    float scale, const struct op_index *a, const struct op_rows *r)
{
    assert(q.type == QUANT_f32 && q.ne[1] == r->n && q.ne[0] % ((int64_t)kv->n_head * kv->dim_k) == 0);
    assert(is_floats(y, q.ne[0] / kv->dim_k * kv->dim_v, r->n) && (d->measuring || has_choice(a, r)));
    if (measures_by_call(d))
        NOTE(attn_need, y, q, kv, r);
    else
        RUN(attn_picked, y, q, pick, kv, scale, a, r);
}

void op_rows_pick(struct dev *d, struct tensor y, struct tensor x, const int32_t *row)
{
    assert(is_floats(y, x.ne[0], y.ne[1]) && x.type == QUANT_f32);
    RUN(rows_pick, y, x, row);
}

void op_heads_pick(struct dev *d, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first)
{
    assert(y.ne[0] % dim == 0 && y.ne[1] == x.ne[1] && first >= 0 && first + dim <= pitch);
    assert(y.ne[0] / dim * pitch <= x.ne[0]);
    RUN(heads_pick, y, x, dim, pitch, first);
}

void op_rope(struct dev *d, struct tensor x, const struct op_rope *a, const struct op_rows *r)
{
    assert(x.type == QUANT_f32 && x.ne[1] == r->n && x.ne[0] % a->dim == 0);
    assert(a->first >= 0 && a->first + a->n_rot <= a->dim && a->n_rot % 2 == 0);
    RUN(rope, x, a, r);
}

int op_hadamard_block(int64_t dim)
{
    int n = 1;

    while (n < 1024 && dim % (2 * (int64_t)n) == 0)
        n *= 2;
    return n;
}

bool op_kv_rotated(const struct op_kv *kv)
{
    return quant_types[kv->type_k]->block_elems > 1;
}

void op_hadamard(struct dev *d, struct tensor y, struct tensor x, int64_t dim)
{
    assert(same_shape(y, x) && dim >= 1 && x.ne[0] % dim == 0);
    RUN(hadamard, y, x, dim);
}

void op_kv_store(struct dev *d, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r)
{
    assert(is_floats(k, (int64_t)kv->n_head * kv->dim_k, r->n));
    assert(is_floats(v, (int64_t)kv->n_head * kv->dim_v, r->n));
    RUN(kv_store, k, v, kv, r);
}

void op_attn(struct dev *d, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
             const struct op_rows *r)
{
    assert(q.type == QUANT_f32 && q.ne[1] == r->n && q.ne[0] % ((int64_t)kv->n_head * kv->dim_k) == 0);
    assert(is_floats(y, q.ne[0] / kv->dim_k * kv->dim_v, r->n));
    if (measures_by_call(d))
        NOTE(attn_need, y, q, kv, r);
    else
        RUN(attn, y, q, kv, scale, r);
}

int64_t op_again_rows(const struct op_rec *rec, const struct op_rows *r)
{
    return rec->log.rows > 0 ? (int64_t)r->n_seq * rec->log.most : 0;
}

/* Whether a recurrent layer's memory has `floats` floats, its log room for `inputs` inputs a row, and the step's rows
 * fit. */
static bool fits_rec(const struct op_rec *rec, int64_t floats, int64_t inputs, const struct op_rows *r)
{
    const struct op_log *l = &rec->log;
    bool fits = rec->floats == floats && (l->rows == 0 || (l->width >= inputs && l->floats >= l->rows * l->width));

    for (int i = 0; fits && i < r->n_seq; i++) {
        const struct op_seq *s = &r->seq[i];

        fits = l->rows == 0 ? s->again == 0 && s->drafts == 0 && s->logged == 0
                            : s->again <= l->most && s->again <= l->rows && s->logged <= l->rows && s->logged <= s->n &&
                                  s->drafts <= s->logged;
    }
    return fits;
}

/* A scan's own memory while it runs: where draft rows change a copy of it. block: floats of the largest part of it. */
static bool asked_scan(struct dev *d, const struct op_rec *rec, int64_t block)
{
    if (!measures_by_call(d))
        return false;
    NOTE(scan_need, rec, block);
    return true;
}

int op_conv_back(const struct op_conv *a)
{
    return (a->taps - 1) * (a->apart > 1 ? a->apart : 1);
}

void op_conv(struct dev *d, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    assert(is_floats(x, y.ne[0], r->n) && y.type == QUANT_f32 && a->taps >= 1);
    assert(y.ne[1] == r->n || y.ne[1] == r->n + op_again_rows(&a->rec, r));
    assert(fits_rec(&a->rec, op_conv_back(a) * x.ne[0], x.ne[0], r));
    RUN(conv, y, x, a, r);
}

void op_gdn(struct dev *d, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
            const struct op_gdn *a, const struct op_rows *r)
{
    int64_t block = (int64_t)a->dim * a->dim_v;

    assert(is_floats(qkv, (int64_t)2 * a->n_k * a->dim + (int64_t)a->n_v * a->dim_v, r->n + op_again_rows(&a->rec, r)));
    assert(is_floats(alpha, a->n_v, r->n) && is_floats(beta, a->n_v, r->n) && a->n_v % a->n_k == 0);
    assert(is_floats(y, (int64_t)a->n_v * a->dim_v, r->n));
    assert(fits_rec(&a->rec, a->n_v * block, (int64_t)2 * a->n_v, r));
    if (!asked_scan(d, &a->rec, block))
        RUN(gdn, y, qkv, alpha, beta, a, r);
}

void op_kda(struct dev *d, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
            const struct op_kda *a, const struct op_rows *r)
{
    int64_t inner = (int64_t)a->n_head * a->dim;

    assert(is_floats(qkv, 3 * inner, r->n + op_again_rows(&a->rec, r)) && is_floats(decay, inner, r->n));
    assert(is_floats(beta, a->n_head, r->n) && is_floats(y, inner, r->n));
    assert(fits_rec(&a->rec, inner * a->dim, inner + a->n_head, r));
    if (!asked_scan(d, &a->rec, (int64_t)a->dim * a->dim))
        RUN(kda, y, qkv, decay, beta, a, r);
}

void op_ssm1(struct dev *dev, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor c,
             const struct op_ssm1 *a, const struct op_rows *r)
{
    struct dev *d = dev;

    assert(is_floats(x, y.ne[0], r->n + op_again_rows(&a->rec, r)) && is_floats(y, x.ne[0], r->n));
    assert(same_shape(dt, y) && is_floats(b, a->n_state, r->n) && is_floats(c, a->n_state, r->n));
    assert(fits_rec(&a->rec, a->n_state * x.ne[0], x.ne[0] + (int64_t)2 * a->n_state, r));
    if (!asked_scan(d, &a->rec, a->n_state * x.ne[0]))
        RUN(ssm1, y, x, dt, b, c, a, r);
}

void op_ssm2(struct dev *dev, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
             const struct op_rows *r)
{
    struct dev *d = dev;
    int64_t inner = (int64_t)a->n_head * a->dim;

    assert(is_floats(xbc, inner + (int64_t)2 * a->n_group * a->n_state, r->n + op_again_rows(&a->rec, r)));
    assert(is_floats(dt, a->n_head, r->n) && is_floats(y, inner, r->n) && a->n_head % a->n_group == 0);
    assert(fits_rec(&a->rec, inner * a->n_state, a->n_head, r));
    if (!asked_scan(d, &a->rec, (int64_t)a->dim * a->n_state))
        RUN(ssm2, y, xbc, dt, a, r);
}

void op_route(struct dev *d, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a)
{
    assert(is_floats(weight, a->n_used, logits.ne[1]) && is_floats(logits, a->n_expert, weight.ne[1]));
    assert(a->n_used >= 1 && a->n_used <= a->n_expert);
    assert(a->n_group <= 1 || (a->n_group <= OP_GROUPS_MAX && a->n_expert % a->n_group == 0));
    if (measures_by_call(d))
        NOTE(route_need, logits);
    else
        RUN(route, expert, weight, logits, a);
}

void op_adapt(struct dev *d, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
              const struct op_terms *t)
{
    assert(n > 0 && n <= OP_PRODUCTS_MAX && t->n <= OP_ADAPTERS_MAX && t->max <= OP_TERMS_MAX);
    for (int i = 0; i < n; i++)
        assert(a[i].y.type == QUANT_f32 && (x.ne[1] == a[i].y.ne[1] || token != NULL) &&
               a[i].first + a[i].y.ne[0] <= a[i].n_out);
    if (measures_by_call(d))
        NOTE(adapt_need, a, n, t);
    else
        RUN(adapt, a, n, x, token, t);
}

static void check_experts(struct tensor x, const struct op_moe *a, int64_t width)
{
    assert(a->up.ne[0] == x.ne[0] && a->down.ne[1] == width && a->down.ne[0] == a->up.ne[1]);
    assert(a->up.ne[2] == a->down.ne[2]);
}

void op_moe(struct dev *d, struct tensor y, struct tensor x, const struct op_moe *a)
{
    assert(same_shape(y, x) && is_floats(a->weight, a->n_used, x.ne[1]) && a->slot == NULL);
    check_experts(x, a, y.ne[0]);
    if (measures_by_call(d))
        NOTE(moe_need, y, x, a);
    else
        RUN(moe, y, x, a);
}

void op_moe_pairs(struct dev *d, struct tensor out, struct tensor x, const struct op_moe *a)
{
    assert(is_floats(out, out.ne[0], x.ne[1] * a->n_used) && x.type == QUANT_f32);
    check_experts(x, a, out.ne[0]);
    if (measures_by_call(d))
        NOTE(moe_need, out, x, a);
    else
        RUN(moe_pairs, out, x, a);
}

void op_moe_sum(struct dev *d, struct tensor y, struct tensor out, struct tensor weight)
{
    assert(is_floats(out, y.ne[0], weight.ne[0] * y.ne[1]) && is_floats(weight, weight.ne[0], y.ne[1]));
    RUN(moe_sum, y, out, weight);
}

void op_hand_out(struct dev *d, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    assert(dev_is_host(h->dev) && h->dev != d && h->moe.slot != NULL);
    RUN(hand_out, x, expert, h);
}

void op_hand_in(struct dev *d, struct tensor out, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    assert(dev_is_host(h->dev) && is_floats(out, out.ne[0], x.ne[1] * h->moe.n_used));
    if (d->measuring)
        op_moe_pairs(h->dev, out, x, &h->moe);
    RUN(hand_in, out, x, expert, h);
}

void op_tally(struct dev *d, uint64_t *count, int n_expert, const int32_t *expert, int64_t n)
{
    RUN(tally, count, n_expert, expert, n);
}

size_t op_top_bytes(const struct op_top *a)
{
    size_t n =
        sizeof(struct op_top_row) + (size_t)a->k * sizeof(struct logits_entry) + (size_t)a->n_ids * sizeof(float);

    return (n + 7) / 8 * 8;
}

struct op_ids op_top_ids(const struct op_top *a, const void *out)
{
    const struct logits_entry *entry = (const void *)((const struct op_top_row *)out + 1);

    return (struct op_ids){ &entry->token, (int64_t)(op_top_bytes(a) / sizeof entry->token) };
}

void op_top(struct dev *d, void *out, struct tensor logits, const struct op_top *a)
{
    assert(logits.type == QUANT_f32 && logits.ne[0] >= 1 && logits.ne[0] <= INT32_MAX);
    assert(a->k >= 1 && a->k <= LOGITS_TOP_MAX && a->n_ids >= 0);
    if (measures_by_call(d))
        NOTE(top_need, logits);
    else
        RUN(top, out, logits, a);
}

struct logits_digest op_top_digest(const struct op_top *a, const void *out, int64_t r, int32_t n_top)
{
    const struct op_top_row *row = (const void *)((const unsigned char *)out + (size_t)r * op_top_bytes(a));
    const struct logits_entry *entry = (const void *)(row + 1);

    assert(n_top >= 1 && n_top <= a->k);
    return (struct logits_digest){
        .top = entry,
        .n_top = row->n < n_top ? row->n : n_top,
        .all = row->n <= n_top && a->k > row->n,
        .ids = a->n_ids > 0 ? a->ids + r * a->n_ids : NULL,
        .logits = (const void *)(entry + a->k),
        .n_ids = a->n_ids,
        .max = row->max,
        .raw_max = row->raw_max,
        .total = row->total,
        .heated = row->heated,
        .weighted = row->weighted,
        .squared = row->squared,
        .second = n_top == 1   ? NAN
                  : row->n > 1 ? entry[1].logit
                               : -INFINITY,
        .raw_total = row->raw_total,
    };
}
