/* SPDX-License-Identifier: Apache-2.0 */
/* check_device_test.c - the device "check:NAME": names that it takes, and that it names the operation that is wrong. */
#include "golden.h"
#include "model/forward.h"
#include "ops/table.h"
#include "part.h"

static const struct dev_table *whole; /* what the broken one is made of */

static void break_row(struct tensor y)
{
    if (y.ne[1] > 2)
        ((float *)y.data)[2 * y.stride + y.ne[0] - 1] += 1.0f;
}

static void bad_glu(void *c, struct tensor y, struct tensor gate, struct tensor up)
{
    whole->glu(c, y, gate, up);
    break_row(y);
}

static void bad_rms_norm(void *c, struct tensor y, struct tensor x, const float *w, int64_t n_w, int64_t group,
                         float eps)
{
    whole->rms_norm(c, y, x, w, n_w, group, eps);
    break_row(y);
}

static void bad_attn(void *c, struct tensor y, struct tensor q, const struct op_kv *kv, float scale,
                     const struct op_rows *r)
{
    whole->attn(c, y, q, kv, scale, r);
    break_row(y);
}

static void bad_gdn(void *c, struct tensor y, struct tensor qkv, struct tensor alpha, struct tensor beta,
                    const struct op_gdn *a, const struct op_rows *r)
{
    whole->gdn(c, y, qkv, alpha, beta, a, r);
    a->rec.data[(int64_t)r->seq[0].slot * a->rec.floats + 5] += 1.0f; /* not seen in y yet */
}

static void bad_kv_store(void *c, struct tensor k, struct tensor v, const struct op_kv *kv, const struct op_rows *r)
{
    whole->kv_store(c, k, v, kv, r);
    kv->pages[(size_t)kv->page[0][0] * kv->page_bytes] ^= 1;
}

static void bad_hadamard(void *c, struct tensor y, struct tensor x, int64_t dim)
{
    whole->hadamard(c, y, x, dim);
    break_row(y);
}

static void bad_route(void *c, int32_t *expert, struct tensor weight, struct tensor logits, const struct op_route *a)
{
    whole->route(c, expert, weight, logits, a);
    expert[1] = (expert[1] + 1) % a->n_expert;
}

static void bad_moe(void *c, struct tensor y, struct tensor x, const struct op_moe *a)
{
    whole->moe(c, y, x, a);
    break_row(y);
}

static void names_the_operation(void **state)
{
    static const struct {
        const char *says;
        size_t at; /* of the function in the table */
        void (*bad)(void);
    } of[] = {
#define BAD(op) { "check: " #op " (operation", offsetof(struct dev_table, op), (void (*)(void))bad_##op }
        BAD(glu), BAD(rms_norm), BAD(attn), BAD(gdn), BAD(kv_store), BAD(hadamard), BAD(route), BAD(moe),
    };
    enum { N = 20 };

    (void)state;
    for (size_t i = 0; i <= sizeof of / sizeof of[0]; i++) {
        struct dev_table broken;
        struct run_row rows[N];
        struct model *m;
        struct gguf *g;
        struct run *r;
        struct err e = { 0 };

        if (gguf_open(&g, "tests/golden/models/qwen35moe-k.iq3_s.gguf", &e) ||
            model_open(&m, g, &(struct model_opts){ .device = "check:cpu", .n_threads = 2 }, &e) ||
            run_open(&r, m, &(struct run_opts){ .ctx_tokens = 64, .kv_k = "q8_0", .kv_v = "q8_0" }, &e))
            fail_msg("%s", e.msg);
        struct dev_impl *impl = dev_test_impl(dev_test_tested(model_dev(m)));
        whole = impl->table;
        broken = *whole;
        if (i < sizeof of / sizeof of[0])
            memcpy((char *)&broken + of[i].at, &of[i].bad, sizeof of[i].bad);
        impl->table = &broken;
        for (int j = 0; j < N; j++)
            rows[j] = (struct run_row){ 3 * j + 1, 0, true, false };
        enum err_code code = run_step(r, rows, N, &e);
        impl->table = whole;
        if (i == sizeof of / sizeof of[0]) { /* nothing broken */
            assert_int_equal(code, ERR_OK);
        } else {
            assert_int_equal(code, ERR_DEVICE);
            if (strncmp(e.msg, of[i].says, strlen(of[i].says)) != 0)
                fail_msg("\"%s\", not \"%s\"", e.msg, of[i].says);
        }
        run_close(r);
        model_close(m);
        gguf_close(g);
    }
}

static void names(void **state)
{
    struct err e = { 0 };
    struct dev *d;

    (void)state;
    assert_int_equal(dev_open(&d, "check:check:cpu", &(struct dev_opts){ 0 }, &e), ERR_ARG);
    assert_int_equal(dev_open(&d, "check:", &(struct dev_opts){ 0 }, &e), ERR_ARG);
    assert_int_equal(dev_open(&d, "check:nothing", &(struct dev_opts){ 0 }, &e), ERR_ARG);
    assert_int_equal(dev_open(&d, "check:cpu", &(struct dev_opts){ 0 }, &e), ERR_OK);
    assert_string_equal(dev_name(d), "check:cpu");
    dev_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(names_the_operation),
    };

    test_filter();
    return cmocka_run_group_tests_name("check_device", tests, NULL, NULL);
}
