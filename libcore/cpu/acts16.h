/* SPDX-License-Identifier: Apache-2.0 */
/* acts16.h - integer products of the CPU device, one set per instruction set.      room: cpu
 *
 * Every set gives the bytes of the sum that cpu/format.h states; acts16_scalar.c is the specification.
 */
#ifndef CPU_ACTS16_H
#define CPU_ACTS16_H
#include "cpu/format.h"

/* n rows of weights as whole numbers, one after the other. */
struct cpu_ints_panel {
    struct cpu_int_block *u;
    int n;
    int n_min;   /* as the type has it */
    bool groups; /* a scale for each 32 */
};

/* n rows as they are stored, and the code for their type. */
struct cpu_ints_rows {
    cpu_int_tile_fn *tile;
    const void *rows;
    int64_t row_bytes;
    int n, n_min;
};

struct cpu_ints {
    const char *name;
    /* y[j][at + i] = <w_i, x_j> for i < w->n, j < nx; k elements, a multiple of 256 */
    void (*dots)(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct cpu_act_block *const *x,
                 int nx, int64_t k);
    /* The same straight from stored rows; AVX2 alone has it. */
    void (*rows)(float *const *y, int64_t at, const struct cpu_ints_rows *w, const struct cpu_act_block *const *x,
                 int nx, int64_t k);
};

extern const struct cpu_ints cpu_ints_scalar, cpu_ints_avx2, cpu_ints_avx512, cpu_ints_vnni;
#if !defined(__x86_64__) /* sets that no other processor has: never chosen */
#define cpu_ints_avx2   cpu_ints_scalar
#define cpu_ints_avx512 cpu_ints_scalar
#define cpu_ints_vnni   cpu_ints_scalar
#endif
#endif
