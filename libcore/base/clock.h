/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - clocks that only go forward, for durations.                        room: base */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_ms(void)
{
    return (double)clock_ns() * 1e-6;
}

/* Processor time of all threads of this process. */
static inline double clock_cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

/* What a piece of work takes, as far as possible whatever else this machine does. */
struct clock_work {
    double ms, cpu_ms;
    long reads; /* pages that were read from a disk */
};
static inline struct clock_work clock_work(void)
{
    struct rusage u;
    struct clock_work w;

    w.reads = getrusage(RUSAGE_SELF, &u) == 0 ? u.ru_majflt : 0;
    w.cpu_ms = clock_cpu_ms();
    w.ms = clock_ms();
    return w;
}

/* Since `from`: on the host the processor time of all threads, unless pages were read from a disk; elsewhere the
 * clock's time. */
static inline double clock_work_ms(const struct clock_work *from, bool host)
{
    const struct clock_work now = clock_work();
    const double ms = now.ms - from->ms, cpu_ms = now.cpu_ms - from->cpu_ms;

    return host && (now.reads == from->reads || cpu_ms > ms) ? cpu_ms : ms;
}
#endif
