/* SPDX-License-Identifier: Apache-2.0 */
/* rows.c - a device made of several that share every layer, without cutting a sum.  room: ops
 *
 * What reads many weights or much memory is cut by its outputs: products by rows of the matrix, attention and scans by
 * heads, with their keys, values and states, mixtures by experts. Each device computes its part, and gets those of the
 * others when it needs them (rows_parts.c). Each output is the same sum in the same order as on one device, so bytes
 * stay. All else, norms of whole rows and routers among it, every device computes for itself; so do convolutions and
 * scans without heads, which are small. A mixture is cut by experts and not by their rows: the sums need all pairs in
 * one place once, where rows would also need what is between the two products. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/internal.h"
#include "ops/rows.h"

/* ---- products ---- */

static struct tensor some_rows(struct tensor w, struct rows_part p)
{
    w.ne[1] = p.end - p.first;
    w.from += p.first;
    if (w.data != NULL)
        w.data = (unsigned char *)w.data + p.first * quant_row_bytes(w.type, w.ne[0]);
    return w;
}

static bool has_rows(struct rows_part p)
{
    return p.end > p.first;
}

static void multiply(struct rows *c, const struct op_product *p, int n, struct tensor x)
{
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < c->n; k++)
            if (has_rows(dev_rows_of(c, k, p[i].w)))
                dev_rows_reads(c, k, x);
        dev_rows_writes(c, p[i].y);
    }
    dev_rows_settle(c, false);
    for (int k = 0; k < c->n; k++) {
        struct op_product own[OP_PRODUCTS_MAX];
        int n_own = 0;

        for (int i = 0; i < n; i++) {
            const struct rows_part part = dev_rows_of(c, k, p[i].w);

            if (has_rows(part))
                own[n_own++] = (struct op_product){ op_cols(T(p[i].y), part.first, part.end - part.first),
                                                    some_rows(T(p[i].w), part) };
        }
        if (n_own > 0)
            op_matmuls(c->dev[k], own, n_own, T(x));
        for (int i = 0; i < n; i++) {
            const struct rows_part part = dev_rows_of(c, k, p[i].w);

            if (part.cut && has_rows(part))
                dev_rows_note(c, k, op_cols(p[i].y, part.first, part.end - part.first));
        }
    }
    dev_rows_settle(c, false);
}

/* Rows that are shared out together are a product of their own. */
static void dev_rows_matmuls(void *ctx, const struct op_product *p, int n, struct tensor x)
{
    struct op_product own[OP_PRODUCTS_MAX];
    int n_own = 0;

    for (int i = 0; i < n; i++)
        for (struct rows_part s = { 0 }; s.first < p[i].w.ne[1]; s.first = s.end) {
            s.end = p[i].w.ne[1];
            s.end = s.first + dev_rows_together(ctx, some_rows(p[i].w, s));
            if (n_own == OP_PRODUCTS_MAX) {
                multiply(ctx, own, n_own, x);
                n_own = 0;
            }
            own[n_own++] = (struct op_product){ op_cols(p[i].y, s.first, s.end - s.first), some_rows(p[i].w, s) };
        }
    multiply(ctx, own, n_own, x);
}

static void dev_rows_matmul(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    dev_rows_matmuls(ctx, &(struct op_product){ y, w }, 1, x);
}

/* ---- what every device computes, each column where it is ---- */

static void dev_rows_embed(void *ctx, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
                           float scale)
{
    dev_rows_writes(ctx, y);
    EACH(op_embed(d, T(y), T(w), token, ids == NULL ? NULL : &(struct op_ids){ P(ids->at), ids->stride }, scale));
}

/* The weights of a norm for some groups: those of one serve all, or each column has its own. */
struct norm_part {
    const float *w;
    int64_t n;
};

static struct norm_part norm_part(const float *w, int64_t n_w, int64_t group, const struct rows_stretch *p)
{
    if (w == NULL || n_w == group)
        return (struct norm_part){ w, n_w };
    return (struct norm_part){ w + p->first * group, p->n * group };
}

