/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_avx2_body.h - products of one format with activations of 8 bits, by AVX2, from the code that unpacks its blocks.
 *
 * Included by the file of a format that defines BLOCK (the struct), IN_256 (how many have 256 elements), N_MIN, SUMS
 * and
 *     lanes_take(t, b): struct x86_lanes of 256 elements, or with SCALES_45 defined struct x86_two_45 is taken
 *     lane_codes(b, g): the codes of group g of 32; or, with HALVES defined,
 *     lane_codes(b, g, h): of half h of group g, then of group g + 4
 * SUMS (enum x86_sums) is how large sums get, which says how groups are added up. With SIGNED defined codes may be
 * negative; with MORE defined they are more by that than the elements. With BOOK defined, instead of lane_codes(),
 *     fill_book(t, b): struct x86_book
 *     pairs(t, b, g, x): products of group g with 32 bytes x, two in a word */

/* Bytes that are fetched ahead: a row is followed by the next, but pages stop the processor. */
enum { LANES_AHEAD = IN_256 == 1 ? 2048 : 1024 };

/* Products with 32 bytes x, two in a word. */
X86_WORDS __m256i lanes_words(__m256i code, __m256i x)
{
#ifdef SIGNED
    return x86_pairs(code, x);
#else
    return _mm256_maddubs_epi16(code, x);
#endif
}

/* What is added up: products of groups g and g + 4, or of group g. */
#ifdef HALVES
X86_WORDS __m256i lanes_part(const struct x86_book *t, const BLOCK *b, const struct cpu_act_block *x, int g)
{
    __m256i p = lanes_words(lane_codes(b, g, 0), x86_load32(x->half + 64 * g));
    __m256i q = lanes_words(lane_codes(b, g, 1), x86_load32(x->half + 64 * g + 32));

    (void)t;
    return SUMS == X86_SUMS_2 ? _mm256_add_epi32(x86_twos(p), x86_twos(q)) : _mm256_add_epi16(p, q);
}
#define ADD_UP x86_sum_8
enum { LANES_SUMS = 1 }; /* registers: of all groups, or of groups 0 to 3, then 4 to 7 */
#else
X86_WORDS __m256i lanes_part(const struct x86_book *t, const BLOCK *b, const struct cpu_act_block *x, int g)
{
    __m256i bytes = x86_load32(x->b + 32 * g);

    (void)t;
#ifdef BOOK
    return pairs(t, b, g, bytes);
#else
    return lanes_words(lane_codes(b, g), bytes);
#endif
}
#define ADD_UP x86_sum_4
enum { LANES_SUMS = 2 };
#endif

/* Sums by one vector or two: a group is unpacked once for both. */
X86_WORDS void lanes_sums(__m256i sums[2][2], const struct x86_book *t, const BLOCK *b, const struct cpu_act_block *x,
                          const struct cpu_act_block *z, bool two)
{
#define BOTH(g) \
    __m256i p##g = lanes_part(t, b, x, first + g), q##g = two ? lanes_part(t, b, z, first + g) : p##g;
#define ADD_FOUR(h) \
    { \
        enum { first = 4 * (h) }; \
        EACH_4(BOTH) \
        sums[0][h] = ADD_UP(p0, p1, p2, p3, SUMS); \
        if (two) \
            sums[1][h] = ADD_UP(q0, q1, q2, q3, SUMS); \
    }
    ADD_FOUR(0)
    if (LANES_SUMS == 2)
        ADD_FOUR(LANES_SUMS - 1)
#undef ADD_FOUR
#undef BOTH
}

/* The dots of 8 lanes. */
X86_WORDS __m256i lanes_dots(const __m256i sums[2], const struct x86_lanes *t, const struct cpu_act_block *x)
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

X86_DOTS __m256 lanes_add(__m256 sum, const __m256i sums[2], const struct x86_lanes *t, const struct cpu_act_block *x)
{
    __m256 scale = _mm256_mul_ps(t->scale, _mm256_load_ps(x->scale));

    return _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(lanes_dots(sums, t, x)), sum);
}

X86_DOTS __m256 lanes_less(__m256 less, const struct x86_lanes *t, const struct cpu_act_block *x)
{
    less = _mm256_fmadd_ps(t->min[0], _mm256_load_ps(N_MIN == 8 ? x->sum_32 : x->sum), less);
    return N_MIN == 16 ? _mm256_fmadd_ps(t->min[1], _mm256_load_ps(x->sum + 8), less) : less;
}

