/* SPDX-License-Identifier: Apache-2.0 */
/* iq4_xs.cuh - codes of a non-linear table, 6-bit scale for each 32 */
#ifndef KERNELS_QUANT_IQ4_XS_CUH
#define KERNELS_QUANT_IQ4_XS_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq4_xs.h"
}

template <> struct wq<QUANT_iq4_xs> {
    typedef quant_iq4_xs block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    struct raw {
        uint2 head;
        uint2 q[4];
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint2 *b = (const uint2 *)(row + (int64_t)(pair / 4) * 136);

        r.head = b[0];
#pragma unroll
        for (int j = 0; j < 4; j++)
            r.q[j] = b[1 + pair % 4 * 4 + j];
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *)
    {
        float d = half_of(r.head.x & 0xffffu);
        uint32_t high = r.head.x >> 16 >> pair % 4 * 4, low = r.head.y >> pair % 4 * 8;

#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t q[4] = { r.q[2 * i].x, r.q[2 * i].y, r.q[2 * i + 1].x, r.q[2 * i + 1].y };

            u[i].d[0] = d * (float)((int)((low >> 4 * i & 15u) | (high >> 2 * i & 3u) << 4) - 32);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                u[i].w[j] = look16(q[j] & 0x0f0f0f0fu, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
                u[i].w[j + 4] = look16(q[j] >> 4 & 0x0f0f0f0fu, 0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);
            }
        }
    }
};
#endif
