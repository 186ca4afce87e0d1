/* SPDX-License-Identifier: Apache-2.0 */
/* zo.c - training by forward passes alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "adapt/adapt.h"
#include "grad/grad.h"
#include "tune/lora.h"
#include "tune/zo.h"

static enum err_code open_params(struct tune_zo *z, struct err *e)
{
    struct tune_lora *l = z->l;

    if ((z->o.beta > 0 && grad_params_open(&z->u, l->g, l->n_params, e)) ||
        grad_params_open(&z->good, l->g, l->n_params, e) ||
        grad_params_open(&z->moved, l->g, 2 * z->o.samples * l->n_params, e))
        return e->code;
    if (grad_room(l->g) < 0) {
        z->theta = l->theta;
        return ERR_OK;
    }
    if (grad_params_open(&z->theta, l->g, l->n_params, e))
        return e->code;
    grad_params_copy(l->g, z->theta, l->theta, l->n_params);
    return ERR_OK;
}

enum err_code tune_zo_open(struct tune_zo **out, struct tune_lora *l, const struct tune_zo_opts *o, struct err *e)
{
    struct tune_zo *z = calloc(1, sizeof *z);
    enum err_code code;

    if (z == NULL)
        return err_nomem(e);
    z->o = *o;
    z->l = l;
    z->least = INFINITY;
    z->checked = TUNE_ZO_CHECK;
    z->tensor = calloc(2 * (size_t)l->n + 1, sizeof *z->tensor);
    z->note = calloc((size_t)o->samples, sizeof *z->note);
    z->g = calloc((size_t)o->samples, sizeof *z->g);
    z->part = calloc((size_t)o->samples, sizeof *z->part);
    if (z->tensor == NULL || z->note == NULL || z->g == NULL || z->part == NULL)
        code = err_nomem(e);
    else
        code = open_params(z, e);
    if (code != ERR_OK) {
        tune_zo_close(z);
        return code;
    }
    for (int i = 0; i < l->n; i++) {
        z->tensor[2 * i + 1] = z->tensor[2 * i] + adapter_a_floats(&l->file->mat[i]);
        z->tensor[2 * i + 2] = z->tensor[2 * i + 1] + adapter_b_floats(&l->file->mat[i]);
    }
    *out = z;
    return ERR_OK;
}

void tune_zo_close(struct tune_zo *z)
{
    if (z == NULL)
        return;
    grad_params_close(z->l->g, z->u);
    grad_params_close(z->l->g, z->good);
    grad_params_close(z->l->g, z->moved);
    if (z->theta != z->l->theta)
        grad_params_close(z->l->g, z->theta);
    free(z->tensor);
    free(z->note);
    free(z->g);
    free(z->part);
    free(z);
}

void tune_zo_theta(struct tune_zo *z)
{
    if (z->theta != z->l->theta)
        grad_params_copy(z->l->g, z->l->theta, z->theta, z->l->n_params);
}

static struct grad_noise noise(const struct tune_zo *z, uint32_t step, uint32_t sample, int samples)
{
    return (struct grad_noise){ z->o.seed, step, sample, samples, z->tensor, 2 * z->l->n };
}

/* Copies of theta: + eps z, then - eps z, of each sample. */
static void move_samples(struct tune_zo *z, uint32_t step, uint32_t sample, int samples, double eps)
{
    const struct grad_noise n = noise(z, step, sample, samples);

    grad_noise_pairs(z->l->g, &n, z->moved, z->theta, (float)eps);
}

/* A pass over some of the sequences of n copies, beginning with `first`: as many as rows_max allows. Returns how
 * many. */
static int take_sequences(const struct tune_zo *z, const struct grad_seq *seq, int n_seq, int n, int first,
                          struct grad_batch *b, struct grad_seq *all, struct grad_adapter *a)
{
    const struct tune_lora *l = z->l;
    int64_t rows = 0;
    int some = 0;

    for (; first + some < n * n_seq; some++) {
        rows += seq[(first + some) % n_seq].n;
        if (some > 0 && z->o.rows_max > 0 && rows > z->o.rows_max)
            break;
        all[some] = seq[(first + some) % n_seq];
    }
    *b = (struct grad_batch){ .seq = all, .n_seq = some, .adapter = a };
    for (int copy = first / n_seq; copy * n_seq < first + some; copy++) {
        const int from = copy * n_seq - first, to = from + n_seq;

        tune_lora_at(l, z->moved + copy * l->n_params, NULL, from > 0 ? from : 0, to < some ? to : some,
                     a + b->n_adapter);
        b->n_adapter += l->n;
    }
    return some;
}

/* Losses of n copies of the parameters side by side: the batch once for each of them. */
static enum err_code losses(struct tune_zo *z, const struct grad_seq *seq, int n_seq, int n, double *loss,
                            struct err *e)
{
    struct tune_lora *l = z->l;
    struct grad_seq *all = calloc((size_t)(n * n_seq), sizeof *all);
    struct grad_adapter *a = calloc((size_t)(n * l->n), sizeof *a);
    double *each = calloc((size_t)(n * n_seq), sizeof *each), sum;
    enum err_code code = ERR_OK;

    if (all == NULL || a == NULL || each == NULL)
        code = err_nomem(e);
    for (int first = 0; first < n * n_seq && code == ERR_OK;) {
        struct grad_batch b;
        const int some = take_sequences(z, seq, n_seq, n, first, &b, all, a);

        b.seq_loss = each + first;
        code = grad_forward(l->g, &b, &sum, e);
        first += some;
    }
    for (int i = 0; i < n && code == ERR_OK; i++) {
        loss[i] = 0.0;
        for (int s = 0; s < n_seq; s++)
            loss[i] += each[i * n_seq + s];
        if (!isfinite(loss[i]))
            code = err_set(e, ERR_FORMAT, "the loss is not a number");
    }
    free(all);
    free(a);
    free(each);
    return code;
}

