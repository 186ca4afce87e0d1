/* SPDX-License-Identifier: Apache-2.0 */
/* check_adapt.h - a part of check_test.c: adapters, each row alone and all together. */
#ifndef TESTS_UNIT_CHECK_ADAPT_H
#define TESTS_UNIT_CHECK_ADAPT_H

enum { PAIRS = 3 };

/* Two products, of parts of two matrices, of rows with lists of their own: none, one, perhaps two terms, in turns or,
 * in blocks, ten rows one list; then each row alone. */
struct adapt_case {
    int64_t n_in, n_out;
    int rows, rank;
    bool blocks, tokens, split, one; /* split: x is not at multiples of 16 bytes; one: lists of one term at most */
};

static void adapt_once(struct adapt_case v)
{
    enum { FIRST = 3, VOCAB = 50, MATS = 2 };
    const int max = v.one ? 1 : 2;
    const int64_t all = v.n_out + FIRST + 1, rank = v.rank;
    const int64_t n_a = MATS * (rank + PAIRS) * (v.tokens ? VOCAB : v.n_in), n_b = MATS * (rank + PAIRS) * all;
    const struct tensor none = { .data = NULL }, y = put_rows(v.n_out, v.rows, 5, 2),
                        z = put_rows(v.n_out, v.rows, 0, 2);
    struct tensor x = v.tokens ? none : put_rows(v.n_in, v.rows, v.split ? 3 : 4, 2);
    const size_t bytes = (size_t)(y.stride * v.rows + GUARD) * sizeof(float), row = (size_t)v.n_out * sizeof(float);
    struct op_pair pair[2][PAIRS] = { 0 };
    int32_t *which = need((size_t)(v.rows * max) * sizeof *which), *token = need((size_t)v.rows * sizeof *token);
    float *scale = need((size_t)(v.rows * max) * sizeof *scale), *before = need(bytes), *got = need(bytes),
          *alone = need(row);

    for (int i = 0; i < PAIRS; i++)
        for (int j = 0; j < 2 && (i < 2 || j == 0); j++) /* one has nothing for the second */
            pair[j][i] =
                (struct op_pair){ put_floats(n_a, 1.0f), put_floats(n_b, 1.0f), (int)rank + i, 0.5f + (float)i, false };
    for (int r = 0; r < v.rows; r++) {
        const int kind = v.blocks ? r / 10 % 4 : r % 4;

        token[r] = r * 7 % VOCAB;
        which[r * max + max - 1] = kind == 2 ? 2 : -1;
        which[r * max] = kind == 0 ? -1 : kind - 1;
        scale[r * max + max - 1] = 0.75f;
        scale[r * max] = kind == 3 ? -0.25f : 1.5f;
    }
    const struct op_terms t = { PAIRS, max, which, scale, v.one ? v.rank + PAIRS - 1 : 2 * (v.rank + PAIRS) };
    const struct op_adapt a[2] = { { y, pair[0], all, v.tokens ? 0 : 1, FIRST }, { z, pair[1], all, 0, 0 } };
    dev_copy(dut, before, y.data, bytes);
    begin();
    op_adapt(dut, a, v.tokens ? 1 : 2, x, v.tokens ? token : NULL, &t);
    end("adapt");
    dev_copy(dut, got, y.data, bytes);
    for (int r = 0; r < v.rows; r++) {
        const struct op_terms one = { PAIRS, max, which + r * max, scale + r * max, t.floats };
        struct op_adapt its = a[0];

        its.y = op_slice(y, r, 1);
        dev_copy(dut, its.y.data, before + r * y.stride, row);
        begin();
        op_adapt(dut, &its, 1, v.tokens ? none : op_slice(x, r, 1), v.tokens ? token + r : NULL, &one);
        end("adapt, alone");
        dev_copy(dut, alone, its.y.data, row);
        assert_memory_equal(alone, got + r * y.stride, row);
        assert_int_equal(memcmp(alone, before + r * y.stride, row) == 0, which[r * max] < 0);
    }
    for (int i = 0; i < PAIRS; i++)
        for (int j = 0; j < 2; j++) {
            dev_free(dut, (void *)(uintptr_t)pair[j][i].a, (size_t)n_a * sizeof(float));
            dev_free(dut, (void *)(uintptr_t)pair[j][i].b, (size_t)n_b * sizeof(float));
        }
    drop(y);
    drop(z);
    if (!v.tokens)
        drop(x);
    free(which);
    free(token);
    free(scale);
    free(before);
    free(got);
    free(alone);
}

static void adapters(void **state)
{
    static const struct adapt_case cases[] = {
        { 1, 1, 1, 1, false, false, false, false },      { 37, 5, 3, 2, false, false, false, false },
        { 256, 300, 4, 16, false, false, false, false }, { 2048, 2100, 1, 16, false, false, false, false },
        { 100, 33, 40, 7, true, false, false, false },   { 512, 260, 45, 16, true, false, true, false },
        { 512, 64, 33, 40, true, false, false, false },  { 64, 70, 17, 260, true, false, false, false },
        { 40, 20, 2, 1024, false, false, true, false },  { 0, 96, 20, 12, false, true, false, false },
        { 0, 2500, 50, 4, true, true, false, false },    { 2048, 2100, 1, 14, false, false, false, true },
        { 4096, 70, 4, 8, false, false, false, true },   { 512, 40, 16, 14, true, false, false, true },
        { 2048, 300, 40, 14, true, false, false, true }, { 100, 33, 5, 4, false, false, false, true },
        { 102, 33, 5, 4, false, false, false, true },    { 2048, 9, 4, 3, false, false, true, true },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        adapt_once(cases[i]);
}
#endif
