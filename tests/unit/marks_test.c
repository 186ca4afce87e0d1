/* SPDX-License-Identifier: Apache-2.0 */
/* marks_test.c - marks of reasoning and calls: engine and reader see the same, wherever an answer is cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/io.h"
#include "chat/chat.h"
#include "chat/reader.h"
#include "gen/gen.h"
#include "gguf/gguf.h"
#include "marks_rig.h"
#include "model/model.h"
#include "reason/reason.h"
#include "run/run.h"
#include "text/marks.h"
#include "text/text.h"

enum { TOKENS_MAX = 320, SPECULATED = 6 };

struct desk {
    struct gguf *g;
    struct text *text;
    struct model *m;
    struct run *r;
};

static void open_desk(struct desk *k, const char *path)
{
    const struct model_opts mo = { .device = "cpu", .n_threads = 2 };
    struct err e = { 0 };

    must(gguf_open(&k->g, path, &e), &e);
    must(text_open(&k->text, k->g, &e), &e);
    must(model_open(&k->m, k->g, &mo, &e), &e);
    must(run_open(&k->r, k->m, &(struct run_opts){ .ctx_tokens = 512, .n_seq = 1, .draft_max = SPECULATED }, &e), &e);
}

static void close_desk(struct desk *k)
{
    run_close(k->r);
    model_close(k->m);
    text_close(k->text);
    gguf_close(k->g);
}

/* What the model is made to write, as a memory that is always right; then tokens that depend on the place, or the end.
 */
static struct {
    int32_t token[TOKENS_MAX];
    int64_t n, n_prompt;
    int32_t end;
    bool goes_on;
    struct gen_context seen[TOKENS_MAX]; /* by tokens of the answer */
} script;

static void look_at_script(const void *of, const struct gen_context *at, int32_t *next, float *q, int *n_next,
                           uint32_t *evidence)
{
    const int64_t i = at->n - script.n_prompt;

    (void)of;
    assert_true(i < TOKENS_MAX);
    script.seen[i] = *at;
    script.seen[i].token = NULL;
    next[0] = i < script.n      ? script.token[i]
              : !script.goes_on ? script.end
              : i > script.n + 2 * SPECULATED
                  ? script.end
                  : 250 + (int32_t)((at->n - at->text_from) % 40) + 50 * at->reasoning + 100 * at->reasoned;
    q[0] = 1;
    *n_next = 1;
    *evidence = 0;
}

static float weight_of_script(const void *of, uint32_t evidence, float p_max, bool ends)
{
    (void)of;
    (void)evidence;
    (void)p_max;
    (void)ends;
    return 0.9999F;
}

static enum err_code begin_script(void **place, const void *of, const int32_t *prompt, int64_t n, struct err *e)
{
    (void)of;
    (void)prompt;
    (void)n;
    (void)e;
    *place = &script;
    return ERR_OK;
}

static void end_script(void *place)
{
    assert_ptr_equal(place, &script);
}

static void ignore_choice(void *place, uint32_t evidence, const struct gen_came *came)
{
    (void)place;
    assert_true(evidence == 0 && came->mass == 1);
}

static int tell_nothing(const void *place, struct gen_mixed *out)
{
    (void)place;
    (void)out;
    return 0;
}

static const struct gen_memory scripted = { begin_script,     end_script,    look_at_script,
                                            weight_of_script, ignore_choice, tell_nothing };

struct outcome {
    int32_t token[TOKENS_MAX];
    bool reasoning[TOKENS_MAX], closes[TOKENS_MAX];
    int n, n_reasoning, n_closes;
    char text[4096];
    size_t n_text;
    enum gen_end end;
    struct gen_stats stats;
    struct gen_context seen[TOKENS_MAX];
};

static void take_event(struct outcome *out, const struct gen_event *ev)
{
    assert_true(out->n_text + ev->text.n < sizeof out->text);
    memcpy(out->text + out->n_text, ev->text.p, ev->text.n);
    out->n_text += ev->text.n;
    if (ev->kind == GEN_TOKEN) {
        out->token[out->n] = ev->pick.token;
        out->reasoning[out->n] = ev->reasoning;
        out->n_reasoning += ev->reasoning;
        out->n_closes += out->closes[out->n] = ev->closes;
        out->n++;
    }
    if (ev->kind == GEN_END) {
        out->end = ev->end;
        out->stats = ev->stats;
    }
}

