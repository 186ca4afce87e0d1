/* SPDX-License-Identifier: Apache-2.0 */
/* parse.h - inside of the room gguf: what its files share.                     room: gguf */
#ifndef GGUF_PARSE_H
#define GGUF_PARSE_H
#include "base/io.h"
#include "gguf/gguf.h"

#define GGUF_MAGIC         0x46554747U /* "GGUF", lowest byte first */
#define GGUF_HEAD_BYTES    24          /* magic, version, two counts */
#define GGUF_ALIGN_DEFAULT 32
#define GGUF_ALIGN_MIN     8 /* the format: a multiple of 8 */
#define GGUF_ALIGN_MAX     (1U << 20)
#define GGUF_KEY_MAX       65535 /* bytes; the format's limits */
#define GGUF_NAME_MAX      64
#define GGUF_SLACK_BYTES   (1U << 20) /* the index may take the files' size and this much more */

/* Smallest entry on disk: text of one byte, value of one byte; a tensor of one dimension. */
#define GGUF_KV_MIN_BYTES     (8 + 1 + 4 + 1)
#define GGUF_TENSOR_MIN_BYTES (8 + 1 + 4 + 8 + 4 + 8)

struct gguf_kvs {
    struct gguf_kv *v;
    uint32_t *order; /* by key */
    size_t n;
};

struct gguf_split {
    uint64_t no, count, tensors; /* count 0: not of a set */
    size_t at;                   /* offset of the key split.count, for messages */
};

struct gguf_part {
    char *path;
    struct io_map map;
    bool mapped; /* map is ours to close */
    uint64_t n_kv, n_tensors;
    size_t tensors_at; /* offset of the tensor list */
    uint32_t align;    /* bytes */
    struct gguf_split split;
};

struct gguf {
    char *path;
    struct gguf_part *parts;
    size_t n_parts;
    size_t file_bytes;   /* of all parts */
    struct gguf_kvs kvs; /* of the first part */
    struct gguf_tensor *tensors;
    uint32_t *order; /* of the tensors, by name */
    size_t n_tensors;
    bool lent; /* all but tensors is another's */
};

/* A reading position in one part. */
struct gguf_in {
    const char *file;
    const unsigned char *base;
    size_t size, at; /* bytes, at <= size */
    struct err *e;   /* not NULL */
};

static inline struct gguf_in gguf_part_in(const struct gguf_part *p, size_t at, struct err *e)
{
    return (struct gguf_in){ p->path, p->map.data, p->map.size, at, e };
}

static inline size_t gguf_left(const struct gguf_in *in)
{
    return in->size - in->at;
}

static inline size_t gguf_offset(const struct gguf_in *in, const void *p)
{
    return (size_t)((const unsigned char *)p - in->base);
}

/* What the file stores, lowest byte first, at any address. */
static inline uint32_t gguf_load_u32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gguf_load_u64(const unsigned char *p)
{
    return gguf_load_u32(p) | (uint64_t)gguf_load_u32(p + 4) << 32;
}

/* Ends a message begun with err_set: puts file and offset in front, and returns its code. */
enum err_code gguf_bad(const struct gguf_in *in, size_t at);
/* The head of a text that a message can show, cut between characters. */
struct str gguf_shown(struct str s);
/* UTF-8 without control characters, not empty. */
bool gguf_text_ok(struct str s);

MUST_CHECK enum err_code gguf_need(struct gguf_in *in, uint64_t n, const char *what);
MUST_CHECK enum err_code gguf_take_u32(struct gguf_in *in, uint32_t *v, const char *what);
MUST_CHECK enum err_code gguf_take_u64(struct gguf_in *in, uint64_t *v, const char *what);
/* A key or a tensor's name: what a message may show and a C string can ask for. */
MUST_CHECK enum err_code gguf_take_name(struct gguf_in *in, struct str *s, size_t max, const char *what);

int gguf_str_cmp(struct str a, struct str b);
/* order = 0 .. n - 1, sorted by cmp of the entries of v: in place, n log n for any contents. */
typedef int gguf_cmp_fn(const void *v, uint32_t a, uint32_t b);
void gguf_sort(uint32_t *order, size_t n, gguf_cmp_fn *cmp, const void *v);

unsigned gguf_kind_bytes(enum gguf_kind kind); /* of one element; 0 for strings and arrays */

/* Metadata of a part whose head has been read, its alignment and place in a set. On failure *k
 * holds what gguf_kvs_free must release. */
MUST_CHECK enum err_code gguf_read_kvs(struct gguf_part *p, struct gguf_kvs *k, struct err *e);
void gguf_kvs_free(struct gguf_kvs *k);
/* The tensor lists of all parts, whose metadata has been read. */
MUST_CHECK enum err_code gguf_read_lists(struct gguf *g, struct err *e);

/* Reads a whole file that lies in memory, a part of a split set alone; name is for messages.
 * data must outlive the gguf. */
MUST_CHECK enum err_code gguf_parse(struct gguf **out, const char *name, const void *data, size_t n, struct err *e);
#endif
