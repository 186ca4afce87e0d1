/* SPDX-License-Identifier: Apache-2.0 */
/* math_test.c - operations of training against their formulas in double precision: of the host, or of a GPU
 * (CHIMERE_TEST_DEVICE). */
#include <math.h>

#include "base/pool.h"
#include "base/rng.h"
#include "golden.h"
#include "ops/math.h"
#include "quant/quant.h"
#include "train/host.h"

static struct dev_math *m;
static struct pool *pool;

static int open_math(void **state)
{
    struct err e = { 0 };

    (void)state;
    if (strncmp(test_device(), "cuda", 4) == 0 && !dev_math_built())
        return 0; /* the tests are skipped */
    if (strncmp(test_device(), "cuda", 4) == 0 ? dev_math_open(&m, test_device(), &e)
                                               : pool_open(&pool, 3, &e) || train_host_open(&m, pool, &e))
        fail_msg("%s", e.msg);
    return 0;
}

static int close_math(void **state)
{
    (void)state;
    if (m != NULL)
        m->close(m);
    pool_close(pool);
    return 0;
}

/* ---- arrays on both sides ---- */

static uint64_t drawn;

static float *draws(int64_t n)
{
    float *v = malloc((size_t)(n + 1) * sizeof *v);

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = rng_gauss(5, 1, drawn++);
    return v;
}

/* A copy in the memory of the device. */
static void *sent(const void *v, int64_t bytes)
{
    void *p = m->take(m, bytes);

    assert_non_null(p);
    m->put(m, p, v, bytes);
    return p;
}

static float *floats(const float *v, int64_t n)
{
    return sent(v, n * (int64_t)sizeof *v);
}

/* Takes it back and frees it. */
static float *back(float *p, int64_t n)
{
    float *v = malloc((size_t)(n + 1) * sizeof *v);
    struct err e = { 0 };

    assert_non_null(v);
    m->get(m, v, p, n * (int64_t)sizeof *v);
    if (m->wait(m, &e))
        fail_msg("%s", e.msg);
    m->give(m, p);
    return v;
}

/* got, from the device, is ref; frees both. */
static void same(const char *what, float *got, double *ref, int64_t n, double limit)
{
    double worst = 0, size = 0;
    float *v = back(got, n);

    for (int64_t i = 0; i < n; i++) {
        const double diff = fabs((double)v[i] - ref[i]);

        size += ref[i] * ref[i];
        if (!(diff <= worst))
            worst = diff;
    }
    size = sqrt(size / (double)(n > 0 ? n : 1));
    if (!(worst <= limit * (size + 1e-3)))
        fail_msg("%s: off by %g, of %g in the mean", what, worst, size);
    free(v);
    free(ref);
}

static double *doubles(int64_t n)
{
    double *v = calloc((size_t)(n + 1), sizeof *v);

    assert_non_null(v);
    return v;
}

/* ---- products ---- */

static void check_product(int64_t rows, int64_t n, int64_t k, bool turn_a, bool turn_b, float beta)
{
    const int64_t lda = (turn_a ? rows : k) + 3, ldb = (turn_b ? k : n) + 1, ldc = n + 2;
    const int64_t na = (turn_a ? k : rows) * lda, nb = (turn_b ? n : k) * ldb;
    float *a = draws(na), *b = draws(nb), *c = draws(rows * ldc);
    float *da = floats(a, na), *db = floats(b, nb), *dc = floats(c, rows * ldc);
    double *ref = doubles(rows * ldc);

    m->product(m, rows, n, k, (struct dev_matrix){ da, lda, turn_a }, (struct dev_matrix){ db, ldb, turn_b }, beta, dc,
               ldc);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < ldc; j++) {
            double sum = (double)(j < n ? beta * c[i * ldc + j] : c[i * ldc + j]);

            for (int64_t l = 0; j < n && l < k; l++)
                sum += (double)a[turn_a ? l * lda + i : i * lda + l] * (double)b[turn_b ? j * ldb + l : l * ldb + j];
            ref[i * ldc + j] = sum;
        }
    same("product", dc, ref, rows * ldc, 1e-5);
    m->give(m, da);
    m->give(m, db);
    free(a);
    free(b);
    free(c);
}

