/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_amx.c - GEMV and GEMM with 8-bit activations by AMX: up to 16 vectors by 16 rows of weights.
 *
 * A tile of sums is 32 products deep, for then scales come in: a group of 32 of one block, or with halves that have scales
 * two tiles of 16. It goes through memory to the vector units, which meanwhile add what an earlier tile gave. Blocks of one
 * group follow each other, so that 16 registers hold the sums of its lane. Vectors are the tile's rows, so that fewer of
 * them cost less, and weights its columns: their scales are a register, and so are 16 results of a vector. */
#include "cpu/acts8.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/formats/acts8_columns.h"

#define TARGET TARGET_AMX

/* Rows and vectors of a tile; vectors for which unpacking rows to columns does not pay; steps that tiles are ahead, and
 * buffers for their sums; blocks unpacked at a time by pairs of rows. */
enum { SIDE = 16, FEW = 24, AHEAD = 2, RING = 4, SOME = 2 };
enum { FETCHED = 3072 }; /* bytes ahead, as one vector's rows (cpu/formats/acts8_vbmi_body.h) */

/* 32 elements of 16 vectors: the same group of all blocks, then the next group, as in struct cpu_columns. */
typedef int8_t columns[8][SIDE][4];
typedef int8_t vectors[SIDE][32];
/* Numbers of those groups of rows or vectors; halves: of their first 16 elements, then of the others. */
typedef float numbers[SIDE];
typedef float halves[2][SIDE];

/* 16 vectors, each of these [8 * n_row]. */
struct packed {
    vectors *q;
    numbers *scale;
    halves  *sum; /* as minima: of all 32, or of halves */
};

struct part {
    struct cpu_columns w;
    struct packed        x;
    int                  n_min;
    int64_t              each; /* lines of w.next that a step fetches */
};

/* What ldtilecfg reads. */
struct config {
    uint8_t  palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t  rows[16];
};

/* Tiles 0 and 1: sums of n vectors; 4 and 5: vectors; 6 and 7: weights. Whole groups, or halves. */
TARGET static void configure(int n, bool sub_16)
{
    const uint8_t m = (uint8_t)n, k = sub_16 ? 16 : 32;
    const struct config c = {
        .palette = 1,
        .row_bytes = { 64, 64, 0, 0, k, k, 64, 64 },
        .rows = { m, m, 0, 0, m, m, k / 4, k / 4 },
    };

    __asm__ volatile("ldtilecfg %0" : : "m"(c)); /* gcc 12 has _tile_loadconfig() read 8 bytes of it */
}

#define ZERO(j)    __m512 s##j = _mm512_setzero_ps();
#define PUT(j)     _mm512_store_ps(sum + SIDE * (j), s##j);

/* Less the minima of a group's blocks, from step t on. */
#define LESS(j) s##j = _mm512_fmadd_ps(f, _mm512_set1_ps(x[j]), s##j);
#define TAKE(j) _mm512_store_ps(sum + SIDE * (j), _mm512_sub_ps(_mm512_load_ps(sum + SIDE * (j)), s##j));
#define TAKE_LESS(n) \
TARGET static void take_less_##n(float *sum, const struct part *p, int64_t t) \
{ \
    EACH_##n(ZERO) \
    for (int64_t end = t + p->w.n_row; t < end; t++) \
        for (int half = 0; half < p->n_min / 8; half++) { \
            const float *x = p->x.sum[t][half]; \
            const __m512 f = _mm512_load_ps(p->w.min[t][half]); \
\
            EACH_##n(LESS) \
        } \
    EACH_##n(TAKE) \
}

/* Sums of a step, of a group of a block, go to a buffer: whole, or those of halves. */
#define TILE(sums, vectors, codes, at, half) \
    _tile_zero(sums); \
    _tile_loadd(vectors, q[next][0] + 16 * (half), 32); \
    _tile_loadd(codes, code[next][4 * (half)], 64); \
    _tile_dpbssd(sums, vectors, codes); \
    _tile_stored(sums, at, 64);
#define TILES_whole(buf) TILE(0, 4, 6, buf, 0)
#define TILES_halves(buf) \
    TILE(0, 4, 6, buf, 0) \
    TILE(1, 5, 7, (buf) + SIDE * SIDE, 1)

#define FLOATS(at)     _mm512_cvtepi32_ps(_mm512_load_si512(at))
#define SCALE(j, dots) s##j = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(x[j])), dots, s##j);
#define WHOLE(j)       SCALE(j, FLOATS(now + SIDE * (j)))
/* Scales of halves are whole numbers, and their sums too few bits to be rounded. */
#define HALVES(j) \
    SCALE(j, _mm512_fmadd_ps(second, FLOATS(now + SIDE * (SIDE + (j))), _mm512_mul_ps(first, FLOATS(now + SIDE * (j)))))