static void dev_rows_rms_norm(void *ctx, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group,
                              float eps)
{
    COLUMNS(x.ne[0] / group, y, struct norm_part m = norm_part(w, n_w, group, &s.part[i]);
            op_rms_norm(d, C(y), C(x), P(m.w), m.n, group, eps), x);
}

static void dev_rows_rms_norm_gated(void *ctx, struct tensor y, struct tensor x, struct tensor z, const float *w,
                                    int64_t n_w, int64_t group, float eps)
{
    COLUMNS(x.ne[0] / group, y, struct norm_part m = norm_part(w, n_w, group, &s.part[i]);
            op_rms_norm_gated(d, C(y), C(x), C(z), P(m.w), m.n, group, eps), x, z);
}

static void dev_rows_add(void *ctx, struct tensor y, struct tensor x, float scale)
{
    COLUMNS(y.ne[0], y, op_add(d, C(y), C(x), scale), y, x);
}

static void dev_rows_add_gated(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    WHOLE(g);
    COLUMNS(y.ne[0], y, op_add_gated(d, C(y), C(x), T(g)), y, x);
}

static void dev_rows_glu(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    COLUMNS(y.ne[0], y, op_glu(d, C(y), C(gate), C(up)), gate, up);
}

static void dev_rows_geglu(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    COLUMNS(y.ne[0], y, op_geglu(d, C(y), C(gate), C(up)), gate, up);
}

static void dev_rows_relu2(void *ctx, struct tensor y)
{
    COLUMNS(y.ne[0], y, op_relu2(d, C(y)), y);
}

static void dev_rows_sigmoid_mul(void *ctx, struct tensor y, struct tensor g)
{
    COLUMNS(g.ne[0], y, op_sigmoid_mul(d, C(y), C(g)), y, g);
}

static void dev_rows_mul(void *ctx, struct tensor y, struct tensor x)
{
    COLUMNS(y.ne[0], y, op_mul(d, C(y), C(x)), y, x);
}

static void dev_rows_scale(void *ctx, struct tensor y, float scale)
{
    COLUMNS(y.ne[0], y, op_scale(d, C(y), scale), y);
}

static void dev_rows_silu(void *ctx, struct tensor y, float scale)
{
    COLUMNS(y.ne[0], y, op_silu(d, C(y), scale), y);
}

static void dev_rows_streams_mix(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    WHOLE(x, g);
    dev_rows_writes(ctx, y);
    EACH(op_streams_mix(d, T(y), T(x), T(g)));
}

static void dev_rows_streams_add(void *ctx, struct tensor x, struct tensor y, struct tensor a)
{
    WHOLE(x, y, a);
    EACH(op_streams_add(d, T(x), T(y), T(a)));
}

static void dev_rows_streams_gate(void *ctx, struct tensor y, struct tensor key, struct tensor query,
                                  struct tensor value)
{
    WHOLE(key, query, value);
    dev_rows_writes(ctx, y);
    EACH(op_streams_gate(d, T(y), T(key), T(query), T(value)));
}

static void dev_rows_rows_pick(void *ctx, struct tensor y, struct tensor x, const int32_t *row)
{
    COLUMNS(y.ne[0], y, op_rows_pick(d, C(y), C(x), row), x);
}

static void dev_rows_heads_pick(void *ctx, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first)
{
    const int64_t heads = y.ne[0] / dim;
    const struct tensor from = op_cols(x, 0, heads * pitch);

    COLUMNS(heads, y, op_heads_pick(d, C(y), C(from), dim, pitch, first), from);
}

static struct op_rope rope_there(struct rows *c, int k, struct op_rope a)
{
    a.freq = P(a.freq);
    return a;
}

static void dev_rows_rope(void *ctx, struct tensor x, const struct op_rope *a, const struct op_rows *r)
{
    COLUMNS(x.ne[0] / a->dim, x, struct op_rope m = rope_there(c, k, *a); op_rope(d, C(x), &m, r), x);
}

static void dev_rows_hadamard(void *ctx, struct tensor y, struct tensor x, int64_t dim)
{
    COLUMNS(x.ne[0] / dim, y, op_hadamard(d, C(y), C(x), dim), x);
}

