/* SPDX-License-Identifier: Apache-2.0 */
/* f32_fold.h - the fold of 16 running sums (kernels.h), AVX-512, several at once. Included by files that
 * define TARGET. */

/* The first two steps of the fold (sum[j] += sum[j + 8], then 4) for four registers at once: four sums
 * for each, in the order given. */
TARGET static inline __m512 fold_8_4(__m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512 ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    __m512 cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));

    return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* The third step for two such: two sums of a, then two of b, in each quarter. */
TARGET static inline __m512 fold_2(__m512 a, __m512 b)
{
    __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);

    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

/* The last step: one sum of each pair of a, then of b, in each quarter. */
TARGET static inline __m512 fold_1(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}
