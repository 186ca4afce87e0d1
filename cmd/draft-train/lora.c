/* SPDX-License-Identifier: Apache-2.0 */
/* lora.c - the command lora: an adapter learns answers, and stays when it knows more and has forgotten nothing.
 * room: cmd */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/memory.h"
#include "adapt/adapt.h"
#include "draft-train/job.h"
#include "gguf/gguf.h"
#include "tune/lora.h"
#include "tune/shield.h"
#include "tune/zo.h"

enum { ALPHA = 2, ALPHA_SHIELD = 8 };
#define TEST_SHARE 0.1 /* of the time, at most, for a test */

double cli_train_lora_s(const struct train_lora *j)
{
    return j->before_s + (cli_now_ms() - j->from_ms) / 1e3;
}

/* ---- opening ---- */

static enum err_code begin(struct train_lora *j, struct err *e)
{
    const enum err_code code = cli_train_begin(&j->begin, j->o, j->cli, j->x.gguf, j->g, e);

    j->lora = j->begin.lora;
    return code;
}

static int64_t longest(const struct train_items *s)
{
    int64_t n = 0;

    for (int64_t i = 0; i < s->n; i++)
        n = s->v[i].token.n > n ? s->v[i].token.n : n;
    return n;
}

/* Whether there is enough to learn, to test on and to keep; says what was left out. */
static enum err_code check_items(const struct train_lora *j, struct err *e)
{
    const int64_t n_out = j->items.n_out + j->tests.n_out + j->keep.n_out;
    const int64_t n_keep = j->keep.n + (int64_t)json_array_size(j->keep.open),
                  same = cli_train_items_same(&j->tests, &j->items);
    char out[160] = "";

    if (n_out > 0)
        (void)snprintf(out, sizeof out,
                       "%" PRId64 " items are left out: more than %" PRId64 " tokens (-c: a longer context), no "
                       "text or no answer",
                       n_out, j->o->model.ctx_tokens);
    if (j->items.n == 0)
        return err_set(e, ERR_FORMAT, "there is nothing to learn: %s", n_out > 0 ? out : "the files have no items");
    if (j->tests.n < TRAIN_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "%" PRId64 " items to test on are too few: at least %d, of a file of --held-out%s%s%s",
                       j->tests.n, TRAIN_LEAST_TESTS, j->o->held_out.n > 0 ? "" : " or a tenth of the others",
                       n_out > 0 ? "; " : "", out);
    if (j->o->keep_files.n > 0 && n_keep < TRAIN_KEEP_EVERY * TRAIN_LEAST_TESTS)
        return err_set(e, ERR_FORMAT,
                       "--keep: %" PRId64 " items are too few: one in %d is tested on, and at least %d are needed"
                       "%s%s",
                       n_keep, TRAIN_KEEP_EVERY, TRAIN_KEEP_EVERY * TRAIN_LEAST_TESTS, n_out > 0 ? "; " : "", out);
    if (n_out > 0)
        cli_warn("%s", out);
    if (same > 0)
        cli_warn("%" PRId64 " of the %" PRId64
                 " items to test on are also learnt: of these the test shows only that they are "
                 "known by heart",
                 same, j->tests.n);
    return ERR_OK;
}

static enum err_code read_items(struct train_lora *j, char *const *files, struct err *e)
{
    const struct train_options *o = j->o;
    const int64_t most = o->model.ctx_tokens;
    int64_t asked, twice = 0, keep_twice = 0;
    size_t n = 0;

    while (files[n] != NULL)
        n++;
    if (cli_train_items(&j->items, j->x.text, most, false, (const char *const *)files, n, e) ||
        cli_train_items(&j->tests, j->x.text, most, false, o->held_out.v, o->held_out.n, e) ||
        cli_train_items(&j->keep, j->x.text, most, true, o->keep_files.v, o->keep_files.n, e))
        return e->code;
    if (o->held_out.n == 0 && cli_train_items_split(&j->items, &j->tests, 10, TRAIN_TESTS_MAX, e))
        return e->code;
    if (cli_train_items_once(&j->tests, &twice, e) || cli_train_items_once(&j->keep, &keep_twice, e))
        return e->code;
    if (twice > 0)
        cli_warn("%" PRId64 " items to test on are named more than once, and count once", twice);
    if (check_items(j, e) || cli_train_item_sets(&j->kept, TRAIN_SETS_MAX, j->x.text, most, e))
        return e->code;
    j->sets = json_incref(j->kept.sets);
    if (o->keep_files.n > 0) /* of which some are tested instead */
        cli_train_items_free(&j->kept);
    asked = longest(&j->items);
    asked = asked > TRAIN_OWN_TEXT ? asked : TRAIN_OWN_TEXT;
    if ((j->keep.open != NULL || json_array_size(j->sets) > 0) && asked < TRAIN_OWN_ASKED)
        asked = TRAIN_OWN_ASKED;
    j->own_tokens = asked + TRAIN_OWN_ANSWER < most ? asked + TRAIN_OWN_ANSWER : most;
    return ERR_OK;
}

