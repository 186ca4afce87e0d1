/* SPDX-License-Identifier: Apache-2.0 */
/* digest_test.c - a choice from a row's best logits, as op_top() finds them, is that from the row itself, to the bit,
 * with masks, mixtures and shunned tokens as without; op_top() against plain double arithmetic; a sampler's way back.
 */
#include <float.h>

#include "base/softmax.h"
#include "cpu_rig.h"
#include "part.h"
#include "sample/sample.h"

enum { V_MAX = 70000, TRIES = SANITIZED ? 500 : 3000 };

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

/* What comes with a choice. */
struct with {
    uint32_t *mask; /* or NULL */
    struct sample_mix mix;
    int32_t token[SAMPLE_MIX_MAX], shun[4], n_shun;
    float q[SAMPLE_MIX_MAX];
    bool mixed;
};

/* Masks that forbid a little, most, or all but one; mixtures of few and of many tokens. */
static void any_with(struct with *w, uint32_t *mask, int32_t n)
{
    int kind = below(6), some = below(SAMPLE_MIX_MAX + 1);
    double left = 1;

    w->mask = kind < 3 ? mask : NULL;
    for (int32_t i = 0; i < (n + 31) / 32; i++)
        mask[i] = kind == 0 ? UINT32_MAX ^ 1u << below(32) : kind == 1 && below(4) == 0 ? 1u << below(32) : 0;
    if (kind == 2 || below(2))
        mask[below((n + 31) / 32)] |= 1u << below(32);
    w->mixed = below(2);
    some = some < n ? some : n;
    for (int i = 0; i < some; i++) {
        w->token[i] = (int32_t)(((int64_t)n * i + below(n)) / some); /* no token twice */
        w->q[i] = (float)(left * unit() * 0.99);
        left -= (double)w->q[i];
    }
    w->mix = (struct sample_mix){ w->token, w->q, some, below(4) == 0 ? 0 : (float)unit() };
    w->n_shun = below(3) == 0 ? 1 + below(4) : 0;
    for (int i = 0; i < w->n_shun; i++)
        w->shun[i] = below(n);
}

static const struct sample_mix *mix_of(const struct with *w)
{
    return w->mixed ? &w->mix : NULL;
}

static enum err_code from_row(struct sampler *s, const float *x, const struct with *w, struct sample_pick *p,
                              struct err *e)
{
    return sample_next_row(s, x, w->mask, mix_of(w), w->shun, w->n_shun, p, e);
}

/* op_top() of one row, as a sampler wants it. */
static struct logits_digest digest_of(struct dev *d, float *x, int32_t n, const struct logits_want *w, void **out)
{
    const struct op_top a = { w->n_top, w->n_ids, w->ids, &w->inv_temp, &w->mask, NULL, NULL };

    *out = need(op_top_bytes(&a));
    op_top(d, *out, (struct tensor){ .type = QUANT_f32, .ne = { n, 1, 1 }, .stride = n, .data = x }, &a);
    return op_top_digest(&a, *out, 0, w->n_top);
}

static void same_pick(const struct sample_opts *o, const struct sample_pick *a, const struct sample_pick *b)
{
    if (a->token != b->token || memcmp(&a->logprob, &b->logprob, sizeof a->logprob) != 0 || a->n_top != b->n_top)
        fail_msg("temp %g top-k %d top-p %g min-p %g: token %d (%.9g), not %d (%.9g)", (double)o->temp, (int)o->top_k,
                 (double)o->top_p, (double)o->min_p, (int)b->token, (double)b->logprob, (int)a->token,
                 (double)a->logprob);
    for (int i = 0; i < a->n_top; i++)
        assert_true(a->top[i].token == b->top[i].token &&
                    memcmp(&a->top[i].logprob, &b->top[i].logprob, sizeof(float)) == 0);
}

/* A choice by s[1] from the digest of a row that wanted w, or from the row if that is not enough, is that of s[0] from
 * the row. Returns whether the digest was enough. */
