/* SPDX-License-Identifier: Apache-2.0 */
/* drafter.c - texts are written, a drafter learns from them, the better one stays.        room: cmd */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/memory.h"
#include "base/rng.h"
#include "draft-train/drafter.h"
#include "eval/eval.h"
#include "train/dflash.h"
#include "train/files.h"
#include "train/gate.h"
#include "train/gemm.h"
#include "train/host.h"
#include "tune/job.h"

#define GEN_SHARE   0.6   /* of a round in which texts are written, at most */
#define TEXTS_MIN   256   /* that are written before others than new ones are taken */
#define FRESH       0.5   /* new texts for each one that a step takes, if there is time */
#define ROUND_S     60.0  /* a round, at most, */
#define ROUND_SHARE 0.05  /* and of the time */
#define TEST_S      600.0 /* between tests, at most, */
#define TESTS       3     /* tests on the held-out prompts during a training */
#define TEST_SHARE  0.3   /* of the time, at most, for all tests, */
#define WALKS       7.0   /* which go over the texts so often: first, the old one's, two on the way, */
#define TESTS_TAKE  3.0   /* and the last one's, of all sizes of blocks */
#define ASK_SHARE   0.2   /* of the time, at most, for texts to test on */
#define EARLY_SHARE 0.15  /* of the time, at most, until the early test, */
#define EARLY_ASK   0.04  /* for its texts, and for those to learn from until then, */
#define EARLY_S     15.0  /* each */
#define EARLY_TEXTS 128   /* to learn from */
#define EARLY_TESTS 40    /* texts of it, at most, */
#define EARLY_LEAST 10    /* and at least */
#define EARLY_GAIN  0.01  /* of tokens per step: what training has to make possible */
#define HOT         0.8f  /* temperature of a prompt that comes again */
#define REPORT_MS   1000.0
#define SLACK       ((int64_t)64 << 20) /* bytes of address space for each thread: its heap, what is not counted */

double cli_train_spent_s(const struct cli_train_drafter *j)
{
    return j->before_s + (clock_ms() - j->from_ms) / 1e3;
}

/* ---- opening ---- */

static int64_t width_of(const struct cli_train_drafter *j)
{
    return (int64_t)j->n_tap * model_info(j->x.model)->n_embd;
}

/* Tokens that the texts may have. */
static int64_t text_room(const struct cli_train_drafter *j)
{
    return j->o->memory_bytes / train_texts_bytes(1, width_of(j));
}

/* Whether the process may have this much more address space: ulimit -v limits it. */
static bool address_space(int64_t bytes)
{
    void *p = mmap(NULL, (size_t)bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p != MAP_FAILED)
        munmap(p, (size_t)bytes);
    return p != MAP_FAILED;
}

/* Of prompts, which are there already. */
static int64_t prompt_bytes(const struct cli_train_prompts *p)
{
    int64_t bytes = (int64_t)(p->cap * sizeof *p->v);

    for (int64_t i = 0; i < p->n; i++)
        bytes += (int64_t)(p->v[i].token.cap * sizeof *p->v[i].token.v);
    return bytes;
}

/* What it takes at most, said before anything is taken. */
static enum err_code bound_memory(const struct cli_train_drafter *j, struct err *e)
{
    const struct model_info *m = model_info(j->x.model);
    const int64_t ctx = j->ctx_tokens, tests = (j->data.test.n * ctx + 1) * train_texts_bytes(1, width_of(j));
    const int64_t texts = text_room(j) * train_texts_bytes(1, width_of(j));
    const int64_t writer = train_writer_bytes(j->run, width_of(j)) + run_state_bytes(j->run);
    const int64_t prompts = prompt_bytes(&j->data.train) + prompt_bytes(&j->data.test);
    int64_t of_host;
    const int64_t net = j->kind->bytes(j, &of_host), learnt = texts + tests + net, left = memory_left("");
    const int64_t all = (j->math->host ? learnt : of_host) + writer;
    const int64_t blas = j->math->host && j->products == j->math->products ? train_gemm_bytes(pool_size(j->pool)) : 0;
    const int64_t space = all + blas + SLACK * pool_size(j->pool);

