/* SPDX-License-Identifier: Apache-2.0 */
/* engram_scored_test.c - scored answers: which count, in which groups, and which epochs are taken, by made-up
 * perplexities and on a text. */
#include <math.h>
#include <unistd.h>

#include "base/pool.h"
#include "engram/scored.h"
#include "golden.h"
#include "part.h"
#include "text/text.h"

static const char model[] = "share/models/chimere-nano-q5_k_m.gguf"; /* its tokenizer */

static void must(enum err_code code, const struct err *e)
{
    if (code != ERR_OK)
        fail_msg("%s", e->msg);
}

/* ---- the decision ---- */

/* Perplexities as factors: of the old table 10, and each epoch times its own. */
struct made_up {
    double alone, factor[8];
    int n;
    struct engram_trial trial[8];
};

static enum err_code weigh_made_up(void *ctx, const bool *with, bool alone, double *perplexity, struct err *e)
{
    const struct made_up *m = ctx;

    (void)e;
    *perplexity = alone ? m->alone : 10;
    for (int i = 0; i < m->n && !alone; i++)
        *perplexity *= with[i] ? m->factor[i] : 1;
    return ERR_OK;
}

static enum err_code keep_trial(void *ctx, int i, const struct engram_trial *t, struct err *e)
{
    struct made_up *m = ctx;

    (void)e;
    m->trial[i] = *t;
    return ERR_OK;
}

static void test_choose(void **state)
{
    static const struct {
        double alone, factor[8];
        int n, taken[8];
    } cases[] = {
        { 20, { 1.002, 0.9, 0.8 }, 3, { 0, 1, 1 } },      /* what makes the text less likely is left out */
        { 20, { 1.0009 }, 1, { 1 } },                     /* as good as the same */
        { 9, { 1.0009 }, 1, { 0 } },                      /* not where the model alone is better, */
        { 9, { 0.99 }, 1, { 1 } },                        /* unless it helps */
        { 20, { 1.0009, 1.0009, 0.99 }, 3, { 1, 0, 1 } }, /* small losses do not add up, */
        { 20, { 0.99, 1.005 }, 2, { 1, 1 } },             /* but what one gains another may lose */
        { 20, { 0.99, 1.012 }, 2, { 1, 0 } },
        { 5, { 1 }, 1, { 1 } }, /* nothing changes */
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct made_up m = { .alone = cases[i].alone, .n = cases[i].n };
        bool with[8] = { false };
        struct err e = { 0 };
        double now = 10;

        memcpy(m.factor, cases[i].factor, sizeof m.factor);
        must(engram_choose(with, m.n, weigh_made_up, keep_trial, &m, &e), &e);
        for (int k = 0; k < m.n; k++) {
            const struct engram_trial *t = &m.trial[k];

            assert_int_equal(with[k], cases[i].taken[k]);
            assert_int_equal(t->added, with[k]);
            assert_true(fabs(t->alone - m.alone) < 1e-12 && fabs(t->before - now) < 1e-9);
            assert_true(fabs(t->after - now * m.factor[k]) < 1e-9);
            now = t->added ? t->after : now;
        }
    }
}

/* ---- on a text ---- */

struct bench {
    char dir[32], table[64];
    struct gguf *g;
    struct text *text;
    struct pool *pool;
    struct engram_scored_opts o;
};

static void bench_open(struct bench *b)
{
    struct err e = { 0 };

    *b = (struct bench){ .dir = "/tmp/scoredXXXXXX" };
    assert_non_null(mkdtemp(b->dir));
    (void)snprintf(b->table, sizeof b->table, "%s/t", b->dir);
    must(gguf_open(&b->g, model, &e), &e);
    must(text_open(&b->text, b->g, &e), &e);
    must(pool_open(&b->pool, 1, &e), &e);
    b->o = (struct engram_scored_opts){ .text = b->text,
                                        .tokenizer = text_fingerprint(b->g),
                                        .score_min = 4,
                                        .day = 20000,
                                        .order = 4,
                                        .memory_bytes = 1 << 20,
                                        .pool = b->pool };
}

static void bench_close(struct bench *b)
{
    pool_close(b->pool);
    text_close(b->text);
    gguf_close(b->g);
    unlink(b->table);
    assert_int_equal(rmdir(b->dir), 0);
}

static void add_lines(struct engram_scored *s, const char *const *lines)
{
    struct err e = { 0 };

    for (; *lines != NULL; lines++)
        must(engram_scored_line(s, str_of(*lines), &e), &e);
    must(engram_scored_group(s, &e), &e);
}

struct told {
    int n;
    struct engram_scored_group group[8];
    struct engram_trial trial[8];
};

static enum err_code tell(void *ctx, const struct engram_scored_group *g, const struct engram_trial *t, struct err *e)
{
    struct told *to = ctx;

    (void)e;
    to->group[to->n] = *g;
    to->trial[to->n++] = *t;
    return ERR_OK;
}

/* A text of which the model knows nothing: each token is as likely as any other. */
static void hear(struct bench *b, struct engram_heard *h, const char *text)
{
    const int32_t n_vocab = text_info(b->text)->n_tokens;
    float *logits = calloc((size_t)n_vocab, sizeof *logits);
    struct text_tokens ids = { 0 };
    struct err e = { 0 };

    assert_non_null(logits);
    must(text_encode(b->text, str_of(text), 0, &ids, &e), &e);
    must(engram_heard_text(h, ids.v, 1, false, &e), &e); /* in two pieces */
    must(engram_heard_text(h, ids.v + 1, ids.n - 1, true, &e), &e);
    must(engram_heard_text(h, ids.v, 1, true, &e), &e); /* nothing follows in it */
    assert_true(h->n_texts == 1 && h->text[0].n == ids.n && h->open.n == 0);
    for (int64_t i = 1; i < ids.n; i++)
        must(engram_heard_say(h, 0, ids.v[i], logits, n_vocab, &e), &e);
    h->n_windows = 1;
    logits[3] = NAN;
    assert_int_equal(engram_heard_say(h, 0, 3, logits, n_vocab, &e), ERR_DEVICE);
    assert_int_equal(h->n, ids.n - 1);
    text_tokens_free(&ids);
    free(logits);
}

