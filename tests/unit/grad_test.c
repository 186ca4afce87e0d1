/* SPDX-License-Identifier: Apache-2.0 */
/* grad_test.c - the pass of the room grad: logits against the golden ones, gradients against finite differences and
 * against those of automatic differentiation ($GOLDENS/zo), the same bytes for any threads and instruction set. */
#include <math.h>

#include "base/pool.h"
#include "base/rng.h"
#include "golden.h"
#include "grad/grad.h"
#include "grad/loops.h"
#include "sets.h"

enum { PATH_BYTES = 1024 };

struct tape {
    struct gguf *gguf;
    struct grad *g;
};

/* On the device under test. */
static void tape_open(struct tape *t, const char *path, int threads)
{
    const char *device = getenv("CHIMERE_TEST_DEVICE");
    struct err e = { 0 };

    if (gguf_open(&t->gguf, path, &e) || grad_open_on(&t->g, t->gguf, device != NULL ? device : "cpu", 0, threads, &e))
        fail_msg("%s", e.msg);
}

/* The model's multi-token-prediction block. */
static void tape_open_nextn(struct tape *t, const char *path)
{
    struct err e = { 0 };

    if (gguf_open(&t->gguf, path, &e) || grad_open_nextn(&t->g, t->gguf, 2, &e))
        fail_msg("%s", e.msg);
}

static void tape_close(struct tape *t)
{
    grad_close(t->g);
    gguf_close(t->gguf);
}

static uint64_t noise; /* draws so far */

static float *random_floats(size_t n, float size)
{
    float *v = malloc(n * sizeof *v);

    assert_non_null(v);
    for (size_t i = 0; i < n; i++)
        v[i] = size * (2.0f * (float)rng_unit(1, 0, noise++) - 1.0f);
    return v;
}

/* Keeps logits of all rows. */
struct logits {
    float *v;
    int n_vocab;
};
static double keep(void *ctx, int seq, int row, float *logits, int32_t n)
{
    struct logits *l = ctx;

    (void)seq;
    memcpy(l->v + (int64_t)row * n, logits, (size_t)n * sizeof *logits);
    return 1.0;
}

static bool logits_close(const char *path)
{
    static const char *const prompts[] = { "a", "long" };
    char file[2 * PATH_BYTES], stem[PATH_BYTES];
    struct tape t;
    struct err e = { 0 };
    bool any = false;

    (void)snprintf(stem, sizeof stem, "%.*s", (int)(strlen(path) - 5), path);
    tape_open(&t, path, 2);
    for (int i = 0; i < 2; i++) {
        int64_t n = 0, n_ref = 0;
        int32_t n_vocab = grad_n_vocab(t.g);

        (void)snprintf(file, sizeof file, "%.*s/%s.i32", (int)(strrchr(path, '/') - path), path, prompts[i]);
        int32_t *ids = words_of(file, &n);
        (void)snprintf(file, sizeof file, "%s/%s.logits.f32", stem, prompts[i]);
        float *ref = words_of(file, &n_ref);
        if (ids != NULL && ref != NULL) {
            const struct grad_seq seq = { ids, ids, (int)n, 1.0f, NULL, NULL };
            struct logits got = { calloc((size_t)(n * n_vocab), sizeof(float)), n_vocab };
            const struct grad_batch b = { .seq = &seq, .n_seq = 1, .loss = keep, .loss_ctx = &got };
            double loss = 0, worst = 0;

            assert_non_null(got.v);
            assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_OK);
            assert_true(loss == (double)n);
            for (int64_t j = 0; j < n_ref; j++)
                worst = fmax(worst, fabs((double)ref[j] - (double)got.v[n * n_vocab - n_ref + j]));
            print_message("%s %s: %.2e\n", path, prompts[i], worst);
            assert_true(worst <
                        (getenv("CHIMERE_TEST_DEVICE") == NULL ? 2e-4 : 4e-4)); /* a GPU sums in another order */
            any = true;
            free(got.v);
        }
        free(ids);
        free(ref);
    }
    tape_close(&t);
    return any;
}

static void test_logits(void **state)
{
    (void)state;
    assert_true(logits_close("tests/golden/models/qwen35moe-a.gguf"));
    assert_true(logits_close("tests/golden/models/qwen3next-a.gguf"));
}

static void test_logits_goldens(void **state)
{
    const char *goldens = getenv("GOLDENS");
    char path[PATH_BYTES];

    (void)state;
    if (goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/models/qwen35-a.gguf", goldens);
    assert_true(logits_close(path));
    (void)snprintf(path, sizeof path, "%s/models/qwen35moe-k.gguf", goldens);
    assert_true(logits_close(path));
}

static void test_other_families(void **state)
{
    struct gguf *gguf;
    struct grad *g = NULL;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(gguf_open(&gguf, "tests/golden/models/bamba-a.gguf", &e), ERR_OK);
    assert_int_equal(grad_open(&g, gguf, 1, &e), ERR_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "not supported"));
    assert_null(g);
    gguf_close(gguf);
}

