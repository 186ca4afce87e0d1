/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_vnni.c - GEMV and GEMM with 8-bit activations for AVX-512 with VNNI, VBMI and GFNI. As acts8_avx2.c has them, with two
 * rows side by side in a register, and two such registers of each step: a vector's bytes are loaded, to both halves, once
 * for four rows. */
#include "cpu/acts8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "cpu/formats/acts8_vbmi.h"

#define TARGET TARGET_VNNI

#include "cpu/f32_fold.h"

#define TWICE(p)        _mm512_broadcast_i32x8(x86_load32(p))
#define TWICE_FLOATS(p) _mm512_broadcast_f32x8(_mm256_load_ps(p))
#define TWO_FLOATS(p, q) _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_load_ps(p)), _mm256_load_ps(q), 1)
/* Floats `what` of rows r and r + 1. */
#define TWO(r, what) TWO_FLOATS(ROW(r)->what, ROW((r) + 1)->what)
#define TWO_SUBS(r, order) \
    _mm512_permutex2var_ps(_mm512_load_ps(ROW(r)->sub_f), order, _mm512_load_ps(ROW((r) + 1)->sub_f))

/* Block b of a row of the four; steps of rows r and r + 1. */
#define ROW(r)     (w + (r) * n_row + b)
#define STEP(r, s) _mm512_load_si512(ROW((r) + (s) / 4)->code + (s) % 4 * 64)

/* Of vector j: sums of rows 0 and 1, of rows 2 and 3, what they lose, and whole numbers of a block. */
#define VECTOR(j) const struct cpu_act_block *x##j = p->x[j];
#define SUMS(j)   __m512 s##j = _mm512_setzero_ps(), t##j = s##j;
#define LESS(j)   __m512 l##j = _mm512_setzero_ps(), m##j = l##j;
#define DOTS(j)   __m512i a##j, c##j;
#define PAIRS(j)  const __m512 d##j = TAKE_FIRST(first0, a##j), e##j = TAKE_FIRST(first2, c##j);

/* All vectors take a step before any takes the next one: a sum waits some five cycles for the one before, and two of them
 * start in a cycle. */
