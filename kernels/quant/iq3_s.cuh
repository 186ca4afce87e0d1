/* SPDX-License-Identifier: Apache-2.0 */
/* iq3_s.cuh - code book of quads, plain signs, scale for each 32 */
#ifndef KERNELS_QUANT_IQ3_S_CUH
#define KERNELS_QUANT_IQ3_S_CUH
#include "kernels/quant/unit.cuh"
extern "C" {
#include "quant/iq3_s.h"
}

template <> struct wq<QUANT_iq3_s> {
    typedef quant_iq3_s block;
    enum { ELEMS = 256, HEAD = 0, HALF = 0, MIN = 0 };
    struct raw {
        uint4    q;
        uint2    sign;
        uint32_t d, qh, sc;
    };
    static __device__ __forceinline__ void load(raw &r, const uint8_t *row, int pair)
    {
        const uint8_t *b = row + (int64_t)(pair / 4) * 110;
        int j = pair % 4;

        r.q = any16(b + 2 + 16 * j);
        r.sign = any8(b + 74 + 8 * j);
        r.d = u16_at(b);
        r.qh = u16_at(b + 66 + 2 * j);
        r.sc = b[106 + j];
    }
    /* as q4_k.cuh */
    static __device__ __forceinline__ void unpack_whole(const raw &r, int, unit u[2], const struct tables *tab)
    {
        uint32_t q[4] = { r.q.x, r.q.y, r.q.z, r.q.w };

        u[1].m[1] = half_of(r.d);

#pragma unroll
        for (int i = 0; i < 2; i++) {
            uint32_t sign = i == 0 ? r.sign.x : r.sign.y, h = r.qh >> 8 * i;

            u[i].d[0] = (float)(1 + 2 * (r.sc >> 4 * i & 15u));
#pragma unroll
            for (int l = 0; l < 8; l++)
                u[i].w[l] = negate4(tab->iq3s[(q[2 * i + l / 4] >> l % 4 * 8 & 255u) | (h >> l & 1u) << 8],
                                    sign >> 4 * l);
        }
    }
    static __device__ __forceinline__ void unpack(const raw &r, int pair, unit u[2], int, const struct tables *tab)
    {
        unpack_whole(r, pair, u, tab);
        u[0].d[0] *= u[1].m[1];
        u[1].d[0] *= u[1].m[1];
    }
};
#endif
