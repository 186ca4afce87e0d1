/* SPDX-License-Identifier: Apache-2.0 */
/* quant_int_test.c - integer products: weights as whole numbers, rounded activations, the stated order,
 * and that every processor's code gives the same bytes. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "cpu/format.h"
#include "dots.h"
#include "sets.h"

enum { N_MAX = 2048, BLOCKS = N_MAX / 256, ROWS = 5, BYTES_MAX = 272 /* q8_0: of 256 elements */ };

static uint64_t turn = 1; /* of random numbers */

static float random_float(void)
{
    return (float)(2.0 * rng_unit(3, 0, turn++) - 1.0);
}

static bool same_float(float a, float b)
{
    return memcmp(&a, &b, sizeof(a)) == 0 || (isnan(a) && isnan(b));
}

static void *aligned(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(p);
    return p;
}

/* Blocks of any bytes, where `finite` of values below 1e18. */
static void fill(int type, unsigned char *row, int64_t n, bool finite)
{
    const struct cpu_format *t = cpu_format_of(type);

    int bytes = 256 / quant_types[t->type]->block_elems * quant_types[t->type]->block_bytes;

    for (int64_t i = 0; i < n; i += 256, row += bytes) {
        bool good = false;

        while (!good) {
            float y[256];

            for (int k = 0; k < bytes; k++)
                row[k] = (unsigned char)(256.0 * rng_unit(4, 0, turn++));
            quant_types[t->type]->decode(y, row, 256);
            good = true;
            for (int k = 0; finite && k < 256; k++)
                good = good && fabsf(y[k]) < 1e18f;
        }
    }
}

static void types_with_whole_numbers_have_blocks_of_256_or_32(void **state)
{
    int n = 0;

    (void)state;
    for (int i = 0; i < QUANT_N; i++) {
        const struct cpu_format *t = cpu_format_of(i);

        n += t->ints != NULL;
        if (t->ints == NULL)
            assert_true(t->ints_avx2 == NULL && t->ints_avx512 == NULL && t->dots_avx2 == NULL &&
                        t->dots_i8_avx2 == NULL && t->dots_vnni == NULL && t->dots_i8_vbmi == NULL &&
                        t->bytes == NULL && t->codes_avx2 == NULL);
        else
            assert_true((quant_types[t->type]->block_elems == 256 ||
                         (quant_types[t->type]->block_elems == 32 && t->n_min == 0 && !t->wide)) &&
                        quant_types[t->type]->head_bytes == 0);
        assert_ptr_equal(cpu_int_decoder(i, 0), t->ints);
        assert_true((t->ints == NULL) == (t->bytes == NULL));
        assert_true((t->ints_avx2 == NULL) == (t->dots_avx2 == NULL));
        if (t->ints_avx2 != NULL) {
            assert_ptr_equal(cpu_int_decoder(i, SIMD_AVX2), t->ints_avx2);
            assert_ptr_equal(cpu_int_decoder(i, SIMD_AVX2 | SIMD_AVX512),
                             t->ints_avx512 != NULL ? t->ints_avx512 : t->ints_avx2);
        }
    }
    assert_true(n >= 15);
    assert_int_equal(sizeof(struct cpu_int_block) % 64, 0);
    assert_int_equal(sizeof(struct cpu_byte_block) % 64, 0);
    assert_int_equal(sizeof(struct cpu_code_block) % 64, 0);
    assert_int_equal(sizeof(struct cpu_act_block) % 64, 0);
}