/* Three at once, of matrices that follow each other. */
static void check_products(int64_t rows, int64_t n, int64_t k, bool turn_a, bool turn_b)
{
    enum { COUNT = 3 };
    float *a = draws(COUNT * rows * k), *b = draws(COUNT * k * n), *da = floats(a, COUNT * rows * k);
    float *db = floats(b, COUNT * k * n), *dc = m->take(m, COUNT * rows * n * 4);
    double *ref = doubles(COUNT * rows * n);

    m->products_of(m, COUNT, rows, n, k, da, turn_a, db, turn_b, dc);
    for (int64_t i = 0; i < COUNT * rows * n; i++) {
        const int64_t at = i / (rows * n), r = i / n % rows, c = i % n;

        for (int64_t l = 0; l < k; l++)
            ref[i] += (double)a[at * rows * k + (turn_a ? l * rows + r : r * k + l)] *
                      (double)b[at * k * n + (turn_b ? c * k + l : l * n + c)];
    }
    same("products", dc, ref, COUNT * rows * n, 1e-5);
    m->give(m, da);
    m->give(m, db);
    free(a);
    free(b);
}

static void test_products(void **state)
{
    (void)state;
    if (m == NULL)
        skip();
    for (int t = 0; t < 8; t++) {
        check_product(1, 1, 1, t & 1, t & 2, t & 4 ? 1.0f : 0.0f);
        check_product(5, 131, 67, t & 1, t & 2, t & 4 ? 1.0f : 0.0f);
        check_product(200, 33, 130, t & 1, t & 2, t & 4 ? 1.0f : 0.0f);
        check_products(7, 20, 33, t & 1, t & 2);
    }
}

/* ---- norms ---- */

static void check_rms(int64_t rows, int64_t dim, bool add, bool in_place)
{
    const int64_t n = rows * dim;
    float *x = draws(n), *w = draws(dim), *dy = draws(n), *dx = draws(n), *dw = draws(dim);
    float *dev_x = floats(x, n), *dev_w = floats(w, dim), *dev_dy = floats(dy, n), *dev_dx = floats(dx, n);
    float *dev_dw = floats(dw, dim), *y = m->take(m, n * 4), *inv = m->take(m, rows * 4);
    double *ref = doubles(n), *ref_dx = doubles(n), *ref_dw = doubles(dim), *ref_inv = doubles(rows);

    for (int64_t i = 0; i < dim; i++)
        ref_dw[i] = (double)dw[i];
    for (int64_t r = 0; r < rows; r++) {
        double square = 0, mean = 0;

        for (int64_t i = r * dim; i < (r + 1) * dim; i++)
            square += (double)x[i] * (double)x[i] / (double)dim;
        ref_inv[r] = 1 / sqrt(square + 1e-6);
        for (int64_t i = 0; i < dim; i++)
            mean += (double)w[i] * (double)dy[r * dim + i] * (double)x[r * dim + i] * ref_inv[r] / (double)dim;
        for (int64_t i = 0; i < dim; i++) {
            const double norm = (double)x[r * dim + i] * ref_inv[r], g = (double)dy[r * dim + i];

            ref[r * dim + i] = norm * (double)w[i];
            ref_dw[i] += g * norm;
            ref_dx[r * dim + i] = ref_inv[r] * ((double)w[i] * g - norm * mean) + (add ? (double)dx[r * dim + i] : 0);
        }
    }
    m->rms(m, y, inv, dev_x, dev_w, rows, dim, 1e-6f);
    if (in_place) {
        m->give(m, dev_dx);
        dev_dx = dev_dy;
    }
    m->rms_back(m, dev_dx, add, dev_dw, dev_dy, dev_x, inv, dev_w, rows, dim);
    same("rms", y, ref, n, 1e-5);
    same("rms inv", inv, ref_inv, rows, 1e-5);
    same("rms dx", dev_dx, ref_dx, n, 1e-5);
    same("rms dw", dev_dw, ref_dw, dim, 2e-5);
    if (!in_place)
        m->give(m, dev_dy);
    m->give(m, dev_x);
    m->give(m, dev_w);
    free(x);
    free(w);
    free(dy);
    free(dx);
    free(dw);
}