    cli_warn("memory: at most %" PRId64 " MiB beside the model's %" PRId64 ": texts %" PRId64 ", tests %" PRId64
             ", sequences %" PRId64 ", network %" PRId64 ", prompts %" PRId64 "%s",
             (learnt + writer + prompts) >> 20, m->weight_bytes >> 20, texts >> 20, tests >> 20, writer >> 20,
             net >> 20, prompts >> 20, j->math->host ? "" : "; texts, tests and network on the GPU");
    if (left >= 0 && all > left)
        return err_set(e, ERR_LIMIT,
                       "%" PRId64 " MiB of memory are left: a smaller --memory, --batch, --ctx or --sequences "
                       "takes less",
                       left >> 20);
    if (!address_space(space))
        return err_set(e, ERR_LIMIT,
                       "%" PRId64 " MiB of address space cannot be had (ulimit -v): fewer threads (-t) or a smaller "
                       "--memory take less",
                       space >> 20);
    if (!j->math->host && j->math->left(j->math) >= 0 && learnt - of_host > j->math->left(j->math))
        return err_set(e, ERR_LIMIT,
                       "%" PRId64 " MiB of the GPU's memory are left: a smaller --memory, --batch or --ctx takes "
                       "less",
                       j->math->left(j->math) >> 20);
    if (text_room(j) < 2 * ctx)
        return err_set(e, ERR_ARG, "--memory holds %" PRId64 " tokens of texts: too few for texts of %" PRId64,
                       text_room(j), ctx);
    return ERR_OK;
}

static enum err_code open_arrays(struct cli_train_drafter *j, struct err *e)
{
    j->order = calloc((size_t)j->data.train.n, sizeof *j->order);
    j->half = train_beside(j->o->out, ".train");
    for (int i = 0; i <= TRAIN_SIZES; i++)
        j->steps[i] = calloc((size_t)j->data.test.n, sizeof *j->steps[i]);
    return j->order == NULL || j->half == NULL || j->steps[3] == NULL || j->steps[0] == NULL || j->steps[1] == NULL ||
                   j->steps[2] == NULL
               ? err_nomem(e)
               : ERR_OK;
}

/* What a training that was stopped can go on with: the same network, prompts and settings. */
static void name_job(struct cli_train_drafter *j)
{
    const double rest[] = { (double)j->o->seed, (double)j->o->rate, (double)j->o->n_text };
    uint64_t h = io_hash(model_fingerprint(j->x.model), rest, sizeof rest);
    char shape[80] = "";

    h = io_hash(h, j->tap, (size_t)j->n_tap * sizeof *j->tap);
    for (int64_t i = 0; i < j->data.train.n; i++)
        h = io_hash(h, &j->data.train.v[i].hash, sizeof j->data.train.v[i].hash);
    j->kind->note(j, shape, sizeof shape);
    snprintf(j->name, sizeof j->name, "%016" PRIx64 " %s %s ctx %" PRId64 " time %.0f", h, j->kind->command, shape,
             j->ctx_tokens, j->o->time_s);
}

/* Steps run where the model does, if they can. */
static enum err_code open_math(struct cli_train_drafter *j, struct err *e)
{
    const char *device = j->kind->on_gpu ? j->x.mo.device : "cpu";

    if (train_math_open(&j->math, device, j->pool, e))
        return e->code;
    j->products = j->kind->products != NULL ? j->kind->products : j->math->products;
    if (j->math->host && strncmp(device, "cuda", 4) == 0)
        cli_warn("steps run on the CPU: this program was built without cuBLAS");
    return ERR_OK;
}

static enum err_code open_all(struct cli_train_drafter *j, char *const *files, struct err *e)
{
    const struct cli_train_options *o = j->o;
    const int threads = o->model.n_threads > 0 ? o->model.n_threads : pool_cpus();
    struct run_opts ro = { .ctx_tokens = o->model.ctx_tokens, .n_seq = o->n_seq };