/* scale w - min is the weight, to the last bits of float. */
static void whole_numbers_are_the_weights(void **state)
{
    struct cpu_int_block *u = aligned(BLOCKS * sizeof(*u));
    unsigned char row[BLOCKS * BYTES_MAX];
    float y[N_MAX];

    (void)state;
    for (int i = 0; i < QUANT_N; i++) {
        const struct cpu_format *t = cpu_format_of(i);

        for (int times = 0; t->ints != NULL && times < 50; times++) {
            fill(i, row, N_MAX, true);
            t->ints(u, row, N_MAX);
            quant_types[t->type]->decode(y, row, N_MAX);
            for (int j = 0; j < N_MAX; j++) {
                const struct cpu_int_block *b = u + j / 256;
                int whole = b->w[cpu_int_place(j % 256)];
                double w = (double)b->scale[quant_types[t->type]->block_elems == 32 ? j % 256 / 32 : j % 16] * whole;
                double min = t->n_min > 0 ? (double)b->min[j % 256 * t->n_min / 256] : 0.0;

                assert_true(abs(whole) <= (t->wide ? 4096 : 2048));
                if (!(fabs(w - min - (double)y[j]) <= 0x1p-22 * (fabs(w) + fabs(min))))
                    fail_msg("%s: value %d is %g, not %g", quant_types[t->type]->name, j, w - min, (double)y[j]);
            }
        }
    }
    free(u);
}

static float min_of(const struct cpu_format *t, const struct cpu_byte_block *b, int i)
{
    return t->n_min == 0 ? 0.0f : b->min[t->n_min == 8 ? i / 32 : i / 16 % 2 * 8 + i / 32];
}

static void bytes_are_the_weights(void **state)
{
    struct cpu_byte_block *u = aligned(BLOCKS * sizeof(*u));
    unsigned char row[BLOCKS * BYTES_MAX];
    float y[N_MAX];

    (void)state;
    for (int i = 0; i < QUANT_N; i++) {
        const struct cpu_format *t = cpu_format_of(i);

        for (int times = 0; t->bytes != NULL && times < 50; times++) {
            fill(i, row, N_MAX, true);
            t->bytes(u, row, N_MAX);
            quant_types[t->type]->decode(y, row, N_MAX);
            for (int j = 0; j < N_MAX; j++) {
                const struct cpu_byte_block *b = u + j / 256;
                int k = j % 256, whole = b->sub[k / 16] * b->code[k];
                double w = (double)b->scale[k / 32] * whole, min = (double)min_of(t, b, k);

                assert_true(abs(whole) <= 4096 && (t->sub_16 || b->sub[k / 16] == b->sub[k / 32 * 2]));
                if (!(fabs(w - min - (double)y[j]) <= 0x1p-22 * (fabs(w) + fabs(min))))
                    fail_msg("%s: value %d is %g, not %g", quant_types[t->type]->name, j, w - min, (double)y[j]);
            }
        }
    }
    free(u);
}

static void check_codes(const struct cpu_format *t, const struct cpu_byte_block *want, const struct cpu_code_block *got,
                        bool steps)
{
    int more = steps && t->span <= 128 ? t->low : 0;

    for (int b = 0; b < BLOCKS; b++, want++, got++) {
        for (int i = 0; i < 256; i++) {
            assert_in_range(want->code[i] + t->low, 0, t->span);
            if (got->code[steps ? cpu_step_place(i) : i] != want->code[i] + more)
                fail_msg("%s: code %d differs", quant_types[t->type]->name, i);
        }
        for (int g = 0; g < 8; g++) {
            float scale = t->sub_16 ? want->scale[g] : want->scale[g] * (float)want->sub[2 * g];

            if (!same_float(scale, got->scale[g]))
                fail_msg("%s: scale %d", quant_types[t->type]->name, g);
        }
        for (int i = 0; t->sub_16 && i < 16; i++)
            assert_int_equal((uint32_t)got->sub[i], (uint16_t)want->sub[i % 8 * 2 + i / 8] * 0x10001u);
        for (int i = 0; i < t->n_min; i++)
            if (!same_float(want->min[i], got->min[i]))
                fail_msg("%s: minimum %d", quant_types[t->type]->name, i);
    }
}

static void fast_code_gives_the_same_bytes(void **state)
{
    struct cpu_byte_block *want;
    struct cpu_code_block *got;
    unsigned char row[BLOCKS * BYTES_MAX];

    set_or_skip(state);
    want = aligned(BLOCKS * sizeof(*want));
    got = aligned(BLOCKS * sizeof(*got));
    for (int i = 0; i < QUANT_N; i++)
        for (int times = 0; cpu_format_of(i)->codes_avx2 != NULL && times < 100; times++) {
            fill(i, row, N_MAX, false);
            cpu_format_of(i)->bytes(want, row, N_MAX);
            cpu_format_of(i)->codes_avx2(got, row, N_MAX, times % 2 == 0);
            check_codes(cpu_format_of(i), want, got, times % 2 == 0);
        }
    free(want);
    free(got);
}

