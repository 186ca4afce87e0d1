/* SPDX-License-Identifier: Apache-2.0 */
/* bytes_amx.c - products with activations of 8 bits by AMX: 16 rows of weights, bytes as in the row, by 16 vectors.
 *
 * A tile of sums is 32 products deep, for then scales come in: a group of 32 of one block, or with halves that have scales
 * two tiles of 16. It goes through memory to the vector units, which meanwhile add what an earlier tile gave. Blocks of one
 * group follow each other, so that 16 registers hold the sums of its lane. */
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/bytes.h"
#include "quant/x86.h"

#define TARGET \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c,amx-tile,amx-int8")))

/* Rows and vectors of a tile; vectors packed at a time; how many are worth a tile; steps that tiles are ahead. */
enum { SIDE = 16, MOST = 128, FEW = 16, AHEAD = 1 };

/* A group of 32 elements of 16 vectors, four of each side by side. */
struct packed {
    _Alignas(64) int8_t q[8][SIDE][4];
    float scale[SIDE], sum_32[SIDE], sum[2][SIDE];
};

/* What ldtilecfg reads. */
struct config {
    uint8_t  palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t  rows[16];
};
/* Tiles 0 to 3: sums; 4 and 5: codes of 16 rows; 6 and 7: vectors. Whole groups, or halves. */
static const struct config whole_config = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 32, 32, 64, 64 },
    .rows = { 16, 16, 16, 16, 16, 16, 8, 8 },
}, halves_config = {
    .palette = 1,
    .row_bytes = { 64, 64, 64, 64, 16, 16, 64, 64 },
    .rows = { 16, 16, 16, 16, 16, 16, 4, 4 },
};

/* What a block of 16 rows has beside codes, by groups; sub: of first halves, of second ones, as floats. */
struct scales {
    _Alignas(64) float scale[8][SIDE];
    float min[2][8][SIDE], sub[2][8][SIDE];
};

/* 16 rows, of n_row blocks each, by 16 vectors: packed[block][group]. */
struct part {
    const struct quant_codes *w;
    const struct scales      *s; /* [block] */
    const struct packed      *x;
    int64_t                   n_row;
    int                       n_min;
};

#define EACH_16(F) EACH_8(F) F(8) F(9) F(10) F(11) F(12) F(13) F(14) F(15)
#define ZERO(i)    __m512 s##i = _mm512_setzero_ps();
#define PUT(i)     _mm512_store_ps(sum + SIDE * (i), s##i);

#define LESS(i) s##i = _mm512_fmadd_ps(_mm512_set1_ps(min[i]), f, s##i);
TARGET static void take_less(float *sum, const struct part *p, int g)
{
    EACH_16(ZERO)
    for (int64_t b = 0; b < p->n_row; b++) {
        const struct packed *x = p->x + b * 8 + g;

        for (int half = 0; half < p->n_min / 8; half++) {
            const float *min = p->s[b].min[half][g];
            const __m512 f = _mm512_load_ps(p->n_min == 8 ? x->sum_32 : x->sum[half]);

            EACH_16(LESS)
        }
    }
#define TAKE(i) _mm512_store_ps(sum + SIDE * (i), _mm512_sub_ps(_mm512_load_ps(sum + SIDE * (i)), s##i));
    EACH_16(TAKE)
#undef TAKE
}

/* Sums of a group of a block go to a buffer: whole, or those of halves. */
struct step {
    int64_t b;
    int     g;
};

#define TILE(sums, codes, vectors, at, half) \
    { \
        _tile_zero(sums); \
        _tile_loadd(codes, w->code + 32 * s.g + 16 * (half), pitch); \
        _tile_loadd(vectors, x->q[4 * (half)], 64); \
        _tile_dpbssd(sums, codes, vectors); \
        _tile_stored(sums, at, 64); \
    }
TARGET static void whole_tiles(int32_t *buf, const struct part *p, struct step s)
{
    const struct quant_codes *w = p->w + s.b;
    const struct packed      *x = p->x + s.b * 8 + s.g;
    int64_t                   pitch = p->n_row * (int64_t)sizeof *w;

    TILE(0, 4, 6, buf, 0)
}

TARGET static void halves_tiles(int32_t *buf, const struct part *p, struct step s)
{
    const struct quant_codes *w = p->w + s.b;
    const struct packed      *x = p->x + s.b * 8 + s.g;
    int64_t                   pitch = p->n_row * (int64_t)sizeof *w;

    TILE(0, 4, 6, buf, 0)
    TILE(1, 5, 7, buf + SIDE * SIDE, 1)
}

