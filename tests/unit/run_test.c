/* SPDX-License-Identifier: Apache-2.0 */
/* run_test.c - the same bytes for the same request: at any thread count, in any chunks, beside others, with the layers
 * on one device or on several. */
#include <math.h>
#include <unistd.h>

#include "golden.h"

static const char *const model_a = "tests/golden/models/qwen35moe-a.gguf";
static const char *const model_k = "tests/golden/models/qwen35moe-k.iq3_s.gguf";

static int32_t *prompt(const char *name, int64_t *n)
{
    char path[256];

    (void)snprintf(path, sizeof path, "tests/golden/models/%s.i32", name);
    int32_t *ids = words_of(path, n);
    assert_non_null(ids);
    return ids;
}

/* All logits of the prompt, fed alone in chunks of `chunk`. */
static float *alone_on(int devices, const char *path, int threads, int chunk, const char *kv, const int32_t *ids,
                       int64_t n)
{
    struct rig rig;

    rig_open_on(&rig, devices, path, threads,
                &(struct run_opts){ .ctx_tokens = 512, .rows_max = chunk, .kv_k = kv, .kv_v = kv });
    float *v = logits_of(&rig, ids, n, n);
    rig_close(&rig);
    return v;
}

static float *alone(const char *path, int threads, int chunk, const char *kv, const int32_t *ids, int64_t n)
{
    return alone_on(1, path, threads, chunk, kv, ids, n);
}

static void same(const float *a, const float *b, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) != 0)
            fail_msg("%s: value %lld is %.9g, was %.9g", what, (long long)i, (double)b[i], (double)a[i]);
}

/* One thread has no races: of the ways below, those with several are what the thread sanitizer runs. */
#ifdef __SANITIZE_THREAD__
enum { FIRST_WAY = 3 };
#else
enum { FIRST_WAY = 0 };
#endif

/* Each size of chunks with one thread and with several, on one device and on several: the reference is a single chunk
 * with one thread on one. devices < 0: all of them have a part of every layer. */
static void chunks_and_threads(const char *path)
{
    static const struct {
        int threads, chunk, devices;
    } way[] = { { 1, 1, 1 }, { 1, 7, -2 }, { 1, 64, 3 }, { 2, 512, 2 }, { 2, 7, 1 }, { 3, 1, -3 }, { 3, 64, 1 } };
    int64_t n = 0;
    int32_t *ids = prompt("long", &n);
    float *ref = alone(path, 1, 512, NULL, ids, n);

    for (size_t i = FIRST_WAY; i < sizeof way / sizeof way[0]; i++) {
        char what[256];
        float *got = alone_on(way[i].devices, path, way[i].threads, way[i].chunk, NULL, ids, n);

        (void)snprintf(what, sizeof what, "%.200s: %d threads, chunks of %d, %d devices", path, way[i].threads,
                       way[i].chunk, way[i].devices);
        same(ref, got, n * 512, what);
        free(got);
    }
    free(ref);
    free(ids);
}

/* What warms a device up leaves nothing behind. */
static void warmed_up(const char *path)
{
    int64_t n = 0;
    int32_t *ids = prompt("long", &n);
    struct err e = { 0 };
    struct rig rig;
    float *ref = alone(path, 2, 512, NULL, ids, n), *got = malloc((size_t)n * 512 * sizeof *got);
    struct rows out = { got, 0, 512 };

    assert_non_null(got);
    rig_open(&rig, path, 2, &(struct run_opts){ .ctx_tokens = 512, .undo_tokens = 4 });
    if (run_warm_up(rig.r, &e) || run_pos(rig.r, 0) != 0 || run_logits_last(rig.r) != NULL ||
        run_feed(rig.r, 0, ids, n, n, rows_sink, &out, NULL, &e))
        fail_msg("%s: %s", path, e.msg);
    same(ref, got, n * 512, path);
    rig_close(&rig);
    free(ref);
    free(got);
    free(ids);
}