/* Bytes of the parameters and what is kept beside them, of what is rehearsed and of the shield. In the steps these are the
 * parameters, the file, gradient and moments, and what a step began with; in the last test the whole adapter, what is written,
 * and what is read again instead. An old adapter is there three times. */
static int64_t own_bytes(const struct train_lora *j)
{
    const int64_t copies = j->o->method == TRAIN_FIRST ? 6 : 6 + 2 * j->o->samples;
    const int64_t old = j->begin.old != NULL ? 3 * adapter_floats(j->begin.old) : 0;
    const int64_t n = j->o->rehearse * 9 / 8 + (int64_t)json_array_size(j->keep.open);
    int64_t rows = n * TRAIN_OWN_ANSWER, shield = j->shielded ? tune_shield_bytes(j->lora) : 0;

    for (int64_t i = 0; i < j->keep.n; i++)
        rows += j->keep.v[i].n_answer;
    return (j->lora->n_params * copies + old) * (int64_t)sizeof(float) + shield +
           rows * (int64_t)sizeof(struct grad_soft) + n * j->own_tokens * 2 * (int64_t)sizeof(int32_t);
}

/* Whether there would be a shield: where there is something to rehearse. */
static bool wants_shield(const struct train_options *o)
{
    return o->method == TRAIN_FIRST && o->shield > 0 && (o->rehearse > 0 || o->keep_files.n > 0);
}

static int64_t shield_mib(const struct train_lora *j)
{
    return (tune_shield_bytes(j->lora) >> 20) + 1;
}

/* Whether there is a shield: where half of --memory is enough for it. */
static enum err_code choose_shield(struct train_lora *j, struct err *e)
{
    const struct train_options *o = j->o;

    j->shielded = wants_shield(o) && tune_shield_bytes(j->lora) <= o->memory_bytes / 2;
    if (wants_shield(o) && !j->shielded && cli_given(j->cli, "shield"))
        return err_set(e, ERR_ARG, "--shield takes %" PRId64 " MiB, and --memory has to be twice that", shield_mib(j));
    if (j->begin.fresh && o->alpha <= 0 && !o->scales) /* behind a shield the same step does less */
        j->lora->file->alpha = (j->shielded ? ALPHA_SHIELD : ALPHA) * (float)o->rank;
    return ERR_OK;
}

/* Whether a pass of n rows fits into --memory, on a GPU also into what that has beside the adapters. */
static bool fits(const struct train_lora *j, int64_t n, bool keep)
{
    const int64_t gpu = grad_room(j->g), copies = j->o->method == TRAIN_FIRST ? 2 : 2 * j->o->samples + 3;
    const int64_t bytes = grad_bytes(j->g, n, j->lora->rank, keep), host = j->o->memory_bytes - own_bytes(j);

    if (gpu < 0)
        return bytes <= host;
    return grad_host_bytes(j->g, n) <= host && bytes <= gpu - copies * j->lora->n_params * (int64_t)sizeof(float);
}

/* The rows of a pass that memory allows; said before anything is taken. */
static enum err_code bound_memory(struct train_lora *j, struct err *e)
{
    const int64_t need[] = { longest(&j->items), longest(&j->tests), longest(&j->keep), longest(&j->kept),
                             j->o->rehearse > 0 || j->keep.open != NULL ? j->own_tokens : 0 };
    const int64_t left = memory_left("");
    int64_t most = 0, all, lo = 0, hi = 1 << 16;
    const bool gpu = grad_room(j->g) >= 0;

