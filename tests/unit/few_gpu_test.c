/* SPDX-License-Identifier: Apache-2.0 */
/* few_gpu_test.c - a device that takes several operations of a few rows together: for rows of one sequence, of several,
 * and mixtures of both, the bytes are those of the same operations one by one. Skipped without a device to test. */
#include <math.h>

#include "acts.h"
#include "base/rng.h"
#include "gemm/gemm.h"
#include "golden.h"
#include "ops/ops.h"
#include "part.h"
#include "quant/quant.h"
#include "shape/internal.h"

enum { SLOTS = 9, ROWS = GEMM_FEW_ROWS, AGAIN = 7, AREAS = 32, EMBD = 576, PAGES = 8 /* of a slot */ };

/* Memory of the device, and what it begins with; seen: what the first way of running left. */
struct area {
    float *at, *first, *seen;
    size_t n;
};

static struct dev *gpu;
static struct area area[AREAS];
static int n_area;
static uint64_t drawn;

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
    return (struct tensor){
        .type = QUANT_f32, .ne = { width, n, 1 }, .stride = width, .data = take((size_t)(width * n), kept)
    };
}

/* n rows, of which the first 61 come again and again. */
static struct tensor take_rows_of(int type, int64_t k, int64_t n)
{
    const int64_t row_bytes = quant_row_bytes(type, k), first = n < 61 ? n : 61;
    struct tensor w = { .type = type, .ne = { k, n, 1 }, .stride = k, .pitch = n };
    struct err e = { 0 };

    w.data = take((size_t)(row_bytes * n) / sizeof(float) + 1, false);
    unsigned char *to = (unsigned char *)area[n_area - 1].first;
    assert_int_equal(shape_fill(to, type, k, first, drawn++, &e), ERR_OK);
    for (int64_t i = first; i < n; i++)
        memcpy(to + i * row_bytes, to + i % first * row_bytes, (size_t)row_bytes);
    return w;
}

static struct tensor take_matrix(int64_t k, int64_t n)
{
    return take_rows_of(QUANT_q8_0, k, n);
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
    { 1, { 1 }, { 255 } },
    { 1, { 1 }, { 256 } },
    { 1, { 1 }, { 695 } },
    { 1, { 1 }, { 1018 } },
    { 1, { 1 }, { 1200 } },
    { 1, { 1 }, { 1900 } },
    { 1, { 2 }, { 255 } },
    { 1, { 8 }, { 0 } },
    { 1, { 16 }, { 250 } },
    { 2, { 1, 1 }, { 300, 3 } },
    { 3, { 1, 1, 1 }, { 3, 1600, 700 } },
    { 8, { 1, 1, 1, 1, 1, 1, 1, 1 }, { 0, 1, 255, 256, 257, 511, 700, 30 } },
    { 3, { 5, 1, 4 }, { 253, 600, 0 } },
    { 4, { 1, 9, 2, 3 }, { 255, 500, 255, 7 } },
    { 1, { 17 }, { 250 } },
    { 1, { ROWS }, { 3 } },
    { 2, { 33, 7 }, { 255, 0 } },
    { 9, { 1, 9, 2, 3, 1, 1, 5, 1, 8 }, { 255, 500, 255, 7, 0, 31, 600, 1, 1023 } },
};

struct rows_of {
    struct op_rows r;
    struct op_seq seq[SLOTS];
    int32_t pos[ROWS];
};

static void rows_of(struct rows_of *out, const struct split *s)
{
    *out = (struct rows_of){ .r = { .pos = out->pos, .n_seq = s->n_seq, .seq = out->seq } };
    for (int i = 0; i < s->n_seq; i++) {
        out->seq[i] = (struct op_seq){ .row = out->r.n, .n = s->n[i], .slot = (i * 5 + 3) % SLOTS, .pos = s->pos[i] };
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
                fail_msg("%s, %s: array %d: %zu is %.9g, not %.9g", what, way == TOGETHER ? "together" : "as a graph",
                         i, j, (double)got[j], (double)a->seen[j]);
        if (a->seen != NULL && way == ONE_BY_ONE)
            memcpy(a->seen, got, a->n * sizeof *got);
        free(got);
    }
    struct dev_launched l[DEV_LAUNCHED_MAX];
    uint64_t launches = 0;
    for (int i = dev_launched(gpu, l, DEV_LAUNCHED_MAX) - 1; i >= 0; i--)
        launches += l[i].fusion ? 0 : l[i].n;
    return launches;
}

