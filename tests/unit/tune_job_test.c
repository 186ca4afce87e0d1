/* SPDX-License-Identifier: Apache-2.0 */
/* tune_job_test.c - the training of an adapter: its schedule, its batches, an interruption after each step. */
#include <math.h>
#include <unistd.h>

#include "adapt/adapt.h"
#include "base/rng.h"
#include "golden.h"
#include "grad/grad.h"
#include "model/class.h"
#include "part.h"
#include "tune/job.h"
#include "tune/lora.h"
#include "tune/questions.h"
#include "tune/shield.h"
#include "tune/zo.h"
#include "tune_stage.h"

static const char model[] = "tests/golden/models/qwen35moe-a.gguf";
enum { TOKENS = 8, GIVEN = 3 };

/* n texts of random tokens that no other seed has. */
static void add_items(struct tune_items *to, int n, uint64_t seed)
{
    struct err e = { 0 };

    for (int i = 0; i < n; i++) {
        struct text_tokens token = { 0 };

        for (int k = 0; k < TOKENS; k++)
            assert_int_equal(text_tokens_push(&token, (int32_t)(512 * rng_unit(seed, (uint64_t)i, (uint64_t)k)), &e),
                             ERR_OK);
        assert_int_equal(tune_items_add(to, token, GIVEN, 64, &e), ERR_OK);
    }
}

/* ---- the schedule ---- */

static void test_limit(void **state)
{
    /* seconds of a test -> when steps end, of 100 seconds: all tests of the end, a share of the time, or one test */
    static const double want[][2] = { { 0.5, 95.8 }, { 1, 91.6 }, { 10, 83 }, { 20, 76 } };
    struct stage s;

    (void)state;
    stage_open(&s);
    s.o.time_s = 100;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        s.job.report.test_s = want[i][0];
        assert_true(fabs(tune_limit_s(&s.job) - want[i][1]) < 1e-9);
    }
}

static void test_part_done(void **state)
{
    struct stage s;

    (void)state;
    stage_open(&s);
    s.tick_ms = 0;
    s.o.time_s = 100;
    s.job.report.test_s = 10; /* steps end at 83 s */
    s.job.steps = 100;
    assert_true(tune_part_done(&s.job) == 0);
    s.ms = 20e3; /* one in two seconds: all of them take too long, but so few do not show that */
    s.job.state.step = TUNE_WARM - 1;
    assert_true(tune_part_done(&s.job) == 0.09);
    s.job.state.step = TUNE_WARM;
    assert_true(tune_part_done(&s.job) == 20.0 / 83);
    s.job.state.step = 30; /* there is time for all, */
    assert_true(tune_part_done(&s.job) == 0.3);
    s.ms = 25.5e3; /* or there is not, but steps are ahead of time */
    assert_true(tune_part_done(&s.job) < 25.5 / 83 + 1e-12 && tune_part_done(&s.job) > 0.3);
    s.job.state.step = 31;
    assert_true(tune_part_done(&s.job) == 0.31);
    s.ms = 82e3; /* the next would end too late */
    assert_true(tune_part_done(&s.job) == 1);
    /* what an interrupted run spent and did counts, but says nothing of how long a step takes */
    s.ms = 10e3;
    s.job.report.before_s = s.job.report.learn_from_s = 50;
    s.job.report.step_first = s.job.state.step = 40;
    assert_true(tune_part_done(&s.job) == 0.4);
    s.job.report.before_s = 76;
    assert_true(tune_part_done(&s.job) == 1);
}

/* The step size rises, then falls with the part that is done. */
static void test_rate(void **state)
{
    (void)state;
    for (int i = 0; i < TUNE_WARM; i++)
        assert_true(train_rate(1, i, TUNE_WARM, 0) < train_rate(1, i + 1, TUNE_WARM, 0) + (i + 1 == TUNE_WARM));
    assert_true(train_rate(1, TUNE_WARM, TUNE_WARM, 0) == 1);
    assert_true(fabs(train_rate(1, 50, TUNE_WARM, 0.5) - 0.5) < 1e-12);
    assert_true(train_rate(1, 99, TUNE_WARM, 1) < 1e-12);
}