static void dev_rows_route(void *ctx, int32_t *expert, struct tensor weight, struct tensor logits,
                           const struct op_route *a)
{
    WHOLE(logits);
    dev_rows_writes(ctx, weight);
    EACH(struct op_route m = *a; m.bias = P(a->bias); op_route(d, P(expert), T(weight), T(logits), &m));
}

static void dev_rows_tally(void *ctx, uint64_t *count, int n_expert, const int32_t *expert, int64_t n)
{
    EACH(op_tally(d, P(count), n_expert, P(expert), n));
}

/* The first device has the masks filled, for all of them. */
static void dev_rows_top(void *ctx, void *out, struct tensor logits, const struct op_top *a)
{
    WHOLE(logits);
    EACH(struct op_top m = *a; m.masks = k == 0 ? a->masks : NULL; op_top(d, P(out), T(logits), &m));
}

/* What adapters add is small: every device adds it to all columns, also to those that it is yet to get. Their matrices
 * are in the host's memory. */
static void dev_rows_adapt(void *ctx, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
                           const struct op_terms *t)
{
    struct rows *c = ctx;

    if (token == NULL)
        WHOLE(x);
    for (int k = 0; k < c->n; k++) {
        struct op_adapt m[OP_PRODUCTS_MAX];

        for (int i = 0; i < n; i++) {
            m[i] = a[i];
            m[i].y = T(a[i].y);
        }
        op_adapt(c->dev[k], m, n, T(x), token, t);
    }
}

/* ---- attention ---- */

/* Keys and values of device k's heads. */
static struct op_kv kv_there(struct rows *c, int k, const struct op_kv *kv)
{
    const struct rows_part own = dev_rows_part_of(c, k, kv->n_head);
    struct op_kv m = *kv;

    m.pages = P(kv->pages);
    m.page_bytes = dev_rows_period(c, k, kv->pages, kv->page_bytes);
    m.n_head = (int)(own.end - own.first);
    return m;
}

static struct tensor heads_of(struct tensor x, struct rows_part own, int64_t dim)
{
    return op_cols(x, own.first * dim, (own.end - own.first) * dim);
}

static void dev_rows_kv_store(void *ctx, struct tensor key, struct tensor v, const struct op_kv *kv,
                              const struct op_rows *r)
{
    struct rows *asked = ctx;

    for (int k = 0; k < asked->n; k++) {
        const struct rows_part own = dev_rows_part_of(asked, k, kv->n_head);

        dev_rows_reads(asked, k, heads_of(key, own, kv->dim_k));
        dev_rows_reads(asked, k, heads_of(v, own, kv->dim_v));
    }
    dev_rows_settle(asked, false);
    EACH(const struct rows_part own = dev_rows_part_of(c, k, kv->n_head); const struct op_kv m = kv_there(c, k, kv);
         op_kv_store(d, heads_of(T(key), own, kv->dim_k), heads_of(T(v), own, kv->dim_v), &m, r));
}

/* Queries are cut with the heads of keys that they read, or where there is one head of keys each for itself. */
static struct rows_part queries_of(const struct rows *c, int k, const struct op_kv *kv, int64_t n_q)
{
    struct rows_part own = dev_rows_part_of(c, k, kv->n_head > 1 ? kv->n_head : n_q);
    const int64_t each = own.cut && kv->n_head > 1 ? n_q / kv->n_head : 1;

    own.first *= each;
    own.end = own.cut ? own.end * each : n_q;
    return own;
}

/* Before attention, and after it. */
static void ask_queries(struct rows *c, struct tensor y, struct tensor q, const struct op_kv *kv, int64_t n_q)
{
    for (int k = 0; k < c->n; k++)
        dev_rows_reads(c, k, heads_of(q, queries_of(c, k, kv, n_q), kv->dim_k));
    dev_rows_settle(c, false);
    dev_rows_writes(c, y);
}

static void note_queries(struct rows *c, struct tensor y, const struct op_kv *kv, int64_t n_q)
{
    for (int k = 0; k < c->n; k++) {
        const struct rows_part own = queries_of(c, k, kv, n_q);

        if (own.cut)
            dev_rows_note(c, k, heads_of(y, own, kv->dim_v));
    }
    dev_rows_settle(c, false);
}

