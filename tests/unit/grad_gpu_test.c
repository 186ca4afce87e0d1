/* SPDX-License-Identifier: Apache-2.0 */
/* grad_gpu_test.c - gradients on a device against the host's, which are the specification: each operation of a pass
 * alone, with the host's inputs; whole passes, the matrices' gradients by their cosine; weights as floats and as they
 * are stored; noise. Skipped without a device to test (CHIMERE_TEST_DEVICE). */
#include <math.h>

#include "base/rng.h"
#include "golden.h"
#include "grad/internal.h"

enum { RANK = 3, SEQS = 4, ROWS = 40, BLOCK = 256, SPARE = (1 << 26) + (1 << 22) /* floats of a device's scratch */ };

static const char *device(void)
{
    const char *name = getenv("CHIMERE_TEST_DEVICE");

    return name == NULL || strncmp(name, "cuda", 4) != 0 ? NULL : name;
}

/* Sequences with losses of both kinds, and two adapters for every matrix: of different sequences, one also for one
 * sequence of the other. */
struct work {
    struct grad_seq seq[SEQS];
    int32_t token[SEQS][ROWS], target[SEQS][ROWS];
    struct grad_soft said[ROWS];
    struct grad_adapter *a;
    int n;
};
static const int lengths[SEQS] = { 7, ROWS, 1, 19 };

static float *floats(int64_t n, float size, uint64_t stream)
{
    float *v = malloc((size_t)n * sizeof *v);

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++)
        v[i] = size * (float)rng_gauss(9, stream, (uint64_t)i);
    return v;
}

static void add_adapter(struct work *w, const struct grad *g, int matrix, int from, int to)
{
    const struct grad_matrix *m = grad_matrix_at(g, matrix);
    const int64_t n_a = m->n_expert * m->n_in * RANK, n_b = m->n_expert * m->n_out * RANK;
    struct grad_adapter *a = &w->a[w->n++];

    *a = (struct grad_adapter){ .matrix = matrix, .rank = RANK, .scale = 0.5f, .from = from, .to = to };
    a->a = floats(n_a, 0.15f, (uint64_t)(2 * w->n));
    a->b = floats(n_b, 0.05f, (uint64_t)(2 * w->n + 1));
    a->da = calloc((size_t)n_a, sizeof(float));
    a->db = calloc((size_t)n_b, sizeof(float));
    assert_non_null(a->da);
    assert_non_null(a->db);
}

static void work_make(struct work *w, const struct grad *g)
{
    const double n_vocab = grad_n_vocab(g);
    uint64_t at = 0;

    memset(w, 0, sizeof *w);
    w->a = calloc(3 * (size_t)grad_n_matrices(g), sizeof *w->a);
    assert_non_null(w->a);
    for (int i = 0; i < grad_n_matrices(g); i++) {
        if (i == g->embd)
            continue;
        add_adapter(w, g, i, 0, 2);
        add_adapter(w, g, i, 2, SEQS);
        add_adapter(w, g, i, 1, 3);
    }
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < GRAD_SOFT; k++) {
            w->said[i].id[k] = (i * 7 + k * 3) % (int)n_vocab;
            w->said[i].p[k] = 0.6f / (float)((k + 1) * (k + 2));
        }
    for (int s = 0; s < SEQS; s++) {
        w->seq[s] = (struct grad_seq){ w->token[s], w->target[s], lengths[s], 0.1f, NULL, s == 1 ? w->said : NULL };
        for (int i = 0; i < lengths[s]; i++) {
            w->token[s][i] = (int32_t)(n_vocab * rng_unit(9, 0, at++));
            w->target[s][i] = i % 3 == 1 ? -1 : (int32_t)(n_vocab * rng_unit(9, 1, at++));
        }
    }
}

static void work_free(struct work *w)
{
    for (int i = 0; i < w->n; i++) {
        free((void *)(uintptr_t)w->a[i].a);
        free((void *)(uintptr_t)w->a[i].b);
        free(w->a[i].da);
        free(w->a[i].db);
    }
    free(w->a);
}

