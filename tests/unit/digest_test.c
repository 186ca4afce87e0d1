/* SPDX-License-Identifier: Apache-2.0 */
/* digest_test.c - a choice from a row's best logits, as op_top() finds them, is that from the row itself, to the bit;
 * and op_top() against plain double arithmetic. */
#include <float.h>

#include "base/softmax.h"
#include "cpu_rig.h"
#include "sample/sample.h"

enum { V_MAX = 70000, TRIES = 3000 };

static uint64_t drawn;

static double unit(void)
{
    return rng_unit(99, 0, drawn++);
}

static int below(int n)
{
    return (int)(unit() * n);
}

/* Logits as models have them, or steps with many ties, or all the same, or with what is not a number. */
static void fill_row(float *x, int32_t n)
{
    static const double scales[] = { 0.01, 1, 3, 8, 40 };
    double scale = scales[below(5)];
    int kind = below(5);

    for (int32_t i = 0; i < n; i++) {
        double u = unit() + unit() + unit() + unit() - 2;

        x[i] = (float)(kind == 0 ? 1.5 : kind == 1 ? floor(u * scale) : u * scale);
        if (kind == 2 && below(3) == 0)
            x[i] = below(2) ? NAN : -INFINITY;
    }
    if (kind == 3 && below(4) == 0)
        x[below(n)] = INFINITY;
}

static struct sample_opts any_opts(int32_t n, struct sample_bias *bias)
{
    static const float temps[] = { 0, 0.3f, 0.7f, 1, 1.5f }, top_ps[] = { 1, 0.5f, 0.9f, 0.95f };
    static const int32_t top_ks[] = { 0, 0, 1, 20, 40, 250, 1000 };
    struct sample_opts o = sample_defaults();

    o.temp = temps[below(5)];
    o.top_k = top_ks[below(7)];
    o.top_p = top_ps[below(4)];
    o.min_p = below(3) == 0 ? 0.05f : 0;
    o.typical_p = below(5) == 0 ? 0.9f : 1;
    o.n_top = below(3) == 0 ? 3 : 0;
    o.n_top = o.n_top < n ? o.n_top : n;
    o.seed = drawn;
    if (below(3) == 0)
        o.repeat_penalty = 1.3f;
    if (below(4) == 0)
        o.presence_penalty = 0.7f;
    if (below(4) == 0)
        o.dry_multiplier = 0.8f;
    if (below(4) == 0) {
        o.n_bias = (size_t)below(6);
        o.bias = bias;
        for (size_t i = 0; i < o.n_bias; i++)
            bias[i] = (struct sample_bias){ below(n), below(2) ? -INFINITY : (float)(10 * unit()) };
    }
    return o;
}

/* op_top() of one row, as a sampler wants it. */
static struct logits_digest digest_of(struct dev *d, float *x, int32_t n, const struct logits_want *w, void **out)
{
    const struct op_top a = { w->n_top, w->n_ids, w->ids, &w->inv_temp };

    *out = need(op_top_bytes(&a));
    op_top(d, *out, (struct tensor){ .type = QUANT_f32, .ne = { n, 1, 1 }, .stride = n, .data = x }, &a);
    return op_top_digest(&a, *out, 0, w->n_top);
}

