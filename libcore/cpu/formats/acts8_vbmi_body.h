/* SPDX-License-Identifier: Apache-2.0 */
/* acts8_vbmi_body.h - products of one format with activations of 8 bits, by AVX-512 (acts8_vbmi.h).
 *
 * Included by the file of a format that defines BLOCK (the struct), IN_256 (how many have 256
 * elements), N_MIN, SUB_16, LOW (acts8_codes_body.h) and, of 256 elements,
 *     fours_scale(u, b): scales and minima of struct cpu_code_block, sub_f; or, with SCALES_45 defined, nothing
 *     fours_codes(v, b): codes, 128 more unless LOW is 0; or, with FOURS_PAIR defined, of two blocks fours_pair(v, b, b1) */

/* Blocks whose scales are decoded at once. Rows are prefetched far enough ahead to be in the first-level cache in time. */
enum { FOURS_SOME = 4, FOURS_AHEAD = 6144 };
/* Rows of at least this many bytes come from memory: prefetched to the second-level cache, and earlier. */
enum { FAR_FROM = 2 << 20, FAR_AHEAD = 8192 };
/* On Intel's servers, which AMX tells, rows fetched as far ahead as that come slower: there all of them so far, to the
 * second-level cache. */
enum { NEAR_AHEAD = 3072 };

X86_VBMI void fours_some(struct cpu_code_block *u, const BLOCK *b, int n)
{
#ifdef SCALES_45
    fours_scales_45(u, b, sizeof(*b), n);
#else
    for (int i = 0; i < n; i++)
        fours_scale(u + i, b + i * IN_256);
#endif
}

/* The codes of two blocks. */
X86_VBMI void fours_two(__m512i v[2][4], const BLOCK *b, const BLOCK *b1)
{
#ifdef FOURS_PAIR
    fours_pair(v, b, b1);
#else
    fours_codes(v[0], b);
    fours_codes(v[1], b1);
#endif
}

/* cpu_pair_fn: even dwords are of the first half of a group, whose steps come first. */
TARGET_VBMI static void pair_vbmi(struct cpu_code_block *u, const void *row, const void *next, int64_t n)
{
    const BLOCK *b = row, *b1 = next;
    struct cpu_code_block *u1 = u + n;

    for (int64_t i = 0; i < n; i++, b += IN_256, b1 += IN_256) {
        __m512i v[2][4];

        if (i % FOURS_SOME == 0) {
            int m = n - i < FOURS_SOME ? (int)(n - i) : FOURS_SOME;

            fours_some(u + i, b, m);
            fours_some(u1 + i, b1, m);
        }
        fours_two(v, b, b1);
#define STEPS(k) \
    _mm512_store_si512(u[i].code + 64 * (k), \
                       _mm512_permutex2var_epi32(v[0][k], FOURS_EVEN, v[1][k])); \
    _mm512_store_si512(u1[i].code + 64 * (k), \
                       _mm512_permutex2var_epi32(v[0][k], FOURS_ODD, v[1][k]));
        EACH_4(STEPS)
#undef STEPS
    }
}

/* The lanes of rows whose blocks follow each other; x: of the next block. */
struct fours_run {
    const struct cpu_act_block *a, *end, *x;
    float *y; /* of its row */
    __m256 sum, less;
};

X86_VBMI void fours_add(struct fours_run *r, const struct cpu_code_block *u, __m256 dots)
{
    const struct cpu_act_block *x = r->x;

    r->sum = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(u->scale), _mm256_load_ps(x->scale)),
                             dots, r->sum);
    if (N_MIN == 8)
        r->less = _mm256_fmadd_ps(_mm256_load_ps(u->min), _mm256_load_ps(x->sum_32), r->less);
    if (N_MIN == 16) {
        r->less = _mm256_fmadd_ps(_mm256_load_ps(u->min), _mm256_load_ps(x->sum), r->less);
        r->less = _mm256_fmadd_ps(_mm256_load_ps(u->min + 8), _mm256_load_ps(x->sum + 8), r->less);
    }
    if (++r->x < r->end)
        return;
    *r->y++ = x86_fold(N_MIN > 0 ? _mm256_sub_ps(r->sum, r->less) : r->sum);
    r->sum = r->less = _mm256_setzero_ps();
    r->x = r->a;
}

X86_VBMI void fours_dots(float *y, const void *rows, int n_rows, const struct cpu_act_block *a, int64_t n, bool near)
{
    struct fours_run r = { a, a + n / 256, a, y, _mm256_setzero_ps(), _mm256_setzero_ps() };
    const BLOCK *b = rows;
    int64_t all = n / 256 * n_rows;
    const bool far = all * (int64_t)(IN_256 * sizeof(BLOCK)) >= FAR_FROM;

    for (int i = 0; all == 0 && i < n_rows; i++)
        y[i] = 0.0f;
    for (; all > 0; all -= FOURS_SOME) {
        _Alignas(64) struct cpu_code_block u[FOURS_SOME];
        int m = all < FOURS_SOME ? (int)all : FOURS_SOME;

        fours_some(u, b, m);
        for (int j = 0; j < m; j += 2, b += 2 * IN_256) {
            const struct cpu_code_block *u1 = u + j + (j + 1 < m);
            __m512i v[2][4];

            for (size_t k = 0; k < 2 * IN_256 * sizeof(BLOCK); k += 64)
                if (near)
                    _mm_prefetch((const char *)b + NEAR_AHEAD + k, _MM_HINT_T1);
                else if (far)
                    _mm_prefetch((const char *)b + FAR_AHEAD + k, _MM_HINT_T1);
                else
                    _mm_prefetch((const char *)b + FOURS_AHEAD + k, _MM_HINT_T0);
            fours_two(v, b, j + 1 < m ? b + IN_256 : b);
            __m512i d0 = fours_products(v[0], r.x, LOW > 0);
            __m512i d1 = fours_products(v[1], r.x + 1 < r.end ? r.x + 1 : a, LOW > 0);
            __m512 f = SUB_16 ? fours_lanes_16(d0, d1, _mm512_load_ps(u[j].sub_f), _mm512_load_ps(u1->sub_f))
                              : fours_lanes(d0, d1);

            fours_add(&r, u + j, _mm512_castps512_ps256(f));
            if (j + 1 < m)
                fours_add(&r, u1, _mm512_extractf32x8_ps(f, 1));
        }
    }
}

TARGET_VBMI static void dots_i8_vbmi(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                     const struct cpu_act_block *a, int64_t n)
{
    (void)row_bytes;
    fours_dots(y, rows, n_rows, a, n, false);
}

TARGET_VBMI static void dots_i8_near(float *y, const void *rows, int64_t row_bytes, int n_rows,
                                     const struct cpu_act_block *a, int64_t n)
{
    (void)row_bytes;
    fours_dots(y, rows, n_rows, a, n, true);
}
