/* SPDX-License-Identifier: Apache-2.0 */
/* io.h - files: mapping, whole reads, writes that happen entirely or not at all.  room: base */
#ifndef BASE_IO_H
#define BASE_IO_H
#include "base/base.h"

/* Read-only private mapping of a regular file. The mapping may be read by any thread. If another
 * process cuts the file meanwhile, touching the lost part raises SIGBUS: programs install a
 * handler (cmd/cli/signal.c) that says so and exits. */
struct io_map {
    const unsigned char *data; /* NULL when size is 0 */
    size_t size;               /* bytes */
    struct io_id {             /* of the file; all 0: it was not mapped by io_map_open() */
        uint64_t device, inode;
        int64_t size, changed_ns;
    } id;
};
MUST_CHECK enum err_code io_map_open(struct io_map *out, const char *path, struct err *e);
void io_map_close(struct io_map *m);
/* What a file is now: another size or time of change says that somebody wrote it. False: it cannot be asked. */
bool io_identify(int fd, struct io_id *out);
/* Says that n bytes at `at` in the mapping will probably not be read again: the pages that lie wholly within them leave
 * the process's memory. Reading them later still works, and reads them from the file again. */
void io_map_drop(const struct io_map *m, const void *at, size_t n);
/* Says that n bytes at `at` in a mapping will be read next: if they are on the disk, all are asked for at once, where
 * reading them would ask for a little at a time and wait for it. Any thread. */
void io_map_fetch(const void *at, size_t n);

/* Opens a file to read. Opening a FIFO waits until it has a writer.
 * Here and below, a wait for another process (to open the other end of a FIFO, or to write to a pipe) ends with
 * ERR_CANCEL when stop() returns true. stop() is called five times a second; NULL: the wait is not cut short. */
MUST_CHECK enum err_code io_open_read(int *fd, const char *path, bool (*stop)(void), struct err *e);
/* Opens a file to append to, and creates it if there is none. Opening a FIFO waits until it has a reader. */
MUST_CHECK enum err_code io_open_append(int *fd, const char *path, bool (*stop)(void), struct err *e);
/* Opens a regular file to read and to append to, for this process alone until it is closed. Creates it if there is
 * none. ERR_IO: another process has it, or it is not a regular file. Read its contents after this call, not before:
 * until then another process may still change them. */
MUST_CHECK enum err_code io_open_own(int *fd, const char *path, struct err *e);
/* Opens a directory whose files nobody else can exchange: no link, this user's, and others cannot write there; else
 * ERR_IO. make: if there is none, it is made, for this user alone. ERR_ARG: its name is empty or too long. */
MUST_CHECK enum err_code io_open_dir(int *fd, const char *path, bool make, struct err *e);
/* Waits for the next bytes and reads 1 to max_bytes of them; *n is 0 at the end. */
MUST_CHECK enum err_code io_read_some(size_t *n, int fd, void *data, size_t max_bytes, bool (*stop)(void),
                                      struct err *e);
/* Whole file ("-" is stdin) into malloc'ed memory with one NUL after it; caller frees *data.
 * More than max_bytes is ERR_LIMIT. */
MUST_CHECK enum err_code io_read_all(char **data, size_t *n, const char *path, size_t max_bytes, bool (*stop)(void),
                                     struct err *e);
/* The same of a text: without a byte order mark. */
MUST_CHECK enum err_code io_read_text(char **data, size_t *n, const char *path, size_t max_bytes, bool (*stop)(void),
                                      struct err *e);
/* Takes the byte order mark from a text that was read otherwise. */
void io_unmark(char *data, size_t *n);
/* The same as io_read_all() for a program that must not wait: a regular file only. ERR_IO: it is something else, such
 * as a FIFO. */
MUST_CHECK enum err_code io_read_regular(char **data, size_t *n, const char *path, size_t max_bytes, struct err *e);
/* All n bytes to fd, or ERR_IO. */
MUST_CHECK enum err_code io_write_all(int fd, const void *data, size_t n, struct err *e);

/* A file that appears under its name complete, or not at all. Writes go to a temporary file in the
 * same directory; commit does fsync, rename, fsync of the directory. A process that is killed leaves
 * its temporary file, ".NAME.PID-N.tmp"; the next io_out_open() of the same name removes it. Call exactly one of the
 * commits or abort to end it (a commit that fails aborts by itself). One thread. */
struct io_out;
MUST_CHECK enum err_code io_out_open(struct io_out **out, const char *path, struct err *e);
/* The same with a temporary file of a fixed name, ".NAME.part", which later processes use again. What a killed process
 * wrote stays in it until it is overwritten; it can be read (io_out_old) and kept (io_out_keep). ERR_IO: another
 * process writes it now, or it is not a plain file of this user's. Abort removes it. */