/* Activations of 8 bits: one row goes together, with heads whose parts share a scale. */
static bool goes_together(const struct rows_of *r, int dim)
{
    return test_acts() != QUANT_ACTS_I8 || (r->r.n == 1 && dim % 128 == 0);
}

/* Runs the operations one by one, then fused, and compares the bytes. most: launches of the fused step at most, without
 * its transfers; 0: it need not be fused. */
static void check(ops_fn *ops, const void *shape, const struct rows_of *r, uint64_t most, const char *what)
{
    uint64_t launches[WAYS];

    for (enum way way = 0; way < WAYS; way++)
        launches[way] = run_way(way, ops, shape, r, what);
    if (most == 0)
        return;
    if (launches[REPLAYED] > most + 2 || launches[REPLAYED] >= launches[ONE_BY_ONE])
        fail_msg("%s: %d launches, one by one %d", what, (int)launches[REPLAYED], (int)launches[ONE_BY_ONE]);
}

/* ---- a layer's input ---- */

enum { MATRICES = 5 };

/* A norm and matrices of several formats; alike: small ones of q8_0 go along with the others, of one format. */
struct input_shape {
    int64_t k;
    bool alike;
    int n, type[MATRICES], rows[MATRICES];
};

struct input {
    const float *norm;
    int n;
    struct tensor x, in, w[MATRICES], y[MATRICES];
};

static void input_ops(const void *shape, const struct rows_of *r)
{
    const struct input *s = shape;

    (void)r;
    op_rms_norm(gpu, s->in, s->x, s->norm, s->x.ne[0], 0, 1e-6f);
    for (int i = 0; i < s->n; i++)
        op_matmul(gpu, s->y[i], s->w[i], s->in);
}

