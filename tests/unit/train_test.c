/* SPDX-License-Identifier: Apache-2.0 */
/* train_test.c - the block network that is trained: its forward pass against reference data, its
 * gradient against differences of the loss. */
#include <math.h>

#include "base/json.h"
#include "base/pool.h"
#include "base/rng.h"
#include "golden.h"
#include "quant/quant.h"
#include "run/run.h"
#include "train/adam.h"
#include "train/file.h"
#include "train/gate.h"
#include "train/host.h"
#include "train/muon.h"
#include "train/net.h"
#include "train/texts.h"

static struct pool *pool_of(int n)
{
    struct pool *p;
    struct err e = { 0 };

    if (pool_open(&p, n, &e))
        fail_msg("%s", e.msg);
    return p;
}

static float *noise(int64_t n, uint64_t seed)
{
    float *v = malloc((size_t)n * sizeof *v);

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = rng_gauss(seed, 7, (uint64_t)i);
    return v;
}

/* ---- against reference data ---- */

/* Features of a text, as a run's taps have them, in BF16 as the trainer keeps them, or exactly in two halves. */
struct text_rows {
    uint16_t *feature;
    int32_t *pos, *ids;
    int64_t n;
};

/* The device that is tested, with products in full float32; the pool serves where that is the host. */
static struct dev_math *math_of(struct pool *pool)
{
    struct dev_math *m;
    struct err e = { 0 };

    if (strncmp(test_device(), "cuda", 4) == 0 && dev_math_built() ? dev_math_open(&m, test_device(), &e)
                                                                   : train_host_open(&m, pool, &e))
        fail_msg("%s", e.msg);
    return m;
}

static void *sent(struct dev_math *m, const void *v, int64_t bytes)
{
    void *p = m->take(m, bytes);

    assert_non_null(p);
    m->put(m, p, v, bytes);
    return p;
}

static void read_features(struct text_rows *t, const char *model, const struct train_shape *s, const int32_t *ids,
                          int64_t n)
{
    const struct model_opts mo = { .device = "cpu", .n_threads = 2, .acts = QUANT_ACTS_F32 };
    struct run_opts ro = { .ctx_tokens = 640, .rows_max = 640, .tap_layers = s->tap, .n_taps = s->n_tap };
    const int64_t d = s->n_embd;
    float *row = malloc((size_t)d * sizeof *row);
    struct err e = { 0 };
    struct rig rig = { 0 };

    if (gguf_open(&rig.g, model, &e) || model_open(&rig.m, rig.g, &mo, &e) || run_open(&rig.r, rig.m, &ro, &e) ||
        run_feed(rig.r, 0, ids, n, 1, NULL, NULL, NULL, &e))
        fail_msg("%s", e.msg);
    *t = (struct text_rows){ calloc((size_t)(n * d * s->n_tap), 2), calloc((size_t)n, 4), NULL, n };
    assert_true(t->feature != NULL && t->pos != NULL && row != NULL);
    for (int64_t i = 0; i < n; i++) {
        t->pos[i] = (int32_t)i;
        for (int k = 0; k < s->n_tap; k++) {
            assert_true(run_tap(rig.r, k, (int)i, row));
            quant_types[QUANT_bf16]->encode(t->feature + (i * s->n_tap + k) * d, row, d, NULL);
        }
    }
    free(row);
    rig_close(&rig);
}

