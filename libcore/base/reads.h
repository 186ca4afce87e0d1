/* SPDX-License-Identifier: Apache-2.0 */
/* reads.h - reads of files that go on while the program computes.                 room: base
 *
 * A read is asked for and later found done. Threads of their own wait in pread(2), many at once, since a disk is only
 * fast with many reads under way; they compute nothing. One thread asks. */
#ifndef BASE_READS_H
#define BASE_READS_H
#include "base/base.h"
#include "base/io.h"

enum { IO_READS_THREADS = 16, IO_READS_ALIGN = 4096 };

struct io_read {
    int fd;
    int64_t at;           /* in the file */
    void *to;             /* the caller's, as is this struct, until `left` says that it is done */
    size_t n;             /* bytes; for a file opened with O_DIRECT all three are multiples of IO_READS_ALIGN */
    size_t least;         /* that must be there: the last read of a file ends before n */
    int *error;           /* gets errno, or -1 where the file ends before that; else it stays as it is */
    int *left;            /* becomes one less when the read is done, error included: io_reads_left() */
    struct io_read *next; /* the room's own */
};

static inline int io_reads_left(const int *left)
{
    return __atomic_load_n(left, __ATOMIC_ACQUIRE);
}

struct io_reads;
MUST_CHECK enum err_code io_reads_open(struct io_reads **out, struct err *e);
void io_reads_close(struct io_reads *r); /* NULL is allowed; reads that have not begun are not made */
void io_reads_ask(struct io_reads *r, struct io_read *q);
/* Waits until one that was asked for is done which was not when `seen` was returned, or some milliseconds have passed.
 * Returns what to give the next time. */
uint64_t io_reads_seen(struct io_reads *r);
uint64_t io_reads_wait(struct io_reads *r, uint64_t seen);

/* What a cache of experts has done (dev_cache_layer()). */
struct io_cache_stats {
    uint64_t hits, reads;         /* uses of an expert by a layer of a step: it was there or on its way; it was not */
    uint64_t ahead;               /* of the reads, those that were asked for before the layer was reached */
    uint64_t bytes, wait_ns;      /* read; time in which nothing could be computed for want of them */
    int64_t memory, expert_bytes; /* of the cache, and of the experts of all layers */
    int64_t slots, experts, kept; /* experts that it holds, of all; those that stay there once read */
    bool direct;                  /* past the page cache; false: a file system does not do that */
};

/* Opens a file to read past the page cache. *direct false: its file system does not do that, and it is opened as usual.
 * ERR_FORMAT: it is no longer the one that was mapped (of this id). */
MUST_CHECK enum err_code io_reads_file(int *fd, bool *direct, const char *path, const struct io_id *id, struct err *e);
/* Bytes a second of such a file, with reads of `bytes` bytes at random places, for about a third of a second. */
MUST_CHECK enum err_code io_reads_speed(double *bytes_per_s, const char *path, size_t bytes, struct err *e);
#endif
