/* SPDX-License-Identifier: Apache-2.0 */
/* launches_test.c - what a step becomes on a GPU (launches_plan.h): its operations are those that a step of every
 * model has, its launches those of the manual. On a GPU, which CHIMERE_TEST_DEVICE names, what goes together and how
 * often each kernel is launched are as the tables say, for every family with small weights and for large shapes: an
 * operation that comes between others would unfuse them, which an inserted one shows. CHIMERE_TEST_LAUNCHES: a file for
 * all that was counted, in JSON. */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "golden.h"
#include "launches_plan.h"
#include "model/forward.h"
#include "ops/table.h"
#include "shape/shape.h"

enum { ROWS = 65, LINE = 4096 };

static const int rows_of[] = { 1, 2, 8, 16, 17, 32, 48, 64, 65 };
enum { REGIMES = sizeof rows_of / sizeof rows_of[0] };
/* Shapes whose operations go together, in one format so that kernels can be counted; one of several formats. */
static const char *const shapes[][2] = {
    { "qwen3.6-35b-a3b,layers=4,experts=16,vocab=512", "q4_k" },
    { "qwen3.6-35b-a3b,layers=4,experts=16,vocab=512", "ramp" },
    { "qwen3.5-0.8b,layers=4,vocab=512", "q4_k" },
    { "nemotron-3-nano-30b-a3b,layers=7,experts=8,vocab=512", "q8_0" },
    { "granite-4-h-tiny,layers=6,experts=8,vocab=512", "q4_k" },
    { "falcon-h1-1.5b,layers=2,vocab=512", "q4_k" },
};

static bool on_gpu(void)
{
    return strcmp(test_device(), "cpu") != 0;
}

/* ---- a step that is counted ---- */

static struct dev_table changed; /* the device's table, with something else in it */
static const struct dev_table *original;
static struct dev *watched;

static void change_table(struct rig *rig)
{
    struct dev_impl *impl = dev_test_impl(model_dev(rig->m));

    watched = model_dev(rig->m);
    original = impl->table;
    changed = *original;
    changed.matmuls = NULL; /* which would count as one operation */
    impl->table = &changed;
}

static void step_of(struct rig *rig, int n)
{
    struct run_row row[ROWS];
    struct logits_want want[ROWS] = { { .n_top = 0 } };
    struct err e = { 0 };

    for (int i = 0; i < n; i++)
        row[i] = (struct run_row){ .token = 1 + i * 5 % 200, .seq = 0, .logits = i == n - 1 };
    want[n - 1] = (struct logits_want){ .n_top = 1, .inv_temp = 1 };
    run_clear(rig->r, 0);
    model_time(rig->m, true);
    if (run_step_want(rig->r, row, want, n, NULL, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    model_time(rig->m, false);
}

static struct step_plan plan_of(const struct rig *rig, int rows)
{
    const char *sm = strstr(model_info(rig->m)->simd, "sm_");
    struct step_shape s = { .rows = rows, .picks = 1, .digest = on_gpu(), .eight = test_acts() == QUANT_ACTS_I8 };
    struct step_plan plan;

    s.sm = on_gpu() && sm != NULL ? atoi(sm + 3) / 10 * 10 : 0;
    plan_step(rig->m, &s, &plan);
    return plan;
}

static int64_t count_of(const struct count *list, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].what, what) == 0)
            return list[i].n;
    return 0;
}

/* Calls of operations that are not those of the plan. */
static int wrong_ops(const struct rig *rig, const struct step_plan *plan, const char *what)
{
    struct model_timing t[64];
    const int n = model_timings(rig->m, t, 64);
    int wrong = 0;
    int64_t all = 0, planned = 0;

    for (int i = 0; i < n; i++) {
        const int64_t want = count_of(plan->op, plan->n_ops, t[i].op);

        all += (int64_t)t[i].calls;
        if (want == (int64_t)t[i].calls)
            continue;
        wrong++;
        print_message("%s: %s %" PRIu64 " times, not %" PRId64 "\n", what, t[i].op, t[i].calls, want);
    }
    for (int i = 0; i < plan->n_ops; i++)
        planned += plan->op[i].n;
    if (all != planned)
        print_message("%s: %" PRId64 " operations, not %" PRId64 "\n", what, all, planned);
    return wrong + (all != planned);
}

/* ---- what a GPU launched ---- */

/* Files that are one kernel to the table. */
static const char *folded(const char *file)
{
    static const char *const one[] = { "gemm/gemm_r2_16", "gemm/gemm_r17_mma" };

    for (size_t i = 0; i < sizeof one / sizeof one[0]; i++)
        if (strncmp(file, one[i], strlen(one[i])) == 0)
            return one[i];
    return strcmp(file, "moe/moe_r17_rare") == 0 ? "moe/moe_r17_common" : file;
}