/* An adapter for every matrix but the embedding, with random numbers on both sides; two sequences, losses on some rows.
 */
struct set {
    struct grad_adapter *a;
    int n;
    struct grad_seq seq[2];
    int32_t target[2][32], token[2][32];
};
enum { RANK = 2, LONG = 18, SHORT = 7 };

static int64_t size_a(const struct tape *t, const struct grad_adapter *a)
{
    const struct grad_matrix *m = grad_matrix_at(t->g, a->matrix);

    return m->n_expert * m->n_in * a->rank;
}

static int64_t size_b(const struct tape *t, const struct grad_adapter *a)
{
    const struct grad_matrix *m = grad_matrix_at(t->g, a->matrix);

    return m->n_expert * m->n_out * a->rank;
}

static void set_make(struct set *s, const struct tape *t)
{
    noise = 5 * 100000;
    s->n = 0;
    s->a = calloc((size_t)grad_n_matrices(t->g), sizeof *s->a);
    assert_non_null(s->a);
    for (int i = 0; i < grad_n_matrices(t->g); i++) {
        struct grad_adapter *a = &s->a[s->n];

        if (strstr(grad_matrix_at(t->g, i)->name, "embd.weight") != NULL ||
            strstr(grad_matrix_at(t->g, i)->name, "embed_tokens") != NULL)
            continue;
        s->n++;
        *a = (struct grad_adapter){ .matrix = i, .rank = RANK, .scale = 0.5f, .to = 2 };
        a->a = random_floats((size_t)size_a(t, a), 0.3f);
        a->b = random_floats((size_t)size_b(t, a), 0.1f);
        a->da = calloc((size_t)size_a(t, a), sizeof(float));
        a->db = calloc((size_t)size_b(t, a), sizeof(float));
        assert_non_null(a->da);
        assert_non_null(a->db);
    }
    for (int q = 0; q < 2; q++) {
        s->seq[q] = (struct grad_seq){ s->token[q], s->target[q], q == 0 ? SHORT : LONG, 0.1f, NULL, NULL };
        for (int i = 0; i < s->seq[q].n; i++) {
            s->token[q][i] = (int32_t)(512.0 * rng_unit(1, 0, noise++));
            s->target[q][i] = i % 3 == 0 ? -1 : (int32_t)(512.0 * rng_unit(1, 0, noise++));
        }
    }
}

static void set_free(struct set *s)
{
    for (int i = 0; i < s->n; i++) {
        free((void *)(uintptr_t)s->a[i].a);
        free((void *)(uintptr_t)s->a[i].b);
        free(s->a[i].da);
        free(s->a[i].db);
    }
    free(s->a);
}

static struct grad_batch batch_of(struct set *s)
{
    return (struct grad_batch){ .seq = s->seq, .n_seq = 2, .adapter = s->a, .n_adapter = s->n };
}

/* (loss(v + step along) - loss(v - step along)) / (2 step) */
static double slope(struct tape *t, struct set *s, const float **v, const float *along, int64_t n, double step)
{
    const float *old = *v;
    const struct grad_batch b = batch_of(s);
    float *moved = malloc((size_t)n * sizeof *moved);
    double loss[2];
    struct err e = { 0 };

    assert_non_null(moved);
    for (int side = 0; side < 2; side++) {
        for (int64_t i = 0; i < n; i++)
            moved[i] = old[i] + (float)(side == 0 ? step : -step) * along[i];
        *v = moved;
        assert_int_equal(grad_forward(t->g, &b, &loss[side], &e), ERR_OK);
    }
    *v = old;
    free(moved);
    return (loss[0] - loss[1]) / (2.0 * step);
}

/* Along the gradient itself, where rounding matters least, with steps so short that few routers choose otherwise on the
 * way: where one does, the loss has a step, and another length of steps must agree. */
static void check_slope(struct tape *t, struct set *s, const char *what, const float **v, const float *grad, int64_t n)
{
    float *along = malloc((size_t)n * sizeof *along);
    double norm = 0, got = 0;
    bool close = false;

    assert_non_null(along);
    for (int64_t i = 0; i < n; i++)
        norm += (double)grad[i] * (double)grad[i];
    norm = sqrt(norm);
    assert_true(norm > 0);
    for (int64_t i = 0; i < n; i++)
        along[i] = (float)((double)grad[i] / norm);
    for (double step = 4e-3; step > 1e-4 && !close; step /= 2.0) {
        got = slope(t, s, v, along, n, step);
        close = fabs(got - norm) <= 3e-3 * norm + 1e-6 / step;
    }
    if (!close)
        fail_msg("%s: slope %.6f, gradient %.6f", what, got, norm);
    free(along);
}