static void check_unit(void)
{
    enum { COUNT = 3, N = 1500 };
    float *x = draws(COUNT * N), *dev_x = floats(x, COUNT * N);
    double *ref = doubles(COUNT * N);

    for (int i = 0; i < COUNT; i++) {
        double sum = 0;

        for (int j = 0; j < N; j++)
            sum += (double)x[i * N + j] * (double)x[i * N + j];
        for (int j = 0; j < N; j++)
            ref[i * N + j] = (double)x[i * N + j] / (sqrt(sum) + 0.5);
    }
    m->unit(m, dev_x, COUNT, N, 0.5f);
    same("unit", dev_x, ref, COUNT * N, 1e-5);
    free(x);
}

static void test_norms(void **state)
{
    (void)state;
    if (m == NULL)
        skip();
    check_unit();
    check_rms(1, 3, false, false);
    check_rms(67, 256, true, false);
    check_rms(1031, 64, false, true);
    check_rms(9, 1030, false, false);
}

/* ---- positions, the feed-forward part, rows ---- */

static void test_rope(void **state)
{
    enum { ROWS = 37, HEADS = 3, DIM = 10, POSITIONS = 50, N = ROWS * HEADS * DIM };

    (void)state;
    if (m == NULL)
        skip();
    for (int side = 0; side < 2; side++) {
        float *x = draws(N), *turn = draws(POSITIONS * DIM), *dev_x = floats(x, N),
              *dev_turn = floats(turn, POSITIONS * DIM);
        double *ref = doubles(N);
        int32_t pos[ROWS];

        for (int r = 0; r < ROWS; r++) {
            pos[r] = r * 7 % POSITIONS;
            for (int h = 0; h < HEADS; h++)
                for (int i = 0; i < DIM / 2; i++) {
                    const double c = (double)turn[pos[r] * DIM + 2 * i];
                    const double s = (double)turn[pos[r] * DIM + 2 * i + 1] * (side == 0 ? 1 : -1);
                    const int at = (r * HEADS + h) * DIM + i;

                    ref[at] = (double)x[at] * c - (double)x[at + DIM / 2] * s;
                    ref[at + DIM / 2] = (double)x[at + DIM / 2] * c + (double)x[at] * s;
                }
        }
        int32_t *dev_pos = sent(pos, sizeof pos);

        m->rope(m, dev_x, dev_pos, ROWS, HEADS, DIM, dev_turn, side == 1);
        same("rope", dev_x, ref, N, 1e-5);
        m->give(m, dev_pos);
        m->give(m, dev_turn);
        free(x);
        free(turn);
    }
}