/* The answer that the script makes of a request; guess: its drafter. */
static struct outcome *answer(struct desk *k, struct gen_request q, const struct gen_drafter *guess, void *guess_of)
{
    struct outcome *out = calloc(1, sizeof *out);
    const struct gen_opts o = { .run = k->r, .text = k->text, .drafter = guess, .drafter_of = guess_of };
    struct text_tokens prompt = { 0 };
    struct err e = { 0 };
    struct gen_event ev;
    struct gen *g;
    int64_t id;

    assert_non_null(out);
    must(text_encode(k->text, STR("The prompt is"), 0, &prompt, &e), &e);
    script.n_prompt = prompt.n;
    script.end = text_info(k->text)->eos;
    memset(script.seen, 0, sizeof script.seen);
    q.prompt = prompt.v;
    q.n_prompt = prompt.n;
    q.chat = true;
    q.memory = &scripted;
    q.memory_of = &script;
    must(gen_open(&g, &o, &e), &e);
    must(gen_submit(g, &q, &id, &e), &e);
    while (gen_busy(g)) {
        must(gen_step(g, &e), &e);
        while (gen_next(g, &ev))
            take_event(out, &ev);
    }
    gen_close(g);
    run_clear(k->r, 0);
    text_tokens_free(&prompt);
    assert_int_equal(out->stats.reasoning_tokens, out->n_reasoning);
    memcpy(out->seen, script.seen, sizeof out->seen);
    return out;
}

/* As our encoder cuts a text, a byte a token, or the longest tokens, which reach across the ends of marks. */
enum cut { CUT_ENCODER, CUT_BYTES, CUT_LONGEST, CUTS };

static int32_t longest_token(const struct text *t, struct str s, size_t most)
{
    int32_t best = -1;
    size_t n = 0;

    for (int32_t i = 0; i < text_info(t)->n_tokens; i++) {
        const struct str p = text_piece(t, i);

        if (p.n > n && p.n <= most && p.n <= s.n && memcmp(p.p, s.p, p.n) == 0 && !text_is_control(t, i)) {
            best = i;
            n = p.n;
        }
    }
    assert_true(best >= 0);
    return best;
}

static void write_script(const struct text *t, struct str s, enum cut cut)
{
    struct text_tokens v = { 0 };
    struct err e = { 0 };

    if (cut == CUT_ENCODER)
        must(text_encode(t, s, TEXT_SPECIAL, &v, &e), &e);
    while (cut != CUT_ENCODER && s.n > 0) {
        const int32_t id = longest_token(t, s, cut == CUT_BYTES ? 1 : s.n);

        must(text_tokens_push(&v, id, &e), &e);
        s.p += text_piece(t, id).n;
        s.n -= text_piece(t, id).n;
    }
    assert_true(v.n <= TOKENS_MAX);
    memcpy(script.token, v.v, (size_t)v.n * sizeof *v.v);
    script.n = v.n;
    script.goes_on = false;
    text_tokens_free(&v);
}

/* What a reader makes of it: an object; pieces: how many of the tokens are reasoning. */
static json_t *read_outcome(const struct desk *k, const char *parser, bool inside, const struct outcome *out,
                            int *pieces)
{
    const struct chat_reader_opts o = { .parser = parser, .reasoning = inside };
    const struct chat_piece *v;
    struct counts c = { 0 };
    struct chat_reader *r;
    struct err e = { 0 };
    json_t *result;
    int n;

    must(chat_reader_open(&r, &o, &e), &e);
    for (int i = 0; i < out->n; i++)
        count_by_reader(&c, r, text_piece(k->text, out->token[i]));
    chat_reader_close(r);
    *pieces = c.reasoning;
    must(chat_reader_open(&r, &o, &e), &e);
    must(chat_read(r, (struct str){ out->text, out->n_text }, true, &v, &n, &e), &e);
    must(chat_reader_result(&result, r, &e), &e);
    chat_reader_close(r);
    return result;
}

static void check_part(const json_t *result, const char *part, const char *want, const char *parser)
{
    const char *got = json_string_value(json_object_get(result, part));

    if (strcmp(got, want) != 0)
        fail_msg("%s: %s is \"%s\", not \"%s\"", parser, part, got, want);
}

typedef void check_fn(struct desk *k, const char *parser, const struct text_marks *m, enum cut cut);