static void inputs(void **state)
{
    enum { F32 = QUANT_f32, Q8 = QUANT_q8_0, Q4 = QUANT_q4_k, Q5 = QUANT_q5_k };
    enum {
        HANDED = 150001 /* one activation row: from here on warps get uneven shares of the weight rows */,
        MANY = 50000 /* several activation rows: from here on each warp has its own strips */
    };
    static const struct input_shape shapes[] = {
        { 2048, true, 4, { Q4, Q4, Q8, Q8 }, { 8192, 4096, 32, 32 } },
        { 2048,
          true,
          5,
          { Q8, Q5, F32, Q8, Q5 },
          { 24, 8000, 3, 61, 512 } }, /* rows that fill no strip, small ones first */
        { 1024, true, 3, { QUANT_q6_k, Q8, Q8 }, { 272, 127, 1 } },
        { 768, true, 2, { QUANT_iq4_xs, Q8 }, { 48, 17 } },
        { 2048, false, 3, { Q4, Q8, Q8 }, { 512, 128, 16 } },         /* too many */
        { 4096, false, 3, { Q4, Q8, QUANT_iq3_s }, { 512, 40, 64 } }, /* too long for one row's launch */
        { 1056, true, 2, { Q8, Q8 }, { 32, 16 } },                    /* nothing to go along with */
        /* all of a launch at once: two strips a warp, and one, rows that fill neither, beside small ones and floats */
        { 2048, true, 4, { Q4, Q8, Q4, Q8 }, { 9001, 33, 3007, 5 } },
        { 2048, true, 2, { QUANT_iq3_s, Q8 }, { 9001, 40 } },
        { 2048, true, 5, { Q8, Q4, F32, Q8, Q4 }, { 24, 5003, 13, 61, 500 } }, /* of 16 rows two, in two spans */
        { 1280, true, 2, { Q5, F32 }, { 700, 9 } },
        { 4096, true, 1, { Q4 }, { 2000 } },
        { 4096, true, 1, { QUANT_q6_k }, { 1999 } },
        { 2048, true, 1, { Q4 }, { HANDED } },
        { 2048, true, 1, { QUANT_q6_k }, { HANDED } },       /* pieces that begin within 16 bytes */
        { 3328, true, 1, { Q5 }, { HANDED } },               /* more segments than stages, half of one */
        { 1376, true, 1, { Q8 }, { HANDED + 15 } },          /* rows that begin within 16 bytes, a part of a block */
        { 1280, true, 1, { QUANT_iq3_s }, { HANDED + 15 } }, /* the same with tables */
        { 1280, true, 1, { QUANT_iq3_s }, { HANDED } },      /* its last strip is not whole: even shares */
        { 768, true, 1, { Q4 }, { 150003 } },                /* half of a segment; two strips at once */
        { 512, true, 1, { QUANT_iq4_xs }, { 150017 } },      /* of the last two strips one row */
        { 2048, true, 1, { QUANT_q6_k }, { 50003 } },        /* one strip, and pieces that begin within 16 bytes */
        { 1280, true, 1, { Q8 }, { 70001 } },
    };

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            const struct input_shape *s = &shapes[i];
            struct rows_of r;
            struct input in = { .n = s->n };
            char what[100];

            rows_of(&r, &splits[j]);
            const bool handed = s->rows[0] >= HANDED && s->k > 1024, many = s->rows[0] >= MANY;
            if ((handed ? j > 0 : many && (r.r.n == 1 || r.r.n > 32)) || !test_mine())
                continue;
            in.x = take_rows(s->k, r.r.n, false);
            in.in = take_rows(s->k, r.r.n, true);
            in.norm = take((size_t)s->k, false);
            for (int m = 0; m < s->n; m++) {
                in.w[m] = take_rows_of(s->type[m], s->k, s->rows[m]);
                in.y[m] = take_rows(s->rows[m], r.r.n, true);
            }
            (void)snprintf(what, sizeof what, "input %d, %d rows", (int)i, r.r.n);
            check(input_ops, &in, &r, s->alike && goes_together(&r, 128) ? 2 : 0, what);
            give_back_to(0);
        }
}

/* ---- gated delta rule ---- */

struct gdn {
    struct op_conv conv;
    struct op_gdn rule;
    struct tensor in, mixed, alpha, beta, z, o, w, y, res;
    const float *norm;
    int64_t n_norm;
};

static void gdn_ops(const void *shape, const struct rows_of *r)
{
    const struct gdn *g = shape;

    op_conv(gpu, g->mixed, op_cols(g->in, 0, g->mixed.ne[0]), &g->conv, &r->r);
    op_gdn(gpu, g->o, g->mixed, g->alpha, g->beta, &g->rule, &r->r);
    op_rms_norm_gated(gpu, g->o, g->o, g->z, g->norm, g->n_norm, g->rule.dim_v, 1e-6f);
    op_matmul(gpu, g->y, g->w, g->o);
    op_add(gpu, g->res, g->y, 0.5f);
}

struct gdn_shape {
    int n_k, n_v, dim;
    bool grouped, whole_norm, logs;
};

/* A log; of the rows of each sequence some are computed again, some are drafts, some are logged where those were. */
static struct op_log take_log(struct rows_of *r, int64_t width)
{
    struct op_log log = { .width = width, .rows = ROWS, .most = AGAIN };

    log.floats = log.rows * width;
    log.data = take((size_t)(log.floats * SLOTS), true);
    for (int i = 0; i < r->r.n_seq; i++) {
        struct op_seq *q = &r->seq[i];

        q->again = (i * 3 + r->r.n * 5) % (AGAIN + 1);
        q->again = q->again < q->pos ? q->again : (int)q->pos;
        q->drafts = (i + r->r.n) % (q->n + 1);
        q->logged = i % 2 == 0 ? q->drafts : q->n;
    }
    return log;
}