static void test_elements(void **state)
{
    enum { N = 1003 };

    (void)state;
    if (m == NULL)
        skip();
    float *gate = draws(N), *up = draws(N), *dh = draws(N), *dev_gate = floats(gate, N), *dev_up = floats(up, N);
    float *dev_dh = floats(dh, N), *h = floats(up, N), *sum = floats(gate, N), *mix = floats(gate, N);
    double *ref_h = doubles(N), *ref_gate = doubles(N), *ref_up = doubles(N), *ref_sum = doubles(N),
           *ref_mix = doubles(N);

    for (int i = 0; i < N; i++) {
        const double g = (double)gate[i], u = (double)up[i], d = (double)dh[i], s = 1 / (1 + exp(-g));

        ref_h[i] = g * s * u;
        ref_gate[i] = d * u * s * (1 + g * (1 - s));
        ref_up[i] = d * g * s;
        ref_sum[i] = g + d;
        ref_mix[i] = 0.25 * g - 2 * d;
    }
    m->glu(m, h, dev_gate, dev_up, N);
    m->add(m, sum, dev_dh, N);
    m->blend(m, mix, 0.25f, -2, dev_dh, N, false);
    m->glu_back(m, dev_gate, dev_up, dev_dh, N);
    same("glu", h, ref_h, N, 1e-5);
    same("add", sum, ref_sum, N, 1e-6);
    same("blend", mix, ref_mix, N, 1e-6);
    same("glu gate", dev_gate, ref_gate, N, 1e-5);
    same("glu up", dev_up, ref_up, N, 1e-5);
    m->give(m, dev_dh);
    free(gate);
    free(up);
    free(dh);
}

static void test_rows(void **state)
{
    enum { FROM = 9, ROWS = 21, DIM = 13 };
    int32_t index[ROWS], turned[FROM];
    uint16_t half[FROM * DIM];

    (void)state;
    if (m == NULL)
        skip();
    float *x = draws(FROM * DIM), *y = draws(ROWS * DIM), *dev_x = floats(x, FROM * DIM), *to = floats(y, ROWS * DIM);
    float *wide = floats(y, ROWS * DIM), *spread = floats(y, ROWS * DIM);
    double *ref = doubles(ROWS * DIM), *ref_wide = doubles(ROWS * DIM), *ref_spread = doubles(ROWS * DIM);

    quant_types[QUANT_bf16]->encode(half, x, FROM * DIM, NULL);
    for (int i = 0; i < FROM; i++)
        turned[i] = (i * 2 + 1) % ROWS;
    for (int i = 0; i < ROWS * DIM; i++)
        ref_spread[i] = (double)y[i];
    for (int i = 0; i < ROWS; i++) {
        float row[DIM];

        index[i] = i * 5 % FROM;
        quant_types[QUANT_bf16]->decode(row, half + index[i] * DIM, DIM);
        for (int j = 0; j < DIM; j++) {
            ref[i * DIM + j] = (double)x[index[i] * DIM + j];
            ref_wide[i * DIM + j] = (double)row[j];
        }
    }
    for (int i = 0; i < FROM * DIM; i++)
        ref_spread[turned[i / DIM] * DIM + i % DIM] = (double)x[i];
    int32_t *dev_index = sent(index, sizeof index), *dev_turned = sent(turned, sizeof turned);
    uint16_t *dev_half = sent(half, sizeof half);

    m->gather(m, to, dev_x, dev_index, ROWS, DIM);
    m->widen(m, wide, dev_half, dev_index, ROWS, DIM);
    m->scatter(m, spread, dev_turned, dev_x, FROM, DIM);
    same("gather", to, ref, ROWS * DIM, 0);
    same("widen", wide, ref_wide, ROWS * DIM, 0);
    same("scatter", spread, ref_spread, ROWS * DIM, 0);
    m->give(m, dev_index);
    m->give(m, dev_turned);
    m->give(m, dev_half);
    m->give(m, dev_x);
    free(x);
    free(y);
}

/* ---- the loss, AdamW ---- */

