/* SPDX-License-Identifier: Apache-2.0 */
/* acts16_256_body.h - integer products of one format on x86, from the code that unpacks its blocks.
 *
 * Included by the file of a format that defines BLOCK (the struct), N_MIN, SCALES (of a block: 8 or 16) and
 *     float take_scales(t, min, b): struct x86_taken, the scale of the whole block returned; minima, 8 a register
 *     group_words(w, t, b, g): the even and the odd elements of the group g of 32, before their scale
 * and, unless NO_AVX512 is defined,
 *     float unpack_block(u, b): struct x86_ints */

/* Where group g lies in cpu_int_block and cpu_act_block; 32 further on are its odd elements. */
#define PLACE(g) ((g) / 4 * 128 + (g) % 2 * 64 + (g) / 2 % 2 * 16)

/* What the 8 pairs of words of group g are multiplied with: s[g], or s[2 g] four times, then s[2 g + 1]. */
X86_WORDS __m256i scale_of(const int32_t *s, int g)
{
    if (SCALES == 8)
        return _mm256_set1_epi32(s[g]);
    __m256i two = _mm256_castpd_si256(_mm256_broadcast_sd((const void *)(s + 2 * g)));

    return _mm256_castps_si256(
        _mm256_permutevar_ps(_mm256_castsi256_ps(two), _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1)));
}

enum { AHEAD = 2048 }; /* bytes: a row is followed by the next, but pages stop the processor */

/* Scales as both words of a pair. */
TARGET_AVX2 static inline void pair_scales(struct x86_taken *t)
{
    for (int k = 0; k < SCALES; k += 8) {
        __m256i s = _mm256_loadu_si256((const void *)(t->s + k));

        _mm256_storeu_si256((void *)(t->s + k), _mm256_blend_epi16(s, _mm256_slli_epi32(s, 16), 0xaa));
    }
}

TARGET_AVX2 static void ints_avx2(struct cpu_int_block *u, const void *row, int64_t n)
{
    const BLOCK *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        struct x86_taken t;
        __m256           min[2], scale = _mm256_set1_ps(take_scales(&t, min, b));

        for (size_t k = 0; k < sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)b + AHEAD + k, _MM_HINT_T0);
        pair_scales(&t);
#define GROUP(g) \
        do { \
            __m256i w[2], s = scale_of(t.s, g); \
            group_words(w, &t, b, g); \
            _mm256_store_si256((void *)(u->w + PLACE(g)), _mm256_mullo_epi16(w[0], s)); \
            _mm256_store_si256((void *)(u->w + PLACE(g) + 32), _mm256_mullo_epi16(w[1], s)); \
        } while (0)
        GROUP(0);
        GROUP(1);
        GROUP(2);
        GROUP(3);
        GROUP(4);
        GROUP(5);
        GROUP(6);
        GROUP(7);
#undef GROUP
        _mm256_store_ps(u->scale, scale);
        _mm256_store_ps(u->scale + 8, scale);
        for (int k = 0; k < N_MIN; k += 8)
            _mm256_store_ps(u->min + k, min[k / 8]);
    }
}

/* Scales are taken some blocks ahead: one block at a time, their way through it would be what takes time. */
enum { TAKEN = 8 };

TARGET_DOTS static inline __m256 block_avx2(__m256 sum, const BLOCK *b, const struct x86_taken *t,
                                            const struct cpu_act_block *a)
{
    __m256i dots = _mm256_setzero_si256(), v[2], w[2], p;
    __m256  scale = _mm256_mul_ps(_mm256_broadcast_ss(&t->scale), _mm256_load_ps(a->scale));

    /* The next group is unpacked before one is multiplied, so that its latency is hidden. */
#define MUL(v, g) \
    p = _mm256_add_epi32(_mm256_madd_epi16(v[0], x86_load32(a->q + PLACE(g))), \
                         _mm256_madd_epi16(v[1], x86_load32(a->q + PLACE(g) + 32))); \
    dots = _mm256_add_epi32(dots, _mm256_mullo_epi32(p, scale_of(t->s, g)));
#define TWO(g) \
    group_words(w, t, b, (g) + 1); \
    MUL(v, g) \
    if ((g) < 6) \
        group_words(v, t, b, (g) + 2); \
    MUL(w, (g) + 1)
    group_words(v, t, b, 0);
    TWO(0)
    TWO(2)
    TWO(4)
    TWO(6)
#undef TWO
#undef MUL
    return _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), sum);
}

