/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_test.c - the room grammar: reference texts, masks against one token after another,
 * hostile input.
 *
 * A mask is checked against the slow way: every token of a vocabulary is taken and given back, and
 * is read byte by byte from a copy of the place, and both must say what the mask says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/io.h"
#include "gguf/gguf.h"
#include "grammar/grammar.h"
#include "grammar/tables.h"
#include "text/text.h"

enum kind { SCHEMA, REGEX, GBNF };

/* Xorshift (Marsaglia 2003): the same walks everywhere. */
struct rng {
    uint64_t s;
};

static uint64_t rng_u64(struct rng *r)
{
    r->s ^= r->s << 13;
    r->s ^= r->s >> 7;
    r->s ^= r->s << 17;
    return r->s * 0x2545F4914F6CDD1DU >> 16;
}

static enum err_code open_any(struct grammar **g, const struct grammar_vocab *v, enum kind kind, const char *text,
                              struct err *e)
{
    json_t *schema = NULL;
    enum err_code rc;

    if (kind == REGEX)
        return grammar_open_regex(g, v, str_of(text), e);
    if (kind == GBNF)
        return grammar_open_gbnf(g, v, str_of(text), e);
    assert_int_equal(json_parse(&schema, str_of(text), "schema", e), ERR_OK);
    rc = grammar_open_schema(g, v, schema, e);
    json_decref(schema);
    return rc;
}

static bool accepts(const struct grammar *g, struct str s)
{
    struct grammar_place *p;
    bool good;

    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    good = grammar_take_text(p, s) && grammar_may_end(p);
    grammar_end(p);
    return good;
}

struct counts {
    int files, cases, texts, refused, ascii, bad;
};

/* chimere-grammar(5): \d, \w and \s are those of ASCII. */
static bool ascii_only(const char *regex, struct str s)
{
    bool beyond = false;

    for (size_t i = 0; i < s.n; i++)
        beyond = beyond || (s.p[i] & 0x80) != 0;
    return beyond && regex != NULL &&
           (strstr(regex, "\\d") != NULL || strstr(regex, "\\w") != NULL || strstr(regex, "\\s") != NULL);
}

static void check_texts(struct counts *n, const struct grammar *g, const json_t *c, const char *key, const char *name,
                        bool want)
{
    const json_t *list = json_object_get(c, key);

    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *text = json_array_get(list, i);
        struct str s = json_text(text);

        n->texts++;
        if (accepts(g, s) == want)
            continue;
        if (want && ascii_only(json_string_value(json_object_get(c, "regex")), s)) {
            n->ascii++;
            continue;
        }
        n->bad++;
        print_error("%s: %s: %.*s\n", name, want ? "refused" : "accepted", STR_ARG(s));
    }
}

static void check_case(struct counts *n, const json_t *c)
{
    const json_t *regex = json_object_get(c, "regex"), *gbnf = json_object_get(c, "grammar"),
                 *schema = json_object_get(c, "schema");
    const char *name = json_string_value(regex != NULL ? regex : json_object_get(c, "name"));
    bool error = json_is_true(json_object_get(c, "error")), may = json_is_true(json_object_get(c, "unsupported"));
    struct grammar *g = NULL;
    struct err e = { 0 };
    enum err_code rc;

    n->cases++;
    if (schema != NULL)
        rc = grammar_open_schema(&g, NULL, schema, &e);
    else if (regex != NULL)
        rc = grammar_open_regex(&g, NULL, json_text(regex), &e);
    else
        rc = grammar_open_gbnf(&g, NULL, json_text(gbnf), &e);
    if (rc != ERR_OK) {
        assert_null(g);
        assert_true(e.msg[0] != '\0' && strchr(e.msg, '\n') == NULL && (schema == NULL || e.msg[0] == '#'));
        n->refused++;
        if (!error && !may) {
            n->bad++;
            print_error("%s: %s\n", name, e.msg);
        }
        return;
    }
    if (error) {
        n->bad++;
        print_error("%s: should have been refused\n", name);
    }
    check_texts(n, g, c, "accept", name, true);
    check_texts(n, g, c, "valid", name, true);
    check_texts(n, g, c, "reject", name, false);
    check_texts(n, g, c, "invalid", name, false);
    grammar_close(g);
}

static void check_file(struct counts *n, const char *dir, const char *file)
{
    char path[512], *data;
    size_t size;
    json_t *root, *c;
    size_t i;

    snprintf(path, sizeof path, "%s/grammar/%s", dir, file);
    assert_int_equal(io_read_all(&data, &size, path, 64U << 20, NULL, NULL), ERR_OK);
    assert_int_equal(json_parse(&root, (struct str){ data, size }, file, NULL), ERR_OK);
    n->files++;
    json_array_foreach (json_object_get(root, "cases"), i, c)
        check_case(n, c);
    json_decref(root);
    free(data);
}

