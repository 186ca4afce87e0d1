/* SPDX-License-Identifier: Apache-2.0 */
/* tune_test.c - adapters in training: noise against published numbers, steps against $GOLDENS/zo, the log that gives
 * the same bytes again, files. */
#include <math.h>
#include <unistd.h>

#include "adapt/adapt.h"
#include "base/json.h"
#include "base/rng.h"
#include "golden.h"
#include "part.h"
#include "grad/grad.h"
#include "model/class.h"
#include "tune/lora.h"
#include "tune/shield.h"
#include "tune/zo.h"

static const char model[] = "tests/golden/models/qwen35moe-a.gguf";

struct bench {
    struct gguf *gguf;
    struct grad *g;
    struct tune_lora *l;
    struct grad_seq seq[2];
    int32_t token[2][8], target[2][8];
};

static void bench_open(struct bench *b)
{
    struct err e = { 0 };

    memset(b, 0, sizeof *b);
    if (gguf_open(&b->gguf, model, &e) || grad_open(&b->g, b->gguf, 1, &e) ||
        tune_lora_new(&b->l, b->g,
                      &(struct tune_lora_opts){ "qwen35moe", 2, 4.0f, 1u << MODEL_ATTENTION | 1u << MODEL_EXPERTS, 3 },
                      &e))
        fail_msg("%s", e.msg);
    for (int s = 0; s < 2; s++) {
        b->seq[s] = (struct grad_seq){ b->token[s], b->target[s], 8, 1.0f / 8, NULL, NULL };
        for (int i = 0; i < 8; i++)
            b->token[s][i] = (int32_t)(512 * rng_unit(1, (uint64_t)s, (uint64_t)i));
        for (int i = 0; i < 8; i++)
            b->target[s][i] = i < 3 || i == 7 ? -1 : b->token[s][i + 1];
    }
}

static void bench_close(struct bench *b)
{
    tune_lora_close(b->l);
    grad_close(b->g);
    gguf_close(b->gguf);
}

