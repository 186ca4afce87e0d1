/* SPDX-License-Identifier: Apache-2.0 */
/* format.h - the CPU device's code for a tensor type: fast decoders, integer products.   room: cpu
 *
 * A type needs nothing here: without a row in formats.def it is decoded by quant_types[], and its products take floats.
 * A type with fast code has a file formats/NAME.c with its struct cpu_format and a line in formats.def. Files named
 * formats/acts16_*, acts8_* make products with activations of that many bits from the code that unpacks a format's
 * blocks.
 */
#ifndef CPU_FORMAT_H
#define CPU_FORMAT_H
#include "quant/quant.h"

/* Integer products. A type with `ints` is, in blocks of 256 elements, whole numbers times one float
 * scale, less a minimum for each 256 / n_min of them where n_min (8 or 16) is not 0:
 *     weight = scale * w[i] - min[i * n_min / 256],   |w[i]| <= 2048, or 4096 where `wide` is set
 * A type whose own blocks are of 32 has a scale for each of them: weight = scale[i / 32] * w[i]. Its rows
 * have integer products where they are a multiple of 256 long, or longer than that: then as if elements followed that
 * are stored as zero bytes, up to a multiple. Activations are rounded to 16 bits, for wide weights to 15, so that the
 * sum of 32 products never leaves an int32. A block's elements are dealt to 8 lanes, element i to lane i % 32 / 4: the
 * 32 of a lane share the scale of activations and are summed exactly. Both arrays hold element i at cpu_int_place(i):
 * each 32 places have the even elements of one group of 32, or the odd ones, then those of the group 64 further on.
 * Place p thus belongs to lane p % 16 / 2, and a mask and a shift turn bytes of codes into words. Arrays of blocks are
 * 64-byte aligned. */
enum { CPU_INT_BLOCK = 256, CPU_INT_LANES = 8 };
static inline int cpu_int_place(int i)
{
    return i / 128 * 128 + i / 32 % 2 * 64 + i % 2 * 32 + i / 64 % 2 * 16 + i % 32 / 2;
}
static inline bool cpu_int_row(int64_t n)
{
    return n % CPU_INT_BLOCK == 0 || n > CPU_INT_BLOCK;
}
/* n, or what it is made up to. */
static inline int64_t cpu_int_whole(int64_t n)
{
    return (n + CPU_INT_BLOCK - 1) / CPU_INT_BLOCK * CPU_INT_BLOCK;
}
struct cpu_int_block {
    int16_t w[256];
    float min[16];   /* n_min of them; the others are untouched */
    float scale[16]; /* the same 16 times, or 8 of groups of 32 */
};
/* The same as bytes, for activations of 8 bits:
 *     weight = scale[i / 32] * (sub[i / 16] * code[i]) - min,   |sub * code| <= 4096
 * where min is min[i / 32] (n_min 8) or, of the first 16 elements of group g of 32, min[g], of the others min[g + 8]
 * (n_min 16). Without `sub_16` both halves of a group have the same sub. There a lane is such a group. */
struct cpu_byte_block {
    int8_t code[256]; /* in the order of the row */
    float min[16];    /* n_min of them; the others are untouched */
    float scale[8];
    int8_t sub[16];
    int8_t pad[16]; /* to a multiple of 64 */
};
/* And as panels of bytes begin (cpu/acts8.h), in the order of the row or in steps: then element i lies at
 * cpu_step_place(i), more by the type's `low` where its span is no more than 128. */
struct cpu_code_block {
    int8_t code[256];
    union {              /* sub_16: sub */
        int32_t sub[16]; /* of groups' first halves, then of their second ones, as both words of a pair */
        float sub_f[16]; /* or of each 16 elements (cpu_pair_fn) */
    };
    float scale[8]; /* sub_16: scale, else scale * (float)sub of cpu_byte_block */
    float min[16];  /* as there */
    int32_t pad[8]; /* to a multiple of 64 */
};
/* Bytes of activations lie in the order of the row and in three others. Steps: the same four elements of all groups
 * side by side. Halves: those of group g before those of g + 4, as bytes do of which a nibble each belongs to two
 * groups. Fours: dword j of each 64 bytes is of the 16 elements from 16 j on. */
