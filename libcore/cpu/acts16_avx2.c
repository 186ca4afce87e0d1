/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_avx2.c - GEMV and GEMM with 16-bit activations, for AVX2 with FMA. A tile is one row by up to 8 vectors: the
 * row's words are loaded once, the vectors' are operands in memory, so that 16 products take little more than a
 * multiplication and an addition. Tiles go a few blocks deep, as far as the vectors stay in the first-level
 * cache, for all rows; their sums are in memory meanwhile. */
#include "cpu/acts16.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "cpu/formats/x86.h"

#define TARGET __attribute__((target("avx2,fma")))

enum { LANES = CPU_INT_LANES, VECTORS = 8, DEPTH = 3, ROWS = 16, BAND = 64 };

#include "cpu/f32_lanes.h"

#define LOAD(p) _mm256_load_si256((const void *)(p))

/* What sums are before the first block. */
static const _Alignas(64) float zeros[VECTORS * LANES];

/* Some blocks of some rows, and vectors from block `first` on. */
struct part {
    const struct cpu_int_block        *w;     /* rows, n_row blocks apart */
    const struct cpu_act_block *const *x;
    int64_t                         n_row, first, n_blocks;
    int                             rows, n_min;
};

#define VECTOR(j) const struct cpu_act_block *x##j = p->x[j] + p->first;

/* Both halves of a line of memory in turn: the same half of many lines, one after the other, takes some
 * processors twice as long. */
#define FIRST(j) \
    __m256i d##j = _mm256_add_epi32(_mm256_madd_epi16(u, LOAD(x##j[b].q)), _mm256_madd_epi16(v, LOAD(x##j[b].q + 16)));
#define STEP(j) \
    d##j = _mm256_add_epi32(d##j, _mm256_madd_epi16(u, LOAD(x##j[b].q + at))); \
    d##j = _mm256_add_epi32(d##j, _mm256_madd_epi16(v, LOAD(x##j[b].q + at + 16)));
#define AT(EACH, i) \
    { \
        enum { at = 32 * (i) }; \
        u = LOAD(w->w + at); \
        v = LOAD(w->w + at + 16); \
        EACH(STEP) \
    }
