/* SPDX-License-Identifier: Apache-2.0 */
/* iq_bytes.h - code books of the iq formats (quant/iq_grids.h) as vector code takes them.   room: cpu */
#ifndef CPU_FORMATS_IQ_BYTES_H
#define CPU_FORMATS_IQ_BYTES_H
#include <stdint.h>

/* The entries as magnitudes, a byte each. */
extern const uint64_t cpu_iq2xxs_bytes[256];
extern const uint64_t cpu_iq2xs_bytes[512];
extern const uint64_t cpu_iq2s_bytes[1024];
extern const uint32_t cpu_iq3xxs_bytes[256];
extern const uint32_t cpu_iq3s_bytes[512];

/* The low bytes of entries, then the high ones. */
extern const uint8_t cpu_iq2xxs_halves[2 * 256];
extern const uint8_t cpu_iq2xs_halves[2 * 512];
extern const uint8_t cpu_iq2s_halves[2 * 1024];

/* Entries of 12 bits, 3 a digit: their low bytes, then the high 4 bits of the first half of them as low nibbles, those
 * of the other half as high nibbles. */
extern const uint8_t cpu_iq3xxs_packed[256 + 128];
extern const uint8_t cpu_iq3s_packed[512 + 256];
#endif
