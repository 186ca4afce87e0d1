/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - a sequence kept in a file.                                     room: run
 *
 * A session file holds the tokens of a sequence, their KV rows, and snapshots of the recurrent layers at the
 * positions where it was saved; chimere-state(5) has the format. Saving appends what is new. The first time, and now
 * and then later, the whole file is written again and replaces the old one when it is complete. If saving is
 * interrupted at any point, the file has either its old contents or the new ones.
 *
 *   run_session_open; run_open; run_session_attach; run_session_match or run_session_load; ... feed ...;
 *   run_session_save; run_session_close
 *
 * Files are checked: wrong lengths, kinds and checksums are ERR_FORMAT with the path; bytes after the last complete
 * save are ignored. Only one process at a time may have a file open (ERR_IO otherwise), and only one thread at a time
 * may use a session.
 */
#ifndef RUN_SESSION_H
#define RUN_SESSION_H
#include "run/run.h"

struct run_session;

/* Whose session it is. */
struct run_session_id {
    uint64_t tokenizer; /* a hash of the vocabulary; 0: none */
    const char *name;   /* of the model and its adapters, for messages; up to 127 bytes are kept */
    uint64_t adapters;  /* run_adapters_hash() of the sequences that are loaded and saved */
};

enum { RUN_SESSION_BLOB_MAX = 1 << 16 };

/* Reads the tokens of a session. The file may be empty, or not exist yet if it can be created (else ERR_IO).
 * ERR_FORMAT: the file is damaged; the unfinished end of an interrupted save is no damage. */
MUST_CHECK enum err_code run_session_open(struct run_session **out, const char *path, struct err *e);
/* The same, read only, for any number of processes at a time. The file must exist, and run_session_save() gives
 * ERR_ARG. */
MUST_CHECK enum err_code run_session_open_shared(struct run_session **out, const char *path, struct err *e);
void run_session_close(struct run_session *s); /* NULL is allowed */
/* What the file holds; for a new session: none, NULL, 0. Valid until the next save. */
const int32_t *run_session_tokens(const struct run_session *s, int64_t *n);
const void *run_session_blob(const struct run_session *s, size_t *n);
/* Whose session the file is. `adapters` is not filled in: the file has only one hash of the model and the adapters
 * together. name NULL: a new session. */
struct run_session_id run_session_of(const struct run_session *s);
/* Names of the types of keys and values it was made with, for run_opts; NULL: a new session. */
void run_session_kv(const struct run_session *s, const char **k, const char **v);

/* Call it once, before the functions below. Reserves the memory for reading and writing. ERR_FORMAT: the file is of
 * another model or tokenizer, or was made with other adapters. ERR_ARG: the types of keys and values differ. */
MUST_CHECK enum err_code run_session_attach(struct run_session *s, struct run *r, const struct run_session_id *id,
                                            struct err *e);
/* Loads the first n tokens of the session into the sequence, or fewer: it ends at the highest snapshot at or below n.
 * Reads the KV rows up to there and that snapshot. ERR_LIMIT: they do not fit the run's context. On an error the
 * sequence is empty. */
MUST_CHECK enum err_code run_session_load(struct run_session *s, struct run *r, int seq, int64_t n, struct err *e);
/* As run_match(), but the tokens are compared with the session's and loaded from it; the sequence must be empty. */
MUST_CHECK enum err_code run_session_match(struct run_session *s, struct run *r, int seq, const int32_t *tokens,
                                           int64_t n, struct run_match *out, struct err *e);
/* Says that the session will only be continued from its end: from now on a save adds only the snapshot of the end, and
 * a file that is written again has only the two newest snapshots. */
void run_session_ends(struct run_session *s);
/* Saves the current state of the sequence, with n <= RUN_SESSION_BLOB_MAX bytes of the caller's. Writes the KV rows of
 * positions that are not in the file, the snapshot at the newest mark among these positions, and one of the current
 * position. ERR_IO: there is another file under the path by now, which is left as it is. If the file was removed, it is
 * written again. */
MUST_CHECK enum err_code run_session_save(struct run_session *s, struct run *r, int seq, const void *blob, size_t n,
                                          struct err *e);

/* What the session costs, and what the last save did. */
struct run_session_stat {
    int64_t file_bytes;
    int64_t torn_bytes; /* after the last complete save, when the file was opened: they are ignored, and the next save
                              removes them */
    int64_t written_bytes; /* by the last save */
    int snapshots;         /* that can be restored */
    bool rewritten;        /* the last save wrote the whole file again */
    bool removed;          /* the last save found that the file had been removed */
};
struct run_session_stat run_session_stat(const struct run_session *s);
#endif