/* Minima of a block added up. */
TARGET_DOTS static inline __m256 add_minima(__m256 less, const __m256 min[2], const struct cpu_act_block *a)
{
    if (N_MIN == 8)
        return _mm256_fmadd_ps(min[0], _mm256_load_ps(a->sum_32), less);
    less = _mm256_fmadd_ps(min[0], _mm256_load_ps(a->sum), less);
    return _mm256_fmadd_ps(min[1], _mm256_load_ps(a->sum + 8), less);
}

/* Rows follow each other without gaps, so that blocks are taken ahead across their ends. */
TARGET_DOTS static void dots_avx2(float *y, const void *rows, int64_t row_bytes, int n_rows, const struct cpu_act_block *a,
                                  int64_t n)
{
    const BLOCK             *b = rows;
    __m256                   sum = _mm256_setzero_ps(), less = _mm256_setzero_ps();
    const struct cpu_act_block *x = a;
    int64_t                  all = n / 256 * n_rows;

    (void)row_bytes;
    for (int r = 0; all == 0 && r < n_rows; r++)
        y[r] = 0.0f;
    for (int64_t i = 0; i < all; i += TAKEN) {
        struct x86_taken t[TAKEN];
        int              m = all - i < TAKEN ? (int)(all - i) : TAKEN;

        for (int j = 0; j < m; j++) {
            __m256 min[2];

            for (size_t k = 0; k < sizeof(BLOCK); k += 64)
                _mm_prefetch((const char *)(b + j) + AHEAD + k, _MM_HINT_T0);
            t[j].scale = take_scales(t + j, min, b + j);
            for (int k = 0; k < N_MIN; k += 8)
                _mm256_store_ps(t[j].min + k, min[k / 8]);
        }
        for (int j = 0; j < m; j++, b++) {
            sum = block_avx2(sum, b, t + j, x);
            if (N_MIN > 0) {
                const __m256 min[2] = { _mm256_load_ps(t[j].min), _mm256_load_ps(t[j].min + N_MIN / 16 * 8) };

                less = add_minima(less, min, x);
            }
            if (++x < a + n / 256)
                continue;
            *y++ = x86_fold(N_MIN > 0 ? _mm256_sub_ps(sum, less) : sum);
            sum = less = _mm256_setzero_ps();
            x = a;
        }
    }
}

/* The scales and minima of a tile's blocks. */
X86_DOTS void take_row(struct x86_taken *t, const BLOCK *b, const struct cpu_int_tile *p)
{
    for (int i = 0; i < p->n_blocks; i++) {
        __m256 min[2];

        for (size_t k = 0; k < sizeof(BLOCK); k += 64)
            _mm_prefetch((const char *)(b + i) + p->ahead + k, _MM_HINT_T1);
        t[i].scale = take_scales(t + i, min, b + i);
        pair_scales(t + i);
        for (int k = 0; k < N_MIN; k += 8)
            _mm256_store_ps(t[i].min + k, min[k / 8]);
    }
}

#define SCALED(g) \
    group_words(w, t + i, b + i, g); \
    w[0] = _mm256_mullo_epi16(w[0], scale_of(t[i].s, g)); \
    w[1] = _mm256_mullo_epi16(w[1], scale_of(t[i].s, g));
