/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_body.h - products of one format with activations of 8 bits, by AVX2, from the code that takes its blocks apart.
 *
 * Included by the file of a format that defines BLOCK (the struct), IN_256 (how many have 256 elements), N_MIN, SUMS and
 *     lanes_take(t, b): struct x86_lanes of 256 elements, or with SCALES_45 defined struct x86_two_45 is taken
 *     lane_codes(b, g): the codes of group g of 32; or, with HALVES defined,
 *     lane_codes(b, g, h): of half h of group g, then of group g + 4
 * SUMS (enum x86_sums) is how large sums get, which says how groups are added up. With SIGNED defined codes may be negative; with
 * MORE defined they are more by that than the elements. With BOOK defined, instead of lane_codes(),
 *     places(t, b): struct x86_book, and of it
 *     entries(t, b, g): group g, signed; pairs(t, b, g, x): its products with 32 bytes x, two in a word */

enum { LANES_AHEAD = IN_256 == 1 ? 2048 : 1024 }; /* bytes: a row is followed by the next, but pages stop the processor */

/* Where group g lies in the bytes of quant_acts. */
#define BYTE_PLACE(g) ((g) / 4 * 128 + (g) % 2 * 64 + (g) / 2 % 2 * 32)

/* Products with 32 bytes x, two in a word. */
X86_WORDS __m256i lanes_words(__m256i code, __m256i x)
{
#if defined SIGNED || defined BOOK
    return x86_pairs(code, x);
#else
    return _mm256_maddubs_epi16(code, x);
#endif
}

/* Sums of all groups, or of groups 0 to 3 and 4 to 7, of halves each: x86_sum_8(), x86_sum_4(). P(k): products with 32 bytes
 * of activations, from byte 32 k of them on. */
#ifdef HALVES
X86_WORDS __m256i lanes_two(__m256i p, __m256i q)
{
    return SUMS == X86_SUMS_2 ? _mm256_add_epi32(x86_twos(p), x86_twos(q)) : _mm256_add_epi16(p, q);
}

#define LANES_X(x, k) x86_load32((x)->half + 32 * (k))
#define CODES(k)      lane_codes(b, (k) / 2, (k) % 2)
#define SUM_LANES(sums, P) \
    (sums)[0] = x86_sum_8(lanes_two(P(0), P(1)), lanes_two(P(2), P(3)), lanes_two(P(4), P(5)), lanes_two(P(6), P(7)), SUMS);
#else
#define LANES_X(x, k) x86_load32((x)->b + BYTE_PLACE(k))
#define SUM_LANES(sums, P) \
    (sums)[0] = x86_sum_4(P(0), P(1), P(2), P(3), SUMS); \
    (sums)[1] = x86_sum_4(P(4), P(5), P(6), P(7), SUMS);
#ifdef BOOK
#define CODES(k) entries(&book, b, k)
#else
#define CODES(k) lane_codes(b, k)
#endif
#endif

/* The dots of 8 lanes. */
X86_WORDS __m256i lanes_dots(const __m256i sums[2], const struct x86_lanes *t, const struct quant_acts *x)
{
    __m256i dots = sums[0];

    (void)t;
    (void)x;
#ifndef HALVES
    __m256i hi = sums[1];

    if (SUMS >= X86_SUMS_HALVES_8) {
        dots = _mm256_mullo_epi32(dots, t->sub[0]);
        hi = _mm256_mullo_epi32(hi, t->sub[1]);
    }
    dots = _mm256_add_epi32(_mm256_permute2x128_si256(dots, hi, 0x20), _mm256_permute2x128_si256(dots, hi, 0x31));
#endif
#ifdef MORE
    const __m256i less = SUMS >= X86_SUMS_HALVES_8 ? t->less : _mm256_set1_epi16(MORE);

    dots = _mm256_sub_epi32(dots, _mm256_madd_epi16(less, x86_load32(x->whole)));
#endif
    return dots;
}

X86_DOTS __m256 lanes_add(__m256 sum, const __m256i sums[2], const struct x86_lanes *t, const struct quant_acts *x)
{
    return _mm256_fmadd_ps(_mm256_mul_ps(t->scale, _mm256_load_ps(x->scale)), _mm256_cvtepi32_ps(lanes_dots(sums, t, x)), sum);
}

X86_DOTS __m256 lanes_less(__m256 less, const struct x86_lanes *t, const struct quant_acts *x)
{
    less = _mm256_fmadd_ps(t->min[0], _mm256_load_ps(N_MIN == 8 ? x->sum_32 : x->sum), less);
    return N_MIN == 16 ? _mm256_fmadd_ps(t->min[1], _mm256_load_ps(x->sum + 8), less) : less;
}

#ifdef SCALES_45
#define LANES_TAKE(t, two, j, b) x86_lanes_45(&(t), (two) + (j) / 2, (j) % 2)
#else
#define LANES_TAKE(t, two, j, b) lanes_take(&(t), b)
#endif

