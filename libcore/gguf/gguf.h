/* SPDX-License-Identifier: Apache-2.0 */
/* gguf.h - GGUF model files: a checked read-only view, and a streaming writer.
 * room: gguf
 *
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3,
 * little-endian. gguf_open() maps the file, or all files of a split set when given any of them
 * (NAME-00001-of-000NN.gguf). It checks every count, length, type and offset once, in linear
 * time, with memory bounded by the file's size. After ERR_OK no accessor below can fail because of
 * the file's contents. Pointers handed out point into the mapping: they live as long as the gguf,
 * which never changes after open and may be read by any number of threads.
 *
 * Errors are one line: "FILE: offset N: RULE: what is wrong", ERR_FORMAT (ERR_IO when the file
 * cannot be read, ERR_UNSUPPORTED for a well-formed version, byte order or tensor type that this
 * build does not know).
 *
 * Stricter than the format, so that hostile files stay cheap: no arrays of arrays; names are UTF-8
 * without control characters, keys of at most 65535 and tensor names of at most 64 bytes;
 * general.alignment is a power of two from 8 to 2^20; tensors do not overlap; the entries' structs
 * take at most the file's size and 1 MiB.
 */
#ifndef GGUF_GGUF_H
#define GGUF_GGUF_H
#include "base/base.h"

struct gguf;

/* Value types, with their numbers in the file. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARR,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

struct gguf_kv {
    struct str key;
    enum gguf_kind kind;       /* GGUF_ARR: see elem_kind and n */
    enum gguf_kind elem_kind;  /* of an array; else kind (arrays of arrays are refused) */
    uint64_t n;                /* elements of an array; else 1 */
    const unsigned char *data; /* first element, as stored */
    size_t size_bytes;
};

struct gguf_tensor {
    struct str name;  /* UTF-8, no terminating NUL */
    int type;         /* row of quant_types[] */
    int n_dims;       /* 1..4 as stored */
    int64_t ne[4];    /* elements, fastest dimension first; 1 past the last; product > 0, in range */
    const void *data; /* size_bytes bytes, aligned to general.alignment */
    size_t size_bytes;
};

MUST_CHECK enum err_code gguf_open(struct gguf **out, const char *path, struct err *e);
void gguf_close(struct gguf *g); /* NULL is allowed */

const char *gguf_path(const struct gguf *g);                /* as given to gguf_open */
size_t gguf_file_bytes(const struct gguf *g);               /* of all parts */
const char *gguf_part_path(const struct gguf *g, size_t i); /* NULL past the last part */

/* True when the key exists and its value converts to the asked type without loss; otherwise false,
 * and *out keeps what the caller put there: its default. */
bool gguf_u32(const struct gguf *g, const char *key, uint32_t *out);
bool gguf_u64(const struct gguf *g, const char *key, uint64_t *out);
bool gguf_f32(const struct gguf *g, const char *key, float *out);
bool gguf_bool(const struct gguf *g, const char *key, bool *out);
bool gguf_str(const struct gguf *g, const char *key, struct str *out);

size_t gguf_n_kv(const struct gguf *g); /* the first part's for a split set */
const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i);
const struct gguf_kv *gguf_kv_find(const struct gguf *g, const char *key); /* NULL if absent */

/* Element i of a value of numeric or bool kind, converted; false when it does not convert without
 * loss or i >= n. A scalar is its own element 0. */
bool gguf_kv_u64(const struct gguf_kv *kv, uint64_t i, uint64_t *out);
bool gguf_kv_i64(const struct gguf_kv *kv, uint64_t i, int64_t *out);
bool gguf_kv_f64(const struct gguf_kv *kv, uint64_t i, double *out);

/* Walks the strings of a GGUF_STR value or array in order. */
struct gguf_strs {
    const unsigned char *at;
    uint64_t left;
};
struct gguf_strs gguf_strs(const struct gguf_kv *kv); /* empty if kv is NULL or not of strings */
bool gguf_strs_next(struct gguf_strs *it, struct str *out);

