/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c - a fixed set of worker threads (pool.h).                             room: base
 *
 * A job is described by plain fields and published by storing its number of pieces in
 * `unclaimed`. Whoever subtracts one from a positive value owns a piece and may read the fields:
 * they change only after `unfinished` has reached zero, which that piece prevents. A worker that
 * wakes late therefore either helps the job of the moment or finds nothing; nobody waits for it,
 * and the caller alone can finish any job. That is what keeps a busy machine from stalling us.
 *
 * Waiting is a short spin, then sleep on a condition variable. To sleep, a thread raises its flag
 * (n_asleep, caller_asleep) and then looks at the counter once more under the mutex; to wake, a
 * thread changes the counter and then looks at the flag. Both are sequentially consistent, so one
 * of the two sees the other. The spin's length adapts: it halves after a long wait and doubles
 * after a short one, so idle or crowded threads go to sleep almost at once.
 */
#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/pool.h"

enum {
    THREADS_MAX = 512,
    LINE_BYTES = 64,     /* keeps counters that different threads write off each other's lines */
    SPIN_NS_MAX = 50000, /* about what waking a sleeping thread costs */
    SPIN_NS_MIN = 1000,
    LOOKS = 32,       /* looks at the counter between two looks at the clock */
    YIELD_NS = 20000, /* between two offers of the processor to others, while work is near */
};

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

struct pool {
    _Alignas(LINE_BYTES) atomic_llong unclaimed;  /* pieces left to take; <= 0: none */
    _Alignas(LINE_BYTES) atomic_llong unfinished; /* pieces not yet done, claimed or not */
    _Alignas(LINE_BYTES) atomic_int n_asleep;     /* workers that may need waking */
    atomic_bool caller_asleep;
    atomic_bool closing;
    atomic_bool awake;  /* pool_awake() */
    atomic_flag in_use; /* catches a second or nested caller */

    pool_fn *fn; /* the job: written by the caller while unfinished is 0 */
    void *ctx;
    int64_t n_items;
    int64_t grain;
    int64_t n_pieces;

    pthread_mutex_t mutex;
    pthread_cond_t work; /* for workers: unclaimed > 0 or closing */
    pthread_cond_t done; /* for the caller: unfinished is 0 */
    int64_t caller_spin_ns;
    int64_t spin_ns_max; /* 0 when there are more threads than processors */
    int n_threads;
    int n_started; /* workers[1 .. n_started] run */
    struct worker workers[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static bool work_waits(struct pool *p)
{
    return atomic_load(&p->unclaimed) > 0 || atomic_load(&p->closing);
}

static bool job_done(struct pool *p)
{
    return atomic_load(&p->unfinished) == 0;
}

/* Looks until ready(p) or the clock says `end`. */
static bool spin(struct pool *p, bool (*ready)(struct pool *), int64_t end)
{
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (ready(p)) {
                return true;
            }
            relax();
        }
    } while (clock_ns() < end);
    return false;
}

/* Spins, then sleeps; adapts the spin to how long the wait was. A wait is short if spinning at
 * most, with some time for waking up, would have covered it. */
static void wait_for(struct pool *p, bool (*ready)(struct pool *), void (*sleep)(struct pool *), int64_t *spin_ns)
{
    if (ready(p)) {
        return;
    }
    if (p->spin_ns_max == 0) {
        sleep(p);
        return;
    }
    int64_t start = clock_ns();
    bool found = spin(p, ready, start + *spin_ns);
    while (!found && atomic_load(&p->awake)) { /* whoever else wants the processor has it */
        sched_yield();
        found = spin(p, ready, clock_ns() + YIELD_NS);
    }
    if (!found) {
        sleep(p);
    }
    if (clock_ns() - start < 4 * p->spin_ns_max) {
        *spin_ns = 2 * *spin_ns < p->spin_ns_max ? 2 * *spin_ns : p->spin_ns_max;
    } else {
        *spin_ns = *spin_ns / 2 > SPIN_NS_MIN ? *spin_ns / 2 : SPIN_NS_MIN;
    }
}

/* Takes and runs pieces while there are any; returns how many. */
static int64_t run_pieces(struct pool *p, int worker)
{
    int64_t n_done = 0;
    for (;;) {
        int64_t left = atomic_fetch_sub(&p->unclaimed, 1);
        if (left <= 0) {
            return n_done;
        }
        int64_t begin = (p->n_pieces - left) * p->grain;
        int64_t end = p->n_items - begin < p->grain ? p->n_items : begin + p->grain;
        p->fn(p->ctx, begin, end, worker);
        n_done++;
    }
}

/* Returns when woken, even if others were faster and nothing is left: the next job is then likely
 * to be near, and the worker spins for it. */
static void sleep_until_woken(struct pool *p)
{
    pthread_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_asleep, 1);
    if (!work_waits(p) && !atomic_load(&p->awake)) {
        pthread_cond_wait(&p->work, &p->mutex);
    }
    atomic_fetch_sub(&p->n_asleep, 1);
    pthread_mutex_unlock(&p->mutex);
}