/* Blocks, then groups. */
static inline struct step after(const struct part *p, struct step s)
{
    return s.b + 1 < p->n_row ? (struct step){ s.b + 1, s.g } : (struct step){ 0, s.g + 1 };
}

#define FLOATS(at)     _mm512_cvtepi32_ps(_mm512_load_si512(at))
#define SCALE(i, dots) s##i = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_set1_ps(w->scale[g][i]), f), dots, s##i);
#define WHOLE(i)       SCALE(i, FLOATS(now + SIDE * (i)))
/* Scales of halves are whole numbers, and their sums too few bits to be rounded. */
#define SUB(i, half)   _mm512_set1_ps(w->sub[half][g][i])
#define HALVES(i) \
    SCALE(i, _mm512_fmadd_ps(SUB(i, 1), FLOATS(now + SIDE * (SIDE + (i))), \
                             _mm512_mul_ps(SUB(i, 0), FLOATS(now + SIDE * (i)))))

/* sum[group][row][vector]; tiles are AHEAD steps ahead. */
#define LANES(name, tiles, ADD) \
TARGET static void name(float *sum, const struct part *p) \
{ \
    _Alignas(64) int32_t buf[AHEAD + 1][2 * SIDE * SIDE]; \
    struct step          next = { 0, 0 }; \
    int                  turn = 0; \
\
    for (int i = 0; i < AHEAD; i++, next = after(p, next)) \
        tiles(buf[i], p, next); \
    for (int g = 0; g < 8; g++, sum += SIDE * SIDE) { \
        EACH_16(ZERO) \
        for (int64_t b = 0; b < p->n_row; b++, next = after(p, next), turn = (turn + 1) % (AHEAD + 1)) { \
            const struct scales *w = p->s + b; \
            const int32_t       *now = buf[turn]; \
            const __m512         f = _mm512_load_ps(p->x[b * 8 + g].scale); \
\
            if (next.g < 8) \
                tiles(buf[(turn + AHEAD) % (AHEAD + 1)], p, next); \
            EACH_16(ADD) \
        } \
        EACH_16(PUT) \
        if (p->n_min > 0) \
            take_less(sum, p, g); \
    } \
}
LANES(whole_lanes, whole_tiles, WHOLE)
LANES(halves_lanes, halves_tiles, HALVES)

/* Lanes of n rows folded, to m vectors. */
TARGET static void put(const struct cpu_bytes_vectors *v, int64_t at, const float *sum, int n, int m)
{
    _Alignas(64) float row[SIDE][SIDE], column[SIDE][SIDE];

    for (int i = 0; i < SIDE; i++, sum += SIDE) {
#define LANE(g) _mm512_load_ps(sum + (g) * SIDE * SIDE)
        __m512 even = _mm512_add_ps(_mm512_add_ps(LANE(0), LANE(4)), _mm512_add_ps(LANE(2), LANE(6)));
        __m512 odd = _mm512_add_ps(_mm512_add_ps(LANE(1), LANE(5)), _mm512_add_ps(LANE(3), LANE(7)));
#undef LANE

        _mm512_store_ps(row[i], _mm512_add_ps(even, odd));
    }
    for (int i = 0; i < 4; i++) { /* quarters turned */
        int     r = i / 2 * 8, c = i % 2 * 8;
        __m256i q[8];

#define TAKE(k) q[k] = x86_load32(row[r + (k)] + c);
        EACH_8(TAKE)
#undef TAKE
        x86_turn_8(q);
#define GIVE(k) _mm256_store_si256((void *)(column[c + (k)] + r), q[k]);
        EACH_8(GIVE)
#undef GIVE
    }
    for (int j = 0; j < m; j++)
        _mm512_mask_storeu_ps(v->y[j] + at, (__mmask16)((1u << n) - 1), _mm512_load_ps(column[j]));
}

/* 8 numbers each of 8 rows or vectors, by number, `step` bytes apart. */
TARGET static inline void turn_8(void *to, size_t step, const void *const from[8])
{
    __m256i v[8];

#define TAKE(j) v[j] = x86_load32(from[j]);
    EACH_8(TAKE)
#undef TAKE
    x86_turn_8(v);
#define GIVE(g) _mm256_store_si256((void *)((char *)to + (g) * step), v[g]);
    EACH_8(GIVE)
#undef GIVE
}

