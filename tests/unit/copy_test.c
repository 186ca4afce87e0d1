/* SPDX-License-Identifier: Apache-2.0 */
/* copy_test.c - weights in memory of the CPU's own: the copy is whole, is counted and given back; a dry run makes none;
 * a model computes the same with it, and never reads its file again. */
#include "base/memory.h"
#include "gguf/parse.h"
#include "golden.h"
#include "model/forward.h"
#include "ops/ops.h"
#include "run/placement.h"
#include "shape/shape.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static void ok(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

/* ---- the device ---- */

enum { PIECE = 300007, PIECES = 41 }; /* 12.3 MB: several slices, borders anywhere */

static struct dev *open_cpu(bool dry_run)
{
    const struct dev_opts o = { .n_threads = 3, .dry_run = dry_run };
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

/* Of bytes that are no rows. */
static const unsigned char *copy_of(struct dev *d, const void *host, size_t bytes, int64_t n, const bool *keep)
{
    const struct dev_pieces v = { .host = host, .bytes = bytes, .n = n, .keep = keep };
    bool laid = true;
    const unsigned char *p = dev_weights_copy(d, &v, &laid);

    assert_false(laid);
    return p;
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
    const unsigned char *all = copy_of(d, host, PIECE, PIECES, NULL);
    assert_true(all != NULL && all != host);
    assert_int_equal(dev_held(d) - held, (size_t)PIECE * PIECES);
    for (int i = 0; i < PIECES; i++)
        n_kept += keep[i] = i % 3 == 1 || (i > 7 && i < 12);
    held = dev_held(d);
    const unsigned char *some = copy_of(d, host, PIECE, PIECES, keep);
    assert_true(some != NULL && some != host && some != all);
    assert_int_equal(dev_held(d) - held, n_kept * PIECE);
    for (int i = 0; i < PIECES; i++)
        if (keep[i])
            assert_memory_equal(some + (size_t)i * PIECE, host + (size_t)i * PIECE, PIECE);
    held = dev_held(d);
    memset(keep, 0, sizeof keep);
    assert_non_null(copy_of(d, host, PIECE, PIECES, keep));
    assert_non_null(copy_of(d, host, PIECE, 0, NULL));
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
    assert_non_null(copy_of(d, host, BIG, N, keep));
    print_message("%ld KiB for %d of %d pieces of %d KiB\n", taken(1) - before, N / 16, N, BIG >> 10);
    assert_true(SANITIZED || taken(1) - before < N / 4 * (BIG >> 10)); /* the system counts roughly */
    for (int i = 0; i < 20; i++) {
        dev_close(d);
        d = open_cpu(false);
        assert_non_null(copy_of(d, host, BIG, N, i % 2 == 0 ? keep : NULL));
    }
    dev_close(d);
    print_message("%ld KiB of addresses more after 20 times\n", taken(0) - addresses);
    assert_true(taken(0) - addresses < 2 * N * (BIG >> 10));
    free(host);
}

/* A dry run counts; more than there can be, and at an address where nothing is. */
static void dry_runs(void **state)
{
    const void *nowhere = (const void *)(uintptr_t)4096;
    const size_t piece = (size_t)1 << 42;
    const bool keep[4] = { true, false, true, false };
    struct dev *d = open_cpu(true);
    size_t held = dev_held(d);

    (void)state;
    assert_ptr_equal(copy_of(d, nowhere, piece, 4, keep), nowhere);
    assert_int_equal(dev_held(d) - held, 2 * piece);
    assert_ptr_equal(copy_of(d, nowhere, piece, 4, NULL), nowhere);
    assert_int_equal(dev_held(d) - held, 6 * piece);
    dev_close(d);
    d = open_cpu(false);
    held = dev_held(d);
    assert_null(copy_of(d, nowhere, (size_t)1 << 60, 4, NULL)); /* no such addresses: no copy, no count */
    assert_int_equal(dev_held(d), held);
    dev_close(d);
}

/* ---- models ---- */

/* A name for a file of this test's own. */
static const char *own_file(char path[512])
{
    const char *tmp = getenv("TMPDIR");

    (void)snprintf(path, 512, "%.400s/copy_test-%ld.gguf", tmp != NULL ? tmp : "/tmp", (long)getpid());
    return path;
}

static const char *const nano = "share/models/chimere-nano-q5_k_m.gguf";
enum { TOKENS = 40 };
static const struct run_opts run_opts = { .ctx_tokens = 64, .rows_max = 16 };

static struct model_opts opts(bool copy)
{
    return (struct model_opts){
        .device = test_device(), .n_threads = 2, .acts = test_acts(), .placement.copy_weights = copy
    };
}

static void open_rig(struct rig *rig, const char *path, const struct model_opts *mo)
{
    struct err e = { 0 };

    memset(rig, 0, sizeof *rig);
    ok(gguf_open(&rig->g, path, &e), &e);
    ok(model_open(&rig->m, rig->g, mo, &e), &e);
    ok(run_open(&rig->r, rig->m, &run_opts, &e), &e);
    rig->n_vocab = model_info(rig->m)->n_vocab;
}

static float *logits(struct rig *rig)
{
    int32_t tokens[TOKENS];

    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (300 + 7 * i) % rig->n_vocab;
    return logits_of(rig, tokens, TOKENS, TOKENS);
}

static int64_t sum(const int64_t v[MODEL_N_CLASSES])
{
    int64_t all = 0;

    for (int c = 0; c < MODEL_N_CLASSES; c++)
        all += v[c];
    return all;
}

/* A plan by which about half of the experts stay on the host; NULL: the model has none. */
static struct run_placement *half(const char *path, bool copy)
{
    struct run_placement_opts o = { .model = opts(copy), .run = run_opts };
    struct run_placement *whole, *placement = NULL;
    struct err e = { 0 };
    struct gguf *g;