/* One choice both ways; whether the digest was enough. */
static bool choose_both(struct sampler *s[2], const struct sample_opts *o, float *x, int32_t n)
{
    struct sample_pick a = { 0 }, b = { 0 };
    struct err e = { 0 }, e2 = { 0 };
    int32_t ids[LOGITS_IDS_MAX];
    struct logits_want w;
    bool enough = false;
    void *out;

    enum err_code code = sample_next_row(s[0], x, NULL, NULL, NULL, 0, &a, &e);
    sample_wants(s[1], NULL, &w, ids);
    assert_in_range(w.n_top, 0, LOGITS_TOP_MAX);
    if (w.n_top == 0)
        return false;
    struct logits_digest d = digest_of(devs[0], x, n, &w, &out);
    enum err_code same = sample_next_digest(s[1], &d, NULL, NULL, 0, &b, &enough, &e2);
    if (same != ERR_OK)
        assert_int_equal(code, same);
    if (enough) {
        if (code != ERR_OK || a.token != b.token || memcmp(&a.logprob, &b.logprob, sizeof a.logprob) != 0 ||
            a.n_top != b.n_top)
            fail_msg("temp %g top-k %d top-p %g min-p %g: token %d (%.9g), not %d (%.9g)", (double)o->temp,
                     (int)o->top_k, (double)o->top_p, (double)o->min_p, (int)b.token, (double)b.logprob, (int)a.token,
                     (double)a.logprob);
        for (int i = 0; i < a.n_top; i++)
            assert_true(a.top[i].token == b.top[i].token &&
                        memcmp(&a.top[i].logprob, &b.top[i].logprob, sizeof(float)) == 0);
    }
    free(out);
    return enough;
}

static void same_choice(void **state)
{
    static const int32_t sizes[] = { 1, 5, 300, 2048, V_MAX };
    float *x = need(V_MAX * sizeof *x);
    int enough = 0;

    (void)state;
    for (int i = 0; i < TRIES; i++) {
        int32_t n = sizes[i % 50 == 0 ? 4 : below(4)];
        struct sample_bias bias[8];
        const struct sample_opts o = any_opts(n, bias);
        struct sampler *s[2];
        struct err e = { 0 };

        for (int j = 0; j < 2; j++)
            if (sample_open(&s[j], &o, n, &e) != ERR_OK)
                fail_msg("%s", e.msg);
        for (int t = below(100), j = 0; j < t; j++) {
            int32_t token = below(n < 12 ? n : 12);

            assert_int_equal(sample_accept(s[0], token, &e), ERR_OK);
            assert_int_equal(sample_accept(s[1], token, &e), ERR_OK);
        }
        for (int k = 0; k < 4; k++) { /* a sampler goes on */
            fill_row(x, n);
            enough += choose_both(s, &o, x, n);
            assert_int_equal(sample_accept(s[0], k % n, &e), ERR_OK);
            assert_int_equal(sample_accept(s[1], k % n, &e), ERR_OK);
        }
        sample_close(s[0]);
        sample_close(s[1]);
    }
    print_message("%d of %d choices were made without the row\n", enough, 4 * TRIES);
    assert_true(enough > TRIES);
    free(x);
}

/* Settings that never need the row, on logits as models have them. */
static void always_enough(void **state)
{
    static const struct {
        float   temp, top_p, min_p, repeat;
        int32_t top_k;
    } of[] = { { 0, 1, 0, 1, 0 },          { 0, 1, 0, 1.1f, 0 },       { 0.6f, 0.95f, 0, 1, 20 },
               { 1, 1, 0, 1, 40 },         { 0.8f, 0.9f, 0.05f, 1.1f, 40 }, { 0.7f, 0.9f, 0, 1, 0 },
               { 0.7f, 1, 0.1f, 1, 0 } };
    enum { N = V_MAX };
    float *x = need(N * sizeof *x);

    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct sample_opts o = sample_defaults();
        struct sampler *s[2];
        struct err e = { 0 };

        o.temp = of[i].temp;
        o.top_p = of[i].top_p;
        o.min_p = of[i].min_p;
        o.repeat_penalty = of[i].repeat;
        o.top_k = of[i].top_k;
        for (int j = 0; j < 2; j++)
            assert_int_equal(sample_open(&s[j], &o, N, &e), ERR_OK);
        for (int k = 0; k < 20; k++) {
            for (int j = 0; j < N; j++)
                x[j] = (float)(2 * (unit() + unit() + unit() + unit() - 2));
            for (int j = 0; j < 10; j++)
                x[below(N)] = (float)(12 + 6 * unit());
            assert_true(choose_both(s, &o, x, N));
            assert_int_equal(sample_accept(s[0], 7 * k, &e), ERR_OK);
            assert_int_equal(sample_accept(s[1], 7 * k, &e), ERR_OK);
        }
        sample_close(s[0]);
        sample_close(s[1]);
    }
    free(x);
}

