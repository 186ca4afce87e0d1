/* SPDX-License-Identifier: Apache-2.0 */
/* fours.c - products of several vectors by AVX-512 with VNNI (x86_fours.h), of any format. */
#include "quant/x86_fours.h"

#if defined(__x86_64__)
#define TWO_FLOATS(p, q) \
    _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_load_ps(p)), _mm256_load_ps(q), 1)
#define TWICE(p)  _mm512_broadcast_f32x8(_mm256_load_ps(p))
#define VECTOR(j) const struct quant_acts *x##j = p->x[j] + p->first;
#define FIRST(j) \
    __m512i d##j = \
        _mm512_dpbusd_epi32(_mm512_load_si512(x##j[i].less), v0, _mm512_load_si512(x##j[i].fours)); \
    d##j = _mm512_dpbusd_epi32(d##j, v1, _mm512_load_si512(x##j[i].fours + 64)); \
    d##j = _mm512_dpbusd_epi32(d##j, v2, _mm512_load_si512(x##j[i].fours + 128)); \
    d##j = _mm512_dpbusd_epi32(d##j, v3, _mm512_load_si512(x##j[i].fours + 192));
#define SUM(j, h) \
    { \
        __m512 f = t->sub_16 ? fours_lanes_16(d##j, d##h, sub, sub) : fours_lanes(d##j, d##h); \
        __m512 by = _mm512_mul_ps(scale, TWO_FLOATS(x##j[i].scale, x##h[i].scale)); \
\
        _mm512_storeu_ps(to + 8 * (j), _mm512_fmadd_ps(by, f, _mm512_loadu_ps(to + 8 * (j)))); \
    }
#define LESS(j, h, member) \
    _mm512_storeu_ps(less + 8 * (j), \
                     _mm512_fmadd_ps(min, TWO_FLOATS(x##j[i].member, x##h[i].member), \
                                     _mm512_loadu_ps(less + 8 * (j))));
#define LESS_32(j, h)    LESS(j, h, sum_32)
#define LESS_FIRST(j, h) LESS(j, h, sum)
#define LESS_THEN(j, h)  LESS(j, h, sum + 8)
#define TWOS_2(F)        F(0, 1)
#define TWOS_4(F)        TWOS_2(F) F(2, 3)
#define TWOS_6(F)        TWOS_4(F) F(4, 5)
#define TWOS_8(F)        TWOS_6(F) F(6, 7)
#define TILE_ROW(n) \
    TARGET_VBMI static void row_##n(const struct quant_int_tile *p, const struct quant_type *t, \
                                    const struct quant_fours *u, float *to, float *less) \
    { \
        EACH_##n(VECTOR) \
        for (int i = 0; i < p->n_blocks; i++, u++) { \
            __m512i v0 = _mm512_load_si512(u->code), v1 = _mm512_load_si512(u->code + 64); \
            __m512i v2 = _mm512_load_si512(u->code + 128), v3 = _mm512_load_si512(u->code + 192); \
            __m512 scale = TWICE(u->scale), sub = _mm512_load_ps(u->sub), min; \
\
            EACH_##n(FIRST) \
            TWOS_##n(SUM) \
            if (t->n_min == 0) \
                continue; \
            min = TWICE(u->min); \
            if (t->n_min == 8) { \
                TWOS_##n(LESS_32) \
            } else { \
                TWOS_##n(LESS_FIRST) \
                min = TWICE(u->min + 8); \
                TWOS_##n(LESS_THEN) \
            } \
        } \
    }
TILE_ROW(2)
TILE_ROW(4)
TILE_ROW(6)
TILE_ROW(8)

void quant_fours_tile(const struct quant_int_tile *p, const struct quant_type *t,
                      quant_fours_fn *fours)
{
    static void (*const row[])(const struct quant_int_tile *, const struct quant_type *,
                               const struct quant_fours *, float *, float *) = { row_2, row_4,
                                                                                 row_6, row_8 };
    int64_t bytes = 256 / t->block_elems * t->block_bytes;
    const char *b = (const char *)p->rows + p->first * bytes;

    for (int r = 0; r < p->n_rows; r++, b += p->row_bytes) {
        struct quant_fours u[QUANT_TILE_BLOCKS + 1];
        int64_t at = (int64_t)r * 8 * p->n;

        fours(u, b, p->n_blocks, p->ahead);
        row[p->n / 2 - 1](p, t, u, p->sum + at, p->less + at);
    }
}
#endif
