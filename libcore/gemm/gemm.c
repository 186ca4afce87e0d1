/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c - the table of GPU kernels for products, and the walk over it. */
#include "gemm/gemm.h"

#include <assert.h>

enum { ANY_FORMAT = -1, BOTH = GEMM_ACTS_16 | GEMM_ACTS_8, R16 = GEMM_R2_16_MAX, R17 = R16 + 1, FEW = GEMM_FEW_ROWS };
#define ANY INT64_MAX

const struct gemm_kernel gemm_kernels[GEMM_N_KERNELS] = {
#define F(set)                                GEMM_FORMATS_##set
#define MATRICES(name, formats, from, to)     name, GEMM_OF_MATRICES, F(formats), ANY_FORMAT, from, to
#define EXPERTS(name, formats, all, from, to) name, GEMM_OF_EXPERTS, F(formats), all, from, to
    /* file, formats, (all of the launch,) rows from, to; elements, outputs at most; uses of an expert from, below,
     * activations, GPU */
    [GEMM_FLOAT_ROWS] = { MATRICES("gemm_float", FLOAT, 1, R16), ANY, ANY, 0, ANY, BOTH, 0, false, "a warp an output" },
    [GEMM_FLOAT_OUTPUT] = { MATRICES("gemm_float", FLOAT, R17, 65535), ANY, 1, 0, ANY, BOTH, 0, false,
                            "a warp an output" },
    [GEMM_FLOAT_TILES] = { MATRICES("gemm_float", FLOAT, R17, ANY), ANY, ANY, 0, ANY, BOTH, 0, false,
                           "tiles of 32 by 32" },
    [GEMM_R1_FUSED] = { MATRICES("gemv_r1_fused", FAST_ROW, 1, 1), GEMM_FUSED_LONGEST, ANY, 0, ANY, BOTH, 0, false,
                        NULL },
    [GEMM_R2_16_LARGE] = { MATRICES("gemm_r2_16_large", COMMON, 1, FEW), ANY, ANY, 0, ANY, BOTH, 0, true,
                           "one matrix, two turns for all warps" },
    [GEMM_R2_16_RESIDENT] = { MATRICES("gemm_r2_16_resident", COMMON, 1, FEW), ANY, ANY, 0, ANY, BOTH, 0, true,
                              "all blocks find room at once" },
    [GEMM_R2_16] = { MATRICES("gemm_r2_16", COMMON, 1, FEW), ANY, ANY, 0, ANY, BOTH, 0, false, NULL },
    [GEMM_R64_A8_WGMMA] = { MATRICES("gemm_r64_a8_wgmma", A8, GEMM_R64_ROWS, ANY), ANY, ANY, 0, ANY, GEMM_ACTS_8, 90,
                            false, NULL },
    [GEMM_R64_A16_WGMMA] = { MATRICES("gemm_r64_a16_wgmma", A16, GEMM_R64_ROWS, ANY), ANY, ANY, 0, ANY, BOTH, 90, false,
                             NULL },
    [GEMM_R17_A8_MMA] = { MATRICES("gemm_r17_a8_mma", A8, R17, ANY), ANY, ANY, 0, ANY, GEMM_ACTS_8, 0, false, NULL },
    [GEMM_R17_MMA] = { MATRICES("gemm_r17_mma", TILED, R17, ANY), ANY, ANY, 0, ANY, BOTH, 0, false, NULL },
    [GEMM_STORED_ROWS] = { MATRICES("gemv_rare", RARE, 1, ANY), ANY, ANY, 0, ANY, BOTH, 0, false, NULL },
    [GEMM_EXPERTS_R2_16] = { EXPERTS("moe_r2_16", COMMON, F(COMMON), 2, R16), ANY, ANY, 0, ANY, BOTH, 0, true,
                             "rows in whole strips" },
    [GEMM_EXPERTS_R17_COLUMNS] = { EXPERTS("moe_r17_columns", COMMON, F(COMMON), R17, ANY), ANY, ANY, 0, GEMM_R64_PAIRS,
                                   BOTH, 0, true, "rows in whole strips; up to 16 uses at once" },
    [GEMM_EXPERTS_R17_COLUMNS_A16] = { EXPERTS("moe_r17_columns", COMMON, F(COMMON), R17, ANY), ANY, ANY, 0,
                                       GEMM_FEW_PAIRS, GEMM_ACTS_16, 90, true, "rows in whole strips" },
    [GEMM_EXPERTS_R64_A8_WGMMA] = { EXPERTS("gemm_r64_a8_wgmma", A8, F(A16), R17, ANY), ANY, ANY, GEMM_R64_PAIRS, ANY,
                                    GEMM_ACTS_8, 90, false, NULL },
    [GEMM_EXPERTS_R64_A16_WGMMA] = { EXPERTS("gemm_r64_a16_wgmma", A16, F(A16), R17, ANY), ANY, ANY, GEMM_R64_PAIRS,
                                     ANY, BOTH, 90, false, NULL },
    [GEMM_EXPERTS_R17_A8_MMA] = { EXPERTS("gemm_r17_a8_mma", A8, F(TILED), R17, ANY), ANY, ANY, 0, ANY, GEMM_ACTS_8, 0,
                                  false, NULL },
    [GEMM_EXPERTS_R17_MMA] = { EXPERTS("gemm_r17_mma", TILED, F(TILED), R17, ANY), ANY, ANY, 0, ANY, BOTH, 0, false,
                               NULL },
    [GEMM_EXPERTS_STORED] = { EXPERTS("moe_r17", STORED, ANY_FORMAT, 1, ANY), ANY, ANY, 0, ANY, BOTH, 0, false, NULL },
    [GEMM_EXPERTS_FLOAT] = { EXPERTS("moe_r17", FLOAT, ANY_FORMAT, 1, ANY), ANY, ANY, 0, ANY, BOTH, 0, false, NULL },
#undef F
#undef MATRICES
#undef EXPERTS
};

