/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.h - the table of which GPU kernel multiplies what.                        room: gemm
 *
 * One row per kernel, tried in order: the first that takes a product runs it (kernels/gemm/pick.cu,
 * kernels/moe/moe_r17.cu). A kernel with `refuses` also checks whether the matrices of a launch fit the card; if not,
 * the next ones are tried. What a step fuses with a product (norms, activation functions, additions) is in
 * gemm/launch.h.
 */
#ifndef GEMM_GEMM_H
#define GEMM_GEMM_H
#include "base/base.h"
#include "quant/quant.h"

/* Formats that are decoded to whole numbers, by what multiplies them (kernels/quant). COMMON: those of most files,
 * whose weights come packed to the fragments of tensor cores. ONE_ROW: other ones that one row has launches of its own
 * for: formats of small files and of rows that are no multiple of 256. */
#define GEMM_COMMON_K(X)    X(q4_k) X(q5_k) X(q6_k)
#define GEMM_COMMON_I(X)    X(q8_0) X(iq3_s) X(iq4_xs)
#define GEMM_COMMON(X)      GEMM_COMMON_K(X) GEMM_COMMON_I(X)
/* clang-format off */
#define GEMM_RARE(X) \
    X(q4_0) X(q4_1) X(q5_0) X(q5_1) X(q2_k) X(q3_k) X(iq1_s) X(iq1_m) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) \
    X(iq4_nl) X(mxfp4) X(nvfp4) X(tq1_0) X(tq2_0) X(q1_0) X(q2_0) X(iq2_k) X(iq3_k) X(iq4_k) X(iq4_ks) X(iq5_k)
/* clang-format on */
#define GEMM_ONE_ROW(X)     X(q5_0) X(q5_1) X(q2_k) X(q3_k) X(iq2_xxs) X(iq2_xs) X(iq2_s) X(iq3_xxs) X(iq4_nl) X(mxfp4)
/* Of RARE, what has two scales and two minima for 32 elements; what has two scales for 32, and weights of more than 32.
 */
#define GEMM_HALF_MINIMA(X) X(q2_k)
#define GEMM_HALF_LARGE(X)  X(iq1_m) X(iq2_k) X(iq2_s) X(iq2_xs) X(iq3_k) X(iq4_k) X(iq5_k)
/* Of COMMON, what has whole numbers as scales: how many sums of 128 elements with activations of 8 bits stay exact in a
 * float, the largest being 15 63 127 (q4_k) and 15 31 127 (iq3_s), 31 63 127, 32 128 127; what has weights of at
 * most 15. */
#define GEMM_A8(X)          X(q4_k, 1) X(iq3_s, 1) X(q5_k, 2) X(q6_k, 4)
#define GEMM_SMALL(X)       X(q4_k) X(iq3_s)
/* Those whose products are of decoded floats. */
#define GEMM_FLOAT(X)       X(f32) X(f16) X(bf16) X(f64) X(i8) X(i16) X(i32) X(i64) X(iq6_k)

/* Sets of formats, which the table names. */
enum gemm_formats {
    GEMM_FORMATS_FLOAT,  /* decoded to floats; activations are not rounded */
    GEMM_FORMATS_STORED, /* decoded to whole numbers */
    GEMM_FORMATS_COMMON,
    GEMM_FORMATS_FAST_ROW, /* COMMON and ONE_ROW */
    GEMM_FORMATS_TILED,    /* STORED less HALF_MINIMA */
    GEMM_FORMATS_A16,      /* TILED less HALF_LARGE: 16 products of 16 bits stay whole in a float */
    GEMM_FORMATS_A8,       /* sums stay whole through 128 elements, or a part of them, with activations of 8 bits */
    GEMM_FORMATS_RARE,     /* STORED less COMMON */
    GEMM_N_FORMATS
};
bool gemm_formats_have(enum gemm_formats f, int type);
bool gemm_knows(int type); /* it is in one of them: a GPU has kernels for it */
const char *gemm_formats_name(enum gemm_formats f);