static struct grad_batch batch_of(struct work *w)
{
    return (struct grad_batch){ .seq = w->seq, .n_seq = SEQS, .adapter = w->a, .n_adapter = w->n };
}

/* ---- each operation ---- */

/* A pass of the host's is under way; before each operation the device gets all of its memory, and after it what both
 * have written is compared. */
static struct {
    struct grad *gpu;
    struct pass p; /* the device's */
    struct work w; /* its adapters */
    struct grad_batch b;
    const float *base; /* the host's memory, and where it is on the device: */
    float *there;
    int64_t from, own;
    float *before, *got;
    int n, bad;
} twin;

static void *on_device(const struct pass *p, const void *at)
{
    const float *v = at;

    if (at == NULL)
        return NULL;
    assert_true(v >= p->stack.base && v < p->stack.base + p->stack.top);
    return twin.there + (v - p->stack.base);
}

/* A struct of nothing but pointers into memory. */
static void all_on_device(const struct pass *p, void *to, const void *from, size_t bytes)
{
    void *v[64];

    assert_true(bytes <= sizeof v);
    memcpy(v, from, bytes);
    for (size_t i = 0; i < bytes / sizeof v[0]; i++)
        v[i] = on_device(p, v[i]);
    memcpy(to, v, bytes);
}

static const float *vector_there(const struct pass *p, const float *v)
{
    const struct grad *h = p->g, *d = twin.gpu;

    for (int i = 0; i < h->plan.n_layer; i++)
        if (v == h->layer[i].mix_norm)
            return d->layer[i].mix_norm;
        else if (v == h->layer[i].ffn_norm)
            return d->layer[i].ffn_norm;
    fail_msg("%s", "a norm of no layer");
    return NULL;
}

/* Where in the device's layers something is that the host has. */
static const void *layer_there(const struct pass *p, const void *at)
{
    return (const char *)twin.gpu->layer + ((const char *)at - (const char *)p->g->layer);
}

static void go(const struct pass *p)
{
    const int64_t n = p->stack.used - twin.from;

    memcpy(twin.before, p->stack.base, (size_t)p->stack.used * sizeof(float));
    twin.p.stack.used = twin.own + p->stack.used;
    twin.gpu->ops->copy(&twin.p, twin.there + twin.from, p->stack.base + twin.from, n);
}

/* Numbers that are whole, and rows' numbers, are floats without an exponent. */
static bool whole(float v)
{
    return v != 0.0f && fabsf(v) < 1e-38f;
}

static void compare(const struct pass *p, const char *what)
{
    const float *h = p->stack.base, *d = twin.got;
    const int64_t end = p->stack.used;
    double worst = 0, top = 0;
    int64_t where = -1, written = 0;
    struct err e = { 0 };

    twin.gpu->ops->copy(&twin.p, twin.got + twin.from, twin.there + twin.from, end - twin.from);
    for (int64_t i = twin.from; i < end; i++)
        if (memcmp(&h[i], &twin.before[i], sizeof h[i]) != 0 || memcmp(&d[i], &twin.before[i], sizeof d[i]) != 0)
            top = fmax(top, fabs((double)h[i]));
    for (int64_t i0 = twin.from; i0 < end; i0 += BLOCK) {
        double apart = 0, size = 1e-5 * top + 1e-30;

        for (int64_t i = i0; i < end && i < i0 + BLOCK; i++) {
            if (memcmp(&h[i], &twin.before[i], sizeof h[i]) == 0 && memcmp(&d[i], &twin.before[i], sizeof d[i]) == 0)
                continue;
            written++;
            size = fmax(size, fabs((double)h[i]));
            apart = fmax(apart, memcmp(&h[i], &d[i], sizeof h[i]) == 0          ? 0
                                : whole(h[i]) || whole(d[i]) || !isfinite(d[i]) ? INFINITY
                                                                                : fabs((double)h[i] - (double)d[i]));
        }
        if (apart / size > worst) {
            worst = apart / size;
            where = i0 - twin.from;
        }
    }
    twin.n++;
    if (worst < 2e-4 &&
        (written > 0 || strcmp(what, "zero") == 0 || strcmp(what, "copy") == 0 || strcmp(what, "loss") == 0))
        return;
    if (twin.bad++ < 40)
        print_message("  operation %d, %s: %.2e apart at %lld, %lld written (%s)\n", twin.n, what, worst,
                      (long long)where, (long long)written, twin.gpu->ops->end(&twin.p, &e) ? e.msg : "no error");
}