static bool compare_both(struct sampler *s[2], const struct sample_opts *o, float *x, int32_t n,
                         const struct logits_want *want, const struct with *w)
{
    struct sample_pick a = { 0 }, b = { .token = -7 };
    struct err e = { 0 }, e2 = { 0 };
    bool enough = false;
    void *out = NULL;

    enum err_code code = from_row(s[0], x, w, &a, &e), same = ERR_OK;
    assert_in_range(want->n_top, 0, LOGITS_TOP_MAX);
    if (want->n_top > 0) {
        struct logits_digest d = digest_of(devs[0], x, n, want, &out), sums;

        if (below(2)) {
            sample_sums(s[1], x, w->mask, &sums);
            assert_memory_equal(&sums.max, &d.max, sizeof d.max);
            assert_memory_equal(&sums.raw_max, &d.raw_max, sizeof d.raw_max);
            assert_memory_equal(&sums.total, &d.total, sizeof d.total);
            assert_memory_equal(&sums.weighted, &d.weighted, sizeof d.weighted);
            assert_memory_equal(&sums.squared, &d.squared, sizeof d.squared);
            assert_true(want->n_top == 1 ? isnan(d.second) : sums.second == d.second);
            assert_memory_equal(&sums.raw_total, &d.raw_total, sizeof d.raw_total);
        }
        same = sample_next_digest(s[1], &d, mix_of(w), w->shun, w->n_shun, &b, &enough, &e2);
        assert_true(enough || b.token == -7);
    }
    if (same != ERR_OK) {
        assert_int_equal(code, same);
    } else if (enough) {
        assert_int_equal(code, ERR_OK);
        same_pick(o, &a, &b);
    } else { /* the attempt left nothing behind */
        assert_int_equal(code, from_row(s[1], x, w, &b, &e2));
        if (code == ERR_OK)
            same_pick(o, &a, &b);
    }
    free(out);
    return enough;
}

/* One choice both ways; whether the digest was enough. */
static bool choose_both(struct sampler *s[2], const struct sample_opts *o, float *x, int32_t n, const struct with *w)
{
    int32_t ids[LOGITS_IDS_MAX];
    struct logits_want want;

    sample_wants(s[1], mix_of(w), &want, ids);
    want.mask = w->mask;
    return compare_both(s, o, x, n, &want, w);
}

static void same_choice(void **state)
{
    static const int32_t sizes[] = { 1, 5, 300, 2048, V_MAX };
    float *x = need(V_MAX * sizeof *x);
    uint32_t *mask = need((V_MAX + 31) / 32 * sizeof *mask);
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
            struct with w = { 0 };

            fill_row(x, n);
            if (i % 3 > 0)
                any_with(&w, mask, n);
            enough += choose_both(s, &o, x, n, &w);
            assert_int_equal(sample_accept(s[0], k % n, &e), ERR_OK);
            assert_int_equal(sample_accept(s[1], k % n, &e), ERR_OK);
        }
        sample_close(s[0]);
        sample_close(s[1]);
    }
    print_message("%d of %d choices were made without the row\n", enough, 4 * TRIES);
    assert_true(enough > TRIES);
    free(x);
    free(mask);
}

/* Settings that never need the row, on logits as models have them. */
static void always_enough(void **state)
{
    static const struct {
        float temp, top_p, min_p, repeat;
        int32_t top_k;
    } of[] = { { 0, 1, 0, 1, 0 },
               { 0, 1, 0, 1.1f, 0 },
               { 0.6f, 0.95f, 0, 1, 20 },
               { 1, 1, 0, 1, 40 },
               { 0.8f, 0.9f, 0.05f, 1.1f, 40 },
               { 0.7f, 0.9f, 0, 1, 0 },
               { 0.7f, 1, 0.1f, 1, 0 } };
    enum { N = V_MAX };
    float *x = need(N * sizeof *x);
    uint32_t *mask = need((N + 31) / 32 * sizeof *mask);

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
            for (int j = 0; j < (N + 31) / 32; j++) /* half of the tokens, and the likely ones */
                mask[j] = (uint32_t)(unit() * 4294967296.0);
            for (int j = 0; j < 10; j++) {
                int likely = below(N);

                x[likely] = (float)(12 + 6 * unit());
                mask[likely / 32] |= 1u << likely % 32;
            }
            const struct with w = { .mask = k % 2 ? mask : NULL };
            assert_true(choose_both(s, &o, x, N, &w));
            assert_int_equal(sample_accept(s[0], 7 * k, &e), ERR_OK);
            assert_int_equal(sample_accept(s[1], 7 * k, &e), ERR_OK);
        }
        sample_close(s[0]);
        sample_close(s[1]);
    }
    free(x);
    free(mask);
}