static int counted_kernels(const struct rig *rig, struct count *out)
{
    struct dev_launched l[DEV_LAUNCHED_MAX];
    const int n = dev_launched(model_dev(rig->m), l, DEV_LAUNCHED_MAX);
    int files = 0;

    for (int i = 0; i < n; i++) {
        const char *name = folded(l[i].what);
        int at = 0;

        if (l[i].fusion)
            continue;
        while (at < files && strcmp(out[at].what, name) != 0)
            at++;
        assert_true(at < COUNTS);
        if (at == files)
            out[files++] = (struct count){ .what = name };
        out[at].n += (int64_t)l[i].n;
    }
    return files;
}

static int64_t fused(const struct rig *rig, const char *what)
{
    struct dev_launched l[DEV_LAUNCHED_MAX];
    const int n = dev_launched(model_dev(rig->m), l, DEV_LAUNCHED_MAX);

    for (int i = 0; i < n; i++)
        if (l[i].fusion && strcmp(l[i].what, what) == 0)
            return (int64_t)l[i].n;
    return 0;
}

static int wrong_fusions(const struct rig *rig, const struct step_plan *plan, const char *what)
{
    int wrong = 0;

    for (int i = 0; i < GEMM_N_FUSIONS; i++) {
        const int64_t got = fused(rig, plan->fusion[i].what);

        if (got == plan->fusion[i].n)
            continue;
        wrong++;
        print_message("%s: fusion %s %" PRId64 " times, not %" PRId64 "\n", what, plan->fusion[i].what, got,
                      plan->fusion[i].n);
    }
    return wrong;
}

static int wrong_kernels(const struct rig *rig, const struct step_plan *plan, const char *what)
{
    struct count got[COUNTS];
    const int n = counted_kernels(rig, got);
    int wrong = 0;

    for (int i = 0; i < n; i++)
        if (count_of(plan->kernel, plan->n_kernels, got[i].what) == 0) {
            int64_t more = 0;

            for (int j = 0; j < plan->n_kernels; j++)
                more += strcmp(plan->kernel[j].what, got[i].what) == 0 ? plan->kernel[j].more : 0;
            if (got[i].n <= more)
                continue;
            wrong++;
            print_message("%s: kernel %s %" PRId64 " times, not at all\n", what, got[i].what, got[i].n);
        }
    for (int i = 0; i < plan->n_kernels; i++) {
        const struct count *k = &plan->kernel[i];
        const int64_t times = count_of(got, n, k->what);

        if (k->n == 0 || (times >= k->n && times <= k->n + k->more))
            continue;
        wrong++;
        print_message("%s: kernel %s %" PRId64 " times, not %" PRId64 " to %" PRId64 "\n", what, k->what, times, k->n,
                      k->n + k->more);
    }
    return wrong;
}

static void write_counts(const struct rig *rig, const struct step_plan *plan, const char *what, int rows)
{
    struct dev_launched l[DEV_LAUNCHED_MAX];
    const int n = dev_launched(model_dev(rig->m), l, DEV_LAUNCHED_MAX);
    const char *path = getenv("CHIMERE_TEST_LAUNCHES");
    FILE *f = path != NULL ? fopen(path, "a") : NULL;

    if (f == NULL)
        return;
    (void)fprintf(f, "{\"model\":\"%s\",\"arch\":\"%s\",\"rows\":%d,\"acts\":\"%s\",\"exact\":%s,\"got\":{", what,
                  model_info(rig->m)->arch, rows, quant_acts_name(test_acts()), plan->exact ? "true" : "false");
    for (int i = 0; i < n; i++)
        (void)fprintf(f, "%s\"%s\":%" PRIu64, i > 0 ? "," : "", l[i].what, l[i].n);
    (void)fprintf(f, "},\"want\":{");
    for (int i = 0; i < GEMM_N_FUSIONS; i++)
        (void)fprintf(f, "%s\"%s\":%" PRId64, i > 0 ? "," : "", plan->fusion[i].what, plan->fusion[i].n);
    for (int i = 0; i < plan->n_kernels; i++)
        (void)fprintf(f, ",\"%s\":[%" PRId64 ",%" PRId64 "]", plan->kernel[i].what, plan->kernel[i].n,
                      plan->kernel[i].n + plan->kernel[i].more);
    (void)fprintf(f, "}}\n");
    (void)fclose(f);
}

/* ---- models ---- */

static int wrong; /* of all models */

static void count_model(const char *path)
{
    struct rig rig;

    rig_open(&rig, path, 2, &(struct run_opts){ .ctx_tokens = 256, .rows_max = ROWS });
    change_table(&rig);
    for (int i = 0; i < REGIMES; i++) {
        const struct step_plan plan = plan_of(&rig, rows_of[i]);
        char what[LINE];

        (void)snprintf(what, sizeof what, "%s, %d rows, %s", strrchr(path, '/') + 1, rows_of[i],
                       quant_acts_name(test_acts()));
        step_of(&rig, rows_of[i]);
        wrong += wrong_ops(&rig, &plan, what);
        if (!on_gpu())
            continue;
        write_counts(&rig, &plan, strrchr(path, '/') + 1, rows_of[i]);
        wrong += wrong_fusions(&rig, &plan, what);
        if (plan.exact)
            wrong += wrong_kernels(&rig, &plan, what);
    }
    rig_close(&rig);
}