#define HOST grad_host_ops

static bool begin(struct pass *p)
{
    const bool ok = HOST.begin(p);
    int64_t floats_all;

    if (p->stack.base == NULL)
        return ok;
    twin.from = p->stack.used;
    twin.p = *p;
    twin.p.g = twin.gpu;
    twin.p.b = &twin.b;
    twin.p.stack = (struct stack){ 0 };
    assert_true(twin.gpu->ops->begin(&twin.p));
    twin.own = (twin.p.stack.used + 15) / 16 * 16;
    floats_all = twin.own + p->g->memory_floats + SPARE;
    twin.p.stack.base = twin.gpu->ops->memory(twin.gpu, floats_all);
    assert_non_null(twin.p.stack.base);
    twin.p.stack.used = 0;
    assert_true(twin.gpu->ops->begin(&twin.p));
    twin.there = twin.p.stack.base + twin.own;
    twin.before = malloc((size_t)p->g->memory_floats * sizeof(float));
    twin.got = malloc((size_t)p->g->memory_floats * sizeof(float));
    assert_non_null(twin.before);
    assert_non_null(twin.got);
    memset(p->stack.base + twin.from, 0, (size_t)(p->g->memory_floats - twin.from) * sizeof(float));
    p->stack.top = p->g->memory_floats;
    return ok;
}

static enum err_code end(struct pass *p, struct err *e)
{
    (void)p;
    return twin.gpu->ops->end(&twin.p, e);
}

static void zero(const struct pass *p, float *x, int64_t n)
{
    HOST.zero(p, x, n);
}

static void copy(const struct pass *p, float *to, const float *from, int64_t n)
{
    HOST.copy(p, to, from, n);
}

static void add(const struct pass *p, float *y, const float *x, int64_t n)
{
    go(p);
    HOST.add(p, y, x, n);
    twin.gpu->ops->add(&twin.p, on_device(p, y), on_device(p, x), n);
    compare(p, "add");
}

static void embed(const struct pass *p, float *x)
{
    go(p);
    HOST.embed(p, x);
    twin.gpu->ops->embed(&twin.p, on_device(p, x));
    compare(p, "embed");
}

static void norm(const struct pass *p, float *y, const float *x, const float *w, int64_t n, int64_t rows)
{
    go(p);
    HOST.norm(p, y, x, w, n, rows);
    twin.gpu->ops->norm(&twin.p, on_device(p, y), on_device(p, x), vector_there(p, w), n, rows);
    compare(p, "norm");
}

static void norm_back(const struct pass *p, float *dx, const float *dy, const float *x, const float *w, int64_t n,
                      int64_t rows)
{
    go(p);
    HOST.norm_back(p, dx, dy, x, w, n, rows);
    twin.gpu->ops->norm_back(&twin.p, on_device(p, dx), on_device(p, dy), on_device(p, x), vector_there(p, w), n, rows);
    compare(p, "norm_back");
}

static struct moe_acts pairs_there;
static struct at at_there(const struct pass *p, struct at at)
{
    if (at.pairs != NULL) {
        all_on_device(p, &pairs_there, at.pairs, sizeof pairs_there);
        at.pairs = &pairs_there;
    }
    return at;
}

static void product(const struct pass *p, struct at at, float *y, const float *x, int64_t n)
{
    go(p);
    HOST.product(p, at, y, x, n);
    twin.gpu->ops->product(&twin.p, at_there(p, at), on_device(p, y), on_device(p, x), n);
    compare(p, grad_matrix_at(p->g, at.matrix)->name);
}

