/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_scalar.c - GEMV and GEMM with 8-bit activations in plain C: the sums of cpu/format.h, row by row. */
#include <math.h>

#include "cpu/acts8.h"

static float fold_lanes(float sum[CPU_INT_LANES])
{
    for (int half = CPU_INT_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            sum[l] += sum[l + half];
    return sum[0];
}

/* Of 16 elements. */
static int32_t dot_16(const int8_t *code, const int8_t *b)
{
    int32_t sum = 0;

    for (int i = 0; i < 16; i++)
        sum += code[i] * b[i];
    return sum;
}

static float dot_row(const struct cpu_byte_block *w, const struct cpu_act_block *x, int64_t k,
                     const struct cpu_format *p)
{
    float sum[CPU_INT_LANES] = { 0 }, less[CPU_INT_LANES] = { 0 };

    for (int64_t b = 0; b < k / 256; b++, w++, x++) {
        const float *xs = p->n_min == 8 ? x->sum_32 : x->sum;

        for (int l = 0; l < CPU_INT_LANES; l++) {
            const int8_t *q = x->b + 32 * l;
            int32_t first = dot_16(w->code + 32 * l, q), second = dot_16(w->code + 32 * l + 16, q + 16);
            int32_t d = p->sub_16 ? w->sub[2 * l] * first + w->sub[2 * l + 1] * second : first + second;
            float   scale = p->sub_16 ? w->scale[l] : w->scale[l] * (float)w->sub[2 * l];

            sum[l] = fmaf(scale * x->scale[l], (float)d, sum[l]);
        }
        for (int i = 0; i < p->n_min; i++)
            less[i % 8] = fmaf(w->min[i], xs[i], less[i % 8]);
    }
    for (int l = 0; p->n_min > 0 && l < CPU_INT_LANES; l++)
        sum[l] -= less[l];
    return fold_lanes(sum);
}

static void dot_bytes(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    for (int64_t i = 0; i < w.n; i++) {
        w.format->bytes(buf, w.rows + i * w.row_bytes, k);
        for (int j = 0; j < v.n; j++)
            v.y[j][v.at + i] = dot_row(buf, v.x[j], k, w.format);
    }
}

static size_t buffer_bytes(int64_t k)
{
    return (size_t)((k + 255) / 256) * sizeof(struct cpu_byte_block);
}

const struct cpu_bytes cpu_bytes_scalar = { .name = "scalar", .dots = dot_bytes, .need = buffer_bytes };
