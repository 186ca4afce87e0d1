/* SPDX-License-Identifier: Apache-2.0 */
/* ask_test.c - what a question becomes: its prompt, grammar, budget, reader and limits, and where a mistake lies. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ask/wire.h"
#include "chat/chat.h"
#include "chat/reader.h"
#include "gguf/gguf.h"
#include "grammar/grammar.h"

#define MODEL "share/models/chimere-nano-q5_k_m.gguf"

static struct gguf *file;
static struct text *text;
static struct chat *chat, *plain, *opening; /* opening: always reasons */
static struct grammar_vocab *vocab;
static struct ask_model model;

static void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s: %s", e->where, e->msg);
}

static int open_model(void **state)
{
    struct err e = { 0 };

    (void)state;
    must(gguf_open(&file, MODEL, &e), &e);
    must(text_open(&text, file, &e), &e);
    must(chat_open(&chat, text, (struct str){ 0 }, &e), &e);
    must(chat_open(&plain, text, STR("{% for m in messages %}{{ m.content }}{% endfor %}"), &e), &e);
    must(chat_set_parser(plain, "plain", &e), &e);
    must(chat_open(&opening, text, STR("{% for m in messages %}{{ m.content }}{% endfor %}<think>\n\n"), &e), &e);
    must(chat_set_parser(opening, "qwen3.5", &e), &e);
    model = (struct ask_model){ .text = text, .chat = chat, .vocab = &vocab };
    return 0;
}

static int close_model(void **state)
{
    (void)state;
    grammar_vocab_close(vocab);
    chat_close(plain);
    chat_close(opening);
    chat_close(chat);
    text_close(text);
    gguf_close(file);
    return 0;
}

static json_t *json(const char *s)
{
    json_t *v = json_loads(s, JSON_DECODE_ANY, NULL);

    if (v == NULL)
        fail_msg("no JSON: %s", s);
    return v;
}

static struct ask_request *open_request(const struct ask *a)
{
    struct ask_request *r = NULL;
    struct err e = { 0 };

    must(ask_open(&r, a, &model, NULL, &e), &e);
    return r;
}

static char *text_of(const struct ask_request *r)
{
    char *p;
    size_t n;
    struct err e = { 0 };

    must(text_decode(text, r->prompt.v, r->prompt.n, TEXT_SPECIAL, &p, &n, &e), &e);
    return p;
}

static bool ends_with(const struct ask_request *r, const char *what)
{
    char *p = text_of(r);
    const size_t n = strlen(p), m = strlen(what);
    const bool ends = n >= m && strcmp(p + n - m, what) == 0;

    free(p);
    return ends;
}

/* ---- the prompt ---- */

static void tokens_and_texts(void **state)
{
    static const int32_t ids[] = { 5, 6, 7 };
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.token = ids;
    a.n_token = 3;
    r = open_request(&a);
    assert_int_equal(r->q.n_prompt, 3);
    assert_memory_equal(r->q.prompt, ids, sizeof ids);
    assert_false(r->q.chat);
    assert_null(r->parser);
    ask_close(r);
    a.text = STR("<|im_end|>");
    r = open_request(&a); /* a control token, behind the others */
    assert_int_equal(r->q.n_prompt, 4);
    ask_close(r);
    a.plain = true;
    r = open_request(&a);
    assert_true(r->q.n_prompt > 4);
    ask_close(r);
}

static void thinking_and_variables(void **state)
{
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    r = open_request(&a);
    assert_true(r->thinking && r->q.thinking && r->q.chat);
    ask_close(r);
    a.reason.budget_tokens = 0; /* none is asked for */
    r = open_request(&a);
    assert_true(!r->thinking);
    ask_close(r);
    json_t *on = json("{\"enable_thinking\":true}");

    a.kwargs = on; /* says it to the template alone */
    r = open_request(&a);
    assert_false(r->thinking);
    ask_close(r);
    a.reason.budget_tokens = -1;
    a.think = 0; /* is overridden */
    r = open_request(&a);
    assert_true(r->thinking);
    ask_close(r);
    json_decref(on);
    json_decref(a.messages);
}

static void a_message_goes_on(void **state)
{
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\" I am \"}]");
    a.continues_last = true;
    r = open_request(&a);
    assert_true(ends_with(r, "I am") && !r->thinking);
    ask_close(r);
    a.continues_last = false;
    a.add_no_answer = true;
    r = open_request(&a);
    assert_true(ends_with(r, "I am<|im_end|>\n"));
    ask_close(r);
    json_decref(a.messages);
}