MUST_CHECK enum err_code io_out_open_part(struct io_out **out, const char *path, struct err *e);
/* Reads n bytes that an earlier process left at `offset`. False: it left none there, or they have been overwritten. */
bool io_out_old(struct io_out *o, uint64_t offset, void *data, size_t n);
/* The next n bytes stay as an earlier process left them. The caller has read them with io_out_old(). */
MUST_CHECK enum err_code io_out_keep(struct io_out *o, uint64_t n, struct err *e);
/* Removes from a directory the temporary files that killed writers left, of files whose names begin with `begins`. */
void io_remove_left(int dir_fd, const char *begins);
MUST_CHECK enum err_code io_out_write(struct io_out *o, const void *data, size_t n, struct err *e);
/* Writes n zeros, as a hole (which takes no disk space) if the file system has holes. */
MUST_CHECK enum err_code io_out_skip(struct io_out *o, uint64_t n, struct err *e);
/* Overwrites earlier bytes: offset + n must be within what was written. */
MUST_CHECK enum err_code io_out_patch(struct io_out *o, uint64_t offset, const void *data, size_t n, struct err *e);
/* A commit keeps the file that it replaces as PATH.1, and so on, as io_publish() does. keep 0: it keeps none. */
void io_out_versions(struct io_out *o, int keep);
MUST_CHECK enum err_code io_out_commit(struct io_out *o, struct err *e);
/* The same, but never replaces another file: ERR_IO when the path exists by now. */
MUST_CHECK enum err_code io_out_commit_new(struct io_out *o, struct err *e);
void io_out_abort(struct io_out *o); /* NULL is allowed; nothing remains on disk */
/* Ends it: commits where code is ERR_OK, else aborts and returns code. */
MUST_CHECK enum err_code io_out_end(struct io_out *o, enum err_code code, struct err *e);
/* A whole file of these bytes, by io_out_open(). */
MUST_CHECK enum err_code io_write_file(const char *path, struct str all, struct err *e);
uint64_t io_out_pos(const struct io_out *o); /* bytes written so far */

/* A lock that lets one process write a file: ERR_IO when another one has it. While it is held, FILE.lock lies beside
 * the file. */
struct io_lock;
MUST_CHECK enum err_code io_lock(struct io_lock **out, const char *path, struct err *e);
void io_unlock(struct io_lock *l); /* NULL is allowed */

/* Gives `fresh` the mode of `path`, if that exists, so that nobody can read the new file who could not read the old
 * one. */
void io_same_mode(const char *fresh, const char *path);

/* Whether n bytes more fit beside `path`; ERR_IO says how many do. ERR_OK where that cannot be known. A program asks
 * before long work. */
MUST_CHECK enum err_code io_room_for(const char *path, uint64_t n, struct err *e);

/* A file and its earlier versions: FILE is the current one, FILE.1 the one before it, FILE.2 the one before that. At
 * every moment FILE exists and is complete. If the path is a link, it stays one, and the versions lie beside the file
 * it leads to. publish: `fresh`, a finished file on the same file system, becomes `path`; the old file becomes path.1,
 * and so on. Only the `keep` newest old versions stay. The new file gets the mode of the old one. */
MUST_CHECK enum err_code io_publish(const char *path, const char *fresh, int keep, struct err *e);
/* Can publish and rollback move the versions? ERR_IO: one of path.1, path.2 ... is no file, or one that does not begin
 * with the four bytes of path. Both look themselves; a program asks before long work. */
MUST_CHECK enum err_code io_versions_check(const char *path, struct err *e);
/* errnum: of open() for reading. Where the file is gone and path.1 is there, the message names that: on a file system
 * without links a publisher that was killed leaves them so. */
enum err_code io_cannot_open(const char *path, int errnum, struct err *e);
/* Rotates the versions: path.1 becomes path, path.2 becomes path.1 and so on, and the old path becomes the last of
 * them. So nothing is lost: with as many calls as there are versions, everything is as it was. ERR_IO: there is no
 * path.1. */
MUST_CHECK enum err_code io_rollback(const char *path, struct err *e);

/* XXH64: for checksums and fingerprints, not against an adversary. */
uint64_t io_hash(uint64_t seed, const void *data, size_t n);

/* When the file was last changed, in ns since 1970; a time before 1678 or after 2261 is the nearest of these. */
struct stat;
int64_t io_changed_ns(const struct stat *st);
/* SHA-256 as hexadecimal digits, with a NUL: where nobody may find out the data. */
void io_sha256_hex(char out[65], const void *data, size_t n);
int io_by_hash(const void *a, const void *b); /* of two uint64_t, ascending, for qsort() and bsearch() */
#endif