static void test_cross_entropy(void **state)
{
    enum { ROWS = 6, N = 1031 };
    int32_t want[ROWS], best[ROWS], first[ROWS];
    float weight[ROWS];

    (void)state;
    if (m == NULL)
        skip();
    float *x = draws(ROWS * N);
    double *ref = doubles(ROWS * N), *ref_loss = doubles(ROWS);

    for (int i = 0; i < ROWS * N; i++)
        x[i] *= 3;
    x[2 * N + 17] = x[2 * N + 900] = 99; /* of equals the first */
    for (int r = 0; r < ROWS; r++) {
        double max = -1e9, sum = 0;

        want[r] = r * 401 % N;
        weight[r] = 0.5f + (float)r;
        for (int i = 0; i < N; i++)
            if ((double)x[r * N + i] > max) {
                max = (double)x[r * N + i];
                first[r] = i;
            }
        for (int i = 0; i < N; i++)
            sum += exp((double)x[r * N + i] - max);
        ref_loss[r] = max + log(sum) - (double)x[r * N + want[r]];
        for (int i = 0; i < N; i++)
            ref[r * N + i] = (double)weight[r] / 20 * (exp((double)x[r * N + i] - max) / sum - (i == want[r] ? 1 : 0));
    }
    float *dev_x = floats(x, ROWS * N), *dev_weight = floats(weight, ROWS), *loss = m->take(m, sizeof weight);
    int32_t *dev_want = sent(want, sizeof want), *dev_best = m->take(m, sizeof best);

    m->best(m, dev_x, dev_best, ROWS, N);
    for (int t = 0; t < 2; t++) {
        m->get(m, best, dev_best, sizeof best);
        for (int r = 0; r < ROWS; r++)
            assert_int_equal(best[r], first[r]);
        m->zero(m, dev_best, sizeof best);
        if (t == 0)
            m->cross_entropy(m, dev_x, dev_want, dev_weight, 20, loss, dev_best, ROWS, N);
    }
    same("loss", loss, ref_loss, ROWS, 1e-5);
    same("loss dx", dev_x, ref, ROWS * N, 2e-4);
    m->give(m, dev_weight);
    m->give(m, dev_want);
    m->give(m, dev_best);
    free(x);
}

static void test_adam(void **state)
{
    enum { N = 1030 };
    unsigned char how[N];
    double norm = 0;

    (void)state;
    if (m == NULL)
        skip();
    float *w = draws(N), *mean = draws(N), *square = draws(N), *grad = draws(N);
    double *ref = doubles(N), *ref_m = doubles(N), *ref_v = doubles(N);

    for (int i = 0; i < N; i++) {
        how[i] = (unsigned char)(i % 3);
        square[i] *= square[i];
        norm += (double)grad[i] * (double)grad[i];
    }
    norm = sqrt(norm);
    for (int i = 0; i < N; i++) {
        const double g = (double)grad[i] / norm;

        if (how[i] == DEV_ADAM_NOT) {
            ref_m[i] = (double)mean[i];
            ref_v[i] = (double)square[i];
            ref[i] = (double)w[i];
            continue;
        }
        ref_m[i] = 0.9 * (double)mean[i] + 0.1 * g;
        ref_v[i] = 0.95 * (double)square[i] + 0.05 * g * g;
        ref[i] = (double)w[i] - 0.01 * (ref_m[i] / (1 - pow(0.9, 3)) / (sqrt(ref_v[i] / (1 - pow(0.95, 3))) + 1e-8) +
                                        (how[i] == DEV_ADAM_DECAYED ? 0.1 * (double)w[i] : 0));
    }
    struct dev_adam a = { N,
                          3,
                          floats(w, N),
                          floats(mean, N),
                          floats(square, N),
                          floats(grad, N),
                          sent(how, sizeof how),
                          0.01f,
                          0.9f,
                          0.95f,
                          1e-8f,
                          0.1f,
                          1.0f };

    m->adam(m, &a);
    assert_true(fabs(m->norm(m) / norm - 1) < 1e-6);
    grad[7] = NAN;
    m->put(m, (void *)(uintptr_t)a.grad, grad, N * 4);
    m->adam(m, &a); /* nothing changes */
    assert_true(isnan(m->norm(m)));
    same("weights", a.w, ref, N, 1e-5);
    same("moment 1", a.m, ref_m, N, 1e-5);
    same("moment 2", a.v, ref_v, N, 1e-5);
    m->give(m, (void *)(uintptr_t)a.grad);
    m->give(m, (void *)(uintptr_t)a.how);
    free(w);
    free(mean);
    free(square);
    free(grad);
}