static void borders(void **state)
{
    static const int32_t ids[] = { 5, 6, 7 };
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.token = ids;
    a.n_token = 3;
    a.n_borders = 1;
    r = open_request(&a); /* no message: the last token is evaluated again */
    assert_true(r->q.n_marks == 1 && r->q.marks[0] == 2);
    ask_close(r);
    a.n_token = 0;
    a.messages =
        json("[{\"role\":\"system\",\"content\":\"one two three four five six seven eight nine ten eleven twelve "
             "thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty\"},"
             "{\"role\":\"user\",\"content\":\"x\"}]");
    for (a.n_borders = 0; a.n_borders < 4; a.n_borders++) {
        r = open_request(&a);
        assert_int_equal(r->q.n_marks > 0, a.n_borders > 0);
        assert_true(r->q.n_marks <= a.n_borders);
        for (int i = 0; i < r->q.n_marks; i++)
            assert_true(r->q.marks[i] > (i > 0 ? r->q.marks[i - 1] + 31 : 0) && r->q.marks[i] < r->q.n_prompt);
        ask_close(r);
    }
    json_decref(a.messages);
}

/* ---- the answer ---- */

static void limits(void **state)
{
    static const int32_t ids[] = { 5 }, ends[] = { 9, 10 };
    struct ask a = ask_defaults();
    struct ask_request *r;
    struct err e = { 0 };

    (void)state;
    a.token = ids;
    a.n_token = 1;
    a.tokens_max = 7;
    a.max_is_text = true;
    a.tokens_min = 3;
    a.stop_token = ends;
    a.n_stop_tokens = 2;
    r = open_request(&a); /* not a chat: there is no reasoning */
    assert_true(r->q.predict_max == 7 && r->q.text_max == -1 && r->q.min_tokens == 3 && r->q.n_stop_tokens == 2);
    ask_close(r);
    a.n_token = 0;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    r = open_request(&a);
    assert_true(r->q.predict_max == -1 && r->q.text_max == 7);
    a.max_is_text = false;
    must(ask_update(r, &a, &model, &e), &e);
    assert_true(r->q.predict_max == 7 && r->q.text_max == -1);
    a.embeds = true;
    must(ask_update(r, &a, &model, &e), &e);
    assert_int_equal(r->q.predict_max, 0);
    ask_close(r);
    json_decref(a.messages);
}

/* Reasoning counts for the least number and not for the greatest one, also where the model may open it itself. */
static void least_number_beside_reasoning(void **state)
{
    struct ask a = ask_defaults();
    struct ask_model may = model;
    struct ask_request *r;
    struct chat *own;
    struct err e = { 0 };

    (void)state;
    must(chat_open(&own, text, STR("{% for m in messages %}{{ m.content }}{% endfor %}"), &e), &e);
    must(chat_set_parser(own, "think", &e), &e);
    may.chat = own;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.max_is_text = true;
    a.tokens_max = 2;
    a.tokens_min = 3;
    must(ask_open(&r, &a, &may, NULL, &e), &e);
    assert_true(!r->thinking && r->reasons && r->q.min_tokens == 3);
    ask_close(r);
    a.reason.budget_tokens = 0;
    assert_int_equal(ask_open(&r, &a, &may, NULL, &e), ERR_ARG);
    assert_string_equal(e.where, "/min_tokens");
    json_decref(a.messages);
    chat_close(own);
}

static void breakers(void **state)
{
    static const int32_t ids[] = { 5 };
    const struct str own[] = { STR("zz") };
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.token = ids;
    a.n_token = 1;
    r = open_request(&a);
    assert_null(r->q.sample.dry_breakers); /* without DRY nobody looks for them */
    ask_close(r);
    a.sample.dry_multiplier = 1;
    r = open_request(&a);
    const size_t n_usual = r->q.sample.n_dry_breakers;

    for (size_t i = 0; i < n_usual; i++) {
        const struct str piece = text_piece(text, r->q.sample.dry_breakers[i]);

        assert_true(memchr(piece.p, '\n', piece.n) != NULL || memchr(piece.p, ':', piece.n) != NULL ||
                    memchr(piece.p, '"', piece.n) != NULL || memchr(piece.p, '*', piece.n) != NULL);
    }
    ask_close(r);
    a.breakers = own;
    a.n_breakers = 1;
    r = open_request(&a);
    assert_true(n_usual > 10 && r->q.sample.n_dry_breakers < n_usual);
    ask_close(r);
}

