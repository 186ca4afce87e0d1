/* SPDX-License-Identifier: Apache-2.0 */
/* learn.c - the steps of an adapter's training. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tune/job.h"
#include "tune/lora.h"
#include "tune/shield.h"
#include "tune/zo.h"

enum { TRIES = 4, CHECK = 10 }; /* of zo: directions that are measured, steps between two checks */
#define SAVE_MS 60e3
#define F16_MAX 65504.0f

static const struct train_adam_opts adam_opts = { 0.9f, 0.99f, 1e-8f, 0.0f, 1.0f };

enum err_code tune_gradient(struct tune_job *j, const struct grad_seq *seq, int n, double *each, struct err *e)
{
    memset(j->state.gradient, 0, (size_t)j->state.lora->n_params * sizeof *j->state.gradient);
    for (int first = 0, some; first < n; first += some) {
        int64_t rows = 0;
        double sum;

        for (some = 0; first + some < n && (some == 0 || rows + seq[first + some].n <= j->rows_max); some++)
            rows += seq[first + some].n;
        tune_lora_at(j->state.lora, j->state.lora->theta, j->state.gradient, 0, some, j->state.adapters);
        if (grad_backward(j->g,
                          &(struct grad_batch){ .seq = seq + first,
                                                .n_seq = some,
                                                .adapter = j->state.adapters,
                                                .n_adapter = j->state.lora->n,
                                                .seq_loss = each != NULL ? each + first : NULL,
                                                .keep = j->keep_layers },
                          &sum, e))
            return e->code;
    }
    return ERR_OK;
}

/* The gradient of the batch, and its loss. */
static enum err_code first_order(struct tune_job *j, const struct grad_seq *seq, int n, double *loss, struct err *e)
{
    double *each = j->state.seq_loss;

    if (tune_gradient(j, seq, n, each, e))
        return e->code;
    *loss = 0.0;
    for (int i = 0; i < n; i++)
        *loss += each[i];
    tune_batch_seen(j, seq, each, n);
    return ERR_OK;
}

double tune_limit_s(const struct tune_job *j)
{
    const double all = TUNE_STRENGTHS * 1.2 * j->report.test_s, some = 0.17 * j->o->time_s,
                 one = 1.2 * j->report.test_s;

    return j->o->time_s - (all < some ? all : one > some ? one : some);
}

/* Mean of this process; 0 before its first step. */
static double mean_step_s(const struct tune_job *j)
{
    const int64_t taken = j->state.step - j->report.step_first;

    return taken > 0 ? (tune_spent_s(j) - j->report.learn_from_s) / (double)taken : 0;
}

double tune_part_done(const struct tune_job *j)
{
    const double steps = (double)j->state.step / (double)j->steps, now = tune_spent_s(j);
    const double each = mean_step_s(j);

    if (now + each >= tune_limit_s(j))
        return 1;
    if (j->state.step - j->report.step_first < TUNE_WARM ||
        now + each * (double)(j->steps - j->state.step) <= tune_limit_s(j) || steps >= now / tune_limit_s(j))
        return steps;
    return now / tune_limit_s(j);
}

bool tune_move(struct tune_job *j, double rate)
{
    struct tune_state *s = &j->state;
    const int64_t n = s->lora->n_params;
    float *theta = s->lora->theta;

    if (s->shield != NULL) {
        tune_shield_apply(s->shield, s->gradient);
        memcpy(s->was, theta, (size_t)n * sizeof *theta);
    }
    if (!isfinite(train_adam_step(&s->adam, grad_pool(j->g), &adam_opts, (float)rate, theta, s->gradient, NULL)))
        return false;
    if (s->shield == NULL)
        return true;
    for (int64_t i = 0; i < n; i++)
        theta[i] -= s->was[i];
    tune_shield_apply(s->shield, theta);
    for (int64_t i = 0; i < n; i++)
        theta[i] += s->was[i];
    return true;
}

/* The loss of the first batch, and what follows from it. */
static enum err_code check_zo(struct tune_job *j, struct grad_seq *seq, struct err *e)
{
    struct tune_zo_note note;

    if (j->state.zo->checked == j->state.zo->step)
        return ERR_OK;
    if (tune_zo_check(j->state.zo, seq, tune_batch(j, 0, seq), &note, e))
        return e->code;
    tune_note(j, false, "step %" PRId64 ": the first batch has a loss of %.4f, the least is %.4f; rate %.3g",
              j->state.step, (double)note.part, (double)j->state.zo->least, j->state.zo->o.rate);
    return tune_log_add(j, &note, 1, e) ? e->code : tune_log_spent(j, e);
}

static enum err_code step_zo(struct tune_job *j, struct grad_seq *seq, double *loss, struct err *e)
{
    struct tune_zo *z = j->state.zo;
    const struct tune_zo_note back = { z->step, TUNE_ZO_CHECK, INFINITY };

    if (j->state.step % CHECK == 0 && check_zo(j, seq, e))
        return e->code;
    while (tune_zo_step(z, seq, tune_batch(j, j->state.step, seq), loss, e)) { /* once: not a number, so it goes back */
        if (e->code != ERR_FORMAT || z->checked == z->step || tune_zo_check_again(z, &back, e) ||
            tune_log_add(j, &back, 1, e))
            return e->code;
    }
    j->state.step++;
    return tune_log_add(j, z->note, j->o->samples, e);
}

