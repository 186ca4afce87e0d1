/* SPDX-License-Identifier: Apache-2.0 */
/* sample_test.c - every stage against a slow second implementation in double precision. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sample_rig.h"
#include "sets.h"

enum { V_MAX = 70000, H_MAX = 4096 };

/* ---- the reference: sorts everything, recounts everything, double precision ---- */

struct ref {
    int32_t n;
    double x[V_MAX]; /* logits after edits */
    double w[V_MAX]; /* weights, 0 where cut */
    bool keep[V_MAX];
    int32_t order[V_MAX];
};

static struct ref ref;
static float logits[V_MAX];
static const double *sort_by; /* descending, then by id */

static int by_value(const void *a, const void *b)
{
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (sort_by[i] > sort_by[j] || sort_by[i] < sort_by[j]) {
        return sort_by[i] > sort_by[j] ? -1 : 1;
    }
    return i < j ? -1 : 1;
}

static double sane(float v)
{
    return isnan(v) ? -INFINITY : isinf(v) && v > 0 ? (double)FLT_MAX : (double)v;
}

static bool is_breaker(const struct sample_opts *o, int32_t token)
{
    for (size_t i = 0; i < o->n_dry_breakers; i++) {
        if (o->dry_breakers[i] == token) {
            return true;
        }
    }
    return false;
}

/* O(n * length): for every earlier place, walk back as long as the texts agree. */
static void ref_dry(const struct sample_opts *o, const int32_t *h, size_t n)
{
    static int32_t longest[V_MAX];
    size_t from = o->dry_last_n >= 0 && n > (size_t)o->dry_last_n ? n - (size_t)o->dry_last_n : 0;
    memset(longest, 0, sizeof longest);
    for (size_t i = from + 1; i < n; i++) { /* h[i] came after h[i - 1] */
        int32_t m = 0;
        while (m < SAMPLE_DRY_MAX && i >= from + 1 + (size_t)m && h[i - 1 - (size_t)m] == h[n - 1 - (size_t)m] &&
               !is_breaker(o, h[n - 1 - (size_t)m])) {
            m++;
        }
        if (m > longest[h[i]] && !is_breaker(o, h[i])) {
            longest[h[i]] = m;
        }
    }
    for (int32_t t = 0; t < ref.n; t++) {
        if (longest[t] >= o->dry_allowed_length) {
            ref.x[t] -=
                fmin((double)o->dry_multiplier * pow((double)o->dry_base, longest[t] - o->dry_allowed_length), 1e30);
        }
    }
}

static void ref_edit(const struct sample_opts *o, const int32_t *h, size_t n)
{
    static int32_t count[V_MAX];
    for (size_t i = 0; i < o->n_bias; i++) {
        ref.x[o->bias[i].token] += (double)o->bias[i].bias;
    }
    size_t from = o->penalty_last_n >= 0 && n > (size_t)o->penalty_last_n ? n - (size_t)o->penalty_last_n : 0;
    memset(count, 0, sizeof count);
    for (size_t i = from; i < n; i++) {
        count[h[i]]++;
    }
    for (int32_t t = 0; t < ref.n; t++) {
        if (count[t] > 0) {
            double r = (double)o->repeat_penalty;
            ref.x[t] = ref.x[t] > 0 ? ref.x[t] / r : ref.x[t] * r;
            ref.x[t] -= (double)o->presence_penalty + (double)o->frequency_penalty * count[t];
        }
    }
    if (o->dry_multiplier > 0) {
        ref_dry(o, h, n);
    }
}

static double ref_total(void)
{
    double z = 0;
    for (int32_t t = 0; t < ref.n; t++) {
        z += ref.keep[t] ? ref.w[t] : 0;
    }
    return z;
}

/* Keeps the first tokens of the order by `value` until their weights reach target. */
static void ref_first(const double *value, double target)
{
    sort_by = value;
    qsort(ref.order, (size_t)ref.n, sizeof ref.order[0], by_value);
    double sum = 0;
    bool any = false;
    for (int32_t i = 0; i < ref.n; i++) {
        int32_t t = ref.order[i];
        if (ref.keep[t]) {
            ref.keep[t] = !any || sum < target;
            sum += ref.w[t];
            any = true;
        }
    }
}

