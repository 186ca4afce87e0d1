/* SPDX-License-Identifier: Apache-2.0 */
/* copy_test.c - weights in memory of the CPU's own: the copy is whole, is counted and given back; a sketch makes none;
 * a model computes the same with it, and never reads its file again. */
#include <unistd.h>

#include "golden.h"
#include "ops/ops.h"

static void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

/* ---- the device ---- */

enum { PIECE = 300007, PIECES = 41 }; /* 12.3 MB: several slices, borders anywhere */

static struct dev *open_cpu(bool sketch)
{
    const struct dev_opts o = { .n_threads = 3, .sketch = sketch };
    struct err e = { 0 };
    struct dev *d;

    ok(dev_open(&d, "cpu", &o, &e), &e);
    return d;
}

/* KiB that the process has: addresses (0), memory (1). */
static long taken(int field)
{
    FILE *f = fopen("/proc/self/statm", "r");
    long v[2] = { 0, 0 };

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &v[0], &v[1]), 2);
    fclose(f);
    return v[field] * (sysconf(_SC_PAGESIZE) / 1024);
}

static unsigned char *some_bytes(void)
{
    unsigned char *v = malloc((size_t)PIECE * PIECES);

    assert_non_null(v);
    for (size_t i = 0; i < (size_t)PIECE * PIECES; i++)
        v[i] = (unsigned char)(i * 2654435761u >> 24 | 1);
    return v;
}

static void copies(void **state)
{
    unsigned char *host = some_bytes();
    struct dev *d = open_cpu(false);
    size_t held = dev_held(d), n_kept = 0;
    bool keep[PIECES];

    (void)state;
    const unsigned char *all = dev_weights_copy(d, host, PIECE, PIECES, NULL);
    assert_true(all != NULL && all != host);
    assert_int_equal(dev_held(d) - held, (size_t)PIECE * PIECES);
    for (int i = 0; i < PIECES; i++)
        n_kept += keep[i] = i % 3 == 1 || (i > 7 && i < 12);
    held = dev_held(d);
    const unsigned char *some = dev_weights_copy(d, host, PIECE, PIECES, keep);
    assert_true(some != NULL && some != host && some != all);
    assert_int_equal(dev_held(d) - held, n_kept * PIECE);
    for (int i = 0; i < PIECES; i++)
        if (keep[i])
            assert_memory_equal(some + (size_t)i * PIECE, host + (size_t)i * PIECE, PIECE);
    held = dev_held(d);
    memset(keep, 0, sizeof keep);
    assert_non_null(dev_weights_copy(d, host, PIECE, PIECES, keep));
    assert_non_null(dev_weights_copy(d, host, PIECE, 0, NULL));
    assert_int_equal(dev_held(d), held);
    memset(host, 0, (size_t)PIECE * PIECES);
    for (size_t i = 0; i < (size_t)PIECE * PIECES; i++)
        if (all[i] != (unsigned char)(i * 2654435761u >> 24 | 1))
            fail_msg("byte %zu", i);
    dev_close(d);
    free(host);
}

/* What is not wanted takes no memory, and nothing is left when the device is closed. */
static void memory_of_copies(void **state)
{
    enum { BIG = 64 << 10, N = 1024 };
    bool keep[N] = { 0 };
    unsigned char *host = malloc((size_t)BIG * N);
    struct dev *d;

    (void)state;
    assert_non_null(host);
    memset(host, 5, (size_t)BIG * N);
    for (int i = 0; i < N; i += 16)
        keep[i + 3] = true;
    d = open_cpu(false);
    long before = taken(1), addresses = taken(0);
    assert_non_null(dev_weights_copy(d, host, BIG, N, keep));
    print_message("%ld KiB for %d of %d pieces of %d KiB\n", taken(1) - before, N / 16, N, BIG >> 10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_true(taken(1) - before < N / 4 * (BIG >> 10)); /* the system counts roughly */
#endif
    for (int i = 0; i < 20; i++) {
        dev_close(d);
        d = open_cpu(false);
        assert_non_null(dev_weights_copy(d, host, BIG, N, i % 2 == 0 ? keep : NULL));
    }
    dev_close(d);
    print_message("%ld KiB of addresses more after 20 times\n", taken(0) - addresses);
    assert_true(taken(0) - addresses < 2 * N * (BIG >> 10));
    free(host);
}

/* A sketch counts; more than there can be, and at an address where nothing is. */
static void sketches(void **state)
{
    const void *nowhere = (const void *)(uintptr_t)4096;
    const size_t piece = (size_t)1 << 42;
    const bool keep[4] = { true, false, true, false };
    struct dev *d = open_cpu(true);
    size_t held = dev_held(d);

    (void)state;
    assert_ptr_equal(dev_weights_copy(d, nowhere, piece, 4, keep), nowhere);
    assert_int_equal(dev_held(d) - held, 2 * piece);
    assert_ptr_equal(dev_weights_copy(d, nowhere, piece, 4, NULL), nowhere);
    assert_int_equal(dev_held(d) - held, 6 * piece);
    dev_close(d);
    d = open_cpu(false);
    held = dev_held(d);
    assert_null(dev_weights_copy(d, nowhere, (size_t)1 << 60, 4, NULL)); /* no such addresses: no copy, no count */
    assert_int_equal(dev_held(d), held);
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies), cmocka_unit_test(memory_of_copies), cmocka_unit_test(sketches),
    };

    return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
