/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_body.h - what iq2_s and iq2_xs give ints_body.h. Their files define BLOCK, places() and entries() and include
 * both. */
X86_WORDS float take(struct x86_taken *t, __m256 min[2], const BLOCK *b, bool bytes)
{
    __m128i s = _mm_loadl_epi64((const void *)b->sc);

    (void)min;
    s = _mm_unpacklo_epi8(x86_low(s), x86_high(s));
    s = _mm_add_epi8(_mm_add_epi8(s, s), _mm_set1_epi8(1));
    x86_scales_16(t, s, bytes);
    places(t, b);
    return _cvtsh_ss(b->d) * 0.125f;
}
