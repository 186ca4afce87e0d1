/* SPDX-License-Identifier: Apache-2.0 */
/* x86.h - what the AVX2 and AVX-512 decoders share.                             room: quant (base)
 *
 * The targets leave out FMA and the code is built without contraction, so a product and a
 * difference stay two roundings, as in the scalar code.
 */
#ifndef QUANT_X86_H
#define QUANT_X86_H

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>

#define TARGET_AVX2   __attribute__((target("avx2,f16c")))
#define TARGET_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,f16c")))
#define X86_DECODERS  .decode_avx2 = decode_avx2, .decode_avx512 = decode_avx512,

/* y[0..15] = scale v, v 16 signed bytes. */
TARGET_AVX2 static inline void x86_scale(float *y, __m128i v, __m256 scale)
{
    __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));

    _mm256_storeu_ps(y, _mm256_mul_ps(scale, lo));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(scale, hi));
}

/* y[0..15] = scale v - min. */
TARGET_AVX2 static inline void x86_scale_min(float *y, __m128i v, __m256 scale, __m256 min)
{
    __m256 lo = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(v));
    __m256 hi = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(v, v)));

    _mm256_storeu_ps(y, _mm256_sub_ps(_mm256_mul_ps(scale, lo), min));
    _mm256_storeu_ps(y + 8, _mm256_sub_ps(_mm256_mul_ps(scale, hi), min));
}

/* A block of 256, unpacked: y = scale v or scale v - min, scale and min one for each 16. */
struct x86_block {
    _Alignas(64) int8_t v[256];
    float scale[16];
    float min[16];
};

TARGET_AVX2 static inline void x86_store32(int8_t *p, __m256i v)
{
    _mm256_store_si256((void *)p, v);
}

/* From 8 scales and 8 minima (quant/k_scales.h), each for 32 elements. */
TARGET_AVX2 static inline void x86_scales_45(struct x86_block *u, __m128i sm, float d, float dmin)
{
    x86_scale(u->scale, _mm_unpacklo_epi8(sm, sm), _mm256_set1_ps(d));
    x86_scale(u->min, _mm_unpackhi_epi8(sm, sm), _mm256_set1_ps(dmin));
}

TARGET_AVX2 static inline void x86_block_avx2(float *y, const int8_t v[256], const float scale[16])
{
    for (int g = 0; g < 16; g++)
        x86_scale(y + 16 * g, _mm_load_si128((const void *)(v + 16 * g)),
                  _mm256_broadcast_ss(scale + g));
}

TARGET_AVX2 static inline void x86_block_min_avx2(float *y, const int8_t v[256],
                                                  const float scale[16], const float min[16])
{
    for (int g = 0; g < 16; g++)
        x86_scale_min(y + 16 * g, _mm_load_si128((const void *)(v + 16 * g)),
                      _mm256_broadcast_ss(scale + g), _mm256_broadcast_ss(min + g));
}

TARGET_AVX2 static inline __m128i x86_load16(const void *p)
{
    return _mm_loadu_si128(p);
}

/* The low and high nibbles of 16 bytes. */
TARGET_AVX2 static inline __m128i x86_low(__m128i v)
{
    return _mm_and_si128(v, _mm_set1_epi8(15));
}

TARGET_AVX2 static inline __m128i x86_high(__m128i v)
{
    return _mm_and_si128(_mm_srli_epi16(v, 4), _mm_set1_epi8(15));
}

/* 16 signed bytes as floats. */
TARGET_AVX512 static inline __m512 x86_floats(__m128i v)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v));
}

TARGET_AVX512 static inline void x86_block_avx512(float *y, const int8_t v[256],
                                                  const float scale[16])
{
    for (int g = 0; g < 16; g++) {
        __m512 q = x86_floats(_mm_load_si128((const void *)(v + 16 * g)));

        _mm512_storeu_ps(y + 16 * g, _mm512_mul_ps(q, _mm512_set1_ps(scale[g])));
    }
}

TARGET_AVX512 static inline void x86_block_min_avx512(float *y, const int8_t v[256],
                                                      const float scale[16], const float min[16])
{
    for (int g = 0; g < 16; g++) {
        __m512 q = x86_floats(_mm_load_si128((const void *)(v + 16 * g)));

        q = _mm512_mul_ps(q, _mm512_set1_ps(scale[g]));
        _mm512_storeu_ps(y + 16 * g, _mm512_sub_ps(q, _mm512_set1_ps(min[g])));
    }
}

/* Codes of 4 bits in bytes, whose products stand in a table: 16 low nibbles, 16 high nibbles. */
TARGET_AVX512 static inline void x86_look_up(float *lo, float *hi, const uint8_t *q,
                                             __m512 table_lo, __m512 table_hi)
{
    __m512i v = _mm512_cvtepu8_epi32(x86_load16(q));

    _mm512_storeu_ps(lo, _mm512_permutexvar_ps(v, table_lo));
    _mm512_storeu_ps(hi, _mm512_permutexvar_ps(_mm512_srli_epi32(v, 4), table_hi));
}
#else
#define X86_DECODERS
#endif
#endif
