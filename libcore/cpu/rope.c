/* SPDX-License-Identifier: Apache-2.0 */
/* rope.c - rotary embedding. Angles are products of floats, as the models were trained; their sine and
 * cosine are those of the rounded angle. */
#include <math.h>

#include "cpu/cpu.h"

struct rope {
    struct tensor x;
    const struct op_rope *a;
    const int32_t *pos;
};

static void rope_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct rope *t = ctx;
    int64_t half = t->a->n_rot / 2;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        float *x = cpu_row(t->x, r);

        for (int64_t i = 0; i < half; i++) {
            double angle = (float)t->pos[r] * t->a->freq[i];
            float c = (float)cos(angle), s = (float)sin(angle);

            for (int64_t h = 0; h < t->x.ne[0]; h += t->a->dim) {
                float *first = x + h + t->a->first + (t->a->pairs ? 2 * i : i),
                      *second = first + (t->a->pairs ? 1 : half);
                float u = *first, v = *second;

                *first = u * c - v * s;
                *second = u * s + v * c;
            }
        }
    }
}

void cpu_rope_rows(struct tensor x, const struct op_rope *a, const int32_t *pos, int64_t begin, int64_t end)
{
    struct rope t = { x, a, pos };

    rope_piece(&t, begin, end, 0);
}

void cpu_rope(void *ctx, struct tensor x, const struct op_rope *a, const struct op_rows *r)
{
    struct cpu *c = ctx;
    struct rope t = { x, a, r->pos };

    pool_for(c->pool, x.ne[1], cpu_grain(c, x.ne[1], 30 * a->n_rot, 1), rope_piece, &t);
}
