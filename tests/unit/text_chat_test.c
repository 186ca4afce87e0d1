/* SPDX-License-Identifier: Apache-2.0 */
/* text_chat_test.c - the room text: messages to prompts, against stored ones and rule by rule. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/io.h"
#include "gguf/gguf.h"
#include "text/text.h"

#define MODEL          "share/models/chimere-nano-q5_k_m.gguf"
#define BARE           "tests/golden/tokenizer/tiny-qwen35.gguf" /* without a template */
#define FILE_BYTES_MAX (64U << 20)

static struct text *open_text(const char *path)
{
    struct gguf *g = NULL;
    struct text *t = NULL;
    struct err e = {0};

    if (gguf_open(&g, path, &e) != ERR_OK || text_open(&t, g, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    gguf_close(g);
    return t;
}

/* JSON integers end at 64 bits here; one case goes beyond. */
static void shorten_numbers(char *text)
{
    static const char huge[] = "100000000000000000000";

    for (char *p = text; (p = strstr(p, huge)) != NULL; p++)
        memmove(p + 1, p + 3, strlen(p + 3) + 1);
}

static int check_chats(const struct text *t, const char *path)
{
    char *data;
    size_t n, i;
    json_t *file = NULL, *one;
    struct err e = {0};
    int n_checked = 0;

    assert_int_equal(io_read_all(&data, &n, path, FILE_BYTES_MAX, &e), ERR_OK);
    shorten_numbers(data);
    if (json_parse(&file, str_of(data), path, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    json_array_foreach(json_object_get(file, "cases"), i, one)
    {
        struct str name = {"", 0}, template = {"", 0}, want;
        const json_t *think = json_object_get(json_object_get(one, "kwargs"), "enable_thinking");
        struct text_chat_opts o = {.tools = json_object_get(one, "tools"),
                                   .think = !json_is_false(think),
                                   .generate =
                                       json_is_true(json_object_get(one, "add_generation_prompt"))};
        char *got = NULL;
        json_get_str(one, "template", &template);
        json_get_str(one, "name", &name);
        if (strncmp(template.p, "Qwen3.5", 7) != 0)
            continue;
        enum err_code rc = text_chat(t, json_object_get(one, "messages"), &o, &got, &n, &e);
        if (json_get_str(one, "expected", &want)) {
            if (rc != ERR_OK)
                fail_msg("%s: %s", name.p, e.msg);
            assert_string_equal(got, want.p);
            assert_int_equal(n, want.n);
        } else {
            assert_int_equal(rc, ERR_FORMAT);
            assert_null(got);
        }
        free(got);
        n_checked++;
    }
    json_decref(file);
    free(data);
    return n_checked;
}

static void test_chat(void **state)
{
    struct text *t = open_text(MODEL);
    const char *dir = getenv("GOLDENS");
    char path[512];

    (void)state;
    assert_true(text_has_chat(t));
    assert_true(check_chats(t, "tests/golden/chat/chat.json") >= 20);
    snprintf(path, sizeof path, "%s/chat/chat.json", dir != NULL ? dir : "");
    if (dir != NULL && access(path, R_OK) == 0)
        check_chats(t, path);
    text_close(t);
}

static void test_chat_rules(void **state)
{
    static const struct {
        const char *messages, *tools;
        enum err_code rc;
        const char *says; /* part of the prompt, or of the message */
    } cases[] = {
        {"[{'role':'user','content':'hi'}]", NULL, ERR_OK,
         "<|im_start|>user\nhi<|im_end|>\n<|im_start|>"},
        {"[{'role':'user','content':' \\u00a0\\u2003\\u001fhi\\u3000'}]", NULL, ERR_OK,
         "user\nhi<|im_end|>"},
        {"[{'role':'user','content':'q'},{'role':'assistant','tool_calls':[{'function':{'name':'f',"
         "'arguments':'{\\'a\\': 1.5, \\'b\\': [1, {}]}'}}]}]",
         NULL, ERR_OK,
         "<function=f>\n<parameter=a>\n1.5\n</parameter>\n<parameter=b>\n[1, "
         "{}]\n</parameter>\n</function>"},
        {"[{'role':'user','content':'q'},{'role':'assistant','tool_calls':[{'name':'f'}]}]", NULL,
         ERR_OK, "<tool_call>\n<function=f>\n</function>\n</tool_call>"},
        {"[{'role':'user','content':'q'},{'role':'tool','content':'1'},{'role':'tool','content':'2'"
         "}]",
         NULL, ERR_OK,
         "<|im_start|>user\n<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</"
         "tool_response>"
         "<|im_end|>\n"},
        {"[{'role':'user','content':'q'}]", "[{'x':1e22,'y':'\\u0001\\u007f\\u2028/'}]", ERR_OK,
         "{\"x\": 1e+22, \"y\": \"\\u0001\x7F\xE2\x80\xA8/\"}"},
        {"[]", NULL, ERR_FORMAT, "at least one message"},
        {"{}", NULL, ERR_FORMAT, "at least one message"},
        {"[1]", NULL, ERR_FORMAT, "message 0: not an object"},
        {"[{'role':'user','content':3}]", NULL, ERR_FORMAT, "message 0: its content is not text"},
        {"[{'role':'user','content':[3]}]", NULL, ERR_FORMAT, "not an object"},
        {"[{'role':'user','content':[{'type':'text'}]}]", NULL, ERR_FORMAT, "has no text"},
        {"[{'role':'user','content':[{'type':'image'}]}]", NULL, ERR_UNSUPPORTED, "images"},
        {"[{'role':'user','content':[{'image_url':'x'}]}]", NULL, ERR_UNSUPPORTED, "images"},
        {"[{'role':'assistant','content':'x'}]", NULL, ERR_FORMAT, "no user message"},
        {"[{'role':'user','content':'<tool_response>x</tool_response>'}]", NULL, ERR_FORMAT,
         "no user message"},
        {"[{'role':'user','content':'q'},{'role':'developer'}]", NULL, ERR_FORMAT,
         "message 1: its role"},
        {"[{'role':'user','content':'q'},{'content':'x'}]", NULL, ERR_FORMAT,
         "message 1: its role"},
        {"[{'role':'user','content':'q'},{'role':'system','content':'x'}]", NULL, ERR_FORMAT,
         "message 1"},
        {"[{'role':'user','content':'q'},{'role':'assistant','tool_calls':{}}]", NULL, ERR_FORMAT,
         "tool_calls"},
        {"[{'role':'user','content':'q'},{'role':'assistant','tool_calls':[{}]}]", NULL, ERR_FORMAT,
         "no name"},
        {"[{'role':'user','content':'q'},{'role':'assistant','tool_calls':[{'name':'f','arguments':"
         "'x'}]}]",
         NULL, ERR_FORMAT, "message 1: the arguments"},
        {"[{'role':'user','content':'q'},{'role':'assistant','tool_calls':[{'name':'f','arguments':"
         "[]}]}]",
         NULL, ERR_FORMAT, "not an object"},
        {"[{'role':'user','content':'q'}]", "{}", ERR_FORMAT, "tools: not a list"},
    };
    struct text *t = open_text(MODEL), *bare = open_text(BARE);

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *source[2] = {cases[i].messages, cases[i].tools};
        json_t *parsed[2] = {NULL, NULL};
        char *out = NULL;
        size_t n;
        struct err e = {0};
        for (int k = 0; k < 2 && source[k] != NULL; k++) {
            char buf[512];
            snprintf(buf, sizeof buf, "%s", source[k]);
            for (char *p = buf; *p != '\0'; p++)
                if (*p == '\'')
                    *p = '"';
            assert_int_equal(json_parse(&parsed[k], str_of(buf), "test", &e), ERR_OK);
        }
        struct text_chat_opts o = {.tools = parsed[1], .think = true, .generate = true};
        assert_int_equal(text_chat(t, parsed[0], &o, &out, &n, &e), cases[i].rc);
        if (strstr(cases[i].rc == ERR_OK ? out : e.msg, cases[i].says) == NULL)
            fail_msg("case %zu: \"%s\" has no \"%s\"", i, out != NULL ? out : e.msg, cases[i].says);
        assert_int_equal(text_chat(bare, parsed[0], &o, &out, &n, &e), ERR_UNSUPPORTED);
        free(out);
        json_decref(parsed[0]);
        json_decref(parsed[1]);
    }
    text_close(t);
    text_close(bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_chat_rules),
    };

    return cmocka_run_group_tests_name("text_chat", tests, NULL, NULL);
}
