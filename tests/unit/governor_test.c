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
static uint64_t seed;
static const char *found; /* what each probe finds: a digit is a token, as likely as it says in tenths, 0 for 1 */

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
    int n_probes;
    int64_t asked[16];      /* tokens of the model before each of them */
    struct gen_order probe; /* the last one */
    int n_shunned;          /* tokens that were not to come and would have */
};

static void *begin(struct reason_opts o, int64_t ctx, struct gen_order *first)
{
    const struct gen_start at = { .reasoning = true, .n_prompt = 10, .ctx = ctx, .n_vocab = 512, .seed = seed };
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

/* The result of a probe that is due. */
static struct gen_order hear(const struct said *s)
{
    const char digit = found[s->n_probes - 1];
    const float p = digit == '0' ? 1 : (float)(digit - '0') / 10;
    const struct gen_seen seen = { .token = digit, .p = p, .p_max = p, .entropy = 1 - p };

    return reason_governor.probed(s->g, &seen, digit != '-');
}

/* The model writes these bytes, each a token, until something is said. */
static struct said think(struct reason_opts o, int64_t ctx, const char *bytes)
{
    struct said s = { .after = -1 };
    struct gen_order order;
    const char *due = NULL; /* the token behind which a probe is heard of */

    s.g = begin(o, ctx, &order);
    for (const char *p = bytes; *p != '\0' && s.after < 0; p++) {
        int32_t token = -1;

        for (int32_t i = 0; i < text_info(text)->n_tokens && token < 0; i++)
            token = text_piece(text, i).n == 1 && text_piece(text, i).p[0] == *p ? i : -1;
        assert_true(token >= 0);
        for (int i = 0; i < order.n_shun; i++) /* the engine would not choose it */
            if (order.shun[i] == token) {
                token = text_find(text, "x");
                s.n_shunned++;
                break;
            }
        const struct gen_seen seen = { .token = token, .reasoning = true, .p_max = 0.5f, .entropy = 1 };

        order = reason_governor.see(s.g, &seen);
        if (order.act == GEN_PEEK || order.act == GEN_PROBE) {
            assert_true(s.n_probes < 16 && found[s.n_probes] != '\0');
            s.asked[s.n_probes++] = p + 1 - bytes;
            s.probe = order;
            due = p + order.lag;
        }
        if (p == due)
            order = hear(&s);
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

static struct reason_opts rule_of(const char *stop, const char *probe)
{
    struct reason_opts o = reason_defaults();
    struct err e = { 0 };

    must(reason_read_stop(&o, str_of(stop), &e), &e);
    if (*probe != '\0')
        must(reason_read_probe(&o, str_of(probe), &e), &e);
    return o;
}

/* Probes find what `probes` says, behind the tokens of `asked`. */
static void certain(struct reason_opts o, const char *probes, const char *bytes, const char *asked, int64_t after)
{
    struct said s;
    char at[64] = "";
    size_t n = 0;

    found = probes;
    s = think(o, 4096, bytes);
    for (int i = 0; i < s.n_probes; i++)
        n += (size_t)snprintf(at + n, sizeof at - n, "%s%d", i > 0 ? " " : "", (int)s.asked[i]);
    if (strcmp(at, asked) != 0 || s.after != after || (after >= 0 && s.why != GEN_WHY_CERTAINTY))
        fail_msg("'%s' with '%s': asked behind %s, said something behind %d", bytes, probes, at, (int)s.after);
    reason_governor.end(s.g);
}

static void closes_when_certain(void **state)
{
    struct reason_opts o = rule_of("cgr:0.9", "");
    struct said s;

    (void)state;
    /* a probe at the end of each line and sentence; with `every`, at that distance as well */
    certain(o, "59", "ab\ncd. fg", "3 6", 6);
    certain(o, "5-9", "a\nb\nc\nd\n", "2 4 6", 6); /* one of them did not fit */
    certain(rule_of("cgr:0.9", "every=2,after=4"), "569", "ab\ncdefghi", "4 6 8", 9);
    certain(rule_of("deer:0.7", ""), "67", "a\nb\nc\n", "2 4", 4);
    certain(rule_of("same:3", ""), "522332222", "a\nb\nc\nd\ne\nf\ng\nh\ni\n", "2 4 6 8 10 12 14 16", 16);
    certain(rule_of("cgr:1", ""), "99", "a\nb\n", "2 4", -1);
    /* what is found later counts later; until then nothing else is asked */
    certain(rule_of("cgr:0.9", "lag=3"), "59", "a\nb\nc\nd\nefgh", "2 6", 10);
    /* where no line ends it waits for one, an eighth of what was thought, or as long as it is told */
    certain(rule_of("cgr:0.9", "every=8"), "9", "abcdefghijklmno", "8", 9);
    certain(rule_of("cgr:0.9", "every=16"), "9", "0123456789abcdefg\nhi", "16", 18);
    o = rule_of("cgr:0.9", "every=4");
    o.grace_tokens = 3;
    certain(o, "9", "abcdefghijkl", "4", 7);
    certain(o, "9", "abcdef\nghijkl", "4", 7);
    /* a budget ends it earlier; what is asked is dropped */
    o = rule_of("cgr:0.9", "lag=9");
    o.budget_tokens = 4;
    o.grace_tokens = 0;
    found = "9";
    ends(o, "a\nbcdefghi", 4, GEN_WHY_BUDGET, "\n</think>");
    /* never before the least, nor within a character */
    o = rule_of("cgr:0.9", "every=1");
    o.least_tokens = 3;
    certain(o, "59", "abcd\nef", "3 4", 4);
    certain(rule_of("cgr:0.9", "every=1"), "559", "ab\xf0\x9f\x98\x80z", "1 2 6", 6);
    /* the order: the closing text and the stub */
    found = "5";
    s = think(rule_of("deer:0.9", "tokens=9,lag=2,stub=So"), 4096, "ab\ncd");
    assert_int_equal(s.probe.act, GEN_PROBE);
    assert_true(s.probe.n_probe == 9 && s.probe.lag == 2 && s.probe.token[0] == mark);
    assert_true(str_is(text_piece(text, s.probe.token[s.probe.n_token - 1]), "o"));
    assert_int_equal(reason_governor.needs(s.g).probe_tokens, s.probe.n_token + 1 + 9); /* with a newline before it */
    reason_governor.end(s.g);
    found = "0909000000";
    s = think(rule_of("eat:0.001", "every=2"), 4096, "abcdefghijklmnopqrst");
    assert_int_equal(s.probe.act, GEN_PEEK);
    assert_true(s.n_probes == 8 && s.after == 18 && s.why == GEN_WHY_CERTAINTY);
    assert_true(reason_governor.needs(s.g).peek_tokens == marks.n_over &&
                reason_peek_tokens(&(struct reason_opts){ 0 }) == 0);
    /* thinking that begins again is closed where it opens */
    const struct gen_seen opens = { .token = 5, .opens = true };
    const struct gen_order again = reason_governor.see(s.g, &opens);

    assert_true(again.act == GEN_SAY && again.why == GEN_WHY_CERTAINTY);
    reason_governor.end(s.g);
}

/* Words are left out as they are spelled, whatever their tokens are. */
static void leaves_words_out(void **state)
{
    static const struct str words[] = { { "wait", 4 }, { "ab", 2 } };
    static const char *const tails[] = { "", "x ", "W", "wAi", "x wai", "xwai", "a", "(a", "wa it" };
    struct reason_opts o = reason_defaults();
    struct reason_words *w;
    struct gen_thought t;
    struct said s;
    int n_all = 0, n_once[2];
    struct err e = { 0 };

    (void)state;
    must(reason_words_open(&w, text, words, 2, &e), &e);
    for (size_t k = 0; k < sizeof tails / sizeof *tails; k++) {
        const int32_t *token;
        const int n = reason_words_next(w, str_of(tails[k]), &token);

        for (int32_t id = 0; id < text_info(text)->n_tokens; id++) {
            const struct str piece = text_piece(text, id);
            char all[64] = "", last[64] = "";
            bool has = false;

            for (int i = 0; i < n; i++)
                has |= token[i] == id;
            if (text_is_control(text, id) || piece.n > 40)
                continue;
            (void)snprintf(all, sizeof all, "%s%.*s", tails[k], STR_ARG(piece));
            for (size_t i = 0, m = 0; all[i] != '\0'; i++) { /* the last word of it, with what is behind */
                const bool letter = (all[i] | 0x20) >= 'a' && (all[i] | 0x20) <= 'z';

                m = letter && i > 0 && !((all[i - 1] | 0x20) >= 'a' && (all[i - 1] | 0x20) <= 'z') ? 0 : m;
                if (letter)
                    last[m++] = (char)(all[i] | 0x20), last[m] = '\0';
            }
            const bool letters = reason_is_word(piece, words, 2) || reason_is_word(str_of(last), words, 2);
            if (has && !letters)
                fail_msg("'%s' is left out behind '%s'", text_piece(text, id).p, tails[k]);
            n_all += has;
        }
        if (strcmp(tails[k], "wAi") == 0 || strcmp(tails[k], "x wai") == 0) {
            bool has = false;

            for (int i = 0; i < n; i++)
                has |= str_is(text_piece(text, token[i]), "t");
            assert_true(has);
        }
        for (int i = 0; i < n; i++)
            assert_false(strcmp(tails[k], "xwai") == 0 && str_is(text_piece(text, token[i]), "t"));
    }
    assert_true(n_all > 4);
    reason_words_close(w);
    /* once the model is certain, by the request's random numbers if it is not quite */
    o.suppresses = true;
    o.suppress_above = 0.9f;
    found = "00";
    o.loops = false;
    s = think(o, 4096, "wait\nso wait. but it");
    reason_governor.tell(s.g, &t);
    assert_true(s.n_shunned == 2 && t.weighed && s.after == -1);
    reason_governor.end(s.g);
    for (seed = 0; seed < 2; seed++) { /* 1 - 0.1 / ln 512: 0.98, for a delta of 0.96 */
        o.suppress_above = 0.96f;
        found = "9";
        s = think(o, 4096, "\nwait but hmm wait but hmm wait but hmm wait but hmm wait but hmm wait but hmm");
        n_once[seed] = s.n_shunned;
        reason_governor.end(s.g);
        assert_true(s.n_shunned > 4 && s.n_shunned < 18);
    }
    seed = 0;
    assert_true(n_once[0] > 0);
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
        cmocka_unit_test(closes_when_certain),
        cmocka_unit_test(leaves_words_out),
        cmocka_unit_test(leaves_room_for_the_answer),
    };

    return cmocka_run_group_tests(tests, open_text, close_text);
}
