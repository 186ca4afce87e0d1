/* SPDX-License-Identifier: Apache-2.0 */
/* iq2_xs.c - x = d (s + 1/2) / 4 times a signed magnitude, s 4 bits for each 16. */
#include "quant/iq2_xs.h"

#include "quant/half.h"
#include "quant/iq_grids.h"
#include "quant/quant.h"
#include "quant/x86.h"

static void decode(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_xs *b = row;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        float d = half_to_f32(b->d);

        for (int g = 0; g < 32; g++) {
            int   s = b->sc[g / 4] >> g % 4 / 2 * 4 & 15;
            float scale = d * (0.5f + (float)s) * 0.25f;

            iq_octet(y + 8 * g, scale, quant_iq2xs_grid[b->qs[g] & 511], iq_signs(b->qs[g] >> 9));
        }
    }
}

#if defined(__x86_64__)
TARGET_AVX2 static inline void unpack(struct x86_block *u, const struct quant_iq2_xs *b)
{
    const uint16_t *grid = quant_iq2xs_grid;
    float           d = _cvtsh_ss(b->d);

    for (int g = 0; g < 8; g++) {
        const uint16_t *q = b->qs + 4 * g;
        uint32_t        codes = (uint32_t)(q[0] >> 9) | (uint32_t)(q[1] >> 9) << 7 |
                         (uint32_t)(q[2] >> 9) << 14 | (uint32_t)(q[3] >> 9) << 21;

        x86_octets(u->v + 32 * g,
                   iq_pack(grid[q[0] & 511], grid[q[1] & 511], grid[q[2] & 511], grid[q[3] & 511]),
                   iq_signs_4(codes));
        u->scale[2 * g] = d * (0.5f + (float)(b->sc[g] & 15)) * 0.25f;
        u->scale[2 * g + 1] = d * (0.5f + (float)(b->sc[g] >> 4)) * 0.25f;
    }
}

TARGET_AVX2 static void decode_avx2(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_xs *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_avx2(y, u.v, u.scale);
    }
}

TARGET_AVX512 static void decode_avx512(float *y, const void *row, int64_t n)
{
    const struct quant_iq2_xs *b = row;
    struct x86_block        u;

    for (int64_t i = 0; i < n / 256; i++, b++, y += 256) {
        unpack(&u, b);
        x86_block_avx512(y, u.v, u.scale);
    }
}
#endif

const struct quant_type quant_type_iq2_xs = {
    .name = "iq2_xs",
    .id = 17,
    .block_elems = 256,
    .block_bytes = sizeof(struct quant_iq2_xs),
    .decode = decode,
    X86_DECODERS
};
