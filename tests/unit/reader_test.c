/* SPDX-License-Identifier: Apache-2.0 */
/* reader_test.c - answers to reasoning, text and tool calls: transcripts of tests/golden/chat/answers.json and of
 * $GOLDENS/chat/parse.json at every chunking, and rule by rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/io.h"
#include "chat/reader.h"
#include "part.h"

enum { FILE_BYTES_MAX = 64 << 20, RANDOM_CHUNKINGS = 20 };

/* Text that grows; {0} is empty. */
struct bytes {
    char *p;
    size_t n, cap;
};

static void add(struct bytes *b, struct str s)
{
    if (b->n + s.n + 1 > b->cap) {
        b->cap = 2 * (b->n + s.n + 64);
        b->p = realloc(b->p, b->cap);
        assert_non_null(b->p);
    }
    if (s.n > 0)
        memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    b->p[b->n] = '\0';
}

/* What a reader gave, added up. */
struct sum {
    struct bytes part[2], calls; /* calls: name and arguments, a line each */
    struct bytes parts, failed;  /* the pieces of the last call's arguments; of those that failed, a line each */
    int n_calls, n_begun;
    bool calling;
    enum chat_cut cut;
};

static void free_sum(struct sum *s)
{
    free(s->part[0].p);
    free(s->part[1].p);
    free(s->calls.p);
    free(s->parts.p);
    free(s->failed.p);
}

static bool is_utf8(struct str s)
{
    for (size_t n; s.n > 0; s.p += n, s.n -= n)
        if ((n = str_utf8(s)) == 0)
            return false;
    return true;
}

/* The pieces of a call come in order, and those of its arguments are the whole. One that fails has no whole JSON. */
static void take_call(struct sum *sum, struct chat_reader *r, const struct chat_piece *p)
{
    assert_true(is_utf8(p->name) && is_utf8(p->id) && p->name.n > 0 && p->id.n > 0);
    assert_int_equal(p->text.n > 0, p->step == CHAT_CALL_MORE || p->step == CHAT_CALL_END);
    assert_int_equal(sum->calling, p->step != CHAT_CALL_BEGIN);
    sum->calling = p->step == CHAT_CALL_BEGIN || p->step == CHAT_CALL_MORE;
    sum->n_begun += p->step == CHAT_CALL_BEGIN;
    assert_int_equal(p->call, sum->n_begun - 1);
    if (p->step == CHAT_CALL_MORE)
        add(&sum->parts, p->text);
    if (sum->calling)
        return;
    if (p->step == CHAT_CALL_END) {
        assert_true(str_eq((struct str){ sum->parts.p, sum->parts.n }, p->text));
        assert_true(str_eq(chat_reader_call(r, sum->n_calls).id, p->id));
        assert_true(str_eq(chat_reader_call(r, sum->n_calls).arguments, p->text));
        sum->n_calls++;
        add(&sum->calls, p->name);
        add(&sum->calls, STR("\n"));
        add(&sum->calls, p->text);
        add(&sum->calls, STR("\n"));
    } else {
        json_t *v = json_loadb(sum->parts.p, sum->parts.n, 0, NULL);
        assert_null(v);
        add(&sum->failed, (struct str){ sum->parts.p, sum->parts.n });
        add(&sum->failed, STR("\n"));
    }
    sum->parts.n = 0;
}