static void product_back(const struct pass *p, struct at at, float *dx, const float *dy, const float *x, int64_t n)
{
    go(p);
    HOST.product_back(p, at, dx, dy, x, n);
    twin.gpu->ops->product_back(&twin.p, at_there(p, at), on_device(p, dx), on_device(p, dy), on_device(p, x), n);
    compare(p, grad_matrix_at(p->g, at.matrix)->name);
}

/* Operations whose acts are their own struct. */
#define ACTS(type, name) \
    struct type name; \
    all_on_device(p, &(name), a, sizeof(name)); \
    go(p)

static void attn(struct pass *p, const struct attn_at *w, const struct attn_acts *a)
{
    if (p->stack.base == NULL) {
        HOST.attn(p, w, a);
        return;
    }
    ACTS(attn_acts, d);
    HOST.attn(p, w, a);
    twin.gpu->ops->attn(&twin.p, layer_there(p, w), &d);
    compare(p, "attn");
}

static void attn_back(struct pass *p, const struct attn_at *w, const struct attn_acts *a, float *dgated, float *dqg,
                      float *dk, float *dv)
{
    if (p->stack.base == NULL) {
        HOST.attn_back(p, w, a, dgated, dqg, dk, dv);
        return;
    }
    ACTS(attn_acts, d);
    HOST.attn_back(p, w, a, dgated, dqg, dk, dv);
    twin.gpu->ops->attn_back(&twin.p, layer_there(p, w), &d, on_device(p, dgated), on_device(p, dqg), on_device(p, dk),
                             on_device(p, dv));
    compare(p, "attn_back");
}

static void gdn(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a)
{
    if (p->stack.base == NULL) {
        HOST.gdn(p, w, a);
        return;
    }
    ACTS(gdn_acts, d);
    HOST.gdn(p, w, a);
    twin.gpu->ops->gdn(&twin.p, layer_there(p, w), &d);
    compare(p, "gdn");
}

static void gdn_back(struct pass *p, const struct gdn_at *w, const struct gdn_acts *a, const float *dgated,
                     const struct gdn_grads *grads)
{
    struct gdn_grads g;

    if (p->stack.base == NULL) {
        HOST.gdn_back(p, w, a, dgated, grads);
        return;
    }
    ACTS(gdn_acts, d);
    all_on_device(p, &g, grads, sizeof g);
    HOST.gdn_back(p, w, a, dgated, grads);
    twin.gpu->ops->gdn_back(&twin.p, layer_there(p, w), &d, on_device(p, dgated), &g);
    compare(p, "gdn_back");
}

static void glu(const struct pass *p, const struct glu_acts *a, int64_t n)
{
    struct glu_acts d = *a;

    d.out = NULL; /* it may be the next layer's input */
    all_on_device(p, &d, &d, sizeof d);
    go(p);
    HOST.glu(p, a, n);
    twin.gpu->ops->glu(&twin.p, &d, n);
    compare(p, "glu");
}

static void glu_back(const struct pass *p, const struct glu_acts *a, const float *dh, int64_t n)
{
    ACTS(glu_acts, d);
    HOST.glu_back(p, a, dh, n);
    twin.gpu->ops->glu_back(&twin.p, &d, on_device(p, dh), n);
    memset(a->h, 0, (size_t)n * sizeof *a->h); /* scratch */
    twin.gpu->ops->zero(&twin.p, d.h, n);
    compare(p, "glu_back");
}

static void route(const struct pass *p, const struct moe_acts *a, const float *x)
{
    ACTS(moe_acts, d);
    HOST.route(p, a, x);
    twin.gpu->ops->route(&twin.p, &d, on_device(p, x));
    compare(p, "route");
}

static void moe_sum(const struct pass *p, const struct moe_acts *a, float *y)
{
    ACTS(moe_acts, d);
    HOST.moe_sum(p, a, y);
    twin.gpu->ops->moe_sum(&twin.p, &d, on_device(p, y));
    compare(p, "moe_sum");
}