/* theta by the notes of a step. */
static void apply_notes(struct tune_zo *z)
{
    const struct grad_noise n = noise(z, z->step, 0, z->o.samples);

    for (int k = 0; k < z->o.samples; k++)
        z->part[k] = z->note[k].part;
    grad_noise_add(z->l->g, &n, z->theta, z->u, z->o.beta, z->part);
    z->step++;
}

enum err_code tune_zo_step(struct tune_zo *z, const struct grad_seq *seq, int n_seq, double *loss, struct err *e)
{
    const int n = z->o.samples;
    double *got = calloc(2 * (size_t)n, sizeof *got), sum = 0.0;
    enum err_code code = got == NULL ? err_nomem(e) : ERR_OK;

    if (code == ERR_OK) {
        move_samples(z, z->step, 0, n, z->o.eps);
        code = losses(z, seq, n_seq, 2 * n, got, e);
    }
    for (int k = 0; k < n && code == ERR_OK; k++) {
        z->g[k] = (got[2 * k] - got[2 * k + 1]) / (2.0 * z->o.eps);
        z->note[k] = (struct tune_zo_note){ z->step, (uint32_t)k, (float)(z->o.rate * z->g[k] / n) };
        sum += got[2 * k] + got[2 * k + 1];
    }
    free(got);
    if (code != ERR_OK)
        return code;
    apply_notes(z);
    *loss = sum / (2.0 * n);
    return ERR_OK;
}

enum err_code tune_zo_again(struct tune_zo *z, const struct tune_zo_note *note, struct err *e)
{
    for (int k = 0; k < z->o.samples; k++)
        if (note[k].step != z->step || note[k].sample != (uint32_t)k || !isfinite(note[k].part))
            return err_set(e, ERR_FORMAT, "the log is not that of this training after step %u", (unsigned)z->step);
    memcpy(z->note, note, (size_t)z->o.samples * sizeof *note);
    apply_notes(z);
    return ERR_OK;
}

enum err_code tune_zo_check_again(struct tune_zo *z, const struct tune_zo_note *note, struct err *e)
{
    const int64_t n = z->l->n_params;

    if (note->step != z->step || note->sample != TUNE_ZO_CHECK)
        return err_set(e, ERR_FORMAT, "the log is not that of this training after step %u", (unsigned)z->step);
    z->checked = z->step;
    if (note->part < z->least) {
        z->o.rate *= z->least < INFINITY ? 1.25 : 1;
        z->least = note->part;
        grad_params_copy(z->l->g, z->good, z->theta, n);
        return ERR_OK;
    }
    z->o.rate *= 0.5;
    grad_params_copy(z->l->g, z->theta, z->good, n);
    if (z->u != NULL)
        grad_params_copy(z->l->g, z->u, NULL, n);
    return ERR_OK;
}

enum err_code tune_zo_check(struct tune_zo *z, const struct grad_seq *seq, int n_seq, struct tune_zo_note *note,
                            struct err *e)
{
    double loss;
    enum err_code code;

    grad_params_copy(z->l->g, z->moved, z->theta, z->l->n_params);
    code = losses(z, seq, n_seq, 1, &loss, e);
    if (code != ERR_OK && (code != ERR_FORMAT || z->least == INFINITY))
        return code;
    *note = (struct tune_zo_note){ z->step, TUNE_ZO_CHECK, code == ERR_OK ? (float)loss : INFINITY };
    return tune_zo_check_again(z, note, e);
}

/* Directions of a measurement are of no step. */
#define MEASURE 0xffffffffu

enum err_code tune_zo_measure(struct tune_zo *z, const struct grad_seq *seq, int n_seq, int tries,
                              const struct progress *progress, struct err *e)
{
    enum { RUNGS = 7, FIRST = -12 }; /* eps of 2^-12 to 2^-6 */
    double apart[RUNGS] = { 0 }, size[RUNGS] = { 0 }, curve[RUNGS] = { 0 }, got[2], at, before;
    int best = -1;

    grad_params_copy(z->l->g, z->moved, z->theta, z->l->n_params);
    if (losses(z, seq, n_seq, 1, &at, e))
        return e->code;
    for (int t = 0; t < tries; t++) {
        before = 0.0;
        for (int r = 0; r < RUNGS; r++) {
            const double eps = ldexp(1.0, r + FIRST);
            double slope;

            if (!progress_tick(progress, (uint64_t)(t * RUNGS + r), (uint64_t)(tries * RUNGS)))
                return err_set(e, ERR_CANCEL, "interrupted");
            move_samples(z, MEASURE, (uint32_t)t, 1, eps);
            if (losses(z, seq, n_seq, 2, got, e))
                return e->code;
            slope = (got[0] - got[1]) / (2.0 * eps);
            curve[r] += (got[0] + got[1] - 2.0 * at) / (eps * eps) / tries;
            if (r > 0) { /* of the rung below */
                apart[r - 1] += (slope - before) * (slope - before);
                size[r - 1] += slope * slope + before * before;
            }
            before = slope;
        }
    }
    for (int r = 0; r + 1 < RUNGS; r++)
        if (size[r] > 0 && (best < 0 || apart[r] * size[best] < apart[best] * size[r]))
            best = r;
    if (best < 0)
        return ERR_OK;
    z->o.eps = ldexp(1.0, best + FIRST);
    if (curve[best] > 0)
        z->o.rate = z->o.samples * (1.0 - (double)z->o.beta) / curve[best];
    return ERR_OK;
}
