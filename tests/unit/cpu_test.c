/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_test.c - the kernels of the CPU device: every set gives the bytes of the scalar one, and exp
 * is right. `cpu_test --bench` times them instead. */
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cpu/acts8.h"
#include "cpu/acts16.h"
#include "cpu/kernels.h"
#include "cpu/scans.h"
#include "cpu_rig.h"
#include "part.h"
#include "quant/half.h"
#include "sets.h"

/* ---- kernel sets ---- */

static const struct {
    const struct cpu_kernels *kern;
    const struct cpu_scans *scan;
    unsigned needs;
} sets[] = {
    { &cpu_kernels_scalar, &cpu_scans_scalar, SET_scalar },
    { &cpu_kernels_avx2, &cpu_scans_avx2, SET_avx2 },
    { &cpu_kernels_avx512, &cpu_scans_avx512, SET_avx512 },
};
enum { N_SETS = sizeof sets / sizeof sets[0], GUARD = 32 };

static bool usable(size_t i)
{
    return (simd_features() & sets[i].needs) == sets[i].needs;
}

/* The row of the set that a test is of. */
static size_t set_of_test(void **state)
{
    const unsigned needs = set_or_skip(state);
    size_t i = 0;

    while (i < N_SETS && sets[i].needs != needs)
        i++;
    assert_true(i < N_SETS);
    return i;
}

static void same(const char *what, const char *set, const float *ref, const float *got, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(ref + i, got + i, sizeof *ref) != 0)
            fail_msg("%s of %s: element %lld is %a, the scalar code says %a", what, set, (long long)i, (double)got[i],
                     (double)ref[i]);
}

/* Rows of k numbers that end in poison, which must not be read into a sum. Tiny ones multiply to -0
 * in every running sum, which a product of padding would turn into +0. */
enum kind { PLAIN, ZEROS, TINY, TINY_NEGATIVE, INFINITE };

static float *rows_of_kind(enum kind kind, int rows, int64_t k, int64_t ld)
{
    float *p = floats(rows * ld + 1, 1.0f);

    for (int64_t i = 0; i < rows * ld; i++)
        if (i % ld >= k)
            p[i] = NAN;
        else if (kind == ZEROS)
            p[i] = i % 3 == 0 ? -0.0f : 0.0f;
        else if (kind == TINY || kind == TINY_NEGATIVE)
            p[i] = kind == TINY ? 1e-30f : -1e-30f;
        else if (kind == INFINITE && i % 7 == 0)
            p[i] = INFINITY;
    return p;
}

/* All results, nx rows of ldy with poison around them, of one kernel set, of w or of halves. */
static float *dots_of(size_t set, const float *w, const uint16_t *half, int nw, const float *x, int nx, int64_t k)
{
    int64_t ldy = 2 * GUARD + nw;
    float *y = need((size_t)(nx * ldy) * sizeof *y), *ys[16];
    const float *xs[16];

    poison(y, nx * ldy);
    for (int j = 0; j < nx; j++) {
        xs[j] = x + j * (k + 5);
        ys[j] = y + j * ldy;
    }
    if (w != NULL)
        sets[set].kern->dots(ys, GUARD, w, k + 3, nw, xs, nx, k);
    else
        sets[set].kern->dots_half(ys, GUARD, half, k + 3, nw, xs, nx, k);
    for (int j = 0; j < nx; j++) {
        assert_poison(ys[j], GUARD);
        assert_poison(ys[j] + GUARD + nw, GUARD);
        for (int i = 0; i < nw; i++) /* infinity times zero: the sign of a NaN is nobody's concern */
            if (isnan(ys[j][GUARD + i]))
                ys[j][GUARD + i] = NAN;
    }
    return y;
}

/* Of rows as halves: the products of the same numbers as floats. */
static void half_dots_once(size_t set, const float *w, int nw, const float *x, int nx, int64_t k)
{
    const int64_t n = nw * (k + 3);
    uint16_t *half = need((size_t)n * sizeof *half);
    float *exact = need((size_t)n * sizeof *exact);

    for (int64_t i = 0; i < n; i++) {
        half[i] = half_of_f32(w[i]);
        exact[i] = half_to_f32(half[i]);
    }
    float *ref = dots_of(0, exact, NULL, nw, x, nx, k);
    for (size_t s = 0; s <= set; s += set > 0 ? set : 1) {
        float *got = dots_of(s, NULL, half, nw, x, nx, k);

        same("dots_half", sets[s].kern->name, ref, got, nx * (2 * (int64_t)GUARD + nw));
        free(got);
    }
    free(half);
    free(exact);
    free(ref);
}

