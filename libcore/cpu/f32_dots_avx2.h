/* SPDX-License-Identifier: Apache-2.0 */
/* f32_dots_avx2.h - products of rows of W with vectors of floats, for AVX2. Included by f32_avx2.c for each kind of
 * row, with W (its numbers' type), W_LOAD(p), W_PART(p, n) (of which n or fewer are there), TILE(name) and DOTS, which
 * it undefines. */

TARGET static void TILE(2x3)(float *const *y, int64_t at, const W *w, int64_t ldw, const float *const *x, int64_t k)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2];

    TWO_ROWS(EACH_3)
    __m256 a = fold_8_4(lo00, hi00, lo10, hi10), b = fold_8_4(lo01, hi01, lo11, hi11);
    __m256 c = fold_8_4(lo02, hi02, lo12, hi12), sum = fold_1(fold_2(a, b), fold_2(c, c));
    float out[8];

    _mm256_storeu_ps(out, sum);
    for (int j = 0; j < 3; j++) {
        y[j][at] = out[j];
        y[j][at + 1] = out[j + 4];
    }
}

TARGET static void TILE(2x1)(float *y, const W *w, int64_t ldw, const float *x0, int64_t k)
{
    TWO_ROWS(EACH_1)
    __m256 sum = fold_8_4(lo00, hi00, lo10, hi10);

    sum = fold_2(sum, sum);
    sum = fold_1(sum, sum);
    y[0] = _mm256_cvtss_f32(sum);
    y[1] = _mm_cvtss_f32(_mm256_extractf128_ps(sum, 1));
}

TARGET static void TILE(4x1)(float *y, const W *w, int64_t ldw, const float *x, int64_t k)
{
    ROW(0) ROW(1) ROW(2) ROW(3) for (int64_t i = 0; i < k; i += 16)
    {
        __m256 u = V_LOAD(x + i), v = V_LOAD(x + i + 8);

        ROW_STEP(0) ROW_STEP(1) ROW_STEP(2) ROW_STEP(3)
    }
    __m256 ab = fold_2(fold_8_4(lo0, hi0, lo2, hi2), fold_8_4(lo1, hi1, lo3, hi3));
    ab = fold_1(ab, ab); /* 0 1 0 1, 2 3 2 3 */
    _mm_storeu_ps(y, _mm_movelh_ps(_mm256_castps256_ps128(ab), _mm256_extractf128_ps(ab, 1)));
}

TARGET static void TILE(1x1)(float *y, const W *w, const float *x, int64_t k)
{
    __m256 lo = V_ZERO, hi = V_ZERO;
    int64_t i = 0;

    for (; i + 16 <= k; i += 16) {
        lo = V_FMA(W_LOAD(w + i), V_LOAD(x + i), lo);
        hi = V_FMA(W_LOAD(w + i + 8), V_LOAD(x + i + 8), hi);
    }
    if (i < k) {
        __m256i mask = tail_mask(k - i);

        lo = PART_FMA(W_PART(w + i, k - i), PART(x + i), lo);
        mask = tail_mask(k - i - 8);
        hi = PART_FMA(W_PART(w + i + 8, k - i - 8), PART(x + i + 8), hi);
    }
    lo = fold_8_4(lo, hi, lo, hi);
    lo = fold_2(lo, lo);
    *y = _mm256_cvtss_f32(fold_1(lo, lo));
}

TARGET static void DOTS(float *const *y, int64_t at, const W *w, int64_t ldw, int nw, const float *const *x, int nx,
                        int64_t k)
{
    int i = 0;

    if (nx < 3 && k % 16 == 0)
        for (; i + 4 <= nw; i += 4)
            for (int j = 0; j < nx; j++)
                TILE(4x1)(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    for (; i + 2 <= nw; i += 2) {
        int j = 0;

        for (; j + 3 <= nx; j += 3)
            TILE(2x3)(y + j, at + i, w + i * ldw, ldw, x + j, k);
        for (; j < nx; j++)
            TILE(2x1)(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    }
    for (; i < nw; i++)
        for (int j = 0; j < nx; j++)
            TILE(1x1)(y[j] + at + i, w + i * ldw, x[j], k);
}

#undef W
#undef W_LOAD
#undef W_PART
#undef TILE
#undef DOTS
