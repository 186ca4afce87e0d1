/* SPDX-License-Identifier: Apache-2.0 */
/* f32_dots_avx512.h - products of rows of W with vectors of floats, for AVX-512. Included by f32_avx512.c for each kind
 * of row, with W (its numbers' type), W_LOAD(p), W_PART(p) (lanes of `mask`), TILE(name) and DOTS, which it undefines.
 */

TARGET static void TILE(1x1)(float *y, const W *w, const float *x, int64_t k)
{
    __m512 a = V_ZERO;
    int64_t i = 0;

    for (; i + 16 <= k; i += 16)
        a = V_FMA(W_LOAD(w + i), V_LOAD(x + i), a);
    if (i < k) {
        __mmask16 mask = tail_mask(k - i);

        a = PART_FMA(W_PART(w + i), PART(x + i), a);
    }
    a = fold_8_4(a, a, a, a);
    a = fold_2(a, a);
    *y = _mm512_cvtss_f32(fold_1(a, a));
}

TARGET static void TILE(4x1)(float *y, const W *w, int64_t ldw, const float *x, int64_t k)
{
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);

    ROWS(EACH_4)
    a0 = fold_8_4(a0, a1, a2, a3);
    a0 = fold_2(a0, a0);
    a0 = _mm512_permutexvar_ps(pick, fold_1(a0, a0));
    _mm_storeu_ps(y, _mm512_castps512_ps128(a0));
}

TARGET static void TILE(8x1)(float *y, const W *w, int64_t ldw, const float *x, int64_t k)
{
    const __m512i pick = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 4, 8, 12, 1, 5, 9, 13);

    ROWS(EACH_8)
    a0 = fold_2(fold_8_4(a0, a1, a2, a3), fold_8_4(a4, a5, a6, a7));
    a0 = _mm512_permutexvar_ps(pick, fold_1(a0, a0));
    _mm256_storeu_ps(y, _mm512_castps512_ps256(a0));
}

TARGET static void TILE(4x4)(float *const *y, int64_t at, const W *w, int64_t ldw, const float *const *x, int64_t k)
{
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    const W *p1 = w + ldw, *p2 = w + 2 * ldw, *p3 = w + 3 * ldw;
    int64_t i = 0;

    EACH_4(ACC)
    for (; i + 16 <= k; i += 16) {
        __m512 w0 = W_LOAD(w + i), w1 = W_LOAD(p1 + i), w2 = W_LOAD(p2 + i), w3 = W_LOAD(p3 + i), v;

        EACH_4(ACC_STEP)
    }
    if (i < k) {
        __mmask16 mask = tail_mask(k - i);
        __m512 w0 = W_PART(w + i), w1 = W_PART(p1 + i), w2 = W_PART(p2 + i), w3 = W_PART(p3 + i), v;

        EACH_4(ACC_PART)
    }
    a00 = fold_2(fold_8_4(a00, a01, a02, a03), fold_8_4(a10, a11, a12, a13));
    a20 = fold_2(fold_8_4(a20, a21, a22, a23), fold_8_4(a30, a31, a32, a33));
    a00 = fold_1(a00, a20);
    _mm_storeu_ps(y[0] + at, _mm512_castps512_ps128(a00));
    _mm_storeu_ps(y[1] + at, _mm512_extractf32x4_ps(a00, 1));
    _mm_storeu_ps(y[2] + at, _mm512_extractf32x4_ps(a00, 2));
    _mm_storeu_ps(y[3] + at, _mm512_extractf32x4_ps(a00, 3));
}

TARGET static void DOTS(float *const *y, int64_t at, const W *w, int64_t ldw, int nw, const float *const *x, int nx,
                        int64_t k)
{
    int i = 0;

    if (nx < 4)
        for (; i + 8 <= nw; i += 8)
            for (int j = 0; j < nx; j++)
                TILE(8x1)(y[j] + at + i, w + i * ldw, ldw, x[j], k);
    for (; i + 4 <= nw; i += 4) {
        int j = 0;

        for (; j + 4 <= nx; j += 4)
            TILE(4x4)(y + j, at + i, w + i * ldw, ldw, x + j, k);
        for (; j < nx; j++)
            TILE(4x1)(y[j] + at + i, w + i * ldw, ldw, x[j], k);
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