static void dots_once(size_t set, int nw, int nx, int64_t k)
{
    static const enum kind kinds[][2] = {
        { PLAIN, PLAIN }, { ZEROS, PLAIN }, { TINY, TINY_NEGATIVE }, { PLAIN, INFINITE }, { ZEROS, INFINITE },
    };

    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        float *w = rows_of_kind(kinds[i][0], nw, k, k + 3), *x = rows_of_kind(kinds[i][1], nx, k, k + 5);
        float *ref = dots_of(0, w, NULL, nw, x, nx, k), *got = dots_of(set, w, NULL, nw, x, nx, k);

        same("dots", sets[set].kern->name, ref, got, nx * (2 * (int64_t)GUARD + nw));
        if (i ==
            (size_t)(nw + nx) % (sizeof kinds / sizeof kinds[0])) /* a kind for each size: each takes twice the time */
            half_dots_once(set, w, nw, x, nx, k);
        free(w);
        free(x);
        free(ref);
        free(got);
    }
}

static void test_dots(void **state)
{
    static const int64_t ks[] = { 0, 1, 2, 7, 8, 9, 15, 16, 17, 24, 31, 32, 47, 64, 100, 256, 300 };

    const size_t s = set_of_test(state);

    for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++)
        for (int nw = 1; nw <= 17; nw += nw < 9 ? 1 : 4)
            for (int nx = 1; nx <= 13; nx += nx < 9 ? 1 : 4)
                dots_once(s, nw, nx, ks[i]);
}

/* Where the results of all kernels go: regions with poison between them. */
struct sink {
    float *data;
    int64_t used, cap;
};

static float *region(struct sink *s, int64_t n)
{
    float *p = s->data + s->used + GUARD;

    s->used += n + GUARD;
    assert_true(s->used + GUARD <= s->cap);
    return p;
}

/* A region that begins as a copy of x. */
static float *copied(struct sink *s, const float *x, int64_t n)
{
    return memcpy(region(s, n), x, (size_t)n * sizeof *x);
}

/* Every kernel but dots, on vectors of n elements. */
static void all_kernels(const struct cpu_kernels *kern, struct sink *out, const float *in, int64_t n)
{
    const float *a = in, *b = in + n + 1, *c = in + 2 * n + 3, *taps[4] = { a, b, c, in + 3 * n + 4 };
    const float *w3[3] = { b, c, a };
    uint16_t half[3 * 800];
    float *y3[3], exact[3 * 800];

    for (int64_t i = 0; i < 3 * (n + 1); i++) {
        half[i] = half_of_f32(in[i]);
        exact[i] = half_to_f32(half[i]);
    }

    kern->axpy(copied(out, a, n), b, 0.37f, n);
    kern->exp_sub(region(out, n), a, 0.5f, n);
    float *in_place = copied(out, a, n);
    kern->exp_sub(in_place, in_place, 3.0f, n);
    if (n > 0) {
        float *sum = region(out, 1), top = kern->softmax(copied(out, a, n), 3.1f, sum, n);

        *region(out, 1) = top;
    }
    kern->scale(region(out, n), a, NULL, 1.3f, n);
    kern->scale(region(out, n), a, b, 1.3f, n);
    kern->silu(region(out, n), a, n);
    in_place = copied(out, a, n);
    kern->silu_mul(in_place, in_place, c, n);
    in_place = copied(out, a, n);
    kern->silu_mul(in_place, c, in_place, n);
    kern->sigmoid_mul(copied(out, a, n), b, n);
    kern->conv(region(out, n), taps, in, n + 2, NULL, 4, n);
    kern->conv(region(out, n), taps, in, n + 1, c, 3, n);
    for (int ny = 1; ny <= 3; ny++) {
        for (int g = 0; g < ny; g++)
            y3[g] = copied(out, c, n);
        kern->mix(y3, w3, ny, in, n + 1, n < 3 ? (int)n : 3, n);
        for (int g = 0; g < ny; g++)
            y3[g] = copied(out, c, n);
        if (kern == sets[0].kern) /* what it is to be */
            kern->mix(y3, w3, ny, exact, n + 1, n < 3 ? (int)n : 3, n);
        else
            kern->mix_half(y3, w3, ny, half, n + 1, n < 3 ? (int)n : 3, n);
    }
}