static void fast_code_gives_the_same_whole_numbers(void **state)
{
    unsigned set = set_or_skip(state);
    struct cpu_int_block *want = aligned(BLOCKS * sizeof(*want)), *got = aligned(BLOCKS * sizeof(*got));
    unsigned char row[BLOCKS * BYTES_MAX];

    for (int i = 0; i < QUANT_N; i++) {
        const struct cpu_format *t = cpu_format_of(i);
        cpu_ints_fn *f = (set & SIMD_AVX512) != 0 ? t->ints_avx512 : t->ints_avx2;

        for (int times = 0; f != NULL && times < 100; times++) {
            fill(i, row, N_MAX, false);
            memset(want, 0, BLOCKS * sizeof(*want));
            memset(got, 0, BLOCKS * sizeof(*got));
            t->ints(want, row, N_MAX);
            f(got, row, N_MAX);
            for (int b = 0; b < BLOCKS; b++) {
                if (memcmp(want[b].w, got[b].w, sizeof(want[b].w)) != 0)
                    fail_msg("%s: whole numbers differ", quant_types[t->type]->name);
                for (int j = 0; j < 16; j++)
                    if (!same_float(want[b].scale[j], got[b].scale[j]) || !same_float(want[b].min[j], got[b].min[j]))
                        fail_msg("%s: scale or minimum %d", quant_types[t->type]->name, j);
            }
        }
    }
    free(want);
    free(got);
}

/* With 8 bits a lane is a group of 32. */
static int lane_of(int i, int top)
{
    return top == 127 ? i / 32 : i % 32 / 4;
}

/* Activations of many sizes, some lanes of which are zero, tiny, infinite or not numbers. */
static void fill_x(float *x, int64_t n, bool odd, int top)
{
    for (int64_t i = 0; i < n; i++) {
        int at = (int)(i % 256);

        x[i] = random_float() * (i % 5 == 0 ? 100.0f : 1.0f);
        switch (odd ? (i / 256 * 8 + lane_of(at, top)) % 23 : 22) {
        case 3:
            x[i] = i % 2 == 0 ? 0.0f : -0.0f;
            break;
        case 7:
            x[i] *= 0x1p-110f;
            break;
        case 9:
            x[i] *= 0x1p-140f;
            break;
        case 12:
            x[i] = i % 16 < 8 && i % 4 == 1 ? -INFINITY : x[i];
            break;
        case 15:
            x[i] = i % 32 < 8 ? NAN : x[i];
            break;
        case 18:
            x[i] = 3e38f * random_float();
            break;
        default:
            break;
        }
    }
}

static int rounded_at(const struct cpu_act_block *a, int i, int top)
{
    return top == 127 ? a->b[i] : a->q[cpu_int_place(i)];
}

static void every_element_has_a_place(void **state)
{
    bool taken[256] = { false };

    (void)state;
    for (int i = 0; i < 256; i++) {
        int p = cpu_int_place(i);

        assert_true(p >= 0 && p < 256 && !taken[p]);
        taken[p] = true;
        assert_int_equal(p % 16 / 2, lane_of(i, 32767));
        assert_int_equal(cpu_step_place(i), 32 * (i / 4 % 8) + 4 * (i / 32) + i % 4);
        assert_int_equal(cpu_fours_place(i) % 64 / 4, i / 16);
        assert_int_equal(cpu_fours_place(i) / 64 * 4 + cpu_fours_place(i) % 4, i % 16);
    }
}