    if (io_lock(&j->lock, o->out, e) || cli_train_report_open(&j->report, o, e) || cli_open(&j->x, &o->model, e) ||
        cli_open_text(&j->x, true, e) || cli_open_model(&j->x, e) || j->kind->choose(j, e) ||
        cli_train_read(&j->data, o, files, j->x.text, j->ctx_tokens - 8, e))
        return e->code;
    ro.rows_max = o->model.chunk;
    ro.tap_layers = j->tap;
    ro.n_taps = j->n_tap;
    if (cli_open_run(&j->run, &j->x, &ro, e) || pool_open(&j->pool, threads, e) || open_math(j, e) ||
        bound_memory(j, e) || train_texts_open(&j->texts, j->math, text_room(j), width_of(j), e) ||
        train_texts_open(&j->tests, j->math, j->data.test.n * j->ctx_tokens + 1, width_of(j), e) ||
        train_writer_open(&j->writer, j->run, j->x.text, NULL, 0, j->n_tap, o->n_predict, e) || j->kind->open(j, e) ||
        open_arrays(j, e))
        return e->code;
    name_job(j);
    return ERR_OK;
}

static void close_all(struct cli_train_drafter *j)
{
    for (int i = 0; i <= TRAIN_SIZES; i++)
        free(j->steps[i]);
    free(j->order);
    train_drop(&j->fresh);
    free(j->half);
    j->kind->close(j);
    train_writer_close(j->writer);
    train_texts_close(&j->texts);
    train_texts_close(&j->tests);
    run_close(j->run);
    if (j->math != NULL)
        j->math->close(j->math);
    pool_close(j->pool);
    cli_train_data_free(&j->data);
    cli_opened_close(&j->x);
    io_unlock(j->lock);
}

/* ---- texts ---- */

static enum err_code interrupted(struct err *e)
{
    return err_set(e, ERR_CANCEL, "interrupted");
}

static bool next_test(void *ctx, struct train_ask *ask)
{
    struct cli_train_drafter *j = ctx;

    const bool enough = j->asked == EARLY_TESTS || (clock_ms() >= j->stop_ms && j->tests.n >= EARLY_LEAST);

    if (j->asked == j->data.test.n || (j->early > 0 && enough))
        return false;
    const struct cli_train_prompt *p = &j->data.test.v[j->asked];

    *ask = (struct train_ask){ .prompt = p->token.v, .n_prompt = p->token.n, .of = p->of, .source = (int)j->asked };
    j->asked++;
    return true;
}

static bool tests_go_on(void *ctx)
{
    const struct cli_train_drafter *j = ctx;

    cli_progress("texts to test on: %" PRId64 " of %" PRId64, j->tests.n, j->data.test.n);
    /* those of the early test are all finished: they are asked only once */
    return !cli_interrupted() && (j->early > 0 || j->tests.n < TUNE_LEAST_TESTS || clock_ms() < j->stop_ms);
}

static int by_source(const void *a, const void *b)
{
    return ((const struct train_text_entry *)a)->source - ((const struct train_text_entry *)b)->source;
}

/* For a number of seconds, or until there are as many as are needed. */
static enum err_code ask_tests(struct cli_train_drafter *j, double seconds, struct err *e)
{
    j->stop_ms = clock_ms() + seconds * 1e3;
    if (train_writer_run(j->writer, &j->tests, next_test, tests_go_on, j, e))
        return e->code;
    return cli_interrupted() ? interrupted(e) : ERR_OK;
}

/* What the model says to prompts that nobody trains on, the most likely tokens; in the prompts' order. */
static enum err_code write_tests(struct cli_train_drafter *j, struct err *e)
{
    if (ask_tests(j, ASK_SHARE * j->o->time_s, e))
        return e->code;
    train_writer_drop(j->writer); /* nor is an unfinished one learnt */
    if (j->tests.n < TUNE_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "the model answers %" PRId64 " of %" PRId64 " held-out prompts: too few, at "
                       "least %d are needed",
                       j->tests.n, j->data.test.n, TUNE_LEAST_TESTS);
    if (j->tests.n < j->data.test.n)
        cli_warn("%" PRId64 " of %" PRId64 " held-out prompts are tested on: %s", j->tests.n, j->data.test.n,
                 clock_ms() < j->stop_ms ? "the model gives no answer to the others"
                                         : "the time is too short to write more answers");
    qsort(j->tests.v, (size_t)j->tests.n, sizeof *j->tests.v, by_source);
    return ERR_OK;
}

