/* SPDX-License-Identifier: Apache-2.0 */
/* hash.c - XXH64 (io.h), from its specification (Collet, "xxHash fast digest algorithm", also the checksum of
 * RFC 8878). Four lanes of eight bytes, merged, then the rest; words are little-endian. room: base */
#include "base/io.h"

static const uint64_t P1 = 0x9E3779B185EBCA87, P2 = 0xC2B2AE3D27D4EB4F, P3 = 0x165667B19E3779F9,
                      P4 = 0x85EBCA77C2B2AE63, P5 = 0x27D4EB2F165667C5;

static uint64_t rotate_left(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t word4(const unsigned char *p)
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
}

static uint64_t word8(const unsigned char *p) /* spelled out, compilers make it one load */
{
    return (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 | (uint64_t)p[4] << 32 |
           (uint64_t)p[5] << 40 | (uint64_t)p[6] << 48 | (uint64_t)p[7] << 56;
}

static uint64_t lane(uint64_t acc, uint64_t in)
{
    return rotate_left(acc + in * P2, 31) * P1;
}

static uint64_t merge(uint64_t h, uint64_t acc)
{
    return (h ^ lane(0, acc)) * P1 + P4;
}

static uint64_t finish_hash(uint64_t h, const unsigned char *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8)
        h = rotate_left(h ^ lane(0, word8(p)), 27) * P1 + P4;
    if (n >= 4) {
        h = rotate_left(h ^ word4(p) * P1, 23) * P2 + P3;
        p += 4;
        n -= 4;
    }
    for (; n > 0; p++, n--)
        h = rotate_left(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t io_hash(uint64_t seed, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1, h = seed + P5;
    size_t left = n;

    for (; left >= 32; p += 32, left -= 32) {
        a = lane(a, word8(p));
        b = lane(b, word8(p + 8));
        c = lane(c, word8(p + 16));
        d = lane(d, word8(p + 24));
    }
    if (n >= 32)
        h = merge(
            merge(merge(merge(rotate_left(a, 1) + rotate_left(b, 7) + rotate_left(c, 12) + rotate_left(d, 18), a), b),
                  c),
            d);
    return finish_hash(h + n, p, left);
}

int io_by_hash(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}