static void for_each_reasoning(check_fn *check)
{
    struct desk k;
    struct err e = { 0 };

    open_desk(&k, MODEL);
    for (int i = 0; chat_reader_name(i) != NULL; i++) {
        struct text_marks m;

        must(chat_marks_of(&m, chat_reader_name(i), k.text, &e), &e);
        for (int cut = 0; cut < CUTS && m.open.n > 0; cut++)
            check(&k, chat_reader_name(i), &m, (enum cut)cut);
    }
    close_desk(&k);
}

/* A mark that is a token but is spelled with others is text up to its end. */
static bool is_taken_for_text(const struct text_marks *m, enum cut cut)
{
    return m->one_token && cut == CUT_BYTES;
}

static int n_across; /* tokens that reach across the end of a mark */

/* The engine's counts, its text and stop strings, which are looked for in the text only. */
static void check_answer(struct desk *k, const char *parser, const struct text_marks *m, enum cut cut)
{
    char text[ANSWER_BYTES];
    const struct str open = { m->open.p, 2 }, stops[] = { open, STR("halt") };

    for (int inside = 0; inside < 2; inside++) {
        const char *form = inside ? "a halt bZ\n\nc d halt e" : " \nOa halt bZ(c d halt e";
        struct gen_request q = gen_defaults();
        struct outcome *out;
        json_t *result;
        int pieces;

        q.thinking = inside;
        q.part_marks = m;
        q.stops = is_taken_for_text(m, cut) ? stops + 1 : stops;
        q.n_stops = is_taken_for_text(m, cut) ? 1 : 2;
        write_script(k->text, answer_of(text, form, m, m->close[0]), cut);
        out = answer(k, q, NULL, NULL);
        result = read_outcome(k, parser, inside, out, &pieces);
        check_part(result, "reasoning", "a halt b", parser);
        check_part(result, "content", inside ? "c d " : "(c d ", parser);
        assert_int_equal(out->end, GEN_STOP_STRING);
        assert_int_equal(out->n_reasoning, pieces);
        assert_int_equal(out->n_closes, 1);
        for (int i = 0; i < out->n; i++)
            if (out->closes[i]) {
                const struct str last = text_piece(k->text, out->token[i]);

                n_across += last.p[last.n - 1] != m->close[0].p[m->close[0].n - 1];
                assert_true(i + 1 == out->n || out->seen[i + 1].text_from == script.n_prompt + i + 1);
            }
        json_decref(result);
        free(out);
    }
}

static void engine_and_reader_agree(void **state)
{
    (void)state;
    n_across = 0;
    for_each_reasoning(check_answer);
    assert_true(n_across > 0);
}

/* Of the answer's text, without the newlines before it. */
static void check_length(struct desk *k, const char *parser, const struct text_marks *m, enum cut cut)
{
    char text[ANSWER_BYTES];
    struct gen_request q = gen_defaults();
    struct outcome *out;
    int n = 0;

    if (is_taken_for_text(m, cut))
        return;
    q.part_marks = m;
    q.text_max = 3;
    write_script(k->text, answer_of(text, "OabZ\n\nc d e f g h", m, m->close[0]), cut);
    out = answer(k, q, NULL, NULL);
    assert_int_equal(out->end, GEN_LENGTH);
    if (out->n_closes != 1 || out->n_reasoning < 3)
        fail_msg("%s: %d closing tokens, %d of %d reasoning: %.*s", parser, out->n_closes, out->n_reasoning, out->n,
                 (int)out->n_text, out->text);
    for (int i = 0, behind = 0; i < out->n; i++) {
        const struct str s = text_piece(k->text, out->token[i]);

        n += behind && s.p[s.n - 1] != '\n';
        behind |= out->closes[i];
    }
    if (n != 3)
        fail_msg("%s: %d tokens of text", parser, n);
    free(out);
}

static void length_counts_from_the_text(void **state)
{
    (void)state;
    for_each_reasoning(check_length);
}

/* ---- a budget ---- */

static int tokens_to_close(const struct desk *k, const struct text_marks *m)
{
    struct text_place at = text_marks_begin(m, true);

    for (int i = 0; i < m->n_over; i++)
        if (text_marks_take(m, &at, text_piece(k->text, m->over[i])) > 0 && at.part != TEXT_REASONING)
            return i + 1;
    fail_msg("what ends the reasoning does not");
    return 0;
}

