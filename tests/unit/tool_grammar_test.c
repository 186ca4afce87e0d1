/* SPDX-License-Identifier: Apache-2.0 */
/* tool_grammar_test.c - calls of every syntax: what the grammar lets a model write, the reader reads as calls whose
 * arguments satisfy the tool's schema.
 *
 * Random walks through the grammar of a call stand for the model. Tokens are characters of ASCII, a few others and what
 * ends values, so that a walk often tries to break out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "chat/parse.h"
#include "chat/tool_grammar.h"
#include "grammar/schema.h"

enum { STEPS_MAX = 6000, TOKENS_MAX = 200 };

/* Xorshift (Marsaglia 2003): the same walks everywhere. */
struct rng {
    uint64_t s;
};

static uint64_t rng_below(struct rng *r, uint64_t n)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return (r->s * 0x2545F4914F6CDD1DU >> 16) % n;
}

static const char *const more_tokens[] = {
    "\xC3",
    "\xA9",
    "\xEF",
    "\xBD",
    "\x9C",
    "\xE2",
    "\x96",
    "\x81", /* of é, and of the marks of DeepSeek */
    "é",
    "null",
    "None",
    "true",
    "True",
    "12",
    "-0.5",
    "[",
    "[1]",
    "{\"a\": 1}",
    "</",
    "</parameter>",
    "\n</parameter>\n",
    "</parameter>\n",
    "</arg_value>",
    "</arg_value>\n",
    "</｜DSML｜parameter>\n",
    "</function>",
    "</tool_call>",
    "<parameter=s>",
    "abc",
    "\", ",
    "\"",
    "2026-01-02",
    "\\u0041",
    "\\/",
};

struct words {
    struct str piece[TOKENS_MAX];
    char byte[128];
    uint8_t kind[TOKENS_MAX];
    int32_t n;
    struct grammar_vocab *v;
};

static void open_words(struct words *w)
{
    w->n = 0;
    for (int c = 0; c < 0x7F; c++)
        if (c >= ' ' || c == '\n' || c == '\t') {
            w->byte[c] = (char)c;
            w->piece[w->n++] = (struct str){ &w->byte[c], 1 };
        }
    for (size_t i = 0; i < sizeof more_tokens / sizeof *more_tokens; i++)
        w->piece[w->n++] = str_of(more_tokens[i]);
    memset(w->kind, GRAMMAR_TOKEN, sizeof w->kind);
    w->piece[w->n] = STR("<|call|>");
    w->kind[w->n++] = GRAMMAR_TOKEN_END;
    assert_int_equal(grammar_vocab_make(&w->v, w->piece, w->kind, w->n, NULL), ERR_OK);
}

static json_t *json_of(const char *text)
{
    json_t *v = NULL;
    struct err e = { 0 };

    if (json_parse(&v, str_of(text), "test", &e) != ERR_OK)
        fail_msg("%s: %s", text, e.msg);
    return v;
}

/* A walk to the end of the text; false: it was given up as too long. */
static bool walk(struct text_buf *out, const struct words *w, const struct grammar *g, struct rng *r)
{
    struct grammar_place *p;
    uint32_t mask[TOKENS_MAX / 32 + 1];
    bool done = false;

    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    for (int step = 0; step < STEPS_MAX && !done; step++) {
        int32_t may[TOKENS_MAX], n = 0, n_long = 0, t;

        assert_true(grammar_mask(p, mask) > 0);
        for (int32_t i = w->n; i-- > 0;)
            if ((mask[i / 32] >> (i % 32) & 1) != 0) {
                may[n++] = i;
                n_long += w->piece[i].n > 1;
            }
        /* the long ones are first */
        t = may[rng_below(r, (uint64_t)(n_long > 0 && rng_below(r, 3) == 0 ? n_long : n))];
        done = w->kind[t] == GRAMMAR_TOKEN_END;
        if (!done) {
            assert_true(grammar_take(p, t));
            text_buf_add(out, w->piece[t]);
        }
    }
    grammar_end(p);
    return done;
}

