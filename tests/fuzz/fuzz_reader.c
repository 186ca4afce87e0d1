/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_reader.c - an answer, whole and in pieces, must be read the same. The first byte is the parser, the second
 * says whether there are tools and open reasoning, the third is the seed of the pieces; the rest is the answer. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include "chat/parse.h"
#include "fuzz/fuzz.h"

static const char schema[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": {\"s\": {\"type\": "
    "\"string\"},"
    " \"i\": {\"type\": \"integer\"}, \"b\": {\"type\": \"boolean\"}, \"l\": {\"type\": \"array\"},"
    " \"o\": {\"anyOf\": [{\"type\": \"object\"}, {\"$ref\": \"#/properties/o\"}, {\"type\": \"null\"}]}}}}}, "
    "{\"name\": \"g\"}]";

/* Pieces added up: each part's text must be what the reader has, and all of it valid. */
struct given {
    struct text_buf part[2], args; /* args: of the call that goes on */
    int n_calls, n_begun;
};

static void check_utf8(struct str s)
{
    for (size_t n; s.n > 0; s.p += n, s.n -= n) {
        n = str_utf8(s);
        assert(n > 0);
    }
}

static void take_call(struct given *g, const struct chat_piece *p)
{
    struct str text = p->text;

    g->n_begun += p->step == CHAT_CALL_BEGIN;
    assert(p->call == g->n_begun - 1 && p->name.n > 0);
    check_utf8(p->name);
    if (p->step == CHAT_CALL_MORE)
        text_buf_add(&g->args, text);
    if (p->step == CHAT_CALL_BEGIN || p->step == CHAT_CALL_MORE)
        return;
    struct text_buf again = { 0 };
    const bool ok = chat_parse_value(&again, &(struct str){ g->args.p, g->args.n }, 0);
    assert(ok == (p->step == CHAT_CALL_END));
    if (ok) {
        assert(text.p[0] == '{' && str_eq((struct str){ g->args.p, g->args.n }, text));
        assert(str_eq((struct str){ again.p, again.n }, text));
        g->n_calls++;
    }
    free(again.p);
    g->args.n = 0;
}

static void take(struct given *g, struct chat_reader *r, struct str s, bool end)
{
    const struct chat_piece *v;
    int n;
    enum err_code rc = chat_read(r, s, end, &v, &n, NULL);

    assert(rc == ERR_OK);
    for (int i = 0; i < n; i++) {
        check_utf8(v[i].text);
        if (v[i].part == CHAT_TOOL) {
            take_call(g, &v[i]);
            continue;
        }
        assert(v[i].text.n > 0);
        text_buf_add(&g->part[v[i].part], v[i].text);
    }
}

static bool same(const struct text_buf *a, const struct text_buf *b)
{
    return str_eq((struct str){ a->p, a->n }, (struct str){ b->p, b->n });
}

static struct chat_reader *read_in(const struct chat_reader_opts *o, struct str s, uint32_t seed)
{
    struct chat_reader *r = NULL;
    struct given g = { 0 };
    enum err_code rc = chat_reader_open(&r, o, NULL);

    assert(rc == ERR_OK);
    while (seed != 0 && s.n > 0) {
        seed = seed * 1664525U + 1013904223U;
        size_t n = 1 + (seed >> 24) % 7;
        n = n < s.n ? n : s.n;
        char *copy = malloc(n);
        assert(copy != NULL);
        memcpy(copy, s.p, n);
        take(&g, r, (struct str){ copy, n }, false);
        free(copy);
        s = (struct str){ s.p + n, s.n - n };
    }
    take(&g, r, s, true);
    assert(same(&g.part[0], &r->part[0].text) && same(&g.part[1], &r->part[1].text));
    assert(g.n_calls == chat_reader_calls(r));
    free(g.part[0].p);
    free(g.part[1].p);
    free(g.args.p);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    int n_parsers = 0;

    if (n < 3)
        return 0;
    while (chat_reader_name(n_parsers) != NULL)
        n_parsers++;
    json_t *tools = data[1] & 1 ? json_loads(schema, 0, NULL) : NULL;
    struct chat_reader_opts o = { chat_reader_name(data[0] % n_parsers), tools, (data[1] & 2) != 0, 0 };
    struct str s = { (const char *)data + 3, n - 3 };
    struct chat_reader *a = read_in(&o, s, 0), *b = read_in(&o, s, 1U + data[2]);
    assert(same(&a->part[0].text, &b->part[0].text) && same(&a->part[1].text, &b->part[1].text));
    assert(same(&a->words, &b->words) && a->n_given == b->n_given && a->cut == b->cut && same(&a->all, &b->all));
    for (int i = 0; i < chat_reader_calls(a); i++)
        assert(str_eq(chat_reader_call(a, i).raw, chat_reader_call(b, i).raw));
    chat_reader_close(a);
    chat_reader_close(b);
    json_decref(tools);
    return 0;
}