static void check_dir(const char *dir)
{
    struct counts n = { 0 };

    check_file(&n, dir, "schema.json");
    check_file(&n, dir, "regex.json");
    check_file(&n, dir, "gbnf.json");
    print_message("%s: %d grammars (%d refused), %d texts, %d wrong, %d refused by the ASCII reading\n", dir, n.cases,
                  n.refused, n.texts, n.bad, n.ascii);
    assert_int_equal(n.bad, 0);
}

static void test_own_texts(void **state)
{
    (void)state;
    check_dir("tests/golden");
}

static void test_goldens(void **state)
{
    const char *dir = getenv("GOLDENS");

    (void)state;
    if (dir == NULL || *dir == '\0')
        skip();
    check_dir(dir);
}

/* Errors say where. */
static void test_messages(void **state)
{
    static const struct {
        enum kind kind;
        const char *text;
        enum err_code code;
        const char *begins, *where;
    } cases[] = {
        { GBNF, "root ::= \"a\"\nx ::= [z-a]\n", ERR_FORMAT, "line 2, column 8: a range", "2:8" },
        { GBNF, "root ::= \"é\" y z\nz ::= \"b\"", ERR_FORMAT, "line 1, column 14: this rule is not defined", "1:14" },
        { GBNF, "root ::= x\nx ::= y? x \"a\" | \"b\"\ny ::= \"c\"", ERR_FORMAT, "x: left recursion", "" },
        { GBNF, "root ::= x\nx ::= \"a\" x", ERR_FORMAT, "nothing can satisfy", "" },
        { GBNF, "root ::= <tool>", ERR_UNSUPPORTED, "line 1, column 10: ", "1:10" },
        { REGEX, "ab(c", ERR_FORMAT, "column 3: a group is not closed", "1:3" },
        { REGEX, "a**", ERR_FORMAT, "column 3: ", "1:3" },
        { REGEX, "a++", ERR_UNSUPPORTED, "column 3: ", "1:3" },
        { REGEX, "ab)", ERR_FORMAT, "column 3: ", "1:3" },
        { REGEX, "(a\\b)*", ERR_UNSUPPORTED, "", "" },
        { REGEX, "a^b", ERR_FORMAT, "nothing can satisfy", "" },
        { SCHEMA, "{\"properties\":{\"a/b\":{\"items\":[1]}}}", ERR_FORMAT,
          "#/properties/a~1b/items: ", "/properties/a~1b/items" },
        { SCHEMA, "{\"items\":{\"contains\":{}}}", ERR_UNSUPPORTED, "#/items/contains: ", "/items/contains" },
        { SCHEMA, "{\"allOf\":[{\"if\":true}]}", ERR_UNSUPPORTED, "#/allOf/0/if: ", "/allOf/0/if" },
        { SCHEMA, "{\"pattern\":\"a(\"}", ERR_FORMAT, "#/pattern: column 2: ", "/pattern" },
        { SCHEMA, "{\"oneOf\":[{\"type\":\"string\"},{\"minLength\":2}]}", ERR_UNSUPPORTED, "#/oneOf: ", "/oneOf" },
        { SCHEMA, "{\"$ref\":\"http://a/b\"}", ERR_UNSUPPORTED, "#/$ref: ", "/$ref" },
        { SCHEMA, "{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", ERR_FORMAT, "#: refers to itself", "" },
        { SCHEMA, "{\"type\":\"object\",\"required\":[1]}", ERR_FORMAT, "#/required: ", "/required" },
        /* Kinds of values, also where they say nothing of the type, or where nothing leads. */
        { SCHEMA, "{\"required\":\"a\"}", ERR_FORMAT, "#/required: not a list of names", "/required" },
        { SCHEMA, "{\"type\":\"string\",\"required\":\"a\"}", ERR_FORMAT, "#/required: ", "/required" },
        { SCHEMA, "{\"type\":\"string\",\"properties\":{\"a\":5}}", ERR_FORMAT, "#/properties/a: not a schema",
          "/properties/a" },
        { SCHEMA, "{\"type\":\"string\",\"maximum\":\"5\"}", ERR_FORMAT, "#/maximum: not a number", "/maximum" },
        { SCHEMA, "{\"type\":\"null\",\"maxItems\":-1}", ERR_FORMAT, "#/maxItems: not a whole", "/maxItems" },
        { SCHEMA, "{\"type\":\"null\",\"uniqueItems\":0}", ERR_FORMAT, "#/uniqueItems: neither", "/uniqueItems" },
        { SCHEMA, "{\"const\":1,\"enum\":1}", ERR_FORMAT, "#/enum: not a list", "/enum" },
        { SCHEMA, "{\"$defs\":{\"a\":{\"anyOf\":[{},{\"pattern\":1}]}}}", ERR_FORMAT,
          "#/$defs/a/anyOf/1/pattern: not a string", "/$defs/a/anyOf/1/pattern" },
        { SCHEMA, "{\"type\":\"null\",\"dependentRequired\":{\"a\":[\"b\"],\"c\":\"d\"}}", ERR_FORMAT,
          "#/dependentRequired/c: not a list of names", "/dependentRequired/c" },
        { SCHEMA, "{\"type\":\"null\",\"not\":[]}", ERR_FORMAT, "#/not: not a schema", "/not" },
        { SCHEMA, "{\"title\":{}}", ERR_FORMAT, "#/title: not a string", "/title" },
        { SCHEMA,
          "{\"$defs\":{\"d\":{\"$ref\":\"#/$defs/d\"}},"
          "\"anyOf\":[{\"enum\":[1]},{\"$ref\":\"#/$defs/d\"}]}",
          ERR_UNSUPPORTED, "#/anyOf/0/enum: ", "/anyOf/0/enum" },
        { SCHEMA, "{\"type\":\"object\",\"minProperties\":2}", ERR_UNSUPPORTED, "#/minProperties: ", "/minProperties" },
        { SCHEMA, "{\"enum\":[]}", ERR_FORMAT, "#: nothing can satisfy", "" },
        { SCHEMA, "{\"properties\":{\"a: b\":{\"$ref\":\"#/$defs/c~1d~0\"}},\"$defs\":{\"c/d~\":{\"pattern\":\"x(\"}}}",
          ERR_FORMAT, "#/$defs/c~1d~0/pattern: column 2: ", "/$defs/c~1d~0/pattern" },
        { SCHEMA, "{\"properties\":{\"a: b\":{\"type\":\"x\"}}}", ERR_FORMAT,
          "#/properties/a: b/type: ", "/properties/a: b/type" },
        { SCHEMA, "{\"items\":{\"format\":\"regex\"}}", ERR_UNSUPPORTED, "#/items/format: ", "/items/format" },
        { SCHEMA, "{\"multipleOf\":0}", ERR_FORMAT, "#/multipleOf: ", "/multipleOf" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct grammar *g = NULL;
        struct err e = { 0 };

        if (open_any(&g, NULL, cases[i].kind, cases[i].text, &e) != cases[i].code ||
            strncmp(e.msg, cases[i].begins, strlen(cases[i].begins)) != 0 || strcmp(e.where, cases[i].where) != 0)
            fail_msg("%s: %d: '%s' %s", cases[i].text, (int)e.code, e.where, e.msg);
        assert_null(g);
    }
}

/* Repeats s n times between two texts; malloc'ed. */
static char *repeated(const char *before, const char *s, size_t n, const char *after)
{
    size_t len = strlen(s);
    char *text = malloc(strlen(before) + n * len + strlen(after) + 1), *at = text;

    assert_non_null(text);
    at += sprintf(at, "%s", before);
    for (size_t i = 0; i < n; i++, at += len)
        memcpy(at, s, len);
    strcpy(at, after);
    return text;
}

/* What would grow without bound ends with ERR_LIMIT; what only looks so is taken. */
static void test_limits(void **state)
{
    static const struct {
        enum kind kind;
        const char *before, *s;
        size_t n;
        const char *after;
        enum err_code code;
    } cases[] = {
        { REGEX, "", "(", 100000, "", ERR_LIMIT },
        { REGEX, "", "(a?){1,1000}", 1, "{1,1000}{1,1000}", ERR_FORMAT },
        { REGEX, "(((a{1,1000}){1,1000}){1,1000}){1,1000}", "", 0, "", ERR_LIMIT },
        { REGEX, "[ab]*a[ab]{40}", "", 0, "", ERR_LIMIT },
        { REGEX, "a{1,1000000}", "", 0, "", ERR_LIMIT },
        { REGEX, "a{1,20000}", "", 0, "", ERR_OK },
        { REGEX, "", "(^a|", 100, "b", ERR_FORMAT },
        { REGEX, "(x+x+)+y", "", 0, "", ERR_OK },
        { REGEX, "", "(a*)*", 2000, "", ERR_OK },
        { GBNF, "root ::= ", "(", 100000, "", ERR_LIMIT },
        { GBNF, "root ::= \"a\"", "{2000}", 4, "", ERR_LIMIT },
        { GBNF, "root ::= [ab]* \"a\" [ab]{40}", "", 0, "", ERR_LIMIT },
        { GBNF,
          "root ::= a a a\na ::= b b b b\nb ::= c c c c\nc ::= d d d d\nd ::= e e e e\n"
          "e ::= f f f f\nf ::= h h h h\nh ::= i i i i\ni ::= j j j j\nj ::= [a-z]{100} | k\nk ::= "
          "\"k\" k \"l\"?| \"\"",
          "", 0, "", ERR_OK },
        { GBNF, "root ::= \"a\" | \"a\" root | \"a\" root root | \"a\" root root root", "", 0, "", ERR_OK },
        { SCHEMA, "{\"type\":\"string\",\"maxLength\":1000000}", "", 0, "", ERR_OK },
        { SCHEMA, "{\"type\":\"array\",\"minItems\":100000,\"items\":{\"type\":\"object\"}}", "", 0, "", ERR_OK },
        { SCHEMA, "{\"type\":\"string\",\"maxLength\":9007199254740992}", "", 0, "", ERR_OK },
        { SCHEMA, "{\"type\":\"string\",\"minLength\":100000000}", "", 0, "", ERR_LIMIT },
        { SCHEMA, "{\"type\":\"string\",\"pattern\":\"a.{0,100000}b\"}", "", 0, "", ERR_LIMIT },
        { SCHEMA, "{\"allOf\":[", "{\"anyOf\":[{\"minimum\":1},{\"maxLength\":3}]},", 20, "true]}", ERR_LIMIT },
        { SCHEMA, "{\"allOf\":[", "{\"minLength\":2},", 1000, "true]}", ERR_LIMIT },
        { SCHEMA, "{\"type\":\"object\",\"maxProperties\":1000}", "", 0, "", ERR_LIMIT },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = repeated(cases[i].before, cases[i].s, cases[i].n, cases[i].after);
        struct grammar *g = NULL;
        struct err e = { 0 };

        if (open_any(&g, NULL, cases[i].kind, text, &e) != cases[i].code)
            fail_msg("%.60s: %d: %s", text, (int)e.code, e.msg);
        grammar_close(g);
        free(text);
    }
}

static void check_one_list(struct grammar *g)
{
    static const char *const texts[] = { "\"v77\"", "\"v19999\"", "\"v20000\"", "\"v\"" };
    struct err e = { 0 };

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct grammar_place *p = NULL;

        assert_int_equal(grammar_begin(&p, g, &e), ERR_OK);
        assert_int_equal(grammar_take_text(p, str_of(texts[i])) && grammar_may_end(p), i < 2);
        grammar_end(p);
    }
}

