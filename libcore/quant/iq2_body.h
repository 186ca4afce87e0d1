/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_body.h - what iq2_s and iq2_xs give ints_body.h. Their files define BLOCK, places() and entries() and include
 * both. */
TARGET_AVX2 static inline float take(struct x86_taken *t, __m256 min[2], const BLOCK *b)
{
    __m128i s = _mm_loadl_epi64((const void *)b->sc);

    (void)min;
    s = _mm_unpacklo_epi8(x86_low(s), x86_high(s));
    s = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
    x86_whole_scales(t->s, s);
    x86_whole_scales(t->s + 8, _mm_unpackhi_epi64(s, s));
    places(t, b);
    return _cvtsh_ss(b->d) * 0.125f;
}

X86_WORDS void words(__m256i w[2], const struct x86_taken *t, const BLOCK *b, int g)
{
    x86_split_signed(w, entries(t, b, g));
}