size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i); /* file order */
/* The tensor's bytes will hardly be read again: memory that the mapping takes for them is given back (base/io.h). They
 * can still be read. */
void gguf_drop(const struct gguf *g, const struct gguf_tensor *t);
/* The mapped file that has these bytes of a tensor, and its path; NULL: they are not in a file (gguf_with()). */
struct io_map;
const struct io_map *gguf_map_of(const struct gguf *g, const void *data, const char **path);
/* NULL if absent; O(log n). */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name);

/* g with other tensors in the place of its own, as many and of the same names and shapes, in file order: their types
 * and bytes differ, where somebody wants to know what a model would be with those. It holds a copy of the list; g and
 * the bytes must outlive it. Close it with gguf_close(). */
MUST_CHECK enum err_code gguf_with(struct gguf **out, const struct gguf *g, const struct gguf_tensor *tensors,
                                   struct err *e);

/* Writer: metadata and tensor list first, then the tensors' bytes in the listed order, streamed.
 *   gguf_write_open; gguf_write_u32, _str ...; gguf_write_tensor ...; then for each tensor
 *   gguf_write_data in pieces of any size; gguf_write_commit.
 * The file appears complete or not at all (base/io.h). Version 3, alignment 32 unless
 * general.alignment is written as U32. What gguf_open would refuse is ERR_ARG here: duplicate or
 * bad names, shapes that the type cannot have, more or fewer bytes than declared. After an error
 * only commit (which then fails) or abort may follow. */
struct gguf_writer;
MUST_CHECK enum err_code gguf_write_open(struct gguf_writer **out, const char *path, struct err *e);
/* The same with io_out_open_part(): what a killed process wrote can be looked at and kept. */
MUST_CHECK enum err_code gguf_write_open_part(struct gguf_writer **out, const char *path, struct err *e);
/* n bytes that it left, from `skip` bytes after what is written now; false: there are none. */
bool gguf_write_old(struct gguf_writer *w, uint64_t skip, void *data, size_t n);
MUST_CHECK enum err_code gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t v, struct err *e);
MUST_CHECK enum err_code gguf_write_f32(struct gguf_writer *w, const char *key, float v, struct err *e);
MUST_CHECK enum err_code gguf_write_bool(struct gguf_writer *w, const char *key, bool v, struct err *e);
MUST_CHECK enum err_code gguf_write_str(struct gguf_writer *w, const char *key, struct str v, struct err *e);
/* n elements of a numeric kind, in memory as in the file. */
MUST_CHECK enum err_code gguf_write_arr(struct gguf_writer *w, const char *key, enum gguf_kind elem_kind, const void *v,
                                        uint64_t n, struct err *e);
MUST_CHECK enum err_code gguf_write_strs(struct gguf_writer *w, const char *key, const struct str *v, uint64_t n,
                                         struct err *e);
/* A copy of a value that was read. */
MUST_CHECK enum err_code gguf_write_kv(struct gguf_writer *w, const struct gguf_kv *kv, struct err *e);
MUST_CHECK enum err_code gguf_write_tensor(struct gguf_writer *w, struct str name, int type, int n_dims,
                                           const int64_t *ne, struct err *e);
/* data NULL: n zeros, a hole in the file. */
MUST_CHECK enum err_code gguf_write_data(struct gguf_writer *w, const void *data, size_t n, struct err *e);
/* In the place of gguf_write_data() for a whole tensor: its bytes are those that were left there. */
MUST_CHECK enum err_code gguf_write_keep(struct gguf_writer *w, struct err *e);
/* Other elements for an array of numbers that was written under this key, as many: what is known only
 * after the data. At any time before commit. */
MUST_CHECK enum err_code gguf_write_again(struct gguf_writer *w, const char *key, const void *v, uint64_t n_bytes,
                                          struct err *e);
/* Ends it, also on failure. */
MUST_CHECK enum err_code gguf_write_commit(struct gguf_writer *w, struct err *e);
void gguf_write_abort(struct gguf_writer *w); /* NULL is allowed */
#endif
