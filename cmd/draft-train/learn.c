/* SPDX-License-Identifier: Apache-2.0 */
/* learn.c - the steps of an adapter's training; what an interrupted one leaves.                room: cmd */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/io.h"
#include "base/rng.h"
#include "draft-train/job.h"
#include "tune/lora.h"
#include "tune/shield.h"
#include "tune/zo.h"

enum { WARM = 10, TRIES = 4, CHECK = 10 }; /* of zo: directions that are measured, steps between two checks */
#define SAVE_MS   60e3
#define REPORT_MS 1000.0
#define F16_MAX   65504.0f

static const struct train_adam_opts adam = { 0.9f, 0.99f, 1e-8f, 0.0f, 1.0f };

/* The gradient of the batch, in passes that memory allows. */
static enum err_code first_order(struct train_lora *j, const struct grad_seq *seq, int n, double *loss, struct err *e)
{
    double *each = j->seq_loss;

    memset(j->gradient, 0, (size_t)j->lora->n_params * sizeof *j->gradient);
    *loss = 0.0;
    for (int first = 0, some; first < n; first += some) {
        int64_t rows = 0;
        double part;

        for (some = 0; first + some < n && (some == 0 || rows + seq[first + some].n <= j->rows_max); some++)
            rows += seq[first + some].n;
        tune_lora_at(j->lora, j->lora->theta, j->gradient, 0, some, j->adapters);
        if (grad_backward(j->g,
                          &(struct grad_batch){ .seq = seq + first,
                                                .n_seq = some,
                                                .adapter = j->adapters,
                                                .n_adapter = j->lora->n,
                                                .seq_loss = each + first,
                                                .keep = j->keep_layers },
                          &part, e))
            return e->code;
        *loss += part;
    }
    cli_train_batch_seen(j, seq, each, n);
    return ERR_OK;
}

/* When steps end at the latest: a test has to follow, and there should be time for tests of each strength. */
static double limit_s(const struct train_lora *j)
{
    const double all = TRAIN_STRENGTHS * 1.2 * j->test_s, some = 0.15 * j->o->time_s, one = 1.2 * j->test_s;

    return j->o->time_s - (all < some ? all : one > some ? one : some);
}

/* Mean of this process; 0 before its first step. */
static double step_s(const struct train_lora *j)
{
    const int64_t taken = j->step - j->step_first;

    return taken > 0 ? (cli_train_lora_s(j) - j->learn_from_s) / (double)taken : 0;
}

/* The part of the training that is done: of its steps, so that it can be repeated; of its time where that will not do for
 * all of them. */
static double part_done(const struct train_lora *j)
{
    const double steps = (double)j->step / (double)j->steps, now = cli_train_lora_s(j);
    const double each = step_s(j);

    if (now + each >= limit_s(j))
        return 1;
    if (j->step - j->step_first < WARM || now + each * (double)(j->steps - j->step) <= limit_s(j) ||
        steps >= now / limit_s(j))
        return steps;
    return now / limit_s(j);
}

/* A step of AdamW, behind the shield; false: the gradient is not a number. */
static bool move(struct train_lora *j, double rate)
{
    float *theta = j->lora->theta;

    if (j->shield != NULL) {
        tune_shield_apply(j->shield, j->gradient);
        memcpy(j->was, theta, (size_t)j->lora->n_params * sizeof *theta);
    }
    if (!isfinite(train_adam_step(&j->adam, grad_pool(j->g), &adam, (float)rate, theta, j->gradient, NULL)))
        return false;
    for (int64_t i = 0; j->shield != NULL && i < j->lora->n_params; i++)
        theta[i] -= j->was[i];
    if (j->shield != NULL)
        tune_shield_apply(j->shield, theta);
    for (int64_t i = 0; j->shield != NULL && i < j->lora->n_params; i++)
        theta[i] += j->was[i];
    return true;
}

static enum err_code write_notes(struct train_lora *j, const struct tune_zo_note *note, int n, struct err *e)
{
    if (fwrite(note, sizeof *note, (size_t)n, j->log) != (size_t)n || fflush(j->log) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", j->half);
    return ERR_OK;
}

struct half {
    char name[200];
    int64_t step, n_params, n_seen;
    double spent_s, eps, rate; /* the last two of zo */
};

/* In zo's log, of which nothing else changes but its end. */
static enum err_code note_spent(struct train_lora *j, struct err *e)
{
    const double spent_s = cli_train_lora_s(j);