/* Prompts in a new order each time round: first with the most likely tokens, then with others. */
static bool next_prompt(void *ctx, struct train_ask *ask)
{
    struct cli_train_drafter *j = ctx;
    const int64_t n = j->data.train.n;

    if (j->at == 0)
        for (int64_t i = 0; i < n; i++) {
            const int64_t k =
                (int64_t)(rng_unit((uint64_t)j->o->seed, 7 + (uint64_t)j->pass, (uint64_t)i) * (double)(i + 1));

            j->order[i] = j->order[k];
            j->order[k] = i;
        }
    const int64_t i = j->order[j->at];
    const struct cli_train_prompt *p = &j->data.train.v[i];

    *ask = (struct train_ask){ .prompt = p->token.v,
                               .n_prompt = p->token.n,
                               .of = p->of,
                               .source = (int)i,
                               .temp = j->pass > 0 ? HOT : 0,
                               .seed = (uint64_t)j->o->seed + (uint64_t)j->pass,
                               .stream = (uint64_t)i };
    if (++j->at == n) {
        j->at = 0;
        j->pass++;
    }
    return true;
}

static bool wants_texts(const struct cli_train_drafter *j)
{
    return (double)j->texts.added <
           (j->early > 0 ? EARLY_TEXTS : TEXTS_MIN) + FRESH * (double)(*j->step * j->o->n_text);
}

/* While a GPU has a step under way. */
static bool step_goes_on(void *ctx)
{
    const struct cli_train_drafter *j = ctx;

    return !cli_interrupted() && j->math->busy(j->math) && wants_texts(j);
}

static double smaller_of(double a, double b)
{
    return a < b ? a : b;
}

/* Until the end: the time that is left, or what --steps and the last test will take, if that is less. */
static double left_s(const struct cli_train_drafter *j)
{
    const double time = j->o->time_s - cli_train_spent_s(j), done = (double)(*j->step - j->first_step);

    if (j->o->steps == 0 || done <= 0)
        return time;
    return smaller_of(time, (cli_train_spent_s(j) - j->first_s) / done * (double)(j->o->steps - *j->step) +
                                TESTS_TAKE * j->walk_s);
}

/* Until the round's share of time is over, and there is something to learn from, or hardly will be. Where memory holds
 * few texts those that went count, too. */
static bool texts_go_on(void *ctx)
{
    enum { TRIES = 8 };
    const struct cli_train_drafter *j = ctx;
    const bool few =
        j->texts.added < j->o->n_text && j->pass < j->pass_first + TRIES && cli_train_spent_s(j) < j->whole_s;
    char clock[32];

    cli_progress("writing: %" PRId64 " texts, %" PRId64 " tokens, %s left", j->texts.n, train_writer_tokens(j->writer),
                 cli_clock(left_s(j), clock));
    return !cli_interrupted() && ((clock_ms() < j->stop_ms && wants_texts(j)) || few);
}

/* ---- training ---- */

static void note_step(struct cli_train_drafter *j, const struct train_loss *sum, double *last_ms, double part)
{
    char clock[32];
    const double loss = sum->sum / sum->weight, right = (double)sum->right / (double)sum->n;

    *last_ms = clock_ms();
    cli_train_point(&j->report, loss);
    cli_train_event(&j->report, "step",
                    json_pack("{s:I, s:f, s:f, s:f, s:f}", "step", (json_int_t)*j->step, "loss", loss, "right", right,
                              "rate", train_rate((double)j->o->rate, *j->step, j->kind->n_warm, part), "eta_seconds",
                              left_s(j)));
    cli_progress("step %" PRId64 ", loss %.3f, %.1f %% right, %s left", *j->step, loss, 100 * right,
                 cli_clock(left_s(j), clock));
}

static bool enough(const struct cli_train_drafter *j)
{
    const int64_t most = j->early > 0 ? j->early : j->o->steps;

    return most > 0 && *j->step >= most;
}

/* How much of the job is done: by time, or by steps where those end it sooner. */
static double part_done(const struct cli_train_drafter *j)
{
    const double time = cli_train_spent_s(j) / j->whole_s,
                 steps = j->o->steps > 0 ? (double)*j->step / (double)j->o->steps : 0;

    return time > steps ? time : steps;
}

/* Steps until the round is over. */
static enum err_code learn_round(struct cli_train_drafter *j, double until_s, struct err *e)
{
    struct train_loss sum = { 0 }, loss;
    double last_ms = clock_ms();

