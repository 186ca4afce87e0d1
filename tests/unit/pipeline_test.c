/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline_test.c - files of pipelines, their templates and expressions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "pipeline/pipeline.h"

/* Opens a file in which ' stands for ". */
static enum err_code open_file(struct pipeline **p, const char *text, struct err *e)
{
    char *copy = strdup(text);
    json_t *v;
    enum err_code code;

    assert_non_null(copy);
    for (char *c = copy; *c != '\0'; c++)
        *c = *c == '\'' ? '"' : *c == '`' ? '\'' : *c;
    if (json_parse(&v, str_of(copy), "file", e) != ERR_OK)
        fail_msg("%s: %s", copy, e->msg);
    free(copy);
    code = pipeline_open(p, v, e);
    json_decref(v);
    return code;
}

static void refused(const char *text, const char *where, const char *why)
{
    struct pipeline *p;
    struct err e = { 0 };

    assert_int_equal(open_file(&p, text, &e), ERR_FORMAT);
    assert_string_equal(e.where, where);
    if (strstr(e.msg, why) == NULL)
        fail_msg("%s: not '%s'", e.msg, why);
}

#define STEPS(...) "{'steps': [" __VA_ARGS__ "]}"
#define STEP(name) "{'name': '" name "', 'prompt': '{{input}}'}"

static void test_steps(void **state)
{
    struct pipeline *p;
    struct err e = { 0 };
    int n;

    (void)state;
    assert_int_equal(
        open_file(&p,
                  "{'about': 'x', 'system': 's', 'limits': {'seconds': 3, 'bytes': 9, 'calls': 2},"
                  " 'tools': [{'name': 't', 'parameters': {'type': 'object'}, 'command': ['cat', '-'], 'bytes': 7}],"
                  " 'output': '{{d}}', 'steps': ["
                  "{'name': 'a', 'prompt': '{{input}}', 'tools': ['t'], 'think': 12, 'tokens': 5},"
                  "{'parallel': [{'name': 'b', 'fork': 'a', 'prompt': '{{a}}', 'think': false},"
                  "              {'name': 'c', 'command': ['wc', '-c'], 'stdin': '{{a.text}}', 'seconds': 1}]},"
                  "{'steps': [{'name': 'd', 'prompt': '{{f | b}}', 'system': 'z'},"
                  "           {'name': 'f', 'fork': false, 'prompt': 'x', 'when': 'not f'}],"
                  " 'repeat': {'until': 'f.json.ok and d', 'max': 4}, 'require': 'f'}]}",
                  &e),
        ERR_OK);
    const struct pipeline_step *v = pipeline_steps(p, &n);

    assert_int_equal(n, 3);
    assert_int_equal(pipeline_n_steps(p), 7);
    assert_int_equal(pipeline_widest(p), 2);
    assert_int_equal(pipeline_n_forked(p), 1);
    assert_int_equal(pipeline_calls_max(p), 2);
    assert_string_equal(pipeline_system(p), "s");
    assert_int_equal(v[0].think, 1);
    assert_int_equal(v[0].budget, 12);
    assert_int_equal(v[0].tokens, 5);
    assert_true(v[0].is_forked);
    assert_int_equal(json_array_size(v[0].tools), 1);
    assert_int_equal(pipeline_tool_of(p, "t")->command.bytes, 7);
    assert_int_equal(pipeline_tool_of(p, "t")->command.seconds, 3);
    assert_int_equal(v[1].kind, PIPELINE_PARALLEL);
    assert_ptr_equal(v[1].step[0].fork, &v[0]);
    assert_false(v[1].step[0].begins);
    assert_int_equal(v[1].step[0].think, 0);
    assert_int_equal(v[1].step[1].command.seconds, 1);
    assert_string_equal(v[1].step[1].command.argv[1], "-c");
    assert_null(v[1].step[1].command.argv[2]);
    assert_string_equal(v[1].step[1].where, "/steps/1/parallel/1");
    assert_int_equal(v[2].rounds, 4);
    assert_true(v[2].step[0].begins && v[2].step[1].begins);
    pipeline_close(p);
}