#define SUBS_whole
#define SUBS_halves const __m512 first = _mm512_load_ps(p->w.sub[t][0]), second = _mm512_load_ps(p->w.sub[t][1]);

/* sum[group][vector][row]; tiles are AHEAD steps ahead. */
#define LANES(kind, n, ADD) \
TARGET static void kind##_##n(float *sum, struct part *p) \
{ \
    _Alignas(64) int32_t buf[RING][2 * SIDE * SIDE]; \
    const vectors *const q = (const vectors *)p->x.q; \
    const columns *const code = (const columns *)p->w.code; \
    const int64_t        n_row = p->w.n_row; \
    const char          *line = p->w.next; \
    int64_t              t = 0, next = 0; \
\
    for (; next < AHEAD; next++) { \
        TILES_##kind(buf[next]) \
    } \
    for (int g = 0; g < 8; g++, sum += SIDE * SIDE) { \
        EACH_##n(ZERO) \
        for (int64_t end = t + n_row; t < end; t++, next++) { \
            const int32_t *now = buf[t % RING]; \
            const float   *x = p->x.scale[t]; \
            const __m512   f = _mm512_load_ps(p->w.scale[t]); \
            SUBS_##kind \
\
            for (int64_t i = 0; i < p->each; i++, line += 64) \
                _mm_prefetch(line, _MM_HINT_T1); \
            if (next < 8 * n_row) { \
                TILES_##kind(buf[next % RING]) \
            } \
            EACH_##n(ADD) \
        } \
        EACH_##n(PUT) \
        if (p->n_min > 0) \
            take_less_##n(sum, p, t - n_row); \
    } \
    p->w.next = line; \
}
#define FOR(n) \
    TAKE_LESS(n) \
    LANES(whole, n, WHOLE) \
    LANES(halves, n, HALVES)
FOR(4)
FOR(8)
FOR(12)
FOR(16)

typedef void lanes_fn(float *sum, struct part *p);
static lanes_fn *const lanes[2][SIDE / 4] = {
    { whole_4, whole_8, whole_12, whole_16 },
    { halves_4, halves_8, halves_12, halves_16 },
};

/* Lanes of up to 16 rows folded, to n vectors. */
TARGET static void put_folded(float *const *y, int64_t at, const float *sum, int rows, int n)
{
    for (int j = 0; j < n; j++, sum += SIDE) {
#define LANE(g) _mm512_load_ps(sum + (g) * SIDE * SIDE)
        __m512 even = _mm512_add_ps(_mm512_add_ps(LANE(0), LANE(4)), _mm512_add_ps(LANE(2), LANE(6)));
        __m512 odd = _mm512_add_ps(_mm512_add_ps(LANE(1), LANE(5)), _mm512_add_ps(LANE(3), LANE(7)));
#undef LANE

        _mm512_mask_storeu_ps(y[j] + at, (__mmask16)((1u << rows) - 1), _mm512_add_ps(even, odd));
    }
}

/* 8 numbers each of 16 rows or vectors, by number, `step` bytes apart. */
TARGET static inline void turn_8(void *to, size_t step, const void *const from[SIDE])
{
    __m512i v[8];

    columns_32(v, (const char *const *)from, 0);
#define GIVE(g) _mm512_store_si512((char *)to + (g) * step, v[g]);
    EACH_8(GIVE)
#undef GIVE
}

/* n vectors, the last one again where they are not 16. */
TARGET static void pack_vectors(struct packed to, const struct cpu_act_block *const *x, int n, int64_t n_row, int n_min)
{
    for (int64_t b = 0; b < n_row; b++) {
        const struct cpu_act_block *a[SIDE];
        const void              *from[SIDE];

        for (int j = 0; j < SIDE; j++) {
            a[j] = x[j < n ? j : n - 1] + b;
            for (int g = 0; g < 8; g++)
                _mm256_store_si256((void *)to.q[g * n_row + b][j], x86_load32(a[j]->b + 32 * g));
        }
#define PACK(what, where, half) \
    for (int j = 0; j < SIDE; j++) \
        from[j] = a[j]->what; \
    turn_8((float *)(where)[b] + SIDE * (half), sizeof *(where) * (size_t)n_row, from);
        PACK(scale, to.scale, 0)
        if (n_min == 8) {
            PACK(sum_32, to.sum, 0)
        }
        if (n_min == 16) {
            PACK(sum, to.sum, 0)
            PACK(sum + 8, to.sum, 1)
        }
#undef PACK
    }
}

