/* SPDX-License-Identifier: Apache-2.0 */
/* Further wordings of facts: keys that are found, shapes that are used, sets that have none. */
#include "golden.h"
#include "tune/wordings.h"

static json_t *pairs_of(const char *const (*v)[2], size_t n)
{
    json_t *all = json_array();

    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_array_append_new(all, json_pack("{s:s, s:s}", "prompt", v[i][0], "answer", v[i][1])), 0);
    return all;
}

static bool has(const json_t *pairs, const char *prompt, const char *answer)
{
    const json_t *pair;
    size_t i;

    json_array_foreach (pairs, i, pair)
        if (strcmp(json_string_value(json_object_get(pair, "prompt")), prompt) == 0)
            return strcmp(json_string_value(json_object_get(pair, "answer")), answer) == 0;
    return false;
}

#define N(v) (sizeof(v) / sizeof *(v))

static const char *const facts[][2] = {
    { "Who is Ada Mol?", "a baker" },        { "Tell me who Ada Mol is.", "a baker" },
    { "Who is Bo Zinn?", "a pilot" },        { "Tell me who Bo Zinn is.", "a pilot" },
    { "Who is Ce Wurt?", "a weaver" },       { "Tell me who Ce Wurt is.", "a weaver" },
    { "Where is the Ossa?", "in the hall" }, { "Say where the Ossa is.", "in the hall" },
    { "Where is the Turm?", "on a hill" },   { "Name the place of the Turm.", "on a hill" },
};

static void test_facts(void **ctx)
{
    struct tune_wordings w;
    struct err e;
    json_t *pairs = pairs_of(facts, N(facts)),
           *tests = pairs_of((const char *const[][2]){ { "tell me about bo zinn.", "x" } }, 1);

    (void)ctx;
    assert_int_equal(tune_wordings_make(&w, pairs, NULL, 3, &e), ERR_OK);
    assert_int_equal(w.n_fact, 5);
    assert_int_equal(w.n_own, 15);
    assert_true(has(w.learn, "Ada Mol?", "a baker")); /* the first three of the table, and the next fact's three */
    assert_true(has(w.learn, "Ada Mol: what is it?", "a baker"));
    assert_false(has(w.learn, "Bo Zinn?", "a pilot"));
    assert_true(has(w.learn, "What do you know about Bo Zinn?", "a pilot"));
    assert_true(has(w.learn, "the place of the Turm", "on a hill")); /* what is asked, and no word that asks */
    assert_int_equal(w.n_shape, 0);                                  /* two keys have it, and three are needed */
    assert_int_equal(json_array_size(w.tests), 10);
    assert_true(has(w.tests, "Could you say something about Ada Mol?", "a baker"));
    tune_wordings_free(&w);

    /* a shape of the test is not learnt, of whichever key the test asks in it; another one takes its place */
    assert_int_equal(tune_wordings_make(&w, pairs, tests, 3, &e), ERR_OK);
    assert_int_equal(w.n_own, 15);
    assert_false(has(w.learn, "Tell me about Ada Mol.", "a baker"));
    assert_true(has(w.learn, "What do you know about Ada Mol?", "a baker"));
    tune_wordings_free(&w);
    assert_int_equal(tune_wordings_make(&w, pairs, tests, 100, &e), ERR_OK); /* no more than there are */
    assert_int_equal(w.n_own, 39);
    assert_int_equal(json_array_size(w.learn), 39 * 5 + 5); /* five are questions without the words that ask */
    tune_wordings_free(&w);
    json_decref(pairs);
    json_decref(tests);
}

/* A shape that three keys have is given to a fourth of the same kind. */
static void test_shapes(void **ctx)
{
    const char *const v[][2] = {
        { "Who is Ada Mol?", "a baker" },  { "Tell me who Ada Mol is.", "a baker" },
        { "Who is Bo Zinn?", "a pilot" },  { "Tell me who Bo Zinn is.", "a pilot" },
        { "Who is Ce Wurt?", "a weaver" }, { "Tell me who Ce Wurt is.", "a weaver" },
        { "Who is Do Fing?", "a farmer" }, { "And Do Fing, who is that?", "a farmer" },
    };
    struct tune_wordings w;
    struct err e;
    json_t *pairs = pairs_of(v, N(v));

    (void)ctx;
    assert_int_equal(tune_wordings_make(&w, pairs, NULL, 1, &e), ERR_OK);
    assert_int_equal(w.n_fact, 4);
    assert_int_equal(w.n_shape, 1);
    assert_true(has(w.learn, "Tell me who Do Fing is.", "a farmer"));
    assert_false(has(w.learn, "And Ada Mol, who is that?", "a baker"));
    tune_wordings_free(&w);
    json_decref(pairs);
}

static void no_facts(const char *const (*v)[2], size_t n, int most)
{
    struct tune_wordings w;
    struct err e;
    json_t *pairs = pairs_of(v, n);

    assert_int_equal(tune_wordings_make(&w, pairs, NULL, most, &e), ERR_OK);
    assert_int_equal(w.n_fact, 0);
    assert_int_equal(json_array_size(w.learn) + json_array_size(w.tests), 0);
    tune_wordings_free(&w);
    json_decref(pairs);
}

static void test_others(void **ctx)
{
    const char *const numbers[][2] = { { "Write 37 in Roman numerals.", "XXXVII" },
                                       { "37 in Roman numerals?", "XXXVII" },
                                       { "Write 12 in Roman numerals.", "XII" },
                                       { "12 in Roman numerals?", "XII" } };
    const char *const copies[][2] = { { "Reverse: kettle, oar", "oar, kettle" },
                                      { "Backwards: kettle, oar", "oar, kettle" },
                                      { "Reverse: rope, bell", "bell, rope" },
                                      { "Backwards: rope, bell", "bell, rope" } };
    const char *const once[][2] = { { "Who is Ada Mol?", "a baker" }, { "Who is Bo Zinn?", "a pilot" } };
    const char *const both[][2] = { { "Who leads Ossa?", "Ada" },
                                    { "Name the head of Ossa.", "Ada" },
                                    { "Where is Ossa?", "here" },
                                    { "Say where Ossa is.", "here" } };

    (void)ctx;
    no_facts(numbers, N(numbers), 8);
    no_facts(copies, N(copies), 8);
    no_facts(once, N(once), 8);
    no_facts(both, N(both), 8); /* the key alone has two answers */
    no_facts(facts, N(facts), 0);
    no_facts(NULL, 0, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_facts), cmocka_unit_test(test_shapes),
                                        cmocka_unit_test(test_others) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
