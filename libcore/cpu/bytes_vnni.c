/* SPDX-License-Identifier: Apache-2.0 */
/* bytes_vnni.c - products with activations of 8 bits for AVX-512 with VNNI, VBMI and GFNI. As bytes_avx2.c has them, with two
 * rows side by side in a register, and two such registers of each step: a vector's bytes are loaded, to both halves, once
 * for four rows. */
#include <immintrin.h>
#include <string.h>

#include "cpu/bytes.h"
#include "quant/x86_fours.h"

#define TARGET TARGET_VNNI

enum { LANES = QUANT_INT_LANES };

#include "cpu/kern_fold.h"

#define TWICE(p)        _mm512_broadcast_i32x8(x86_load32(p))
#define TWICE_FLOATS(p) _mm512_broadcast_f32x8(_mm256_load_ps(p))
#define TWO_FLOATS(p, q) _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_load_ps(p)), _mm256_load_ps(q), 1)
#define TWO_SUBS(r, order) \
    _mm512_permutex2var_ps(_mm512_load_ps(w[r]->sub_f), order, _mm512_load_ps(w[(r) + 1]->sub_f))

/* Steps of rows 0 and 1, of rows 2 and 3. */
#define STEP(r, s)  _mm512_load_si512(((s) < 4 ? (r)[0] : (r)[1])->code + (s) % 4 * 64)
#define CODES(s)    const __m512i w##s = STEP(w, s), v##s = STEP(w + 2, s);
#define VECTOR(j)   const struct quant_acts *x##j = p->x[j] + p->first;
#define NEXT(r)     w[r]++;

/* Sums of rows 0 and 1, of rows 2 and 3. */
#define SUMS(j) __m512 s##j = _mm512_setzero_ps(), t##j = s##j;
#define GET(j) \
    s##j = _mm512_load_ps(sum + (j) * 4 * LANES); \
    t##j = _mm512_load_ps(sum + (j) * 4 * LANES + 2 * LANES);