/* Logits of a block, with features rounded to BF16: what that rounding may do is allowed. */
static void check_golden(const char *dir, const char *name, const json_t *about)
{
    static const char *const file[] = { "block16.logits.f32", "block8.logits.f32" };
    const json_t *starts = json_object_get(about, "starts");
    struct train_shape s = { .ctx_tokens = 640 };
    struct pool *pool = pool_of(2);
    struct dev_math *m = math_of(pool);
    char path[4096], model[4096];
    struct train_frozen frozen;
    struct train_net net;
    struct gguf *g, *target;
    struct err e = { 0 };
    struct text_rows t;
    int64_t n = 0, n_ref = 0;

    (void)snprintf(model, sizeof model, "%s/%s", dir, json_string_value(json_object_get(about, "target")));
    (void)snprintf(path, sizeof path, "%s/%s", dir, json_string_value(json_object_get(about, "drafter")));
    if (gguf_open(&g, path, &e) || train_shape_read(&s, g, &e) || train_net_open(&net, &s, m, &e) ||
        train_net_read(&net, g, &e) || gguf_open(&target, model, &e) ||
        train_frozen_open(&frozen, target, s.n_embd, m, &e))
        fail_msg("%s", e.msg);
    (void)snprintf(path, sizeof path, "%s/%s/ids.i32", dir, name);
    int32_t *ids = words_of(path, &n);
    assert_non_null(ids);
    read_features(&t, model, &s, ids, n);
    int32_t *from = calloc((size_t)t.n, sizeof *from);
    uint16_t *feature = sent(m, t.feature, t.n * s.n_tap * s.n_embd * 2);

    assert_non_null(from);
    for (int64_t i = 0; i < t.n; i++)
        from[i] = (int32_t)i;
    for (int f = 0; f < 2; f++) {
        const int size = f == 0 ? 16 : 8, blocks = (int)json_array_size(starts);
        struct dev_block block[8];
        int32_t token[8 * 16], best[8 * 16];
        float *logits = calloc((size_t)(blocks * size) * (size_t)frozen.t.n_vocab, sizeof *logits);
        double worst = 0;

        (void)snprintf(path, sizeof path, "%s/%s/%s", dir, name, file[f]);
        float *ref = words_of(path, &n_ref);
        assert_true(logits != NULL && blocks <= 8 && (ref != NULL || f == 1));
        if (ref == NULL) {
            free(logits);
            continue;
        }
        for (int i = 0; i < blocks; i++) {
            block[i] = (struct dev_block){ i * size, size, 0, json_integer_value(json_array_get(starts, (size_t)i)) };
            for (int j = 0; j < size; j++)
                token[i * size + j] = j == 0 ? ids[block[i].start] : s.mask;
        }
        const struct train_batch b = { t.n, feature, from, t.pos, blocks, block, blocks * size, token, NULL, NULL };

        for (int again = 0; again < 2; again++) {
            if (train_net_guess(&net, &frozen.t, &b, again == 1, best, logits, &e))
                fail_msg("%s", e.msg);
            for (int64_t i = 0; i < n_ref; i++) {
                const double diff = fabs((double)ref[i] - (double)logits[i]);

                worst = diff > worst ? diff : worst;
                if (!(diff < 0.04))
                    fail_msg("%s: logit %lld is %f, reference %f", path, (long long)i, (double)logits[i],
                             (double)ref[i]);
            }
        }
        print_message("%s, block of %d: %.1e\n", name, size, worst);
        free(ref);
        free(logits);
    }
    free(ids);
    free(t.feature);
    free(t.pos);
    free(from);
    m->give(m, feature);
    train_frozen_close(&frozen);
    train_net_close(&net);
    m->close(m);
    gguf_close(g);
    gguf_close(target);
    pool_close(pool);
}

static void test_golden(void **state)
{
    const char *all = getenv("GOLDENS");
    char dir[1024], path[1100];
    const char *name;
    json_t *manifest, *about;

    (void)state;
    (void)snprintf(dir, sizeof dir, all == NULL || all[0] == '\0' ? "tests/golden/draft" : "%s/draft", all);
    (void)snprintf(path, sizeof path, "%s/manifest.json", dir);
    manifest = json_load_file(path, 0, NULL);
    assert_non_null(manifest);
    json_object_foreach (json_object_get(manifest, "dflash"), name, about)
        check_golden(dir, name, about);
    json_decref(manifest);
}

/* ---- the gradient ---- */

/* A network with its batch. */
struct small {
    struct train_net net;
    struct train_target target;
    struct dev_math *m;
    struct pool *pool;
    float *embd, *head, *dev_head;
    uint16_t *feature;
    int32_t *from, *pos, *token, *want;
    float *weight;
    struct dev_block *block;
    struct train_batch batch;
};
enum { VOCAB = 40, EMBD = 12 };

