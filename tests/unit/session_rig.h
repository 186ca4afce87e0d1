/* SPDX-License-Identifier: Apache-2.0 */
/* session_rig.h - a directory with one session file, and shorthand for tests of sessions. */
#ifndef TESTS_UNIT_SESSION_RIG_H
#define TESTS_UNIT_SESSION_RIG_H
#include <sys/stat.h>
#include <unistd.h>

#include "program.h"
#include "run/session.h"

#define MODEL "tests/golden/models/qwen35moe-a.gguf"

static const struct run_session_id me = { 77, "tiny", 0 };
static char dir[256], path[300];

static inline int make_dir(void **state)
{
    const char *tmp = getenv("TMPDIR");

    (void)state;
    (void)snprintf(dir, sizeof dir, "%s/session_test.XXXXXX", tmp != NULL ? tmp : "/tmp");
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof path, "%s/s", dir);
    return 0;
}

static inline int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir); /* fails when a temporary was left */
}

static inline void put_file(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static inline void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

static inline void says(const struct err *e, const char *part)
{
    if (strstr(e->msg, part) == NULL || strchr(e->msg, '\n') != NULL)
        fail_msg("\"%s\" does not say \"%s\"", e->msg, part);
}

static inline struct run_session *open_with(struct run *r)
{
    struct run_session *s;
    struct err e = { 0 };

    ok(run_session_open(&s, path, &e), &e);
    ok(run_session_attach(s, r, &me, &e), &e);
    return s;
}

static inline void save(struct rig *rig, const void *blob, size_t n)
{
    struct err e = { 0 };
    struct run_session *s = open_with(rig->r);

    ok(run_session_save(s, rig->r, 0, blob, n, &e), &e);
    run_session_close(s);
}

static inline void feed_to(struct rig *rig, const int32_t *tokens, int64_t from, int64_t to)
{
    struct err e = { 0 };

    ok(run_feed(rig->r, 0, tokens + from, to - from, 1, NULL, NULL, NULL, &e), &e);
}

static inline void fill(int32_t *tokens, int n, int times)
{
    for (int i = 0; i < n; i++)
        tokens[i] = i * times % 500 + 1;
}

static inline bool there(void)
{
    struct stat st;

    return stat(path, &st) == 0;
}

/* The sequence goes on as if its tokens had just been read. */
static inline void goes_on(struct rig *rig, struct rig *plain, int32_t *tokens, int n)
{
    tokens[n] = 9;
    feed_to(rig, tokens, n, n + 1);
    float *want = logits_of(plain, tokens, n + 1, 1);
    assert_memory_equal(want, run_logits_last(rig->r), (size_t)rig->n_vocab * sizeof *want);
    free(want);
}

#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
#endif
