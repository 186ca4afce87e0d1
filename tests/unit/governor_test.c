/* SPDX-License-Identifier: Apache-2.0 */
/* governor_test.c - when reasoning ends: the governor, fed with tokens as the engine would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "chat/chat.h"
#include "gguf/gguf.h"
#include "reason/reason.h"
#include "text/marks.h"
#include "text/text.h"

#define MODEL "tests/golden/models/qwen35moe-a.gguf"

static void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

static struct gguf *file;
static struct text *text;
static struct text_marks marks;
static int32_t mark; /* what the closing text has behind its newline */

static int open_text(void **state)
{
    struct err e = { 0 };

    (void)state;
    must(gguf_open(&file, MODEL, &e), &e);
    must(text_open(&text, file, &e), &e);
    must(chat_marks_of(&marks, "hermes", text, &e), &e);
    marks.call[0] = STR("<call>");
    marks.call_end = STR("</call>");
    for (int i = 0; i < marks.n_over; i++)
        if (text_piece(text, marks.over[i]).p[0] != '\n') {
            mark = marks.over[i];
            break;
        }
    return 0;
}

static int close_text(void **state)
{
    (void)state;
    text_close(text);
    gguf_close(file);
    return 0;
}

/* What came of an answer that began in its reasoning. */
struct said {
    int64_t after; /* tokens of the model before something was said; -1: nothing was */
    enum gen_why why;
    char text[256];
    size_t n;
    int64_t n_tokens; /* said */
    void *g;          /* still open */
};

static void *begin(struct reason_opts o, int64_t ctx, struct gen_order *first)
{
    const struct gen_start at = { .reasoning = true, .n_prompt = 10, .ctx = ctx };
    struct err e = { 0 };
    void *g;

    o.text = text;
    o.marks = &marks;
    *first = (struct gen_order){ .act = GEN_GO_ON };
    must(reason_check(&o, &e), &e);
    must(reason_governor.begin(&g, &o, &at, first, &e), &e);
    return g;
}

static void say(struct said *s, const struct gen_order *o)
{
    for (int i = 0; i < o->n_token; i++) {
        const struct str piece = text_piece(text, o->token[i]);
        const bool closes = o->token[i] == mark;
        const struct gen_seen seen = { .token = o->token[i], .said = true, .reasoning = true, .closes = closes };

        memcpy(s->text + s->n, piece.p, piece.n);
        s->n += piece.n;
        assert_int_equal(reason_governor.see(s->g, &seen).act, GEN_GO_ON);
        if (closes)
            break;
    }
    s->text[s->n] = '\0';
    s->n_tokens = o->n_token;
    s->why = o->why;
}

/* The model writes these bytes, each a token, until something is said. */
static struct said think(struct reason_opts o, int64_t ctx, const char *bytes)
{
    struct said s = { .after = -1 };
    struct gen_order order;

    s.g = begin(o, ctx, &order);
    for (const char *p = bytes; *p != '\0' && s.after < 0; p++) {
        int32_t token = -1;

        for (int32_t i = 0; i < text_info(text)->n_tokens && token < 0; i++)
            token = text_piece(text, i).n == 1 && text_piece(text, i).p[0] == *p ? i : -1;
        assert_true(token >= 0);
        for (int i = 0; i < order.n_shun; i++) /* the engine would not choose it */
            if (order.shun[i] == token)
                token = text_find(text, "x");
        const struct gen_seen seen = { .token = token, .reasoning = true };

        order = reason_governor.see(s.g, &seen);
        if (order.act == GEN_SAY) {
            s.after = p + 1 - bytes;
            say(&s, &order);
        }
    }
    return s;
}

static void ends(struct reason_opts o, const char *bytes, int64_t after, enum gen_why why, const char *closing)
{
    struct said s = think(o, 4096, bytes);

    if (s.after != after || (after >= 0 && (s.why != why || strcmp(s.text, closing) != 0)))
        fail_msg("'%s': after %lld: '%s'", bytes, (long long)s.after, s.text);
    reason_governor.end(s.g);
}

static struct reason_opts budget_of(int64_t budget, int64_t grace)
{
    struct reason_opts o = reason_defaults();

    o.budget_tokens = budget;
    o.grace_tokens = grace;
    return o;
}

static void closes_at_the_end_of_a_line(void **state)
{
    struct reason_opts o = budget_of(4, 3);

    (void)state;
    ends(o, "abcdefghi", 7, GEN_WHY_BUDGET, "\n</think>");
    ends(o, "abcde\nfghi", 6, GEN_WHY_BUDGET, "</think>"); /* no second newline */
    ends(o, "abc.defghi", 4, GEN_WHY_BUDGET, "\n</think>");
    ends(o, "abc", -1, GEN_WHY_OFF, "");
    o.message = STR("Enough.");
    ends(o, "abcdefghi", 7, GEN_WHY_BUDGET, "\nEnough.\n</think>");
    ends(o, "ab\nc\nefghi", 5, GEN_WHY_BUDGET, "Enough.\n</think>");
    o.message = STR("Enough.\n");
    ends(o, "abcdefghi", 7, GEN_WHY_BUDGET, "\nEnough.\n</think>");
    /* an eighth, at most 64: here none, and 2 */
    ends(budget_of(7, -1), "abcdefg", 7, GEN_WHY_BUDGET, "\n</think>");
    ends(budget_of(16, -1), "abcdefghijklmnopqrstuvw", 18, GEN_WHY_BUDGET, "\n</think>");
    o = budget_of(32, -1);
    o.effort = REASON_EFFORT_LOW;
    ends(o, "abcdefghi", 4, GEN_WHY_BUDGET, "\n</think>");
}

