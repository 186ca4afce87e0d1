/* SPDX-License-Identifier: Apache-2.0 */
/* measure_test.c - what types cost, measured: which tensors together, in which types and order; a file that was begun.
 */
#include <math.h>
#include <unistd.h>

#include "golden.h"
#include "measure/internal.h"
#include "part.h"
#include "quant/quant.h"

static const char model[] = "tests/golden/models/qwen35moe-a.gguf";

static struct gguf *open_model(void)
{
    struct err e = { 0 };
    struct gguf *g;

    if (gguf_open(&g, model, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return g;
}

/* ---- the plan ---- */

static void test_types(void **state)
{
    static const struct {
        int64_t columns;
        size_t n;
        int first;
    } want[] = { { 512, 13, QUANT_iq1_s }, { 96, 6, QUANT_q4_0 }, { 33, 1, QUANT_f16 } };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct gguf_tensor t = { .ne = { want[i].columns, 4, 1, 1 } };
        size_t n;
        const int *type = measure_types(&t, &n);

        assert_int_equal(n, want[i].n);
        assert_int_equal(type[0], want[i].first);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(ramp_fitting(type[k], t.ne[0]), type[k]); /* rows can have it */
            for (size_t other = 0; other < k; other++)
                assert_true(type[k] != type[other]);
        }
    }
}

/* "blk.7." of a tensor in a layer, else its whole name. */
static struct str layer_of(struct str name)
{
    const char *dot = name.n > 4 && memcmp(name.p, "blk.", 4) == 0 ? memchr(name.p + 4, '.', name.n - 4) : NULL;

    return dot != NULL ? (struct str){ name.p, (size_t)(dot - name.p) + 1 } : name;
}

static void test_groups(void **state)
{
    enum { MOST = 256 };
    struct gguf *g = open_model();
    const size_t n = gguf_n_tensors(g);
    int group[3][MOST], n_groups[3] = { 0 };
    bool wanted[MOST];

    (void)state;
    assert_true(n < MOST);
    for (size_t i = 0; i < n; i++)
        wanted[i] = !ramp_is_kept(gguf_tensor_at(g, i));
    for (int by = MEASURE_TENSOR; by <= MEASURE_CLASS; by++)
        for (size_t i = 0; i < n; i++) {
            const int of = measure_group_of(g, i, 4, (enum measure_grouping)by, wanted, group[by]);
            const struct str name = gguf_tensor_at(g, i)->name, first = gguf_tensor_at(g, (size_t)of)->name;

            group[by][i] = of;
            if (!wanted[i])
                continue;
            n_groups[by] += of == (int)i;
            assert_true(of <= (int)i && wanted[of] && group[by][of] == of);
            assert_int_equal(model_class_of(name, 4), model_class_of(first, 4));
            assert_true(by != MEASURE_TENSOR || of == (int)i);
            assert_true(by != MEASURE_LAYER || str_eq(layer_of(name), layer_of(first)));
            for (size_t k = 0; k < i; k++) /* all of a kind are together */
                if (wanted[k] && model_class_of(gguf_tensor_at(g, k)->name, 4) == model_class_of(name, 4))
                    assert_true(by != MEASURE_CLASS || group[by][k] == of);
        }
    assert_true(n_groups[MEASURE_CLASS] > 3 && n_groups[MEASURE_CLASS] < n_groups[MEASURE_LAYER] &&
                n_groups[MEASURE_LAYER] < n_groups[MEASURE_TENSOR]);
    gguf_close(g);
}

