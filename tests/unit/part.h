/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - a part of a test program: with CHIMERE_TEST_FILTER only the tests whose names it matches (* and ?), and of
 * their cases with CHIMERE_TEST_PART=I/N every N-th from the I-th on, so that N processes have all of them, side by
 * side; of runs of a model or an operation over many rows with CHIMERE_TEST_STEPS=N at most the first N steps. */
#ifndef TESTS_UNIT_PART_H
#define TESTS_UNIT_PART_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "golden.h"

/* Called before the tests. */
static inline void test_filter(void)
{
    cmocka_set_test_filter(getenv("CHIMERE_TEST_FILTER"));
}

/* Of n rows those in the steps that are taken, of `chunk` rows each. */
static inline int test_rows(int n, int chunk)
{
    const char *steps = getenv("CHIMERE_TEST_STEPS");
    int most = n;

    if (steps != NULL && (sscanf(steps, "%d", &most) != 1 || most < 1)) {
        fprintf(stderr, "CHIMERE_TEST_STEPS=%s: not a number of steps\n", steps);
        exit(1);
    }
    return most < (n + chunk - 1) / chunk ? most * chunk : n;
}

/* Asked once for each case, in order. */
static inline bool test_mine(void)
{
    static int cases;
    const char *part = getenv("CHIMERE_TEST_PART");
    int own = 0, parts = 1;

    if (part != NULL && (sscanf(part, "%d/%d", &own, &parts) != 2 || own < 0 || own >= parts)) {
        fprintf(stderr, "CHIMERE_TEST_PART=%s: not I/N with I < N\n", part);
        exit(1);
    }
    return cases++ % parts == own;
}
/* Compiled with the address sanitizer, under which a test takes ten times as long: fewer of a kind will do. */
#if defined __SANITIZE_ADDRESS__
enum { SANITIZED = 1 };
#elif defined __has_feature
#if __has_feature(address_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif
#endif
