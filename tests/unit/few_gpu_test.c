/* SPDX-License-Identifier: Apache-2.0 */
/* few_gpu_test.c - a device that takes several operations of a few rows together: for rows of one sequence, of several,
 * and mixtures of both, the bytes are those of the same operations one by one. Skipped without a device to test. */
#include <math.h>

#include "base/rng.h"
#include "golden.h"
#include "ops/ops.h"
#include "quant/quant.h"

enum { SLOTS = 9, ROWS = 16, AREAS = 32, EMBD = 576, PAGES = 4 /* of a slot */ };

/* Memory of the device, and what it begins with; seen: what the first way of running left. */
struct area {
    float *at, *first, *seen;
    size_t n;
};

static struct dev *gpu;
static struct area area[AREAS];
static int         n_area;
static uint64_t    drawn;

static float draw(void)
{
    uint32_t r[4];

    rng_block(r, 11, 0, drawn++);
    return (float)(r[0] >> 8) / 8388608.0f - 1.0f;
}

/* n floats from -1 to 1; kept: what is in them afterwards counts. */
static float *take(size_t n, bool kept)
{
    struct area *a = &area[n_area++];

    assert_true(n_area <= AREAS);
    *a = (struct area){ dev_alloc(gpu, n * sizeof(float)), calloc(n, sizeof(float)),
                        kept ? calloc(n, sizeof(float)) : NULL, n };
    assert_true(a->at != NULL && a->first != NULL && (!kept || a->seen != NULL));
    for (size_t i = 0; i < n; i++)
        a->first[i] = draw();
    return a->at;
}

static struct tensor take_rows(int64_t width, int n, bool kept)
{
    return (struct tensor){ .type = QUANT_f32, .ne = { width, n, 1 }, .stride = width,
                            .data = take((size_t)(width * n), kept) };
}

static struct tensor take_matrix(int64_t k, int64_t n)
{
    size_t bytes = (size_t)(quant_row_bytes(QUANT_q8_0, k) * n);
    struct tensor w = { .type = QUANT_q8_0, .ne = { k, n, 1 }, .stride = k, .pitch = n };
    float row[4096];

    w.data = take(bytes / sizeof(float) + 1, false);
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < k; j++)
            row[j] = draw();
        quant_types[QUANT_q8_0]->encode((unsigned char *)area[n_area - 1].first + i * quant_row_bytes(QUANT_q8_0, k),
                                        row, k, NULL);
    }
    return w;
}

/* All areas but the first so many. */
static void give_back_to(int n)
{
    while (n_area > n) {
        struct area *a = &area[--n_area];

        dev_free(gpu, a->at, a->n * sizeof(float));
        free(a->first);
        free(a->seen);
    }
}

/* Rows of a step: of each sequence so many, from this position on. */
struct split {
    int n_seq, n[SLOTS], pos[SLOTS];
};
static const struct split splits[] = {
    { 1, { 1 }, { 5 } },
    { 1, { 2 }, { 255 } },
    { 1, { 8 }, { 0 } },
    { 1, { 16 }, { 250 } },
    { 2, { 1, 1 }, { 300, 3 } },
    { 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 0, 1, 255, 256, 257, 511, 700, 30 } },
    { 3, { 5, 1, 4 }, { 253, 600, 0 } },
    { 4, { 1, 9, 2, 3 }, { 255, 500, 255, 7 } },
};

struct rows_of {
    struct op_rows r;
    struct op_seq  seq[SLOTS];
    int32_t        pos[ROWS];
};

static void rows_of(struct rows_of *out, const struct split *s)
{
    *out = (struct rows_of){ .r = { .pos = out->pos, .n_seq = s->n_seq, .seq = out->seq } };
    for (int i = 0; i < s->n_seq; i++) {
        out->seq[i] = (struct op_seq){ out->r.n, s->n[i], (i * 5 + 3) % SLOTS, s->pos[i] };
        for (int j = 0; j < s->n[i]; j++)
            out->pos[out->r.n++] = s->pos[i] + j;
    }
    assert_true(out->r.n <= ROWS);
}

enum way { ONE_BY_ONE, TOGETHER, REPLAYED, WAYS };
typedef void ops_fn(const void *shape, const struct rows_of *r);