#define ADD(j) \
    { \
        const __m512i z = TWICE(x##j[b].step + byte); \
\
        a##j = _mm512_dpbusd_epi32(a##j, u, z); \
        c##j = _mm512_dpbusd_epi32(c##j, v, z); \
    }
#define ADD_STEP(n, s) \
    { \
        const __m512i u = STEP(0, s), v = STEP(2, s); \
        const int     byte = 32 * (s); \
\
        for (const char *last = next + each; next < last && next < end; next += 64) \
            _mm_prefetch(next, _MM_HINT_T1); \
        EACH_##n(ADD) \
    }
#define FOUR_STEPS(n, s) ADD_STEP(n, s) ADD_STEP(n, s + 1) ADD_STEP(n, s + 2) ADD_STEP(n, s + 3)

#define SCALE(sum, scale, dot) sum = _mm512_fmadd_ps(_mm512_mul_ps(scale, f), dot, sum);
#define SCALE_DOTS(j) \
    { \
        const __m512 f = TWICE_FLOATS(x##j[b].scale); \
\
        SCALE(s##j, scale0, _mm512_cvtepi32_ps(a##j)) \
        SCALE(t##j, scale2, _mm512_cvtepi32_ps(c##j)) \
    }

/* Less the minima, where there are some: codes from 0 on. */
#define LESS_OF(j, sums) \
    { \
        const __m512 x = TWICE_FLOATS(x##j[b].sums); \
\
        l##j = _mm512_fmadd_ps(min0, x, l##j); \
        m##j = _mm512_fmadd_ps(min2, x, m##j); \
    }
#define LESS_8(j)   LESS_OF(j, sum_32)
#define LESS_16(j)  LESS_OF(j, sum)
#define LESS_16B(j) LESS_OF(j, sum + 8)
#define TAKE(n, at, what) \
    { \
        const __m512 min0 = TWO(0, min + (at)), min2 = TWO(2, min + (at)); \
\
        EACH_##n(what) \
    }
#define TAKE_LESS(j) \
    s##j = _mm512_sub_ps(s##j, l##j); \
    t##j = _mm512_sub_ps(t##j, m##j);

#define FROM_0(j) a##j = c##j = _mm512_setzero_si512();
#define BEGIN_minima(n) EACH_##n(LESS)
#define BLOCK_minima(n) \
    EACH_##n(FROM_0) \
    FOUR_STEPS(n, 0) FOUR_STEPS(n, 4) \
    EACH_##n(SCALE_DOTS) \
    TAKE(n, 0, LESS_8)
#define END_minima(n) EACH_##n(TAKE_LESS)

#define FROM_LESS(j) a##j = c##j = _mm512_madd_epi16(TWICE(x##j[b].whole), both);
#define BEGIN_whole(n)
#define BLOCK_whole(n) \
    EACH_##n(FROM_LESS) \
    FOUR_STEPS(n, 0) FOUR_STEPS(n, 4) \
    EACH_##n(SCALE_DOTS)
#define END_whole(n)

/* Scales of halves are whole numbers, and their sums too few bits for floats to round them. */
#define FROM_LOW(j) a##j = c##j = _mm512_madd_epi16(TWICE(x##j[b].whole), low);
#define TAKE_FIRST(first, dot) _mm512_mul_ps(first, _mm512_cvtepi32_ps(dot))
#define FROM_HIGH(j) a##j = c##j = _mm512_madd_epi16(TWICE(x##j[b].whole), high);
#define SCALE_HALVES(j) \
    { \
        const __m512 f = TWICE_FLOATS(x##j[b].scale); \
\
        SCALE(s##j, scale0, _mm512_fmadd_ps(second0, _mm512_cvtepi32_ps(a##j), d##j)) \
        SCALE(t##j, scale2, _mm512_fmadd_ps(second2, _mm512_cvtepi32_ps(c##j), e##j)) \
    }
#define BLOCK_OF_HALVES(n, from_first, from_second) \
    EACH_##n(from_first) \
    FOUR_STEPS(n, 0) \
    const __m512 first0 = TWO_SUBS(0, FOURS_EVEN), first2 = TWO_SUBS(2, FOURS_EVEN); \
    EACH_##n(PAIRS) \
    EACH_##n(from_second) \
    FOUR_STEPS(n, 4) \
    const __m512 second0 = TWO_SUBS(0, FOURS_ODD), second2 = TWO_SUBS(2, FOURS_ODD); \
    EACH_##n(SCALE_HALVES)
#define BEGIN_halves(n)
#define BLOCK_halves(n) BLOCK_OF_HALVES(n, FROM_LOW, FROM_HIGH)
#define END_halves(n)
#define BEGIN_halves_minima BEGIN_minima
#define BLOCK_halves_minima(n) \
    BLOCK_OF_HALVES(n, FROM_0, FROM_0) \
    TAKE(n, 0, LESS_16) \
    TAKE(n, 8, LESS_16B)
#define END_halves_minima END_minima

/* The fold of 8 lanes of vectors j and k, in quarters: what is left of rows 0 and 1 of j, then of k. */
TARGET static inline __m512 fold_8(__m512 j, __m512 k)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(j, k, 0x88), _mm512_shuffle_f32x4(j, k, 0xdd));
}

/* Sums of the lanes of four rows, a quarter for each of four vectors. */
TARGET static inline __m512 fold_lanes(const __m512 s[4], const __m512 t[4])
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

/* A strip of rows by n vectors. */
typedef void tile_fn(float *const *y, int64_t at, const struct cpu_bytes_part *p);

#define TILE(kind, n) \
TARGET static void kind##_##n(float *const *y, int64_t at, const struct cpu_bytes_part *p) \
{ \
    const __m512i both = _mm512_set1_epi16((short)-p->low); \
    const __m512i low = _mm512_srli_epi32(both, 16), high = _mm512_slli_epi32(both, 16); \
    const int64_t n_row = p->n_row, blocks = (p->rows + 3) / 4 * n_row; \
    const int64_t each = (p->n_next / 64 + 8 * blocks - 1) / (8 * blocks) * 64; /* fetched by a step */ \
    const char   *next = p->next, *end = next + p->n_next; \
\
    (void)both; \
    (void)low; \
    (void)high; \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i += 4) { \
        const struct cpu_code_block *w = p->w + i * n_row; \
\
        EACH_4(SUMS) \
        BEGIN_##kind(n) \
        for (int64_t b = 0; b < n_row; b++) { \
            EACH_##n(DOTS) \
            const __m512 scale0 = TWO(0, scale), scale2 = TWO(2, scale); \
\
            BLOCK_##kind(n) \
        } \
        END_##kind(n) \
        const __m512 all = fold_lanes((const __m512[]){ s0, s1, s2, s3 }, (const __m512[]){ t0, t1, t2, t3 }); \
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
TILES(whole)
TILES(minima)
TILES(halves)
TILES(halves_minima)

static tile_fn *const *tiles(const struct cpu_format *t)
{
    if (t->sub_16)
        return t->n_min > 0 ? halves_minima : halves;
    return t->n_min > 0 ? minima : whole;
}

static void dot_strip(float *const *y, int64_t at, struct cpu_bytes_part *p, const struct cpu_format *t, int n)
{
    tiles(t)[n - 1](y, at, p);
}

static int low(const struct cpu_format *t)
{
    return t->low > 0 ? 128 : 0;
}

static void unpack_rows(struct cpu_code_block *to, const struct cpu_format *t, const char *rows, int64_t row_bytes,
                        int64_t n, int64_t n_row)
{
    for (int64_t i = 0; i < n || i % CPU_BYTES_FOUR != 0; i += 2) {
        const int64_t one = i < n ? i : n - 1, other = i + 1 < n ? i + 1 : n - 1;

        t->pair_vbmi(to + i * n_row, rows + one * row_bytes, rows + other * row_bytes, n_row);
    }
}

void cpu_bytes_laid(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf, int64_t ahead)
{
    enum { L2_BYTES = 196608 };
    const int64_t some = CPU_LAID * (L2_BYTES / (CPU_LAID * w.row_bytes) + 1), rows = v.n > CPU_LAID_VECTORS ? some : w.n;

    for (int64_t r = 0; r < w.n; r += rows)
        for (int j = 0; j < v.n; j += CPU_LAID_VECTORS)
            w.format->dots_laid(&(struct cpu_laid){ .rows = w.rows + r * w.row_bytes,
                                                    .n_rows = w.n - r < rows ? w.n - r : rows,
                                                    .n_row = k / 256,
                                                    .x = v.x + j,
                                                    .y = v.y + j,
                                                    .at = v.at + r,
                                                    .n = v.n - j < CPU_LAID_VECTORS ? v.n - j : CPU_LAID_VECTORS,
                                                    .buf = buf,
                                                    .ahead = j > 0 ? 0 : ahead,
                                                    .next = r + rows < w.n ? w.rows + (r + rows) * w.row_bytes : w.next });
}

static void dot_bytes(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    static const struct cpu_bytes_code code = { unpack_rows, low, dot_strip, 16 };
    enum { AHEAD = 6144 }; /* as one vector's rows (cpu/formats/acts8_vbmi_body.h) */

    if (w.laid) {
        cpu_bytes_laid(w, v, k, buf, AHEAD);
        return;
    }
    cpu_bytes_dots(&code, w, v, k, buf);
}

static size_t buffer_bytes(int64_t k)
{
    const size_t panel = cpu_bytes_need(k), laid = (size_t)((k + 255) / 256) * CPU_LAID_BUF;

    return panel > laid ? panel : laid;
}

const struct cpu_bytes cpu_bytes_vnni = { .name = "vnni", .dots = dot_bytes, .need = buffer_bytes };
#endif