static void budget(void **state)
{
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.reason.budget_tokens = 5;
    for (a.think = -1; a.think < 2; a.think += 2) {
        r = open_request(&a);
        assert_ptr_equal(r->q.governor, &reason_governor);
        assert_int_equal(((const struct reason_opts *)r->q.governor_opts)->budget_tokens, 5);
        ask_close(r);
    }
    a.text = STR("x");
    json_decref(a.messages);
    a.messages = NULL;
    a.reason.loops = false;
    r = open_request(&a);
    assert_null(r->q.governor);
    ask_close(r);
}

/* Reasoning that is not wanted is closed in the prompt, whatever the template does, and where the model opens it. */
static void no_reasoning(void **state)
{
    const struct ask_model m = { .text = text, .chat = opening, .vocab = &vocab };
    json_t *kwargs = json("{\"enable_thinking\":false}");
    const struct {
        int64_t budget;
        int think;
        json_t *kwargs;
        bool reasons;
    } v[] = { { -1, 1, NULL, true },  { -1, -1, NULL, true },    { 3, 1, NULL, true },    { 0, 1, NULL, false },
              { -1, 0, NULL, false }, { -1, -1, kwargs, false }, { -1, 1, kwargs, false } };
    struct ask a = ask_defaults();
    struct ask_request *r = NULL;
    struct err e = { 0 };

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        a.reason.budget_tokens = v[i].budget;
        a.reason.loops = false;
        a.think = v[i].think;
        a.kwargs = v[i].kwargs;
        must(ask_open(&r, &a, &m, NULL, &e), &e);
        assert_int_equal(r->thinking, v[i].reasons);
        assert_int_equal(r->reasons, v[i].reasons);
        assert_true(ends_with(r, v[i].reasons ? "x<think>\n" : "x<think>\n\n</think>\n\n"));
        assert_int_equal(r->q.governor != NULL, v[i].budget >= 0 || !v[i].reasons);
        ask_close(r);
    }
    char *p;
    size_t n;
    must(ask_prompt_text(&p, &n, &a, &m, &e), &e); /* as what is evaluated */
    assert_string_equal(p, "x<think>\n\n</think>\n\n");
    free(p);
    json_decref(kwargs);
    json_decref(a.messages);
}

/* Whether the answer may go on with this text. */
static bool allows(const struct ask_request *r, const char *answer)
{
    struct grammar_place *p;
    struct err e = { 0 };
    bool all = true;

    must(grammar_begin(&p, r->grammar, &e), &e);
    all = grammar_take_text(p, str_of(answer));
    grammar_end(p);
    return all;
}

static void a_form_comes_behind_the_reasoning(void **state)
{
    struct ask a = ask_defaults();
    struct ask_request *r;

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.form.regex = STR("[0-9]+");
    r = open_request(&a);
    assert_ptr_equal(r->q.constraint, &gen_grammar);
    assert_true(allows(r, "well</think>12") && !allows(r, "well</think>a"));
    assert_string_not_equal(r->parser, "plain"); /* which separates the reasoning */
    ask_close(r);
    a.think = 0;
    r = open_request(&a);
    assert_true(allows(r, "12") && !allows(r, "well"));
    assert_string_equal(r->parser, "plain"); /* text, whatever it looks like */
    assert_null(r->q.part_marks);
    ask_close(r);
    a.reads_form = true;
    r = open_request(&a);
    assert_string_not_equal(r->parser, "plain");
    ask_close(r);
    json_decref(a.messages);
}