static inline int cpu_step_place(int i)
{
    return i % 32 / 4 * 32 + i / 32 * 4 + i % 4;
}
static inline int cpu_half_place(int i)
{
    return i / 32 % 4 * 64 + i / 16 % 2 * 32 + i / 128 * 16 + i % 16;
}
static inline int cpu_fours_place(int i)
{
    return i / 4 % 4 * 64 + i / 16 * 4 + i % 4;
}
struct cpu_act_block {
    union {
        int16_t q[256];        /* -top .. top: 16 bits and 15 */
        struct {               /* 8 bits: top is 127 */
            int8_t b[256];     /* in the order of the row */
            int8_t step[256];  /* element i at cpu_step_place(i) */
            int8_t half[256];  /* at cpu_half_place(i) */
            int8_t fours[256]; /* at cpu_fours_place(i) */
            int32_t less[16];  /* -128 times `whole` */
            int16_t whole[16]; /* sums of 16 elements in a row, before their scale */
        };
    };
    float scale[8];  /* of lanes */
    float sum_32[8]; /* of each 32 elements in a row */
    float sum[16];   /* of each 16; of 8 bits those of the first 16 of each group, then those of the others */
    float pad[24];   /* an odd number of lines of the cache: blocks would share some */
};
typedef void cpu_ints_fn(struct cpu_int_block *u, const void *row, int64_t n);
typedef void cpu_bytes_fn(struct cpu_byte_block *u, const void *row, int64_t n);
typedef void cpu_codes_fn(struct cpu_code_block *u, const void *row, int64_t n, bool steps);
/* Two rows of n blocks of 256, codes more by 128 unless `low` is 0. Steps of both lie side by side, 64 bytes: of block
 * i the first four in u[i], the others in u[n + i], everything else where each row's block is. */
typedef void cpu_pair_fn(struct cpu_code_block *u, const void *row, const void *next, int64_t n);
/* 16 rows of n_row blocks of 256 as columns (cpu/acts8_amx.c), each of these for group g of block b at [g * n_row + b]:
 * codes as they are, four elements of a row side by side, and floats of cpu_code_block by rows; a minimum of all 32 is
 * the first half's. */
struct cpu_columns {
    int8_t (*code)[8][16][4];
    float (*scale)[16];
    float (*min)[2][16], (*sub)[2][16];
    int64_t n_row;
    /* Meanwhile, with every 512 bytes, this many cache lines of what comes next are prefetched to the second-level
     * cache; `next` moves on. */
    const char *next;
    int lines;
};
typedef void cpu_columns_fn(struct cpu_columns *to, const char *const row[16]);
/* Rows laid out for columns and for vnni (acts8_laid_body.h), 16 side by side: a dword of each, one after the other. 16
 * rows take what they did, and stay where they were. n: elements of a row, a multiple of 256. */
enum { CPU_LAID = 16 };
/* For AVX2 each row stays where it was: the scales of all groups, as halves, then codes in steps (cpu_step_place()). */
typedef void cpu_lay_fn(void *to, const void *rows, int64_t row_bytes, int64_t n);
typedef void cpu_columns_laid_fn(struct cpu_columns *to, const char *rows);
/* n_rows of them, a multiple of 16, by n vectors of 8 bits: y[j][at + i], the bytes of the sum stated below. */
enum { CPU_LAID_VECTORS = 8, CPU_LAID_BUF = 8 * 16 * 5 * 4 /* a scale, two minima and two sub-scales of 8 groups */ };
struct cpu_laid {
    const char *rows;
    int64_t n_rows, n_row; /* n_row: 256 elements each */
    const struct cpu_act_block *const *x;
    float *const *y;
    int64_t at;
    int n;     /* vectors, 1 to CPU_LAID_VECTORS */
    void *buf; /* CPU_LAID_BUF * n_row bytes, 64-byte aligned */
    /* What is fetched to the second-level cache meanwhile. With one vector: what lies `ahead` bytes further on. With
     * several: the 16 rows after those that are multiplied, after the last ones 16 at `next` (NULL: none); nothing if
     * ahead is 0. */
    int64_t ahead;
    const char *next;
};
typedef void cpu_laid_fn(const struct cpu_laid *p);
/* 16 rows, laid out, by more than CPU_LAID_VECTORS and up to 16 vectors, packed for tiles of AMX, which are configured
 * (cpu/acts8_amx.c): of each group of 32 of each block, the same group of all blocks first, 32 bytes of all vectors,
 * their scales and sums of what minima are for. */
