/* SPDX-License-Identifier: Apache-2.0 */
/* launch.c - the table of launches, and what decides about shapes. */
#include "gemm/launch.h"

enum { ONE_ROW_MAX = 6144, NORM_MIN = 513, HEAD_MAX = 256, TAPS = 4, STRIPS = 32 };

bool gemm_fuses_width(int64_t k)
{
    return k % 32 == 0 && k <= ONE_ROW_MAX;
}

bool gemm_fuses_norm(int64_t k)
{
    return gemm_fuses_width(k) && k >= NORM_MIN;
}

bool gemm_fuses_product(int type, int64_t rows, int64_t k)
{
    const struct gemm_product p = { .of = GEMM_OF_MATRICES, .type = type, .rows = rows, .k = k };
    const int kernel = gemm_pick(&p, 0);

    return rows <= GEMM_FEW_ROWS && (type == QUANT_f32 || (kernel >= GEMM_R1_FUSED && kernel <= GEMM_R2_16));
}

bool gemm_fuses_attn(const struct gemm_attn *a)
{
    return a->dim_k % 32 == 0 && a->dim_k <= HEAD_MAX && a->dim_v <= HEAD_MAX &&
           a->dim_v % (a->eight ? 128 : 32) == 0 && a->n_head * a->dim_v % 64 == 0;
}

bool gemm_fuses_delta(const struct gemm_delta *d)
{
    return (d->dim == 32 || d->dim == 64 || d->dim == 128) && d->dim_v == d->dim && d->group == d->dim_v &&
           d->taps == TAPS && d->plain_conv && (!d->eight || d->dim == 128);
}

static bool all_in(enum gemm_formats f, const struct gemm_mixture *m)
{
    return gemm_formats_have(f, m->up) && gemm_formats_have(f, m->down) &&
           (m->gate < 0 || gemm_formats_have(f, m->gate));
}

bool gemm_fuses_mixture(const struct gemm_mixture *m, int64_t rows)
{
    if (m->n_expert > GEMM_CHOICE_EXPERTS || m->n_used > GEMM_CHOICE_USED || m->n_group > 1 ||
        !gemm_fuses_width(m->n_embd) || !gemm_fuses_width(m->ff))
        return false;
    if (rows == 1)
        return all_in(GEMM_FORMATS_FAST_ROW, m);
    if (rows > GEMM_R2_16_MAX && !gemm_few_uses(rows * m->n_used, m->n_expert, m->eight, m->sm))
        return false;
    return all_in(GEMM_FORMATS_COMMON, m) && (m->gate < 0 || m->gate == m->up) && m->ff % STRIPS == 0 &&
           m->n_embd % STRIPS == 0 && m->shared <= m->n_embd;
}

const char *gemm_fusion_name(enum gemm_fusion f)
{
    static const char *const name[GEMM_N_FUSIONS + 1] = { "mixture", "attention", "norm", "gate",
                                                          "delta",   "residual",  "alone" };

    return name[f];
}

#define ANY   INT64_MAX
#define BOTH  (GEMM_ACTS_16 | GEMM_ACTS_8)
#define FEW   GEMM_FEW_ROWS
#define TILES (FEW + 1)
#define PAIRS GEMM_R2_16_MAX
#define MANY  (PAIRS + 1)

#define ROUND_ROWS "rounding, of several rows or after a norm"
#define PAGES      "more: sums of several pages of 256 positions"

#define ELEM \
    "rms_norm rms_norm_gated add add_gated glu geglu relu2 sigmoid_mul mul scale rows_pick heads_pick rope " \
    "hadamard silu"

