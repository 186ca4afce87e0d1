/* SPDX-License-Identifier: Apache-2.0 */
/* messages_test.c - what bodies of Anthropic's interface ask for, as those of chats; where their faults are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "serve/internal.h"

static json_t *read(const char *text)
{
    json_t *v = NULL;
    struct err e = { 0 };

    if (json_parse(&v, str_of(text), "test", &e))
        fail_msg("%s: %s", text, e.msg);
    return v;
}

/* Quotes are ' here, and max_tokens is the same in both. */
static json_t *body_of(const char *members)
{
    char text[2048];

    (void)snprintf(text, sizeof text, "{'max_tokens':9,%s}", members);
    for (char *p = text; (p = strchr(p, '\'')) != NULL;)
        *p = '"';
    return read(text);
}

#define HI             "'messages':[{'role':'user','content':'hi'}]"
#define SAID(content)  "'messages':[{'role':'assistant','content':" content "},{'role':'user','content':'hi'}]"
#define ASKED(content) "'messages':[{'role':'user','content':" content "}]"
#define TEXT(text)     "{'type':'text','text':'" text "','cache_control':{'type':'ephemeral'}}"
#define CALL(id)       "{'type':'tool_use','id':'" id "','name':'f','input':{'x':1}}"
#define CALLED(id)     "{'id':'" id "','type':'function','function':{'name':'f','arguments':{'x':1}}}"