static void test_noise(void **state)
{
    /* Random123's known answers, and the example of the reference. */
    static const uint32_t want[3][4] = { { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
                                         { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
                                         { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } };
    static const float z[16] = { -0.006350139621645212f, -0.6007934808731079f,  -0.15108183026313782f,
                                 -1.08917236328125f,     -0.7079904079437256f,  -1.1979492902755737f,
                                 0.5667180418968201f,    1.3576502799987793f,   1.0698869228363037f,
                                 2.372912645339966f,     -0.03251846134662628f, -0.46192577481269836f,
                                 -0.810863196849823f,    0.3110741078853607f,   -1.6656174659729004f,
                                 -1.6310228109359741f };
    uint32_t w[4];
    float got[16];

    (void)state;
    rng_block(w, 0, 0, 0);
    assert_memory_equal(w, want[0], sizeof w);
    rng_block(w, UINT64_MAX, UINT64_MAX, UINT64_MAX);
    assert_memory_equal(w, want[1], sizeof w);
    rng_block(w, 0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
    assert_memory_equal(w, want[2], sizeof w);
    grad_normals(got, 16, 0x1234567890abcdefu, 2, 5, 1);
    assert_memory_equal(got, z, sizeof z);
    memset(got, 0, sizeof got);
    grad_normals(got, 5, 0x1234567890abcdefu, 2, 5, 1);
    assert_memory_equal(got, z, 5 * sizeof *z);
    assert_true(got[5] == 0.0f);
}

static void test_files(void **state)
{
    char dir[] = "/tmp/tuneXXXXXX", path[64];
    struct bench b;
    struct tune_lora *again = NULL;
    struct adapter *a = NULL;
    struct err e = { 0 };

    (void)state;
    bench_open(&b);
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof path, "%s/a.gguf", dir);
    for (int64_t i = 0; i < b.l->n_params; i++)
        b.l->theta[i] = (float)i / 1024.0f;
    assert_int_equal(tune_lora_write(b.l, path, "f32", &e), ERR_OK);
    assert_int_equal(adapter_open(&a, path, &e), ERR_OK);
    assert_int_equal(adapter_check(a, b.gguf, &e), ERR_OK);
    assert_int_equal(tune_lora_of(&again, b.g, a, &e), ERR_OK);
    assert_int_equal(again->n_params, b.l->n_params);
    assert_memory_equal(again->theta, b.l->theta, (size_t)b.l->n_params * sizeof(float));
    b.l->theta[7] = NAN;
    assert_int_equal(tune_lora_write(b.l, path, "f16", &e), ERR_ARG);
    tune_lora_close(again);
    assert_int_equal(
        tune_lora_new(&again, b.g, &(struct tune_lora_opts){ "qwen35moe", 2, 4.0f, 1u << MODEL_MTP, 3 }, &e), ERR_ARG);
    adapter_close(a);
    unlink(path);
    rmdir(dir);
    bench_close(&b);
}

/* A new adapter changes nothing, steps along the gradient lower the loss. */
static void test_first_order(void **state)
{
    struct bench b;
    struct err e = { 0 };
    double bare, loss = 0, first = 0;

    (void)state;
    bench_open(&b);
    float *gradient = calloc((size_t)b.l->n_params, sizeof *gradient);
    struct grad_adapter *a = calloc((size_t)b.l->n, sizeof *a);
    assert_non_null(gradient);
    assert_non_null(a);
    assert_int_equal(grad_forward(b.g, &(struct grad_batch){ .seq = b.seq, .n_seq = 2 }, &bare, &e), ERR_OK);
    for (int step = 0; step < 6; step++) {
        double norm = 0;

        memset(gradient, 0, (size_t)b.l->n_params * sizeof *gradient);
        tune_lora_at(b.l, b.l->theta, gradient, 0, 2, a);
        assert_int_equal(
            grad_backward(b.g, &(struct grad_batch){ .seq = b.seq, .n_seq = 2, .adapter = a, .n_adapter = b.l->n },
                          &loss, &e),
            ERR_OK);
        if (step == 0)
            first = loss;
        for (int64_t i = 0; i < b.l->n_params; i++)
            norm += (double)gradient[i] * (double)gradient[i];
        for (int64_t i = 0; i < b.l->n_params; i++)
            b.l->theta[i] -= (float)(0.3 / sqrt(norm)) * gradient[i];
    }
    assert_true(first == bare);
    assert_true(loss < 0.9 * first);
    tune_lora_at(b.l, b.l->theta, NULL, 0, 2, a);
    for (int i = 0; i < b.l->n; i++) /* half of b at the full scale, and b at half of it: the same bytes */
        a[i].scale /= 2;
    assert_int_equal(grad_forward(b.g,
                                  &(struct grad_batch){ .seq = b.seq, .n_seq = 2, .adapter = a, .n_adapter = b.l->n },
                                  &first, &e),
                     ERR_OK);
    tune_lora_weaken(b.l, 0.5f);
    tune_lora_at(b.l, b.l->theta, NULL, 0, 2, a);
    assert_int_equal(grad_forward(b.g,
                                  &(struct grad_batch){ .seq = b.seq, .n_seq = 2, .adapter = a, .n_adapter = b.l->n },
                                  &loss, &e),
                     ERR_OK);
    assert_true(loss == first);
    free(gradient);
    free(a);
    bench_close(&b);
}

/* With all copies side by side or three sequences at a time the same, with momentum; and again from the notes. */
static void test_zo_again(void **state)
{
    enum { STEPS = 3, SAMPLES = 3 };
    struct tune_zo_note notes[STEPS][SAMPLES];
    struct bench b[3];
    struct tune_zo *z[3];
    struct err e = { 0 };
    double loss[2];

    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct tune_zo_opts o = { 77, 1e-2, 1e-3, SAMPLES, 0.5f, i == 1 ? 31 : 0 };

        bench_open(&b[i]);
        assert_int_equal(tune_zo_open(&z[i], b[i].l, &o, &e), ERR_OK);
    }
    const size_t bytes = (size_t)b[0].l->n_params * sizeof(float);
    for (int s = 0; s < STEPS; s++) {
        assert_int_equal(tune_zo_step(z[0], b[0].seq, 2, &loss[0], &e), ERR_OK);
        assert_int_equal(tune_zo_step(z[1], b[1].seq, 2, &loss[1], &e), ERR_OK);
        assert_true(loss[0] == loss[1]);
        memcpy(notes[s], z[0]->note, sizeof notes[s]);
    }
    assert_int_equal(sizeof(struct tune_zo_note), 12);
    assert_memory_equal(b[0].l->theta, b[1].l->theta, bytes);
    assert_int_equal(tune_zo_again(z[2], notes[1], &e), ERR_FORMAT);
    for (int s = 0; s < STEPS; s++)
        assert_int_equal(tune_zo_again(z[2], notes[s], &e), ERR_OK);
    assert_memory_equal(b[0].l->theta, b[2].l->theta, bytes);
    assert_int_equal(tune_zo_measure(z[0], b[0].seq, 2, 2, NULL, &e), ERR_OK);
    assert_true(z[0]->o.eps > 1e-5 && z[0]->o.eps < 0.1 && z[0]->o.rate > 0);
    for (int i = 0; i < 3; i++) {
        tune_zo_close(z[i]);
        bench_close(&b[i]);
    }
}

/* Far too large a rate: each check that has a higher loss goes back and halves it until the loss falls; the notes lead
 * there. */
static void test_zo_check(void **state)
{
    enum { STEPS = 24, CHECKED = 2 };
    struct tune_zo_note steps[STEPS], checks[STEPS / CHECKED + 1];
    struct bench b[2];
    struct tune_zo *z[2];
    struct err e = { 0 };
    double loss;
    int back = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        bench_open(&b[i]);
        assert_int_equal(tune_zo_open(&z[i], b[i].l, &(struct tune_zo_opts){ 5, 1e-2, 10, 1, 0.5f, 0 }, &e), ERR_OK);
    }
    const size_t bytes = (size_t)b[0].l->n_params * sizeof(float);
    for (int s = 0; s <= STEPS; s++) {
        if (s % CHECKED == 0) {
            const double rate = z[0]->o.rate;

            assert_int_equal(tune_zo_check(z[0], b[0].seq, 2, &checks[s / CHECKED], &e), ERR_OK);
            assert_true(checks[s / CHECKED].part >= z[0]->least);
            if (checks[s / CHECKED].part > z[0]->least) {
                assert_true(z[0]->o.rate == rate / 2);
                assert_memory_equal(b[0].l->theta, z[0]->good, bytes);
                back++;
            }
        }
        if (s < STEPS)
            assert_int_equal(tune_zo_step(z[0], b[0].seq, 2, &loss, &e), ERR_OK);
        if (s < STEPS)
            steps[s] = z[0]->note[0];
    }
    assert_true(back > 0 && z[0]->least < checks[0].part);
    assert_int_equal(tune_zo_check_again(z[1], &checks[1], &e), ERR_FORMAT);
    for (int s = 0; s <= STEPS; s++) {
        if (s % CHECKED == 0)
            assert_int_equal(tune_zo_check_again(z[1], &checks[s / CHECKED], &e), ERR_OK);
        if (s < STEPS)
            assert_int_equal(tune_zo_again(z[1], &steps[s], &e), ERR_OK);
    }
    assert_true(z[0]->o.rate == z[1]->o.rate);
    assert_memory_equal(b[0].l->theta, b[1].l->theta, bytes);
    for (int i = 0; i < 2; i++) {
        tune_zo_close(z[i]);
        bench_close(&b[i]);
    }
}