/* Lists of many values: a list alone takes steps for each value, two that are compared for each pair. */
static void test_long_lists(void **state)
{
    enum { VALUES = 20000 };
    json_t *list = json_array(), *back = json_array();

    (void)state;
    for (int i = 0; i < VALUES; i++) {
        json_array_append_new(list, json_sprintf("v%d", i));
        json_array_append_new(back, json_sprintf("v%d", VALUES - 1 - i));
    }
    for (int two = 0; two < 2; two++) {
        json_t *s = json_pack("{s:[{s:O},{s:O}]}", "allOf", "enum", list, "enum", two ? back : list);
        struct grammar *g = NULL;
        struct err e = { 0 };

        assert_int_equal(grammar_open_schema(&g, NULL, s, &e), two ? ERR_LIMIT : ERR_OK);
        if (g != NULL)
            check_one_list(g);
        grammar_close(g);
        json_decref(s);
    }
    json_decref(list);
    json_decref(back);
}

/* Bytes, pieces that cross the parts of a grammar, control and end tokens. */
static struct grammar_vocab *make_vocab(void)
{
    static const char *const pieces[] = {
        "\"},{\"",  "\":",      "\": ", "\",",   "\", \"",    "{\"",          "{\"a\":",
        "[[",       "]]",       "[[[",  "]]]",   "},",        "}}",           "}}}",
        "\"}",      "\"]",      "1,",   "12",    "123",       "000",          "true",
        "false",    "null",     "e+",   ".5",    "-1",        "abc",          "abcd",
        " a",       "  ",       "    ", "\n",    "\n\n",      "\\n",          "\\u",
        "\\\"",     "00e9",     "d83d", "é",     "日本",      "🙂",         "\xF0\x9F",
        "\x99\x82", "\xE6\x97", "\xA5", "<tool", "_call>",    "<tool_call>{", "</tool_call>",
        "(a",       "a)",       "((",   "))",    "ab",        "ba",           "aaaa",
        "bbbb",     "a\"",      "\"a",  "name",  "arguments", "\",\"a",       "long plain text",
    };
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz    0123456789\"{}[]:,\\-.eE";
    enum { BYTES = 256, MADE = 1500 };
    size_t n_pieces = sizeof pieces / sizeof *pieces, n = 0;
    struct str piece[BYTES + MADE + 100];
    uint8_t kind[BYTES + MADE + 100] = { 0 };
    static char byte[BYTES], made[MADE][8];
    struct grammar_vocab *v;
    struct rng rng = { 7 };

