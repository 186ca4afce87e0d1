/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_codes_body.h - blocks of one format as bytes (struct cpu_code_block), by AVX2.
 *
 * Included after acts8_avx2_body.h, and with what that takes, by the file of a format that also defines LOW and SPAN (struct
 * quant_type). */

/* The codes of a block, more by MORE where that is defined: of groups; with HALVES of the first halves of groups g and g + 4,
 * then of their second ones. */
X86_WORDS void codes_take(__m256i v[8], const BLOCK *b)
{
#if defined(BOOK)
    struct x86_book book;

    fill_book(&book, b);
#define CODE(g) v[g] = entries(&book, b, g);
#elif defined(HALVES)
#define CODE(i) v[i] = lane_codes(b, (i) % 4, (i) / 4);
#else
#define CODE(g) v[g] = lane_codes(b, g);
#endif
    EACH_8(CODE)
#undef CODE
}

/* In steps. */
X86_WORDS void codes_turn(__m256i v[8])
{
#if !defined(MORE) && LOW > 0 && SPAN <= 128
#define ADD(i) v[i] = _mm256_add_epi8(v[i], _mm256_set1_epi8(LOW));
    EACH_8(ADD)
#undef ADD
#endif
#ifdef HALVES
    x86_turn_4(v);
    x86_turn_4(v + 4);
#else
    x86_turn_8(v);
#endif
}

/* In the order of the row. */
X86_WORDS void codes_order(__m256i v[8])
{
#ifdef MORE
#define SUB(i) v[i] = _mm256_sub_epi8(v[i], _mm256_set1_epi8(MORE));
    EACH_8(SUB)
#undef SUB
#endif
#ifdef HALVES
#define HALVES_OF(g) \
    { \
        const __m256i both = _mm256_permute2x128_si256(v[g], v[(g) + 4], 0x20); \
\
        v[(g) + 4] = _mm256_permute2x128_si256(v[g], v[(g) + 4], 0x31); \
        v[g] = both; \
    }
    EACH_4(HALVES_OF)
#undef HALVES_OF
#endif
    (void)v;
}

TARGET_AVX2 static void codes_avx2(struct cpu_code_block *u, const void *row, int64_t n, bool steps)
{
    const BLOCK *b = row;
#ifdef SCALES_45
    struct x86_two_45 two;
#endif

    for (int64_t i = 0; i < n / 256; i++, b += IN_256, u++) {
        struct x86_lanes t;
        __m256i          v[8];

        for (size_t k = 0; k < IN_256 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + LANES_AHEAD + k, _MM_HINT_T0);
#ifdef SCALES_45
        if (i % 2 == 0)
            x86_take_two_45(&two, b, b + (i + 1 < n / 256));
        x86_lanes_45(&t, &two, (int)(i % 2));
#else
        lanes_take(&t, b);
#endif
        codes_take(v, b);
        if (steps)
            codes_turn(v);
        else
            codes_order(v);
#define PUT(i) _mm256_store_si256((void *)(u->code + 32 * (i)), v[i]);
        EACH_8(PUT)
#undef PUT
        _mm256_store_ps(u->scale, t.scale);
        for (int j = 0; j < N_MIN / 8; j++)
            _mm256_store_ps(u->min + 8 * j, t.min[j]);
        if (SUMS >= X86_SUMS_HALVES_8)
            x86_put_subs(u->sub, &t);
    }
}