static void ref_cut(const struct sample_opts *o)
{
    static double off[V_MAX];
    double max = -INFINITY;
    for (int32_t t = 0; t < ref.n; t++) {
        ref.order[t] = t;
        max = fmax(max, ref.x[t]);
    }
    for (int32_t t = 0; t < ref.n; t++) {
        ref.w[t] = exp((ref.x[t] - max) / (double)o->temp);
        ref.keep[t] = isfinite(ref.x[t]);
    }
    sort_by = ref.x;
    qsort(ref.order, (size_t)ref.n, sizeof ref.order[0], by_value);
    for (int32_t i = 0; o->top_k > 0 && i < ref.n; i++) {
        ref.keep[ref.order[i]] = ref.keep[ref.order[i]] && i < o->top_k;
    }
    if (o->top_p < 1) {
        ref_first(ref.x, (double)o->top_p * ref_total());
    }
    for (int32_t t = 0; t < ref.n; t++) {
        ref.keep[t] = ref.keep[t] && ref.w[t] >= (double)o->min_p;
    }
    if (o->typical_p < 1) {
        double z = ref_total(), entropy = 0;
        for (int32_t t = 0; t < ref.n; t++) {
            entropy -= ref.keep[t] && ref.w[t] > 0 ? ref.w[t] / z * log(ref.w[t] / z) : 0;
        }
        for (int32_t t = 0; t < ref.n; t++) {
            off[t] = -fabs(-((ref.x[t] - max) / (double)o->temp - log(z)) - entropy);
        }
        ref_first(off, (double)o->typical_p * z);
    }
}

static int32_t ref_draw(double u)
{
    double mark = u * ref_total(), sum = 0;
    for (int32_t t = 0; t < ref.n; t++) {
        sum += ref.keep[t] ? ref.w[t] : 0;
        if (ref.keep[t] && sum > mark) {
            return t;
        }
    }
    return -1;
}

static int32_t ref_next(const struct sample_opts *o, const int32_t *h, size_t n)
{
    for (int32_t t = 0; t < ref.n; t++) {
        ref.x[t] = sane(logits[t]);
    }
    ref_edit(o, h, n);
    if (o->temp <= 0) {
        int32_t best = 0;
        for (int32_t t = 1; t < ref.n; t++) {
            best = ref.x[t] > ref.x[best] ? t : best;
        }
        return best;
    }
    ref_cut(o);
    return ref_draw(rng_unit(o->seed, o->stream, n));
}

/* ---- random material ---- */

static uint64_t dice;

static double roll(void)
{
    return rng_unit(77, 1, dice++);
}
static int32_t roll_int(int32_t n)
{
    return (int32_t)(roll() * n);
}

enum { SMOOTH, TIES, HOLES, FLAT, PEAKED, N_KINDS };

static void make_logits(int32_t n, int kind)
{
    ref.n = n;
    for (int32_t i = 0; i < n; i++) {
        float g = rng_gauss(5, 6, dice++);
        logits[i] = kind == FLAT ? 1.5f : kind == TIES ? roundf(g * 2) / 2 : 3 * g;
        if (kind == HOLES && roll() < 0.4) {
            logits[i] = roll() < 0.5 ? -INFINITY : NAN;
        }
    }
    if (kind == PEAKED) {
        for (int i = 0; i < 40; i++) {
            logits[roll_int(n)] = 18 - (float)i / 2;
        }
    }
    if (kind == HOLES) {
        logits[roll_int(n)] = 2;
    }
}

static size_t make_history(int32_t *h, size_t n, int32_t n_words)
{
    for (size_t i = 0; i < n; i++) {
        h[i] = roll_int(n_words);
    }
    return n;
}

static const int32_t vocabs[] = { 1, 2, 3, 255, 256, 257, 1000, 5003, 66000 };
enum { N_VOCABS = sizeof vocabs / sizeof vocabs[0] };

