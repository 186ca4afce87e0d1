/* SPDX-License-Identifier: Apache-2.0 */
/* attn_test.c - attention of many rows in one step has the bytes of the same rows in slices of 32, of 17, and one by
 * one: heads of several sizes, groups and types, windows, several sequences, numbers that are not finite. */
#include <math.h>

#include "acts.h"
#include "base/rng.h"
#include "golden.h"
#include "ops/ops.h"
#include "part.h"
#include "quant/quant.h"

enum { SEQS = 40, F32 = QUANT_f32, F16 = QUANT_f16, Q8 = QUANT_q8_0, Q4 = QUANT_q4_0 };

static struct dev *dev;
static uint64_t drawn;

struct heads {
    int n_q, n_kv, dim_k, dim_v, type_k, type_v, window;
};

/* A step: sequence i has n[i] rows, the first of them at position pos[i]. With `repeated` set the step has that many
 * sequences. They take n and pos in turn, and start 7 positions later in each round. */
struct split {
    int n_seq, n[3], pos[3], repeated;
};

struct step {
    struct op_rows r;
    struct op_seq seq[SEQS];
    int32_t *pos;
};

static float *fill(size_t n, float scale)
{
    float *v = malloc(n * sizeof *v);

    assert_non_null(v);
    for (size_t i = 0; i < n; i++) {
        uint32_t r[4];

        rng_block(r, 5, 0, drawn++);
        v[i] = ((float)(r[0] >> 8) / 8388608.0f - 1.0f) * scale * (r[1] % 16 == 0 ? 4.0f : 1.0f);
    }
    return v;
}

static struct tensor put(int64_t width, int64_t n, const float *v)
{
    struct tensor t = { .type = QUANT_f32, .ne = { width, n, 1 }, .stride = width };

    t.data = dev_alloc(dev, (size_t)(width * n) * sizeof(float));
    assert_non_null(t.data);
    dev_copy(dev, t.data, v, (size_t)(width * n) * sizeof(float));
    return t;
}

static void drop(struct tensor t)
{
    dev_free(dev, t.data, (size_t)(t.ne[0] * t.ne[1]) * sizeof(float));
}

static void rows_of(struct step *to, const struct split *s)
{
    int all = 0;

    *to = (struct step){ .r = { .n_seq = s->repeated > 0 ? s->repeated : s->n_seq, .seq = to->seq } };
    for (int i = 0; i < to->r.n_seq; i++)
        all += s->n[i % s->n_seq];
    to->r.pos = to->pos = malloc((size_t)all * sizeof *to->pos);
    assert_non_null(to->pos);
    for (int i = 0; i < to->r.n_seq; i++) {
        const int n = s->n[i % s->n_seq], pos = s->pos[i % s->n_seq] + i / s->n_seq * 7;

        to->seq[i] = (struct op_seq){ .row = to->r.n, .n = n, .slot = i, .pos = pos };
        for (int j = 0; j < n; j++)
            to->pos[to->r.n++] = pos + j;
    }
}

static void run(void (*op)(void *, const struct op_rows *, int), void *ctx, const struct op_rows *r, int first)
{
    struct err e = { 0 };

    dev_begin(dev);
    op(ctx, r, first);
    if (dev_end(dev, &e) != ERR_OK)
        fail_msg("%s", e.msg);
}

/* Rows in slices of at most `most`. */
static void in_slices(void (*op)(void *, const struct op_rows *, int), void *ctx, const struct op_rows *r, int most)
{
    for (int first = 0; first < r->n; first += most) {
        struct op_seq seq[SEQS];
        struct op_rows part = { .n = r->n - first < most ? r->n - first : most, .pos = r->pos + first, .seq = seq };

        for (int i = 0; i < r->n_seq; i++) {
            const struct op_seq *s = &r->seq[i];
            const int from = s->row > first ? s->row : first;
            const int to = s->row + s->n < first + part.n ? s->row + s->n : first + part.n;

            if (from < to)
                seq[part.n_seq++] = (struct op_seq){
                    .row = from - first, .n = to - from, .slot = s->slot, .pos = s->pos + from - s->row
                };
        }
        run(op, ctx, &part, first);
    }
}

struct attn {
    struct op_kv kv;
    struct tensor q, k, v, y;
};

static struct tensor from(struct tensor t, int64_t row, int64_t n)
{
    t.data = (float *)t.data + row * t.stride;
    t.ne[1] = n;
    return t;
}

