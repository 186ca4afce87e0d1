/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - clocks that only go forward, for durations.                        room: base */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H
#include <stdint.h>
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
#endif