static void check_gdn(const struct gdn_shape *s, struct rows_of *r)
{
    int64_t inner = (int64_t)s->n_v * s->dim, channels = (int64_t)2 * s->n_k * s->dim + inner;
    int n = r->r.n;
    struct gdn g = { .in = take_rows(channels + 2 * s->n_v, n, false) };
    struct op_log log = { .rows = 0 };
    char what[100];

    if (s->logs)
        log = take_log(r, g.in.ne[0]);
    g.mixed = take_rows(channels, n + (s->logs ? r->r.n_seq * AGAIN : 0), false);

    g.alpha = op_cols(g.in, channels, s->n_v);
    g.beta = op_cols(g.in, channels + s->n_v, s->n_v);
    g.z = take_rows(inner, n, false);
    g.o = take_rows(inner, n, false);
    g.w = take_matrix(inner, EMBD);
    g.y = take_rows(EMBD, n, true);
    g.res = take_rows(EMBD, n, true);
    g.n_norm = s->whole_norm ? inner : s->dim;
    g.norm = take((size_t)g.n_norm, false);
    g.conv = (struct op_conv){ 4,
                               take((size_t)(4 * channels), false),
                               NULL,
                               true,
                               { take((size_t)(3 * channels * SLOTS), true), 3 * channels, log },
                               1 };
    float *a = take((size_t)s->n_v, false);
    for (int i = 0; i < s->n_v; i++)
        area[n_area - 1].first[i] = -fabsf(area[n_area - 1].first[i]);
    int64_t state = inner * s->dim;
    log.data = s->logs ? log.data + channels : NULL;
    g.rule = (struct op_gdn){ s->n_k,
                              s->n_v,
                              s->dim,
                              s->dim,
                              s->grouped,
                              1e-6f,
                              a,
                              take((size_t)s->n_v, false),
                              { take((size_t)(state * SLOTS), true), state, log } };
    (void)snprintf(what, sizeof what, "delta rule of %d, %d rows, %d sequences%s", s->dim, n, r->r.n_seq,
                   s->logs ? ", logged" : "");
    check(gdn_ops, &g, r, goes_together(r, s->dim) ? 2 : 0, what);
    give_back_to(0);
}

static void delta_rules(void **state)
{
    static const struct gdn_shape shapes[] = {
        { 1, 5, 32, true, false, false },
        { 2, 4, 64, true, true, true },
        { 2, 6, 128, false, false, false },
        { 2, 6, 128, true, false, true },
        { 16, 32, 128, true, false, true },
        { 4, 96, 64, true, false, false }, /* more blocks than multiprocessors: several sequences each */
    };

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            struct rows_of r;

            rows_of(&r, &splits[j]);
            if (test_mine())
                check_gdn(&shapes[i], &r);
        }
}

/* ---- attention ---- */

struct attn_shape {
    int n_q, n_kv, dim_k, dim_v;
    bool gated, norms, pairs;
    int n_rot, type_k, type_v;
};

struct attn {
    const struct attn_shape *s;
    struct op_kv kv;
    struct op_rope rope;
    struct tensor x, in, qg, q, gate, k, v, o, y, res, wq, wk, wv, wo;
    const float *norm, *q_norm, *k_norm;
    const int32_t *page[SLOTS];
    int32_t table[SLOTS][PAGES];
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

    a->kv = (struct op_kv){ s->type_k, s->type_v, s->n_kv,
                            s->dim_k,  s->dim_v,  (unsigned char *)take(bytes * SLOTS * PAGES / sizeof(float), true),
                            bytes,     a->page,   0,
                            0,         0,         0 };
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
        const struct op_seq seq = { .n = n, .slot = r->seq[i].slot };
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
    a.rope = (struct op_rope){ s->dim_k, s->n_rot, take((size_t)s->dim_k, false), s->pairs, 0 };
    take_pages(&a, r);
    (void)snprintf(what, sizeof what, "attention, heads of %d and %d, %d rows, %d sequences", s->dim_k, s->dim_v, n,
                   r->r.n_seq);
    check(attn_ops, &a, r, n > GEMM_ATTN_ROWS || !goes_together(r, s->dim_v) ? 0 : n == 1 ? 5 : 8, what);
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
        { 64, 64, 32, 32, false, false, false, 32, QUANT_q8_0, QUANT_q4_0 }, /* a block has several pages */
    };

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            struct rows_of r;

            rows_of(&r, &splits[j]);
            if (test_mine())
                check_attn(&shapes[i], &r);
        }
}

