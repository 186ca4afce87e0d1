/* SPDX-License-Identifier: Apache-2.0 */
#if 0 /* to follow quant_dot_ints() */
/* bytes32_body.h - products of one format with blocks of 32 with activations of 8 bits, by AVX-512 with VNNI, VBMI and GFNI.
 *
 * Included behind ints32_body.h, whose definitions it takes, by the file of a format that also defines LESS_BITS and
 *     bytes(b): the elements of a block as codes that are more by 128 >> LESS_BITS, hence not negative
 *     scales_8(b): the scales of 8 blocks */

/* The products of codes with one group, added by fours. */
X86_VBMI __m256 fours(__m256i code, const struct quant_acts *x, int g)
{
    __m256i less = _mm256_load_si256((const void *)(x->less + BYTE_PLACE(g) / 4));

    if (LESS_BITS > 0)
        less = _mm256_srai_epi32(less, LESS_BITS);
    return _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(less, code, x86_load32(x->b + BYTE_PLACE(g))));
}

X86_VBMI float row_i8_vbmi(const BLOCK *b, const struct quant_acts *x, int64_t n)
{
    __m256 sum = _mm256_setzero_ps();

    for (int64_t i = 0; i < n / 256; i++, b += 8, x++) {
        _Alignas(32) float scale[8];
        __m256 t = _mm256_setzero_ps();

        for (size_t k = 0; k < 8 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + AHEAD + k, _MM_HINT_T0);
        _mm256_store_ps(scale, scales_8(b));
#define ADD(g) t = _mm256_fmadd_ps(_mm256_broadcast_ss(scale + (g)), fours(bytes(b + (g)), x, g), t);
        ADD(0)
        ADD(1)
        ADD(2)
        ADD(3)
        ADD(4)
        ADD(5)
        ADD(6)
        ADD(7)
#undef ADD
        sum = _mm256_fmadd_ps(_mm256_load_ps(x->scale), t, sum);
    }
    return x86_fold(sum);
}

TARGET_VBMI static void dots_i8_vbmi(float *y, const void *rows, int64_t row_bytes, int n_rows, const struct quant_acts *a,
                                     int64_t n)
{
    for (int r = 0; r < n_rows; r++)
        y[r] = row_i8_vbmi((const void *)((const char *)rows + r * row_bytes), a, n);
}

#define STEP_I8(j) t##j = _mm256_fmadd_ps(f, fours(code, x##j + i, group), t##j);
#define GROUP_I8(n, g) \
    { \
        enum { group = g }; \
        __m256i code = bytes(b + (g)); \
        __m256  f = _mm256_broadcast_ss(scale + (g)); \
\
        EACH_##n(STEP_I8) \
    }
#define TILE_ROW_I8(n) \
    (void)less; \
    for (int i = 0; i < p->n_blocks; i++, b += 8) { \
        _Alignas(32) float scale[8]; \
\
        for (size_t k = 0; k < 8 * sizeof(BLOCK); k += 64) \
            _mm_prefetch((const char *)b + p->ahead + k, _MM_HINT_T1); \
        _mm256_store_ps(scale, scales_8(b)); \
        EACH_##n(ZERO) \
        GROUP_I8(n, 0) GROUP_I8(n, 1) GROUP_I8(n, 2) GROUP_I8(n, 3) \
        GROUP_I8(n, 4) GROUP_I8(n, 5) GROUP_I8(n, 6) GROUP_I8(n, 7) \
        EACH_##n(SUM) \
    }
X86_TILES(TARGET_VBMI, tile_i8_vbmi, TILE_ROW_I8, 8)
#endif
