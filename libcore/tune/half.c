/* SPDX-License-Identifier: Apache-2.0 */
/* half.c - the file of an interrupted training of an adapter: its state after whole steps, or the log of zo. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "train/files.h"
#include "tune/job.h"
#include "tune/lora.h"
#include "tune/zo.h"

struct half {
    char name[200];
    int64_t step, n_params, n_seen;
    double spent_s, eps, rate; /* the last two of zo */
};

enum err_code tune_log_add(struct tune_job *j, const struct tune_zo_note *note, int n, struct err *e)
{
    if (fwrite(note, sizeof *note, (size_t)n, j->state.log) != (size_t)n || fflush(j->state.log) != 0)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", j->half);
    return ERR_OK;
}

/* In zo's log, of which nothing else changes but its end. */
enum err_code tune_log_spent(struct tune_job *j, struct err *e)
{
    const double spent_s = tune_spent_s(j);

    if (pwrite(fileno(j->state.log), &spent_s, sizeof spent_s, offsetof(struct half, spent_s)) !=
        (ssize_t)sizeof spent_s)
        return err_errno(e, ERR_IO, errno, "%s: cannot write", j->half);
    return ERR_OK;
}

enum err_code tune_save(struct tune_job *j, struct err *e)
{
    struct half h = { .step = j->state.step,
                      .n_params = j->state.lora->n_params,
                      .n_seen = j->state.n_seen,
                      .spent_s = tune_spent_s(j) };
    const size_t n = (size_t)h.n_params * sizeof(float);
    struct io_out *out;
    enum err_code code;

    if (j->state.zo != NULL) /* its log is there */
        return tune_log_spent(j, e);
    memcpy(h.name, j->name, sizeof h.name);
    if (io_out_open(&out, j->half, e))
        return e->code;
    code = io_out_write(out, &h, sizeof h, e) || io_out_write(out, j->state.lora->theta, n, e) ||
                   io_out_write(out, j->state.adam.m, n, e) || io_out_write(out, j->state.adam.v, n, e) ||
                   io_out_write(out, j->state.seen, (size_t)j->state.n_seen * sizeof *j->state.seen, e)
               ? e->code
               : ERR_OK;
    return io_out_end(out, code, e);
}

/* Whole steps and checks of a log. */
static enum err_code replay_log(struct tune_job *j, const unsigned char *log, size_t n, struct err *e)
{
    const size_t one = sizeof(struct tune_zo_note), each = (size_t)j->o->samples * one;
    struct tune_zo_note *note = calloc((size_t)j->o->samples, sizeof *note);
    enum err_code code = note == NULL ? err_nomem(e) : ERR_OK;

    while (n - j->state.log_n >= one && code == ERR_OK) {
        memcpy(note, log + j->state.log_n, one);
        if (note->sample == TUNE_ZO_CHECK) {
            code = tune_zo_check_again(j->state.zo, note, e);
            j->state.log_n += one;
            continue;
        }
        if (n - j->state.log_n < each)
            break;
        memcpy(note, log + j->state.log_n, each);
        code = tune_zo_again(j->state.zo, note, e);
        j->state.log_n += each;
        j->state.step += code == ERR_OK;
    }
    free(note);
    return code == ERR_OK ? code : err_wrap(e, "%s", j->half);
}

/* Arrays after the header: weights, their moments, and losses that were seen. */
static const float *array_at(const struct tune_job *j, const struct io_map *m, int i)
{
    return (const float *)(const void *)(m->data + sizeof(struct half)) + i * j->state.lora->n_params;
}

static bool all_finite(const float *v, int64_t n, float least)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(v[i]) || v[i] < least)
            return false;
    return true;
}

/* Whether a file with this training's name can be its state; the entries of a log are looked at when they are
 * replayed. */
static bool is_sound(const struct tune_job *j, const struct io_map *m, const struct half *h)
{
    const int64_t n = h->n_params, floats = (int64_t)((m->size - sizeof *h) / sizeof(float));

    if (n != j->state.lora->n_params || !isfinite(h->spent_s) || h->spent_s < 0)
        return false;
    if (j->state.zo != NULL)
        return isfinite(h->eps) && h->eps > 0 && isfinite(h->rate) && h->rate > 0;
    return h->step >= 0 && h->step <= j->steps && h->n_seen >= 0 && h->n_seen <= floats &&
           3 * n + h->n_seen == floats && m->size % sizeof(float) == 0 && all_finite(array_at(j, m, 0), n, -INFINITY) &&
           all_finite(array_at(j, m, 1), n, -INFINITY) && all_finite(array_at(j, m, 2), n, 0) &&
           (h->n_seen != j->state.n_seen || all_finite(array_at(j, m, 3), h->n_seen, -INFINITY));
}