struct cpu_tiles {
    const char *rows;
    int64_t n_row;
    const int8_t (*q)[16][32];
    const float (*scale)[16];
    const float (*sum)[2][16];
    int twos;         /* vectors, in twos */
    void *buf;        /* as of cpu_laid */
    float *out;       /* of a group, vector and row, 16 vectors and 16 rows each, 64-byte aligned */
    const char *next; /* what to fetch to the second-level cache meanwhile, CPU_LAID rows */
};
typedef void cpu_tiles_fn(const struct cpu_tiles *p);
struct cpu_format;
/* Whole numbers from f->bytes; ints() of the type `name`. */
void cpu_ints_of(struct cpu_int_block *u, const void *row, int64_t n, const struct cpu_format *f);
#define CPU_INTS(name) \
    extern const struct cpu_format cpu_format_##name; \
    static void ints(struct cpu_int_block *u, const void *row, int64_t n) \
    { \
        cpu_ints_of(u, row, n, &cpu_format_##name); \
    }
/* scale = max / top, max the largest magnitude in the lane; q = x * (top / max), to nearest even; a
 * max that is not finite makes scale NaN and q 0, one below 2^-100 makes both 0. sum: 16 elements
 * lie in 4 lanes; t[l] = scale * (float)(sum of its 4 q), l < 4, ascending, then t[l] += t[l + 2], then 1;
 * sum_32[g] = sum[2 g] + sum[2 g + 1]. Of 8 bits: sums of whole numbers, times the lane's scale.
 * top: cpu_acts_top() of the weights' type. */
typedef void cpu_round_fn(struct cpu_act_block *a, const float *x, int64_t n, int top);
/* y[i] = product of row i with a, i < n_rows; the bytes of the sum stated below. Rows follow each other: row_bytes is
 * quant_row_bytes(). */
typedef void cpu_int_dots_fn(float *y, const void *rows, int64_t row_bytes, int n_rows, const struct cpu_act_block *a,
                             int64_t n);
/* The same by two vectors of 8 bits, so that a row is unpacked once for both. */
typedef void cpu_int_two_fn(float *const y[2], const void *rows, int n_rows, const struct cpu_act_block *const a[2],
                            int64_t n);
/* Stored rows by several vectors, so that a row is unpacked once for all. Blocks of 256 from `first` on are added, of
 * each row and vector, to sum[row][vector][lane] and to less, which is not touched without minima. */
enum { CPU_TILE_VECTORS = 8, CPU_TILE_BLOCKS = 8 };
struct cpu_int_tile {
    const void *rows;  /* follow each other */
    int64_t row_bytes; /* quant_row_bytes() */
    int64_t ahead;     /* bytes from what is taken to what is fetched meanwhile */
    int64_t first;
    int n_blocks;                         /* at most CPU_TILE_BLOCKS */
    int n_rows, n;                        /* n: vectors, 2, 4, 6 or 8 */
    const struct cpu_act_block *const *x; /* whole vectors */
    float *sum, *less;                    /* 32-byte aligned */
};
typedef void cpu_int_tile_fn(const struct cpu_int_tile *p);

struct cpu_format {
    int type;                       /* row of quant_types[] */
    quant_decode_fn *decode_avx2;   /* or NULL; both the bytes of quant_type.decode, faster */
    quant_decode_fn *decode_avx512; /* or NULL */
    int n_min;                      /* minima in a block of whole numbers: 0, 8 or 16 */
    bool sub_16;                    /* scales of whole numbers are of 16 elements, not 32 */
    bool wide;
    cpu_ints_fn *ints;      /* or NULL */
    cpu_ints_fn *ints_avx2; /* or NULL; both the same bytes faster */
    cpu_ints_fn *ints_avx512;
    cpu_bytes_fn *bytes;           /* NULL where ints is */
    cpu_codes_fn *codes_avx2;      /* or NULL */
    uint8_t low, span;             /* with that, code + low is at least 0 and at most span */
    cpu_int_dots_fn *dots_avx2;    /* or NULL; straight from the stored rows */
    cpu_int_dots_fn *dots_i8_avx2; /* the same, for activations of 8 bits */
    cpu_int_two_fn *two_i8_avx2;   /* or NULL */
    cpu_int_dots_fn *dots_vnni;    /* or NULL; AVX-512 with VNNI */
    cpu_int_dots_fn *dots_i8_vbmi; /* or NULL: for activations of 8 bits; with VBMI, too */
    cpu_int_dots_fn *dots_i8_near; /* where there is that: rows are fetched less far ahead, for processors with AMX */
    cpu_pair_fn *pair_vbmi;        /* where there is dots_i8_vbmi */
    cpu_columns_fn *columns_vbmi;  /* or NULL; what pairs of rows would give, faster */
    cpu_lay_fn *lay_avx2;          /* or NULL; for sets without VNNI */
    cpu_lay_fn *lay;               /* or NULL; the next ones, for AVX-512 with VNNI and VBMI, take what it lays out */
    cpu_laid_fn *dots_laid;
    cpu_columns_laid_fn *columns_laid;
    cpu_tiles_fn *tiles_laid;   /* with AMX, too */
    cpu_int_tile_fn *tile_avx2; /* or NULL */
};
/* Of a row of quant_types[]; all NULL and 0 where the type has none. */
const struct cpu_format *cpu_format_of(int type);

/* The fastest decoder for these processor features (simd_features()). */
quant_decode_fn *cpu_decoder(int type, unsigned simd);

/* Likewise for whole numbers; NULL where the type has none. */
cpu_ints_fn *cpu_int_decoder(int type, unsigned simd);
cpu_int_dots_fn *cpu_int_dotter(int type, enum quant_acts_type acts, unsigned simd);
cpu_int_two_fn *cpu_int_twos(int type, enum quant_acts_type acts, unsigned simd);
cpu_int_tile_fn *cpu_int_tiler(int type, enum quant_acts_type acts, unsigned simd);
cpu_lay_fn *cpu_layer(int type, enum quant_acts_type acts, unsigned simd);
cpu_round_fn *cpu_rounder(unsigned simd);
/* What activations are rounded to for weights of this type: 32767, 16383 or 127. */
int cpu_acts_top(int type, enum quant_acts_type acts);

/* What a product of a stored row with a float vector is, in every matmul of the device "cpu"; tests/unit/dots.h has it
 * in code. Decode, then 16 running sums, sum[i % 16] = fmaf(w[i], x[i], sum[i % 16]), i ascending, then pairwise:
 * sum[j] += sum[j + 8] for j < 8, then 4, 2, 1.
 * With activations rounded, for types with `ints`: for each block of 256, ascending, and each j < 8
 *     sum[j] = fmaf(scale * x.scale[j], (float)dot[j], sum[j])
 * where dot[j] is the exact integer sum of lane j's products. With activations of 8 bits these are of codes and bytes,
 * and sub of them where it is for 16 elements; else scale is scale[j] * (float)sub. Of 16 bits with a scale for each
 * 32, instead, for each group, ascending, from t = 0
 *     t = fmaf(scale[group], (float)dot, t)
 * where dot is the sum of the lane's 4 products in the group, and then sum[j] = fmaf(x.scale[j], t, sum[j]).
 * With minima, for each block and j < 8
 *     less[j] = fmaf(min[j], x.sum_32[j], less[j])                     (n_min 8)
 *     less[j] = fmaf(min[j + 8], x.sum[j + 8], fmaf(min[j], x.sum[j], less[j]))   (n_min 16)
 * and at last sum[j] -= less[j]; then pairwise as above, from 4. |dot| < 2^24 with 8 bits, so that floats hold it.
 * Rounding moves an activation by at most max / (2 top - 1), max the largest magnitude in its lane. */
#endif