bool gemm_few_uses(int64_t pairs, int64_t n_expert, bool eight, int sm)
{
    return pairs < (eight || sm != 90 ? GEMM_R64_PAIRS : GEMM_FEW_PAIRS) * n_expert;
}

/* Bits of the sets that a format is in. */
static unsigned sets_of(int type)
{
#define IN(set) (1u << GEMM_FORMATS_##set)
    unsigned sets = 0;

    switch (type) {
#define X(name) case QUANT_##name:
        GEMM_FLOAT(X)
        return IN(FLOAT);
        GEMM_COMMON(X)
        sets = IN(STORED) | IN(COMMON) | IN(FAST_ROW) | IN(TILED) | IN(A16);
        break;
        GEMM_RARE(X)
        sets = IN(STORED) | IN(RARE);
        break;
#undef X
    default:
        return 0; /* a GPU does not know it */
    }
    switch (type) {
#define X(name) case QUANT_##name:
        GEMM_ONE_ROW(X)
        sets |= IN(FAST_ROW);
        break;
#undef X
#define X(name, sums) case QUANT_##name:
        GEMM_A8(X)
        sets |= IN(A8);
        break;
#undef X
    default:
        break;
    }
    switch (type) {
#define X(name) case QUANT_##name:
        GEMM_HALF_MINIMA(X)
        return sets;
        GEMM_HALF_LARGE(X)
        return sets | IN(TILED);
#undef X
    default:
        return sets | IN(TILED) | IN(A16);
    }
#undef IN
}

bool gemm_formats_have(enum gemm_formats f, int type)
{
    return (sets_of(type) >> f & 1u) != 0;
}

bool gemm_knows(int type)
{
    return sets_of(type) != 0;
}

const char *gemm_formats_name(enum gemm_formats f)
{
    static const char *const name[GEMM_N_FORMATS] = { "float", "stored", "common", "fast row",
                                                      "tiled", "wide",   "whole",  "rare" };

    return name[f];
}

bool gemm_takes(int i, const struct gemm_product *p)
{
    const struct gemm_kernel *k = &gemm_kernels[i];

    assert(i >= 0 && i < GEMM_N_KERNELS);
    if (p->of != k->of || !gemm_formats_have(k->formats, p->type) || p->rows < k->rows_min || p->rows > k->rows_max ||
        p->k > k->k_max || p->n > k->n_max || (k->acts & (p->eight ? GEMM_ACTS_8 : GEMM_ACTS_16)) == 0 ||
        (k->sm != 0 && k->sm != p->sm) || p->pairs < k->each_min * p->n_expert ||
        (k->each_end < ANY && p->pairs >= k->each_end * p->n_expert))
        return false;
    for (int t = 0; t < p->n_types && k->all >= 0; t++)
        if (!gemm_formats_have((enum gemm_formats)k->all, p->types[t]))
            return false;
    return true;
}

int gemm_pick(const struct gemm_product *p, int from)
{
    if (p->only > from && gemm_takes(p->only - 1, p))
        return p->only - 1;
    for (int i = from; i < GEMM_N_KERNELS; i++)
        if (gemm_takes(i, p))
            return i;
    return -1;
}