/* Launches of the operations, run in this way from what memory began with; what they leave is kept, or compared. */
static uint64_t run_way(enum way way, ops_fn *ops, const void *shape, const struct rows_of *r, const char *what)
{
    struct err e = { 0 };

    for (int i = 0; i < n_area; i++)
        dev_copy(gpu, area[i].at, area[i].first, area[i].n * sizeof(float));
    if (way != TOGETHER)
        dev_time(gpu, true);
    if (way != ONE_BY_ONE)
        dev_begin(gpu);
    ops(shape, r);
    if (dev_end(gpu, &e) != ERR_OK)
        fail_msg("%s: %s", what, e.msg);
    if (way != TOGETHER)
        dev_time(gpu, false);
    for (int i = 0; i < n_area; i++) {
        struct area *a = &area[i];
        float *got = calloc(a->n, sizeof *got);

        assert_non_null(got);
        dev_copy(gpu, got, a->at, a->n * sizeof *got);
        for (size_t j = 0; a->seen != NULL && way != ONE_BY_ONE && j < a->n; j++)
            if (memcmp(&got[j], &a->seen[j], sizeof *got) != 0)
                fail_msg("%s, %s: array %d: %zu is %.9g, not %.9g", what, way == TOGETHER ? "together" : "as a graph", i,
                         j, (double)got[j], (double)a->seen[j]);
        if (a->seen != NULL && way == ONE_BY_ONE)
            memcpy(a->seen, got, a->n * sizeof *got);
        free(got);
    }
    return dev_launches(gpu);
}

/* The operations one by one, then together, which are at most so many launches. */
static void check(ops_fn *ops, const void *shape, const struct rows_of *r, uint64_t most, const char *what)
{
    uint64_t launches[WAYS];

    for (enum way way = 0; way < WAYS; way++)
        launches[way] = run_way(way, ops, shape, r, what);
    if (launches[REPLAYED] > most || launches[REPLAYED] >= launches[ONE_BY_ONE])
        fail_msg("%s: %d launches, one by one %d", what, (int)launches[REPLAYED], (int)launches[ONE_BY_ONE]);
}

/* ---- gated delta rule ---- */

struct gdn {
    struct op_conv conv;
    struct op_gdn  rule;
    struct tensor  in, mixed, alpha, beta, z, o, w, y, res, log[SLOTS];
    const float   *norm;
    int64_t        n_norm;
    bool           logs;
};

static void gdn_ops(const void *shape, const struct rows_of *r)
{
    const struct gdn *g = shape;

    op_conv(gpu, g->mixed, op_cols(g->in, 0, g->mixed.ne[0]), &g->conv, &r->r);
    op_gdn(gpu, g->o, g->mixed, g->alpha, g->beta, &g->rule, &r->r);
    for (int i = 0; g->logs && i < r->r.n_seq; i++)
        op_heads_pick(gpu, g->log[i], op_slice(g->in, r->seq[i].row, r->seq[i].n), g->in.ne[0], g->in.ne[0], 0);
    op_rms_norm_gated(gpu, g->o, g->o, g->z, g->norm, g->n_norm, g->rule.dim_v, 1e-6f);
    op_matmul(gpu, g->y, g->w, g->o);
    op_add(gpu, g->res, g->y, 0.5f);
}

struct gdn_shape {
    int  n_k, n_v, dim;
    bool grouped, whole_norm, logs;
};

static void check_gdn(const struct gdn_shape *s, const struct rows_of *r)
{
    int64_t inner = (int64_t)s->n_v * s->dim, channels = (int64_t)2 * s->n_k * s->dim + inner;
    int n = r->r.n;
    struct gdn g = { .in = take_rows(channels + 2 * s->n_v, n, false), .mixed = take_rows(channels, n, false) };
    char what[100];

    g.alpha = op_cols(g.in, channels, s->n_v);
    g.beta = op_cols(g.in, channels + s->n_v, s->n_v);
    g.z = take_rows(inner, n, false);
    g.o = take_rows(inner, n, false);
    g.w = take_matrix(inner, EMBD);
    g.y = take_rows(EMBD, n, true);
    g.res = take_rows(EMBD, n, true);
    g.logs = s->logs;
    for (int i = 0; i < r->r.n_seq; i++)
        g.log[i] = take_rows(g.in.ne[0], r->seq[i].n, true);
    g.n_norm = s->whole_norm ? inner : s->dim;
    g.norm = take((size_t)g.n_norm, false);
    g.conv = (struct op_conv){ 4, take((size_t)(4 * channels), false), NULL, true,
                               { take((size_t)(3 * channels * SLOTS), true), 3 * channels } };
    float *a = take((size_t)s->n_v, false);
    for (int i = 0; i < s->n_v; i++)
        area[n_area - 1].first[i] = -fabsf(area[n_area - 1].first[i]);
    int64_t state = inner * s->dim;
    g.rule = (struct op_gdn){ s->n_k, s->n_v, s->dim, s->dim, s->grouped, 1e-6f, a, take((size_t)s->n_v, false),
                              { take((size_t)(state * SLOTS), true), state } };
    (void)snprintf(what, sizeof what, "delta rule of %d, %d rows, %d sequences%s", s->dim, n, r->r.n_seq,
                   s->logs ? ", logged" : "");
    check(gdn_ops, &g, r, 2, what);
    give_back_to(0);
}

