/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_ymm_body.h - products with activations of 8 bits for AVX2 with VNNI: as acts8_avx2.c has them, but 32 products are
 * added up by one instruction, whatever the codes.
 *
 * Included by files that define TARGET and DP(a, b, c), a plus the sums by fours of products of bytes b, without signs,
 * and c, with. */
#include <immintrin.h>

#include "cpu/acts8.h"
#include "cpu/formats/x86.h"

enum { LANES = CPU_INT_LANES };

#define LOAD(p)   _mm256_load_si256((const void *)(p))
#define VECTOR(j) const struct cpu_act_block *x##j = p->x[j] + p->first;
#define SUM(j)    __m256 s##j = p->first == 0 ? _mm256_setzero_ps() : _mm256_load_ps(sum + LANES * (j));
#define PUT(j)    _mm256_store_ps(sum + LANES * (j), s##j);

#define PLAIN(i)  const __m256i w##i = LOAD(w->code + 32 * (i));
/* Codes with signs become 128 more. */
#define MORE(i)   const __m256i w##i = _mm256_xor_si256(LOAD(w->code + 32 * (i)), _mm256_set1_epi8(-128));

/* d plus the sums of steps i to i + 3 of vector j. */
#define STEP(d, i, j)   d = DP(d, w##i, LOAD(x##j[b].step + 32 * (i)));
#define STEPS_0(d, j)   STEP(d, 0, j) STEP(d, 1, j) STEP(d, 2, j) STEP(d, 3, j)
#define STEPS_4(d, j)   STEP(d, 4, j) STEP(d, 5, j) STEP(d, 6, j) STEP(d, 7, j)
#define ADD(j, dots) \
    s##j = _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_load_ps(x##j[b].scale)), dots, s##j);

#define TAKE_whole
#define DOT_whole(j) \
    { \
        __m256i d = _mm256_madd_epi16(less, LOAD(x##j[b].whole)); \
\
        STEPS_0(d, j) \
        STEPS_4(d, j) \
        ADD(j, _mm256_cvtepi32_ps(d)) \
    }
#define TAKE_more
#define DOT_more DOT_whole
/* Scales of halves are whole numbers, and their sums too few bits for floats to round them. */
#define SUB(k) _mm256_cvtepi32_ps(_mm256_srai_epi32(LOAD(w->sub + (k)), 16))
#define TAKE_halves const __m256 first = SUB(0), second = SUB(8);
#define DOT_halves(j) \
    { \
        const __m256i sums = LOAD(x##j[b].whole); \
        __m256i       d = _mm256_madd_epi16(less_first, sums), e = _mm256_madd_epi16(less_second, sums); \
\
        STEPS_0(d, j) \
        STEPS_4(e, j) \
        ADD(j, _mm256_fmadd_ps(second, _mm256_cvtepi32_ps(e), _mm256_mul_ps(first, _mm256_cvtepi32_ps(d)))) \
    }

#define TILE(kind, CODES, n) \
TARGET static void kind##_##n(float *sum, const struct cpu_bytes_part *p) \
{ \
    const __m256i less = _mm256_set1_epi16((short)-p->low); \
    const __m256i less_first = _mm256_srli_epi32(less, 16), less_second = _mm256_slli_epi32(less, 16); \
\
    (void)less_first; \
    (void)less_second; \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i++, sum += LANES * (n)) { \
        const struct cpu_code_block *w = p->w + i * p->n_row + p->first; \
\
        EACH_##n(SUM) \
        for (int64_t b = 0; b < p->n_blocks; b++, w++) { \
            EACH_8(CODES) \
            TAKE_##kind \
            const __m256 scale = _mm256_load_ps(w->scale); \
\
            EACH_##n(DOT_##kind) \
        } \
        EACH_##n(PUT) \
    } \
}
#define TILES(kind, CODES) \
    TILE(kind, CODES, 1) TILE(kind, CODES, 2) TILE(kind, CODES, 3) TILE(kind, CODES, 4) \
    static cpu_bytes_tile_fn *const kind[CPU_BYTES_VECTORS] = { kind##_1, kind##_2, kind##_3, kind##_4 };
TILES(whole, PLAIN)
TILES(more, MORE)
TILES(halves, PLAIN)

/* Whether codes come with signs (codes_avx2). */
static bool with_signs(const struct cpu_format *t)
{
    return !t->sub_16 && t->span > 128;
}

static int low(const struct cpu_format *t)
{
    return with_signs(t) ? 128 : t->low;
}

static cpu_bytes_tile_fn *const *tile_kernels(const struct cpu_format *t)
{
    if (t->sub_16)
        return halves;
    return with_signs(t) ? more : whole;
}

static void dot_strip(float *const *y, int64_t at, struct cpu_bytes_part *p, const struct cpu_format *t, int n)
{
    cpu_bytes_strip(y, at, p, tile_kernels(t)[n - 1], n);
}

static void dot_bytes(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    static const struct cpu_bytes_code code = { cpu_bytes_take, low, dot_strip, CPU_BYTES_VECTORS };

    cpu_bytes_dots(&code, w, v, k, buf);
}
