/* SPDX-License-Identifier: Apache-2.0 */
/* sample_bounds_test.c - settings out of range, calls that are refused, numbers at the ends of their range. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "sample_rig.h"

static void refuse(const struct sample_opts *o, const char *name)
{
    static char mark;
    struct sampler *s = (struct sampler *)(void *)&mark; /* must stay as it is */
    struct err e = { 0 };
    assert_int_equal(sample_open(&s, o, 100, &e), ERR_ARG);
    if (e.where[0] != '/' || strcmp(e.where + 1, name) != 0 || e.msg[0] == '\0') {
        fail_msg("%s is not the place '%s' of: %s", name, e.where, e.msg);
    }
    assert_ptr_equal(s, &mark);
}

static void out_of_range(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
#define REFUSE(member, bad) \
    o.member = bad; \
    refuse(&o, #member); \
    o = sample_defaults()
    REFUSE(temp, -0.1f);
    REFUSE(temp, NAN);
    REFUSE(temp, INFINITY);
    REFUSE(top_k, -2);
    REFUSE(top_p, -0.1f);
    REFUSE(top_p, 1.1f);
    REFUSE(top_p, NAN);
    REFUSE(min_p, -0.1f);
    REFUSE(min_p, 1.1f);
    REFUSE(min_p, NAN);
    REFUSE(typical_p, -0.1f);
    REFUSE(typical_p, 1.1f);
    REFUSE(typical_p, NAN);
    REFUSE(repeat_penalty, 0);
    REFUSE(repeat_penalty, -1);
    REFUSE(repeat_penalty, NAN);
    REFUSE(repeat_penalty, INFINITY);
    REFUSE(presence_penalty, NAN);
    REFUSE(presence_penalty, INFINITY);
    REFUSE(frequency_penalty, NAN);
    REFUSE(frequency_penalty, -INFINITY);
    REFUSE(penalty_last_n, -2);
    REFUSE(dry_multiplier, -1);
    REFUSE(dry_multiplier, NAN);
    REFUSE(dry_base, 0.5f);
    REFUSE(dry_base, NAN);
    REFUSE(dry_allowed_length, 0);
    REFUSE(dry_allowed_length, 1025);
    REFUSE(dry_last_n, -2);
    REFUSE(n_top, -1);
    REFUSE(n_top, 101);
#undef REFUSE
    o.n_bias = 1; /* without a list */
    refuse(&o, "bias");
    o = sample_defaults();
    o.n_dry_breakers = 1;
    refuse(&o, "dry_breakers");
    o = sample_defaults();
    refuse(&(struct sample_opts){ 0 }, "repeat_penalty");
    static const struct sample_bias bad[5] = { { -1, 0 }, { 100, 0 }, { 0, NAN }, { 0, INFINITY }, { INT32_MIN, 1 } };
    static const int32_t breakers[2] = { -1, 100 };
    for (int i = 0; i < 5; i++) {
        const struct sample_bias two[2] = { { 1, 0 }, bad[i] };
        o.bias = two;
        o.n_bias = 2;
        refuse(&o, "bias/1");
    }
    o = sample_defaults();
    for (int i = 0; i < 2; i++) {
        o.dry_breakers = &breakers[i];
        o.n_dry_breakers = 1;
        refuse(&o, "dry_breakers/0");
    }
    o = sample_defaults();
    struct sampler *s = NULL;
    assert_int_equal(sample_open(&s, &o, 0, NULL), ERR_ARG);
    assert_int_equal(sample_open(&s, &o, -5, NULL), ERR_ARG);
    assert_null(s);
    sample_close(NULL);
}

static void bad_calls(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    struct sample_pick p = { 77, 0, NULL, 0 };
    struct err e = { 0 };
    const float none[3] = { NAN, -INFINITY, NAN }, only_inf[3] = { INFINITY, -INFINITY, NAN };
    const float one[3] = { NAN, 1, -INFINITY };
    const struct sample_bias forbid[1] = { { 1, -INFINITY } };
    struct sampler *s = must_open(&o, 3);
    assert_int_equal(sample_next_row(s, none, NULL, NULL, NULL, 0, &p, &e), ERR_DEVICE);
    assert_int_equal(sample_next_row(s, only_inf, NULL, NULL, NULL, 0, &p, &e), ERR_DEVICE);
    assert_int_equal(p.token, 77);
    assert_int_equal(must_next(s, one).token, 1);
    assert_int_equal(sample_accept(s, -1, &e), ERR_ARG);
    assert_int_equal(sample_accept(s, 3, &e), ERR_ARG);
    sample_close(s);
    o.bias = forbid;
    o.n_bias = 1;
    s = must_open(&o, 3);
    assert_int_equal(sample_next_row(s, one, NULL, NULL, NULL, 0, &p, &e), ERR_ARG);
    assert_string_equal(e.where, "/bias");
    assert_int_equal(must_next(s, (const float[3]){ 0, 9, 1 }).token, 2); /* usable afterwards */
    sample_close(s);
}

static void extreme_numbers(void **state)
{
    (void)state;
    struct sample_opts o = sample_defaults();
    const float wide[4] = { FLT_MAX, -FLT_MAX, 0, FLT_MAX };
    const float temps[4] = { FLT_MIN / 4, 1e-20f, 1, FLT_MAX };
    for (int i = 0; i < 4; i++) {
        o.temp = temps[i];
        int seen[4] = { 0 };
        for (o.seed = 0; o.seed < 64; o.seed++) {
            struct sample_pick p = one_shot(&o, wide, 4);
            seen[p.token]++;
            assert_true(p.logprob <= 0);
        }
        assert_true(seen[0] > 10 && seen[3] > 10 && seen[1] == 0 && seen[2] == 0);
    }
    /* No penalty, however large, makes a logit infinite: something can still be chosen. */
    o = sample_defaults();
    o.repeat_penalty = 1e6f;
    o.presence_penalty = 1e6f;
    struct sampler *s = must_open(&o, 1);
    must_accept(s, (const int32_t[1]){ 0 }, 1);
    assert_int_equal(must_next(s, (const float[1]){ -FLT_MAX }).token, 0);
    sample_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(out_of_range),
        cmocka_unit_test(bad_calls),
        cmocka_unit_test(extreme_numbers),
    };
    return cmocka_run_group_tests_name("sample_bounds", tests, NULL, NULL);
}
