/* SPDX-License-Identifier: Apache-2.0 */
/* ops_gpu_test.c - a device against the scalar CPU: every format on ragged, small and large shapes; whole models of
 * true width, where steps of one row take other launches than steps of many. Skipped without a device to test. */
#include <math.h>
#include <unistd.h>

#include "acts.h"
#include "adapters.h"
#include "model/placement.h"
#include "ops/ops.h"
#include "part.h"
#include "quant/quant.h"
#include "shape/shape.h"

enum { GUARD = 64, WIDEST = 8448 /* of rows of weights; of steps of few rows 4,096 go at a time */ };

static struct dev *gpu, *cpu;
static uint64_t at;

static float draw(void)
{
    uint32_t r[4];

    rng_block(r, 7, 0, at++);
    return (float)(r[0] >> 8) / 8388608.0f - 1.0f + ((float)(r[1] >> 8) / 8388608.0f - 1.0f) * 0.5f;
}

/* n rows of k elements in a format; false when the format has none of that width. */
static unsigned char *some_rows(int type, int64_t k, int64_t n)
{
    const struct quant_type *t = quant_types[type];
    int64_t bytes = quant_row_bytes(type, k);
    unsigned char *w;

    if (bytes < 0)
        return NULL;
    w = calloc((size_t)(bytes * n + 1), 1);
    assert_non_null(w);
    for (int64_t r = 0; r < n; r++) {
        float x[WIDEST];

        for (int64_t i = 0; i < k; i++)
            x[i] = draw();
        if (t->encode != NULL) {
            t->encode(w + r * bytes, x, k, NULL);
            continue;
        }
        for (int64_t i = 0; i < bytes; i++)
            w[r * bytes + i] = (unsigned char)(int)(draw() * 127.0f);
    }
    return w;
}

static struct tensor floats(struct dev *d, int64_t ne0, int64_t ne1, int64_t stride, const float *fill)
{
    struct tensor t = { .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = stride };

    t.data = dev_alloc(d, (size_t)(stride * ne1 + GUARD) * sizeof(float));
    assert_non_null(t.data);
    dev_copy(d, t.data, fill, (size_t)(stride * ne1 + GUARD) * sizeof(float));
    return t;
}