static void check_slopes(const char *path, bool nextn)
{
    struct tape t;
    struct set s;
    struct err e = { 0 };
    double loss = 0, again = 0;
    float *hidden[2] = { NULL };

    if (nextn)
        tape_open_nextn(&t, path);
    else
        tape_open(&t, path, 1);
    set_make(&s, &t);
    for (int i = 0; nextn && i < 2; i++)
        s.seq[i].hidden = hidden[i] = random_floats((size_t)(s.seq[i].n * grad_n_embd(t.g)), 1.0f);
    const struct grad_batch b = batch_of(&s);
    assert_int_equal(grad_backward(t.g, &b, &loss, &e), ERR_OK);
    assert_int_equal(grad_forward(t.g, &b, &again, &e), ERR_OK);
    assert_true(loss == again);
    for (int i = 0; i < s.n; i++) {
        const struct grad_matrix *m = grad_matrix_at(t.g, s.a[i].matrix);

        if (m->layer >= 0 && m->layer != 2 && m->layer != 3) /* one layer of each kind */
            continue;

        check_slope(&t, &s, m->name, &s.a[i].a, s.a[i].da, size_a(&t, &s.a[i]));
        check_slope(&t, &s, m->name, &s.a[i].b, s.a[i].db, size_b(&t, &s.a[i]));
    }
    free(hidden[0]);
    free(hidden[1]);
    set_free(&s);
    tape_close(&t);
}

static void test_finite_differences(void **state)
{
    (void)state;
    check_slopes("tests/golden/models/qwen35moe-a.gguf", false);
    check_slopes("tests/golden/models/qwen3next-a.gguf", false);
    check_slopes("share/models/chimere-nano-q5_k_m.gguf", true);
}

enum { WIDE = 100 };

/* The divergence in double, the tokens that are not in the list as one. */
static double divergence(const struct grad_soft *said, const float *logits, int32_t n)
{
    double sum = 0, loss = 0, p_rest = 1, q_rest = 1;

    for (int32_t i = 0; i < n; i++)
        sum += exp((double)logits[i]);
    for (int i = 0; i < GRAD_SOFT && said->id[i] >= 0; i++) {
        const double p = (double)said->p[i], q = exp((double)logits[said->id[i]]) / sum;

        loss += p * log(p / q);
        p_rest -= p;
        q_rest -= q;
    }
    return n > GRAD_SOFT ? loss + p_rest * log(p_rest / q_rest) : loss;
}

/* Of a vocabulary with others than the likeliest, and of one without: nothing for the same logits, and else the sum and
 * its slopes. */
static void test_divergence(void **state)
{
    (void)state;
    for (int32_t n = 20; n <= WIDE; n += WIDE - 20) {
        float a[WIDE], b[WIDE], got[WIDE], moved[WIDE];
        struct grad_soft said;
        int32_t best = 0;

        for (int32_t i = 0; i < n; i++) {
            a[i] = 2.0f * rng_gauss(1, 0, (uint64_t)i);
            b[i] = a[i] + rng_gauss(1, 1, (uint64_t)i);
            best = a[i] > a[best] ? i : best;
        }
        grad_soft_of(&said, a, n);
        assert_int_equal(said.id[0], best);
        for (int i = 1; i < GRAD_SOFT && i < n; i++)
            assert_true(said.id[i] >= 0 && said.p[i] <= said.p[i - 1]);
        assert_true(n > GRAD_SOFT || said.id[n] == -1);
        memcpy(got, a, sizeof got);
        assert_true(fabs(grad_divergence(&said, got, n, 1.0f)) < 1e-6);
        for (int32_t i = 0; i < n; i++)
            assert_true(fabsf(got[i]) < 1e-6f);
        memcpy(got, b, sizeof got);
        assert_true(fabs(grad_divergence(&said, got, n, 0.5f) - 0.5 * divergence(&said, b, n)) < 1e-6);
        for (int32_t i = 0; i < n; i++) {
            double up, down;

            memcpy(moved, b, sizeof moved);
            moved[i] = b[i] + 0x1p-7f;
            up = divergence(&said, moved, n);
            moved[i] = b[i] - 0x1p-7f;
            down = divergence(&said, moved, n);
            assert_true(fabs(0.5 * (up - down) / 0x1p-6 - (double)got[i]) < 1e-5);
        }
    }
}

/* Sequences with a target and with what was said, in one pass: each has the loss that it has alone; of what the model
 * says itself it is none, and none for the adapter. */
