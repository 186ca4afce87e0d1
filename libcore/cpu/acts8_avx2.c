/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_avx2.c - GEMV and GEMM with 8-bit activations for AVX2 with FMA. Rows are unpacked to bytes, four elements of each of
 * the 8 groups of a block side by side. A register's 8 numbers of 32 bits are then the sums of the 8 lanes, and nothing
 * has to be added across. Codes of a row's block stay in 8 registers while up to 4 vectors pass as operands in memory. */
#include "cpu/acts8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "cpu/formats/x86.h"

#define TARGET TARGET_DOTS

enum { LANES = CPU_INT_LANES, VECTORS = CPU_BYTES_VECTORS, DEPTH = CPU_BYTES_DEPTH, ROWS = CPU_BYTES_STRIP };

#include "cpu/f32_lanes.h"

#define LOAD(p) _mm256_load_si256((const void *)(p))
#define ONES    _mm256_set1_epi16(1)

#define VECTOR(j)    const struct cpu_act_block *x##j = p->x[j] + p->first;
#define SUM(j)       __m256 s##j = p->first == 0 ? _mm256_setzero_ps() : _mm256_load_ps(sum + LANES * (j));
#define PUT(j)       _mm256_store_ps(sum + LANES * (j), s##j);
#define CODES(i)     const __m256i w##i = LOAD(w->code + 32 * (i));
#define SIZES(i)     const __m256i w##i = _mm256_abs_epi8(LOAD(w->code + 32 * (i)));
#define NO_SUBS      const __m256i less = _mm256_set1_epi16((short)p->low);
#define SUBS \
    const __m256i first = LOAD(w->sub); \
    const __m256i second = LOAD(w->sub + 8); \
    const __m256i less = _mm256_mullo_epi16(_mm256_blend_epi16(first, second, 0xaa), _mm256_set1_epi16((short)p->low));

