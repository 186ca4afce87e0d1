/* SPDX-License-Identifier: Apache-2.0 */
/* types.c - the table of block formats, its lookups, and dot product. */
#include "quant/quant.h"

#include "base/simd.h"
#include "quant/half.h"

#include <assert.h>
#include <math.h>

enum { BYTES = SIMD_AVX512_VNNI | SIMD_AVX512_VBMI }; /* what fours_body.h takes */
enum { PIECE = QUANT_INT_BLOCK }; /* elements that quant_dot decodes at a time; no block is longer */

#define QUANT(name) extern const struct quant_type quant_type_##name;
#include "quant/types.def"
#undef QUANT

const struct quant_type *const quant_types[QUANT_N] = {
#define QUANT(name) &quant_type_##name,
#include "quant/types.def"
#undef QUANT
};

int quant_find_id(uint32_t id)
{
    for (int i = 0; i < QUANT_N; i++)
        if (quant_types[i]->id == id)
            return i;
    return -1;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_name(struct str s, const char *name)
{
    size_t i = 0;

    for (; i < s.n && name[i] != '\0'; i++)
        if (lower(s.p[i]) != name[i])
            return false;
    return i == s.n && name[i] == '\0';
}

int quant_find_name(struct str name)
{
    for (int i = 0; i < QUANT_N; i++)
        if (same_name(name, quant_types[i]->name))
            return i;
    return -1;
}

int64_t quant_row_bytes(int type, int64_t ne0)
{
    assert(type >= 0 && type < QUANT_N);
    const struct quant_type *t = quant_types[type];

    if (ne0 < 0 || ne0 % t->block_elems != 0)
        return -1;
    if (ne0 / t->block_elems > (INT64_MAX - t->head_bytes) / t->block_bytes)
        return -1;
    return t->head_bytes + ne0 / t->block_elems * t->block_bytes;
}

quant_decode_fn *quant_decoder(int type, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    const struct quant_type *t = quant_types[type];

    if ((simd & SIMD_AVX512) != 0 && t->decode_avx512 != NULL)
        return t->decode_avx512;
    if ((simd & SIMD_AVX2) != 0 && t->decode_avx2 != NULL)
        return t->decode_avx2;
    return t->decode;
}

quant_ints_fn *quant_int_decoder(int type, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    const struct quant_type *t = quant_types[type];

    if ((simd & SIMD_AVX512) != 0 && t->ints_avx512 != NULL)
        return t->ints_avx512;
    if ((simd & SIMD_AVX2) != 0 && t->ints_avx2 != NULL)
        return t->ints_avx2;
    return t->ints;
}

quant_int_dots_fn *quant_int_dotter(int type, enum quant_acts_type acts, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    const struct quant_type *t = quant_types[type];

    if (acts == QUANT_ACTS_I8 && (simd & BYTES) == BYTES && t->dots_i8_vbmi != NULL)
        return (simd & SIMD_AMX_INT8) != 0 ? t->dots_i8_near : t->dots_i8_vbmi;
    if (acts != QUANT_ACTS_I8 && (simd & SIMD_AVX512_VNNI) != 0 && t->dots_vnni != NULL)
        return t->dots_vnni;
    return (simd & SIMD_AVX2) == 0 ? NULL : acts == QUANT_ACTS_I8 ? t->dots_i8_avx2 : t->dots_avx2;
}

quant_int_two_fn *quant_int_twos(int type, enum quant_acts_type acts, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    return acts == QUANT_ACTS_I8 && (simd & SIMD_AVX2) != 0 && (simd & BYTES) != BYTES ? quant_types[type]->two_i8_avx2
                                                                                       : NULL;
}

quant_int_tile_fn *quant_int_tiler(int type, enum quant_acts_type acts, unsigned simd)
{
    assert(type >= 0 && type < QUANT_N);
    return acts != QUANT_ACTS_I8 && (simd & (SIMD_AVX2 | SIMD_AVX512)) == SIMD_AVX2 ? quant_types[type]->tile_avx2 : NULL;
}

/* Elements [at, at + n) of a row, n at most PIECE. A head and one block are a row of their own, so
 * a format with a head is decoded block by block behind a copy of the head. */
static void decode_piece(const struct quant_type *t, float *y, const void *row, int64_t at,
                         int64_t n)
{
    const unsigned char *head = row;
    const unsigned char *block = head + t->head_bytes + at / t->block_elems * t->block_bytes;
    union {
        unsigned char bytes[512];
        double        align;
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

static void add_floats(float sum[16], const struct quant_type *t, const void *row, const float *x,
                       int64_t n)
{
    float w[PIECE];

    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = n - at < PIECE ? n - at : PIECE;

        decode_piece(t, w, row, at, m);
        for (int64_t i = 0; i < m; i++)
            sum[i % 16] = fmaf(w[i], x[at + i], sum[i % 16]);
    }
}

void quant_ints_of(struct quant_ints *u, const void *row, int64_t n, const struct quant_type *t)
{
    const unsigned char *block = row;

    for (int64_t at = 0; at < n; at += PIECE, u++, block += PIECE / t->block_elems * t->block_bytes) {
        struct quant_bytes b;

        t->bytes(&b, block, PIECE);
        for (int i = 0; i < PIECE; i++)
            u->w[quant_int_place(i)] = (int16_t)(b.sub[i / 16] * b.code[i]);
        for (int i = 0; i < (t->block_elems == 32 ? 8 : 16); i++)
            u->scale[i] = b.scale[i % 8];
        for (int i = 0; i < t->n_min; i++)
            u->min[i] = b.min[t->n_min == 8 ? i : i % 2 * 8 + i / 2];
    }
}

/* Products of one block with a scale for each 32. */
static void add_groups(float sum[8], const struct quant_ints *u, const struct quant_acts *a)
{
    float t[8] = { 0 };

    for (int i = 0; i < 256; i += 4) {
        int     p = quant_int_place(i), j = i % 32 / 4;
        int32_t dot = u->w[p] * a->q[p] + u->w[p + 1] * a->q[p + 1] + u->w[p + 32] * a->q[p + 32] +
                      u->w[p + 33] * a->q[p + 33];

        t[j] = fmaf(u->scale[i / 32], (float)dot, t[j]);
    }
    for (int j = 0; j < 8; j++)
        sum[j] = fmaf(a->scale[j], t[j], sum[j]);
}

static void add_minima(float less[8], const float *min, const struct quant_acts *a, int n_min)
{
    const float *sum = n_min == 8 ? a->sum_32 : a->sum;

    for (int i = 0; i < n_min; i++)
        less[i % 8] = fmaf(min[i], sum[i], less[i % 8]);
}

const char *quant_acts_name(enum quant_acts_type acts)
{
    static const char *const names[] = { "i16", "i8", "f32" };

    return names[acts];
}

int quant_acts_top(int type, enum quant_acts_type acts)
{
    assert(type >= 0 && type < QUANT_N && acts != QUANT_ACTS_F32);
    return acts == QUANT_ACTS_I8 ? 127 : quant_types[type]->wide ? 16383 : 32767;
}

static void add_ints(float sum[8], float less[8], const struct quant_type *t, const void *block,
                     const struct quant_acts *a)
{
    struct quant_ints u;
    int32_t           dot[8] = { 0 };

    t->ints(&u, block, PIECE);
    if (t->block_elems == 32) {
        add_groups(sum, &u, a);
        return;
    }
    for (int p = 0; p < PIECE; p++)
        dot[p % 16 / 2] += u.w[p] * a->q[p];
    for (int j = 0; j < 8; j++)
        sum[j] = fmaf(u.scale[j] * a->scale[j], (float)dot[j], sum[j]);
    add_minima(less, u.min, a, t->n_min);
}

static void add_bytes(float sum[8], float less[8], const struct quant_type *t, const void *block,
                      const struct quant_acts *a)
{
    struct quant_bytes u;
    int32_t            dot[8] = { 0 };

    t->bytes(&u, block, PIECE);
    for (int i = 0; i < PIECE; i++)
        dot[i / 32] += (t->sub_16 ? u.sub[i / 16] : 1) * u.code[i] * a->b[i];
    for (int j = 0; j < 8; j++) {
        float scale = t->sub_16 ? u.scale[j] : u.scale[j] * (float)u.sub[2 * j];

        sum[j] = fmaf(scale * a->scale[j], (float)dot[j], sum[j]);
    }
    add_minima(less, u.min, a, t->n_min);
}

/* n lanes, a power of two. */
static float fold(float *sum, int n)
{
    for (int half = n / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            sum[j] += sum[j + half];
    return sum[0];
}

float quant_dot(int type, const void *row, const float *x, int64_t n)
{
    float sum[16] = { 0 };

    assert(type >= 0 && type < QUANT_N && PIECE % quant_types[type]->block_elems == 0);
    add_floats(sum, quant_types[type], row, x, n);
    return fold(sum, 16);
}

float quant_dot_ints(int type, enum quant_acts_type acts, const void *row, const float *x, int64_t n)
{
    const unsigned char *block = row;
    float                sum[8] = { 0 }, less[8] = { 0 };

    assert(type >= 0 && type < QUANT_N && quant_types[type]->ints != NULL);
    const struct quant_type *t = quant_types[type];

    for (int64_t at = 0; at < n; at += PIECE, block += PIECE / t->block_elems * t->block_bytes) {
        _Alignas(4) unsigned char w[PIECE * sizeof(float)] = { 0 };
        float                     v[PIECE] = { 0 };
        int64_t                   m = n - at < PIECE ? n - at : PIECE;
        struct quant_acts         a;

        memcpy(w, block, (size_t)(m / t->block_elems * t->block_bytes));
        memcpy(v, x + at, (size_t)m * sizeof *v);
        quant_rounder(0)(&a, v, PIECE, quant_acts_top(type, acts));
        (acts == QUANT_ACTS_I8 ? add_bytes : add_ints)(sum, less, t, w, &a);
    }
    for (int j = 0; t->n_min > 0 && j < 8; j++)
        sum[j] -= less[j];
    return fold(sum, 8);
}

float quant_f16_to_f32(uint16_t h)
{
    return half_to_f32(h);
}

uint16_t quant_f32_to_f16(float f)
{
    return half_of_f32(f);
}

float quant_bf16_to_f32(uint16_t h)
{
    return half_bf16_to_f32(h);
}

uint16_t quant_f32_to_bf16(float f)
{
    return half_bf16_of_f32(f);
}
