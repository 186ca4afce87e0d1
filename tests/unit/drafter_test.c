/* SPDX-License-Identifier: Apache-2.0 */
/* drafter_test.c - MTP blocks and DFlash drafters against reference data: every one of
 * tests/golden/draft, and of $GOLDENS/draft. With activations as floats, the limit is near what two
 * independent implementations differ by. */
#include <math.h>
#include <unistd.h>

#include "base/json.h"
#include "golden.h"
#include "model/drafter_internal.h"
#include "run/taps.h"

enum { PATH_BYTES = 1024, ROWS = 640 };

/* A model, a drafter of it, and a run that keeps the rows that the drafter reads. */
struct bench {
    struct rig rig;
    struct gguf *file; /* DFlash */
    struct model_drafter *d;
    int n_embd;
};

static enum quant_acts_type acts_now;
static int devices_now = 1; /* on which the model's layers lie; < 0: on -devices_now, a part of each */

static void bench_open(struct bench *b, const char *model, const char *file)
{
    const struct model_opts mo = { .n_threads = 2, .acts = acts_now, .nextn = true };
    struct run_opts ro = { .ctx_tokens = ROWS, .n_seq = 3, .rows_max = ROWS };
    struct err e = { 0 };

    memset(b, 0, sizeof *b);
    if (gguf_open(&b->rig.g, model, &e))
        fail_msg("%s", e.msg);
    test_model_open(&b->rig.m, b->rig.g, mo, devices_now);
    b->rig.n_vocab = model_info(b->rig.m)->n_vocab;
    b->n_embd = model_info(b->rig.m)->n_embd;
    if (file == NULL ? model_drafter_mtp(&b->d, b->rig.m, NULL, &e)
                     : gguf_open(&b->file, file, &e) || model_drafter_dflash(&b->d, b->rig.m, b->file, &e))
        fail_msg("%s", e.msg);
    ro.tap_layers = model_drafter_info(b->d)->tap;
    ro.n_taps = model_drafter_info(b->d)->n_tap;
    if (run_open(&b->rig.r, b->rig.m, &ro, &e) || model_drafter_reserve(b->d, 3, ROWS, 64, &e))
        fail_msg("%s", e.msg);
}

static void bench_close(struct bench *b)
{
    model_drafter_close(b->d);
    gguf_close(b->file);
    rig_close(&b->rig);
}