static void test_counted_twice(void **state)
{
    struct tune_items s = { 0 }, learn = { 0 };
    struct err e = { 0 };
    int64_t n_gone;

    (void)state;
    add_items(&s, 5, 3);
    add_items(&learn, 9, 4);
    assert_int_equal(tune_items_same(&s, &learn), 0);
    add_items(&s, 5, 3);
    assert_int_equal(tune_items_once(&s, &n_gone, &e), ERR_OK);
    assert_true(n_gone == 5 && s.n == 5);
    add_items(&learn, 2, 3);
    assert_int_equal(tune_items_same(&s, &learn), 2);
    tune_items_free(&s);
    tune_items_free(&learn);
}

/* ---- batches ---- */

static void batches_open(struct stage *s, int n_learn, int n_keep, int n_own)
{
    struct err e = { 0 };

    stage_open(s);
    add_items(&s->job.data.learn, n_learn, 1);
    add_items(&s->job.data.keep, n_keep, 2);
    add_items(&s->job.data.own, n_own, 3);
    s->job.pace = (struct tune_pace){ s->o.n_text, s->o.keep_batch, s->o.rehearse };
    assert_int_equal(tune_batch_open(&s->job, &e), ERR_OK);
}

static void test_batch(void **state)
{
    enum { LEARN = 7, STEPS = 14 };
    struct stage s;

    (void)state;
    batches_open(&s, LEARN, 3, 4);
    for (int64_t step = 0; step < STEPS; step++) {
        struct grad_seq seq[7];
        double weight[2] = { 0 };
        const int n = tune_batch(&s.job, step, seq);
        int n_learn = 0;

        s.job.state.step = step;
        for (int i = 0; i < n; i++) {
            const int64_t at = s.job.state.which[i];

            assert_true(at >= 0 && at < s.job.state.n_seen);
            n_learn += at < LEARN;
            weight[at >= LEARN] += (double)seq[i].weight * (TOKENS - GIVEN);
        }
        assert_true(n > 4 && n <= 7 && n_learn > 2 &&
                    n_learn <= 4); /* one with a large part of the loss is drawn once */
        assert_true(fabs(weight[0] - 1) < 1e-6 && fabs(weight[1] - 20) < 1e-5);
        for (int a = 2; a < n_learn; a++) /* of those that are drawn none is there twice */
            for (int b = 2; b < a; b++)
                assert_true(s.job.state.which[a] != s.job.state.which[b]);
    }
    tune_job_close(&s.job);
}

/* Half of a batch comes in turn: in each pass each item once, in an order that follows from the seed. */
static void items_in_turn(uint64_t seed, int64_t *to, int n)
{
    struct stage s;

    batches_open(&s, 7, 0, 0);
    s.o.seed = (int64_t)seed;
    for (int64_t step = 0; step < n / 2; step++) {
        struct grad_seq seq[7];

        (void)tune_batch(&s.job, step, seq);
        memcpy(to + 2 * step, s.job.state.which, 2 * sizeof *to);
    }
    tune_job_close(&s.job);
}

static void test_turns(void **state)
{
    int64_t a[28], b[28], c[28];

    (void)state;
    items_in_turn(1, a, 28);
    items_in_turn(1, b, 28);
    items_in_turn(2, c, 28);
    assert_memory_equal(a, b, sizeof a);
    assert_true(memcmp(a, c, sizeof a) != 0);
    assert_true(memcmp(a, a + 7, 7 * sizeof *a) != 0);
    for (int pass = 0; pass < 4; pass++) {
        unsigned seen = 0;

        for (int i = 0; i < 7; i++)
            seen |= 1u << a[7 * pass + i];
        assert_int_equal(seen, 0x7f);
    }
}

