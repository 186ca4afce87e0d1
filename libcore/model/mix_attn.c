/* SPDX-License-Identifier: Apache-2.0 */
/* mix_attn.c - softmax attention, optionally gated, with per-head norms of queries and keys. */
#include "model/internal.h"
#include "state/state.h"

void model_bind_attn(struct layer_weights *l, const struct arch_plan *p, struct binder *b)
{
    struct attn_weights *w = &l->attn;
    const struct arch_attn_plan *a = &p->attn;
    int64_t n_q = (int64_t)a->n_head * a->dim_k;

    w->q = bind_mat(b, "attn_q.weight", a->n_in, a->gated ? 2 * n_q : n_q, 1);
    if (p->reach[b->layer].kv_from == 0) {
        w->k = bind_mat(b, "attn_k.weight", a->n_in, (int64_t)a->n_head_kv * a->dim_k, 1);
        w->v = bind_mat(b, "attn_v.weight", a->n_in, (int64_t)a->n_head_kv * a->dim_v, 1);
    }
    w->o = bind_mat(b, "attn_output.weight", (int64_t)a->n_head * a->dim_v, p->n_embd, 1);
    if (p->index.ratio[b->layer] > 0) {
        w->index_q = bind_mat(b, "indexer.q_proj.weight", p->n_embd, (int64_t)p->index.n_head * p->index.dim, 1);
        w->index_k = bind_mat(b, "indexer.k_proj.weight", p->n_embd, p->index.dim, 1);
        w->index_q_norm = bind_vec(b, "indexer.q_norm.weight", p->index.dim);
        w->index_k_norm = bind_vec(b, "indexer.k_norm.weight", p->index.dim);
    }
    if (!a->qk_norm)
        return;
    w->q_norm = bind_vec(b, "attn_q_norm.weight", a->dim_k);
    w->k_norm = bind_vec(b, "attn_k_norm.weight", a->dim_k);
}

/* Of each sequence the first rows, which have no more blocks than they may take; and the others. */
static void split_rows(const struct step *s, const struct op_index *a, struct op_rows *dense, struct op_rows *picked)
{
    const struct op_rows *r = s->rows;

    *dense = *picked = *r;
    if (r->token == NULL) /* measuring: either may be most */
        return;
    dense->seq = s->choice;
    picked->seq = s->choice + r->n_seq;
    for (int i = 0; i < r->n_seq; i++) {
        const struct op_seq *q = &r->seq[i];
        int64_t most = ((int64_t)a->most + 1) * a->ratio - 1 - q->pos; /* rows before the first with a choice */
        int n = most < 0 ? 0 : most < q->n ? (int)most : q->n;

        s->choice[i] = s->choice[r->n_seq + i] = *q;
        s->choice[i].n = n;
        s->choice[r->n_seq + i].row += n;
        s->choice[r->n_seq + i].pos += n;
        s->choice[r->n_seq + i].n -= n;
    }
}

static bool has_rows(const struct op_rows *r)
{
    for (int i = 0; i < r->n_seq; i++)
        if (r->seq[i].n > 0)
            return true;
    return false;
}

/* Attention over chosen blocks: o, for queries q and the layer's input x. */
static void attend_chosen(const struct step *s, int layer, struct tensor o, struct tensor q, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct attn_weights *w = &s->m->layer[layer].attn;
    const struct op_kv *kv = state_kv(s->state, layer);
    const int dim = p->index.dim, ratio = p->index.ratio[layer];
    const struct op_index a = {
        ratio,           p->index.budget / ratio,
        p->index.n_head, w->index_k_norm,
        p->norm_eps,     { dim, p->attn.n_rot, s->m->layer[layer].rope_freq, p->attn.rope == ROPE_PAIRS, 0 }
    };
    struct dev *d = s->d;
    struct tensor iq = dev_scratch(d, w->index_q.ne[1], x.ne[1]), ik = dev_scratch(d, dim, x.ne[1]);
    struct op_rows dense, picked;

    split_rows(s, &a, &dense, &picked);
    model_muls(s, (const struct op_product[]){ { iq, w->index_q }, { ik, w->index_k } }, 2, x);
    op_index_store(d, ik, kv, &a, s->rows);
    if (has_rows(&dense))
        op_attn(d, o, q, kv, p->attn.scale, &dense);
    if (!has_rows(&picked))
        return;
    int32_t *pick = dev_scratch_bytes(d, (size_t)x.ne[1] * (size_t)a.most * sizeof *pick);

    op_rms_norm(d, iq, iq, w->index_q_norm, dim, dim, p->norm_eps);
    op_rope(d, iq, &a.rope, s->rows);
    op_index_pick(d, pick, iq, kv, &a, &picked);
    op_attn_picked(d, o, q, pick, kv, p->attn.scale, &a, &picked);
}

void model_mix_attn(const struct step *s, int layer, struct tensor y, struct tensor x)
{
    const struct arch_plan *p = &s->m->plan;
    const struct arch_attn_plan *a = &p->attn;
    const struct attn_weights *w = &s->m->layer[layer].attn;
    const struct op_kv *kv = state_kv(s->state, layer);
    const struct op_rope rope = { a->dim_k, a->n_rot, s->m->layer[layer].rope_freq, a->rope == ROPE_PAIRS, 0 };
    struct dev *d = s->d;
    int64_t n = x.ne[1], n_q = (int64_t)a->n_head * a->dim_k;
    struct tensor q = dev_scratch(d, n_q, n), gate = q;
    const bool own = p->reach[layer].kv_from == 0; /* else the keys and values are there */
    struct tensor k = dev_scratch(d, own ? w->k.ne[1] : 1, n), v = dev_scratch(d, own ? w->v.ne[1] : 1, n);
    struct tensor o = p->joined ? y : dev_scratch(d, (int64_t)a->n_head * a->dim_v, n);

    if (a->gated) { /* each head: dim_k of query, then dim_k of gate */
        struct tensor qg = dev_scratch(d, 2 * n_q, n);

        gate = dev_scratch(d, n_q, n);
        model_mul(s, qg, w->q, x);
        op_heads_pick(d, q, qg, a->dim_k, (int64_t)2 * a->dim_k, 0);
        op_heads_pick(d, gate, qg, a->dim_k, (int64_t)2 * a->dim_k, a->dim_k);
    } else {
        model_mul(s, q, w->q, x);
    }
    if (own)
        model_muls(s, (const struct op_product[]){ { k, w->k }, { v, w->v } }, 2, x);
    if (a->qk_norm) {
        op_rms_norm(d, q, q, w->q_norm, a->dim_k, a->dim_k, p->norm_eps);
        if (own)
            op_rms_norm(d, k, k, w->k_norm, a->dim_k, a->dim_k, p->norm_eps);
    }
    if (a->rope != ROPE_NONE) {
        op_rope(d, q, &rope, s->rows);
        if (own)
            op_rope(d, k, &rope, s->rows);
    }
    if (op_kv_rotated(kv)) {
        op_hadamard(d, q, q, a->dim_k);
        if (own)
            op_hadamard(d, k, k, a->dim_k);
    }
    if (own)
        op_kv_store(d, k, v, kv, s->rows);
    if (kv->dim_x > 0)
        attend_chosen(s, layer, o, q, x);
    else
        op_attn(d, o, q, kv, a->scale, s->rows);
    if (a->gated)
        op_sigmoid_mul(d, o, gate);
    if (!p->joined)
        model_mul(s, y, w->o, o);
}