/* Sequence 2 is the request; 0, 1 and 3 feed other tokens, rows interleaved, at uneven speeds. */
static void beside_others(const char *path)
{
    enum { STEP = 23 };
    int64_t n = 0, n_other = 0, done = 0, at[4] = { 0, 3, 0, 11 };
    int32_t *ids = prompt("long", &n), *other = prompt("b", &n_other);
    struct err e = { 0 };
    struct rig rig;
    float *ref = alone(path, 2, 512, NULL, ids, n);

    rig_open_on(&rig, -2, path, 2, &(struct run_opts){ .ctx_tokens = 2048, .n_seq = 4, .rows_max = STEP });
    for (int step = 0; done < n; step++) {
        struct run_row rows[STEP];
        int64_t first = done;

        for (int i = 0; i < STEP; i++) {
            int seq = (i * 7 + step) % 4;

            if (seq == 2 && done < n)
                rows[i] = (struct run_row){ ids[done++], 2, true, false };
            else {
                seq = seq == 2 ? 0 : seq;
                rows[i] = (struct run_row){ other[at[seq]++ % n_other], seq, i % 3 == 0, false };
            }
        }
        if (run_step(rig.r, rows, STEP, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        for (int i = 0; i < STEP; i++)
            if (rows[i].seq == 2)
                same(ref + first++ * 512, run_logits(rig.r, i), 512, path);
    }
    assert_int_equal(run_pos(rig.r, 2), n);
    rig_close(&rig);
    free(ref);
    free(ids);
    free(other);
}

/* Wherever the layers are cut. */
static void every_cut(void **state)
{
    int64_t n = 0;
    int32_t *ids = prompt("a", &n);
    float *ref = alone(model_a, 1, 512, NULL, ids, n);
    struct err e = { 0 };
    int n_layer = 2;

    (void)state;
    for (int a = 1; a < n_layer; a++)
        for (int b = a; b < n_layer; b++) {
            const int first[3] = { 0, a, b };
            const struct test_devices d = test_devices(a < b ? 3 : 2);
            const struct model_opts mo = {
                .device = d.names, .n_threads = 1, .acts = test_acts(), .placement.first = first
            };
            struct rig rig = { .n_vocab = 512 };

            if (gguf_open(&rig.g, model_a, &e) || model_open(&rig.m, rig.g, &mo, &e) ||
                run_open(&rig.r, rig.m, &(struct run_opts){ .ctx_tokens = 512 }, &e))
                fail_msg("%s", e.msg);
            n_layer = model_info(rig.m)->n_layer;
            float *got = logits_of(&rig, ids, n, n);
            same(ref, got, n * 512, d.names);
            free(got);
            rig_close(&rig);
        }
    assert_true(n_layer > 3);
    free(ref);
    free(ids);
}

static void same_bytes_in_chunks(void **state)
{
    (void)state;
    each_model("tests/golden/models", chunks_and_threads);
}

static void same_bytes_in_chunks_all(void **state)
{
    (void)state;
    each_golden(chunks_and_threads);
}

static void same_bytes_warmed_up(void **state)
{
    (void)state;
    each_model("tests/golden/models", warmed_up);
}

static void same_bytes_beside_others(void **state)
{
    (void)state;
    each_model("tests/golden/models", beside_others);
}

static void same_bytes_beside_others_all(void **state)
{
    (void)state;
    each_golden(beside_others);
}

/* Softer KV types keep the distribution close, and keep the same bytes in any chunks. */
/* Mean KL of rows of 512 logits against others. */
static double mean_kl(const float *ref, const float *got, int64_t n)
{
    double sum = 0;

    for (int64_t r = 0; r < n; r++) {
        double zr = 0, zg = 0;

        for (int i = 0; i < 512; i++) {
            zr += exp((double)ref[r * 512 + i]);
            zg += exp((double)got[r * 512 + i]);
        }
        for (int i = 0; i < 512; i++) {
            double lr = (double)ref[r * 512 + i] - log(zr);

            sum += exp(lr) * (lr - (double)got[r * 512 + i] + log(zg));
        }
    }
    return sum / (double)n;
}

/* All logits of the prompt, with activations that are not rounded. */
static float *exact(const int32_t *ids, int64_t n)
{
    const enum quant_acts_type acts = test_acts();

    (void)setenv("CHIMERE_TEST_ACTS", "f32", 1);
    float *v = alone(model_k, 2, 512, "f32", ids, n);
    (void)setenv("CHIMERE_TEST_ACTS", acts == QUANT_ACTS_F32 ? "f32" : acts == QUANT_ACTS_I8 ? "i8" : "i16", 1);
    return v;
}

static void kv_types(void **state)
{
    static const struct {
        const char *kv;
        double limit; /* mean KL against f32 */
    } type[] = { { "f16", 1e-6 }, { "q8_0", 1e-4 }, { "q4_0", 0.02 } };
    int64_t n = 0;
    int32_t *ids = prompt("a", &n);
    float *ref = alone(model_k, 2, 512, "f32", ids, n), *unrounded = exact(ids, n);
    /* What differs a little before activations are rounded differs by a step of rounding after it. So the cache's
     * own error is seen only down to the error of rounding: 3.0e-8 with 16 bits, 1.8e-3 with 8. */
    const double rounding = mean_kl(unrounded, ref, n);

    (void)state;
    for (size_t t = 0; t < sizeof type / sizeof type[0]; t++) {
        float *got = alone(model_k, 2, 512, type[t].kv, ids, n), *cut = alone_on(2, model_k, 1, 5, type[t].kv, ids, n);
        const double kl = mean_kl(ref, got, n);

        same(got, cut, n * 512, type[t].kv);
        print_message("KV %s: mean KL %.2e, that of rounding activations %.2e\n", type[t].kv, kl, rounding);
        assert_true(kl < type[t].limit + rounding);
        assert_true(memcmp(ref, got, (size_t)n * 512 * sizeof *ref) != 0);
        free(got);
        free(cut);
    }
    free(unrounded);
    free(ref);
    free(ids);
}

/* The number of experts for each token, where the metadata has it; NULL: nowhere. */
static char *number_of_used(char *data, size_t n)
{
    static const char key[] = "expert_used_count";
    const size_t len = sizeof key - 1;

    for (size_t i = 0; i + len + 8 <= n; i++)
        if (memcmp(data + i, key, len) == 0)
            return data + i + len + 4; /* after the kind */
    return NULL;
}

/* Logits of the tokens by a model that is opened with n_used, 0: as it is. check: each operation is compared with the
 * CPU's scalar code, on two devices. */
static float *with_used(const char *path, bool check, int n_used, int chunk, const int32_t *ids, int64_t n,
                        uint64_t *fingerprint)
{
    char device[64];
    const struct model_opts mo = { .device = device, .n_threads = 1, .acts = test_acts(), .n_used = n_used };
    struct err e = { 0 };
    struct rig rig = { 0 };

    (void)snprintf(device, sizeof device, check ? "check:%s,check:%s" : "%s", test_device(), test_device());
    if (gguf_open(&rig.g, path, &e) || model_open(&rig.m, rig.g, &mo, &e) ||
        run_open(&rig.r, rig.m, &(struct run_opts){ .ctx_tokens = 512, .rows_max = chunk }, &e))
        fail_msg("%s: %s", path, e.msg);
    rig.n_vocab = model_info(rig.m)->n_vocab;
    *fingerprint = model_fingerprint(rig.m);
    float *v = logits_of(&rig, ids, n, n);
    rig_close(&rig);
    return v;
}

static void refuses_used(const char *path, int n_used, enum err_code code)
{
    const struct model_opts mo = { .n_threads = 1, .n_used = n_used };
    struct err e = { 0 };
    struct gguf *g;
    struct model *m = NULL;

    assert_int_equal(gguf_open(&g, path, &e), ERR_OK);
    assert_int_equal(model_open(&m, g, &mo, &e), code);
    assert_non_null(strstr(e.msg, "--experts "));
    gguf_close(g);
}

/* Fewer experts are those of a model whose file says so, in any chunks; all of them are the model. */
static void fewer_experts_of(const char *path)
{
    char changed[] = "/tmp/chimere-XXXXXX", *data, *at;
    const int64_t n = 12;
    int64_t n_ids = 0;
    int32_t *ids = prompt("long", &n_ids);
    struct err e = { 0 };
    uint64_t whole, other, same_as;
    size_t bytes;
    const int fd = mkstemp(changed);

    assert_true(fd >= 0 && n_ids >= n);
    close(fd);
    assert_int_equal(io_read_all(&data, &bytes, path, (size_t)1 << 28, NULL, &e), ERR_OK);
    at = number_of_used(data, bytes);
    const int trained = at == NULL ? 0 : *at;

    refuses_used(path, trained + 1, trained > 0 ? ERR_ARG : ERR_UNSUPPORTED);
    float *ref = with_used(path, false, 0, 512, ids, n, &whole);

    for (int used = 1; used <= trained; used++) {
        float *got = with_used(path, true, used, 5, ids, n, &other), *want = ref;

        if (used < trained) {
            struct io_out *out;

            *at = (char)used;
            assert_true(io_out_open(&out, changed, &e) == ERR_OK);
            assert_int_equal(io_out_end(out, io_out_write(out, data, bytes, &e), &e), ERR_OK);
            want = with_used(changed, false, 0, 512, ids, n, &same_as);
            assert_true(other != whole && memcmp(got, ref, (size_t)n * 512 * sizeof *got) != 0);
        }
        assert_true(used < trained || other == whole);
        same(want, got, n * 512, path);
        if (want != ref)
            free(want);
        free(got);
    }
    unlink(changed);
    free(ref);
    free(ids);
    free(data);
}

static void fewer_experts(void **state)
{
    (void)state;
    each_model("tests/golden/models", fewer_experts_of);
}

static void cleared_sequence_is_new(void **state)
{
    int64_t n = 0;
    int32_t *ids = prompt("b", &n);
    struct rig rig;

    (void)state;
    rig_open(&rig, model_a, 2, &(struct run_opts){ .ctx_tokens = 64 });
    float *first = logits_of(&rig, ids, n, n), *second = logits_of(&rig, ids, n, n);
    same(first, second, n * 512, "after run_clear");
    rig_close(&rig);
    free(first);
    free(second);
    free(ids);
}

static int asked, more_asked;

static bool stop_soon(void)
{
    asked++;
    return more_asked-- == 0;
}

/* A step that is given up on its way leaves a sequence of several rows as it was, if that was wanted, else and of a
 * single row empty, and what it reads then has the bytes it always has. */
static void given_up(void **state)
{
    static const char *const models[] = { "tests/golden/models/qwen35moe-a.gguf", "tests/golden/models/bamba-a.gguf" };
    int64_t n = 0;
    int32_t *ids = prompt("a", &n);
    struct err e = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++) { /* the last one has pieces of two rows, and is given up in one of them */
        const int m = i % 2;
        const struct test_devices d = test_devices(i < 2 ? 1 : 2);
        const struct model_opts mo = { .device = d.names, .n_threads = 1, .acts = test_acts() };
        const struct run_opts ro = { .ctx_tokens = 512, .rows_max = 64, .stop = stop_soon, .stop_keeps = m == 0 };
        struct rig rig = { .n_vocab = 512 };
        float *ref = alone(models[m], 1, 64, NULL, ids, n);

        more_asked = -1; /* never */
        if (gguf_open(&rig.g, models[m], &e) || model_open(&rig.m, rig.g, &mo, &e) || run_open(&rig.r, rig.m, &ro, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(run_feed(rig.r, 0, ids, 8, 0, NULL, NULL, NULL, &e), ERR_OK);
        int whole = 9; /* how often a step of nine rows asks */
        asked = 0;
        for (int64_t at = 8; at < n; at = run_pos(rig.r, 0)) {
            more_asked = at % 2 == 0 || n - at < 9 ? 1 : whole * 3 / 4;
            const enum err_code code = run_feed(rig.r, 0, ids + at, n - at < 9 ? n - at : 9, 0, NULL, NULL, NULL, &e);
            if (asked == 0) { /* a GPU computes later and does not ask */
                assert_int_equal(code, ERR_OK);
                break;
            }
            assert_int_equal(code, ERR_CANCEL);
            assert_int_equal(run_pos(rig.r, 0), m == 0 && n - at > 1 ? at : 0);
            if (run_pos(rig.r, 0) == 0)
                break;
            more_asked = -1;
            asked = 0;
            assert_int_equal(run_feed(rig.r, 0, ids + at, n - at < 9 ? n - at : 9, 1, NULL, NULL, NULL, &e), ERR_OK);
            same(ref + (run_pos(rig.r, 0) - 1) * 512, run_logits_last(rig.r), 512, models[m]);
            whole = asked;
        }
        run_clear(rig.r, 0);
        more_asked = -1;
        float *got = logits_of(&rig, ids, n, n);
        same(ref, got, n * 512, models[m]);
        free(got);
        free(ref);
        rig_close(&rig);
    }
    free(ids);
}

static void refusals_change_nothing(void **state)
{
    struct err e = { 0 };
    struct rig rig;
    const int32_t three[3] = { 1, 2, 3 };

    (void)state;
    rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = 4, .n_seq = 2, .rows_max = 8 });
    assert_int_equal(run_step(rig.r, &(struct run_row){ 512, 0, true, false }, 1, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "token 512"));
    assert_int_equal(run_step(rig.r, &(struct run_row){ -1, 0, true, false }, 1, &e), ERR_ARG);
    assert_int_equal(run_step(rig.r, &(struct run_row){ 0, 2, true, false }, 1, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "sequence 2"));
    assert_int_equal(run_feed(rig.r, 0, three, 3, 1, NULL, NULL, NULL, &e), ERR_OK);
    assert_int_equal(run_feed(rig.r, 0, three, 3, 1, NULL, NULL, NULL, &e), ERR_LIMIT);
    assert_non_null(strstr(e.msg, "context of 4"));
    assert_int_equal(run_pos(rig.r, 0), 3);
    assert_int_equal(run_feed(rig.r, 0, three, 1, 0, NULL, NULL, NULL, &e), ERR_OK);
    assert_null(run_logits_last(rig.r));
    assert_int_equal(run_pos(rig.r, 0), 4);
    rig_close(&rig);
}

static void options_out_of_range(void **state)
{
    static const struct run_opts bad[] = {
        { .kv_k = "q5_0" },
        { .kv_v = "nonsense" },
        { .rows_max = -1 },
        { .rows_max = 1 << 20 },
        { .ctx_tokens = (int64_t)1 << 40 },
        { .n_seq = 1 << 20 },
    };
    struct err e = { 0 };
    struct rig rig;

    (void)state;
    rig_open(&rig, model_a, 1, &(struct run_opts){ .ctx_tokens = 4 });
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct run *r = NULL;

        assert_int_equal(run_open(&r, rig.m, &bad[i], &e), ERR_ARG);
        assert_null(r);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bytes_in_chunks),
        cmocka_unit_test(same_bytes_in_chunks_all),
        cmocka_unit_test(same_bytes_warmed_up),
        cmocka_unit_test(same_bytes_beside_others),
        cmocka_unit_test(same_bytes_beside_others_all),
        cmocka_unit_test(every_cut),
        cmocka_unit_test(kv_types),
        cmocka_unit_test(cleared_sequence_is_new),
        cmocka_unit_test(refusals_change_nothing),
        cmocka_unit_test(options_out_of_range),
        cmocka_unit_test(fewer_experts),
        cmocka_unit_test(given_up),
    };

    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