/* The sampler's survivors and its choice are the reference's. */
static void compare(const struct sample_opts *o, const int32_t *h, size_t n)
{
    static bool kept[V_MAX];
    struct sampler *s = must_open(o, ref.n);
    must_accept(s, h, n);
    struct sample_pick p = must_next(s, logits);
    int32_t want = ref_next(o, h, n);
    if (o->temp > 0) {
        memset(kept, 0, sizeof kept);
        for (int32_t i = 0; i < s->n; i++) {
            int32_t t = s->dense ? i : s->id[i];
            assert_true(s->dense || i == 0 || t > s->id[i - 1]);
            kept[t] = !s->dense || isfinite(ref.x[t]);
        }
        for (int32_t t = 0; t < ref.n; t++) {
            if (kept[t] != ref.keep[t] && ref.w[t] > 1e-36) {
                fail_msg("vocabulary %d: token %d is %s", (int)ref.n, (int)t, kept[t] ? "kept" : "cut");
            }
        }
    }
    assert_int_equal(p.token, want);
    sample_close(s);
}

/* ---- tests ---- */

static void greedy_exact(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    for (int v = 0; v < N_VOCABS; v++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            make_logits(vocabs[v], kind);
            compare(&o, NULL, 0);
        }
    }
    make_logits(1000, FLAT);
    assert_int_equal(one_shot(&o, logits, 1000).token, 0);
    logits[3] = NAN;
    logits[999] = logits[700] = 2;
    assert_int_equal(one_shot(&o, logits, 1000).token, 700);
    logits[999] = INFINITY;
    struct sample_pick p = one_shot(&o, logits, 1000);
    assert_int_equal(p.token, 999);
    assert_float_equal(p.logprob, 0, 0);
    const float zeros[3] = { -1, -0.0f, 0.0f }, ends[2] = { -FLT_MAX, NAN };
    assert_int_equal(one_shot(&o, zeros, 3).token, 1);
    assert_int_equal(one_shot(&o, ends, 2).token, 0);
}

static void cuts_alone(void **state)
{
    (void)state;
    for (int v = 0; v < N_VOCABS; v++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            for (int i = 0; i < 10; i++) {
                struct sample_opts o = sample_defaults();
                o.temp = i % 2 ? 1 : 0.3f + (float)roll();
                o.seed = (uint64_t)i;
                static const int32_t ks[10] = { 1, 2, 3, 20, 40, 100, 257, 1000, 4000, 65999 };
                make_logits(vocabs[v], kind);
                compare(&o, NULL, 0);
                o.top_k = ks[i];
                compare(&o, NULL, 0);
                o.top_k = 0;
                o.top_p = i == 0 ? 0 : i == 1 ? 0.999f : (float)roll();
                compare(&o, NULL, 0);
                o.top_p = 1;
                o.min_p = i == 0 ? 1 : (float)(roll() * roll() * roll());
                compare(&o, NULL, 0);
                o.min_p = 0;
                o.typical_p = i == 0 ? 0 : (float)roll();
                compare(&o, NULL, 0);
            }
        }
    }
}

static void edits_alone(void **state)
{
    (void)state;
    static int32_t h[H_MAX];
    static struct sample_bias bias[40];
    for (int i = 0; i < 120; i++) {
        struct sample_opts o = sample_defaults();
        make_logits(vocabs[1 + i % (N_VOCABS - 2)], i % N_KINDS);
        size_t n = make_history(h, (size_t)roll_int(300), ref.n < 30 ? ref.n : 30);
        o.temp = i & 1 ? 0 : 0.7f;
        o.seed = (uint64_t)i;
        o.penalty_last_n = (int32_t[]){ -1, 0, 1, 64, 1000 }[i % 5];
        o.repeat_penalty = 0.8f + (float)roll();
        compare(&o, h, n);
        o.repeat_penalty = 1;
        o.presence_penalty = (float)(4 * roll() - 2);
        compare(&o, h, n);
        o.presence_penalty = 0;
        o.frequency_penalty = (float)(2 * roll() - 1);
        compare(&o, h, n);
        o.frequency_penalty = 0;
        for (int b = 0; b < 40; b++) {
            float amount = (float)(20 * roll() - 10);
            bias[b] = (struct sample_bias){ roll_int(ref.n), b % 5 ? amount : -INFINITY };
        }
        bool left = false; /* unless everything is forbidden */
        o.bias = bias;
        o.n_bias = 40;
        ref_next(&o, h, n);
        for (int32_t t = 0; t < ref.n; t++) {
            left = left || isfinite(ref.x[t]);
        }
        if (left) {
            compare(&o, h, n);
        }
    }
}