static void dev_rows_attn(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                          const struct op_rows *r)
{
    const int64_t n_q = q.ne[0] / kv->dim_k;

    ask_queries(ctx, y, q, kv, n_q);
    EACH(const struct rows_part own = queries_of(c, k, kv, n_q); const struct op_kv m = kv_there(c, k, kv);
         op_attn(d, heads_of(T(y), own, kv->dim_v), heads_of(T(q), own, kv->dim_k), &m, scale, r));
    note_queries(ctx, y, kv, n_q);
}

static struct op_index index_there(struct rows *c, int k, const struct op_index *a)
{
    struct op_index m = *a;

    m.norm = P(a->norm);
    m.rope = rope_there(c, k, a->rope);
    return m;
}

/* Every device has the indexer's keys and chooses. */
static void dev_rows_index_store(void *ctx, struct tensor key, const struct op_kv *kv, const struct op_index *a,
                                 const struct op_rows *r)
{
    WHOLE(key);
    EACH(const struct op_kv m = kv_there(c, k, kv); const struct op_index i = index_there(c, k, a);
         op_index_store(d, T(key), &m, &i, r));
}

static void dev_rows_index_pick(void *ctx, int32_t *pick, struct tensor q, const struct op_kv *kv,
                                const struct op_index *a, const struct op_rows *r)
{
    WHOLE(q);
    EACH(const struct op_kv m = kv_there(c, k, kv); const struct op_index i = index_there(c, k, a);
         op_index_pick(d, P(pick), T(q), &m, &i, r));
}

static void dev_rows_attn_picked(void *ctx, struct tensor y, struct tensor q, const int32_t *pick,
                                 const struct op_kv *kv, float scale, const struct op_index *a, const struct op_rows *r)
{
    const int64_t n_q = q.ne[0] / kv->dim_k;

    ask_queries(ctx, y, q, kv, n_q);
    EACH(const struct rows_part own = queries_of(c, k, kv, n_q); const struct op_kv m = kv_there(c, k, kv);
         const struct op_index i = index_there(c, k, a);
         op_attn_picked(d, heads_of(T(y), own, kv->dim_v), heads_of(T(q), own, kv->dim_k), P(pick), &m, scale, &i, r));
    note_queries(ctx, y, kv, n_q);
}

/* ---- experts ---- */

/* For models with n experts: on the host each is where it was, if the device has it. Made while steps are measured. */
static const int32_t *slots_of(struct rows *c, int k, int n)
{
    struct rows_slots *s = c->slots;

    while (s != NULL && s->n != n)
        s = s->next;
    if (s == NULL) {
        s = calloc(1, sizeof *s);
        if (s == NULL)
            return NULL;
        *s = (struct rows_slots){ .next = c->slots, .n = n };
        c->slots = s;
    }
    if (s->slot[k] == NULL) {
        const struct rows_part own = dev_rows_part_of(c, k, n);

        s->slot[k] = calloc((size_t)n, sizeof **s->slot);
        for (int i = 0; s->slot[k] != NULL && i < n; i++)
            s->slot[k][i] = i >= own.first && i < own.end ? i : -1;
    }
    return s->slot[k];
}

static struct op_moe experts_there(struct rows *c, int k, const struct op_moe *a)
{
    struct op_moe m = *a;

    m.expert = P(a->expert);
    m.weight = T(a->weight);
    m.slot = P(a->slot);
    return m;
}

/* Each pair's row, from the device that has the expert. What nobody has read yet crosses with them. */
static void gather_pairs(struct rows *c, struct tensor *out, const struct op_moe *a, int64_t n_rows)
{
    const int32_t *expert = dev_rows_there(c, 0, a->expert);
    const int64_t n = dev_rows_part_of(c, 0, a->up.ne[2]).cut ? n_rows * a->n_used : 0;

    if (n == 0)
        return;
    dev_rows_settle(c, true);
    c->bytes += (c->n - 1) * n * out[0].ne[0] * (int64_t)sizeof(float);
    for (int64_t pair = 0; pair < n && !c->measuring; pair++)
        for (int i = 0; i < c->n; i++) {
            const struct rows_part own = dev_rows_part_of(c, i, a->up.ne[2]);

            for (int k = 0; k < c->n; k++)
                if (k != i && expert[pair] >= own.first && expert[pair] < own.end)
                    dev_pass(c->dev[i], c->dev[k], op_slice(out[k], pair, 1), op_slice(out[i], pair, 1));
        }
}