    ok(gguf_open(&g, path, &e), &e);
    ok(run_placement_make(&whole, g, &o, &e), &e);
    int64_t experts = whole->weights.device[MODEL_EXPERTS];
    o.budget_bytes = whole->total_bytes - experts / 2;
    for (int i = 0; experts > 0 && i < 16 && placement == NULL; i++, o.budget_bytes += experts / 32)
        if (run_placement_make(&placement, g, &o, &e) != ERR_OK)
            assert_int_equal(e.code, ERR_LIMIT);
    assert_true(experts == 0 || (placement != NULL && placement->experts != NULL));
    run_placement_free(whole);
    gguf_close(g);
    return placement;
}

/* A copy of the file whose bytes, but for rows that stay mapped, can be taken away. */
static void put_copy(char *to, const char *path)
{
    struct err e = { 0 };
    struct io_out *out;
    char *all;
    size_t n;

    ok(io_read_all(&all, &n, path, 1 << 30, NULL, &e), &e);
    ok(io_out_open(&out, own_file(to), &e), &e);
    ok(io_out_write(out, all, n, &e), &e);
    ok(io_out_commit(out, &e), &e);
    free(all);
}

static void take_away(const struct gguf *g, const char *path)
{
    const bool own_output = gguf_find(g, "output.weight") != NULL;
    int fd = open(path, O_WRONLY);

    assert_true(fd >= 0);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        unsigned char *v = malloc(t->size_bytes);

        assert_non_null(v);
        memset(v, 0x11, t->size_bytes);
        if ((!own_output || !str_is(t->name, "token_embd.weight")) && !str_is(t->name, "per_layer_token_embd.weight"))
            assert_int_equal(pwrite(fd, v, t->size_bytes, (const unsigned char *)t->data - g->parts[0].map.data),
                             t->size_bytes);
        free(v);
    }
    close(fd);
}

/* With the same experts here: the same logits, and those also when the file has lost its weights meanwhile. */
static void check_model(const char *path, const struct run_placement *placement)
{
    struct model_opts mo = opts(false);
    struct rig rig;
    char file[512];

    if (placement != NULL)
        run_placement_apply(placement, &mo);
    mo.placement.copy_weights = false; /* whatever was planned */
    put_copy(file, path);
    open_rig(&rig, file, &mo);
    size_t bytes = (size_t)(TOKENS * rig.n_vocab) * sizeof(float);
    float *want = logits(&rig), *got;
    int64_t all = sum(model_weights(rig.m)->device) + sum(model_weights(rig.m)->host);
    size_t held = dev_held(model_dev(rig.m));

    assert_int_equal(model_weights(rig.m)->copied, 0);
    rig_close(&rig);
    mo.placement.copy_weights = true;
    open_rig(&rig, file, &mo);
    const struct model_weights *w = model_weights(rig.m);
    assert_int_equal(sum(w->device) + sum(w->host), all);
    assert_int_equal(dev_held(model_dev(rig.m)), held);
    print_message("%s: %.3f of %.3f MB copied\n", path, (double)w->copied / 1e6, (double)all / 1e6);
    if (strcmp(mo.device, "cpu") != 0)
        assert_int_equal(w->copied, placement == NULL ? 0 : w->host[MODEL_EXPERTS]);
    else
        assert_in_range(w->copied, all / 2, all - 1); /* norms are floats of ours in any case */
    got = logits(&rig);
    assert_memory_equal(got, want, bytes);
    free(got);
    take_away(rig.g, file);
    got = logits(&rig);
    assert_memory_equal(got, want, bytes);
    free(got);
    rig_close(&rig);
    mo.placement.copy_weights = false; /* a mapped model has lost its weights */
    open_rig(&rig, file, &mo);
    got = logits(&rig);
    assert_memory_not_equal(got, want, bytes);
    free(got);
    free(want);
    rig_close(&rig);
    unlink(file);
}

static void check_both(const char *path)
{
    struct run_placement *placement = half(path, true);

    check_model(path, NULL);
    if (placement != NULL)
        check_model(path, placement);
    run_placement_free(placement);
}