/* ---- experts ---- */

struct moe_shape {
    int n_expert, n_used, ff, shared; /* shared: the shared expert's hidden columns; 0: there is none */
    bool gated, open;
    int away;                /* one expert in this many is on the host; 0: none */
    int embd, up, down, own; /* formats of first products, of second ones, of the shared expert's */
};

/* Before it a layer's end, whose hidden rows lie where pairs will lie. */
struct moe {
    struct tensor before[2], w, x, in, logits, y, res, router, sh_up, sh_gate, sh_down, sh_open;
    struct tensor up, gate, out, open;
    const float *norm;
    struct op_route route;
    struct op_moe here;
    struct op_hand hand;
    int32_t *expert;
    int64_t embd;
};

static void moe_ops(const void *shape, const struct rows_of *r)
{
    const struct moe *m = shape;
    struct tensor pairs = m->before[1], hid = m->before[1];

    (void)r;
    hid.ne[0] = hid.stride = m->w.ne[0];
    hid.ne[1] = m->x.ne[1];
    op_glu(gpu, hid, m->before[0], hid);
    op_matmul(gpu, m->y, m->w, hid);
    op_add(gpu, m->x, m->y, 1.0f);
    op_rms_norm(gpu, m->in, m->x, m->norm, m->embd, 0, 1e-6f);
    op_matmul(gpu, m->logits, m->router, m->in);
    op_route(gpu, m->expert, m->here.weight, m->logits, &m->route);
    if (m->hand.dev != NULL) {
        op_hand_out(gpu, m->in, m->expert, &m->hand);
        op_moe_pairs(gpu, pairs, m->in, &m->here);
    } else {
        op_moe(gpu, m->y, m->in, &m->here);
    }
    if (m->sh_up.data != NULL) {
        op_matmul(gpu, m->up, m->sh_up, m->in);
        op_matmul(gpu, m->gate, m->sh_gate, m->in);
        op_glu(gpu, m->up, m->gate, m->up);
        op_matmul(gpu, m->out, m->sh_down, m->up);
        if (m->sh_open.data != NULL)
            op_matmul(gpu, m->open, m->sh_open, m->in);
    }
    if (m->hand.dev != NULL) {
        op_hand_in(gpu, pairs, m->in, m->expert, &m->hand);
        op_moe_sum(gpu, m->y, pairs, m->here.weight);
    }
    if (m->sh_open.data != NULL)
        op_add_gated(gpu, m->y, m->out, m->open);
    else if (m->sh_up.data != NULL)
        op_add(gpu, m->y, m->out, 1.0f);
    op_add(gpu, m->res, m->y, 0.5f);
}

/* Matrices of n experts, on the device; away: of the others, on the host. */
static struct tensor take_experts(int type, int64_t k, int64_t rows, int n, int n_away, struct tensor *away)
{
    struct tensor w = take_rows_of(type, k, rows * (n + n_away));
    const size_t bytes = (size_t)(quant_row_bytes(w.type, k) * rows);

    w.ne[1] = w.pitch = rows;
    w.ne[2] = n;
    *away = w;
    away->ne[2] = n_away;
    away->data = (unsigned char *)area[n_area - 1].first + bytes * (size_t)n;
    return w;
}

/* Which matrix an expert has, on the device and on the host. */
static void share_experts(struct moe *m, const struct moe_shape *s, int32_t *host)
{
    int32_t *here = (int32_t *)take((size_t)s->n_expert, false), *first = (int32_t *)area[n_area - 1].first;
    int n[2] = { 0 };

    for (int i = 0; i < s->n_expert; i++) {
        const bool away = i % s->away == s->away - 1;

        first[i] = away ? -1 : n[0]++;
        host[i] = away ? n[1]++ : -1;
    }
    m->here.slot = here;
    m->hand.here = here;
    m->hand.moe.slot = host;
}

