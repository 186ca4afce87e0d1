/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h - the inner loops of the CPU device, one set per instruction set.   room: cpu
 *
 * Every set gives the same bytes: sums run in a stated order with fused multiply-add, lanes are
 * independent of each other, and exp is our own polynomial. f32_scalar.c is the specification.
 * All arrays are float, unaligned, of n elements unless said otherwise; outputs do not overlap
 * inputs unless said so.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H
#include <stdint.h>

/* n tokens of a head: token r has keys k [dim] and queries q [dim] at r * dim, values v [dim_v] at r * ldv, its decay
 * g[r] and beta b[r], and y [dim_v] at r * ldy becomes its output. */
struct cpu_gdn {
    float *y;
    const float *k, *q, *v, *g, *b;
    int64_t ldy, ldv;
    int n;
};

/* n tokens of a head of Mamba-2: token r has x [dim], b and c [n_state] at r * ldx, its step dt[r] and decay[r], and y
 * [dim] at r * ldy becomes its output; d: of the head. */
struct cpu_ssm2 {
    float *y;
    const float *x, *b, *c, *decay, *dt;
    int64_t ldy, ldx;
    float d;
    int n;
};

struct cpu_kernels {
    const char *name;
    /* y[j][at + i] = <w_i, x_j> for i < nw, j < nx; w_i = w + i * ldw; k elements. The order of
     * sums: sum[l % 16] = fmaf(w[l], x[l], sum[l % 16]), then sum[j] += sum[j + 8], 4, 2, 1. */
    void (*dots)(float *const *y, int64_t at, const float *w, int64_t ldw, int nw, const float *const *x, int nx,
                 int64_t k);
    /* y = fmaf(a, x, y) */
    void (*axpy)(float *y, const float *x, float a, int64_t n);
    /* y[g] = y[g] + sum_r w[g][r] v_r, g < ny; v_r = v + r * ldv: axpy of r = 0 .. n_rows - 1 in turn */
    void (*mix)(float *const *y, const float *const *w, int ny, const float *v, int64_t ldv, int n_rows, int64_t n);
    /* dots and mix of rows of IEEE half-precision numbers, which are made floats as they are read */
    void (*dots_half)(float *const *y, int64_t at, const uint16_t *w, int64_t ldw, int nw, const float *const *x,
                      int nx, int64_t k);
    void (*mix_half)(float *const *y, const float *const *w, int ny, const uint16_t *v, int64_t ldv, int n_rows,
                     int64_t n);
    /* y = exp(x - m); y may be x */
    void (*exp_sub)(float *y, const float *x, float m, int64_t n);
    /* x = exp(s x - m), m the largest s x, returned; *sum = their sum, 16 running sums folded as in dots */
    float (*softmax)(float *x, float s, float *sum, int64_t n);
    /* y = y * w * s (w NULL: y * s) */
    void (*scale)(float *y, const float *x, const float *w, float s, int64_t n);
    /* y = silu(x); y may be x */
    void (*silu)(float *y, const float *x, int64_t n);
    /* y = silu(g) * u; y may be either */
    void (*silu_mul)(float *y, const float *g, const float *u, int64_t n);
    /* y = gelu(g) * u, see op_geglu(); y may be either */
    void (*gelu_mul)(float *y, const float *g, const float *u, int64_t n);
    /* y = y * sigmoid(g) */
    void (*sigmoid_mul)(float *y, const float *g, int64_t n);
    /* y[c] = bias[c] + sum_j w[j * ldw + c] * x[j][c], j < taps ascending; bias may be NULL */
    void (*conv)(float *y, const float *const *x, const float *w, int64_t ldw, const float *bias, int taps, int64_t n);
    /* Tokens of the gated delta rule (op_gdn) in turn, for one head: S [dim][dim_v] is updated; dim_v <= 1024. */
    void (*gdn)(float *S, const struct cpu_gdn *t, int dim, int dim_v);
    /* Tokens of Mamba-2 in turn, for one head, h [n_state][dim]: h = decay h + b[s] (dt x); y = d x + sum_s h c[s]. */
    void (*ssm2)(float *h, const struct cpu_ssm2 *t, int n_state, int dim);
    /* y = H x / sqrt(n), see op_hadamard(); n a power of two; y may be x */
    void (*hadamard)(float *y, const float *x, int n);
};

extern const struct cpu_kernels cpu_kernels_scalar, cpu_kernels_avx2, cpu_kernels_avx512;
#if !defined(__x86_64__) /* sets that no other processor has: never chosen */
#define cpu_kernels_avx2   cpu_kernels_scalar
#define cpu_kernels_avx512 cpu_kernels_scalar
#endif
#endif
