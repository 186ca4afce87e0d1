/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_32_body.h - integer products of one format with blocks of 32, on x86, from the code that unpacks a block.
 *
 * Included by the file of a format that defines BLOCK (the struct) and
 *     float scale_32(b): the block's scale
 *     group_words(w, b): its even and its odd elements
 *     lanes_take(t, b): the scales of 8 blocks
 * and, if it is another one for AVX-512, WORDS_VNNI, the name of such a group_words() */

/* Where block g of 8 lies in cpu_int_block and cpu_act_block; 32 further on are its odd elements. */
#define PLACE(g) ((g) / 4 * 128 + (g) % 2 * 64 + (g) / 2 % 2 * 16)

enum { AHEAD = 1024 }; /* bytes: a row is followed by the next, but pages stop the processor */

TARGET_AVX2 static void ints_avx2(struct cpu_int_block *u, const void *row, int64_t n)
{
    const BLOCK *b = row;

    for (int64_t i = 0; i < n / 256; i++, b += 8, u++) {
        for (size_t k = 0; k < 8 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + AHEAD + k, _MM_HINT_T0);
        for (int g = 0; g < 8; g++) {
            __m256i w[2];

            group_words(w, b + g);
            _mm256_store_si256((void *)(u->w + PLACE(g)), w[0]);
            _mm256_store_si256((void *)(u->w + PLACE(g) + 32), w[1]);
            u->scale[g] = scale_32(b + g);
        }
    }
}

/* One block added to the lanes, q: its activations. */
TARGET_DOTS static inline __m256 block_avx2(__m256 t, const BLOCK *b, const int16_t *q)
{
    __m256i w[2];

    group_words(w, b);
    w[0] = _mm256_add_epi32(_mm256_madd_epi16(w[0], x86_load32(q)), _mm256_madd_epi16(w[1], x86_load32(q + 32)));
    return _mm256_fmadd_ps(_mm256_set1_ps(scale_32(b)), _mm256_cvtepi32_ps(w[0]), t);
}

/* A row that ends within 256 has fewer groups: what follows it would meet zeros. */
X86_DOTS float row_avx2(const BLOCK *b, const struct cpu_act_block *a, int64_t groups)
{
    __m256 sum = _mm256_setzero_ps();

    for (; groups > 0; groups -= 8, b += 8, a++) {
        __m256 t = _mm256_setzero_ps();

        for (size_t k = 0; k < 8 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + AHEAD + k, _MM_HINT_T0);
#define ADD(g) t = block_avx2(t, b + (g), a->q + PLACE(g));
        if (groups >= 8) {
            EACH_8(ADD)
        } else
            for (int g = 0; g < groups; g++)
                ADD(g)
#undef ADD
        sum = _mm256_fmadd_ps(_mm256_load_ps(a->scale), t, sum);
    }
    return x86_fold(sum);
}

TARGET_DOTS static void dots_avx2(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                  const struct cpu_act_block *a, int64_t n)
{
    (void)n;
    for (int r = 0; r < n_rows; r++)
        y[r] = row_avx2((const void *)((const char *)rows + r * row_bytes), a, row_bytes / (int64_t)sizeof(BLOCK));
}

#ifndef WORDS_VNNI
#define WORDS_VNNI group_words
#endif

X86_VNNI __m256 block_vnni(__m256 t, const BLOCK *b, float scale, const int16_t *q)
{
    __m256i w[2];

    WORDS_VNNI(w, b);
    w[0] = _mm256_dpwssd_epi32(_mm256_madd_epi16(w[0], x86_load32(q)), w[1], x86_load32(q + 32));
    return _mm256_fmadd_ps(_mm256_set1_ps(scale), _mm256_cvtepi32_ps(w[0]), t);
}

X86_VNNI float row_vnni(const BLOCK *b, const struct cpu_act_block *a, int64_t groups)
{
    __m256 sum = _mm256_setzero_ps();

    for (; groups > 0; groups -= 8, b += 8, a++) {
        struct x86_lanes lanes;
        float scale[8];
        __m256 t = _mm256_setzero_ps();

        for (size_t k = 0; k < 8 * sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + AHEAD + k, _MM_HINT_T0);
        lanes_take(&lanes, b);
        _mm256_storeu_ps(scale, lanes.scale);
#define ADD(g) t = block_vnni(t, b + (g), scale[g], a->q + PLACE(g));
        if (groups >= 8) {
            EACH_8(ADD)
        } else
            for (int g = 0; g < groups; g++)
                ADD(g)
#undef ADD
        sum = _mm256_fmadd_ps(_mm256_load_ps(a->scale), t, sum);
    }
    return x86_fold(sum);
}

TARGET_VNNI static void dots_vnni(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                  const struct cpu_act_block *a, int64_t n)
{
    (void)n;
    for (int r = 0; r < n_rows; r++)
        y[r] = row_vnni((const void *)((const char *)rows + r * row_bytes), a, row_bytes / (int64_t)sizeof(BLOCK));
}

#define ZERO(j) __m256 t##j = _mm256_setzero_ps();
#define STEP(j) \
    t##j = _mm256_fmadd_ps( \
        f, _mm256_cvtepi32_ps(_mm256_add_epi32(_mm256_madd_epi16(w[0], x86_load32(x##j[i].q + at)), \
                                               _mm256_madd_epi16(w[1], x86_load32(x##j[i].q + at + 32)))), t##j);
#define GROUP(n, g) \
    { \
        enum { at = PLACE(g) }; \
        __m256 f = _mm256_set1_ps(scale_32(b + (g))); \
\
        group_words(w, b + (g)); \
        EACH_##n(STEP) \
    }
#define SUM(j) \
    _mm256_store_ps(sum + 8 * (j), _mm256_fmadd_ps(_mm256_load_ps(x##j[i].scale), t##j, _mm256_load_ps(sum + 8 * (j))));
#define TILE_ROW(n) \
    (void)less; \
    for (int i = 0; i < p->n_blocks; i++, b += 8) { \
        __m256i w[2]; \
\
        for (size_t k = 0; k < 8 * sizeof(BLOCK); k += 64) \
            _mm_prefetch((const char *)b + p->ahead + k, _MM_HINT_T1); \
        EACH_##n(ZERO) \
        GROUP(n, 0) GROUP(n, 1) GROUP(n, 2) GROUP(n, 3) GROUP(n, 4) GROUP(n, 5) GROUP(n, 6) GROUP(n, 7) \
        EACH_##n(SUM) \
    }
X86_TILES(TARGET_DOTS, tile_avx2, TILE_ROW, 8)