/* Tokens to sequence 0 of the emptied run, in one step. */
static void feed(struct bench *b, const int32_t *ids, int n)
{
    struct err e = { 0 };

    run_clear(b->rig.r, 0);
    if (run_feed(b->rig.r, 0, ids, n, 1, NULL, NULL, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

/* Rows from .. to - 1 of the last step join the context of a slot; then n guesses, or none. */
static void draft(struct bench *b, int slot, const int32_t *ids, int from, int to, int n, int32_t *guess, float *p)
{
    const struct model_drafter_ask ask = { slot, ids[to], n, guess, p };
    struct model_drafter_row row[ROWS];
    struct err e = { 0 };

    for (int i = from; i < to; i++)
        row[i - from] = (struct model_drafter_row){ slot, false, i, ids[i + 1] };
    if (model_drafter_run(b->d, run_taps(b->rig.r), row, to - from, &ask, n > 0, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static double worst_of(const char *what, const float *ref, const float *got, int64_t n, double limit)
{
    double worst = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs((double)ref[i] - (double)got[i]);

        if (!(d <= limit))
            fail_msg("%s: value %lld is %.6f, reference %.6f", what, (long long)i, (double)got[i], (double)ref[i]);
        worst = d > worst ? d : worst;
    }
    return worst;
}

/* As golden_test.c allows for rounded activations; what float sums in another order may differ by,
 * where they are not. */
static double limit(void)
{
    return acts_now == QUANT_ACTS_F32 ? 2e-4 : acts_now == QUANT_ACTS_I16 ? 4e-3 : 4e-3 * 32767.0 / 127.0;
}

static void *words(const char *dir, const char *name, const char *file, int64_t *n)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof path, "%s/%s/%s", dir, name, file);
    return words_of(path, n);
}

static void check_tokens(const char *what, const float *logits, const int32_t *guess, const float *p, int n,
                         int32_t n_vocab)
{
    for (int i = 0; i < n; i++) {
        const float *row = logits + (int64_t)i * n_vocab;
        int32_t best = best_of(row, n_vocab);
        double sum = 0;

        for (int32_t j = 0; j < n_vocab; j++)
            sum += exp((double)row[j] - (double)row[best]);
        if (guess[i] != best || fabs((double)p[i] - 1.0 / sum) > 1e-5)
            fail_msg("%s: guess %d is %d with %f, not %d with %f", what, i, (int)guess[i], (double)p[i], (int)best,
                     1.0 / sum);
    }
}

/* A block of n guesses after ids[0 .. start), against rows 1 .. n of the reference; the context in
 * two calls. */
static double check_block(struct bench *b, const char *what, const int32_t *ids, int start, int n, const float *ref)
{
    const int64_t size = (int64_t)n * b->rig.n_vocab;
    float *logits = calloc((size_t)size, sizeof *logits), p[MODEL_GUESSES_MAX];
    int32_t guess[MODEL_GUESSES_MAX];
    double worst;

    assert_non_null(logits);
    model_drafter_crop(b->d, 1, 0);
    draft(b, 1, ids, 0, start / 3, 0, NULL, NULL);
    b->d->trace.logits = logits;
    draft(b, 1, ids, start / 3, start, n, guess, p);
    b->d->trace.logits = NULL;
    assert_int_equal(state_pos(b->d->state, 1), start);
    check_tokens(what, logits, guess, p, n, b->rig.n_vocab);
    worst = worst_of(what, ref + b->rig.n_vocab, logits, size, limit());
    free(logits);
    return worst;
}

static void check_dflash(const char *dir, const char *name, const json_t *about, const char *model)
{
    static const char *const file[] = { "block16.logits.f32", "block8.logits.f32" };
    char path[PATH_BYTES];
    int64_t n = 0, n_ref = 0;
    int32_t *ids = words(dir, name, "ids.i32", &n);
    float *fused = words(dir, name, "fused.f32", &n_ref), *got;
    double worst[3] = { 0 };
    struct bench b;

    (void)snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(about, "drafter")));
    bench_open(&b, model, path);
    assert_true(ids != NULL && fused != NULL && n < ROWS);
    feed(&b, ids, (int)n);
    got = calloc((size_t)n_ref, sizeof *got);
    assert_non_null(got);
    b.d->trace.fused = got;
    draft(&b, 0, ids, 0, (int)n - 1, 0, NULL, NULL);
    b.d->trace.fused = NULL;
    worst[0] = worst_of(name, fused, got, n_ref - b.n_embd, limit());
    for (int i = 0; i < 2; i++) {
        const int block = i == 0 ? 16 : 8;
        float *ref = words(dir, name, file[i], &n_ref);

        for (int64_t j = 0; ref != NULL && j < n_ref / block / b.rig.n_vocab; j++) {
            int start = (int)json_integer_value(json_array_get(json_object_get(about, "starts"), (size_t)j));
            double w = check_block(&b, name, ids, start, block - 1, ref + j * block * b.rig.n_vocab);

            worst[1 + i] = w > worst[1 + i] ? w : worst[1 + i];
        }
        assert_true(ref != NULL || i == 1);
        free(ref);
    }
    print_message("%-20s fused rows %.1e, block of 16 %.1e, of 8 %.1e\n", name, worst[0], worst[1], worst[2]);
    bench_close(&b);
    free(got);
    free(fused);
    free(ids);
}

/* A chain of n guesses at anchor p; reference: logits and outputs of each depth, or logits of the
 * first alone. */
static double check_chain(struct bench *b, const char *what, const int32_t *ids, int p, int n, const float *ref,
                          const float *ref_y)
{
    const int64_t n_vocab = b->rig.n_vocab;
    float *logits = calloc((size_t)(n * n_vocab), sizeof *logits), *y = calloc((size_t)(n * b->n_embd), sizeof *y);
    float prob[MODEL_GUESSES_MAX];
    int32_t guess[MODEL_GUESSES_MAX];
    double worst;

    assert_true(logits != NULL && y != NULL);
    model_drafter_crop(b->d, 1, 0);
    draft(b, 1, ids, 0, p, 0, NULL, NULL);
    b->d->trace.logits = logits;
    b->d->trace.hidden = y;
    draft(b, 1, ids, p, p + 1, n, guess, prob);
    b->d->trace.logits = b->d->trace.hidden = NULL;
    assert_int_equal(state_pos(b->d->state, 1), p + 1);
    check_tokens(what, logits, guess, prob, n, b->rig.n_vocab);
    worst = worst_of(what, ref, logits, n * n_vocab, limit());
    if (ref_y != NULL)
        (void)worst_of(what, ref_y, y, (int64_t)n * b->n_embd, limit());
    free(logits);
    free(y);
    return worst;
}

static void check_mtp(const char *dir, const char *name, const json_t *about, const char *model)
{
    const int depth = (int)json_integer_value(json_object_get(about, "depth"));
    const json_t *anchors = json_object_get(about, "anchors");
    int64_t n = 0, n_ref = 0, n_y = 0, n_pre = 0;
    int32_t *ids = words(dir, name, "ids.i32", &n);
    float *ref = words(dir, name, "draft.logits.f32", &n_ref), *y = words(dir, name, "draft.y.f32", &n_y);
    float *pre = words(dir, name, "prefill.logits.f32", &n_pre);
    double worst[2] = { 0 };
    struct bench b;

    bench_open(&b, model, NULL);
    assert_true(ids != NULL && ref != NULL && y != NULL && n < ROWS && depth > 0 && json_array_size(anchors) > 0);
    feed(&b, ids, (int)n);
    for (size_t i = 0; i < json_array_size(anchors); i++) {
        const int p = (int)json_integer_value(json_array_get(anchors, i));
        double w = check_chain(&b, name, ids, p, depth, ref + (int64_t)i * depth * b.rig.n_vocab,
                               y + (int64_t)i * depth * b.n_embd);

        worst[0] = w > worst[0] ? w : worst[0];
    }
    for (int i = 0; i < n_pre / b.rig.n_vocab; i++) {
        double w = check_chain(&b, name, ids, (int)n - 5 + i, 1, pre + (int64_t)i * b.rig.n_vocab, NULL);

        worst[1] = w > worst[1] ? w : worst[1];
    }
    print_message("%-20s chains %.1e, first guesses %.1e\n", name, worst[0], worst[1]);
    bench_close(&b);
    free(ids);
    free(ref);
    free(y);
    free(pre);
}

/* Where a manifest of dir says "../models/X", it is looked for there, and in what the repository
 * has. */
static bool find_model(char path[PATH_BYTES], const char *dir, const char *name)
{
    static const char *const place[] = { "share/models", "tests/golden/models" };
    const char *base = strrchr(name, '/') == NULL ? name : strrchr(name, '/') + 1;
    FILE *f;

    (void)snprintf(path, PATH_BYTES, "%s/%s", dir, name);
    for (size_t i = 0; (f = fopen(path, "rb")) == NULL; i++) {
        if (i == sizeof place / sizeof place[0])
            return false;
        (void)snprintf(path, PATH_BYTES, "%s/%s", place[i], base);
    }
    (void)fclose(f);
    return true;
}

typedef void check_fn(const char *dir, const char *name, const json_t *about, const char *model);

static int check_all(const char *dir, const json_t *all, const char *key, check_fn *check)
{
    char path[PATH_BYTES];
    const char *name;
    json_t *about;
    int n = 0;

    json_object_foreach ((json_t *)(uintptr_t)all, name, about) {
        const char *model = json_string_value(json_object_get(about, key));

        assert_non_null(model);
        if (!find_model(path, dir, model))
            continue;
        check(dir, name, about, path);
        n++;
    }
    return n;
}

static void check_dir(const char *dir)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n = 0;
    struct err e = { 0 };
    json_t *all = NULL;

    (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
    if (io_read_all(&text, &n, path, 1 << 24, NULL, &e) || json_parse(&all, (struct str){ text, n }, path, &e))
        fail_msg("%s", e.msg);
    assert_true(check_all(dir, json_object_get(all, "mtp"), "model", check_mtp) > 0);
    assert_true(check_all(dir, json_object_get(all, "dflash"), "target", check_dflash) > 0);
    json_decref(all);
    free(text);
}

static void goldens_here(void **state)
{
    (void)state;
    acts_now = test_acts();
    check_dir("tests/golden/draft");
    acts_now = QUANT_ACTS_F32;
    devices_now = -2;
    if (strcmp(test_device(), "cpu") == 0)
        check_dir("tests/golden/draft");
    devices_now = 1;
}

static void goldens_all(void **state)
{
    const char *goldens = getenv("GOLDENS");
    char dir[PATH_BYTES];

    (void)state;
    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(dir, sizeof dir, "%s/draft", goldens);
    acts_now = strcmp(test_device(), "cpu") == 0 ? QUANT_ACTS_F32 : test_acts();
    check_dir(dir);
}

/* A copy of a drafter in which every layer has a window. */
static void write_windowed(const char *from, const char *to, uint32_t window)
{
    struct err e = { 0 };
    struct gguf *g;
    struct gguf_writer *w;

    if (gguf_open(&g, from, &e) || gguf_write_open(&w, to, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < gguf_n_kv(g); i++)
        assert_int_equal(gguf_write_kv(w, gguf_kv_at(g, i), &e), ERR_OK);
    assert_int_equal(gguf_write_u32(w, "dflash.attention.sliding_window", window, &e), ERR_OK);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        assert_int_equal(gguf_write_tensor(w, t->name, t->type, t->n_dims, t->ne, &e), ERR_OK);
    }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);

        assert_int_equal(gguf_write_data(w, t->data, t->size_bytes, &e), ERR_OK);
    }
    if (gguf_write_commit(w, &e))
        fail_msg("%s", e.msg);
    gguf_close(g);
}

