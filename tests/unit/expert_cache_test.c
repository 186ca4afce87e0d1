/* SPDX-License-Identifier: Apache-2.0 */
/* expert_cache_test.c - experts that are read as they are used: the same bytes as from the mapping, with room for one,
 * for a few, and for all; what was counted; a file that changes. */
#include <sys/stat.h>
#include <unistd.h>

#include "golden.h"
#include "base/reads.h"

enum { ROWS = 24 };

static const char *where;
static int n_families;

/* The bytes that one expert takes, from the message that says so. */
static int64_t slot_bytes(const char *path)
{
    const struct model_opts mo = { .device = "cpu", .n_threads = 1, .placement.cache_bytes = 1 };
    struct err e = { 0 };
    struct gguf *g = NULL;
    struct model *m = NULL;
    int64_t n = 0;

    assert_int_equal(gguf_open(&g, path, &e), ERR_OK);
    if (model_open(&m, g, &mo, &e) != ERR_OK) {
        assert_int_equal(e.code, ERR_LIMIT);
        n = strtoll(strrchr(e.msg, ' ') + 1, NULL, 10);
        assert_true(n > 0);
    }
    model_close(m);
    gguf_close(g);
    return n;
}

static bool never(void)
{
    return false;
}

static void open_with(struct rig *rig, const char *path, int64_t cache_bytes, const uint64_t *uses, int rows)
{
    const struct model_opts mo = {
        .device = "cpu", .n_threads = 2, .acts = test_acts(), .placement = { .cache_bytes = cache_bytes, .uses = uses }
    };
    const struct run_opts ro = { .ctx_tokens = 256, .rows_max = rows, .stop = never, .stop_keeps = true };
    struct err e = { 0 };

    memset(rig, 0, sizeof *rig);
    if (gguf_open(&rig->g, path, &e) || model_open(&rig->m, rig->g, &mo, &e) || run_open(&rig->r, rig->m, &ro, &e))
        fail_msg("%s: %s", path, e.msg);
    rig->n_vocab = model_info(rig->m)->n_vocab;
}

static float *rows_of(struct rig *rig)
{
    char path[1024];
    int64_t n = 0;

    (void)snprintf(path, sizeof path, "%s/a.i32", where);
    int32_t *ids = words_of(path, &n);
    assert_non_null(ids);
    assert_true(n >= ROWS);
    float *v = logits_of(rig, ids, ROWS, ROWS);
    free(ids);
    return v;
}

/* rows: of a step; 1: as answers are written. */
static void check_same(const char *path, const float *want, int64_t bytes, const uint64_t *uses, int rows)
{
    struct io_cache_stats s;
    struct rig rig;

    open_with(&rig, path, bytes, uses, rows);
    float *got = rows_of(&rig);
    if (memcmp(want, got, (size_t)(ROWS * rig.n_vocab) * sizeof *got) != 0)
        fail_msg("%s: other bytes with %lld bytes and %d rows a step", path, (long long)bytes, rows);
    assert_true(model_cache_stats(rig.m, &s));
    assert_true(s.memory <= bytes && s.reads > 0 && s.bytes > 0 && s.slots >= 1);
    if (s.slots == s.experts) /* each is read once, whatever is needed of it */
        assert_true(s.reads <= (uint64_t)s.experts);
    if (s.slots == s.experts && rows == 1) /* and all uses are counted */
        assert_true((s.hits + s.reads - s.ahead) % (uint64_t)model_info(rig.m)->n_used == 0);
    free(got);
    rig_close(&rig);
}

static void check_family(const char *path)
{
    const int64_t one = slot_bytes(path);
    struct rig rig;

    if (one == 0) /* it has no experts */
        return;
    n_families++;
    open_with(&rig, path, 0, NULL, 0);
    const size_t n = (size_t)model_info(rig.m)->n_layer * (size_t)model_n_expert(rig.m);
    uint64_t *uses = calloc(n + 1, sizeof *uses);
    struct io_cache_stats s;

    assert_non_null(uses);
    assert_false(model_cache_stats(rig.m, &s));
    for (size_t i = 0; i < n; i++)
        uses[i] = i % 3;
    float *want = rows_of(&rig);
    rig_close(&rig);
    check_same(path, want, one, NULL, 0);
    check_same(path, want, one + one / 2, NULL, 5);
    check_same(path, want, 5 * one, uses, 1);
    check_same(path, want, INT64_C(1) << 32, uses, 7);
    check_same(path, want, INT64_C(1) << 32, NULL, 1);
    free(want);
    free(uses);
}

