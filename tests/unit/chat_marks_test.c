/* SPDX-License-Identifier: Apache-2.0 */
/* chat_marks_test.c - marks of reasoning: automaton and reader see the same, wherever an answer is cut; what prompts
 * and conversations have of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/io.h"
#include "chat/chat.h"
#include "chat/reader.h"
#include "gguf/gguf.h"
#include "marks_rig.h"
#include "text/marks.h"
#include "text/text.h"

enum { EMPTY = 17 /* of forms */, N_SYNTAXES = 27, REASONING = 20 };

static struct text *open_text(void)
{
    struct text *t;
    struct gguf *g;
    struct err e = { 0 };

    must(gguf_open(&g, MODEL, &e), &e);
    must(text_open(&t, g, &e), &e);
    gguf_close(g);
    return t;
}

/* ---- the automaton and the reader ---- */

/* A piece is reasoning if it ends within it, or begins within it. */
static void count_by_marks(struct counts *c, const struct text_marks *m, struct text_place *at, struct str s)
{
    const bool before = at->part == TEXT_REASONING;

    for (size_t n; s.n > 0; s.p += n, s.n -= n)
        n = text_marks_take(m, at, s);
    c->reasoning += before || at->part == TEXT_REASONING;
    c->n++;
}

struct answer {
    const char *parser;
    const json_t *tools;
    bool inside; /* the prompt has opened the reasoning */
    struct str text;
};

/* Pieces end at cut[0 .. n). Returns how many are reasoning. */
static int same_count(const struct answer *a, const struct text_marks *m, const size_t *cut, size_t n)
{
    const struct chat_reader_opts o = { .parser = a->parser, .tools = a->tools, .reasoning = a->inside };
    const struct text_marks *marks = m->open.n > 0 ? m : NULL;
    struct text_place at = text_marks_begin(marks, a->inside);
    struct counts engine = { 0 }, reader = { 0 };
    struct chat_reader *r;
    struct err e = { 0 };
    size_t from = 0;

    must(chat_reader_open(&r, &o, &e), &e);
    for (size_t i = 0; i < n; i++) {
        const struct str s = { a->text.p + from, cut[i] - from };

        count_by_marks(&engine, marks, &at, s);
        count_by_reader(&reader, r, s);
        if (engine.reasoning != reader.reasoning)
            fail_msg("%s: \"%.*s\": %d pieces of %d are reasoning, the reader says %d; cut at %zu", a->parser,
                     STR_ARG(a->text), engine.reasoning, engine.n, reader.reasoning, cut[0]);
        from = cut[i];
    }
    chat_reader_close(r);
    return engine.reasoning;
}

/* Whole, a byte a piece, each cut in two, and pieces of each length. Returns how many bytes are reasoning. */
static int same_at_every_cut(const struct answer *a, const struct text_marks *m)
{
    static size_t cut[1 << 16];
    const size_t n = a->text.n;

    assert_true(n < sizeof cut / sizeof *cut);
    for (size_t i = 1; i < n; i++)
        same_count(a, m, (size_t[]){ i, n }, 2);
    for (size_t len = n; len > 0; len--) {
        size_t k = 0;

        for (size_t at = len; at < n; at += len)
            cut[k++] = at;
        cut[k++] = n;
        if (len == 1)
            return same_count(a, m, cut, k);
        if (len < 64 || len == n)
            same_count(a, m, cut, k);
    }
    return 0;
}

/* As answer_of() takes them. */
static const struct {
    const char *form;
    bool inside;
    int n; /* bytes of reasoning without marks, where it begins once; -1: only compared */
} forms[] = {
    { "Oabc defZ\n\nxyz", false, 7 },
    { " \n\tOabcZxyz", false, 3 },
    { "SOabcZx", false, 3 },
    { "abc defZ\n\nxyz", true, 7 },
    { "abc defZ\n\nxyz", false, 0 },
    { "OabcZdOefZg", false, 3 },
    { "xOabcZd", false, 0 },
    { "<OabcZd", false, 0 },
    { "[OabcZd", false, 0 },
    { "\xFFOabcZd", false, 0 },
    { "oabcZd", false, 0 },
    { "OazZb", false, -1 },
    { "azZzb", true, -1 },
    { "Oabc \xC3\xA4\xE2\x82\xACZd", false, 9 },
    { "OOabcZd", false, -1 },
    { "ZOabcZd", false, 0 },
    { "Oabc", false, -1 },
    { "OZ", false, 0 },
    { "<think>abc</think>d", false, -1 },
    { "abc</think>d", true, -1 },
};

static void check_syntax(const char *parser, const struct text *t, int *reasons)
{
    static json_t *tools;
    struct text_marks m = { 0 }, forms_of;
    struct err e = { 0 };

    if (tools == NULL)
        must(json_parse(&tools, STR("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{}}}]"),
                        "tools", &e),
             &e);
    must(chat_marks_of(&m, parser, t, &e), &e);
    *reasons += m.open.n > 0;
    assert_int_equal(m.open.n > 0, m.close[0].n > 0);
    assert_int_equal(m.open.n > 0, m.n_over > 0);
    forms_of = m;
    if (m.open.n == 0) {
        forms_of.open = STR("<think>");
        forms_of.close[0] = STR("</think>");
    }
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (int k = 0; k < TEXT_MARK_CLOSERS && forms_of.close[k].n > 0; k++)
            for (int with = 0; with < 2; with++) {
                char text[ANSWER_BYTES];
                const struct answer a = { parser, with ? tools : NULL, forms[i].inside && m.open.n > 0,
                                          answer_of(text, forms[i].form, &forms_of, forms_of.close[k]) };
                const int n = same_at_every_cut(&a, &m), opened = !a.inside;

                if (m.open.n == 0)
                    assert_int_equal(n, 0);
                else if (forms[i].n >= 0 && !m.again) /* of the opening mark the last byte counts */
                    assert_int_equal(n, forms[i].n + (forms[i].n > 0 || i == EMPTY ? opened + (int)m.close[k].n : 0));
            }
}