/* Recurrent steps, two tokens of each, four of the delta rule and of Mamba-2, with heads of dim by dim_v. */
static void all_steps(const struct cpu_kernels *kern, const struct cpu_scans *scan, struct sink *out, const float *in,
                      int dim, int dim_v)
{
    float *S = copied(out, in, (int64_t)dim * dim_v), *K = copied(out, in + 1, (int64_t)dim * dim_v);
    float *h1 = copied(out, in + 2, (int64_t)dim * dim_v), *h2 = copied(out, in + 3, (int64_t)dim * dim_v);
    const float *k = in + 11, *q = in + 12, *v = in + 13;
    const float g[3] = { 0.9f, 0.8f, 0.97f }, b[3] = { 0.6f, 0.2f, 0.9f };
    float kv[1024], *y = region(out, 2 * (dim_v + GUARD) + dim_v);
    struct cpu_gdn tokens = { y, k, q, v, g, b, dim_v + GUARD, 7, 1 };

    kern->gdn(S, &tokens, dim, dim_v);
    tokens.n = 3; /* go over the first one's output */
    kern->gdn(S, &tokens, dim, dim_v);
    struct cpu_ssm2 steps = { region(out, 2 * (dim_v + GUARD) + dim_v), v, k, q, g, b, dim_v + GUARD, 7, 1.1f, 1 };

    kern->ssm2(h2, &steps, dim, dim_v);
    steps.n = 3;
    kern->ssm2(h2, &steps, dim, dim_v);
    for (int i = 0; i < 2; i++) {
        scan->kda(K, region(out, dim_v), kv, k, q + i, v, in + 14, 0.6f, dim, dim_v);
        scan->ssm1(h1, region(out, dim_v), v, k + i, in, q, k, q, dim, dim_v, dim_v);
    }
    scan->softplus(region(out, dim_v), v, NULL, dim_v);
    scan->softplus(region(out, dim_v), v, k, dim_v);
}

static void test_kernels(void **state)
{
    enum { CAP = 120000 };
    const size_t s = set_of_test(state);
    struct sink ref = { need(CAP * sizeof(float)), 0, CAP }, got = { need(CAP * sizeof(float)), 0, CAP };
    float *in = floats(8000, 6.0f);

    in[3] = 200.0f; /* beyond the range of exp, both ways */
    in[5] = -200.0f;
    in[6] = -0.0f;
    for (int64_t n = 0; n <= 700; n += n < 70 ? 1 : 105) {
        poison(ref.data, CAP);
        poison(got.data, CAP);
        ref.used = got.used = 0;
        all_kernels(sets[0].kern, &ref, in, n);
        all_kernels(sets[s].kern, &got, in, n);
        if (n > 0 && n <= 140) {
            int dim = n % 2 == 0 ? (int)n : 5;

            all_steps(sets[0].kern, sets[0].scan, &ref, in, dim, (int)n);
            all_steps(sets[s].kern, sets[s].scan, &got, in, dim, (int)n);
        }
        same("kernels", sets[s].kern->name, ref.data, got.data, CAP);
    }
    free(ref.data);
    free(got.data);
    free(in);
}

/* ---- integer products ---- */

static const struct {
    const struct cpu_ints *ints;
    unsigned needs;
} int_sets[] = {
    { &cpu_ints_scalar, SET_scalar },
    { &cpu_ints_avx2, SET_avx2 },
    { &cpu_ints_avx512, SET_avx512 },
    { &cpu_ints_vnni, SET_vnni },
};
enum { N_INT_SETS = sizeof int_sets / sizeof int_sets[0], INT_ROWS = 17, INT_BLOCKS = 8 };

