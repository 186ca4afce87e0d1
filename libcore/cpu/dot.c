/* SPDX-License-Identifier: Apache-2.0 */
/* dot.c - the dot products that define what every product of the CPU device gives: of floats, of whole numbers. */
#include "cpu/format.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { PIECE = CPU_INT_BLOCK }; /* elements that cpu_dot() decodes at a time; no block is longer */

/* Elements [at, at + n) of a row, n at most PIECE. A head and one block are a row of their own, so
 * a format with a head is decoded block by block behind a copy of the head. */
static void decode_piece(const struct quant_type *t, float *y, const void *row, int64_t at, int64_t n)
{
    const unsigned char *head = row;
    const unsigned char *block = head + t->head_bytes + at / t->block_elems * t->block_bytes;
    union {
        unsigned char bytes[512];
        double align;
    } one;

    if (t->head_bytes == 0) {
        t->decode(y, block, n);
        return;
    }
    assert((size_t)t->head_bytes + (size_t)t->block_bytes <= sizeof(one));
    memcpy(one.bytes, head, (size_t)t->head_bytes);
    for (int64_t i = 0; i < n; i += t->block_elems, block += t->block_bytes) {
        memcpy(one.bytes + t->head_bytes, block, (size_t)t->block_bytes);
        t->decode(y + i, one.bytes, t->block_elems);
    }
}

static void add_floats(float sum[16], const struct quant_type *t, const void *row, const float *x, int64_t n)
{
    float w[PIECE];

    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = n - at < PIECE ? n - at : PIECE;

        decode_piece(t, w, row, at, m);
        for (int64_t i = 0; i < m; i++)
            sum[i % 16] = fmaf(w[i], x[at + i], sum[i % 16]);
    }
}

void cpu_ints_of(struct cpu_int_block *u, const void *row, int64_t n, const struct cpu_format *f)
{
    const unsigned char *block = row;
    const struct quant_type *t = quant_types[f->type];

    for (int64_t at = 0; at < n; at += PIECE, u++, block += PIECE / t->block_elems * t->block_bytes) {
        struct cpu_byte_block b;

        f->bytes(&b, block, PIECE);
        for (int i = 0; i < PIECE; i++)
            u->w[cpu_int_place(i)] = (int16_t)(b.sub[i / 16] * b.code[i]);
        for (int i = 0; i < (t->block_elems == 32 ? 8 : 16); i++)
            u->scale[i] = b.scale[i % 8];
        for (int i = 0; i < f->n_min; i++)
            u->min[i] = b.min[f->n_min == 8 ? i : i % 2 * 8 + i / 2];
    }
}

/* Products of one block with a scale for each 32. */
static void add_groups(float sum[8], const struct cpu_int_block *u, const struct cpu_act_block *a)
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

static void add_minima(float less[8], const float *min, const struct cpu_act_block *a, int n_min)
{
    const float *sum = n_min == 8 ? a->sum_32 : a->sum;

    for (int i = 0; i < n_min; i++)
        less[i % 8] = fmaf(min[i], sum[i], less[i % 8]);
}

int cpu_acts_top(int type, enum quant_acts_type acts)
{
    assert(type >= 0 && type < QUANT_N && acts != QUANT_ACTS_F32);
    return acts == QUANT_ACTS_I8 ? 127 : cpu_format_of(type)->wide ? 16383 : 32767;
}

static void add_ints(float sum[8], float less[8], const struct cpu_format *f, const void *block,
                     const struct cpu_act_block *a)
{
    struct cpu_int_block u;
    int32_t dot[8] = { 0 };

    f->ints(&u, block, PIECE);
    if (quant_types[f->type]->block_elems == 32) {
        add_groups(sum, &u, a);
        return;
    }
    for (int p = 0; p < PIECE; p++)
        dot[p % 16 / 2] += u.w[p] * a->q[p];
    for (int j = 0; j < 8; j++)
        sum[j] = fmaf(u.scale[j] * a->scale[j], (float)dot[j], sum[j]);
    add_minima(less, u.min, a, f->n_min);
}

static void add_bytes(float sum[8], float less[8], const struct cpu_format *f, const void *block,
                      const struct cpu_act_block *a)
{
    struct cpu_byte_block u;
    int32_t dot[8] = { 0 };

    f->bytes(&u, block, PIECE);
    for (int i = 0; i < PIECE; i++)
        dot[i / 32] += (f->sub_16 ? u.sub[i / 16] : 1) * u.code[i] * a->b[i];
    for (int j = 0; j < 8; j++) {
        float scale = f->sub_16 ? u.scale[j] : u.scale[j] * (float)u.sub[2 * j];

        sum[j] = fmaf(scale * a->scale[j], (float)dot[j], sum[j]);
    }
    add_minima(less, u.min, a, f->n_min);
}

/* n lanes, a power of two. */
static float fold(float *sum, int n)
{
    for (int half = n / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            sum[j] += sum[j + half];
    return sum[0];
}

float cpu_dot(int type, const void *row, const float *x, int64_t n)
{
    float sum[16] = { 0 };

    assert(type >= 0 && type < QUANT_N && PIECE % quant_types[type]->block_elems == 0);
    add_floats(sum, quant_types[type], row, x, n);
    return fold(sum, 16);
}

float cpu_dot_ints(int type, enum quant_acts_type acts, const void *row, const float *x, int64_t n)
{
    const unsigned char *block = row;
    float sum[8] = { 0 }, less[8] = { 0 };

    assert(type >= 0 && type < QUANT_N && cpu_format_of(type)->ints != NULL);
    const struct quant_type *t = quant_types[type];
    const struct cpu_format *f = cpu_format_of(type);

    for (int64_t at = 0; at < n; at += PIECE, block += PIECE / t->block_elems * t->block_bytes) {
        _Alignas(4) unsigned char w[PIECE * sizeof(float)] = { 0 };
        float v[PIECE] = { 0 };
        int64_t m = n - at < PIECE ? n - at : PIECE;
        struct cpu_act_block a;

        memcpy(w, block, (size_t)(m / t->block_elems * t->block_bytes));
        memcpy(v, x + at, (size_t)m * sizeof *v);
        cpu_rounder(0)(&a, v, PIECE, cpu_acts_top(type, acts));
        (acts == QUANT_ACTS_I8 ? add_bytes : add_ints)(sum, less, f, w, &a);
    }
    for (int j = 0; f->n_min > 0 && j < 8; j++)
        sum[j] -= less[j];
    return fold(sum, 8);
}
