/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_laid_body.h - products of one format's rows, laid out 16 side by side (cpu_lay_fn), with activations of 8 bits, by AVX-512.
 *
 * Included by the file of a format that defines BLOCK (the struct), IN_256 (how many have 256 elements), N_MIN (0 or 8), SUB_16,
 * LOW (acts8_codes_body.h) and, of 256 elements of 16 rows,
 *     HEAD, PARTS, PART: bytes that all groups of 32 need; how many parts the others have, one after the other; their bytes
 *     lay_block(head, part, row, at): lays out what begins `at` bytes from the rows' beginnings
 *     columns_numbers(to, head): scales, minima and sub-scales
 *     columns_code(head, part, g, odd, i, more): the i-th four codes of group g or, odd, g + 1, g even; more: by 128, unless
 *         LOW is 0
 * A register has a lane for each row. Of several vectors the same group of all blocks comes before the next group, so that its sums
 * stay in registers: that reads 16 rows in parts, and they have to be there before (cpu_laid.ahead). One vector takes blocks as
 * they lie. */

enum { LAID_BYTES = CPU_LAID * IN_256 * (int)sizeof(BLOCK) };
static_assert(HEAD + PARTS * PART == LAID_BYTES, "all of 16 blocks");

/* Numbers of 16 rows. */
static inline struct columns_numbers numbers_at(void *buf, int64_t n_row)
{
    struct columns_numbers u = { .scale = buf, .pitch = n_row };

    u.min = (void *)(u.scale + 8 * n_row);
    u.sub = u.min + (N_MIN > 0 ? 8 * n_row : 0);
    return u;
}

X86_VBMI void take_numbers(const struct columns_numbers *u, const char *rows, int64_t n_row)
{
    for (int64_t b = 0; b < n_row; b++)
        columns_numbers(&(struct columns_numbers){ u->scale + b, u->min + b, u->sub + b, n_row }, rows + b * LAID_BYTES);
}

/* Part i of `parts` of the lines that a group of a block fetches of what comes later. Fetches one after the other hold
 * up loads from the second-level cache: several vectors have them between products. One vector waits for memory, which
 * gives most when asked for all lines at once; on their way from the second-level cache they are fetched once more. */
enum { LAID_LINES = (LAID_BYTES / 8 + 63) / 64, LAID_NEAR = 768 };

/* A macro, as the hint must be a constant at every level of optimisation. */
#define LAID_FETCH(at, i, parts, hint) \
    for (int line = LAID_LINES * (i) / (parts); line < LAID_LINES * ((i) + 1) / (parts); line++) \
        _mm_prefetch((at) + 64 * line, hint)
X86_VBMI void laid_next(const char *next, int i, int parts)
{
    if (next != NULL)
        LAID_FETCH(next, i, parts, _MM_HINT_T1);
}

#define LAID_X(j)     const struct cpu_act_block *const x##j = a->x[j];
#define LAID_ZERO(j)  __m512 s##j = _mm512_setzero_ps(), l##j = s##j;
#define LAID_DWORD(p) _mm512_set1_epi32(x86_dword(p))
#if SUB_16
#define LAID_BEGIN(j) __m512i d##j = LOW > 0 ? LAID_DWORD(x##j[b].less + 2 * g) : _mm512_setzero_si512();
#define LAID_SECOND(j) \
    const __m512 h##j = _mm512_mul_ps(_mm512_load_ps(sub[b][0]), _mm512_cvtepi32_ps(d##j)); \
\
    d##j = LOW > 0 ? LAID_DWORD(x##j[b].less + 2 * g + 1) : _mm512_setzero_si512();
#define LAID_DOTS(j) _mm512_fmadd_ps(_mm512_load_ps(sub[b][1]), _mm512_cvtepi32_ps(d##j), h##j)
#else
#define LAID_BEGIN(j) \
    __m512i d##j = LOW > 0 ? _mm512_add_epi32(LAID_DWORD(x##j[b].less + 2 * g), LAID_DWORD(x##j[b].less + 2 * g + 1)) \
                           : _mm512_setzero_si512();
