/* SPDX-License-Identifier: Apache-2.0 */
/* base_dir.h - for the tests of the room base: a fresh directory per test, files, messages.
 *
 * WITH_DIR(test) makes `dir` under TMPDIR and removes it afterwards, which fails, and with it the
 * test, when something is left inside: that is how a forgotten temporary shows. */
#ifndef TESTS_BASE_DIR_H
#define TESTS_BASE_DIR_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/base.h"

#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, dir_make, dir_remove)

static char dir[256];

static inline int dir_make(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/base_test.XXXXXX", tmp != NULL ? tmp : "/tmp");
    return mkdtemp(dir) != NULL ? 0 : -1;
}

static inline int dir_remove(void **state)
{
    (void)state;
    return rmdir(dir); /* fails when something is left */
}

static inline const char *in_dir(char *buf, const char *name)
{
    assert_true(snprintf(buf, 512, "%s/%s", dir, name) < 512);
    return buf;
}

static inline void put_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static inline void assert_says(const struct err *e, const char *part)
{
    if (strstr(e->msg, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", e->msg, part);
    }
}
#endif