    while (cli_train_spent_s(j) < until_s && !enough(j)) {
        const double part = part_done(j);

        if (cli_interrupted())
            return interrupted(e);
        if (j->kind->step(j, part, e) || train_writer_run(j->writer, &j->texts, next_prompt, step_goes_on, j, e) ||
            j->kind->loss(j, &loss, e))
            return e->code;
        sum.sum += loss.sum;
        sum.weight += loss.weight;
        sum.right += loss.right;
        sum.n += loss.n;
        if (clock_ms() - last_ms < REPORT_MS)
            continue;
        note_step(j, &sum, &last_ms, part);
        sum = (struct train_loss){ 0 };
    }
    if (sum.n > 0) /* a quick training has a picture, too */
        note_step(j, &sum, &last_ms, part_done(j));
    return ERR_OK;
}

static bool walk_tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress("test: %llu of %llu texts", (unsigned long long)done, (unsigned long long)total);
    return !cli_interrupted();
}

/* What a test of the first block size takes says when steps end. */
static void plan_test(struct cli_train_drafter *j, double walk_s)
{
    j->walk_s = walk_s;
    j->whole_s = j->o->time_s - TESTS_TAKE * walk_s;
}

static bool first_tick(void *ctx, uint64_t done, uint64_t total)
{
    struct cli_train_drafter *j = ctx;

    j->asked = (int64_t)done;
    return walk_tick(NULL, done, total) && (done == total || done < TUNE_LEAST_TESTS || clock_ms() < j->stop_ms);
}

/* The first test, of the weights that training begins with, shows how many of the texts there is time for. */
static enum err_code choose_tests(struct cli_train_drafter *j, struct err *e)
{
    const struct progress progress = { first_tick, j };
    const double from_ms = clock_ms();

    j->stop_ms = from_ms + j->o->time_s * TEST_SHARE / WALKS * 1e3;
    if (j->kind->walk(j, false, j->kind->size_at(j, 0), j->steps[1], &progress, e)) {
        if (e->code != ERR_CANCEL || cli_interrupted())
            return e->code;
        cli_warn("%" PRId64 " of %" PRId64 " texts are tested on: the time is too short to test on all", j->asked,
                 j->tests.n);
        j->tests.n = j->asked;
        *e = (struct err){ 0 };
    }
    plan_test(j, (clock_ms() - from_ms) / 1e3);
    return ERR_OK;
}

/* How it does so far, which also says when the last test has to begin. */
static enum err_code test_now(struct cli_train_drafter *j, struct err *e)
{
    const struct progress progress = { walk_tick, NULL };
    const double from_ms = clock_ms();
    int64_t tokens = 0, steps = 0;

    if (j->kind->walk(j, false, j->kind->size_at(j, 0), j->steps[1], &progress, e))
        return e->code;
    for (int64_t i = 0; i < j->tests.n; i++) {
        tokens += train_walk_tokens(&j->tests.v[i]);
        steps += j->steps[1][i];
    }
    cli_train_event(
        &j->report, "round",
        json_pack("{s:I, s:f}", "step", (json_int_t)*j->step, "tokens_per_step", (double)tokens / (double)steps));
    cli_note("%.0f s, %" PRId64 " steps: %.2f tokens per step", cli_train_spent_s(j), *j->step,
             (double)tokens / (double)steps);
    plan_test(j, (clock_ms() - from_ms) / 1e3);
    return ERR_OK;
}

/* A disk that is full now need not be full at the end: training goes on. */
static void keep_state(struct cli_train_drafter *j)
{
    struct err e;

    if (j->kind->save(j, &e))
        cli_warn("%s (without that file an interrupted training cannot go on)", e.msg);
}

/* Texts to learn from. */
static enum err_code write_round(struct cli_train_drafter *j, double seconds, struct err *e)
{
    j->stop_ms = clock_ms() + seconds * 1e3;
    if (train_writer_run(j->writer, &j->texts, next_prompt, texts_go_on, j, e))
        return e->code;
    if (cli_interrupted())
        return interrupted(e);
    if (j->texts.n == 0 && cli_train_spent_s(j) < j->whole_s)
        return err_set(e, ERR_FORMAT, "the model gives no answers to the prompts");
    cli_train_event(&j->report, "texts",
                    json_pack("{s:I, s:I}", "texts", (json_int_t)j->texts.n, "written_tokens",
                              (json_int_t)train_writer_tokens(j->writer)));
    return ERR_OK;
}