    if (pwrite(fileno(j->log), &spent_s, sizeof spent_s, offsetof(struct half, spent_s)) != (ssize_t)sizeof spent_s)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", j->half);
    return ERR_OK;
}

/* The loss of the first batch, and what follows from it. */
static enum err_code check_zo(struct train_lora *j, struct grad_seq *seq, struct err *e)
{
    struct tune_zo_note note;

    if (j->zo->checked == j->zo->step)
        return ERR_OK;
    if (tune_zo_check(j->zo, seq, cli_train_batch(j, 0, seq), &note, e))
        return e->code;
    cli_note("step %" PRId64 ": the first batch has a loss of %.4f, the least is %.4f; rate %.3g", j->step,
             (double)note.part, (double)j->zo->least, j->zo->o.rate);
    return write_notes(j, &note, 1, e) ? e->code : note_spent(j, e);
}

static enum err_code step_zo(struct train_lora *j, struct grad_seq *seq, double *loss, struct err *e)
{
    const struct tune_zo_note back = { j->zo->step, TUNE_ZO_CHECK, INFINITY };

    if (j->step % CHECK == 0 && check_zo(j, seq, e))
        return e->code;
    while (
        tune_zo_step(j->zo, seq, cli_train_batch(j, j->step, seq), loss, e)) { /* once: not a number, so it goes back */
        if (e->code != ERR_FORMAT || j->zo->checked == j->zo->step || tune_zo_check_again(j->zo, &back, e) ||
            write_notes(j, &back, 1, e))
            return e->code;
    }
    j->step++;
    return write_notes(j, j->zo->note, j->o->samples, e);
}

static enum err_code one_step(struct train_lora *j, struct grad_seq *seq, double *loss, struct err *e)
{
    const double rate = train_rate((double)j->o->rate, j->step, WARM, part_done(j));

    if (j->zo != NULL)
        return step_zo(j, seq, loss, e);
    if (first_order(j, seq, cli_train_batch(j, j->step, seq), loss, e))
        return e->code;
    if (!isfinite(*loss) || !move(j, rate))
        return err_set(e, ERR_FORMAT, "step %" PRId64 ": the loss is not a number: a smaller --rate may help", j->step);
    j->step++;
    return ERR_OK;
}

static void report(struct train_lora *j, double loss, double *last_ms)
{
    const double steps = step_s(j) * (double)(j->steps - j->step), time = limit_s(j) - cli_train_lora_s(j);
    const double left = j->test_s + (steps < time ? steps : time > 0 ? time : 0);
    char clock[32];

    cli_train_point(&j->report, loss);
    cli_progress("step %" PRId64 " of %" PRId64 ", loss %.3f, %s left", j->step, j->steps, loss,
                 cli_train_clock(left, clock));
    if (cli_now_ms() - *last_ms < REPORT_MS)
        return;
    *last_ms = cli_now_ms();
    cli_train_event(&j->report, "step",
                    json_pack("{s:I, s:I, s:f, s:f}", "step", (json_int_t)j->step, "steps", (json_int_t)j->steps,
                              "loss", loss, "eta_seconds", left));
}

/* ---- what was interrupted ---- */

static enum err_code save(struct train_lora *j, struct err *e)
{
    struct half h = {
        .step = j->step, .n_params = j->lora->n_params, .n_seen = j->n_seen, .spent_s = cli_train_lora_s(j)
    };
    const size_t n = (size_t)h.n_params * sizeof(float);
    struct io_out *out;

    if (j->zo != NULL) /* its log is there */
        return note_spent(j, e);
    memcpy(h.name, j->name, sizeof h.name);
    if (io_out_open(&out, j->half, e))
        return e->code;
    if (io_out_write(out, &h, sizeof h, e) || io_out_write(out, j->lora->theta, n, e) ||
        io_out_write(out, j->adam.m, n, e) || io_out_write(out, j->adam.v, n, e) ||
        io_out_write(out, j->seen, (size_t)j->n_seen * sizeof *j->seen, e)) {
        io_out_abort(out);
        return e->code;
    }
    return io_out_commit(out, e);
}

/* Whole steps and checks of a log. */
static enum err_code replay(struct train_lora *j, const unsigned char *log, size_t n, struct err *e)
{
    const size_t one = sizeof(struct tune_zo_note), each = (size_t)j->o->samples * one;
    struct tune_zo_note *note = calloc((size_t)j->o->samples, sizeof *note);
    enum err_code code = note == NULL ? err_nomem(e) : ERR_OK;

