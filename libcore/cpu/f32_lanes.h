/* SPDX-License-Identifier: Apache-2.0 */
/* f32_lanes.h - the fold of 8 lanes (cpu/format.h), AVX2, several at once. Included by files that define TARGET and
 * LANES. */

/* Lanes j and j + 4. */
TARGET static inline __m128 fold_8(const float *sum)
{
    return _mm_add_ps(_mm_load_ps(sum), _mm_load_ps(sum + 4));
}

/* The sums of the lanes of four rows, `pitch` apart. */
TARGET static inline __m128 fold_4(const float *sum, int64_t pitch)
{
    __m128 r = fold_8(sum), s = fold_8(sum + pitch);
    __m128 t = fold_8(sum + 2 * pitch), u = fold_8(sum + 3 * pitch);
    __m128 a = _mm_add_ps(_mm_movelh_ps(r, s), _mm_movehl_ps(s, r));
    __m128 b = _mm_add_ps(_mm_movelh_ps(t, u), _mm_movehl_ps(u, t));

    return _mm_add_ps(_mm_shuffle_ps(a, b, 0x88), _mm_shuffle_ps(a, b, 0xdd));
}

/* The sums of rows' lanes to y, by fours: sum has room for rows that are not there. Rows of n vectors are `pitch`
 * apart. */
TARGET static void put_folded(float *const *y, int64_t at, const float *sum, int rows, int n, int64_t pitch)
{
    for (int j = 0; j < n; j++, sum += LANES) {
        float *to = y[j] + at, four[4];
        int i = 0;

        for (; i + 4 <= rows; i += 4)
            _mm_storeu_ps(to + i, fold_4(sum + i * pitch, pitch));
        if (i < rows) {
            _mm_storeu_ps(four, fold_4(sum + i * pitch, pitch));
            memcpy(to + i, four, (size_t)(rows - i) * sizeof *to);
        }
    }
}
