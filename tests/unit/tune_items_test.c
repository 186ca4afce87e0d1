/* SPDX-License-Identifier: Apache-2.0 */
/* tune_items_test.c - lines that become items, with the tokenizer and the template of the embedded model. */
#include "golden.h"
#include "gguf/gguf.h"
#include "tune/items.h"

static void test_items(void **state)
{
    static const char lines[] = "{\"prompt\": \"What is it?\", \"answer\": \"a zebra\"}\n\n"
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"What is it?\"},"
                                " {\"role\": \"assistant\", \"content\": \"a zebra\"}]}\n"
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}], \"answer\": [1]}\n"
                                "{\"prompt\": \"Who?\"}\n";
    static const char text_line[] = "{\"text\": \"one two three four five six seven eight nine ten\"}\n";
    struct tune_reading how = { .tokens_max = 100, .open = true };
    struct tune_items items = { 0 }, sets = { 0 };
    struct text_tokens answer = { 0 };
    struct err e = { 0 };
    struct gguf *g;
    struct text *t;

    (void)state;
    if (gguf_open(&g, "share/models/chimere-nano-q5_k_m.gguf", &e) || text_open(&t, g, &e))
        fail_msg("%s", e.msg);
    how.text = t;
    assert_int_equal(tune_items_read(&items, &how, "a.jsonl", str_of(lines), &e), ERR_OK);
    assert_true(items.n == 2 && items.n_out == 1); /* an answer that is no text is left out */
    assert_int_equal(json_array_size(items.open), 1);
    assert_int_equal(tune_items_same(&items, &items), 2);
    assert_int_equal(items.v[0].token.n, items.v[1].token.n); /* both say the same */
    assert_memory_equal(items.v[0].token.v, items.v[1].token.v, (size_t)items.v[0].token.n * sizeof(int32_t));
    assert_int_equal(text_encode(t, STR("a zebra"), 0, &answer, &e), ERR_OK);
    assert_int_equal(items.v[0].n_answer, answer.n + 1); /* and the end of the turn */
    for (int64_t i = 0, n = items.v[0].token.n; i < n; i++) {
        const int64_t at = i + 1 - (n - items.v[0].n_answer);

        assert_int_equal(items.v[0].target[i], at < 0 || i + 1 == n ? -1 : items.v[0].token.v[i + 1]);
        if (at >= 0 && at < answer.n)
            assert_int_equal(items.v[0].target[i], answer.v[at]);
    }
    how.open = false;
    assert_int_equal(tune_items_read(&items, &how, "a.jsonl", str_of(lines), &e), ERR_FORMAT);
    assert_non_null(strstr(e.msg, "a.jsonl: line 5"));
    /* a long text is cut, and counts whole */
    how.tokens_max = 4;
    assert_int_equal(tune_items_read_set(&sets, &how, "first", "b.jsonl", str_of(text_line), &e), ERR_OK);
    assert_true(sets.n >= 3 && sets.v[0].token.n == 4 && sets.v[0].n_answer == 3);
    const int64_t first = sets.n;

    how.tokens_max = 100;
    assert_int_equal(tune_items_read_set(&sets, &how, "second", "b.jsonl", STR("{\"text\": \"one two\"}\n"), &e),
                     ERR_OK);
    assert_true(sets.n_set == 2 && sets.n == first + 1 && sets.v[first].set == 1 && sets.v[0].set == 0);
    assert_string_equal(sets.set_name[1], "second");
    tune_items_free(&items);
    tune_items_free(&sets);
    text_tokens_free(&answer);
    text_close(t);
    gguf_close(g);
}

/* The tokens of an item as text. */
static void item_text(const struct text *t, const struct tune_item *i, char **out)
{
    struct err e;
    size_t n;

    if (text_decode(t, i->token.v, i->token.n, TEXT_SPECIAL, out, &n, &e))
        fail_msg("%s", e.msg);
}

/* A thought stands where the model would write its own, and is learnt like the answer. */
static void test_thoughts(void **state)
{
    static const char lines[] =
        "{\"prompt\": \"What is it?\", \"answer\": \"a zebra\", \"reasoning_content\": \"Stripes.\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is it?\"}, {\"role\": \"assistant\","
        " \"reasoning_content\": \"Stripes.\", \"content\": \"a zebra\"}]}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is it?\"}], \"reasoning_content\": \"\","
        " \"answer\": \"a zebra\"}\n"
        "{\"prompt\": \"What is it?\", \"answer\": \"a zebra\"}\n";
    struct tune_reading how = { .tokens_max = 100 };
    struct tune_items items = { 0 };
    char *whole[4];
    struct err e = { 0 };
    struct gguf *g;
    struct text *t;

    (void)state;
    if (gguf_open(&g, "share/models/chimere-nano-q5_k_m.gguf", &e) || text_open(&t, g, &e))
        fail_msg("%s", e.msg);
    how.text = t;
    assert_int_equal(tune_items_read(&items, &how, "a.jsonl", str_of(lines), &e), ERR_OK);
    assert_int_equal(items.n, 4);
    for (int i = 0; i < 4; i++)
        item_text(t, &items.v[i], &whole[i]);
    assert_string_equal(whole[0], whole[1]);
    assert_non_null(strstr(whole[0], "<think>\nStripes.\n</think>\n\na zebra<|im_end|>"));
    assert_non_null(strstr(whole[2], "<think>\n\n</think>\n\na zebra<|im_end|>"));
    assert_string_equal(whole[2], whole[3]); /* an empty thought reads as none */
    assert_true(items.v[0].n_answer > items.v[2].n_answer && items.v[2].n_answer > items.v[3].n_answer);
    for (int i = 0; i < 4; i++)
        free(whole[i]);
    tune_items_free(&items);
    text_close(t);
    gguf_close(g);
}