static void test_said(void **state)
{
    enum { ROWS = 6 };
    int32_t token[ROWS] = { 5, 9, 2, 7, 1, 3 }, target[ROWS] = { -1, 2, -1, 1, 3, -1 };
    struct grad_soft said[3];
    struct grad_seq seq[2] = { { token, target, ROWS, 1.0f, NULL, NULL }, { token, target, ROWS, 0.3f, NULL, said } };
    struct logits got;
    struct err e = { 0 };
    struct tape t;
    double one, both, each[2];

    (void)state;
    tape_open(&t, "tests/golden/models/qwen35moe-a.gguf", 2);
    got = (struct logits){ calloc((size_t)(ROWS * grad_n_vocab(t.g)), sizeof(float)), grad_n_vocab(t.g) };
    const int matrix = grad_n_matrices(t.g) - 1;
    const struct grad_matrix *m = grad_matrix_at(t.g, matrix);
    float *a = calloc((size_t)(RANK * m->n_in), sizeof *a), *b = calloc((size_t)(RANK * m->n_out), sizeof *b);
    float *da = calloc((size_t)(RANK * m->n_in), sizeof *da), *db = calloc((size_t)(RANK * m->n_out), sizeof *db);
    struct grad_adapter ad = { matrix, RANK, 1.0f, a, b, da, db, 1, 2 };

    for (int64_t i = 0; i < RANK * m->n_in; i++)
        a[i] = rng_gauss(1, 0, (uint64_t)i);
    assert_int_equal(
        grad_forward(t.g, &(struct grad_batch){ .seq = seq, .n_seq = 1, .loss = keep, .loss_ctx = &got }, &one, &e),
        ERR_OK);
    for (int i = 0, k = 0; i < ROWS; i++)
        if (target[i] >= 0)
            grad_soft_of(&said[k++], got.v + (int64_t)i * got.n_vocab, got.n_vocab);
    assert_int_equal(grad_forward(t.g, &(struct grad_batch){ .seq = seq, .n_seq = 1 }, &one, &e), ERR_OK);
    assert_int_equal(
        grad_backward(t.g,
                      &(struct grad_batch){ .seq = seq, .n_seq = 2, .adapter = &ad, .n_adapter = 1, .seq_loss = each },
                      &both, &e),
        ERR_OK);
    assert_float_equal(each[0], one, 0);
    assert_true(fabs(each[1]) < 1e-5 && fabs(both - one) < 1e-5);
    for (int64_t i = 0; i < RANK * m->n_out; i++)
        assert_true(fabsf(db[i]) < 1e-4f);
    for (int64_t i = 0; i < RANK * m->n_out; i++)
        b[i] = rng_gauss(2, 0, (uint64_t)i);
    assert_int_equal(
        grad_forward(t.g,
                     &(struct grad_batch){ .seq = seq, .n_seq = 2, .adapter = &ad, .n_adapter = 1, .seq_loss = each },
                     &both, &e),
        ERR_OK);
    assert_float_equal(each[0], one, 0);
    assert_true(each[1] > 0.01);
    free(a);
    free(b);
    free(da);
    free(db);
    free(got.v);
    tape_close(&t);
}

/* Entries of a block's context against the reference; mtp-b has an embedding and a head of its own. */
static void test_nextn_logits(void **state)
{
    static const char *const names[] = { "mtp-a", "mtp-b" };
    const char *goldens = getenv("GOLDENS");
    char path[2 * PATH_BYTES];

    (void)state;
    if (goldens == NULL || *goldens == '\0')
        skip();
    for (int i = 0; i < 2; i++) {
        struct tape t;
        struct err e = { 0 };
        int64_t n = 0, n_h = 0, n_ref = 0;
        double loss = 0, worst = 0;

        (void)snprintf(path, sizeof path, "%s/draft/%s.gguf", goldens, names[i]);
        tape_open_nextn(&t, path);
        (void)snprintf(path, sizeof path, "%s/draft/%s/ids.i32", goldens, names[i]);
        int32_t *ids = words_of(path, &n);
        (void)snprintf(path, sizeof path, "%s/draft/%s/trunk_h.f32", goldens, names[i]);
        float *h = words_of(path, &n_h);
        (void)snprintf(path, sizeof path, "%s/draft/%s/prefill.logits.f32", goldens, names[i]);
        float *ref = words_of(path, &n_ref);
        const int32_t v = grad_n_vocab(t.g);
        struct logits got = { calloc((size_t)(n * v), sizeof(float)), v };
        struct grad_seq seq = { ids + 1, ids + 1, (int)n - 1, 1.0f, h, NULL };
        const struct grad_batch b = { .seq = &seq, .n_seq = 1, .loss = keep, .loss_ctx = &got };

        assert_true(n_h == n * grad_n_embd(t.g) && n_ref == 4 * v && got.v != NULL);
        assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_OK);
        for (int64_t j = 0; j < n_ref; j++)
            worst = fmax(worst, fabs((double)ref[j] - (double)got.v[(n - 5) * v + j]));
        print_message("%s: %.2e\n", names[i], worst);
        assert_true(worst < 2e-4);
        seq.hidden = NULL;
        assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_ARG);
        free(ids);
        free(h);
        free(ref);
        free(got.v);
        tape_close(&t);
    }
}