/* Sums of 16 of 8 bits, halves of groups apart; and all orders of bytes. */
static void check_byte_sums(const struct cpu_act_block *a)
{
    for (int i = 0; i < 256; i++) {
        assert_int_equal(a->half[cpu_half_place(i)], a->b[i]);
        assert_int_equal(a->step[cpu_step_place(i)], a->b[i]);
    }
    for (int g = 0; g < 16; g++) {
        int sum = 0;

        for (int i = 0; i < 16; i++) {
            assert_int_equal(a->fours[cpu_fours_place(16 * g + i)], a->b[16 * g + i]);
            sum += a->b[16 * g + i];
        }
        assert_int_equal(a->whole[g], sum);
        assert_int_equal(a->less[g], -128 * sum);
        assert_true(same_float(a->sum[g % 2 * 8 + g / 2], a->scale[g / 2] * (float)sum));
    }
    for (int g = 0; g < 8; g++)
        assert_true(same_float(a->sum_32[g], a->scale[g] * (float)(a->whole[2 * g] + a->whole[2 * g + 1])));
}

static void check_word_sums(const struct cpu_act_block *a)
{
    for (int g = 0; g < 16; g++) {
        float t[4];

        for (int l = 0; l < 4; l++) {
            int four = 0;

            for (int i = 0; i < 4; i++)
                four += a->q[cpu_int_place(16 * g + 4 * l + i)];
            t[l] = a->scale[lane_of(16 * g + 4 * l, 32767)] * (float)four;
        }
        float sum = (t[0] + t[2]) + (t[1] + t[3]);

        assert_true(same_float(sum, a->sum[g]));
    }
    for (int g = 0; g < 8; g++)
        assert_true(same_float(a->sum[2 * g] + a->sum[2 * g + 1], a->sum_32[g]));
}

static void check_rounded(const struct cpu_act_block *a, const float *x, int top)
{
    for (int l = 0; l < 8; l++) {
        float max = 0.0f;
        bool finite = true;

        for (int i = 0; i < 256; i++)
            if (lane_of(i, top) == l) {
                finite = finite && isfinite(x[i]);
                max = fmaxf(max, fabsf(x[i]));
            }
        assert_int_equal(isnan(a->scale[l]), !finite);
        for (int i = 0; i < 256; i++)
            if (lane_of(i, top) == l) {
                int q = rounded_at(a, i, top);
                double v = (double)a->scale[l] * q;

                assert_true(q >= -top && q <= top);
                if (!finite || max < 0x1p-100f)
                    assert_int_equal(q, 0);
                else if (!(fabs(v - (double)x[i]) <= (double)max / (1.98 * top)))
                    fail_msg("%g rounded to %g, the largest is %g", (double)x[i], v, (double)max);
            }
    }
    if (top == 127)
        check_byte_sums(a);
    else
        check_word_sums(a);
}

static void check_rounding(unsigned set, const float *x, int top)
{
    cpu_round_fn *f[2] = { cpu_rounder(0), cpu_rounder(set) };
    struct cpu_act_block *a = aligned(BLOCKS * sizeof(*a)), *first = aligned(BLOCKS * sizeof(*a));

    for (int k = 0; k < 2; k++) {
        memset(a, 0x55, BLOCKS * sizeof(*a));
        f[k](a, x, N_MAX, top);
        if (k == 0)
            memcpy(first, a, BLOCKS * sizeof(*a));
        for (int b = 0; b < BLOCKS; b++) {
            check_rounded(a + b, x + 256 * b, top);
            for (int i = 0; i < 256; i++) /* every code rounds the same way */
                assert_int_equal(rounded_at(a + b, i, top), rounded_at(first + b, i, top));
            for (int j = 0; j < 8; j++)
                assert_true(same_float(a[b].scale[j], first[b].scale[j]));
        }
    }
    free(a);
    free(first);
}

static void activations_are_rounded_as_stated(void **state)
{
    static const int tops[] = { 32767, 16383, 127 };
    const unsigned set = set_or_skip(state);
    float x[N_MAX];

    for (int times = 0; times < 60; times++) {
        int top = tops[times % 6 / 2];

        fill_x(x, N_MAX, times % 2 == 1, top);
        check_rounding(set, x, top);
    }
}

/* What the product may differ by from that of the weights with x, in exact arithmetic: activations
 * moved by half a step, floats rounded. */