static void dev_rows_moe(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    struct rows *c = ctx;
    struct tensor out[DEV_LIST_MAX];
    size_t mark[DEV_LIST_MAX];
    const int n = (int)a->up.ne[2];

    WHOLE(x, a->weight);
    dev_rows_writes(c, y);
    for (int k = 0; k < c->n; k++) {
        struct op_moe m = experts_there(c, k, a);

        mark[k] = dev_mark(c->dev[k]);
        out[k] = dev_scratch(c->dev[k], y.ne[0], x.ne[1] * a->n_used);
        m.slot = slots_of(c, k, n);
        c->no_memory |= m.slot == NULL;
        if (!c->no_memory)
            op_moe_pairs(c->dev[k], out[k], T(x), &m);
    }
    gather_pairs(c, out, a, x.ne[1]);
    for (int k = 0; k < c->n; k++) {
        op_moe_sum(c->dev[k], T(y), out[k], T(a->weight));
        dev_release(c->dev[k], mark[k]);
    }
}

static void dev_rows_moe_pairs(void *ctx, struct tensor out, struct tensor x, const struct op_moe *a)
{
    WHOLE(x);
    EACH(const struct op_moe m = experts_there(c, k, a); op_moe_pairs(d, T(out), T(x), &m));
}

static void dev_rows_moe_sum(void *ctx, struct tensor y, struct tensor out, struct tensor weight)
{
    WHOLE(out, weight);
    dev_rows_writes(ctx, y);
    EACH(op_moe_sum(d, T(y), T(out), T(weight)));
}

/* Every device hands the same over: each has to know the results. */
static void dev_rows_hand_out(void *ctx, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    WHOLE(x);
    EACH(op_hand_out(d, T(x), P(expert), h));
}

static void dev_rows_hand_in(void *ctx, struct tensor out, struct tensor x, const int32_t *expert,
                             const struct op_hand *h)
{
    EACH(op_hand_in(d, T(out), T(x), P(expert), h));
}

/* ---- weights ---- */

/* Rows of a matrix are dealt out sixteen by sixteen, as kernels take them. Several matrices are experts, or of a head
 * each, and stay whole. */
enum { STRIP = 16 };

static size_t unit_of(const struct dev_pieces *v)
{
    const size_t row = (size_t)quant_row_bytes(v->type, v->ne0), one = row * (size_t)v->ne1;

    return v->bytes * (size_t)v->n > one ? one : STRIP * row;
}

/* A matrix of few results from wide rows stays whole: a router, keys and values of few heads, a small shared expert.
 * Each device reads it sooner than it would get the other results, which are needed in full right after. */
static bool is_small(const struct dev_pieces *v)
{
    enum { FEW = 1024, WIDE = 4 };

    return v->ne1 <= FEW && v->ne1 * WIDE <= v->ne0 &&
           v->bytes * (size_t)v->n == (size_t)(quant_row_bytes(v->type, v->ne0) * v->ne1);
}

/* From byte `at` of w.at on; w.to NULL: not copied. */
static bool put_run(struct rows *c, struct rows_weights w, size_t at)
{
    w.at += at;
    for (int k = 0; k < c->n; k++) {
        const struct rows_part own = dev_rows_part_of(c, k, w.units);
        const size_t first = own.cut ? (size_t)own.first * w.unit : 0;
        const size_t end = own.cut && k < c->n - 1 ? (size_t)own.end * w.unit : w.n;
        const unsigned char *p =
            w.to[k] != NULL ? w.to[k] + at + first : dev_weights(c->dev[k], w.at + first, end - first);

        if (p == NULL)
            return false;
        w.to[k] = p - first;
    }
    return dev_rows_note_weights(c, &w);
}

