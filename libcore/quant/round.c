/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - activations as 16-bit numbers, for integer products (quant.h). */
#include <math.h>

#include "base/simd.h"
#include "quant/half.h"
#include "quant/quant.h"
#include "quant/x86.h"

enum { INFINITE = 0x7f800000, TINY = (127 - 100) << 23, MAGNITUDE = 0x7fffffff };

/* The scale of a lane and its inverse, from the bits of the largest magnitude. */
static float scale_of(uint32_t bits, float *inverse)
{
    float max = half_bits_f32(bits);

    *inverse = 0.0f;
    if (bits < TINY)
        return 0.0f;
    if (bits >= INFINITE)
        return NAN;
    *inverse = 32767.0f / max;
    return max / 32767.0f;
}

static void scales_of(float scale[16], float inverse[16], const float *x)
{
    for (int l = 0; l < 16; l++) {
        uint32_t max = 0;

        for (int i = 2 * l; i < 256; i += i % 2 == 0 ? 1 : 31) {
            uint32_t bits = half_f32_bits(x[i]) & MAGNITUDE;

            max = bits > max ? bits : max;
        }
        scale[l] = scale_of(max, inverse + l);
    }
}

static void round_scalar(struct quant_acts *a, const float *x, int64_t n)
{
    for (int64_t b = 0; b < n / 256; b++, x += 256, a++) {
        float inverse[16];

        scales_of(a->scale, inverse, x);
        for (int i = 0; i < 256; i++) {
            float by = inverse[i % 32 / 2];

            /* 1.5 * 2^23: units are whole numbers */
            a->q[i] = (int16_t)(by > 0.0f ? (x[i] * by + 12582912.0f) - 12582912.0f : 0.0f);
        }
        for (int g = 0; g < 16; g++) {
            const int16_t *q = a->q + 16 * g;
            float          t[8];

            for (int l = 0; l < 8; l++)
                t[l] = a->scale[g % 2 * 8 + l] * (float)(q[2 * l] + q[2 * l + 1]);
            for (int half = 4; half > 0; half /= 2)
                for (int l = 0; l < half; l++)
                    t[l] += t[l + half];
            a->sum[g] = t[0];
        }
    }
}

#if defined(__x86_64__)
/* Half of a block's lanes, 8 of them, from x + 16 half on: every other 16 elements. */
TARGET_AVX2 static void round_half(struct quant_acts *a, const float *x, int half)
{
    const __m256i magnitude = _mm256_set1_epi32(MAGNITUDE), one = _mm256_set1_epi16(1);
    __m256i       m0 = _mm256_setzero_si256(), m1 = m0;

    x += 16 * half;
    for (int i = 0; i < 256; i += 32) {
        __m256i v0 = _mm256_castps_si256(_mm256_loadu_ps(x + i));
        __m256i v1 = _mm256_castps_si256(_mm256_loadu_ps(x + i + 8));

        m0 = _mm256_max_epu32(m0, _mm256_and_si256(v0, magnitude));
        m1 = _mm256_max_epu32(m1, _mm256_and_si256(v1, magnitude));
    }
    uint32_t max[16];
    float    by[16], *scale = a->scale + 8 * half;

    _mm256_storeu_si256((void *)max, m0);
    _mm256_storeu_si256((void *)(max + 8), m1);
    for (int l = 0; l < 8; l++) {
        uint32_t bits = max[2 * l] > max[2 * l + 1] ? max[2 * l] : max[2 * l + 1];

        scale[l] = scale_of(bits, by + 2 * l);
        by[2 * l + 1] = by[2 * l];
    }
    __m256 by0 = _mm256_loadu_ps(by), by1 = _mm256_loadu_ps(by + 8), zero = _mm256_setzero_ps();
    __m256 on0 = _mm256_cmp_ps(by0, zero, _CMP_GT_OQ), on1 = _mm256_cmp_ps(by1, zero, _CMP_GT_OQ);

    for (int g = half; g < 16; g += 2, x += 32) {
        __m256  x0 = _mm256_and_ps(_mm256_loadu_ps(x), on0);
        __m256  x1 = _mm256_and_ps(_mm256_loadu_ps(x + 8), on1);
        __m256i v0 = _mm256_cvtps_epi32(_mm256_mul_ps(x0, by0));
        __m256i v1 = _mm256_cvtps_epi32(_mm256_mul_ps(x1, by1));
        __m256i q = _mm256_permute4x64_epi64(_mm256_packs_epi32(v0, v1), 0xd8);
        __m256  t = _mm256_cvtepi32_ps(_mm256_madd_epi16(q, one));

        _mm256_storeu_si256((void *)(a->q + 16 * g), q);
        t = _mm256_mul_ps(_mm256_loadu_ps(scale), t);
        __m128 s = _mm_add_ps(_mm256_castps256_ps128(t), _mm256_extractf128_ps(t, 1));
        s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        a->sum[g] = _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
    }
}

