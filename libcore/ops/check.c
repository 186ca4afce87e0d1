/* SPDX-License-Identifier: Apache-2.0 */
/* check.c - "check:NAME": a device that runs every operation on NAME and on the scalar CPU, and stops at the first
 * result that differs.
 *
 * Memory of the tested device has a mirror on the host. An operation runs on both; its outputs are fetched, compared,
 * and become what the mirror has: so both always start from the same inputs, and the first difference is that of one
 * operation alone. Everything else (copies, zeros) is done to both. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/check.h"
#include "quant/quant.h"

/* ---- memory ---- */

static struct checked_range *range_of(struct check *c, const void *p)
{
    const unsigned char *at = p;

    for (int i = 0; i < c->n_range; i++) {
        struct checked_range *r = &c->range[(c->last + i) % c->n_range];

        if (at >= r->at && at < r->at + r->n) {
            c->last = (c->last + i) % c->n_range;
            return r;
        }
    }
    return NULL;
}

void *dev_check_mirror(struct check *c, const void *p)
{
    struct checked_range *r = p != NULL ? range_of(c, p) : NULL;

    return r != NULL ? r->mirror + ((const unsigned char *)p - r->at) : (void *)(uintptr_t)p;
}

static struct tensor mirrored(struct check *c, struct tensor t)
{
    t.data = dev_check_mirror(c, t.data);
    t.laid = false; /* what is mirrored is what was copied */
    return t;
}

static bool add_range(struct check *c, const void *at, void *to, size_t n)
{
    if (memory_room(&c->range, &c->cap_range, (size_t)c->n_range + 1, sizeof *c->range, NULL))
        return false;
    c->range[c->n_range++] = (struct checked_range){ at, to, n, false };
    return true;
}

static void *check_alloc(void *ctx, size_t n)
{
    struct check *c = ctx;
    void *p = dev_alloc(c->tested, n), *m = dev_alloc(c->spec, n);

    if (p != NULL && m != NULL && add_range(c, p, m, n > 0 ? n : 1))
        return p;
    dev_free(c->tested, p, n);
    dev_free(c->spec, m, n);
    return NULL;
}

static void check_free(void *ctx, void *p, size_t n)
{
    struct check *c = ctx;
    struct checked_range *r = range_of(c, p);

    assert(r != NULL && r->at == p);
    dev_free(c->spec, r->mirror, n);
    *r = c->range[--c->n_range];
    c->last = 0;
    dev_free(c->tested, p, n);
}

static const void *noted(struct check *c, const void *p, const void *host, size_t n)
{
    return p == NULL || (p != host && !add_range(c, p, (void *)(uintptr_t)host, n)) ? NULL : p;
}

static const void *check_weights(void *ctx, const void *host, size_t n)
{
    struct check *c = ctx;

    return noted(c, dev_weights(c->tested, host, n), host, n);
}

static const void *check_weights_rows(void *ctx, const void *host, size_t n)
{
    struct check *c = ctx;

    return noted(c, dev_weights_rows(c->tested, host, n), host, n);
}

/* The mirror holds what the device does, piece after piece. */
static const void *check_weights_some(void *ctx, const void *host, size_t piece_bytes, int64_t n, const bool *keep)
{
    struct check *c = ctx;
    const void *p = dev_weights_some(c->tested, host, piece_bytes, n, keep);
    int64_t kept = 0;

    if (p == NULL || p == host)
        return p;
    for (int64_t i = 0; i < n; i++)
        kept += keep[i];
    unsigned char *m = dev_alloc(c->spec, (size_t)kept * piece_bytes);
    if (m == NULL || !add_range(c, p, m, (size_t)kept * piece_bytes))
        return NULL;
    c->range[c->n_range - 1].own = true;
    for (int64_t i = 0; i < n; i++)
        if (keep[i]) {
            memcpy(m, (const unsigned char *)host + (size_t)i * piece_bytes, piece_bytes);
            m += piece_bytes;
        }
    return p;
}