/* Products of step i by twos, sums of two and of four steps. */
#define BY_CODES(i, j)  _mm256_maddubs_epi16(w##i, LOAD(x##j[b].step + 32 * (i)))
#define BY_SIGNS(i, j) \
    _mm256_maddubs_epi16(w##i, _mm256_sign_epi8(LOAD(x##j[b].step + 32 * (i)), x86_load32(code + 32 * (i))))
#define TWO(i, k, j)    _mm256_add_epi16(BY_CODES(i, j), BY_CODES(k, j))
#define FOUR_OF_0(j)    _mm256_add_epi16(TWO(0, 1, j), TWO(2, 3, j))
#define FOUR_OF_4(j)    _mm256_add_epi16(TWO(4, 5, j), TWO(6, 7, j))
#define ADD(a, c)       _mm256_add_epi32(a, c)
#define BY(a, s)        _mm256_madd_epi16(a, s)
#define ONE_BY_ONE(STEP, s, t, j) \
    ADD(ADD(ADD(BY(STEP(0, j), s), BY(STEP(1, j), s)), ADD(BY(STEP(2, j), s), BY(STEP(3, j), s))), \
        ADD(ADD(BY(STEP(4, j), t), BY(STEP(5, j), t)), ADD(BY(STEP(6, j), t), BY(STEP(7, j), t))))

/* Sums of 32 products of a vector, by how many fit a word: halves_() where halves of groups have scales. */
#define DOT_whole_16(j)  BY(_mm256_add_epi16(FOUR_OF_0(j), FOUR_OF_4(j)), ONES)
#define DOT_whole_8(j)   ADD(BY(FOUR_OF_0(j), ONES), BY(FOUR_OF_4(j), ONES))
#define DOT_whole_2(j)   ONE_BY_ONE(BY_CODES, ONES, ONES, j)
#define DOT_signs(j)     ONE_BY_ONE(BY_SIGNS, ONES, ONES, j)
#define DOT_halves_8(j)  ADD(BY(FOUR_OF_0(j), first), BY(FOUR_OF_4(j), second))
#define DOT_halves_4(j) \
    ADD(ADD(BY(TWO(0, 1, j), first), BY(TWO(2, 3, j), first)), ADD(BY(TWO(4, 5, j), second), BY(TWO(6, 7, j), second)))
#define DOT_halves_2(j)  ONE_BY_ONE(BY_CODES, first, second, j)

#define ADD_DOT(DOT, j) \
    { \
        const int8_t *code = w->code; \
\
        __asm__("" : "+r"(code)); /* else gcc 12 keeps codes in registers beside their sizes: too many */ \
        __m256i d = DOT(j); \
\
        if (p->low > 0) \
            d = _mm256_sub_epi32(d, _mm256_madd_epi16(less, LOAD(x##j[b].whole))); \
        s##j = _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_load_ps(x##j[b].scale)), _mm256_cvtepi32_ps(d), s##j); \
    }
#define ADD_1(DOT) ADD_DOT(DOT, 0)
#define ADD_2(DOT) ADD_1(DOT) ADD_DOT(DOT, 1)
#define ADD_3(DOT) ADD_2(DOT) ADD_DOT(DOT, 2)
#define ADD_4(DOT) ADD_3(DOT) ADD_DOT(DOT, 3)

#define TILE(kind, TAKE, SCALES, n) \
TARGET static void kind##_##n(float *sum, const struct cpu_bytes_part *p) \
{ \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i++, sum += LANES * (n)) { \
        const struct cpu_code_block *w = p->w + i * p->n_row + p->first; \
\
        EACH_##n(SUM) \
        for (int64_t b = 0; b < p->n_blocks; b++, w++) { \
            EACH_8(TAKE) \
            SCALES \
            const __m256 scale = _mm256_load_ps(w->scale); \
\
            (void)less; \
            ADD_##n(DOT_##kind) \
        } \
        EACH_##n(PUT) \
    } \
}
#define TILES(kind, TAKE, SCALES) \
    TILE(kind, TAKE, SCALES, 1) TILE(kind, TAKE, SCALES, 2) TILE(kind, TAKE, SCALES, 3) TILE(kind, TAKE, SCALES, 4) \
    static cpu_bytes_tile_fn *const kind[VECTORS] = { kind##_1, kind##_2, kind##_3, kind##_4 };

TILES(whole_16, CODES, NO_SUBS)
TILES(whole_8, CODES, NO_SUBS)
TILES(whole_2, CODES, NO_SUBS)
TILES(signs, SIZES, NO_SUBS)
TILES(halves_8, CODES, SUBS)
TILES(halves_4, CODES, SUBS)
TILES(halves_2, CODES, SUBS)

/* The same for rows that are laid out: codes come from memory, and nothing is unpacked. */
enum { LAID_AHEAD = 4096 };
#define LAID_SIZES(i) const __m256i w##i = _mm256_abs_epi8(x86_load32(at + 32 * (i)));
#define LAID_ADD(j) \
    { \
        const int8_t *code = at; \
\
        __asm__("" : "+r"(code)); \
        const __m256i d = DOT_signs(j); \
\
        s##j = _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_load_ps(x##j[b].scale)), _mm256_cvtepi32_ps(d), s##j); \
    }
#define LAID_TILE(n) \
TARGET static void laid_##n(float *sum, const struct cpu_bytes_part *p) \
{ \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i++, sum += LANES * (n)) { \
        const char   *half = p->laid + i * p->row_bytes + 16 * p->first; \
        const int8_t *at = (const int8_t *)p->laid + i * p->row_bytes + 16 * p->n_row + 256 * p->first; \
\
        EACH_##n(SUM) \
        for (int64_t b = 0; b < p->n_blocks; b++, at += 256, half += 16) { \
            for (int line = 0; line < 256; line += 64) \
                _mm_prefetch((const char *)at + LAID_AHEAD + line, _MM_HINT_T0); \
            EACH_8(LAID_SIZES) \
            const __m256 scale = _mm256_cvtph_ps(x86_load16(half)); \
\
            EACH_##n(LAID_ADD) \
        } \
        EACH_##n(PUT) \
    } \
}
LAID_TILE(1)
LAID_TILE(2)
LAID_TILE(3)
LAID_TILE(4)
static cpu_bytes_tile_fn *const laid[VECTORS] = { laid_1, laid_2, laid_3, laid_4 };

/* Less the minima of all blocks, 8 of them or 16, of two rows: a sum alone would wait for itself. */
#define LESS(j)     __m256 l##j = _mm256_setzero_ps(), m##j = l##j;
#define LESS_OF(j, sums) \
    l##j = _mm256_fmadd_ps(f, _mm256_load_ps(x##j[b].sums), l##j); \
    m##j = _mm256_fmadd_ps(g, _mm256_load_ps(x##j[b].sums), m##j);
#define LESS_8(j)   LESS_OF(j, sum_32)
#define LESS_16(j)  LESS_OF(j, sum + half)
#define TAKE_LESS(to, l) _mm256_store_ps(to, _mm256_sub_ps(_mm256_load_ps(to), l));
#define PUT_LESS(j) TAKE_LESS(sum + LANES * (j), l##j) TAKE_LESS(next + LANES * (j), m##j)
#define LESS_TILE(n) \
TARGET static void less_##n(float *sum, const struct cpu_bytes_part *p) \
{ \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i += 2, sum += 2 * LANES * (n)) { \
        const struct cpu_code_block *w = p->w + i * p->n_row, *v = w + p->n_row; \
        float *next = sum + LANES * (n); \
\
        EACH_##n(LESS) \
        for (int64_t b = 0; b < p->n_blocks; b++) { \
            __m256 f = _mm256_load_ps(w[b].min), g = _mm256_load_ps(v[b].min); \
\
            if (p->n_min == 8) { \
                EACH_##n(LESS_8) \
                continue; \
            } \
            for (int half = 0; half < 16; half += 8) { \
                f = _mm256_load_ps(w[b].min + half); \
                g = _mm256_load_ps(v[b].min + half); \
                EACH_##n(LESS_16) \
            } \
        } \
        EACH_##n(PUT_LESS) \
    } \
}
LESS_TILE(1)
LESS_TILE(2)
LESS_TILE(3)
LESS_TILE(4)
static cpu_bytes_tile_fn *const minima[VECTORS] = { less_1, less_2, less_3, less_4 };

static cpu_bytes_tile_fn *const *tile_kernels(const struct cpu_format *t)
{
    if (t->sub_16)
        return t->span <= 32 ? halves_8 : t->span <= 64 ? halves_4 : halves_2;
    return t->span <= 16 ? whole_16 : t->span <= 32 ? whole_8 : t->span <= 128 ? whole_2 : signs;
}

TARGET void cpu_bytes_strip(float *const *y, int64_t at, struct cpu_bytes_part *p, cpu_bytes_tile_fn *tile, int n)
{
    _Alignas(64) float sum[ROWS * VECTORS * LANES];

    memset(sum + p->rows * n * LANES, 0, (size_t)(-p->rows & 3) * (size_t)(n * LANES) * sizeof *sum);
    for (p->first = 0; p->first < p->n_row; p->first += DEPTH) {
        p->n_blocks = p->n_row - p->first < DEPTH ? p->n_row - p->first : DEPTH;
        tile(sum, p);
    }
    if (p->n_min > 0) {
        p->first = 0;
        p->n_blocks = p->n_row;
        minima[n - 1](sum, p);
    }
    put_folded(y, at, sum, p->rows, n, (int64_t)n * LANES);
}

/* Rows unpacked at a time: with many vectors as many as stay in the second-level cache meanwhile. */
static int panel_rows(int64_t k, bool few)
{
    enum { L1_BYTES = 16384, L2_BYTES = 196608 };
    int64_t row = (k > 0 ? (k + 255) / 256 : 1) * (int64_t)sizeof(struct cpu_code_block);
    int64_t n = (few ? L1_BYTES : L2_BYTES) / row;

    return n < 4 ? 4 : n > 3 * ROWS ? 3 * ROWS : (int)n / 4 * 4;
}

/* What n strips of the panel at `at` fetch between them: the next panel or, as small ones are done before memory answers,
 * rows further on. Past `end` something else is likely to come. */
static void fetch_by(struct cpu_bytes_part *p, int64_t n, const char *at, int64_t bytes, const char *end)
{
    enum { AHEAD = 8192 };

    p->next = at + (bytes > AHEAD ? bytes : AHEAD);
    end += AHEAD;
    bytes = end - p->next < bytes ? end - p->next : bytes;
    p->n_next = bytes > 0 ? (bytes + 64 * n - 1) / (64 * n) * 64 : 0;
}

void cpu_bytes_dots(const struct cpu_bytes_code *code, struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k,
                    struct cpu_code_block *buf)
{
    struct cpu_bytes_part p = { .n_row = k / 256, .low = code->low(w.format), .n_min = w.format->n_min };
    int panel = panel_rows(k, v.n <= code->few);

    for (int64_t r = 0; r < w.n; r += panel) {
        int64_t n = w.n - r < panel ? w.n - r : panel, bytes = w.row_bytes;
        const char *at = w.rows + r * bytes;

        code->take(buf, w.format, at, bytes, n, p.n_row);
        fetch_by(&p, (n + ROWS - 1) / ROWS * ((v.n + VECTORS - 1) / VECTORS), at, n * bytes, w.rows + w.n * bytes);
        for (int j = 0; j < v.n; j += VECTORS)
            for (int64_t i = 0; i < n; i += ROWS) {
                int m = v.n - j < VECTORS ? v.n - j : VECTORS;

                p.w = buf + i * p.n_row;
                p.x = v.x + j;
                p.rows = n - i < ROWS ? (int)(n - i) : ROWS;
                for (int l = j; l < j + m; l++)
                    _mm_prefetch((const char *)(v.y[l] + v.at + r + i), _MM_HINT_T0);
                code->strip(v.y + j, v.at + r + i, &p, w.format, m);
                p.next += p.n_next;
            }
    }
}

size_t cpu_bytes_need(int64_t k)
{
    return (size_t)panel_rows(k, false) * (size_t)((k + 255) / 256) * sizeof(struct cpu_code_block);
}

void cpu_bytes_codes(struct cpu_code_block *to, struct cpu_bytes_rows w, int64_t n_row, bool steps)
{
    bool follow = w.row_bytes == quant_row_bytes(w.format->type, n_row * 256); /* each other */

    for (int64_t i = 0, m = follow ? w.n : 1; i < w.n; i += m)
        w.format->codes_avx2(to + i * n_row, w.rows + i * w.row_bytes, m * n_row * 256, steps);
}

void cpu_bytes_take(struct cpu_code_block *to, const struct cpu_format *t, const char *rows, int64_t row_bytes, int64_t n,
                    int64_t n_row)
{
    cpu_bytes_codes(to, (struct cpu_bytes_rows){ t, rows, row_bytes, n, false, NULL }, n_row, true);
    for (int64_t i = n; i % CPU_BYTES_FOUR != 0; i++)
        memcpy(to + i * n_row, to + (n - 1) * n_row, (size_t)n_row * sizeof *to);
}

static int low(const struct cpu_format *t)
{
    return tile_kernels(t) == signs ? 0 : t->low;
}

static void dot_strip(float *const *y, int64_t at, struct cpu_bytes_part *p, const struct cpu_format *t, int n)
{
    cpu_bytes_strip(y, at, p, tile_kernels(t)[n - 1], n);
}

/* As many rows as stay in the second-level cache while all vectors pass. */
static void dot_laid(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k)
{
    enum { L2_BYTES = 196608 };
    struct cpu_bytes_part p = { .n_row = k / 256, .row_bytes = w.row_bytes };
    const int64_t some = ROWS * (L2_BYTES / (ROWS * w.row_bytes) + 1), band = v.n > VECTORS ? some : w.n;

    for (int64_t r = 0; r < w.n; r += band)
        for (int j = 0; j < v.n; j += VECTORS)
            for (int64_t i = r; i < r + band && i < w.n; i += ROWS) {
                const int n = v.n - j < VECTORS ? v.n - j : VECTORS;

                p.laid = w.rows + i * w.row_bytes;
                p.x = v.x + j;
                p.rows = w.n - i < ROWS ? (int)(w.n - i) : ROWS;
                cpu_bytes_strip(v.y + j, v.at + i, &p, laid[n - 1], n);
            }
}

static void dot_bytes(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    static const struct cpu_bytes_code code = { cpu_bytes_take, low, dot_strip, VECTORS };

    if (w.laid) {
        dot_laid(w, v, k);
        return;
    }
    cpu_bytes_dots(&code, w, v, k, buf);
}

const struct cpu_bytes cpu_bytes_avx2 = { .name = "avx2", .dots = dot_bytes, .need = cpu_bytes_need };
#endif