static bool int_usable(size_t i)
{
    return (simd_features() & int_sets[i].needs) == int_sets[i].needs;
}

static void *need_64(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);

    assert_non_null(p);
    return p;
}

/* Blocks with the largest numbers there are among them. */
static void random_ints(struct cpu_int_block *u, struct cpu_act_block *a, int n)
{
    seed_of_next++;
    for (int b = 0; b < n; b++) {
        bool top = b % 3 == 0;

        for (int i = 0; i < 256; i++) {
            double r = rng_unit(seed_of_next, (uint64_t)b, (uint64_t)i);
            double s = rng_unit(seed_of_next + 1000000, (uint64_t)b, (uint64_t)i);

            u[b].w[i] = (int16_t)(top ? -4096 : r * 8192.0 - 4096.0);
            a[b].q[i] = (int16_t)(top ? 16383 : s * 32766.0 - 16383.0);
        }
        for (int i = 0; i < 16; i++) {
            u[b].scale[i] = (float)(b % 7) * 0.01f - 0.02f;
            u[b].min[i] = u[b].w[i] * 0.37f;
            a[b].scale[i / 2] = u[b].w[i + 16] * 1e-4f;
            a[b].sum[i] = u[b].w[i + 32] * 0.91f;
            a[b].sum_32[i / 2] = u[b].w[i + 48] * 1.83f;
        }
    }
}

static void ints_once(size_t set, const struct cpu_ints_panel *p, const struct cpu_act_block *const *x, int nx,
                      int blocks)
{
    enum { LDY = 2 * GUARD + INT_ROWS };
    float *y[2], *ys[2][16];

    for (int i = 0; i < 2; i++) {
        y[i] = need((size_t)(nx * LDY) * sizeof *y[i]);
        poison(y[i], nx * LDY);
        for (int j = 0; j < nx; j++)
            ys[i][j] = y[i] + j * LDY;
        int_sets[i == 0 ? 0 : set].ints->dots(ys[i], GUARD, p, x, nx, 256 * blocks);
    }
    for (int j = 0; j < nx; j++) {
        assert_poison(ys[1][j], GUARD);
        assert_poison(ys[1][j] + GUARD + p->n, GUARD);
    }
    same("integer dots", int_sets[set].ints->name, y[0], y[1], nx * LDY);
    free(y[0]);
    free(y[1]);
}

static void test_ints(void **state)
{
    const unsigned needs = set_or_skip(state);
    struct cpu_int_block *u = need_64(INT_ROWS * INT_BLOCKS * sizeof *u);
    struct cpu_act_block *a = need_64(INT_ROWS * INT_BLOCKS * sizeof *a);
    const struct cpu_act_block *x[16];
    size_t s = 1;

    while (s < N_INT_SETS && int_sets[s].needs != needs)
        s++;
    assert_true(s < N_INT_SETS);
    for (int blocks = 1; blocks <= INT_BLOCKS; blocks += blocks < 3 ? 1 : 5) {
        random_ints(u, a, INT_ROWS * INT_BLOCKS);
        for (int j = 0; j < 16; j++)
            x[j] = a + j * blocks;
        for (int nw = 1; nw <= INT_ROWS; nw += nw < 9 ? 1 : 4)
            for (int nx = 1; nx <= 13; nx++) {
                ints_once(s, &(struct cpu_ints_panel){ u, nw, 0, false }, x, nx, blocks);
                ints_once(s, &(struct cpu_ints_panel){ u, nw, 8, false }, x, nx, blocks);
                ints_once(s, &(struct cpu_ints_panel){ u, nw, 16, false }, x, nx, blocks);
                ints_once(s, &(struct cpu_ints_panel){ u, nw, 0, true }, x, nx, blocks);
            }
    }
    free(u);
    free(a);
}

/* ---- products with activations of 8 bits ---- */