/* Logits of a block of 8 after rows from .. to - 1. */
static float *block_of(struct bench *b, const int32_t *ids, int from, int to)
{
    float *logits = calloc((size_t)(7 * b->rig.n_vocab), sizeof *logits), p[7];
    int32_t guess[7];

    assert_non_null(logits);
    model_drafter_crop(b->d, 2, 0);
    b->d->trace.logits = logits;
    draft(b, 2, ids, from, to, 7, guess, p);
    b->d->trace.logits = NULL;
    return logits;
}

/* A window of 300 keys before row 600 begins at row 301, which is in the second page: it sees what
 * a drafter without a window sees of rows from 256 on. Before row 250 it has everything in view. The first one reads
 * hidden rows of a model on two devices. */
static void windows(void **state)
{
    static const char from[] = "tests/golden/draft/dflash-a.gguf", model[] = "tests/golden/models/qwen35moe-a.gguf";
    static int32_t ids[ROWS];
    char path[] = "/tmp/chimere-drafter-XXXXXX";
    const int fd = mkstemp(path);
    int64_t n = 0;
    int32_t *text = words_of("tests/golden/models/long.i32", &n);
    struct bench whole, part;

    (void)state;
    assert_true(fd >= 0 && text != NULL);
    (void)close(fd);
    for (int i = 0; i < ROWS; i++)
        ids[i] = text[i % n];
    acts_now = test_acts();
    write_windowed(from, path, 300);
    bench_open(&whole, model, from);
    devices_now = 2;
    bench_open(&part, model, path);
    devices_now = 1;
    feed(&whole, ids, 601);
    feed(&part, ids, 601);
    for (int i = 0; i < 2; i++) {
        const int to = i == 0 ? 600 : 250;
        float *a = block_of(&part, ids, 0, to), *b = block_of(&whole, ids, i == 0 ? 256 : 0, to);
        float *all = block_of(&whole, ids, 0, to);
        double far = 0;

        (void)worst_of("a window", b, a, 7 * 512, 2e-3);
        for (int j = 0; j < 7 * 512; j++)
            far = fmax(far, fabs((double)all[j] - (double)a[j]));
        assert_true(i == 0 ? far > 0.05 : far == 0);
        free(a);
        free(b);
        free(all);
    }
    bench_close(&whole);
    bench_close(&part);
    (void)unlink(path);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows),
        cmocka_unit_test(goldens_here),
        cmocka_unit_test(goldens_all),
    };

    return cmocka_run_group_tests_name("drafter", tests, NULL, NULL);
}