/* ---- attention ---- */

enum { TEXTS = 3, BLOCKS = 8 };

struct heads {
    int n_head, n_head_kv, dim;
    int64_t context, rows;
    struct dev_text text[TEXTS];
    struct dev_block block[BLOCKS];
    float *q, *k, *v, *kc, *vc, *d_o; /* of the host */
};

/* The key or value that row `at` of what a block sees has: of its context, then its own. */
static const float *seen(const struct heads *h, const struct dev_block *b, const float *context, const float *own,
                         int64_t at, int head)
{
    return at < b->start ? context + ((b->context + at) * h->n_head_kv + head) * h->dim
                         : own + ((b->row + at - b->start) * h->n_head_kv + head) * h->dim;
}

static double dot(const float *x, const float *y, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)x[i] * (double)y[i];
    return sum;
}

/* Gradients of what a block sees are added there. */
static double *seen_gradient(const struct heads *h, const struct dev_block *b, double *context, double *own, int64_t at,
                             int head)
{
    return at < b->start ? context + ((b->context + at) * h->n_head_kv + head) * h->dim
                         : own + ((b->row + at - b->start) * h->n_head_kv + head) * h->dim;
}

struct heads_ref {
    double *o, *lse, *dq, *dk, *dv, *dkc, *dvc;
};

static void row_ref(const struct heads *h, const struct dev_block *b, int64_t row, int head, struct heads_ref *ref)
{
    const int of = head / (h->n_head / h->n_head_kv), dim = h->dim;
    const int64_t at = (row * h->n_head + head) * dim, n = b->start + b->n;
    const double scale = 1 / sqrt(dim);
    double *p = doubles(n), max = -1e9, sum = 0, delta = 0;

    for (int64_t t = 0; t < n; t++) {
        p[t] = scale * dot(h->q + at, seen(h, b, h->kc, h->k, t, of), dim);
        max = p[t] > max ? p[t] : max;
    }
    for (int64_t t = 0; t < n; t++)
        sum += p[t] = exp(p[t] - max);
    ref->lse[row * h->n_head + head] = max + log(sum);
    for (int64_t t = 0; t < n; t++) {
        p[t] /= sum;
        for (int i = 0; i < dim; i++)
            ref->o[at + i] += p[t] * (double)seen(h, b, h->vc, h->v, t, of)[i];
        delta += p[t] * dot(h->d_o + at, seen(h, b, h->vc, h->v, t, of), dim);
    }
    for (int64_t t = 0; t < n; t++) {
        const double ds = scale * p[t] * (dot(h->d_o + at, seen(h, b, h->vc, h->v, t, of), dim) - delta);
        double *dk = seen_gradient(h, b, ref->dkc, ref->dk, t, of), *dv = seen_gradient(h, b, ref->dvc, ref->dv, t, of);

        for (int i = 0; i < dim; i++) {
            ref->dq[at + i] += ds * (double)seen(h, b, h->kc, h->k, t, of)[i];
            dk[i] += ds * (double)h->q[at + i];
            dv[i] += p[t] * (double)h->d_o[at + i];
        }
    }
    free(p);
}