#define SUM(j) \
    _mm256_store_ps(sum + LANES * (j), \
                    _mm256_fmadd_ps(_mm256_mul_ps(f, _mm256_load_ps(x##j[b].scale)), _mm256_cvtepi32_ps(d##j), \
                                    _mm256_load_ps(old + LANES * (j))));
/* Not a loop: gcc 12 copies all accumulators in each turn. */
#define STEPS(EACH) AT(EACH, 1) AT(EACH, 2) AT(EACH, 3) AT(EACH, 4) AT(EACH, 5) AT(EACH, 6) AT(EACH, 7)

/* sum[row][vector][lane]; then what is done for each block. */
#define BLOCKS_OF(name, n, ...) \
TARGET static void name(float *sum, const struct part *p) \
{ \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i++, sum += LANES * (n)) { \
        const struct cpu_int_block *w = p->w + i * p->n_row + p->first; \
        const float *old = p->first == 0 ? zeros : sum; \
\
        for (int64_t b = 0; b < p->n_blocks; b++, w++, old = sum) { \
            __VA_ARGS__ \
        } \
    } \
}
#define TILE(n) \
    BLOCKS_OF(tile_##n, n, \
            __m256i u = LOAD(w->w), v = LOAD(w->w + 16); \
            __m256  f = _mm256_load_ps(w->scale); \
            EACH_##n(FIRST) STEPS(EACH_##n) EACH_##n(SUM))

/* Where weights have a scale for each 32. */
#define PLACE(g)       ((g) / 4 * 128 + (g) % 2 * 64 + (g) / 2 % 2 * 16)
#define GROUP_ZERO(j)  __m256 t##j = _mm256_setzero_ps();
#define GROUP_STEP(j) \
    t##j = _mm256_fmadd_ps( \
        f, _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(u, LOAD(x##j[b].q + at)), \
                                               _mm256_madd_epi16(v, LOAD(x##j[b].q + at + 32)))), t##j);
#define GROUP(EACH, g) \
    { \
        enum { at = PLACE(g) }; \
        u = LOAD(w->w + at); \
        v = LOAD(w->w + at + 32); \
        f = _mm256_broadcast_ss(w->scale + (g)); \
        EACH(GROUP_STEP) \
    }
#define GROUPS(EACH) \
    GROUP(EACH, 0) GROUP(EACH, 1) GROUP(EACH, 2) GROUP(EACH, 3) GROUP(EACH, 4) GROUP(EACH, 5) GROUP(EACH, 6) \
    GROUP(EACH, 7)
#define GROUP_SUM(j) \
    _mm256_store_ps(sum + LANES * (j), \
                    _mm256_fmadd_ps(_mm256_load_ps(x##j[b].scale), t##j, _mm256_load_ps(old + LANES * (j))));
#define GROUP_TILE(n) \
    BLOCKS_OF(group_tile_##n, n, \
            __m256i u, v; \
            __m256  f; \
            EACH_##n(GROUP_ZERO) GROUPS(EACH_##n) EACH_##n(GROUP_SUM))

/* Less the minima of all blocks: 8 of them, or 16. */
#define LESS(j)     __m256 l##j = _mm256_setzero_ps();
#define LESS_8(j)   l##j = _mm256_fmadd_ps(f, _mm256_load_ps(x##j[b].sum_32), l##j);
#define LESS_16(j)  l##j = _mm256_fmadd_ps(f, _mm256_load_ps(x##j[b].sum + half), l##j);
#define PUT_LESS(j) _mm256_store_ps(sum + LANES * (j), _mm256_sub_ps(_mm256_load_ps(sum + LANES * (j)), l##j));
#define LESS_TILE(n) \
TARGET static void less_##n(float *sum, const struct part *p) \
{ \
    EACH_##n(VECTOR) \
    for (int i = 0; i < p->rows; i++, sum += LANES * (n)) { \
        const struct cpu_int_block *w = p->w + i * p->n_row; \
\
        EACH_##n(LESS) \
        for (int64_t b = 0; b < p->n_blocks; b++, w++) { \
            __m256 f = _mm256_load_ps(w->min); \
\
            if (p->n_min == 8) { \
                EACH_##n(LESS_8) \
                continue; \
            } \
            for (int half = 0; half < 16; half += 8) { \
                f = _mm256_load_ps(w->min + half); \
                EACH_##n(LESS_16) \
            } \
        } \
        EACH_##n(PUT_LESS) \
    } \
}

#define TILES(F) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
TILES(TILE)
TILES(GROUP_TILE)
TILES(LESS_TILE)

typedef void tile_fn(float *sum, const struct part *p);
#define NAME(n)       tile_##n,
#define GROUP_NAME(n) group_tile_##n,
#define LESS_NAME(n)  less_##n,
static tile_fn *const tiles[2][VECTORS] = { { TILES(NAME) }, { TILES(GROUP_NAME) } };
static tile_fn *const less[VECTORS] = { TILES(LESS_NAME) };

/* Up to ROWS rows from the panel's row r on, n vectors. */
TARGET static void dot_strip(float *const *y, int64_t at, const struct cpu_ints_panel *w, int r,
                         const struct cpu_act_block *const *x, int n, int64_t k)
{
    _Alignas(64) float sum[ROWS * VECTORS * LANES]; /* folded by fours: rows that are not there, too */
    int     rows = w->n - r < ROWS ? w->n - r : ROWS;
    int64_t n_blocks = k / 256, pitch = (int64_t)n * LANES;
    struct part p = { w->u + r * n_blocks, x, n_blocks, 0, n_blocks, rows, w->n_min };

    for (int i = rows; i < (rows + 3) / 4 * 4; i++)
        memset(sum + i * pitch, 0, (size_t)pitch * sizeof *sum);
    for (int j = 0; j < n; j++)
        _mm_prefetch((const char *)(y[j] + at + r), _MM_HINT_T0);
    for (; p.first < n_blocks; p.first += DEPTH) {
        p.n_blocks = n_blocks - p.first < DEPTH ? n_blocks - p.first : DEPTH;
        tiles[w->groups][n - 1](sum, &p);
    }
    if (w->n_min > 0) {
        p.first = 0;
        p.n_blocks = n_blocks;
        less[n - 1](sum, &p);
    }
    put_folded(y, at + r, sum, rows, n, pitch);
}

static void dot_ints(float *const *y, int64_t at, const struct cpu_ints_panel *w, const struct cpu_act_block *const *x,
                 int nx, int64_t k)
{
    for (int j = 0; j < nx; j += VECTORS)
        for (int r = 0; r < w->n; r += ROWS)
            dot_strip(y + j, at, w, r, x + j, nx - j < VECTORS ? nx - j : VECTORS, k);
}

/* Up to VECTORS vectors by up to ROWS rows, a few blocks deep: vectors stay in the first-level cache meanwhile. */
TARGET static void some_rows(float *const *y, int64_t at, const struct cpu_ints_rows *w,
                             const struct cpu_act_block *const *x, int nx, int64_t k, int64_t ahead)
{
    enum { L1_BYTES = 24576, READ = 896 };
    _Alignas(64) float       sum[ROWS * VECTORS * LANES], minima[ROWS * VECTORS * LANES];
    const struct cpu_act_block *even[VECTORS];
    int                      n = (nx + 1) / 2 * 2, most = L1_BYTES / (n * READ);
    int64_t                  n_blocks = k / 256, pitch = (int64_t)n * LANES;
    struct cpu_int_tile    t = { .rows = w->rows, .row_bytes = w->row_bytes, .ahead = ahead, .n_rows = w->n, .n = n,
                                   .x = even, .sum = sum, .less = minima };
    size_t                   bytes = (size_t)((w->n + 3) / 4 * 4 * pitch) * sizeof *sum;

    most = most < CPU_TILE_BLOCKS ? most : CPU_TILE_BLOCKS;
    for (int j = 0; j < n; j++)
        even[j] = x[j < nx ? j : nx - 1];
    memset(sum, 0, bytes);
    memset(minima, 0, w->n_min > 0 ? bytes : 0);
    for (t.first = 0; t.first < n_blocks; t.first += t.n_blocks) {
        t.n_blocks = n_blocks - t.first < most ? (int)(n_blocks - t.first) : most;
        w->tile(&t);
    }
    for (int64_t i = 0; w->n_min > 0 && i < w->n * pitch; i += LANES)
        _mm256_store_ps(sum + i, _mm256_sub_ps(_mm256_load_ps(sum + i), _mm256_load_ps(minima + i)));
    put_folded(y, at, sum, w->n, nx, pitch);
}

/* BAND rows are multiplied with all vectors before the next ones, ROWS at a time. During the first vectors the next BAND rows
 * are prefetched. */
static void rows(float *const *y, int64_t at, const struct cpu_ints_rows *w, const struct cpu_act_block *const *x, int nx,
                 int64_t k)
{
    int band = nx > VECTORS ? BAND : ROWS;

    for (int first = 0; first < w->n; first += band) {
        int end = w->n - first < band ? w->n : first + band;

        for (int j = 0; j < nx; j += VECTORS)
            for (int r = first; r < end; r += ROWS) {
                struct cpu_ints_rows some = *w;

                some.rows = (const char *)w->rows + r * w->row_bytes;
                some.n = end - r < ROWS ? end - r : ROWS;
                some_rows(y + j, at + r, &some, x + j, nx - j < VECTORS ? nx - j : VECTORS, k,
                          j > 0 || w->n - r < band + ROWS ? 0 : band * w->row_bytes);
            }
    }
}

const struct cpu_ints cpu_ints_avx2 = { .name = "avx2", .dots = dot_ints, .rows = rows };
#endif