/* What auto does not hold to a schema is told, and the same is told of a request that shares the grammar. */
static void loose_calls(void **state)
{
    struct ask a = ask_defaults();
    struct ask_request *r, *same;
    struct err e = { 0 };
    json_t *tools = json("[{\"name\":\"f\",\"parameters\":{\"properties\":{\"a\":{\"pattern\":\"(?=x)\"}}}},"
                         "{\"name\":\"g\",\"parameters\":{\"properties\":{\"a\":{\"maxLength\":2}}}}]");

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.tools = tools;
    a.think = 0;
    r = open_request(&a);
    assert_int_equal(json_array_size(r->loose), 1);
    assert_string_equal(
        json_string_value(json_array_get(r->loose, 0)),
        "tool f is not held to its schema: #/properties/a/pattern: column 1: looking ahead and behind are "
        "not supported");
    must(ask_open(&same, &a, &model, r, &e), &e);
    assert_ptr_equal(same->loose, r->loose);
    ask_close(same);
    assert_true(allows(r, "<tool_call>\n<function=f>\n<parameter=a>\nabc\n</parameter>\n</function>\n</tool_call>"));
    assert_true(allows(r, "<tool_call>\n<function=g>\n<parameter=a>\nab\n</parameter>\n</function>\n</tool_call>"));
    assert_false(allows(r, "<tool_call>\n<function=g>\n<parameter=a>\nabc\n</parameter>\n</function>\n</tool_call>"));
    ask_close(r);
    json_decref(a.messages);
    json_decref(tools);
}

static void calls(void **state)
{
    struct ask a = ask_defaults();
    struct ask_request *r, *same;
    struct chat_reader *reader;
    struct err e = { 0 };
    json_t *tools = json("[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\","
                         "\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}}}]");

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.tools = tools;
    a.think = 0;
    r = open_request(&a);
    assert_true(r->tools == tools && r->loose == NULL && allows(r, "a text"));
    must(ask_open(&same, &a, &model, r, &e), &e);
    assert_ptr_equal(same->grammar, r->grammar);
    ask_close(same);
    must(ask_reader(&reader, r, &e), &e);
    chat_reader_close(reader);
    ask_close(r);
    a.tool_choice = "required";
    r = open_request(&a);
    assert_false(allows(r, "a text"));
    ask_close(r);
    json_t *schema = json("{\"type\":\"integer\"}");

    a.form.schema = schema; /* of a text, which there is none of */
    r = open_request(&a);
    assert_true(r->tools == tools && !allows(r, "1"));
    ask_close(r);
    json_decref(schema);
    a.form.schema = NULL;
    a.tool_choice = "none";
    r = open_request(&a);
    assert_true(r->tools == NULL && r->grammar == NULL);
    ask_close(r);
    json_decref(a.messages);
    json_decref(tools);
}

/* ---- mistakes ---- */

static const struct {
    const char *where, *messages, *tools, *choice, *schema, *gbnf, *regex, *kwargs, *message;
    bool continues;
    int64_t budget, grace, least, tokens_min, tokens_max;
    enum reason_effort effort;
} mistakes[] = {
    { .where = "/messages/1",
      .messages = "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"stranger\",\"content\":\"y\"}]" },
    { .where = "/messages/0", .continues = true },
    { .where = "/messages/1/tool_calls/0/function/arguments",
      .messages =
          "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"type\":"
          "\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]}]" },
    { .where = "/chat_template_kwargs", .kwargs = "{\"tools\":[]}" },
    { .where = "/tool_choice", .choice = "required" },
    { .where = "/reasoning_budget", .kwargs = "{\"enable_thinking\":false}", .budget = 5 },
    { .where = "/reasoning_effort", .kwargs = "{\"enable_thinking\":false}", .effort = REASON_EFFORT_LOW },
    { .where = "/reasoning_min", .kwargs = "{\"enable_thinking\":false}", .least = 5 },
    { .where = "/reasoning_budget_message", .effort = REASON_EFFORT_NONE, .message = "x" },
    { .where = "/reasoning_grace", .budget = 5, .grace = 6 },
    { .where = "/reasoning_grace", .grace = 6 },
    { .where = "/reasoning_grace", .effort = REASON_EFFORT_LOW, .budget = 47, .grace = 6 },
    { .where = "/reasoning_min", .budget = 5, .least = 6 },
    { .where = "/reasoning_budget_message", .message = "x" },
    { .where = "/min_tokens", .kwargs = "{\"enable_thinking\":false}", .tokens_min = 4, .tokens_max = 3 },
    { .where = "/regex", .regex = "" },
    { .where = "/tool_choice",
      .choice = "required",
      .tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]",
      .regex = "a" },
    { .where = "/tool_choice/function/name",
      .choice = "g",
      .tools = "[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]" },
    { .where = "/tools/0/function/parameters/properties/a/type",
      .choice = "required",
      .tools =
          "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":"
          "{\"a\":{\"type\":\"strange\"}}}}}]" },
    { .where = "/response_format/json_schema/schema/items/type",
      .schema = "{\"type\":\"array\",\"items\":{\"type\":\"strange\"}}" },
    { .where = "/grammar", .gbnf = "root ::= other" },
    { .where = "/regex", .regex = "[" },
    { .where = "/regex", .regex = "a", .schema = "{}" },
    { .where = "/grammar", .gbnf = "root ::= [a]", .schema = "{}" },
};

