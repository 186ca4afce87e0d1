/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_body.h - decoders of iq2_s and iq2_xs, and what they give acts16_256_body.h. Their files define BLOCK, fill_book(),
 * entries() and group_codes() and include both. */
TARGET_AVX2 static inline void unpack(struct x86_block *u, const BLOCK *b)
{
    float d = _cvtsh_ss(b->d);

    group_codes(u->v, b);
    for (int g = 0; g < 8; g++) {
        u->scale[2 * g] = d * (0.5f + (float)(b->sc[g] & 15)) * 0.25f;
        u->scale[2 * g + 1] = d * (0.5f + (float)(b->sc[g] >> 4)) * 0.25f;
    }
}

X86_DECODE_SCALED(BLOCK)

X86_WORDS __m128i odd_scales(const BLOCK *b)
{
    __m128i s = _mm_loadl_epi64((const void *)b->sc);

    s = _mm_unpacklo_epi8(x86_low(s), x86_high(s));
    return _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
}

X86_WORDS float take_scales(struct x86_taken *t, __m256 min[2], const BLOCK *b)
{
    (void)min;
    x86_scales_16(t, odd_scales(b));
    fill_book(&t->book, b);
    return _cvtsh_ss(b->d) * 0.125f;
}

X86_WORDS void lanes_take(struct x86_lanes *t, const BLOCK *b)
{
    x86_subs(t, odd_scales(b), 0);
    t->scale = _mm256_set1_ps(_cvtsh_ss(b->d) * 0.125f);
}
