/* SPDX-License-Identifier: Apache-2.0 */
/* ints_body.h - integer products of one format on x86, from the code that takes its blocks apart.
 *
 * Included by the file of a format that defines BLOCK (the struct), HAS_MIN and two functions, which
 * both return the scale of the whole block:
 *     parts(u, s, b): v, and min with HAS_MIN, of struct x86_block; s[16] whole scales for each 16
 *     whole(u, b): struct x86_ints */

TARGET_AVX2 static void ints_avx2(struct quant_ints *u, const void *row, int64_t n)
{
    const BLOCK *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        struct x86_block    p;
        _Alignas(16) int8_t s[16];
        __m256              scale = _mm256_set1_ps(parts(&p, s, b));

        for (int g = 0; g < 16; g++) {
            __m256i v = _mm256_cvtepi8_epi16(_mm_load_si128((const void *)(p.v + 16 * g)));

            v = _mm256_mullo_epi16(v, _mm256_set1_epi16(s[g]));
            _mm256_store_si256((void *)(u->w + 16 * g), v);
        }
        _mm256_store_ps(u->scale, scale);
        _mm256_store_ps(u->scale + 8, scale);
        if (HAS_MIN)
            memcpy(u->min, p.min, sizeof(p.min));
    }
}

TARGET_AVX512 static void ints_avx512(struct quant_ints *u, const void *row, int64_t n)
{
    const BLOCK *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        struct x86_ints v;
        __m512i        *w = (void *)u->w;

        _mm512_store_ps(u->scale, _mm512_set1_ps(whole(&v, b)));
        w[0] = v.w[0];
        w[1] = v.w[1];
        w[2] = v.w[2];
        w[3] = v.w[3];
        w[4] = v.w[4];
        w[5] = v.w[5];
        w[6] = v.w[6];
        w[7] = v.w[7];
        if (HAS_MIN)
            _mm512_store_ps(u->min, v.min);
    }
}

/* The sum of a row's lanes as quant_dot_ints() has it. */
TARGET_VNNI static inline float fold(__m512 v)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}

TARGET_VNNI static float row_vnni(const BLOCK *b, const struct quant_acts *a, int64_t n)
{
    enum { AHEAD = 1024 }; /* bytes: a row is followed by the next, but pages stop the processor */
    __m512 sum = _mm512_setzero_ps();

    for (int64_t i = 0; i < n / 256; i++, b++, a++) {
        const __m512i  *x = (const void *)a->q;
        struct x86_ints v;
        __m512          scale = _mm512_set1_ps(whole(&v, b));
        __m512i         p = _mm512_madd_epi16(v.w[0], x[0]), q = _mm512_madd_epi16(v.w[1], x[1]);

        for (size_t j = 0; j < sizeof(BLOCK); j += 64)
            _mm_prefetch((const char *)b + AHEAD + j, _MM_HINT_T0);
        p = _mm512_dpwssd_epi32(p, v.w[2], x[2]);
        q = _mm512_dpwssd_epi32(q, v.w[3], x[3]);
        p = _mm512_dpwssd_epi32(p, v.w[4], x[4]);
        q = _mm512_dpwssd_epi32(q, v.w[5], x[5]);
        p = _mm512_dpwssd_epi32(p, v.w[6], x[6]);
        q = _mm512_dpwssd_epi32(q, v.w[7], x[7]);
        if (HAS_MIN)
            sum = _mm512_fnmadd_ps(v.min, _mm512_load_ps(a->sum), sum);
        p = _mm512_add_epi32(p, q);
        scale = _mm512_mul_ps(scale, _mm512_load_ps(a->scale));
        sum = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(p), sum);
    }
    return fold(sum);
}

TARGET_VNNI static void dots_vnni(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                  const struct quant_acts *a, int64_t n)
{
    for (int r = 0; r < n_rows; r++)
        y[r] = row_vnni((const void *)((const char *)rows + r * row_bytes), a, n);
}