/* On all devices; laid NULL: not copied. */
static const void *put_pieces(struct rows *c, const struct dev_pieces *v, bool *laid)
{
    struct rows_weights w = { .at = v->host, .n = v->bytes * (size_t)v->n };
    const bool each = strncmp(dev_name(c->dev[0]), "check:", 6) == 0; /* it has to know what was copied */
    const bool cut = v->ne0 > 0 && v->keep == NULL && !is_small(v);
    const struct dev_section *s = v->section;
    bool heads = cut && v->n_section > 0 && s->n >= c->n; /* enough for all devices, and each begins with a strip */
    size_t at = 0;

    for (int i = 0; i < v->n_section - 1; i++)
        heads &= s[i].piece % STRIP == 0;
    for (int k = 0; k < c->n && (laid != NULL || v->keep != NULL); k++) {
        w.to[k] = laid == NULL     ? dev_weights_some(c->dev[k], v->host, v->bytes, v->n, v->keep)
                  : k == 0 || each ? dev_weights_copy(c->dev[k], v, laid)
                                   : w.to[0];
        if (w.to[k] == NULL)
            return NULL;
    }
    w.at = laid != NULL ? w.to[0] : w.at;
    if (cut && !heads) {
        w.unit = unit_of(v);
        w.units = (int64_t)(w.n / w.unit);
    }
    if (!heads)
        return put_run(c, w, 0) ? w.at : NULL;
    for (int i = 0; i < v->n_section; i++)
        for (int j = 0; j < s[i].times; j++, at += w.n) {
            w.unit = s[i].piece * (size_t)quant_row_bytes(v->type, v->ne0);
            w.units = s[i].n;
            w.n = w.unit * (size_t)w.units;
            if (!put_run(c, w, at))
                return NULL;
        }
    return w.at;
}

static const void *dev_rows_weights_pieces(void *ctx, const struct dev_pieces *v)
{
    return put_pieces(ctx, v, NULL);
}

static const void *dev_rows_weights_copy(void *ctx, const struct dev_pieces *v, bool *laid)
{
    return put_pieces(ctx, v, laid);
}

static const void *dev_rows_weights(void *ctx, const void *host, size_t n)
{
    return put_pieces(ctx, &(struct dev_pieces){ .host = host, .bytes = n, .n = 1 }, NULL);
}

static const void *dev_rows_weights_some(void *ctx, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    return put_pieces(ctx, &(struct dev_pieces){ .host = host, .bytes = piece_bytes, .n = n, .keep = keep }, NULL);
}

/* ---- the device ---- */

static size_t dev_rows_held(void *ctx)
{
    const struct rows *c = ctx;
    size_t n = 0;

    for (int k = 0; k < c->n; k++)
        n += dev_held(c->dev[k]);
    return n;
}

static struct dev_memory dev_rows_memory(void *ctx)
{
    return dev_memory(((struct rows *)ctx)->dev[0]);
}

static void dev_rows_measure(void *ctx, bool on)
{
    struct rows *c = ctx;

    c->measuring = on;
    for (int k = 0; k < c->n; k++)
        dev_measure(c->dev[k], on);
}

static bool dev_rows_reserve(void *ctx)
{
    struct rows *c = ctx;
    struct err e;
    bool good = !c->no_memory;

    for (int k = 0; k < c->n && good; k++)
        good = dev_reserve(c->dev[k], dev_scratch_peak(c->dev[k]), &e) == ERR_OK;
    return good;
}

static void dev_rows_begin(void *ctx)
{
    EACH(dev_begin(d));
}

/* All of them end, also after one that failed. */
static enum err_code dev_rows_end(void *ctx, struct err *e)
{
    struct rows *c = ctx;
    enum err_code code = ERR_OK;
    struct err other;

    for (int k = 0; k < c->n; k++)
        if (dev_end(c->dev[k], code == ERR_OK ? e : &other) != ERR_OK && code == ERR_OK)
            code = err_wrap(e, "device %d of %d", k + 1, c->n);
    return code;
}

static void dev_rows_awake(void *ctx, bool on)
{
    EACH(dev_awake(d, on));
}

static void dev_rows_may_stop(void *ctx, bool (*stop)(void))
{
    EACH(dev_may_stop(d, stop));
}

static bool dev_rows_stopped(void *ctx)
{
    bool any = false;

    EACH(any |= dev_stopped(d));
    return any;
}