/* Sums of a few blocks before those meet floats: one block at a time, its way through both would be what takes time. */
enum { LANES_TAKEN = 8 };
struct lanes_some {
    __m256i sums[LANES_TAKEN][2][2]; /* of each vector */
#ifdef BOOK
    struct x86_book book[LANES_TAKEN];
#endif
#ifdef SCALES_45
    struct x86_two_45 two[LANES_TAKEN / 2];
#endif
};

/* One vector or two, and where they are; they begin again where the first comes to its end. */
struct lanes_vectors {
    const struct cpu_act_block *a[2], *end, *x[2];
};

X86_WORDS void lanes_next(struct lanes_vectors *v, bool two)
{
    if (two)
        v->x[1] = v->x[0] + 1 < v->end ? v->x[1] + 1 : v->a[1];
    v->x[0] = v->x[0] + 1 < v->end ? v->x[0] + 1 : v->a[0];
}

/* m blocks from b on. */
X86_WORDS void lanes_some(struct lanes_some *s, const BLOCK *b, int m, struct lanes_vectors v, bool two)
{
#ifdef BOOK
    for (int j = 0; j < m; j++)
        fill_book(s->book + j, b + j);
#endif
#ifdef SCALES_45
    for (int j = 0; j < m; j += 2)
        x86_take_two_45(s->two + j / 2, b + j, b + j + (j + 1 < m));
#endif
    for (int j = 0; j < m; j++, b += IN_256) {
        for (size_t k = 0; k < IN_256 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + LANES_AHEAD + k, _MM_HINT_T0);
#ifdef BOOK
        lanes_sums(s->sums[j], s->book + j, b, v.x[0], v.x[1], two);
#else
        lanes_sums(s->sums[j], NULL, b, v.x[0], v.x[1], two);
#endif
        lanes_next(&v, two);
    }
}

/* Rows follow each other without gaps, so that blocks are taken ahead across their ends. */
X86_DOTS void lanes_rows(float *const *y, const BLOCK *b, int n_rows, struct lanes_vectors v, int64_t n, bool two)
{
    __m256  sum[2] = { _mm256_setzero_ps(), _mm256_setzero_ps() }, less[2] = { sum[0], sum[0] };
    int64_t all = n / 256 * n_rows, row = 0;

    for (int r = 0; all == 0 && r < n_rows; r++)
        y[0][r] = y[two][r] = 0.0f;
    for (int64_t i = 0; i < all; i += LANES_TAKEN) {
        struct lanes_some s;
        int               m = all - i < LANES_TAKEN ? (int)(all - i) : LANES_TAKEN;

        lanes_some(&s, b, m, v, two);
        for (int j = 0; j < m; j++, b += IN_256) {
            struct x86_lanes t;

#ifdef SCALES_45
            x86_lanes_45(&t, s.two + j / 2, j % 2);
#else
            lanes_take(&t, b);
#endif
            for (int k = 0; k <= two; k++) {
                sum[k] = lanes_add(sum[k], s.sums[j][k], &t, v.x[k]);
                if (N_MIN > 0)
                    less[k] = lanes_less(less[k], &t, v.x[k]);
            }
            lanes_next(&v, two);
            if (v.x[0] != v.a[0])
                continue;
            for (int k = 0; k <= two; k++) {
                y[k][row] = x86_fold(N_MIN > 0 ? _mm256_sub_ps(sum[k], less[k]) : sum[k]);
                sum[k] = less[k] = _mm256_setzero_ps();
            }
            row++;
        }
    }
}

TARGET_DOTS static void dots_i8_avx2(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                     const struct cpu_act_block *a, int64_t n)
{
    (void)row_bytes;
    lanes_rows(&y, rows, n_rows, (struct lanes_vectors){ { a }, a + n / 256, { a } }, n, false);
}

TARGET_DOTS static void two_i8_avx2(float *const y[2], const void *rows, int n_rows,
                                    const struct cpu_act_block *const a[2], int64_t n)
{
    lanes_rows(y, rows, n_rows, (struct lanes_vectors){ { a[0], a[1] }, a[0] + n / 256, { a[0], a[1] } }, n, true);
}