enum {
    GEMM_R2_16_MAX = 16, /* rows of activations, the most of a launch of moe_r2_16 */
    GEMM_FEW_ROWS = 64,  /* the most of a launch of gemm_r2_16, and of operations that share launches */
    GEMM_ATTN_ROWS = 32, /* the same of attention, which has partial sums for each */
    GEMM_R64_ROWS = 64,  /* from here on wgmma pays */
    GEMM_R64_PAIRS = 8,  /* the same of experts: uses of one, on average */
    GEMM_FEW_PAIRS = 24, /* with 16 bits on sm_90 from here on */
    GEMM_FUSED_LONGEST =
        8192, /* elements of a row in gemv_r1_fused: at most 16 threads share a sum, 512 elements each */
};

enum { GEMM_ACTS_16 = 1, GEMM_ACTS_8 = 2 }; /* bits of rounded activations */
enum gemm_of { GEMM_OF_MATRICES, GEMM_OF_EXPERTS };

enum gemm_index {
    GEMM_FLOAT_ROWS,
    GEMM_FLOAT_OUTPUT,
    GEMM_FLOAT_TILES,
    GEMM_R1_FUSED,
    GEMM_R2_16_LARGE,
    GEMM_R2_16_RESIDENT,
    GEMM_R2_16,
    GEMM_R64_A8_WGMMA,
    GEMM_R64_A16_WGMMA,
    GEMM_R17_A8_MMA,
    GEMM_R17_MMA,
    GEMM_STORED_ROWS,
    GEMM_EXPERTS_R2_16,
    GEMM_EXPERTS_R17_COLUMNS,
    GEMM_EXPERTS_R17_COLUMNS_A16,
    GEMM_EXPERTS_R64_A8_WGMMA,
    GEMM_EXPERTS_R64_A16_WGMMA,
    GEMM_EXPERTS_R17_A8_MMA,
    GEMM_EXPERTS_R17_MMA,
    GEMM_EXPERTS_STORED,
    GEMM_EXPERTS_FLOAT,
    GEMM_N_KERNELS
};

struct gemm_kernel {
    const char *name; /* as its file in kernels/, without .cu or .cuh */
    enum gemm_of of;
    enum gemm_formats formats;
    int all;                    /* enum gemm_formats that all matrices of the launch must be in; -1: any */
    int64_t rows_min, rows_max; /* of activations; of a step, for experts */
    int64_t k_max;              /* elements of a row of weights */
    int64_t n_max;              /* rows of weights */
    int64_t each_min, each_end; /* uses of an expert, on average: from, below */
    unsigned acts;
    int sm;           /* compute capability that it needs, 90: only that; 0: any */
    bool refuses;     /* it looks at shapes, too, and may leave a product to the next */
    const char *note; /* when, or how; or NULL */
};
extern const struct gemm_kernel gemm_kernels[GEMM_N_KERNELS];
/* Whether pairs, the uses of experts, are few for each: the common formats then go by columns. */
bool gemm_few_uses(int64_t pairs, int64_t n_expert, bool eight, int sm);

struct gemm_product {
    enum gemm_of of;
    int type;         /* of the matrix, a row of quant_types[] */
    const int *types; /* [n_types] of all matrices of the launch */
    int n_types;
    int64_t rows, k, n;
    int64_t pairs, n_expert; /* of experts: uses in the step; experts of the layer */
    bool eight;              /* activations are rounded to 8 bits */
    int sm;                  /* of the device: 90, 120 */
    int only;                /* 1 + the kernel that is to be taken where it can be, for tests; 0: the first */
};
/* Whether row i takes it, shapes aside. */
bool gemm_takes(int i, const struct gemm_product *p);
/* The first row from `from` on that takes it; -1: none. */
int gemm_pick(const struct gemm_product *p, int from);
#endif