static void dev_rows_close(void *ctx)
{
    struct rows *c = ctx;

    for (struct rows_slots *s = c->slots, *next; s != NULL; s = next) {
        next = s->next;
        for (int k = 0; k < c->n; k++)
            free(s->slot[k]);
        free(s);
    }
    for (int k = 0; k < c->n; k++)
        dev_close(c->dev[k]);
    free(c->range);
    free(c->weights);
    free(c);
}

static const char *dev_rows_simd(void *ctx)
{
    return dev_simd(((struct rows *)ctx)->dev[0]);
}

static int dev_rows_threads(void *ctx)
{
    return dev_threads(((struct rows *)ctx)->dev[0]);
}

static enum err_code dev_rows_read_speed(void *ctx, size_t n, double *bytes_per_s, int reps, struct err *e)
{
    return dev_read_speed(((struct rows *)ctx)->dev[0], n, bytes_per_s, reps, e);
}

#define X(name) .name = dev_rows_##name,
static const struct dev_table table = {
    DEV_OPS(X).matmuls = dev_rows_matmuls,
    .measure = dev_rows_measure,
    .reserve = dev_rows_reserve,
    .weights = dev_rows_weights,
    .weights_some = dev_rows_weights_some,
    .weights_pieces = dev_rows_weights_pieces,
    .weights_copy = dev_rows_weights_copy,
    .held = dev_rows_held,
    .memory = dev_rows_memory,
    .is_host = true,
    .alloc = dev_rows_alloc,
    .alloc_areas = dev_rows_alloc_areas,
    .free = dev_rows_free,
    .released = dev_rows_released,
    .begin = dev_rows_begin,
    .awake = dev_rows_awake,
    .may_stop = dev_rows_may_stop,
    .stopped = dev_rows_stopped,
    .end = dev_rows_end,
    .zero = dev_rows_zero,
    .copy = dev_rows_copy,
    .close = dev_rows_close,
    .simd = dev_rows_simd,
    .threads = dev_rows_threads,
    .read_speed = dev_rows_read_speed,
};
#undef X

static struct rows *dev_rows_in(const struct dev *d)
{
    return d->impl.table == &table ? d->impl.ctx : NULL;
}

int dev_members(const struct dev *d)
{
    return dev_rows_in(d) != NULL ? dev_rows_in(d)->n : 1;
}

struct dev *dev_member(struct dev *d, int i)
{
    return dev_rows_in(d) != NULL ? dev_rows_in(d)->dev[i] : d;
}

int64_t dev_exchanges(const struct dev *d, int64_t *bytes)
{
    const struct rows *c = dev_rows_in(d);

    *bytes = c != NULL ? c->bytes : 0;
    return c != NULL ? c->exchanges : 0;
}

size_t dev_areas_bytes(struct dev *d, const void *p, int member)
{
    return dev_rows_areas_bytes(dev_rows_in(d), member, p);
}

size_t dev_area_bytes(struct dev *d, const void *p, int member)
{
    return dev_rows_area_bytes(dev_rows_in(d), member, p);
}

enum err_code dev_open_rows(struct dev **out, const struct dev_list *l, const struct dev_opts *o, struct err *e)
{
    struct dev *d = calloc(1, sizeof *d);
    struct rows *c = calloc(1, sizeof *c);
    size_t at = 0;

    if (d == NULL || c == NULL) {
        free(d);
        free(c);
        return err_nomem(e);
    }
    for (; c->n < l->n; c->n++) {
        if (dev_open(&c->dev[c->n], l->name[c->n], o, e) != ERR_OK)
            break;
        at += (size_t)snprintf(d->name + at, sizeof d->name - at, "%s%s", c->n > 0 ? "," : "", l->name[c->n]);
        if (dev_is_host(c->dev[c->n]))
            continue;
        (void)err_set(e, ERR_UNSUPPORTED, "%s: devices share every layer only where their memory is the host's",
                      l->name[c->n]);
        break;
    }
    if (c->n < l->n) {
        c->n += c->dev[c->n] != NULL;
        dev_rows_close(c);
        free(d);
        return e->code;
    }
    d->impl = (struct dev_impl){ &table, c };
    c->self = d;
    *out = d;
    return ERR_OK;
}
