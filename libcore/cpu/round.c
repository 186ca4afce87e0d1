/* SPDX-License-Identifier: Apache-2.0 */
/* round.c - activations as numbers of 16 bits, 15 or 8, for integer products (format.h). */
#include "base/simd.h"
#include "cpu/format.h"
#include "cpu/formats/x86.h"
#include "quant/half.h"

#include <math.h>

enum { BYTE_TOP = 127, INFINITE = 0x7f800000, TINY = (127 - 100) << 23, MAGNITUDE = 0x7fffffff };

/* The scale of a lane and its inverse, from the bits of the largest magnitude. */
static float scale_of(uint32_t bits, float top, float *inverse)
{
    float max = half_bits_f32(bits);

    *inverse = 0.0f;
    if (bits < TINY)
        return 0.0f;
    if (bits >= INFINITE)
        return NAN;
    *inverse = top / max;
    return max / top;
}

/* x times the inverse; 1.5 * 2^23: units are whole numbers. */
static float round_nearest(float x, float inverse)
{
    return inverse > 0.0f ? (x * inverse + 12582912.0f) - 12582912.0f : 0.0f;
}

/* The scales of lanes and their inverses; x a block in the order of the file. */
static void scales_of(float scale[8], float inverse[8], const float *x, float top)
{
    uint32_t max[8] = { 0 };

    for (int i = 0; i < 256; i++) {
        uint32_t bits = half_f32_bits(x[i]) & MAGNITUDE, *m = max + i % 32 / 4;

        *m = bits > *m ? bits : *m;
    }
    for (int l = 0; l < 8; l++)
        scale[l] = scale_of(max[l], top, inverse + l);
}

/* 8 bits: a lane is a group of 32. */
static void round_bytes(struct cpu_act_block *a, const float *x)
{
    for (int g = 0; g < 8; g++, x += 32) {
        int8_t *b = a->b + 32 * g;
        int half[2] = { 0 };
        uint32_t max = 0;
        float by;

        for (int i = 0; i < 32; i++) {
            uint32_t bits = half_f32_bits(x[i]) & MAGNITUDE;

            max = bits > max ? bits : max;
        }
        a->scale[g] = scale_of(max, BYTE_TOP, &by);
        for (int i = 0; i < 32; i++) {
            b[i] = (int8_t)round_nearest(x[i], by);
            a->half[cpu_half_place(32 * g + i)] = b[i];
            a->step[cpu_step_place(32 * g + i)] = b[i];
            a->fours[cpu_fours_place(32 * g + i)] = b[i];
            half[i / 16] += b[i];
        }
        for (int h = 0; h < 2; h++) {
            a->whole[2 * g + h] = (int16_t)half[h];
            a->less[2 * g + h] = -128 * half[h];
            a->sum[8 * h + g] = a->scale[g] * (float)half[h];
        }
        a->sum_32[g] = a->scale[g] * (float)(half[0] + half[1]);
    }
}

static void round_words(struct cpu_act_block *a, const float *x, int top)
{
    float inverse[8];

    scales_of(a->scale, inverse, x, (float)top);
    for (int i = 0; i < 256; i++)
        a->q[cpu_int_place(i)] = (int16_t)round_nearest(x[i], inverse[i % 32 / 4]);
    for (int g = 0; g < 16; g++) {
        float t[4];

        for (int l = 0; l < 4; l++) {
            const int16_t *q = a->q + cpu_int_place(16 * g + 4 * l);

            t[l] = a->scale[g % 2 * 4 + l] * (float)(q[0] + q[1] + q[32] + q[33]);
        }
        a->sum[g] = (t[0] + t[2]) + (t[1] + t[3]);
    }
    for (int g = 0; g < 8; g++)
        a->sum_32[g] = a->sum[2 * g] + a->sum[2 * g + 1];
}

static void round_scalar(struct cpu_act_block *a, const float *x, int64_t n, int top)
{
    for (int64_t b = 0; b < n / 256; b++, x += 256, a++)
        if (top == BYTE_TOP)
            round_bytes(a, x);
        else
            round_words(a, x, top);
}

#if defined(__x86_64__)
/* Scales and inverses from magnitudes. */
TARGET_AVX2 static inline __m256 lane_scales(__m256 *by, __m256i m, __m256 top)
{
    __m256 max = _mm256_castsi256_ps(m);
    __m256 some = _mm256_castsi256_ps(_mm256_cmpgt_epi32(m, _mm256_set1_epi32(TINY - 1)));
    __m256 bad = _mm256_castsi256_ps(_mm256_cmpgt_epi32(m, _mm256_set1_epi32(INFINITE - 1)));

    *by = _mm256_andnot_ps(bad, _mm256_and_ps(_mm256_div_ps(top, max), some));
    max = _mm256_and_ps(_mm256_div_ps(max, top), some);
    return _mm256_blendv_ps(max, _mm256_set1_ps(NAN), bad);
}