static void embed_small(const void *ctx, int32_t token, float *row)
{
    const struct small *m = ctx;

    memcpy(row, m->embd + token * m->net.s.n_embd, (size_t)m->net.s.n_embd * sizeof *row);
}

static void *zeros(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);

    assert_non_null(p);
    return p;
}

/* Texts of n_context[] rows; of each as many blocks, of sizes that change, with starts anywhere. */
static void batch_open(struct small *m, const int *n_context, int n_text, int n_block, int64_t n_vocab)
{
    const struct train_shape *s = &m->net.s;
    int64_t rows = 0, context = 0;

    for (int t = 0; t < n_text; t++)
        context += n_context[t];
    m->from = zeros(context, sizeof *m->from);
    m->pos = zeros(context, sizeof *m->pos);
    m->block = zeros(n_text * n_block, sizeof *m->block);
    m->token = zeros(n_text * n_block * s->block, sizeof *m->token);
    m->want = zeros(n_text * n_block * s->block, sizeof *m->want);
    m->weight = zeros(n_text * n_block * s->block, sizeof *m->weight);
    for (int t = 0, at = 0; t < n_text; at += n_context[t++]) {
        for (int i = 0; i < n_context[t]; i++) {
            m->from[at + i] = at + i;
            m->pos[at + i] = i;
        }
        for (int k = 0; k < n_block; k++) {
            const int size = k % 3 == 0 ? s->block : k % 3 == 1 ? s->block / 2 + 1 : 2;
            struct dev_block *b = &m->block[t * n_block + k];

            *b = (struct dev_block){ rows, size, at, k == 0 ? n_context[t] : 1 + k * 37 % n_context[t] };
            for (int j = 0; j < size; j++, rows++) {
                m->token[rows] = j == 0 ? (int32_t)(rows * 7 % n_vocab) : 0;
                m->want[rows] = j == 0 || rows % 6 == 5 ? -1 : (int32_t)(rows * 11 % n_vocab);
                m->weight[rows] = 1.0f / (float)(1 + j);
            }
        }
    }
    m->batch = (struct train_batch){ context,  NULL, m->from,  m->pos,  n_text * n_block,
                                     m->block, rows, m->token, m->want, m->weight };
}

static void open_net(struct small *m, const struct train_shape *s, struct dev_math *math, struct pool *pool,
                     const int *n_context, int n_text, int n_block, int64_t n_vocab)
{
    struct err e = { 0 };

    *m = (struct small){
        .pool = pool, .m = math, .embd = noise(n_vocab * s->n_embd, 5), .head = noise(n_vocab * s->n_embd, 6)
    };
    m->dev_head = sent(math, m->head, n_vocab * s->n_embd * 4);
    m->target = (struct train_target){ n_vocab, m->dev_head, embed_small, m };
    if (train_net_open(&m->net, s, math, &e))
        fail_msg("%s", e.msg);
    train_net_init(&m->net, 1);
    for (int i = 0; i < m->net.n_tensor; i++) /* norms that are not 1 */
        for (int64_t j = 0; m->net.tensor[i].n_out == 1 && j < m->net.tensor[i].n_in; j++)
            m->net.w[m->net.tensor[i].at + j] += 0.3f * rng_gauss(9, (uint64_t)i, (uint64_t)j);
    train_net_push(&m->net);
    batch_open(m, n_context, n_text, n_block, n_vocab);
    const int64_t n = m->batch.n_context * s->n_tap * s->n_embd;
    float *f = noise(n, 4);
    uint16_t *half = zeros(n, sizeof *half);

    quant_types[QUANT_bf16]->encode(half, f, n, NULL);
    m->batch.feature = m->feature = sent(math, half, n * 2);
    free(half);
    free(f);
}

static void small_open(struct small *m)
{
    static const int contexts[] = { 20, 10 };
    const struct train_shape s = { .n_layer = 2,
                                   .n_embd = EMBD,
                                   .n_ff = 17,
                                   .n_head = 4,
                                   .n_head_kv = 2,
                                   .head_dim = 6,
                                   .n_tap = 2,
                                   .tap = { 0, 1 },
                                   .block = 5,
                                   .ctx_tokens = 30,
                                   .mask = 0,
                                   .rope_base = 100,
                                   .eps = 1e-5f };
    struct pool *pool = pool_of(2);

    open_net(m, &s, math_of(pool), pool, contexts, 2, 3, VOCAB);
}