static void moe_sum_back(const struct pass *p, const struct moe_acts *a, const float *dy, const struct moe_grads *grads)
{
    struct moe_grads g;
    ACTS(moe_acts, d);

    all_on_device(p, &g, grads, sizeof g);
    HOST.moe_sum_back(p, a, dy, grads);
    twin.gpu->ops->moe_sum_back(&twin.p, &d, on_device(p, dy), &g);
    compare(p, "moe_sum_back");
}

static void gather_back(const struct pass *p, const struct moe_acts *a, float *dx, const float *dpair)
{
    ACTS(moe_acts, d);
    HOST.gather_back(p, a, dx, dpair);
    twin.gpu->ops->gather_back(&twin.p, &d, on_device(p, dx), on_device(p, dpair));
    compare(p, "gather_back");
}

static double loss(struct pass *p, float *dx, const float *x)
{
    double h, d;

    if (p->stack.base == NULL)
        return HOST.loss(p, dx, x);
    go(p);
    h = HOST.loss(p, dx, x);
    d = twin.gpu->ops->loss(&twin.p, on_device(p, dx), on_device(p, x));
    compare(p, "loss");
    if (fabs(h - d) > 1e-5 * fabs(h)) {
        print_message("  loss %.7f, not %.7f\n", d, h);
        twin.bad++;
    }
    return h;
}

static const struct grad_ops both = {
    .begin = begin,
    .end = end,
    .zero = zero,
    .copy = copy,
    .add = add,
    .embed = embed,
    .norm = norm,
    .norm_back = norm_back,
    .product = product,
    .product_back = product_back,
    .attn = attn,
    .attn_back = attn_back,
    .gdn = gdn,
    .gdn_back = gdn_back,
    .glu = glu,
    .glu_back = glu_back,
    .route = route,
    .moe_sum = moe_sum,
    .moe_sum_back = moe_sum_back,
    .gather_back = gather_back,
    .loss = loss,
};

