/* SPDX-License-Identifier: Apache-2.0 */
/* loops_scalar.c - the specification of the inner loops, in plain C. */
#define TARGET
#include "grad/loops_body.h"

enum { ROWS = 4 };

static void multiply_panel(float *out, const float *const *a, int64_t a_k, const float *b, int64_t n)
{
    for (int i = 0; i < ROWS; i++) {
        float *o = out + i * GRAD_COLS;

        for (int j = 0; j < GRAD_COLS; j++)
            o[j] = 0.0f;
        for (int64_t t = 0; t < n; t++)
            axpy(o, b + t * GRAD_COLS, a[i][t * a_k], GRAD_COLS);
    }
}

GRAD_LOOPS(scalar, ROWS);