static void check_budget(struct desk *k, const char *parser, const struct text_marks *m, enum cut cut)
{
    char text[ANSWER_BYTES];
    struct reason_opts budget = { .text = k->text, .marks = m, .budget_tokens = 5 };

    for (int way = 0; way < 3; way++) { /* the model opens it, the prompt does, the model does and may not */
        const bool inside = way == 1;
        struct gen_request q = gen_defaults();
        struct outcome *out;
        json_t *result;
        int pieces;

        budget.budget_tokens = way == 2 ? 0 : 5;
        q.thinking = inside;
        q.part_marks = m;
        q.governor = &reason_governor;
        q.governor_opts = &budget;
        write_script(k->text,
                     answer_of(text,
                               inside ? "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9"
                                        "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9"
                                      : "O1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9"
                                        "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9",
                               m, m->close[0]),
                     cut);
        out = answer(k, q, NULL, NULL);
        result = read_outcome(k, parser, inside, out, &pieces);
        if (json_string_length(json_object_get(result, "content")) == 0 ||
            (json_string_length(json_object_get(result, "reasoning")) == 0) != (way == 2) ||
            json_object_get(result, "cut_off") != NULL)
            fail_msg("%s: the budget leaves no answer: %.*s", parser, (int)out->n_text, out->text);
        assert_int_equal(out->stats.forced, m->n_over);
        assert_int_equal(out->n_reasoning, pieces);
        assert_int_equal(out->n_reasoning, !inside + (int)budget.budget_tokens + tokens_to_close(k, m));
        json_decref(result);
        free(out);
    }
}

static void budget_leaves_an_answer(void **state)
{
    (void)state;
    for_each_reasoning(check_budget);
}

/* Reasoning that begins again has nothing left of the budget. */
static void budget_counts_all(void **state)
{
    char text[ANSWER_BYTES];
    struct reason_opts budget = { .budget_tokens = 5 };
    struct gen_request q = gen_defaults();
    struct text_marks m;
    struct err e = { 0 };
    struct outcome *out;
    struct desk k;

    (void)state;
    open_desk(&k, MODEL);
    must(chat_marks_of(&m, "harmony", k.text, &e), &e);
    budget.text = k.text;
    budget.marks = q.part_marks = &m;
    q.governor = &reason_governor;
    q.governor_opts = &budget;
    write_script(k.text, answer_of(text, "OabZOcdeZfOghijklmnop", &m, m.close[0]), CUT_BYTES);
    out = answer(&k, q, NULL, NULL);
    assert_int_equal(out->stats.forced, 2 * m.n_over);
    assert_int_equal(out->n_closes, 2);
    free(out);
    close_desk(&k);
}

/* ---- guesses ---- */

static const struct outcome *known; /* the answer that a drafter guesses, now and then wrong */

static enum err_code guess_known(void *d, struct gen_guess *g, int n, const struct gen_cost *cost, struct err *e)
{
    (void)d;
    (void)cost;
    (void)e;
    for (int i = 0; i < n; i++) {
        const int64_t from = g[i].n_token - script.n_prompt;

        for (g[i].n = 0; g[i].n < g[i].n_max && g[i].n < SPECULATED && from + g[i].n < known->n; g[i].n++)
            g[i].guess[g[i].n] = known->token[from + g[i].n] + ((from + g[i].n) % 11 == 10);
    }
    return ERR_OK;
}

static const struct gen_drafter knowing = { .guess = guess_known };

static void check_guesses(struct desk *k, const char *parser, const struct text_marks *m, enum cut cut)
{
    char text[ANSWER_BYTES];
    struct gen_request q = gen_defaults();
    struct outcome *plain, *guessed;

    q.part_marks = m;
    write_script(k->text, answer_of(text, "Oa b cZ\n\nd eOfZg", m, m->close[0]), cut);
    script.goes_on = true;
    q.draft_max = 0;
    plain = answer(k, q, NULL, NULL);
    known = plain;
    q.draft_max = -1;
    guessed = answer(k, q, &knowing, NULL);
    assert_true(guessed->stats.kept > 0 && guessed->stats.kept < guessed->stats.drafted);
    assert_int_equal(plain->n, guessed->n);
    assert_memory_equal(plain->token, guessed->token, (size_t)plain->n * sizeof *plain->token);
    assert_memory_equal(plain->reasoning, guessed->reasoning, (size_t)plain->n * sizeof *plain->reasoning);
    assert_memory_equal(plain->closes, guessed->closes, (size_t)plain->n * sizeof *plain->closes);
    assert_int_equal(plain->n_text, guessed->n_text);
    assert_memory_equal(plain->text, guessed->text, plain->n_text);
    if (plain->n_closes != (m->again ? 2 : 1))
        fail_msg("%s: %d marks close", parser, plain->n_closes);
    free(plain);
    free(guessed);
}