static void test_same_bytes(void **state)
{
    (void)state;
    where = "tests/golden/models";
    each_model(where, check_family);
    assert_true(n_families >= 5);
}

static void test_changed_file(void **state)
{
    const char *of = "tests/golden/models/qwen35moe-a.gguf";
    char path[] = "/tmp/chimere-test-XXXXXX";
    const int fd = mkstemp(path);
    struct err e = { 0 };
    struct stat was;
    struct rig rig;
    char *data = NULL;
    size_t n = 0;
    int32_t token = 1;
    int64_t all = 0;

    (void)state;
    where = "tests/golden/models";
    assert_true(fd >= 0);
    assert_int_equal(io_read_all(&data, &n, of, (size_t)1 << 30, NULL, &e), ERR_OK);
    assert_int_equal(io_write_all(fd, data, n, &e), ERR_OK);
    open_with(&rig, path, slot_bytes(path), NULL, 0);
    float *want = rows_of(&rig);
    assert_int_equal(fstat(fd, &was), 0);
    assert_int_equal(ftruncate(fd, was.st_size + 1), 0);
    assert_int_equal(run_feed(rig.r, 0, &token, 1, 1, NULL, NULL, NULL, &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "file changed or was cut while it was in use"));
    assert_int_equal(run_pos(rig.r, 0), 0);
    /* as it was: the same run goes on */
    assert_int_equal(ftruncate(fd, was.st_size), 0);
    assert_int_equal(futimens(fd, (struct timespec[]){ was.st_atim, was.st_mtim }), 0);
    float *got = rows_of(&rig);
    assert_memory_equal(want, got, (size_t)(ROWS * rig.n_vocab) * sizeof *got);
    /* several rows: the sequence is as it was before them */
    int32_t *ids = words_of("tests/golden/models/a.i32", &all);
    run_clear(rig.r, 0);
    assert_int_equal(run_feed(rig.r, 0, ids, 4, 0, NULL, NULL, NULL, &e), ERR_OK);
    assert_int_equal(ftruncate(fd, was.st_size + 1), 0);
    assert_int_equal(run_feed(rig.r, 0, ids + 4, 3, 1, NULL, NULL, NULL, &e), ERR_FORMAT);
    assert_int_equal(run_pos(rig.r, 0), 4);
    assert_int_equal(ftruncate(fd, was.st_size), 0);
    assert_int_equal(futimens(fd, (struct timespec[]){ was.st_atim, was.st_mtim }), 0);
    assert_int_equal(run_feed(rig.r, 0, ids + 4, 3, 1, NULL, NULL, NULL, &e), ERR_OK);
    assert_memory_equal(want + 6 * rig.n_vocab, run_logits_last(rig.r), (size_t)rig.n_vocab * sizeof *want);
    free(ids);
    free(want);
    free(got);
    rig_close(&rig);
    free(data);
    close(fd);
    unlink(path);
}

static void test_read_speed(void **state)
{
    struct err e = { 0 };
    double v = 0;

    (void)state;
    assert_int_equal(io_reads_speed(&v, "tests/golden/models/qwen35moe-a.gguf", 4096, &e), ERR_OK);
    assert_true(v > 0);
    assert_int_equal(io_reads_speed(&v, "tests/golden/models/qwen35moe-a.gguf", (size_t)1 << 32, &e), ERR_IO);
    assert_int_equal(io_reads_speed(&v, "no/such/file", 4096, &e), ERR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_changed_file),
        cmocka_unit_test(test_read_speed),
    };

    return cmocka_run_group_tests_name("expert_cache", tests, NULL, NULL);
}