static void mistakes_have_places(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const char *s = mistakes[i].messages != NULL ? mistakes[i].messages : "[{\"role\":\"user\",\"content\":\"x\"}]";
        json_t *tools = mistakes[i].tools != NULL ? json(mistakes[i].tools) : NULL,
               *schema = mistakes[i].schema != NULL ? json(mistakes[i].schema) : NULL,
               *kwargs = mistakes[i].kwargs != NULL ? json(mistakes[i].kwargs) : NULL;
        struct ask a = ask_defaults();
        struct ask_request *r;
        struct err e = { 0 };

        a.messages = json(s);
        a.tools = tools;
        a.kwargs = kwargs;
        a.tool_choice = mistakes[i].choice != NULL ? mistakes[i].choice : "auto";
        a.continues_last = mistakes[i].continues;
        a.tokens_min = mistakes[i].tokens_min;
        if (mistakes[i].budget > 0)
            a.reason.budget_tokens = mistakes[i].budget;
        if (mistakes[i].grace > 0)
            a.reason.grace_tokens = mistakes[i].grace;
        a.reason.least_tokens = mistakes[i].least;
        a.reason.effort = mistakes[i].effort;
        a.reason.message = str_of(mistakes[i].message != NULL ? mistakes[i].message : "");
        if (mistakes[i].tokens_max > 0)
            a.tokens_max = mistakes[i].tokens_max;
        a.form.schema = schema;
        if (mistakes[i].gbnf != NULL)
            a.form.gbnf = str_of(mistakes[i].gbnf);
        if (mistakes[i].regex != NULL)
            a.form.regex = str_of(mistakes[i].regex);
        assert_int_not_equal(ask_open(&r, &a, &model, NULL, &e), ERR_OK);
        if (strcmp(e.where, mistakes[i].where) != 0)
            fail_msg("'%s' instead of '%s': %s", e.where, mistakes[i].where, e.msg);
        json_decref(a.messages);
        json_decref(tools);
        json_decref(schema);
        json_decref(kwargs);
    }
}

static void what_the_model_lacks(void **state)
{
    const struct ask_model bare = { .text = text, .vocab = &vocab },
                           silent = { .text = text, .chat = plain, .vocab = &vocab };
    struct ask a = ask_defaults();
    struct ask_request *r;
    struct err e = { 0 };

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    assert_int_equal(ask_open(&r, &a, &bare, NULL, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.where, "/messages");
    a.reason.budget_tokens = 5;
    assert_int_equal(ask_open(&r, &a, &silent, NULL, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.where, "/reasoning_budget");
    a.reason = reason_defaults();
    a.reason.effort = REASON_EFFORT_LOW;
    assert_int_equal(ask_open(&r, &a, &silent, NULL, &e), ERR_UNSUPPORTED);
    assert_string_equal(e.where, "/reasoning_effort");
    assert_non_null(strstr(e.msg, "template"));
    a.effort_is_hint = true;
    must(ask_open(&r, &a, &silent, NULL, &e), &e);
    ask_close(r);
    a.think = 0;
    must(ask_open(&r, &a, &silent, NULL, &e), &e);
    ask_close(r);
    json_decref(a.messages);
}

/* An index that recites a text of two tokens, of which the second one may be unknown to the model. */
static enum err_code add_a_note(const void *of, json_t *messages, int n, json_t *used, struct err *e)
{
    json_t *last = json_array_get(messages, json_array_size(messages) - 1);

    (void)of;
    if (n != 0 && (json_object_set_new(last, "content", json_string("a note")) != 0 ||
                   json_array_append_new(used, json_pack("{s:s}", "use", "examples")) != 0))
        return err_nomem(e);
    return ERR_OK;
}

static enum err_code recite_two(const void *of, const json_t *messages, int n, struct text_tokens *tokens,
                                struct engram_recital *out, json_t *used, struct err *e)
{
    const char *said = json_string_value(json_object_get(json_array_get(messages, 0), "content"));

    (void)n;
    if (strcmp(said, "x") != 0) /* before notes are added */
        return ERR_OK;
    if (text_tokens_push(tokens, 5, e) || text_tokens_push(tokens, *(const int32_t *)of, e))
        return e->code;
    *out = (struct engram_recital){ .token = tokens->v, .n = tokens->n, .weight = 0.5f };
    return json_array_append_new(used, json_pack("{s:s}", "use", "recite")) != 0 ? err_nomem(e) : ERR_OK;
}

static void indexes(void **state)
{
    const int32_t id = 100;
    const struct ask_index index = { add_a_note, recite_two, &id };
    struct ask_model few = model;
    struct ask a = ask_defaults();
    struct ask_request *r;
    struct err e = { 0 };

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.notes = a.recite = &index;
    r = open_request(&a);
    char *said = text_of(r);

    assert_non_null(strstr(said, "a note"));
    free(said);
    assert_string_equal(json_string_value(json_object_get(json_array_get(a.messages, 0), "content")), "x");
    assert_int_equal(json_array_size(r->notes), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(r->notes, 0), "use")), "recite");
    assert_true(r->mix.recital.n == 2 && r->q.memory == &engram_memory && r->q.memory_of == &r->mix);
    few.n_vocab = 50;
    must(ask_update(r, &a, &few, &e), &e); /* the model does not have it */
    assert_true(r->mix.recital.n == 0 && r->q.memory == NULL);
    ask_close(r);
    json_decref(a.messages);
}