/* A thought that is given like the question is there, and not learnt. */
static void test_answer_only(void **state)
{
    static const char lines[] =
        "{\"prompt\": \"What is it?\", \"answer\": \"a zebra\", \"reasoning_content\": \"Stri\", \"learn\": "
        "\"answer\"}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"What is it?\"}, {\"role\": \"assistant\","
        " \"reasoning_content\": \"Stri\", \"content\": \"a zebra\"}], \"learn\": \"answer\"}\n"
        "{\"prompt\": \"What is it?\", \"answer\": \"a zebra\", \"learn\": \"all\"}\n";
    static const char *const refused[][2] = {
        { "{\"prompt\": \"a\", \"answer\": 5}", "line 1: answer is not a text" },
        { "{\"prompt\": \"a\", \"answer\": \"\"}", "line 1: answer is empty" },
        { "\n{\"prompt\" 5}", "a.jsonl: line 2: column " },
    };
    static const char *const wrong[] = { "\"x\"", "1", "null", "[\"answer\"]" };
    struct tune_reading how = { .tokens_max = 100 };
    struct tune_items items = { 0 };
    char *whole;
    struct err e = { 0 };
    struct gguf *g;
    struct text *t;

    (void)state;
    if (gguf_open(&g, "share/models/chimere-nano-q5_k_m.gguf", &e) || text_open(&t, g, &e))
        fail_msg("%s", e.msg);
    how.text = t;
    assert_int_equal(tune_items_read(&items, &how, "a.jsonl", str_of(lines), &e), ERR_OK);
    assert_int_equal(items.n, 3);
    for (int i = 0; i < 2; i++) {
        const struct tune_item *a = &items.v[i];

        assert_int_equal(a->n_answer, items.v[2].n_answer); /* the answer alone */
        assert_true(a->thinks && a->token.n > items.v[2].token.n);
        for (int64_t k = 0; k < a->token.n; k++)
            assert_int_equal(a->target[k],
                             k + 1 < a->token.n - a->n_answer || k + 1 == a->token.n ? -1 : a->token.v[k + 1]);
    }
    item_text(t, &items.v[0], &whole);
    assert_non_null(strstr(whole, "<think>\nStri\n</think>\n\na zebra<|im_end|>"));
    free(whole);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[200];

        (void)snprintf(line, sizeof line, "{\"prompt\": \"a\", \"answer\": \"b\", \"learn\": %s}", wrong[i]);
        assert_int_equal(tune_items_read(&items, &how, "a.jsonl", str_of(line), &e), ERR_FORMAT);
        assert_string_equal(e.msg, "a.jsonl: line 1: learn: \"all\" or \"answer\"");
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(tune_items_read(&items, &how, "a.jsonl", str_of(refused[i][0]), &e), ERR_FORMAT);
        assert_non_null(strstr(e.msg, refused[i][1]));
    }
    tune_items_free(&items);
    text_close(t);
    gguf_close(g);
}

/* Some items of each set come first, and the others stay in their order; texts can be left out. */
static void test_front(void **state)
{
    static const int want[] = { 0, 3, 5, 8, 1, 2, 4, 6, 7, 9 };
    struct tune_items s = { 0 };
    struct err e = { 0 };

    (void)state;
    for (int i = 0; i < 10; i++) {
        struct text_tokens token = { 0 };

        assert_int_equal(text_tokens_push(&token, i, &e), ERR_OK);
        assert_int_equal(text_tokens_push(&token, i, &e), ERR_OK);
        assert_int_equal(tune_items_add(&s, token, 1, 10, &e), ERR_OK);
        s.v[i].is_text = i != 0 && i != 3 && i != 5 && i != 8;
    }
    assert_int_equal(tune_items_front(&s, 20, &e), ERR_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(s.v[i].token.v[0], i);
    assert_int_equal(tune_items_front(&s, 4, &e), ERR_OK);
    for (int i = 0; i < 10; i++)
        assert_int_equal(s.v[i].token.v[0], want[i]);
    tune_items_drop_texts(&s);
    assert_int_equal(s.n, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(s.v[i].token.v[0], want[i]);
    tune_items_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items),
        cmocka_unit_test(test_thoughts),
        cmocka_unit_test(test_answer_only),
        cmocka_unit_test(test_front),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
