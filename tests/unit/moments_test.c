/* SPDX-License-Identifier: Apache-2.0 */
/* moments_test.c - second moments of a model's matrices, and errors weighted by them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/pool.h"
#include "base/rng.h"
#include "base/simd.h"
#include "cpu/format.h"
#include "golden.h"
#include "gguf/gguf.h"
#include "measure/measure.h"
#include "quant/quant.h"
#include "ramp/ramp.h"

enum { SEQUENCES = 3, TOKENS = 24 };

static struct gguf *model_of(const char *name)
{
    struct err e = { 0 };
    struct gguf *g;
    char path[512];

    snprintf(path, sizeof path, "tests/golden/models/%s.gguf", name);
    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.msg);
    return g;
}

static struct measure_moments *moments_of(const struct gguf *g, int threads, uint64_t seed, int64_t from)
{
    struct err e = { 0 };
    struct measure_text text = { .n_seq = SEQUENCES, .n_tokens = TOKENS, .from = from };
    struct measure_moments *m = NULL;

    if (measure_random(&text, 256, 1, &e) || measure_moments_open(&m, g, threads, &text, seed, NULL, &e))
        fail_msg("%s", e.msg);
    free(text.v);
    return m;
}

static double sum_of(const float *v, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)v[i];
    return sum;
}

static void test_moments(void **state)
{
    struct gguf *g = model_of("qwen35moe-a");
    struct measure_moments *m = moments_of(g, 1, 1, 0), *n = moments_of(g, 3, 1, 0), *o = moments_of(g, 1, 2, 0);
    struct measure_moments *h = moments_of(g, 1, 1, TOKENS - 3);
    uint32_t used = 0;
    bool other = false;

    (void)state;
    assert_true(gguf_u32(g, "qwen35moe.expert_used_count", &used) && used > 0);
    assert_true(m->v[0].embedding);
    for (int i = 0; i < m->n; i++) {
        const struct measure_moment *a = &m->v[i], *b = &n->v[i];
        int64_t rows = 0, n_in = a->n_expert * a->n_in, n_out = a->n_expert * a->n_out;

        for (int64_t k = 0; k < a->n_expert; k++) {
            rows += a->rows[k];
            if (a->rows[k] == 0)
                assert_true(sum_of(a->in + k * a->n_in, a->n_in) == 0 && sum_of(a->out + k * a->n_out, a->n_out) == 0);
        }
        assert_int_equal(rows, SEQUENCES * TOKENS * (a->n_expert > 1 ? used : 1));
        assert_true(sum_of(a->in, n_in) > 0 && sum_of(a->out, n_out) > 0);
        assert_memory_equal(a->in, b->in, (size_t)n_in * sizeof *a->in);
        assert_memory_equal(a->out, b->out, (size_t)n_out * sizeof *a->out);
        if (a->embedding)
            assert_true(sum_of(a->out, n_out) == SEQUENCES * TOKENS);
        else /* the inputs are those of the text, whatever labels are drawn */
            assert_memory_equal(a->in, o->v[i].in, (size_t)n_in * sizeof *a->in);
        if (i == m->n - 1) /* nothing comes back to outputs of tokens that do not count */
            assert_true(sum_of(h->v[i].out, n_out) < sum_of(a->out, n_out) &&
                        sum_of(h->v[i].in, n_in) == sum_of(a->in, n_in));
        other |= memcmp(a->out, o->v[i].out, (size_t)n_out * sizeof *a->out) != 0;
    }
    assert_true(other);
    measure_moments_close(m);
    measure_moments_close(n);
    measure_moments_close(o);
    measure_moments_close(h);
    gguf_close(g);
}

static void test_imatrix(void **state)
{
    struct gguf *g = model_of("qwen35moe-a"), *f;
    struct measure_moments *m = moments_of(g, 1, 1, 0);
    struct ramp_importance *im;
    struct err e = { 0 };
    char path[] = "/tmp/moments_test.XXXXXX", name[300];
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(measure_imatrix_write(m, g, path, "random", &e), ERR_OK);
    assert_int_equal(ramp_importance_open(&im, path, &e), ERR_OK);
    ramp_importance_close(im);
    assert_int_equal(gguf_open(&f, path, &e), ERR_OK);
    for (int i = 0; i < m->n; i++) {
        const struct measure_moment *a = &m->v[i];
        const struct gguf_tensor *sum, *count;

        if (a->embedding)
            continue;
        snprintf(name, sizeof name, "%s.in_sum2", a->name);
        sum = gguf_find(f, name);
        snprintf(name, sizeof name, "%s.counts", a->name);
        count = gguf_find(f, name);
        assert_true(sum != NULL && count != NULL && sum->ne[0] == a->n_in && sum->ne[1] == a->n_expert &&
                    count->ne[0] == 1 && count->ne[1] == a->n_expert);
        assert_memory_equal(sum->data, a->in, (size_t)(a->n_in * a->n_expert) * sizeof(float));
        for (int64_t k = 0; k < a->n_expert; k++)
            assert_true(((const float *)count->data)[k] == (float)a->rows[k]);
    }
    /* and matrices of layers that are none of these, used by no token */
    size_t others = 0;

    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i), *count;
        bool seen = t->n_dims < 2 || memcmp(t->name.p, "blk.", 4) != 0;

        for (int k = 0; k < m->n; k++)
            seen |= str_is(t->name, m->v[k].name);
        if (seen)
            continue;
        snprintf(name, sizeof name, "%.*s.counts", STR_ARG(t->name));
        count = gguf_find(f, name);
        assert_true(count != NULL && count->ne[1] == t->ne[2] && ((const float *)count->data)[0] == 0.0f);
        others++;
    }
    assert_true(others > 0 && gguf_n_tensors(f) == 2 * (size_t)(m->n - 1 + (int)others));
    gguf_close(f);
    unlink(path);
    measure_moments_close(m);
    gguf_close(g);
}