static void delta_rules(void **state)
{
    static const struct gdn_shape shapes[] = {
        { 1, 5, 32, true, false, false }, { 2, 4, 64, true, true, true }, { 2, 6, 128, false, false, false },
        { 2, 6, 128, true, false, true },
    };

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            struct rows_of r;

            rows_of(&r, &splits[j]);
            check_gdn(&shapes[i], &r);
        }
}

/* ---- attention ---- */

struct attn_shape {
    int  n_q, n_kv, dim_k, dim_v;
    bool gated, norms, pairs;
    int  n_rot, type_k, type_v;
};

struct attn {
    const struct attn_shape *s;
    struct op_kv    kv;
    struct op_rope  rope;
    struct tensor   x, in, qg, q, gate, k, v, o, y, res, wq, wk, wv, wo;
    const float    *norm, *q_norm, *k_norm;
    const int32_t  *page[SLOTS];
    int32_t         table[SLOTS][PAGES];
};

static void attn_ops(const void *shape, const struct rows_of *r)
{
    const struct attn *a = shape;
    const struct attn_shape *s = a->s;

    op_rms_norm(gpu, a->in, a->x, a->norm, EMBD, 0, 1e-6f);
    op_matmul(gpu, a->qg, a->wq, a->in);
    if (s->gated) {
        op_heads_pick(gpu, a->q, a->qg, s->dim_k, (int64_t)2 * s->dim_k, 0);
        op_heads_pick(gpu, a->gate, a->qg, s->dim_k, (int64_t)2 * s->dim_k, s->dim_k);
    }
    op_matmul(gpu, a->k, a->wk, a->in);
    op_matmul(gpu, a->v, a->wv, a->in);
    if (s->norms) {
        op_rms_norm(gpu, a->q, a->q, a->q_norm, s->dim_k, s->dim_k, 1e-6f);
        op_rms_norm(gpu, a->k, a->k, a->k_norm, s->dim_k, s->dim_k, 1e-6f);
    }
    if (s->n_rot > 0) {
        op_rope(gpu, a->q, &a->rope, &r->r);
        op_rope(gpu, a->k, &a->rope, &r->r);
    }
    if (op_kv_rotated(&a->kv)) {
        op_hadamard(gpu, a->q, a->q, s->dim_k);
        op_hadamard(gpu, a->k, a->k, s->dim_k);
    }
    op_kv_store(gpu, a->k, a->v, &a->kv, &r->r);
    op_attn(gpu, a->o, a->q, &a->kv, 0.3f, &r->r);
    if (s->gated)
        op_sigmoid_mul(gpu, a->o, a->gate);
    op_matmul(gpu, a->y, a->wo, a->o);
    op_add(gpu, a->res, a->y, 1.0f);
}