/* The op itself: rows apart, what lies beside the output untouched. */
static void top_rows(int32_t n, int k, int rows)
{
    int32_t *ids = need((size_t)rows * 3 * sizeof *ids);
    float *heat = need((size_t)rows * sizeof *heat);
    struct tensor x = random_rows(n, rows, 9.0f);
    const struct op_top a = { k, 3, ids, heat };
    size_t bytes = op_top_bytes(&a);
    unsigned char *out[N_DEVS];

    for (int r = 0; r < rows; r++) {
        heat[r] = 0.5f + (float)unit();
        ids[3 * r] = below(n);
        ids[3 * r + 1] = -1;
        ids[3 * r + 2] = n - 1;
        ((float *)x.data)[r * x.stride + below(n)] = NAN;
    }
    for (int i = 0; i < N_DEVS; i++) {
        out[i] = need(bytes * (size_t)rows + 8);
        memset(out[i], 0xa5, bytes * (size_t)rows + 8);
        op_top(devs[i], out[i], x, &a);
        for (int j = 0; j < 8; j++)
            assert_int_equal(out[i][bytes * (size_t)rows + (size_t)j], 0xa5);
    }
    for (int r = 0; r < rows; r++)
        assert_memory_equal(out[0] + bytes * (size_t)r, out[1] + bytes * (size_t)r,
                            sizeof(struct op_top_row) + (size_t)k * sizeof(struct logits_entry) + 3 * sizeof(float));
    for (int r = 0; r < rows; r++) {
        const struct op_top_row *row = (void *)(out[0] + bytes * (size_t)r);
        const struct logits_entry *e = (const void *)(row + 1);
        const float *asked = (const void *)(e + k), *v = (float *)x.data + r * x.stride;
        double total = 0, heated = 0, weighted = 0;

        for (int32_t i = 0; i < n; i++) {
            double d = isnan(v[i]) ? -1e9 : (double)v[i] - (double)row->max;
            int better = 0; /* or the same: of those listed */

            total += exp(d);
            heated += exp(d * (double)heat[r]);
            weighted += isnan(v[i]) ? 0 : exp(d) * d;
            for (int j = 0; j < row->n; j++)
                better += e[j].token == i || v[e[j].token] > v[i] || (v[e[j].token] == v[i] && e[j].token < i);
            if (!isnan(v[i])) { /* listed, or after all that are */
                bool listed = false;

                for (int j = 0; j < row->n; j++)
                    listed = listed || e[j].token == i;
                assert_true(listed || (row->n == k && better == k));
            }
        }
        for (int j = 0; j < row->n; j++) {
            assert_true(e[j].logit == v[e[j].token]);
            assert_true(j == 0 || e[j].logit < e[j - 1].logit ||
                        (e[j].logit == e[j - 1].logit && e[j].token > e[j - 1].token));
        }
        assert_true(row->n == 0 || row->max == e[0].logit);
        if (row->n > 0) {
            assert_true(fabs(row->total - total) < 1e-6 * total && fabs(row->heated - heated) < 1e-6 * heated);
            assert_true(fabs(row->weighted - weighted) < 1e-5 * fmax(1, fabs(weighted)));
        }
        for (int j = 0; j < 3; j++) {
            float want = ids[3 * r + j] < 0 || isnan(v[ids[3 * r + j]]) ? -INFINITY : v[ids[3 * r + j]];

            assert_true(asked[j] == want);
        }
    }
    for (int i = 0; i < N_DEVS; i++)
        free(out[i]);
    free(x.data);
    free(ids);
    free(heat);
}

static void top_op(void **state)
{
    static const int32_t sizes[] = { 1, 2, 255, 256, 257, 1000, 5000 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        top_rows(sizes[i], 1, 1);
        top_rows(sizes[i], 7, 3);
        top_rows(sizes[i], LOGITS_TOP_MAX, 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_op),
        cmocka_unit_test(same_choice),
        cmocka_unit_test(always_enough),
    };

    return cmocka_run_group_tests_name("digests", tests, open_devs, close_devs);
}