    for (int i = 0; i < BYTES; i++) {
        byte[i] = (char)i;
        piece[n++] = (struct str){ &byte[i], 1 };
    }
    for (size_t i = 0; i < n_pieces; i++)
        piece[n++] = str_of(pieces[i]);
    for (int i = 0; i < MADE; i++) {
        size_t len = 2 + rng_u64(&rng) % 6;

        for (size_t k = 0; k < len; k++)
            made[i][k] = letters[rng_u64(&rng) % (sizeof letters - 1)];
        piece[n++] = (struct str){ made[i], len };
    }
    piece[n++] = STR("");
    kind[n] = GRAMMAR_TOKEN_CONTROL;
    piece[n++] = STR("<tool_call>");
    kind[n] = GRAMMAR_TOKEN_CONTROL;
    piece[n++] = STR("</tool_call>");
    kind[n] = GRAMMAR_TOKEN_CONTROL;
    piece[n++] = STR("<|start|>");
    kind[n] = GRAMMAR_TOKEN_END;
    piece[n++] = STR("<|end|>");
    assert_int_equal(grammar_vocab_make(&v, piece, kind, (int32_t)n, NULL), ERR_OK);
    return v;
}

static struct grammar_vocab *open_vocab(const char *path)
{
    struct gguf *g = NULL;
    struct text *t = NULL;
    struct grammar_vocab *v = NULL;
    struct err e = { 0 };