    for (int i = 0; i < 5; i++)
        most = need[i] > most ? need[i] : most;
    if (most > grad_longest(j->g))
        return err_set(e, ERR_ARG,
                       "an item of %" PRId64 " tokens is too long for gradients on a GPU, which take %" PRId64
                       ": a smaller --ctx, or --device cpu",
                       most, grad_longest(j->g));
    j->keep_layers = j->o->method == TRAIN_FIRST && fits(j, 4 * most, true);
    while (lo < hi) {
        const int64_t mid = (lo + hi + 1) / 2;

        if (fits(j, mid, j->keep_layers))
            lo = mid;
        else
            hi = mid - 1;
    }
    j->rows_max = lo;
    if (lo < most)
        return err_set(e, ERR_ARG, "%s too small: an item of %" PRId64 " tokens takes %" PRId64 " MiB%s",
                       gpu ? "--memory or the GPU's memory is" : "--memory is", most,
                       (grad_bytes(j->g, most, j->lora->rank, false) + (gpu ? 0 : own_bytes(j)) + (1 << 20) - 1) >> 20,
                       gpu ? " of the GPU's" : "");
    j->room_bytes = j->o->memory_bytes - (gpu ? 0 : own_bytes(j));
    all = own_bytes(j) + (gpu ? grad_host_bytes(j->g, lo) : grad_bytes(j->g, lo, j->lora->rank, j->keep_layers));
    if (left >= 0 && all > left)
        return err_set(e, ERR_LIMIT, "%" PRId64 " MiB of memory are left: a smaller --memory takes less", left >> 20);
    if (wants_shield(j->o) && !j->shielded)
        cli_warn("no shield: it takes %" PRId64 " MiB, more than half of --memory", shield_mib(j));
    if (gpu)
        cli_warn("a pass takes at most %" PRId64 " MiB of the GPU's memory",
                 grad_bytes(j->g, lo, j->lora->rank, j->keep_layers) >> 20);
    cli_warn("memory: at most %" PRId64 " MiB beside the model's file: %" PRId64 " rows in a pass, %" PRId64
             " parameters",
             all >> 20, lo, j->lora->n_params);
    return ERR_OK;
}

/* What an interrupted training must have in common with this one. */
static uint64_t hash_items(uint64_t h, const struct train_items *s)
{
    for (int64_t i = 0; i < s->n; i++)
        h = io_hash(h, s->v[i].token.v, (size_t)s->v[i].token.n * sizeof(int32_t));
    return h;
}

/* Questions without an answer. */
static enum err_code hash_open(uint64_t *h, const json_t *open, struct err *e)
{
    char *text = open == NULL ? NULL : json_dumps(open, JSON_COMPACT | JSON_SORT_KEYS);

    if (open != NULL && text == NULL)
        return err_nomem(e);
    if (text != NULL)
        *h = io_hash(*h, text, strlen(text));
    free(text);
    return ERR_OK;
}

static enum err_code name_job(struct train_lora *j, struct err *e)
{
    const struct train_options *o = j->o;
    uint64_t h = hash_items(hash_items(0, &j->items), &j->keep);

    if (hash_open(&h, j->keep.open, e))
        return e->code;
    for (int i = 0; i < grad_n_matrices(j->g); i++) {
        const struct grad_matrix *m = grad_matrix_at(j->g, i);

        h = io_hash(h, m->data, 64 < m->n_in ? 64 : (size_t)m->n_in);
    }
    h = io_hash(h, j->lora->theta, (size_t)j->lora->n_params * sizeof(float));
    const double rest[] = { (double)o->seed,
                            (double)o->momentum,
                            (double)o->keep_batch,
                            (double)o->keep_weight,
                            (double)o->rehearse,
                            (double)j->lora->file->alpha,
                            j->shielded ? (double)o->shield : 0 };
    h = io_hash(h, rest, sizeof rest);
    (void)snprintf(j->name, sizeof j->name,
                   "%016" PRIx64 " %s rank %d batch %d steps %" PRId64 " rate %g samples %d time %.0f", h,
                   o->method == TRAIN_FIRST ? "first" : "zo", j->lora->rank, o->n_text, j->steps, (double)o->rate,
                   o->samples, o->time_s);
    return ERR_OK;
}

static enum err_code open_grad(struct train_lora *j, struct err *e)
{
    const struct cli_model_opts *o = &j->o->model;
    int64_t most = 0;

    if (o->vram != NULL && cli_size(&most, o->vram, "vram", e))
        return e->code;
    if (grad_open_on(&j->g, j->x.gguf, cli_open_device(o), most, o->n_threads, e))
        return e->code;
    grad_set_progress(j->g, &cli_train_until_signal);
    return ERR_OK;
}

static enum err_code open_all(struct train_lora *j, char *const *files, struct err *e)
{
    const struct train_options *o = j->o;