/* Block b of 16 rows that were unpacked by pairs, `pitch` blocks of each. */
TARGET static void take_block(const struct cpu_columns *to, int64_t b, const struct cpu_code_block *u, int64_t pitch,
                              const struct cpu_format *t)
{
    const struct cpu_code_block *row[SIDE];
    const void               *from[SIDE];
    const __m512i             less = _mm512_set1_epi8(t->low > 0 ? -128 : 0);
    __m512i                   v[8];

    for (int p = 0; p < 8; p++) {
        row[columns_first(p)] = u + 2 * p * pitch;
        row[columns_second(p)] = u + (2 * p + 1) * pitch;
    }
    for (int s = 0; s < 8; s++) {
        const struct cpu_code_block *const *of = row + s / 4 * (columns_second(0) - columns_first(0));

#define CODES(p) v[p] = _mm512_xor_si512(_mm512_load_si512(of[columns_first(p)]->code + s % 4 * 64), less);
        EACH_8(CODES)
#undef CODES
        columns_turn(v);
#define GIVE(g) _mm512_store_si512(to->code[(g) * to->n_row + b][s], v[g]);
        EACH_8(GIVE)
#undef GIVE
    }
#define TAKE_8(what, where, half) \
    for (int r = 0; r < SIDE; r++) \
        from[r] = row[r]->what; \
    turn_8((float *)(where)[b] + SIDE * (half), sizeof *(where) * (size_t)to->n_row, from);
    TAKE_8(scale, to->scale, 0)
    for (int half = 0; half < t->n_min / 8; half++) {
        TAKE_8(min + 8 * half, to->min, half)
    }
#undef TAKE_8
    for (int half = 0; t->sub_16 && half < 2; half++) {
#define SUBS(p) \
    v[p] = _mm512_permutex2var_epi32(_mm512_load_si512(row[columns_first(p)]->sub_f), half == 0 ? FOURS_EVEN : FOURS_ODD, \
                                     _mm512_load_si512(row[columns_second(p)]->sub_f));
        EACH_8(SUBS)
#undef SUBS
        columns_turn(v);
#define GIVE(g) _mm512_store_si512(to->sub[(g) * to->n_row + b][half], v[g]);
        EACH_8(GIVE)
#undef GIVE
    }
}

/* Up to 16 rows, the last one again where they are fewer. */
TARGET static void take_rows(struct cpu_columns *to, struct cpu_bytes_rows w)
{
    _Alignas(64) struct cpu_code_block u[SIDE * SOME];
    const int64_t block = quant_row_bytes(w.format->type, 256);
    const char   *row[SIDE];

    if (w.laid) {
        w.format->columns_laid(to, w.rows);
        return;
    }
    for (int r = 0; r < SIDE; r++)
        row[r] = w.rows + (r < w.n ? r : w.n - 1) * w.row_bytes;
    if (w.format->columns_vbmi != NULL) {
        w.format->columns_vbmi(to, row);
        return;
    }
    for (int64_t b = 0; b < to->n_row; b += SOME) {
        const int64_t m = to->n_row - b < SOME ? to->n_row - b : SOME;

        for (int p = 0; p < 8; p++)
            w.format->pair_vbmi(u + 2 * p * m, row[columns_first(p)] + b * block, row[columns_second(p)] + b * block, m);
        for (int64_t i = 0; i < m; i++)
            take_block(to, b + i, u + i, m, w.format);
    }
}

enum {
    ROWS_BYTES = sizeof(columns) + sizeof(numbers) + 2 * sizeof(halves), /* of a group */
    PACKED_BYTES = sizeof(vectors) + sizeof(numbers) + sizeof(halves),
};

/* Vectors packed at a time: as many as stay in the second-level cache while rows pass by. */
static int most(int64_t n_row)
{
    enum { MOST = 256, LEAST = 64, L2_BYTES = 1 << 20 };
    int64_t n = L2_BYTES / PACKED_BYTES / (8 * n_row) * SIDE;

    return n < LEAST ? LEAST : n < MOST ? (int)n : MOST;
}

static struct packed packed_at(char *buf, int64_t n)
{
    struct packed x = { (void *)buf, (void *)(buf + n * (int64_t)sizeof(vectors)), NULL };

    x.sum = (void *)(x.scale + n);
    return x;
}

/* Whether vectors are packed already; the caller sees to it that they are then. */
static bool is_kept(struct cpu_bytes_vectors v, int n_min)
{
    const struct cpu_bytes_kept now = { v.x, v.n, n_min };
    bool same = v.kept != NULL && v.kept->x == now.x && v.kept->n == now.n && v.kept->n_min == n_min;

    if (v.kept != NULL)
        *v.kept = now;
    return same;
}