static void test_mistakes(void **state)
{
    (void)state;
    refused("[]", "", "not an object");
    refused("{'steps': [], 'step': 1}", "/step", "no such member");
    refused("{'steps': []}", "/steps", "no array of steps");
    refused(STEPS("{'name': 'a'}"), "/steps/0", "not one of prompt");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'command': ['y']}"), "/steps/0", "not one of");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'wehn': 'y'}"), "/steps/0/wehn", "no such member");
    refused(STEPS("{'name': '9a', 'prompt': 'x'}"), "/steps/0/name", "no name");
    refused(STEPS("{'name': 'input', 'prompt': 'x'}"), "/steps/0/name", "word of expressions");
    refused(STEPS(STEP("a") ", " STEP("a")), "/steps/1/name", "another step");
    refused(STEPS("{'name': 'a', 'prompt': '{{nothing}}'}"), "/steps/0/prompt", "no step nothing");
    refused(STEPS("{'name': 'a', 'prompt': '{{b}}'}, " STEP("b")), "/steps/0/prompt", "b comes later");
    refused(STEPS("{'name': 'a', 'prompt': '{{a}}'}"), "/steps/0/prompt", "is this one");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'fork': 'b'}, {'name': 'b', 'prompt': 'x', 'fork': 'a'}"),
            "/steps/0/fork", "b comes later");
    refused(STEPS("{'name': 'a', 'command': ['x']}, {'name': 'b', 'prompt': 'x', 'fork': 'a'}"), "/steps/1/fork",
            "no conversation");
    refused(STEPS(STEP("a") ", {'name': 'b', 'prompt': 'x', 'fork': 'a', 'system': 's'}"), "/steps/1/fork",
            "begins a conversation");
    refused(STEPS("{'parallel': [" STEP("a") ", {'name': 'b', 'prompt': '{{a}}'}]}"), "/steps/0/parallel/1/prompt",
            "at the same time");
    refused(STEPS("{'parallel': [{'steps': [" STEP("a") "]}]}"), "/steps/0/parallel/0", "parallel group");
    refused(STEPS("{'name': 'a', 'prompt': '{{input'}"), "/steps/0/prompt", "not closed");
    refused(STEPS("{'name': 'a', 'prompt': '{{}}'}"), "/steps/0/prompt", "name was expected");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'when': 'input ='}"), "/steps/0/when", "more than a test");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'when': '(input'}"), "/steps/0/when", "bracket");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'when': 'input == `x'}"), "/steps/0/when", "quote");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'when': ''}"), "/steps/0/when", "name was expected");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'repeat': {'until': 'input'}}"), "/steps/0/repeat/max", "missing");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'repeat': {'until': 'input', 'max': 101}}"), "/steps/0/repeat/max",
            "1 to 100");
    refused(STEPS("{'name': 'a', 'command': ['echo', '{{input}}']}"), "/steps/0/command/1", "no template");
    refused(STEPS("{'name': 'a', 'command': []}"), "/steps/0/command", "words");
    refused(STEPS("{'name': 'a', 'command': ['x'], 'seconds': 0}"), "/steps/0/seconds", "1 to 3600");
    refused(STEPS("{'name': 'a', 'command': ['x'], 'bytes': 99999999}"), "/steps/0/bytes", "1 to");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'tools': ['t']}"), "/steps/0/tools/0", "no such tool");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'think': 'no'}"), "/steps/0/think", "true, false");
    refused(STEPS("{'name': 'a', 'prompt': 'x', 'memory': {'tabels': []}}"), "/steps/0/memory/tabels", "no such");
    refused("{'tools': [{'name': 'a b', 'command': ['x']}], 'steps': [" STEP("a") "]}", "/tools/0/name", "no name");
    refused("{'output': '{{b}}', 'steps': [" STEP("a") "]}", "/output", "no step b");
    refused(STEPS("{'steps': [{'steps': [{'steps': [{'steps': [{'name': 'a', 'prompt': 'x'}]}]}]}]}"),
            "/steps/0/steps/0/steps/0/steps/0/steps", "4 levels");
}