/* Some texts, then steps; again, until the time is over. */
static enum err_code run_rounds(struct cli_train_drafter *j, struct err *e)
{
    const double each_s = smaller_of(ROUND_S, ROUND_SHARE * j->o->time_s),
                 test_s = smaller_of(TEST_S, j->o->time_s / TESTS);
    double tested_s = cli_train_spent_s(j);

    j->first_s = tested_s;
    j->first_step = *j->step;
    while (cli_train_spent_s(j) < j->whole_s && !enough(j)) {
        const double end_s = smaller_of(cli_train_spent_s(j) + each_s, j->whole_s);

        if (write_round(j, each_s * GEN_SHARE, e) || learn_round(j, end_s, e))
            return e->code;
        if (cli_train_spent_s(j) < tested_s + test_s || cli_train_spent_s(j) + j->walk_s > j->whole_s || enough(j))
            continue;
        if (test_now(j, e))
            return e->code;
        keep_state(j);
        tested_s = cli_train_spent_s(j);
    }
    return ERR_OK;
}

/* The weights to begin with. */
static enum err_code begin_weights(struct cli_train_drafter *j, struct err *e)
{
    bool resumed;

    train_drop_done(j->o->out, j->half);
    resumed = access(j->half, F_OK) == 0;
    if (j->kind->begin(j, resumed, e))
        return e->code;
    if (resumed) {
        j->pass = j->pass_first = *j->step + 1;
        cli_warn("goes on after %.0f s and %" PRId64 " steps", j->before_s, *j->step);
    }
    return ERR_OK;
}

/* ---- the test ---- */

/* How the drafter that serves does, or none: a token a step. */
static enum err_code test_old(struct cli_train_drafter *j, struct err *e)
{
    const struct progress progress = { walk_tick, NULL };

    for (int64_t i = 0; i < j->tests.n; i++)
        j->steps[0][i] = train_walk_tokens(&j->tests.v[i]);
    return j->had ? j->kind->walk(j, true, 0, j->steps[0], &progress, e) : ERR_OK;
}

/* Sizes of blocks that are tested. */
static int n_sizes(const struct cli_train_drafter *j)
{
    int n = 0;

    while (n < TRAIN_SIZES && j->kind->size_at(j, n) > 0)
        n++;
    return n;
}

static enum err_code test_new(struct cli_train_drafter *j, struct err *e)
{
    const struct progress progress = { walk_tick, NULL };

    for (int i = 0; i < n_sizes(j); i++)
        if (j->kind->walk(j, false, j->kind->size_at(j, i), j->steps[1 + i], &progress, e))
            return e->code;
    return ERR_OK;
}

/* In 20 columns, of which each character takes one. */
static void print_name(FILE *to, const char *name)
{
    enum { COLUMNS = 20 };
    size_t bytes = 0;
    int n = 0;

    for (; name[bytes] != '\0' && n < COLUMNS; n++) {
        const size_t one = str_utf8(str_of(name + bytes));

        bytes += one > 0 ? one : 1;
    }
    fprintf(to, "%.*s%*s", (int)bytes, name, COLUMNS - n, "");
}

/* Sums over the texts of a class; -1: all. */
static void print_class(struct cli_train_drafter *j, int of, const char *name)
{
    int64_t n = 0, tokens = 0, steps[1 + TRAIN_SIZES] = { 0 };
    double rate[1 + TRAIN_SIZES];

    for (int64_t i = 0; i < j->tests.n; i++) {
        if (of >= 0 && j->tests.v[i].of != of)
            continue;
        n++;
        tokens += train_walk_tokens(&j->tests.v[i]);
        for (int k = 0; k <= TRAIN_SIZES; k++)
            steps[k] += j->steps[k][i];
    }
    if (n == 0)
        return;
    for (int k = 0; k <= TRAIN_SIZES; k++)
        rate[k] = steps[k] > 0 ? (double)tokens / (double)steps[k] : 0;
    if (!j->o->quiet) {
        FILE *to = j->report.events == stdout ? stderr : stdout;

        print_name(to, name);
        fprintf(to, " %6" PRId64 " %8" PRId64, n, tokens);
        for (int k = n_sizes(j); k > 0; k--)
            fprintf(to, " %7.2f", rate[k]);
        fprintf(to, " %7.2f\n", rate[0]);
    }
    cli_train_event(&j->report, "test",
                    json_pack("{s:s, s:I, s:I, s:f, s:f}", "class", name, "texts", (json_int_t)n, "tokens",
                              (json_int_t)tokens, "tokens_per_step", rate[1], "tokens_per_step_before", rate[0]));
}