static void take(struct sum *sum, struct chat_reader *r, struct str s, bool end)
{
    const struct chat_piece *v = NULL;
    struct err e = { 0 };
    int n = 0;

    if (chat_read(r, s, end, &v, &n, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < n; i++) {
        assert_true(is_utf8(v[i].text));
        if (v[i].part == CHAT_TOOL) {
            take_call(sum, r, &v[i]);
            continue;
        }
        assert_true(v[i].text.n > 0);
        add(&sum->part[v[i].part], v[i].text);
    }
    assert_false(end && sum->calling);
}

struct transcript {
    const char *parser;
    const json_t *tools;
    bool reasoning;
    struct str text;
};

static struct chat_reader *must_open(const struct transcript *t)
{
    struct chat_reader_opts o = { .parser = t->parser, .tools = t->tools, .reasoning = t->reasoning };
    struct chat_reader *r = NULL;
    struct err e = { 0 };

    if (chat_reader_open(&r, &o, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    return r;
}

/* The text in pieces that end at cut[0 .. n_cut). */
static struct sum read_in(const struct transcript *t, const size_t *cut, size_t n_cut)
{
    struct chat_reader *r = must_open(t);
    struct sum sum = { 0 };
    size_t from = 0;

    for (size_t i = 0; i < n_cut; i++) {
        /* a copy of its own, so that a sanitizer sees its ends */
        size_t n = cut[i] - from;
        char *copy = malloc(n > 0 ? n : 1);
        assert_non_null(copy);
        memcpy(copy, t->text.p + from, n);
        take(&sum, r, (struct str){ copy, n }, false);
        free(copy);
        from = cut[i];
    }
    take(&sum, r, (struct str){ t->text.p + from, t->text.n - from }, true);
    sum.cut = chat_reader_cut(r);
    for (int i = 0; i < 2; i++)
        add(&sum.part[i], STR(""));
    add(&sum.calls, STR(""));
    add(&sum.failed, STR(""));
    chat_reader_close(r);
    return sum;
}

static void same_sum(const char *name, const struct sum *a, const struct sum *b, const char *how, size_t at)
{
    if (strcmp(a->part[0].p, b->part[0].p) != 0 || strcmp(a->part[1].p, b->part[1].p) != 0 ||
        strcmp(a->calls.p, b->calls.p) != 0 || strcmp(a->failed.p, b->failed.p) != 0 || a->cut != b->cut)
        fail_msg("%s: %s %zu differs:\n%s|%s|%s%s%d\n%s|%s|%s%s%d", name, how, at, a->part[0].p, a->part[1].p,
                 a->calls.p, a->failed.p, (int)a->cut, b->part[0].p, b->part[1].p, b->calls.p, b->failed.p,
                 (int)b->cut);
}

/* The same at every place to cut in two, byte by byte, and in random pieces. */
static void check_chunkings(const char *name, const struct transcript *t, const struct sum *whole)
{
    size_t *cut = malloc((t->text.n + 1) * sizeof *cut);

    assert_non_null(cut);
    for (size_t i = 0; i <= t->text.n; i++) {
        struct sum s = read_in(t, &i, 1);
        same_sum(name, whole, &s, "in two at", i);
        free_sum(&s);
    }
    uint32_t x = 12345;
    for (size_t k = 0; k <= RANDOM_CHUNKINGS; k++) {
        size_t n = 0;
        for (size_t at = 0; at < t->text.n;) {
            x = x * 1664525U + 1013904223U;
            at += k == 0 ? 1 : 1 + (x >> 16) % (k < 10 ? 4 : 40);
            if (at < t->text.n)
                cut[n++] = at;
        }
        struct sum s = read_in(t, cut, n);
        same_sum(name, whole, &s, "in random pieces", k);
        free_sum(&s);
    }
    free(cut);
}

/* An answer that ends anywhere: at once and byte by byte. What was given of a call before stays given. */
static void check_ends(const char *name, const struct transcript *t)
{
    size_t *cut = malloc((t->text.n + 1) * sizeof *cut);

    assert_non_null(cut);
    for (size_t n = 0; n < t->text.n; n++) {
        struct transcript part = *t;
        part.text.n = n;
        cut[n] = n;
        struct sum whole = read_in(&part, NULL, 0), bytes = read_in(&part, cut, n);
        same_sum(name, &whole, &bytes, "ended at", n);
        free_sum(&whole);
        free_sum(&bytes);
    }
    free(cut);
}

/* ---- comparison with what is expected ---- */

/* JSON with every number outside of strings as the string "#NUMBER": digits of any length survive. */
static char *quote_numbers(const char *p)
{
    struct bytes b = { 0 };
    bool in_string = false;

    for (; *p != '\0'; p++) {
        size_t n = in_string ? 0 : strspn(p, "+-.0123456789eE");
        if (n > 0 && (p[0] == '-' || (p[0] >= '0' && p[0] <= '9'))) {
            add(&b, STR("\"#"));
            add(&b, (struct str){ p, n });
            add(&b, STR("\""));
            p += n - 1;
            continue;
        }
        if (in_string && *p == '\\')
            add(&b, (struct str){ p++, 1 });
        else if (*p == '"')
            in_string = !in_string;
        add(&b, (struct str){ p, 1 });
    }
    add(&b, STR(""));
    return b.p;
}

static json_t *parse_quoted(const char *text, const char *what)
{
    char *quoted = quote_numbers(text);
    struct err e = { 0 };
    json_t *v = NULL;

    if (json_parse(&v, str_of(quoted), what, &e) != ERR_OK)
        fail_msg("%s: %s", e.msg, quoted);
    free(quoted);
    return v;
}

static bool is_number(const json_t *v)
{
    return json_is_string(v) && json_string_value(v)[0] == '#';
}

static bool has_a8_sums(const char *number)
{
    return strpbrk(number, ".eE") == NULL;
}

static bool same(const json_t *a, const json_t *b);

static bool same_members(const json_t *a, const json_t *b)
{
    void *i = json_object_iter((json_t *)(uintptr_t)a), *k = json_object_iter((json_t *)(uintptr_t)b);

    while (i != NULL && k != NULL && strcmp(json_object_iter_key(i), json_object_iter_key(k)) == 0 &&
           same(json_object_iter_value(i), json_object_iter_value(k))) {
        i = json_object_iter_next((json_t *)(uintptr_t)a, i);
        k = json_object_iter_next((json_t *)(uintptr_t)b, k);
    }
    return i == NULL && k == NULL;
}

/* Types, order of keys, whole numbers digit for digit. */
static bool same(const json_t *a, const json_t *b)
{
    if (json_is_object(a) && json_is_object(b))
        return same_members(a, b);
    if (json_is_array(a) && json_is_array(b)) {
        bool all = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; all && i < json_array_size(a); i++)
            all = same(json_array_get(a, i), json_array_get(b, i));
        return all;
    }
    if (is_number(a) && is_number(b) && !has_a8_sums(json_string_value(a)) && !has_a8_sums(json_string_value(b))) {
        double x = strtod(json_string_value(a) + 1, NULL), y = strtod(json_string_value(b) + 1, NULL);
        return !(x < y) && !(y < x);
    }
    return json_equal(a, b);
}

static bool space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* Without white space at the ends; runs of it as one space if `fold`. */
static char *trimmed(const char *s, bool fold)
{
    struct bytes b = { 0 };
    size_t n = strlen(s);

    while (n > 0 && space(s[n - 1]))
        n--;
    while (n > 0 && space(*s)) {
        s++;
        n--;
    }
    for (size_t i = 0; i < n; i++)
        if (!fold || !space(s[i]))
            add(&b, (struct str){ s + i, 1 });
        else if (!space(s[i + 1]))
            add(&b, STR(" "));
    add(&b, STR(""));
    return b.p;
}

static void check_text(const char *name, const char *got, const json_t *want, bool fold)
{
    char *a = trimmed(got, fold), *b = trimmed(json_string_value(want), fold);

    if (strcmp(a, b) != 0)
        fail_msg("%s: '%s' instead of '%s'", name, a, b);
    free(a);
    free(b);
}

static void check_calls(const char *name, const char *got, const json_t *want)
{
    size_t i;
    json_t *call;

    json_array_foreach (want, i, call) {
        const char *tool = json_string_value(json_object_get(call, "name"));
        size_t n = strcspn(got, "\n"), m = got[n] == '\0' ? 0 : strcspn(got + n + 1, "\n");
        char *args = calloc(m + 1, 1);
        assert_non_null(args);
        if (n != strlen(tool) || strncmp(got, tool, n) != 0)
            fail_msg("%s: call %zu of '%s' is '%.*s'", name, i, tool, (int)n, got);
        memcpy(args, got + n + 1, m);
        json_t *v = parse_quoted(args, name);
        if (!same(v, json_object_get(call, "arguments")))
            fail_msg("%s: call %zu: %s", name, i, args);
        json_decref(v);
        free(args);
        got += n + 1 + m + 1;
    }
    if (*got != '\0')
        fail_msg("%s: there are more calls: %s", name, got);
}

/* Numbers that were quoted, written out again: in a text nothing was. The tools of a case. */
static void check_case(const json_t *one, const json_t *standard)
{
    const json_t *tools = json_object_get(one, "tools"), *want = json_object_get(one, "expected");
    const char *name = json_string_value(json_object_get(one, "name"));
    struct transcript t = {
        .parser = json_string_value(json_object_get(one, "format")),
        .tools = json_is_string(tools) ? standard : tools,
        .reasoning = json_is_true(json_object_get(one, "prompt_opens_reasoning")),
    };
    struct sum s;

    assert_true(json_get_str(one, "text", &t.text));
    s = read_in(&t, NULL, 0);
    check_text(name, s.part[CHAT_REASONING].p, json_object_get(want, "reasoning"),
               json_is_true(json_object_get(one, "reasoning_spaces_free")));
    if (!json_is_true(json_object_get(one, "malformed")))
        check_text(name, s.part[CHAT_TEXT].p, json_object_get(want, "content"),
                   json_is_true(json_object_get(one, "content_spaces_free")));
    check_calls(name, s.calls.p, json_object_get(want, "tool_calls"));
    if (!json_is_true(json_object_get(one, "incomplete")) && s.cut != CHAT_CUT_NONE)
        fail_msg("%s: reported as cut off", name);
    check_chunkings(name, &t, &s);
    check_ends(name, &t);
    free_sum(&s);
}

static int check_file(const char *path)
{
    char *data;
    size_t n, i;
    struct err e = { 0 };
    json_t *one;

    if (io_read_all(&data, &n, path, FILE_BYTES_MAX, NULL, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    json_t *file = parse_quoted(data, path);
    free(data);
    json_array_foreach (json_object_get(file, "cases"), i, one)
        check_case(one, json_object_get(json_object_get(file, "tools"), "standard"));
    json_decref(file);
    assert_true(i > 0);
    print_message("%s: %zu transcripts at every chunking\n", path, i);
    return (int)i;
}

static void test_own(void **state)
{
    (void)state;
    check_file("tests/golden/chat/answers.json");
}

static void test_goldens(void **state)
{
    const char *dir = getenv("GOLDENS");
    char path[1024];

    (void)state;
    if (dir == NULL || *dir == '\0')
        skip();
    (void)snprintf(path, sizeof path, "%s/chat/parse.json", dir);
    check_file(path);
}

/* ---- rule by rule ---- */

static const json_t *some_tools(void)
{
    static json_t *tools;

    if (tools == NULL)
        tools = json_loads("[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]", 0, NULL);
    assert_non_null(tools);
    return tools;
}

static void test_find(void **state)
{
    static const struct {
        const char *text, *parser;
    } templates[] = {
        { "", "plain" },
        { "{{ messages[0].content }}", "plain" },
        { "<|channel|>analysis<|message|>", "harmony" },
        { "x <tool_call>\n<function=a>\n<parameter=b> </think> <think>", "qwen3.5" },
        { "<tool_call>\n<function=a>\n<parameter=b>", "qwen3-coder" },
        { "<function=a><parameter=b><think> truncate_history_thinking", "nemotron-3" },
        { "<seed:tool_call><function=a><parameter=b>", "seed-oss" },
        { "<think></think><tool_call>{\"name\"", "hermes" },
        { "<|start_of_role|> <tool_call>", "granite4" },
        { "<tool_call>{name}\n<arg_key>", "glm-4.5" },
        { "<tool_call>{name}<arg_key>", "glm-4.7" },
        { "<role>ASSISTANT</role> <tool_call>{name}<arg_key>", "ling-3" },
        { "[TOOL_CALLS] [", "mistral" },
        { "[TOOL_CALLS]x[ARGS]", "mistral-args" },
        { "<｜tool▁sep｜>x\n```json", "deepseek-r1" },
        { "<｜tool▁sep｜>", "deepseek-v3.1" },
        { "'｜DSML｜' 'function_calls>'", "deepseek-v3.2" },
        { "'｜DSML｜' 'tool_calls>'", "deepseek-v4" },
        { "<function=x>{}</function> <|python_tag|>", "functionary-v3.1" },
        { "<think>\n</think>", "think" },
        { "<think>", "plain" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++)
        assert_string_equal(chat_reader_find(str_of(templates[i].text)), templates[i].parser);
    assert_string_equal(chat_reader_name(0), "hermes");
    for (int i = 0; i < 1000; i++)
        if (chat_reader_name(i) == NULL)
            return;
    fail_msg("%s", "the names do not end");
}

static void test_open_refuses(void **state)
{
    static const char *const bad[] = { "{}", "[1]", "[{}]", "[{\"function\": {}}]", "[{\"name\": 1}]", "\"x\"" };
    struct chat_reader *r = NULL;
    struct err e = { 0 };

    (void)state;
    assert_int_equal(chat_reader_open(&r, &(struct chat_reader_opts){ .parser = "qwen" }, &e), ERR_ARG);
    assert_non_null(strstr(e.msg, "'qwen'"));
    assert_non_null(strstr(e.msg, "qwen3.5"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *tools = json_loads(bad[i], JSON_DECODE_ANY, NULL);
        assert_int_equal(chat_reader_open(&r, &(struct chat_reader_opts){ .parser = "hermes", .tools = tools }, &e),
                         ERR_FORMAT);
        json_decref(tools);
    }
    assert_null(r);
    json_t *none = json_null();
    assert_int_equal(chat_reader_open(&r, &(struct chat_reader_opts){ .parser = "hermes", .tools = none }, &e), ERR_OK);
    chat_reader_close(r);
    chat_reader_close(NULL);
}

static void test_after_the_end(void **state)
{
    struct transcript t = { .parser = "plain" };
    struct chat_reader *r = must_open(&t);
    const struct chat_piece *v;
    struct err e;
    int n;

    (void)state;
    assert_int_equal(chat_read(r, STR("a"), true, &v, &n, &e), ERR_OK);
    assert_int_equal(n, 1);
    assert_int_equal(chat_read(r, STR("a"), true, &v, &n, &e), ERR_ARG);
    chat_reader_close(r);
}

/* What is certain is given at once, and no more. */
static void test_holds_back(void **state)
{
    static const struct {
        const char *in, *out;
    } steps[] = {
        { "a", "a" },
        { " ", "" },
        { "b <", " b" },
        { "t", "" },
        { "o", "" },
        { "p", " <top" },
        { "\n<tool_call", "" },
        { "s", "\n<tool_calls" },
        { "\xe2\x82", "" },
        { "\xac", "\xe2\x82\xac" },
    };
    struct transcript t = { .parser = "hermes", .tools = some_tools() };
    struct chat_reader *r = must_open(&t);

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct sum s = { 0 };
        take(&s, r, str_of(steps[i].in), false);
        add(&s.part[CHAT_TEXT], STR(""));
        assert_string_equal(s.part[CHAT_TEXT].p, steps[i].out);
        free_sum(&s);
    }
    chat_reader_close(r);
}

static void test_where(void **state)
{
    static const struct {
        const char *in;
        enum chat_part where;
    } steps[] = {
        { "a", CHAT_REASONING },
        { "</thi", CHAT_REASONING },
        { "nk>", CHAT_TEXT },
        { "b", CHAT_TEXT },
        { "<tool_call>", CHAT_TOOL },
        { "\n<function=f", CHAT_TOOL },
        { ">\n</function>", CHAT_TEXT },
        { "\n</tool_call>", CHAT_TEXT },
        { "x", CHAT_TEXT },
    };
    struct transcript t = { .parser = "qwen3.5", .tools = some_tools(), .reasoning = true };
    struct chat_reader *r = must_open(&t);
    struct sum s = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        take(&s, r, str_of(steps[i].in), false);
        assert_int_equal(chat_reader_where(r), steps[i].where);
    }
    free_sum(&s);
    chat_reader_close(r);
}

/* What a token makes certain of calls: "+" and the name, what is added to the arguments, "." or "!". */
static void add_flow(struct bytes *out, struct chat_reader *r, struct str token, bool end)
{
    const struct chat_piece *v;
    struct err e;
    int n;

    assert_int_equal(chat_read(r, token, end, &v, &n, &e), ERR_OK);
    for (int i = 0; i < n; i++)
        if (v[i].part == CHAT_TOOL && v[i].step == CHAT_CALL_BEGIN) {
            add(out, STR("+"));
            add(out, v[i].name);
            add(out, STR(" "));
        } else if (v[i].part == CHAT_TOOL) {
            add(out, v[i].step == CHAT_CALL_MORE ? v[i].text : v[i].step == CHAT_CALL_END ? STR(".") : STR("!"));
        }
    add(out, STR("^"));
}

/* Tokens, divided by "^" as what they make certain is. */
static void test_flow(void **state)
{
    static const struct {
        const char *parser, *tokens, *flow;
    } v[] = {
        { "hermes",
          "<tool_call>^\n{\"na^me\": \"f\", \"argu^ments\": ^{\"a^b\":[1^0,tr^ue], ^\"c\"^: "
          "\"x\\n^\\u00e^9\\^\"y^\"}^}^\n</tool_call>",
          "^^^^+f {\"a^b\": [^10, ^true]^, \"c\"^: \"x\\n^^é^\\\"y^\"^}.^" },
        { "hermes", "<tool_call>{\"arguments\": {\"a\": 1}, ^\"name\": \"f\"}^</tool_call>", "^+f {\"a\": 1}.^" },
        { "hermes", "<tool_call>{\"name\": \"other\", \"arguments\": {\"a\": ^1}^}</tool_call>",
          "^^+other {\"a\": 1}." },
        { "hermes",
          "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ^1}, \"name\": \"g\", \"arguments\": {}^}</tool_call>",
          "+f {\"a\": ^1^}." },
        { "hermes",
          "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": ^1}^]</tool_call>^<tool_call>{\"name\": \"f\"^}",
          "+f {\"a\": ^1^!^^+f {}." },
        { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x^yz", "+f {\"a\": \"x^yz!" },
        { "hermes",
          "<tool_call>[{\"name\": \"f\", \"arguments\": {^}}, {\"name\": \"f\", \"arguments\": "
          "{\"a\"^:2}}^]</tool_call>",
          "+f {^}.+f {\"a\"^: 2}.^" },
        { "llama3-json", "{\"type\": \"function\", \"name\": \"f\", \"parameters\": {\"a\": ^1}^}",
          "+f {\"a\": ^1^}." },
        { "qwen3.5",
          "<tool_call>\n<function=f>^\n<parameter=^s>\n^one\n^two\n</p^x</parameter^>\n<parameter=i>\n1^2\n</"
          "parameter>^\n</function>^\n</tool_call>",
          "^+f ^{\"s\": \"^one^\\ntwo^\\n</px^\", \"i\": ^^12}.^" },
        { "qwen3.5", "<tool_call>\n<function=other>\n<parameter=s>\na^\n</parameter>\n</function>^\n</tool_call>",
          "^+other {\"s\": \"a\"}.^" },
        { "qwen3.5", "<tool_call>\n<function=f>\n<parameter=s>\na^\n</parameter>\n</function", "+f {\"s\": \"a^!" },
        { "qwen3.5", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"^a\"}}^", "+f {\"s\": \"^a\"}." },
        { "glm-4.5", "<tool_call>f^\n<arg_key>s</arg_key>\n<arg_value>a^b</arg_value>^\n</tool_call>",
          "^+f {\"s\": \"a^b^\"}." },
        { "ling-3", "<tool_call>f^<arg_key>s</arg_key>\n<arg_value>a^b</arg_value>^\n</tool_call>",
          "^+f {\"s\": \"a^b^\"}." },
        { "deepseek-v3.2",
          "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"x\" "
          "string=\"true\">a^b^</｜DSML｜parameter>\n</｜DSML｜invoke>^\n</｜DSML｜function_calls>",
          "+f {\"x\": \"a^b^\"}.^" },
        { "minimax-m2",
          "<minimax:tool_call>\n<invoke name=\"f\">^\n<parameter "
          "name=\"s\">a^b</parameter>^\n</invoke>^\n</minimax:tool_call>",
          "^+f {\"s\": \"a^b^\"}.^" },
        { "seed-oss", "<seed:tool_call><function=f><parameter=s>a^b</parameter>^</function>^</seed:tool_call>",
          "+f {\"s\": \"a^b^\"}.^" },
        { "kimi-k2",
          "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>^{\"a\"^: "
          "1}^<|tool_call_end|><|tool_calls_section_end|>",
          "^+f {\"a\"^: 1}.^" },
        { "deepseek-v3.1",
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>^{\"a\"^:1}^<｜tool▁call▁end｜><"
          "｜tool▁calls▁end｜>",
          "^+f {\"a\"^: 1}.^" },
        { "deepseek-r1",
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n^{\"a\"^:1}^\n```<"
          "｜tool▁call▁end｜><｜tool▁calls▁end｜>",
          "^+f {\"a\"^: 1}.^" },
        { "mistral-args", "[TOOL_CALLS]f[ARGS]^{\"a\"^: 1^}^", "^+f {\"a\"^: ^1}." },
        { "mistral-args", "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]^{\"a\"^: 1^,]}^", "^+f {\"a\"^: ^1!" },
        { "mistral", "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\"^: 1}^, \"id\": \"abcdefghi\"}^]",
          "^^+f {\"a\": 1}.^" },
        { "lfm2", "<|tool_call_start|>[f(s=^'a^b\\x41', i=1^2, ^x=(1,^)^)^]<|tool_call_end|>",
          "+f {\"s\": ^\"a^bA\", \"i\": ^12^, \"x\": [1^]^}.^" },
        { "lfm2", "<|tool_call_start|>[f(s=^'a^', s=1^)]<|tool_call_end|>", "+f {\"s\": ^\"a^\"^!" },
        { "harmony", "<|channel|>commentary to=functions.f <|constrain|>json<|message|>^{\"a\"^: 1}^<|call|>",
          "^+f {\"a\"^: 1}.^" },
        { "harmony", "<|channel|>commentary to=functions.f<|message|>{\"a\"^: x}^<|call|>", "+f {\"a\"^: !^" },
        { "functionary-v3.1", "<function=f>^{\"a\"^: 1}^</function>", "^+f {\"a\"^: 1}.^" },
        { "command-r7b",
          "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"f\", \"parameters\": {\"a\"^: "
          "1}^}]^<|END_ACTION|>",
          "+f {\"a\"^: 1^}.^" },
    };
    json_t *tools = json_loads("[{\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": \"string\"},"
                               "\"i\": {\"type\": \"integer\"}}}}]",
                               0, NULL);

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct transcript t = { .parser = v[i].parser, .tools = tools };
        struct chat_reader *r = must_open(&t);
        struct bytes got = { 0 };
        for (const char *p = v[i].tokens; *p != '\0';) {
            const size_t n = strcspn(p, "^");
            add_flow(&got, r, (struct str){ p, n }, p[n] == '\0');
            p += n + (p[n] == '^');
        }
        got.p[got.n - 1] = '\0'; /* nothing follows the last token */
        assert_string_equal(got.p, v[i].flow);
        free(got.p);
        chat_reader_close(r);
    }
    json_decref(tools);
}

/* The answer is its text and the raw text of its calls, byte for byte. */
static void test_raw(void **state)
{
    static const char *const calls[] = {
        "<tool_call>\n{\"name\":  \"f\", \"arguments\":{\"a\":1.50}}\n</tool_call>",
        "<tool_call>[{\"name\": \"f\"},",
        " {\"name\": \"f\"} ]\n</tool_call>",
    };
    struct transcript t = { .parser = "hermes", .tools = some_tools() };
    struct bytes all = { 0 };
    struct sum s = { 0 };

    (void)state;
    add(&all, STR("Text.\n"));
    add(&all, str_of(calls[0]));
    add(&all, STR(" and "));
    add(&all, str_of(calls[1]));
    all.n--; /* the comma belongs to what follows it */
    add(&all, STR(","));
    add(&all, str_of(calls[2]));
    struct chat_reader *r = must_open(&t);
    take(&s, r, (struct str){ all.p, all.n }, true);
    assert_int_equal(chat_reader_calls(r), 3);
    assert_true(str_is(chat_reader_call(r, 0).raw, calls[0]));
    assert_true(str_is(chat_reader_call(r, 0).arguments, "{\"a\": 1.50}"));
    struct str a = chat_reader_call(r, 1).raw, b = chat_reader_call(r, 2).raw;
    assert_int_equal(a.n + b.n, strlen(calls[1]) + strlen(calls[2]));
    assert_true(a.p + a.n == b.p);
    chat_reader_close(r);
    free_sum(&s);
    free(all.p);
}

static char *result_of(const struct transcript *t, int first_call)
{
    struct chat_reader_opts o = { t->parser, t->tools, t->reasoning, first_call };
    struct chat_reader *r = NULL;
    struct sum s = { 0 };
    json_t *v = NULL;
    struct err e;

    assert_int_equal(chat_reader_open(&r, &o, &e), ERR_OK);
    take(&s, r, t->text, true);
    assert_int_equal(chat_reader_result(&v, r, &e), ERR_OK);
    char *text = json_dumps(v, JSON_COMPACT);
    json_decref(v);
    chat_reader_close(r);
    free_sum(&s);
    return text;
}

static void test_result(void **state)
{
    static const struct {
        const char *parser, *text, *result;
        bool reasoning;
    } v[] = {
        { "plain", "", "{\"reasoning\":\"\",\"content\":\"\",\"tool_calls\":[]}", false },
        { "think", "a</think>b", "{\"reasoning\":\"a\",\"content\":\"b\",\"tool_calls\":[]}", true },
        { "think", "a", "{\"reasoning\":\"a\",\"content\":\"\",\"tool_calls\":[],\"cut_off\":\"reasoning\"}", true },
        { "hermes", "a <tool_call>{",
          "{\"reasoning\":\"\",\"content\":\"a\",\"tool_calls\":[],\"cut_off\":\"tool_call\"}", false },
        { "mistral", "[TOOL_CALLS][{\"name\":\"f\",\"arguments\":{\"a\":[1,2]},\"id\":\"abcdefghi\"},{\"name\":\"f\"}]",
          "{\"reasoning\":\"\",\"content\":\"\",\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
          "\"function\":"
          "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": [1, "
          "2]}\"}},{\"id\":\"call00008\",\"type\":\"function\",\"function\":"
          "{\"name\":\"f\",\"arguments\":\"{}\"}}]}",
          false },
        { "ling-3", "I call. <tool_call>f<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>",
          "{\"reasoning\":\"I call.\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call00007\",\"type\":\"function\","
          "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": \\\"x\\\"}\"}}]}",
          true },
        { "ling-3", "a <tool_call> is a mark</think>b",
          "{\"reasoning\":\"a <tool_call> is a mark\",\"content\":\"b\",\"tool_calls\":[]}", true },
        { "kimi-k2", "<|tool_call_begin|>functions.f:4<|tool_call_argument_begin|>{}<|tool_call_end|>",
          "{\"reasoning\":\"\",\"content\":\"\",\"tool_calls\":[{\"id\":\"functions.f:4\",\"type\":\"function\","
          "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}",
          false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct transcript t = { v[i].parser, some_tools(), v[i].reasoning, str_of(v[i].text) };
        char *got = result_of(&t, 7);
        assert_string_equal(got, v[i].result);
        free(got);
    }
}

/* Each byte that is no part of a character becomes one U+FFFD, wherever the answer is cut. */
static void test_bytes(void **state)
{
    static const char bad[] =
        "\xff<tool_\xe2\x82<\xf0\x9f\x99 \xf0\x9f\x99\x82\xed\xa0\x80\xc3\xc3\xa9\xf4\x90\x80\x80\xe2\x82";
    static const char good[] =
        "\xef\xbf\xbd<tool_\xef\xbf\xbd\xef\xbf\xbd<\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xf0\x9f\x99\x82"
        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
        "\xef\xbf\xbd\xef\xbf\xbd";

    (void)state;
    for (int i = 0; chat_reader_name(i) != NULL; i++) {
        struct transcript t = { chat_reader_name(i), some_tools(), false, str_of(bad) };
        struct sum s = read_in(&t, NULL, 0);
        assert_string_equal(s.part[CHAT_TEXT].p, good);
        check_chunkings(t.parser, &t, &s);
        free_sum(&s);
    }
}

/* Beginnings of marks without end: what took time for each of them again would not come back in time. */
static void test_hostile(void **state)
{
    static const char *const parts[] = {
        "<tool_cal",
        "<tool_call>",
        "<tool_call>{\"a\":[",
        "<tool_call>{\"name\":\"",
        "<function=f>\n<parameter=a>\n</parameter>",
        "</parameter>",
        "</parameter>\n\n\n\n",
        " ",
        "<",
        "\xe2\x82",
        "[TOOL_CALLS]a[ARGS]{",
        "<|channel|>",
        "<|start|>",
        "<|channel|>final<|message|>",
        "{\"name\":",
        "<|tool_call_start|>[f(a='",
        "<tool_call>f<arg_key>a</arg_key><arg_value>",
        "</arg_value>",
        "<think>",
        "</think>",
    };
    enum { WHOLE = 1 << (SANITIZED ? 16 : 18), BYTES = 1 << (SANITIZED ? 12 : 14) };
    char *text = malloc(WHOLE);

    (void)state;
    assert_non_null(text);
    for (int i = 0; chat_reader_name(i) != NULL; i++)
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            struct transcript t = { chat_reader_name(i), some_tools(), false, { text, WHOLE } };
            const size_t n = strlen(parts[p]);
            for (size_t k = 0; k < WHOLE; k++)
                text[k] = parts[p][k % n];
            struct sum s = read_in(&t, NULL, 0);
            assert_true(s.part[0].n + s.part[1].n <= 3 * (size_t)WHOLE);
            free_sum(&s);
            struct chat_reader *r = must_open(&t);
            s = (struct sum){ 0 };
            for (size_t k = 0; k < BYTES; k++)
                take(&s, r, (struct str){ text + k, 1 }, false);
            free_sum(&s);
            chat_reader_close(r);
        }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),          cmocka_unit_test(test_goldens),       cmocka_unit_test(test_find),
        cmocka_unit_test(test_open_refuses), cmocka_unit_test(test_after_the_end), cmocka_unit_test(test_holds_back),
        cmocka_unit_test(test_where),        cmocka_unit_test(test_flow),          cmocka_unit_test(test_raw),
        cmocka_unit_test(test_result),       cmocka_unit_test(test_bytes),         cmocka_unit_test(test_hostile),
    };
    int failed = cmocka_run_group_tests_name("reader", tests, NULL, NULL);

    json_decref((json_t *)(uintptr_t)some_tools());
    return failed;
}