/* What a program sends is what a server reads. */
static void questions_as_json(void **state)
{
    const int32_t ids[] = { 5, 7 };
    const struct str stops[] = { { "a\0\xff", 3 }, { "\xc3\xa9", 2 } };
    const struct sample_bias bias[] = { { 3, -INFINITY }, { 4, 0.1f } };
    struct ask a = ask_defaults(), b;
    struct ask_sent *s;
    struct err e = { 0 };
    json_t *v, *again;

    (void)state;
    a.messages = json("[{\"role\":\"user\",\"content\":\"x\"}]");
    a.token = a.stop_token = ids;
    a.n_token = 2;
    a.n_stop_tokens = 1;
    a.stops = stops;
    a.n_stops = 2;
    a.sample.bias = bias;
    a.sample.n_bias = 2;
    a.sample.temp = 0.1f;
    a.sample.seed = UINT64_MAX;
    a.reason.effort = REASON_EFFORT_LOW;
    must(reason_read_stop(&a.reason, STR("cgr:0.9"), &e), &e);
    must(reason_read_probe(&a.reason, STR("every=3,lag=2,stub=The "), &e), &e);
    a.tokens_max = 9;
    a.max_is_text = a.one_call = true;
    v = ask_write(&a);
    must(ask_read(&s, v, &e), &e);
    b = s->ask;
    assert_true(b.n_token == 2 && b.token[1] == 7 && b.n_stop_tokens == 1 && b.stop_token[0] == 5);
    assert_true(b.n_stops == 2 && str_eq(b.stops[0], stops[0]) && str_eq(b.stops[1], stops[1]));
    assert_true(b.sample.n_bias == 2 && b.sample.bias[0].bias == -INFINITY && b.sample.bias[1].bias == 0.1f);
    assert_true(b.sample.temp == 0.1f && b.sample.seed == UINT64_MAX && b.sample.top_p == a.sample.top_p);
    assert_true(b.reason.effort == REASON_EFFORT_LOW && b.reason.rule == REASON_RULE_CGR && b.reason.threshold == 0.9f);
    assert_true(b.reason.every_tokens == 3 && b.reason.lag == 2 && str_is(b.reason.stub, "The "));
    assert_true(b.tokens_max == 9 && b.max_is_text && b.one_call && b.text.p == NULL && b.form.schema == NULL);
    again = ask_write(&b);
    assert_true(json_equal(v, again));
    json_decref(again);
    ask_sent_close(s);

    /* What is out of range is an error at its place. */
    static const struct {
        const char *member, *value, *where;
    } bad[] = { { "messages", "{}", "/messages" },
                { "text", "\"\\u2028\"", "/text" },
                { "temp", "-1", "/temp" },
                { "top_k", "0.5", "/top_k" },
                { "rule", "\"same:99\"", "/rule" },
                { "stops", "[\"\"]", "/stops" },
                { "tokens", "[-1]", "/tokens" },
                { "biases", "[[1]]", "/biases" },
                { "think", "2147483648", "/think" },
                { "tokens_max", "-2", "/tokens_max" },
                { "tool_choice", "null", "/tool_choice" },
                { "lag", "9999", "" },
                { "trial", "65", "" },
                { "effort", "\"most\"", "" },
                { "tokens_min", "-1", "" },
                { "kwargs", "[]", "" } };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_t *wrong = json_copy(v);

        json_object_set_new(wrong, bad[i].member, json(bad[i].value));
        if (ask_read(&s, wrong, &e) != ERR_FORMAT && strcmp(bad[i].member, "rule") != 0)
            fail_msg("%s: not refused", bad[i].member);
        assert_string_equal(e.where, bad[i].where);
        json_decref(wrong);
    }
    json_decref(v);
    v = json_object(); /* without a sampler */
    assert_int_equal(ask_read(&s, v, &e), ERR_FORMAT);
    json_decref(v);
    json_decref(a.messages);
}

