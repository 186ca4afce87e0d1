/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - a fixed set of worker threads.                                      room: base
 *
 * The caller is worker 0; n_threads - 1 more wait for work, spinning briefly (at most 50
 * microseconds, fewer after long waits, not at all with more threads than processors) and then
 * sleeping. Workers block the signals meant for a process. One caller at a time.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H
#include "base/base.h"

struct pool;

/* 1 <= n_threads <= 512. */
MUST_CHECK enum err_code pool_open(struct pool **out, int n_threads, struct err *e);
void pool_close(struct pool *p); /* NULL is allowed */
int pool_size(const struct pool *p);

/* fn(ctx, begin, end, worker) over [0, n_items) in pieces of `grain` items (the last may be
 * short), each piece once, on any worker (0..size-1); returns when all are done. Callers write
 * results by item index, never by worker, so the outcome does not depend on the thread count;
 * `worker` only selects scratch memory. With one piece or one thread fn runs on the caller. */
typedef void pool_fn(void *ctx, int64_t begin, int64_t end, int worker);
void pool_for(struct pool *p, int64_t n_items, int64_t grain, pool_fn *fn, void *ctx);

/* on: work will come soon. Sleeping workers wake up and wait for it without sleeping (but let other processes run)
 * until this is called with false. */
void pool_awake(struct pool *p, bool on);

/* Processors this process may run on (affinity and cgroup quota respected), >= 1. */
int pool_cpus(void);
#endif
