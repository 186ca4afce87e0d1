/* SPDX-License-Identifier: Apache-2.0 */
#if 0 /* to follow quant_dot_ints() */
/* bytes_body.h - products of one format with activations of 8 bits, by AVX-512 with VNNI, VBMI and GFNI.
 *
 * Included behind ints_body.h, whose definitions it takes, by the file of a format that also defines KIND and
 *     bytes(v, t, b): a block as four struct x86_bytes, of groups 0 and 2, 1 and 3, 4 and 6, 5 and 7, which is how bytes
 *     of activations lie
 * KIND is X86_PLAIN: codes that are never negative; X86_SIGNED: magnitudes, and which of them are negative;
 * X86_LESS + n: codes more than the elements by 128 >> n. With FOUR defined the format has scales and minima as q4_k, with
 * BOOK bytes of signs; TAKE(t, min, b) is what is taken where that is less than take() gives. */

#ifndef TAKE
#define TAKE(t, min, b) take(t, min, b, true)
#endif

/* What take() gives for all of a few blocks. */
enum { SOME = 4 };
struct some {
    struct x86_four  four;
    struct x86_taken t[SOME];
};

X86_VBMI void take_some(struct some *s, const BLOCK *b, int m)
{
#ifdef FOUR
    x86_take_four(&s->four, b, b + (m > 1), b + (m > 2 ? 2 : 0), b + (m > 3 ? 3 : 0));
#else
    for (int j = 0; j < m; j++) {
        __m256 min[2];

        s->t[j].scale = TAKE(s->t + j, min, b + j);
        for (int k = 0; k < N_MIN; k += 8)
            _mm256_store_ps(s->t[j].min + k, min[k / 8]);
#ifdef BOOK
        x86_turn_signs(s->t + j, signs(s->t + j, b + j, 0));
#endif
    }
#endif
}

#ifdef FOUR
#define SCALE(s, j)      ((s)->four.d[2 * (j)])
#define MINIMA(s, j)     ((s)->four.min + 8 * (j))
#define SCALE_LANE(s, j) ((s)->four.scale_min + 16 * (j)) /* bytes */
#else
#define SCALE(s, j)      ((s)->t[j].scale)
#define MINIMA(s, j)     ((s)->t[j].min)
#define SCALE_LANE(s, j) ((s)->t[j].w)
#endif

/* The scales of block j, from which scales_of() takes those of a pair. */
X86_VBMI __m512i all_scales(const struct some *s, int j)
{
    return SCALES == 8 ? _mm512_broadcast_i32x4(x86_load16(SCALE_LANE(s, j))) : x86_twice(SCALE_LANE(s, j));
}

/* What the 16 numbers of pair k are multiplied with: both words of each, or where bytes were summed by four the first. */
X86_VBMI __m512i scales_of(__m512i all, int k)
{
#ifdef FOUR
    const int at = k / 2 * 4 + k % 2, step = 2, odd = 128;
#else
    const int at = 2 * (k / 2 * 4 + k % 2), step = 4, odd = at + 1;
#endif
    int word = at | odd << 8, first = KIND < X86_LESS ? word | (int)((unsigned)word << 16) : word | (int)0x80800000;
    int then = step | (odd < 128 ? step << 8 : 0);

    then = KIND < X86_LESS ? then | then << 16 : then;
    return _mm512_shuffle_epi8(all, X86_HALVES(first, first + then));
}

/* Their products with the activations of a block, before scales: pairs of words, or numbers that fit one. */
X86_VBMI __m512i products(const struct x86_bytes *v, const struct quant_acts *x, int k)
{
    __m512i a = _mm512_load_si512(x->b + 64 * k);

    if (KIND == X86_PLAIN)
        return _mm512_maddubs_epi16(v->code, a);
    if (KIND == X86_SIGNED)
        return _mm512_maddubs_epi16(v->code, _mm512_mask_sub_epi8(a, v->minus, _mm512_setzero_si512(), a));
    __m512i less = _mm512_load_si512(x->less + 16 * k);

    if (KIND > X86_LESS)
        less = _mm512_srai_epi32(less, KIND > X86_LESS ? KIND - X86_LESS : 0);
    return _mm512_dpbusd_epi32(less, v->code, a);
}

X86_VBMI __m256 block_i8_vbmi(__m256 sum, const BLOCK *b, const struct some *s, int j, const struct quant_acts *x)
{
    __m256           scale = _mm256_mul_ps(_mm256_broadcast_ss(&SCALE(s, j)), _mm256_load_ps(x->scale));
    __m512i          all = all_scales(s, j), dots;
    struct x86_bytes v[4];

    bytes(v, s->t + j, b);
    dots = _mm512_madd_epi16(products(v, x, 0), scales_of(all, 0));
    dots = _mm512_dpwssd_epi32(dots, products(v + 1, x, 1), scales_of(all, 1));
    dots = _mm512_dpwssd_epi32(dots, products(v + 2, x, 2), scales_of(all, 2));
    dots = _mm512_dpwssd_epi32(dots, products(v + 3, x, 3), scales_of(all, 3));
    return _mm256_fmadd_ps(
        scale, _mm256_cvtepi32_ps(_mm256_add_epi32(_mm512_castsi512_si256(dots), _mm512_extracti64x4_epi64(dots, 1))), sum);
}