static double allowed(const struct cpu_format *t, int top, const unsigned char *row, const float *x, int64_t n)
{
    struct cpu_int_block *u = aligned(BLOCKS * sizeof(*u));
    double sum = 1e-30;

    t->ints(u, row, n);
    for (int64_t i = 0; i < n; i++) {
        const struct cpu_int_block *b = u + i / 256;
        int s = quant_types[t->type]->block_elems == 32 ? (int)(i % 256 / 32) : 0;
        double w = fabs((double)b->scale[s] * b->w[cpu_int_place((int)(i % 256))]), max = 0;
        double min = t->n_min > 0 ? fabs((double)b->min[i % 256 * t->n_min / 256]) : 0;

        for (int j = 0; j < 256; j++)
            if (lane_of(j, top) == lane_of((int)(i % 256), top))
                max = fmax(max, fabs((double)x[i / 256 * 256 + j]));
        double off = max / (1.98 * top);

        sum += (w + min) * (off + (fabs((double)x[i]) + off) * (double)(n / 64 + 16) * 0x1p-24);
    }
    free(u);
    return sum;
}

/* Rows by x: a set's code gives what the scalar one does, which is near the product of the weights. */
static void check_products(unsigned set, int type, enum quant_acts_type acts, const unsigned char *rows, const float *x,
                           int64_t n)
{
    const struct cpu_format *t = cpu_format_of(type);
    struct cpu_act_block *a = aligned(BLOCKS * sizeof(*a));
    cpu_int_dots_fn *f = cpu_int_dotter(type, acts, set);
    int64_t bytes = quant_row_bytes(type, n);
    int top = cpu_acts_top(type, acts);
    float w[N_MAX], y[ROWS];

    cpu_rounder(0)(a, x, n, top);
    if (f != NULL)
        f(y, rows, bytes, ROWS, a, n);
    for (int r = 0; r < ROWS; r++, rows += bytes) {
        float got = dot_ints(type, acts, rows, x, n);
        double sum = 0;

        quant_types[t->type]->decode(w, rows, n);
        for (int64_t j = 0; j < n; j++)
            sum += (double)w[j] * (double)x[j];
        if (f != NULL && !same_float(got, y[r]))
            fail_msg("%s, %d elements, top %d, row %d: %a, not %a", quant_types[t->type]->name, (int)n, top, r,
                     (double)y[r], (double)got);
        if (!(fabs((double)got - sum) <= allowed(t, top, rows, x, n)))
            fail_msg("%s, %d elements, top %d: %g is not %g", quant_types[t->type]->name, (int)n, top, (double)got,
                     sum);
    }
    free(a);
}

/* Rows by two vectors at a time: as by each. */
static void check_two(int type, const unsigned char *rows, const float *x, const float *z, int64_t n)
{
    cpu_int_two_fn *two = cpu_int_twos(type, QUANT_ACTS_I8, SIMD_AVX2);
    struct cpu_act_block *a[2] = { aligned(BLOCKS * sizeof(**a)), aligned(BLOCKS * sizeof(**a)) };
    const float *from[2] = { x, z };
    float y[2][ROWS];

    for (int v = 0; v < 2; v++)
        cpu_rounder(0)(a[v], from[v], n, 127);
    two((float *const[]){ y[0], y[1] }, rows, ROWS, (const struct cpu_act_block *const *)a, n);
    for (int v = 0; v < 2; v++)
        for (int r = 0; r < ROWS; r++) {
            float want = dot_ints(type, QUANT_ACTS_I8, rows + r * quant_row_bytes(type, n), from[v], n);

            if (!same_float(want, y[v][r]))
                fail_msg("%s, %d elements, row %d by vector %d of two: %a, not %a", quant_types[type]->name, (int)n, r,
                         v, (double)y[v][r], (double)want);
        }
    free(a[0]);
    free(a[1]);
}

static void products_are_the_stated_sums(void **state)
{
    static const int64_t lengths[] = { 0, 256, 512, 768, N_MAX };
    const unsigned set = set_or_skip(state);
    unsigned char *rows = malloc((size_t)ROWS * BLOCKS * BYTES_MAX);
    float x[N_MAX], z[N_MAX];

    assert_non_null(rows);
    for (int i = 0; i < QUANT_N; i++)
        for (size_t k = 0; cpu_format_of(i)->ints != NULL && k < sizeof(lengths) / sizeof(*lengths); k++) {
            int64_t n = lengths[k];

            fill_x(x, n, false, 127);
            for (int r = 0; r < ROWS; r++)
                fill(i, rows + r * quant_row_bytes(i, n), n, true);
            check_products(set, i, QUANT_ACTS_I16, rows, x, n);
            check_products(set, i, QUANT_ACTS_I8, rows, x, n);
            fill_x(z, n, false, 127);
            if (set == SIMD_AVX2)
                check_two(i, rows, x, z, n);
        }
    free(rows);
}