static const struct {
    const struct cpu_bytes *bytes;
    unsigned needs;
} byte_sets[] = {
    { &cpu_bytes_scalar, SET_scalar }, { &cpu_bytes_avx2, SET_avx2 }, { &cpu_bytes_avxvnni, SET_avxvnni },
    { &cpu_bytes_vnni_ymm, SET_vnni }, { &cpu_bytes_vnni, SET_vbmi }, { &cpu_bytes_amx, SET_amx },
};
enum {
    N_BYTE_SETS = sizeof byte_sets / sizeof byte_sets[0],
    BYTE_ROWS = 53,
    BYTE_LAID = 48,
    BYTE_X = 150,
    BYTE_BLOCKS = 9
};

static bool bytes_usable(size_t s)
{
    return (simd_features() & byte_sets[s].needs) == byte_sets[s].needs &&
           (byte_sets[s].bytes != &cpu_bytes_amx || cpu_bytes_amx_allowed());
}

/* n floats, after which memory may not be touched; gone with munmap(*map, *bytes). */
static float *floats_at_edge(int64_t n, void **map, size_t *bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), used = ((size_t)n * sizeof(float) + page - 1) / page * page;

    *bytes = used + page;
    *map = mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(*map, MAP_FAILED);
    assert_int_equal(mprotect((char *)*map + used, page, PROT_NONE), 0);
    return (float *)(void *)((char *)*map + used) - n;
}

/* How a set's rows are laid out; NULL: they are not. */
static cpu_lay_fn *lay_of(size_t s, int type)
{
    const struct cpu_format *f = cpu_format_of(type);

    return byte_sets[s].bytes == &cpu_bytes_avx2                                           ? f->lay_avx2
           : byte_sets[s].bytes == &cpu_bytes_vnni || byte_sets[s].bytes == &cpu_bytes_amx ? f->lay
                                                                                           : NULL;
}

/* Rows laid out, NULL: none. */
static char *laid(size_t s, struct tensor w, int64_t n)
{
    int64_t row_bytes = quant_row_bytes(w.type, w.ne[0]);
    char *to = n % CPU_LAID == 0 && lay_of(s, w.type) != NULL ? need((size_t)(n * row_bytes)) : NULL;

    for (int64_t r = 0; to != NULL && r < n; r += CPU_LAID)
        lay_of(s, w.type)(to + r * row_bytes, (char *)w.data + r * row_bytes, row_bytes, w.ne[0]);
    return to;
}

/* All rows of one type by all vectors, by the scalar code: a vector's products lie together. */
static float *scalar_bytes(struct tensor w, const struct cpu_act_block *const *x)
{
    const struct cpu_bytes_rows rows = {
        cpu_format_of(w.type), w.data, quant_row_bytes(w.type, w.ne[0]), BYTE_ROWS, false, NULL
    };
    float *all = need((size_t)(BYTE_X * BYTE_ROWS) * sizeof *all), *y[BYTE_X];
    void *buf = need_64(cpu_bytes_scalar.need(w.ne[0]));

    for (int j = 0; j < BYTE_X; j++)
        y[j] = all + j * BYTE_ROWS;
    cpu_bytes_scalar.dots(rows, (struct cpu_bytes_vectors){ y, 0, x, BYTE_X, NULL }, w.ne[0], buf);
    free(buf);
    return all;
}

/* The first n rows of one type by the first nx vectors, by a set, of stored rows or of laid out ones: the products that
 * the scalar code has of all (want). */
static void bytes_once(size_t set, bool lay, struct tensor w, int64_t n, const struct cpu_act_block *const *x, int nx,
                       const float *want)
{
    const struct cpu_bytes *code = byte_sets[set].bytes;
    int64_t row_bytes = quant_row_bytes(w.type, w.ne[0]), ldy = GUARD + n, all = nx * ldy;
    char *side_by_side = lay ? laid(set, w, n) : NULL;
    size_t bytes;

    if (lay && side_by_side == NULL)
        return;
    const struct cpu_bytes_rows rows = { cpu_format_of(w.type), lay ? side_by_side : w.data, row_bytes, n, lay, NULL };
    void *map, *buf = need_64(code->need(w.ne[0]));
    float *got = floats_at_edge(all, &map, &bytes), *y[BYTE_X];

    poison(got, all);
    for (int j = 0; j < nx; j++)
        y[j] = got + j * ldy;
    code->dots(rows, (struct cpu_bytes_vectors){ y, GUARD, x, nx, NULL }, w.ne[0], buf);
    for (int j = 0; j < nx; j++) {
        assert_poison(y[j], GUARD);
        same(quant_types[w.type]->name, code->name, want + j * BYTE_ROWS, y[j] + GUARD, n);
    }
    free(buf);
    free(side_by_side);
    munmap(map, bytes);
}

