/* SPDX-License-Identifier: Apache-2.0 */
/* dev_test.c - what a device measures of itself: how fast it reads, where the time of a step went. */
#include "golden.h"
#include "model/launches.h"
#include "ops/ops.h"

#define MODEL "tests/golden/models/qwen35moe-a.gguf"

/* Whatever the length, all of the buffer is read: the device compares what it read with what it wrote. */
static void reads(void **state)
{
    static const size_t bytes[] = { DEV_READ_UNIT, 3 * DEV_READ_UNIT, 1 << 20, (5 << 20) + 7 * DEV_READ_UNIT };
    struct err e = { 0 };
    struct dev *d;

    (void)state;
    if (dev_open(&d, test_device(), &(struct dev_opts){ .n_threads = 3 }, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        for (int reps = 1; reps <= 2; reps++) {
            double v[2] = { 0, 0 };

            if (dev_read_speed(d, bytes[i], v, reps, &e) != ERR_OK)
                fail_msg("%s", e.msg);
            assert_true(v[0] > 0 && v[0] < 1e15);
            assert_true(reps == 1 ? v[1] == 0 : v[1] > 0);
        }
    dev_close(d);
}

/* A step runs in parts, and what the host asks for is there when it has ended, however much that is. */
static void parts(void **state)
{
    enum { WIDTH = 64, ROUNDS = 40, MANY = 300000 };
    static float row[WIDTH], got[ROUNDS][WIDTH], many[MANY];
    struct err e = { 0 };
    struct dev *d;

    (void)state;
    for (int i = 0; i < WIDTH; i++)
        row[i] = (float)(i + 1);
    if (dev_open(&d, test_device(), &(struct dev_opts){ .n_threads = 2 }, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    float *x = dev_alloc(d, sizeof row), *large = dev_alloc(d, sizeof many);
    struct tensor t = { .type = QUANT_f32, .ne = { WIDTH, 1, 1 }, .stride = WIDTH, .data = x };
    struct tensor all = { .type = QUANT_f32, .ne = { MANY, 1, 1 }, .stride = MANY, .data = large };
    assert_true(x != NULL && large != NULL);
    for (int i = 0; i < MANY; i++)
        many[i] = (float)i;
    dev_copy(d, large, many, sizeof many);
    memset(many, 0, sizeof many);
    for (int again = 0; again < 3; again++) { /* the same step is replayed */
        dev_copy(d, x, row, sizeof row);
        memset(got, 0, sizeof got);
        dev_begin(d);
        for (int i = 0; i < ROUNDS; i++) {
            op_scale(d, t, i % 2 == 0 ? 2.0f : 0.5f);
            dev_fetch(d, got[i], x, sizeof row);
            if (i % 7 == 3)
                dev_submit(d);
        }
        op_scale(d, all, 2.0f);
        dev_fetch(d, many, large, sizeof many);
        assert_int_equal(dev_end(d, &e), ERR_OK);
        for (int i = 0; i < ROUNDS; i++)
            for (int j = 0; j < WIDTH; j++)
                assert_true(got[i][j] == row[j] * (i % 2 == 0 ? 2.0f : 1.0f));
        for (int i = 0; i < MANY; i++)
            assert_true(many[i] == (float)(2 << again) * (float)i);
    }
    dev_free(d, x, sizeof row);
    dev_free(d, large, sizeof many);
    dev_close(d);
}

static int64_t calls_of(const struct model *m, const char *op, uint64_t *ns)
{
    struct model_timing t[64];
    int n = model_timings(m, t, 64);

    for (int i = 0; i < n; i++)
        if (strcmp(t[i].op, op) == 0) {
            *ns = t[i].ns;
            return (int64_t)t[i].calls;
        }
    return 0;
}

/* Off, on from nothing, off again; the bytes are those of a run that is not timed. */
static void times(void **state)
{
    enum { N = 40 };
    static const char *const heavy[] = { "matmul", "moe", "gdn", "attn" };
    int32_t tokens[N];
    struct rig rig;
    uint64_t ns = 0, before = 0;

    (void)state;
    for (int i = 0; i < N; i++)
        tokens[i] = i * 37 % 500 + 1;
    rig_open(&rig, MODEL, 2, &(struct run_opts){ .ctx_tokens = 64, .rows_max = 8 });
    float *want = logits_of(&rig, tokens, N, N);
    assert_int_equal(calls_of(rig.m, "matmul", &ns), 0);
    assert_true(model_launches(rig.m) == 0);
    for (int again = 0; again < 2; again++) {
        model_time(rig.m, true);
        float *got = logits_of(&rig, tokens, N, N);
        struct err e = { 0 };

        for (int32_t i = 0; i < 3; i++) /* steps of one row take other launches */
            if (run_feed(rig.r, 0, &i, 1, 1, NULL, NULL, NULL, &e) != ERR_OK)
                fail_msg("%s", e.msg);
        model_time(rig.m, false);
        assert_memory_equal(got, want, (size_t)(N * rig.n_vocab) * sizeof *want);
        free(got);
        for (size_t i = 0; i < sizeof heavy / sizeof *heavy; i++) {
            int64_t calls = calls_of(rig.m, heavy[i], &ns);

            if (calls < 8 || calls > 1000 || ns < 1000)
                fail_msg("%s: %lld calls, %llu ns", heavy[i], (long long)calls, (unsigned long long)ns);
        }
    }
    (void)calls_of(rig.m, "matmul", &before);
    assert_true((model_launches(rig.m) > 100) == (strcmp(test_device(), "cpu") != 0));
    free(logits_of(&rig, tokens, N, 1));
    (void)calls_of(rig.m, "matmul", &ns);
    assert_true(ns == before);
    free(want);
    rig_close(&rig);
}

/* A GPU that is not there, in any build, is a device that fails; what is no device's name is the caller's mistake. */
static void missing(void **state)
{
    static const char *const odd[] = { "", "cudax", "cuda:", "cuda:x", "cuda:99999999999999999999", "gpu", "cpu:x" };
    static const char *const good[] = { "cpu",  "cuda",      "cuda:0",       "cuda:999",
                                        "auto", "check:cpu", "check:cuda:1", "check:auto" };
    struct err e = { 0 };
    struct dev *d;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_int_equal(dev_check_name(odd[i], &e), ERR_ARG);
    assert_int_equal(dev_check_name("cpu:0", &e), ERR_ARG);
    assert_int_equal(dev_check_name("check:cpu:1", &e), ERR_ARG);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(dev_check_name(good[i], &e), ERR_OK);
    for (int dry = 0; dry < 2; dry++) {
        const struct dev_opts o = { .n_threads = 1, .dry_run = dry };

        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
            assert_int_equal(dev_open(&d, odd[i], &o, &e), ERR_ARG);
        const bool gpu = dev_open(&d, "cuda", &o, &e) == ERR_OK;

        if (gpu)
            dev_close(d);
        else
            assert_int_equal(e.code, ERR_DEVICE);
        assert_int_equal(dev_open(&d, "cuda:999", &o, &e), gpu ? ERR_ARG : ERR_DEVICE);
        assert_int_equal(dev_open(&d, "check:cuda:999", &o, &e), gpu ? ERR_ARG : ERR_DEVICE);
        assert_int_equal(dev_open(&d, "auto", &o, &e), ERR_OK);
        dev_close(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(reads), cmocka_unit_test(parts), cmocka_unit_test(times),
                                        cmocka_unit_test(missing) };

    return cmocka_run_group_tests_name("dev", tests, NULL, NULL);
}