static void small_close(struct small *m)
{
    train_net_close(&m->net);
    m->m->give(m->m, m->dev_head);
    m->m->give(m->m, m->feature);
    m->m->close(m->m);
    pool_close(m->pool);
    free(m->embd);
    free(m->head);
    free(m->from);
    free(m->pos);
    free(m->token);
    free(m->want);
    free(m->weight);
    free(m->block);
}

static double loss_of(struct small *m)
{
    struct train_loss loss;
    struct err e = { 0 };

    if (train_net_step(&m->net, &m->target, &m->batch, &e) || train_net_loss(&m->net, &loss, &e))
        fail_msg("%s", e.msg);
    return loss.sum / loss.weight;
}

/* Of the last loss_of(). */
static float *gradient_of(struct small *m)
{
    float *grad = zeros(m->net.n_params, sizeof *grad);

    m->m->get(m->m, grad, m->net.grad, m->net.n_params * 4);
    return grad;
}

/* Along a random direction in each tensor the loss changes as its gradient says. */
static void test_gradient(void **state)
{
    const double eps = 2e-2;
    struct small m;
    float *grad, *w;

    (void)state;
    small_open(&m);
    const size_t bytes = (size_t)m.net.n_params * sizeof *grad;

    (void)loss_of(&m);
    grad = gradient_of(&m);
    w = zeros(m.net.n_params, sizeof *w);
    memcpy(w, m.net.w, bytes);
    for (int i = 0; i < m.net.n_tensor; i++) {
        const struct train_tensor *t = &m.net.tensor[i];
        const int64_t n = t->n_in * t->n_out;

        for (int d = 0; d < 3; d++) {
            double slope = 0, size = 0, loss[2];

            for (int64_t j = 0; j < n; j++) {
                const double z = (double)rng_gauss(20 + (uint64_t)d, (uint64_t)i, (uint64_t)j);

                slope += z * (double)grad[t->at + j];
                size += z * z;
            }
            for (int side = 0; side < 2; side++) {
                for (int64_t j = 0; j < n; j++) {
                    const double z = (double)rng_gauss(20 + (uint64_t)d, (uint64_t)i, (uint64_t)j) / sqrt(size);

                    m.net.w[t->at + j] = w[t->at + j] + (float)((side == 0 ? eps : -eps) * z);
                }
                train_net_push(&m.net);
                loss[side] = loss_of(&m);
            }
            memcpy(m.net.w, w, bytes);
            slope /= sqrt(size);
            if (fabs((loss[0] - loss[1]) / (2 * eps) - slope) > 3e-3 * (0.03 + fabs(slope)))
                fail_msg("%s: the loss falls by %g, its gradient says %g", t->name, (loss[0] - loss[1]) / (2 * eps),
                         slope);
        }
    }
    free(w);
    free(grad);
    small_close(&m);
}