static bool about(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Between two runs a line of logarithms, outside in proportion to the error, whatever order the runs are in. */
static void test_between(void **state)
{
    static const double error[] = { 0.04, 0.01 }, kl[] = { 8, 2 }, square[] = { 16, 1 }, none[] = { 8, 0 };

    (void)state;
    assert_true(about(measure_between(error, kl, 2, 0.02), 4));
    assert_true(about(measure_between(error, square, 2, 0.02), 4)); /* 4 times the loss for twice the error */
    assert_true(about(measure_between(error, square, 2, 0.01), 1));
    assert_true(about(measure_between(error, square, 2, 0.08), 32));
    assert_true(about(measure_between(error, square, 2, 0.005), 0.5));
    assert_true(about(measure_between(error, none, 2, 0.025), 4)); /* no logarithm of nothing: a line */
    assert_true(about(measure_between(error, kl, 1, 0.02), 4));
    assert_true(measure_between(error, kl, 0, 0.02) == 0);
}

/* ---- a file ---- */

struct watched {
    char doing[64][80]; /* of each run of the model */
    int n;              /* runs that were begun */
    int stop_at;        /* -1: never */
    int64_t runs;
};

static bool watch_tick(void *ctx, const struct measure_tick *t)
{
    struct watched *w = ctx;

    if (t->runs > 0 && t->run >= w->n && t->run < 64) {
        assert_int_equal(t->run, w->n);
        (void)snprintf(w->doing[w->n++], sizeof w->doing[0], "%s", t->doing);
        w->runs = t->runs;
    }
    assert_true(t->part >= 0 && t->part <= 1);
    return w->stop_at < 0 || w->n <= w->stop_at;
}

static enum err_code measure_watched(const char *path, struct watched *w, int stop_at, bool *complete, struct err *e)
{
    const struct measure_losses_opts o = { .path = path,
                                           .random = true,
                                           .tokens = 32,
                                           .seed = 1,
                                           .probes = "q4_0,q8_0",
                                           .method = MEASURE_PROBES,
                                           .group = MEASURE_CLASS,
                                           .n_threads = 1,
                                           .said = { .method = true } };
    const struct measure_watch watch = { watch_tick, NULL, w };
    struct ramp_losses l = { 0 };
    struct gguf *g = open_model();
    enum err_code code;

    *w = (struct watched){ .stop_at = stop_at };
    *e = (struct err){ 0 };
    code = measure_losses(&l, complete, &o, g, &watch, e);
    if (code == ERR_OK)
        ramp_losses_close(&l);
    gguf_close(g);
    return code;
}

/* Each class in both probes, by its first tensor and in the order of the file; then all tensors in one type. */
static void check_order(const struct watched *w)
{
    struct gguf *g = open_model();
    size_t last = 0;
    int n = 0;

    assert_int_equal(w->runs, w->n);
    for (; n < w->n && strncmp(w->doing[n], "all in ", 7) != 0; n += 2) {
        size_t at = 0;

        while (at < gguf_n_tensors(g) && !str_is(gguf_tensor_at(g, at)->name, w->doing[n]))
            at++;
        assert_true(at < gguf_n_tensors(g) && (n == 0 || at > last));
        assert_string_equal(w->doing[n], w->doing[n + 1]);
        last = at;
    }
    assert_true(n >= 8 && w->n - n == 8);
    for (int i = n + 1; i < w->n; i++) /* from few bits to many */
        assert_true(quant_row_bytes(quant_find_name(str_of(w->doing[i] + 7)), 256) >
                    quant_row_bytes(quant_find_name(str_of(w->doing[i - 1] + 7)), 256));
    gguf_close(g);
}

static void read_all(const char *path, char **data, size_t *n)
{
    struct err e = { 0 };

    if (io_read_all(data, n, path, 1 << 20, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

static void test_losses(void **state)
{
    char dir[] = "/tmp/measureXXXXXX", path[64], part[64], *want, *got;
    struct watched w;
    struct err e;
    size_t n, n_got;
    bool complete;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/whole", dir);
    (void)snprintf(part, sizeof part, "%s/part", dir);
    assert_int_equal(measure_watched(path, &w, -1, &complete, &e), ERR_OK);
    assert_false(complete);
    check_order(&w);
    read_all(path, &want, &n);
    assert_int_equal(measure_watched(path, &w, -1, &complete, &e), ERR_OK);
    assert_true(complete && w.n == 0);
    /* stopped again and again, each time a few runs later: the same bytes */
    int stops = 0, runs = 0;

    for (int k = 3; measure_watched(part, &w, k, &complete, &e) == ERR_CANCEL; k = k == 3 ? 4 : 3) {
        runs += w.n - 1; /* the last of them was not finished */
        stops++;
        assert_true(stops < 20);
    }
    assert_int_equal(e.code, ERR_OK);
    assert_true(stops > 3 && runs > 10);
    read_all(part, &got, &n_got);
    assert_int_equal(n_got, n);
    assert_memory_equal(got, want, n);
    free(got);
    free(want);
    unlink(path);
    unlink(part);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_between),
        cmocka_unit_test(test_losses),
    };

    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