static const char held_out[] = "the file has a line that reads so, and the line of the file has a word that follows.";

static void test_scored(void **state)
{
    static const char *const lines[] = {
        "{\"text\": \"the file has a line that reads so, and the line of the file has a word that follows.\", "
        "\"score\": 5, "
        "\"domain\": \"tools\"}",
        "{\"text\": \"the file has a wall that paints so, and the line of the door has a wall that paints.\", "
        "\"score\": 5, "
        "\"domain\": \"bad\"}",
        "{\"text\": \"parrots.\", \"score\": 4, \"domain\": \"a/b\"}",
        "{\"text\": \"parrots.\", \"score\": 9, \"domain\": \"again\"}", /* once, with its first domain */
        "{\"text\": \"apples.\", \"score\": 4, \"domain\": \"a/b\"}",
        "{\"text\": \"low\", \"score\": 3.9}",
        "{\"text\": \"no number\", \"score\": \"5\"}",
        "{\"text\": \"\", \"score\": 5}",
        "torn {",
        " \t",
        NULL,
    };
    struct engram_heard h = { 0 };
    struct engram_scored *s;
    struct engram_scored_counts n;
    struct told told = { 0 };
    struct bench b;
    struct err e = { 0 };
    int added;

    (void)state;
    bench_open(&b);
    must(engram_scored_open(&s, &b.o, &e), &e);
    add_lines(s, lines);
    n = engram_scored_counts(s);
    assert_true(n.n == 4 && n.n_low == 1 && n.n_other == 3 && n.n_known == 1);
    assert_int_equal(n.n_groups, 3);
    must(engram_scored_build(s, b.table, NULL, &e), &e);
    assert_int_equal(access(b.table, F_OK), -1);
    hear(&b, &h, held_out);
    const struct engram_mix mix = { .n_vocab = text_info(b.text)->n_tokens, .space = -1 };

    must(engram_scored_test(s, &h, &mix, 0.95F, tell, &told, &added, &e), &e);
    assert_true(told.n == 3 && added >= 2);
    assert_string_equal(told.group[0].domain, "a_b"); /* by name */
    assert_string_equal(told.group[1].domain, "bad");
    assert_string_equal(told.group[2].domain, "tools");
    assert_true(told.group[0].n == 2 && told.group[2].n == 1 && told.group[2].tokens > 10);
    assert_true(fabs(told.trial[0].alone / mix.n_vocab - 1) < 1e-6);
    assert_true(told.trial[0].added && told.trial[2].added); /* what says nothing of the text does not hurt */
    assert_true(told.trial[2].after < 0.1 * told.trial[2].alone);
    must(engram_scored_write(s, b.table, &e), &e);
    engram_scored_close(s);

    /* beside that table, what leads elsewhere in the same places hurts; and its answers are known */
    struct engram *old;
    const char *path = b.table;
    char worse[64];

    (void)snprintf(worse, sizeof worse, "%s/w", b.dir);
    must(engram_open(&old, &path, 1, &(struct engram_opts){ .day = 20000 }, &e), &e);
    assert_int_equal(engram_n_epochs(old, 0), added);
    b.o.old = old;
    must(engram_scored_open(&s, &b.o, &e), &e);
    add_lines(s, (const char *const[]){ lines[0], lines[4], NULL });
    n = engram_scored_counts(s);
    assert_true(n.n == 0 && n.n_known == 2 && n.n_groups == 0);
    for (int i = 0; i < 30; i++) {
        char line[200];

        (void)snprintf(line, sizeof line,
                       "{\"text\": \"the file has a wall that paints so, and the line of the door has a wall, %d.\", "
                       "\"score\": 5}",
                       i);
        must(engram_scored_line(s, str_of(line), &e), &e);
    }
    must(engram_scored_group(s, &e), &e);
    must(engram_scored_build(s, worse, NULL, &e), &e);
    told.n = 0;
    must(engram_scored_test(s, &h, &mix, 0.95F, tell, &told, &added, &e), &e);
    assert_true(told.n == 1 && added == 0 && !told.trial[0].added && told.trial[0].after > told.trial[0].before);
    assert_string_equal(told.group[0].domain, "");
    engram_scored_close(s);
    engram_close(old);
    engram_heard_close(&h);
    bench_close(&b);
}

static bool no_more(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    (void)total;
    return done == 0;
}

static void test_limits(void **state)
{
    static const char *const lines[] = { "{\"text\": \"one\", \"score\": 5}", "{\"text\": \"two\", \"score\": 5}",
                                         NULL };
    const struct progress stop = { no_more, NULL };
    struct engram_scored *s;
    struct bench b;
    struct err e = { 0 };

    (void)state;
    bench_open(&b);
    must(engram_scored_open(&s, &b.o, &e), &e);
    add_lines(s, lines);
    assert_int_equal(engram_scored_build(s, b.table, &stop, &e), ERR_CANCEL);
    engram_scored_close(s);
    b.o.memory_bytes = 4;
    must(engram_scored_open(&s, &b.o, &e), &e);
    assert_int_equal(engram_scored_line(s, str_of(lines[0]), &e), ERR_LIMIT);
    engram_scored_close(s);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choose),
        cmocka_unit_test(test_scored),
        cmocka_unit_test(test_limits),
    };

    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