TARGET_VBMI static void dots_i8_vbmi(float *y, const void *rows, int64_t row_bytes, int n_rows, const struct quant_acts *a,
                                     int64_t n)
{
    __m256                   sum = _mm256_setzero_ps(), less = _mm256_setzero_ps();
    const BLOCK             *b = rows;
    const struct quant_acts *x = a;
    int64_t                  all = n / 256 * n_rows;

    (void)row_bytes;
    for (int r = 0; all == 0 && r < n_rows; r++)
        y[r] = 0.0f;
    for (int64_t i = 0; i < all; i += SOME) {
        struct some s;
        int         m = all - i < SOME ? (int)(all - i) : SOME;

        take_some(&s, b, m);
        for (int j = 0; j < m; j++, b++) {
            for (size_t k = 0; k < sizeof(BLOCK); k += 64)
                _mm_prefetch((const char *)b + AHEAD + k, _MM_HINT_T0);
            sum = block_i8_vbmi(sum, b, &s, j, x);
            if (N_MIN > 0) {
                const float *p = MINIMA(&s, j);
                const __m256 min[2] = { _mm256_load_ps(p), _mm256_load_ps(p + N_MIN / 16 * 8) };

                less = add_minima(less, min, x);
            }
            if (++x < a + n / 256)
                continue;
            *y++ = x86_fold(N_MIN > 0 ? _mm256_sub_ps(sum, less) : sum);
            sum = less = _mm256_setzero_ps();
            x = a;
        }
    }
}

/* A row's blocks by vectors two by two: the lanes of both lie in one register. */
#define TWO_FLOATS(p, q) _mm512_insertf32x8(_mm512_castps256_ps512(_mm256_load_ps(p)), _mm256_load_ps(q), 1)
#define FIRST_512(j) __m512i d##j = _mm512_madd_epi16(products(v, x##j + i, 0), s);
#define STEP_512(j)  d##j = _mm512_dpwssd_epi32(d##j, products(v + k, x##j + i, k), s);
#define PAIR_512(n, pair) \
    { \
        enum { k = pair }; \
        s = scales_of(all, k); \
        EACH_##n(STEP_512) \
    }
#define SUM_512(j, h) \
    { \
        __m512i both = _mm512_add_epi32(_mm512_shuffle_i64x2(d##j, d##h, 0x44), _mm512_shuffle_i64x2(d##j, d##h, 0xee)); \
        _mm512_storeu_ps(sum + 8 * (j), \
                         _mm512_fmadd_ps(_mm512_mul_ps(f, TWO_FLOATS(x##j[i].scale, x##h[i].scale)), \
                                         _mm512_cvtepi32_ps(both), _mm512_loadu_ps(sum + 8 * (j)))); \
    }
#define LESS_8(j, h) \
    _mm512_storeu_ps(less + 8 * (j), _mm512_fmadd_ps(f, TWO_FLOATS(x##j[i].sum_32, x##h[i].sum_32), \
                                                     _mm512_loadu_ps(less + 8 * (j))));
#define LESS_16(j, h) \
    _mm512_storeu_ps(less + 8 * (j), _mm512_fmadd_ps(f, TWO_FLOATS(x##j[i].sum + half, x##h[i].sum + half), \
                                                     _mm512_loadu_ps(less + 8 * (j))));
#define TWOS_2(F) F(0, 1)
#define TWOS_4(F) TWOS_2(F) F(2, 3)
#define TWOS_6(F) TWOS_4(F) F(4, 5)
#define TWOS_8(F) TWOS_6(F) F(6, 7)
#define TILE_ROW_512(n) \
    struct some some; \
\
    for (int i = 0; i < p->n_blocks; i++) { \
        for (size_t k = 0; k < sizeof(BLOCK); k += 64) \
            _mm_prefetch((const char *)(b + i) + p->ahead + k, _MM_HINT_T1); \
        if (i % SOME == 0) \
            take_some(&some, b + i, p->n_blocks - i < SOME ? p->n_blocks - i : SOME); \
        __m512i all = all_scales(&some, i % SOME), s = scales_of(all, 0); \
        __m512  f = _mm512_set1_ps(SCALE(&some, i % SOME)); \
        struct x86_bytes v[4]; \
\
        bytes(v, some.t + i % SOME, b + i); \
        EACH_##n(FIRST_512) \
        PAIR_512(n, 1) PAIR_512(n, 2) PAIR_512(n, 3) \
        TWOS_##n(SUM_512) \
        if (N_MIN == 8) { \
            f = _mm512_broadcast_f32x8(_mm256_load_ps(MINIMA(&some, i % SOME))); \
            TWOS_##n(LESS_8) \
        } \
        for (int half = 0; N_MIN == 16 && half < 16; half += 8) { \
            f = _mm512_broadcast_f32x8(_mm256_load_ps(MINIMA(&some, i % SOME) + half)); \
            TWOS_##n(LESS_16) \
        } \
    }
X86_TILES(TARGET_VBMI, tile_i8_vbmi, TILE_ROW_512, 1)
#endif