/* A character of four bytes is not begun where it could not be ended; the sentence's end of three is seen. */
static void closes_between_characters(void **state)
{
    const char *wide = "ab\xf0\x9f\x98\x80z", *stop = "ab\xe3\x80\x82xyz";

    (void)state;
    ends(budget_of(6, 0), wide, 6, GEN_WHY_BUDGET, "\n</think>");
    ends(budget_of(3, 3), stop, 5, GEN_WHY_BUDGET, "\n</think>");
    for (int n = 3; n < 6; n++) { /* the first byte is replaced, and so are the others */
        struct said s = think(budget_of(n, 0), 4096, wide);

        assert_int_equal(s.after, n);
        reason_governor.end(s.g);
    }
}

static void waits_for_a_call(void **state)
{
    char all[1200];

    (void)state;
    ends(budget_of(8, 0), "a<call>bc</call>d", 16, GEN_WHY_BUDGET, "\n</think>");
    (void)snprintf(all, sizeof all, "<call>");
    all[sizeof all - 1] = '\0';
    for (size_t i = 6; i < sizeof all - 1; i++) /* nothing that repeats itself */
        all[i] = (char)('a' + (i * i + i / 7) % 23);
    ends(budget_of(8, 0), all, 1030, GEN_WHY_BUDGET, "\n</think>");
}

static void ends_loops(void **state)
{
    struct reason_opts o = reason_defaults();
    char all[600];
    struct said s;

    (void)state;
    ends(o, "12abababababababababababababababababab", 34, GEN_WHY_LOOP, "\n</think>");
    o.loops = false;
    ends(o, "12abababababababababababababababababab", -1, GEN_WHY_OFF, "");
    /* a text */
    memset(all, 'b', sizeof all);
    o.loops = true;
    s = think(o, 4096, "x");
    for (int i = 0; i < 300; i++) {
        const struct gen_seen seen = { .token = i < 20 ? i : 7 };
        const struct gen_order order = reason_governor.see(s.g, &seen);

        assert_int_equal(order.act, i < 20 + 255 ? GEN_GO_ON : GEN_STOP);
    }
    reason_governor.end(s.g);
}

static void mark_may_not_come(void **state)
{
    struct reason_opts o = reason_defaults();
    struct gen_order order;
    struct said s;
    void *g;

    (void)state;
    o.least_tokens = 3;
    for (int held = 0; held < 2; held++) { /* once the model's own end was held back, the next one counts */
        g = begin(o, 4096, &order);
        for (int i = 0; i < 4; i++) {
            const struct gen_seen seen = { .token = 5, .reasoning = true, .shunned = held && i == 1 };

            assert_int_equal(order.n_shun, i < (held ? 2 : 3));
            assert_true(order.n_shun == 0 || order.shun[0] == mark);
            order = reason_governor.see(g, &seen);
        }
        reason_governor.end(g);
    }
    s = think(budget_of(1, 0), 4096, "a");
    assert_int_equal(s.after, 1);
    for (int i = 0; i < 6; i++) { /* behind a closing text no second one comes at once */
        const struct gen_seen seen = { .token = 5 + i };

        order = reason_governor.see(s.g, &seen);
        assert_int_equal(order.n_shun, i < 3); /* of the token after the one that was seen */
    }
    reason_governor.end(s.g);
}

/* A share of a quarter of the context; an answer has a quarter of what the prompt leaves. */
static void leaves_room_for_the_answer(void **state)
{
    const struct {
        struct reason_opts o;
        int64_t ctx, budget;
    } v[] = { { { .budget_tokens = -1, .grace_tokens = -1, .effort = REASON_EFFORT_MEDIUM }, 800, 100 },
              { { .budget_tokens = 64, .grace_tokens = 0, .effort = REASON_EFFORT_MINIMAL }, 800, 4 },
              { { .budget_tokens = INT64_MAX, .grace_tokens = 0 }, 810, 800 - 200 - 2 * marks.n_over },
              { { .budget_tokens = INT64_MAX, .grace_tokens = 0 }, 100010, 100000 - 512 - 2 * marks.n_over },
              { { .budget_tokens = INT64_MAX, .grace_tokens = INT64_MAX }, 810, 1 } };

    (void)state;
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        struct gen_order first;
        struct gen_thought t;
        void *g = begin(v[i].o, v[i].ctx, &first);

        reason_governor.tell(g, &t);
        assert_int_equal(t.budget, v[i].budget);
        reason_governor.end(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closes_at_the_end_of_a_line),
        cmocka_unit_test(closes_between_characters),
        cmocka_unit_test(waits_for_a_call),
        cmocka_unit_test(ends_loops),
        cmocka_unit_test(mark_may_not_come),
        cmocka_unit_test(leaves_room_for_the_answer),
    };

    return cmocka_run_group_tests(tests, open_text, close_text);
}