/* What has a large loss is drawn in each step, what has a small one hardly ever; the losses are those of the
 * batches. */
static void test_drawn(void **state)
{
    struct stage s;
    struct grad_seq seq[7];
    double loss[7];
    int times[7] = { 0 };

    (void)state;
    batches_open(&s, 7, 0, 0);
    for (int64_t step = 0; step < 7; step++) {
        const int n = tune_batch(&s.job, step, seq);

        for (int i = 0; i < n; i++)
            loss[i] = (s.job.state.which[i] == 5 ? 3.0 : 0.0) * (double)seq[i].weight * (TOKENS - GIVEN);
        tune_batch_seen(&s.job, seq, loss, n);
    }
    assert_true(fabsf(s.job.state.seen[5] - 3) < 1e-5f && s.job.state.seen[0] == 0);
    for (int64_t step = 0; step < 20; step++) {
        s.job.state.step = step;
        for (int i = 2, n = tune_batch(&s.job, step, seq); i < n; i++)
            times[s.job.state.which[i]]++;
    }
    assert_int_equal(times[5], 20);
    for (int i = 0; i < 7; i++)
        assert_true(i == 5 || times[i] < 5);
    tune_job_close(&s.job);
}

/* ---- rehearsal ---- */

/* The user's and the model's own take turns. */
static void test_rehearsed(void **state)
{
    struct stage s;
    unsigned seen = 0;

    (void)state;
    batches_open(&s, 7, 3, 4);
    for (int64_t i = -50; i < 50; i++) {
        const int64_t at = tune_rehearsed(&s.job, i);

        assert_true(at >= 0 && at < 7 && (at < 4) == (i % 2 == 0));
        assert_ptr_equal(tune_rehearsed_at(&s.job, at), at < 4 ? &s.job.data.own.v[at] : &s.job.data.keep.v[at - 4]);
        seen |= 1u << at;
    }
    assert_int_equal(seen, 0x7f);
    tune_job_close(&s.job);
    batches_open(&s, 7, 3, 0);
    for (int64_t i = 0; i < 20; i++)
        assert_true(tune_rehearsed(&s.job, i) < 3);
    tune_job_close(&s.job);
}

/* Of answers of each kind the surer half stays; texts from nothing stay. */
static void test_unsure(void **state)
{
    static const float sure[] = { 0.1f, 0.2f, 0.9f, 0.5f, 0.8f, 0.3f, 0.7f, 0.6f };
    static const int set[] = { 0, 0, 1, 1, 1, 2, 2, 0 }, stays[] = { 0, 1, 2, 4, 6, 7 };
    struct tune_items s = { 0 };
    struct err e = { 0 };

    (void)state;
    add_items(&s, 8, 5);
    for (int i = 0; i < 8; i++) {
        s.v[i].set = set[i];
        s.v[i].said = calloc((size_t)s.v[i].n_answer, sizeof *s.v[i].said);
        assert_non_null(s.v[i].said);
        for (int k = 0; k < s.v[i].n_answer; k++)
            s.v[i].said[k].p[0] = sure[i];
    }
    assert_int_equal(tune_drop_unsure(&s, &e), ERR_OK);
    assert_int_equal(s.n, 6);
    for (int i = 0; i < 6; i++)
        assert_true(s.v[i].said[0].p[0] == sure[stays[i]] && s.v[i].set == set[stays[i]]);
    tune_items_free(&s);
}