/* The same product on both; every element written, nothing beside. */
static void check_product(int type, int64_t k, int64_t n, int64_t rows)
{
    unsigned char *w = some_rows(type, k, n);
    int64_t stride = n + 3, xs = k + 5;
    size_t ny = (size_t)(stride * rows + GUARD), nx = (size_t)(xs * rows + GUARD);
    const double limit = test_acts() == QUANT_ACTS_I8 ? 0.03 : 3e-4; /* of 8 bits steps are 257 times as large */
    float *x, *poison, *y[2];
    struct err e = { 0 };

    if (w == NULL)
        return;
    x = calloc(nx, sizeof *x);
    poison = calloc(ny, sizeof *poison);
    assert_non_null(x);
    assert_non_null(poison);
    for (size_t i = 0; i < nx; i++)
        x[i] = draw();
    for (size_t i = 0; i < ny; i++)
        poison[i] = NAN;
    for (int i = 0; i < 2; i++) {
        struct dev *d = i == 0 ? cpu : gpu;
        size_t bytes = (size_t)(quant_row_bytes(type, k) * n);
        struct tensor wt = { .type = type, .ne = { k, n, 1 }, .stride = k, .pitch = n };
        struct tensor xt = floats(d, k, rows, xs, x), yt = floats(d, n, rows, stride, poison);

        wt.data = (void *)(uintptr_t)dev_weights(d, w, bytes);
        assert_non_null(wt.data);
        if (dev_reserve(d, 64 << 20, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        dev_begin(d);
        op_matmul(d, yt, wt, xt);
        if (dev_end(d, &e) != ERR_OK)
            fail_msg("%s", e.msg);
        y[i] = calloc(ny, sizeof(float));
        assert_non_null(y[i]);
        dev_copy(d, y[i], yt.data, ny * sizeof(float));
        dev_free(d, xt.data, nx * sizeof(float));
        dev_free(d, yt.data, ny * sizeof(float));
    }
    for (size_t i = 0; i < ny; i++) {
        bool inside = (int64_t)i < stride * rows && (int64_t)i % stride < n;
        double a = (double)y[0][i], b = (double)y[1][i], size = 0;

        if (!inside && !isnan(b))
            fail_msg("%s k %d rows %d: element %zu beside the result was written", quant_types[type]->name, (int)k,
                     (int)rows, i);
        if (!inside || !isfinite(a))
            continue;
        float row[WIDEST];
        int64_t r = (int64_t)i % stride, q = (int64_t)i / stride;
        quant_types[type]->decode(row, w + r * quant_row_bytes(type, k), k);
        for (int64_t j = 0; j < k; j++)
            size += (double)row[j] * (double)row[j];
        if (size > 1e30) /* random bytes of a format with huge scales */
            continue;
        if (!(fabs(a - b) <= limit * sqrt(size) + 1e-30))
            fail_msg("%s k %d n %d rows %d: row %d, %d is %.9g, cpu %.9g", quant_types[type]->name, (int)k, (int)n,
                     (int)rows, (int)q, (int)r, b, a);
    }
    free(y[0]);
    free(y[1]);
    free(x);
    free(poison);
    free(w);
}

static void products(void **state)
{
    static const int64_t ks[] = { 32, 96, 256, 512, 768, 1056, 2048, 4096, 4128, WIDEST };
    static const int64_t rows[] = { 1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 65, 130 };

    (void)state;
    if (gpu == NULL)
        skip();
    for (int type = 0; type < QUANT_N; type++)
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
            for (size_t j = 0; j<sizeof rows / sizeof rows[0]; j += ks[i]> 768 ? 3 : 1)
                if ((ks[i] <= 4096 || rows[j] <= 16) && test_mine())
                    check_product(type, ks[i], i % 2 == 0 ? 37 : 130, rows[j]);
}

/* y of `rows` rows of x at a time, of MANY, or of those test_rows() has. */
enum { MANY = 300, OUTPUTS = 200 };
static void rows_at_once(float *y, const unsigned char *w, int type, int64_t k, const float *x, int64_t rows)
{
    struct tensor wt = { .type = type, .ne = { k, OUTPUTS, 1 }, .stride = k, .pitch = OUTPUTS };
    struct tensor xt = floats(gpu, k, MANY, k, x), yt = floats(gpu, OUTPUTS, MANY, OUTPUTS, y);
    struct err e = { 0 };

    wt.data = (void *)(uintptr_t)dev_weights(gpu, w, (size_t)(quant_row_bytes(type, k) * OUTPUTS));
    assert_non_null(wt.data);
    if (dev_reserve(gpu, 64 << 20, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int64_t first = 0; first < test_rows(MANY, (int)rows); first += rows) {
        int64_t n = MANY - first < rows ? MANY - first : rows;
        struct tensor xs = xt, ys = yt;

        xs.data = (float *)xt.data + first * k;
        ys.data = (float *)yt.data + first * OUTPUTS;
        xs.ne[1] = ys.ne[1] = n;
        dev_begin(gpu);
        op_matmul(gpu, ys, wt, xs);
        if (dev_end(gpu, &e) != ERR_OK)
            fail_msg("%s", e.msg);
    }
    dev_copy(gpu, y, yt.data, sizeof(float) * OUTPUTS * MANY);
    dev_free(gpu, xt.data, sizeof(float) * (size_t)(k * MANY + GUARD));
    dev_free(gpu, yt.data, sizeof(float) * (OUTPUTS * MANY + GUARD));
}

/* Whether n decoded weights are finite; random bytes have scales that are not. */
static bool all_finite(const float *row, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (!isfinite(row[j]))
            return false;
    return true;
}

/* Bytes of a product do not depend on how many rows are multiplied at once, nor with sums as large as they can be:
 * some rows of weights and of x have one size everywhere, with one sign or with changing signs. Of rows of weights that
 * are not finite a product may be NaN or infinite. */
static void row_bytes(void **state)
{
    static const int64_t ks[] = { 32, 96, 256, 512, 1056, 2048, 4096, 4128, WIDEST },
                         at_once[] = { 1, 5, 16, 40, 64, 100 };
    enum { CELLS = OUTPUTS * MANY + GUARD };
    float *x = calloc(MANY * WIDEST + GUARD, sizeof *x), *y = calloc(CELLS, sizeof *y), *z = calloc(CELLS, sizeof *z);
    bool number[OUTPUTS]; /* rows of weights that are finite */

    (void)state;
    if (gpu == NULL) {
        free(x);
        free(y);
        free(z);
        skip();
    }
    assert_non_null(x);
    assert_non_null(y);
    assert_non_null(z);
    for (int type = 0; type < QUANT_N; type++)
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            const int64_t k = ks[i], bytes = quant_row_bytes(type, k);
            unsigned char *w = test_mine() ? some_rows(type, k, OUTPUTS) : NULL;

            if (w == NULL)
                continue;
            for (int64_t r = 0; r < MANY; r++)
                for (int64_t j = 0; j < k; j++)
                    x[r * k + j] = r % 5 == 0 ? 1.0f : r % 5 == 1 ? (j % 2 == 0 ? -1.0f : 1.0f) : draw();
            for (int64_t r = 0; quant_types[type]->encode != NULL && r < OUTPUTS; r += 7) {
                float row[WIDEST];

                for (int64_t j = 0; j < k; j++)
                    row[j] = (r % 2 == 0 || j % 2 == 0 ? 1.0f : -1.0f) * (j % 256 == 0 && r % 3 == 0 ? 1.01f : 1.0f);
                quant_types[type]->encode(w + r * bytes, row, k, NULL);
            }
            for (int64_t r = 0; r < OUTPUTS; r++) {
                float row[WIDEST];

                quant_types[type]->decode(row, w + r * bytes, k);
                number[r] = all_finite(row, k);
            }
            rows_at_once(y, w, type, k, x, MANY);
            for (size_t c = 0; c < sizeof at_once / sizeof at_once[0]; c++) {
                if (k != 512 && at_once[c] != 16 && at_once[c] != (k > 4096 ? 5 : 100))
                    continue;
                rows_at_once(z, w, type, k, x, at_once[c]);
                for (int j = 0; j < OUTPUTS * test_rows(MANY, (int)at_once[c]); j++)
                    if (memcmp(y + j, z + j, sizeof *y) != 0 && !(isnan(y[j]) && isnan(z[j])) &&
                        (number[j % OUTPUTS] || isfinite(y[j]) || isfinite(z[j])))
                        fail_msg("%s k %d: %d rows at once: row %d, %d is %.9g, not %.9g", quant_types[type]->name,
                                 (int)k, (int)at_once[c], j / OUTPUTS, j % OUTPUTS, (double)z[j], (double)y[j]);
            }
            free(w);
        }
    free(x);
    free(y);
    free(z);
}

enum { LAYERS = 16, EXPERTS = 64 };
struct split {
    struct model_experts experts;
    bool here[LAYERS * EXPERTS];
    int n_here[LAYERS];
};

/* In turns layers with no experts on the device, a third of them, all, and all but one. */
static const struct model_experts *split_of(struct split *s, const struct gguf *g)
{
    struct model *m = NULL;
    struct err e = { 0 };

    if (model_open(&m, g, &(struct model_opts){ .device = "cpu", .placement.dry_run = true }, &e))
        fail_msg("%s", e.msg);
    *s = (struct split){ .experts = { .n_layer = model_info(m)->n_layer,
                                      .n_expert = model_n_expert(m),
                                      .here = s->here,
                                      .n_here = s->n_here } };
    model_close(m);
    assert_true(s->experts.n_layer <= LAYERS && s->experts.n_expert <= EXPERTS);
    for (int l = 0; l < s->experts.n_layer; l++)
        for (int i = 0; i < s->experts.n_expert; i++) {
            bool on = l % 4 == 0 ? false : l % 4 == 1 ? i % 3 == 1 : l % 4 == 2 || i != 5;

            s->here[l * s->experts.n_expert + i] = on;
            s->n_here[l] += on;
        }
    return &s->experts;
}

/* Logits of all rows of a model of true width: bytes the same in any chunks, close to the CPU's. */
struct how {
    const char *device, *kv;
    int chunk;
    bool split;
    int rank; /* of an adapter for all matrices; 0: none; below 16: it is there twice */
};
static float *model_logits(const char *path, struct how how, const int32_t *ids, int n)
{
    struct model_opts mo = { .device = how.device,
                             .acts = strcmp(how.device, "cpu") == 0 ? QUANT_ACTS_F32 : test_acts() };
    struct gguf *g = NULL;
    struct model *m = NULL;
    struct run *r = NULL;
    struct err e = { 0 };
    struct rows out = { NULL, 0, 0 };
    struct split split;
    const char *kv = how.kv;
    int chunk = how.chunk;
    struct adapter *a = NULL;
    struct run_adapter list[2] = { { NULL, 0.5f }, { NULL, -0.25f } };
    const int terms = how.rank < 16 ? 2 : 1;
    struct model_adapter *on = NULL;

    if (gguf_open(&g, path, &e))
        fail_msg("%s", e.msg);
    if (how.split)
        mo.placement.experts = split_of(&split, g);
    if (model_open(&m, g, &mo, &e) ||
        run_open(&r, m,
                 &(struct run_opts){
                     .ctx_tokens = 1024, .rows_max = chunk, .kv_k = kv, .kv_v = kv, .adapter_rank = terms * how.rank },
                 &e))
        fail_msg("%s", e.msg);
    if (how.rank > 0) {
        a = adapter_for_all(m, g, how.rank, 3);
        MUST(model_adapter_open(&on, m, a, &e));
        list[0].adapter = list[1].adapter = on;
        MUST(run_set_adapters(r, 0, list, terms, &e));
    }
    out.width = model_info(m)->n_vocab;
    out.v = calloc((size_t)(out.width * n), sizeof *out.v);
    assert_non_null(out.v);
    if (run_feed(r, 0, ids, n, n, rows_sink, &out, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    run_close(r);
    model_adapter_close(on);
    adapter_close(a);
    model_close(m);
    gguf_close(g);
    return out.v;
}

enum { N = 70, CHUNKS = 6 };
static const int chunks[CHUNKS] = { 1, 3, 8, 16, 17, 70 };

/* The device's logits, far from a (the CPU's) by no more than rounding explains, and the same in any chunks, of which
 * those that are `mine`. */
static void check_logits(const char *path, const char *what, struct how how, const int32_t *ids, const float *a,
                         const bool mine[CHUNKS])
{
    double diff = 0, size = 0;
    float *b;

    how.chunk = 64;
    b = model_logits(path, how, ids, test_rows(N, how.chunk));
    for (int i = 0; i < test_rows(N, how.chunk) * 512; i++) {
        diff += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    print_message("%-64s %s: difference %.1e of the size\n", what, how.split ? "split" : "whole", sqrt(diff / size));
    for (int c = 0; c < CHUNKS; c++) {
        const int n = test_rows(N, chunks[c]), seen = test_rows(N, 64);

        if (!mine[c])
            continue;
        how.chunk = chunks[c];
        float *cut = model_logits(path, how, ids, n);

        for (int i = 0; i < (n < seen ? n : seen) * 512; i++)
            if (memcmp(cut + i, b + i, sizeof *b) != 0)
                fail_msg("%s: chunks of %d: row %d differs: %.9g, not %.9g", what, chunks[c], i / 512, (double)cut[i],
                         (double)b[i]);
        free(cut);
    }
    /* a router may choose another expert where two are nearly tied */
    assert_true(sqrt(diff / size) < (test_acts() == QUANT_ACTS_I8 ? 0.2 : 0.02));
    free(b);
}

static void check_shape(const char *spec, const char *mix, const char *kv, int rank)
{
    char path[] = "/tmp/chimere-gpu-XXXXXX", what[100];
    int32_t ids[N];
    struct shape *s = NULL;
    struct err e = { 0 };
    const int hows = strstr(spec, "experts") != NULL ? 2 : 1; /* whole; split */
    bool mine[2][CHUNKS], any[2] = { false };

    for (int h = 0; h < hows; h++)
        for (int c = 0; c < CHUNKS; c++) {
            mine[h][c] = test_mine();
            any[h] |= mine[h][c];
        }
    if (!any[0] && !any[1])
        return;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (shape_open(&s, spec, mix, &e) || shape_write(s, path, 1, NULL, &e))
        fail_msg("%s", e.msg);
    shape_close(s);
    for (int i = 0; i < N; i++)
        ids[i] = (int32_t)((i * 97 + 13) % 512);
    (void)snprintf(what, sizeof what, "%s %s %s %s", spec, mix, kv, rank > 0 ? "adapted" : "");
    float *a = model_logits(path, (struct how){ "cpu", kv, 64, false, rank }, ids, N);
    for (int h = 0; h < hows; h++)
        if (any[h])
            check_logits(path, what, (struct how){ test_device(), kv, 0, h == 1, rank }, ids, a, mine[h]);
    unlink(path);
    free(a);
}

static void models(void **state)
{
    (void)state;
    if (gpu == NULL)
        skip();
    check_shape("qwen3.6-35b-a3b,layers=4,experts=32,vocab=512", "q4k", "f32", 0);
    check_shape("qwen3.6-35b-a3b,layers=4,experts=32,vocab=512", "ramp", "q8_0", 0);
    check_shape("qwen3.5-0.8b,layers=4,vocab=512", "q8", "f16", 0);
    check_shape("qwen3.8-flash-next,layers=4,experts=16,vocab=512,table=500", "q4k", "f16", 0);
    check_shape("nemotron-3-nano-30b-a3b,layers=9,experts=16,vocab=512", "q4_k_m", "f16", 0);
    check_shape("granite-4-h-tiny,layers=6,experts=16,vocab=512", "q5k", "q4_0", 0);
    check_shape("falcon-h1-1.5b,layers=2,vocab=512", "q4_k_m", "f16", 0);
}

/* Formats that have launches of their own for one row, but not for a few: experts, shared ones, and all else. */
static void other_formats(void **state)
{
    static const char *const mixes[] = { "q5_0",   "q5_1",  "q2_k",    "q3_k",  "iq2_xxs",
                                         "iq2_xs", "iq2_s", "iq3_xxs", "iq4_nl" };

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
        check_shape("qwen3.6-35b-a3b,layers=2,experts=16,vocab=512", mixes[i], "q8_0", 0);
}

/* With an adapter for every matrix, among them the experts'. */
static void adapted_models(void **state)
{
    (void)state;
    if (gpu == NULL)
        skip();
    check_shape("qwen3.6-35b-a3b,layers=4,experts=16,vocab=512", "q4k", "f16", 16);
    check_shape("qwen3.6-35b-a3b,layers=4,experts=16,vocab=512", "ramp", "q8_0", 5);
    check_shape("nemotron-3-nano-30b-a3b,layers=9,experts=16,vocab=512", "q4_k_m", "f16", 8);
    check_shape("granite-4-h-tiny,layers=6,experts=16,vocab=512", "q5k", "f16", 16);
    check_shape("qwen3.5-0.8b,layers=4,vocab=512", "q8", "f16", 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(products), cmocka_unit_test(row_bytes),
                                        cmocka_unit_test(models), cmocka_unit_test(other_formats),
                                        cmocka_unit_test(adapted_models) };
    struct err e = { 0 };
    int failed;

    if (strcmp(test_device(), "cpu") != 0 &&
        (dev_open(&gpu, test_device(), &(struct dev_opts){ .acts = test_acts() }, &e) ||
         dev_open(&cpu, "cpu", &(struct dev_opts){ .acts = QUANT_ACTS_F32 }, &e))) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    test_filter();
    failed = cmocka_run_group_tests_name("ops_gpu", tests, NULL, NULL);
    dev_close(gpu);
    dev_close(cpu);
    return failed;
}