#define LAID_SECOND(j)
#define LAID_DOTS(j) _mm512_cvtepi32_ps(d##j)
#endif
/* gcc 12 loads and multiplies by two instructions. */
#define LAID_ADD(j) \
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" \
            : "+v"(d##j) \
            : "v"(v), "m"(*(const int32_t *)(const void *)(x##j[b].b + 32 * g + byte)));
#define LAID_STEP(n, i) \
    { \
        const __m512i v = columns_code(head, part, pair, odd, i, true); \
        const int     byte = 4 * (i); \
\
        laid_next(next, i, 8); \
        EACH_##n(LAID_ADD) \
    }
#define LAID_SCALE(j) s##j = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(x##j[b].scale[g])), LAID_DOTS(j), s##j);
#define LAID_LESS(j)  l##j = _mm512_fmadd_ps(m, _mm512_set1_ps(x##j[b].sum_32[g]), l##j);
#define LAID_PUT(j)   sum[j] = N_MIN > 0 ? _mm512_sub_ps(s##j, l##j) : s##j;

#define LAID_FOLDED(s0, s1, s2, s3, s4, s5, s6, s7) \
    _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(s0, s4), _mm512_add_ps(s2, s6)), \
                  _mm512_add_ps(_mm512_add_ps(s1, s5), _mm512_add_ps(s3, s7)))

/* Group `pair` or, odd, the next one of all blocks of a panel by n vectors. */
#define LAID_TILE(n) \
X86_VBMI void laid_group_##n(__m512 sum[n], const struct cpu_laid *a, const struct columns_numbers *u, const char *rows, \
                             const char *next, int pair, const int odd) \
{ \
    const int    g = pair + odd; \
    float (*const scale)[16] = u->scale + g * a->n_row; \
    float (*const min)[2][16] = u->min + g * a->n_row, (*const sub)[2][16] = u->sub + g * a->n_row; \
    const char  *head = rows, *part = rows + HEAD + g * PARTS / 8 * PART; \
\
    (void)min; \
    (void)sub; \
    EACH_##n(LAID_X) \
    EACH_##n(LAID_ZERO) \
    for (int64_t b = 0; b < a->n_row; b++, head += LAID_BYTES, part += LAID_BYTES) { \
        const __m512 f = _mm512_load_ps(scale[b]); \
\
        EACH_##n(LAID_BEGIN) \
        LAID_STEP(n, 0) LAID_STEP(n, 1) LAID_STEP(n, 2) LAID_STEP(n, 3) \
        EACH_##n(LAID_SECOND) \
        LAID_STEP(n, 4) LAID_STEP(n, 5) LAID_STEP(n, 6) LAID_STEP(n, 7) \
        EACH_##n(LAID_SCALE) \
        if (N_MIN > 0) { \
            const __m512 m = _mm512_load_ps(min[b][0]); \
\
            EACH_##n(LAID_LESS) \
        } \
        next += next != NULL ? LAID_BYTES / 8 : 0; \
    } \
    EACH_##n(LAID_PUT) \
} \
\
TARGET_VBMI static void laid_##n(const struct cpu_laid *a, const struct columns_numbers *u) \
{ \
    const char *rows = a->rows; \
\
    for (int64_t r = 0; r < a->n_rows; r += CPU_LAID, rows += a->n_row * LAID_BYTES) { \
        const char   *next = a->ahead == 0 ? NULL : r + CPU_LAID < a->n_rows ? rows + a->n_row * LAID_BYTES : a->next; \
        const int64_t each = next != NULL ? a->n_row * (LAID_BYTES / 8) : 0; /* bytes with a group */ \
        __m512        sum[8][n]; \
\
        take_numbers(u, rows, a->n_row); \
        for (int g = 0; g < 8; g += 2) { \
            laid_group_##n(sum[g], a, u, rows, next + g * each, g, 0); \
            laid_group_##n(sum[g + 1], a, u, rows, next + (g + 1) * each, g, 1); \
        } \
        for (int j = 0; j < n; j++) \
            _mm512_storeu_ps(a->y[j] + a->at + r, LAID_FOLDED(sum[0][j], sum[1][j], sum[2][j], sum[3][j], sum[4][j], sum[5][j], \
                                                              sum[6][j], sum[7][j])); \
    } \
}
LAID_TILE(2)
LAID_TILE(3)
LAID_TILE(4)
LAID_TILE(5)
LAID_TILE(6)
LAID_TILE(7)
LAID_TILE(8)