/* Memory for the hand-over, on both sides. */
static void reserve(struct dev *host, const struct moe *m, struct tensor pairs)
{
    struct err e = { 0 };

    dev_measure(gpu, true);
    dev_measure(host, true);
    op_hand_in(gpu, pairs, m->in, m->expert, &m->hand);
    dev_measure(host, false);
    dev_measure(gpu, false);
    if (dev_reserve(gpu, 0, &e) || dev_reserve(host, dev_scratch_peak(host), &e))
        fail_msg("%s", e.msg);
}

static void take_shared(struct moe *m, const struct moe_shape *s, int n)
{
    if (s->shared == 0)
        return;
    m->sh_up = take_rows_of(s->own, m->embd, s->shared);
    m->sh_gate = take_rows_of(s->own, m->embd, s->shared);
    m->sh_down = take_rows_of(s->own, s->shared, m->embd);
    m->up = take_rows(s->shared, n, false);
    m->gate = take_rows(s->shared, n, false);
    m->out = take_rows(m->embd, n, false);
    if (s->open) {
        m->sh_open = take_rows_of(QUANT_f32, m->embd, 1);
        m->open = take_rows(1, n, false);
    }
}

static void check_moe(const struct moe_shape *s, const struct rows_of *r, struct dev *host)
{
    const int n = r->r.n, n_away = s->away > 0 ? s->n_expert / s->away : 0;
    const int64_t pairs = (int64_t)n * s->n_used;
    const int64_t embd = s->embd;
    struct moe m = { .embd = embd, .x = take_rows(embd, n, true), .in = take_rows(embd, n, false) };
    int32_t slot[64];
    char what[100];

    m.logits = take_rows(s->n_expert, n, false);
    m.y = take_rows(embd, n, true);
    m.res = take_rows(embd, n, true);
    m.router = take_rows_of(QUANT_f32, embd, s->n_expert);
    m.norm = take((size_t)embd, false);
    m.w = take_matrix(s->ff, embd);
    m.before[0] = take_rows(s->ff, n, false);
    m.before[1] = take_rows(embd, (int)pairs, false);
    m.expert = (int32_t *)take((size_t)pairs, true);
    m.route = (struct op_route){ .n_expert = s->n_expert, .n_used = s->n_used, .normalise = true, .scale = 1.0f };
    m.here = (struct op_moe){ .n_used = s->n_used,
                              .expert = m.expert,
                              .weight = take_rows(s->n_used, n, true),
                              .act = s->gated ? OP_SILU : OP_RELU2 };
    m.hand.moe = m.here;
    m.here.up = take_experts(s->up, embd, s->ff, s->n_expert - n_away, n_away, &m.hand.moe.up);
    if (s->gated)
        m.here.gate = take_experts(s->up, embd, s->ff, s->n_expert - n_away, n_away, &m.hand.moe.gate);
    m.here.down = take_experts(s->down, s->ff, embd, s->n_expert - n_away, n_away, &m.hand.moe.down);
    take_shared(&m, s, n);
    if (s->away > 0) {
        share_experts(&m, s, slot);
        m.hand.dev = host;
        reserve(host, &m, m.before[1]);
    }
    (void)snprintf(what, sizeof what, "%d of %d experts, %d on the host, %d rows", s->n_used, s->n_expert, n_away, n);
    check(moe_ops, &m, r, !goes_together(r, 128) ? 0 : n == 1 ? 4 : n <= GEMM_R2_16_MAX ? 9 : 20, what);
    give_back_to(0);
}