/* Nor does it matter whether layers are kept or computed again. */
static void test_threads(void **state)
{
    struct tape t, one;
    struct set s, other;
    struct err e = { 0 };
    double loss = 0, loss_one = 1;

    (void)state;
    tape_open(&t, "tests/golden/models/qwen35moe-a.gguf", 3);
    tape_open(&one, "tests/golden/models/qwen35moe-a.gguf", 1);
    set_make(&s, &t);
    set_make(&other, &one);
    struct grad_batch b = batch_of(&s), b_one = batch_of(&other);
    b.keep = true;
    assert_int_equal(grad_backward(t.g, &b, &loss, &e), ERR_OK);
    assert_int_equal(grad_backward(one.g, &b_one, &loss_one, &e), ERR_OK);
    assert_true(loss == loss_one);
    for (int i = 0; i < s.n; i++) {
        assert_memory_equal(s.a[i].da, other.a[i].da, (size_t)size_a(&t, &s.a[i]) * sizeof(float));
        assert_memory_equal(s.a[i].db, other.a[i].db, (size_t)size_b(&t, &s.a[i]) * sizeof(float));
    }
    set_free(&s);
    set_free(&other);
    tape_close(&t);
    tape_close(&one);
}

/* The trace's x and dy make the adapters' gradients: db = scale dy^T (x a^T). */
struct watch {
    const struct tape *t;
    const struct set *s;
    double *db; /* of one matrix */
    int matrix;
    int64_t rows, embd_rows;
};
static void watch(void *ctx, int matrix, int expert, int64_t n, const float *x, const float *dy, const int32_t *row)
{
    struct watch *w = ctx;
    const struct grad_matrix *m = grad_matrix_at(w->t->g, matrix);
    const float *a;

    for (int64_t i = 1; i < n; i++)
        assert_true(row[i] > row[i - 1] && row[i] < SHORT + LONG);
    if (matrix == 0) {
        assert_null(x);
        w->embd_rows += n;
    }
    if (matrix != w->matrix)
        return;
    w->rows += n;
    a = w->s->a[matrix - 1].a + (int64_t)expert * RANK * m->n_in;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < RANK; k++) {
            double low = 0;

            for (int64_t j = 0; j < m->n_in; j++)
                low += (double)x[i * m->n_in + j] * (double)a[k * m->n_in + j];
            for (int64_t o = 0; o < m->n_out; o++)
                w->db[(expert * m->n_out + o) * RANK + k] += 0.5 * low * (double)dy[i * m->n_out + o];
        }
}

static void trace_of(struct tape *t, struct set *s, const char *name, int64_t rows)
{
    struct watch w = { .t = t, .s = s, .matrix = grad_matrix_find(t->g, str_of(name)) };
    struct grad_batch b = batch_of(s);
    struct grad_adapter *a = &s->a[w.matrix - 1];
    int64_t n = size_b(t, a);
    double loss, top = 0;
    struct err e = { 0 };

    w.db = calloc((size_t)n, sizeof *w.db);
    assert_non_null(w.db);
    memset(a->db, 0, (size_t)n * sizeof *a->db);
    b.trace = watch;
    b.trace_ctx = &w;
    assert_int_equal(grad_backward(t->g, &b, &loss, &e), ERR_OK);
    assert_int_equal(w.rows, rows);
    assert_int_equal(w.embd_rows, SHORT + LONG);
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(w.db[i]));
    assert_true(top > 0);
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(w.db[i] - (double)a->db[i]) < 1e-5 * top);
    free(w.db);
}

static void test_trace(void **state)
{
    struct tape t;
    struct set s;
    uint32_t used = 0;

    (void)state;
    tape_open(&t, "tests/golden/models/qwen35moe-a.gguf", 2);
    assert_true(gguf_u32(t.gguf, "qwen35moe.expert_used_count", &used));
    set_make(&s, &t);
    trace_of(&t, &s, "blk.0.attn_qkv.weight", SHORT + LONG);
    trace_of(&t, &s, "blk.2.ffn_down_exps.weight", (int64_t)used * (SHORT + LONG));
    set_free(&s);
    tape_close(&t);
}