/* One vector. */
#define LAID_ONE(g) \
    { \
        const char  *part = laid + HEAD + (g) * PARTS / 8 * PART; \
        const __m512 f = _mm512_mul_ps(_mm512_load_ps(scale[g]), _mm512_set1_ps(x->scale[g])); \
        __m512i      d = LOW > 0 ? LAID_DWORD(x->less + 2 * (g)) : _mm512_setzero_si512(); \
        __m512i      e = LOW > 0 ? LAID_DWORD(x->less + 2 * (g) + 1) : _mm512_setzero_si512(); \
        __m512       v; \
\
        LAID_FETCH(laid + ahead + LAID_BYTES / 8 * (g), 0, 1, _MM_HINT_T1); \
        LAID_ONE_STEP(g, 0, d) LAID_ONE_STEP(g, 1, d) LAID_ONE_STEP(g, 2, d) LAID_ONE_STEP(g, 3, d) \
        LAID_ONE_STEP(g, 4, e) LAID_ONE_STEP(g, 5, e) LAID_ONE_STEP(g, 6, e) LAID_ONE_STEP(g, 7, e) \
        if (SUB_16) \
            v = _mm512_fmadd_ps(_mm512_load_ps(sub[g][1]), _mm512_cvtepi32_ps(e), \
                                _mm512_mul_ps(_mm512_load_ps(sub[g][0]), _mm512_cvtepi32_ps(d))); \
        else \
            v = _mm512_cvtepi32_ps(_mm512_add_epi32(d, e)); \
        s##g = _mm512_fmadd_ps(f, v, s##g); \
        if (N_MIN > 0) \
            l##g = _mm512_fmadd_ps(_mm512_load_ps(min[g][0]), _mm512_set1_ps(x->sum_32[g]), l##g); \
    }
#define LAID_ONE_STEP(g, i, sum) \
    LAID_FETCH(laid + LAID_NEAR + LAID_BYTES / 8 * (g), i, 8, _MM_HINT_T0); \
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" \
            : "+v"(sum) \
            : "v"(columns_code(laid, part, (g) & ~1, (g) & 1, i, true)), \
              "m"(*(const int32_t *)(const void *)(x->b + 32 * (g) + 4 * (i))));
#define LAID_ONE_TAKE(g) s##g = N_MIN > 0 ? _mm512_sub_ps(s##g, l##g) : s##g;

TARGET_VBMI static void laid_1(const struct cpu_laid *a, const struct columns_numbers *u)
{
    const int64_t ahead = a->ahead;
    const char   *laid = a->rows;

    (void)u;
    for (int64_t r = 0; r < a->n_rows; r += CPU_LAID) {
        const struct cpu_act_block *x = a->x[0];

        EACH_8(LAID_ZERO)
        for (int64_t b = 0; b < a->n_row; b++, x++, laid += LAID_BYTES) {
            _Alignas(64) float scale[8][16], min[8][2][16], sub[8][2][16];

            columns_numbers(&(struct columns_numbers){ scale, min, sub, 1 }, laid);
            EACH_8(LAID_ONE)
        }
        EACH_8(LAID_ONE_TAKE)
        _mm512_storeu_ps(a->y[0] + a->at + r, LAID_FOLDED(s0, s1, s2, s3, s4, s5, s6, s7));
    }
}

TARGET_VBMI static void dots_laid(const struct cpu_laid *a)
{
    static void (*const by[CPU_LAID_VECTORS])(const struct cpu_laid *, const struct columns_numbers *) = {
        laid_1, laid_2, laid_3, laid_4, laid_5, laid_6, laid_7, laid_8
    };
    const struct columns_numbers u = numbers_at(a->buf, a->n_row);

    by[a->n - 1](a, &u);
}

/* ---- tiles of AMX ---- */

