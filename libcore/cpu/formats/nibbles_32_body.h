/* SPDX-License-Identifier: Apache-2.0 */
/* nibbles_32_body.h - decoding of blocks of 32 codes of 4 bits, which are places in a table, and one scale. Included by
 * files that define BLOCK, VALUES (the table), SCALE(b) in plain C and SCALE_AVX2(b), which gives the same. */

static void bytes_scalar(struct cpu_byte_block *u, const void *row, int64_t n)
{
    const BLOCK *b = row;

    for (int64_t i = 0; i < n / 256; i++, u++)
        for (int g = 0; g < 8; g++, b++) {
            u->sub[2 * g] = u->sub[2 * g + 1] = 1;
            u->scale[g] = SCALE(b);
            for (int j = 0; j < 16; j++) {
                u->code[32 * g + j] = VALUES[b->qs[j] & 15];
                u->code[32 * g + j + 16] = VALUES[b->qs[j] >> 4];
            }
        }
}

#if defined(__x86_64__)
TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const BLOCK *b = row;
    const __m128i value = x86_load16(VALUES);

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m256 d = _mm256_set1_ps(SCALE_AVX2(b));
        __m128i q = x86_load16(b->qs);

        x86_scale(y, _mm_shuffle_epi8(value, x86_low(q)), d);
        x86_scale(y + 16, _mm_shuffle_epi8(value, x86_high(q)), d);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const BLOCK *b = row;
    const __m512 value = x86_floats(x86_load16(VALUES));

    for (int64_t i = 0; i < n / 32; i++, b++, y += 32) {
        __m512 table = _mm512_mul_ps(value, _mm512_set1_ps(SCALE_AVX2(b)));

        x86_look_up(y, y + 16, b->qs, table, table);
    }
}

TARGET_AVX2 static inline float scale_32(const BLOCK *b)
{
    return SCALE_AVX2(b);
}

X86_WORDS void group_words(__m256i w[2], const BLOCK *b)
{
    x86_split_signed(w, x86_values(x86_nibbles(b->qs), VALUES));
}

X86_WORDS __m256i lane_codes(const BLOCK *b, int g, int h)
{
    return x86_values(x86_nibble(x86_load_two(b[g].qs, b[g + 4].qs), h > 0), VALUES);
}

X86_VBMI void fours_codes(__m512i v[4], const BLOCK *b)
{
    fours_nibbles(v, (const char *)b, sizeof(*b), VALUES);
}
#endif