/* Also such as are partly the host's, of which a step uses some, or none. */
static void mixtures(void **state)
{
    enum { Q8 = QUANT_q8_0 };
    static const struct moe_shape shapes[] = {
        { 16, 4, 256, 256, true, true, 0, EMBD, Q8, Q8, Q8 },
        { 16, 4, 160, 256, true, true, 3, EMBD, Q8, Q8, Q8 },
        { 64, 8, 64, 96, true, true, 60, EMBD, Q8, Q8, Q8 },
        { 8, 2, 288, 0, false, false, 2, EMBD, Q8, Q8, Q8 },
        { 33, 6, 128, 64, true, false, 30, EMBD, Q8, Q8, Q8 },
        { 4, 4, 128, 0, true, false, 4, EMBD, Q8, Q8, Q8 },
        { 12, 4, 512, 256, true, true, 0, 768, QUANT_q4_k, QUANT_q4_k, QUANT_q4_k },
        { 40, 8, 256, 512, true, true, 0, 1024, QUANT_q4_k, QUANT_q6_k, Q8 },
        { 33, 6, 1280, 768, true, false, 0, 768, QUANT_iq3_s, QUANT_q5_k, QUANT_q5_k },
        { 9, 3, 768, 0, false, false, 4, 2304, QUANT_iq4_xs, QUANT_iq3_s, Q8 },
        { 300, 10, 64, 96, true, true, 0, EMBD, Q8, Q8, Q8 },                         /* more than 8 a lane of a warp */
        { 32, 8, 512, 512, true, true, 0, 2048, QUANT_q4_k, QUANT_q4_k, QUANT_q4_k }, /* whole segments, one a warp */
        { 24, 4, 512, 512, true, false, 6, 1024, QUANT_iq3_s, QUANT_iq4_xs, QUANT_iq4_xs },
    };
    struct err e = { 0 };
    struct dev *host;

    (void)state;
    if (gpu == NULL)
        skip();
    if (dev_open(&host, "cpu", &(struct dev_opts){ .n_threads = 2 }, &e))
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (size_t j = 0; j < sizeof splits / sizeof splits[0]; j++) {
            struct rows_of r;

            rows_of(&r, &splits[j]);
            if (test_mine())
                check_moe(&shapes[i], &r, host);
        }
    dev_close(host);
}

/* ---- many rows ---- */

/* Which experts rows use: most of them by chance, all rows the same ones, or in turn. The last one may have none. */
enum spread { BY_CHANCE, THE_SAME, IN_TURN, SPREADS };

static void spread_rows(int32_t *expert, const struct moe_shape *s, int n, enum spread how)
{
    for (int i = 0; i < n; i++) {
        const int first = how == BY_CHANCE ? (int)((draw() + 1) / 2 * (float)(s->n_expert - 1))
                          : how == IN_TURN ? i * s->n_used
                                           : 0;

        for (int k = 0; k < s->n_used; k++)
            expert[i * s->n_used + k] = (first + k) % (how == IN_TURN ? s->n_expert : s->n_expert - 1);
    }
}