/* Weights of one sign by activations of one size, so that sums of bytes are as large as they get. */
static void sums_of_bytes_fit(void **state)
{
    static const unsigned char bytes[] = { 0x00, 0x7f, 0x80, 0x88, 0xf0, 0x0f, 0xff };
    unsigned char rows[ROWS * BYTES_MAX];
    const unsigned set = set_or_skip(state);
    float x[256], w[256];

    for (int i = 0; i < QUANT_N; i++)
        for (size_t k = 0; cpu_format_of(i)->ints != NULL && k < 4 * sizeof(bytes); k++) {
            int size = (int)quant_row_bytes(i, 256);

            fill(i, rows, 256, true);
            /* all but what holds scales: some of those give no finite number */
            for (int j = 0; j < size; j++) {
                unsigned char was = rows[j];

                rows[j] = bytes[k / 4];
                quant_types[i]->decode(w, rows, 256);
                for (int l = 0; l < 256; l++)
                    if (!(fabsf(w[l]) < 1e18f)) {
                        rows[j] = was;
                        break;
                    }
            }
            for (int r = 1; r < ROWS; r++)
                memcpy(rows + r * size, rows, (size_t)size);
            quant_types[i]->decode(w, rows, 256);
            for (int j = 0; j < 256; j++)
                x[j] = k % 4 == 0 ? 1.0f : k % 4 == 1 ? -1.0f : (w[j] < 0.0f) == (k % 4 == 2) ? 1.0f : -1.0f;
            check_products(set, i, QUANT_ACTS_I8, rows, x, 256);
        }
}

/* A row's product from the sums of its lanes. */
static float folded(float *sum, const float *less, bool minima)
{
    for (int j = 0; minima && j < 8; j++)
        sum[j] -= less[j];
    for (int half = 4; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            sum[j] += sum[j + half];
    return sum[0];
}

/* ROWS rows of a type by n vectors, `part` blocks at a time. */
static void check_tile(int type, cpu_int_tile_fn *tile, const unsigned char *rows, const float *want,
                       const struct cpu_act_block *const *a, int n)
{
    const struct cpu_format *t = cpu_format_of(type);
    int64_t bytes = quant_row_bytes(type, N_MAX);
    size_t size = (size_t)(ROWS * n * 8) * sizeof(float);
    float *sum = aligned(size), *less = aligned(size);

    memset(sum, 0, size);
    memset(less, 0, size);
    for (int first = 0, part = n % 4 == 0 ? CPU_TILE_BLOCKS : 3; first < BLOCKS; first += part) {
        int blocks = BLOCKS - first < part ? BLOCKS - first : part;

        tile(&(struct cpu_int_tile){ rows, bytes, 0, first, blocks, ROWS, n, a, sum, less });
    }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < n; j++) {
            float got = folded(sum + (r * n + j) * 8, less + (r * n + j) * 8, t->n_min > 0);

            if (!same_float(got, want[r * CPU_TILE_VECTORS + j]))
                fail_msg("%s, row %d by vector %d of %d: %a, not %a", quant_types[t->type]->name, r, j, n, (double)got,
                         (double)want[r * CPU_TILE_VECTORS + j]);
        }
    free(sum);
    free(less);
}