/* Steps, of a group of a block, that codes and tiles are ahead of floats, and room for both. A tile does not get what was
 * stored right before. */
enum { CODES_AHEAD = 3, TILES_AHEAD = 2, TILES_RING = 4 };

struct tiles_room {
    _Alignas(64) int8_t code[TILES_RING][8][64];
    int32_t             dot[TILES_RING][2][16][16];
    int64_t             step, b; /* of the codes that come next; their block and group */
    int                 g;
};

/* Codes of the next step, if there is one. */
X86_VBMI void tiles_code(struct tiles_room *r, const struct cpu_tiles *a)
{
    const int   g = r->g;
    const char *head = a->rows + r->b * LAID_BYTES, *part = head + HEAD + g * PARTS / 8 * PART;
    int8_t (*to)[64] = r->code[r->step % TILES_RING];

    if (g == 8)
        return;

#define ODD(i)  _mm512_store_si512(to[i], columns_code(head, part, g - 1, 1, i, false));
#define EVEN(i) _mm512_store_si512(to[i], columns_code(head, part, g, 0, i, false));
    if (g % 2 == 1) {
        EACH_8(ODD)
    } else {
        EACH_8(EVEN)
    }
#undef ODD
#undef EVEN
    r->step++;
    if (++r->b == a->n_row) {
        r->b = 0;
        r->g++;
    }
}

/* Sums of step t: of the group or, SUB_16, of its halves. Tiles 0 and 1: sums; 4 and 5: vectors; 6 and 7: weights. */
#define TILES_ONE(sums, vectors, weights, half) \
    _tile_zero(sums); \
    _tile_loadd(vectors, a->q[t][0] + 16 * (half), 32); \
    _tile_loadd(weights, r->code[t % TILES_RING][4 * (half)], 64); \
    _tile_dpbssd(sums, vectors, weights); \
    _tile_stored(sums, r->dot[t % TILES_RING][half], 64);

TARGET_AMX __attribute__((always_inline)) static inline void tiles_dots(struct tiles_room *r, const struct cpu_tiles *a, int64_t t)
{
    TILES_ONE(0, 4, 6, 0)
#if SUB_16
    TILES_ONE(1, 5, 7, 1)
#endif
}

#define TILES_ZERO(j) __m512 s##j = _mm512_setzero_ps();
#define TILES_OF(half, j) _mm512_cvtepi32_ps(_mm512_load_si512(dot[half][j]))
#if SUB_16
#define TILES_DOTS(j) _mm512_fmadd_ps(second, TILES_OF(1, j), _mm512_mul_ps(first, TILES_OF(0, j)))
#else
#define TILES_DOTS(j) TILES_OF(0, j)
#endif
#define TILES_ADD(j) \
    laid_next(next, j, vectors); \
    s##j = _mm512_fmadd_ps(_mm512_mul_ps(f, _mm512_set1_ps(x[j])), TILES_DOTS(j), s##j);
#define TILES_PUT(j)  _mm512_store_ps(out + 16 * (j), s##j);
#define TILES_LESS(j) s##j = _mm512_fmadd_ps(f, _mm512_set1_ps(x[j]), s##j);
#define TILES_TAKE(j) _mm512_store_ps(out + 16 * (j), _mm512_sub_ps(_mm512_load_ps(out + 16 * (j)), s##j));