static void sleep_until_done(struct pool *p)
{
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->caller_asleep, true);
    while (!job_done(p)) {
        pthread_cond_wait(&p->done, &p->mutex);
    }
    atomic_store(&p->caller_asleep, false);
    pthread_mutex_unlock(&p->mutex);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    int64_t spin_ns = p->spin_ns_max;
    for (;;) {
        wait_for(p, work_waits, sleep_until_woken, &spin_ns);
        if (atomic_load(&p->closing)) {
            return NULL;
        }
        int64_t n = run_pieces(p, w->index);
        if (n > 0 && atomic_fetch_sub(&p->unfinished, n) == n && atomic_load(&p->caller_asleep)) {
            pthread_mutex_lock(&p->mutex);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->mutex);
        }
    }
}

/* Wakes as many sleeping workers as there are pieces for. */
static void wake_workers(struct pool *p, int64_t n_useful)
{
    int asleep = atomic_load(&p->n_asleep);
    if (asleep == 0) {
        return;
    }
    pthread_mutex_lock(&p->mutex);
    if (n_useful >= asleep) {
        pthread_cond_broadcast(&p->work);
    } else {
        for (int64_t i = 0; i < n_useful; i++) {
            pthread_cond_signal(&p->work);
        }
    }
    pthread_mutex_unlock(&p->mutex);
}

void pool_for(struct pool *p, int64_t n_items, int64_t grain, pool_fn *fn, void *ctx)
{
    assert(n_items >= 0 && grain >= 1);
    if (n_items == 0) {
        return;
    }
    int64_t n_pieces = (n_items - 1) / grain + 1;
    if (n_pieces == 1 || p->n_threads == 1) {
        for (int64_t i = 0; i < n_pieces; i++) {
            int64_t begin = i * grain;
            fn(ctx, begin, n_items - begin < grain ? n_items : begin + grain, 0);
        }
        return;
    }
    bool taken = atomic_flag_test_and_set(&p->in_use);
    assert(!taken);
    (void)taken;
    p->fn = fn;
    p->ctx = ctx;
    p->n_items = n_items;
    p->grain = grain;
    p->n_pieces = n_pieces;
    atomic_store(&p->unfinished, n_pieces);
    atomic_store(&p->unclaimed, n_pieces);
    wake_workers(p, n_pieces - 1);
    int64_t n = run_pieces(p, 0);
    if (atomic_fetch_sub(&p->unfinished, n) != n) {
        wait_for(p, job_done, sleep_until_done, &p->caller_spin_ns);
    }
    atomic_flag_clear(&p->in_use);
}

void pool_awake(struct pool *p, bool on)
{
    atomic_store(&p->awake, on);
    if (on) {
        wake_workers(p, p->n_threads);
    }
}

/* Workers take no signal meant for the process (Ctrl-C belongs to the program's main thread), but
 * keep those that their own instructions raise: a blocked SIGBUS would kill without a word. */
static void async_signals(sigset_t *set)
{
    static const int own[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF };
    sigfillset(set);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        sigdelset(set, own[i]);
    }
}

static enum err_code start_workers(struct pool *p, struct err *e)
{
    sigset_t block, before;
    async_signals(&block);
    pthread_sigmask(SIG_BLOCK, &block, &before);
    int rc = 0;
    for (int i = 1; i < p->n_threads && rc == 0; i++) {
        struct worker *w = &p->workers[i];
        w->pool = p;
        w->index = i;
        rc = pthread_create(&w->thread, NULL, worker_main, w);
        p->n_started += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc == 0 ? ERR_OK
                   : err_errno(e, ERR_NOMEM, rc, "cannot start thread %d of %d", p->n_started + 2, p->n_threads);
}

enum err_code pool_open(struct pool **out, int n_threads, struct err *e)
{
    if (n_threads < 1 || n_threads > THREADS_MAX) {
        return err_set(e, ERR_ARG, "%d threads: must be 1 to %d", n_threads, THREADS_MAX);
    }
    size_t bytes = sizeof(struct pool) + (size_t)n_threads * sizeof(struct worker);
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    struct pool *p = aligned_alloc(LINE_BYTES, bytes);
    if (p == NULL) {
        return err_set(e, ERR_NOMEM, "no memory for %d threads", n_threads);
    }
    int64_t spin_ns = n_threads <= pool_cpus() ? SPIN_NS_MAX : 0;
    *p = (struct pool){ .n_threads = n_threads, .caller_spin_ns = spin_ns, .spin_ns_max = spin_ns };
    atomic_init(&p->unclaimed, 0);
    atomic_init(&p->unfinished, 0);
    atomic_init(&p->n_asleep, 0);
    atomic_init(&p->caller_asleep, false);
    atomic_init(&p->closing, false);
    atomic_init(&p->awake, false);
    atomic_flag_clear(&p->in_use);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    enum err_code rc = start_workers(p, e);
    if (rc != ERR_OK) {
        pool_close(p);
        return rc;
    }
    *out = p;
    return ERR_OK;
}

void pool_close(struct pool *p)
{
    if (p == NULL) {
        return;
    }
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->closing, true);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->mutex);
    for (int i = 1; i <= p->n_started; i++) {
        pthread_join(p->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->mutex);
    free(p);
}

int pool_size(const struct pool *p)
{
    return p->n_threads;
}