static void print_table(struct cli_train_drafter *j)
{
    FILE *to = j->report.events == stdout ? stderr : stdout;

    if (!j->o->quiet) {
        fprintf(to, "tokens per step of the target\n%-20s %6s %8s", "class", "texts", "tokens");
        for (int i = n_sizes(j) - 1; i >= 0; i--)
            fprintf(to, "    B=%-2d", j->kind->size_at(j, i));
        fprintf(to, "  before\n");
    }
    for (int i = 0; i < j->data.test.n_name; i++)
        print_class(j, i, j->data.test.name[i]);
    print_class(j, -1, "all");
}

/* The exit status: published, or the old one stays. */
static enum err_code decide(struct cli_train_drafter *j, int *status, struct err *e)
{
    double *gain = calloc((size_t)j->tests.n, sizeof *gain), p;

    if (gain == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < j->tests.n; i++)
        gain[i] = (double)(j->steps[0][i] - j->steps[1][i]);
    p = train_gate(gain, j->tests.n, (uint64_t)j->o->seed);
    free(gain);
    *status = p < TUNE_P_MAX ? EXIT_OK : EXIT_NO;
    cli_train_event(
        &j->report, "end",
        json_pack("{s:b, s:f, s:I}", "published", *status == EXIT_OK, "p", p, "steps", (json_int_t)*j->step));
    if (*status == EXIT_OK && train_publish(j->o->out, j->fresh, j->o->keep, j->half, e))
        return e->code;
    if (*status == EXIT_OK)
        cli_warn("%s is written: fewer steps than %s (p = %.2g)", j->o->out, j->had ? "before" : "without", p);
    else {
        train_drop(&j->fresh);
        unlink(j->half);
        cli_warn("%s: not better than %s (p = %.2g, %g is the limit)", j->o->out,
                 j->old   ? "the old one, which stays"
                 : j->had ? "the model's block alone: nothing is written"
                          : "no drafter: nothing is written",
                 p, TUNE_P_MAX);
    }
    return ERR_OK;
}

/* ---- the early test ---- */

/* By how much the first steps changed tokens per step; the upper end of the 95 % interval over texts. */
static enum err_code judge_early(struct cli_train_drafter *j, bool *stop, struct err *e)
{
    const int64_t n = j->tests.n;
    double *saved = calloc((size_t)n, sizeof *saved);
    int64_t tokens = 0, before = 0, after = 0;

    if (saved == NULL)
        return err_nomem(e);
    for (int64_t i = 0; i < n; i++) {
        saved[i] = (double)(j->steps[0][i] - j->steps[1][i]);
        tokens += train_walk_tokens(&j->tests.v[i]);
        before += j->steps[0][i];
        after += j->steps[1][i];
    }
    const struct eval_mean gain = eval_group_mean(saved, j->steps[1], n);
    const double most = gain.mean + 1.96 * gain.se;

    const double p = train_gate(saved, n, (uint64_t)j->o->seed);

    free(saved);
    if (before == 0 || after == 0)
        return ERR_OK;
    *stop = most < EARLY_GAIN;
    cli_train_event(&j->report, "early",
                    json_pack("{s:I, s:I, s:f, s:f, s:f, s:b}", "step", (json_int_t)*j->step, "texts", (json_int_t)n,
                              "tokens_per_step", (double)tokens / (double)after, "tokens_per_step_before",
                              (double)tokens / (double)before, "gain_most", most, "stopped", *stop));
    if (!*stop)
        return ERR_OK;
    cli_train_event(&j->report, "end",
                    json_pack("{s:b, s:f, s:I}", "published", false, "p", p, "steps", (json_int_t)*j->step));
    cli_warn("stopped after %" PRId64 " steps: %.2f tokens per step on %" PRId64 " texts, %.2f before, a gain of at "
             "most %.1f %% at this point; nothing is written (--steps: train on all the same)",
             *j->step, (double)tokens / (double)after, n, (double)tokens / (double)before, most > 0 ? 100 * most : 0);
    return ERR_OK;
}