static void every_bytes(size_t s, bool lay)
{
    struct cpu_act_block *a = need_64(BYTE_X * BYTE_BLOCKS * sizeof *a);
    const struct cpu_act_block *x[BYTE_X];

    for (int t = 0; t < QUANT_N; t++)
        for (int blocks = 1; cpu_format_of(t)->codes_avx2 != NULL && blocks <= BYTE_BLOCKS;
             blocks += blocks < 2 ? 1 : 7) {
            float *v = floats(BYTE_X * 256 * blocks, 1.0f);
            struct tensor w = weights_of(t, 256 * blocks, BYTE_ROWS, 1);
            float *want;

            cpu_rounder(0)(a, v, BYTE_X * 256 * blocks, 127);
            for (int j = 0; j < BYTE_X; j++)
                x[j] = a + j * blocks;
            want = scalar_bytes(w, x);
            for (int nx = 1; !lay && nx <= BYTE_X; nx += nx < 9 && !SANITIZED ? 1 : nx < 29 ? 5 : nx < 43 ? 7 : 107)
                for (int64_t n = nx == 3 || nx == 29 ? 1 : BYTE_ROWS; n <= BYTE_ROWS; n += n < 6 ? 1 : 11)
                    bytes_once(s, lay, w, n, x, nx, want);
            for (int nx = 1; nx <= BYTE_X; nx += nx < 28 ? 1 + 4 * SANITIZED : nx < 43 ? 7 : 107)
                bytes_once(s, lay, w, nx % 2 == 0 ? CPU_LAID : BYTE_LAID, x, nx, want);
            free(want);
            free(v);
            free(w.data);
        }
    free(a);
}

static size_t byte_set_or_skip(void **state)
{
    const unsigned needs = set_or_skip(state);
    size_t s = 1;

    while (s < N_BYTE_SETS && byte_sets[s].needs != needs)
        s++;
    assert_true(s < N_BYTE_SETS);
    if (!bytes_usable(s)) /* the system keeps its tiles */
        skip();
    return s;
}

static void test_bytes(void **state)
{
    every_bytes(byte_set_or_skip(state), false);
}

static void test_laid_bytes(void **state)
{
    const size_t s = byte_set_or_skip(state);

    assert_non_null(lay_of(s, QUANT_q8_0));
    every_bytes(s, true);
}

static double ulps(float got, double want)
{
    float w = (float)want;

    return fabs((double)got - want) / ((double)nextafterf(fabsf(w), INFINITY) - fabs((double)w));
}

static void test_exp(void **state)
{
    enum { N = 4096 };
    float x[N], y[N];
    double worst = 0;

    (void)state;
    for (int block = 0; block < 200; block++) {
        for (int i = 0; i < N; i++)
            x[i] = -87.3f + 176.0f * (float)rng_unit(7, (uint64_t)block, (uint64_t)i);
        sets[0].kern->exp_sub(y, x, 0.0f, N);
        for (int i = 0; i < N; i++)
            worst = fmax(worst, ulps(y[i], exp((double)x[i])));
    }
    if (!(worst <= 2.0))
        fail_msg("exp is wrong by %.2f ulp", worst);
    print_message("exp: at most %.3f ulp\n", worst);
    float edge[4] = { -1000.0f, 1000.0f, 0.0f, -INFINITY };
    sets[0].kern->exp_sub(edge, edge, 0.0f, 4);
    assert_true(edge[0] >= 0.0f && edge[0] < 2e-38f);
    assert_true(edge[1] > 3e38f && isfinite(edge[1]));
    assert_true(edge[2] == 1.0f);
    assert_true(edge[3] >= 0.0f && edge[3] < 2e-38f);
}

/* ---- times ---- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Best of many: `what` on a kernel set, with its floating point operations. */
enum bench { DOTS_1, DOTS_32, DOTS_WIDE, GDN, GDN_WIDE, SILU_MUL, N_BENCH };

