/* SPDX-License-Identifier: Apache-2.0 */
/* memo_test.c - texts that begin like earlier ones have the tokens that they have without a memo. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/rng.h"
#include "gguf/gguf.h"
#include "text/text.h"

enum { TEXTS = 40, BYTES = 30000, STEPS = 300 };

struct said {
    char p[BYTES];
    unsigned char mark[BYTES];
    size_t n;
};

static uint32_t draw(uint32_t n)
{
    static uint64_t at;
    uint32_t block[4];

    rng_block(block, 11, at++, 0);
    return block[0] % n;
}

/* Words, blanks, special tokens and beginnings of them, marked and not. */
static void add(struct said *s, const struct text *t)
{
    static const char *const piece[] = { "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|im_",
                                         "|>",           " ",          "\n\n",    "  ",       "the kernel",
                                         " memory of",   "\xc3\xa9",   "\xff",    "<",        "<|endoftext|>" };
    const struct str own = text_piece(t, (int32_t)draw((uint32_t)text_info(t)->n_tokens));
    const struct str x = draw(4) == 0 ? own : str_of(piece[draw(sizeof piece / sizeof *piece)]);
    const int mark = draw(8) > 0;

    if (s->n + x.n > BYTES)
        return;
    memcpy(s->p + s->n, x.p, x.n);
    memset(s->mark + s->n, mark, x.n);
    s->n += x.n;
}

static void change(struct said *s, const struct text *t)
{
    const uint32_t how = draw(8);

    if (how == 0 && s->n > 0)
        s->p[draw((uint32_t)s->n)] ^= 1;
    else if (how == 1 && s->n > 0)
        s->mark[draw((uint32_t)s->n)] ^= 1;
    else if (how == 2)
        s->n -= draw((uint32_t)s->n / 4 + 1);
    else
        for (uint32_t i = draw(60); i > 0; i--)
            add(s, t);
}

static void check(const char *file)
{
    struct said *said = calloc(TEXTS, sizeof *said);
    struct text_memo *memo = NULL;
    struct gguf *g = NULL;
    struct text *t = NULL;
    struct err e;

    assert_non_null(said);
    if (gguf_open(&g, file, &e) || text_open(&t, g, &e) || text_memo_open(&memo, &e))
        fail_msg("%s", e.msg);
    gguf_close(g);
    for (int i = 0; i < TEXTS; i++)
        while (said[i].n < 5000 + 400 * (size_t)i)
            add(&said[i], t);
    for (int step = 0; step < STEPS; step++) {
        struct said *s = &said[draw(TEXTS)];
        struct text_tokens with = { 0 }, without = { 0 };

        if (draw(20) == 0)
            *s = said[draw(TEXTS)];
        change(s, t);
        assert_int_equal(text_encode_marked(t, (struct str){ s->p, s->n }, s->mark, memo, &with, &e), ERR_OK);
        assert_int_equal(text_encode_marked(t, (struct str){ s->p, s->n }, s->mark, NULL, &without, &e), ERR_OK);
        assert_int_equal(with.n, without.n);
        assert_memory_equal(with.v, without.v, (size_t)with.n * sizeof *with.v);
        text_tokens_free(&with);
        text_tokens_free(&without);
    }
    text_memo_close(memo);
    text_close(t);
    free(said);
}

static void test_same_tokens(void **state)
{
    (void)state;
    check("tests/golden/tokenizer/tiny-qwen35.gguf");
    check("share/models/chimere-nano-q5_k_m.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_same_tokens) };

    return cmocka_run_group_tests_name("memo", tests, NULL, NULL);
}
