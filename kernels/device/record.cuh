/* SPDX-License-Identifier: Apache-2.0 */
/* record.cuh - what recording an operation as a node needs; operations that are recorded elsewhere than in open.cu.
 * room: kernels */
#ifndef KERNELS_DEVICE_RECORD_CUH
#define KERNELS_DEVICE_RECORD_CUH
#include "kernels/device/cuda.h"

/* Field by field: bytes between fields stay zero, so that nodes compare as memory. */
static inline void set_tensor(struct tensor *d, struct tensor s)
{
    d->type = s.type;
    for (int i = 0; i < 3; i++)
        d->ne[i] = s.ne[i];
    d->stride = s.stride;
    d->pitch = s.pitch;
    d->data = s.data;
}

static inline struct node *rec1(struct cuda *c, int op, struct tensor y)
{
    struct node *v = cuda_record(c, op);

    set_tensor(&v->t[0], y);
    return v;
}

static inline struct node *rec2(struct cuda *c, int op, struct tensor y, struct tensor x)
{
    struct node *v = rec1(c, op, y);

    set_tensor(&v->t[1], x);
    return v;
}

static inline void set_rec(struct op_rec *d, struct op_rec s)
{
    d->data = s.data;
    d->floats = s.floats;
    d->log.data = s.log.data;
    d->log.floats = s.log.floats;
    d->log.width = s.log.width;
    d->log.rows = s.log.rows;
    d->log.most = s.log.most;
}

/* Member by member: nodes are compared by their bytes, so what lies between members stays 0. */
static inline void set_kv(struct cuda *c, struct node *v, const struct op_kv *kv, const struct op_rows *r)
{
    static_assert(sizeof *kv == 64, "a new member of struct op_kv is copied here, too");
    v->kv.type_k = kv->type_k;
    v->kv.type_v = kv->type_v;
    v->kv.n_head = kv->n_head;
    v->kv.dim_k = kv->dim_k;
    v->kv.dim_v = kv->dim_v;
    v->kv.pages = kv->pages;
    v->kv.page_bytes = kv->page_bytes;
    v->kv.type_x = kv->type_x;
    v->kv.dim_x = kv->dim_x;
    v->kv.window = kv->window;
    v->kv.always = kv->always;
    v->r = cuda_stage_rows(c, r);
    v->pg = cuda_stage_pages(c, kv, r);
}

/* device/record.cu */
void op_streams_gate_(struct cuda *c, struct tensor y, struct tensor key, struct tensor query, struct tensor value);
void op_index_store_(struct cuda *c, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                     const struct op_rows *r);
void op_index_pick_(struct cuda *c, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                    const struct op_rows *r);
void op_attn_picked_(struct cuda *c, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                     float scale, const struct op_index *a, const struct op_rows *r);
#endif