/* The transcripts of other implementations. */
static void same_for_transcripts(void **state)
{
    struct text *t = open_text();
    struct err e = { 0 };
    json_t *file, *one;
    char *data;
    size_t n, i;

    (void)state;
    must(io_read_all(&data, &n, "tests/golden/chat/answers.json", 1 << 24, NULL, &e), &e);
    file = json_loadb(data, n, JSON_DECODE_INT_AS_REAL, NULL); /* some integers are large */
    assert_non_null(file);
    json_array_foreach (json_object_get(file, "cases"), i, one) {
        const json_t *tools = json_object_get(one, "tools");
        struct answer a = { json_string_value(json_object_get(one, "format")),
                            json_is_string(tools) ? json_object_get(json_object_get(file, "tools"), "standard") : tools,
                            false,
                            { 0 } };
        struct text_marks m;

        must(chat_marks_of(&m, a.parser, t, &e), &e);
        a.inside = json_is_true(json_object_get(one, "prompt_opens_reasoning")) && m.open.n > 0;
        assert_true(json_get_str(one, "text", &a.text));
        if (a.text.n > 0)
            (void)same_at_every_cut(&a, &m);
    }
    assert_true(i > 100);
    json_decref(file);
    free(data);
    text_close(t);
}

static void same_for_each_syntax(void **state)
{
    struct text *t = open_text();
    int n = 0, reasons = 0;

    (void)state;
    for (; chat_reader_name(n) != NULL; n++)
        check_syntax(chat_reader_name(n), t, &reasons);
    assert_true(n >= N_SYNTAXES && reasons >= REASONING);
    print_message("%d of %d syntaxes reason\n", reasons, n);
    text_close(t);
}

/* ---- conversations ---- */

static void add_text(const struct text *t, struct text_tokens *v, struct str s)
{
    struct err e = { 0 };

    must(text_encode(t, s, TEXT_SPECIAL, v, &e), &e);
}

/* What breaks off within reasoning is closed, once; a mark in an earlier message does not count. */
static void check_closing(const struct text *t, const char *parser)
{
    static const char form[] = "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>\n{% endfor %}"
                               "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    json_t *messages = json_array();
    struct text_tokens v = { 0 };
    struct chat *c;
    struct err e = { 0 };
    bool inside;

    must(chat_open(&c, t, str_of(form), &e), &e);
    assert_null(chat_marks(c));
    must(chat_set_parser(c, parser, &e), &e);
    assert_string_equal(chat_parser(c), parser);
    const struct text_marks *m = chat_marks(c);

    json_array_append_new(messages,
                          json_pack("{s:s, s:s}", "role", "user", "content", m != NULL ? m->open.p : "<think>"));
    must(chat_render(c, &(struct chat_prompt){ .messages = messages, .generate = true }, &v, &inside, &e), &e);
    assert_false(inside);
    for (int step = 0; step < 4; step++) { /* nothing; reasoning; again; the answer */
        const int64_t n = v.n;

        must(chat_close_reasoning(c, &v, &e), &e);
        if (step == 1 && m != NULL) {
            assert_int_equal(v.n, n + m->n_over);
            assert_memory_equal(v.v + n, m->over, (size_t)m->n_over * sizeof *v.v);
        } else
            assert_int_equal(v.n, n);
        if (step == 0 && m != NULL)
            add_text(t, &v, m->open);
        add_text(t, &v, step == 0 ? STR("abc") : STR(""));
        add_text(t, &v, step == 2 ? STR("def") : STR(""));
    }
    text_tokens_free(&v);
    json_decref(messages);
    chat_close(c);
}

/* A prompt that ends with the opening mark ends inside, unless somebody else than the template wrote it. */
static void check_prompt(const struct text *t, const char *parser)
{
    char form[ANSWER_BYTES];
    struct text_marks m;
    struct err e = { 0 };

    must(chat_marks_of(&m, parser, t, &e), &e);
    for (int ours = 0; ours < 2; ours++) {
        const char *mark = m.open.n > 0 ? m.open.p : "<think>";
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", mark);
        struct text_tokens v = { 0 };
        struct chat *c;
        bool inside;

        (void)snprintf(form, sizeof form, "{{ messages[0].content }}%s\n", ours ? mark : "");
        must(chat_open(&c, t, str_of(form), &e), &e);
        must(chat_set_parser(c, parser, &e), &e);
        must(chat_render(c, &(struct chat_prompt){ .messages = messages, .generate = true }, &v, &inside, &e), &e);
        assert_int_equal(inside, ours && m.open.n > 0);
        text_tokens_free(&v);
        json_decref(messages);
        chat_close(c);
    }
}

static void conversations_are_closed(void **state)
{
    struct text *t = open_text();

    (void)state;
    for (int i = 0; chat_reader_name(i) != NULL; i++)
        check_closing(t, chat_reader_name(i));
    text_close(t);
}

static void prompts_end_inside(void **state)
{
    struct text *t = open_text();

    (void)state;
    for (int i = 0; chat_reader_name(i) != NULL; i++)
        check_prompt(t, chat_reader_name(i));
    text_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_for_each_syntax),
        cmocka_unit_test(same_for_transcripts),
        cmocka_unit_test(conversations_are_closed),
        cmocka_unit_test(prompts_end_inside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