/* Sums of a few blocks before those meet floats: one block at a time, its way through both would be what takes time. */
enum { LANES_TAKEN = 8 };
struct lanes_some {
    __m256i sums[LANES_TAKEN][2];
#ifdef BOOK
    struct x86_book book[LANES_TAKEN];
#endif
#ifdef SCALES_45
    struct x86_two_45 two[LANES_TAKEN / 2];
#endif
};

X86_WORDS void lanes_some(struct lanes_some *s, const BLOCK *b, int m, const struct quant_acts *x, const struct quant_acts *a,
                          const struct quant_acts *end)
{
#ifdef BOOK
    for (int j = 0; j < m; j++)
        places(s->book + j, b + j);
#define P(k) pairs(s->book + j, b, k, LANES_X(x, k))
#else
#define P(k) lanes_words(CODES(k), LANES_X(x, k))
#endif
#ifdef SCALES_45
    for (int j = 0; j < m; j += 2)
        x86_take_two_45(s->two + j / 2, b + j, b + j + (j + 1 < m));
#endif
    for (int j = 0; j < m; j++, b += IN_256) {
        for (size_t k = 0; k < IN_256 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + LANES_AHEAD + k, _MM_HINT_T0);
        SUM_LANES(s->sums[j], P)
        x = x + 1 < end ? x + 1 : a;
    }
#undef P
}

/* Rows follow each other without gaps, so that blocks are taken ahead across their ends. */
TARGET_DOTS static void dots_i8_avx2(float *y, const void *rows, int64_t row_bytes, int n_rows, const struct quant_acts *a,
                                     int64_t n)
{
    __m256                   sum = _mm256_setzero_ps(), less = _mm256_setzero_ps();
    const BLOCK             *b = rows;
    const struct quant_acts *x = a, *end = a + n / 256;
    int64_t                  all = n / 256 * n_rows;

    (void)row_bytes;
    for (int r = 0; all == 0 && r < n_rows; r++)
        y[r] = 0.0f;
    for (int64_t i = 0; i < all; i += LANES_TAKEN) {
        struct lanes_some s;
        int               m = all - i < LANES_TAKEN ? (int)(all - i) : LANES_TAKEN;

        lanes_some(&s, b, m, x, a, end);
        for (int j = 0; j < m; j++, b += IN_256) {
            struct x86_lanes t;

            LANES_TAKE(t, s.two, j, b);
            sum = lanes_add(sum, s.sums[j], &t, x);
            if (N_MIN > 0)
                less = lanes_less(less, &t, x);
            if (++x < end)
                continue;
            *y++ = x86_fold(N_MIN > 0 ? _mm256_sub_ps(sum, less) : sum);
            sum = less = _mm256_setzero_ps();
            x = a;
        }
    }
}

/* The sums of a row's blocks by n vectors, then what they are times the scales. */
X86_DOTS void lanes_tile_row(const struct quant_int_tile *p, const BLOCK *b, float *sum, float *less)
{
    __m256i sums[QUANT_TILE_BLOCKS][QUANT_TILE_VECTORS][2];
#ifdef SCALES_45
    struct x86_two_45 two[QUANT_TILE_BLOCKS / 2];

    for (int i = 0; i < p->n_blocks; i += 2)
        x86_take_two_45(two + i / 2, b + i, b + i + (i + 1 < p->n_blocks));
#endif
    for (int i = 0; i < p->n_blocks; i++, b += IN_256) {
#ifdef BOOK
        struct x86_book book;

        places(&book, b);
#endif
        __m256i code[8] = { CODES(0), CODES(1), CODES(2), CODES(3), CODES(4), CODES(5), CODES(6), CODES(7) };

        for (size_t k = 0; k < IN_256 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + p->ahead + k, _MM_HINT_T1);
        for (int j = 0; j < p->n; j++) {
            const struct quant_acts *x = p->x[j] + p->first + i;

#define P(k) lanes_words(code[k], LANES_X(x, k))
            SUM_LANES(sums[i][j], P)
#undef P
        }
    }
    b -= IN_256 * p->n_blocks;
    for (int i = 0; i < p->n_blocks; i++, b += IN_256) {
        struct x86_lanes t;

        LANES_TAKE(t, two, i, b);
        for (int j = 0; j < p->n; j++) {
            const struct quant_acts *x = p->x[j] + p->first + i;

            _mm256_store_ps(sum + 8 * j, lanes_add(_mm256_load_ps(sum + 8 * j), sums[i][j], &t, x));
            if (N_MIN > 0)
                _mm256_store_ps(less + 8 * j, lanes_less(_mm256_load_ps(less + 8 * j), &t, x));
        }
    }
}

TARGET_DOTS static void tile_i8_avx2(const struct quant_int_tile *p)
{
    const char *row = p->rows;

    for (int r = 0; r < p->n_rows; r++, row += p->row_bytes)
        lanes_tile_row(p, (const BLOCK *)row + p->first * IN_256, p->sum + (int64_t)r * p->n * 8, p->less + (int64_t)r * p->n * 8);
}
