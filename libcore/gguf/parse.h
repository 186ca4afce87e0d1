/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h - inside of the room gguf: what its files share.                     room: gguf */
#ifndef GGUF_PARSE_H
#define GGUF_PARSE_H
#include "gguf/gguf.h"

#define GGUF_HEAD_BYTES    24        /* magic, version, two counts */
#define GGUF_ALIGN_DEFAULT 32
#define GGUF_ALIGN_MIN     8         /* the format: a multiple of 8 */
#define GGUF_ALIGN_MAX     (1U << 20)
#define GGUF_KEY_MAX       65535     /* bytes; the format's limits */
#define GGUF_NAME_MAX      64
#define GGUF_SLACK_BYTES   (1U << 20) /* the index may take the file's size and this much more */

/* Smallest entry on disk: text of one byte, value of one byte; a tensor of one dimension. */
#define GGUF_KV_MIN_BYTES     (8 + 1 + 4 + 1)
#define GGUF_TENSOR_MIN_BYTES (8 + 1 + 4 + 8 + 4 + 8)

/* Reads a whole file that lies in memory, a part of a split set alone; name is for messages.
 * data must outlive the gguf. */
MUST_CHECK enum err_code gguf_parse(struct gguf **out, const char *name, const void *data, size_t n,
                                    struct err *e);

unsigned gguf_kind_bytes(enum gguf_kind kind); /* of one element; 0 for strings and arrays */
bool     gguf_text_ok(struct str s);           /* UTF-8 without control characters, not empty */

/* What the file stores, lowest byte first, at any address. */
static inline uint32_t gguf_load_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gguf_load_u64(const unsigned char *p)
{
    return gguf_load_u32(p) | (uint64_t)gguf_load_u32(p + 4) << 32;
}
#endif