    if (io_lock(&j->lock, o->out, e) || cli_train_report_open(&j->report, o, e) || cli_open(&j->x, &o->model, e) ||
        cli_open_text(&j->x, true, e) || open_grad(j, e) || begin(j, e) || read_items(j, files, e) ||
        choose_shield(j, e) || bound_memory(j, e))
        return e->code;
    j->steps = (j->items.n + o->n_text - 1) / o->n_text * o->epochs;
    j->steps = o->steps > 0 && o->steps < j->steps ? o->steps : j->steps;
    if (name_job(j, e))
        return e->code;
    j->half = cli_train_beside(o->out, ".train");
    j->adapters = calloc((size_t)j->lora->n, sizeof *j->adapters);
    if (j->half == NULL || j->adapters == NULL)
        return err_nomem(e);
    if (o->method == TRAIN_ZO)
        return tune_zo_open(
            &j->zo, j->lora,
            &(struct tune_zo_opts){ (uint64_t)o->seed, 1e-2, (double)o->rate, o->samples, o->momentum, j->rows_max },
            e);
    j->gradient = calloc((size_t)j->lora->n_params, sizeof *j->gradient);
    return j->gradient == NULL ? err_nomem(e) : train_adam_open(&j->adam, j->lora->n_params, e);
}

static void close_all(struct train_lora *j)
{
    for (int i = 0; i < 2; i++) {
        free(j->before[i]);
        free(j->after[i]);
    }
    if (j->log != NULL)
        fclose(j->log);
    tune_zo_close(j->zo);
    cli_train_end_steps(j);
    free(j->adapters);
    free(j->order);
    free(j->seen);
    free(j->which);
    free(j->seq_loss);
    cli_train_drop(&j->fresh);
    free(j->half);
    cli_train_items_free(&j->items);
    cli_train_items_free(&j->tests);
    cli_train_items_free(&j->keep);
    cli_train_items_free(&j->kept);
    cli_train_items_free(&j->own);
    json_decref(j->sets);
    cli_train_begin_close(&j->begin);
    grad_close(j->g);
    cli_opened_close(&j->x);
    io_unlock(j->lock);
}

/* A test takes a tenth of the time at most; fewer items are tested on where that is too short. */
static enum err_code fit_tests(struct train_lora *j, struct err *e)
{
    const int64_t all = j->tests.n + j->kept.n;
    double each_s, part;

    if (cli_train_test_some(j, &each_s, e))
        return e->code;
    part = TEST_SHARE * j->o->time_s / ((double)all * each_s);
    if (part >= 1)
        return ERR_OK;
    for (int i = 0; i < 2; i++) {
        struct train_items *s = i == 0 ? &j->tests : &j->kept;
        const int64_t n = (int64_t)(part * (double)s->n);

        cli_train_items_thin(s, n > TRAIN_LEAST_TESTS ? n : TRAIN_LEAST_TESTS);
    }
    cli_warn("%" PRId64 " of %" PRId64 " items are tested on: the time is too short for more", j->tests.n + j->kept.n,
             all);
    return ERR_OK;
}

static enum err_code train_on(struct train_lora *j, int *status, struct err *e)
{
    double from;

    if (cli_train_rehearse(j, e) || cli_train_resume(j, e) || fit_tests(j, e))
        return e->code;
    from = cli_now_ms();
    if (cli_train_test(j, j->begin.champion, j->before, e))
        return e->code;
    j->test_s = (cli_now_ms() - from) / 1e3;
    cli_train_warn_untested(j);
    cli_train_event(&j->report, "begin",
                    json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "command", "lora", "method",
                              j->zo == NULL ? "first" : "zo", "items", (json_int_t)j->items.n, "tests",
                              (json_int_t)j->tests.n, "keep", (json_int_t)j->keep.n, "kept", (json_int_t)j->kept.n,
                              "own", (json_int_t)j->own.n, "parameters", (json_int_t)j->lora->n_params));
    cli_note("%" PRId64 " items to learn, %" PRId64 " to test on, %" PRId64 " to keep, %" PRId64
             " of them to test on, %" PRId64 " that the model wrote; %" PRId64 " parameters",
             j->items.n, j->tests.n, j->keep.n + j->kept.n, j->kept.n, j->own.n, j->lora->n_params);
    return cli_train_learn(j, e) ? e->code : cli_train_decide(j, status, e);
}

static enum err_code train(struct train_lora *j, int *status, struct err *e)
{
    if (cli_train_check_half(j, e))
        return e->code;
    if (train_on(j, status, e) && access(j->half, F_OK) == 0)
        cli_warn("%s keeps what was learnt: the same command goes on from there", j->half);
    return e->code;
}

int cli_train_lora(const struct train_options *o, const struct cli *cli, char *const *files)
{
    struct train_lora j = { .o = o, .cli = cli, .from_ms = cli_now_ms() };
    struct err e = { 0 };
    int status = EXIT_OK;
    enum err_code code = open_all(&j, files, &e);

    if (code == ERR_OK)
        code = train(&j, &status, &e);
    status = cli_train_end(&j.report, code, status, &e);
    close_all(&j);
    return status;
}