TARGET static void some(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t n_row, char *buf)
{
    _Alignas(64) float sum[8 * SIDE * SIDE];
    const int64_t      n = 8 * n_row, tiles = (v.n + SIDE - 1) / SIDE;
    struct part        p = { .w = { .n_row = n_row }, .n_min = w.format->n_min };
    int                configured = 0;

    p.w.code = (void *)buf;
    p.w.scale = (void *)(p.w.code + n);
    p.w.min = (void *)(p.w.scale + n);
    p.w.sub = p.w.min + n;
    buf = (char *)(p.w.sub + n);
    if (!is_kept(v, p.n_min))
        for (int j = 0; j < v.n; j += SIDE)
            pack_vectors(packed_at(buf + j / SIDE * n * PACKED_BYTES, n), v.x + j, v.n - j < SIDE ? v.n - j : SIDE, n_row, p.n_min);
    for (int64_t r = 0; r < w.n; r += SIDE) {
        const int     rows = w.n - r < SIDE ? (int)(w.n - r) : SIDE;
        const int64_t rest = w.n - r - rows < SIDE ? w.n - r - rows : SIDE;

        p.w.next = w.rows + (r + rows) * w.row_bytes;
        p.w.lines = rest > 0 ? 4 : 0; /* half of them; steps fetch the others */
        take_rows(&p.w, (struct cpu_bytes_rows){ w.format, w.rows + r * w.row_bytes, w.row_bytes, rows, w.laid, NULL });
        p.each = (w.rows + (r + rows + rest) * w.row_bytes - p.w.next + 64 * n * tiles - 1) / (64 * n * tiles);
        for (int j = 0; j < v.n; j += SIDE) {
            const int m = v.n - j < SIDE ? v.n - j : SIDE, fours = (m + 3) / 4;

            if (fours != configured)
                configure(4 * fours, w.format->sub_16);
            configured = fours;
            p.x = packed_at(buf + j / SIDE * n * PACKED_BYTES, n);
            for (int i = j; i < j + m; i++)
                _mm_prefetch((const char *)(v.y[i] + v.at + r), _MM_HINT_T0);
            lanes[w.format->sub_16][fours - 1](sum, &p);
            put_folded(v.y + j, v.at + r, sum, rows, m);
        }
    }
    _tile_release();
}

/* Laid out rows by 9 to 16 vectors; of fewer vnni is as fast or faster. */
TARGET static void few_laid(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t n_row, char *buf)
{
    _Alignas(64) float  sum[8 * SIDE * SIDE];
    const struct packed x = packed_at(buf + n_row * CPU_LAID_BUF, 8 * n_row);
    const int           twos = (v.n + 1) / 2;

    if (!is_kept(v, w.format->n_min))
        pack_vectors(x, v.x, v.n, n_row, w.format->n_min);
    configure(2 * twos, w.format->sub_16);
    for (int64_t r = 0; r < w.n; r += SIDE) {
        const char *rows = w.rows + r * w.row_bytes, *next = r + SIDE < w.n ? rows + SIDE * w.row_bytes : w.next;

        w.format->tiles_laid(&(struct cpu_tiles){ rows, n_row, (const int8_t(*)[SIDE][32])x.q, (const float(*)[SIDE])x.scale,
                                                  (const float(*)[2][SIDE])x.sum, twos, buf, sum, next });
        put_folded(v.y, v.at + r, sum, SIDE, v.n);
    }
    _tile_release();
}

static void dot_bytes(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    if (w.laid && v.n > CPU_LAID_VECTORS && v.n <= SIDE) {
        few_laid(w, v, k / 256, buf);
        return;
    }
    if (v.n < FEW) {
        if (v.kept != NULL)
            v.kept->x = NULL;
        if (w.laid)
            cpu_bytes_laid(w, v, k, buf, FETCHED);
        else
            cpu_bytes_vnni.dots(w, v, k, buf);
        return;
    }
    for (int j = 0, m = most(k / 256); j < v.n; j += m)
        some(w, (struct cpu_bytes_vectors){ v.y + j, v.at, v.x + j, v.n - j < m ? v.n - j : m, v.kept }, k / 256, buf);
}

static size_t buffer_bytes(int64_t k)
{
    const int64_t n_row = (k + 255) / 256;
    /* few_laid() takes less than `many`: CPU_LAID_BUF and one of its four or more packs of vectors */
    const size_t few = cpu_bytes_vnni.need(k), many = (size_t)(8 * n_row * (ROWS_BYTES + most(n_row) / SIDE * PACKED_BYTES));

    return few > many ? few : many;
}

const struct cpu_bytes cpu_bytes_amx = { .name = "amx", .dots = dot_bytes, .need = buffer_bytes };

bool cpu_bytes_amx_allowed(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}
#else
bool cpu_bytes_amx_allowed(void)
{
    return false;
}
#endif