static void store(void *ctx, const struct op_rows *r, int first)
{
    const struct attn *a = ctx;

    op_kv_store(dev, from(a->k, first, r->n), from(a->v, first, r->n), &a->kv, r);
}

static void attend(void *ctx, const struct op_rows *r, int first)
{
    const struct attn *a = ctx;

    op_attn(dev, from(a->y, first, r->n), from(a->q, first, r->n), &a->kv, 0.2f, r);
}

static void compare(const float *y, const float *right, size_t n, const char *what)
{
    size_t off = 0, at = 0;
    double most = 0;

    for (size_t i = n; i-- > 0;)
        if (memcmp(&y[i], &right[i], sizeof *y) != 0 && !(isnan(y[i]) && isnan(right[i]))) {
            const double d = fabs((double)y[i] - right[i]);

            off++;
            at = i;
            most = d > most ? d : most;
        }
    if (off > 0)
        fail_msg("%s: %zu of %zu differ, by up to %g; the first, %zu: %.9g, not %.9g", what, off, n, most, at,
                 (double)y[at], (double)right[at]);
}

static void check(const struct heads *h, const struct split *s, bool odd)
{
    struct step rows, all;
    struct split before = *s; /* every position up to the last row's has a key and a value */
    const int32_t *page[SEQS];
    int32_t *table;
    int pages = 0;

    rows_of(&rows, s);
    for (int i = 0; i < s->n_seq; i++) {
        before.n[i] = s->pos[i] + s->n[i] + (s->repeated > 0 ? s->repeated / s->n_seq * 7 : 0);
        before.pos[i] = 0;
        pages = before.n[i] / OP_KV_PAGE + 1 > pages ? before.n[i] / OP_KV_PAGE + 1 : pages;
    }
    rows_of(&all, &before);
    for (int i = 0; i < all.r.n_seq; i++) { /* from 0 on, each */
        for (int j = 0; j < all.seq[i].n; j++)
            all.pos[all.seq[i].row + j] = j;
        all.seq[i].pos = 0;
    }
    const int n = rows.r.n, n_seq = rows.r.n_seq;
    struct attn a = { .kv = { h->type_k, h->type_v, h->n_kv, h->dim_k, h->dim_v, NULL, 0, page, 0, 0, h->window, 3 } };
    const int64_t wide_q = (int64_t)h->n_q * h->dim_k, wide_y = (int64_t)h->n_q * h->dim_v;
    const int64_t wide_k = (int64_t)h->n_kv * h->dim_k, wide_v = (int64_t)h->n_kv * h->dim_v;
    float *q = fill((size_t)(n * wide_q), 3), *k = fill((size_t)(all.r.n * wide_k), 1);
    float *v = fill((size_t)(all.r.n * wide_v), 1), *y = malloc((size_t)(n * wide_y) * 4),
          *one = malloc((size_t)(n * wide_y) * 4);
    char what[128];

    if (odd) { /* scores of +-inf and NaN */
        q[5 * wide_q] = INFINITY;
        q[9 * wide_q + h->dim_k] = NAN;
        k[11 * wide_k] = h->type_k == F32 || h->type_k == F16 ? -INFINITY : 0;
        k[270 * wide_k + 1] = 1e30f;
        for (int64_t i = 0; i < wide_q; i++)
            q[17 * wide_q + i] = 1e20f;
    }
    table = malloc((size_t)(n_seq * pages) * sizeof *table);
    for (int i = 0; i < n_seq; i++) {
        for (int j = 0; j < pages; j++)
            table[i * pages + j] = (i + j * n_seq + 1) % (n_seq * pages);
        page[i] = table + i * pages;
    }
    a.kv.page_bytes = (size_t)h->n_kv * OP_KV_PAGE *
                      (size_t)(quant_row_bytes(h->type_k, h->dim_k) + quant_row_bytes(h->type_v, h->dim_v));
    const size_t bytes = (size_t)(n_seq * pages) * a.kv.page_bytes;
    unsigned char *junk = malloc(bytes); /* of positions that nobody may see */
    memset(junk, 0xff, bytes);
    a.kv.pages = dev_alloc(dev, bytes);
    assert_non_null(a.kv.pages);
    dev_copy(dev, a.kv.pages, junk, bytes);
    a.q = put(wide_q, n, q);
    a.k = put(wide_k, all.r.n, k);
    a.v = put(wide_v, all.r.n, v);
    memset(y, 0xff, (size_t)(n * wide_y) * 4);
    a.y = put(wide_y, n, y);
    in_slices(store, &a, &all.r, 512);
    run(attend, &a, &rows.r, 0);
    dev_copy(dev, y, a.y.data, (size_t)(n * wide_y) * 4);
    static const int slices[] = { 32, 17, 1 };
    for (int i = 0; i < (n > 1000 ? 1 : n > 300 ? 2 : 3); i++) {
        in_slices(attend, &a, &rows.r, slices[i]);
        dev_copy(dev, one, a.y.data, (size_t)(n * wide_y) * 4);
        (void)snprintf(what, sizeof what, "%d of %d heads, %d and %d wide, %s %s, window %d, %d rows of %d, by %d",
                       h->n_q, h->n_kv, h->dim_k, h->dim_v, quant_types[h->type_k]->name, quant_types[h->type_v]->name,
                       h->window, n, n_seq, slices[i]);
        compare(y, one, (size_t)(n * wide_y), what);
    }
    drop(a.q);
    drop(a.k);
    drop(a.v);
    drop(a.y);
    dev_free(dev, a.kv.pages, bytes);
    free(q);
    free(k);
    free(v);
    free(y);
    free(one);
    free(junk);
    free(table);
    free(rows.pos);
    free(all.pos);
}