static void test_zo_not_finite(void **state)
{
    struct bench b;
    struct tune_zo *z;
    struct err e = { 0 };
    double loss;

    (void)state;
    bench_open(&b);
    assert_int_equal(tune_zo_open(&z, b.l, &(struct tune_zo_opts){ 1, 1e-2, 1e-3, 1, 0, 0 }, &e), ERR_OK);
    b.l->theta[0] = INFINITY;
    assert_int_equal(tune_zo_step(z, b.seq, 2, &loss, &e), ERR_FORMAT);
    assert_int_equal(z->step, 0);
    tune_zo_close(z);
    bench_close(&b);
}

/* ---- against the reference ---- */

static const json_t *at(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);

    assert_non_null(v);
    return v;
}

static void read_batch(const json_t *batch, struct grad_seq *seq, int32_t (*token)[16], int32_t (*target)[16])
{
    int answers = 0;

    for (size_t s = 0; s < json_array_size(batch); s++) {
        const json_t *ids = at(json_array_get(batch, s), "ids");
        int n = (int)json_array_size(ids), from = (int)json_integer_value(at(json_array_get(batch, s), "answer_from"));

        for (int i = 0; i < n; i++)
            token[s][i] = (int32_t)json_integer_value(json_array_get(ids, (size_t)i));
        for (int i = 0; i < n; i++)
            target[s][i] = i + 1 >= from && i + 1 < n ? token[s][i + 1] : -1;
        seq[s] = (struct grad_seq){ token[s], target[s], n, 1.0f, NULL, NULL };
        answers += n - from;
    }
    for (size_t s = 0; s < json_array_size(batch); s++)
        seq[s].weight = 1.0f / (float)answers;
}

static struct adapter *adapter_at(const char *dir, const char *name, const char *file)
{
    struct adapter *a = NULL;
    struct err e = { 0 };
    char path[1024];