/* Names begin with 16 digits for items and options that nobody reads. */
static void refuse_other(const struct tune_job *j, const char name[200], struct err *e)
{
    enum { DIGITS = 17 };
    const size_t n = strnlen(name, 200);
    bool plain = n > DIGITS && n < 200;

    for (size_t i = 0; i < n; i++)
        plain = plain && name[i] >= ' ' && name[i] <= '~';
    if (plain && strcmp(name + DIGITS, j->name + DIGITS) != 0)
        err_set(e, ERR_ARG, "%s belongs to another training (%s; this one: %s): finish that first, or remove the file",
                j->half, name + DIGITS, j->name + DIGITS);
    else
        err_set(e, ERR_ARG,
                "%s belongs to another training, of other items or options: finish that first, or remove the file",
                j->half);
}

/* What an interrupted run of the same command left; m->data NULL: there is nothing. */
static enum err_code read_half(const struct tune_job *j, struct io_map *m, struct half *h, struct err *e)
{
    *m = (struct io_map){ 0 };
    if (access(j->half, F_OK) != 0)
        return ERR_OK;
    if (io_map_open(m, j->half, e))
        return e->code;
    if (m->size >= sizeof *h)
        memcpy(h, m->data, sizeof *h);
    if (m->size < sizeof *h || memcmp(h->name, j->name, sizeof h->name) != 0)
        refuse_other(j, m->size < sizeof *h ? "" : h->name, e);
    else if (!is_sound(j, m, h))
        err_set(e, ERR_FORMAT, "%s is damaged: remove the file", j->half);
    else
        return ERR_OK;
    io_map_close(m);
    return e->code;
}

enum err_code tune_resume_check(struct tune_job *j, struct err *e)
{
    struct io_map m;
    struct half h;

    train_drop_done(j->o->out, j->half);
    if (read_half(j, &m, &h, e))
        return e->code;
    io_map_close(&m);
    return ERR_OK;
}

enum err_code tune_resume(struct tune_job *j, struct err *e)
{
    const size_t n = (size_t)j->state.lora->n_params * sizeof(float);
    struct io_map m;
    struct half h;
    enum err_code code = ERR_OK;

    if (read_half(j, &m, &h, e))
        return e->code;
    if (m.data == NULL)
        return ERR_OK;
    if (j->state.zo != NULL) {
        j->state.zo->o.eps = h.eps;
        j->state.zo->o.rate = h.rate;
        code = replay_log(j, m.data + sizeof h, m.size - sizeof h, e);
    } else {
        memcpy(j->state.lora->theta, array_at(j, &m, 0), n);
        memcpy(j->state.adam.m, array_at(j, &m, 1), n);
        memcpy(j->state.adam.v, array_at(j, &m, 2), n);
        if (h.n_seen == j->state.n_seen) /* else the model had time to write less, or more */
            memcpy(j->state.seen, array_at(j, &m, 3), (size_t)h.n_seen * sizeof *j->state.seen);
        j->state.adam.step = j->state.step = h.step;
    }
    j->report.before_s = h.spent_s;
    io_map_close(&m);
    if (code == ERR_OK)
        tune_note(j, true, "goes on after %.0f s and %" PRId64 " steps", j->report.before_s, j->state.step);
    return code;
}

/* New with its measured sizes, or cut to whole steps. */
enum err_code tune_log_open(struct tune_job *j, struct err *e)
{
    struct half h = { .n_params = j->state.lora->n_params };
    const bool begun = j->state.log_n > 0;
    bool ok;
    int reason;

    memcpy(h.name, j->name, sizeof h.name);
    h.eps = j->state.zo->o.eps;
    h.rate = j->state.zo->o.rate;
    j->state.log = fopen(j->half, begun ? "r+b" : "wb");
    ok = j->state.log != NULL && (begun || fwrite(&h, sizeof h, 1, j->state.log) == 1) &&
         fseek(j->state.log, (long)(sizeof h + j->state.log_n), SEEK_SET) == 0 && fflush(j->state.log) == 0;
    reason = errno;
    if (!ok && !begun) /* there is nothing to go on from */
        unlink(j->half);
    return ok ? tune_log_spent(j, e) : err_errno(e, ERR_IO, reason, "%s: cannot write", j->half);
}