static struct sampler *must_open(const struct sample_opts *o, int32_t n)
{
    struct sampler *s = NULL;
    struct err e = { 0 };

    if (sample_open(&s, o, n, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void must_accept(struct sampler *s, int32_t token)
{
    assert_int_equal(sample_accept(s, token, NULL), ERR_OK);
}

/* Rows of a step are asked for as if the guesses before them were right, then chosen from one after the other. */
static void wants_ahead(void **state)
{
    enum { N = 400, ROWS = 5 };
    float *x = need(N * ROWS * sizeof *x);
    uint32_t *mask = need(ROWS * (N + 31) / 32 * sizeof *mask + 4 * ROWS);

    (void)state;
    for (int i = 0; i < 400; i++) {
        static int32_t ids[ROWS][LOGITS_IDS_MAX];
        struct logits_want want[ROWS];
        struct with w[ROWS] = { 0 };
        struct sample_bias bias[8];
        struct sample_opts o = any_opts(N, bias);
        int32_t guess[ROWS];

        o.penalty_last_n = below(2) ? below(20) : -1;
        struct sampler *s[2] = { must_open(&o, N), must_open(&o, N) };
        for (int t = below(60), j = 0; j < t; j++) {
            int32_t token = below(9);

            must_accept(s[0], token);
            must_accept(s[1], token);
        }
        for (int j = 0; j < ROWS; j++) {
            fill_row(x + j * N, N);
            any_with(&w[j], mask + j * ((N + 31) / 32), N);
            guess[j] = below(9);
            sample_wants(s[1], mix_of(&w[j]), &want[j], ids[j]);
            want[j].mask = w[j].mask;
            must_accept(s[1], guess[j]);
        }
        sample_back(s[1], ROWS);
        for (int j = 0; j < ROWS; j++) {
            (void)compare_both(s, &o, x + j * N, N, &want[j], &w[j]);
            must_accept(s[0], guess[j]);
            must_accept(s[1], guess[j]);
        }
        sample_close(s[0]);
        sample_close(s[1]);
    }
    free(x);
    free(mask);
}

/* A sampler that went forth and back chooses as one that only went forth. */
static void back_and_forth(void **state)
{
    enum { N = 300 };
    float *x = need(N * sizeof *x);

    (void)state;
    for (int i = 0; i < 600; i++) {
        struct sample_bias bias[8];
        struct sample_opts o = any_opts(N, bias);
        int32_t kept[600];
        uint64_t n = 0;
        const struct with w = { 0 };
        struct sample_pick a = { 0 }, b = { 0 };
        struct err e = { 0 };

        o.penalty_last_n = below(2) ? 1 + below(30) : -1;
        if (below(2))
            o.dry_last_n = below(40);
        struct sampler *s[2] = { must_open(&o, N), must_open(&o, N) };
        for (int j = 0; j < 40; j++) {
            for (int t = below(12); t > 0; t--) {
                kept[n] = below(6);
                must_accept(s[1], kept[n++]);
            }
            uint64_t back = (uint64_t)below(j % 10 == 9 ? (int)n + 1 : 5);

            back = back < n ? back : n;
            sample_back(s[1], back);
            n -= back;
        }
        for (uint64_t j = 0; j < n; j++)
            must_accept(s[0], kept[j]);
        for (int j = 0; j < 8; j++) {
            fill_row(x, N);
            enum err_code code = from_row(s[0], x, &w, &a, &e);
            assert_int_equal(code, from_row(s[1], x, &w, &b, &e));
            if (code == ERR_OK)
                same_pick(&o, &a, &b);
            for (int k = 0; k < 2; k++)
                must_accept(s[k], j);
        }
        for (int k = 0; k < 2; k++)
            sample_close(s[k]);
    }
    free(x);
}

/* Draws under a mixture follow (1 - w Q) p + w q; its weight 0 changes nothing; a bad one is refused. */
static void mixture_is_exact(void **state)
{
    enum { N = 6, DRAWS = 40000 };
    static const int32_t token[4] = { 1, 2, 3, 5 };
    static const float q[4] = { 0.5f, 0.125f, 0.1f, 0.2f }, x[N] = { 1, 0.5f, -1, 2, 0, -30 };
    static const uint32_t mask = 0x37; /* 3 is not allowed */
    static const int32_t shun[1] = { 2 };
    struct sample_opts o = sample_defaults();
    double p[N] = { 0 }, total = 0, w = 0.3, sum = (double)q[0] + (double)q[3], seen[N] = { 0 };
    struct sample_mix mix = { token, q, 4, 0.3f };
    struct sample_pick pick, again;
    struct err e = { 0 };

    (void)state;
    o.temp = 1;
    o.top_k = N;
    struct sampler *s = must_open(&o, N);
    for (int i = 0; i < N; i++)
        total += i == 3 ? 0 : exp((double)x[i]);
    for (int i = 0; i < N; i++)
        p[i] = i == 3 ? 0 : (1 - w * sum) * exp((double)x[i]) / total;
    p[1] += w * (double)q[0];
    p[5] += w * (double)q[3];
    p[2] = 0;
    total = p[0] + p[1] + p[4] + p[5];
    for (int i = 0; i < DRAWS; i++) {
        assert_int_equal(sample_next_row(s, x, &mask, &mix, shun, 1, &pick, &e), ERR_OK);
        seen[pick.token]++;
        must_accept(s, pick.token);
    }
    for (int i = 0; i < N; i++) {
        double want = p[i] / total * DRAWS;

        if (fabs(seen[i] - want) > 5 * sqrt(want))
            fail_msg("token %d: %g of %d draws, not %g", i, seen[i], DRAWS, want);
    }
    mix.weight = 0;
    for (int i = 0; i < 100; i++) {
        assert_int_equal(sample_next_row(s, x, &mask, &mix, NULL, 0, &pick, &e), ERR_OK);
        assert_int_equal(sample_next_row(s, x, &mask, NULL, NULL, 0, &again, &e), ERR_OK);
        same_pick(&o, &again, &pick);
        must_accept(s, pick.token);
    }
    mix.weight = 1.5f;
    assert_int_equal(sample_next_row(s, x, NULL, &mix, NULL, 0, &pick, &e), ERR_ARG);
    mix = (struct sample_mix){ &(int32_t){ N }, q, 1, 0.5f };
    assert_int_equal(sample_next_row(s, x, NULL, &mix, NULL, 0, &pick, &e), ERR_ARG);
    assert_int_equal(sample_next_row(s, x, NULL, NULL, &(int32_t){ -1 }, 1, &pick, &e), ERR_ARG);
    assert_int_equal(sample_next_row(s, x, &(uint32_t){ 0 }, NULL, NULL, 0, &pick, &e), ERR_ARG);
    assert_int_equal(sample_next_row(s, x, &(uint32_t){ 4 }, NULL, shun, 1, &pick, &e), ERR_ARG);
    mix = (struct sample_mix){ token, q, 1, 1 }; /* q whole: nothing else is left to see */
    assert_int_equal(sample_next_row(s, x, &(uint32_t){ 2 }, &mix, NULL, 0, &pick, &e), ERR_OK);
    assert_int_equal(pick.token, 1);
    sample_close(s);
}

static void count_calls(void *ctx)
{
    ++*(int *)ctx;
}

/* The op itself: rows apart, what lies beside the output untouched; with masks on all rows but every third. */
static void top_rows(int32_t n, int k, int rows, bool masked)
{
    uint32_t *bits = need((size_t)rows * (size_t)(n + 31) / 32 * sizeof *bits + (size_t)rows * 4);
    const uint32_t **mask = need((size_t)rows * sizeof *mask);
    int calls = 0;
    int32_t *ids = need((size_t)rows * 3 * sizeof *ids);
    float *heat = need((size_t)rows * sizeof *heat);
    struct tensor x = random_rows(n, rows, 9.0f);
    const struct op_top a = { k, 3, ids, heat, masked ? mask : NULL, count_calls, &calls };
    size_t bytes = op_top_bytes(&a);
    unsigned char *out[N_DEVS];

    for (int r = 0; r < rows; r++) {
        heat[r] = 0.5f + (float)unit();
        ids[3 * r] = below(n);
        ids[3 * r + 1] = -1;
        ids[3 * r + 2] = n - 1;
        ((float *)x.data)[r * x.stride + below(n)] = NAN;
        uint32_t *m = bits + r * ((n + 31) / 32);
        for (int i = 0; i < (n + 31) / 32; i++)
            m[i] = r % 4 == 3 ? 0 : (uint32_t)(unit() * 4294967296.0);
        mask[r] = r % 3 == 2 ? NULL : m;
    }
    for (int i = 0; i < N_DEVS; i++) {
        out[i] = need(bytes * (size_t)rows + 8);
        memset(out[i], 0xa5, bytes * (size_t)rows + 8);
        op_top(devs[i], out[i], x, &a);
        assert_int_equal(calls, i + 1);
        for (int j = 0; j < 8; j++)
            assert_int_equal(out[i][bytes * (size_t)rows + (size_t)j], 0xa5);
    }
    for (int r = 0; r < rows; r++)
        assert_memory_equal(out[0] + bytes * (size_t)r, out[1] + bytes * (size_t)r,
                            sizeof(struct op_top_row) + (size_t)k * sizeof(struct logits_entry) + 3 * sizeof(float));
    for (int r = 0; r < rows; r++) {
        const struct op_top_row *row = (void *)(out[0] + bytes * (size_t)r);
        const struct logits_entry *e = (const void *)(row + 1);
        const float *asked = (const void *)(e + k), *raw = (float *)x.data + r * x.stride;
        const uint32_t *m = masked ? mask[r] : NULL;
        float *v = need((size_t)n * sizeof *v), raw_max = -INFINITY;
        double total = 0, heated = 0, weighted = 0, squared = 0, raw_total = 0;

        for (int32_t i = 0; i < n; i++) {
            v[i] = m != NULL && !(m[i / 32] >> i % 32 & 1) ? NAN : raw[i];
            raw_max = raw[i] > raw_max ? raw[i] : raw_max;
        }
        assert_true(memcmp(&row->raw_max, &raw_max, sizeof raw_max) == 0);
        for (int32_t i = 0; i < n; i++) {
            double d = isnan(v[i]) ? -1e9 : (double)v[i] - (double)row->max;
            int better = 0; /* or the same: of those listed */

            raw_total += isnan(raw[i]) ? 0 : exp((double)raw[i] - (double)raw_max);
            total += exp(d);
            heated += exp(d * (double)heat[r]);
            weighted += isnan(v[i]) ? 0 : exp(d) * d;
            squared += isnan(v[i]) ? 0 : exp(d) * d * d;
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
        assert_true(fabs(row->raw_total - raw_total) <= 1e-6 * raw_total);
        assert_true(row->n == 0 || row->max == e[0].logit);
        if (row->n > 0) {
            assert_true(fabs(row->total - total) < 1e-6 * total && fabs(row->heated - heated) < 1e-6 * heated);
            assert_true(fabs(row->weighted - weighted) < 1e-6 * fmax(1, fabs(weighted)));
            assert_true(fabs(row->squared - squared) < 1e-6 * fmax(1, squared));
        }
        for (int j = 0; j < 3; j++) {
            float want = ids[3 * r + j] < 0 || isnan(v[ids[3 * r + j]]) ? -INFINITY : v[ids[3 * r + j]];

            assert_true(asked[j] == want);
        }
        free(v);
    }
    for (int i = 0; i < N_DEVS; i++)
        free(out[i]);
    free(x.data);
    free(ids);
    free(heat);
    free(bits);
    free(mask);
}

static void top_op(void **state)
{
    static const int32_t sizes[] = { 1, 2, 255, 256, 257, 1000, 5000 };

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int masked = 0; masked < 2; masked++) {
            top_rows(sizes[i], 1, 1, masked);
            top_rows(sizes[i], 7, 3, masked);
            top_rows(sizes[i], LOGITS_TOP_MAX, 5, masked);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(top_op),      cmocka_unit_test(same_choice),    cmocka_unit_test(always_enough),
        cmocka_unit_test(wants_ahead), cmocka_unit_test(back_and_forth), cmocka_unit_test(mixture_is_exact),
    };

    return cmocka_run_group_tests_name("digests", tests, open_devs, close_devs);
}