/* More threads change the last bits at most; blocks alone give what they give among others. */
static void test_blocks_are_apart(void **state)
{
    struct err e = { 0 };
    struct small m;
    float all[64 * VOCAB], one[8 * VOCAB];
    int32_t best[64];

    (void)state;
    small_open(&m);
    if (train_net_guess(&m.net, &m.target, &m.batch, false, best, all, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < 6; i++) {
        const struct dev_block *k = &m.block[i];
        struct dev_block alone = { 0, k->n, 0, k->start };
        const struct train_batch b = {
            k->start, m.feature + k->context * 2 * EMBD, m.from, m.pos, 1, &alone, k->n, m.token + k->row, NULL, NULL
        };

        if (train_net_guess(&m.net, &m.target, &b, false, best, one, &e))
            fail_msg("%s", e.msg);
        for (int64_t j = 0; j < (int64_t)k->n * VOCAB; j++)
            assert_true(fabsf(one[j] - all[k->row * VOCAB + j]) < 1e-4f);
    }
    small_close(&m);
}

/* Its weights and their moments on the device. */
static struct dev_adam adam_open(struct small *m)
{
    const struct train_adam_opts *o = &train_adam_usual;
    float *none = zeros(m->net.n_params, sizeof *none);
    struct dev_adam a = { m->net.n_params,
                          0,
                          m->net.at,
                          sent(m->m, none, m->net.n_params * 4),
                          sent(m->m, none, m->net.n_params * 4),
                          m->net.grad,
                          NULL,
                          1e-2f,
                          o->b1,
                          o->b2,
                          o->eps,
                          o->decay,
                          o->clip };

    free(none);
    return a;
}

static void adam_close(struct small *m, struct dev_adam *a)
{
    m->m->give(m->m, a->m);
    m->m->give(m->m, a->v);
}

/* A few steps on one batch: the loss falls, and a gradient that is no number changes nothing. */
static void test_learns(void **state)
{
    const float bad = NAN;
    struct dev_adam a;
    struct small m;
    double first, last = 0;

    (void)state;
    small_open(&m);
    a = adam_open(&m);
    first = loss_of(&m);
    for (int i = 0; i < 60; i++) {
        last = loss_of(&m);
        a.step++;
        m.m->adam(m.m, &a);
        assert_true(m.m->norm(m.m) > 0);
    }
    if (!(last < 0.2 * first))
        fail_msg("the loss falls from %g to %g", first, last);
    train_net_pull(&m.net);
    const float was = m.net.w[0];

    m.m->put(m.m, m.net.grad + 3, &bad, sizeof bad);
    m.m->adam(m.m, &a);
    assert_true(isnan(m.m->norm(m.m)));
    train_net_pull(&m.net);
    assert_true(m.net.w[0] >= was && m.net.w[0] <= was);
    adam_close(&m, &a);
    small_close(&m);
}

/* x of rows x columns, made orthogonal as train/muon.h says. */
static void orthogonal(double *x, int64_t rows, int64_t columns)
{
    double *s = zeros(rows * rows, sizeof *s), *t = zeros(rows * rows, sizeof *t),
           *y = zeros(rows * columns, sizeof *y), sum = 0;

    for (int64_t i = 0; i < rows * columns; i++)
        sum += x[i] * x[i];
    for (int64_t i = 0; i < rows * columns; i++)
        x[i] /= sqrt(sum);
    for (int k = 0; k < 5; k++) {
        for (int64_t i = 0; i < rows * rows; i++) {
            s[i] = 0;
            for (int64_t j = 0; j < columns; j++)
                s[i] += x[i / rows * columns + j] * x[i % rows * columns + j];
        }
        for (int64_t i = 0; i < rows * rows; i++) {
            t[i] = -4.775 * s[i];
            for (int64_t j = 0; j < rows; j++)
                t[i] += 2.0315 * s[i / rows * rows + j] * s[j * rows + i % rows];
        }
        for (int64_t i = 0; i < rows * columns; i++) {
            y[i] = 3.4445 * x[i];
            for (int64_t j = 0; j < rows; j++)
                y[i] += t[i / columns * rows + j] * x[j * columns + i % columns];
        }
        memcpy(x, y, (size_t)(rows * columns) * sizeof *x);
    }
    free(s);
    free(t);
    free(y);
}

/* A step of Muon from a given momentum, by its formulas: matrices of every shape; norms stay. */
static void test_muon(void **state)
{
    struct dev_adam a;
    struct small m;
    double loss;

    (void)state;
    small_open(&m);
    loss = loss_of(&m);
    a = adam_open(&m);
    a.step = 1;
    a.rate = 0;
    m.m->adam(m.m, &a); /* so that there is a norm */
    adam_close(&m, &a);
    float *grad = gradient_of(&m), *was = zeros(m.net.n_params, sizeof *was), *start = noise(m.net.n_params, 3);
    float *momentum = sent(m.m, start, m.net.n_params * 4), *scratch = m.m->take(m.m, train_muon_bytes(&m.net));

    assert_true(scratch != NULL && loss > 0);
    memcpy(was, m.net.w, (size_t)m.net.n_params * sizeof *was);
    train_muon_step(&m.net, momentum, 0.1f, scratch);
    train_net_pull(&m.net);
    for (int i = 0; i < m.net.n_tensor; i++) {
        const struct train_tensor *t = &m.net.tensor[i];
        const int64_t n = t->n_in * t->n_out;
        const bool tall = t->n_out > t->n_in;
        double *x = zeros(n, sizeof *x);

        for (int64_t j = 0; j < n; j++) {
            const double u = 1.95 * (double)grad[t->at + j] + 0.95 * 0.95 * (double)start[t->at + j];

            x[tall ? j % t->n_in * t->n_out + j / t->n_in : j] = u;
        }
        if (t->n_out > 1)
            orthogonal(x, tall ? t->n_in : t->n_out, tall ? t->n_out : t->n_in);
        for (int64_t j = 0; j < n; j++) {
            const double step = x[tall ? j % t->n_in * t->n_out + j / t->n_in : j] *
                                (tall ? sqrt((double)t->n_out / (double)t->n_in) : 1);
            const double to = t->n_out == 1 ? (double)was[t->at + j] : (double)was[t->at + j] * 0.998 - 0.1 * step;

            if (fabs((double)m.net.w[t->at + j] - to) > 1e-4)
                fail_msg("%s: %g, not %g", t->name, (double)m.net.w[t->at + j], to);
        }
        free(x);
    }
    m.m->give(m.m, momentum);
    m.m->give(m.m, scratch);
    free(grad);
    free(was);
    free(start);
    small_close(&m);
}

/* Heads that a GPU's kernels have no room for. */
static void test_wide_heads(void **state)
{
    const struct train_shape s = { .n_layer = 1,
                                   .n_embd = 8,
                                   .n_ff = 8,
                                   .n_head = 1,
                                   .n_head_kv = 1,
                                   .head_dim = 258,
                                   .n_tap = 1,
                                   .block = 4,
                                   .ctx_tokens = 8,
                                   .rope_base = 100,
                                   .eps = 1e-5f };
    struct pool *pool = pool_of(1);
    struct dev_math *host, gpu;
    struct train_net net;
    struct err e = { 0 };

    (void)state;
    if (train_host_open(&host, pool, &e))
        fail_msg("%s", e.msg);
    gpu = *host;
    gpu.host = false;
    assert_int_equal(train_net_open(&net, &s, &gpu, &e), ERR_UNSUPPORTED);
    train_net_close(&net);
    assert_int_equal(train_net_open(&net, &s, host, &e), ERR_OK);
    train_net_close(&net);
    host->close(host);
    pool_close(pool);
}

/* ---- a GPU against the host ---- */

static double cosine(const float *x, const float *y, int64_t n)
{
    double xy = 0, xx = 0, yy = 0;

    for (int64_t i = 0; i < n; i++) {
        xy += (double)x[i] * (double)y[i];
        xx += (double)x[i] * (double)x[i];
        yy += (double)y[i] * (double)y[i];
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : xx + yy > 0 ? 0 : 1;
}

/* A network of usual shape: loss and gradient of each tensor, then a few steps. */
static void test_gpu_against_host(void **state)
{
    static const int contexts[] = { 150, 64, 1, 333 };
    enum { N_VOCAB = 1000, STEPS = 5 };
    const struct train_shape s = { .n_layer = 2,
                                   .n_embd = 256,
                                   .n_ff = 300,
                                   .n_head = 4,
                                   .n_head_kv = 2,
                                   .head_dim = 64,
                                   .n_tap = 3,
                                   .tap = { 0, 1, 2 },
                                   .block = 16,
                                   .ctx_tokens = 400,
                                   .mask = 0,
                                   .rope_base = 10000,
                                   .eps = 1e-6f };
    struct small side[2];
    struct dev_adam a[2];
    struct err e = { 0 };

    (void)state;
    if (strcmp(test_device(), "cpu") == 0 || !dev_math_built())
        skip();
    for (int i = 0; i < 2; i++) {
        struct pool *pool = pool_of(4);
        struct dev_math *host;

        if (train_host_open(&host, pool, &e))
            fail_msg("%s", e.msg);
        if (i == 1)
            host->close(host);
        open_net(&side[i], &s, i == 0 ? host : math_of(pool), pool, contexts, 4, 7, N_VOCAB);
        a[i] = adam_open(&side[i]);
        a[i].rate = 1e-3f;
    }
    for (int step = 0; step < STEPS; step++) {
        const double loss[2] = { loss_of(&side[0]), loss_of(&side[1]) };
        float *grad[2] = { gradient_of(&side[0]), gradient_of(&side[1]) };

        print_message("step %d: loss %.7f and %.7f, cosine of gradients %.9f\n", step, loss[0], loss[1],
                      cosine(grad[0], grad[1], side[0].net.n_params));
        assert_true(fabs(loss[0] / loss[1] - 1) < (step == 0 ? 1e-5 : 1e-3));
        for (int i = 0; i < side[0].net.n_tensor; i++) {
            const struct train_tensor *t = &side[0].net.tensor[i];
            const double c = cosine(grad[0] + t->at, grad[1] + t->at, t->n_in * t->n_out);

            if (!(c > (step == 0 ? 0.99999 : 0.999)))
                fail_msg("step %d: the gradient of %s has a cosine of %.8f", step, t->name, c);
        }
        for (int i = 0; i < 2; i++) {
            free(grad[i]);
            a[i].step++;
            side[i].m->adam(side[i].m, &a[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        adam_close(&side[i], &a[i]);
        small_close(&side[i]);
    }
}

/* AdamW's first steps, by hand. */
static void test_adam(void **state)
{
    const struct train_adam_opts o = { 0.9f, 0.99f, 0, 0.1f, 100 };
    const unsigned char decayed[2] = { 1, 0 };
    struct pool *pool = pool_of(1);
    float w[2] = { 1, 1 }, grad[2] = { 0.5f, -2 };
    struct train_adam a;
    struct err e = { 0 };

    (void)state;
    if (train_adam_open(&a, 2, &e))
        fail_msg("%s", e.msg);
    assert_true(fabs(train_adam_step(&a, pool, &o, 0.1f, w, grad, decayed) - sqrt(4.25)) < 1e-6);
    assert_true(fabsf(w[0] - (1 - 0.1f * (1 + 0.1f))) < 1e-6f && fabsf(w[1] - 1.1f) < 1e-6f);
    grad[0] = -0.5f; /* m = 0.9 * 0.05 - 0.05, unbiased by 0.19; v = 0.25 */
    (void)train_adam_step(&a, pool, &o, 0.1f, w, grad, decayed);
    assert_true(fabs((double)w[0] - (0.89 - 0.1 * (-0.005 / 0.19 / 0.5 + 0.1 * 0.89))) < 1e-5);
    assert_true(fabs(train_rate(1, 0, 10, 0) - 0.1) < 1e-9 && fabs(train_rate(1, 99, 10, 0.5) - 0.5) < 1e-9 &&
                fabs(train_rate(1, 99, 10, 2)) < 1e-9);
    train_adam_close(&a);
    pool_close(pool);
}

/* The gate finds a gain, and lets nothing through at 5 % much oftener than that. */
static void test_gate(void **state)
{
    double gain[200];
    int passed = 0;

    (void)state;
    for (int i = 0; i < 200; i++)
        gain[i] = (double)rng_gauss(1, 1, (uint64_t)i) + 0.4;
    assert_true(train_gate(gain, 200, 1) < 0.001);
    for (int i = 0; i < 200; i++)
        gain[i] = -gain[i];
    assert_true(train_gate(gain, 200, 1) > 0.99);
    memset(gain, 0, sizeof gain);
    assert_true(train_gate(gain, 200, 1) >= 1);
    gain[0] = gain[1] = gain[2] = 1; /* 1 of 8 */
    assert_true(fabs(train_gate(gain, 200, 1) - 0.125) < 0.01);
    for (int t = 0; t < 40; t++) {
        for (int i = 0; i < 50; i++)
            gain[i] = (double)rng_gauss(2, (uint64_t)t, (uint64_t)i);
        passed += train_gate(gain, 50, (uint64_t)t) < 0.05;
    }
    assert_true(passed <= 6);
}

/* How many of 1,000 adapters pass that lose this share of n answers, and win that one, in the long run. */
static int passing(int64_t n, double lose, double win, uint64_t seed)
{
    int passed = 0;

    for (uint64_t t = 0; t < 1000; t++) {
        int64_t lost = 0, won = 0;

        for (int64_t i = 0; i < n; i++) {
            const double u = rng_unit(seed, t, (uint64_t)i);

            lost += u < lose;
            won += u >= 1 - win;
        }
        passed += train_loss_bound((double)lost, (double)won, n, TRAIN_Z) <= 0.05;
    }
    return passed;
}

/* The bound of what is lost: known values, and one in twenty at most passes that loses as much as the margin. */
static void test_loss_bound(void **state)
{
    (void)state;
    assert_true(fabs(train_loss_bound(0, 0, 50, TRAIN_Z) - 2.70554 / 52.70554) < 1e-5); /* z^2 / (n + z^2) */
    assert_true(train_loss_bound(4, 0, 200, TRAIN_Z) < 0.05 && train_loss_bound(5, 0, 200, TRAIN_Z) > 0.05);
    assert_true(train_loss_bound(10, 10, 200, TRAIN_Z) < train_loss_bound(20, 20, 200, TRAIN_Z));
    assert_true(train_loss_bound(0, 20, 200, TRAIN_Z) < 0 && train_loss_bound(200, 0, 200, TRAIN_Z) > 0.999);
    assert_true(train_loss_bound(0, 0, 0, TRAIN_Z) >= 1 && train_loss_bound(1, 0, 1, TRAIN_Z) > 0.999);
    assert_in_range(passing(200, 0.05, 0, 1), 5, 70);
    assert_in_range(passing(200, 0.08, 0.03, 2), 20, 70);
    assert_in_range(passing(1000, 0.1, 0.05, 3), 30, 70);
    assert_in_range(passing(200, 0.005, 0, 4), 990, 1000); /* what loses next to nothing passes */
    assert_in_range(passing(1000, 0.02, 0.02, 5), 990, 1000);
}

/* The oldest texts make room; the others are as they came. */
static void test_texts(void **state)
{
    enum { CAP = 100, WIDTH = 3 };
    struct train_texts t;
    struct err e = { 0 };

    (void)state;
    if (train_texts_open(&t, NULL, CAP, WIDTH, &e))
        fail_msg("%s", e.msg);
    for (int i = 0; i < 300; i++) {
        const int n = 2 + i * 7 % 23;
        int32_t token[32];
        uint16_t feature[32 * WIDTH];
        int64_t all = 0;

        for (int j = 0; j < 32 * WIDTH; j++)
            feature[j] = (uint16_t)(i * 100 + j);
        for (int j = 0; j < n; j++)
            token[j] = i * 100 + j;
        if (train_texts_add(&t, (struct train_text_entry){ 0, 1, n, i, i }, token, feature, &e))
            fail_msg("%s", e.msg);
        for (int64_t k = 0; k < t.n; k++) {
            const struct train_text_entry *v = &t.v[k];

            all += v->n;
            assert_int_equal(v->of, i - (int)(t.n - 1 - k));
            assert_true(v->at >= 0 && v->at + v->n <= CAP);
            for (int j = 0; j < v->n; j++)
                assert_int_equal(t.token[v->at + j], v->of * 100 + j);
            for (int j = 0; j < (v->n - 1) * WIDTH; j++)
                assert_int_equal(t.feature[v->at * WIDTH + j], (uint16_t)(v->of * 100 + j));
        }
        assert_true(all <= CAP && (i < 20 || all > CAP / 3));
    }
    train_texts_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient),   cmocka_unit_test(test_blocks_are_apart),
        cmocka_unit_test(test_learns),     cmocka_unit_test(test_muon),
        cmocka_unit_test(test_wide_heads), cmocka_unit_test(test_gpu_against_host),
        cmocka_unit_test(test_adam),       cmocka_unit_test(test_gate),
        cmocka_unit_test(test_loss_bound), cmocka_unit_test(test_texts),
        cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