static void guesses_change_nothing(void **state)
{
    (void)state;
    for_each_reasoning(check_guesses);
}

/* ---- calls ---- */

/* A copy of the model in which a control token is the mark of Mistral's calls. */
static void open_desk_of_mistral(struct desk *k)
{
    char path[] = "/tmp/marks_test.XXXXXX", *data;
    const int fd = mkstemp(path);
    struct err e = { 0 };
    size_t n;

    assert_true(fd >= 0);
    close(fd);
    must(io_read_all(&data, &n, MODEL, 64 << 20, NULL, &e), &e);
    memcpy(data + str_find((struct str){ data, n }, 0, STR("<|quad_end|>")), "[TOOL_CALLS]", 12);
    must(io_write_file(path, (struct str){ data, n }, &e), &e);
    free(data);
    open_desk(k, path);
    unlink(path);
    assert_true(text_is_control(k->text, text_find(k->text, "[TOOL_CALLS]")));
}

/* The text of an answer that ends at the stop string "halt", if anywhere. */
static void check_stop(struct desk *k, const char *parser, const char *written, const char *want, int n_calls)
{
    const struct str stop = STR("halt");
    json_t *tools = json_loads("[{\"name\":\"f\"}]", 0, NULL);
    const struct chat_reader_opts o = { .parser = parser, .tools = tools };
    const struct chat_piece *v;
    struct chat_reader *r;
    struct chat *c;
    struct err e = { 0 };
    int n;

    must(chat_open(&c, k->text, STR("{{ messages[0].content }}"), &e), &e);
    must(chat_set_parser(c, parser, &e), &e);
    for (int cut = 0; cut < CUTS; cut++) {
        struct gen_request q = gen_defaults();
        struct outcome *out;

        q.part_marks = chat_marks_with_calls(c);
        q.stops = &stop;
        q.n_stops = 1;
        write_script(k->text, str_of(written), (enum cut)cut);
        out = answer(k, q, NULL, NULL);
        if (!str_is((struct str){ out->text, out->n_text }, want))
            fail_msg("%s, cut %d: %.*s", parser, cut, (int)out->n_text, out->text);
        must(chat_reader_open(&r, &o, &e), &e);
        must(chat_read(r, (struct str){ out->text, out->n_text }, true, &v, &n, &e), &e);
        assert_int_equal(chat_reader_calls(r), n_calls);
        chat_reader_close(r);
        free(out);
    }
    chat_close(c);
    json_decref(tools);
}

/* Marks of calls reach the reader, control tokens or not; stop strings are looked for beside calls only. */
static void calls_are_whole(void **state)
{
    static const char hermes[] = "a <tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": \"halt\"}}\n</tool_call> b ";
    static const char mistral[] = "a [TOOL_CALLS]f[ARGS]{\"x\": \"halt\"}";
    char text[ANSWER_BYTES];
    struct desk k;

    (void)state;
    open_desk_of_mistral(&k);
    (void)snprintf(text, sizeof text, "%shalt c", hermes);
    check_stop(&k, "hermes", text, hermes, 1);
    check_stop(&k, "mistral-args", mistral, mistral, 1);
    check_stop(&k, "mistral-args", "a halt [TOOL_CALLS]f[ARGS]{}", "a ", 0);
    check_stop(&k, "llama3-json", "{\"name\": \"f\", \"parameters\": {\"x\": \"halt\"}}",
               "{\"name\": \"f\", \"parameters\": {\"x\": \"halt\"}}", 1);
    close_desk(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engine_and_reader_agree), cmocka_unit_test(length_counts_from_the_text),
        cmocka_unit_test(budget_leaves_an_answer), cmocka_unit_test(budget_counts_all),
        cmocka_unit_test(guesses_change_nothing),  cmocka_unit_test(calls_are_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
