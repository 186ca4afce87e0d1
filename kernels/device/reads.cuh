/* SPDX-License-Identifier: Apache-2.0 */
/* reads.cuh - which arrays recorded nodes still read, so that a launch for several nodes may leave one unwritten.
 * room: kernels
 *
 * Host code of device/launch.cu alone. */
#ifndef KERNELS_DEVICE_READS_CUH
#define KERNELS_DEVICE_READS_CUH
#include "kernels/device/fused.cuh"

static bool overlap(struct tensor a, struct tensor b)
{
    const char *a0 = (const char *)a.data, *b0 = (const char *)b.data;
    const char *a1 = a0 + ((a.ne[1] - 1) * a.stride + a.ne[0]) * (int64_t)sizeof(float);
    const char *b1 = b0 + ((b.ne[1] - 1) * b.stride + b.ne[0]) * (int64_t)sizeof(float);

    return a0 < b1 && b0 < a1;
}

static bool same_tensor(struct tensor a, struct tensor b)
{
    return a.data == b.data && a.ne[0] == b.ne[0] && a.ne[1] == b.ne[1];
}

static bool in_place(int op)
{
    return op == DEV_OP_add || op == DEV_OP_add_gated || op == DEV_OP_relu2 || op == DEV_OP_sigmoid_mul ||
           op == DEV_OP_mul || op == DEV_OP_scale || op == DEV_OP_silu || op == DEV_OP_streams_add ||
           op == DEV_OP_index_store || op == DEV_OP_rope || op == DEV_OP_kv_store || op == DEV_OP_adapt;
}

/* Bytes of an array that nothing has overwritten yet: a few pieces. */
struct span {
    const char *from, *to;
};
struct left {
    struct span part[3 * FEW_ROWS];
    int n;
};

static bool touches(const struct left *l, struct span s)
{
    for (int i = 0; i < l->n; i++)
        if (s.from < l->part[i].to && l->part[i].from < s.to)
            return true;
    return false;
}

static void overwrite(struct left *l, struct span s)
{
    for (int i = l->n - 1; i >= 0; i--) {
        struct span *p = &l->part[i];

        if (s.to <= p->from || p->to <= s.from)
            continue;
        if (s.from <= p->from && p->to <= s.to) {
            *p = l->part[--l->n];
        } else if (s.from <= p->from) {
            p->from = s.to;
        } else if (p->to <= s.to) {
            p->to = s.from;
        } else if (l->n < (int)(sizeof l->part / sizeof *l->part)) { /* else: as if it were not overwritten */
            l->part[l->n++] = (struct span){ s.to, p->to };
            p->to = s.from;
        }
    }
}

static struct span span_of(struct tensor t, int64_t row)
{
    const float *p = (const float *)t.data + row * t.stride;

    return (struct span){ (const char *)p, (const char *)(p + t.ne[0]) };
}

static bool touches_rows(const struct left *l, struct tensor t)
{
    for (int64_t r = 0; t.data != NULL && r < t.ne[1]; r++)
        if (touches(l, span_of(t, r)))
            return true;
    return false;
}

/* Some node from v on reads what is in x, up to FEW_ROWS rows or rows without gaps, now. Only rows of floats are asked
 * about. */
static bool read_later(const struct node *v, int n, struct tensor x)
{
    struct left left = {};

    if (x.stride == x.ne[0]) {
        left.part[left.n++] = span_of(x, 0);
        left.part[0].to += (x.ne[1] - 1) * x.stride * (int64_t)sizeof(float);
    } else {
        for (int64_t r = 0; r < x.ne[1]; r++)
            left.part[left.n++] = span_of(x, r);
    }
    for (; n > 0 && left.n > 0; n--, v++) {
        if (v->op == NODE_DONE)
            continue;
        if (v->op == NODE_COPY) {
            const char *from = (const char *)v->p[0];

            if (touches(&left, (struct span){ from, from + v->n }))
                return true;
            continue;
        }
        for (int i = in_place(v->op) ? 0 : 1; i < 5; i++) {
            bool weights = i == 1 && (v->op == DEV_OP_matmul || v->op == DEV_OP_embed);

            if (!weights && touches_rows(&left, v->t[i]))
                return true;
        }
        if (v->op == DEV_OP_moe && touches_rows(&left, v->moe.weight))
            return true;
        if (v->op == DEV_OP_moe_pairs) /* some rows; the hand_in after it brings the others, and counts for both */
            continue;
        for (int64_t r = 0; v->t[0].data != NULL && r < v->t[0].ne[1]; r++)
            overwrite(&left, span_of(v->t[0], r));
    }
    return false;
}
#endif
