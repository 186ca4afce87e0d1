/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_test.c - the table of GPU kernels: every format has one for any shape, on every GPU. On a GPU, with activations
 * of 16 bits, each row for matrices, forced, computes what the scalar CPU does (check.c, whose limits are those of 16
 * bits), with each of its formats. Kernels of 8 bits alone are compared by products of ops_gpu_test, those for experts
 * by its models, where the table picks them. With either width those of wgmma give the bytes of those of mma. */
#include <stdio.h>

#include "cpu_rig.h"
#include "gemm/gemm.h"
#include "golden.h"
#include "ops/table.h"
#include "part.h"

static const int known_sm[] = { 90, 120 };

static struct gemm_product matrix(int type, int64_t rows, int64_t k, int64_t n, bool eight, int sm)
{
    return (struct gemm_product){
        .of = GEMM_OF_MATRICES, .type = type, .rows = rows, .k = k, .n = n, .eight = eight, .sm = sm
    };
}

static void every_format_has_a_kernel(void **state)
{
    static const int64_t rows[] = { 1, 2, 16, 17, 63, 64, 65, 4096, 100000 }, ks[] = { 32, 8192, 8224, 1 << 20 };

    (void)state;
    assert_false(gemm_knows(QUANT_N));
    for (int type = 0; type < QUANT_N; type++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (int i = 0; i < 4 * 2 * 2; i++) {
                struct gemm_product p =
                    matrix(type, rows[r], ks[i / 4], 1 + 4095 * (i / 2 % 2), i % 2 != 0, known_sm[i / 4 % 2]);
                int kernel = gemm_pick(&p, 0);

                assert_true(gemm_knows(type));
                p.types = &type;
                p.n_types = 1;
                assert_in_range(kernel, 0, GEMM_STORED_ROWS);
                while (kernel >= 0 && gemm_kernels[kernel].refuses) /* who may refuse is followed by who does not */
                    kernel = gemm_pick(&p, kernel + 1);
                assert_in_range(kernel, 0, GEMM_STORED_ROWS);
                p.of = GEMM_OF_EXPERTS;
                p.pairs = 2 * rows[r];
                p.n_expert = 64;
                kernel = gemm_pick(&p, GEMM_EXPERTS_R2_16 + 1);
                assert_in_range(kernel, GEMM_EXPERTS_R2_16 + 1, GEMM_EXPERTS_FLOAT);
            }
}

static const char *picked(int type, int64_t rows, bool eight, int sm)
{
    struct gemm_product p = matrix(type, rows, 2048, 4096, eight, sm);

    p.types = &type;
    p.n_types = 1;
    return gemm_kernels[gemm_pick(&p, 0)].name;
}

static void the_first_that_takes_it(void **state)
{
    const int mixed[] = { QUANT_q4_k, QUANT_q4_0 };
    struct gemm_product p = matrix(QUANT_q4_k, 32, 2048, 4096, false, 90);

    (void)state;
    assert_string_equal(picked(QUANT_q4_k, 1, false, 90), "gemv_r1_fused");
    assert_string_equal(picked(QUANT_q4_k, 8, true, 90), "gemm_r2_16_large");
    assert_string_equal(picked(QUANT_q4_k, 64, true, 120), "gemm_r2_16_large");
    assert_string_equal(picked(QUANT_q4_k, 65, true, 90), "gemm_r64_a8_wgmma");
    assert_string_equal(picked(QUANT_q4_k, 65, false, 90), "gemm_r64_a16_wgmma");
    assert_string_equal(picked(QUANT_q8_0, 65, true, 90), "gemm_r64_a16_wgmma");
    assert_string_equal(picked(QUANT_q4_k, 65, true, 120), "gemm_r17_a8_mma");
    assert_string_equal(picked(QUANT_q4_0, 64, true, 120), "gemm_r17_mma");
    assert_string_equal(picked(QUANT_q2_k, 64, false, 90), "gemv_rare");
    assert_string_equal(picked(QUANT_iq1_s, 1, false, 90), "gemv_rare");
    assert_string_equal(picked(QUANT_bf16, 64, true, 90), "gemm_float");
    p.only = 1 + GEMM_R17_MMA;
    assert_int_equal(gemm_pick(&p, 0), GEMM_R17_MMA);
    p.only = 1 + GEMM_R1_FUSED; /* which is not for 32 rows */
    assert_int_equal(gemm_pick(&p, 0), GEMM_R2_16_LARGE);
    p = (struct gemm_product){ .of = GEMM_OF_EXPERTS,
                               .type = QUANT_q4_k,
                               .types = mixed,
                               .n_types = 1,
                               .rows = 512,
                               .pairs = 4096,
                               .n_expert = 256,
                               .sm = 90 };
    assert_int_equal(gemm_pick(&p, GEMM_EXPERTS_R2_16), GEMM_EXPERTS_R17_COLUMNS_A16);
    p.n_types = 2; /* chunks are as wide for all matrices of a mixture */
    assert_int_equal(gemm_pick(&p, GEMM_EXPERTS_R2_16), GEMM_EXPERTS_R64_A16_WGMMA);
    p.n_types = 1;
    p.pairs = GEMM_FEW_PAIRS * p.n_expert;
    assert_int_equal(gemm_pick(&p, GEMM_EXPERTS_R2_16), GEMM_EXPERTS_R64_A16_WGMMA);
    p.type = QUANT_N;
    assert_int_equal(gemm_pick(&p, 0), -1);
}

/* ---- on the device under test ---- */

/* `rows` rows of k elements: a few, again and again, so that a large matrix is made quickly. */
static struct tensor repeated(int type, int64_t k, int64_t rows, int64_t matrices)
{
    enum { FEW = 24 };
    const size_t bytes = (size_t)quant_row_bytes(type, k);
    struct tensor some = weights_of(type, k, FEW, 1);
    unsigned char *p = need(bytes * (size_t)(rows * matrices));

    for (int64_t r = 0; r < rows * matrices; r++)
        memcpy(p + (size_t)r * bytes, (char *)some.data + (size_t)((r + r / 7) % FEW) * bytes, bytes);
    free(some.data);
    return (struct tensor){ .type = type, .ne = { k, rows, matrices }, .stride = k, .pitch = rows, .data = p };
}

/* Elements of a row: where rows begin at multiples of 16 bytes, for kernels that ask for it. */
static int64_t width_of(int type)
{
    int64_t k = 512;

    while (gemm_formats_have(GEMM_FORMATS_COMMON, type) && quant_row_bytes(type, k) % 16 != 0)
        k *= 2;
    return k;
}

static int sm_of(struct dev *d)
{
    const char *at = strstr(dev_simd(d), "sm_");

    return at == NULL ? 0 : atoi(at + 3) / 10 * 10;
}

/* What a case has on a device: weights on the host, and memory of the device. */
struct taken {
    struct dev *d;
    void *weights[3];
    void *at[8];
    size_t bytes[8];
    int n_weights, n;
};

static void *put(struct taken *t, const void *from, size_t n)
{
    void *p = dev_alloc(t->d, n);

    assert_non_null(p);
    assert_true(t->n < 8);
    dev_copy(t->d, p, from, n);
    t->at[t->n] = p;
    t->bytes[t->n++] = n;
    return p;
}

static struct tensor put_rows(struct taken *t, int64_t ne0, int64_t ne1, float scale)
{
    struct tensor y = { .type = QUANT_f32, .ne = { ne0, ne1, 1 }, .stride = ne0 + 4 };
    float *v = floats(y.stride * ne1, scale);

    y.data = put(t, v, (size_t)(y.stride * ne1) * sizeof *v);
    free(v);
    return y;
}

static struct tensor put_weights(struct taken *t, struct tensor w)
{
    t->weights[t->n_weights++] = w.data;
    w.data =
        (void *)(uintptr_t)dev_weights(t->d, w.data, (size_t)(quant_row_bytes(w.type, w.ne[0]) * w.ne[1] * w.ne[2]));
    assert_non_null(w.data);
    return w;
}

static void run_matrix(struct taken *t, const struct gemm_kernel *k, int type)
{
    enum { LARGE = 2 * 32 * 16 * 160 }; /* two turns of 16 warps on 160 multiprocessors, of up to two strips each */
    const bool large = k == &gemm_kernels[GEMM_R2_16_LARGE];
    const int64_t n = k->n_max == 1 ? 1 : large ? LARGE : 272, wide = width_of(type);
    const int64_t rows = k->rows_min > 1 || k->rows_max == 1 ? k->rows_min + (k->rows_max > 64) : k->refuses ? 2 : 3;
    const struct tensor w = put_weights(t, repeated(type, wide, n, 1));
    const struct tensor y = put_rows(t, n, rows, 1), x = put_rows(t, wide, rows, 1);

    dev_begin(t->d);
    op_matmul(t->d, y, w, x);
}

/* A device of its own, so that nothing but its kernel is launched. */
static struct taken open_forced(int i, const char *name)
{
    struct err e = { 0 };
    struct taken t = { 0 };

    if (dev_open(&t.d, name, &(struct dev_opts){ .n_threads = 2, .acts = test_acts(), .kernel = 1 + i }, &e) !=
            ERR_OK ||
        dev_reserve(t.d, (size_t)256 << 20, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return t;
}

static void end_forced(struct dev *d, const struct dev *tested, int i, int type)
{
    const char *name = gemm_kernels[i].name;
    struct err e = { 0 };

    if (dev_end(d, &e) != ERR_OK)
        fail_msg("%s (row %d) with %s: %s", name, i, quant_types[type]->name, e.msg);
    if ((dev_kernels(tested) >> i & 1u) == 0)
        fail_msg("%s (row %d) was not launched with %s, but %#llx", name, i, quant_types[type]->name,
                 (unsigned long long)dev_kernels(tested));
}

static void give_back(struct taken *t)
{
    for (int j = 0; j < t->n; j++)
        dev_free(t->d, t->at[j], t->bytes[j]);
    dev_close(t->d);
    for (int j = 0; j < t->n_weights; j++)
        free(t->weights[j]);
}

static void forced(int i, int type, const char *name)
{
    const struct gemm_kernel *k = &gemm_kernels[i];
    struct taken t = open_forced(i, name);

    if (k->sm == 0 || k->sm == sm_of(dev_test_tested(t.d))) {
        run_matrix(&t, k, type);
        end_forced(t.d, dev_test_tested(t.d), i, type);
    }
    give_back(&t);
}

static void each_kernel_as_the_cpu(void **state)
{
    char name[64];
    int n = 0;

    (void)state;
    if (strncmp(test_device(), "cuda", 4) != 0 || test_acts() == QUANT_ACTS_I8)
        skip();
    snprintf(name, sizeof name, "check:%s", test_device());
    for (int i = 0; i < GEMM_N_KERNELS; i++)
        for (int type = 0; type < QUANT_N; type++) {
            if (gemm_kernels[i].of != GEMM_OF_MATRICES || (gemm_kernels[i].acts & GEMM_ACTS_16) == 0 ||
                !gemm_formats_have(gemm_kernels[i].formats, type) || !test_mine())
                continue;
            forced(i, type, name);
            n++;
        }
    print_message("%d kernels with a format each\n", n);
}

/* What kernel i makes of a product of always the same numbers. */
static float *made_by(int i, int type, int64_t rows, int64_t k, int64_t n)
{
    struct taken t = open_forced(i, test_device());
    seed_of_next = 7;
    const struct tensor w = put_weights(&t, repeated(type, k, n, 1));
    const struct tensor x = put_rows(&t, k, rows, 1), y = put_rows(&t, n, rows, 1);
    const size_t bytes = (size_t)(y.stride * rows) * sizeof(float);
    float *got = need(bytes);

    dev_begin(t.d);
    op_matmul(t.d, y, w, x);
    end_forced(t.d, t.d, i, type);
    dev_copy(t.d, got, y.data, bytes);
    give_back(&t);
    return got;
}

/* Sums are exact, so a kernel gives the bytes of any other that rounds activations alike. */
static void wgmma_as_mma(void **state)
{
    static const int64_t shapes[][2] = { { 65, 272 }, { 333, 600 } }; /* rows, outputs */
    const bool eight = test_acts() == QUANT_ACTS_I8;
    struct dev *d;
    struct err e = { 0 };

    (void)state;
    if (strncmp(test_device(), "cuda", 4) != 0)
        skip();
    assert_int_equal(dev_open(&d, test_device(), &(struct dev_opts){ .n_threads = 1 }, &e), ERR_OK);
    const int sm = sm_of(d);
    dev_close(d);
    for (int type = 0; type < QUANT_N && sm == 90; type++)
        for (int s = 0; s < 2; s++) {
            const bool a8 = eight && gemm_formats_have(GEMM_FORMATS_A8, type);
            const int64_t rows = shapes[s][0], n = shapes[s][1], k = quant_types[type]->block_elems > 32 ? 768 : 544;

            if (!gemm_formats_have(GEMM_FORMATS_A16, type) || !test_mine())
                continue;
            float *a = made_by(a8 ? GEMM_R17_A8_MMA : GEMM_R17_MMA, type, rows, k, n);
            float *b = made_by(a8 ? GEMM_R64_A8_WGMMA : GEMM_R64_A16_WGMMA, type, rows, k, n);
            for (int64_t j = 0; j < rows * (n + 4); j++)
                if (memcmp(a + j, b + j, sizeof *a) != 0)
                    fail_msg("%s, %d rows: output %d of row %d is %a, not %a", quant_types[type]->name, (int)rows,
                             (int)(j % (n + 4)), (int)(j / (n + 4)), (double)b[j], (double)a[j]);
            free(a);
            free(b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_has_a_kernel),
        cmocka_unit_test(the_first_that_takes_it),
        cmocka_unit_test(each_kernel_as_the_cpu),
        cmocka_unit_test(wgmma_as_mma),
    };

    test_filter();
    return cmocka_run_group_tests_name("gemm", tests, NULL, NULL);
}