    (void)snprintf(path, sizeof path, "%s/zo/%s/%s.gguf", dir, name, file);
    if (adapter_open(&a, path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return a;
}

static void check_case(const char *dir, struct grad *g, const char *name, const json_t *c)
{
    struct adapter *init = adapter_at(dir, name, "init"), *after = adapter_at(dir, name, "after");
    struct tune_lora *l, *want, *start;
    struct tune_zo *z;
    struct grad_seq seq[4];
    int32_t token[4][16], target[4][16];
    const json_t *log = at(c, "log"), *batch = at(c, "batch");
    const struct tune_zo_opts o = { strtoull(json_string_value(at(c, "seed")), NULL, 16),
                                    json_number_value(at(c, "eps")),
                                    json_number_value(at(c, "lr")),
                                    (int)json_integer_value(at(c, "samples")),
                                    0,
                                    0 };
    struct err e = { 0 };
    double loss, apart = 0, size = 0, worst = 0;

    if (tune_lora_of(&l, g, init, &e) || tune_lora_of(&start, g, init, &e) || tune_lora_of(&want, g, after, &e) ||
        tune_zo_open(&z, l, &o, &e))
        fail_msg("%s", e.msg);
    read_batch(batch, seq, token, target);
    for (size_t i = 0; i < json_array_size(log); i += (size_t)o.samples) {
        assert_int_equal(tune_zo_step(z, seq, (int)json_array_size(batch), &loss, &e), ERR_OK);
        for (size_t k = 0; k < (size_t)o.samples; k++) {
            double ref = json_number_value(at(json_array_get(log, i + k), "g")), d = fabs(z->g[k] - ref);

            worst = fmax(worst, d / fmax(1, fabs(ref)));
        }
    }
    for (int64_t i = 0; i < l->n_params; i++) {
        double d = (double)l->theta[i] - (double)want->theta[i], m = (double)want->theta[i] - (double)start->theta[i];

        apart += d * d;
        size += m * m;
    }
    print_message("%s: slopes to %.1e, adapter to %.1e\n", name, worst, sqrt(apart / size));
    assert_true(worst <= 1e-4 && sqrt(apart / size) <= 1e-4);
    tune_zo_close(z);
    tune_lora_close(l);
    tune_lora_close(start);
    tune_lora_close(want);
    adapter_close(init);
    adapter_close(after);
}

static void test_zo_reference(void **state)
{
    const char *dir = getenv("GOLDENS"), *name;
    struct gguf *gguf;
    struct grad *g;
    struct err e = { 0 };
    char path[1024], *text;
    size_t n;
    json_t *manifest, *c;

    (void)state;
    if (dir == NULL || *dir == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/zo/manifest.json", dir);
    assert_int_equal(io_read_all(&text, &n, path, (size_t)1 << 20, NULL, &e), ERR_OK);
    assert_int_equal(json_parse(&manifest, (struct str){ text, n }, path, &e), ERR_OK);
    (void)snprintf(path, sizeof path, "%s/models/qwen35moe-k.gguf", dir);
    if (gguf_open(&gguf, path, &e) || grad_open(&g, gguf, 2, &e))
        fail_msg("%s", e.msg);
    json_object_foreach (json_object_get(manifest, "cases"), name, c)
        check_case(dir, g, name, c);
    grad_close(g);
    gguf_close(gguf);
    json_decref(manifest);
    free(text);
}

/* Sums of x x' of one matrix or expert. */
struct sums {
    int matrix, expert;
    double c[64 * 64];
    bool seen;
};

static void sum_inputs(void *ctx, int matrix, int expert, int64_t n, const float *x, const float *dy,
                       const int32_t *row)
{
    struct sums *s = ctx;

    (void)dy;
    (void)row;
    for (int64_t r = 0; r < n && matrix == s->matrix && expert == s->expert; r++) {
        s->seen = true;
        for (int i = 0; i < 64 * 64; i++)
            s->c[i] += (double)x[r * 64 + i / 64] * (double)x[r * 64 + i % 64];
    }
}

/* The row v times P is what solves w (C + rho I) = c v; rows of experts that no text came by, and b, stay. */
static void check_shield(struct bench *b, const struct tune_shield *s, int mat, int expert, int64_t at, double rho,
                         int *unseen)
{
    struct sums sums = { .matrix = b->l->matrix[mat], .expert = expert };
    float *v = calloc((size_t)b->l->n_params, sizeof *v);
    double loss, trace = 0, scale = 0;
    struct err e = { 0 };

    assert_non_null(v);
    assert_int_equal(b->l->file->mat[mat].n_in, 64);
    for (int64_t i = 0; i < b->l->n_params; i++)
        v[i] = rng_gauss(5, 0, (uint64_t)i);
    tune_shield_apply(s, v);
    assert_int_equal(
        grad_backward(b->g, &(struct grad_batch){ .seq = b->seq, .n_seq = 2, .trace = sum_inputs, .trace_ctx = &sums },
                      &loss, &e),
        ERR_OK);
    for (int i = 0; i < 64; i++)
        trace += sums.c[i * 65];
    *unseen += !sums.seen;
    for (int i = 0; i < 64; i++) {
        const double was = (double)rng_gauss(5, 0, (uint64_t)(at + i));
        double sum = 0;

        for (int k = 0; k < 64 && sums.seen; k++)
            sum += (double)v[at + k] * (sums.c[k * 64 + i] * 64 / trace + (k == i ? rho : 0));
        scale = i == 0 ? sum / was : scale;
        if (sums.seen)
            assert_true(fabs(sum - scale * was) < 1e-3 * fabs(scale) * (1 + fabs(was)));
        else
            assert_float_equal(v[at + i], was, 0);
    }
    assert_true(!sums.seen || scale > 0);
    at += adapter_a_floats(&b->l->file->mat[mat]) - expert * b->l->file->mat[mat].rank * 64; /* b */
    assert_float_equal(v[at], rng_gauss(5, 0, (uint64_t)at), 0);
    free(v);
}

static bool no_more(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)done;
    (void)total;
    return false;
}

static const struct progress stop = { no_more, NULL };

static void test_shield(void **state)
{
    const double rho = 0.1;
    struct tune_shield *s;
    struct err e = { 0 };
    struct bench b;
    int64_t at = 0;
    int unseen = 0, n = 0;

    (void)state;
    bench_open(&b);
    assert_int_equal(tune_shield_open(&s, b.l, &e), ERR_OK);
    assert_int_equal(tune_shield_see(s, b.seq, 1, &e), ERR_OK);
    assert_int_equal(tune_shield_see(s, b.seq + 1, 1, &e), ERR_OK);
    assert_int_equal(tune_shield_raise(s, rho, NULL, &e), ERR_OK);
    for (int i = 0; i < b.l->n; i++) {
        const struct adapter_mat *m = &b.l->file->mat[i];

        for (int x = 0; x < m->n_mat && m->n_in == 64; x++, n++)
            if (!SANITIZED || n % 3 == 0)
                check_shield(&b, s, i, x, at + x * m->rank * m->n_in, rho, &unseen);
        at += adapter_a_floats(m) + adapter_b_floats(m);
    }
    assert_true(n > unseen && n > 4);
    /* nothing was seen: P is I, and what is not a number is said */
    tune_shield_close(s);
    assert_int_equal(tune_shield_open(&s, b.l, &e), ERR_OK);
    assert_int_equal(tune_shield_raise(s, rho, NULL, &e), ERR_OK);
    float *v = calloc((size_t)b.l->n_params, sizeof *v), *w = calloc((size_t)b.l->n_params, sizeof *w);

    for (int64_t i = 0; i < b.l->n_params; i++)
        v[i] = w[i] = rng_gauss(6, 0, (uint64_t)i);
    tune_shield_apply(s, v);
    assert_memory_equal(v, w, (size_t)b.l->n_params * sizeof *v);
    tune_shield_close(s);
    assert_int_equal(tune_shield_open(&s, b.l, &e), ERR_OK);
    assert_int_equal(tune_shield_see(s, b.seq, 1, &e), ERR_OK);
    assert_int_equal(tune_shield_raise(s, 1e-30, NULL, &e), ERR_ARG);
    assert_int_equal(tune_shield_raise(s, rho, &stop, &e), ERR_CANCEL);
    grad_set_progress(b.l->g, &stop);
    assert_int_equal(tune_shield_see(s, b.seq, 1, &e), ERR_CANCEL);
    grad_set_progress(b.l->g, NULL);
    free(v);
    free(w);
    tune_shield_close(s);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_noise),        cmocka_unit_test(test_files),    cmocka_unit_test(test_first_order),
        cmocka_unit_test(test_zo_again),     cmocka_unit_test(test_zo_check), cmocka_unit_test(test_zo_not_finite),
        cmocka_unit_test(test_zo_reference), cmocka_unit_test(test_shield),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