    if (gguf_open(&g, path, &e) != ERR_OK || text_open(&t, g, &e) != ERR_OK || grammar_vocab_open(&v, t, &e) != ERR_OK)
        fail_msg("%s", e.msg);
    text_close(t);
    gguf_close(g);
    return v;
}

/* Ordinary tokens, byte by byte, from a copy. */
static bool slowly(struct grammar_place *copy, const struct grammar_place *p, struct str s)
{
    grammar_copy(copy, p);
    for (size_t i = 0; i < s.n; i++)
        if (!grammar_take_text(copy, (struct str){ s.p + i, 1 }))
            return false;
    return true;
}

static bool bit(const uint32_t *mask, int32_t token)
{
    return (mask[token / 32] >> (token % 32) & 1) != 0;
}

/* Every token against the mask. */
static void check_mask(struct grammar_place *p, struct grammar_place *copy, const struct grammar_vocab *v,
                       uint32_t *mask, const char *name)
{
    int32_t n = grammar_mask(p, mask), counted = 0, only = -1;
    bool done = grammar_done(p), end = grammar_may_end(p), others = false;

    for (int32_t t = 0; t < v->n_tokens; t++) {
        bool takes = grammar_take(p, t);

        if (takes)
            grammar_back(p, 1);
        if (takes != bit(mask, t))
            fail_msg("%s: token %d \"%.*s\" is %d in the mask and %d when taken", name, (int)t, STR_ARG(v->piece[t]),
                     bit(mask, t), takes);
        if (v->kind[t] == GRAMMAR_TOKEN && v->piece[t].n > 0 && v->n_tokens < 4096)
            assert_int_equal(slowly(copy, p, v->piece[t]), takes);
        if (v->kind[t] == GRAMMAR_TOKEN_END)
            assert_int_equal(takes, end);
        else
            others = others || takes;
        counted += takes;
        only = takes ? t : only;
    }
    assert_int_equal(counted, n);
    assert_true(n > 0);
    assert_int_equal(done, !others);
    assert_int_equal(grammar_only(p), n == 1 ? only : -1);
    if (grammar_free(p))
        assert_int_equal(n, v->n_tokens);
}

static int32_t choose(const uint32_t *mask, const struct grammar_vocab *v, struct rng *rng, bool end)
{
    int32_t at = (int32_t)(rng_u64(rng) % (uint64_t)v->n_tokens);

    for (int32_t t = 0; end && t < v->n_tokens; t++)
        if (v->kind[t] == GRAMMAR_TOKEN_END && bit(mask, t))
            return t;
    for (int32_t i = 0; i < v->n_tokens; i++, at = (at + 1) % v->n_tokens)
        if (bit(mask, at))
            return at;
    return -1;
}

