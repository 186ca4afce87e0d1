/* SPDX-License-Identifier: Apache-2.0 */
/* grammar.c - what a mask costs: five grammars, a text of each, walked token by token.
 *
 *   grammar N VOCAB.gguf ...         one line for each grammar; N tokens: those of the files and,
 * where they are fewer, words made of two of them; N 0: as they are grammar --pieces N VOCAB.gguf
 * the tokens in hexadecimal, for bench/grammar.py grammar --grammars               the grammars and
 * texts as JSON
 *
 * The text is taken in the longest tokens that the masks allow. Each place is measured five times
 * and the shortest counts, so that other work on the machine does not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "gguf/gguf.h"
#include "grammar/tables.h"
#include "text/text.h"

enum { PIECES_MAX = 1 << 20, PLACES_MAX = 4096, TIMES = 5 };

static const struct {
    const char *name, *kind, *grammar, *text;
} cases[] = {
    { "any JSON", "schema", "true",
      "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"works\": [\"Notes on the Analytical Engine\", "
      "\"A paper, with \\\"notes\\\" longer than the text itself\"], \"alive\": false, \"links\": "
      "{\"first\": \"https://example.org/a/b?c=d\", \"score\": -12.5e3, \"nothing\": null, "
      "\"list\": [[1, 2], [3, [4, 5]], {}]}}" },
    { "JSON in GBNF", "gbnf",
      "root   ::= object\n"
      "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
      "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
      "array  ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
      "string ::= \"\\\"\" ([^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt/] | \"u\" "
      "[0-9a-fA-F]{4}))* \"\\\"\" ws\n"
      "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)? ws\n"
      "ws     ::= | \" \" | \"\\n\" [ \\t]{0,20}\n",
      "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"works\": [\"Notes on the Analytical Engine\", "
      "\"A paper, with \\\"notes\\\" longer than the text itself\"], \"alive\": false, \"list\": "
      "[[1, 2], [3, [4, 5]], {}]}" },
    { "record", "schema",
      "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":1},\"name\":"
      "{\"type\":\"string\",\"minLength\":1,\"maxLength\":64},\"day\":{\"type\":\"string\","
      "\"format\":"
      "\"date\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"red\",\"green\",\"blue\"]},"
      "\"maxItems\":5},\"pos\":{\"type\":\"object\",\"properties\":{\"lat\":{\"type\":\"number\"},"
      "\"lon\":{\"type\":\"number\"}},\"required\":[\"lat\",\"lon\"],\"additionalProperties\":false}"
      ","
      "\"note\":{\"type\":\"string\"}},\"required\":[\"id\",\"name\",\"tags\"],"
      "\"additionalProperties\":false}",
      "{\"id\": 4711, \"name\": \"Grace Hopper of the Navy\", \"day\": \"1947-09-09\", \"tags\": "
      "[\"red\", \"blue\"], \"pos\": {\"lat\": 40.7128, \"lon\": -74.006}, \"note\": \"She found a "
      "moth in the relay, and taped it into the log book: \\\"first actual case\\\".\"}" },
    { "three tools", "schema",
      "{\"anyOf\":[{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"search\"},"
      "\"arguments\":"
      "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\"},\"limit\":{\"type\":"
      "\"integer\",\"minimum\":1,\"maximum\":100}},\"required\":[\"query\"],"
      "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"
      "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"name\":{\"const\":"
      "\"write_file\"},\"arguments\":{\"type\":\"object\",\"properties\":{\"path\":{\"type\":"
      "\"string\",\"pattern\":\"^[a-zA-Z0-9_./-]+$\"},\"text\":{\"type\":\"string\"}},\"required\":"
      "[\"path\",\"text\"],\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"
      "\"additionalProperties\":false},{\"type\":\"object\",\"properties\":{\"name\":{\"const\":"
      "\"now\"},\"arguments\":{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
      "},"
      "\"required\":[\"name\",\"arguments\"],\"additionalProperties\":false}]}",
      "{\"name\": \"write_file\", \"arguments\": {\"path\": \"src/main/hello_world.c\", \"text\": "
      "\"#include <stdio.h>\\n\\nint main(void)\\n{\\n    puts(\\\"hello\\\");\\n    return "
      "0;\\n}\"}}" },
    { "expression", "regex", "([A-Z][a-z]+ ){2,8}- [0-9]{4}-[0-9]{2}-[0-9]{2}: [^\\n]+",
      "The Quick Brown Fox - 2026-11-26: jumps over the lazy dog, as it always does, and then some" },
};
enum { N_CASES = sizeof cases / sizeof *cases };

static double now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

struct pieces {
    struct str *v;
    uint8_t *kind;
    int32_t n;
};

static void add(struct pieces *p, struct str s, uint8_t kind)
{
    char *copy = malloc(s.n + 1);

    if (copy == NULL || p->n == PIECES_MAX)
        die("too many tokens");
    memcpy(copy, s.p, s.n);
    p->kind[p->n] = kind;
    p->v[p->n++] = (struct str){ copy, s.n };
}

static bool is_word(struct str s)
{
    for (size_t i = 1; i < s.n; i++)
        if (s.p[i] < 'a' || s.p[i] > 'z')
            return false;
    return s.n >= 4 && s.n <= 8 && (s.p[0] == ' ' || (s.p[0] >= 'a' && s.p[0] <= 'z'));
}

static struct pieces read_pieces(int32_t n, char **files)
{
    struct pieces p = { calloc(PIECES_MAX, sizeof *p.v), calloc(PIECES_MAX, 1), 0 };
    uint64_t seed = 1;
    int32_t own;

    for (; *files != NULL; files++) {
        struct gguf *g;
        struct text *t;
        struct err e;

        if (gguf_open(&g, *files, &e) != ERR_OK || text_open(&t, g, &e) != ERR_OK)
            die(e.msg);
        for (int32_t i = 0; i < text_info(t)->n_tokens; i++)
            add(&p, text_piece(t, i),
                text_is_end(t, i)       ? GRAMMAR_TOKEN_END
                : text_is_control(t, i) ? GRAMMAR_TOKEN_CONTROL
                                        : GRAMMAR_TOKEN);
        text_close(t);
        gguf_close(g);
    }
    own = p.n;
    while (p.n < n) {
        char both[32];
        struct str a, b;

        seed = seed * 6364136223846793005U + 1442695040888963407U;
        a = p.v[(seed >> 40) % (uint64_t)own];
        b = p.v[(seed >> 16 & 0xFFFFFF) % (uint64_t)own];
        if (!is_word(a) || !is_word(b) || b.p[0] == ' ')
            continue;
        memcpy(both, a.p, a.n);
        memcpy(both + a.n, b.p, b.n);
        add(&p, (struct str){ both, a.n + b.n }, GRAMMAR_TOKEN);
    }
    if (n > 0)
        p.n = n;
    return p;
}

static enum err_code open_case(struct grammar **g, const struct grammar_vocab *v, int i, struct err *e)
{
    struct str s = str_of(cases[i].grammar);
    json_t *schema;
    enum err_code rc;

    if (strcmp(cases[i].kind, "gbnf") == 0)
        return grammar_open_gbnf(g, v, s, e);
    if (strcmp(cases[i].kind, "regex") == 0)
        return grammar_open_regex(g, v, s, e);
    if (json_parse(&schema, s, "schema", e) != ERR_OK)
        return e->code;
    rc = grammar_open_schema(g, v, schema, e);
    json_decref(schema);
    return rc;
}

/* The longest token of the mask that the text goes on with. */
static int32_t longest(const struct grammar_vocab *v, const uint32_t *mask, const char *text)
{
    int32_t best = -1;
    size_t n = 0;

    for (int32_t t = 0; t < v->n_tokens; t++)
        if ((mask[t / 32] >> t % 32 & 1) != 0 && v->piece[t].n > n &&
            strncmp(text, v->piece[t].p, v->piece[t].n) == 0) {
            best = t;
            n = v->piece[t].n;
        }
    return best;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void measure(const struct grammar_vocab *v, int i)
{
    static double us[PLACES_MAX];
    uint32_t *mask = malloc((size_t)v->n_words * sizeof *mask);
    const char *text = cases[i].text;
    struct grammar *g = NULL;
    struct grammar_place *p;
    struct err e;
    double open_ms = 1e9, sum = 0;
    int n = 0;

    for (int k = 0; k < TIMES; k++) {
        double from = now_us();

        grammar_close(g);
        if (open_case(&g, v, i, &e) != ERR_OK)
            die(e.msg);
        open_ms = (now_us() - from) / 1e3 < open_ms ? (now_us() - from) / 1e3 : open_ms;
    }
    if (mask == NULL || grammar_begin(&p, g, &e) != ERR_OK)
        die("out of memory");
    for (;;) {
        int32_t token;

        us[n] = 1e9;
        for (int k = 0; k < TIMES; k++) {
            double from = now_us(), took;

            grammar_mask(p, mask);
            took = now_us() - from;
            us[n] = took < us[n] ? took : us[n];
        }
        sum += us[n++];
        if (*text == '\0' || n == PLACES_MAX)
            break;
        token = longest(v, mask, text);
        if (token < 0 || !grammar_take(p, token))
            die("the text does not fit");
        text += v->piece[token].n;
    }
    qsort(us, (size_t)n, sizeof *us, by_size);
    printf("%-13s %7d tokens  open %6.1f ms  %5u states  masks %3d: mean %5.1f  median %5.1f  "
           "worst %6.1f us\n",
           cases[i].name, (int)v->n_tokens, open_ms, (unsigned)g->n, n, sum / n, us[n / 2], us[n - 1]);
    grammar_end(p);
    grammar_close(g);
    free(mask);
}

int main(int argc, char **argv)
{
    bool pieces = argc > 1 && strcmp(argv[1], "--pieces") == 0;
    struct grammar_vocab *v;
    struct pieces p;
    struct err e;

    if (argc == 2 && strcmp(argv[1], "--grammars") == 0) {
        for (int i = 0; i < N_CASES; i++) {
            json_t *o = json_pack("{ssssssss}", "name", cases[i].name, "kind", cases[i].kind, "grammar",
                                  cases[i].grammar, "text", cases[i].text);

            json_dumpf(o, stdout, JSON_COMPACT);
            putchar('\n');
            json_decref(o);
        }
        return 0;
    }
    if (argc < 3 + pieces)
        die("grammar [--pieces] N VOCAB.gguf ... | --grammars");
    p = read_pieces((int32_t)strtol(argv[1 + pieces], NULL, 10), argv + 2 + pieces);
    for (int32_t i = 0; pieces && i < p.n; i++) {
        printf("%d ", p.kind[i]);
        for (size_t k = 0; k < p.v[i].n; k++)
            printf("%02x", (unsigned char)p.v[i].p[k]);
        putchar('\n');
    }
    if (pieces)
        return 0;
    if (grammar_vocab_make(&v, p.v, p.kind, p.n, &e) != ERR_OK)
        die(e.msg);
    for (int i = 0; i < N_CASES; i++)
        measure(v, i);
    grammar_vocab_close(v);
    return 0;
}
