/* SPDX-License-Identifier: Apache-2.0 */
/* shard_test.c - serve_shard(): what is written, and what schedulers set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "serve/serve.h"

static const char *set; /* "NAME=VALUE NAME=VALUE" */

static const char *get(const char *name)
{
    static char value[64];
    const size_t n = strlen(name);

    for (const char *p = set; p != NULL && *p != '\0'; p += strcspn(p, " "), p += *p == ' ')
        if (strncmp(p, name, n) == 0 && p[n] == '=') {
            const size_t length = strcspn(p + n + 1, " ");

            memcpy(value, p + n + 1, length);
            value[length] = '\0';
            return value;
        }
    return NULL;
}

#define ARRAY(id, min, max, step, count) \
    "SLURM_ARRAY_TASK_ID=" id " SLURM_ARRAY_TASK_MIN=" min " SLURM_ARRAY_TASK_MAX=" max " SLURM_ARRAY_TASK_STEP=" step \
    " SLURM_ARRAY_TASK_COUNT=" count

static void right_ones(void **state)
{
    static const struct {
        const char *arg, *set;
        int first, n;
    } rows[] = {
        { NULL, "", 0, 1 },
        { "1/1", "", 0, 1 },
        { "3/8", "SLURM_ARRAY_TASK_ID=1", 2, 8 },
        { "1048576/1048576", "", 1048575, 1048576 },
        { "auto", ARRAY("1", "1", "8", "1", "8"), 0, 8 },
        { "auto", ARRAY("8", "1", "8", "1", "8"), 7, 8 },
        { "auto", ARRAY("0", "0", "3", "1", "4"), 0, 4 },
        { "auto", ARRAY("7", "1", "9", "3", "3"), 2, 3 }, /* 1, 4, 7: MAX is what was written */
        { "auto", ARRAY("5", "5", "5", "1", "1"), 0, 1 },
        { "auto", "SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_MAX=2", 1, 2 },
        { "auto/8", ARRAY("5", "5", "5", "1", "1"), 4, 8 }, /* one that is submitted again */
        { "auto/8", ARRAY("3", "1", "7", "2", "4"), 2, 8 },
        { "auto/4", "JOB_COMPLETION_INDEX=0", 0, 4 },
        { "auto/4", "JOB_COMPLETION_INDEX=3", 3, 4 },
        { "auto/4", "PARALLEL_SEQ=1", 0, 4 },
        { "auto/4", "PARALLEL_SEQ=4", 3, 4 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct serve_shard x;
        struct err e = { 0 };

        set = rows[i].set;
        assert_int_equal(serve_shard(&x, rows[i].arg, get, &e), ERR_OK);
        assert_int_equal(x.first, rows[i].first);
        assert_int_equal(x.n, rows[i].n);
    }
}

static void wrong_ones(void **state)
{
    static const struct {
        const char *arg, *set, *message;
    } rows[] = {
        { "", "", "not I/N" },
        { "0/0", "", "not I/N" },
        { "0/3", "", "not I/N" },
        { "4/3", "", "not I/N" },
        { "1/1048577", "", "not I/N" },
        { "3", "", "not I/N" },
        { "1/", "", "not I/N" },
        { "1/2x", "", "not I/N" },
        { "+1/2", "", "not I/N" },
        { "99999999999999999999/99999999999999999999", "", "not I/N" },
        { "auto/", "PARALLEL_SEQ=1", "not I/N" },
        { "auto/0", "PARALLEL_SEQ=1", "not I/N" },
        { "automatic", "PARALLEL_SEQ=1", "not I/N" },
        { "auto", "", "none of SLURM_ARRAY_TASK_ID, JOB_COMPLETION_INDEX and PARALLEL_SEQ is set" },
        { "auto", "SLURM_ARRAY_TASK_ID=", "SLURM_ARRAY_TASK_ID= is not a number" },
        { "auto", "SLURM_ARRAY_TASK_ID=x", "SLURM_ARRAY_TASK_ID=x is not a number" },
        { "auto", "SLURM_ARRAY_TASK_ID=1", "SLURM_ARRAY_TASK_MIN is not set" },
        { "auto", "SLURM_ARRAY_TASK_ID=1 SLURM_ARRAY_TASK_MIN=1", "SLURM_ARRAY_TASK_MAX is not set" },
        { "auto", ARRAY("1", "1", "8", "", "8"), "SLURM_ARRAY_TASK_STEP= is not a number" },
        { "auto", ARRAY("1", "1", "8", "0", "8"), "not one of an array" },
        { "auto", ARRAY("2", "1", "9", "3", "3"), "not one of an array" },
        { "auto", ARRAY("9", "1", "8", "1", "8"), "not one of an array" },
        { "auto", ARRAY("1", "1", "7", "1", "3"), "has gaps" },
        { "auto", ARRAY("-1", "-1", "7", "1", "3"), "SLURM_ARRAY_TASK_ID=-1 is not a number" },
        { "auto/8", "SLURM_ARRAY_TASK_ID=9", "SLURM_ARRAY_TASK_ID is 9" },
        { "auto/8", "SLURM_ARRAY_TASK_ID=0", "SLURM_ARRAY_TASK_ID is 0" },
        { "auto", "JOB_COMPLETION_INDEX=0", "auto/N" },
        { "auto/4", "JOB_COMPLETION_INDEX=4", "JOB_COMPLETION_INDEX is 4" },
        { "auto/4", "JOB_COMPLETION_INDEX=", "is not a number" },
        { "auto", "PARALLEL_SEQ=1", "auto/N" },
        { "auto/4", "PARALLEL_SEQ=0", "PARALLEL_SEQ is 0" },
        { "auto/4", "PARALLEL_SEQ=5", "PARALLEL_SEQ is 5" },
        { "auto/4", "PARALLEL_SEQ=1 SLURM_ARRAY_TASK_ID=1", "both SLURM_ARRAY_TASK_ID and PARALLEL_SEQ" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct serve_shard x = { -1, -1 };
        struct err e = { 0 };

        set = rows[i].set;
        if (serve_shard(&x, rows[i].arg, get, &e) != ERR_ARG || strstr(e.msg, rows[i].message) == NULL)
            fail_msg("%s with %s: %s", rows[i].arg, rows[i].set, e.msg);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(right_ones), cmocka_unit_test(wrong_ones) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