/* Too much of something: one name, repeated. */
static void test_limits(void **state)
{
    struct pipeline *p;
    struct err e = { 0 };
    json_t *steps = json_array(), *file = json_pack("{s:o}", "steps", steps), *first;
    char name[16], *text;

    (void)state;
    for (int i = 0; i < 10000; i++) {
        (void)snprintf(name, sizeof name, "s%d", i);
        assert_int_equal(json_array_append_new(steps, json_pack("{s:s, s:s}", "name", name, "prompt", "x")), 0);
    }
    assert_int_equal(pipeline_open(&p, file, &e), ERR_FORMAT);
    assert_string_equal(e.where, "/steps");
    while (json_array_size(steps) > PIPELINE_STEPS_MAX)
        assert_int_equal(json_array_remove(steps, PIPELINE_STEPS_MAX), 0);
    assert_int_equal(pipeline_open(&p, file, &e), ERR_OK);
    pipeline_close(p);
    text = calloc(1, (1 << 20) + 1);
    assert_non_null(text);
    first = json_array_get(steps, 0);
    memset(text, 'x', PIPELINE_TEXT_MAX);
    assert_int_equal(json_object_set_new(first, "prompt", json_string(text)), 0);
    assert_int_equal(pipeline_open(&p, file, &e), ERR_OK);
    pipeline_close(p);
    memset(text, 'x', 1 << 20);
    assert_int_equal(json_object_set_new(first, "prompt", json_string(text)), 0);
    assert_int_equal(pipeline_open(&p, file, &e), ERR_FORMAT);
    assert_string_equal(e.where, "/steps/0/prompt");
    /* Brackets and words of an expression. */
    memset(text, '(', 3000);
    text[3000] = '\0';
    assert_int_equal(json_object_set_new(first, "prompt", json_string("x")), 0);
    assert_int_equal(json_object_set_new(first, "when", json_string(text)), 0);
    assert_int_equal(pipeline_open(&p, file, &e), ERR_FORMAT);
    assert_string_equal(e.where, "/steps/0/when");
    for (int i = 0; i < 700; i++)
        memcpy(text + 4 * i, "not ", 4);
    memcpy(text + 2800, "true", 5);
    assert_int_equal(json_object_set_new(first, "when", json_string(text)), 0);
    assert_int_equal(pipeline_open(&p, file, &e), ERR_FORMAT);
    free(text);
    json_decref(file);
}

/* What `when` of a second step says of results. */
static bool holds(const char *when, const json_t *results)
{
    char text[400];
    struct pipeline *p;
    struct err e = { 0 };
    int n;
    bool yes;

    (void)snprintf(text, sizeof text, STEPS(STEP("a") ", " STEP("b-1") ", {'name': 'c', 'prompt': 'x', 'when': '%s'}"),
                   when);
    if (open_file(&p, text, &e) != ERR_OK)
        fail_msg("%s: %s", when, e.msg);
    yes = pipeline_holds(pipeline_steps(p, &n)[2].when, results);
    pipeline_close(p);
    return yes;
}