static void everything_at_once(void **state)
{
    (void)state;
    static int32_t h[H_MAX];
    for (int i = 0; i < 200; i++) {
        struct sample_opts o = sample_defaults();
        make_logits(vocabs[3 + i % 5], i % N_KINDS);
        size_t n = make_history(h, (size_t)roll_int(400), 4);
        const struct sample_bias bias[2] = { { 1, 3 }, { roll_int(ref.n), -2 } };
        const int32_t breakers[1] = { 3 };
        o.temp = 0.2f + 2 * (float)roll();
        o.top_k = 1 + roll_int(60);
        o.top_p = 0.5f + (float)roll() / 2;
        o.min_p = (float)roll() / 10;
        o.typical_p = 0.5f + (float)roll() / 2;
        o.repeat_penalty = 1.1f;
        o.presence_penalty = 0.5f;
        o.frequency_penalty = 0.01f;
        o.penalty_last_n = 100;
        o.dry_multiplier = 0.8f;
        o.dry_breakers = breakers;
        o.n_dry_breakers = 1;
        o.bias = bias;
        o.n_bias = 2;
        o.seed = (uint64_t)i;
        o.stream = 3;
        compare(&o, h, n);
    }
}

static void order_of_stages(void **state)
{
    (void)state;
#define STAGE(name, on) " " #name
    static const char list[] =
#include "sample/stages.def"
        ;
#undef STAGE
    assert_string_equal(list, " shun mix bias penalty dry peak greedy temp top_k top_p min_p typical draw");

    struct sample_opts o = sample_defaults();
    const float pair[3] = { 2, 1.5f, -8 };
    const struct sample_bias up[1] = { { 1, 1 } };
    const int32_t seen[1] = { 1 };
    o.bias = up; /* bias before greedy: 2.5 beats 2 */
    o.n_bias = 1;
    assert_int_equal(one_shot(&o, pair, 3).token, 1);
    o.repeat_penalty = 2; /* penalty before greedy: 1.25 does not */
    struct sampler *s = must_open(&o, 3);
    must_accept(s, seen, 1);
    assert_int_equal(must_next(s, pair).token, 0);
    sample_close(s);
    /* bias before penalty: 1.25; the other way round 1.75: top_p tells */
    o.temp = 1;
    o.top_p = 0.65f; /* softmax of 2, 1.25: .679; of 2, 1.75: .562 */
    s = must_open(&o, 3);
    must_accept(s, seen, 1);
    must_next(s, pair);
    assert_int_equal(s->n, 1);
    sample_close(s);
}

static void order_of_cuts(void **state)
{
    (void)state;
    /* temp before top_p: at temp 1 the first token has .67, at temp 4 .42 */
    struct sample_opts o = sample_defaults();
    struct sampler *s;
    o.top_p = 0.6f;
    const float three[3] = { 2, 1, 0.2f };
    o.temp = 1;
    s = must_open(&o, 3);
    must_next(s, three);
    assert_int_equal(s->n, 1);
    sample_close(s);
    o.temp = 4;
    s = must_open(&o, 3);
    must_next(s, three);
    assert_int_equal(s->n, 2);
    sample_close(s);
    /* reaching top_p exactly is enough: two of four equal tokens */
    const float four[4] = { 0, 0, 0, 0 };
    o.temp = 1;
    o.top_p = 0.5f;
    s = must_open(&o, 4);
    must_next(s, four);
    assert_int_equal(s->n, 2);
    assert_int_equal(s->id[1], 1);
    sample_close(s);
    /* top_k before top_p: among two the first has .52, among five .25 */
    const float five[5] = { 1, 0.9f, 0.8f, 0.7f, 0.6f };
    o.temp = 1;
    o.top_k = 2;
    o.top_p = 0.5f;
    s = must_open(&o, 5);
    must_next(s, five);
    assert_int_equal(s->n, 1);
    sample_close(s);
}