/* In a copy on the host pieces are where they were. */
static const void *check_weights_copy(void *ctx, const struct dev_pieces *v, bool *laid)
{
    struct check *c = ctx;

    if (dev_is_host(c->tested))
        return noted(c, dev_weights_copy(c->tested, v, laid), v->host, v->bytes * (size_t)v->n);
    return v->keep == NULL ? check_weights(c, v->host, v->bytes * (size_t)v->n)
                           : check_weights_some(c, v->host, v->bytes, v->n, v->keep);
}

static bool check_reserve_weights(void *ctx, size_t n)
{
    return dev_reserve_weights(((struct check *)ctx)->tested, n);
}

static size_t check_held(void *ctx)
{
    return dev_held(((struct check *)ctx)->tested);
}

static struct dev_memory check_memory(void *ctx)
{
    return dev_memory(((struct check *)ctx)->tested);
}

static void check_zero(void *ctx, void *p, size_t n)
{
    struct check *c = ctx;

    dev_zero(c->tested, p, n);
    memset(dev_check_mirror(c, p), 0, n);
}

static void check_copy(void *ctx, void *to, const void *from, size_t n)
{
    struct check *c = ctx;

    dev_copy(c->tested, to, from, n);
    if (range_of(c, to) != NULL)
        memmove(dev_check_mirror(c, to), dev_check_mirror(c, from), n);
}

const unsigned char *dev_check_fetch(struct check *c, const void *p, size_t n)
{
    if (n > c->cap_fetched) {
        unsigned char *v = realloc(c->fetched, n);

        if (v == NULL) {
            c->no_memory = true;
            return NULL;
        }
        c->fetched = v;
        c->cap_fetched = n;
    }
    dev_copy(c->tested, c->fetched, p, n);
    return c->fetched;
}

/* ---- operations ---- */