/* Random texts; now and then some tokens are given back and others taken. What ends is accepted. */
static void walk(const struct grammar *g, const struct grammar_vocab *v, const char *name, uint64_t seed, int steps,
                 int check_every)
{
    struct grammar_place *p, *copy;
    uint32_t *mask = calloc((size_t)v->n_words + 1, sizeof *mask);
    char text[8192];
    size_t len[512], n = 0;
    struct rng rng = { seed * 0x9E3779B97F4A7C15U + 99 };

    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    assert_int_equal(grammar_begin(&copy, g, NULL), ERR_OK);
    len[0] = 0;
    for (int i = 0; i < steps && n + 1 < 512; i++) {
        int32_t t;

        if (i % check_every == 0)
            check_mask(p, copy, v, mask, name);
        else
            assert_true(grammar_mask(p, mask) > 0);
        t = choose(mask, v, &rng, rng_u64(&rng) % 8 == 0);
        assert_true(t >= 0 && grammar_take(p, t));
        if (v->kind[t] == GRAMMAR_TOKEN_END) {
            assert_true(accepts(g, (struct str){ text, len[n] }));
            assert_true(grammar_done(p));
            for (int32_t k = 0; k < v->n_tokens; k += 7)
                assert_false(grammar_take(p, k));
            grammar_back(p, 1);
            continue;
        }
        assert_true(len[n] + v->piece[t].n < sizeof text);
        memcpy(text + len[n], v->piece[t].p, v->piece[t].n);
        len[n + 1] = len[n] + v->piece[t].n;
        n++;
        if (rng_u64(&rng) % 8 == 0) {
            size_t back = 1 + rng_u64(&rng) % (n < 20 ? n : 20);

            grammar_back(p, (int)back);
            n -= back;
        }
    }
    grammar_end(copy);
    grammar_end(p);
    free(mask);
}