/* A few steps, before the time for all the tests is spent: whether guesses get better at all. */
static enum err_code try_early(struct cli_train_drafter *j, bool *stop, struct err *e)
{
    const struct progress progress = { walk_tick, NULL };
    const double time = j->o->time_s, write_s = smaller_of(EARLY_S, EARLY_ASK * time);

    j->whole_s = time;
    if (ask_tests(j, write_s, e) || j->tests.n < EARLY_LEAST)
        return e->code;
    if (j->kind->walk(j, true, 0, j->steps[0], &progress, e) || write_round(j, write_s, e) ||
        learn_round(j, EARLY_SHARE * time, e))
        return e->code;
    train_writer_drop(j->writer); /* what comes next is written to test on */
    if (*j->step < j->early)      /* too few to say anything */
        return ERR_OK;
    return j->kind->walk(j, false, j->kind->size_at(j, 0), j->steps[1], &progress, e) ? e->code
                                                                                      : judge_early(j, stop, e);
}

/* Nothing is known of a drafter that begins with what serves. */
static enum err_code test_early(struct cli_train_drafter *j, int *status, struct err *e)
{
    bool stop = false;
    enum err_code code;

    if (!j->kind->n_early || j->old || *j->step > 0 || j->o->steps > 0)
        return ERR_OK;
    j->early = j->kind->n_early;
    code = try_early(j, &stop, e);
    j->early = 0;
    if (code == ERR_CANCEL && *j->step > 0)
        keep_state(j);
    if (stop)
        *status = EXIT_NO;
    return code;
}

static enum err_code train_on(struct cli_train_drafter *j, int *status, struct err *e)
{
    enum err_code code;

    if (test_early(j, status, e) || *status != EXIT_OK)
        return e->code;
    if (write_tests(j, e) || choose_tests(j, e) || test_old(j, e))
        return e->code;
    cli_train_event(&j->report, "begin",
                    json_pack("{s:s, s:I, s:I, s:I, s:s}", "command", j->kind->command, "prompts",
                              (json_int_t)j->data.train.n, "tests", (json_int_t)j->tests.n, "parameters",
                              (json_int_t)j->n_params, "products", j->products));
    cli_note("%" PRId64 " prompts to train on, %" PRId64 " texts to test on, %" PRId64 " weights, products by %s",
             j->data.train.n, j->tests.n, j->n_params, j->products);
    code = run_rounds(j, e);
    if (code == ERR_OK && *j->step == 0)
        code = err_set(e, ERR_ARG, "--time %s is too short for a step: %.1f s are over, and a test takes %.1f s",
                       j->o->time, cli_train_spent_s(j), j->walk_s);
    if (code == ERR_OK || (code == ERR_CANCEL && *j->step > 0))
        keep_state(j);
    if (code != ERR_OK)
        return code;
    if (train_fresh(&j->fresh, j->o->out, e) || j->kind->write(j, e) || test_new(j, e))
        return e->code;
    cli_progress_end();
    print_table(j);
    return decide(j, status, e);
}

static enum err_code run_training(struct cli_train_drafter *j, int *status, struct err *e)
{
    if (begin_weights(j, e))
        return e->code;
    if (train_on(j, status, e) && access(j->half, F_OK) == 0)
        cli_warn("%s keeps what was learnt: the same command goes on from there", j->half);
    return e->code;
}

int cli_train_drafter(struct cli_train_drafter *j, const struct cli_train_options *o, const struct cli *cli,
                      char *const *files)
{
    struct err e = { 0 };
    int status = EXIT_OK;
    enum err_code code;

    j->o = o;
    j->cli = cli;
    j->from_ms = clock_ms();
    code = open_all(j, files, &e);
    if (code == ERR_OK)
        code = run_training(j, &status, &e);
    status = cli_train_end(&j->report, code, status, &e);
    close_all(j);
    return status;
}