/* Two sequences with different adapters in one pass have the losses that they have apart. */
static void test_side_by_side(void **state)
{
    struct tape t;
    struct set s;
    struct err e = { 0 };
    double all, each[2], alone;

    (void)state;
    tape_open(&t, "tests/golden/models/qwen35moe-a.gguf", 2);
    set_make(&s, &t);
    struct grad_batch b = batch_of(&s);
    for (int i = 0; i < s.n; i++) {
        s.a[i].from = i % 2;
        s.a[i].to = i % 2 + 1;
    }
    b.seq_loss = each;
    assert_int_equal(grad_forward(t.g, &b, &all, &e), ERR_OK);
    assert_true(fabs(all - each[0] - each[1]) < 1e-9);
    for (int q = 0; q < 2; q++) {
        struct grad_adapter *some = calloc((size_t)s.n, sizeof *some);
        struct grad_batch one = { .seq = &s.seq[q], .n_seq = 1, .adapter = some };

        assert_non_null(some);
        for (int i = q; i < s.n; i += 2) {
            some[one.n_adapter] = s.a[i];
            some[one.n_adapter].from = 0;
            some[one.n_adapter++].to = 1;
        }
        assert_int_equal(grad_forward(t.g, &one, &alone, &e), ERR_OK);
        assert_true(alone == each[q]);
        free(some);
    }
    set_free(&s);
    tape_close(&t);
}

static void test_refusals(void **state)
{
    struct tape t;
    struct set s;
    struct err e = { 0 };
    double loss = 7;

    (void)state;
    tape_open(&t, "tests/golden/models/qwen35moe-a.gguf", 1);
    set_make(&s, &t);
    struct grad_batch b = batch_of(&s);
    s.token[1][3] = 512;
    assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_ARG);
    s.token[1][3] = 5;
    s.target[0][1] = 512;
    assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_ARG);
    s.target[0][1] = -1;
    s.a[0].matrix = 0;
    assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_ARG);
    s.a[0].matrix = 1;
    s.a[0].to = 3;
    assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_ARG);
    s.a[0].to = 2;
    b.n_seq = 0;
    assert_int_equal(grad_forward(t.g, &b, &loss, &e), ERR_ARG);
    assert_true(loss == 7);
    assert_true(grad_bytes(t.g, 2000, 8, false) > grad_bytes(t.g, 1000, 8, false));
    assert_true(grad_bytes(t.g, 1000, 8, true) > grad_bytes(t.g, 1000, 8, false));
    set_free(&s);
    tape_close(&t);
}

/* Gradients of the reference adapters, in the order of their file. */
struct ref {
    float *v, *grad;
    int64_t n;
    struct grad_adapter a[16];
    int n_a;
};

static void ref_adapters(struct ref *r, const struct tape *t, const struct gguf *init, float scale)
{
    int64_t at = 0;

    for (size_t i = 0; i < gguf_n_tensors(init); i++)
        r->n += gguf_tensor_at(init, i)->ne[0] * gguf_tensor_at(init, i)->ne[1];
    r->v = calloc((size_t)r->n, sizeof *r->v);
    r->grad = calloc((size_t)r->n, sizeof *r->grad);
    assert_non_null(r->v);
    assert_non_null(r->grad);
    for (size_t i = 0; i < gguf_n_tensors(init); i += 2) {
        const struct gguf_tensor *a = gguf_tensor_at(init, i), *b = gguf_tensor_at(init, i + 1);
        int64_t n_a = a->ne[0] * a->ne[1], n_b = b->ne[0] * b->ne[1];

        memcpy(r->v + at, a->data, (size_t)n_a * sizeof(float));
        memcpy(r->v + at + n_a, b->data, (size_t)n_b * sizeof(float));
        r->a[r->n_a] = (struct grad_adapter){ grad_matrix_find(t->g, (struct str){ a->name.p, a->name.n - 7 }),
                                              (int)b->ne[0],
                                              scale / (float)b->ne[0],
                                              r->v + at,
                                              r->v + at + n_a,
                                              r->grad + at,
                                              r->grad + at + n_a,
                                              0,
                                              0 };
        assert_true(r->a[r->n_a].matrix > 0);
        r->n_a++;
        at += n_a + n_b;
    }
}

