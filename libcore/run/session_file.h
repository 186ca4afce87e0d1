/* SPDX-License-Identifier: Apache-2.0 */
/* session_file.h - inside the room run: a session file as it is read and written. chimere-state(5). */
#ifndef RUN_SESSION_FILE_H
#define RUN_SESSION_FILE_H
#include <zstd.h>

#include "run/internal.h"
#include "run/session.h"

enum {
    HEADER_BYTES = 256,
    RECORD_BYTES = 64,
    NAME_BYTES = 124,
    ARCH_BYTES = 48,
    SNAPS_KEPT = 8, /* snapshots that a file written anew has at most, the newest included */
};

enum record_kind { RECORD_TOKENS = 1, RECORD_KV, RECORD_SNAPSHOT, RECORD_BLOB, RECORD_COMMIT };

struct session_header {
    uint64_t model, tokenizer;
    uint32_t type_k, type_v; /* numbers of GGUF */
    uint32_t n_layer;
    uint64_t kv_bytes, rec_bytes; /* of a position; of a snapshot */
    uint64_t shapes;
    uint32_t n_meta;                         /* rows in front of the first token */
    char arch[ARCH_BYTES], name[NAME_BYTES]; /* NUL-terminated */
};

struct record {
    uint32_t kind;
    bool packed;              /* zstd */
    uint64_t at, n;           /* positions */
    uint64_t decoded, stored; /* bytes */
    uint64_t sum;             /* of the stored bytes */
    uint64_t prev, check;     /* the check of the record before, and of this one: the records form a chain */
    uint64_t offset;          /* of the stored bytes in the file */
};

struct records {
    struct record *v;
    size_t n, cap;
};

struct run_session {
    char *path;
    int fd;                  /* -1: there is no file, or an empty one */
    bool shared;             /* only read */
    bool ends;               /* run_session_ends() */
    struct session_header h; /* of the file; of the run once attached */
    bool attached;
    uint64_t adapters; /* run_session_id */
    /* up to the last commit */
    int32_t *token;
    int64_t n;
    size_t cap;
    struct records kv;   /* those in use: adjacent ranges; each ends where the next begins */
    struct records snap; /* ascending */
    unsigned char blob[RUN_SESSION_BLOB_MAX];
    size_t n_blob;
    uint64_t end;   /* of the last commit */
    uint64_t check; /* of that commit */
    struct run_session_stat stat;
    /* buffers for one record, decoded and packed, once attached */
    unsigned char *raw, *packed;
    size_t raw_bytes, packed_bytes;
    ZSTD_CCtx *cctx;
    ZSTD_DCtx *dctx;
};

/* session.c */
void run_session_header_put(unsigned char out[HEADER_BYTES], const struct session_header *h);
void run_session_record_put(unsigned char out[RECORD_BYTES], struct record *r); /* sets check */
MUST_CHECK enum err_code run_session_read(const struct run_session *s, uint64_t at, void *to, size_t n, struct err *e);
/* Reads the file from its beginning; on an error it is closed. */
MUST_CHECK enum err_code run_session_scan(struct run_session *s, struct err *e);
/* Opens, locks and reads the file under the path; on an error none is open. */
MUST_CHECK enum err_code run_session_reopen(struct run_session *s, struct err *e);
/* What is under the path now: the file that is open (or was empty when opened), no file, or another one. */
enum session_path { PATH_SAME, PATH_NONE, PATH_OTHER };
enum session_path run_session_path(const struct run_session *s);
/* Rows of a KV record that are in use. */
uint64_t run_session_live(const struct run_session *s, size_t kv);
/* A file is refused when its KV records have more rows than this. */
uint64_t run_session_rows_max(int64_t n);
#endif
