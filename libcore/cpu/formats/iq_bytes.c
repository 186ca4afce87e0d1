/* SPDX-License-Identifier: Apache-2.0 */
/* iq_bytes.c - code books of the iq formats in other forms, of the same lists as those of quant/iq_grids.c. */
#include "cpu/formats/iq_bytes.h"

#include "quant/iq23_grids.def"

/* Magnitudes: byte k of an entry's is that of its digit k. */
#define OCTET_BYTE(e, k) (UINT64_C(0x002b1908) >> ((e) >> 2 * (k)&3) * 8 & 255) << 8 * (k)
#define OCTET(e) \
    (OCTET_BYTE(e, 0)) | (OCTET_BYTE(e, 1)) | (OCTET_BYTE(e, 2)) | (OCTET_BYTE(e, 3)) | (OCTET_BYTE(e, 4)) | \
        (OCTET_BYTE(e, 5)) | (OCTET_BYTE(e, 6)) | (OCTET_BYTE(e, 7)),

_Alignas(64) const uint64_t cpu_iq2xxs_bytes[256] = { QUANT_IQ2XXS_GRID(OCTET) };
_Alignas(64) const uint64_t cpu_iq2xs_bytes[512] = { QUANT_IQ2XS_GRID(OCTET) };
_Alignas(64) const uint64_t cpu_iq2s_bytes[1024] = { QUANT_IQ2S_GRID(OCTET) };

#define QUAD_BYTE(v, e, k)  (uint32_t)((v) >> ((e) >> 4 * (k)&7) * 8 & 255) << 8 * (k)
#define QUAD(v, e)          (QUAD_BYTE(v, e, 0)) | (QUAD_BYTE(v, e, 1)) | (QUAD_BYTE(v, e, 2)) | (QUAD_BYTE(v, e, 3)),
#define IQ3XXS_VALUES       UINT64_C(0x3e342c241c140c04)
#define IQ3S_VALUES         UINT64_C(0x0f0d0b0907050301)
#define IQ3XXS_FIRST(a, b)  QUAD(IQ3XXS_VALUES, a)
#define IQ3XXS_SECOND(a, b) QUAD(IQ3XXS_VALUES, b)
#define IQ3S_FIRST(a, b)    QUAD(IQ3S_VALUES, a)
#define IQ3S_SECOND(a, b)   QUAD(IQ3S_VALUES, b)

_Alignas(64) const uint32_t cpu_iq3xxs_bytes[256] = { QUANT_IQ3XXS_GRID(IQ3XXS_FIRST)
                                                          QUANT_IQ3XXS_GRID(IQ3XXS_SECOND) };
_Alignas(64) const uint32_t cpu_iq3s_bytes[512] = { QUANT_IQ3S_GRID(IQ3S_FIRST) QUANT_IQ3S_GRID(IQ3S_SECOND) };

#define LOW(e)  (e) & 255,
#define HIGH(e) (e) >> 8,

_Alignas(64) const uint8_t cpu_iq2xxs_halves[512] = { QUANT_IQ2XXS_GRID(LOW) QUANT_IQ2XXS_GRID(HIGH) };
_Alignas(64) const uint8_t cpu_iq2xs_halves[1024] = { QUANT_IQ2XS_GRID(LOW) QUANT_IQ2XS_GRID(HIGH) };
_Alignas(64) const uint8_t cpu_iq2s_halves[2048] = { QUANT_IQ2S_GRID(LOW) QUANT_IQ2S_GRID(HIGH) };

/* Of the 12 bits of an entry, 3 a digit, the low 8 and the high 4. */
#define LOW_8(e)           ((e)&7) | ((e) >> 4 & 7) << 3 | ((e) >> 8 & 3) << 6
#define HIGH_4(e)          ((e) >> 10 & 1) | ((e) >> 12 & 7) << 1
#define FIRST_LOW_8(a, b)  LOW_8(a),
#define SECOND_LOW_8(a, b) LOW_8(b),
#define HIGH_4_OF_2(a, b)  (HIGH_4(a)) | (HIGH_4(b)) << 4,

#define PACKED(grid) grid(FIRST_LOW_8) grid(SECOND_LOW_8) grid(HIGH_4_OF_2)

_Alignas(64) const uint8_t cpu_iq3xxs_packed[384] = { PACKED(QUANT_IQ3XXS_GRID) };
_Alignas(64) const uint8_t cpu_iq3s_packed[768] = { PACKED(QUANT_IQ3S_GRID) };
