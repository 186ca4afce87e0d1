/* SPDX-License-Identifier: Apache-2.0 */
/* bytes.h - products with activations of 8 bits, of panels of weights.          room: cpu (base quant ops)
 *
 * Every set gives the bytes of quant_dot_ints() with QUANT_ACTS_I8; bytes_scalar.c is the specification.
 */
#ifndef CPU_BYTES_H
#define CPU_BYTES_H
#include "quant/quant.h"

/* n rows of weights as bytes, one after the other. */
struct cpu_bytes_panel {
    struct quant_bytes *u;
    int                 n;
    int                 n_min;  /* as the type has it */
    bool                sub_16; /* likewise */
};

struct cpu_bytes {
    const char *name;
    /* y[j][at + i] = <w_i, x_j> for i < w->n, j < nx; k elements, a multiple of 256 */
    void (*dots)(float *const *y, int64_t at, const struct cpu_bytes_panel *w, const struct quant_acts *const *x,
                 int nx, int64_t k);
};

extern const struct cpu_bytes cpu_bytes_scalar;
#endif