/* Texts of different lengths, one without a context; blocks of different sizes. */
static void check_attention(int n_head, int n_head_kv, int dim)
{
    static const int starts[BLOCKS] = { 3, 150, 64, 1, 129, 0, 70, 63 }, sizes[BLOCKS] = { 5, 16, 8, 2, 16, 3, 16, 1 };
    static const int of[BLOCKS] = { 0, 0, 0, 0, 0, 1, 2, 2 };
    struct heads h = { .n_head = n_head, .n_head_kv = n_head_kv, .dim = dim };

    for (int i = 0; i < BLOCKS; i++) {
        struct dev_text *t = &h.text[of[i]];

        if (t->n++ == 0) {
            t->first = i;
            t->row = h.rows;
            t->context = of[i] == 0 ? 0 : of[i] == 1 ? 150 : 151;
        }
        h.block[i] = (struct dev_block){ h.rows, sizes[i], t->context, starts[i] };
        t->n_context = starts[i] > t->n_context ? starts[i] : t->n_context;
        t->n_row += sizes[i];
        h.rows += sizes[i];
    }
    h.context = 151 + 70;
    const int64_t nq = h.rows * n_head * dim, nk = h.rows * n_head_kv * dim, nc = h.context * n_head_kv * dim;
    const int64_t nl = h.rows * n_head;
    struct heads_ref ref = {
        doubles(nq), doubles(nl), doubles(nq), doubles(nk), doubles(nk), doubles(nc), doubles(nc)
    };

    h.q = draws(nq);
    h.d_o = draws(nq);
    h.k = draws(nk);
    h.v = draws(nk);
    h.kc = draws(nc);
    h.vc = draws(nc);
    for (int i = 0; i < BLOCKS; i++)
        for (int r = 0; r < h.block[i].n; r++)
            for (int head = 0; head < n_head; head++)
                row_ref(&h, &h.block[i], h.block[i].row + r, head, &ref);
    struct dev_attend a = { n_head,
                            n_head_kv,
                            dim,
                            sent(h.block, sizeof h.block),
                            sent(h.text, sizeof h.text),
                            BLOCKS,
                            TEXTS,
                            150,
                            floats(h.q, nq),
                            floats(h.k, nk),
                            floats(h.v, nk),
                            floats(h.kc, nc),
                            floats(h.vc, nc),
                            m->take(m, nq * 4),
                            m->take(m, nl * 4),
                            floats(h.d_o, nq),
                            m->take(m, nq * 4),
                            m->take(m, nk * 4),
                            m->take(m, nk * 4),
                            m->take(m, nc * 4),
                            m->take(m, nc * 4),
                            NULL };

    a.scratch = m->take(m, m->attend_floats(m, h.rows, n_head, a.seen_max) * 4);
    assert_true(a.o != NULL && a.lse != NULL && a.dq != NULL && a.dk != NULL && a.dv != NULL && a.dkc != NULL &&
                a.dvc != NULL && a.scratch != NULL);
    m->zero(m, a.dk, nk * 4);
    m->zero(m, a.dv, nk * 4);
    m->zero(m, a.dkc, nc * 4);
    m->zero(m, a.dvc, nc * 4);
    m->attend(m, &a);
    m->attend_back(m, &a);
    same("attention o", a.o, ref.o, nq, 1e-5);
    same("attention lse", a.lse, ref.lse, nl, 1e-5);
    same("attention dq", a.dq, ref.dq, nq, 1e-4);
    same("attention dk", a.dk, ref.dk, nk, 1e-4);
    same("attention dv", a.dv, ref.dv, nk, 1e-4);
    same("attention dkc", a.dkc, ref.dkc, nc, 1e-4);
    same("attention dvc", a.dvc, ref.dvc, nc, 1e-4);
    const void *const rest[] = { a.block, a.text, a.q, a.k, a.v, a.kc, a.vc, a.d_o, a.scratch };

    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        m->give(m, (void *)(uintptr_t)rest[i]);
    free(h.q);
    free(h.d_o);
    free(h.k);
    free(h.v);
    free(h.kc);
    free(h.vc);
}

static void test_attention(void **state)
{
    (void)state;
    if (m == NULL)
        skip();
    check_attention(4, 2, 6);
    check_attention(2, 2, 32);
    check_attention(4, 2, 64);
    check_attention(4, 1, 128);
    check_attention(2, 1, 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products), cmocka_unit_test(test_norms),     cmocka_unit_test(test_rope),
        cmocka_unit_test(test_elements), cmocka_unit_test(test_rows),      cmocka_unit_test(test_cross_entropy),
        cmocka_unit_test(test_adam),     cmocka_unit_test(test_attention),
    };

    return cmocka_run_group_tests(tests, open_math, close_math);
}