/* The largest magnitudes of four groups of 32, which x begins with. */
TARGET_AVX2 static inline __m128i group_maxima(const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(MAGNITUDE);
    __m256i m[4];

    for (int g = 0; g < 4; g++, x += 32) {
        __m256i a = _mm256_and_si256(x86_load32(x), magnitude), b = _mm256_and_si256(x86_load32(x + 8), magnitude);
        __m256i c = _mm256_and_si256(x86_load32(x + 16), magnitude),
                d = _mm256_and_si256(x86_load32(x + 24), magnitude);

        m[g] = _mm256_max_epi32(_mm256_max_epi32(a, b), _mm256_max_epi32(c, d));
    }
    __m256i v = _mm256_max_epi32(_mm256_unpacklo_epi32(m[0], m[1]), _mm256_unpackhi_epi32(m[0], m[1]));
    __m256i w = _mm256_max_epi32(_mm256_unpacklo_epi32(m[2], m[3]), _mm256_unpackhi_epi32(m[2], m[3]));

    v = _mm256_max_epi32(_mm256_unpacklo_epi64(v, w), _mm256_unpackhi_epi64(v, w));
    return _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* The largest magnitudes of 8 lanes, 2 a register, each 4 times; x: a block. */
TARGET_AVX2 static inline void lane_maxima(__m256i m[4], const float *x)
{
    const __m256i magnitude = _mm256_set1_epi32(MAGNITUDE);

    for (int q = 0; q < 4; q++) {
        __m256i v = _mm256_setzero_si256();

        for (int g = 0; g < 8; g++) {
            __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x + 32 * g + 8 * q));

            v = _mm256_max_epi32(v, _mm256_and_si256(bits, magnitude));
        }
        v = _mm256_max_epi32(v, _mm256_shuffle_epi32(v, 0xb1));
        m[q] = _mm256_max_epi32(v, _mm256_shuffle_epi32(v, 0x4e));
    }
}

/* x times by to nearest, where by is not 0. */
TARGET_AVX2 static inline __m256 rounded(const float *x, __m256 by)
{
    __m256 on = _mm256_cmp_ps(by, _mm256_setzero_ps(), _CMP_GT_OQ);

    return _mm256_castsi256_ps(_mm256_cvtps_epi32(_mm256_mul_ps(_mm256_and_ps(_mm256_loadu_ps(x), on), by)));
}

/* 16 words, every other of 32: which says whether even or odd ones. */
#define EVERY_OTHER(v, which, turn) \
    _mm256_permutevar8x32_epi32(_mm256_packs_epi32(_mm256_castps_si256(_mm256_shuffle_ps((v)[0], (v)[1], which)), \
                                                   _mm256_castps_si256(_mm256_shuffle_ps((v)[2], (v)[3], which))), \
                                turn)

/* 32 numbers as bytes. */
TARGET_AVX2 static inline __m256i as_bytes(const __m256 v[4])
{
    __m256i lo = _mm256_packs_epi32(_mm256_castps_si256(v[0]), _mm256_castps_si256(v[1]));
    __m256i hi = _mm256_packs_epi32(_mm256_castps_si256(v[2]), _mm256_castps_si256(v[3]));

    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* Sums of four of 32 bytes. */
TARGET_AVX2 static inline __m256i fours(__m256i v)
{
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), v), _mm256_set1_epi16(1));
}