/* The sum is that of a whole tensor in the type, row by row; of a large one, nearly. */
static void weighted(const struct ramp_coder *c, int64_t n, int64_t rows, int64_t matrices, int type, double within)
{
    struct err e = { 0 };
    int64_t all = rows * matrices;
    float *x = malloc((size_t)(n * all) * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    float *r = malloc((size_t)all * sizeof *r), *k = malloc((size_t)(matrices * n) * sizeof *k);
    void *data;
    double want = 0, got[QUANT_N] = { 0 };
    struct gguf_tensor t = {
        .name = STR("t"), .type = QUANT_f32, .n_dims = 3, .ne = { n, rows, matrices, 1 }, .data = x
    };

    assert_true(x != NULL && y != NULL && r != NULL && k != NULL);
    for (int64_t i = 0; i < n * all; i++)
        x[i] = (float)(rng_unit(1, 0, (uint64_t)i) - .5);
    for (int64_t i = 0; i < all; i++)
        r[i] = i % 3 == 1 ? 0.0f : (float)(1 + i % 5);
    for (int64_t i = 0; i < matrices * n; i++)
        k[i] = (float)rng_unit(2, 0, (uint64_t)i);
    assert_int_equal(ramp_weighted_errors(got, &t, c, &type, 1, r, k, NULL, &e), ERR_OK);
    assert_int_equal(ramp_recode(&data, &t, c, type, NULL, &e), ERR_OK);
    for (int64_t o = 0; o < all; o++) {
        cpu_decoder(type, 0)(y, (const char *)data + o * quant_row_bytes(type, n), n);
        for (int64_t i = 0; i < n; i++) {
            double d = (double)y[i] - (double)x[o * n + i];

            want += (double)r[o] * (double)k[o / rows * n + i] * d * d;
        }
    }
    assert_true(want > 0 && fabs(got[type] - want) <= within * want);
    free(data);
    free(x);
    free(y);
    free(r);
    free(k);
}

static void test_weighted_errors(void **state)
{
    struct err e = { 0 };
    struct ramp_coder c = { .simd = simd_features(), .unbiased = true };

    (void)state;
    assert_int_equal(pool_open(&c.pool, 2, &e), ERR_OK);
    weighted(&c, 256, 5, 3, QUANT_q4_k, 1e-9);
    weighted(&c, 64, 7, 1, QUANT_q4_0, 1e-9);
    weighted(&c, 256, 1500, 2, QUANT_q3_k, .05); /* 2000 of its rows have a weight, 1025 are encoded */
    pool_close(c.pool);
}

/* Half the weighted sum is the divergence of a small change: against a run with it, on the tokens of the gradient that
 * count. */
static void test_divergence(void **state)
{
    struct gguf *g = model_of("qwen35moe-a"), *with;
    struct err e = { 0 };
    struct measure_text text = { .n_seq = 16, .n_tokens = 48, .from = 16 };
    struct measure_moments *m = NULL;
    struct measure *run;
    struct eval_mean kl;
    const struct gguf_tensor *t = gguf_find(g, "output.weight");
    struct gguf_tensor *list = malloc(gguf_n_tensors(g) * sizeof *list);
    float *w;
    double want = 0;

    (void)state;
    assert_true(t != NULL && list != NULL && t->type == QUANT_f32);
    if (measure_random(&text, 256, 1, &e) || measure_moments_open(&m, g, 2, &text, 1, NULL, &e) ||
        measure_open(&run, g, &(struct model_opts){ .device = "cpu", .n_threads = 2 }, &text, NULL, &e))
        fail_msg("%s", e.msg);
    w = malloc(t->size_bytes);
    assert_non_null(w);
    memcpy(w, t->data, t->size_bytes);
    for (int64_t o = 0; o < t->ne[1]; o++)
        for (int64_t i = 0; i < t->ne[0]; i++) {
            float d = (float)(.02 * (rng_unit(3, (uint64_t)o, (uint64_t)i) - .5));
            const struct measure_moment *a = &m->v[m->n - 1];

            w[o * t->ne[0] + i] += d;
            want += .5 * (double)a->out[o] * (double)a->in[i] / (16 * 32.0 * 16 * 48.0) * (double)d * (double)d;
        }
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        list[i] = *gguf_tensor_at(g, i);
        if (str_is(list[i].name, "output.weight"))
            list[i].data = w;
    }
    assert_int_equal(gguf_with(&with, g, list, &e), ERR_OK);
    assert_int_equal(measure_kl(run, with, &kl, NULL, &e), ERR_OK);
    assert_true(want > .7 * kl.mean && want < 1.4 * kl.mean);
    gguf_close(with);
    measure_close(run);
    measure_moments_close(m);
    free(text.v);
    free(list);
    free(w);
    gguf_close(g);
}

