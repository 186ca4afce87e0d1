/* SPDX-License-Identifier: Apache-2.0 */
/* hadamard.c - rotation of queries and keys. */
#include "cpu/cpu.h"

struct hadamard {
    const struct cpu *c;
    struct tensor y, x;
    int n; /* columns of a block */
};

static void hadamard_piece(void *ctx, int64_t begin, int64_t end, int worker)
{
    const struct hadamard *t = ctx;

    (void)worker;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = 0; i < t->x.ne[0]; i += t->n)
            t->c->kern->hadamard(cpu_row(t->y, r) + i, cpu_row(t->x, r) + i, t->n);
}

void cpu_hadamard(void *ctx, struct tensor y, struct tensor x, int64_t dim)
{
    struct cpu *c = ctx;
    struct hadamard t = { c, y, x, op_hadamard_block(dim) };

    pool_for(c->pool, x.ne[1], cpu_grain(c, x.ne[1], 8 * x.ne[0], 1), hadamard_piece, &t);
}