static const struct {
    enum kind kind;
    const char *text;
} walked[] = {
    { SCHEMA, "true" },
    { SCHEMA, "{\"type\":\"string\"}" },
    { SCHEMA, "{\"type\":\"string\",\"minLength\":3,\"maxLength\":9}" },
    { SCHEMA, "{\"type\":\"string\",\"maxLength\":600}" },
    { SCHEMA, "{\"type\":\"string\",\"pattern\":\"^[a-z ]+$\"}" },
    { SCHEMA, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"abc\":{\"type\":"
              "\"string\"}},"
              "\"additionalProperties\":{\"type\":[\"number\",\"null\"]}}" },
    { SCHEMA, "{\"type\":\"array\",\"items\":{\"$ref\":\"#\"},\"maxItems\":3}" },
    { SCHEMA, "{\"type\":\"number\",\"minimum\":-1.5,\"exclusiveMaximum\":120}" },
    { SCHEMA, "{\"anyOf\":[{\"type\":\"array\"},{\"type\":\"object\"},{\"enum\":[\"a\",\"abc\",[1,{"
              "\"a\":2}]]}]}" },
    { REGEX, ".{0,40}" },
    { REGEX, "(a|b)*abb(a|b){3}" },
    { REGEX, "[^\"]*\"(?:[^\"\\\\]|\\\\.)*\"" },
    { GBNF, "root ::= \"(\" root \")\" root | \"a\"?" },
    { GBNF, "root ::= a | b\na ::= \"a\" root \"b\" | \"a\"\nb ::= \"a\" root \"a\" | \"b\"" },
    { GBNF, "root ::= \"a\" | \"a\" root root | \"b\" root" },
    { GBNF, "root ::= line+\nline ::= [^\\n]* \"\\n\"" },
    { GBNF, "root ::= v\nv ::= o | l | s | n\no ::= \"{\" (s \":\" v (\",\" s \":\" v)*)? \"}\"\nl "
            "::= \"[\" (v (\",\" v)*)? \"]\"\n"
            "s ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"\nn ::= [0-9]+" },
};

static void test_masks(void **state)
{
    struct grammar_vocab *v[2] = { make_vocab(), open_vocab("tests/golden/tokenizer/tiny-qwen35.gguf") };

    (void)state;
    for (size_t i = 0; i < sizeof walked / sizeof *walked; i++)
        for (int k = 0; k < 2; k++) {
            struct grammar *g = NULL;
            struct err e = { 0 };

            if (open_any(&g, v[k], walked[i].kind, walked[i].text, &e) != ERR_OK)
                fail_msg("%s: %s", walked[i].text, e.msg);
            for (uint64_t seed = 0; seed < 2; seed++)
                walk(g, v[k], walked[i].text, seed, 80, 8);
            grammar_close(g);
        }
    grammar_vocab_close(v[0]);
    grammar_vocab_close(v[1]);
}

/* Whatever is taken, the text is UTF-8 and can be ended: the shortest way from anywhere is found.
 */
static void test_ends(void **state)
{
    struct grammar_vocab *v = make_vocab();
    uint32_t *mask = calloc((size_t)v->n_words + 1, sizeof *mask);
    struct grammar *g;
    struct grammar_place *p;
    int32_t open = -1, close = -1;

    (void)state;
    assert_int_equal(open_any(&g, v, GBNF, "root ::= \"[\" root \"]\" | \"x\"", NULL), ERR_OK);
    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    for (int32_t t = 0; t < v->n_tokens; t++) {
        open = str_is(v->piece[t], "[[[") ? t : open;
        close = str_is(v->piece[t], "]]]") ? t : close;
    }
    for (int i = 0; i < GRAMMAR_DEPTH_MAX / 3; i++) {
        assert_int_equal(grammar_mask(p, mask) > 0, true);
        assert_true(bit(mask, open) && grammar_take(p, open));
    }
    assert_int_equal(grammar_mask(p, mask) > 0, true);
    assert_false(bit(mask, open) || grammar_take(p, open));
    assert_true(grammar_take_text(p, STR("[x]")));
    for (int i = 0; i < GRAMMAR_DEPTH_MAX / 3; i++) {
        assert_false(grammar_may_end(p));
        assert_true(grammar_take(p, close));
    }
    assert_true(grammar_may_end(p) && grammar_done(p));
    grammar_end(p);
    grammar_close(g);
    free(mask);
    grammar_vocab_close(v);
}

/* Bytes that no token has alone are left out; where nothing is left the grammar is refused. */
static void test_missing_bytes(void **state)
{
    const struct str piece[] = { STR("a"), STR("b"), STR("ac"), STR("") };
    static const uint8_t kind[] = { 0, 0, 0, GRAMMAR_TOKEN_END };
    struct grammar_vocab *v;
    struct grammar *g = NULL, *tagged = NULL;
    struct grammar_place *p;
    uint32_t mask[1];

    (void)state;
    assert_int_equal(grammar_vocab_make(&v, piece, kind, 4, NULL), ERR_OK);
    assert_int_equal(open_any(&g, v, REGEX, "ac", NULL), ERR_FORMAT);
    assert_int_equal(open_any(&g, v, REGEX, "a(c|b)*", NULL), ERR_OK);
    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    assert_int_equal(grammar_mask(p, mask), 1);
    assert_int_equal(mask[0], 1);
    assert_int_equal(grammar_only(p), 0);
    assert_true(grammar_take(p, 0));
    assert_int_equal(grammar_mask(p, mask), 2);
    assert_int_equal(mask[0], 2 | 8);
    grammar_end(p);
    grammar_close(g);
    /* In free text nothing is left out. */
    assert_int_equal(open_any(&g, v, REGEX, "a", NULL), ERR_OK);
    assert_int_equal(grammar_open_tagged(&tagged, g, STR("bb"), 0, STR("b"), NULL), ERR_OK);
    grammar_close(g);
    assert_int_equal(grammar_begin(&p, tagged, NULL), ERR_OK);
    assert_true(grammar_take(p, 2) && grammar_take(p, 1) && grammar_take(p, 1));
    assert_int_equal(grammar_mask(p, mask), 1);
    assert_true(grammar_take(p, 0) && grammar_take(p, 1) && grammar_take(p, 2));
    grammar_end(p);
    grammar_close(tagged);
    grammar_vocab_close(v);
}

static int32_t token(const struct grammar_vocab *v, const char *piece, uint8_t kind)
{
    for (int32_t t = 0; t < v->n_tokens; t++)
        if (v->kind[t] == kind && str_is(v->piece[t], piece))
            return t;
    fail_msg("no token %s", piece);
    return -1;
}

static void test_tagged(void **state)
{
    struct grammar_vocab *v = make_vocab();
    struct grammar *inner, *g;
    struct grammar_place *p;
    int32_t begin = token(v, "<tool_call>", GRAMMAR_TOKEN_CONTROL),
            end = token(v, "</tool_call>", GRAMMAR_TOKEN_CONTROL);

    (void)state;
    assert_int_equal(open_any(&inner, v, SCHEMA,
                              "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},"
                              "\"required\":[\"a\"]}",
                              NULL),
                     ERR_OK);
    assert_int_equal(grammar_open_tagged(&g, inner, STR(""), 0, STR("x"), NULL), ERR_ARG);
    assert_int_equal(grammar_open_tagged(&g, inner, STR("<tool_call>"), 0, STR("</tool_call>"), NULL), ERR_OK);
    grammar_close(inner);
    for (uint64_t seed = 0; seed < 4; seed++)
        walk(g, v, "tagged", seed, 60, 3);
    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    /* One token completes the mark and opens the object, so not all is free from the start. */
    assert_true(grammar_may_end(p));
    assert_true(grammar_take(p, token(v, "<|start|>", GRAMMAR_TOKEN_CONTROL)));
    assert_true(grammar_take(p, token(v, "<tool_call>{", GRAMMAR_TOKEN)));
    grammar_back(p, 1);
    assert_true(grammar_take(p, begin) && !grammar_may_end(p) && !grammar_take(p, begin));
    assert_false(grammar_take(p, token(v, "[[", GRAMMAR_TOKEN)));
    assert_true(grammar_take(p, token(v, "{\"a\":", GRAMMAR_TOKEN)));
    assert_false(grammar_take(p, token(v, "<|start|>", GRAMMAR_TOKEN_CONTROL)) || grammar_take(p, end));
    assert_true(grammar_take(p, token(v, "12", GRAMMAR_TOKEN)) && grammar_take_text(p, STR("}")));
    assert_false(grammar_may_end(p));
    assert_true(grammar_take(p, end) && grammar_may_end(p));
    assert_true(grammar_take_text(p, STR("free <tool_cal <tool_call>{\"a\": 0}</tool_call>\xFF")));
    grammar_end(p);
    grammar_close(g);
    grammar_vocab_close(v);
}

/* Free means free; an answer after reasoning ends with the inner grammar, and may begin with two line feeds. */
static void test_tagged_free(void **state)
{
    struct grammar_vocab *v = open_vocab("tests/golden/tokenizer/tiny-qwen35.gguf");
    struct grammar *inner, *g;
    struct grammar_place *p, *other;

    (void)state;
    assert_int_equal(open_any(&inner, v, REGEX, "yes|no", NULL), ERR_OK);
    assert_int_equal(grammar_open_tagged(&g, inner, STR("</think>"), GRAMMAR_LINES_THOUGHT, STR(""), NULL), ERR_OK);
    grammar_close(inner);
    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    assert_int_equal(grammar_begin(&other, g, NULL), ERR_OK);
    assert_true(grammar_free(p));
    walk(g, v, "after", 1, 40, 3);
    assert_true(grammar_take_text(p, STR("hm </thin")) && grammar_may_end(p));
    assert_true(grammar_take_text(p, STR("k></think></think>yes")) == false);
    assert_true(grammar_take_text(p, STR("k>")) && !grammar_free(p) && !grammar_may_end(p));
    grammar_copy(other, p);
    assert_false(grammar_take_text(other, STR("\n\n\n")) || grammar_take_text(other, STR(" yes")));
    assert_true(grammar_take_text(other, STR("\n")) && !grammar_may_end(other));
    assert_true(grammar_take_text(other, STR("\nno")) && grammar_may_end(other) && grammar_done(other));
    assert_true(grammar_take_text(p, STR("ye")) && !grammar_may_end(p));
    assert_true(grammar_take_text(p, STR("s")) && grammar_may_end(p) && grammar_done(p));
    grammar_end(p);
    grammar_end(other);
    grammar_close(g);
    grammar_vocab_close(v);
}

/* As many tokens as drafts need go back, and no more. */
static void test_back(void **state)
{
    struct grammar *g;
    struct grammar_place *p;

    (void)state;
    assert_int_equal(open_any(&g, NULL, REGEX, "a{100}b", NULL), ERR_OK);
    assert_int_equal(grammar_begin(&p, g, NULL), ERR_OK);
    for (int i = 0; i < 100; i++)
        assert_true(grammar_take_text(p, STR("a")));
    assert_true(!grammar_take_text(p, STR("a")) && grammar_take_text(p, STR("b")) && grammar_may_end(p));
    grammar_back(p, GRAMMAR_BACK_MAX);
    for (int i = 0; i < GRAMMAR_BACK_MAX - 1; i++)
        assert_true(grammar_take_text(p, STR("a")));
    assert_true(!grammar_take_text(p, STR("a")) && grammar_take_text(p, STR("b")));
    grammar_end(p);
    grammar_close(g);
}

/* Texts of millions of bytes and of nested brackets: the frames of a place are used again. */
static void test_long_texts(void **state)
{
    struct grammar *g;
    char *text = repeated("[", "[[[1],\"é\"],{\"a\":[]}],", 100000, "0]"), *deep = repeated("", "[", 1000, "");
    char *deeper = repeated("", "[", 100000, "");

    (void)state;
    assert_int_equal(open_any(&g, NULL, SCHEMA, "true", NULL), ERR_OK);
    assert_true(accepts(g, str_of(text)));
    text[strlen(text) - 2] = ']';
    assert_false(accepts(g, str_of(text)));
    assert_false(accepts(g, str_of(deep)) || accepts(g, str_of(deeper)));
    grammar_close(g);
    assert_int_equal(open_any(&g, NULL, GBNF, "root ::= \"a\" | \"a\" root root | \"a\" root \"a\"", NULL), ERR_OK);
    memset(deeper, 'a', 100000);
    assert_true(accepts(g, (struct str){ deeper, 2001 }));
    grammar_close(g);
    free(text);
    free(deep);
    free(deeper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_texts),   cmocka_unit_test(test_goldens),       cmocka_unit_test(test_messages),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_long_lists),    cmocka_unit_test(test_masks),
        cmocka_unit_test(test_ends),        cmocka_unit_test(test_missing_bytes), cmocka_unit_test(test_tagged),
        cmocka_unit_test(test_tagged_free), cmocka_unit_test(test_back),          cmocka_unit_test(test_long_texts),
    };

    return cmocka_run_group_tests_name("grammar", tests, NULL, NULL);
}