TARGET_AVX2 static void bytes_block(struct cpu_act_block *a, const float *x)
{
    __m256i m = _mm256_inserti128_si256(_mm256_castsi128_si256(group_maxima(x)), group_maxima(x + 128), 1);
    __m256i f[8], bytes[8];
    __m256 by, scale = lane_scales(&by, m, _mm256_set1_ps(BYTE_TOP));
    float inverse[8];

    _mm256_storeu_ps(a->scale, scale);
    _mm256_storeu_ps(inverse, by);
    for (int g = 0; g < 8; g++, x += 32) {
        __m256 k = _mm256_set1_ps(inverse[g]);
        __m256 v[4] = { rounded(x, k), rounded(x + 8, k), rounded(x + 16, k), rounded(x + 24, k) };
        __m256i b = bytes[g] = as_bytes(v);

        _mm256_storeu_si256((void *)(a->b + 32 * g), b);
        _mm_storeu_si128((void *)(a->half + cpu_half_place(32 * g)), _mm256_castsi256_si128(b));
        _mm_storeu_si128((void *)(a->half + cpu_half_place(32 * g + 16)), _mm256_extracti128_si256(b, 1));
        f[g] = fours(b);
        /* dwords 0 4 1 5 2 6 3 7 are four times 8 bytes side by side */
        b = _mm256_permutevar8x32_epi32(b, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm_storel_epi64((void *)(a->fours + 8 * g), _mm256_castsi256_si128(b));
        _mm_storeh_pd((void *)(a->fours + 8 * g + 64), _mm_castsi128_pd(_mm256_castsi256_si128(b)));
        _mm_storel_epi64((void *)(a->fours + 8 * g + 128), _mm256_extracti128_si256(b, 1));
        _mm_storeh_pd((void *)(a->fours + 8 * g + 192), _mm_castsi128_pd(_mm256_extracti128_si256(b, 1)));
    }
    x86_turn_8(bytes);
    for (int i = 0; i < 8; i++)
        _mm256_storeu_si256((void *)(a->step + 32 * i), bytes[i]);
    /* the sums of the first 16 of four groups, then of their second */
    __m256i lo = _mm256_hadd_epi32(_mm256_hadd_epi32(f[0], f[1]), _mm256_hadd_epi32(f[2], f[3]));
    __m256i hi = _mm256_hadd_epi32(_mm256_hadd_epi32(f[4], f[5]), _mm256_hadd_epi32(f[6], f[7]));
    __m256i first = _mm256_permute2x128_si256(lo, hi, 0x20), second = _mm256_permute2x128_si256(lo, hi, 0x31);

    __m256i whole = _mm256_blend_epi16(first, _mm256_slli_epi32(second, 16), 0xaa);

    _mm256_storeu_si256((void *)a->whole, whole);
    for (int k = 0; k < 16; k += 8) {
        __m256i w = _mm256_cvtepi16_epi32(k == 0 ? _mm256_castsi256_si128(whole) : _mm256_extracti128_si256(whole, 1));

        _mm256_storeu_si256((void *)(a->less + k), _mm256_slli_epi32(_mm256_sub_epi32(_mm256_setzero_si256(), w), 7));
    }
    _mm256_storeu_ps(a->sum, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(first)));
    _mm256_storeu_ps(a->sum + 8, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(second)));
    _mm256_storeu_ps(a->sum_32, _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_add_epi32(first, second))));
}

TARGET_AVX2 static void words_block(struct cpu_act_block *a, const float *x, int top_number)
{
    const __m256 top = _mm256_set1_ps((float)top_number);
    const __m256i turn = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), one = _mm256_set1_epi16(1);
    __m256i m[4];
    __m256 s[4], by[4], scale;

    lane_maxima(m, x);
    for (int q = 0; q < 4; q++)
        s[q] = lane_scales(by + q, m[q], top);
    scale = _mm256_shuffle_ps(_mm256_shuffle_ps(s[0], s[1], 0), _mm256_shuffle_ps(s[2], s[3], 0), 0x88);
    scale = _mm256_permutevar8x32_ps(scale, turn);
    _mm256_storeu_ps(a->scale, scale);
    for (int g = 0; g < 8; g++) {
        int16_t *to = a->q + g / 4 * 128 + g % 2 * 64 + g / 2 % 2 * 16;
        float *sum = a->sum + 2 * g;
        __m256 v[4];

        for (int q = 0; q < 4; q++)
            v[q] = rounded(x + 32 * g + 8 * q, by[q]);
        __m256i even = EVERY_OTHER(v, 0x88, turn), odd = EVERY_OTHER(v, 0xdd, turn);
        __m256i four = _mm256_add_epi32(_mm256_madd_epi16(even, one), _mm256_madd_epi16(odd, one));
        __m256 t = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(four));

        _mm256_storeu_si256((void *)to, even);
        _mm256_storeu_si256((void *)(to + 32), odd);
        t = _mm256_add_ps(t, _mm256_shuffle_ps(t, t, 0x4e));
        t = _mm256_add_ps(t, _mm256_shuffle_ps(t, t, 0xb1));
        sum[0] = _mm256_cvtss_f32(t);
        sum[1] = _mm_cvtss_f32(_mm256_extractf128_ps(t, 1));
        a->sum_32[g] = sum[0] + sum[1];
    }
}

TARGET_AVX2 static void round_avx2(struct cpu_act_block *a, const float *x, int64_t n, int top)
{
    for (int64_t b = 0; b < n / 256; b++, x += 256, a++)
        if (top == BYTE_TOP)
            bytes_block(a, x);
        else
            words_block(a, x, top);
}

cpu_round_fn *cpu_rounder(unsigned simd)
{
    return (simd & SIMD_AVX2) != 0 ? round_avx2 : round_scalar;
}
#else
cpu_round_fn *cpu_rounder(unsigned simd)
{
    (void)simd;
    return round_scalar;
}
#endif
