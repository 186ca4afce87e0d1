/* SPDX-License-Identifier: Apache-2.0 */
/* launches.c - the operations of each part of a layer, and those that go together on a GPU. */
#include "model/launches.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"
#include "model/spans.h"

/* clang-format off */
#define NORM_OF(products) GEMM_FUSE_NORM, { { "rms_norm", 1, FIRST, 0, 0 }, { "matmul", products, 0, 0, 0 } }
#define ADD_AFTER         { "matmul", 1, 0, 0, 0 }, { "add", 1, ADDED, 0, 0 }
#define OP(name, n)       { name, n, 0, 0, 0 }
#define IF(fact, name, n) { name, n, fact, 0, 0 }
#define UNLESS(fact, name, n) { name, n, 0, fact, 0 }
#define HEADS(name, n)    { name, n, 0, 0, true }
/* clang-format on */
static const struct span spans[] = {
    { BEGIN,
      0,
      0,
      GEMM_ALONE,
      { OP("transfer", 1), OP("embed", 1), { "heads_pick", 1, STREAMED, 0, true }, IF(FRONTED, "heads_pick", 1) } },

    { FRONT, FIRST, 0, GEMM_ALONE, { OP("heads_pick", 1) } },
    { FRONT, 0, FIRST, GEMM_FUSE_ADD, { ADD_AFTER } },

    { TABLE,
      0,
      0,
      GEMM_ALONE,
      { OP("embed", 1), OP("matmul", 2), OP("rms_norm", 2), OP("streams_gate", 1), OP("add", 1), OP("rms_norm", 1),
        OP("conv", 1), OP("add", 1) } },

    { STREAMS,
      0,
      0,
      GEMM_ALONE,
      { OP("rms_norm", 1),
        IF(ADDED, "matmul", 2),
        { "matmul", 1, 0, ADDED, 0 },
        OP("silu", 1),
        OP("matmul", 1),
        OP("streams_mix", 1) } },
    { STREAMS, ADDED, 0, GEMM_ALONE, { OP("streams_add", 1) } }, /* after the part */

    { MIX_ATTN,
      ONE_PIECE,
      0,
      GEMM_FUSE_ATTN,
      { OP("rms_norm", 1), OP("matmul", 3), IF(GATED, "heads_pick", 2), IF(QK_NORM, "rms_norm", 2),
        IF(ROTARY, "rope", 2), IF(ROTATED, "hadamard", 2), OP("kv_store", 1), OP("attn", 1),
        IF(GATED, "sigmoid_mul", 1), ADD_AFTER } },
    { MIX_ATTN, GATED, ONE_PIECE, NORM_OF(1) },
    { MIX_ATTN, 0, ONE_PIECE | GATED | BORROWS, NORM_OF(3) },
    { MIX_ATTN, BORROWS, 0, NORM_OF(1) },
    { MIX_ATTN, BORROWS, 0, GEMM_ALONE, { IF(ROTARY, "rope", 1), IF(ROTATED, "hadamard", 1), OP("attn", 1) } },
    { MIX_ATTN,
      0,
      ONE_PIECE | BORROWS,
      GEMM_ALONE,
      { IF(GATED, "heads_pick", 2), IF(GATED, "matmul", 2), IF(QK_NORM, "rms_norm", 2), IF(ROTARY, "rope", 2),
        IF(ROTATED, "hadamard", 2), OP("kv_store", 1), IF(INDEXED, "matmul", 2), IF(INDEXED, "index_store", 1),
        OP("attn", 1), IF(CHOSEN, "rms_norm", 1), IF(CHOSEN, "rope", 1), IF(CHOSEN, "index_pick", 1),
        IF(CHOSEN, "attn_picked", 1) } },
    { MIX_ATTN, GATED, ONE_PIECE, GEMM_FUSE_GATE, { OP("sigmoid_mul", 1), ADD_AFTER } },
    { MIX_ATTN, 0, ONE_PIECE | GATED | JOINED, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_MLA, GATED, 0, NORM_OF(3) },
    { MIX_MLA, 0, GATED, NORM_OF(2) },
    { MIX_MLA, NORM_PRODUCT, 0, GEMM_FUSE_NORM, { OP("rms_norm", 1), OP("matmul", 1) } },
    { MIX_MLA, LOW_RANK, NORM_PRODUCT, GEMM_ALONE, { OP("rms_norm", 1), OP("matmul", 1) } },
    { MIX_MLA,
      0,
      0,
      GEMM_ALONE,
      { OP("rms_norm", 1), HEADS("matmul", 1), HEADS("heads_pick", 1), IF(ROTARY, "rope", 2),
        IF(ROTATED, "hadamard", 2), OP("kv_store", 1), OP("attn", 1), HEADS("matmul", 1),
        IF(GATED, "sigmoid_mul", 1) } },
    { MIX_MLA, 0, 0, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_GDN, 0, ALPHA_BETA, NORM_OF(4) },
    { MIX_GDN, ALPHA_BETA, 0, NORM_OF(3) },
    { MIX_GDN, ALPHA_BETA, 0, GEMM_ALONE, { OP("heads_pick", 2) } },
    { MIX_GDN, ONE_PIECE, 0, GEMM_FUSE_DELTA, { OP("conv", 1), OP("gdn", 1), OP("rms_norm_gated", 1), ADD_AFTER } },
    { MIX_GDN, 0, ONE_PIECE | SIGMOID, GEMM_ALONE, { OP("conv", 1), OP("gdn", 1), OP("rms_norm_gated", 1) } },
    { MIX_GDN, 0, ONE_PIECE | SIGMOID, GEMM_FUSE_ADD, { ADD_AFTER } },
    { MIX_GDN, SIGMOID, 0, GEMM_ALONE, { OP("conv", 1), OP("gdn", 1), OP("rms_norm", 1) } },
    { MIX_GDN, SIGMOID, 0, GEMM_FUSE_GATE, { OP("sigmoid_mul", 1), ADD_AFTER } },

    { MIX_KDA, LOW_RANK, 0, NORM_OF(4) },
    { MIX_KDA, 0, LOW_RANK, NORM_OF(6) },
    { MIX_KDA,
      0,
      0,
      GEMM_ALONE,
      { IF(LOW_RANK, "matmul", 1), IF(LOW_RANK, "matmul", 1), OP("conv", 1), OP("kda", 1), OP("rms_norm", 1),
        IF(LOW_RANK, "matmul", 1), IF(LOW_RANK, "matmul", 1) } },
    { MIX_KDA, 0, 0, GEMM_FUSE_GATE, { OP("sigmoid_mul", 1), ADD_AFTER } },

    { MIX_SSM1, 0, 0, NORM_OF(1) },
    { MIX_SSM1,
      0,
      0,
      GEMM_ALONE,
      { OP("heads_pick", 1), OP("conv", 1), OP("matmul", 1), IF(DT_NORM, "rms_norm", 1), OP("matmul", 1),
        OP("heads_pick", 2), IF(B_NORM, "rms_norm", 1), IF(C_NORM, "rms_norm", 1), OP("ssm1", 1) } },
    { MIX_SSM1, 0, JOINED, GEMM_FUSE_GATE, { OP("glu", 1), ADD_AFTER } },
    { MIX_SSM1, JOINED, 0, GEMM_ALONE, { OP("glu", 1) } },

    { JOIN, 0, 0, GEMM_ALONE, { OP("rms_norm", 2), OP("add", 1) } },
    { JOIN, 0, 0, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_SSM2, 0, 0, NORM_OF(1) },
    { MIX_SSM2, 0, 0, GEMM_ALONE, { OP("conv", 1), OP("ssm2", 1), IF(OUT_NORM, "glu", 1) } },
    { MIX_SSM2, 0, OUT_NORM, GEMM_FUSE_GATE, { OP("glu", 1), ADD_AFTER } },
    { MIX_SSM2, NORM_PRODUCT, 0, GEMM_FUSE_NORM, { OP("rms_norm", 1), OP("matmul", 1) } },
    { MIX_SSM2, NORM_PRODUCT, 0, GEMM_ALONE, { IF(ADDED, "add", 1) } },
    { MIX_SSM2, OUT_NORM, NORM_PRODUCT, GEMM_ALONE, { OP("rms_norm", 1) } },
    { MIX_SSM2, OUT_NORM, NORM_PRODUCT, GEMM_FUSE_ADD, { ADD_AFTER } },

    { MIX_CONV, 0, 0, NORM_OF(1) },
    { MIX_CONV, 0, 0, GEMM_ALONE, { OP("mul", 1), OP("conv", 1), OP("mul", 1) } },
    { MIX_CONV, 0, 0, GEMM_FUSE_ADD, { ADD_AFTER } },

    { DENSE, GATED, 0, NORM_OF(2) },
    { DENSE, GATED, 0, GEMM_FUSE_GATE, { OP("glu", 1), ADD_AFTER } },
    { DENSE, 0, GATED, NORM_OF(1) },
    { DENSE, 0, GATED, GEMM_ALONE, { IF(UP_GATED, "geglu", 1), UNLESS(UP_GATED, "relu2", 1) } },
    { DENSE, 0, GATED, GEMM_FUSE_ADD, { ADD_AFTER } },

    { EXPERTS,
      ONE_PIECE,
      0,
      GEMM_FUSE_MIXTURE,
      { OP("rms_norm", 1), OP("router", 1), OP("route", 1), OP("moe", 1), IF(SHARED, "matmul", 2), IF(SHARED, "glu", 1),
        IF(SHARED, "matmul", 1), IF(OPEN, "router", 1), IF(OPEN, "add_gated", 1), IF(LAST_ADDS, "add", 1),
        OP("add", 1) } },
    { EXPERTS, 0, ONE_PIECE, GEMM_FUSE_NORM, { IF(FIRST, "rms_norm", 1), OP("router", 1) } },
    { EXPERTS, 0, ONE_PIECE, GEMM_ALONE, { OP("route", 1), IF(LATENT, "matmul", 1), OP("moe", 1) } },
    { EXPERTS, LATENT, ONE_PIECE | SHARED, GEMM_FUSE_ADD, { ADD_AFTER } },
    { EXPERTS, LATENT | SHARED, ONE_PIECE, GEMM_ALONE, { OP("matmul", 1) } },
    { EXPERTS, SHARED | GATED, ONE_PIECE, GEMM_ALONE, { OP("matmul", 2) } },
    { EXPERTS, SHARED | GATED, ONE_PIECE, GEMM_FUSE_GATE, { OP("glu", 1), OP("matmul", 1), IF(LAST_ADDS, "add", 1) } },
    { EXPERTS, SHARED, ONE_PIECE | GATED, GEMM_ALONE, { OP("matmul", 1), OP("relu2", 1) } },
    { EXPERTS, SHARED, ONE_PIECE | GATED, GEMM_FUSE_ADD, { OP("matmul", 1), IF(LAST_ADDS, "add", 1) } },
    { EXPERTS, OPEN, ONE_PIECE, GEMM_ALONE, { OP("router", 1), OP("add_gated", 1) } },
    { EXPERTS, SHARED, ONE_PIECE, GEMM_ALONE, { IF(FIRST, "add", 1) } },
    { EXPERTS, 0, ONE_PIECE | SHARED | LATENT, GEMM_ALONE, { IF(FIRST, "add", 1) } },

    { END, 0, 0, GEMM_ALONE, { IF(PICKED, "rows_pick", 1) } },
    { END, 0, 0, GEMM_FUSE_NORM, { IF(FIRST, "rms_norm", 1), OP("matmul", 1) } },
    { END, 0, 0, GEMM_ALONE, { IF(SCALED, "scale", 1), IF(DIGEST, "top", 1) } },
};
#undef NORM_OF
#undef ADD_AFTER
#undef OP
#undef IF
#undef UNLESS
#undef HEADS