/* Rows from, from + 1 ... of a mixture, in a step of their own. */
static void moe_rows(const struct moe *m, const struct moe_shape *s, int from, int n)
{
    struct op_moe some = m->here;
    struct tensor x = m->x, y = s->away > 0 ? m->before[1] : m->y;
    const int64_t each = s->away > 0 ? s->n_used : 1;
    struct err e = { 0 };

    x.data = (float *)x.data + from * x.stride;
    x.ne[1] = n;
    y.data = (float *)y.data + from * each * y.stride;
    y.ne[1] = n * each;
    some.expert += (ptrdiff_t)from * s->n_used;
    some.weight.data = (float *)some.weight.data + from * some.weight.stride;
    some.weight.ne[1] = n;
    dev_begin(gpu);
    (s->away > 0 ? op_moe_pairs : op_moe)(gpu, y, x, &some);
    if (dev_end(gpu, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

/* The areas from `first` on, as they begin. */
static void begin_areas(int first)
{
    for (int i = first; i < n_area; i++)
        dev_copy(gpu, area[i].at, area[i].first, area[i].n * sizeof(float));
}

/* m has the matrices. */
static void check_many(struct moe m, const struct moe_shape *s, int n, enum spread how)
{
    const int before = n_area, pairs = n * s->n_used;

    m.x = take_rows(s->embd, n, false);
    m.y = take_rows(s->embd, n, true);
    m.before[1] = take_rows(s->embd, s->away > 0 ? pairs : 1, true);
    m.here.expert = (int32_t *)take((size_t)pairs, false);
    spread_rows((int32_t *)area[n_area - 1].first, s, n, how);
    m.here.weight = take_rows(s->n_used, n, false);
    begin_areas(before);
    for (int i = 0; i < n; i++)
        moe_rows(&m, s, i, 1);
    for (int i = before; i < n_area; i++)
        if (area[i].seen != NULL)
            dev_copy(gpu, area[i].seen, area[i].at, area[i].n * sizeof(float));
    begin_areas(before);
    moe_rows(&m, s, 0, n);
    for (int i = before; i < n_area; i++) {
        const struct area *a = &area[i];
        float *got = calloc(a->n, sizeof *got);

        assert_non_null(got);
        dev_copy(gpu, got, a->at, a->n * sizeof *got);
        for (size_t j = 0; a->seen != NULL && j < a->n; j++)
            if (memcmp(&got[j], &a->seen[j], sizeof *got) != 0)
                fail_msg("%d of %d experts of %s, %s, %d rows, spread %d: %zu is %.9g, not %.9g", s->n_used,
                         s->n_expert, quant_types[s->up]->name, quant_types[s->down]->name, n, (int)how, j,
                         (double)got[j], (double)a->seen[j]);
        free(got);
    }
    give_back_to(before);
}

/* Many rows, of which each has the bytes that it has alone, with few uses of an expert and with many. */
static void many_rows(void **state)
{
    static const int rows[] = { 17, 31, 64, 100, 300 };
    static const struct moe_shape shapes[] = {
        { 32, 8, 512, 0, true, false, 0, 2048, QUANT_q4_k, QUANT_q4_k, QUANT_q4_k },
        { 40, 8, 256, 0, true, false, 0, 1024, QUANT_q4_k, QUANT_q6_k, QUANT_q4_k },
        { 33, 6, 1280, 0, true, false, 0, 768, QUANT_iq3_s, QUANT_q5_k, QUANT_iq3_s },
        { 9, 3, 768, 0, false, false, 0, 2304, QUANT_iq4_xs, QUANT_iq3_s, QUANT_iq4_xs },
        { 16, 4, 160, 0, true, false, 3, EMBD, QUANT_q8_0, QUANT_q8_0, QUANT_q8_0 },
        { 24, 4, 512, 0, true, false, 6, 1024, QUANT_q5_k, QUANT_q4_k, QUANT_q4_k }, /* gate and up differ */
        { 12, 4, 512, 0, true, false, 0, 4608, QUANT_q6_k, QUANT_q8_0, QUANT_q6_k },
    };

    bool any = false;

    (void)state;
    if (gpu == NULL)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct moe_shape *s = &shapes[i];
        const int n_away = s->away > 0 ? s->n_expert / s->away : 0, n = s->n_expert - n_away;
        struct moe m = { .embd = s->embd };
        struct tensor away;
        int32_t slot[64];

        if (!test_mine())
            continue;
        m.here = (struct op_moe){ .n_used = s->n_used, .act = s->gated ? OP_SILU : OP_RELU2 };
        m.here.up = take_experts(s->up, s->embd, s->ff, n, n_away, &away);
        if (s->gated)
            m.here.gate = take_experts(s->own, s->embd, s->ff, n, n_away, &away);
        m.here.down = take_experts(s->down, s->ff, s->embd, n, n_away, &away);
        if (s->away > 0)
            share_experts(&m, s, slot);
        begin_areas(0);
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++)
            for (int how = 0; how < SPREADS; how++)
                check_many(m, s, rows[j], (enum spread)how);
        give_back_to(0);
        any = true;
    }
    assert_true(!any || (dev_kernels(gpu) >> GEMM_EXPERTS_R17_COLUMNS & 1u) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(inputs), cmocka_unit_test(delta_rules),
                                        cmocka_unit_test(attentions), cmocka_unit_test(mixtures),
                                        cmocka_unit_test(many_rows) };
    struct err e = { 0 };
    int failed;

    if (strcmp(test_device(), "cpu") != 0 &&
        dev_open(&gpu, test_device(), &(struct dev_opts){ .acts = test_acts() }, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    test_filter();
    failed = cmocka_run_group_tests_name("few_gpu", tests, NULL, NULL);
    dev_close(gpu);
    return failed;
}