static enum err_code one_step(struct tune_job *j, struct grad_seq *seq, double *loss, struct err *e)
{
    const double rate = train_rate((double)j->o->rate, j->state.step, TUNE_WARM, tune_part_done(j));

    if (j->state.zo != NULL)
        return step_zo(j, seq, loss, e);
    if (first_order(j, seq, tune_batch(j, j->state.step, seq), loss, e))
        return e->code;
    if (!isfinite(*loss) || !tune_move(j, rate))
        return err_set(e, ERR_FORMAT, "step %" PRId64 ": the loss is not a number: a smaller --rate may help",
                       j->state.step);
    j->state.step++;
    return ERR_OK;
}

static void report_step(const struct tune_job *j, double loss)
{
    const double steps = mean_step_s(j) * (double)(j->steps - j->state.step), time = tune_limit_s(j) - tune_spent_s(j);
    const double left_s = j->report.test_s + (steps < time ? steps : time > 0 ? time : 0);

    j->calls->step(j->calls->ctx, &(struct tune_step){ j->state.step, j->steps, loss, left_s });
}

static bool tick_measuring(void *ctx, uint64_t done, uint64_t total)
{
    struct err e;

    return tune_tick(ctx, TUNE_MEASURING, (int64_t)done, (int64_t)total, &e) == ERR_OK;
}

/* The log of zo, after its sizes were measured if it is new. */
static enum err_code begin_zo(struct tune_job *j, struct grad_seq *seq, struct err *e)
{
    const struct progress progress = { tick_measuring, j };
    const bool begun = j->state.log_n > 0;

    if (!begun && tune_zo_measure(j->state.zo, seq, tune_batch(j, 0, seq), TRIES, &progress, e))
        return e->code;
    if (!begun && j->o->rate_given)
        j->state.zo->o.rate = (double)j->o->rate;
    tune_note(j, false, "eps %g, rate %g", j->state.zo->o.eps, j->state.zo->o.rate);
    return tune_log_open(j, e);
}

static void save_or_say(struct tune_job *j)
{
    struct err e;

    if (tune_save(j, &e) != ERR_OK)
        tune_note(j, true, "what was learnt so far is not saved: %s", e.msg);
}

/* Numbers that the file cannot hold. */
static bool has_too_large(const struct tune_job *j)
{
    for (int64_t i = 0; i < j->state.lora->n_params; i++)
        if (!(fabsf(j->state.lora->theta[i]) <= F16_MAX))
            return true;
    return false;
}

static enum err_code end_theta(struct tune_job *j, struct grad_seq *seq, struct err *e)
{
    if (j->state.zo != NULL && check_zo(j, seq, e)) /* ends where the loss was least */
        return e->code;
    if (j->state.zo != NULL)
        tune_zo_theta(j->state.zo);
    if (has_too_large(j))
        return err_set(e, ERR_FORMAT, "a weight has become too large for a 16-bit float: a smaller --rate may help");
    return ERR_OK;
}

void tune_end_steps(struct tune_job *j)
{
    train_adam_close(&j->state.adam);
    tune_shield_close(j->state.shield);
    free(j->state.was);
    free(j->state.gradient);
    j->state.shield = NULL;
    j->state.was = NULL;
    j->state.gradient = NULL;
}

enum err_code tune_learn(struct tune_job *j, struct err *e)
{
    struct grad_seq *seq = calloc((size_t)(j->o->n_text + j->o->keep_batch), sizeof *seq);
    double loss, saved_ms = tune_now_ms(j);
    enum err_code code = seq == NULL ? err_nomem(e) : ERR_OK;

    if (code == ERR_OK && j->state.zo != NULL)
        code = begin_zo(j, seq, e);
    if (code == ERR_OK && j->state.zo == NULL && j->state.step == 0 && !tune_lora_is_neutral(j->state.lora))
        code = tune_batch_look(j, e);
    j->report.step_first = j->state.step;
    j->report.learn_from_s = tune_spent_s(j);
    while (code == ERR_OK && tune_part_done(j) < 1) {
        code = progress_tick(j->calls->stop, 0, 0) ? one_step(j, seq, &loss, e) : err_set(e, ERR_CANCEL, "interrupted");
        if (code != ERR_OK)
            break;
        report_step(j, loss);
        if (tune_now_ms(j) - saved_ms > SAVE_MS) {
            save_or_say(j);
            saved_ms = tune_now_ms(j);
        }
    }
    if (code == ERR_OK && j->state.step == 0)
        code = err_set(e, ERR_ARG,
                       "%s %s is too short for a step: %.1f s are over, and a test takes %.1f s; give at least %.0f s",
                       j->o->cpu_time ? "--cpu-time" : "--time", j->o->time, tune_spent_s(j), j->report.test_s,
                       ceil(3 * (tune_spent_s(j) + j->report.test_s)));
    if ((code == ERR_OK || code == ERR_CANCEL) && j->state.step > 0) /* tests may be interrupted, too */
        save_or_say(j);
    if (code == ERR_OK)
        code = end_theta(j, seq, e);
    if (code == ERR_FORMAT || code == ERR_ARG) /* nor would the same steps again help */
        unlink(j->half);
    free(seq);
    return code;
}