#define FIRST(j) \
    __m256i d##j = _mm256_add_epi32(_mm256_madd_epi16(w[0], x86_load32(x##j[i].q)), \
                                    _mm256_madd_epi16(w[1], x86_load32(x##j[i].q + 32)));
#define STEP(j) \
    d##j = _mm256_add_epi32(d##j, _mm256_madd_epi16(w[0], x86_load32(x##j[i].q + at))); \
    d##j = _mm256_add_epi32(d##j, _mm256_madd_epi16(w[1], x86_load32(x##j[i].q + at + 32)));
#define GROUP(n, g) \
    { \
        enum { at = PLACE(g) }; \
        SCALED(g) \
        EACH_##n(STEP) \
    }
#define SUM(j) \
    _mm256_store_ps(sum + 8 * (j), \
                    _mm256_fmadd_ps(_mm256_mul_ps(f, _mm256_load_ps(x##j[i].scale)), _mm256_cvtepi32_ps(d##j), \
                                    _mm256_load_ps(sum + 8 * (j))));
#define LESS(j) _mm256_store_ps(less + 8 * (j), add_minima(_mm256_load_ps(less + 8 * (j)), min, x##j + i));
#define FINISH(n) \
    EACH_##n(SUM) \
    if (N_MIN > 0) { \
        const __m256 min[2] = { _mm256_load_ps(t[i].min), _mm256_load_ps(t[i].min + N_MIN / 16 * 8) }; \
\
        EACH_##n(LESS) \
    }
#define TILE_ROW(n) \
    struct x86_taken t[CPU_TILE_BLOCKS]; \
\
    take_row(t, b, p); \
    for (int i = 0; i < p->n_blocks; i++) { \
        __m256  f = _mm256_broadcast_ss(&t[i].scale); \
        __m256i w[2]; \
\
        SCALED(0) \
        EACH_##n(FIRST) \
        GROUP(n, 1) GROUP(n, 2) GROUP(n, 3) GROUP(n, 4) GROUP(n, 5) GROUP(n, 6) GROUP(n, 7) \
        FINISH(n) \
    }
X86_TILES(TARGET_DOTS, tile_avx2, TILE_ROW, 1)

#ifndef NO_AVX512
TARGET_AVX512 static void ints_avx512(struct cpu_int_block *u, const void *row, int64_t n)
{
    const BLOCK *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, u++) {
        struct x86_ints v;
        __m512i        *w = (void *)u->w;

        _mm512_store_ps(u->scale, _mm512_set1_ps(unpack_block(&v, b)));
        w[0] = v.w[0];
        w[1] = v.w[1];
        w[2] = v.w[2];
        w[3] = v.w[3];
        w[4] = v.w[4];
        w[5] = v.w[5];
        w[6] = v.w[6];
        w[7] = v.w[7];
        if (N_MIN == 16)
            _mm512_store_ps(u->min, v.min);
        else if (N_MIN == 8)
            _mm256_store_ps(u->min, _mm512_castps512_ps256(v.min));
    }
}

TARGET_VNNI static float row_vnni(const BLOCK *b, const struct cpu_act_block *a, int64_t n)
{
    __m256 sum = _mm256_setzero_ps(), less = _mm256_setzero_ps();

    for (int64_t i = 0; i < n / 256; i++, b++, a++) {
        const __m512i  *x = (const void *)a->q;
        struct x86_ints v;
        __m256          scale = _mm256_set1_ps(unpack_block(&v, b));
        __m512i         p = _mm512_madd_epi16(v.w[0], x[0]), q = _mm512_madd_epi16(v.w[1], x[1]);

        for (size_t j = 0; j < sizeof(BLOCK); j += 64)
            _mm_prefetch((const char *)b + AHEAD + j, _MM_HINT_T0);
        p = _mm512_dpwssd_epi32(p, v.w[2], x[2]);
        q = _mm512_dpwssd_epi32(q, v.w[3], x[3]);
        p = _mm512_dpwssd_epi32(p, v.w[4], x[4]);
        q = _mm512_dpwssd_epi32(q, v.w[5], x[5]);
        p = _mm512_dpwssd_epi32(p, v.w[6], x[6]);
        q = _mm512_dpwssd_epi32(q, v.w[7], x[7]);
        if (N_MIN > 0) {
            const __m256 min[2] = { _mm512_castps512_ps256(v.min), _mm512_extractf32x8_ps(v.min, 1) };

            less = add_minima(less, min, a);
        }
        p = _mm512_add_epi32(p, q);
        scale = _mm256_mul_ps(scale, _mm256_load_ps(a->scale));
        __m256i dots = _mm256_add_epi32(_mm512_castsi512_si256(p), _mm512_extracti64x4_epi64(p, 1));

        sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), sum);
    }
    return x86_fold(N_MIN > 0 ? _mm256_sub_ps(sum, less) : sum);
}

TARGET_VNNI static void dots_vnni(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                  const struct cpu_act_block *a, int64_t n)
{
    for (int r = 0; r < n_rows; r++)
        y[r] = row_vnni((const void *)((const char *)rows + r * row_bytes), a, n);
}
#endif