static void check_tiles(unsigned set, int type, enum quant_acts_type acts)
{
    cpu_int_tile_fn *tile = cpu_int_tiler(type, acts, set);
    static float x[CPU_TILE_VECTORS][N_MAX];
    unsigned char *rows = malloc((size_t)ROWS * BLOCKS * BYTES_MAX);
    struct cpu_act_block *a = aligned(CPU_TILE_VECTORS * BLOCKS * sizeof(*a));
    const struct cpu_act_block *at[CPU_TILE_VECTORS];
    float want[ROWS * CPU_TILE_VECTORS];

    assert_non_null(rows);
    for (int r = 0; r < ROWS; r++)
        fill(type, rows + r * quant_row_bytes(type, N_MAX), N_MAX, true);
    for (int j = 0; j < CPU_TILE_VECTORS; j++) {
        at[j] = a + j * BLOCKS;
        fill_x(x[j], N_MAX, false, 127);
        cpu_rounder(0)(a + j * BLOCKS, x[j], N_MAX, cpu_acts_top(type, acts));
        for (int r = 0; r < ROWS; r++)
            want[r * CPU_TILE_VECTORS + j] = dot_ints(type, acts, rows + r * quant_row_bytes(type, N_MAX), x[j], N_MAX);
    }
    for (int n = 2; tile != NULL && n <= CPU_TILE_VECTORS; n += 2)
        check_tile(type, tile, rows, want, at, n);
    free(rows);
    free(a);
}

static void tiles_give_the_same_products(void **state)
{
    const unsigned set = set_or_skip(state);

    for (int i = 0; i < QUANT_N; i++)
        if (cpu_format_of(i)->ints != NULL) {
            check_tiles(set, i, QUANT_ACTS_I16);
            check_tiles(set, i, QUANT_ACTS_I8);
        }
}

/* The largest sums there can be: no lane leaves an int32. */
static void the_largest_sums_fit(void **state)
{
    struct cpu_int_block *u = aligned(sizeof(*u));
    unsigned char row[BYTES_MAX];
    float x[256];

    (void)state;
    for (int i = 0; i < QUANT_N; i++)
        for (int times = 0; cpu_format_of(i)->ints != NULL && times < 1000; times++) {
            int largest = 0;

            fill(i, row, 256, false);
            if (times < 2)
                memset(row, times == 0 ? 0 : 255, sizeof(row));
            cpu_format_of(i)->ints(u, row, 256);
            for (int j = 0; j < 256; j++)
                largest = abs(u->w[j]) > largest ? abs(u->w[j]) : largest;
            assert_true(quant_types[i]->block_elems == 32 ||
                        largest * (int64_t)cpu_acts_top(i, QUANT_ACTS_I16) * 32 <= INT32_MAX);
        }
    for (int j = 0; j < 256; j++)
        x[j] = 1.0f;
    memset(row, 0, sizeof(row)); /* q6_k: every number is -32 */
    for (int g = 0; g < 16; g++)
        row[192 + g] = 0x80; /* every scale -128 */
    row[209] = 0x3c;         /* 1.0 */
    assert_true(fabsf(dot_ints(QUANT_q6_k, QUANT_ACTS_I16, row, x, 256) - 256.0f * 4096.0f) < 1.0f);
    free(u);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_with_whole_numbers_have_blocks_of_256_or_32),
        cmocka_unit_test(whole_numbers_are_the_weights),
        cmocka_unit_test(bytes_are_the_weights),
        SET_TEST(fast_code_gives_the_same_whole_numbers, avx2),
        SET_TEST(fast_code_gives_the_same_whole_numbers, avx512),
        SET_TEST(fast_code_gives_the_same_bytes, avx2),
        cmocka_unit_test(every_element_has_a_place),
        SET_TEST(activations_are_rounded_as_stated, scalar),
        SET_TEST(activations_are_rounded_as_stated, avx2),
        SET_TEST(products_are_the_stated_sums, scalar),
        SET_TEST(products_are_the_stated_sums, avx2),
        SET_TEST(products_are_the_stated_sums, vnni),
        SET_TEST(products_are_the_stated_sums, vbmi),
        SET_TEST(products_are_the_stated_sums, amx),
        SET_TEST(sums_of_bytes_fit, scalar),
        SET_TEST(sums_of_bytes_fit, avx2),
        SET_TEST(sums_of_bytes_fit, vnni),
        SET_TEST(sums_of_bytes_fit, vbmi),
        SET_TEST(sums_of_bytes_fit, amx),
        SET_TEST(tiles_give_the_same_products, avx2),
        cmocka_unit_test(the_largest_sums_fit),
    };

    return cmocka_run_group_tests_name("quant: whole numbers", tests, NULL, NULL);
}