static void test_bodies(void **state)
{
    static const struct {
        const char *asked, *chat;
    } cases[] = {
        { HI, HI },
        { "'model':'m','temperature':0.5,'top_p':0.9,'top_k':4,'stream':true,'service_tier':'auto','seed':3," HI,
          "'model':'m','temperature':0.5,'top_p':0.9,'top_k':4,'stream':true,'service_tier':'auto','seed':3," HI },
        { "'stop_sequences':['a','b'],'metadata':{'user_id':'u'}," HI, "'stop':['a','b'],'user':'u'," HI },
        { "'container':null,'mcp_servers':[],'context_management':{'edits':[]}," HI,
          "'context_management':{'edits':[]}," HI }, /* whose reader says that it has no effect */
        { "'system':'s'," HI, "'messages':[{'role':'system','content':'s'},{'role':'user','content':'hi'}]" },
        { "'system':[" TEXT("x-anthropic-billing-header: cch=1;") "," TEXT("a") "," TEXT("b") "]," HI,
          "'messages':[{'role':'system','content':'a\\nb'},{'role':'user','content':'hi'}]" },
        /* texts of a turn are lines of it, and messages of one role are one turn */
        { "'messages':[{'role':'user','content':[" TEXT("a") "," TEXT("b") "]},{'role':'user','content':'c'}]",
          ASKED("'a\\nb\\nc'") },
        { ASKED("[{'type':'document','title':'t','context':'c','source':{'type':'text','media_type':'text/plain',"
                "'data':'d'}}," TEXT("q") "]"),
          ASKED("'t\\nc\\nd\\nq'") },
        { ASKED("[{'type':'document','source':{'type':'content','content':[" TEXT("a") "," TEXT("b") "]}}]"),
          ASKED("'a\\nb'") },
        /* a turn of the assistant */
        { SAID("[{'type':'thinking','thinking':'t','signature':'s'},{'type':'redacted_thinking','data':'x'}," TEXT(
              "a") "," CALL("1") "," CALL("2") "]"),
          "'messages':[{'role':'assistant','reasoning_content':'t','content':'a','tool_calls':[" CALLED("1") "," CALLED(
              "2") "]},{'role':'user','content':'hi'}]" },
        { SAID("[" TEXT("a") ",{'type':'thinking','thinking':'t'}," TEXT("b") "," CALL("1") "," TEXT("c") "]"),
          "'messages':[{'role':'assistant','content':'a'},{'role':'assistant','reasoning_content':'t','content':'b',"
          "'tool_calls':[" CALLED("1") "]},{'role':'assistant','content':'c'},{'role':'user','content':'hi'}]" },
        { SAID("[{'type':'thinking','thinking':'','signature':'s'}," TEXT("a") "]"),
          "'messages':[{'role':'assistant','content':'a'},{'role':'user','content':'hi'}]" },
        /* results of calls */
        { ASKED("[{'type':'tool_result','tool_use_id':'1','content':'r'},{'type':'tool_result','tool_use_id':'2',"
                "'is_error':true,'content':[" TEXT("a") "," TEXT(
                    "b") "]},{'type':'tool_result','tool_use_id':'3'}," TEXT("q") "]"),
          "'messages':[{'role':'tool','tool_call_id':'1','content':'r'},{'role':'tool','tool_call_id':'2','content':"
          "'Error:\\na\\nb'},{'role':'tool','tool_call_id':'3','content':''},{'role':'user','content':'q'}]" },
        /* an answer that has begun goes on, unless it ends with calls */
        { "'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':'he'}]",
          "'messages':[{'role':'user','content':'hi'},{'role':'assistant','content':'he'}],'continue_final_message':"
          "true" },
        { "'messages':[{'role':'assistant','content':[" CALL("1") "]}]",
          "'messages':[{'role':'assistant','content':'','tool_calls':[" CALLED("1") "]}]" },
        /* tools */
        { "'tools':[{'name':'f','description':'d','input_schema':{},'type':'custom','defer_loading':false}]," HI,
          "'tools':[{'type':'function','function':{'name':'f','description':'d','parameters':{}}}]," HI },
        { "'tool_choice':{'type':'auto'}," HI, "'tool_choice':'auto'," HI },
        { "'tool_choice':{'type':'any','disable_parallel_tool_use':true}," HI,
          "'tool_choice':'required','parallel_tool_calls':false," HI },
        { "'tool_choice':{'type':'none'}," HI, "'tool_choice':'none'," HI },
        { "'tool_choice':{'type':'tool','name':'f'}," HI,
          "'tool_choice':{'type':'function','function':{'name':'f'}}," HI },
        /* thinking, and the form of the answer */
        { "'thinking':{'type':'disabled'}," HI, "'reasoning_budget':0," HI },
        { "'thinking':{'type':'enabled','budget_tokens':7}," HI,
          "'reasoning_budget':7,'chat_template_kwargs':{'enable_thinking':true}," HI },
        { "'thinking':{'type':'adaptive'},'chat_template_kwargs':{'x':1}," HI,
          "'chat_template_kwargs':{'x':1,'enable_thinking':true}," HI },
        { "'output_config':{'effort':'max','format':{'type':'json_schema','schema':{'type':'integer'}}}," HI,
          "'reasoning_effort':'xhigh','response_format':{'type':'json_schema','json_schema':{'type':'json_schema',"
          "'schema':{'type':'integer'}}}," HI },
        { "'output_format':{'type':'json_schema','schema':{}}," HI,
          "'response_format':{'type':'json_schema','json_schema':{'type':'json_schema','schema':{}}}," HI },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct serve_fault f = { 0 };
        json_t *asked = body_of(cases[i].asked), *before = json_deep_copy(asked), *want = body_of(cases[i].chat);
        json_t *chat = serve_make_chat(SERVE_MESSAGE, asked, true, false, &f);

        if (chat == NULL)
            fail_msg("%s: %s", cases[i].asked, f.message);
        if (!json_equal(chat, want))
            fail_msg("%s: got %s", cases[i].asked, json_dumps(chat, JSON_COMPACT));
        assert_true(json_equal(asked, before)); /* replies look at it */
        json_decref(asked);
        json_decref(before);
        json_decref(want);
        json_decref(chat);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *asked, *place, *says;
    } cases[] = {
        { "'messages':[]", "/messages", "missing, or not an array with messages" },
        { "'system':5," HI, "/system", "neither a text nor an array of blocks" },
        { "'system':[{'type':'image'}]," HI, "/system/0/type", "not text" },
        { "'messages':[{'role':'tool','content':'x'}]", "/messages/0/role", "not user or assistant or system" },
        { ASKED("[{'type':'image','source':{}}]"), "/messages/0/content/0", "images are not read here" },
        { ASKED("[" TEXT("a") ",{'type':'tool_result','tool_use_id':'1','content':[{'type':'image','source':{}}]}]"),
          "/messages/0/content/1/content/0", "images are not read here" },
        { ASKED("[{'type':'document','source':{'type':'base64'}}]"), "/messages/0/content/0/source",
          "only documents of plain text are read" },
        { ASKED("[{'type':'document','source':{'type':'text'}}]"), "/messages/0/content/0/source", "has no text" },
        { ASKED("[{'type':'document','citations':{'enabled':true},'source':{'type':'text','data':'x'}}]"),
          "/messages/0/content/0/citations", "answers have no citations" },
        { ASKED("[{'type':'server_tool_use'}]"), "/messages/0/content/0/type",
          "not text or thinking or redacted_thinking or tool_use or tool_result or document" },
        { ASKED("[" CALL("1") "]"), "/messages/0/content/0/type", "not in a message of this role" },
        { SAID("[{'type':'tool_result','tool_use_id':'1'}]"), "/messages/0/content/0/type",
          "not in a message of the assistant" },
        { ASKED("[{'type':'text'}]"), "/messages/0/content/0/text", "missing" },
        { ASKED("[{'type':'text','text':'a','txt':1}]"), "/messages/0/content/0/txt",
          "not a member of this request (--lenient ignores such)" },
        { "'tools':[{'type':'web_search_20250305','name':'web_search'}]," HI, "/tools/0/type",
          "web_search_20250305 is a tool of Anthropic's: only custom ones are known here" },
        { "'tools':[{'name':'f'}]," HI, "/tools/0/input_schema", "missing" },
        { "'tool_choice':{'type':'tool'}," HI, "/tool_choice/name", "missing" },
        { "'tool_choice':'auto'," HI, "/tool_choice", "not an object" },
        { "'thinking':{'type':'enabled'}," HI, "/thinking/budget_tokens", "missing, or not a whole number from 1" },
        { "'thinking':{'type':'adaptive','budget_tokens':5}," HI, "/thinking/budget_tokens",
          "only with the type enabled" },
        { "'thinking':{'type':'adaptive'},'chat_template_kwargs':{'enable_thinking':false}," HI, "/thinking",
          "chat_template_kwargs says otherwise" },
        { "'thread':{'type':'create'}," HI, "/thread", "answers are not kept: send all messages of the conversation" },
        { "'mcp_servers':[{}]," HI, "/mcp_servers", "runs at Anthropic's, not here" },
        { "'stop':['x']," HI, "/stop", "not a member of this request, which has stop_sequences" },
        { "'stop_sequences':'x'," HI, "/stop_sequences", "not an array of texts" },
        { "'metadata':5," HI, "/metadata", "not an object" },
        { "'thinking':5," HI, "/thinking", "not an object" },
        { "'output_config':5," HI, "/output_config", "not an object" },
        { "'output_format':5," HI, "/output_format", "not an object" },
        { "'n':2," HI, "/n", "one answer, without log-probabilities: ask for chat/completions" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct serve_fault f = { 0 };
        json_t *asked = body_of(cases[i].asked), *chat = serve_make_chat(SERVE_MESSAGE, asked, true, false, &f);
        char want[POINTER_BYTES + 200];

        (void)snprintf(want, sizeof want, "%s: %s", cases[i].place + 1, cases[i].says);
        assert_null(chat);
        assert_int_equal(f.status, 400);
        assert_string_equal(f.pointer, cases[i].place);
        assert_string_equal(f.message, want);
        json_decref(asked);
    }
}

/* What is wrong with the chat is said of the request. */
static void test_places(void **state)
{
    static const char talk[] =
        "'system':'s','messages':[{'role':'user','content':[{'type':'tool_result','tool_use_id':'1'},"
        "{'type':'tool_result','tool_use_id':'2'}]},{'role':'assistant','content':'x'}]";
    static const struct {
        const char *asked, *chat, *place;
    } cases[] = {
        { talk, "/messages/0", "/system" },
        { talk, "/messages/1/content", "/messages/0" },
        { talk, "/messages/2", "/messages/0" },
        { talk, "/messages/3", "/messages/1" },
        { talk, "/messages", "/messages" },
        { talk, "/temperature", "/temperature" },
        { talk, "/stop/1", "/stop_sequences/1" },
        { talk, "/tools/1/function/parameters/properties/x", "/tools/1/input_schema/properties/x" },
        { talk, "/tools/1/function/name", "/tools/1/name" },
        { talk, "/tool_choice/function/name", "/tool_choice" },
        { talk, "/reasoning_budget", "/thinking/budget_tokens" },
        { talk, "/response_format/json_schema/schema/items", "/output_config/format/schema/items" },
        { "'output_format':{}," HI, "/response_format/json_schema/schema", "/output_format/schema" },
        { talk, "/user", "/metadata/user_id" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct serve_fault f = { 0 };
        json_t *asked = body_of(cases[i].asked);
        char want[POINTER_BYTES];

        serve_fault(&f, 400, cases[i].chat, "%s: wrong", cases[i].chat + 1);
        serve_move_fault(&serve_messages, asked, &f);
        (void)snprintf(want, sizeof want, "%s: wrong", cases[i].place + 1);
        assert_string_equal(f.pointer, cases[i].place);
        assert_string_equal(f.message, want);
        json_decref(asked);
    }
}

static void test_errors(void **state)
{
    static const struct {
        int status;
        const char *type;
    } cases[] = { { 400, "invalid_request_error" },
                  { 401, "authentication_error" },
                  { 403, "permission_error" },
                  { 404, "not_found_error" },
                  { 413, "request_too_large" },
                  { 429, "rate_limit_error" },
                  { 500, "api_error" },
                  { 503, "overloaded_error" },
                  { 507, "api_error" } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *got = serve_error(serve_row(SERVE_COUNT), cases[i].status, i == 0 ? "/x" : "", "why");
        json_t *want = json_pack("{s:s, s:{s:s, s:s, s:s*}}", "type", "error", "error", "type", cases[i].type,
                                 "message", "why", "param", i == 0 ? "/x" : NULL);

        assert_true(json_equal(got, want));
        json_decref(got);
        json_decref(want);
    }
}

/* Anthropic's package looks at the code. */
static void test_codes(void **state)
{
    struct serve_fault f = { 0 };
    json_t *asked = body_of("'thread':{'type':'continue'}," HI), *body;

    (void)state;
    assert_null(serve_make_chat(SERVE_MESSAGE, asked, true, true, &f));
    body = serve_fault_body(serve_row(SERVE_MESSAGE), &f);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json_object_get(body, "error"), "details"), "error_code")),
        "thread_unsupported_request");
    json_decref(asked);
    json_decref(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies), cmocka_unit_test(test_refused), cmocka_unit_test(test_places),
        cmocka_unit_test(test_errors), cmocka_unit_test(test_codes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