static double bench_once(const struct cpu_kernels *kern, enum bench what, float *a, float *b)
{
    const float *x[32];
    float *y[32];
    int64_t k = what == DOTS_WIDE ? 2048 : 256;
    int nx = what == DOTS_1 ? 1 : 32;

    for (int j = 0; j < 32; j++) {
        x[j] = b + j * k;
        y[j] = a + 65536 + 16 * j;
    }
    if (what == GDN || what == GDN_WIDE) {
        const int dim = what == GDN ? 64 : 128;
        const float gates[16] = { 0.9f, 0.5f, 0.9f, 0.5f, 0.9f, 0.5f, 0.9f, 0.5f, 0.9f, 0.5f, 0.9f, 0.5f, 0.9f, 0.5f };

        kern->gdn(a, &(struct cpu_gdn){ b, b + 2048, b + 4096, b + 6144, gates, gates, dim, dim, 16 }, dim, dim);
        return 16.0 * dim * dim * 7.0;
    }
    if (what == SILU_MUL) {
        kern->silu_mul(a, a, b, 4096);
        return 4096.0;
    }
    kern->dots(y, 0, a, k, 16, x, nx, k);
    return 2.0 * 16.0 * nx * (double)k;
}

enum { BENCH_K = 2048, BENCH_ROWS = 16, BENCH_X = 48 };

static void bench_tiles(void)
{
    struct cpu_int_block *u = need_64(BENCH_ROWS * BENCH_K / 256 * sizeof *u);
    struct cpu_act_block *a = need_64(BENCH_X * BENCH_K / 256 * sizeof *a);
    const struct cpu_act_block *x[BENCH_X];
    float *y[BENCH_X], *out = floats(BENCH_X * BENCH_ROWS, 1.0f);

    random_ints(u, a, BENCH_ROWS * BENCH_K / 256);
    memset(a, 0, BENCH_X * BENCH_K / 256 * sizeof *a);
    for (int j = 0; j < BENCH_X; j++) {
        x[j] = a + j * BENCH_K / 256;
        y[j] = out + j * BENCH_ROWS;
    }
    for (size_t s = 0; s < N_INT_SETS; s++) {
        double best = 0;

        for (int i = 0; int_usable(s) && i < 60; i++) {
            double t = seconds();

            int_sets[s].ints->dots(y, 0, &(struct cpu_ints_panel){ u, BENCH_ROWS, 8, false }, x, BENCH_X, BENCH_K);
            best = fmax(best, 2.0 * BENCH_ROWS * BENCH_X * BENCH_K / (seconds() - t));
        }
        printf("%-8s %-28s %8.2f GFLOP/s\n", int_sets[s].ints->name, "integer dots 16 x 48, k 2048", best / 1e9);
    }
    free(u);
    free(a);
    free(out);
}

/* One vector by stored rows, from the first-level cache; bytes are the rows'. */
static void bench_rows(void)
{
    struct cpu_act_block *a = need_64(BENCH_K / 256 * sizeof *a);
    float *x = floats(BENCH_K, 1.0f), y[BENCH_ROWS];

    for (int c = 0; c < 2 * QUANT_N; c++) {
        int t = c / 2;
        enum quant_acts_type acts = c % 2 == 0 ? QUANT_ACTS_I16 : QUANT_ACTS_I8;
        cpu_int_dots_fn *dots = cpu_int_dotter(t, acts, simd_features());

        if (dots == NULL)
            continue;
        cpu_rounder(0)(a, x, BENCH_K, cpu_acts_top(t, acts));
        struct tensor w = weights_of(t, BENCH_K, BENCH_ROWS, 1);
        int64_t bytes = quant_row_bytes(t, BENCH_K);
        double best = 0;

        for (int i = 0; i < 200; i++) {
            double began = seconds();

            for (int j = 0; j < 10; j++)
                dots(y, w.data, bytes, BENCH_ROWS, a, BENCH_K);
            best = fmax(best, 10.0 * BENCH_ROWS * (double)bytes / (seconds() - began));
        }
        printf("%-8s %-28s %8.2f GB/s\n", acts == QUANT_ACTS_I8 ? "rows i8" : "rows", quant_types[t]->name, best / 1e9);
        free(w.data);
    }
    free(a);
    free(x);
}

