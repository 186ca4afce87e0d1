/* SPDX-License-Identifier: Apache-2.0 */
/* lanes_body.h - products of one format with activations of 8 bits, by AVX2, from the code that takes its blocks apart.
 *
 * Included by the file of a format that defines BLOCK (the struct), IN_256 (how many have 256 elements), N_MIN, SUMS and
 *     lanes_take(t, b): struct x86_lanes of 256 elements
 *     pairs(t, b, g, x): products of group g of 32 with 32 bytes x, two in a word
 * SUMS is how large sums get, which says how groups are added up (enum x86_sums); with X86_SUMS_HALVES_4 and X86_SUMS_HALVES_8
 * halves have scales of their own. With MORE defined codes in pairs() are more by that than the elements. */

enum { LANES_AHEAD = IN_256 == 1 ? 2048 : 1024 }; /* bytes: a row is followed by the next, but pages stop the processor */

/* Where group g lies in the bytes of quant_acts. */
#define BYTE_PLACE(g) ((g) / 4 * 128 + (g) % 2 * 64 + (g) / 2 % 2 * 32)
#define PAIRS(g)      pairs(t, b, g, x86_load32(x->b + BYTE_PLACE(g)))

/* Sums of groups 0 to 3, of groups 4 to 7: see x86_sum_4(). */
X86_WORDS void lanes_sums(struct x86_lanes *t, const BLOCK *b, const struct quant_acts *x)
{
    _mm256_store_si256((void *)t->sums, x86_sum_4(PAIRS(0), PAIRS(1), PAIRS(2), PAIRS(3), SUMS));
    _mm256_store_si256((void *)(t->sums + 8), x86_sum_4(PAIRS(4), PAIRS(5), PAIRS(6), PAIRS(7), SUMS));
}
#undef PAIRS

/* The dots of 8 lanes. */
X86_WORDS __m256i lanes_dots(const struct x86_lanes *t, const struct quant_acts *x)
{
    __m256i lo = x86_load32(t->sums), hi = x86_load32(t->sums + 8);

    (void)x;
    if (SUMS >= X86_SUMS_HALVES_8) {
        lo = _mm256_mullo_epi32(lo, x86_load32(t->sub));
        hi = _mm256_mullo_epi32(hi, x86_load32(t->sub + 8));
    }
    lo = _mm256_add_epi32(_mm256_permute2x128_si256(lo, hi, 0x20), _mm256_permute2x128_si256(lo, hi, 0x31));
#ifdef MORE
    const __m256i less = SUMS >= X86_SUMS_HALVES_8 ? x86_load32(t->less) : _mm256_set1_epi16(MORE);

    lo = _mm256_sub_epi32(lo, _mm256_madd_epi16(less, x86_load32(x->whole)));
#endif
    return lo;
}

/* Scales are taken some blocks ahead, and sums of all of them before they meet floats: one block at a time, its way through
 * all of that would be what takes time. */
enum { LANES_TAKEN = 8 };

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
        struct x86_lanes         t[LANES_TAKEN];
        const struct quant_acts *z = x;
        int                      m = all - i < LANES_TAKEN ? (int)(all - i) : LANES_TAKEN;

        for (int j = 0; j < m; j++) {
            for (size_t k = 0; k < IN_256 * sizeof(BLOCK); k += 64)
                _mm_prefetch((const char *)(b + j * IN_256) + LANES_AHEAD + k, _MM_HINT_T0);
            lanes_take(t + j, b + j * IN_256);
        }
        for (int j = 0; j < m; j++, b += IN_256) {
            lanes_sums(t + j, b, z);
            z = z + 1 < end ? z + 1 : a;
        }
        for (int j = 0; j < m; j++) {
            __m256 scale = _mm256_mul_ps(_mm256_load_ps(x->scale), _mm256_load_ps(t[j].scale));

            sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(lanes_dots(t + j, x)), sum);
            if (N_MIN > 0)
                less = _mm256_fmadd_ps(_mm256_load_ps(t[j].min), _mm256_load_ps(N_MIN == 8 ? x->sum_32 : x->sum), less);
            if (N_MIN == 16)
                less = _mm256_fmadd_ps(_mm256_load_ps(t[j].min + 8), _mm256_load_ps(x->sum + 8), less);
            if (++x < end)
                continue;
            *y++ = x86_fold(N_MIN > 0 ? _mm256_sub_ps(sum, less) : sum);
            sum = less = _mm256_setzero_ps();
            x = a;
        }
    }
}