static void models(void **state)
{
    (void)state;
    check_both("tests/golden/models/qwen35moe-k.iq3_s.gguf");
    each_model("tests/golden/models", check_both);
    check_both(nano);
}

/* Plans say the same with and without, and how much is copied; and that is what a run then takes. */
static void check_plan(const char *path, bool split)
{
    struct run_placement *placement[2];
    struct err e = { 0 };
    struct gguf *g;

    ok(gguf_open(&g, path, &e), &e);
    for (int copy = 0; copy < 2; copy++) {
        struct run_placement_opts o = { .model = opts(copy != 0), .run = run_opts };
        struct model *m;
        struct run *r;

        if (split)
            placement[copy] = half(path, copy != 0);
        else
            ok(run_placement_make(&placement[copy], g, &o, &e), &e);
        run_placement_apply(placement[copy], &o.model);
        ok(model_open(&m, g, &o.model, &e), &e);
        ok(run_open(&r, m, &run_opts, &e), &e);
        assert_int_equal(model_weights(m)->copied, placement[copy]->weights.copied);
        assert_int_equal((int64_t)dev_held(model_dev(m)), placement[copy]->total_bytes - placement[copy]->fixed_bytes);
        if (split)
            assert_int_equal((int64_t)dev_held(model_host(m)),
                             placement[copy]->host_scratch_bytes + (placement[copy]->weights.copied > 0
                                                                        ? placement[copy]->weights.host[MODEL_EXPERTS]
                                                                        : 0));
        run_close(r);
        model_close(m);
    }
    /* beside a GPU unasked */
    assert_int_equal(placement[0]->weights.copied,
                     split && !placement[0]->is_host ? placement[0]->weights.host[MODEL_EXPERTS] : 0);
    assert_true(placement[1]->weights.copied > 0 || (!split && strcmp(test_device(), "cpu") != 0));
    /* what the device takes for itself is measured each time, and another program's first memory counts for it */
    assert_int_equal(placement[0]->total_bytes - placement[0]->fixed_bytes,
                     placement[1]->total_bytes - placement[1]->fixed_bytes);
    assert_int_equal(placement[0]->host_scratch_bytes, placement[1]->host_scratch_bytes);
    assert_memory_equal(placement[0]->weights.device, placement[1]->weights.device,
                        sizeof placement[0]->weights.device);
    assert_memory_equal(placement[0]->weights.host, placement[1]->weights.host, sizeof placement[0]->weights.host);
    run_placement_free(placement[0]);
    run_placement_free(placement[1]);
    gguf_close(g);
}

static void plans(void **state)
{
    (void)state;
    for (int split = 0; split < 2; split++) {
        check_plan("tests/golden/models/qwen35moe-k.iq3_s.gguf", split != 0);
        check_plan(nano, split != 0);
    }
}

/* Each operation from copies beside the plain code that reads the file. */
static void checked(void **state)
{
    struct model_opts mo = opts(true);
    struct rig rig;

    (void)state;
    mo.device = "check:cpu";
    open_rig(&rig, "tests/golden/models/qwen35moe-k.iq3_s.gguf", &mo);
    free(logits(&rig));
    rig_close(&rig);
}

/* More than any machine has is refused, before anything is copied; mapped it opens. Should it not be refused, the test
 * must not take all there is: memory of the process's own has a limit, which sanitizers are beyond from the start. */
static void too_large(void **state)
{
    const rlim_t some = (rlim_t)4 << 30;
    struct rlimit before;
    struct model_opts mo = { .device = "cpu", .n_threads = 2, .placement.copy_weights = true };
    struct err e = { 0 };
    struct shape *s;
    struct gguf *g;
    struct model *m;
    char file[512];

    (void)state;
    ok(shape_open(&s, "qwen3.6-35b-a3b,layers=36,experts=16384", "f32", &e), &e);
    if (SANITIZED || shape_bytes(s) / 2 < memory_left("")) {
        shape_close(s);
        skip();
    }
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_DATA, &(struct rlimit){ some, before.rlim_max }), 0);
    ok(shape_write_holes(s, own_file(file), &e), &e);
    shape_close(s);
    ok(gguf_open(&g, file, &e), &e);
    unlink(file);
    assert_int_equal(model_open(&m, g, &mo, &e), ERR_NOMEM);
    print_message("%s\n", e.msg);
    assert_non_null(strstr(e.msg, "GB of weights"));
    mo.placement.dry_run = true;
    ok(model_open(&m, g, &mo, &e), &e);
    assert_true((double)model_weights(m)->copied > 7e12);
    model_close(m);
    mo.placement.dry_run = mo.placement.copy_weights = false;
    ok(model_open(&m, g, &mo, &e), &e);
    model_close(m);
    gguf_close(g);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies),    cmocka_unit_test(memory_of_copies),
        cmocka_unit_test(dry_runs),  cmocka_unit_test(models),
        cmocka_unit_test(plans),     cmocka_unit_test(checked),
        cmocka_unit_test(too_large),
    };

    return cmocka_run_group_tests_name("copy", tests, NULL, NULL);
}