static void golden_models(void **state)
{
    (void)state;
    wrong = 0;
    each_model("tests/golden/models", count_model);
    each_model("tests/golden/wide", count_model); /* rows of floats are too narrow to go together */
    assert_int_equal(wrong, 0);
}

static void other_goldens(void **state)
{
    (void)state;
    wrong = 0;
    each_golden(count_model);
    assert_int_equal(wrong, 0);
}

/* A model of this shape in a file; holes: without its weights. */
static void with_shape(const char *spec, const char *mix, bool holes, void (*fn)(const char *path))
{
    char dir[] = "/tmp/chimere-launches-XXXXXX", path[LINE];
    struct err e = { 0 };
    struct shape *s;

    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/%.*s.%s.gguf", dir, (int)strcspn(spec, ","), spec, mix);
    if (shape_open(&s, spec, mix, &e) || (holes ? shape_write_holes(s, path, &e) : shape_write(s, path, 1, NULL, &e)))
        fail_msg("%s", e.msg);
    shape_close(s);
    fn(path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
}

static void large_shapes(void **state)
{
    (void)state;
    if (!on_gpu())
        skip();
    wrong = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        with_shape(shapes[i][0], shapes[i][1], false, count_model);
    assert_int_equal(wrong, 0);
}

/* ---- the test can fail ---- */

static void product_and_more(void *c, struct tensor y, struct tensor w, struct tensor x)
{
    original->matmul(c, y, w, x);
    op_scale(watched, y, 1.0f);
}

/* An operation after each product comes between those that go together. */
static void count_unfused(const char *path)
{
    struct rig rig;

    rig_open(&rig, path, 2, &(struct run_opts){ .ctx_tokens = 256, .rows_max = ROWS });
    change_table(&rig);
    const struct step_plan plan = plan_of(&rig, 2);
    step_of(&rig, 2);
    assert_int_equal(wrong_ops(&rig, &plan, "as it is"), 0);
    if (on_gpu())
        assert_int_equal(wrong_fusions(&rig, &plan, "as it is"), 0);
    changed.matmul = product_and_more;
    step_of(&rig, 2);
    assert_true(wrong_ops(&rig, &plan, "with an operation more") > 0);
    if (on_gpu())
        assert_true(wrong_fusions(&rig, &plan, "with an operation more") > 0);
    rig_close(&rig);
}

static void one_more_operation(void **state)
{
    (void)state;
    if (on_gpu())
        with_shape(shapes[2][0], shapes[2][1], false, count_unfused);
    else
        count_unfused("tests/golden/models/qwen35moe-a.gguf");
}

/* ---- the numbers of the manual ---- */

struct planned {
    int rows;
    bool eight;
    int fusion[GEMM_N_FUSIONS]; /* mixture, attention, norm, gate, delta, residual */
    int launches;
};
static const struct planned qwen[] = {
    { 1, false, { 40, 10, 31, 0, 30, 0 }, 288 },
    { 16, true, { 40, 10, 31, 0, 30, 0 }, 339 },
    { 64, false, { 40, 0, 41, 10, 30, 0 }, 519 },
    { 65, false, { 0, 0, 1, 0, 0, 0 }, 1159 },
};

static int64_t planned_launches(const struct step_plan *plan)
{
    int64_t n = 0;

    for (int i = 0; i < plan->n_kernels; i++)
        n += plan->kernel[i].n;
    return n;
}

static void count_planned(const char *path)
{
    struct err e = { 0 };
    struct gguf *g;
    struct model *m;

    if (gguf_open(&g, path, &e) || model_open(&m, g, &(struct model_opts){ .device = "cpu", .n_threads = 1 }, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof qwen / sizeof qwen[0]; i++) {
        const struct step_shape s = {
            .rows = qwen[i].rows, .picks = 1, .digest = true, .eight = qwen[i].eight, .sm = 90
        };
        struct step_plan plan;

        plan_step(m, &s, &plan);
        assert_true(plan.exact);
        for (int f = 0; f < GEMM_N_FUSIONS; f++)
            assert_int_equal(plan.fusion[f].n, qwen[i].fusion[f]);
        assert_int_equal(planned_launches(&plan), qwen[i].launches);
    }
    model_close(m);
    gguf_close(g);
}

static void numbers_of_the_manual(void **state)
{
    (void)state;
    with_shape("qwen3.6-35b-a3b", "q4_k", true, count_planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_the_manual), cmocka_unit_test(golden_models), cmocka_unit_test(other_goldens),
        cmocka_unit_test(one_more_operation),    cmocka_unit_test(large_shapes),
    };

    return cmocka_run_group_tests_name("launches", tests, NULL, NULL);
}