/* Rows, stored or laid out, by several vectors, from the caches. */
static void bench_bytes(size_t s, int t, bool lay)
{
    static const int counts[] = { 1, 2, 3, 4, 6, 8, 12, 16, 32, 128 };
    struct cpu_act_block *a = need_64(128 * BENCH_K / 256 * sizeof *a);
    const struct cpu_act_block *x[128];
    struct tensor w = weights_of(t, BENCH_K, 128, 1);
    char *side_by_side = lay ? laid(s, w, 128) : NULL;
    const struct cpu_bytes_rows rows = {
        cpu_format_of(t), lay ? side_by_side : w.data, quant_row_bytes(t, BENCH_K), 128, lay, NULL
    };
    float *v = floats(128 * BENCH_K, 1.0f), *y[128], *out = floats(128 * 128, 1.0f);
    void *buf = need_64(byte_sets[s].bytes->need(BENCH_K));

    cpu_rounder(0)(a, v, 128 * BENCH_K, 127);
    for (int j = 0; j < 128; j++) {
        x[j] = a + j * BENCH_K / 256;
        y[j] = out + j * 128;
    }
    printf("%-8s %-8s %s G products/s with 1 2 3 4 6 8 12 16 32 128 vectors:", byte_sets[s].bytes->name,
           quant_types[t]->name, lay ? "laid" : "");
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        double best = 0;

        for (int i = 0; i < 20; i++) {
            double began = seconds();

            byte_sets[s].bytes->dots(rows, (struct cpu_bytes_vectors){ y, 0, x, counts[c], NULL }, BENCH_K, buf);
            best = fmax(best, 128.0 * counts[c] * BENCH_K / (seconds() - began));
        }
        printf(" %.0f", best / 1e9);
    }
    printf("\n");
    free(a);
    free(side_by_side);
    free(w.data);
    free(v);
    free(out);
    free(buf);
}

static int bench(void)
{
    static const char *const names[N_BENCH] = {
        "dots 16 x 1, k 256", "dots 16 x 32, k 256", "dots 16 x 32, k 2048",
        "gdn 64 x 64",        "gdn 128 x 128",       "silu_mul 4096 (elements)"
    };
    float *a = floats(1 << 17, 1.0f), *b = floats(1 << 17, 1.0f);

    for (size_t s = 0; s < N_SETS; s++)
        for (int w = 0; usable(s) && w < N_BENCH; w++) {
            double best = 0;

            for (int i = 0; i < 60; i++) {
                double work = 0, t = seconds();

                for (int j = 0; j < 20; j++)
                    work += bench_once(sets[s].kern, (enum bench)w, a, b);
                best = fmax(best, work / (seconds() - t));
            }
            printf("%-8s %-28s %8.2f GFLOP/s\n", sets[s].kern->name, names[w], best / 1e9);
        }
    free(a);
    free(b);
    bench_tiles();
    bench_rows();
    for (int t = 0; t < QUANT_N; t++)
        for (size_t s = 1; s < N_BYTE_SETS; s++)
            if (cpu_format_of(t)->codes_avx2 != NULL && bytes_usable(s)) {
                bench_bytes(s, t, false);
                if (lay_of(s, t) != NULL)
                    bench_bytes(s, t, true);
            }
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        SET_TEST(test_dots, avx2),      SET_TEST(test_dots, avx512),     SET_TEST(test_ints, avx2),
        SET_TEST(test_ints, avx512),    SET_TEST(test_ints, vnni),       SET_TEST(test_bytes, avx2),
        SET_TEST(test_bytes, avxvnni),  SET_TEST(test_bytes, vnni),      SET_TEST(test_bytes, vbmi),
        SET_TEST(test_bytes, amx),      SET_TEST(test_laid_bytes, avx2), SET_TEST(test_laid_bytes, vbmi),
        SET_TEST(test_laid_bytes, amx), SET_TEST(test_kernels, avx2),    SET_TEST(test_kernels, avx512),
        cmocka_unit_test(test_exp),
    };

    if (argc == 2 && strcmp(argv[1], "--bench") == 0)
        return bench();
    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