#define LAID_TILES(n) \
/* A group's minima, from step t on. */ \
TARGET_AMX static void tiles_less_##n(float *out, const struct cpu_tiles *a, const struct columns_numbers *u, int64_t t) \
{ \
    EACH_##n(TILES_ZERO) \
    for (int64_t end = t + a->n_row; t < end; t++) { \
        const float *x = a->sum[t][0]; \
        const __m512 f = _mm512_load_ps(u->min[t][0]); \
\
        EACH_##n(TILES_LESS) \
    } \
    EACH_##n(TILES_TAKE) \
} \
\
TARGET_AMX static void tiles_##n(const struct cpu_tiles *a, const struct columns_numbers *u) \
{ \
    enum { vectors = n }; \
    struct tiles_room room, *const r = &room; \
    const int64_t     n_row = a->n_row; \
    const char       *next = a->next; \
    float            *out = a->out; \
    int64_t           t = 0; /* step of floats */ \
\
    r->step = r->b = r->g = 0; \
    for (int i = 0; i < CODES_AHEAD; i++) \
        tiles_code(r, a); \
    for (int64_t i = 0; i < TILES_AHEAD; i++) \
        tiles_dots(r, a, i); \
    for (int group = 0; group < 8; group++, out += 16 * 16) { \
        EACH_##n(TILES_ZERO) \
        for (int64_t end = t + n_row; t < end; t++) { \
            const int32_t(*const dot)[16][16] = (const int32_t(*)[16][16])r->dot[t % TILES_RING]; \
            const float *x = a->scale[t]; \
            const __m512 f = _mm512_load_ps(u->scale[t]); \
            TILES_SUBS \
\
            tiles_code(r, a); \
            if (t + TILES_AHEAD < 8 * n_row) \
                tiles_dots(r, a, t + TILES_AHEAD); \
            EACH_##n(TILES_ADD) \
            next += next != NULL ? LAID_BYTES / 8 : 0; \
        } \
        EACH_##n(TILES_PUT) \
        if (N_MIN > 0) \
            tiles_less_##n(out, a, u, t - n_row); \
    } \
}
#if SUB_16
#define TILES_SUBS const __m512 first = _mm512_load_ps(u->sub[t][0]), second = _mm512_load_ps(u->sub[t][1]);
#else
#define TILES_SUBS
#endif
LAID_TILES(10)
LAID_TILES(12)
LAID_TILES(14)
LAID_TILES(16)

TARGET_VBMI static void tiles_laid(const struct cpu_tiles *a)
{
    static void (*const by[])(const struct cpu_tiles *, const struct columns_numbers *) = { tiles_10, tiles_12,
                                                                                            tiles_14, tiles_16 };
    const struct columns_numbers u = numbers_at(a->buf, a->n_row);

    take_numbers(&u, a->rows, a->n_row);
    by[a->twos - CPU_LAID_VECTORS / 2 - 1](a, &u);
}

/* Block b, laid out. */
X86_VBMI void columns_block(struct cpu_columns *to, const char *laid, int64_t b)
{
    columns_numbers(&(struct columns_numbers){ to->scale + b, to->min + b, to->sub + b, to->n_row }, laid);
    for (int g = 0; g < 8; g += 2) {
        const char *part = laid + HEAD + g * PARTS / 8 * PART, *next = laid + HEAD + (g + 1) * PARTS / 8 * PART;

        columns_fetch(to);
#define CODE(i) \
    _mm512_store_si512(to->code[g * to->n_row + b][i], columns_code(laid, part, g, 0, i, false)); \
    _mm512_store_si512(to->code[(g + 1) * to->n_row + b][i], columns_code(laid, next, g, 1, i, false));
        EACH_8(CODE)
#undef CODE
    }
}

TARGET_VBMI static void columns_laid(struct cpu_columns *to, const char *rows)
{
    for (int64_t b = 0; b < to->n_row; b++)
        columns_block(to, rows + b * LAID_BYTES, b);
}

TARGET_VBMI static void columns_vbmi(struct cpu_columns *to, const char *const row[16])
{
    for (int64_t b = 0; b < to->n_row; b++) {
        _Alignas(64) char laid[LAID_BYTES];

        lay_block(laid, laid + HEAD, row, b * IN_256 * (int64_t)sizeof(BLOCK));
        columns_block(to, laid, b);
    }
}

TARGET_VBMI static void lay_rows(void *to, const void *rows, int64_t row_bytes, int64_t n)
{
    const int64_t n_row = n / 256;
    const char   *row[CPU_LAID];
    char         *laid = to;

    for (int r = 0; r < CPU_LAID; r++)
        row[r] = (const char *)rows + r * row_bytes;
    for (int64_t b = 0; b < n_row; b++)
        lay_block(laid + b * LAID_BYTES, laid + b * LAID_BYTES + HEAD, row, b * IN_256 * (int64_t)sizeof(BLOCK));
}