struct zo_case {
    const char *name;
    float alpha;
    double loss;
    int32_t ids[3][16];
    int n[3], answer[3];
};
/* As in $GOLDENS/zo/manifest.json. */
static const struct zo_case zo_cases[] = {
    { "k",
      8.0f,
      9.334852214058275,
      { { 260, 363, 343, 318, 51, 78, 220, 70, 324, 285 },
        { 480, 12, 79, 321, 73, 467, 82, 283, 84, 351, 266, 82, 266 },
        { 480, 483, 14, 391, 12, 478, 473, 380 } },
      { 10, 13, 8 },
      { 6, 7, 5 } },
    { "k-b0",
      16.0f,
      9.00056531259753,
      { { 52, 35, 32, 348, 2, 66, 445, 64, 412, 9 },
        { 284, 283, 467, 289, 82, 344, 273, 66, 411, 65, 68, 419, 332 },
        { 79, 84, 12, 463, 412, 9, 345, 33 } },
      { 10, 13, 8 },
      { 6, 7, 5 } },
    { "k-4",
      8.0f,
      9.12603680380155,
      { { 380, 198, 66, 67, 220, 326, 380, 198, 469, 51 },
        { 334, 83, 289, 82, 343, 9, 345, 34, 336, 428, 317, 348, 2 },
        { 412, 9, 345, 50, 56, 392, 348, 2 } },
      { 10, 13, 8 },
      { 6, 7, 5 } },
};

static void check_case(const char *goldens, const struct zo_case *c)
{
    char path[PATH_BYTES];
    struct tape t;
    struct gguf *init;
    struct ref r = { 0 };
    struct grad_seq seq[3];
    int32_t target[3][16];
    struct err e = { 0 };
    int64_t n_ref = 0;
    double loss = 0, ab = 0, aa = 0, bb = 0;
    int answers = 0;

    (void)snprintf(path, sizeof path, "%s/models/qwen35moe-k.gguf", goldens);
    tape_open(&t, path, 2);
    (void)snprintf(path, sizeof path, "%s/zo/%s/init.gguf", goldens, c->name);
    assert_int_equal(gguf_open(&init, path, &e), ERR_OK);
    ref_adapters(&r, &t, init, c->alpha);
    for (int s = 0; s < 3; s++)
        answers += c->n[s] - c->answer[s];
    for (int s = 0; s < 3; s++) {
        seq[s] = (struct grad_seq){ c->ids[s], target[s], c->n[s], 1.0f / (float)answers, NULL, NULL };
        for (int i = 0; i < c->n[s]; i++)
            target[s][i] = i + 1 >= c->answer[s] && i + 1 < c->n[s] ? c->ids[s][i + 1] : -1;
    }
    for (int i = 0; i < r.n_a; i++)
        r.a[i].to = 3;
    const struct grad_batch b = { .seq = seq, .n_seq = 3, .adapter = r.a, .n_adapter = r.n_a };
    assert_int_equal(grad_backward(t.g, &b, &loss, &e), ERR_OK);
    (void)snprintf(path, sizeof path, "%s/zo/%s/grad.f32", goldens, c->name);
    float *ref = words_of(path, &n_ref);
    assert_non_null(ref);
    assert_int_equal(n_ref, r.n);
    for (int64_t i = 0; i < r.n; i++) {
        ab += (double)ref[i] * (double)r.grad[i];
        aa += (double)ref[i] * (double)ref[i];
        bb += (double)r.grad[i] * (double)r.grad[i];
    }
    print_message("%s: loss %.9f (%.9f), cosine 1 - %.1e, norm %.6f (%.6f)\n", c->name, loss, c->loss,
                  1.0 - ab / sqrt(aa * bb), sqrt(bb), sqrt(aa));
    assert_true(fabs(loss - c->loss) < 1e-5);
    assert_true(ab / sqrt(aa * bb) > 0.999999 && fabs(sqrt(bb / aa) - 1.0) < 1e-4);
    free(ref);
    free(r.v);
    free(r.grad);
    gguf_close(init);
    tape_close(&t);
}

static void test_reference_gradients(void **state)
{
    const char *goldens = getenv("GOLDENS");

    (void)state;
    if (goldens == NULL || *goldens == '\0')
        skip();
    for (size_t i = 0; i < sizeof zo_cases / sizeof zo_cases[0]; i++)
        check_case(goldens, &zo_cases[i]);
}

static const struct grad_loops *loops_of(unsigned set)
{
#if defined(__x86_64__)
    return set == SET_avx512 ? &grad_loops_avx512 : set == SET_avx2 ? &grad_loops_avx2 : &grad_loops_scalar;
#else
    (void)set;
    return &grad_loops_scalar;
#endif
}