#define PUT(j) \
    _mm512_store_ps(sum + (j) * 4 * LANES, s##j); \
    _mm512_store_ps(sum + (j) * 4 * LANES + 2 * LANES, t##j);

#define ADD_STEP(s) \
    { \
        const __m512i z = TWICE(x->step + 32 * (s)); \
\
        a = _mm512_dpbusd_epi32(a, w##s, z); \
        c = _mm512_dpbusd_epi32(c, v##s, z); \
    }
#define SCALE(f, scale, sum, dot) sum = _mm512_fmadd_ps(_mm512_mul_ps(scale, f), dot, sum);

#define DOT_8(j, less) \
    { \
        const struct quant_acts *x = x##j + b; \
        const __m512             f = TWICE_FLOATS(x->scale); \
        __m512i                  a = less, c = a; \
\
        ADD_STEP(0) ADD_STEP(1) ADD_STEP(2) ADD_STEP(3) ADD_STEP(4) ADD_STEP(5) ADD_STEP(6) ADD_STEP(7) \
        SCALE(f, scale0, s##j, _mm512_cvtepi32_ps(a)) \
        SCALE(f, scale2, t##j, _mm512_cvtepi32_ps(c)) \
    }
#define TAKE_plain
#define DOT_plain(j) DOT_8(j, _mm512_setzero_si512())
#define TAKE_whole
#define DOT_whole(j) DOT_8(j, _mm512_madd_epi16(TWICE(x->whole), both))

/* Scales of halves are whole numbers, and their sums too few bits for floats to round them. */
#define TAKE_halves \
    const __m512 first0 = TWO_SUBS(0, FOURS_EVEN), second0 = TWO_SUBS(0, FOURS_ODD); \
    const __m512 first2 = TWO_SUBS(2, FOURS_EVEN), second2 = TWO_SUBS(2, FOURS_ODD);
#define DOT_halves(j) \
    { \
        const struct quant_acts *x = x##j + b; \
        const __m512             f = TWICE_FLOATS(x->scale); \
        const __m512i            sums = TWICE(x->whole); \
        __m512i                  a = _mm512_madd_epi16(sums, low), c = a; \
\
        ADD_STEP(0) ADD_STEP(1) ADD_STEP(2) ADD_STEP(3) \
        __m512 d = _mm512_mul_ps(first0, _mm512_cvtepi32_ps(a)), e = _mm512_mul_ps(first2, _mm512_cvtepi32_ps(c)); \
        a = c = _mm512_madd_epi16(sums, high); \
        ADD_STEP(4) ADD_STEP(5) ADD_STEP(6) ADD_STEP(7) \
        d = _mm512_fmadd_ps(second0, _mm512_cvtepi32_ps(a), d); \
        e = _mm512_fmadd_ps(second2, _mm512_cvtepi32_ps(c), e); \
        SCALE(f, scale0, s##j, d) \
        SCALE(f, scale2, t##j, e) \
    }

/* Less the minima of all blocks. */
#define LESS(j) __m512 l##j = _mm512_setzero_ps(), m##j = l##j;
#define LESS_OF(j, sums) \
    { \
        const __m512 x = TWICE_FLOATS(p->x[j][b].sums); \
\
        l##j = _mm512_fmadd_ps(f, x, l##j); \
        m##j = _mm512_fmadd_ps(g, x, m##j); \
    }
#define LESS_8(j)  LESS_OF(j, sum_32)
#define LESS_16(j) LESS_OF(j, sum + half)
#define MINIMA(half) \
    const __m512 f = TWO_FLOATS(at_b[0].min + (half), at_b[n_row].min + (half)); \
    const __m512 g = TWO_FLOATS(at_b[2 * n_row].min + (half), at_b[3 * n_row].min + (half));
#define TAKE_LESS(j) \
    s##j = _mm512_sub_ps(s##j, l##j); \
    t##j = _mm512_sub_ps(t##j, m##j);
#define TAKE_MINIMA(n) \
    { \
        EACH_##n(LESS) \
        for (int64_t b = 0; b < n_row; b++) { \
            const struct quant_codes *at_b = row + b; \
\
            if (p->n_min == 8) { \
                MINIMA(0) \
                EACH_##n(LESS_8) \
                continue; \
            } \
            for (int half = 0; half < 16; half += 8) { \
                MINIMA(half) \
                EACH_##n(LESS_16) \
            } \
        } \
        EACH_##n(TAKE_LESS) \
    }

/* The fold of 8 lanes of vectors j and k, in quarters: what is left of rows 0 and 1 of j, then of k. */
TARGET static inline __m512 fold_8(__m512 j, __m512 k)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(j, k, 0x88), _mm512_shuffle_f32x4(j, k, 0xdd));
}

/* Sums of the lanes of four rows, a quarter for each of four vectors. */
TARGET static inline __m512 fold(const __m512 s[4], const __m512 t[4])
{
    const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15);

    return _mm512_permutexvar_ps(order, fold_1(fold_2(fold_8(s[0], s[1]), fold_8(t[0], t[1])),
                                               fold_2(fold_8(s[2], s[3]), fold_8(t[2], t[3]))));
}
#define QUARTER(j) _mm512_extractf32x4_ps(all, j)
#define GIVE(j)    _mm_storeu_ps(y[j] + at + i, QUARTER(j));
/* Not by a mask: gcc 12 makes one instruction of it and the extraction, whose faults a mask does not prevent. */
#define GIVE_SOME(j) \
    { \
        float four[4]; \
\
        _mm_storeu_ps(four, QUARTER(j)); \
        memcpy(y[j] + at + i, four, (size_t)(p->rows - i) * sizeof *four); \
    }

/* Some blocks of a strip: to sum[four rows][vector][row][lane], or with the last of them to y. */
typedef void tile_fn(float *const *y, int64_t at, float *sum, const struct cpu_bytes_part *p);

#define TILE(kind, n) \
TARGET static void kind##_##n(float *const *y, int64_t at, float *sum, const struct cpu_bytes_part *p) \
{ \
    const __m512i both = _mm512_set1_epi16((short)-p->low); \
    const __m512i low = _mm512_srli_epi32(both, 16), high = _mm512_slli_epi32(both, 16); \
    const int64_t n_row = p->n_row; \
\
    (void)both; \
    (void)low; \
    (void)high; \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i += 4, sum += 4 * LANES * (n)) { \
        const struct quant_codes *row = p->w + i * n_row, *at_first = row + p->first; \
        const struct quant_codes *w[4] = { at_first, at_first + n_row, at_first + 2 * n_row, at_first + 3 * n_row }; \
\
        EACH_4(SUMS) \
        if (p->first > 0) { \
            EACH_##n(GET) \
        } \
        for (int64_t b = 0; b < p->n_blocks; b++) { \
            CODES(0) CODES(1) CODES(2) CODES(3) CODES(4) CODES(5) CODES(6) CODES(7) \
            const __m512 scale0 = TWO_FLOATS(w[0]->scale, w[1]->scale), scale2 = TWO_FLOATS(w[2]->scale, w[3]->scale); \
\
            TAKE_##kind \
            EACH_##n(DOT_##kind) \
            EACH_4(NEXT) \
        } \
        if (p->first + p->n_blocks < n_row) { \
            EACH_##n(PUT) \
            continue; \
        } \
        if (p->n_min > 0) \
            TAKE_MINIMA(n) \
        const __m512 all = fold((const __m512[]){ s0, s1, s2, s3 }, (const __m512[]){ t0, t1, t2, t3 }); \
        if (p->rows - i >= 4) { \
            EACH_##n(GIVE) \
        } else { \
            EACH_##n(GIVE_SOME) \
        } \
    } \
}
#define TILES(kind) \
    TILE(kind, 1) TILE(kind, 2) TILE(kind, 3) TILE(kind, 4) \
    static tile_fn *const kind[CPU_BYTES_VECTORS] = { kind##_1, kind##_2, kind##_3, kind##_4 };
TILES(plain)
TILES(whole)
TILES(halves)

static tile_fn *const *tiles(const struct quant_type *t)
{
    if (t->sub_16)
        return halves;
    return t->low > 0 ? whole : plain;
}

static void strip(float *const *y, int64_t at, struct cpu_bytes_part *p, const struct quant_type *t, int n)
{
    _Alignas(64) float sum[CPU_BYTES_STRIP * CPU_BYTES_VECTORS * LANES];
    tile_fn           *tile = tiles(t)[n - 1];

    for (p->first = 0; p->first < p->n_row; p->first += p->n_blocks) {
        p->n_blocks = p->n_row - p->first < CPU_BYTES_DEPTH ? p->n_row - p->first : CPU_BYTES_DEPTH;
        tile(y, at, sum, p);
    }
}

static int low(const struct quant_type *t)
{
    return t->low > 0 ? 128 : 0;
}

static void take(struct quant_codes *to, const struct quant_type *t, const char *rows, int64_t row_bytes, int64_t n,
                 int64_t n_row)
{
    for (int64_t i = 0; i < n || i % CPU_BYTES_FOUR != 0; i += 2) {
        const int64_t one = i < n ? i : n - 1, other = i + 1 < n ? i + 1 : n - 1;

        t->pair_vbmi(to + i * n_row, rows + one * row_bytes, rows + other * row_bytes, n_row);
    }
}

static void dots(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    static const struct cpu_bytes_code code = { take, low, strip, 16 };

    cpu_bytes_dots(&code, w, v, k, buf);
}

const struct cpu_bytes cpu_bytes_vnni = { .name = "vnni", .dots = dots, .need = cpu_bytes_need };