/* n vectors, the last one again where they are not 16. */
TARGET static void pack(struct packed *to, const struct quant_acts *const *x, int n, int64_t n_row, int n_min)
{
    for (int64_t b = 0; b < n_row; b++, to += 8)
        for (int half = 0; half < SIDE; half += 8) {
            const struct quant_acts *a[8];
            const void              *from[8];

            for (int j = 0; j < 8; j++)
                a[j] = x[half + j < n ? half + j : n - 1] + b;
#define PACK(what, where) \
    for (int j = 0; j < 8; j++) \
        from[j] = a[j]->what; \
    turn_8(where + half, sizeof *to, from);
            for (int s = 0; s < 8; s++) {
                PACK(step + 32 * s, to->q[s])
            }
            PACK(scale, to->scale)
            if (n_min == 8) {
                PACK(sum_32, to->sum_32)
            }
            if (n_min == 16) {
                PACK(sum, to->sum[0])
                PACK(sum + 8, to->sum[1])
            }
#undef PACK
        }
}

/* Scales of n rows, and the last one again where they are not 16. */
TARGET static void take_scales(struct scales *to, struct quant_codes *w, int n, int64_t n_row,
                               const struct quant_type *t)
{
    for (int64_t i = 0; t->sub_16 && i < n * n_row; i++) {
        __m512i s = _mm512_srai_epi32(_mm512_loadu_si512(w[i].sub), 16);

        _mm512_storeu_si512(w[i].sub, _mm512_castps_si512(_mm512_cvtepi32_ps(s)));
    }
    for (int64_t b = 0; b < n_row; b++, to++)
        for (int half = 0; half < SIDE; half += 8) {
            const struct quant_codes *row[8];
            const void               *from[8];

            for (int j = 0; j < 8; j++)
                row[j] = w + (half + j < n ? half + j : n - 1) * n_row + b;
#define TAKE(what, where) \
    for (int j = 0; j < 8; j++) \
        from[j] = row[j]->what; \
    turn_8(where[0] + half, sizeof where[0], from);
            TAKE(scale, to->scale)
            for (int i = 0; i < t->n_min / 8; i++) {
                TAKE(min + 8 * i, to->min[i])
            }
            for (int i = 0; t->sub_16 && i < 2; i++) {
                TAKE(sub + 8 * i, to->sub[i])
            }
#undef TAKE
        }
}

TARGET static void some(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t n_row, struct quant_codes *rows)
{
    _Alignas(64) float sum[8 * SIDE * SIDE];
    struct scales     *scales = (void *)(rows + SIDE * n_row);
    struct packed     *x = (void *)(scales + n_row);
    bool               halves = w.type->sub_16;

    for (int j = 0; j < v.n; j += SIDE)
        pack(x + j / SIDE * n_row * 8, v.x + j, v.n - j < SIDE ? v.n - j : SIDE, n_row, w.type->n_min);
    for (int64_t r = 0; r < w.n; r += SIDE) {
        int n = w.n - r < SIDE ? (int)(w.n - r) : SIDE;

        cpu_bytes_codes(rows, (struct cpu_bytes_rows){ w.type, w.rows + r * w.row_bytes, w.row_bytes, n }, n_row, false);
        take_scales(scales, rows, n, n_row, w.type);
        for (int j = 0; j < v.n; j += SIDE) {
            struct part              p = { rows, scales, x + j / SIDE * n_row * 8, n_row, w.type->n_min };
            struct cpu_bytes_vectors to = { v.y + j, 0, v.x + j, 0 };

            (halves ? halves_lanes : whole_lanes)(sum, &p);
            put(&to, v.at + r, sum, n, v.n - j < SIDE ? v.n - j : SIDE);
        }
    }
}

TARGET static void dots(struct cpu_bytes_rows w, struct cpu_bytes_vectors v, int64_t k, void *buf)
{
    if (v.n < FEW) {
        cpu_bytes_vnni.dots(w, v, k, buf);
        return;
    }
    const struct config *c = w.type->sub_16 ? &halves_config : &whole_config;

    __asm__ volatile("ldtilecfg %0" : : "m"(*c)); /* gcc 12 has _tile_loadconfig() read 8 bytes of it */
    for (int j = 0; j < v.n; j += MOST)
        some(w, (struct cpu_bytes_vectors){ v.y + j, v.at, v.x + j, v.n - j < MOST ? v.n - j : MOST }, k / 256, buf);
    _tile_release();
}

static size_t need(int64_t k)
{
    size_t n_row = (size_t)((k + 255) / 256), rows = SIDE * sizeof(struct quant_codes) + sizeof(struct scales);
    size_t few = cpu_bytes_need(k), many = n_row * (rows + MOST / SIDE * 8 * sizeof(struct packed));

    return few > many ? few : many;
}

const struct cpu_bytes cpu_bytes_amx = { .name = "amx", .dots = dots, .need = need };

bool cpu_bytes_amx_allowed(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XTILEDATA = 18 };

    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0;
}