/* Chats of one question each: "What is wordN of AREA?", with the number of N in the order of i. */
static json_t *chats_about(const char *area, int n)
{
    json_t *all = json_array();

    for (int i = 0; i < n; i++) {
        char text[80];

        (void)snprintf(text, sizeof text, "What is word%c%c of %s in %d?", 'a' + i % 26, 'a' + i / 26, area, 1000 + i);
        assert_int_equal(
            json_array_append_new(all, json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", text)), 0);
    }
    return all;
}

/* The question, without what the template writes around it. */
static void question_text(const struct text *t, const struct tune_questions *q, char *to, size_t n)
{
    struct err e = { 0 };
    char *all = NULL;
    size_t bytes;

    assert_int_equal(text_decode(t, q->prompt.v, q->prompt.n, 0, &all, &bytes, &e), ERR_OK);
    (void)snprintf(to, n, "%.*s", (int)bytes, all);
    free(all);
}

/* Three in four are like what is learnt. What all questions share stays, what few have becomes a word of the model's
 * own, and a number one with as many digits. */
static void test_questions(void **state)
{
    enum { N = 400 };
    struct tune_questions q = { .seed = 1 }, again = { .seed = 1 };
    json_t *learn = chats_about("the moon", 60), *sets = json_array();
    struct text_tokens words = { 0 };
    struct err e = { 0 };
    struct gguf *g;
    struct text *t;
    int like_learnt = 0;
    char text[512], same[512];

    (void)state;
    if (gguf_open(&g, "share/models/chimere-nano-q5_k_m.gguf", &e) || text_open(&t, g, &e))
        fail_msg("%s", e.msg);
    q.text = again.text = t;
    assert_int_equal(json_array_append_new(sets, chats_about("a tool", 60)), 0);
    assert_int_equal(json_array_append_new(sets, chats_about("a sum", 60)), 0);
    assert_int_equal(text_encode(t, STR("zebra zebra quartz it"), 0, &words, &e), ERR_OK);
    assert_int_equal(tune_questions_words(&q, words.v, words.n, &e), ERR_OK);
    assert_int_equal(tune_questions_words(&again, words.v, words.n, &e), ERR_OK);
    assert_int_equal(q.words.n, 2); /* each once, none of two letters */
    assert_int_equal(tune_questions_open(&q, learn, sets, &e), ERR_OK);
    assert_int_equal(tune_questions_open(&again, learn, sets, &e), ERR_OK);
    for (int i = 0; i < N; i++) {
        static const char *const area[] = { " of the moon in ", " of a tool in ", " of a sum in " };
        const char *number;

        assert_int_equal(tune_questions_make(&q, i, NULL, &e), ERR_OK);
        question_text(t, &q, text, sizeof text);
        assert_true(q.changed);
        assert_non_null(strstr(text, "What is "));
        assert_true((strstr(text, "zebra of ") != NULL) != (strstr(text, "quartz of ") != NULL));
        assert_null(strstr(text, "word"));
        number = strstr(text, area[tune_questions_source(&q)]);
        assert_non_null(number);
        number += strlen(area[tune_questions_source(&q)]);
        assert_true(strspn(number, "0123456789") == 4 && number[4] == '?');
        like_learnt += tune_questions_source(&q) == 0;
    }
    assert_true(like_learnt > 0.68 * N && like_learnt < 0.82 * N);
    assert_int_equal(tune_questions_make(&again, N - 1, NULL, &e), ERR_OK); /* a question depends on its number alone */
    question_text(t, &again, same, sizeof same);
    assert_string_equal(text, same);
    assert_int_equal(tune_questions_make(&q, 7, json_array_get(learn, 3), &e), ERR_OK); /* a given one stays as it is */
    question_text(t, &q, text, sizeof text);
    assert_true(!q.changed && strstr(text, "What is wordda of the moon in 1003?") != NULL);
    tune_questions_close(&q);
    tune_questions_close(&again);
    text_tokens_free(&words);
    text_close(t);
    gguf_close(g);
    json_decref(learn);
    json_decref(sets);
}

/* ---- on a model ---- */

struct bench {
    struct gguf *gguf;
    struct grad *g;
};

static void bench_open(struct bench *b)
{
    struct err e = { 0 };

    if (gguf_open(&b->gguf, model, &e) || grad_open(&b->g, b->gguf, 1, &e))
        fail_msg("%s", e.msg);
}

static void bench_close(struct bench *b)
{
    grad_close(b->g);
    gguf_close(b->gguf);
}

/* A job that has everything up to its first step, with the numbers of a file, or new ones. */
static enum err_code job_open_with(struct stage *s, const struct bench *b, const char *out, enum tune_method method,
                                   const char *start, struct err *e)
{
    const struct tune_begin_opts begin = { .rank = 2, .alpha = 4, .classes = 1u << MODEL_ATTENTION, .start = start };
    struct tune_job *j = &s->job;

    stage_open(s);
    s->o.out = out;
    s->o.method = method;
    s->o.steps = 4;
    s->o.shield = method == TUNE_FIRST ? 0.03f : 0;
    s->o.momentum = method == TUNE_FIRST ? 0 : 0.5f;
    s->o.keep_versions = 2;
    j->g = b->g;
    add_items(&j->data.learn, 5, 1);
    add_items(&j->data.tests, 5, 1); /* learnt by heart */
    add_items(&j->data.keep, 25, 2);
    return tune_begin(j, &begin, b->gguf, e) || tune_job_open(j, e) || tune_resume_check(j, e) || tune_rehearse(j, e) ||
                   tune_resume(j, e) || tune_test_before(j, e)
               ? e->code
               : ERR_OK;
}

static enum err_code job_open(struct stage *s, const struct bench *b, const char *out, enum tune_method method,
                              struct err *e)
{
    return job_open_with(s, b, out, method, NULL, e);
}

/* Stopped after each number of steps and gone on, to the bytes of the training that nothing stopped. */
static void test_resume(void **state)
{
    char dir[] = "/tmp/tuneXXXXXX", out[64], half[80];
    struct err e = { 0 };
    struct bench b;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(out, sizeof out, "%s/a.gguf", dir);
    (void)snprintf(half, sizeof half, "%s.train", out);
    bench_open(&b);
    for (int method = TUNE_FIRST; method <= TUNE_ZO; method++) {
        struct stage whole, part;

        assert_int_equal(job_open(&whole, &b, out, (enum tune_method)method, &e), ERR_OK);
        assert_int_equal(whole.job.shielded, method == TUNE_FIRST);
        assert_int_equal(tune_learn(&whole.job, &e), ERR_OK);
        assert_int_equal(whole.steps, 4);
        unlink(half);
        const size_t bytes = (size_t)whole.job.state.lora->n_params * sizeof(float);

        for (int64_t stop = 1; stop < 4; stop++) {
            assert_int_equal(job_open(&part, &b, out, (enum tune_method)method, &e), ERR_OK);
            part.stop_at = stop;
            assert_int_equal(tune_learn(&part.job, &e), ERR_CANCEL);
            assert_int_equal(part.job.state.step, stop);
            tune_job_close(&part.job);
            assert_int_equal(job_open(&part, &b, out, (enum tune_method)method, &e), ERR_OK);
            assert_int_equal(part.job.state.step, stop);
            assert_non_null(strstr(part.warning, "goes on after"));
            assert_int_equal(tune_learn(&part.job, &e), ERR_OK);
            assert_int_equal(part.steps, 4 - stop);
            assert_memory_equal(part.job.state.lora->theta, whole.job.state.lora->theta, bytes);
            tune_job_close(&part.job);
            unlink(half);
        }
        tune_job_close(&whole.job);
    }
    bench_close(&b);
    assert_int_equal(rmdir(dir), 0); /* nothing else was written */
}

/* Another training's state is refused, a damaged one too. */
static void test_half(void **state)
{
    char dir[] = "/tmp/tuneXXXXXX", out[64], half[80];
    struct err e = { 0 };
    struct stage s;
    struct bench b;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(out, sizeof out, "%s/a.gguf", dir);
    (void)snprintf(half, sizeof half, "%s.train", out);
    bench_open(&b);
    assert_int_equal(job_open(&s, &b, out, TUNE_FIRST, &e), ERR_OK);
    s.stop_at = 2;
    assert_int_equal(tune_learn(&s.job, &e), ERR_CANCEL);
    s.job.name[0] ^= 1;
    assert_int_equal(tune_resume_check(&s.job, &e), ERR_ARG);
    s.job.name[0] ^= 1;
    assert_int_equal(tune_resume_check(&s.job, &e), ERR_OK);
    f = fopen(half, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 200, SEEK_SET), 0); /* more steps than it has */
    assert_int_equal(fputc(99, f), 99);
    fclose(f);
    assert_int_equal(tune_resume_check(&s.job, &e), ERR_FORMAT);
    tune_job_close(&s.job);
    unlink(half);
    bench_close(&b);
    assert_int_equal(rmdir(dir), 0);
}

/* What is better is published, and what is not leaves nothing. */
static void test_decide(void **state)
{
    char dir[] = "/tmp/tuneXXXXXX", out[64];
    struct err e = { 0 };
    struct stage s;
    struct bench b;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(out, sizeof out, "%s/a.gguf", dir);
    bench_open(&b);
    for (int good = 0; good < 2; good++) {
        assert_int_equal(job_open(&s, &b, out, TUNE_FIRST, &e), ERR_OK);
        s.o.forget = good ? 100 : 0;
        s.o.accept = TUNE_LIKELIHOOD;
        s.o.forget_given = true;
        assert_int_equal(tune_learn(&s.job, &e), ERR_OK);
        assert_int_equal(tune_decide(&s.job, &e), ERR_OK);
        assert_true(s.job.report.verdict.better && s.job.report.verdict.keeps == (good == 1));
        assert_int_equal(tune_publish(&s.job, "{}", &e), ERR_OK);
        assert_int_equal(access(out, F_OK), good ? 0 : -1);
        tune_job_close(&s.job);
    }
    unlink(out);
    bench_close(&b);
    assert_int_equal(rmdir(dir), 0);
}

/* With the numbers of another file what is kept is what the model says without it, and what that file has learnt is not
 * new: its losses are known before the first step. Less strength is a point on the way from those numbers. */
static void test_start(void **state)
{
    char dir[] = "/tmp/tuneXXXXXX", first[64], out[64];
    struct err e = { 0 };
    struct stage s;
    struct bench b;

    (void)state;
    assert_non_null(mkdtemp(dir));
    (void)snprintf(first, sizeof first, "%s/first.gguf", dir);
    (void)snprintf(out, sizeof out, "%s/a.gguf", dir);
    bench_open(&b);
    assert_int_equal(job_open(&s, &b, first, TUNE_FIRST, &e), ERR_OK);
    assert_int_equal(tune_learn(&s.job, &e), ERR_OK);
    assert_int_equal(tune_lora_write(s.job.state.lora, first, "f16", &e), ERR_OK);
    tune_job_close(&s.job);
    assert_int_equal(job_open_with(&s, &b, out, TUNE_FIRST, first, &e), ERR_OK);
    assert_true(s.job.begin.champion == NULL && !s.job.begin.fresh && !tune_lora_is_neutral(s.job.state.lora));
    assert_true(s.job.state.seen[0] > 4 && s.job.state.seen[5] == 0);
    assert_int_equal(tune_batch_look(&s.job, &e), ERR_OK);
    for (int i = 0; i < 5; i++) /* the items that are tested are those that are learnt */
        assert_true((double)s.job.state.seen[i] < s.job.report.before[0][i].loss);
    for (int i = 5; i < s.job.state.n_seen; i++)
        assert_true(s.job.state.seen[i] > 0 && s.job.state.seen[i] < 1);
    assert_int_equal(tune_learn(&s.job, &e), ERR_OK);
    const struct tune_lora *l = s.job.state.lora;
    float *whole = malloc((size_t)l->n_params * sizeof *whole);

    assert_non_null(whole);
    memcpy(whole, l->theta, (size_t)l->n_params * sizeof *whole);
    s.o.forget = 0; /* which nothing keeps */
    s.o.forget_given = true;
    s.o.accept = TUNE_LIKELIHOOD;
    assert_int_equal(tune_decide(&s.job, &e), ERR_OK);
    const double part = s.job.report.verdict.strength;

    assert_true(s.job.report.verdict.better && !s.job.report.verdict.keeps && part > 0.7 && part < 0.75);
    for (int64_t i = 0; i < l->n_params; i++)
        assert_true(fabs((double)l->theta[i] - (1 - part) * (double)s.job.begin.from[i] - part * (double)whole[i]) <
                    1e-6);
    free(whole);
    tune_job_close(&s.job);
    assert_int_equal(job_open_with(&s, &b, out, TUNE_FIRST, "/nowhere/b.gguf", &e), ERR_IO);
    assert_non_null(strstr(e.msg, "--start"));
    tune_job_close(&s.job);
    unlink(first);
    (void)snprintf(first, sizeof first, "%s/first.gguf.train", dir);
    unlink(first);
    (void)snprintf(first, sizeof first, "%s/a.gguf.train", dir);
    unlink(first);
    bench_close(&b);
    assert_int_equal(rmdir(dir), 0);
}

/* Behind a shield the gradient is shielded before the step, and the step after it: AdamW turns it again. */
static void test_move(void **state)
{
    struct err e = { 0 };
    struct stage s;
    struct bench b;
    struct train_adam adam;
    static const struct train_adam_opts opts = { 0.9f, 0.99f, 1e-8f, 0.0f, 1.0f };

    (void)state;
    bench_open(&b);
    assert_int_equal(job_open(&s, &b, "/nowhere/a.gguf", TUNE_FIRST, &e), ERR_OK);
    const struct tune_state *t = &s.job.state;
    const int64_t n = t->lora->n_params;
    const size_t bytes = (size_t)n * sizeof(float);
    float *gradient = malloc(bytes), *was = malloc(bytes), *want = malloc(bytes), *once = malloc(bytes);

    assert_true(gradient != NULL && was != NULL && want != NULL && once != NULL);
    assert_non_null(t->shield);
    for (int64_t i = 0; i < n; i++)
        gradient[i] = t->gradient[i] = rng_gauss(9, 1, (uint64_t)i);
    memcpy(was, t->lora->theta, bytes);
    memcpy(once, was, bytes);
    assert_int_equal(train_adam_open(&adam, n, &e), ERR_OK);
    tune_shield_apply(t->shield, gradient);
    assert_true(isfinite(train_adam_step(&adam, grad_pool(b.g), &opts, 0.01f, once, gradient, NULL)));
    for (int64_t i = 0; i < n; i++)
        want[i] = once[i] - was[i];
    tune_shield_apply(t->shield, want);
    for (int64_t i = 0; i < n; i++)
        want[i] += was[i];
    assert_true(tune_move(&s.job, 0.01));
    assert_memory_equal(t->lora->theta, want, bytes);
    assert_true(memcmp(once, want, bytes) != 0);
    t->gradient[0] = NAN;
    memcpy(was, t->lora->theta, bytes);
    assert_false(tune_move(&s.job, 0.01));
    assert_memory_equal(t->lora->theta, was, bytes);
    train_adam_close(&adam);
    free(gradient);
    free(was);
    free(want);
    free(once);
    tune_job_close(&s.job);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit),         cmocka_unit_test(test_part_done), cmocka_unit_test(test_rate),
        cmocka_unit_test(test_counted_twice), cmocka_unit_test(test_batch),     cmocka_unit_test(test_turns),
        cmocka_unit_test(test_drawn),         cmocka_unit_test(test_rehearsed), cmocka_unit_test(test_unsure),
        cmocka_unit_test(test_questions),     cmocka_unit_test(test_move),      cmocka_unit_test(test_resume),
        cmocka_unit_test(test_half),          cmocka_unit_test(test_decide),    cmocka_unit_test(test_start),
    };

    test_filter();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
