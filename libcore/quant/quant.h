/* SPDX-License-Identifier: Apache-2.0 */
/* quant.h - block formats of tensors: sizes, decoding, encoding.               room: quant
 *
 * A type is a row of quant_types[], made from the list in types.def. A tensor's `type` is the row's
 * index (enum quant_index); its number in files is `id` (GGUF: ggml type ids, see
 * https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Each type has files of its name:
 * NAME.h is the block on disk, if it has blocks, NAME.c its code.
 *
 * Row: ne0 consecutive elements of a tensor, ne0 a multiple of block_elems. Its bytes are
 * head_bytes (most types: 0) followed by ne0 / block_elems blocks.
 *
 * decode is the definition of a format and gives the same bits on every processor (except in NaN):
 * plain float multiply and add in a stated order, no fused operations. A row is aligned as the widest
 * member of its block: at most 2 bytes for formats with blocks, the element's size for plain ones,
 * 4 bytes if there is a head. Products and faster decoders are in cpu/format.h and kernels/.
 */
#ifndef QUANT_QUANT_H
#define QUANT_QUANT_H
#include "base/base.h"

enum quant_index {
#define QUANT(name) QUANT_##name,
#include "quant/types.def"
#undef QUANT
    QUANT_N
};

/* n: elements, a multiple of block_elems; for types with head_bytes, the whole row. */
typedef void quant_decode_fn(float *y, const void *row, int64_t n);
/* importance: n weights >= 0 for the squared error of each element; NULL: all count alike. Encoders
 * that only round to nearest ignore it. If elements share a scale, one that is not finite makes its
 * whole block NaN; a block of finite elements decodes to finite values. */
typedef void quant_encode_fn(void *row, const float *x, int64_t n, const float *importance);

/* What activations are rounded to in a product with stored weights: integers of 16 bits (15 for some types) or of 8
 * bits, if the device has such products for the type; if not, and always with QUANT_ACTS_F32, they stay floats. */
enum quant_acts_type { QUANT_ACTS_I16, QUANT_ACTS_I8, QUANT_ACTS_F32 };

const char *quant_acts_name(enum quant_acts_type acts); /* "i16" */

struct quant_type {
    const char *name; /* "q4_k": lower case, as in file names and options */
    uint32_t id;      /* number in GGUF files */
    int block_elems;  /* elements in a block */
    int block_bytes;  /* sizeof the block struct */
    int head_bytes;   /* before the first block of each row (iq4_ks: a float scale) */
    quant_decode_fn *decode;
    quant_encode_fn *encode; /* or NULL: not written by this build */
};

extern const struct quant_type *const quant_types[QUANT_N];

/* Row of quant_types[], or -1. */
int quant_find_id(uint32_t id);
int quant_find_name(struct str name); /* case-insensitive */

/* Types of ik_llama.cpp that are not read are known by name, for messages. A type's name by its number, NULL if it is
 * none of these; and whether a name, of any case, is one's. */
const char *quant_other_name(uint32_t id);
bool quant_other_find(struct str name);

/* Bytes of a row of ne0 elements; -1 when ne0 < 0, not a multiple of block_elems, or too large. */
int64_t quant_row_bytes(int type, int64_t ne0);

/* The encoder for files. It searches for the scales with the least error, which is the sum of importance[i] times the
 * squared error of element i (NULL: all count alike). It is slow; `encode` is fast, since it rounds keys and values
 * while the model runs. The bytes do not depend on the processor's features. x: finite numbers; NaN counts as 0,
 * infinities and too large numbers are cut. A row may have any length that is a multiple of block_elems. The highest
 * effort takes up to 70 times as long, for up to 4 % less error. The function returns NULL if this build does not write
 * the type. */
enum quant_effort { QUANT_EFFORT_DEFAULT, QUANT_EFFORT_HIGHEST };
typedef void quant_fit_fn(void *row, const float *x, int64_t n, const float *importance, int effort);
quant_fit_fn *quant_fitter(int type, unsigned simd);

float quant_f16_to_f32(uint16_t h);
uint16_t quant_f32_to_f16(float f); /* to nearest even */
#endif