static void logprobs(void **state)
{
    (void)state;
    for (int v = 0; v < N_VOCABS; v++) {
        for (int kind = 0; kind < N_KINDS; kind++) {
            struct sample_opts o = sample_defaults();
            const struct sample_bias bias[1] = { { 0, -1 } };
            make_logits(vocabs[v], kind);
            o.temp = kind & 1 ? 0.8f : 0;
            o.top_k = 3;
            o.bias = bias; /* does not show in log-probabilities */
            o.n_bias = 1;
            o.n_top = v & 1 ? ref.n : ref.n < 20 ? ref.n : 20;
            double max = -INFINITY, sum = 0;
            int32_t n_finite = 0;
            for (int32_t t = 0; t < ref.n; t++) {
                ref.x[t] = sane(logits[t]);
                ref.order[t] = t;
                max = fmax(max, ref.x[t]);
                n_finite += isfinite(ref.x[t]);
            }
            for (int32_t t = 0; t < ref.n; t++) {
                sum += exp(ref.x[t] - max);
            }
            sort_by = ref.x;
            qsort(ref.order, (size_t)ref.n, sizeof ref.order[0], by_value);
            struct sampler *s = must_open(&o, ref.n);
            struct sample_pick p = must_next(s, logits);
            assert_float_equal(p.logprob, (float)(ref.x[p.token] - max - log(sum)), 2e-6);
            assert_int_equal(p.n_top, n_finite < o.n_top ? n_finite : o.n_top);
            for (int32_t i = 0; i < p.n_top; i++) {
                assert_int_equal(p.top[i].token, ref.order[i]);
                double want = ref.x[ref.order[i]] - max - log(sum);
                assert_true(fabs((double)p.top[i].logprob - want) < 2e-6 + 2e-7 * fabs(want));
            }
            sample_close(s);
        }
    }
}

/* 16 tokens, 40,000 draws: the statistic stays below the 99.9 % point for 15 degrees of freedom. */
static void frequencies(void **state)
{
    (void)state;
    enum { N = 16, DRAWS = 40000 };
    struct sample_opts o = sample_defaults();
    o.temp = 1.3f;
    o.seed = 20;
    float x[N];
    double w[N], total = 0, chi = 0;
    int count[N] = { 0 };
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i * 7 % N) / 6;
        w[i] = exp((double)x[i] / 1.3);
        total += w[i];
    }
    struct sampler *s = must_open(&o, N);
    for (int i = 0; i < DRAWS; i++) {
        int32_t t = must_next(s, x).token;
        count[t]++;
        must_accept(s, &t, 1);
    }
    sample_close(s);
    for (int i = 0; i < N; i++) {
        double want = w[i] / total * DRAWS;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    assert_true(chi < 37.7);
    assert_true(chi > 2); /* nor suspiciously even */
}

static void same_again(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    o.temp = 1;
    o.seed = 4;
    make_logits(5003, SMOOTH);
    struct sampler *a = must_open(&o, ref.n), *b = must_open(&o, ref.n);
    o.stream = 1;
    struct sampler *c = must_open(&o, ref.n);
    int same_stream = 0, moves = 0, before = -1;
    for (int i = 0; i < 50; i++) {
        int32_t t = must_next(a, logits).token;
        assert_int_equal(must_next(a, logits).token, t); /* choosing is not accepting */
        assert_int_equal(must_next(b, logits).token, t);
        same_stream += must_next(c, logits).token == t;
        moves += t != before;
        before = t;
        must_accept(a, &t, 1);
        must_accept(b, &t, 1);
        must_accept(c, &t, 1);
    }
    assert_true(same_stream < 10);
    assert_true(moves > 40);
    sample_close(a);
    sample_close(b);
    sample_close(c);
}

