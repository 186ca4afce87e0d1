/* SPDX-License-Identifier: Apache-2.0 */
/* dots.h - the dot products that cpu/format.h states, which define what every product of the CPU device gives: of
 * floats, of whole numbers. After cmocka.h. */
#ifndef TESTS_UNIT_DOTS_H
#define TESTS_UNIT_DOTS_H
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/format.h"

/* Products of one block with a scale for each 32. */
static inline void dot_add_groups(float sum[8], const struct cpu_int_block *u, const struct cpu_act_block *a)
{
    float t[8] = { 0 };

    for (int i = 0; i < 256; i += 4) {
        int p = cpu_int_place(i), j = i % 32 / 4;
        int32_t dot =
            u->w[p] * a->q[p] + u->w[p + 1] * a->q[p + 1] + u->w[p + 32] * a->q[p + 32] + u->w[p + 33] * a->q[p + 33];

        t[j] = fmaf(u->scale[i / 32], (float)dot, t[j]);
    }
    for (int j = 0; j < 8; j++)
        sum[j] = fmaf(a->scale[j], t[j], sum[j]);
}

static inline void dot_add_minima(float less[8], const float *min, const struct cpu_act_block *a, int n_min)
{
    const float *sum = n_min == 8 ? a->sum_32 : a->sum;

    for (int i = 0; i < n_min; i++)
        less[i % 8] = fmaf(min[i], sum[i], less[i % 8]);
}

static inline void dot_add_ints(float sum[8], float less[8], const struct cpu_format *f, const void *block,
                                const struct cpu_act_block *a)
{
    struct cpu_int_block u;
    int64_t dot[8] = { 0 };

    f->ints(&u, block, CPU_INT_BLOCK);
    if (quant_types[f->type]->block_elems == 32) {
        dot_add_groups(sum, &u, a);
        return;
    }
    for (int p = 0; p < CPU_INT_BLOCK; p++)
        dot[p % 16 / 2] += u.w[p] * a->q[p];
    for (int j = 0; j < 8; j++) {
        assert_true(dot[j] >= INT32_MIN && dot[j] <= INT32_MAX);
        sum[j] = fmaf(u.scale[j] * a->scale[j], (float)dot[j], sum[j]);
    }
    dot_add_minima(less, u.min, a, f->n_min);
}

static inline void dot_add_bytes(float sum[8], float less[8], const struct cpu_format *f, const void *block,
                                 const struct cpu_act_block *a)
{
    struct cpu_byte_block u;
    int32_t dot[8] = { 0 };

    f->bytes(&u, block, CPU_INT_BLOCK);
    for (int i = 0; i < CPU_INT_BLOCK; i++)
        dot[i / 32] += (f->sub_16 ? u.sub[i / 16] : 1) * u.code[i] * a->b[i];
    for (int j = 0; j < 8; j++) {
        float scale = f->sub_16 ? u.scale[j] : u.scale[j] * (float)u.sub[2 * j];

        assert_true(abs(dot[j]) < 1 << 24);
        sum[j] = fmaf(scale * a->scale[j], (float)dot[j], sum[j]);
    }
    dot_add_minima(less, u.min, a, f->n_min);
}

/* n lanes, a power of two. */
static inline float dot_fold(float *sum, int n)
{
    for (int half = n / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            sum[j] += sum[j + half];
    return sum[0];
}

static inline float dot_floats(int type, const void *row, const float *x, int64_t n)
{
    float *w = malloc((size_t)n * sizeof *w), sum[16] = { 0 };

    assert_true(w != NULL || n == 0);
    quant_types[type]->decode(w, row, n);
    for (int64_t i = 0; i < n; i++)
        sum[i % 16] = fmaf(w[i], x[i], sum[i % 16]);
    free(w);
    return dot_fold(sum, 16);
}

static inline float dot_ints(int type, enum quant_acts_type acts, const void *row, const float *x, int64_t n)
{
    const unsigned char *block = row;
    float sum[8] = { 0 }, less[8] = { 0 };

    const struct quant_type *t = quant_types[type];
    const struct cpu_format *f = cpu_format_of(type);

    for (int64_t at = 0; at < n; at += CPU_INT_BLOCK, block += CPU_INT_BLOCK / t->block_elems * t->block_bytes) {
        _Alignas(4) unsigned char w[CPU_INT_BLOCK * sizeof(float)] = { 0 };
        float v[CPU_INT_BLOCK] = { 0 };
        int64_t m = n - at < CPU_INT_BLOCK ? n - at : CPU_INT_BLOCK;
        struct cpu_act_block a;

        memcpy(w, block, (size_t)(m / t->block_elems * t->block_bytes));
        memcpy(v, x + at, (size_t)m * sizeof *v);
        cpu_rounder(0)(&a, v, CPU_INT_BLOCK, cpu_acts_top(type, acts));
        (acts == QUANT_ACTS_I8 ? dot_add_bytes : dot_add_ints)(sum, less, f, w, &a);
    }
    for (int j = 0; f->n_min > 0 && j < 8; j++)
        sum[j] -= less[j];
    return dot_fold(sum, 8);
}
#endif