static const struct gemm_launch launches[] = {
#define FUSED(fusion, from, to, kernel, n) GEMM_FUSE_##fusion, NULL, from, to, BOTH, 0, kernel, n
#define ALONE(ops, from, to, kernel, n)    GEMM_ALONE, ops, from, to, BOTH, 0, kernel, n
    /* a norm and its products, with nothing else or before attention and experts */
    { GEMM_FUSE_NORM, "rounded", 1, 1, BOTH, 0, "gemm/gemv_r1_fused", 2, .note = "norm and rounding; products" },
    { GEMM_FUSE_NORM, "f32", 1, 1, BOTH, 0, "gemm/gemv_r1_fused", 1, .note = "norm, products of floats" },
    { FUSED(NORM, 2, FEW, "gemm/gemv_r1_fused", 1), .note = "norm and rounding" },
    { FUSED(NORM, 2, FEW, "gemm/gemm_r2_16", 1), .note = "products" },
    { FUSED(ADD, 1, 1, "gemm/gemv_r1_fused", 1), .note = "rounding, product, residual" },
    { FUSED(ADD, 2, FEW, "gemm/gemv_r1_fused", 1), .note = "rounding" },
    { FUSED(ADD, 2, FEW, "gemm/gemm_r2_16", 1), .note = "product, residual" },
    { FUSED(GATE, 1, 1, "gemm/gemv_r1_fused", 1), .note = "gate, rounding, product, residual" },
    { FUSED(GATE, 2, FEW, "gemm/gemv_r1_fused", 1), .note = "gate, rounding" },
    { FUSED(GATE, 2, FEW, "gemm/gemm_r2_16", 1), .note = "product, residual" },
    { FUSED(DELTA, 1, FEW, "recur/gdn_fused_r1_16", 1), .note = "convolution, delta rule, gated norm, rounding" },
    { FUSED(DELTA, 1, 1, "gemm/gemv_r1_fused", 1), .note = "product, residual; the convolution's memory" },
    { FUSED(DELTA, 2, FEW, "gemm/gemm_r2_16", 1), .note = "product, residual; the convolution's memory" },
    { FUSED(ATTN, 1, 1, "gemm/gemv_r1_fused", 3),
      .note = "norm and rounding; queries, keys, values; output, residual" },
    { FUSED(ATTN, 2, GEMM_ATTN_ROWS, "gemm/gemv_r1_fused", 1), .note = "norm and rounding" },
    { FUSED(ATTN, 2, GEMM_ATTN_ROWS, "gemm/gemm_r2_16", 2), .note = "queries, keys, values; output, residual" },
    { FUSED(ATTN, 1, GEMM_ATTN_ROWS, "attn/attn_fused_r1_16", 1),
      .note = "norms, RoPE, KV rows; with a row of each sequence attention and gate, too" },
    { FUSED(ATTN, 1, 1, "attn/attn_r2_16", 0), .more = 1, .note = PAGES },
    { FUSED(ATTN, 2, GEMM_ATTN_ROWS, "attn/attn_r2_16", 1), .more = 1, .note = "attention, gate; " PAGES },
    { GEMM_FUSE_MIXTURE, "f32", 1, 1, BOTH, 0, "gemm/gemv_r1_fused", 1, .note = "norm, router" },
    { GEMM_FUSE_MIXTURE, "rounded", 1, 1, BOTH, 0, "gemm/gemv_r1_fused", 2, .note = "norm and rounding; router" },
    { FUSED(MIXTURE, 1, 1, "moe/moe_r1", 2), .note = "choice, first products; second products, sum, residual" },
    { FUSED(MIXTURE, 2, PAIRS, "gemm/gemv_r1_fused", 1), .more = 1,
      .note = "norm and rounding; more: rounding to 8 bits between the products" },
    { FUSED(MIXTURE, MANY, FEW, "gemm/gemv_r1_fused", 1), .note = "norm and rounding" },
    { FUSED(MIXTURE, 2, FEW, "gemm/gemm_r2_16", 1), .more = 1,
      .note = "router, first products of the shared expert; more: its second one, above 16 rows" },
    { FUSED(MIXTURE, MANY, FEW, "moe/moe_r17", 1), .note = "choice, uses sorted by expert" },
    { FUSED(MIXTURE, MANY, FEW, "moe/moe_r17_columns", 2), .note = "first products; second ones" },
    { GEMM_FUSE_MIXTURE, NULL, MANY, FEW, GEMM_ACTS_8, 0, "gemm/pick", 1, .note = "rounding between the products" },
    { FUSED(MIXTURE, MANY, FEW, "moe/moe_r2_16", 1), .note = "sum, residual" },
    { FUSED(MIXTURE, 2, PAIRS, "moe/moe_r2_16", 2), .more = 1,
      .note = "choice, first products; second products, sum, residual; more: a shared expert of another format" },
    /* alone */
    { ALONE("embed", 1, ANY, "head/embed", 1), .note = NULL },
    { ALONE("top", 1, ANY, "head/logits_top", 3), .note = "without masks" },
    { ALONE("transfer", 1, ANY, "device/transfer", 2), .note = "the step's data; the answer and a flag for the host" },
    { ALONE(ELEM, 1, ANY, "elem/elem", 1), .note = NULL },
    { ALONE("streams_mix streams_add streams_gate", 1, ANY, "elem/streams", 1), .note = NULL },
    { ALONE("index_store", 1, ANY, "attn/attn_picked", 2), .note = "keys; keys of blocks" },
    { ALONE("index_pick attn_picked", 1, ANY, "attn/attn_picked", 1), .note = NULL },
    { ALONE("conv", 1, PAIRS, "recur/conv", 1), .note = NULL },
    { ALONE("conv", MANY, ANY, "recur/conv", 2), .note = "of a sequence; its memory" },
    { ALONE("gdn kda ssm2", 1, ANY, "recur/conv", 1), .note = "decays" },
    { ALONE("gdn kda ssm2", 1, ANY, "recur/scan", 1), .note = NULL },
    { ALONE("ssm1", 1, ANY, "recur/conv", 1), .more = 1, .note = "more: its log, with drafts" },
    { ALONE("kv_store", 1, ANY, "attn/attn_r2_16", 1), .note = NULL },
    { ALONE("attn", 1, GEMM_ATTN_ROWS, "attn/attn_r2_16", 1), .more = 1, .note = PAGES },
    { ALONE("attn", GEMM_ATTN_ROWS + 1, ANY, "attn/attn_r17", 2), .note = "pages unpacked; attention" },
    { ALONE("route", 1, ANY, "moe/router", 1), .note = NULL },
    { ALONE("matmul f32", 1, ANY, "gemm/gemm_float", 1), .note = "for each matrix" },
    { ALONE("matmul", 1, FEW, "gemm/pick", 1), .note = "rounding" },
    { ALONE("matmul", 1, 1, "gemm/gemv_r1_fused", 1), .note = NULL },
    { ALONE("matmul", 2, FEW, "gemm/gemm_r2_16", 1), .note = NULL },
    { GEMM_ALONE, "matmul", TILES, ANY, GEMM_ACTS_8, 90, "gemm/gemm_r64_a8_wgmma", 2, .note = "rounding; product" },
    { GEMM_ALONE, "matmul", TILES, ANY, GEMM_ACTS_16, 90, "gemm/gemm_r64_a16_wgmma", 2, .note = "rounding; product" },
    { GEMM_ALONE, "matmul", TILES, ANY, GEMM_ACTS_8, 0, "gemm/gemm_r17_a8_mma", 2, .note = "rounding; product" },
    { GEMM_ALONE, "matmul", TILES, ANY, GEMM_ACTS_16, 0, "gemm/pick", 1, .note = "rounding" },
    { GEMM_ALONE, "matmul", TILES, ANY, GEMM_ACTS_16, 0, "gemm/gemm_r17_mma", 1, .note = NULL },
    { ALONE("moe f32", 1, 1, "moe/moe_r17", 5), .note = "gate, up, activation, down, sum" },
    { ALONE("moe f32", 2, ANY, "moe/moe_r17", 6), .note = "uses sorted; gate, up, activation, down, sum" },
    { ALONE("moe", 1, 1, "gemm/pick", 2), .note = "rounding" },
    { ALONE("moe", 1, 1, "moe/moe_r17_common", 3), .note = "gate, up; down" },
    { ALONE("moe", 1, 1, "moe/moe_r17", 2), .note = "activation; sum" },
    { ALONE("moe", 2, PAIRS, "gemm/pick", 1), .note = "rounding" },
    { ALONE("moe", 2, PAIRS, "moe/moe_r2_16", 2), .note = "first products; second ones and the sum" },
    { GEMM_ALONE, "moe", 2, PAIRS, GEMM_ACTS_8, 0, "gemm/gemv_r1_fused", 0, .more = 1,
      .note = "more: rounding between the products" },
    { ALONE("moe", MANY, ANY, "moe/moe_r17", 2), .more = 1,
      .note = "uses sorted by expert; weighted sum; more: activation apart" },
    { ALONE("moe", MANY, ANY, "gemm/pick", 1), .more = 1, .uses = GEMM_USES_FEW,
      .note = "rounding; more: of 8 bits between the products" },
    { ALONE("moe", MANY, ANY, "moe/moe_r17_columns", 2), .more = 1, .uses = GEMM_USES_FEW,
      .note = "first products (more: gate apart); second ones" },
    { GEMM_ALONE, "moe", MANY, ANY, GEMM_ACTS_8, 90, "gemm/gemm_r64_a8_wgmma", 4, .uses = GEMM_USES_MANY,
      .note = "rounding, first products; rounding, second ones" },
    { GEMM_ALONE, "moe", MANY, ANY, GEMM_ACTS_16, 90, "gemm/gemm_r64_a16_wgmma", 3, .uses = GEMM_USES_MANY,
      .note = "rounding, first products, second ones" },
    { GEMM_ALONE, "moe", MANY, ANY, GEMM_ACTS_8, 0, "gemm/gemm_r17_a8_mma", 4, .more = 1, .uses = GEMM_USES_MANY,
      .note = "rounding, first products (more: gate apart); rounding, second ones" },
    { GEMM_ALONE, "moe", MANY, ANY, GEMM_ACTS_16, 0, "gemm/pick", 1, .uses = GEMM_USES_MANY, .note = "rounding" },
    { GEMM_ALONE, "moe", MANY, ANY, GEMM_ACTS_16, 0, "gemm/gemm_r17_mma", 2, .uses = GEMM_USES_MANY,
      .note = "first products; second ones" },
#undef FUSED
#undef ALONE
};

const struct gemm_launch *gemm_launch_at(int i)
{
    return i < (int)(sizeof launches / sizeof launches[0]) ? &launches[i] : NULL;
}
