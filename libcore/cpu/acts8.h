/* SPDX-License-Identifier: Apache-2.0 */
/* acts8.h - products with activations of 8 bits, of several vectors.             room: cpu
 *
 * Every set gives the bytes of the sum of 8 bits that cpu/format.h states; acts8_scalar.c is the specification.
 */
#ifndef CPU_ACTS8_H
#define CPU_ACTS8_H
#include "cpu/format.h"

/* n rows of weights as they are stored, row_bytes apart, or laid out (cpu_lay_fn), which avx2, vnni and amx take. */
struct cpu_bytes_rows {
    const struct cpu_format *format;
    const char *rows;
    int64_t row_bytes;
    int64_t n;
    bool laid;
    const char *next; /* of laid out rows: those that are multiplied after these, or NULL */
};

/* What `buf` has of vectors since the last call, if nobody else has written there and they are the same: x NULL for nothing. */
struct cpu_bytes_kept {
    const struct cpu_act_block *const *x;
    int n, n_min;
};
/* n vectors; their products with the rows are y[j][at ...]. */
struct cpu_bytes_vectors {
    float *const *y;
    int64_t at;
    const struct cpu_act_block *const *x;
    int n;
    struct cpu_bytes_kept *kept; /* or NULL */
};

struct cpu_bytes {
    const char *name;
    /* k elements, a multiple of 256 and not 0; buf: need(k) bytes, 64-byte aligned. But for the scalar set types with
     * codes_avx2. vnni and amx need VBMI and GFNI, too. */
    void (*dots)(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf);
    size_t (*need)(int64_t k);
};

/* Of rows laid out by vnni: as many at a time as stay in the second-level cache while all vectors pass; one vector's are
 * prefetched this many bytes ahead, of several the next 16. */
void cpu_bytes_laid(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf, int64_t ahead);

extern const struct cpu_bytes cpu_bytes_scalar, cpu_bytes_avx2, cpu_bytes_avxvnni, cpu_bytes_vnni_ymm, cpu_bytes_vnni,
    cpu_bytes_amx;
#if !defined(__x86_64__) /* sets that no other processor has: never chosen */
#define cpu_bytes_avx2     cpu_bytes_scalar
#define cpu_bytes_avxvnni  cpu_bytes_scalar
#define cpu_bytes_vnni_ymm cpu_bytes_scalar
#define cpu_bytes_vnni     cpu_bytes_scalar
#define cpu_bytes_amx      cpu_bytes_scalar
#endif
/* Asks the system for tiles, for all threads that this one starts; cpu_bytes_amx needs that. */
bool cpu_bytes_amx_allowed(void);

/* What x86 sets share (acts8_avx2.c): rows are unpacked a panel at a time, vectors pass it a few at a time. A panel has
 * multiples of CPU_BYTES_FOUR rows (the last one again), which are multiplied in strips, blocks
 * CPU_BYTES_DEPTH at a time; of vnni whole rows. */
enum { CPU_BYTES_VECTORS = 4, CPU_BYTES_FOUR = 4, CPU_BYTES_STRIP = 16, CPU_BYTES_DEPTH = 8 };

/* Some rows and, where a tile gets it, the blocks of them that it takes. */
struct cpu_bytes_part {
    const struct cpu_code_block *w; /* n_row blocks apart, as take() leaves them, or laid out rows: */
    const char *laid;
    int64_t row_bytes;
    const struct cpu_act_block *const *x;
    int64_t n_row, first, n_blocks;
    int rows, low, n_min; /* low: what codes are more by than weights' */
    const char *next;     /* stored rows to fetch to the second-level cache meanwhile */
    int64_t n_next;       /* bytes of them, a multiple of 64; only tiles of vnni do */
};
struct cpu_bytes_code {
    /* n rows of n_row blocks from `rows` on, and after them the last again until they are a multiple of CPU_BYTES_FOUR */
    void (*take)(struct cpu_code_block *to, const struct cpu_format *t, const char *rows, int64_t row_bytes, int64_t n,
                 int64_t n_row);
    int (*low)(const struct cpu_format *t);
    /* Up to CPU_BYTES_STRIP rows by n vectors: y[j][at ...] */
    void (*strip)(float *const *y, int64_t at, struct cpu_bytes_part *p, const struct cpu_format *t, int n);
    int few; /* vectors, for which rows stay in the first-level cache; of more, in the second */
};
void cpu_bytes_dots(const struct cpu_bytes_code *code, struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k,
                    struct cpu_code_block *buf);
size_t cpu_bytes_need(int64_t k);

/* Of AVX2: n rows of n_row blocks unpacked, to the order of the row or to steps (codes_avx2). */
void cpu_bytes_codes(struct cpu_code_block *to, struct cpu_bytes_rows w, int64_t n_row, bool steps);
/* Rows unpacked to a panel; a strip by a tile, which adds sums of its blocks to sum[row][vector][lane], those of repeated
 * rows, too, and begins them at block 0. */
typedef void cpu_bytes_tile_fn(float *sum, const struct cpu_bytes_part *p);
void cpu_bytes_take(struct cpu_code_block *to, const struct cpu_format *t, const char *rows, int64_t row_bytes,
                    int64_t n, int64_t n_row);
void cpu_bytes_strip(float *const *y, int64_t at, struct cpu_bytes_part *p, cpu_bytes_tile_fn *tile, int n);
#endif
