/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - the table of launches.c: the operations of each part of a layer, in order.      room: model */
#ifndef MODEL_SPANS_H
#define MODEL_SPANS_H
#include "arch/arch.h"
#include "gemm/launch.h"

/* What a layer, or a part of it, is like. */
enum {
    FIRST = 1 << 0, /* the norm before it is its own: not a second mixer beside another */
    ADDED = 1 << 1, /* an addition to the residual stream, or to the first mixer's output, follows */
    GATED = 1 << 2, /* attention, or a feed-forward with gate and up */
    QK_NORM = 1 << 3,
    ROTARY = 1 << 4,
    ROTATED = 1 << 5,
    ALPHA_BETA = 1 << 6, /* one matrix for both */
    OUT_NORM = 1 << 7,   /* Mamba-2: a norm after the gate */
    DT_NORM = 1 << 8,
    B_NORM = 1 << 9,
    C_NORM = 1 << 10,
    SHARED = 1 << 11,
    OPEN = 1 << 12, /* the shared expert has a gate for each row */
    LATENT = 1 << 13,
    PICKED = 1 << 14, /* some rows have logits, not all */
    SCALED = 1 << 15,
    DIGEST = 1 << 16,
    LAST_ADDS = 1 << 17,    /* the addition follows the part's last product */
    ONE_PIECE = 1 << 18,    /* goes together as a whole */
    NORM_PRODUCT = 1 << 19, /* a norm inside the part (Mamba-2: of its output; latent attention: of a query's row of low
                             * rank) goes together with the product after it */
    LOW_RANK = 1 << 20,     /* Kimi delta attention: gates by two products; latent attention: queries */
    UP_GATED = 1 << 21,     /* arch_plan */
    FRONTED = 1 << 22,      /* some layers have parts in front of the recurrent mixer */
    SIGMOID = 1 << 23,      /* gated delta net: the output gate */
    INDEXED = 1 << 24,      /* attention that chooses blocks */
    CHOSEN = 1 << 25,       /* some rows have a choice */
    STREAMED = 1 << 26,     /* hyper-connections */
    JOINED = 1 << 27,       /* arch_plan: no matrix of its own after it */
    BORROWS = 1 << 28,      /* attention that reads the keys and values of another layer */
};
/* parts, beside enum arch_mixer; STREAMS: hyper-connections around a part, TABLE: what a table of n-grams adds */
enum {
    DENSE = 1 << 8,
    EXPERTS = 1 << 9,
    BEGIN = 1 << 10,
    END = 1 << 11,
    FRONT = 1 << 12,
    STREAMS = 1 << 13,
    TABLE = 1 << 14,
    JOIN = 1 << 15
};

/* Operations of a part that follow each other. fusion: how they go together, if they do; GEMM_ALONE: they never do. `n`
 * products in an entry have the same input. */
struct part_op {
    const char *name;
    int n;
    unsigned when, unless;
    bool each_head;
};
enum { SPAN_OPS = 16 };
struct span {
    unsigned part, when, unless;
    enum gemm_fusion fusion;
    struct part_op op[SPAN_OPS];
};
const struct span *model_span(int i); /* NULL past the last */
#endif