/* Pages with what the sequences had before. */
static void take_pages(struct attn *a, const struct rows_of *r)
{
    const struct attn_shape *s = a->s;
    int64_t k_bytes = quant_row_bytes(s->type_k, s->dim_k), v_bytes = quant_row_bytes(s->type_v, s->dim_v);
    size_t bytes = (size_t)(s->n_kv * OP_KV_PAGE * (k_bytes + v_bytes));

    a->kv = (struct op_kv){ s->type_k, s->type_v, s->n_kv, s->dim_k, s->dim_v,
                            (unsigned char *)take(bytes * SLOTS * PAGES / sizeof(float), true), bytes, a->page };
    struct area *pages = &area[n_area - 1];
    memset(pages->first, 0, pages->n * sizeof(float));
    dev_copy(gpu, pages->at, pages->first, pages->n * sizeof(float));
    for (int i = 0; i < SLOTS; i++) {
        for (int j = 0; j < PAGES; j++)
            a->table[i][j] = (i * PAGES + j) * 5 % (SLOTS * PAGES);
        a->page[i] = a->table[i];
    }
    for (int i = 0; i < r->r.n_seq; i++) {
        int n = (int)r->seq[i].pos;
        const struct op_seq seq = { 0, n, r->seq[i].slot, 0 };
        int32_t pos[PAGES * OP_KV_PAGE];
        const struct op_rows before = { .n = n, .pos = pos, .n_seq = 1, .seq = &seq };

        for (int j = 0; j < n; j++)
            pos[j] = j;
        if (n == 0)
            continue;
        int at = n_area;
        struct tensor k = take_rows((int64_t)s->n_kv * s->dim_k, n, false);
        struct tensor v = take_rows((int64_t)s->n_kv * s->dim_v, n, false);
        for (int j = at; j < n_area; j++)
            dev_copy(gpu, area[j].at, area[j].first, area[j].n * sizeof(float));
        op_kv_store(gpu, k, v, &a->kv, &before);
        give_back_to(at);
    }
    dev_copy(gpu, pages->first, pages->at, pages->n * sizeof(float));
}

static void check_attn(const struct attn_shape *s, const struct rows_of *r)
{
    int n = r->r.n;
    int64_t n_q = (int64_t)s->n_q * s->dim_k, n_k = (int64_t)s->n_kv * s->dim_k, n_v = (int64_t)s->n_kv * s->dim_v;
    int64_t n_o = (int64_t)s->n_q * s->dim_v;
    struct attn a = { .s = s, .x = take_rows(EMBD, n, false), .in = take_rows(EMBD, n, false) };
    char what[100];

    a.qg = take_rows(s->gated ? 2 * n_q : n_q, n, false);
    a.q = s->gated ? take_rows(n_q, n, false) : a.qg;
    a.gate = s->gated ? take_rows(n_q, n, false) : a.qg;
    a.k = take_rows(n_k, n, false);
    a.v = take_rows(n_v, n, false);
    a.o = take_rows(n_o, n, false);
    a.y = take_rows(EMBD, n, true);
    a.res = take_rows(EMBD, n, true);
    a.wq = take_matrix(EMBD, a.qg.ne[0]);
    a.wk = take_matrix(EMBD, n_k);
    a.wv = take_matrix(EMBD, n_v);
    a.wo = take_matrix(n_o, EMBD);
    a.norm = take(EMBD, false);
    a.q_norm = take((size_t)s->dim_k, false);
    a.k_norm = take((size_t)s->dim_k, false);
    a.rope = (struct op_rope){ s->dim_k, s->n_rot, take((size_t)s->dim_k, false), s->pairs };
    take_pages(&a, r);
    (void)snprintf(what, sizeof what, "attention, heads of %d and %d, %d rows, %d sequences", s->dim_k, s->dim_v, n,
                   r->r.n_seq);
    check(attn_ops, &a, r, n == 1 ? 4 : 8, what);
    give_back_to(0);
}

static void attentions(void **state)
{
    static const struct attn_shape shapes[] = {
        { 16, 2, 256, 256, true, true, false, 64, QUANT_q8_0, QUANT_q4_0 },
        { 4, 4, 64, 64, false, false, true, 64, QUANT_f16, QUANT_f16 },
        { 6, 2, 32, 32, true, true, false, 8, QUANT_f32, QUANT_f32 },
        { 20, 2, 128, 128, false, true, false, 0, QUANT_f16, QUANT_q8_0 },
        { 4, 2, 96, 96, true, false, false, 32, QUANT_q4_0, QUANT_f16 },
        { 4, 2, 64, 128, false, true, false, 16, QUANT_q8_0, QUANT_q8_0 },
    };

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            struct rows_of r;

            rows_of(&r, &splits[j]);
            check_attn(&shapes[i], &r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(delta_rules), cmocka_unit_test(attentions) };
    struct err e = { 0 };
    int failed;

    if (strcmp(test_device(), "cpu") != 0 && dev_open(&gpu, test_device(), &(struct dev_opts){ 0 }, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    failed = cmocka_run_group_tests_name("few_gpu", tests, NULL, NULL);
    dev_close(gpu);
    return failed;
}