/* dev_check_begin(), then the operation on both, with what the specification has in the place of each argument. */
#define BEGIN(op, y, x) \
    struct check *c = ctx; \
    struct call k; \
    if (!dev_check_begin(c, &k, DEV_OP_##op, y, x)) \
    return
#define T(t) mirrored(c, t)
#define P(p) dev_check_mirror(c, p)

/* The devices take scratch for these while they run. */
#define NEED(call_on) \
    do { \
        for (int i_ = 0; i_ < 2; i_++) { \
            struct dev *d_ = i_ == 0 ? c->tested : c->spec; \
            struct err e_; \
            dev_measure(d_, true); \
            call_on; \
            dev_measure(d_, false); \
            c->no_memory = dev_reserve(d_, dev_scratch_peak(d_), &e_) != ERR_OK || c->no_memory; \
        } \
        if (c->no_memory) \
            return; \
    } while (0)

static void check_embed(void *ctx, struct tensor y, struct tensor w, const int32_t *token, const struct op_ids *ids,
                        float scale)
{
    BEGIN(embed, y, w);
    struct op_ids m = { .at = NULL };

    if (ids != NULL)
        m = (struct op_ids){ P(ids->at), ids->stride };
    op_embed(c->tested, y, w, token, ids, scale);
    op_embed(c->spec, T(y), T(w), token, ids != NULL ? &m : NULL, scale);
    dev_check_rows(c, &k, y);
}

static void check_matmul(void *ctx, struct tensor y, struct tensor w, struct tensor x)
{
    BEGIN(matmul, y, w);
    NEED(op_matmul(d_, y, w, x));
    op_matmul(c->tested, y, w, x);
    op_matmul(c->spec, T(y), T(w), T(x));
    k.w = T(w);
    k.x = T(x);
    dev_check_rows(c, &k, y);
}

static void check_rms_norm(void *ctx, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group,
                           float eps)
{
    BEGIN(rms_norm, y, x);
    op_rms_norm(c->tested, y, x, w, n_w, group, eps);
    op_rms_norm(c->spec, T(y), T(x), P(w), n_w, group, eps);
    dev_check_rows(c, &k, y);
}

static void check_rms_norm_gated(void *ctx, struct tensor y, struct tensor x, struct tensor z, const float *w,
                                 int64_t n_w, int64_t group, float eps)
{
    BEGIN(rms_norm_gated, y, x);
    op_rms_norm_gated(c->tested, y, x, z, w, n_w, group, eps);
    op_rms_norm_gated(c->spec, T(y), T(x), T(z), P(w), n_w, group, eps);
    dev_check_rows(c, &k, y);
}

static void check_add(void *ctx, struct tensor y, struct tensor x, float s)
{
    BEGIN(add, y, x);
    op_add(c->tested, y, x, s);
    op_add(c->spec, T(y), T(x), s);
    dev_check_rows(c, &k, y);
}

static void check_add_gated(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    BEGIN(add_gated, y, x);
    op_add_gated(c->tested, y, x, g);
    op_add_gated(c->spec, T(y), T(x), T(g));
    dev_check_rows(c, &k, y);
}

static void check_glu(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    BEGIN(glu, y, gate);
    op_glu(c->tested, y, gate, up);
    op_glu(c->spec, T(y), T(gate), T(up));
    dev_check_rows(c, &k, y);
}

static void check_geglu(void *ctx, struct tensor y, struct tensor gate, struct tensor up)
{
    BEGIN(geglu, y, gate);
    op_geglu(c->tested, y, gate, up);
    op_geglu(c->spec, T(y), T(gate), T(up));
    dev_check_rows(c, &k, y);
}

static void check_relu2(void *ctx, struct tensor y)
{
    BEGIN(relu2, y, y);
    op_relu2(c->tested, y);
    op_relu2(c->spec, T(y));
    dev_check_rows(c, &k, y);
}

static void check_sigmoid_mul(void *ctx, struct tensor y, struct tensor g)
{
    BEGIN(sigmoid_mul, y, g);
    op_sigmoid_mul(c->tested, y, g);
    op_sigmoid_mul(c->spec, T(y), T(g));
    dev_check_rows(c, &k, y);
}

static void check_mul(void *ctx, struct tensor y, struct tensor x)
{
    BEGIN(mul, y, x);
    op_mul(c->tested, y, x);
    op_mul(c->spec, T(y), T(x));
    dev_check_rows(c, &k, y);
}

static void check_scale(void *ctx, struct tensor y, float s)
{
    BEGIN(scale, y, y);
    op_scale(c->tested, y, s);
    op_scale(c->spec, T(y), s);
    dev_check_rows(c, &k, y);
}

static void check_silu(void *ctx, struct tensor y, float s)
{
    BEGIN(silu, y, y);
    op_silu(c->tested, y, s);
    op_silu(c->spec, T(y), s);
    dev_check_rows(c, &k, y);
}

static void check_streams_mix(void *ctx, struct tensor y, struct tensor x, struct tensor g)
{
    BEGIN(streams_mix, y, x);
    op_streams_mix(c->tested, y, x, g);
    op_streams_mix(c->spec, T(y), T(x), T(g));
    dev_check_rows(c, &k, y);
}

static void check_streams_add(void *ctx, struct tensor x, struct tensor y, struct tensor a)
{
    BEGIN(streams_add, x, y);
    op_streams_add(c->tested, x, y, a);
    op_streams_add(c->spec, T(x), T(y), T(a));
    dev_check_rows(c, &k, x);
}

static void check_streams_gate(void *ctx, struct tensor y, struct tensor key, struct tensor query, struct tensor value)
{
    BEGIN(streams_gate, y, key);
    op_streams_gate(c->tested, y, key, query, value);
    op_streams_gate(c->spec, T(y), T(key), T(query), T(value));
    dev_check_rows(c, &k, y);
}

static void check_rows_pick(void *ctx, struct tensor y, struct tensor x, const int32_t *row)
{
    BEGIN(rows_pick, y, x);
    op_rows_pick(c->tested, y, x, row);
    op_rows_pick(c->spec, T(y), T(x), row);
    dev_check_rows(c, &k, y);
}

static void check_heads_pick(void *ctx, struct tensor y, struct tensor x, int64_t dim, int64_t pitch, int64_t first)
{
    BEGIN(heads_pick, y, x);
    op_heads_pick(c->tested, y, x, dim, pitch, first);
    op_heads_pick(c->spec, T(y), T(x), dim, pitch, first);
    dev_check_rows(c, &k, y);
}

static void check_rope(void *ctx, struct tensor x, const struct op_rope *a, const struct op_rows *r)
{
    BEGIN(rope, x, x);
    struct op_rope m = *a;

    m.freq = P(a->freq);
    op_rope(c->tested, x, a, r);
    op_rope(c->spec, T(x), &m, r);
    dev_check_rows(c, &k, x);
}

static void check_hadamard(void *ctx, struct tensor y, struct tensor x, int64_t dim)
{
    BEGIN(hadamard, y, x);
    op_hadamard(c->tested, y, x, dim);
    op_hadamard(c->spec, T(y), T(x), dim);
    dev_check_rows(c, &k, y);
}

static void check_kv_store(void *ctx, struct tensor key, struct tensor v, const struct op_kv *kv,
                           const struct op_rows *r)
{
    BEGIN(kv_store, key, v);
    struct op_kv m = *kv;

    m.pages = P(kv->pages);
    op_kv_store(c->tested, key, v, kv, r);
    op_kv_store(c->spec, T(key), T(v), &m, r);
    dev_check_kv(c, &k, kv, r);
}

static void check_attn(void *ctx, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                       const struct op_rows *r)
{
    BEGIN(attn, y, q);
    struct op_kv m = *kv;

    m.pages = P(kv->pages);
    NEED(op_attn(d_, y, q, kv, scale, r));
    op_attn(c->tested, y, q, kv, scale, r);
    op_attn(c->spec, T(y), T(q), &m, scale, r);
    for (int i = 0; i < r->n_seq; i++)
        dev_check_rows(c, &k, op_slice(y, r->seq[i].row, r->seq[i].n));
}

/* The same indexer, in the mirror. */
static struct op_index index_of(struct check *c, const struct op_index *a)
{
    struct op_index m = *a;

    m.norm = P(a->norm);
    m.rope.freq = P(a->rope.freq);
    return m;
}

static void check_index_store(void *ctx, struct tensor key, const struct op_kv *kv, const struct op_index *a,
                              const struct op_rows *r)
{
    BEGIN(index_store, key, key);
    struct op_kv m = *kv;
    const struct op_index x = index_of(c, a);

    m.pages = P(kv->pages);
    op_index_store(c->tested, key, kv, a, r);
    op_index_store(c->spec, T(key), &m, &x, r);
    dev_check_index(c, &k, kv, a->ratio, r);
}

/* Where two blocks are nearly as good, rounding may swap them: what follows is computed from the tested choice. */
static void check_index_pick(void *ctx, int32_t *pick, struct tensor q, const struct op_kv *kv,
                             const struct op_index *a, const struct op_rows *r)
{
    BEGIN(index_pick, q, q);
    struct op_kv m = *kv;
    const struct op_index x = index_of(c, a);
    const size_t n = (size_t)q.ne[1] * (size_t)a->most;
    int32_t *want = P(pick);
    int64_t all = 0, other = 0;

    m.pages = P(kv->pages);
    NEED(op_index_pick(d_, pick, q, kv, a, r));
    op_index_pick(c->tested, pick, q, kv, a, r);
    op_index_pick(c->spec, want, T(q), &m, &x, r);
    const int32_t *got = (const void *)dev_check_fetch(c, pick, n * sizeof *got);
    for (int i = 0; got != NULL && i < r->n_seq; i++)
        for (int j = 0; j < r->seq[i].n && c->found[0] == '\0'; j++) {
            const int64_t row = (int64_t)(r->seq[i].row + j) * a->most, blocks = (r->seq[i].pos + j + 1) / a->ratio;

            for (int64_t at = row; at < row + a->most; at++) {
                all++;
                other += got[at] != want[at];
                if (got[at] < 0 || got[at] >= blocks || (at > row && got[at] <= got[at - 1]) ||
                    (c->exact && got[at] != want[at]))
                    dev_check_report(c, &k, "block", "chosen", got[at], want[at]);
            }
        }
    if (c->found[0] == '\0' && other * 4 > all + 64)
        dev_check_report(c, &k, "blocks", "chosen otherwise", (double)other, 0);
    if (got != NULL)
        memcpy(want, got, n * sizeof *got);
}

static void check_attn_picked(void *ctx, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                              float scale, const struct op_index *a, const struct op_rows *r)
{
    BEGIN(attn_picked, y, q);
    struct op_kv m = *kv;
    const struct op_index x = index_of(c, a);

    m.pages = P(kv->pages);
    NEED(op_attn_picked(d_, y, q, pick, kv, scale, a, r));
    op_attn_picked(c->tested, y, q, pick, kv, scale, a, r);
    op_attn_picked(c->spec, T(y), T(q), P(pick), &m, scale, &x, r);
    for (int i = 0; i < r->n_seq; i++)
        dev_check_rows(c, &k, op_slice(y, r->seq[i].row, r->seq[i].n));
}

/* The same memory of a recurrent layer, on the host. */
static struct op_rec rec_of(struct check *c, struct op_rec rec)
{
    rec.data = dev_check_mirror(c, rec.data);
    rec.log.data = dev_check_mirror(c, rec.log.data);
    return rec;
}

static void check_conv(void *ctx, struct tensor y, struct tensor x, const struct op_conv *a, const struct op_rows *r)
{
    BEGIN(conv, y, x);
    const struct op_conv m = { a->taps, P(a->w), P(a->bias), a->silu, rec_of(c, a->rec), a->apart };

    op_conv(c->tested, y, x, a, r);
    op_conv(c->spec, T(y), T(x), &m, r);
    dev_check_mixed(c, &k, y, &a->rec, r);
    dev_check_rec(c, &k, &a->rec, x.ne[0], r);
}

static void check_gdn(void *ctx, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                      const struct op_gdn *a, const struct op_rows *r)
{
    BEGIN(gdn, y, qkv);
    struct op_gdn m = *a;

    m.a = P(a->a);
    m.dt_bias = P(a->dt_bias);
    m.rec = rec_of(c, a->rec);
    NEED(op_gdn(d_, y, qkv, alpha, beta, a, r));
    op_gdn(c->tested, y, qkv, alpha, beta, a, r);
    op_gdn(c->spec, T(y), T(qkv), T(alpha), T(beta), &m, r);
    dev_check_rows(c, &k, y);
    dev_check_rec(c, &k, &a->rec, (int64_t)2 * a->n_v, r);
}

static void check_kda(void *ctx, struct tensor y, struct tensor qkv, struct tensor decay, struct tensor beta,
                      const struct op_kda *a, const struct op_rows *r)
{
    BEGIN(kda, y, qkv);
    struct op_kda m = *a;

    m.a = P(a->a);
    m.dt_bias = P(a->dt_bias);
    m.rec = rec_of(c, a->rec);
    NEED(op_kda(d_, y, qkv, decay, beta, a, r));
    op_kda(c->tested, y, qkv, decay, beta, a, r);
    op_kda(c->spec, T(y), T(qkv), T(decay), T(beta), &m, r);
    dev_check_rows(c, &k, y);
    dev_check_rec(c, &k, &a->rec, (int64_t)a->n_head * (a->dim + 1), r);
}

static void check_ssm1(void *ctx, struct tensor y, struct tensor x, struct tensor dt, struct tensor b, struct tensor cc,
                       const struct op_ssm1 *a, const struct op_rows *r)
{
    BEGIN(ssm1, y, x);
    const struct op_ssm1 m = { a->n_state, P(a->a), P(a->d), P(a->dt_bias), rec_of(c, a->rec) };

    NEED(op_ssm1(d_, y, x, dt, b, cc, a, r));
    op_ssm1(c->tested, y, x, dt, b, cc, a, r);
    op_ssm1(c->spec, T(y), T(x), T(dt), T(b), T(cc), &m, r);
    dev_check_rows(c, &k, y);
    dev_check_rec(c, &k, &a->rec, x.ne[0] + (int64_t)2 * a->n_state, r);
}

static void check_ssm2(void *ctx, struct tensor y, struct tensor xbc, struct tensor dt, const struct op_ssm2 *a,
                       const struct op_rows *r)
{
    BEGIN(ssm2, y, xbc);
    struct op_ssm2 m = *a;

    m.a = P(a->a);
    m.d = P(a->d);
    m.dt_bias = P(a->dt_bias);
    m.rec = rec_of(c, a->rec);
    NEED(op_ssm2(d_, y, xbc, dt, a, r));
    op_ssm2(c->tested, y, xbc, dt, a, r);
    op_ssm2(c->spec, T(y), T(xbc), T(dt), &m, r);
    dev_check_rows(c, &k, y);
    dev_check_rec(c, &k, &a->rec, a->n_head, r);
}

/* Where two experts are nearly as good, rounding may swap them: then their weights are nearly the same. */
static void check_route(void *ctx, int32_t *expert, struct tensor weight, struct tensor logits,
                        const struct op_route *a)
{
    BEGIN(route, weight, logits);
    struct op_route m = *a;
    size_t n = (size_t)logits.ne[1] * (size_t)a->n_used;
    int32_t *want = P(expert);

    m.bias = P(a->bias);
    NEED(op_route(d_, expert, weight, logits, a));
    op_route(c->tested, expert, weight, logits, a);
    op_route(c->spec, want, T(weight), T(logits), &m);
    dev_check_rows(c, &k, weight);
    const int32_t *got = (const void *)dev_check_fetch(c, expert, n * sizeof *got);
    for (size_t i = 0; got != NULL && c->exact && i < n && c->found[0] == '\0'; i++)
        if (got[i] != want[i])
            dev_check_report(c, &k, "expert", "chosen", got[i], want[i]);
    for (size_t i = 0; got != NULL && i < n && c->found[0] == '\0'; i++)
        if (got[i] < 0 || got[i] >= a->n_expert)
            dev_check_report(c, &k, "expert", "chosen", got[i], want[i]);
    if (got != NULL)
        memcpy(want, got, n * sizeof *got);
}

/* The same adapters of one product, in the mirror: pair has room for all of a step. */
static struct op_adapt adapt_of(struct check *c, const struct op_adapt *a, const struct op_terms *t,
                                struct op_pair *pair)
{
    struct op_adapt m = *a;

    m.y = T(a->y);
    m.pair = a->pair != NULL ? pair : NULL;
    for (int i = 0; a->pair != NULL && i < t->n; i++)
        pair[i] =
            (struct op_pair){ P(a->pair[i].a), P(a->pair[i].b), a->pair[i].rank, a->pair[i].scale, a->pair[i].half };
    return m;
}

/* The arguments of an operation with experts, in the mirror. */
struct experts {
    struct op_moe moe;
    struct op_moe_adapt adapt;
    struct op_pair pair[3][OP_ADAPTERS_MAX];
};

static const struct op_moe *experts_of(struct check *c, const struct op_moe *a, struct experts *m)
{
    m->moe = (struct op_moe){ a->n_used,  P(a->expert), T(a->weight), T(a->gate), T(a->up),
                              T(a->down), a->act,       P(a->slot),   NULL,       0 };
    if (a->adapt == NULL)
        return &m->moe;
    m->adapt = (struct op_moe_adapt){ adapt_of(c, &a->adapt->gate, a->adapt->terms, m->pair[0]),
                                      adapt_of(c, &a->adapt->up, a->adapt->terms, m->pair[1]),
                                      adapt_of(c, &a->adapt->down, a->adapt->terms, m->pair[2]), a->adapt->terms };
    m->moe.adapt = &m->adapt;
    return &m->moe;
}

static void check_adapt(void *ctx, const struct op_adapt *a, int n, struct tensor x, const int32_t *token,
                        const struct op_terms *t)
{
    BEGIN(adapt, a[0].y, x);
    struct op_pair pair[OP_PRODUCTS_MAX][OP_ADAPTERS_MAX];
    struct op_adapt m[OP_PRODUCTS_MAX];

    for (int i = 0; i < n; i++)
        m[i] = adapt_of(c, &a[i], t, pair[i]);
    NEED(op_adapt(d_, a, n, x, token, t));
    op_adapt(c->tested, a, n, x, token, t);
    op_adapt(c->spec, m, n, T(x), token, t);
    for (int i = 0; i < n; i++)
        dev_check_rows(c, &k, a[i].y);
}

static void check_moe(void *ctx, struct tensor y, struct tensor x, const struct op_moe *a)
{
    BEGIN(moe, y, x);
    struct experts m;

    NEED(op_moe(d_, y, x, a));
    op_moe(c->tested, y, x, a);
    op_moe(c->spec, T(y), T(x), experts_of(c, a, &m));
    dev_check_rows(c, &k, y);
}

static void check_moe_pairs(void *ctx, struct tensor out, struct tensor x, const struct op_moe *a)
{
    BEGIN(moe_pairs, out, x);
    struct experts m;

    NEED(op_moe_pairs(d_, out, x, a));
    op_moe_pairs(c->tested, out, x, a);
    op_moe_pairs(c->spec, T(out), T(x), experts_of(c, a, &m));
    dev_check_rows(c, &k, out);
}

static void check_moe_sum(void *ctx, struct tensor y, struct tensor out, struct tensor weight)
{
    BEGIN(moe_sum, y, out);
    op_moe_sum(c->tested, y, out, weight);
    op_moe_sum(c->spec, T(y), T(out), T(weight));
    dev_check_rows(c, &k, y);
}

/* What another device computes is checked when it is there. */
static void check_hand_out(void *ctx, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    struct check *c = ctx;

    if (c->found[0] == '\0' && !c->no_memory)
        op_hand_out(c->tested, x, expert, h);
}

static void check_hand_in(void *ctx, struct tensor out, struct tensor x, const int32_t *expert, const struct op_hand *h)
{
    BEGIN(hand_in, out, x);
    struct op_moe m = h->moe;

    m.expert = P(expert);
    NEED(op_hand_in(d_, out, x, expert, h));
    NEED(op_moe_pairs(c->spec, out, x, &h->moe));
    op_hand_in(c->tested, out, x, expert, h);
    op_moe_pairs(c->spec, T(out), T(x), &m);
    dev_check_rows(c, &k, out);
}

static void check_tally(void *ctx, uint64_t *count, int n_expert, const int32_t *expert, int64_t n)
{
    struct tensor t = { .type = QUANT_f32, .ne = { n_expert, 1, 1 } };
    BEGIN(tally, t, t);
    uint64_t *want = P(count);

    op_tally(c->tested, count, n_expert, expert, n);
    op_tally(c->spec, want, n_expert, P(expert), n);
    const uint64_t *got = (const void *)dev_check_fetch(c, count, (size_t)n_expert * sizeof *got);
    for (int i = 0; got != NULL && i < n_expert && c->found[0] == '\0'; i++)
        if (got[i] != want[i])
            dev_check_report(c, &k, "count of", "an expert", (double)got[i], (double)want[i]);
    if (got != NULL)
        memcpy(want, got, (size_t)n_expert * sizeof *got);
}

/* The numbers are to be the same on every device. */
static void check_top(void *ctx, void *out, struct tensor logits, const struct op_top *a)
{
    BEGIN(top, logits, logits);
    size_t bytes = op_top_bytes(a);
    unsigned char *want = P(out);
    struct op_top again = *a; /* the first call fills the masks of both */

    again.masks = NULL;
    NEED(op_top(d_, out, logits, a));
    op_top(c->tested, out, logits, a);
    const unsigned char *got = dev_check_fetch(c, out, bytes * (size_t)logits.ne[1]);
    op_top(c->spec, want, T(logits), &again);
    for (int64_t r = 0; got != NULL && r < logits.ne[1] && c->found[0] == '\0'; r++) {
        const struct op_top_row *g = (const void *)(got + (size_t)r * bytes);
        const struct op_top_row *w = (const void *)(want + (size_t)r * bytes);
        const struct logits_entry *ge = (const void *)(g + 1), *we = (const void *)(w + 1);
        char where[64];

        (void)snprintf(where, sizeof where, "%lld", (long long)r);
        if (g->total != w->total || g->heated != w->heated || g->weighted != w->weighted || g->squared != w->squared ||
            g->max != w->max || g->raw_total != w->raw_total || g->raw_max != w->raw_max || g->n != w->n)
            dev_check_report(c, &k, "sums of row", where, g->total, w->total);
        for (int i = 0; i < a->k && c->found[0] == '\0'; i++)
            if (ge[i].token != we[i].token || memcmp(&ge[i].logit, &we[i].logit, sizeof(float)) != 0)
                dev_check_report(c, &k, "token of row", where, ge[i].token, we[i].token);
        if (c->found[0] == '\0' && memcmp(ge + a->k, we + a->k, (size_t)a->n_ids * sizeof(float)) != 0)
            dev_check_report(c, &k, "logits asked for of row", where, NAN, NAN);
    }
    if (got != NULL)
        memcpy(want, got, bytes * (size_t)logits.ne[1]);
}

/* ---- the device ---- */

static void check_begin(void *ctx)
{
    struct check *c = ctx;

    dev_begin(c->tested);
    dev_begin(c->spec);
    c->call = 0;
    memset(c->of_op, 0, sizeof c->of_op);
}

/* What one mirror has becomes what the other has. */
static void check_pass(void *from, void *to, struct tensor y, struct tensor x)
{
    struct check *a = from, *b = to;

    if (y.data == NULL) /* it is measured */
        return;
    dev_pass(a->tested, b->tested, y, x);
    memcpy(dev_check_mirror(b, y.data), dev_check_mirror(a, x.data), (size_t)(x.ne[0] * x.ne[1]) * sizeof(float));
}

static enum err_code check_end(void *ctx, struct err *e)
{
    struct check *c = ctx;

    if (dev_end(c->tested, e) != ERR_OK || dev_end(c->spec, e) != ERR_OK)
        return e->code;
    if (c->no_memory)
        return err_nomem(e);
    return c->found[0] != '\0' ? err_set(e, ERR_DEVICE, "%s", c->found) : ERR_OK;
}

static void check_close(void *ctx)
{
    struct check *c = ctx;

    for (int i = 0; i < c->n_range; i++)
        if (c->range[i].own)
            dev_free(c->spec, c->range[i].mirror, c->range[i].n);
    dev_close(c->spec);
    dev_close(c->tested);
    free(c->range);
    free(c->fetched);
    free(c);
}

static const char *check_simd(void *ctx)
{
    return dev_simd(((struct check *)ctx)->tested);
}

static int check_threads(void *ctx)
{
    return dev_threads(((struct check *)ctx)->tested);
}

static enum err_code check_read_speed(void *ctx, size_t n, double *bytes_per_s, int reps, struct err *e)
{
    return dev_read_speed(((struct check *)ctx)->tested, n, bytes_per_s, reps, e);
}

#define X(name) .name = check_##name,
#define REST(host) \
    DEV_OPS(X).weights = check_weights, .weights_rows = check_weights_rows, .weights_some = check_weights_some, \
    .weights_copy = check_weights_copy, .reserve_weights = check_reserve_weights, .held = check_held, \
    .memory = check_memory, .is_host = host, .alloc = check_alloc, .free = check_free, .begin = check_begin, \
    .end = check_end, .zero = check_zero, .copy = check_copy, .pass = check_pass, .close = check_close, \
    .simd = check_simd, .threads = check_threads, .read_speed = check_read_speed,
static const struct dev_table on_host = { REST(true) }, elsewhere = { REST(false) };
#undef X

enum err_code dev_check_open(struct dev_impl *out, const char *name, const struct dev_opts *o, struct err *e)
{
    struct dev_opts scalar = *o;
    struct check *c = calloc(1, sizeof *c);

    if (c == NULL)
        return err_nomem(e);
    if (dev_open(&c->tested, name, o, e) != ERR_OK) {
        free(c);
        return e->code;
    }
    c->exact = dev_is_host(c->tested);
    scalar.scalar = true;
    scalar.acts = c->exact ? o->acts : QUANT_ACTS_F32;
    if (dev_open(&c->spec, "cpu", &scalar, e) != ERR_OK) {
        dev_close(c->tested);
        free(c);
        return e->code;
    }
    *out = (struct dev_impl){ dev_is_host(c->tested) ? &on_host : &elsewhere, c };
    return ERR_OK;
}

#ifdef CHIMERE_TEST
struct dev *dev_test_tested(struct dev *d)
{
    return ((struct check *)dev_test_impl(d)->ctx)->tested;
}
#endif
