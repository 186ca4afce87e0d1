/* SPDX-License-Identifier: Apache-2.0 */
/* filter.c - which contexts an epoch may have.                               room: engram
 *
 * A key sets a bit in each of the eight words of one block of 32 bytes: a look-up touches one cache line. With 12
 * bits for a key about one absent key of 200 passes. */
#include "base/simd.h"
#include "engram/internal.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const uint32_t SALT[FILTER_WORDS] = { 0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d,
                                             0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31 };

uint64_t engram_filter_blocks(uint64_t n)
{
    return n / (FILTER_WORDS * 32 / FILTER_BITS) + 1;
}

uint64_t engram_hash(uint64_t before, uint32_t token)
{
    uint64_t h = (before + token + 1) * 0x9e3779b97f4a7c15u;

    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

static uint64_t block_of(uint64_t n_blocks, uint64_t hash)
{
    const uint64_t high = hash >> 32;

    return n_blocks <= UINT32_MAX ? high * n_blocks >> 32 : hash % n_blocks;
}

void engram_filter_add(uint32_t *filter, uint64_t n_blocks, uint64_t hash)
{
    uint32_t *word = filter + block_of(n_blocks, hash) * FILTER_WORDS;

    for (int i = 0; i < FILTER_WORDS; i++)
        word[i] |= 1U << ((uint32_t)hash * SALT[i] >> 27);
}

void engram_filter_fetch(const uint32_t *filter, uint64_t n_blocks, uint64_t hash)
{
    __builtin_prefetch(filter + block_of(n_blocks, hash) * FILTER_WORDS);
}

static bool has_plain(const uint32_t *filter, uint64_t n_blocks, uint64_t hash)
{
    const uint32_t *word = filter + block_of(n_blocks, hash) * FILTER_WORDS;
    uint32_t missing = 0;

    for (int i = 0; i < FILTER_WORDS; i++)
        missing |= ~word[i] & 1U << ((uint32_t)hash * SALT[i] >> 27);
    return missing == 0;
}

#if defined(__x86_64__)
/* The eight words at once. */
TARGET_AVX2 static bool has_avx2(const uint32_t *filter, uint64_t n_blocks, uint64_t hash)
{
    const uint32_t *word = filter + block_of(n_blocks, hash) * FILTER_WORDS;
    const __m256i salt = _mm256_loadu_si256((const __m256i *)(const void *)SALT);
    const __m256i block = _mm256_loadu_si256((const __m256i *)(const void *)word);
    const __m256i shift = _mm256_srli_epi32(_mm256_mullo_epi32(_mm256_set1_epi32((int)(uint32_t)hash), salt), 27);

    return _mm256_testc_si256(block, _mm256_sllv_epi32(_mm256_set1_epi32(1), shift));
}
#endif

engram_filter_fn *engram_filter_has(void)
{
#if defined(__x86_64__)
    if (simd_features() & SIMD_AVX2)
        return has_avx2;
#endif
    return has_plain;
}