TARGET_AVX2 static void round_avx2(struct quant_acts *a, const float *x, int64_t n)
{
    for (int64_t b = 0; b < n / 256; b++, x += 256, a++) {
        round_half(a, x, 0);
        round_half(a, x, 1);
    }
}

/* Scales and inverses from magnitudes, both of a lane's pair from the larger. */
TARGET_AVX512 static inline __m512 pair_scales(__m512i m, __m512 *by)
{
    const __m512 top = _mm512_set1_ps(32767.0f);

    m = _mm512_max_epu32(m, _mm512_shuffle_epi32(m, 0xb1));
    __m512    max = _mm512_castsi512_ps(m);
    __mmask16 some = _mm512_cmpge_epu32_mask(m, _mm512_set1_epi32(TINY));
    __mmask16 finite = _mm512_cmplt_epu32_mask(m, _mm512_set1_epi32(INFINITE));

    *by = _mm512_maskz_div_ps(some & finite, top, max);
    max = _mm512_maskz_div_ps(some, max, top);
    return _mm512_mask_mov_ps(_mm512_set1_ps(NAN), finite, max);
}

/* x times by to nearest, where by is not 0, as words. */
TARGET_AVX512 static inline __m256i to_words(const float *x, __m512 by)
{
    __mmask16 on = _mm512_cmp_ps_mask(by, _mm512_setzero_ps(), _CMP_GT_OQ);
    __m512i   v = _mm512_cvtps_epi32(_mm512_maskz_mul_ps(on, _mm512_loadu_ps(x), by));

    return _mm512_cvtepi32_epi16(v);
}

/* The first step of two vectors' sums: t[l] += t[l + 4] in each half of both. */
TARGET_AVX512 static inline __m512 add_4(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}

TARGET_AVX512 static inline __m512 add_2(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
}

TARGET_AVX512 static inline __m512 add_1(__m512 a, __m512 b)
{
    return _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
}

TARGET_AVX512 static void round_avx512(struct quant_acts *a, const float *x, int64_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(MAGNITUDE), one = _mm512_set1_epi16(1);
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i turn = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);

    for (int64_t b = 0; b < n / 256; b++, x += 256, a++) {
        __m512i m0 = _mm512_setzero_si512(), m1 = m0;
        __m512  by0, by1, t[8];

        for (int i = 0; i < 256; i += 32) {
            __m512i v0 = _mm512_castps_si512(_mm512_loadu_ps(x + i));
            __m512i v1 = _mm512_castps_si512(_mm512_loadu_ps(x + i + 16));

            m0 = _mm512_max_epu32(m0, _mm512_and_si512(v0, magnitude));
            m1 = _mm512_max_epu32(m1, _mm512_and_si512(v1, magnitude));
        }
        __m512 scale0 = pair_scales(m0, &by0), scale1 = pair_scales(m1, &by1);
        __m512 scale = _mm512_permutex2var_ps(scale0, evens, scale1);

        _mm512_storeu_ps(a->scale, scale);
        for (int i = 0; i < 8; i++) {
            __m512i q = _mm512_inserti64x4(_mm512_castsi256_si512(to_words(x + 32 * i, by0)),
                                           to_words(x + 32 * i + 16, by1), 1);

            _mm512_storeu_si512(a->q + 32 * i, q);
            t[i] = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(_mm512_madd_epi16(q, one)));
        }
        t[0] = add_2(add_4(t[0], t[1]), add_4(t[2], t[3]));
        t[4] = add_2(add_4(t[4], t[5]), add_4(t[6], t[7]));
        _mm512_storeu_ps(a->sum, _mm512_permutexvar_ps(turn, add_1(t[0], t[4])));
    }
}

quant_round_fn *quant_rounder(unsigned simd)
{
    return (simd & SIMD_AVX512) != 0 ? round_avx512
         : (simd & SIMD_AVX2) != 0   ? round_avx2
                                     : round_scalar;
}
#else
quant_round_fn *quant_rounder(unsigned simd)
{
    (void)simd;
    return round_scalar;
}
#endif