    while (n - j->log_n >= one && code == ERR_OK) {
        memcpy(note, log + j->log_n, one);
        if (note->sample == TUNE_ZO_CHECK) {
            code = tune_zo_check_again(j->zo, note, e);
            j->log_n += one;
            continue;
        }
        if (n - j->log_n < each)
            break;
        memcpy(note, log + j->log_n, each);
        code = tune_zo_again(j->zo, note, e);
        j->log_n += each;
        j->step += code == ERR_OK;
    }
    free(note);
    return code == ERR_OK ? code : err_wrap(e, "%s", j->half);
}

/* Arrays after the header: weights, their moments, and losses that were seen. */
static const float *array(const struct train_lora *j, const struct io_map *m, int i)
{
    return (const float *)(const void *)(m->data + sizeof(struct half)) + i * j->lora->n_params;
}

static bool all_finite(const float *v, int64_t n, float least)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]) || v[i] < least)
            return false;
    return true;
}

/* Whether a file with this training's name can be its state; the entries of a log are looked at when they are replayed. */
static bool sound(const struct train_lora *j, const struct io_map *m, const struct half *h)
{
    const int64_t n = h->n_params, floats = (int64_t)((m->size - sizeof *h) / sizeof(float));

    if (n != j->lora->n_params || !isfinite(h->spent_s) || h->spent_s < 0)
        return false;
    if (j->zo != NULL)
        return isfinite(h->eps) && h->eps > 0 && isfinite(h->rate) && h->rate > 0;
    return h->step >= 0 && h->step <= j->steps && h->n_seen >= 0 && h->n_seen <= floats &&
           3 * n + h->n_seen == floats && m->size % sizeof(float) == 0 && all_finite(array(j, m, 0), n, -INFINITY) &&
           all_finite(array(j, m, 1), n, -INFINITY) && all_finite(array(j, m, 2), n, 0) &&
           (h->n_seen != j->n_seen || all_finite(array(j, m, 3), h->n_seen, -INFINITY));
}

/* What an interrupted run of the same command left; m->data NULL: there is nothing. */
static enum err_code read_half(const struct train_lora *j, struct io_map *m, struct half *h, struct err *e)
{
    *m = (struct io_map){ 0 };
    if (access(j->half, F_OK) != 0)
        return ERR_OK;
    if (io_map_open(m, j->half, e))
        return e->code;
    if (m->size >= sizeof *h)
        memcpy(h, m->data, sizeof *h);
    if (m->size < sizeof *h || memcmp(h->name, j->name, sizeof h->name) != 0)
        err_set(e, ERR_ARG, "%s belongs to another training: finish it with its own command, or remove the file",
                j->half);
    else if (!sound(j, m, h))
        err_set(e, ERR_FORMAT, "%s is damaged: remove the file", j->half);
    else
        return ERR_OK;
    io_map_close(m);
    return e->code;
}

enum err_code cli_train_check_half(struct train_lora *j, struct err *e)
{
    struct io_map m;
    struct half h;

    cli_train_drop_done(j->o->out, j->half);
    if (read_half(j, &m, &h, e))
        return e->code;
    io_map_close(&m);
    return ERR_OK;
}

enum err_code cli_train_resume(struct train_lora *j, struct err *e)
{
    const size_t n = (size_t)j->lora->n_params * sizeof(float);
    struct io_map m;
    struct half h;
    enum err_code code = ERR_OK;

    if (read_half(j, &m, &h, e))
        return e->code;
    if (m.data == NULL)
        return ERR_OK;
    if (j->zo != NULL) {
        j->zo->o.eps = h.eps;
        j->zo->o.rate = h.rate;
        code = replay(j, m.data + sizeof h, m.size - sizeof h, e);
    } else {
        memcpy(j->lora->theta, array(j, &m, 0), n);
        memcpy(j->adam.m, array(j, &m, 1), n);
        memcpy(j->adam.v, array(j, &m, 2), n);
        if (h.n_seen == j->n_seen) /* else the model had time to write less, or more */
            memcpy(j->seen, array(j, &m, 3), (size_t)h.n_seen * sizeof *j->seen);
        j->adam.step = j->step = h.step;
    }
    j->before_s = h.spent_s;
    io_map_close(&m);
    if (code == ERR_OK)
        cli_warn("goes on after %.0f s and %" PRId64 " steps", j->before_s, j->step);
    return code;
}