static const struct split splits[] = {
    { 1, { 257 }, { 0 }, 0 },        { 1, { 256 }, { 256 }, 0 },  { 1, { 255 }, { 1 }, 0 },
    { 1, { 33 }, { 700 }, 0 },       { 1, { 300 }, { 1000 }, 0 }, { 3, { 40, 1, 150 }, { 0, 255, 600 }, 0 },
    { 2, { 1, 64 }, { 0, 511 }, 0 }, { 1, { 1 }, { 230 }, 40 },
};

static bool on_cpu(void)
{
    return strcmp(test_device(), "cpu") == 0;
}

static void sizes(void **state)
{
    static const struct heads heads[] = {
        { 16, 2, 256, 256, F16, F16, 0 }, { 16, 2, 256, 256, Q8, Q4, 0 }, { 8, 2, 128, 128, F16, F16, 0 },
        { 6, 2, 64, 32, F32, F32, 0 },    { 4, 4, 64, 64, F16, Q8, 0 },   { 20, 2, 128, 128, Q4, F16, 0 },
        { 18, 2, 40, 136, F16, F16, 0 },  { 6, 2, 32, 64, F16, F16, 20 }, { 4, 2, 96, 192, Q8, Q8, 290 },
        { 8, 1, 576, 512, Q8, Q4, 0 },    { 2, 1, 160, 288, F16, Q4, 0 }, { 16, 2, 256, 256, F32, F32, 0 },
        { 6, 2, 37, 41, F16, F16, 0 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        for (size_t j = 0; j < (on_cpu() ? 2 : sizeof splits / sizeof splits[0]); j++)
            if (test_mine())
                check(&heads[i], &splits[j], false);
}

static void types(void **state)
{
    static const int all[4] = { F32, F16, Q8, Q4 };

    (void)state;
    for (int k = 0; k < 4; k++)
        for (int v = 0; v < 4; v++) {
            const struct heads small = { 8, 2, 64, 128, all[k], all[v], 0 },
                               large = { 8, 1, 256, 256, all[k], all[v], 0 };

            if (test_mine())
                check(&small, &splits[5], false);
            if (!on_cpu() && test_mine())
                check(&large, &splits[4], false);
        }
}

static void not_finite(void **state)
{
    static const struct heads heads[] = { { 16, 2, 256, 256, F16, F16, 0 },
                                          { 8, 2, 128, 64, Q8, Q4, 0 },
                                          { 8, 2, 64, 64, F32, F32, 0 } };

    (void)state;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        check(&heads[i], &splits[4], true);
}

static void many_rows(void **state)
{
    static const struct heads heads[] = { { 16, 2, 256, 256, F16, F16, 0 }, { 16, 2, 256, 256, Q8, Q4, 700 } };
    static const struct split s = { 1, { 4096 }, { 300 }, 0 };

    (void)state;
    if (on_cpu())
        skip();
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        check(&heads[i], &s, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(sizes), cmocka_unit_test(types), cmocka_unit_test(not_finite),
                                        cmocka_unit_test(many_rows) };
    struct err e = { 0 };
    int failed;

    if (dev_open(&dev, test_device(), &(struct dev_opts){ .n_threads = 2, .acts = test_acts() }, &e) ||
        dev_reserve(dev, (size_t)64 << 20, &e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    test_filter();
    failed = cmocka_run_group_tests_name("attn", tests, NULL, NULL);
    dev_close(dev);
    return failed;
}