static void kernels_agree(void **state)
{
    const struct softmax_kernels *p = softmax_kernels_for(0);
    const struct softmax_kernels *q = softmax_kernels_for(set_or_skip(state));
    float x[2][SAMPLE_BLOCK], w[2][SAMPLE_BLOCK];
    for (int i = 0; i < 400; i++) {
        make_logits(SAMPLE_BLOCK, i % N_KINDS);
        logits[roll_int(SAMPLE_BLOCK)] *= 20;
        float max = p->scan(logits, x[0]), inv_temp = i & 1 ? 1 : (float)(roll() * 3);
        float other = q->scan(logits, x[1]);
        p->weigh(x[0], w[0], max, inv_temp);
        q->weigh(x[1], w[1], max, inv_temp);
        assert_memory_equal(&max, &other, sizeof max);
        assert_memory_equal(x[0], x[1], sizeof x[0]);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
        double sums[2] = { p->sum(w[0]), q->sum(w[0]) };
        assert_memory_equal(&sums[0], &sums[1], sizeof sums[0]);
        for (int t = 0; t < SAMPLE_BLOCK; t++) {
            double d = fmax(((double)x[0][t] - (double)max) * (double)inv_temp, -1e3);
            double want = exp(d);
            /* the float d carries a relative error of its own */
            assert_true(fabs((double)w[0][t] - want) <= want * (3e-7 + 1.3e-7 * fabs(d)) + 2e-38);
        }
    }
}

/* By how much DRY lowers the logit of `token`. */
static double dry_of(const struct sample_opts *o, const int32_t *h, size_t n, int32_t token)
{
    static const float flat[10];
    struct sampler *s = must_open(o, 10);
    must_accept(s, h, n);
    must_next(s, flat);
    double d = -(double)s->x[token];
    sample_close(s);
    return d;
}

static void dry_by_hand(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    o.dry_multiplier = 1;
    o.dry_base = 2;
    /* 1 2 3 4 | 1 2 3: after 1 2 3 came 4: m = 3, 2^(3 - 2) = 2 */
    const int32_t a[7] = { 1, 2, 3, 4, 1, 2, 3 };
    assert_float_equal(dry_of(&o, a, 7, 4), 2, 0);
    assert_float_equal(dry_of(&o, a, 7, 1), 0, 0);
    assert_float_equal(dry_of(&o, a, 6, 3), 1, 0); /* 1 2: m = 2 */
    assert_float_equal(dry_of(&o, a, 5, 2), 0, 0); /* 1: too short */
    o.dry_allowed_length = 1;
    assert_float_equal(dry_of(&o, a, 7, 4), 4, 0);
    o.dry_allowed_length = 4;
    assert_float_equal(dry_of(&o, a, 7, 4), 0, 0);
    o.dry_allowed_length = 2;
    /* the longest of several: 1 2 -> 5 (m = 2), 9 1 2 -> 5 (m = 3) */
    const int32_t b[10] = { 1, 2, 5, 9, 1, 2, 5, 9, 1, 2 };
    assert_float_equal(dry_of(&o, b, 10, 5), 16, 0); /* 1 2 5 9 1 2: m = 6, overlapping itself */
    /* 7 7 7 7: m = 3 */
    const int32_t c[4] = { 7, 7, 7, 7 };
    assert_float_equal(dry_of(&o, c, 4, 7), 2, 0);
    o.dry_last_n = 3;
    assert_float_equal(dry_of(&o, c, 4, 7), 1, 0);
    assert_float_equal(dry_of(&o, a, 7, 4), 0, 0); /* out of the window */
    o.dry_last_n = 0;
    assert_float_equal(dry_of(&o, c, 4, 7), 0, 0);
    o.dry_last_n = -1;
    /* a breaker: 2 cuts 1 2 3 to 3, and 1 2 to nothing */
    const int32_t two[1] = { 2 }, four[1] = { 4 };
    o.dry_breakers = two;
    o.n_dry_breakers = 1;
    assert_float_equal(dry_of(&o, a, 7, 4), 0, 0);
    o.dry_allowed_length = 1;
    assert_float_equal(dry_of(&o, a, 7, 4), 1, 0);
    assert_float_equal(dry_of(&o, a, 6, 3), 0, 0);
    o.dry_breakers = four; /* never penalised itself */
    assert_float_equal(dry_of(&o, a, 7, 4), 0, 0);
}

