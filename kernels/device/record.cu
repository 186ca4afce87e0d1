/* SPDX-License-Identifier: Apache-2.0 */
/* record.cu - n-grams' gates and attention over chosen blocks as recorded nodes; the others are in open.cu. */
#include "kernels/device/record.cuh"

void op_streams_gate_(struct cuda *c, struct tensor y, struct tensor key, struct tensor query, struct tensor value)
{
    struct node *v = rec2(c, DEV_OP_streams_gate, y, key);

    set_tensor(&v->t[2], query);
    set_tensor(&v->t[3], value);
    cuda_recorded(c);
}

static void set_index(struct cuda *c, struct node *v, const struct op_kv *kv, const struct op_index *a,
                      const struct op_rows *r)
{
    v->i[0] = a->ratio;
    v->i[1] = a->most;
    v->i[2] = a->n_head;
    v->i[3] = (int)a->rope.n_rot;
    v->n = a->rope.pairs;
    v->f[0] = a->eps;
    v->p[0] = a->norm;
    v->p[1] = a->rope.freq;
    set_kv(c, v, kv, r);
}

void op_index_store_(struct cuda *c, struct tensor k, const struct op_kv *kv, const struct op_index *a,
                     const struct op_rows *r)
{
    set_index(c, rec1(c, DEV_OP_index_store, k), kv, a, r);
    cuda_recorded(c);
}

void op_index_pick_(struct cuda *c, int32_t *pick, struct tensor q, const struct op_kv *kv, const struct op_index *a,
                    const struct op_rows *r)
{
    struct node *v = cuda_record(c, DEV_OP_index_pick);

    set_tensor(&v->t[1], q);
    v->out = pick;
    set_index(c, v, kv, a, r);
    cuda_recorded(c);
}

void op_attn_picked_(struct cuda *c, struct tensor y, struct tensor q, const int32_t *pick, const struct op_kv *kv,
                     float scale, const struct op_index *a, const struct op_rows *r)
{
    struct node *v = rec2(c, DEV_OP_attn_picked, y, q);

    set_index(c, v, kv, a, r);
    v->p[2] = pick;
    v->f[0] = scale;
    cuda_recorded(c);
}
