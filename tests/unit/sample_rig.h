/* SPDX-License-Identifier: Apache-2.0 */
/* sample_rig.h - for tests of samplers: calls that must succeed. */
#ifndef TESTS_UNIT_SAMPLE_RIG_H
#define TESTS_UNIT_SAMPLE_RIG_H
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sample/chain.h"

static inline struct sampler *must_open(const struct sample_opts *o, int32_t n_vocab)
{
    struct sampler *s = NULL;
    struct err e = { 0 };
    if (sample_open(&s, o, n_vocab, &e) != ERR_OK) {
        fail_msg("%s", e.msg);
    }
    return s;
}

static inline void must_accept(struct sampler *s, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(sample_accept(s, tokens[i], NULL), ERR_OK);
    }
}

static inline struct sample_pick must_next(struct sampler *s, const float *logits)
{
    struct sample_pick p = { 0 };
    struct err e = { 0 };
    if (sample_next_row(s, logits, NULL, NULL, NULL, 0, &p, &e) != ERR_OK) {
        fail_msg("%s", e.msg);
    }
    return p;
}

static inline struct sample_pick one_shot(const struct sample_opts *o, const float *logits, int32_t n)
{
    struct sampler *s = must_open(o, n);
    struct sample_pick p = must_next(s, logits);
    sample_close(s);
    p.top = NULL;
    return p;
}
#endif
