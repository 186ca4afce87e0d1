/* SPDX-License-Identifier: Apache-2.0 */
/* scans.h - inner loops of the recurrent layers, one set per instruction set; every set gives the same
 * bytes (see kernels.h).                                              room: cpu */
#ifndef CPU_SCANS_H
#define CPU_SCANS_H
#include <stdint.h>

struct cpu_scans {
    /* y = log(1 + exp(x + bias)); y may be x; bias may be NULL */
    void (*softplus)(float *y, const float *x, const float *bias, int64_t n);
    /* One token of Mamba-1 for n channels: state h [n_state][pitch], a likewise (negative), b and c
     * [n_state]; for each state s ascending: h = exp(dt a) h + dt x b[s]; y = d x + sum_s h c[s]. */
    void (*ssm1)(float *h, float *y, const float *x, const float *dt, const float *a, const float *d, const float *b,
                 const float *c, int n_state, int64_t pitch, int64_t n);
    /* One token of one head of the delta rule with a decay g for each key element (Kimi Delta
     * Attention): S [dim][dim_v]; kv_j = sum_i S[i][j] g[i] k[i]; d_j = beta (v_j - kv_j);
     * S[i][j] = g[i] S[i][j] + k[i] d_j; y_j = sum_i S[i][j] q[i]. kv [dim_v] is scratch. */
    void (*kda)(float *S, float *y, float *kv, const float *k, const float *q, const float *v, const float *g,
                float beta, int dim, int dim_v);
};

extern const struct cpu_scans cpu_scans_scalar, cpu_scans_avx2, cpu_scans_avx512;
#if !defined(__x86_64__) /* sets that no other processor has: never chosen */
#define cpu_scans_avx2   cpu_scans_scalar
#define cpu_scans_avx512 cpu_scans_scalar
#endif
#endif