/* After each layer of each sequence the progress may say that it is enough. */
struct patience {
    uint64_t calls, last, done, total;
};

static bool until_last(void *ctx, uint64_t done, uint64_t total)
{
    struct patience *p = ctx;

    assert_true(done > p->done && done <= total);
    p->done = done;
    p->total = total;
    return ++p->calls < p->last;
}

static void test_stops(void **state)
{
    struct gguf *g = model_of("qwen35moe-a");
    struct measure_text text = { .n_seq = 2, .n_tokens = 8 };
    struct err e = { 0 };
    struct patience all = { .last = UINT64_MAX };
    const struct progress count = { until_last, &all };
    struct measure_moments *m = NULL;

    (void)state;
    assert_int_equal(measure_random(&text, 256, 1, &e), ERR_OK);
    assert_int_equal(measure_moments_open(&m, g, 1, &text, 1, &count, &e), ERR_OK);
    assert_int_equal(all.done, all.total);
    assert_int_equal(all.calls, all.total); /* layers forward and backward, twice */
    assert_true(all.calls >= 2 * 2 * 4);
    for (uint64_t last = 1; last <= all.calls; last += all.calls / 3) {
        struct patience p = { .last = last };
        const struct progress stop = { until_last, &p };
        struct measure_moments *none = NULL;

        assert_int_equal(measure_moments_open(&none, g, 1, &text, 1, &stop, &e), ERR_CANCEL);
        assert_null(none);
        assert_int_equal(p.calls, last);
    }
    measure_moments_close(m);
    free(text.v);
    gguf_close(g);
}

/* Kurtosis and singular values of matrices that are known: a multiple of the unit matrix has n equal ones. */
static void test_spread(void **state)
{
    enum { N = 64 };
    static float x[2 * N * N];
    struct gguf_tensor t = { .name = STR("t"), .type = QUANT_f32, .n_dims = 3, .ne = { N, N, 2, 1 }, .data = x };
    struct err e = { 0 };
    double kurtosis, rank, part = 1.0 / N;

    (void)state;
    for (int i = 0; i < N; i++)
        x[i * N + i] = x[N * N + i * N + i] = 3.0f;
    if (ramp_spread(&kurtosis, &rank, &t, simd_features(), &e) == ERR_UNSUPPORTED)
        skip();
    assert_int_equal(e.code, ERR_OK);
    assert_true(fabs(rank - 3.0 * N * N) < 1e-3 * rank);
    /* one of N elements is not 0 */
    assert_true(
        fabs(kurtosis - ((1 - 4 * part + 6 * part * part - 3 * part * part * part) / (part * (1 - part) * (1 - part)) -
                         3)) < 1e-6);
    for (int i = 0; i < N * N; i++)
        x[i] = x[N * N + i] = i % 2 == 0 ? 1.0f : -1.0f;
    t.ne[1] = N / 2; /* more columns than rows, four matrices of rank 1 */
    t.ne[2] = 4;
    assert_int_equal(ramp_spread(&kurtosis, &rank, &t, simd_features(), &e), ERR_OK);
    assert_true(fabs(kurtosis + 2) < 1e-6 && fabs(rank / sqrt(N * N / 2.0) - 1) < 2e-2);
}

static void test_scores(void **state)
{
    struct err e = { 0 };
    double a[5] = { 1, 2, 3, 4, 1000 }, b[5] = { 7, 7, 7, 7, 7 };

    (void)state;
    assert_int_equal(ramp_nsds(a, b, 5, &e), ERR_OK);
    assert_true(fabs(a[2] - .75) < 1e-12 && a[0] < a[1] && a[1] < a[2] && a[2] < a[3] && a[3] < a[4] && a[4] == .999);
    assert_true(fabs(a[1] - (1 - .5 * (1 - 1 / (1 + exp(1 / 1.4826))))) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moments),         cmocka_unit_test(test_stops),      cmocka_unit_test(test_imatrix),
        cmocka_unit_test(test_weighted_errors), cmocka_unit_test(test_divergence), cmocka_unit_test(test_spread),
        cmocka_unit_test(test_scores),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