static bool measure_tick(void *ctx, uint64_t done, uint64_t total)
{
    (void)ctx;
    cli_progress("measuring: %llu of %llu", (unsigned long long)done, (unsigned long long)total);
    return !cli_interrupted();
}

/* The log of zo: new with its measured sizes, or cut to whole steps. */
static enum err_code open_log(struct train_lora *j, struct grad_seq *seq, struct err *e)
{
    const struct progress progress = { measure_tick, NULL };
    struct half h = { .n_params = j->lora->n_params };
    const bool begun = j->log_n > 0;
    bool ok;
    int reason;

    if (!begun && tune_zo_measure(j->zo, seq, cli_train_batch(j, 0, seq), TRIES, &progress, e))
        return e->code;
    if (!begun && cli_given(j->cli, "rate"))
        j->zo->o.rate = (double)j->o->rate;
    cli_note("eps %g, rate %g", j->zo->o.eps, j->zo->o.rate);
    memcpy(h.name, j->name, sizeof h.name);
    h.eps = j->zo->o.eps;
    h.rate = j->zo->o.rate;
    j->log = fopen(j->half, begun ? "r+b" : "wb");
    ok = j->log != NULL && (begun || fwrite(&h, sizeof h, 1, j->log) == 1) &&
         fseek(j->log, (long)(sizeof h + j->log_n), SEEK_SET) == 0 && fflush(j->log) == 0;
    reason = errno;
    if (!ok && !begun) /* there is nothing to go on from */
        unlink(j->half);
    return ok ? note_spent(j, e) : err_set(e, ERR_IO, "%s: cannot write: %s", j->half, strerror(reason));
}

static void save_or_say(struct train_lora *j)
{
    struct err e;

    if (save(j, &e) != ERR_OK)
        cli_warn("what was learnt so far is not saved: %s", e.msg);
}

/* Numbers that the file cannot hold. */
static bool too_large(const struct train_lora *j)
{
    for (int64_t i = 0; i < j->lora->n_params; i++)
        if (!(fabsf(j->lora->theta[i]) <= F16_MAX))
            return true;
    return false;
}

static enum err_code end(struct train_lora *j, struct grad_seq *seq, struct err *e)
{
    if (j->zo != NULL && check_zo(j, seq, e)) /* ends where the loss was least */
        return e->code;
    if (j->zo != NULL)
        tune_zo_theta(j->zo);
    if (too_large(j))
        return err_set(e, ERR_FORMAT, "a weight has become too large for a 16-bit float: a smaller --rate may help");
    return ERR_OK;
}

void cli_train_end_steps(struct train_lora *j)
{
    train_adam_close(&j->adam);
    tune_shield_close(j->shield);
    free(j->was);
    free(j->gradient);
    j->shield = NULL;
    j->was = NULL;
    j->gradient = NULL;
}

enum err_code cli_train_learn(struct train_lora *j, struct err *e)
{
    struct grad_seq *seq = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *seq);
    double loss, last_ms = 0, saved_ms = cli_now_ms();
    enum err_code code = seq == NULL ? err_nomem(e) : ERR_OK;

    if (code == ERR_OK && j->zo != NULL)
        code = open_log(j, seq, e);
    j->step_first = j->step;
    j->learn_from_s = cli_train_lora_s(j);
    while (code == ERR_OK && part_done(j) < 1) {
        code = cli_interrupted() ? err_set(e, ERR_CANCEL, "interrupted") : one_step(j, seq, &loss, e);
        if (code != ERR_OK)
            break;
        report(j, loss, &last_ms);
        if (cli_now_ms() - saved_ms > SAVE_MS) {
            save_or_say(j);
            saved_ms = cli_now_ms();
        }
    }
    if (code == ERR_OK && j->step == 0)
        code = err_set(e, ERR_ARG, "--time %s is too short for a step: %.1f s are over, and a test takes %.1f s",
                       j->o->time, cli_train_lora_s(j), j->test_s);
    if ((code == ERR_OK || code == ERR_CANCEL) && j->step > 0) /* tests may be interrupted, too */
        save_or_say(j);
    if (code == ERR_OK)
        code = end(j, seq, e);
    if (code == ERR_FORMAT || code == ERR_ARG) /* nor would the same steps again help */
        unlink(j->half);
    free(seq);
    return code;
}