static void events_as_json(void **state)
{
    static const char *const wrong[] = { "{}",
                                         "[]",
                                         "{\"token\":9}",
                                         "{\"token\":9,\"text\":\"\"}",
                                         "{\"end\":99,\"text\":\"\"}",
                                         "{\"token\":1,\"text\":\"\",\"top\":[[1,0],[9,0]]}",
                                         "{\"token\":1,\"text\":5}",
                                         "{\"token\":1.5,\"text\":\"\"}" };
    const struct sample_top top[] = { { 3, -0.1f }, { 4, NAN } };
    const struct gen_event token = { .kind = GEN_TOKEN,
                                     .pick = { .token = 3, .logprob = -0.1f, .top = top, .n_top = 2 },
                                     .entropy = 0.3f,
                                     .varentropy = NAN,
                                     .margin = 1,
                                     .reasoning = true,
                                     .text = { "\xff\0", 2 } },
                           end = { .kind = GEN_END,
                                   .end = GEN_FAILED,
                                   .err = { ERR_LIMIT, "no", "/bias" },
                                   .stats = { .tokens = 7, .steps = 5 } };
    const struct ask_request r = { .q = { .n_prompt = 0 } };
    struct ask_event x = { 0 };
    struct err e = { 0 };
    json_t *v = ask_write_event(&token, &r);

    (void)state;
    must(ask_read_event(&x, v, 5, &e), &e);
    assert_true(x.ev.kind == GEN_TOKEN && x.ev.pick.token == 3 && x.ev.pick.logprob == -0.1f && x.ev.pick.n_top == 2);
    assert_true(x.ev.pick.top[0].logprob == -0.1f && isnan(x.ev.pick.top[1].logprob) && x.ev.entropy == 0.3f);
    assert_true(isnan(x.ev.varentropy) && x.ev.margin == 1 && x.ev.reasoning && !x.ev.forced);
    assert_true(str_eq(x.ev.text, token.text));
    assert_int_equal(ask_read_event(&x, v, 4, &e), ERR_FORMAT); /* tokens beyond the vocabulary */
    json_decref(v);
    v = ask_write_event(&end, &r);
    must(ask_read_event(&x, v, 5, &e), &e);
    assert_true(x.ev.kind == GEN_END && x.ev.end == GEN_FAILED && x.ev.stats.tokens == 7 && x.ev.stats.steps == 5);
    assert_true(x.ev.err.code == ERR_LIMIT && strcmp(x.ev.err.where, "/bias") == 0 && x.thinking == NULL);
    json_decref(v);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        v = json(wrong[i]);
        if (ask_read_event(&x, v, 5, &e) != ERR_FORMAT)
            fail_msg("%s: not refused", wrong[i]);
        json_decref(v);
    }
    ask_event_close(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_and_texts),
        cmocka_unit_test(thinking_and_variables),
        cmocka_unit_test(a_message_goes_on),
        cmocka_unit_test(borders),
        cmocka_unit_test(limits),
        cmocka_unit_test(least_number_beside_reasoning),
        cmocka_unit_test(breakers),
        cmocka_unit_test(budget),
        cmocka_unit_test(no_reasoning),
        cmocka_unit_test(a_form_comes_behind_the_reasoning),
        cmocka_unit_test(calls),
        cmocka_unit_test(loose_calls),
        cmocka_unit_test(mistakes_have_places),
        cmocka_unit_test(what_the_model_lacks),
        cmocka_unit_test(indexes),
        cmocka_unit_test(questions_as_json),
        cmocka_unit_test(events_as_json),
    };

    return cmocka_run_group_tests(tests, open_model, close_model);
}
