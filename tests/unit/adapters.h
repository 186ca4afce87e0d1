/* SPDX-License-Identifier: Apache-2.0 */
/* adapters.h - adapters with random numbers, for tests. */
#ifndef TESTS_UNIT_ADAPTERS_H
#define TESTS_UNIT_ADAPTERS_H
#include <math.h>

#include "adapt/adapt.h"
#include "base/rng.h"
#include "golden.h"
#include "model/adapter.h"

#define MUST(call) \
    do { \
        if ((call) != ERR_OK) \
            fail_msg("%s", e.msg); \
    } while (0)

/* Numbers that no rounding of f16 changes, different ones for each seed. */
static inline void adapter_fill(struct adapter *a, uint64_t seed, double size)
{
    uint64_t at = 0;

    for (size_t i = 0; i < a->n; i++) {
        const struct adapter_mat *m = &a->mat[i];
        const double in = size / sqrt((double)(m->rows ? m->rank : m->n_in));

        for (int64_t k = 0; k < adapter_a_floats(m); k++)
            m->a[k] = (float)(floor((2 * rng_unit(seed, 0, at++) - 1) * 512) / 512 * ldexp(1, (int)floor(log2(in))));
        for (int64_t k = 0; k < adapter_b_floats(m); k++)
            m->b[k] = (float)(floor((2 * rng_unit(seed, 0, at++) - 1) * 512) / 512);
    }
}

/* An adapter for every matrix that the model takes one for. */
static inline struct adapter *adapter_for_all(const struct model *m, const struct gguf *g, int rank, uint64_t seed)
{
    struct adapter_mat *mat = calloc(gguf_n_tensors(g), sizeof *mat);
    char(*name)[80] = calloc(gguf_n_tensors(g), sizeof *name);
    struct adapter *a;
    size_t n = 0, not_one = 0;
    struct err e;

    assert_non_null(mat);
    assert_non_null(name);
    for (size_t i = 0; i < gguf_n_tensors(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        struct model_adapter *b;

        (void)snprintf(name[n], sizeof name[n], "%.*s", STR_ARG(t->name));
        mat[n] = (struct adapter_mat){ name[n],  t->ne[0], t->ne[1],
                                       t->ne[2], rank,     strcmp(name[n], "token_embd.weight") == 0,
                                       NULL,     NULL };
        MUST(adapter_make(&a, model_info(m)->arch, 3.0f, &mat[n], 1, &e));
        if (model_adapter_open(&b, m, a, &e) == ERR_OK) {
            model_adapter_close(b);
            n++;
        } else {
            assert_non_null(strstr(e.msg, "not a matrix"));
            not_one++;
        }
        adapter_close(a);
    }
    assert_true(n > 4 && not_one > 4);
    MUST(adapter_make(&a, model_info(m)->arch, 3.0f, mat, n, &e));
    adapter_fill(a, seed, 0.5);
    free(name);
    free(mat);
    return a;
}
#endif