/* Every loop gives the bytes of the scalar ones, at lengths that are no multiple of a vector. */
static void test_loops(void **state)
{
    enum { DIM = 24, DIM_V = 37, DEEP = 100, STATE = DIM * DIM_V };
    const struct grad_loops *l = loops_of(set_or_skip(state)), *ref = &grad_loops_scalar;
    float *x, *y, *panel, *s[2], *d[2], out[GRAD_ROWS_MAX * GRAD_COLS], want[GRAD_ROWS_MAX * GRAD_COLS];
    const float *a[GRAD_ROWS_MAX];

    noise = 9 * 100000;
    x = random_floats(DEEP * GRAD_ROWS_MAX, 1.0f);
    y = random_floats(DEEP * GRAD_ROWS_MAX, 1.0f);
    panel = random_floats(DEEP * GRAD_COLS, 1.0f);
    for (int i = 0; i < GRAD_ROWS_MAX; i++)
        a[i] = x + i * DEEP;
    l->panel(out, a, 1, panel, DEEP);
    for (int i = 0; i < l->rows; i += ref->rows)
        ref->panel(want + i * GRAD_COLS, a + i, 1, panel, DEEP);
    assert_memory_equal(out, want, (size_t)(l->rows / ref->rows * ref->rows * GRAD_COLS) * sizeof(float));
    for (int64_t n = 0; n < 70; n += 7) {
        float p = l->dot(x, y, n), q = ref->dot(x, y, n), u[70], v[70];

        assert_memory_equal(&p, &q, sizeof p);
        memcpy(u, x, sizeof u);
        memcpy(v, x, sizeof v);
        l->axpy(u, y, 0.3f, n);
        ref->axpy(v, y, 0.3f, n);
        assert_memory_equal(u, v, sizeof u);
    }
    const struct grad_delta t = { DIM, DIM_V, x, x + DIM, y, 0.9f, 0.4f };
    float from[STATE], got[2][STATE + 5 * DIM_V + 2 * DIM + 2];
    memcpy(from, x, sizeof from);
    for (int i = 0; i < 2; i++) {
        const struct grad_loops *which = i == 0 ? l : ref;
        float tmp[4 * DIM_V] = { 0 };

        s[i] = got[i];
        memcpy(got[i], y, sizeof got[i]);
        which->delta(s[i], from, s[i] + STATE, tmp, &t);
        d[i] = s[i] + STATE + DIM_V;
        which->delta_back(s[i], from, panel, d[i], d[i] + DIM, d[i] + 2 * DIM, d[i] + 2 * DIM + DIM_V, tmp, &t);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    free(x);
    free(y);
    free(panel);
}

/* Products of all shapes and both ways of b against sums in double. */
static void test_products(void **state)
{
    static const int shapes[][3] = { { 1, 1, 1 }, { 7, 17, 5 }, { 13, 130, 600 }, { 250, 33, 70 }, { 3, 64, 513 } };
    struct pool *pool;
    struct err e = { 0 };
    float *scratch = malloc(grad_product_floats(2) * sizeof *scratch);

    (void)state;
    noise = 3 * 100000;
    assert_non_null(scratch);
    assert_int_equal(pool_open(&pool, 2, &e), ERR_OK);
    const struct grad_tools tools = { pool, simd_features(), scratch };
    for (size_t i = 0; i < 4 * sizeof shapes / sizeof shapes[0]; i++) {
        int m = shapes[i / 4][0], n = shapes[i / 4][1], k = shapes[i / 4][2];
        bool across = i & 1, turned = i & 2;
        float *a = random_floats((size_t)(m * k), 1.0f), *b = random_floats((size_t)(n * k), 1.0f);
        float *c = random_floats((size_t)(m * n), 1.0f), *old = malloc((size_t)(m * n) * sizeof *old);

        assert_non_null(old);
        memcpy(old, c, (size_t)(m * n) * sizeof *old);
        grad_product(&tools, &(struct grad_product){ m, n, k, a, b, turned ? 1 : k, turned ? m : 1, across ? 1 : n,
                                                     across ? k : 1, c, n, 0.5f, turned });
        for (int r = 0; r < m; r++)
            for (int j = 0; j < n; j++) {
                double sum = 0, want;

                for (int q = 0; q < k; q++)
                    sum += (double)a[turned ? q * m + r : r * k + q] * (double)b[across ? j * k + q : q * n + j];
                want = 0.5 * sum + (turned ? (double)old[r * n + j] : 0.0);
                assert_true(fabs((double)c[r * n + j] - want) < 1e-5 * (1.0 + k));
            }
        free(a);
        free(b);
        free(c);
        free(old);
    }
    pool_close(pool);
    free(scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SET_TEST(test_loops, scalar),          SET_TEST(test_loops, avx2),
        SET_TEST(test_loops, avx512),          cmocka_unit_test(test_products),
        cmocka_unit_test(test_logits),         cmocka_unit_test(test_logits_goldens),
        cmocka_unit_test(test_other_families), cmocka_unit_test(test_finite_differences),
        cmocka_unit_test(test_divergence),     cmocka_unit_test(test_said),
        cmocka_unit_test(test_nextn_logits),   cmocka_unit_test(test_threads),
        cmocka_unit_test(test_trace),          cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_reference_gradients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
