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
    size_t               size; /* bytes */
};
MUST_CHECK enum err_code io_map_open(struct io_map *out, const char *path, struct err *e);
void io_map_close(struct io_map *m);
/* n bytes at `at` in the mapping will hardly be read again: the process gives back the pages that lie in them whole.
 * Who reads them all the same gets them from the file. */
void io_map_drop(const struct io_map *m, const void *at, size_t n);

/* Opens a file to read. A FIFO is open when it has a writer.
 * Here and below a wait for another process (who opens the other end of a FIFO, who writes to a pipe) ends with
 * ERR_CANCEL when stop() is true, which is asked five times a second; stop NULL: never. */
MUST_CHECK enum err_code io_open_read(int *fd, const char *path, bool (*stop)(void), struct err *e);
/* Opens a file to write at its end, and makes it where there is none. A FIFO is open when it has a reader. */
MUST_CHECK enum err_code io_open_append(int *fd, const char *path, bool (*stop)(void), struct err *e);
/* Opens a regular file to read and to write at its end, for this process alone until it is closed; makes it where there is none.
 * ERR_IO: another process has it, or it is not a regular file. What it holds is to be read after this. */
MUST_CHECK enum err_code io_open_own(int *fd, const char *path, struct err *e);
/* The next 1 to max_bytes bytes, when there are some; 0 at the end. */
MUST_CHECK enum err_code io_read_some(size_t *n, int fd, void *data, size_t max_bytes, bool (*stop)(void),
                                      struct err *e);
/* Whole file ("-" is stdin) into malloc'ed memory with one NUL after it; caller frees *data.
 * More than max_bytes is ERR_LIMIT. */
MUST_CHECK enum err_code io_read_all(char **data, size_t *n, const char *path, size_t max_bytes, bool (*stop)(void),
                                     struct err *e);
/* All n bytes to fd, or ERR_IO. */
MUST_CHECK enum err_code io_write_all(int fd, const void *data, size_t n, struct err *e);

/* A file that appears under its name complete, or not at all: writes go to a temporary in the
 * same directory; commit does fsync, rename, fsync of the directory. A process that is killed leaves
 * its temporary, ".NAME.PID-N.tmp", which the next io_out_open() of the name removes. Exactly one of the commits
 * and abort ends it (abort after a failed commit is done inside). One thread. */
struct io_out;
MUST_CHECK enum err_code io_out_open(struct io_out **out, const char *path, struct err *e);
/* The same with a temporary file that has a name of its own, ".NAME.part", and stays when the process is killed: what it had
 * written is there until it is overwritten, and can be looked at first (io_out_old) and kept (io_out_keep). ERR_IO: another
 * process writes it now, or it is not a plain file of this user's. Abort removes it. */
MUST_CHECK enum err_code io_out_open_part(struct io_out **out, const char *path, struct err *e);
/* n bytes that an earlier process left at `offset`, which are not overwritten by now. False: there are none. */
bool io_out_old(struct io_out *o, uint64_t offset, void *data, size_t n);
/* The next n bytes stay as an earlier process left them: io_out_old() has seen them. */
MUST_CHECK enum err_code io_out_keep(struct io_out *o, uint64_t n, struct err *e);
/* Removes from a directory the temporaries of files whose names begin so and whose writers were killed. */
void io_remove_left(int dir_fd, const char *begins);
MUST_CHECK enum err_code io_out_write(struct io_out *o, const void *data, size_t n, struct err *e);
/* n zeros that take no room where the file system knows holes. */
MUST_CHECK enum err_code io_out_skip(struct io_out *o, uint64_t n, struct err *e);
/* Overwrites earlier bytes: offset + n must be within what was written. */
MUST_CHECK enum err_code io_out_patch(struct io_out *o, uint64_t offset, const void *data, size_t n,
                                      struct err *e);
MUST_CHECK enum err_code io_out_commit(struct io_out *o, struct err *e);
/* The same, but never in the place of another file: ERR_IO when the path exists by now. */
MUST_CHECK enum err_code io_out_commit_new(struct io_out *o, struct err *e);
void     io_out_abort(struct io_out *o); /* NULL is allowed; nothing remains on disk */
uint64_t io_out_pos(const struct io_out *o); /* bytes written so far */

/* One writer of a file: ERR_IO when another one has it. FILE.lock stands beside it meanwhile. */
struct io_lock;
MUST_CHECK enum err_code io_lock(struct io_lock **out, const char *path, struct err *e);
void io_unlock(struct io_lock *l); /* NULL is allowed */

/* fresh gets the mode of path, where that is there: who may not read the one does not read the other. */
void io_same_mode(const char *fresh, const char *path);

/* A file and what it was before: FILE is what serves, FILE.1 what served before it, FILE.2 before that. Whatever happens
 * meanwhile, FILE is there and whole. A link stays a link, and the versions lie beside what it leads to.
 * publish: `fresh`, a finished file on the same file system, becomes `path`; what was there becomes path.1, and so on; the
 * `keep` newest of them stay. The mode stays, too. */
MUST_CHECK enum err_code io_publish(const char *path, const char *fresh, int keep, struct err *e);
/* path.1 becomes path, path.2 path.1 and so on, and what was path the last of them: nothing is lost, and as many calls
 * as there are versions end where they began. ERR_IO: there is no path.1. */
MUST_CHECK enum err_code io_rollback(const char *path, struct err *e);

/* XXH64: for checksums and fingerprints, not against an adversary. */
uint64_t io_hash(uint64_t seed, const void *data, size_t n);
#endif