static void test_expressions(void **state)
{
    json_t *r = json_pack("{s:{s:s}, s:{s:s, s:{s:i, s:[s, i, {s:b}], s:f, s:n, s:s}}}", "input", "text", "one two",
                          "a", "text", "755", "json", "n", 755, "v", "x", 7, "yes", 1, "f", 2.5, "none", "e", "");

    (void)state;
    assert_non_null(r);
    static const char *const yes[] = {
        "a",
        "not b-1",
        "a == `755`",
        "a.json.n == 755",
        "a.json.n == 755.0",
        "a.json.n != `755`",
        "a.json.f > 2 and a.json.f < 3",
        "a.json.n >= 755 and a.json.n <= 755",
        "a.json.v.0 == `x`",
        "a.json.v.2.yes",
        "a.json.v contains 7",
        "a.json.v contains `x`",
        "a.json contains `f`",
        "input contains `two`",
        "not (input contains `three`) and not a.json.none",
        "a.json.none == null",
        "a.json.missing.more == null",
        "false or true",
        "true or false and false",
        "a < `8`",
        "a.json.v.2.yes == true",
        "not not a",
        "-1 < 1e3",
        "\\tinput.text==`one two`",
        "(a.json.n == 1) == false",
    };
    static const char *const no[] = {
        "b-1",
        "a.json.e",
        "a.json.none",
        "a.json.v.9",
        "a.json.v.x",
        "a.json.n < `8`",
        "a.json.none < 1",
        "a.json.none >= 1",
        "a.json.n contains 7",
        "a.json.v contains 8",
        "false and true or false",
        "0",
        "a == 755",
        "(true or false) and false",
    };

    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        if (!holds(yes[i], r))
            fail_msg("%s: does not hold", yes[i]);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        if (holds(no[i], r))
            fail_msg("%s: holds", no[i]);
    json_decref(r);
}

static void fills(const char *template, const json_t *results, const char *want)
{
    char text[400], *out;
    struct pipeline *p;
    struct err e = { 0 };
    size_t n;

    (void)snprintf(text, sizeof text, "{'output': '%s', 'steps': [" STEP("a") ", " STEP("b") "]}", template);
    if (open_file(&p, text, &e) != ERR_OK)
        fail_msg("%s: %s", template, e.msg);
    assert_int_equal(pipeline_fill(&out, &n, pipeline_output(p), results, &e), ERR_OK);
    assert_string_equal(out, want);
    assert_int_equal(n, strlen(want));
    free(out);
    pipeline_close(p);
}

static void test_templates(void **state)
{
    json_t *r = json_object(), *a = json_object();
    struct err e = { 0 };

    (void)state;
    assert_int_equal(pipeline_set_text(a, STR("{\"k\": [1, {\"x\": \"{{input}}\"}]}\n\n"), &e), ERR_OK);
    assert_int_equal(json_object_set_new(r, "a", a), 0);
    fills("", r, "");
    fills("no { place } here }}", r, "no { place } here }}");
    fills("{{a.json.k.0}}+{{ a.json.k.1 }}", r, "1+{\"x\": \"{{input}}\"}");
    fills("<{{a}}>", r, "<{\"k\": [1, {\"x\": \"{{input}}\"}]}>");
    fills("<{{b}}{{b.json.x}}>", r, "<>");
    fills("{{b|a.json.k.0}}{{ b | `none` }}{{`{{`}}", r, "1none{{");
    json_decref(r);
    r = json_object();
    assert_int_equal(pipeline_set_text(r, STR("no JSON"), &e), ERR_OK);
    assert_true(json_is_null(json_object_get(r, "json")));
    json_decref(r);
}

/* A text that grows out of references is bounded. */
static void test_filling_is_bounded(void **state)
{
    char *big = calloc(1, (1 << 20) + 1), *out;
    struct pipeline *p;
    struct err e = { 0 };
    json_t *r;
    size_t n;

    (void)state;
    assert_non_null(big);
    memset(big, 'y', 1 << 20);
    r = json_pack("{s:{s:s}}", "input", "text", big);
    assert_int_equal(open_file(&p,
                               "{'output': '{{input}}{{input}}{{input}}{{input}}{{input}}{{input}}{{input}}{{input}}"
                               "{{input}}{{input}}{{input}}{{input}}{{input}}{{input}}{{input}}{{input}}.', 'steps': "
                               "[" STEP("a") "]}",
                               &e),
                     ERR_OK);
    assert_int_equal(pipeline_fill(&out, &n, pipeline_output(p), r, &e), ERR_LIMIT);
    pipeline_close(p);
    json_decref(r);
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),       cmocka_unit_test(test_mistakes),  cmocka_unit_test(test_limits),
        cmocka_unit_test(test_expressions), cmocka_unit_test(test_templates), cmocka_unit_test(test_filling_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