static void dry_against_naive(void **state)
{
    (void)state;
    static int32_t h[H_MAX];
    for (int i = 0; i < 600; i++) {
        struct sample_opts o = sample_defaults();
        const int32_t breakers[2] = { 0, 5 };
        make_logits(64, FLAT);
        size_t n = make_history(h, (size_t)roll_int(i % 3 ? 60 : 1500), 1 + i % 7);
        for (size_t k = 0; i % 4 == 0 && k < n; k++) { /* periods, now and then broken */
            h[k] = roll() < 0.01 ? 6 : (int32_t)(k % (size_t)(1 + i % 11));
        }
        o.temp = 1;
        o.dry_multiplier = 0.001f;
        o.dry_base = 1.01f;
        o.dry_allowed_length = 1 + roll_int(5);
        o.dry_last_n = i % 2 ? -1 : roll_int(80);
        o.dry_breakers = breakers;
        o.n_dry_breakers = (size_t)(i % 3);
        struct sampler *s = must_open(&o, ref.n);
        must_accept(s, h, n);
        must_next(s, logits);
        ref_next(&o, h, n);
        assert_true(s->dense);
        for (int32_t t = 0; t < ref.n; t++) {
            assert_float_equal(s->x[t], (float)ref.x[t], 1e-5f * (1 + (float)fabs(ref.x[t])));
        }
        sample_close(s);
    }
}

/* Texts made of one token or of two alternating: anything quadratic would not end. */
static void dry_hostile(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    o.dry_multiplier = 1;
    make_logits(64, FLAT);
    for (int period = 1; period <= 3; period++) {
        struct sampler *s = must_open(&o, 64);
        for (int32_t i = 0; i < 200000; i++) {
            int32_t t = i % period;
            must_accept(s, &t, 1);
        }
        for (int i = 0; i < 20; i++) {
            assert_int_equal(must_next(s, logits).token, period == 1 ? 1 : 200000 % period ? 0 : 1);
            assert_true((double)s->x[200000 % period] < -9e29);
        }
        sample_close(s);
    }
}

static void counts_follow_the_window(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    o.frequency_penalty = 1;
    o.penalty_last_n = 7;
    static int32_t h[500];
    make_history(h, 500, 12);
    struct sampler *s = must_open(&o, 12);
    for (int i = 0; i < 500; i++) {
        must_accept(s, h + i, 1);
        int want[12] = { 0 }, distinct = 0;
        for (int k = i > 6 ? i - 6 : 0; k <= i; k++) {
            distinct += want[h[k]]++ == 0;
        }
        assert_int_equal(s->counts.n, distinct);
        for (int32_t k = 0; k < s->counts.n; k++) {
            assert_int_equal(s->counts.count[k], want[s->counts.token[k]]);
            want[s->counts.token[k]] = -1; /* listed once */
        }
    }
    sample_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(greedy_exact),    cmocka_unit_test(cuts_alone),
        cmocka_unit_test(edits_alone),     cmocka_unit_test(everything_at_once),
        cmocka_unit_test(order_of_stages), cmocka_unit_test(order_of_cuts),
        cmocka_unit_test(logprobs),        cmocka_unit_test(frequencies),
        cmocka_unit_test(same_again),      SET_TEST(kernels_agree, avx2),
        cmocka_unit_test(dry_by_hand),     cmocka_unit_test(dry_against_naive),
        cmocka_unit_test(dry_hostile),     cmocka_unit_test(counts_follow_the_window),
    };
    return cmocka_run_group_tests_name("sample", tests, NULL, NULL);
}