const struct span *model_span(int i)
{
    return i < (int)(sizeof spans / sizeof spans[0]) ? &spans[i] : NULL;
}

/* Facts in words: those that must hold, then those that must not. */
static size_t write_facts(char *to, size_t size, unsigned when, unsigned unless)
{
    static const char *const name[] = { "first",      "added",        "gated",    "qk_norm",  "rotary",  "rotated",
                                        "alpha_beta", "norm",         "dt_norm",  "b_norm",   "c_norm",  "shared",
                                        "open",       "latent",       "picked",   "scaled",   "digest",  "last",
                                        "whole",      "norm_product", "low_rank", "up_gated", "fronted", "sigmoid",
                                        "indexed",    "chosen",       "streamed", "joined",   "borrows" };
    size_t at = 0;

    to[0] = '\0';
    for (size_t i = 0; i < sizeof name / sizeof name[0]; i++)
        if (((when | unless) >> i & 1u) != 0)
            at += (size_t)snprintf(to + at, size - at, "%s%s%s", at > 0 ? " " : "", (unless >> i & 1u) != 0 ? "!" : "",
                                   name[i]);
    assert(at < size);
    return at;
}

bool model_span_at(int i, struct model_span *out)
{
    static const char *const part[] = { "attention", "mla",     "gdn",   "kda", "mamba", "mamba2",  "conv",  NULL,
                                        "dense",     "experts", "begin", "end", "front", "streams", "table", "join" };
    const struct span *s = model_span(i);
    size_t at = 0;
    int bit = 0;

    if (s == NULL)
        return false;
    while (s->part != 1u << bit)
        bit++;
    *out = (struct model_span){ .part = part[bit], .together = gemm_fusion_name(s->fusion) };
    (void)write_facts(out->when, sizeof out->when, s->when, s->unless);
    for (int k = 0; k < SPAN_OPS && s->op[k].name != NULL; k++) {
        const struct part_op *o = &s->op[k];

        at += (size_t)snprintf(out->ops + at, sizeof out->ops - at, "%s%s", k > 0 ? ", " : "", o->name);
        if (o->n > 1 || o->each_head)
            at += (size_t)snprintf(out->ops + at, sizeof out->ops - at, " %d%s", o->n,
                                   o->each_head ? " of each head" : "");
        if ((o->when | o->unless) == 0)
            continue;
        at += (size_t)snprintf(out->ops + at, sizeof out->ops - at, " if ");
        at += write_facts(out->ops + at, sizeof out->ops - at, o->when, o->unless);
    }
    return true;
}

uint64_t model_launches(const struct model *m)
{
    struct dev_launched l[DEV_LAUNCHED_MAX];
    uint64_t all = 0;

    for (int k = 0; k < m->n_dev; k++)
        for (int i = dev_launched(m->part[k], l, DEV_LAUNCHED_MAX) - 1; i >= 0; i--)
            all += l[i].fusion ? 0 : l[i].n;
    return all;
}
