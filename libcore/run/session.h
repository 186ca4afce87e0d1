/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - a sequence kept in a file.                                     room: run (base model state)
 *
 * A session file holds the tokens of a sequence, their KV rows, and snapshots of the recurrent layers at the
 * positions where it was saved; chimere-state(5) has the format. Saving appends what is new; now and then, and
 * the first time, the file is written anew and takes the old one's place when it is complete. Whatever happens
 * while a session is saved, the file holds what it held before or what it holds after.
 *
 *   run_session_open; run_open; run_session_attach; run_session_match or run_session_load; ... feed ...;
 *   run_session_save; run_session_close
 *
 * What a file says is checked: wrong lengths, kinds and checksums are ERR_FORMAT with the path, and the bytes
 * after the last complete save are ignored. One process at a time has a file open (ERR_IO otherwise), one
 * thread at a time a session.
 */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H
#include "run/run.h"

struct run_session;

/* Whose session it is. */
struct run_session_id {
    uint64_t    tokenizer; /* a hash of the vocabulary; 0: none */
    const char *name;      /* of the model and its adapters, for messages; up to 127 bytes are kept */
    uint64_t    adapters;  /* run_adapters_hash() of the sequences that are loaded and saved */
};

enum { RUN_SESSION_BLOB_MAX = 1 << 16 };

/* Reads the tokens of a session, or finds that the file does not exist and could be created (else ERR_IO), or
 * is empty. ERR_FORMAT when the file is damaged, but for the end of a save that was not completed. */
MUST_CHECK enum err_code run_session_open(struct run_session **out, const char *path, struct err *e);
/* A session that is only read, by any number of processes at a time; the file must exist, and run_session_save() is
 * ERR_ARG. */
MUST_CHECK enum err_code run_session_open_shared(struct run_session **out, const char *path, struct err *e);
void run_session_close(struct run_session *s); /* NULL is allowed */
/* What the file holds; for a new session: none, NULL, 0. Valid until the next save. */
const int32_t *run_session_tokens(const struct run_session *s, int64_t *n);
const void    *run_session_blob(const struct run_session *s, size_t *n);
/* Whose session the file is, adapters aside, which it only has a hash with the model's of; name NULL: a new session. */
struct run_session_id run_session_of(const struct run_session *s);
/* Names of the types of keys and values it was made with, for run_opts; NULL: a new session. */
void run_session_kv(const struct run_session *s, const char **k, const char **v);

/* Once, before what follows. ERR_FORMAT: the file is of another model or tokenizer, or other adapters. ERR_ARG: the types of keys
 * and values differ. Reserves the memory for reading and writing. */
MUST_CHECK enum err_code run_session_attach(struct run_session *s, struct run *r, const struct run_session_id *id,
                                            struct err *e);
/* The sequence becomes the first n tokens of the session, or fewer: what comes with the highest snapshot at or
 * below n. Reads their KV rows and that snapshot. ERR_LIMIT when they do not fit the run's context. On an error
 * the sequence is empty. */
MUST_CHECK enum err_code run_session_load(struct run_session *s, struct run *r, int seq, int64_t n,
                                          struct err *e);
/* run_match() with the session in place of the sequence, which was empty. */
MUST_CHECK enum err_code run_session_match(struct run_session *s, struct run *r, int seq, const int32_t *tokens,
                                           int64_t n, struct run_match *out, struct err *e);
/* From now on the session is only continued from its end: a save keeps only the snapshot of the end, and a rewritten file
 * has the two newest ones. */
void run_session_ends(struct run_session *s);
/* The file holds the sequence as it is now, and n <= RUN_SESSION_BLOB_MAX bytes of the caller's. Writes the KV
 * rows of positions that are not in the file, the snapshot at the newest mark among them, and the one of
 * now. ERR_IO when another file stands under the path by now, which stays as it is; a file that was removed is
 * written anew. */
MUST_CHECK enum err_code run_session_save(struct run_session *s, struct run *r, int seq, const void *blob,
                                          size_t n, struct err *e);

/* For those who want to know what it costs. */
struct run_session_stat {
    int64_t file_bytes;
    int64_t torn_bytes;    /* after the last complete save, when the file was opened: they do not count, the next save takes
                              them away */
    int64_t written_bytes; /* by the last save */
    int     snapshots;     /* that can be restored */
    bool    rewritten;     /* the last save wrote the file anew */
    bool    removed;       /* the last save found that the file had been removed */
};
struct run_session_stat run_session_stat(const struct run_session *s);
#endif