/* Whether a value satisfies a schema, by two ways: written out, and taken apart. */
static bool satisfies(const json_t *schema, const json_t *value, struct str text)
{
    struct err e = { 0 };
    struct grammar_build b = { .e = &e };
    struct schema x = { .b = &b, .root = schema };
    struct schema_all all = { .v = { { schema, "#", false, -1 } }, .n = 1 };
    struct grammar *g = NULL;
    struct grammar_place *p = NULL;
    const int holds = schema_holds(&x, &all, false, value);
    bool written;

    schema_free(&x);
    grammar_build_free(&b);
    if (grammar_open_schema(&g, NULL, schema, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    written = grammar_take_text(p, text) && grammar_may_end(p);
    grammar_end(p);
    grammar_close(g);
    return holds != 0 && written;
}

static void read_answer(struct chat_reader **r, const char *parser, const json_t *tools, struct str answer)
{
    const struct chat_reader_opts o = { .parser = parser, .tools = tools };
    const struct chat_piece *v;
    int n;

    assert_int_equal(chat_reader_open(r, &o, NULL), ERR_OK);
    assert_int_equal(chat_read(*r, answer, true, &v, &n, NULL), ERR_OK);
}

static void check_calls(const char *parser, const json_t *tools, struct str answer)
{
    struct chat_reader *r;
    json_t *result = NULL;

    read_answer(&r, parser, tools, answer);
    assert_int_equal(chat_reader_result(&result, r, NULL), ERR_OK);
    if (chat_reader_calls(r) == 0 || chat_reader_cut(r) != CHAT_CUT_NONE ||
        json_string_length(json_object_get(result, "content")) > 0)
        fail_msg("%s: not only calls: %.*s", parser, STR_ARG(answer));
    for (int i = 0; i < chat_reader_calls(r); i++) {
        const struct chat_call c = chat_reader_call(r, i);
        json_t *arguments = NULL;
        struct err e = { 0 };

        if (json_parse(&arguments, c.arguments, "arguments", &e) != ERR_OK) {
            /* A walk may write any number, and an undeclared key twice. */
            if (strstr(e.msg, "can hold") == NULL && strstr(e.msg, "64 bits") == NULL &&
                strstr(e.msg, "duplicate") == NULL)
                fail_msg("%s: %.*s: %s", parser, STR_ARG(c.arguments), e.msg);
            continue;
        }
        if (!satisfies(json_object_get(chat_parse_tool(tools, c.name), "parameters"), arguments, c.arguments))
            fail_msg("%s: %.*s: the arguments %.*s do not satisfy the schema", parser, STR_ARG(answer),
                     STR_ARG(c.arguments));
        json_decref(arguments);
    }
    json_decref(result);
    chat_reader_close(r);
}

static bool has_calls(const char *parser)
{
    return chat_parse_syntax(parser)->written != NULL;
}

static json_t *tool_of(const char *name, json_t *parameters)
{
    return json_pack("[{s:s, s:{s:s, s:o}}]", "type", "function", "function", "name", name, "parameters", parameters);
}

/* With auto the same may be written, behind a text. */
static void check_auto(const struct grammar *g, const char *parser, struct str answer)
{
    struct grammar_place *p;

    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    if (!grammar_take_text(p, STR("Well: ")) || !grammar_take_text(p, answer) || !grammar_may_end(p))
        fail_msg("%s: not with auto: %.*s", parser, STR_ARG(answer));
    grammar_end(p);
}

/* One call at least, of this tool, written in `walks` ways; returns how many came to their end. */
static int walk_tool(const struct words *w, const char *parser, const json_t *tools, int walks, struct rng *r)
{
    const struct chat_tool_opts o = {
        .parser = parser, .vocab = w->v, .tools = tools, .choice = "required", .one = rng_below(r, 2) == 0
    };
    struct chat_tool_opts as_auto = o;
    struct grammar *g = NULL, *beside = NULL;
    struct err e = { 0 };
    int done = 0;

    as_auto.choice = "auto";
    as_auto.vocab = NULL;
    if (chat_tool_grammar(&g, &o, &e) != ERR_OK || chat_tool_grammar(&beside, &as_auto, &e) != ERR_OK) {
        char *text = json_dumps(tools, 0);
        fail_msg("%s: %s: %s", parser, e.msg, text);
    }
    for (int i = 0; i < walks; i++) {
        struct text_buf b = { 0 };

        if (walk(&b, w, g, r)) {
            check_calls(parser, tools, (struct str){ b.p, b.n });
            if (chat_parse_syntax(parser)->written->start == NULL)
                check_auto(beside, parser, (struct str){ b.p, b.n });
            done++;
        }
        free(b.p);
    }
    grammar_close(beside);
    grammar_close(g);
    return done;
}

/* ---- schemas ---- */

static const char *const params[] = {
    "{'type':'string'}",
    "{'type':'string','maxLength':3}",
    "{'type':'string','minLength':2,'maxLength':5}",
    "{'type':'string','pattern':'^[a-z]{1,3}(-[0-9]+)?$'}",
    "{'type':'string','pattern':'b'}",
    "{'type':'string','format':'date'}",
    "{'type':'string','enum':['a b','</parameter>','<x>','null']}",
    "{'const':'on'}",
    "{'const':'12'}",
    "{'enum':['a',1,null,true,'2',2.5]}",
    "{'anyOf':[{'type':'string'},{'type':'null'}]}",
    "{'type':['string','null'],'maxLength':2}",
    "{'anyOf':[{'type':'string','maxLength':4},{'type':'integer','minimum':5,'maximum':20}]}",
    "{'oneOf':[{'type':'string','minLength':2},{'type':'boolean'}]}",
    "{'type':['string','array'],'items':{'type':'integer'},'maxItems':2}",
    "{'type':['string','number'],'pattern':'^[0-9a-f]+$'}",
    "{'type':'integer','minimum':-3,'maximum':30}",
    "{'type':'number','exclusiveMinimum':0,'maximum':9.5}",
    "{'type':'boolean'}",
    "{'type':'null'}",
    "{'type':'array','items':{'type':'string','maxLength':3},'maxItems':2}",
    "{'type':'object','properties':{'k':{'type':'string','maxLength':4}},'required':['k']}",
    "{'type':'object','additionalProperties':{'type':'integer','maximum':9,'minimum':0}}",
    "{'allOf':[{'type':'string'},{'maxLength':4},{'minLength':1}]}",
    "{'$ref':'#/$defs/d'}",
    "{'minLength':2,'maxLength':3}",
    "{'minLength':3,'maxLength':300,'type':['string','null']}",
    "{'maximum':3,'maxLength':2,'maxItems':1,'items':{'type':'null'}}",
    "true",
};
enum { N_PARAMS = sizeof params / sizeof *params };

static json_t *quoted(const char *single)
{
    char text[600];

    snprintf(text, sizeof text, "%s", single);
    for (char *p = text; *p != '\0'; p++)
        if (*p == '\'')
            *p = '"';
    return json_of(text);
}

/* Parameters of a few properties, and keywords of all of them. */
static json_t *random_parameters(struct rng *r)
{
    static const char *const keys[] = { "s", "t_2", "u", "w" };
    static const char *const beside[] = {
        "{'additionalProperties':false}",
        "{'additionalProperties':{'type':['string','null'],'maxLength':2},'propertyNames':{'pattern':'^[a-z]{1,3}$'}}",
        "{'patternProperties':{'^x':{'type':'string','maxLength':2}}}",
        "{'minProperties':2}",
        "{'maxProperties':1}",
        "{'dependentRequired':{'s':['t_2']}}",
        "{'anyOf':[{'required':['s']},{'required':['u']}]}",
        "{'allOf':[{'properties':{'s':{'type':'string','maxLength':2}}}]}",
        "{}",
    };
    json_t *root = quoted(beside[rng_below(r, sizeof beside / sizeof *beside)]), *properties = json_object();
    json_t *required = json_array();

    json_object_set_new(root, "type", json_string("object"));
    json_object_set_new(root, "$defs", json_of("{\"d\":{\"type\":[\"string\",\"boolean\"],\"minLength\":1}}"));
    for (size_t i = 0; i < 4; i++) {
        json_object_set_new(properties, keys[i], quoted(params[rng_below(r, N_PARAMS)]));
        if (rng_below(r, 4) == 0 && json_object_get(root, "maxProperties") == NULL)
            json_array_append_new(required, json_string(keys[i]));
    }
    json_object_set_new(root, "properties", properties);
    json_object_set_new(root, "required", required);
    return root;
}

/* A schema that nothing satisfies is no case. */
static bool can_be(const json_t *root)
{
    struct grammar *g = NULL;
    struct err e = { 0 };
    const bool can = grammar_open_schema(&g, NULL, root, &e) == ERR_OK;

    grammar_close(g);
    return can;
}

/* Each kind of parameter in each syntax, and mixtures of them. */
static void test_walks(void **state)
{
    const char *more = getenv("CHIMERE_WALKS"); /* by hand: as many rounds */
    const int rounds = more != NULL ? atoi(more) : 1;
    struct rng r = { .s = 7 };
    struct words w;
    const char *parser;
    int walks = 0, done = 0;

    (void)state;
    open_words(&w);
    for (int k = 0; k < rounds; k++)
        for (int i = 0; (parser = chat_reader_name(i)) != NULL; i++) {
            json_t *root, *tools;

            if (!has_calls(parser))
                continue;
            do {
                root = random_parameters(&r);
                if (!can_be(root)) {
                    json_decref(root);
                    root = NULL;
                }
            } while (root == NULL);
            tools = tool_of("f", root);
            done += walk_tool(&w, parser, tools, 2, &r);
            walks += 2;
            json_decref(tools);
        }
    print_message("%d of %d walks came to their end\n", done, walks);
    assert_true(done > walks / 2);
    grammar_vocab_close(w.v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