static void close_enough(const char *what, const float *a, const float *b, int64_t n, int *bad)
{
    double ab = 0, aa = 0, bb = 0;

    for (int64_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    if (aa > 0 && ab / sqrt(aa * bb) > 0.9999 && fabs(sqrt(bb / aa) - 1.0) < 1e-3)
        return;
    if (aa == 0 && bb == 0) /* an expert's that no row uses, or a matrix below the last layer's loss */
        return;
    if ((*bad)++ < 30)
        print_message("  %s: cosine 1 - %.1e, norm %.6g, not %.6g\n", what, 1.0 - ab / sqrt(aa * bb), sqrt(bb),
                      sqrt(aa));
}

static void gradients_close(const struct grad *g, const struct work *host, const struct work *gpu, int *bad)
{
    for (int i = 0; i < host->n; i++) {
        const struct grad_matrix *m = grad_matrix_at(g, host->a[i].matrix);

        close_enough(m->name, host->a[i].da, gpu->a[i].da, m->n_expert * m->n_in * RANK, bad);
        close_enough(m->name, host->a[i].db, gpu->a[i].db, m->n_expert * m->n_out * RANK, bad);
    }
}

static void operations_of(const char *path)
{
    struct gguf *gguf;
    struct grad *host;
    struct grad_ops table = both;
    struct work w;
    struct err e = { 0 };
    double sum;

    memset(&twin, 0, sizeof twin);
    if (gguf_open(&gguf, path, &e) || grad_open(&host, gguf, 2, &e) ||
        grad_open_on(&twin.gpu, gguf, device(), 0, 2, &e))
        fail_msg("%s", e.msg);
    work_make(&w, host);
    work_make(&twin.w, host);
    twin.b = batch_of(&twin.w);
    const struct grad_batch b = batch_of(&w);
    table.memory = HOST.memory;
    host->ops = &table;
    if (grad_backward(host, &b, &sum, &e))
        fail_msg("%s", e.msg);
    gradients_close(host, &w, &twin.w, &twin.bad);
    print_message("%s: %d operations, %d apart\n", path, twin.n, twin.bad);
    assert_int_equal(twin.bad, 0);
    free(twin.before);
    free(twin.got);
    work_free(&w);
    work_free(&twin.w);
    host->ops = &HOST;
    grad_close(host);
    grad_close(twin.gpu);
    gguf_close(gguf);
}

/* ---- whole passes ---- */

static void passes_of(const char *path, int64_t bytes)
{
    struct gguf *gguf;
    struct grad *host, *gpu;
    struct work w[2], again;
    struct err e = { 0 };
    double sum[3], each[3][SEQS];
    int bad = 0;

    if (gguf_open(&gguf, path, &e) || grad_open(&host, gguf, 2, &e) || grad_open_on(&gpu, gguf, device(), bytes, 2, &e))
        fail_msg("%s", e.msg);
    work_make(&w[0], host);
    work_make(&w[1], host);
    work_make(&again, host);
    struct grad_batch b[3] = { batch_of(&w[0]), batch_of(&w[1]), batch_of(&again) };
    b[1].keep = true;
    for (int i = 0; i < 3; i++) {
        b[i].seq_loss = each[i];
        if (grad_backward(i == 0 ? host : gpu, &b[i], &sum[i], &e))
            fail_msg("%s", e.msg);
    }
    gradients_close(host, &w[0], &w[1], &bad);
    print_message("%s: loss %.7f on the device, %.7f on the host\n", path, sum[1], sum[0]);
    assert_true(fabs(sum[1] - sum[0]) <= 1e-5 * fabs(sum[0]));
    assert_int_equal(bad, 0);
    assert_true(sum[1] == sum[2]);
    assert_memory_equal(each[1], each[2], sizeof each[1]);
    for (int i = 0; i < w[1].n; i++) { /* the same bytes when layers are computed again */
        const struct grad_matrix *m = grad_matrix_at(host, w[1].a[i].matrix);

        assert_memory_equal(w[1].a[i].da, again.a[i].da, (size_t)(m->n_expert * m->n_in * RANK) * sizeof(float));
        assert_memory_equal(w[1].a[i].db, again.a[i].db, (size_t)(m->n_expert * m->n_out * RANK) * sizeof(float));
    }
    for (int i = 0; i < 2; i++)
        work_free(&w[i]);
    work_free(&again);
    grad_close(host);
    grad_close(gpu);
    gguf_close(gguf);
}

static const char *const models[] = {
    "tests/golden/models/qwen35moe-a.gguf",
    "tests/golden/models/qwen3next-a.gguf",
    "tests/golden/models/qwen35moe-k.iq3_s.gguf",
    "share/models/chimere-nano-q5_k_m.gguf",
};
enum { MODELS = sizeof models / sizeof models[0] };

static void test_operations(void **state)
{
    (void)state;
    if (device() == NULL)
        skip();
    for (int i = 0; i < MODELS; i++)
        operations_of(models[i]);
}

static void test_passes(void **state)
{
    (void)state;
    if (device() == NULL)
        skip();
    for (int i = 0; i < MODELS; i++)
        passes_of(models[i], 0);
}

/* Too little memory for floats, then for all that is stored, and next to none. */
static void test_little_memory(void **state)
{
    static const char path[] = "share/models/chimere-nano-q5_k_m.gguf";
    struct gguf *gguf;
    struct grad *host, *gpu;
    struct work w;
    struct err e = { 0 };
    double sum[2];

    (void)state;
    if (device() == NULL)
        skip();
    passes_of(path, 240 << 20);
    if (gguf_open(&gguf, path, &e) || grad_open(&host, gguf, 2, &e) ||
        grad_open_on(&gpu, gguf, device(), 32 << 20, 2, &e))
        fail_msg("%s", e.msg);
    work_make(&w, host);
    const struct grad_batch b = { .seq = w.seq, .n_seq = SEQS };
    if (grad_forward(host, &b, &sum[0], &e) || grad_forward(gpu, &b, &sum[1], &e))
        fail_msg("%s", e.msg);
    print_message("loss %.7f, %.7f on the host; room for %.1f MB\n", sum[1], sum[0], (double)grad_room(gpu) / 1e6);
    assert_true(fabs(sum[1] - sum[0]) <= 1e-5 * fabs(sum[0]));
    grad_close(gpu);
    gpu = NULL;
    assert_int_equal(grad_open_on(&gpu, gguf, device(), 1 << 16, 2, &e), ERR_NOMEM);
    assert_null(gpu);
    work_free(&w);
    grad_close(host);
    gguf_close(gguf);
}

/* Copies with noise and a step, of tensors of odd lengths, with momentum and without. */
static void noise_of(struct grad *g, float *moved, float *theta, float *u, bool momentum)
{
    static const int64_t tensor[] = { 0, 5, 12, 5000, 5001, 9000 };
    enum { N = 9000, SAMPLES = 3 };
    const struct grad_noise z = { 0x1234567890abcdefu, 7, 1, SAMPLES, tensor, 5 };
    const float part[SAMPLES] = { 0.25f, -1.5f, 3e-3f };
    float *from = floats(N, 1.0f, 3), *m, *t, *v = NULL;
    struct err e = { 0 };

    if (grad_params_open(&m, g, 2 * SAMPLES * N, &e) || grad_params_open(&t, g, N, &e) ||
        (momentum && grad_params_open(&v, g, N, &e)))
        fail_msg("%s", e.msg);
    grad_params_copy(g, t, from, N);
    grad_noise_pairs(g, &z, m, t, 0x1p-7f);
    grad_noise_add(g, &z, t, v, 0.5f, part);
    grad_noise_add(g, &z, t, v, 0.5f, part);
    grad_params_copy(g, moved, m, 2 * SAMPLES * N);
    grad_params_copy(g, theta, t, N);
    if (momentum)
        grad_params_copy(g, u, v, N);
    grad_params_close(g, m);
    grad_params_close(g, t);
    grad_params_close(g, v);
    free(from);
}

static void test_noise(void **state)
{
    enum { N = 9000, ALL = 8 * N };
    struct gguf *gguf;
    struct grad *host, *gpu;
    struct err e = { 0 };
    float *a = calloc(ALL, sizeof *a), *b = calloc(ALL, sizeof *b);
    int64_t same = 0;

    (void)state;
    if (device() == NULL) {
        free(a);
        free(b);
        skip();
    }
    assert_true(a != NULL && b != NULL);
    if (gguf_open(&gguf, models[0], &e) || grad_open(&host, gguf, 2, &e) ||
        grad_open_on(&gpu, gguf, device(), 0, 2, &e))
        fail_msg("%s", e.msg);
    for (int momentum = 0; momentum < 2; momentum++) {
        noise_of(host, a, a + 6 * N, a + 7 * N, momentum);
        noise_of(gpu, b, b + 6 * N, b + 7 * N, momentum);
        for (int i = 0; i < ALL; i++) {
            assert_true(fabsf(a[i] - b[i]) <= 1e-6f * (1 + fabsf(a[i])));
            same += memcmp(&a[i], &b[i], sizeof a[i]) == 0;
        }
    }
    print_message("noise: %lld of %d numbers have the same bytes\n", (long long)same, 2 * ALL);
    grad_close(host);
    grad_close(gpu);
    gguf_close(gguf);
    free(a);
    free(b);
}

/* The dense family is not among the small models of the tests. */
static void test_goldens(void **state)
{
    const char *goldens = getenv("GOLDENS");
    char path[1024];

    (void)state;
    if (device() == NULL || goldens == NULL || *goldens == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/models/qwen35-a.gguf", goldens);
    operations_of(path);
    passes_of(path, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_operations), cmocka_unit_test(test_passes),  cmocka_unit_test(test_little_memory),
        cmocka_unit_test(test_noise),      cmocka_unit_test(test_goldens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
